// SPDX-License-Identifier: AGPL-3.0-only
//
// The library's two threads in the real world. What must come has a limit; times are judged from
// below only.
#include "core/assert.h"
#include "tests/support/sockets_rig.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static struct sc_posix *posix;
static const struct sc_host *host;
static uint32_t threads_before, descriptors_before;
static sem_t begun, let_go; // of a step that a test leads

// A thread that was joined may still be listed for a moment.
static bool threads_are_gone(void) {
    const uint64_t until_ns = sockets_now() + SOCKETS_LIMIT_NS;
    while (sockets_threads() > threads_before && sockets_now() < until_ns)
        sched_yield();
    return sockets_threads() <= threads_before;
}

static void *nothing(void *arg) {
    return arg;
}

static int create(void **state) {
    pthread_t thread;
    (void)state;
    // A sanitizer may start a thread of its own with the first one.
    if (pthread_create(&thread, NULL, nothing, NULL) != 0 || pthread_join(thread, NULL) != 0)
        return -1;
    threads_before = sockets_threads();
    descriptors_before = sockets_descriptors();
    if (sem_init(&begun, 0, 0) != 0 || sem_init(&let_go, 0, 0) != 0 ||
        sc_posix_create(&posix) != SC_OK)
        return -1;
    host = sc_posix_host(posix);
    return 0;
}

static void stop(enum sc_host_thread which) {
    SC_ASSERT(sem_post(&let_go) == 0);
    host->thread_stop(host->ctx, which);
}

// Whatever a test did: no thread and no descriptor stays.
static int destroy(void **state) {
    (void)state;
    stop(SC_HOST_PROGRESS);
    stop(SC_HOST_NOTIFIER);
    sc_posix_destroy(posix);
    sem_destroy(&begun);
    sem_destroy(&let_go);
    return threads_are_gone() && sockets_descriptors() == descriptors_before ? 0 : -1;
}

static void enter(void) {
    SC_ASSERT(host->enter(host->ctx) == SC_OK);
}

static void leave(void) {
    host->leave(host->ctx);
}

static void notify(void) {
    enter();
    host->notify(host->ctx);
    leave();
}

// Inside the monitor.
#define await_until(condition)                                                                     \
    for (const uint64_t until_ns = sockets_now() + SOCKETS_LIMIT_NS; !(condition);)                \
    SC_ASSERT(host->await(host->ctx, until_ns) == SC_OK)

static pthread_t run(void *(*body)(void *arg)) {
    pthread_t thread;
    SC_ASSERT(pthread_create(&thread, NULL, body, NULL) == 0);
    return thread;
}

static void join(pthread_t thread) {
    SC_ASSERT(pthread_join(thread, NULL) == 0);
}

// ---- steps that a test leads ----

static volatile sig_atomic_t signals;

static uint64_t led_step(void *arg) {
    (void)arg;
    SC_ASSERT(sem_post(&begun) == 0);
    SC_ASSERT(sem_wait(&let_go) == 0);
    return SC_NEVER_NS;
}

static void wait_for_a_step(void) {
    struct timespec until;
    SC_ASSERT(clock_gettime(CLOCK_REALTIME, &until) == 0);
    until.tv_sec += (time_t)(SOCKETS_LIMIT_NS / SOCKETS_SECOND);
    int failed;
    while ((failed = sem_timedwait(&begun, &until)) != 0 && errno == EINTR)
        continue;
    assert_int_equal(failed, 0);
}

static void start_led(enum sc_host_thread which) {
    assert_int_equal(host->thread_start(host->ctx, which, led_step, NULL), SC_OK);
    wait_for_a_step();
}

static void wake(void) {
    host->wake(host->ctx);
}

static void wake_on_signal(int number) {
    (void)number;
    signals++;
    wake();
}

static void wake_by_signal(void) {
    raise(SIGUSR1);
}

static void *wake_from_here(void *arg) {
    wake();
    return arg;
}

static void wake_by_thread(void) {
    join(run(wake_from_here));
}

// Each prod comes once while a step runs, and once when it may have ended.
static void prod_makes_the_next_step(enum sc_host_thread which, void (*prod)(void)) {
    start_led(which);
    for (uint32_t i = 0; i < 100; i++) {
        prod();
        SC_ASSERT(sem_post(&let_go) == 0);
        wait_for_a_step();
        SC_ASSERT(sem_post(&let_go) == 0);
        prod();
        wait_for_a_step();
    }
    stop(which);
}

static void wake_ends_the_wait_of_progress(void **state) {
    (void)state;
    prod_makes_the_next_step(SC_HOST_PROGRESS, wake);
    prod_makes_the_next_step(SC_HOST_PROGRESS, wake_by_thread);
}

static void signal_handler_may_wake_progress(void **state) {
    struct sigaction action;
    (void)state;
    memset(&action, 0, sizeof action);
    action.sa_handler = wake_on_signal;
    signals = 0;
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
    prod_makes_the_next_step(SC_HOST_PROGRESS, wake_by_signal);
    assert_int_equal(signals, 200);
}

static void notify_during_a_step_makes_the_next(void **state) {
    (void)state;
    prod_makes_the_next_step(SC_HOST_NOTIFIER, notify);
}

// ---- steps on their own ----

static struct {
    uint64_t queued, taken; // guarded by the monitor
    uint64_t steps;
    uint64_t due_ns;
    bool early;
} work;

static void start(enum sc_host_thread which, uint64_t (*step)(void *arg)) {
    enter(); // the other one may be running
    memset(&work, 0, sizeof work);
    leave();
    assert_int_equal(host->thread_start(host->ctx, which, step, NULL), SC_OK);
}

static uint64_t take_step(void *arg) {
    (void)arg;
    enter();
    if (work.taken != work.queued) {
        work.taken = work.queued;
        host->notify(host->ctx);
    }
    leave();
    return SC_NEVER_NS;
}

static void notifier_loses_no_notify(void **state) {
    enum { ITEMS = 10000 };
    (void)state;
    start(SC_HOST_NOTIFIER, take_step);
    enter();
    for (uint32_t i = 0; i < ITEMS; i++) {
        work.queued++;
        host->notify(host->ctx);
        await_until(work.taken == work.queued);
    }
    leave();
    stop(SC_HOST_NOTIFIER);
    assert_int_equal(work.taken, ITEMS);
}

enum { TIMED_STEPS = 20 };

static uint64_t timed_step(void *arg) {
    (void)arg;
    enter();
    const uint64_t now_ns = host->now_ns(host->ctx);
    if (work.steps < TIMED_STEPS)
        work.early |= now_ns < work.due_ns;
    work.due_ns = now_ns + work.steps * SOCKETS_MS / 10;
    if (++work.steps == TIMED_STEPS)
        host->notify(host->ctx); // a step that this makes is not judged
    leave();
    return work.due_ns;
}

static void step_comes_again_at_its_time(void **state) {
    (void)state;
    for (enum sc_host_thread which = 0; which < SC_HOST_THREADS; which++) {
        start(which, timed_step);
        enter();
        await_until(work.steps >= TIMED_STEPS);
        leave();
        stop(which);
        assert_false(work.early);
    }
}

static uint64_t restless_step(void *arg) {
    (void)arg;
    enter();
    work.steps++;
    leave();
    return 0;
}

static void await_steps(uint64_t steps) {
    const uint64_t until_ns = sockets_now() + SOCKETS_LIMIT_NS;
    uint64_t done = 0;
    while (done < steps) {
        assert_true(sockets_now() < until_ns);
        sched_yield();
        enter();
        done = work.steps;
        leave();
    }
}

static void no_step_comes_after_stop(void **state) {
    (void)state;
    for (enum sc_host_thread which = 0; which < SC_HOST_THREADS; which++) {
        start(which, restless_step);
        await_steps(3);
        stop(which);
        const uint64_t steps = work.steps; // outside the monitor: there is nobody else any more
        wake();
        notify();
        assert_true(threads_are_gone());
        assert_int_equal(work.steps, steps);
        stop(which); // it is not running: nothing to do
    }
}

static void thread_that_sleeps_for_ever_is_stopped(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 100; i++) {
        start(SC_HOST_PROGRESS, take_step);
        start(SC_HOST_NOTIFIER, take_step);
        stop(SC_HOST_PROGRESS);
        stop(SC_HOST_NOTIFIER);
    }
} // the teardown counts threads and descriptors

// ---- threads as the system sees them ----

static struct {
    char name[16];
    int slack_ns;
    sigset_t mask;
} seen;

static uint64_t look_step(void *arg) {
    (void)arg;
    SC_ASSERT(pthread_getname_np(pthread_self(), seen.name, sizeof seen.name) == 0);
    SC_ASSERT(pthread_sigmask(SIG_BLOCK, NULL, &seen.mask) == 0);
    seen.slack_ns = prctl(PR_GET_TIMERSLACK);
    return led_step(arg);
}

static pid_t signalled;

static void note_thread(int number) {
    (void)number;
    signalled = gettid();
    signals++;
}

static void signals_go_to_the_application(const char *name, enum sc_host_thread which) {
    const uint64_t until_ns = sockets_now() + SOCKETS_LIMIT_NS;
    sigset_t before, after;
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &before), 0);
    assert_int_equal(host->thread_start(host->ctx, which, look_step, NULL), SC_OK);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &after), 0);
    wait_for_a_step();
    assert_string_equal(seen.name, name);
    for (int number = 1; number <= SIGRTMAX; number++) {
        assert_int_equal(sigismember(&before, number), sigismember(&after, number));
        if (number != SIGKILL && number != SIGSTOP && (number <= SIGSYS || number >= SIGRTMIN))
            assert_int_equal(sigismember(&seen.mask, number), 1);
    }
    signals = 0;
    assert_int_equal(kill(getpid(), SIGUSR1), 0);
    while (signals == 0 && sockets_now() < until_ns)
        sched_yield();
    assert_int_equal(signals, 1);
    assert_int_equal(signalled, gettid());
    stop(which);
}

static void threads_block_all_signals_and_have_names(void **state) {
    struct sigaction action;
    (void)state;
    memset(&action, 0, sizeof action);
    action.sa_handler = note_thread;
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
    signals_go_to_the_application("spark-progress", SC_HOST_PROGRESS);
    assert_true(seen.slack_ns <= 1); // -1 where the system knows no slack
    signals_go_to_the_application("spark-notify", SC_HOST_NOTIFIER);
}

static void thread_that_cannot_be_started_is_refused(void **state) {
    pthread_attr_t before, huge;
    (void)state;
    assert_int_equal(pthread_getattr_default_np(&before), 0);
    assert_int_equal(pthread_attr_init(&huge), 0);
    assert_int_equal(pthread_attr_setstacksize(&huge, (size_t)1 << 50), 0); // more than there is
    assert_int_equal(pthread_setattr_default_np(&huge), 0);
    sc_status status = host->thread_start(host->ctx, SC_HOST_PROGRESS, restless_step, NULL);
    assert_int_equal(pthread_setattr_default_np(&before), 0);
    pthread_attr_destroy(&before);
    pthread_attr_destroy(&huge);
    assert_int_equal(status, SC_NO_MEMORY);
    stop(SC_HOST_PROGRESS);
    start(SC_HOST_PROGRESS, restless_step);
    assert_int_equal(host->thread_start(host->ctx, SC_HOST_PROGRESS, restless_step, NULL),
                     SC_STATE);
    stop(SC_HOST_PROGRESS);
    assert_int_equal(host->thread_start(host->ctx, SC_HOST_THREADS, restless_step, NULL),
                     SC_INVALID);
    assert_int_equal(host->thread_start(host->ctx, SC_HOST_PROGRESS, NULL, NULL), SC_INVALID);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, create, destroy)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(wake_ends_the_wait_of_progress),
        TEST(signal_handler_may_wake_progress),
        TEST(notify_during_a_step_makes_the_next),
        TEST(notifier_loses_no_notify),
        TEST(step_comes_again_at_its_time),
        TEST(no_step_comes_after_stop),
        TEST(thread_that_sleeps_for_ever_is_stopped),
        TEST(threads_block_all_signals_and_have_names),
        TEST(thread_that_cannot_be_started_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
