// SPDX-License-Identifier: AGPL-3.0-only
//
// The checker traps misuse of ops, groups, captures and payloads.
#include "tests/support/hal_check_fixture.h"

#include <pthread.h>

static uint64_t capture_once(struct fixture *f) {
    uint64_t capture = 0;

    assert_ok(f->device->capture_begin(f->ctx, STREAM, &capture));
    assert_ok(f->device->capture_end(f->ctx, capture));
    return capture;
}

// ---- ops, groups, captures ------------------------------------------------------------------

static void ops_out_of_order_are_trapped(void **state) {
    struct fixture *f = *state;
    const struct sc_device *d = f->device;
    uint64_t op = begin_op(f);
    enum sc_op_state op_state;

    assert_breach(f, "not marked yet", d->op_release(f->ctx, op));
    assert_breach(f, "not marked yet", d->stream_wait(f->ctx, STREAM, op));
    assert_breach(f, "not begun by replay_begin", d->replay_end(f->ctx, op));
    assert_ok(d->op_end(f->ctx, op));
    assert_breach(f, "ended before", d->op_end(f->ctx, op));
    assert_ok(d->op_release(f->ctx, op));
    assert_breach(f, "has ended", d->op_release(f->ctx, op));
    assert_breach(f, "has ended", d->op_poll(f->ctx, op, &op_state));
    assert_breach(f, "has ended", d->op_end(f->ctx, op));
    assert_breach(f, "has ended", d->stream_wait(f->ctx, STREAM, op));
}

static void a_group_end_without_a_begin_is_trapped(void **state) {
    struct fixture *f = *state;

    assert_breach(f, "no group is open", f->device->group_end(f->ctx));
    assert_ok(f->device->group_begin(f->ctx));
    assert_ok(f->device->group_end(f->ctx));
    assert_breach(f, "no group is open", f->device->group_end(f->ctx));
}

static void verbs_that_an_open_group_would_swallow_are_trapped(void **state) {
    struct fixture *f = *state;
    const struct sc_device *d = f->device;
    struct sc_comm_spec spec = {.epoch = 8, .rank = 0, .world = 2};
    uint64_t capture = capture_once(f), op = begin_op(f), replay, comm, other;

    assert_ok(d->replay_begin(f->ctx, capture, STREAM, EPOCH, &replay));
    assert_ok(d->group_begin(f->ctx));
    assert_breach(f, "a group is open", d->op_begin(f->ctx, STREAM, &other));
    assert_breach(f, "a group is open", d->op_end(f->ctx, op));
    assert_breach(f, "a group is open", d->comm_create(f->ctx, &spec, &comm));
    assert_breach(f, "a group is open", d->comm_abort(f->ctx, f->comm));
    assert_breach(f, "a group is open",
                  d->add_bf16(f->ctx, f->memory, f->memory + 64, 64, EPOCH, STREAM));
    assert_breach(f, "a group is open", d->replay_begin(f->ctx, capture, STREAM, EPOCH, &other));
    assert_breach(f, "a group is open", d->replay_end(f->ctx, replay));
    assert_ok(d->group_end(f->ctx));
    assert_ok(d->op_end(f->ctx, op));
}

static void *end_group(void *arg) {
    struct fixture *f = arg;

    return f->device->group_end(f->ctx) == SC_STATE ? f : NULL;
}

static void a_group_ended_by_another_thread_is_trapped(void **state) {
    struct fixture *f = *state;
    pthread_t thread;
    void *trapped = NULL;

    assert_ok(f->device->group_begin(f->ctx));
    assert_int_equal(pthread_create(&thread, NULL, end_group, f), 0);
    assert_int_equal(pthread_join(thread, &trapped), 0);
    assert_non_null(trapped);
    assert_non_null(strstr(f->text, "another thread"));
    assert_ok(f->device->group_end(f->ctx));
}

static void two_captures_on_one_stream_are_trapped(void **state) {
    struct fixture *f = *state;
    uint64_t capture, other;

    assert_ok(f->device->capture_begin(f->ctx, STREAM, &capture));
    assert_breach(f, "capturing already", f->device->capture_begin(f->ctx, STREAM, &other));
    assert_ok(f->device->capture_begin(f->ctx, STREAM + 1, &other));
    assert_ok(f->device->capture_end(f->ctx, capture));
    assert_ok(f->device->capture_begin(f->ctx, STREAM, &capture));
}

static void captures_out_of_order_are_trapped(void **state) {
    struct fixture *f = *state;
    const struct sc_device *d = f->device;
    uint64_t capture, op;

    assert_ok(d->capture_begin(f->ctx, STREAM, &capture));
    assert_breach(f, "not ended yet", d->capture_release(f->ctx, capture));
    assert_breach(f, "not ended yet", d->replay_begin(f->ctx, capture, STREAM, EPOCH, &op));
    assert_ok(d->capture_end(f->ctx, capture));
    assert_breach(f, "ended before", d->capture_end(f->ctx, capture));
    assert_ok(d->replay_begin(f->ctx, capture, STREAM, EPOCH, &op));
    assert_breach(f, "begun by replay_begin", d->op_end(f->ctx, op));
    assert_ok(d->replay_end(f->ctx, op));
    assert_breach(f, "ended before", d->replay_end(f->ctx, op));
    assert_ok(d->capture_release(f->ctx, capture));
    assert_breach(f, "has ended", d->replay_begin(f->ctx, capture, STREAM, EPOCH, &op));
}

static void a_foreign_stream_is_not_ours_to_destroy(void **state) {
    struct fixture *f = *state;

    assert_breach(f, "never handed out", f->device->stream_destroy(f->ctx, STREAM));
}

// ---- payloads -------------------------------------------------------------------------------

static void payloads_over_the_capacity_are_trapped(void **state) {
    struct fixture *f = *state;
    const struct sc_device *d = f->device;
    uint64_t at = f->memory, large = CAPACITY_BYTES + 2;

    assert_ok(d->recv(f->ctx, f->comm, at, CAPACITY_BYTES, 1, STREAM));
    assert_breach(f, "capacity", d->recv(f->ctx, f->comm, at, large, 1, STREAM));
    assert_ok(d->add_bf16(f->ctx, at, at, CAPACITY_BYTES, EPOCH, STREAM));
    assert_breach(f, "capacity", d->add_bf16(f->ctx, at, at, large, EPOCH, STREAM));
    // Without a capacity, as the spy is, any size may pass.
    assert_ok(f->fake.recv(f->fake.ctx, f->comm, at, large, 1, STREAM));
}

// Every verb with a payload, by one way to call it.
static sc_status call_payload_verb(struct fixture *f, int verb, uint64_t at, uint64_t bytes) {
    const struct sc_device *d = f->device;
    uint64_t good = f->memory;

    switch (verb) {
    case 0: return d->send(f->ctx, f->comm, at, bytes, 1, STREAM);
    case 1: return d->recv(f->ctx, f->comm, at, bytes, 1, STREAM);
    case 2: return d->all_reduce(f->ctx, f->comm, at, bytes, STREAM);
    case 3: return d->broadcast(f->ctx, f->comm, at, bytes, 0, STREAM);
    case 4: return d->all_gather(f->ctx, f->comm, at, good, bytes, STREAM);
    case 5: return d->all_gather(f->ctx, f->comm, good, at, bytes, STREAM);
    case 6: return d->reduce_scatter(f->ctx, f->comm, at, good, bytes, STREAM);
    case 7: return d->reduce_scatter(f->ctx, f->comm, good, at, bytes, STREAM);
    case 8: return d->add_bf16(f->ctx, at, good, bytes, EPOCH, STREAM);
    default: return d->add_bf16(f->ctx, good, at, bytes, EPOCH, STREAM);
    }
}
#define PAYLOAD_VERBS 10

static void impossible_payloads_are_trapped(void **state) {
    struct fixture *f = *state;

    for (int verb = 0; verb < PAYLOAD_VERBS; verb++) {
        assert_breach(f, "zero bytes", call_payload_verb(f, verb, f->memory, 0));
        assert_breach(f, "odd byte count", call_payload_verb(f, verb, f->memory, 63));
        assert_breach(f, "misaligned", call_payload_verb(f, verb, f->memory + 1, 64));
        assert_breach(f, "address 0", call_payload_verb(f, verb, 0, 64));
        assert_breach(f, "wraps", call_payload_verb(f, verb, UINT64_MAX - 63, 128));
        assert_ok(call_payload_verb(f, verb, f->memory, 64));
    }
    assert_breach(f, "64 bits",
                  f->device->all_gather(f->ctx, f->comm, 64, 64, UINT64_MAX - 127, STREAM));
}

static void a_rank_outside_the_world_is_trapped(void **state) {
    struct fixture *f = *state;
    const struct sc_device *d = f->device;

    assert_breach(f, "not in a world of 2", d->send(f->ctx, f->comm, f->memory, 64, 2, STREAM));
    assert_breach(f, "not in a world of 2", d->recv(f->ctx, f->comm, f->memory, 64, 2, STREAM));
    assert_breach(f, "not in a world of 2",
                  d->broadcast(f->ctx, f->comm, f->memory, 64, 2, STREAM));
}

static void an_add_of_another_epoch_is_trapped(void **state) {
    struct fixture *f = *state;
    const struct sc_device *d = f->device;
    uint64_t at = f->memory, capture;

    assert_breach(f, "fence holds", d->add_bf16(f->ctx, at, at, 64, EPOCH + 1, STREAM));
    assert_ok(d->fence_set(f->ctx, 0));
    assert_breach(f, "fence holds", d->add_bf16(f->ctx, at, at, 64, EPOCH, STREAM));
    assert_breach(f, "fence holds", d->add_bf16(f->ctx, at, at, 64, 0, STREAM));
    assert_ok(d->capture_begin(f->ctx, STREAM, &capture));
    assert_ok(d->add_bf16(f->ctx, at, at, 64, EPOCH, STREAM));
    assert_breach(f, "fence holds", d->add_bf16(f->ctx, at, at, 64, EPOCH, STREAM + 1));
}

// ---- beside an op -----------------------------------------------------------------------------

static void *leave_epoch(void *fixture) {
    struct fixture *f = fixture;

    assert_ok(f->device->fence_set(f->ctx, 0));
    assert_ok(f->device->comm_abort(f->ctx, f->comm));
    return NULL;
}

static void an_epoch_that_another_thread_leaves_in_mid_op_is_no_breach(void **state) {
    struct fixture *f = *state;
    const struct sc_device *d = f->device;
    const uint64_t at = f->memory, op = begin_op(f), breaches = sc_hal_check_breaches(f->check);
    pthread_t thread;

    assert_ok(d->group_begin(f->ctx));
    assert_int_equal(pthread_create(&thread, NULL, leave_epoch, f), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(d->send(f->ctx, f->comm, at, 64, 1, STREAM), SC_STATE);
    assert_ok(d->group_end(f->ctx));
    assert_ok(d->add_bf16(f->ctx, at, at, 64, EPOCH, STREAM));
    assert_ok(d->op_end(f->ctx, op));
    assert_int_equal(sc_hal_check_breaches(f->check), breaches);
    assert_breach(f, "fence holds", d->add_bf16(f->ctx, at, at, 64, EPOCH + 1, STREAM));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(an_epoch_that_another_thread_leaves_in_mid_op_is_no_breach),
        TEST(ops_out_of_order_are_trapped),
        TEST(a_group_end_without_a_begin_is_trapped),
        TEST(verbs_that_an_open_group_would_swallow_are_trapped),
        TEST(a_group_ended_by_another_thread_is_trapped),
        TEST(two_captures_on_one_stream_are_trapped),
        TEST(captures_out_of_order_are_trapped),
        TEST(a_foreign_stream_is_not_ours_to_destroy),
        TEST(payloads_over_the_capacity_are_trapped),
        TEST(impossible_payloads_are_trapped),
        TEST(a_rank_outside_the_world_is_trapped),
        TEST(an_add_of_another_epoch_is_trapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
