// SPDX-License-Identifier: AGPL-3.0-only
//
// Closing a handle: it ends whatever waits in it, whatever became of the peers; afterwards it is closed
// for everybody.
#include "tests/support/real_world.h"

#include <string.h>

#define WAITING 6u
#define LEDGER_OPS 4u

// A member whose ledger is full, in a world of two.
static uint64_t open_with_a_full_ledger(const struct real_job *job, sc_comm *comms) {
    struct sc_config config;
    comms[0] = real_open(job, 0);
    real_config(job, 1, &config);
    config.ledger_ops = LEDGER_OPS;
    comms[1] = real_open_with(&config);
    uint64_t epoch = real_ready_after(comms[0], 0);
    assert_true(real_ready_after(comms[1], 0) == epoch);
    real_switches(comms[1])->ops_hang = true;
    for (uint32_t i = 0; i < LEDGER_OPS; i++)
        real_ok(real_submit(comms[1], epoch));
    return epoch;
}

static void begin_calls(struct real_call *calls, const enum real_verb *verbs, uint32_t count,
                        sc_comm comm, uint64_t epoch) {
    for (uint32_t i = 0; i < count; i++) {
        calls[i] = (struct real_call){.verb = verbs[i], .comm = comm, .epoch = epoch};
        real_call_begin(&calls[i]);
    }
    real_until_waiting(comm, count);
}

static void expect_lost_or_closed(struct real_call *call) {
    const sc_status status = real_call_end(call);
    assert_true(status == SC_EPOCH_LOST || status == SC_CLOSED);
}

static void expect_closed_for_everybody(sc_comm comm, uint64_t epoch) {
    sc_status answers[REAL_ANSWERS_MAX];
    const uint32_t count = real_answers(comm, epoch, answers);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(answers[i], SC_CLOSED);
    assert_non_null(strstr(sc_last_error(), "sc_event_fd: CLOSED"));
    assert_int_equal(real_live(comm), 0);
    sc_interrupt(comm); // has no effect, and no harm
}

static void close_ends_every_call_that_waits_in_a_live_epoch(void **state) {
    static const enum real_verb verbs[WAITING] = {REAL_SYNC,   REAL_BARRIER, REAL_COMMAND_RECV,
                                                  REAL_SUBMIT, REAL_SUBMIT,  REAL_SYNC};
    struct real_job job;
    struct real_call calls[WAITING];
    sc_comm comms[2];
    (void)state;
    real_job_begin(&job, 2);
    const uint64_t epoch = open_with_a_full_ledger(&job, comms);
    begin_calls(calls, verbs, WAITING, comms[1], epoch);
    real_close(comms[1]);
    for (uint32_t i = 0; i < WAITING; i++)
        expect_lost_or_closed(&calls[i]);
    expect_closed_for_everybody(comms[1], epoch);
    real_close(comms[0]);
    real_job_end(&job);
}

static void close_ends_every_call_that_waits_for_an_epoch(void **state) {
    static const enum real_verb verbs[WAITING] = {REAL_WAIT_READY, REAL_WAIT_READY,
                                                  REAL_WAIT_READY, REAL_WAIT_READY,
                                                  REAL_WAIT_READY, REAL_WAIT_READY};
    struct real_job job;
    struct real_call calls[WAITING];
    (void)state;
    real_job_begin(&job, 2);
    sc_comm comm = real_open(&job, 1);
    begin_calls(calls, verbs, WAITING, comm, 0);
    real_close(comm);
    for (uint32_t i = 0; i < WAITING; i++)
        assert_int_equal(real_call_end(&calls[i]), SC_CLOSED);
    expect_closed_for_everybody(comm, 0);
    real_job_end(&job);
}

// Nobody takes them, so the third finds no room.
static void close_ends_a_command_that_waits_for_room(void **state) {
    static const char big[SC_COMMAND_MAX_BYTES];
    static const enum real_verb verb = REAL_COMMAND_SEND;
    struct real_job job;
    struct real_call call;
    sc_comm comms[2];
    (void)state;
    real_job_begin(&job, 2);
    const uint64_t epoch = real_open_all(&job, comms);
    for (uint32_t i = 0; i < 2; i++)
        real_ok(sc_command_send(comms[0], epoch, big, sizeof big, REAL_LIMIT_NS));
    assert_int_equal(sc_command_send(comms[0], epoch, big, sizeof big, 1), SC_TIMEOUT);
    begin_calls(&call, &verb, 1, comms[0], epoch);
    real_close(comms[0]);
    expect_lost_or_closed(&call);
    real_close(comms[1]);
    real_job_end(&job);
}

static void one_of_two_closers_is_told_that_it_came_second_h7(void **state) {
    enum { ROUNDS = 50 };
    struct real_job job;
    (void)state;
    real_job_begin(&job, 1);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct real_call calls[2];
        pthread_barrier_t start;
        pthread_barrier_init(&start, NULL, 2);
        sc_comm comm = real_open(&job, 0);
        if (round % 2 == 0)
            (void)real_ready_after(comm, 0);
        for (uint32_t i = 0; i < 2; i++) {
            calls[i] = (struct real_call){.verb = REAL_CLOSE, .comm = comm, .start = &start};
            real_call_begin(&calls[i]);
        }
        const sc_status first = real_call_end(&calls[0]), second = real_call_end(&calls[1]);
        assert_true(first != second);
        assert_int_equal(first == SC_OK ? second : first, SC_CLOSED);
        assert_true(first == SC_OK || second == SC_OK);
        pthread_barrier_destroy(&start);
        expect_closed_for_everybody(comm, 1);
    }
    real_job_end(&job);
}

// ---- a close that takes its time ----

static void close_that_timed_out_goes_on_at_the_next(void **state) {
    struct real_job job;
    sc_comm comms[2];
    (void)state;
    real_job_begin(&job, 2);
    (void)real_open_all(&job, comms);
    real_switches(comms[1])->aborts_hang = true;
    assert_int_equal(sc_close(comms[1], SC_CLOSE_FINAL, REAL_MS), SC_TIMEOUT);
    assert_non_null(strstr(sc_last_error(), "aborting"));
    struct real_call call = {.verb = REAL_CLOSE, .comm = comms[1]};
    real_call_begin(&call);
    real_until_waiting(comms[1], 1);
    assert_int_equal(sc_close(comms[1], SC_CLOSE_FINAL, 0), SC_CLOSED);
    assert_non_null(strstr(sc_last_error(), "another thread"));
    real_switches(comms[1])->aborts_hang = false;
    assert_int_equal(real_call_end(&call), SC_OK);
    real_close(comms[0]);
    real_job_end(&job);
}

// ---- peers that are gone ----

static void close_needs_no_peer_h7(void **state) {
    struct real_job job;
    sc_comm comms[2];
    (void)state;
    real_job_begin(&job, 2);
    for (uint32_t told = 0; told < 2; told++) { // before the loss is noticed, perhaps, or after
        const uint64_t epoch = real_open_all(&job, comms);
        struct sc_instant_switches *switches = real_switches(comms[0]);
        real_ok(real_submit(comms[0], epoch));
        real_kill(comms[1]);
        if (told)
            real_until(real_live(comms[0]) == 0);
        assert_int_equal(switches->creates, 1);
        const uint64_t since_ns = real_now();
        real_close(comms[0]);
        assert_true(real_now() - since_ns < 5 * REAL_SECOND);
        assert_int_equal(sc_close(comms[0], SC_CLOSE_FINAL, 0), SC_CLOSED);
    }
    real_job_end(&job);
}

static void one_communicator_is_aborted_once_h7(void **state) {
    struct real_job job;
    sc_comm comms[2];
    (void)state;
    real_job_begin(&job, 2);
    const uint64_t epoch = real_open_all(&job, comms);
    struct sc_instant_switches *switches = real_switches(comms[1]);
    switches->aborts_hang = true;
    real_ok(sc_reconnect(comms[1], epoch, 1));
    assert_int_equal(sc_close(comms[1], SC_CLOSE_FINAL, REAL_MS), SC_TIMEOUT);
    assert_int_equal(sc_close(comms[1], SC_CLOSE_FINAL, REAL_MS), SC_TIMEOUT);
    assert_int_equal(switches->aborts, 1);
    assert_int_equal(switches->creates, 1);
    switches->aborts_hang = false;
    real_close(comms[1]);
    real_close(comms[0]);
    real_job_end(&job);
}

static void peers_are_told_how_a_rank_left(void **state) {
    struct real_job job;
    struct sc_recovery recovery = {.size = sizeof recovery};
    sc_comm comms[2];
    (void)state;
    real_job_begin(&job, 2);
    const uint64_t epoch = real_open_all(&job, comms);
    real_ok(sc_close(comms[1], SC_CLOSE_RETURNING, REAL_LIMIT_NS)); // its peer waits
    real_until(real_live(comms[0]) == 0);
    comms[1] = real_open(&job, 1);
    const uint64_t next = real_ready_after(comms[1], epoch);
    real_ok(sc_wait_ready(comms[0], REAL_LIMIT_NS, &recovery));
    assert_true(recovery.epoch == next);
    assert_int_equal(recovery.ranks[0].fresh, 0);
    assert_int_equal(recovery.ranks[1].fresh, 1);
    real_close(comms[1]); // for good: its peer fails
    real_until(real_health(comms[0]).state == SC_STATE_FAILED);
    assert_int_equal(sc_wait_ready(comms[0], REAL_LIMIT_NS, &recovery), SC_PEER_LEFT);
    real_close(comms[0]);
    real_job_end(&job);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(close_ends_every_call_that_waits_in_a_live_epoch),
        cmocka_unit_test(close_ends_every_call_that_waits_for_an_epoch),
        cmocka_unit_test(close_ends_a_command_that_waits_for_room),
        cmocka_unit_test(one_of_two_closers_is_told_that_it_came_second_h7),
        cmocka_unit_test(close_that_timed_out_goes_on_at_the_next),
        cmocka_unit_test(close_needs_no_peer_h7),
        cmocka_unit_test(one_communicator_is_aborted_once_h7),
        cmocka_unit_test(peers_are_told_how_a_rank_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
