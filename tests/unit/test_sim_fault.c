// SPDX-License-Identifier: AGPL-3.0-only
//
// Faults of the simulated device: each causes what it is named for, once or until healed, and
// breaks no contract by itself.
#include "tests/unit/test_sim_fixture.h"

#define ONE 0x3F80 // BF16 1.0
#define TWO 0x4000

static void fault(struct fixture *f, enum sc_sim_fault_kind kind, uint64_t duration_ns) {
    assert_true(inject(f, (struct sc_sim_fault){.kind = kind, .a = 0, .duration_ns = duration_ns}));
}

static void verb_fault(struct fixture *f, enum sc_device_verb verb, uint32_t nth, bool lasting) {
    assert_true(inject(f, (struct sc_sim_fault){.kind = SC_SIM_verb_fails,
                                                .a = 0,
                                                .verb = verb,
                                                .nth = nth,
                                                .duration_ns = lasting,
                                                .status = SC_DEVICE_ERROR}));
}

static void faults_have_names(void **state) {
    (void)state;
    assert_string_equal(sc_sim_fault_name(SC_SIM_link_reset), "link_reset");
    assert_string_equal(sc_sim_fault_name(SC_SIM_context_lost), "context_lost");
    assert_string_equal(sc_sim_fault_name(SC_SIM_FAULT_COUNT), "unknown");
}

static void fault_without_its_process_cannot_bite(void **state) {
    struct fixture f;

    (void)state;
    start(&f, 1, 2);
    sc_sim_kill(f.lives[0].process);
    assert_false(inject(&f, (struct sc_sim_fault){.kind = SC_SIM_init_hang, .a = 0}));
    assert_false(inject(&f, (struct sc_sim_fault){.kind = SC_SIM_async_error, .a = 1}));
    assert_false(inject(&f, (struct sc_sim_fault){.kind = SC_SIM_op_slow, .a = 1}));
    assert_false(inject(&f, (struct sc_sim_fault){.kind = SC_SIM_name_unresolved, .a = 0}));
    assert_false(inject(&f, (struct sc_sim_fault){.kind = SC_SIM_verb_fails, .a = 1}));
    finish(&f);
}

// ---- forming ----------------------------------------------------------------------------------

static void init_hang_bites_once_and_heals_only_before_it_did(void **state) {
    struct fixture f;

    (void)state;
    start(&f, 1, 2);
    fault(&f, SC_SIM_init_hang, 0);
    sc_sim_heal(f.sim); // disarmed
    form(&f);
    run_for(&f, SECOND);
    assert_int_equal(comm_state(&f.lives[1]), SC_COMM_READY);
    fault(&f, SC_SIM_init_hang, 0);
    form(&f);
    sc_sim_heal(f.sim); // too late
    run_for(&f, 100 * SECOND);
    assert_int_equal(comm_state(&f.lives[0]), SC_COMM_FORMING);
    assert_int_equal(comm_state(&f.lives[1]), SC_COMM_FORMING);
    form(&f);
    run_for(&f, SECOND);
    assert_int_equal(comm_state(&f.lives[0]), SC_COMM_READY);
    finish(&f);
}

static void init_error_fails_here_and_hangs_there(void **state) {
    struct fixture f;
    struct sc_comm_report report;
    const struct sc_device *d;

    (void)state;
    start(&f, 1, 2);
    d = f.lives[0].device;
    fault(&f, SC_SIM_init_error, 0);
    form(&f);
    run_for(&f, 100 * SECOND);
    assert_int_equal(d->comm_poll(d->ctx, f.lives[0].comm, &report), SC_OK);
    assert_int_equal(report.state, SC_COMM_ERROR);
    assert_int_equal(report.error, SC_COMM_FAILED);
    assert_int_equal(comm_state(&f.lives[1]), SC_COMM_FORMING);
    assert_int_equal(d->comm_abort(d->ctx, f.lives[0].comm), SC_OK);
    run_for(&f, MS);
    assert_int_equal(comm_state(&f.lives[0]), SC_COMM_GONE);
    finish(&f);
}

static void init_null_hands_out_nothing_with_success(void **state) {
    struct fixture f;

    (void)state;
    start(&f, 1, 2);
    fault(&f, SC_SIM_init_null, 0);
    struct sc_comm_id id = draw_id(&f.lives[0]);
    f.lives[0].comm = 1;
    assert_int_equal(create_comm(&f.lives[0], id, 0, 2), SC_OK);
    assert_int_equal(f.lives[0].comm, 0);
    assert_int_equal(create_comm(&f.lives[0], id, 0, 2), SC_OK); // the id was not spent
    assert_int_not_equal(f.lives[0].comm, 0);
    finish(&f);
}

static void register_null_gives_no_handle_with_success(void **state) {
    struct fixture f;
    struct life *zero = &f.lives[0];
    uint64_t out[3] = {1, 1, 0};

    (void)state;
    start_joined(&f, 1, 2);
    assert_true(inject(&f, (struct sc_sim_fault){.kind = SC_SIM_register_null, .a = 0, .nth = 2}));
    for (int at = 0; at < 3; at++)
        assert_int_equal(
            zero->device->buf_register(zero->device->ctx, zero->comm, zero->buf, BYTES, &out[at]),
            SC_OK);
    assert_int_equal(out[0], 0);
    assert_int_equal(out[1], 0);
    assert_int_not_equal(out[2], 0);
    finish(&f);
}

// ---- ops --------------------------------------------------------------------------------------

static void slow_rank_has_not_started_its_op(void **state) {
    struct fixture f;

    (void)state;
    start_joined(&f, 1, 2);
    fault(&f, SC_SIM_op_slow, 10 * MS);
    uint64_t slow = all_reduce(&f.lives[0]);
    uint64_t other = all_reduce(&f.lives[1]);
    run_for(&f, 10 * MS - 1);
    assert_int_equal(op_state(&f.lives[0], slow), SC_OP_ENQUEUED);
    assert_int_equal(op_state(&f.lives[1], other), SC_OP_STARTED);
    run_for(&f, MS);
    assert_int_equal(op_state(&f.lives[0], slow), SC_OP_DONE);
    assert_int_equal(op_state(&f.lives[1], other), SC_OP_DONE);
    finish(&f);
}

static void stuck_op_starts_on_all_completes_on_none_and_drains_on_abort(void **state) {
    struct fixture f;
    const struct sc_device *d;

    (void)state;
    start_joined(&f, 1, 2);
    d = f.lives[1].device;
    fault(&f, SC_SIM_op_stuck, 0);
    uint64_t ops[2] = {all_reduce(&f.lives[0]), all_reduce(&f.lives[1])};
    run_for(&f, 100 * SECOND);
    assert_int_equal(op_state(&f.lives[0], ops[0]), SC_OP_STARTED);
    assert_int_equal(op_state(&f.lives[1], ops[1]), SC_OP_STARTED);
    assert_int_equal(d->comm_abort(d->ctx, f.lives[1].comm), SC_OK);
    run_for(&f, SECOND);
    assert_int_equal(op_state(&f.lives[1], ops[1]), SC_OP_DONE);
    assert_int_equal(op_state(&f.lives[0], ops[0]), SC_OP_STARTED);
    finish(&f);
}

static void late_completion_is_seen_late_and_delays_no_work(void **state) {
    struct fixture f;
    struct life *zero = &f.lives[0];

    (void)state;
    start_joined(&f, 1, 2);
    fill(zero, zero->buf, ONE);
    fill(&f.lives[1], f.lives[1].buf, ONE);
    fault(&f, SC_SIM_op_late, 10 * MS);
    uint64_t late = all_reduce(zero);
    uint64_t next = all_reduce(zero);
    all_reduce(&f.lives[1]);
    all_reduce(&f.lives[1]);
    run_for(&f, MS);
    assert_int_equal(op_state(zero, late), SC_OP_STARTED);
    assert_int_equal(op_state(zero, next), SC_OP_DONE);
    expect_filled(zero, zero->buf, 0x4080);
    unsigned wakes = zero->wakes;
    run_for(&f, 10 * MS);
    assert_int_equal(op_state(zero, late), SC_OP_DONE);
    assert_int_equal(zero->wakes, wakes + 1);
    finish(&f);
}

static void async_error_is_reported_and_later_ops_spin(void **state) {
    struct fixture f;
    struct life *zero = &f.lives[0];
    struct sc_comm_report report;

    (void)state;
    start_joined(&f, 1, 2);
    unsigned wakes = zero->wakes;
    fault(&f, SC_SIM_async_error, 0);
    run_for(&f, 1);
    assert_int_equal(zero->wakes, wakes + 1);
    assert_int_equal(zero->device->comm_poll(zero->device->ctx, zero->comm, &report), SC_OK);
    assert_int_equal(report.state, SC_COMM_ERROR);
    assert_int_equal(report.error, SC_ASYNC_ERROR);
    uint64_t op = all_reduce(zero); // accepted, as the real one does
    all_reduce(&f.lives[1]);
    assert_int_equal(zero->device->comm_error(zero->device->ctx, zero->comm), SC_ASYNC_ERROR);
    run_for(&f, 100 * SECOND);
    assert_int_equal(op_state(zero, op), SC_OP_STARTED);
    finish(&f);
}

// ---- aborts -----------------------------------------------------------------------------------

static void slow_abort_takes_its_duration(void **state) {
    struct fixture f;
    struct life *zero = &f.lives[0];

    (void)state;
    start_joined(&f, 1, 2);
    fault(&f, SC_SIM_abort_slow, 20 * SECOND);
    assert_int_equal(zero->device->comm_abort(zero->device->ctx, zero->comm), SC_OK);
    run_for(&f, 20 * SECOND - 1);
    assert_int_equal(comm_state(zero), SC_COMM_READY);
    run_for(&f, 1);
    assert_int_equal(comm_state(zero), SC_COMM_GONE);
    finish(&f);
}

static void stuck_abort_never_returns_but_drains(void **state) {
    struct fixture f;
    struct life *zero = &f.lives[0];

    (void)state;
    start_joined(&f, 1, 2);
    fault(&f, SC_SIM_abort_stuck, 0);
    uint64_t op = all_reduce(zero);
    assert_int_equal(zero->device->comm_abort(zero->device->ctx, zero->comm), SC_OK);
    run_for(&f, SECOND);
    assert_int_equal(op_state(zero, op), SC_OP_DONE);
    sc_sim_heal(f.sim); // what has failed stays failed
    run_for(&f, 1000 * SECOND);
    assert_int_equal(comm_state(zero), SC_COMM_READY);
    finish(&f);
}

// ---- verbs ------------------------------------------------------------------------------------

static void nth_call_of_a_verb_fails_once(void **state) {
    struct fixture f;
    const struct sc_device *d;
    struct sc_sim_held held;
    uint64_t out = 0;

    (void)state;
    start(&f, 1, 1);
    d = f.lives[0].device;
    verb_fault(&f, SC_VERB_stream_create, 3, false);
    assert_int_equal(d->stream_create(d->ctx, &out), SC_OK);
    assert_int_equal(d->mem_alloc(d->ctx, 4, &out), SC_OK); // another verb is not counted
    assert_int_equal(d->stream_create(d->ctx, &out), SC_OK);
    out = 77;
    assert_int_equal(d->stream_create(d->ctx, &out), SC_DEVICE_ERROR);
    assert_int_equal(out, 77);
    sc_sim_held(f.lives[0].process, &held);
    assert_int_equal(held.streams, 2);
    assert_int_equal(d->stream_create(d->ctx, &out), SC_OK);
    finish(&f);
}

static void lasting_failure_ends_with_heal(void **state) {
    struct fixture f;
    const struct sc_device *d;

    (void)state;
    start(&f, 1, 1);
    d = f.lives[0].device;
    verb_fault(&f, SC_VERB_fence_set, 2, true);
    assert_int_equal(d->fence_set(d->ctx, 1), SC_OK);
    assert_int_equal(d->fence_set(d->ctx, 1), SC_DEVICE_ERROR);
    assert_int_equal(d->fence_set(d->ctx, 1), SC_DEVICE_ERROR);
    sc_sim_heal(f.sim);
    assert_int_equal(d->fence_set(d->ctx, 1), SC_OK);
    finish(&f);
}

static void failing_send_spoils_its_group(void **state) {
    struct fixture f;
    struct life *zero = &f.lives[0];
    const struct sc_device *d;

    (void)state;
    start_joined(&f, 1, 2);
    d = zero->device;
    verb_fault(&f, SC_VERB_recv, 1, false);
    assert_int_equal(d->group_begin(d->ctx), SC_OK);
    assert_int_equal(d->send(d->ctx, zero->comm, zero->buf, BYTES, 1, zero->stream), SC_OK);
    assert_int_equal(d->recv(d->ctx, zero->comm, zero->buf, BYTES, 1, zero->stream),
                     SC_DEVICE_ERROR);
    assert_int_equal(d->group_end(d->ctx), SC_DEVICE_ERROR);
    fill(zero, zero->buf, ONE);
    fill(&f.lives[1], f.lives[1].buf, ONE);
    pair_add(zero, 1); // no place in the order was taken
    pair_add(&f.lives[1], 0);
    run_for(&f, MS);
    expect_filled(zero, zero->buf, TWO);
    finish(&f);
}

static void op_whose_end_fails_counts_as_failed(void **state) {
    struct fixture f;
    struct life *zero = &f.lives[0];
    const struct sc_device *d;
    uint64_t op = 0;

    (void)state;
    start(&f, 1, 1);
    prepare(zero);
    d = zero->device;
    verb_fault(&f, SC_VERB_op_end, 1, false);
    assert_int_equal(d->op_begin(d->ctx, zero->stream, &op), SC_OK);
    assert_int_equal(d->op_end(d->ctx, op), SC_DEVICE_ERROR);
    assert_int_equal(op_state(zero, op), SC_OP_FAILED);
    assert_int_equal(d->stream_wait(d->ctx, zero->stream, op), SC_OK);
    release(zero, op);
    finish(&f);
}

static void lost_context_answers_everything_and_stops_the_gpu(void **state) {
    struct fixture f;
    struct life *zero = &f.lives[0];
    const struct sc_device *d;
    struct sc_comm_report report;
    uint64_t out = 0;

    (void)state;
    start_joined(&f, 1, 2);
    d = zero->device;
    uint64_t mine = all_reduce(zero);
    fault(&f, SC_SIM_context_lost, 0);
    uint64_t other = all_reduce(&f.lives[1]);
    run_for(&f, 100 * SECOND);
    enum sc_op_state state_of_mine;
    assert_int_equal(d->op_poll(d->ctx, mine, &state_of_mine), SC_CONTEXT_LOST);
    assert_int_equal(op_state(&f.lives[1], other), SC_OP_STARTED);
    assert_int_equal(d->comm_poll(d->ctx, zero->comm, &report), SC_OK);
    assert_int_equal(report.state, SC_COMM_ERROR);
    assert_int_equal(report.error, SC_CONTEXT_LOST);
    assert_int_equal(d->comm_error(d->ctx, zero->comm), SC_CONTEXT_LOST);
    assert_int_equal(d->stream_create(d->ctx, &out), SC_CONTEXT_LOST);
    assert_int_equal(d->mem_free(d->ctx, zero->buf), SC_CONTEXT_LOST);
    assert_int_equal(d->comm_abort(d->ctx, zero->comm), SC_CONTEXT_LOST);
    assert_int_equal(sc_sim_compute(zero->process, zero->stream, 1, NULL, NULL), SC_CONTEXT_LOST);
    assert_false(inject(&f, (struct sc_sim_fault){.kind = SC_SIM_op_stuck, .a = 0}));
    finish(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_have_names),
        cmocka_unit_test(fault_without_its_process_cannot_bite),
        cmocka_unit_test(init_hang_bites_once_and_heals_only_before_it_did),
        cmocka_unit_test(init_error_fails_here_and_hangs_there),
        cmocka_unit_test(init_null_hands_out_nothing_with_success),
        cmocka_unit_test(register_null_gives_no_handle_with_success),
        cmocka_unit_test(slow_rank_has_not_started_its_op),
        cmocka_unit_test(stuck_op_starts_on_all_completes_on_none_and_drains_on_abort),
        cmocka_unit_test(late_completion_is_seen_late_and_delays_no_work),
        cmocka_unit_test(async_error_is_reported_and_later_ops_spin),
        cmocka_unit_test(slow_abort_takes_its_duration),
        cmocka_unit_test(stuck_abort_never_returns_but_drains),
        cmocka_unit_test(nth_call_of_a_verb_fails_once),
        cmocka_unit_test(lasting_failure_ends_with_heal),
        cmocka_unit_test(failing_send_spoils_its_group),
        cmocka_unit_test(op_whose_end_fails_counts_as_failed),
        cmocka_unit_test(lost_context_answers_everything_and_stops_the_gpu),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
