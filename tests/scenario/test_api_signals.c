// SPDX-License-Identifier: AGPL-3.0-only
//
// Signals: an application's handler ends its waits, the library's threads take none, and a descriptor
// tells of changes of state.
#include "tests/support/real_world.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static volatile sc_comm to_interrupt; // of the handler, set while no signal comes
static volatile sig_atomic_t signals;

static void interrupt_it(int number) {
    (void)number;
    signals++;
    sc_interrupt(to_interrupt);
}

// Without SA_RESTART: every call that a signal can interrupt is interrupted.
static void handle(int number, sc_comm comm) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = interrupt_it;
    to_interrupt = comm;
    signals = 0;
    assert_int_equal(sigaction(number, &action, NULL), 0);
}

static void expect_timeout(sc_comm comm) {
    struct sc_recovery recovery = {.size = sizeof recovery};
    assert_int_equal(sc_wait_ready(comm, 1, &recovery), SC_TIMEOUT);
}

// A member in a live epoch, whose ledger is full.
static uint64_t open_busy_member(const struct real_job *job, sc_comm *comms) {
    struct sc_config config;
    comms[0] = real_open(job, 0);
    real_config(job, 1, &config);
    config.ledger_ops = 4;
    comms[1] = real_open_with(&config);
    const uint64_t epoch = real_ready_after(comms[0], 0);
    assert_true(real_ready_after(comms[1], 0) == epoch);
    real_switches(comms[1])->ops_hang = true;
    for (uint32_t i = 0; i < config.ledger_ops; i++)
        real_ok(real_submit(comms[1], epoch));
    return epoch;
}

// ---- from a handler ----

static void handler_ends_each_wait_in_an_epoch(void **state) {
    static const enum real_verb verbs[] = {REAL_SYNC, REAL_BARRIER, REAL_COMMAND_RECV, REAL_SUBMIT};
    enum { COUNT = sizeof verbs / sizeof verbs[0] };
    struct real_job job;
    struct real_call calls[COUNT];
    sc_comm comms[2];
    (void)state;
    real_job_begin(&job, 2);
    const uint64_t epoch = open_busy_member(&job, comms);
    handle(SIGUSR1, comms[1]);
    for (uint32_t i = 0; i < COUNT; i++) { // one by one
        calls[i] = (struct real_call){.verb = verbs[i], .comm = comms[1], .epoch = epoch};
        real_call_begin(&calls[i]);
        real_until_waiting(comms[1], 1);
        assert_int_equal(raise(SIGUSR1), 0);
        assert_int_equal(real_call_end(&calls[i]), SC_INTERRUPTED);
    }
    for (uint32_t i = 0; i < COUNT; i++)
        real_call_begin(&calls[i]);
    real_until_waiting(comms[1], COUNT);
    assert_int_equal(raise(SIGUSR1), 0); // one for all
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(real_call_end(&calls[i]), SC_INTERRUPTED);
    assert_int_equal(sc_sync(comms[1], epoch, real_stream(0), SC_SYNC_LOCAL, 1), SC_TIMEOUT);
    assert_int_equal(real_live(comms[1]), epoch); // nothing else came of it
    real_close_all(comms, 2);
    real_job_end(&job);
}

static void handler_ends_the_wait_for_an_epoch(void **state) {
    struct real_job job;
    (void)state;
    real_job_begin(&job, 2);
    sc_comm comm = real_open(&job, 1);
    struct real_call call = {.verb = REAL_WAIT_READY, .comm = comm};
    handle(SIGUSR1, comm);
    real_call_begin(&call);
    real_until_waiting(comm, 1);
    assert_int_equal(raise(SIGUSR1), 0);
    assert_int_equal(real_call_end(&call), SC_INTERRUPTED);
    expect_timeout(comm);
    real_close(comm);
    real_job_end(&job);
}

static void interrupt_waits_for_the_next_call_that_would(void **state) {
    struct real_job job;
    struct sc_recovery recovery = {.size = sizeof recovery};
    sc_comm comms[2];
    (void)state;
    real_job_begin(&job, 2);
    const uint64_t epoch = open_busy_member(&job, comms);
    sc_interrupt(comms[1]);
    sc_interrupt(comms[1]); // one is as good as two
    real_ok(sc_mark(comms[1], epoch, 5));
    real_ok(sc_wait_ready(comms[1], SC_FOREVER, &recovery)); // it need not wait
    assert_int_equal(sc_test(comms[1], epoch, real_stream(0)), SC_INPROGRESS);
    assert_int_equal(sc_barrier(comms[1], epoch, SC_FOREVER), SC_INTERRUPTED);
    assert_non_null(strstr(sc_last_error(), "sc_barrier: INTERRUPTED"));
    assert_int_equal(sc_barrier(comms[1], epoch, 1), SC_TIMEOUT);
    real_close_all(comms, 2);
    real_job_end(&job);
}

static void interrupt_ends_a_close_only_if_it_waits_already(void **state) {
    struct real_job job;
    sc_comm comms[2];
    (void)state;
    real_job_begin(&job, 2);
    (void)real_open_all(&job, comms);
    real_switches(comms[1])->aborts_hang = true;
    sc_interrupt(comms[0]);
    real_close(comms[0]);
    struct real_call call = {.verb = REAL_CLOSE, .comm = comms[1]};
    real_call_begin(&call);
    real_until_waiting(comms[1], 1);
    sc_interrupt(comms[1]);
    assert_int_equal(real_call_end(&call), SC_INTERRUPTED);
    real_switches(comms[1])->aborts_hang = false;
    real_close(comms[1]);
    real_job_end(&job);
}

// The handler runs on a thread that is anywhere in the library.
static void handler_may_interrupt_the_thread_that_calls(void **state) {
    enum { TURNS = 3000 };
    const struct itimerval every = {.it_interval.tv_usec = 200, .it_value.tv_usec = 200};
    const struct itimerval never = {.it_value.tv_usec = 0};
    struct real_job job;
    (void)state;
    real_job_begin(&job, 1);
    sc_comm comm = real_open(&job, 0);
    const uint64_t epoch = real_ready_after(comm, 0);
    handle(SIGALRM, comm);
    assert_int_equal(setitimer(ITIMER_REAL, &every, NULL), 0);
    for (uint32_t i = 0; i < TURNS || signals < 10; i++) {
        real_ok(real_submit(comm, epoch));
        sc_status status = sc_sync(comm, epoch, real_stream(0), SC_SYNC_LOCAL, REAL_LIMIT_NS);
        assert_true(status == SC_OK || status == SC_INTERRUPTED);
    }
    sc_status status; // … and the handle is going away
    while ((status = sc_close(comm, SC_CLOSE_FINAL, REAL_LIMIT_NS)) == SC_INTERRUPTED)
        continue;
    assert_int_equal(status, SC_OK);
    assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
    real_job_end(&job);
}

// ---- an application that is told to end ----

static void *terminate_when_it_waits(void *arg) {
    const sc_comm comm = to_interrupt;
    const pthread_t *waiter = arg;
    while (real_waiting(comm) == 0)
        sched_yield();
    SC_ASSERT(pthread_kill(*waiter, SIGTERM) == 0);
    return NULL;
}

static void rank_that_is_told_to_end_in_mid_op_leaves_and_says_so_r6(void **state) {
    struct real_job job;
    struct sc_recovery recovery = {.size = sizeof recovery};
    pthread_t thread, own = pthread_self();
    sc_comm comms[2];
    (void)state;
    real_job_begin(&job, 2);
    const uint64_t epoch = open_busy_member(&job, comms);
    handle(SIGTERM, comms[1]);
    assert_int_equal(pthread_create(&thread, NULL, terminate_when_it_waits, &own), 0);
    assert_int_equal(sc_sync(comms[1], epoch, real_stream(0), SC_SYNC_AGREED, REAL_LIMIT_NS),
                     SC_INTERRUPTED);
    const uint64_t since_ns = real_now();
    real_close(comms[1]);
    assert_true(real_now() - since_ns < 5 * REAL_SECOND);
    assert_int_equal(pthread_join(thread, NULL), 0);
    real_until(real_health(comms[0]).state == SC_STATE_FAILED);
    assert_int_equal(sc_wait_ready(comms[0], REAL_LIMIT_NS, &recovery), SC_PEER_LEFT);
    real_close(comms[0]);
    real_job_end(&job);
}

// ---- the library's threads ----

static bool read_status(const char *task, char *name, unsigned long long *blocked) {
    char path[300], line[256];
    bool both = false;
    snprintf(path, sizeof path, "/proc/self/task/%s/status", task);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return false;
    name[0] = '\0';
    while (fgets(line, sizeof line, file) != NULL) {
        (void)!sscanf(line, "Name: %63s", name);
        both |= sscanf(line, "SigBlk: %llx", blocked) == 1;
    }
    fclose(file);
    return both && name[0] != '\0';
}

static void do_nothing(void *arg, const struct sc_note *note) {
    (void)arg, (void)note;
}

// How many threads go by names of the library's; each must block all that could be handled.
static uint32_t count_blocking_threads(void) {
    static const int numbers[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE,
                                  SIGALRM, SIGTERM, SIGCHLD, SIGTSTP, SIGIO,   SIGWINCH};
    uint32_t found = 0;
    DIR *folder = opendir("/proc/self/task");
    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char name[64];
        unsigned long long blocked = 0;
        if (!read_status(entry->d_name, name, &blocked) || strncmp(name, "spark-", 6) != 0)
            continue;
        found++;
        for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
            assert_true(blocked >> (numbers[i] - 1) & 1u);
    }
    closedir(folder);
    return found;
}

static void threads_of_the_library_block_all_signals(void **state) {
    struct real_job job;
    struct sc_config config;
    (void)state;
    real_job_begin(&job, 1);
    real_config(&job, 0, &config);
    config.on_note = do_nothing;
    sc_comm comm = real_open_with(&config);
    real_until(count_blocking_threads() == 2); // they name themselves
    real_close(comm);
    real_job_end(&job);
}

// ---- the event descriptor ----

static bool is_readable(int fd, int timeout_ms) {
    struct pollfd look = {.fd = fd, .events = POLLIN};
    return poll(&look, 1, timeout_ms) == 1;
}

static void take_event(int fd) {
    uint64_t count;
    assert_true(is_readable(fd, (int)(REAL_LIMIT_NS / REAL_MS)));
    assert_int_equal(read(fd, &count, sizeof count), sizeof count);
}

static void follow(sc_comm comm, int fd, enum sc_state until) {
    while (real_health(comm).state != (uint32_t)until)
        take_event(fd);
}

static void descriptor_is_readable_after_each_change_of_state(void **state) {
    struct real_job job;
    sc_comm comms[2];
    int fd = -1;
    (void)state;
    real_job_begin(&job, 2);
    comms[1] = real_open(&job, 1);
    real_ok(sc_event_fd(comms[1], &fd));
    follow(comms[1], fd, SC_STATE_RENDEZVOUS);
    comms[0] = real_open(&job, 0);
    follow(comms[1], fd, SC_STATE_READY);
    (void)real_waiting(comms[1]); // who told of it has left the monitor
    if (is_readable(fd, 0))
        take_event(fd);
    const uint64_t since_ns = real_health(comms[1]).now_ns;
    real_until(real_health(comms[1]).now_ns - since_ns >=
               300 * REAL_MS); // heartbeats are no change
    assert_false(is_readable(fd, 0));
    const uint64_t epoch = real_live(comms[1]);
    real_ok(sc_reconnect(comms[0], epoch, 1));
    take_event(fd); // it leaves
    assert_true(real_live(comms[1]) != epoch);
    follow(comms[1], fd, SC_STATE_READY);
    assert_int_equal(sc_event_fd(comms[1], NULL), SC_INVALID);
    real_close_all(comms, 2);
    assert_int_equal(sc_event_fd(comms[1], &fd), SC_CLOSED);
    real_job_end(&job);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handler_ends_each_wait_in_an_epoch),
        cmocka_unit_test(handler_ends_the_wait_for_an_epoch),
        cmocka_unit_test(interrupt_waits_for_the_next_call_that_would),
        cmocka_unit_test(interrupt_ends_a_close_only_if_it_waits_already),
        cmocka_unit_test(handler_may_interrupt_the_thread_that_calls),
        cmocka_unit_test(rank_that_is_told_to_end_in_mid_op_leaves_and_says_so_r6),
        cmocka_unit_test(threads_of_the_library_block_all_signals),
        cmocka_unit_test(descriptor_is_readable_after_each_change_of_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
