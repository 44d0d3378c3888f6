// SPDX-License-Identifier: AGPL-3.0-only
//
// Simulated streams, ops, the fence, captures and replays.
#include "tests/unit/test_sim_fixture.h"

#define ONE 0x3F80 // BF16 1.0
#define TWO 0x4000
#define FOUR 0x4080

static void add(struct life *life, uint64_t epoch) {
    const struct sc_device *d = life->device;

    assert_int_equal(d->add_bf16(d->ctx, life->buf, life->scratch, BYTES, epoch, life->stream),
                     SC_OK);
}

static void compute(struct life *life, uint64_t duration_ns) {
    assert_int_equal(sc_sim_compute(life->process, life->stream, duration_ns, NULL, NULL), SC_OK);
}

static uint64_t empty_op(struct life *life, uint64_t stream) {
    const struct sc_device *d = life->device;
    uint64_t op = 0;

    assert_int_equal(d->op_begin(d->ctx, stream, &op), SC_OK);
    assert_int_equal(d->op_end(d->ctx, op), SC_OK);
    return op;
}

static void start_one(struct fixture *f) {
    start(f, 1, 1);
    prepare(&f->lives[0]);
}

// ---- streams and ops --------------------------------------------------------------------------

static char ran[8];

static void note_a(void *arg) {
    (void)arg;
    strcat(ran, "a");
}

static void note_b(void *arg) {
    (void)arg;
    strcat(ran, "b");
}

static void kernels_of_a_stream_run_in_order_and_streams_side_by_side(void **state) {
    struct fixture f;
    struct life *life = &f.lives[0];
    uint64_t other = 0;

    (void)state;
    start_one(&f);
    ran[0] = '\0';
    assert_int_equal(life->device->stream_create(life->device->ctx, &other), SC_OK);
    assert_int_equal(sc_sim_compute(life->process, life->stream, 30, note_a, NULL), SC_OK);
    assert_int_equal(sc_sim_compute(life->process, life->stream, 30, note_a, NULL), SC_OK);
    assert_int_equal(sc_sim_compute(life->process, other, 40, note_b, NULL), SC_OK);
    run_for(&f, 29);
    assert_string_equal(ran, "");
    run_for(&f, 1);
    assert_string_equal(ran, "a");
    run_for(&f, 100);
    assert_string_equal(ran, "aba");
    finish(&f);
}

static void op_is_enqueued_started_done(void **state) {
    struct fixture f;
    struct life *life = &f.lives[0];
    const struct sc_device *d;
    struct sc_sim_held held;
    uint64_t op = 0;

    (void)state;
    start_one(&f);
    d = life->device;
    compute(life, MS);
    assert_int_equal(d->op_begin(d->ctx, life->stream, &op), SC_OK);
    compute(life, MS);
    assert_int_equal(d->op_end(d->ctx, op), SC_OK);
    assert_int_equal(op_state(life, op), SC_OP_ENQUEUED);
    run_for(&f, MS);
    assert_int_equal(op_state(life, op), SC_OP_STARTED);
    assert_int_equal(life->wakes, 1);
    run_for(&f, MS);
    assert_int_equal(op_state(life, op), SC_OP_DONE);
    assert_int_equal(life->wakes, 2);
    assert_int_equal(d->op_end(d->ctx, op), SC_INVALID);
    expect_violation(&f, "has ended");
    release(life, op);
    assert_int_equal(d->op_release(d->ctx, op), SC_INVALID);
    expect_violation(&f, "unknown op");
    sc_sim_held(life->process, &held);
    assert_int_equal(held.ops, 0);
    finish(&f);
}

static void released_op_still_runs(void **state) {
    struct fixture f;
    struct life *life = &f.lives[0];
    uint64_t op = 0, other = 0;

    (void)state;
    start_one(&f);
    const struct sc_device *d = life->device;
    assert_int_equal(d->stream_create(d->ctx, &other), SC_OK);
    compute(life, MS);
    assert_int_equal(d->op_begin(d->ctx, life->stream, &op), SC_OK);
    assert_int_equal(d->op_release(d->ctx, op), SC_INVALID);
    expect_violation(&f, "has not ended");
    assert_int_equal(d->op_end(d->ctx, op), SC_OK);
    assert_int_equal(d->stream_wait(d->ctx, other, op), SC_OK);
    uint64_t behind = empty_op(life, other);
    release(life, op);
    run_for(&f, MS / 2);
    assert_int_equal(op_state(life, behind), SC_OP_ENQUEUED);
    run_for(&f, MS);
    assert_int_equal(op_state(life, behind), SC_OP_DONE);
    finish(&f);
}

static void streams_wait_for_an_op(void **state) {
    struct fixture f;
    struct life *life = &f.lives[0];
    uint64_t second = 0, third = 0;

    (void)state;
    start_one(&f);
    const struct sc_device *d = life->device;
    assert_int_equal(d->stream_create(d->ctx, &second), SC_OK);
    assert_int_equal(d->stream_create(d->ctx, &third), SC_OK);
    compute(life, MS);
    uint64_t op = empty_op(life, life->stream);
    assert_int_equal(d->stream_wait(d->ctx, second, op), SC_OK);
    assert_int_equal(d->stream_wait(d->ctx, third, op), SC_OK);
    uint64_t behind_second = empty_op(life, second);
    uint64_t behind_third = empty_op(life, third);
    run_for(&f, MS - 1);
    assert_int_equal(op_state(life, behind_second), SC_OP_ENQUEUED);
    assert_int_equal(op_state(life, behind_third), SC_OP_ENQUEUED);
    run_for(&f, 1);
    assert_int_equal(op_state(life, behind_second), SC_OP_DONE);
    assert_int_equal(op_state(life, behind_third), SC_OP_DONE);
    assert_int_equal(d->stream_wait(d->ctx, second, op), SC_OK); // over: nothing to wait for
    uint64_t after = empty_op(life, second);
    assert_int_equal(op_state(life, after), SC_OP_DONE);
    finish(&f);
}

static void destroyed_stream_finishes_its_work(void **state) {
    struct fixture f;
    struct life *life = &f.lives[0];

    (void)state;
    start_one(&f);
    ran[0] = '\0';
    assert_int_equal(sc_sim_compute(life->process, life->stream, MS, note_a, NULL), SC_OK);
    assert_int_equal(life->device->stream_destroy(life->device->ctx, life->stream), SC_OK);
    assert_int_equal(sc_sim_compute(life->process, life->stream, MS, note_a, NULL), SC_INVALID);
    expect_violation(&f, "unknown stream");
    run_for(&f, 2 * MS);
    assert_string_equal(ran, "a");
    finish(&f);
}

static void killed_process_runs_no_more_kernels(void **state) {
    struct fixture f;
    struct life *life = &f.lives[0];

    (void)state;
    start_one(&f);
    ran[0] = '\0';
    assert_int_equal(sc_sim_compute(life->process, life->stream, MS, note_a, NULL), SC_OK);
    sc_sim_kill(life->process);
    run_for(&f, 2 * MS);
    assert_string_equal(ran, "");
    finish(&f);
}

static void kill_own_process(void *arg) {
    sc_sim_kill(((struct life *)arg)->process);
}

static void kernel_may_kill_its_own_process(void **state) {
    struct fixture f;
    struct life *life = &f.lives[0];

    (void)state;
    start_one(&f);
    assert_int_equal(sc_sim_compute(life->process, life->stream, MS, kill_own_process, life),
                     SC_OK);
    compute(life, MS);
    run_for(&f, 5 * MS);
    assert_false(sc_sim_alive(life->process));
    finish(&f);
}

static void paused_process_leaves_its_gpu_running(void **state) {
    struct fixture f;
    struct life *life = &f.lives[0];

    (void)state;
    start_one(&f);
    ran[0] = '\0';
    assert_int_equal(sc_sim_compute(life->process, life->stream, MS, note_a, NULL), SC_OK);
    sc_sim_pause(life->process);
    run_for(&f, 2 * MS);
    assert_string_equal(ran, "a");
    finish(&f);
}

// ---- the fence --------------------------------------------------------------------------------

static void add_runs_only_in_its_own_epoch(void **state) {
    struct fixture f;
    struct life *life = &f.lives[0];
    const struct sc_device *d;

    (void)state;
    start_one(&f);
    d = life->device;
    fill(life, life->buf, ONE);
    fill(life, life->scratch, ONE);
    add(life, EPOCH + 1);
    expect_filled(life, life->buf, ONE);
    add(life, EPOCH);
    expect_filled(life, life->buf, TWO);
    compute(life, MS);
    add(life, EPOCH);
    assert_int_equal(d->fence_set(d->ctx, 0), SC_OK); // ahead of what is enqueued
    add(life, 0);                                     // no epoch is no epoch to equal
    run_for(&f, 2 * MS);
    expect_filled(life, life->buf, TWO);
    finish(&f);
}

// ---- captures ---------------------------------------------------------------------------------

static uint64_t capture_add(struct life *life) {
    const struct sc_device *d = life->device;
    uint64_t capture = 0;

    assert_int_equal(d->capture_begin(d->ctx, life->stream, &capture), SC_OK);
    add(life, EPOCH);
    assert_int_equal(sc_sim_compute(life->process, life->stream, US, note_a, NULL), SC_OK);
    assert_int_equal(d->capture_end(d->ctx, capture), SC_OK);
    return capture;
}

static uint64_t replay(struct life *life, uint64_t capture, uint64_t epoch) {
    const struct sc_device *d = life->device;
    uint64_t op = 0;

    assert_int_equal(d->replay_begin(d->ctx, capture, life->stream, epoch, &op), SC_OK);
    assert_int_equal(sc_sim_graph_launch(life->process, capture, life->stream), SC_OK);
    assert_int_equal(d->replay_end(d->ctx, op), SC_OK);
    return op;
}

static void capture_records_and_each_launch_runs(void **state) {
    struct fixture f;
    struct life *life = &f.lives[0];
    struct sc_sim_held held;

    (void)state;
    start_one(&f);
    ran[0] = '\0';
    fill(life, life->buf, ONE);
    fill(life, life->scratch, ONE);
    uint64_t capture = capture_add(life);
    run_for(&f, MS);
    expect_filled(life, life->buf, ONE);
    assert_string_equal(ran, "");
    uint64_t op = replay(life, capture, EPOCH);
    assert_int_equal(op_state(life, op), SC_OP_STARTED);
    run_for(&f, MS);
    assert_int_equal(op_state(life, op), SC_OP_DONE);
    expect_filled(life, life->buf, TWO);
    release(life, op);
    fill(life, life->scratch, TWO);
    release(life, replay(life, capture, EPOCH));
    run_for(&f, MS);
    expect_filled(life, life->buf, FOUR);
    assert_string_equal(ran, "aa");
    assert_int_equal(life->device->capture_release(life->device->ctx, capture), SC_OK);
    assert_int_equal(life->device->capture_release(life->device->ctx, capture), SC_INVALID);
    expect_violation(&f, "unknown capture");
    sc_sim_held(life->process, &held);
    assert_int_equal(held.captures + held.ops, 0);
    finish(&f);
}

static void replayed_add_compares_the_permit_of_its_replay(void **state) {
    struct fixture f;
    struct life *life = &f.lives[0];
    const struct sc_device *d;

    (void)state;
    start_one(&f);
    d = life->device;
    fill(life, life->buf, ONE);
    fill(life, life->scratch, ONE);
    uint64_t capture = capture_add(life);
    release(life, replay(life, capture, EPOCH - 1));
    run_for(&f, MS);
    expect_filled(life, life->buf, ONE);
    assert_int_equal(d->fence_set(d->ctx, EPOCH + 1), SC_OK);
    release(life, replay(life, capture, EPOCH + 1)); // captured in another epoch, permitted in this
    run_for(&f, MS);
    expect_filled(life, life->buf, TWO);
    assert_int_equal(sc_sim_graph_launch(life->process, capture, life->stream), SC_OK);
    run_for(&f, MS);
    expect_filled(life, life->buf, TWO); // outside a replay there is no permit
    finish(&f);
}

static void capturing_stream_refuses_what_cannot_be_captured(void **state) {
    struct fixture f;
    struct life *life = &f.lives[0];
    const struct sc_device *d;
    uint64_t capture = 0, second = 0, op = 0;

    (void)state;
    start_one(&f);
    d = life->device;
    uint64_t done = empty_op(life, life->stream);
    uint64_t earlier = capture_add(life);
    assert_int_equal(d->capture_begin(d->ctx, life->stream, &capture), SC_OK);
    assert_int_equal(d->capture_begin(d->ctx, life->stream, &second), SC_CAPTURE);
    assert_int_equal(d->stream_check(d->ctx, life->stream), SC_CAPTURE);
    assert_int_equal(d->op_begin(d->ctx, life->stream, &op), SC_CAPTURE);
    assert_int_equal(d->stream_wait(d->ctx, life->stream, done), SC_CAPTURE);
    assert_int_equal(d->replay_begin(d->ctx, earlier, life->stream, EPOCH, &op), SC_CAPTURE);
    assert_int_equal(sc_sim_graph_launch(life->process, earlier, life->stream), SC_CAPTURE);
    assert_int_equal(d->stream_destroy(d->ctx, life->stream), SC_CAPTURE);
    assert_int_equal(op_state(life, done), SC_OP_DONE); // polling disturbs nothing
    assert_int_equal(d->capture_release(d->ctx, capture), SC_INVALID);
    expect_violation(&f, "has not ended");
    assert_int_equal(d->capture_end(d->ctx, capture), SC_OK);
    assert_int_equal(d->stream_check(d->ctx, life->stream), SC_OK);
    assert_int_equal(d->capture_end(d->ctx, capture), SC_INVALID);
    expect_violation(&f, "has ended already");
    finish(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_of_a_stream_run_in_order_and_streams_side_by_side),
        cmocka_unit_test(op_is_enqueued_started_done),
        cmocka_unit_test(released_op_still_runs),
        cmocka_unit_test(streams_wait_for_an_op),
        cmocka_unit_test(destroyed_stream_finishes_its_work),
        cmocka_unit_test(killed_process_runs_no_more_kernels),
        cmocka_unit_test(kernel_may_kill_its_own_process),
        cmocka_unit_test(paused_process_leaves_its_gpu_running),
        cmocka_unit_test(add_runs_only_in_its_own_epoch),
        cmocka_unit_test(capture_records_and_each_launch_runs),
        cmocka_unit_test(replayed_add_compares_the_permit_of_its_replay),
        cmocka_unit_test(capturing_stream_refuses_what_cannot_be_captured),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
