// SPDX-License-Identifier: AGPL-3.0-only
//
// Links that some threads use while another sleeps in wait. This program stands between wait and the
// kernel: it knows when somebody sleeps, and can act between a sleep and what wait makes of it.
#include "core/assert.h"
#include "tests/support/sockets_rig.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static _Atomic pid_t sleeper;     // the thread that is about to sleep, or does
static void (*after_sleep)(void); // called once, on the thread that slept
static _Atomic bool sleeps_fail;

int ppoll(struct pollfd *set, nfds_t count, const struct timespec *left, const sigset_t *mask) {
    union {
        void *symbol;
        int (*call)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);
    } next = {.symbol = dlsym(RTLD_NEXT, "ppoll")};
    if (sleeps_fail) {
        errno = ENOMEM;
        return -1;
    }
    sleeper = gettid();
    int ready = next.call(set, count, left, mask);
    sleeper = 0;
    void (*act)(void) = after_sleep;
    after_sleep = NULL;
    if (act != NULL)
        act();
    return ready;
}

static struct sockets_pair p; // a listener alone

static int listen_alone(void **state) {
    (void)state;
    sockets_pair_listen(&p, V4);
    return 0;
}

static int end(void **state) {
    (void)state;
    sockets_pair_close(&p);
    return 0;
}

static void enter(void) {
    SC_ASSERT(p.host->enter(p.host->ctx) == SC_OK);
}

static void leave(void) {
    p.host->leave(p.host->ctx);
}

static uint64_t limit_ns(void) {
    return sockets_now() + SOCKETS_LIMIT_NS;
}

static sc_status recv_byte(uint64_t link) {
    char byte;
    size_t got;
    return p.link->recv(p.link->ctx, link, &byte, 1, &got);
}

static void say_byte(int stranger) {
    assert_int_equal(send(stranger, "x", 1, MSG_NOSIGNAL), 1);
}

// Until nothing is left to tell.
static void settle(void) {
    while (p.host->wait(p.host->ctx, 0) == SC_OK)
        continue;
}

// ---- one sleeper ----

static void *sleep_until_told(void *arg) {
    *(sc_status *)arg = p.host->wait(p.host->ctx, limit_ns());
    return NULL;
}

// Whether the system says so of that thread: its state is the word behind its name.
static bool is_asleep(pid_t thread) {
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)thread);
    FILE *file = fopen(path, "r");
    SC_ASSERT(file != NULL && fgets(line, sizeof line, file) != NULL);
    fclose(file);
    const char *name_end = strrchr(line, ')');
    SC_ASSERT(name_end != NULL);
    return strncmp(name_end, ") S", 3) == 0;
}

static pthread_t begin_to_sleep(sc_status *status) {
    const uint64_t until_ns = limit_ns();
    pthread_t thread;
    SC_ASSERT(pthread_create(&thread, NULL, sleep_until_told, status) == 0);
    while (sleeper == 0 || !is_asleep(sleeper)) {
        SC_ASSERT(sockets_now() < until_ns);
        sched_yield();
    }
    return thread;
}

static void expect_told(pthread_t thread, const sc_status *status) {
    SC_ASSERT(pthread_join(thread, NULL) == 0);
    assert_int_equal(*status, SC_OK);
}

static void close_takes_effect_while_another_thread_sleeps(void **state) {
    sc_status status;
    char byte;
    bool ended = false;
    (void)state;
    int stranger = sockets_stranger(p.port);
    uint64_t link = sockets_accept(&p);
    settle();
    assert_int_equal(recv_byte(link), SC_INPROGRESS);
    pthread_t thread = begin_to_sleep(&status);
    enter();
    p.link->close(p.link->ctx, link);
    leave();
    struct pollfd look = {.fd = stranger, .events = POLLIN};
    int heard =
        poll(&look, 1, (int)(SOCKETS_LIMIT_NS / SOCKETS_MS / 2)); // before the sleep's limit
    expect_told(thread, &status);
    assert_int_equal(heard, 1);
    assert_int_equal(sockets_read(stranger, &byte, 1, &ended), 0);
    assert_true(ended);
    close(stranger);
}

static void what_another_thread_asks_for_is_watched(void **state) {
    sc_status status;
    (void)state;
    int stranger = sockets_stranger(p.port);
    uint64_t link = sockets_accept(&p);
    say_byte(stranger);
    assert_int_equal(p.host->wait(p.host->ctx, limit_ns()), SC_OK);
    settle(); // it is told of, and not watched any more
    pthread_t thread = begin_to_sleep(&status);
    enter();
    while (recv_byte(link) != SC_INPROGRESS)
        continue;
    leave();
    say_byte(stranger);
    expect_told(thread, &status); // by the recv, or by the byte
    settle();
    assert_int_equal(recv_byte(link), SC_OK);
    close(stranger);
}

static void what_is_watched_already_wakes_nobody(void **state) {
    sc_status status;
    (void)state;
    int stranger = sockets_stranger(p.port);
    uint64_t link = sockets_accept(&p), other;
    assert_int_equal(recv_byte(link), SC_INPROGRESS);
    assert_int_equal(p.link->accept(p.link->ctx, p.listener, &other), SC_INPROGRESS);
    settle();
    assert_int_equal(recv_byte(link), SC_INPROGRESS);
    assert_int_equal(p.link->accept(p.link->ctx, p.listener, &other), SC_INPROGRESS);
    pthread_t thread = begin_to_sleep(&status);
    enter();
    assert_int_equal(recv_byte(link), SC_INPROGRESS);
    assert_int_equal(p.link->accept(p.link->ctx, p.listener, &other), SC_INPROGRESS);
    leave();
    p.host->wake(p.host->ctx);
    expect_told(thread, &status);
    assert_int_equal(p.host->wait(p.host->ctx, 0), SC_TIMEOUT); // there was this one wake
    close(stranger);
}

// ---- nobody can sleep ----

static _Atomic uint32_t steps;

static uint64_t count_step(void *arg) {
    (void)arg;
    steps++;
    return SC_NEVER_NS;
}

static void steps_rest_where_the_kernel_cannot_wait(void **state) {
    const uint64_t since_ns = sockets_now();
    (void)state;
    sleeps_fail = true;
    steps = 0;
    assert_int_equal(p.host->wait(p.host->ctx, SC_NEVER_NS), SC_NO_MEMORY);
    assert_int_equal(p.host->thread_start(p.host->ctx, SC_HOST_PROGRESS, count_step, NULL), SC_OK);
    while (steps < 10 && sockets_now() < since_ns + SOCKETS_LIMIT_NS)
        sched_yield();
    p.host->thread_stop(p.host->ctx, SC_HOST_PROGRESS);
    sleeps_fail = false;
    assert_true(steps >= 10); // they go on
    assert_true(sockets_now() - since_ns >= (steps - 1) * SOCKETS_MS);
}

// ---- a handle's successor ----

static uint64_t first, successor;
static int late_stranger;

static void replace_first(void) {
    enter();
    p.link->close(p.link->ctx, first);
    while (p.link->accept(p.link->ctx, p.listener, &successor) != SC_OK)
        continue;
    SC_ASSERT(recv_byte(successor) == SC_INPROGRESS);
    leave();
}

static void what_was_ready_is_not_told_of_its_successor(void **state) {
    (void)state;
    int stranger = sockets_stranger(p.port);
    first = sockets_accept(&p);
    settle();
    assert_int_equal(recv_byte(first), SC_INPROGRESS);
    say_byte(stranger);
    late_stranger = sockets_stranger(p.port);
    after_sleep = replace_first;
    assert_int_equal(p.host->wait(p.host->ctx, limit_ns()), SC_OK);
    assert_int_equal(successor % SC_POSIX_HANDLES_MAX, first % SC_POSIX_HANDLES_MAX);
    settle();
    say_byte(late_stranger);
    assert_int_equal(p.host->wait(p.host->ctx, limit_ns()), SC_OK);
    assert_int_equal(recv_byte(successor), SC_OK);
    close(stranger);
    close(late_stranger);
}

// ---- a crowd: PROGRESS accepts and reads, others dial, send and close ----

enum { DIALLERS = 2, ROUNDS = 300, OPEN_AT_ONCE = 4, ACCEPTED_MAX = 64 };

static struct { // guarded by the monitor
    uint64_t dialling[DIALLERS];
    sc_status dialled[DIALLERS];
    uint64_t accepted[ACCEPTED_MAX];
    uint64_t sent, received;
    uint32_t ended;
} crowd;

static void read_accepted(uint64_t *link) {
    char data[256];
    size_t got;
    sc_status status;
    while ((status = p.link->recv(p.link->ctx, *link, data, sizeof data, &got)) == SC_OK)
        crowd.received += got;
    if (status == SC_INPROGRESS)
        return;
    SC_ASSERT(status == SC_LINK_EOF);
    p.link->close(p.link->ctx, *link);
    *link = 0;
    crowd.ended++;
}

static void accept_into(uint64_t *place) {
    if (*place == 0 && p.link->accept(p.link->ctx, p.listener, place) != SC_OK)
        *place = 0;
}

static uint64_t crowd_step(void *arg) {
    (void)arg;
    enter();
    for (uint32_t i = 0; i < DIALLERS; i++)
        if (crowd.dialling[i] != 0)
            crowd.dialled[i] = p.link->connected(p.link->ctx, crowd.dialling[i]);
    for (uint32_t i = 0; i < ACCEPTED_MAX; i++) {
        accept_into(&crowd.accepted[i]);
        if (crowd.accepted[i] != 0)
            read_accepted(&crowd.accepted[i]);
    }
    p.host->notify(p.host->ctx);
    leave();
    return SC_NEVER_NS; // whatever comes must wake it
}

static uint64_t dial(uint32_t self, uint64_t until_ns) {
    uint64_t link;
    SC_ASSERT(p.link->dial(p.link->ctx, V4, p.port, 0, &link) == SC_OK);
    crowd.dialled[self] = SC_INPROGRESS;
    crowd.dialling[self] = link;
    while (crowd.dialled[self] == SC_INPROGRESS)
        SC_ASSERT(p.host->await(p.host->ctx, until_ns) == SC_OK);
    SC_ASSERT(crowd.dialled[self] == SC_OK);
    crowd.dialling[self] = 0;
    return link;
}

static void *dial_send_close(void *arg) {
    static const char data[1000];
    const uint32_t self = *(const uint32_t *)arg;
    const uint64_t until_ns = limit_ns();
    uint64_t links[OPEN_AT_ONCE] = {0};
    for (uint32_t i = 0; i < ROUNDS + OPEN_AT_ONCE; i++) {
        uint64_t *link = &links[i % OPEN_AT_ONCE];
        size_t sent = 0;
        enter();
        p.link->close(p.link->ctx, *link);
        *link = i < ROUNDS ? dial(self, until_ns) : 0;
        leave();
        enter();
        if (*link != 0)
            SC_ASSERT(p.link->send(p.link->ctx, *link, data, i + 1, &sent) == SC_OK);
        crowd.sent += sent;
        leave();
    }
    return NULL;
}

static void threads_share_links(void **state) {
    uint32_t names[DIALLERS];
    pthread_t threads[DIALLERS];
    (void)state;
    memset(&crowd, 0, sizeof crowd);
    assert_int_equal(p.host->thread_start(p.host->ctx, SC_HOST_PROGRESS, crowd_step, NULL), SC_OK);
    for (uint32_t i = 0; i < DIALLERS; i++) {
        names[i] = i;
        SC_ASSERT(pthread_create(&threads[i], NULL, dial_send_close, &names[i]) == 0);
    }
    for (uint32_t i = 0; i < DIALLERS; i++)
        SC_ASSERT(pthread_join(threads[i], NULL) == 0);
    const uint64_t until_ns = limit_ns();
    enter();
    while (crowd.ended < DIALLERS * ROUNDS)
        SC_ASSERT(p.host->await(p.host->ctx, until_ns) == SC_OK);
    leave();
    p.host->thread_stop(p.host->ctx, SC_HOST_PROGRESS);
    assert_int_equal(crowd.received, crowd.sent);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, listen_alone, end)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(close_takes_effect_while_another_thread_sleeps),
        TEST(what_another_thread_asks_for_is_watched),
        TEST(what_is_watched_already_wakes_nobody),
        TEST(steps_rest_where_the_kernel_cannot_wait),
        TEST(what_was_ready_is_not_told_of_its_successor),
        TEST(threads_share_links),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
