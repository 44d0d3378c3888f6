// SPDX-License-Identifier: AGPL-3.0-only
//
// The real clock, entropy, waiting and waking. Times are judged from below only: a machine may be
// late, never early.
#include "core/assert.h"
#include "tests/support/sockets_rig.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/time.h>
#include <unistd.h>

static struct sc_posix *posix;
static const struct sc_host *host;
static volatile sig_atomic_t signals;

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

static sc_status wait_until(uint64_t deadline_ns) {
    return host->wait(host->ctx, deadline_ns);
}

static void on_signal(int number) {
    (void)number;
    signals++;
}

static void wake_on_signal(int number) {
    (void)number;
    signals++;
    host->wake(host->ctx);
}

// Without SA_RESTART: every call that a signal can interrupt is interrupted.
static void handle(int number, void (*handler)(int)) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    signals = 0;
    assert_int_equal(sigaction(number, &action, NULL), 0);
}

static void alarm_each_ms(long ms) {
    const struct itimerval every = {.it_interval.tv_usec = ms * 1000,
                                    .it_value.tv_usec = ms * 1000};
    assert_int_equal(setitimer(ITIMER_REAL, &every, NULL), 0);
}

static void clock_is_monotonic(void **state) {
    (void)state;
    uint64_t before = sockets_now();
    for (uint32_t i = 0; i < 1000; i++) {
        uint64_t now = host->now_ns(host->ctx);
        assert_true(now >= before);
        before = now;
    }
    assert_true(sockets_now() >= before);
}

static void entropy_is_never_short(void **state) {
    enum { BYTES = 1 << 20, BLOCK = 64 };
    static uint8_t bytes[BYTES];
    static const uint8_t zeros[BLOCK];
    (void)state;
    handle(SIGALRM, on_signal);
    alarm_each_ms(1);
    for (uint32_t round = 0; round < 4; round++) {
        memset(bytes, 0, sizeof bytes);
        assert_int_equal(host->entropy(host->ctx, bytes, sizeof bytes), SC_OK);
        for (uint32_t i = 0; i < BYTES; i += BLOCK)
            assert_memory_not_equal(bytes + i, zeros, BLOCK);
    }
    alarm_each_ms(0);
    assert_int_equal(host->entropy(host->ctx, bytes, 0), SC_OK);
}

static void wait_does_not_end_before_its_deadline(void **state) {
    const uint64_t spans[] = {1, 999, 1000, 50001, SOCKETS_MS, 7 * SOCKETS_MS + 1};
    (void)state;
    assert_int_equal(wait_until(0), SC_TIMEOUT);
    for (uint32_t i = 0; i < sizeof spans / sizeof spans[0]; i++) {
        uint64_t deadline_ns = host->now_ns(host->ctx) + spans[i];
        assert_int_equal(wait_until(deadline_ns), SC_TIMEOUT);
        assert_true(host->now_ns(host->ctx) >= deadline_ns);
    }
}

static void signal_alone_does_not_end_a_wait(void **state) {
    (void)state;
    handle(SIGALRM, on_signal);
    alarm_each_ms(1);
    uint64_t deadline_ns = host->now_ns(host->ctx) + 30 * SOCKETS_MS;
    assert_int_equal(wait_until(deadline_ns), SC_TIMEOUT);
    assert_true(host->now_ns(host->ctx) >= deadline_ns);
    alarm_each_ms(0);
    assert_true(signals > 0);
}

static void wakes_before_a_wait_end_that_one_only(void **state) {
    (void)state;
    host->wake(host->ctx);
    host->wake(host->ctx);
    assert_int_equal(wait_until(SC_NEVER_NS), SC_OK);
    assert_int_equal(wait_until(0), SC_TIMEOUT);
    host->wake(host->ctx);
    assert_int_equal(wait_until(0), SC_OK); // also when there is no time to wait
}

static void signal_handler_may_wake(void **state) {
    (void)state;
    handle(SIGALRM, wake_on_signal);
    alarm_each_ms(5);
    assert_int_equal(wait_until(SC_NEVER_NS), SC_OK);
    alarm_each_ms(0);
    assert_true(signals > 0);
}

// As many wakes as an eventfd can count, so that the next one fails inside.
static void wake_beyond_counting(void) {
    for (int fd = 0; fd < 1024; fd++) {
        char path[32], target[32] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, target, sizeof target - 1) > 0 && strstr(target, "[eventfd]") != NULL)
            (void)eventfd_write(fd, UINT64_MAX - 1);
    }
}

static void wake_keeps_errno(void **state) {
    (void)state;
    handle(SIGUSR1, wake_on_signal);
    wake_beyond_counting();
    errno = ERANGE;
    for (uint32_t i = 0; i < 1000; i++)
        raise(SIGUSR1);
    assert_int_equal(errno, ERANGE);
    assert_int_equal(signals, 1000);
    assert_int_equal(wait_until(0), SC_OK);
    assert_int_equal(wait_until(0), SC_TIMEOUT);
}

static void *wake_from_here(void *arg) {
    (void)arg;
    host->wake(host->ctx);
    return NULL;
}

static void other_thread_may_wake(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 100; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, wake_from_here, NULL), 0);
        assert_int_equal(wait_until(SC_NEVER_NS), SC_OK);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    assert_int_equal(wait_until(0), SC_TIMEOUT);
}

static void without_descriptors(const void *arg) {
    struct sc_posix *made = NULL;
    (void)arg;
    uint32_t before = sockets_descriptors();
    for (int room = 2; room >= 0; room--) {
        sockets_limit_descriptors(room);
        SC_ASSERT(sc_posix_create(&made) == SC_NO_MEMORY && made == NULL);
    }
    sockets_limit_descriptors(3);
    SC_ASSERT(sc_posix_create(&made) == SC_OK);
    sc_posix_destroy(made);
    SC_ASSERT(sockets_descriptors() == before);
}

static void object_without_descriptors_is_refused(void **state) {
    (void)state;
    assert_true(sockets_child(without_descriptors));
}

static void destroy_leaves_nothing(void **state) {
    struct sockets_pair pair;
    uint64_t link;
    (void)state;
    uint32_t before = sockets_descriptors();
    sockets_pair_open(&pair, V4);
    assert_int_equal(pair.link->dial(pair.link->ctx, V4, pair.port, 0, &link), SC_OK);
    assert_int_equal(pair.link->dial(pair.link->ctx, V4, pair.port, 0, &link), SC_OK);
    sockets_pair_close(&pair);
    sc_posix_destroy(NULL);
    assert_int_equal(sockets_descriptors(), before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(clock_is_monotonic, create, destroy),
        cmocka_unit_test_setup_teardown(entropy_is_never_short, create, destroy),
        cmocka_unit_test_setup_teardown(wait_does_not_end_before_its_deadline, create, destroy),
        cmocka_unit_test_setup_teardown(signal_alone_does_not_end_a_wait, create, destroy),
        cmocka_unit_test_setup_teardown(wakes_before_a_wait_end_that_one_only, create, destroy),
        cmocka_unit_test_setup_teardown(signal_handler_may_wake, create, destroy),
        cmocka_unit_test_setup_teardown(wake_keeps_errno, create, destroy),
        cmocka_unit_test_setup_teardown(other_thread_may_wake, create, destroy),
        cmocka_unit_test(object_without_descriptors_is_refused),
        cmocka_unit_test(destroy_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
