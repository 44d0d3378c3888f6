// SPDX-License-Identifier: AGPL-3.0-only
//
// The link table: listening, accepting, bytes in and out. Dialling is posix_dial.c.
#include "hal/posix_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#define BACKLOG 64
#define REST_NS UINT64_C(100000000)

// ---- listening ----

// At the entry's address. SC_OK, or an end that is noted.
static sc_status listen_there(struct sc_posix *posix, struct sc_posix_entry *entry) {
    const int on = 1;
    const struct sockaddr *address = &entry->address.any;
    entry->fd = sc_posix_socket(address->sa_family);
    // A restarted rank 0 binds at once, whatever its former connections still wait for.
    if (entry->fd >= 0 && setsockopt(entry->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(entry->fd, address, sc_posix_length(&entry->address)) == 0 &&
        listen(entry->fd, BACKLOG) == 0) {
        sc_posix_note(posix, entry, SC_POSIX_LISTENS, 0, 0);
        sc_posix_watch(posix, entry, POLLIN);
        return SC_OK;
    }
    sc_status status = sc_posix_is_shortage(errno) ? SC_NO_MEMORY : SC_BIND;
    sc_posix_note(posix, entry, SC_POSIX_NO_LISTENER, 0, errno);
    sc_posix_let_go(posix, entry);
    return status;
}

static sc_status listen_somewhere(struct sc_posix *posix, struct sc_posix_entry *entry,
                                  const struct sc_posix_answer *answer) {
    if (answer->found == NULL) {
        sc_posix_note(posix, entry, SC_POSIX_NO_NAME, answer->resolver_error, answer->system_error);
        return sc_posix_answer_status(answer);
    }
    sc_status status = SC_BIND;
    for (const struct addrinfo *a = answer->found; a != NULL && status != SC_OK; a = a->ai_next)
        if (sc_posix_address_of(a, entry->port, &entry->address))
            status = listen_there(posix, entry);
    return status;
}

static sc_status link_listen(void *ctx, const char *host, uint16_t port, uint64_t *listener) {
    struct sc_posix *posix = ctx;
    if (host == NULL || host[0] == '\0' || port == 0)
        return SC_INVALID;
    struct sc_posix_entry *entry = sc_posix_take_for(posix, SC_POSIX_LISTENING, host, port);
    if (entry == NULL)
        return SC_NO_MEMORY;
    struct sc_posix_answer answer = sc_posix_lookup(host, 0);
    sc_status status = listen_somewhere(posix, entry, &answer);
    if (answer.found != NULL)
        freeaddrinfo(answer.found);
    if (status != SC_OK) {
        sc_posix_release(posix, entry);
        return status;
    }
    *listener = entry->handle;
    return SC_OK;
}

// ---- accepting ----

// A newcomer that has gone again is no reason to keep the next one waiting.
static int accept_next(int listener) {
    int fd;
    do {
        fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    } while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
    return fd;
}

// There is no room for newcomers: being closed tells them so, and frees the backlog for others.
static void shed_newcomers(struct sc_posix *posix, int listener) {
    int fd;
    if (posix->spare_fd >= 0)
        close(posix->spare_fd);
    for (int i = 0; i < BACKLOG && (fd = accept_next(listener)) >= 0; i++)
        close(fd);
    posix->spare_fd = fcntl(posix->wake_fd, F_DUPFD_CLOEXEC, 0);
}

static sc_status link_accept(void *ctx, uint64_t listener, uint64_t *link) {
    struct sc_posix *posix = ctx;
    struct sc_posix_entry *from = sc_posix_find(posix, listener);
    if (from == NULL || from->state != SC_POSIX_LISTENING)
        return SC_INVALID;
    sc_posix_watch(posix, from, POLLIN);
    int fd = accept_next(from->fd);
    int error = errno;
    struct sc_posix_entry *entry = fd >= 0 ? sc_posix_take(posix, SC_POSIX_OPEN) : NULL;
    if (entry != NULL) {
        sc_posix_send_at_once(fd);
        entry->fd = fd;
        sc_posix_watch(posix, entry, POLLIN);
        *link = entry->handle;
        return SC_OK;
    }
    if (fd < 0 && error == EAGAIN)
        return SC_INPROGRESS;
    if (fd >= 0)
        close(fd);
    if (fd >= 0 || sc_posix_is_shortage(error))
        shed_newcomers(posix, from->fd);
    // Whatever it is, it may stay so for a while: a wait that watched on would only spin.
    from->rests_until_ns = sc_posix_now_ns() + REST_NS;
    return SC_INPROGRESS;
}

// ---- bytes ----

// The entry of a link that is connected; else NULL and the answer to give.
static struct sc_posix_entry *enter(struct sc_posix *posix, uint64_t link, size_t bytes,
                                    sc_status *status) {
    struct sc_posix_entry *entry = bytes != 0 ? sc_posix_find(posix, link) : NULL;
    *status = entry != NULL ? sc_posix_standing(posix, entry) : SC_INVALID;
    return *status == SC_OK ? entry : NULL;
}

// What a transfer that moved nothing means. Any error but "not now" has ended the connection.
static sc_status nothing_moved(struct sc_posix *posix, struct sc_posix_entry *entry, ssize_t result,
                               short wanted) {
    if (result == 0 || errno != EAGAIN)
        return SC_LINK_EOF;
    sc_posix_watch(posix, entry, wanted);
    return SC_INPROGRESS;
}

static sc_status link_send(void *ctx, uint64_t link, const void *data, size_t bytes, size_t *sent) {
    sc_status status;
    struct sc_posix_entry *entry = enter(ctx, link, bytes, &status);
    if (entry == NULL)
        return status;
    ssize_t taken;
    do {
        taken = send(entry->fd, data, bytes, MSG_NOSIGNAL);
    } while (taken < 0 && errno == EINTR);
    if (taken <= 0)
        return nothing_moved(ctx, entry, taken, POLLOUT);
    *sent = (size_t)taken;
    return SC_OK;
}

static sc_status link_recv(void *ctx, uint64_t link, void *data, size_t bytes, size_t *received) {
    sc_status status;
    struct sc_posix_entry *entry = enter(ctx, link, bytes, &status);
    if (entry == NULL)
        return status;
    ssize_t taken;
    do {
        taken = recv(entry->fd, data, bytes, 0);
    } while (taken < 0 && errno == EINTR);
    if (taken <= 0)
        return nothing_moved(ctx, entry, taken, POLLIN);
    sc_posix_watch(ctx, entry, POLLIN); // there may be more
    *received = (size_t)taken;
    return SC_OK;
}

static void link_close(void *ctx, uint64_t handle) {
    struct sc_posix *posix = ctx;
    struct sc_posix_entry *entry = sc_posix_find(posix, handle);
    if (entry == NULL)
        return;
    sc_posix_give_up(posix, entry);
    sc_posix_release(posix, entry);
}

const struct sc_link sc_posix_link_table = {
    .size = sizeof sc_posix_link_table,
    .name = "posix",
    .listen = link_listen,
    .accept = link_accept,
    .dial = sc_posix_dial,
    .connected = sc_posix_connected,
    .send = link_send,
    .recv = link_recv,
    .close = link_close,
    .explain = sc_posix_explain,
};
