// SPDX-License-Identifier: AGPL-3.0-only
//
// Health: what counts as evidence, and when. Leaving is test_rig_leaving.c's.
#include "tests/support/rig.h"

#define MS RIG_MS
#define SECOND RIG_SECOND
#define T (30 * SECOND) // the op timeout
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

static bool both_left(const struct rig *rig) {
    return rig_change(rig, 0, SC_STATE_ABORTING) != NULL &&
           rig_change(rig, 1, SC_STATE_ABORTING) != NULL;
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

static void fail_verb(struct rig *rig, uint32_t rank, enum sc_device_verb verb, sc_status status,
                      bool for_ever) {
    rig_inject(rig, (struct sc_sim_fault){.kind = SC_SIM_verb_fails,
                                          .a = rank,
                                          .verb = verb,
                                          .nth = 1,
                                          .status = status,
                                          .duration_ns = for_ever});
}

// ---- h2: errors inside a submit ----

static void an_error_right_after_the_group_launches_no_add_h2(void **state) {
    struct rig *rig = rig_start_world(2);
    (void)state;
    uint64_t epoch = rig_epoch(rig, 0), address = rig_alloc(rig, 0, BYTES);
    rig_fill(rig, 0, address, BYTES / 2, ONE);
    rig->ranks[0].spy.async_error_after_group = true;
    struct rig_op op = rig_all_reduce(rig, 0, address, BYTES, 0);
    assert_int_equal(op.status, SC_ASYNC_ERROR);
    assert_int_equal(rig_calls(rig, 0, SC_VERB_add_bf16), 0);
    assert_int_equal(rig_calls(rig, 0, SC_VERB_group_end), 1);
    assert_int_not_equal(rig_state(rig, 0), SC_STATE_READY);
    rig_expect_cause(rig, 0, SC_ASYNC_ERROR, 0);
    rig_until(rig, MS, both_left(rig));
    rig_expect_cause(rig, 1, SC_ASYNC_ERROR, 0);
    rig_until(rig, 10 * SECOND, rig_is_ready_after(rig, epoch));
    assert_int_equal(rig->ranks[0].completions_count, 0);
    rig_expect_all(rig, 0, address, BYTES / 2, ONE);
    expect_traffic(rig);
    rig_close(rig);
}

static void a_failed_receive_ends_its_group_exactly_once_h2(void **state) {
    struct rig *rig = rig_start_world(2);
    (void)state;
    uint64_t epoch = rig_epoch(rig, 0), address = rig_alloc(rig, 0, BYTES);
    fail_verb(rig, 0, SC_VERB_recv, SC_DEVICE_ERROR, false);
    struct rig_op op = rig_all_reduce(rig, 0, address, BYTES, 0);
    assert_int_equal(op.status, SC_DEVICE_ERROR);
    assert_int_equal(rig_calls(rig, 0, SC_VERB_send), 1);
    assert_int_equal(rig_calls(rig, 0, SC_VERB_group_begin), 1);
    assert_int_equal(rig_calls(rig, 0, SC_VERB_group_end), 1);
    assert_int_equal(rig_calls(rig, 0, SC_VERB_add_bf16), 0);
    assert_int_equal(sc_sim_group_depth(rig->ranks[0].process), 0);
    assert_int_not_equal(rig_state(rig, 0), SC_STATE_READY);
    rig_until(rig, MS, both_left(rig));
    rig_until(rig, 10 * SECOND, rig_is_ready_after(rig, epoch));
    expect_traffic(rig);
    rig_close(rig);
}

// ---- h3, h4: the op's clock ----

static void compute_ahead_of_an_op_is_not_its_time_h3(void **state) {
    struct rig_config config = rig_config(2);
    struct work work;
    (void)state;
    config.sim.op_latency = (struct sc_sim_span){MS, MS};
    struct rig *rig = rig_start(&config);
    prepare(rig, &work);
    for (uint32_t r = 0; r < 2; r++)
        rig_compute(rig, r, 0, 40 * SECOND);
    submit(rig, &work);
    rig_until(rig, 41 * SECOND, is_done(rig, &work));
    assert_null(rig_change(rig, 0, SC_STATE_ABORTING));
    assert_null(rig_change(rig, 1, SC_STATE_ABORTING));

    rig_compute(rig, 1, 0, 40 * SECOND); // one rank alone is late: it is behind, not the op late
    submit(rig, &work);
    rig_until(rig, 41 * SECOND, is_done(rig, &work));
    assert_null(rig_change(rig, 0, SC_STATE_ABORTING));
    assert_null(rig_change(rig, 1, SC_STATE_ABORTING));
    rig_close(rig);
}

static void an_op_just_within_its_time_is_ok_h3(void **state) {
    struct rig_config config = rig_config(2);
    struct work work;
    (void)state;
    config.sim.op_latency = (struct sc_sim_span){T - 100 * MS, T - 100 * MS};
    struct rig *rig = rig_start(&config);
    prepare(rig, &work);
    for (uint32_t i = 0; i < 2; i++) {
        submit(rig, &work);
        rig_until(rig, T, is_done(rig, &work));
    }
    assert_null(rig_change(rig, 0, SC_STATE_ABORTING));
    rig_expect_all(rig, 0, work.address[0], BYTES / 2, TWO);
    rig_close(rig);
}

static void an_op_past_its_time_is_the_fabrics_fault_and_stays_so_h3(void **state) {
    struct rig_config config = rig_config(2);
    struct work work;
    (void)state;
    config.sim.op_latency = (struct sc_sim_span){T + 200 * MS, T + 200 * MS};
    struct rig *rig = rig_start(&config);
    uint64_t epoch = rig_epoch(rig, 0);
    prepare(rig, &work);
    submit(rig, &work);
    uint64_t submitted_ns = rig_now(rig);
    rig_until(rig, T + 200 * MS, both_left(rig));
    assert_true(rig_change(rig, 0, SC_STATE_ABORTING)->at_ns >= submitted_ns + T);
    // The exchange itself succeeds while the epoch is being left: that changes no verdict.
    rig_until(rig, 10 * SECOND, rig_is_ready_after(rig, epoch));
    for (uint32_t r = 0; r < 2; r++) {
        rig_expect_cause(rig, r, SC_FABRIC, SC_RANK_NONE);
        assert_int_equal(rig_view(rig, r).cause.code, SC_FABRIC);
        assert_int_equal(rig_view(rig, r).cause.seq, 1);
        assert_true(rig_is_lost(rig, r, &work.ops[r]));
        assert_int_equal(rig->ranks[r].completions_count, 0);
    }
    rig_close(rig);
}

static void a_hung_op_ends_when_the_monotonic_clock_says_so_h4(void **state) {
    struct rig *rig = rig_start_world(2);
    struct work work;
    (void)state;
    uint64_t epoch = rig_epoch(rig, 0);
    prepare(rig, &work);
    rig_inject(rig, (struct sc_sim_fault){.kind = SC_SIM_op_stuck, .a = 1});
    submit(rig, &work);
    uint64_t submitted_ns = rig_now(rig);
    rig_run(rig, T - MS);
    assert_true(rig_is_ready(rig));
    rig_until(rig, SECOND, both_left(rig));
    // The start of one rank becomes known to the other with a heartbeat.
    assert_true(rig_now(rig) >= submitted_ns + T);
    assert_true(rig_now(rig) <= submitted_ns + T + 200 * MS);
    rig_expect_cause(rig, 0, SC_FABRIC, SC_RANK_NONE);
    rig_until(rig, 10 * SECOND, rig_is_ready_after(rig, epoch));
    expect_traffic(rig);
    rig_close(rig);
}

// ---- h5: no answer yet ----

static void two_hundred_polls_without_an_answer_are_healthy_h5(void **state) {
    struct rig_config config = rig_config(2);
    struct work work;
    (void)state;
    config.poll_ns = MS;
    struct rig *rig = rig_start(&config);
    prepare(rig, &work);
    rig->ranks[0].spy.polls_unanswered = 200;
    submit(rig, &work);
    rig_until(rig, SECOND, is_done(rig, &work));
    assert_int_equal(rig->ranks[0].spy.polls_unanswered, 0);
    fail_verb(rig, 1, SC_VERB_comm_poll, SC_INPROGRESS, true); // of the communicator, too
    uint64_t polls = rig_calls(rig, 1, SC_VERB_comm_poll);
    rig_until(rig, SECOND, rig_calls(rig, 1, SC_VERB_comm_poll) >= polls + 200);
    sc_sim_heal(rig->sim);
    expect_traffic(rig);
    assert_null(rig_change(rig, 0, SC_STATE_ABORTING));
    rig_close(rig);
}

static void a_first_op_of_twelve_seconds_is_healthy_h5(void **state) {
    struct rig_config config = rig_config(2);
    struct work work;
    (void)state;
    config.sim.op_latency = (struct sc_sim_span){12 * SECOND, 12 * SECOND};
    struct rig *rig = rig_start(&config);
    prepare(rig, &work);
    submit(rig, &work);
    rig_until(rig, 12 * SECOND + MS, is_done(rig, &work));
    assert_null(rig_change(rig, 0, SC_STATE_ABORTING));
    rig_close(rig);
}

// Once it is known to have started, no answer is no excuse.
static void an_op_whose_polls_stop_answering_is_bounded_by_t_h5(void **state) {
    struct rig_config config = rig_config(2);
    struct work work;
    (void)state;
    config.poll_ns = MS;
    struct rig *rig = rig_start(&config);
    uint64_t epoch = rig_epoch(rig, 0);
    prepare(rig, &work);
    rig_inject(rig, (struct sc_sim_fault){.kind = SC_SIM_op_stuck, .a = 0});
    submit(rig, &work);
    rig_run(rig, SECOND);
    rig->ranks[0].spy.polls_unanswered = UINT32_MAX;
    fail_verb(rig, 0, SC_VERB_comm_poll, SC_INPROGRESS, true);
    rig_until(rig, T, both_left(rig));
    rig_expect_cause(rig, 0, SC_FABRIC, SC_RANK_NONE);
    rig->ranks[0].spy.polls_unanswered = 0;
    sc_sim_heal(rig->sim);
    rig_until(rig, 10 * SECOND, rig_is_ready_after(rig, epoch));
    rig_close(rig);
}

static void an_op_whose_polls_never_answer_is_bounded_by_t_h5(void **state) {
    struct rig_config config = rig_config(2);
    struct work work;
    (void)state;
    config.poll_ns = MS;
    struct rig *rig = rig_start(&config);
    prepare(rig, &work);
    rig->ranks[0].spy.polls_unanswered = UINT32_MAX;
    submit(rig, &work);
    rig_until(rig, T + SECOND, both_left(rig));
    rig_finish(rig);
}

// ---- h8, h9 ----

static void a_lost_context_is_terminal_and_told_h8(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 4; i++) { // on either rank, whether the device wakes or is polled
        uint32_t lost = i & 1u, other = 1 - lost;
        struct rig_config config = rig_config(2);
        config.poll_ns = i < 2 ? 0 : 10 * MS;
        struct rig *rig = rig_start(&config);
        struct work work;
        uint64_t epoch = rig_epoch(rig, 0);
        prepare(rig, &work);
        submit(rig, &work);
        rig_inject(rig, (struct sc_sim_fault){.kind = SC_SIM_context_lost, .a = lost});
        rig_until(rig, 100 * MS, both_left(rig));
        rig_expect_cause(rig, lost, SC_CONTEXT_LOST, lost);
        rig_expect_cause(rig, other, SC_CONTEXT_LOST, lost);
        assert_int_equal(rig_state(rig, lost), SC_STATE_FAILED);
        assert_int_equal(rig_view(rig, lost).cause.code, SC_CONTEXT_LOST);
        uint64_t calls = rig_calls_of_all_verbs(rig, lost);
        rig_run(rig, 60 * SECOND);
        assert_int_equal(rig_state(rig, lost), SC_STATE_FAILED);
        assert_in_range(rig_calls_of_all_verbs(rig, lost), calls, calls + 4);
        assert_int_equal(rig_all_reduce(rig, lost, 0, 0, 0).status, SC_EPOCH_LOST);
        assert_int_equal(rig_state(rig, other), SC_STATE_RENDEZVOUS);
        rig_kill(rig, lost);
        assert_int_equal(rig_spawn(rig, lost, NULL), SC_OK);
        rig_until(rig, 10 * SECOND, rig_is_ready_after(rig, epoch));
        expect_traffic(rig);
        rig_close(rig);
    }
}

static void ten_idle_minutes_leave_it_ready_h9(void **state) {
    struct rig *rig = rig_start_world(2);
    (void)state;
    expect_traffic(rig);
    uint32_t changes = rig->ranks[0].notices_count + rig->ranks[1].notices_count;
    rig_run(rig, 600 * SECOND);
    assert_int_equal(rig->ranks[0].notices_count + rig->ranks[1].notices_count, changes);
    assert_true(rig_is_ready(rig));
    expect_traffic(rig);
    assert_int_equal(rig_view(rig, 0).recoveries, 0);
    rig_close(rig);
}

#define TEST(name) cmocka_unit_test_teardown(name, rig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(an_error_right_after_the_group_launches_no_add_h2),
        TEST(a_failed_receive_ends_its_group_exactly_once_h2),
        TEST(compute_ahead_of_an_op_is_not_its_time_h3),
        TEST(an_op_just_within_its_time_is_ok_h3),
        TEST(an_op_past_its_time_is_the_fabrics_fault_and_stays_so_h3),
        TEST(a_hung_op_ends_when_the_monotonic_clock_says_so_h4),
        TEST(two_hundred_polls_without_an_answer_are_healthy_h5),
        TEST(a_first_op_of_twelve_seconds_is_healthy_h5),
        TEST(an_op_whose_polls_stop_answering_is_bounded_by_t_h5),
        TEST(an_op_whose_polls_never_answer_is_bounded_by_t_h5),
        TEST(a_lost_context_is_terminal_and_told_h8),
        TEST(ten_idle_minutes_leave_it_ready_h9),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
