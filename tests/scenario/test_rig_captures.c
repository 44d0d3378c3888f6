// SPDX-License-Identifier: AGPL-3.0-only
//
// Captured ops and their replays, what a loss does to them, and the fence: nothing of an old epoch
// that comes to run later changes a bit.
#include "tests/support/rig.h"

#define MS RIG_MS
#define SECOND RIG_SECOND
#define BYTES 4096u
#define ELEMENTS (BYTES / 2)
#define ONE 0x3F80u
#define TWO 0x4000u
#define FOUR 0x4080u

// A graph of two all_reduces on each of two ranks.
struct graph {
    uint64_t first[2], second[2]; // buffers
    uint64_t capture[2];
};

static void capture(struct rig *rig, struct graph *graph, uint32_t rank) {
    struct rig_rank *of = &rig->ranks[rank];
    assert_int_equal(sc_pump_capture_begin(of->pump, rig_epoch(rig, rank), of->streams[0],
                                           &graph->capture[rank]),
                     SC_OK);
    const uint64_t buffers[] = {graph->first[rank], graph->second[rank]};
    for (uint32_t i = 0; i < 2; i++) {
        struct rig_op op = rig_all_reduce(rig, rank, buffers[i], BYTES, 0);
        assert_int_equal(op.status, SC_OK);
        assert_int_equal(op.number, 0);
        assert_int_equal(op.seq, 0);
    }
    assert_int_equal(sc_pump_capture_end(of->pump, graph->capture[rank]), SC_OK);
}

static void capture_both(struct rig *rig, struct graph *graph) {
    for (uint32_t r = 0; r < 2; r++) {
        graph->first[r] = rig_alloc(rig, r, BYTES);
        graph->second[r] = rig_alloc(rig, r, BYTES);
        rig_fill(rig, r, graph->first[r], ELEMENTS, ONE);
        rig_fill(rig, r, graph->second[r], ELEMENTS, TWO);
        capture(rig, graph, r);
    }
}

static struct rig_op replay(struct rig *rig, const struct graph *graph, uint32_t rank) {
    struct rig_rank *of = &rig->ranks[rank];
    struct rig_op op = {.epoch = rig_epoch(rig, rank)};
    op.status = sc_pump_replay_begin(of->pump, op.epoch, graph->capture[rank], of->streams[0],
                                     &op.number, &op.seq);
    if (op.status == SC_OK) {
        assert_int_equal(sc_sim_graph_launch(of->process, graph->capture[rank], of->streams[0]),
                         SC_OK);
        assert_int_equal(sc_pump_replay_end(of->pump, op.number), SC_OK);
    }
    rig_touch(rig, rank);
    return op;
}

static void release(struct rig *rig, const struct graph *graph, uint32_t rank) {
    assert_int_equal(sc_pump_capture_release(rig->ranks[rank].pump, graph->capture[rank]), SC_OK);
    rig_touch(rig, rank);
}

// ---- capture and replay ----

static void a_capture_runs_nothing_and_a_replay_all_of_it(void **state) {
    struct rig *rig = rig_start_world(2);
    struct graph graph;
    (void)state;
    capture_both(rig, &graph);
    rig_run(rig, SECOND);
    for (uint32_t r = 0; r < 2; r++) {
        rig_expect_all(rig, r, graph.first[r], ELEMENTS, ONE);
        assert_int_equal(rig_view(rig, r).submitted, 0);
    }
    for (uint32_t i = 0; i < 3; i++) {
        struct rig_op ops[] = {replay(rig, &graph, 0), replay(rig, &graph, 1)};
        for (uint32_t r = 0; r < 2; r++) {
            assert_int_equal(ops[r].status, SC_OK);
            assert_int_equal(ops[r].seq, 2 * i + 1); // a replay takes as many seqs as it holds ops
            assert_int_equal(rig_view(rig, r).submitted, 2 * i + 2);
        }
        rig_until(rig, SECOND, rig_is_done(rig, 0, &ops[0]) && rig_is_done(rig, 1, &ops[1]));
        for (uint32_t r = 0; r < 2; r++) { // each replay doubles what lies there
            rig_expect_all(rig, r, graph.first[r], ELEMENTS, (uint16_t)(ONE + 0x80 * (i + 1)));
            rig_expect_all(rig, r, graph.second[r], ELEMENTS, (uint16_t)(TWO + 0x80 * (i + 1)));
        }
    }
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(rig_sync(rig, r, 6), SC_OK);
        release(rig, &graph, r);
    }
    rig_until(rig, 10 * MS,
              rig_has_agreed(rig, 0, rig_epoch(rig, 0), 6) &&
                  rig_has_agreed(rig, 1, rig_epoch(rig, 1), 6));
    rig_close(rig);
}

static void replays_of_different_graphs_are_a_mismatch(void **state) {
    struct rig *rig = rig_start_world(2);
    struct graph graph;
    (void)state;
    capture_both(rig, &graph);
    assert_int_equal(replay(rig, &graph, 0).status, SC_OK);
    struct rig_op eager = rig_all_reduce(rig, 1, graph.first[1], BYTES, 0);
    assert_int_equal(eager.status, SC_OK);
    assert_int_equal(rig_all_reduce(rig, 1, graph.second[1], BYTES / 2, 0).status, SC_OK);
    assert_int_equal(rig_sync(rig, 0, 2), SC_OK);
    assert_int_equal(rig_sync(rig, 1, 2), SC_OK);
    rig_until(rig, SECOND,
              rig_change(rig, 0, SC_STATE_ABORTING) != NULL &&
                  rig_change(rig, 1, SC_STATE_ABORTING) != NULL);
    rig_expect_cause(rig, 0, SC_MISMATCH, 1);
    assert_int_equal(rig_view(rig, 0).cause.seq, 2);
    assert_false(rig_has_agreed(rig, 0, eager.epoch, 2));
    rig_finish(rig);
}

// ---- a loss ----

static void a_loss_waits_for_the_release_of_captures(void **state) {
    struct rig *rig = rig_start_world(2);
    struct graph graph;
    (void)state;
    uint64_t epoch = rig_epoch(rig, 0);
    capture_both(rig, &graph);
    rig_reconnect(rig, 1);
    rig_run(rig, 60 * SECOND); // untimed, visibly
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(rig_state(rig, r), SC_STATE_ABORTING);
        assert_int_equal(rig_view(rig, r).captures, 1);
        assert_true(rig_notices(rig, r, SC_NOTICE_CAPTURES) >= 1);
        assert_int_equal(rig_calls(rig, r, SC_VERB_comm_abort), 0);
    }
    release(rig, &graph, 0);
    rig_run(rig, 10 * SECOND);
    assert_int_equal(rig_state(rig, 0), SC_STATE_RENDEZVOUS);
    assert_int_equal(rig_state(rig, 1), SC_STATE_ABORTING);
    release(rig, &graph, 1);
    rig_until(rig, 5 * SECOND, rig_is_ready_after(rig, epoch));
    assert_int_equal(rig_calls(rig, 0, SC_VERB_comm_abort), 1);
    assert_int_equal(rig_calls(rig, 1, SC_VERB_comm_abort), 1);
    rig_close(rig);
}

// A graph that was destroyed while its kernels ran goes when the abort has ended them, not before.
static void a_graph_that_outlives_its_release_does_not_hold_the_abort_back(void **state) {
    struct rig *rig = rig_start_world(2);
    struct graph graph;
    (void)state;
    uint64_t epoch = rig_epoch(rig, 0);
    capture_both(rig, &graph);
    rig->ranks[0].spy.graphs = 1;
    (void)replay(rig, &graph, 0); // and not on rank 1: it spins
    rig_reconnect(rig, 1);
    rig_run(rig, 10 * MS);
    release(rig, &graph, 0);
    release(rig, &graph, 1);
    assert_int_equal(rig_calls(rig, 0, SC_VERB_comm_abort), 1);
    assert_int_equal(rig_view(rig, 0).captures, 1);
    rig_until(rig, 5 * SECOND, rig_is_ready_after(rig, epoch));
    assert_int_equal(rig_view(rig, 0).captures, 0);
    rig_close(rig);
}

static void a_replay_of_an_old_capture_is_epoch_lost(void **state) {
    struct rig *rig = rig_start_world(2);
    struct graph graph;
    uint64_t number = 0, seq = 0;
    (void)state;
    uint64_t epoch = rig_epoch(rig, 0);
    capture_both(rig, &graph);
    rig_reconnect(rig, 0);
    rig_run(rig, 10 * MS);
    uint64_t begun = rig_calls(rig, 0, SC_VERB_replay_begin);
    struct sc_pump *pump = rig->ranks[0].pump;
    uint64_t stream = rig->ranks[0].streams[0];
    assert_int_equal(sc_pump_replay_begin(pump, epoch, graph.capture[0], stream, &number, &seq),
                     SC_EPOCH_LOST);
    assert_int_equal(sc_pump_replay_begin(pump, epoch + 1, graph.capture[0], stream, &number, &seq),
                     SC_EPOCH_LOST);
    release(rig, &graph, 0);
    release(rig, &graph, 1);
    assert_int_equal(sc_pump_replay_begin(pump, epoch, graph.capture[0], stream, &number, &seq),
                     SC_INVALID);
    rig_until(rig, 5 * SECOND, rig_is_ready_after(rig, epoch));
    assert_int_not_equal(
        sc_pump_replay_begin(pump, rig_epoch(rig, 0), graph.capture[0], stream, &number, &seq),
        SC_OK);
    assert_int_equal(rig_calls(rig, 0, SC_VERB_replay_begin), begun);
    assert_int_equal(number + seq, 0);
    rig_close(rig);
}

static void a_capture_open_while_the_epoch_is_lost_can_be_ended_and_released(void **state) {
    struct rig *rig = rig_start_world(2);
    uint64_t opened = 0;
    (void)state;
    uint64_t epoch = rig_epoch(rig, 0), address = rig_alloc(rig, 0, BYTES);
    struct rig_rank *of = &rig->ranks[0];
    assert_int_equal(sc_pump_capture_begin(of->pump, epoch, of->streams[0], &opened), SC_OK);
    assert_int_equal(rig_all_reduce(rig, 0, address, BYTES, 0).status, SC_OK);
    rig_reconnect(rig, 1);
    rig_run(rig, 10 * SECOND);
    assert_int_equal(rig_state(rig, 0), SC_STATE_ABORTING);
    assert_int_equal(rig_all_reduce(rig, 0, address, BYTES, 0).status, SC_EPOCH_LOST);
    assert_int_equal(sc_pump_capture_end(of->pump, opened), SC_OK);
    assert_int_equal(sc_pump_capture_release(of->pump, opened), SC_OK);
    rig_touch(rig, 0);
    rig_until(rig, 5 * SECOND, rig_is_ready_after(rig, epoch));
    rig_close(rig);
}

// ---- r13: what runs late ----

// An op behind compute when its epoch is lost: its exchange drains with garbage, its add must not
// run. The rank recovers no sooner than the stream is clear.
static void an_add_behind_compute_does_nothing_after_a_loss_r13(void **state) {
    struct rig *rig = rig_start_world(2);
    struct rig_op ops[2];
    uint64_t addresses[2];
    (void)state;
    uint64_t epoch = rig_epoch(rig, 0);
    for (uint32_t r = 0; r < 2; r++) {
        addresses[r] = rig_alloc(rig, r, BYTES);
        rig_fill(rig, r, addresses[r], ELEMENTS, ONE);
    }
    rig_compute(rig, 0, 0, 3 * SECOND);
    for (uint32_t r = 0; r < 2; r++)
        ops[r] = rig_all_reduce(rig, r, addresses[r], BYTES, 0);
    uint64_t submitted_ns = rig_now(rig);
    rig_run(rig, SECOND);
    rig_reconnect(rig, 1);
    rig_until(rig, 10 * SECOND, rig_is_ready_after(rig, epoch));
    assert_true(rig_now(rig) >= submitted_ns + 3 * SECOND);
    rig_run(rig, 10 * SECOND);
    for (uint32_t r = 0; r < 2; r++) {
        assert_true(rig_is_lost(rig, r, &ops[r]));
        assert_false(rig_is_done(rig, r, &ops[r]));
        rig_expect_all(rig, r, addresses[r], ELEMENTS, ONE);
    }
    rig_close(rig);
}

static void a_replay_behind_compute_does_nothing_after_a_loss_r13(void **state) {
    struct rig *rig = rig_start_world(2);
    struct graph graph;
    (void)state;
    uint64_t epoch = rig_epoch(rig, 0);
    capture_both(rig, &graph);
    rig_compute(rig, 0, 0, 3 * SECOND);
    struct rig_op ops[] = {replay(rig, &graph, 0), replay(rig, &graph, 1)};
    rig_run(rig, SECOND);
    rig_reconnect(rig, 0);
    rig_run(rig, MS);
    release(rig, &graph, 0);
    release(rig, &graph, 1);
    rig_until(rig, 10 * SECOND, rig_is_ready_after(rig, epoch));
    rig_run(rig, 10 * SECOND);
    for (uint32_t r = 0; r < 2; r++) {
        assert_true(rig_is_lost(rig, r, &ops[r]));
        rig_expect_all(rig, r, graph.first[r], ELEMENTS, ONE);
        rig_expect_all(rig, r, graph.second[r], ELEMENTS, TWO);
    }
    rig_close(rig);
}

// A kernel of `epoch` that the pump does not know of, so that no recovery waits for it.
static void add_behind_compute(struct rig *rig, uint64_t dst, uint64_t src, uint64_t epoch,
                               uint64_t after_ns) {
    const struct sc_device *d = sc_hal_check_device(rig->ranks[0].check);
    rig_compute(rig, 0, 2, after_ns);
    assert_int_equal(d->add_bf16(d->ctx, dst, src, BYTES, epoch, rig->ranks[0].streams[2]), SC_OK);
}

static void an_add_of_an_old_epoch_does_nothing_once_a_new_one_lives_r13(void **state) {
    struct rig *rig = rig_start_world(2);
    (void)state;
    uint64_t dst = rig_alloc(rig, 0, BYTES), src = rig_alloc(rig, 0, BYTES);
    uint64_t old = rig_epoch(rig, 0);
    rig_fill(rig, 0, dst, ELEMENTS, ONE);
    rig_fill(rig, 0, src, ELEMENTS, ONE);
    add_behind_compute(rig, dst, src, old, SECOND);
    rig_run(rig, 2 * SECOND);
    rig_expect_all(rig, 0, dst, ELEMENTS, TWO); // in its own epoch it adds
    add_behind_compute(rig, dst, src, old, 20 * SECOND);
    rig_reconnect(rig, 0);
    rig_until(rig, 5 * SECOND, rig_is_ready_after(rig, old));
    rig_run(rig, 30 * SECOND);
    rig_expect_all(rig, 0, dst, ELEMENTS, TWO);
    add_behind_compute(rig, dst, src, rig_epoch(rig, 0), SECOND);
    rig_run(rig, 2 * SECOND);
    rig_expect_all(rig, 0, dst, ELEMENTS, 0x4040); // 3.0: the live epoch's add does run
    rig_close(rig);
}

static void an_add_does_nothing_while_no_epoch_lives_r13(void **state) {
    struct rig *rig = rig_start_world(2);
    (void)state;
    uint64_t dst = rig_alloc(rig, 0, BYTES), src = rig_alloc(rig, 0, BYTES);
    rig_fill(rig, 0, dst, ELEMENTS, TWO);
    rig_fill(rig, 0, src, ELEMENTS, TWO);
    add_behind_compute(rig, dst, src, rig_epoch(rig, 0), 5 * SECOND);
    rig_inject(rig, (struct sc_sim_fault){.kind = SC_SIM_verb_fails,
                                          .a = 0,
                                          .nth = 1,
                                          .verb = SC_VERB_fence_set,
                                          .status = SC_DEVICE_ERROR});
    rig_kill(rig, 1); // and the first attempt to lower the fence fails
    rig_run(rig, 10 * SECOND);
    assert_int_equal(rig_state(rig, 0), SC_STATE_RENDEZVOUS);
    rig_expect_all(rig, 0, dst, ELEMENTS, TWO);
    rig_close(rig);
}

// The application captures its stream without a word to the pump.
static void a_stream_that_captures_untold_refuses_every_op_without_a_trace_c10(void **state) {
    struct rig *rig = rig_start_world(2);
    struct rig_rank *of = &rig->ranks[0];
    const struct sc_device *device = sc_sim_device(of->process);
    uint64_t epoch = rig_epoch(rig, 0), buf = rig_alloc(rig, 0, BYTES), untold, number, seq;
    uint64_t captured = of->streams[0], other = of->streams[1];
    struct graph graph;
    (void)state;
    capture_both(rig, &graph);
    struct rig_op earlier = rig_all_reduce(rig, 0, buf, BYTES, 1);
    uint64_t submitted = rig_view(rig, 0).submitted;
    assert_int_equal(device->capture_begin(device->ctx, captured, &untold), SC_OK);
    const struct sc_op_desc desc = {.kind = SC_OP_ALL_REDUCE, .bytes = BYTES};
    const struct sc_op_place here = {buf, buf, captured}, there = {buf, buf, other};
    struct sc_op_desc send = {.kind = SC_OP_SEND, .root = 1, .bytes = BYTES};
    struct sc_op_place from = here;
    struct sc_pump *p = of->pump;
    assert_int_equal(sc_pump_submit(p, epoch, &desc, &here, &number, &seq), SC_CAPTURE);
    assert_int_equal(sc_pump_start(p, epoch, &desc, &there, captured, &number, &seq), SC_CAPTURE);
    assert_int_equal(sc_pump_submit_group(p, epoch, &send, &from, 1, &number), SC_CAPTURE);
    assert_int_equal(sc_pump_join_op(p, epoch, earlier.number, captured), SC_CAPTURE);
    assert_int_equal(sc_pump_replay_begin(p, epoch, graph.capture[0], captured, &number, &seq),
                     SC_CAPTURE);
    assert_int_equal(sc_pump_submit(p, epoch + 1, &desc, &here, &number, &seq), SC_EPOCH_LOST);
    assert_int_equal(device->capture_end(device->ctx, untold), SC_OK);
    assert_int_equal(device->capture_release(device->ctx, untold), SC_OK);
    assert_int_equal(rig_view(rig, 0).submitted, submitted);
    assert_int_equal(rig_state(rig, 0), SC_STATE_READY);
    release(rig, &graph, 0);
    release(rig, &graph, 1);
    rig_close(rig);
}

#define TEST(name) cmocka_unit_test_teardown(name, rig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_capture_runs_nothing_and_a_replay_all_of_it),
        TEST(replays_of_different_graphs_are_a_mismatch),
        TEST(a_loss_waits_for_the_release_of_captures),
        TEST(a_graph_that_outlives_its_release_does_not_hold_the_abort_back),
        TEST(a_replay_of_an_old_capture_is_epoch_lost),
        TEST(a_capture_open_while_the_epoch_is_lost_can_be_ended_and_released),
        TEST(an_add_behind_compute_does_nothing_after_a_loss_r13),
        TEST(a_replay_behind_compute_does_nothing_after_a_loss_r13),
        TEST(an_add_of_an_old_epoch_does_nothing_once_a_new_one_lives_r13),
        TEST(an_add_does_nothing_while_no_epoch_lives_r13),
        TEST(a_stream_that_captures_untold_refuses_every_op_without_a_trace_c10),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
