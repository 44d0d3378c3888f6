// SPDX-License-Identifier: AGPL-3.0-only
//
// A process that forks: the child can do nothing with its parent's handles and holds nobody's links open;
// the parent goes on as if nothing had been.
#include "tests/support/real_world.h"
#include "tests/support/sockets_rig.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct forked {
    sc_comm comm;
    uint64_t epoch;
    uint32_t descriptors; // of a process that holds none of the library's
};

// The body of a child.
static void every_call_says_forked(const void *arg) {
    const struct forked *forked = arg;
    sc_status answers[REAL_ANSWERS_MAX];
    const uint32_t count = real_answers(forked->comm, forked->epoch, answers);
    for (uint32_t i = 0; i < count; i++)
        SC_ASSERT(answers[i] == SC_FORKED);
    SC_ASSERT(strstr(sc_last_error(), "sc_event_fd: FORKED") != NULL);
    SC_ASSERT(real_live(forked->comm) == 0);
    sc_interrupt(forked->comm);
    SC_ASSERT(sockets_descriptors() == forked->descriptors);
}

static bool runs_well(void (*body)(const void *arg), const void *arg) {
    bool well = false;
    pid_t child = sockets_child_begin(body, arg);
    real_until(sockets_child_has_ended(child, &well));
    return well;
}

static void child_can_do_nothing_and_its_parent_goes_on(void **state) {
    struct real_job job;
    sc_comm comms[2];
    (void)state;
    real_job_begin(&job, 2);
    const uint32_t descriptors = sockets_descriptors();
    const uint64_t epoch = real_open_all(&job, comms);
    const uint32_t open = sockets_descriptors();
    for (uint32_t rank = 0; rank < 2; rank++) {
        const struct forked forked = {comms[rank], epoch, descriptors};
        assert_true(runs_well(every_call_says_forked, &forked));
    }
    assert_int_equal(sockets_descriptors(), open);
    for (uint32_t rank = 0; rank < 2; rank++)
        real_ok(real_submit(comms[rank], epoch));
    for (uint32_t rank = 0; rank < 2; rank++)
        real_ok(sc_sync(comms[rank], epoch, real_stream(0), SC_SYNC_AGREED, REAL_LIMIT_NS));
    real_close_all(comms, 2);
    real_job_end(&job);
}

// ---- while others call ----

struct caller {
    struct forked forked;
    _Atomic bool stop;
    _Atomic uint32_t turns, failures;
};

static void *call_on(void *arg) {
    struct caller *caller = arg;
    const sc_comm comm = caller->forked.comm;
    const uint64_t epoch = caller->forked.epoch;
    while (!caller->stop) {
        caller->failures += real_submit(comm, epoch) != SC_OK;
        caller->failures +=
            sc_sync(comm, epoch, real_stream(0), SC_SYNC_LOCAL, REAL_LIMIT_NS) != SC_OK;
        caller->turns++;
    }
    return NULL;
}

static void fork_is_safe_while_other_threads_call(void **state) {
    enum { THREADS = 4, FORKS = 10 };
    static struct caller caller;
    struct real_job job;
    pthread_t threads[THREADS];
    (void)state;
    real_job_begin(&job, 1);
    memset(&caller, 0, sizeof caller);
    caller.forked.descriptors = sockets_descriptors();
    caller.forked.comm = real_open(&job, 0);
    caller.forked.epoch = real_ready_after(caller.forked.comm, 0);
    for (uint32_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call_on, &caller), 0);
    for (uint32_t i = 0; i < FORKS; i++) {
        const uint32_t turns = caller.turns;
        real_until(caller.turns > turns);
        assert_true(runs_well(every_call_says_forked, &caller.forked));
    }
    caller.stop = true;
    for (uint32_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(caller.failures, 0);
    real_close(caller.forked.comm);
    real_job_end(&job);
}

// ---- a parent that dies before its child ----

struct family {
    struct real_job job;
    int report[2]; // pids, and that all is well, from the others to the test
    int life[2];   // who reads it ends when the test lets go
    uint32_t descriptors;
};

static void tell(const struct family *family, pid_t what) {
    SC_ASSERT(write(family->report[1], &what, sizeof what) == sizeof what);
}

static pid_t hear(const struct family *family) {
    struct pollfd look = {.fd = family->report[0], .events = POLLIN};
    pid_t what = 0;
    if (poll(&look, 1, (int)(REAL_LIMIT_NS / REAL_MS)) != 1)
        real_miss("a report", __FILE__, __LINE__);
    assert_int_equal(read(family->report[0], &what, sizeof what), sizeof what);
    return what;
}

static void live_on(const struct family *family, const struct forked *forked) {
    char byte;
    alarm(60);
    close(family->life[1]);
    every_call_says_forked(forked);
    tell(family, getpid());
    (void)!read(family->life[0], &byte, 1);
    _exit(0);
}

// Rank 1, in a process of its own.
static void work_and_fork(const void *arg) {
    const struct family *family = arg;
    struct sc_recovery recovery = {.size = sizeof recovery};
    struct sc_config config;
    sc_comm comm;
    real_config(&family->job, 1, &config);
    close(family->life[1]);
    const uint32_t descriptors = sockets_descriptors();
    SC_ASSERT(sc_open(&config, &comm) == SC_OK);
    SC_ASSERT(sc_wait_ready(comm, REAL_LIMIT_NS, &recovery) == SC_OK);
    const struct forked forked = {comm, recovery.epoch, descriptors};
    pid_t child = fork();
    SC_ASSERT(child >= 0);
    if (child == 0)
        live_on(family, &forked);
    SC_ASSERT(sc_barrier(comm, recovery.epoch, REAL_LIMIT_NS) == SC_OK);
    (void)!sc_barrier(comm, recovery.epoch, SC_FOREVER);
}

static sc_comm open_patient_coordinator(const struct real_job *job) {
    struct sc_config config;
    real_config(job, 0, &config);
    config.timing.silence_ns = 60 * REAL_SECOND;
    config.timing.abort_ns = 70 * REAL_SECOND;
    return real_open_with(&config);
}

// Nobody holds the pipe's other end any more.
static bool has_ended(int fd) {
    struct pollfd look = {.fd = fd, .events = POLLIN};
    return poll(&look, 1, 0) == 1 && (look.revents & POLLHUP) != 0;
}

static void end_of_a_parent_is_seen_though_its_child_lives(void **state) {
    struct family family;
    int status;
    (void)state;
    real_job_begin(&family.job, 2);
    assert_true(pipe(family.report) == 0 && pipe(family.life) == 0);
    pid_t parent = sockets_child_begin(work_and_fork, &family);
    sc_comm comm = open_patient_coordinator(&family.job);
    const uint64_t epoch = real_ready_after(comm, 0);
    pid_t child = hear(&family);
    real_ok(sc_barrier(comm, epoch, REAL_LIMIT_NS)); // with the parent, which has forked
    const uint64_t since_ns = real_now();
    assert_int_equal(kill(parent, SIGKILL), 0);
    real_until(real_live(comm) == 0);
    assert_true(real_now() - since_ns < 5 * REAL_SECOND); // by no silence
    real_until(real_health(comm).cause.code == SC_PEER_DEAD);
    assert_int_equal(kill(child, 0), 0); // it lives
    assert_int_equal(waitpid(parent, &status, 0), parent);
    close(family.report[1]);
    for (uint32_t i = 0; i < 2; i++)
        close(family.life[i]);
    real_until(has_ended(family.report[0]));
    close(family.report[0]);
    real_close(comm);
    real_job_end(&family.job);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(child_can_do_nothing_and_its_parent_goes_on),
        cmocka_unit_test(fork_is_safe_while_other_threads_call),
        cmocka_unit_test(end_of_a_parent_is_seen_though_its_child_lives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
