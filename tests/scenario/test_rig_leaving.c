// SPDX-License-Identifier: AGPL-3.0-only
//
// Leaving an epoch and leaving for good: aborts that do not return, and closing at any moment.
#include "tests/support/rig.h"

#define MS RIG_MS
#define SECOND RIG_SECOND
#define BYTES 4096u
#define ONE 0x3F80u
#define TWO 0x4000u

// An all_reduce of ones on every rank.
struct work {
    uint64_t address[2];
    struct rig_op ops[2];
};

static void prepare(struct rig *rig, struct work *work) {
    for (uint32_t r = 0; r < 2; r++)
        work->address[r] = rig_alloc(rig, r, BYTES);
}

static void submit(struct rig *rig, struct work *work) {
    for (uint32_t r = 0; r < 2; r++) {
        rig_fill(rig, r, work->address[r], BYTES / 2, ONE);
        work->ops[r] = rig_all_reduce(rig, r, work->address[r], BYTES, 0);
        assert_int_equal(work->ops[r].status, SC_OK);
    }
}

static bool is_done(const struct rig *rig, const struct work *work) {
    return rig_is_done(rig, 0, &work->ops[0]) && rig_is_done(rig, 1, &work->ops[1]);
}

// Traffic works: an op on every rank, exact, within a second.
static void expect_traffic(struct rig *rig) {
    struct work work;
    prepare(rig, &work);
    submit(rig, &work);
    rig_until(rig, SECOND, is_done(rig, &work));
    for (uint32_t r = 0; r < 2; r++)
        rig_expect_all(rig, r, work.address[r], BYTES / 2, TWO);
}

// ---- h6: an abort that does not return ----

// The view answers at every moment of it, and agrees with the notices.
static void expect_view(const struct rig *rig, uint32_t rank) {
    const struct rig_rank *of = &rig->ranks[rank];
    uint64_t state = SC_STATE_IDLE;
    for (uint32_t i = 0; i < of->notices_count; i++)
        if (of->notices[i].notice.kind == SC_NOTICE_STATE)
            state = of->notices[i].notice.b;
    assert_int_equal(rig_state(rig, rank), state);
}

static void run_and_view(struct rig *rig, uint32_t rank, uint64_t ns) {
    uint64_t until_ns = rig_now(rig) + ns;
    while (rig_step(rig, until_ns))
        expect_view(rig, rank);
}

static void an_abort_held_up_by_a_dead_peer_is_quarantined_h6(void **state) {
    struct rig *rig = rig_start_world(2);
    struct work work;
    (void)state;
    uint64_t epoch = rig_epoch(rig, 0);
    prepare(rig, &work);
    rig_inject(rig, (struct sc_sim_fault){.kind = SC_SIM_op_stuck, .a = 0});
    rig_inject(rig, (struct sc_sim_fault){.kind = SC_SIM_abort_stuck, .a = 0});
    submit(rig, &work);
    rig_run(rig, SECOND);
    rig_kill(rig, 1);
    run_and_view(rig, 0, rig->config.core.timing.abort_ns + SECOND);
    rig_expect_cause(rig, 0, SC_PEER_DEAD, 1);
    assert_int_equal(rig_state(rig, 0), SC_STATE_RENDEZVOUS);
    assert_int_equal(rig_held(rig, 0).quarantined, 1);
    assert_int_equal(rig_held(rig, 0).communicators, 0);
    assert_true(rig_is_lost(rig, 0, &work.ops[0]));
    assert_int_equal(rig_spawn(rig, 1, NULL), SC_OK);
    rig_until(rig, 5 * SECOND, rig_is_ready_after(rig, epoch));
    expect_traffic(rig);
    rig_finish(rig);
}

static void an_abort_held_up_by_a_frozen_peer_is_quarantined_h6(void **state) {
    struct rig *rig = rig_start_world(2);
    (void)state;
    uint64_t epoch = rig_epoch(rig, 0);
    const struct sc_sim_held before = rig_held(rig, 0);
    sc_sim_pause(rig->ranks[1].process);
    run_and_view(rig, 0,
                 rig->config.core.timing.silence_ns + rig->config.core.timing.abort_ns + SECOND);
    rig_expect_cause(rig, 0, SC_PEER_SILENT, 1);
    assert_int_equal(rig_state(rig, 0), SC_STATE_RENDEZVOUS);
    assert_int_equal(rig_held(rig, 0).quarantined, 1);
    sc_sim_resume(rig->ranks[1].process);
    rig_until(rig, 10 * SECOND, rig_is_ready_after(rig, epoch));
    // The buffer that the thawed process may still write to is left alone; there is another.
    const struct sc_sim_held after = rig_held(rig, 0);
    assert_int_equal(after.allocations, before.allocations + 1);
    assert_int_equal(after.device_bytes, before.device_bytes + rig->config.core.capacity_bytes);
    expect_traffic(rig);
    rig_finish(rig);
}

static void an_abort_stuck_beside_a_well_peer_is_terminal_h6(void **state) {
    struct rig *rig = rig_start_world(2);
    (void)state;
    uint64_t epoch = rig_epoch(rig, 0), abort_ns = rig->config.core.timing.abort_ns;
    rig_inject(rig, (struct sc_sim_fault){.kind = SC_SIM_abort_stuck, .a = 1});
    rig_reconnect(rig, 0);
    run_and_view(rig, 1, abort_ns - MS);
    assert_int_equal(rig_state(rig, 1), SC_STATE_ABORTING);
    run_and_view(rig, 1, 2 * MS);
    assert_int_equal(rig_state(rig, 1), SC_STATE_FAILED);
    assert_int_equal(rig_view(rig, 1).cause.code, SC_ABORT_STUCK);
    assert_int_equal(rig_view(rig, 1).cause.suspect, 1);
    rig_run(rig, 60 * SECOND);
    assert_int_equal(rig_state(rig, 1), SC_STATE_FAILED);
    assert_int_equal(rig_state(rig, 0), SC_STATE_RENDEZVOUS);
    rig_kill(rig, 1);
    assert_int_equal(rig_spawn(rig, 1, NULL), SC_OK);
    rig_until(rig, 5 * SECOND, rig_is_ready_after(rig, epoch));
    rig_close(rig);
}

static void a_stream_query_that_never_answers_is_terminal_h6(void **state) {
    struct rig *rig = rig_start_world(2);
    struct work work;
    (void)state;
    prepare(rig, &work);
    rig_inject(rig, (struct sc_sim_fault){.kind = SC_SIM_op_stuck, .a = 1});
    submit(rig, &work);
    rig_run(rig, SECOND);
    rig->ranks[1].spy.polls_unanswered = UINT32_MAX;
    rig_reconnect(rig, 0);
    run_and_view(rig, 1, rig->config.core.timing.abort_ns + SECOND);
    assert_int_equal(rig_state(rig, 1), SC_STATE_FAILED);
    assert_int_equal(rig_view(rig, 1).cause.code, SC_ABORT_STUCK);
    assert_int_equal(rig_state(rig, 0), SC_STATE_RENDEZVOUS);
    rig_finish(rig);
}

// ---- h7: close ----

static void expect_one_abort_a_handle(const struct rig *rig, uint32_t rank) {
    const struct rig_spy *spy = &rig->ranks[rank].spy;
    for (uint32_t i = 0; i < spy->comms_count; i++)
        assert_int_equal(spy->comms[i].aborts, 1);
}

static void close_after_the_peers_death_is_bounded_h7(void **state) {
    (void)state;
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct rig *rig = rig_start_world(2);
        rig_inject(rig, (struct sc_sim_fault){.kind = SC_SIM_abort_stuck, .a = rank});
        rig_kill(rig, 1 - rank);
        assert_int_equal(sc_pump_close(rig->ranks[rank].pump, true), SC_OK);
        rig_touch(rig, rank);
        rig_until(rig, rig->config.core.timing.abort_ns + SECOND,
                  rig_state(rig, rank) == SC_STATE_CLOSED);
        assert_int_equal(rig->ranks[rank].spy.comms_count, 1);
        expect_one_abort_a_handle(rig, rank);
        rig_finish(rig);
    }
}

static void close_while_aborting_aborts_no_second_time_h7(void **state) {
    (void)state;
    for (uint32_t at_ms = 0; at_ms < 1600; at_ms += 100) { // aborting, clean, joining, READY again
        struct rig *rig = rig_start_world(2);
        rig_reconnect(rig, at_ms / 100 % 2);
        rig_run(rig, at_ms * MS);
        assert_int_equal(sc_pump_close(rig->ranks[0].pump, true), SC_OK);
        rig_touch(rig, 0);
        rig_until(rig, rig->config.core.timing.abort_ns + SECOND,
                  rig_state(rig, 0) == SC_STATE_CLOSED);
        rig_until(rig, rig->config.core.timing.abort_ns + SECOND,
                  rig_state(rig, 1) == SC_STATE_FAILED);
        assert_int_equal(rig_view(rig, 1).cause.code, SC_PEER_LEFT);
        expect_one_abort_a_handle(rig, 0);
        expect_one_abort_a_handle(rig, 1);
        rig_finish(rig);
    }
}

static void a_second_close_is_told_and_harmless_h7(void **state) {
    struct rig *rig = rig_start_world(2);
    struct sc_pump *pump = rig->ranks[1].pump;
    (void)state;
    assert_int_equal(sc_pump_close(pump, false), SC_OK);
    assert_int_equal(sc_pump_close(pump, true), SC_CLOSED);
    rig_touch(rig, 1);
    rig_until(rig, 2 * SECOND, rig_state(rig, 1) == SC_STATE_CLOSED);
    uint64_t calls = rig_calls_of_all_verbs(rig, 1);
    assert_int_equal(sc_pump_close(pump, true), SC_CLOSED);
    assert_int_equal(sc_pump_close(pump, false), SC_CLOSED);
    struct rig_op late = rig_all_reduce(rig, 1, 0, 0, 0);
    assert_int_equal(late.status, SC_CLOSED);
    rig_run(rig, 10 * SECOND);
    assert_int_equal(rig_calls_of_all_verbs(rig, 1), calls);
    expect_one_abort_a_handle(rig, 1);
    assert_int_equal(rig_state(rig, 0), SC_STATE_RENDEZVOUS); // it said that it would come back
    rig_close(rig);
}

#define TEST(name) cmocka_unit_test_teardown(name, rig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(an_abort_held_up_by_a_dead_peer_is_quarantined_h6),
        TEST(an_abort_held_up_by_a_frozen_peer_is_quarantined_h6),
        TEST(an_abort_stuck_beside_a_well_peer_is_terminal_h6),
        TEST(a_stream_query_that_never_answers_is_terminal_h6),
        TEST(close_after_the_peers_death_is_bounded_h7),
        TEST(close_while_aborting_aborts_no_second_time_h7),
        TEST(a_second_close_is_told_and_harmless_h7),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
