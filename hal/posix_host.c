// SPDX-License-Identifier: AGPL-3.0-only
//
// The object itself, the clock, and the one place that sleeps.
#include "hal/posix_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS UINT64_C(1000000000)

uint64_t sc_posix_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

static uint64_t host_now_ns(void *ctx) {
    (void)ctx;
    return sc_posix_now_ns();
}

static sc_status host_entropy(void *ctx, void *out, size_t bytes) {
    (void)ctx;
    uint8_t *to = out;
    while (bytes > 0) {
        ssize_t got = getrandom(to, bytes, 0);
        if (got < 0 && errno != EINTR)
            return SC_DEVICE_ERROR;
        if (got > 0) {
            to += got;
            bytes -= (size_t)got;
        }
    }
    return SC_OK;
}

static void host_wake(void *ctx) {
    const struct sc_posix *posix = ctx;
    const int before = errno; // a signal handler's caller may be looking at it
    const uint64_t one = 1;
    // It fails only when the counter is full, and then the wait ends anyway.
    ssize_t written = write(posix->wake_fd, &one, sizeof one);
    (void)written;
    errno = before;
}

// ---- waiting ----

// What one poll watches: the wake first, then those entries that wait is to tell of.
struct watch {
    bool untold; // some dial is to be told of already
    nfds_t count;
    struct pollfd set[1 + SC_POSIX_HANDLES_MAX];
    uint64_t handles[1 + SC_POSIX_HANDLES_MAX]; // an entry may change hands during the poll
};

void sc_posix_rouse(struct sc_posix *posix) {
    if (posix->asleep)
        host_wake(posix);
    posix->asleep = false;
}

// Lowers *until_ns to the end of the first rest of a listener.
static void gather(struct sc_posix *posix, struct watch *watch, uint64_t now_ns,
                   uint64_t *until_ns) {
    watch->set[0] = (struct pollfd){.fd = posix->wake_fd, .events = POLLIN};
    watch->count = 1;
    watch->untold = false;
    for (uint32_t i = 0; i < posix->used; i++) {
        struct sc_posix_entry *entry = &posix->entries[i];
        if (entry->untold)
            watch->untold = true;
        entry->untold = false;
        if (entry->fd < 0 || entry->interest == 0)
            continue;
        if (entry->rests_until_ns > now_ns) {
            if (entry->rests_until_ns < *until_ns)
                *until_ns = entry->rests_until_ns;
            continue;
        }
        watch->handles[watch->count] = entry->handle;
        watch->set[watch->count++] = (struct pollfd){.fd = entry->fd, .events = entry->interest};
    }
}

// Forgets the interest in what is ready: it is told once.
static void tell(struct sc_posix *posix, const struct watch *watch) {
    eventfd_t wakes;
    if (watch->set[0].revents != 0)
        (void)eventfd_read(watch->set[0].fd, &wakes);
    for (nfds_t i = 1; i < watch->count; i++) {
        short ready = watch->set[i].revents;
        if (ready & ~(POLLIN | POLLOUT)) // an end or an error answers whatever is asked next
            ready = POLLIN | POLLOUT;
        struct sc_posix_entry *entry = sc_posix_find(posix, watch->handles[i]);
        if (entry != NULL)
            entry->interest &= (short)~ready;
    }
}

// Entries are looked at under the lock alone, and never while it sleeps.
static sc_status host_wait(void *ctx, uint64_t deadline_ns) {
    struct sc_posix *posix = ctx;
    for (;;) {
        struct watch watch;
        pthread_mutex_lock(&posix->lock);
        uint64_t now_ns = sc_posix_now_ns(), until_ns = deadline_ns;
        gather(posix, &watch, now_ns, &until_ns);
        posix->asleep = !watch.untold;
        pthread_mutex_unlock(&posix->lock);
        if (watch.untold)
            return SC_OK;
        uint64_t left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
        const struct timespec left = {.tv_sec = (time_t)(left_ns / SECOND_NS),
                                      .tv_nsec = (long)(left_ns % SECOND_NS)};
        int ready = ppoll(watch.set, watch.count, until_ns == SC_NEVER_NS ? NULL : &left, NULL);
        bool failed = ready < 0 && errno != EINTR;
        pthread_mutex_lock(&posix->lock);
        posix->asleep = false;
        if (ready > 0)
            tell(posix, &watch);
        pthread_mutex_unlock(&posix->lock);
        if (failed)
            return SC_NO_MEMORY;
        if (ready > 0)
            return SC_OK;
        if (sc_posix_now_ns() >= deadline_ns)
            return SC_TIMEOUT;
    }
}

// ---- the object ----

sc_status sc_posix_create(struct sc_posix **out) {
    struct sc_posix *posix = calloc(1, sizeof *posix);
    if (posix == NULL)
        return SC_NO_MEMORY;
    sc_posix_table_open(posix);
    posix->host = (struct sc_host){
        .size = sizeof posix->host,
        .name = "posix",
        .ctx = posix,
        .now_ns = host_now_ns,
        .entropy = host_entropy,
        .wait = host_wait,
        .wake = host_wake,
    };
    sc_posix_threads_open(posix);
    posix->link = sc_posix_link_table;
    posix->link.ctx = posix;
    posix->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    posix->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    posix->spare_fd = fcntl(posix->wake_fd, F_DUPFD_CLOEXEC, 0);
    if (posix->wake_fd < 0 || posix->event_fd < 0 || posix->spare_fd < 0) {
        sc_posix_destroy(posix);
        return SC_NO_MEMORY;
    }
    sc_posix_fork_watch(posix); // whole, and without links yet
    *out = posix;
    return SC_OK;
}

void sc_posix_hang_up(struct sc_posix *posix) {
    for (uint32_t i = 0; i < SC_POSIX_HANDLES_MAX; i++)
        if (posix->entries[i].state != SC_POSIX_FREE)
            sc_posix_release(posix, &posix->entries[i]);
}

void sc_posix_destroy(struct sc_posix *posix) {
    if (posix == NULL)
        return;
    sc_posix_query_end(posix->query);
    pthread_mutex_lock(&posix->lock); // a fork finds a link open, and closes it, or finds none
    sc_posix_hang_up(posix);
    pthread_mutex_unlock(&posix->lock);
    sc_posix_fork_forget(posix);
    if (posix->spare_fd >= 0)
        close(posix->spare_fd);
    if (posix->event_fd >= 0)
        close(posix->event_fd);
    if (posix->wake_fd >= 0)
        close(posix->wake_fd);
    sc_posix_threads_close(posix);
    free(posix);
}

const struct sc_host *sc_posix_host(struct sc_posix *posix) {
    return &posix->host;
}

const struct sc_link *sc_posix_link(struct sc_posix *posix) {
    return &posix->link;
}
