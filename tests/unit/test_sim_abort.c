// SPDX-License-Identifier: AGPL-3.0-only
//
// Groups and their errors, and how a simulated communicator is given up.
#include "tests/unit/test_sim_fixture.h"

#define ONE 0x3F80 // BF16 1.0

static void abort_comm(struct life *life) {
    assert_int_equal(life->device->comm_abort(life->device->ctx, life->comm), SC_OK);
}

static void expect_gone(struct life *life) {
    assert_int_equal(comm_state(life), SC_COMM_GONE);
}

static uint64_t capture_all_reduce(struct life *life) {
    const struct sc_device *d = life->device;
    uint64_t capture = 0;

    assert_int_equal(d->capture_begin(d->ctx, life->stream, &capture), SC_OK);
    assert_int_equal(d->all_reduce(d->ctx, life->comm, life->buf, BYTES, life->stream), SC_OK);
    assert_int_equal(d->add_bf16(d->ctx, life->buf, life->scratch, BYTES, EPOCH, life->stream),
                     SC_OK);
    assert_int_equal(d->capture_end(d->ctx, capture), SC_OK);
    return capture;
}

static uint32_t captures_held(struct life *life) {
    uint32_t held = 99;

    assert_int_equal(life->device->captures_held(life->device->ctx, life->comm, &held), SC_OK);
    return held;
}

// ---- groups -----------------------------------------------------------------------------------

static void error_in_a_group_is_returned_at_its_end_and_enqueues_nothing(void **state) {
    struct fixture f;
    struct life *zero = &f.lives[0];
    const struct sc_device *d;
    uint64_t op = 0;

    (void)state;
    start_joined(&f, 1, 2);
    d = zero->device;
    assert_int_equal(d->group_begin(d->ctx), SC_OK);
    assert_int_equal(d->group_begin(d->ctx), SC_OK);
    assert_int_equal(sc_sim_group_depth(zero->process), 2);
    assert_int_equal(d->send(d->ctx, zero->comm, zero->buf, BYTES, 1, zero->stream), SC_OK);
    assert_int_equal(d->recv(d->ctx, zero->comm, zero->buf, BYTES, 5, zero->stream), SC_INVALID);
    expect_violation(&f, "rank 5 in a world of 2");
    assert_int_equal(d->group_end(d->ctx), SC_OK); // the inner one tells nothing
    assert_int_equal(d->group_end(d->ctx), SC_INVALID);
    assert_int_equal(sc_sim_group_depth(zero->process), 0);
    assert_int_equal(d->op_begin(d->ctx, zero->stream, &op), SC_OK);
    assert_int_equal(op_state(zero, op), SC_OP_STARTED); // nothing stands in front of it
    assert_int_equal(d->op_end(d->ctx, op), SC_OK);
    assert_int_equal(d->group_end(d->ctx), SC_INVALID);
    expect_violation(&f, "no group is open");
    pair_add(zero, 1); // the next group is clean
    pair_add(&f.lives[1], 0);
    finish(&f);
}

static void group_end_that_is_made_to_fail_closes_its_group(void **state) {
    struct fixture f;
    struct life *zero = &f.lives[0];
    const struct sc_device *d;
    uint64_t op = 0;

    (void)state;
    start_joined(&f, 1, 2);
    d = zero->device;
    assert_true(inject(&f, (struct sc_sim_fault){.kind = SC_SIM_verb_fails,
                                                 .verb = SC_VERB_group_end,
                                                 .status = SC_DEVICE_ERROR}));
    assert_int_equal(d->group_begin(d->ctx), SC_OK);
    assert_int_equal(d->send(d->ctx, zero->comm, zero->buf, BYTES, 1, zero->stream), SC_OK);
    assert_int_equal(d->group_end(d->ctx), SC_DEVICE_ERROR);
    assert_int_equal(sc_sim_group_depth(zero->process), 0);
    assert_int_equal(d->op_begin(d->ctx, zero->stream, &op), SC_OK);
    assert_int_equal(op_state(zero, op), SC_OP_STARTED);
    finish(&f);
}

static void open_group_spoils_op_begin_create_and_abort(void **state) {
    struct fixture f;
    struct life *zero = &f.lives[0];
    const struct sc_device *d;
    uint64_t op = 0, old;

    (void)state;
    start_joined(&f, 1, 2);
    d = zero->device;
    old = zero->comm;
    struct sc_comm_id id = draw_id(zero);
    assert_int_equal(d->group_begin(d->ctx), SC_OK); // and never mind its end
    assert_int_equal(d->op_begin(d->ctx, zero->stream, &op), SC_INVALID);
    expect_violation(&f, "a group is open");
    assert_int_equal(create_comm(zero, id, 0, 2), SC_OK);
    assert_int_equal(zero->comm, 0);
    zero->comm = old;
    abort_comm(zero);
    run_for(&f, 100 * SECOND);
    assert_int_equal(comm_state(zero), SC_COMM_READY); // only queued
    assert_int_equal(d->group_end(d->ctx), SC_OK);
    run_for(&f, SECOND);
    expect_gone(zero);
    finish(&f);
}

// ---- abort ------------------------------------------------------------------------------------

static void abort_takes_its_time_and_is_told_once(void **state) {
    struct fixture f;
    struct life *zero = &f.lives[0];
    struct sc_comm_report report;
    struct sc_sim_held held;

    (void)state;
    start_joined(&f, 1, 2);
    abort_comm(zero);
    assert_int_equal(zero->device->comm_abort(zero->device->ctx, zero->comm), SC_INVALID);
    expect_violation(&f, "aborted twice");
    assert_int_equal(
        zero->device->all_reduce(zero->device->ctx, zero->comm, zero->buf, BYTES, zero->stream),
        SC_INVALID);
    expect_violation(&f, "being aborted");
    run_for(&f, f.config.comm_abort.min_ns - 1);
    assert_int_equal(comm_state(zero), SC_COMM_READY);
    unsigned wakes = zero->wakes;
    run_for(&f, f.config.comm_abort.max_ns);
    assert_int_equal(zero->wakes, wakes + 1);
    expect_gone(zero);
    assert_int_equal(zero->device->comm_poll(zero->device->ctx, zero->comm, &report), SC_INVALID);
    expect_violation(&f, "unknown communicator");
    sc_sim_held(zero->process, &held);
    assert_int_equal(held.communicators, 0);
    assert_int_equal(zero->device->mem_free(zero->device->ctx, zero->buf), SC_OK);
    finish(&f);
}

static void pending_op_drains_with_undefined_data(void **state) {
    struct fixture f;
    struct life *zero = &f.lives[0];

    (void)state;
    start_joined(&f, 1, 2);
    fill(zero, zero->buf, ONE);
    fill(zero, zero->scratch, ONE);
    uint64_t op = pair_add(zero, 1);
    assert_int_equal(zero->device->fence_set(zero->device->ctx, 0), SC_OK);
    abort_comm(zero);
    run_for(&f, SECOND);
    assert_int_equal(op_state(zero, op), SC_OP_DONE); // without an error
    expect_gone(zero);
    assert_false(is_filled(zero, zero->scratch, ONE));
    expect_filled(zero, zero->buf, ONE); // what stood behind it ran, and the fence stopped it
    finish(&f);
}

static void abort_waits_for_compute_ahead_of_the_op(void **state) {
    struct fixture f;
    struct life *zero = &f.lives[0];

    (void)state;
    start_joined(&f, 1, 2);
    assert_int_equal(sc_sim_compute(zero->process, zero->stream, 3 * SECOND, NULL, NULL), SC_OK);
    uint64_t op = all_reduce(zero);
    abort_comm(zero);
    run_for(&f, 3 * SECOND - 1);
    assert_int_equal(comm_state(zero), SC_COMM_READY);
    run_for(&f, 1);
    expect_gone(zero);
    assert_int_equal(op_state(zero, op), SC_OP_DONE);
    finish(&f);
}

static void abort_of_a_forming_communicator_orphans_it_quickly(void **state) {
    struct fixture f;

    (void)state;
    start(&f, 1, 2);
    form(&f);
    assert_true(inject(&f, (struct sc_sim_fault){.kind = SC_SIM_abort_stuck, .a = 0}));
    sc_sim_pause(f.lives[1].process);
    abort_comm(&f.lives[0]);
    run_for(&f, MS);
    expect_gone(&f.lives[0]);
    sc_sim_resume(f.lives[1].process);
    run_for(&f, 100 * SECOND);
    assert_int_equal(comm_state(&f.lives[1]), SC_COMM_FORMING);
    finish(&f);
}

static void registrations_end_with_their_communicator(void **state) {
    struct fixture f;
    struct life *zero = &f.lives[0];
    const struct sc_device *d;
    struct sc_sim_held held;
    uint64_t first = 0, second = 0;

    (void)state;
    start_joined(&f, 1, 2);
    d = zero->device;
    assert_int_equal(d->buf_register(d->ctx, zero->comm, zero->buf, BYTES, &first), SC_OK);
    assert_int_equal(d->buf_register(d->ctx, zero->comm, zero->scratch, BYTES, &second), SC_OK);
    assert_int_equal(d->buf_register(d->ctx, zero->comm, zero->buf, BYTES + 1, &second),
                     SC_INVALID);
    expect_violation(&f, "outside any live allocation");
    assert_int_equal(d->buf_deregister(d->ctx, zero->comm, first), SC_OK);
    assert_int_equal(d->mem_free(d->ctx, zero->buf), SC_INVALID);
    expect_violation(&f, "while a communicator that used it lives");
    abort_comm(zero);
    sc_sim_held(zero->process, &held);
    assert_int_equal(held.registrations, 0);
    assert_int_equal(d->buf_deregister(d->ctx, zero->comm, second), SC_INVALID);
    expect_violation(&f, "is not one of communicator");
    run_for(&f, SECOND);
    assert_int_equal(d->mem_free(d->ctx, zero->buf), SC_OK); // gone, whether told of it or not
    finish(&f);
}

static void captures_hold_the_abort_until_released(void **state) {
    struct fixture f;
    struct life *zero = &f.lives[0];
    const struct sc_device *d;
    uint64_t op = 0;

    (void)state;
    start_joined(&f, 1, 2);
    d = zero->device;
    fill(zero, zero->buf, ONE);
    uint64_t first = capture_all_reduce(zero);
    uint64_t second = capture_all_reduce(zero);
    assert_int_equal(captures_held(zero), 2);
    assert_int_equal(d->fence_set(d->ctx, 0), SC_OK);
    abort_comm(zero);
    run_for(&f, SECOND);
    assert_int_equal(d->capture_release(d->ctx, first), SC_OK);
    run_for(&f, 100 * SECOND);
    assert_int_equal(comm_state(zero), SC_COMM_READY);
    assert_int_equal(captures_held(zero), 1);

    // A launch in between drains as garbage, and its add does nothing.
    fill(zero, zero->buf, ONE);
    assert_int_equal(d->replay_begin(d->ctx, second, zero->stream, EPOCH, &op), SC_OK);
    assert_int_equal(sc_sim_graph_launch(zero->process, second, zero->stream), SC_OK);
    assert_int_equal(d->replay_end(d->ctx, op), SC_OK);
    assert_int_equal(op_state(zero, op), SC_OP_DONE);
    assert_false(is_filled(zero, zero->buf, ONE));

    unsigned wakes = zero->wakes;
    assert_int_equal(d->capture_release(d->ctx, second), SC_OK);
    run_for(&f, MS);
    assert_true(zero->wakes > wakes);
    expect_gone(zero);
    finish(&f);
}

static void replays_of_both_ranks_exchange(void **state) {
    struct fixture f;

    (void)state;
    start_joined(&f, 1, 2);
    for (int rank = 0; rank < 2; rank++) {
        struct life *life = &f.lives[rank];
        const struct sc_device *d = life->device;
        uint64_t capture = capture_all_reduce(life);
        fill(life, life->buf, ONE);
        fill(life, life->scratch, ONE);
        for (int launch = 0; launch < 2; launch++) {
            uint64_t op = 0;
            assert_int_equal(d->replay_begin(d->ctx, capture, life->stream, EPOCH, &op), SC_OK);
            assert_int_equal(sc_sim_graph_launch(life->process, capture, life->stream), SC_OK);
            assert_int_equal(d->replay_end(d->ctx, op), SC_OK);
        }
    }
    run_for(&f, MS);
    for (int rank = 0; rank < 2; rank++) // (1 + 1 + 1) × 2 + 1
        expect_filled(&f.lives[rank], f.lives[rank].buf, 0x40E0);
    finish(&f);
}

static void stopped_peer_holds_the_abort_until_it_goes_on_or_dies(void **state) {
    (void)state;
    for (int killed = 0; killed < 2; killed++) {
        struct fixture f;
        struct life *zero = &f.lives[0];
        start_joined(&f, 1, 2);
        uint64_t op = all_reduce(zero);
        sc_sim_pause(f.lives[1].process);
        abort_comm(zero);
        run_for(&f, 100 * SECOND);
        assert_int_equal(comm_state(zero), SC_COMM_READY);
        assert_int_equal(op_state(zero, op), SC_OP_DONE); // the streams drain all the same
        if (killed)
            sc_sim_kill(f.lives[1].process);
        else
            sc_sim_resume(f.lives[1].process);
        expect_gone(zero);
        finish(&f);
    }
}

static void stopped_peer_that_aborted_holds_nobody(void **state) {
    struct fixture f;

    (void)state;
    start_joined(&f, 1, 2);
    abort_comm(&f.lives[1]);
    sc_sim_pause(f.lives[1].process);
    abort_comm(&f.lives[0]);
    run_for(&f, SECOND);
    expect_gone(&f.lives[0]);
    finish(&f);
}

static void abandoned_communicator_is_kept_aside_and_drains(void **state) {
    struct fixture f;
    struct life *zero = &f.lives[0];
    const struct sc_device *d;
    struct sc_comm_report report;
    struct sc_sim_held held;

    (void)state;
    start_joined(&f, 1, 2);
    d = zero->device;
    assert_int_equal(d->comm_abandon(d->ctx, zero->comm), SC_INVALID);
    expect_violation(&f, "not being aborted");
    assert_true(inject(&f, (struct sc_sim_fault){.kind = SC_SIM_abort_stuck, .a = 0}));
    uint64_t op = all_reduce(zero);
    abort_comm(zero);
    assert_int_equal(d->comm_abandon(d->ctx, zero->comm), SC_OK);
    assert_int_equal(d->comm_poll(d->ctx, zero->comm, &report), SC_INVALID);
    expect_violation(&f, "unknown communicator");
    sc_sim_held(zero->process, &held);
    assert_int_equal(held.communicators, 0);
    assert_int_equal(held.quarantined, 1);
    assert_int_equal(d->mem_free(d->ctx, zero->buf), SC_INVALID); // its op is still to write there
    expect_violation(&f, "while a communicator that used it lives");
    run_for(&f, SECOND);
    assert_int_equal(op_state(zero, op), SC_OP_DONE);
    assert_int_equal(d->mem_free(d->ctx, zero->buf), SC_OK);
    finish(&f);
}

static void ranks_recover_with_a_fresh_id(void **state) {
    struct fixture f;

    (void)state;
    start_joined(&f, 1, 2);
    for (int recovery = 0; recovery < 5; recovery++) {
        all_reduce(&f.lives[0]);
        abort_comm(&f.lives[0]);
        abort_comm(&f.lives[1]);
        run_for(&f, SECOND);
        expect_gone(&f.lives[0]);
        expect_gone(&f.lives[1]);
        form(&f);
        run_for(&f, SECOND);
        fill(&f.lives[0], f.lives[0].buf, ONE);
        fill(&f.lives[1], f.lives[1].buf, ONE);
        all_reduce(&f.lives[0]);
        all_reduce(&f.lives[1]);
        run_for(&f, MS);
        expect_filled(&f.lives[0], f.lives[0].buf, 0x4000);
        expect_filled(&f.lives[1], f.lives[1].buf, 0x4000);
    }
    finish(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_in_a_group_is_returned_at_its_end_and_enqueues_nothing),
        cmocka_unit_test(group_end_that_is_made_to_fail_closes_its_group),
        cmocka_unit_test(open_group_spoils_op_begin_create_and_abort),
        cmocka_unit_test(abort_takes_its_time_and_is_told_once),
        cmocka_unit_test(pending_op_drains_with_undefined_data),
        cmocka_unit_test(abort_waits_for_compute_ahead_of_the_op),
        cmocka_unit_test(abort_of_a_forming_communicator_orphans_it_quickly),
        cmocka_unit_test(registrations_end_with_their_communicator),
        cmocka_unit_test(captures_hold_the_abort_until_released),
        cmocka_unit_test(replays_of_both_ranks_exchange),
        cmocka_unit_test(stopped_peer_holds_the_abort_until_it_goes_on_or_dies),
        cmocka_unit_test(stopped_peer_that_aborted_holds_nobody),
        cmocka_unit_test(abandoned_communicator_is_kept_aside_and_drains),
        cmocka_unit_test(ranks_recover_with_a_fresh_id),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
