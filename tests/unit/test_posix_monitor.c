// SPDX-License-Identifier: AGPL-3.0-only
//
// The real monitor, and the descriptor for events. What must come has a limit; times are judged from
// below only.
#include "core/assert.h"
#include "tests/support/sockets_rig.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>

static struct sc_posix *posix;
static const struct sc_host *host;

static int create(void **state) {
    (void)state;
    if (sc_posix_create(&posix) != SC_OK)
        return -1;
    host = sc_posix_host(posix);
    return 0;
}

static int destroy(void **state) {
    (void)state;
    sc_posix_destroy(posix);
    return 0;
}

static void enter(void) {
    SC_ASSERT(host->enter(host->ctx) == SC_OK);
}

static void leave(void) {
    host->leave(host->ctx);
}

static pthread_t run(void *(*body)(void *arg)) {
    pthread_t thread;
    SC_ASSERT(pthread_create(&thread, NULL, body, NULL) == 0);
    return thread;
}

static void join(pthread_t thread) {
    SC_ASSERT(pthread_join(thread, NULL) == 0);
}

// ---- the monitor ----

enum { COUNTS = 100000 };

static volatile uint64_t counter; // each count is a read and a write

static void *count(void *arg) {
    for (uint32_t i = 0; i < COUNTS; i++) {
        enter();
        counter = counter + 1;
        leave();
    }
    return arg;
}

static void monitor_holds_one_thread_at_a_time(void **state) {
    (void)state;
    counter = 0;
    pthread_t other = run(count);
    count(NULL);
    join(other);
    assert_int_equal(counter, 2 * COUNTS);
}

static void await_does_not_time_out_before_its_deadline(void **state) {
    const uint64_t spans[] = {1, 999, 50001, SOCKETS_MS, 7 * SOCKETS_MS + 1};
    (void)state;
    enter();
    while (host->await(host->ctx, 0) != SC_TIMEOUT)
        continue;
    for (uint32_t i = 0; i < sizeof spans / sizeof spans[0]; i++) {
        const uint64_t deadline_ns = host->now_ns(host->ctx) + spans[i];
        while (host->await(host->ctx, deadline_ns) != SC_TIMEOUT)
            continue;
        assert_true(host->now_ns(host->ctx) >= deadline_ns);
    }
    leave();
}

static uint32_t awaiting;
static uint64_t go, deadline_of_all_ns;

static void *await_go(void *arg) {
    enter();
    const uint64_t before = go;
    awaiting++;
    host->notify(host->ctx);
    while (go == before)
        SC_ASSERT(host->await(host->ctx, deadline_of_all_ns) == SC_OK);
    awaiting--;
    leave();
    return arg;
}

static void one_notify_wakes_all_that_await(void **state) {
    const uint64_t deadlines[] = {SC_NEVER_NS, SC_NEVER_NS - 1, sockets_now() + SOCKETS_LIMIT_NS};
    (void)state;
    for (uint32_t i = 0; i < sizeof deadlines / sizeof deadlines[0]; i++) {
        pthread_t others[3];
        deadline_of_all_ns = deadlines[i];
        for (uint32_t t = 0; t < 3; t++)
            others[t] = run(await_go);
        enter();
        while (awaiting < 3)
            SC_ASSERT(host->await(host->ctx, sockets_now() + SOCKETS_LIMIT_NS) == SC_OK);
        go++;
        host->notify(host->ctx);
        leave();
        for (uint32_t t = 0; t < 3; t++)
            join(others[t]);
        assert_int_equal(awaiting, 0);
    }
}

// ---- the descriptor ----

static void event_descriptor_is_readable_until_it_is_read(void **state) {
    eventfd_t events;
    (void)state;
    struct pollfd look = {.fd = host->event_fd(host->ctx), .events = POLLIN};
    assert_int_equal(fcntl(look.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(poll(&look, 1, 0), 0);
    for (uint32_t i = 0; i < 3; i++) {
        host->event_signal(host->ctx);
        host->event_signal(host->ctx);
        assert_int_equal(poll(&look, 1, 0), 1);
        assert_int_equal(eventfd_read(look.fd, &events), 0);
        assert_int_equal(poll(&look, 1, 0), 0);
        assert_int_equal(eventfd_read(look.fd, &events), -1); // and does not block
    }
    assert_int_equal(eventfd_write(look.fd, UINT64_MAX - 1), 0);
    host->event_signal(host->ctx); // that is as far as it counts
    assert_int_equal(poll(&look, 1, 0), 1);
    assert_int_equal(host->event_fd(host->ctx), look.fd);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, create, destroy)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(monitor_holds_one_thread_at_a_time),
        TEST(await_does_not_time_out_before_its_deadline),
        TEST(one_notify_wakes_all_that_await),
        TEST(event_descriptor_is_readable_until_it_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
