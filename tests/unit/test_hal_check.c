// SPDX-License-Identifier: AGPL-3.0-only
//
// The checker lets right use pass, counts it, names what is left over, and traps misuse of
// communicators and memory.
#include "tests/support/hal_check_fixture.h"

// ---- right use ------------------------------------------------------------------------------

static void right_use_is_no_breach_and_leaves_nothing(void **state) {
    struct fixture *f = *state;
    const struct sc_device *d = f->device;
    uint64_t registration, op, capture, stream, replay;
    uint32_t held;
    enum sc_op_state op_state;
    char text[64];

    assert_ok(d->buf_register(f->ctx, f->comm, f->memory, 64, &registration));
    op = begin_op(f);
    assert_ok(d->group_begin(f->ctx));
    assert_ok(d->group_begin(f->ctx)); // groups nest
    assert_ok(d->send(f->ctx, f->comm, f->memory, 64, 1, STREAM));
    assert_ok(d->recv(f->ctx, f->comm, f->memory + 64, CAPACITY_BYTES, 1, STREAM));
    assert_ok(d->group_end(f->ctx));
    assert_ok(d->group_end(f->ctx));
    assert_ok(d->comm_error(f->ctx, f->comm));
    assert_ok(d->add_bf16(f->ctx, f->memory, f->memory + 64, 64, EPOCH, STREAM));
    assert_ok(d->op_end(f->ctx, op));
    assert_ok(d->stream_wait(f->ctx, STREAM + 1, op));
    assert_ok(d->op_poll(f->ctx, op, &op_state));
    assert_int_equal(op_state, SC_OP_DONE);
    assert_ok(d->op_release(f->ctx, op));

    assert_ok(d->stream_create(f->ctx, &stream));
    assert_ok(d->capture_begin(f->ctx, stream, &capture));
    assert_ok(d->all_reduce(f->ctx, f->comm, f->memory, 64, stream));
    assert_ok(d->add_bf16(f->ctx, f->memory, f->memory + 64, 64, 1, stream)); // its replays' epoch
    assert_int_equal(d->stream_check(f->ctx, stream), SC_CAPTURE);
    assert_ok(d->capture_end(f->ctx, capture));
    assert_ok(d->replay_begin(f->ctx, capture, STREAM, EPOCH, &replay));
    assert_ok(d->replay_end(f->ctx, replay));
    assert_ok(d->op_release(f->ctx, replay));

    assert_ok(d->fence_set(f->ctx, 0));
    assert_ok(d->comm_abort(f->ctx, f->comm));
    assert_ok(d->captures_held(f->ctx, f->comm, &held));
    assert_int_equal(held, 1);
    assert_int_not_equal(poll_comm(f, f->comm), SC_COMM_GONE);
    assert_ok(d->capture_release(f->ctx, capture));
    assert_int_equal(poll_comm(f, f->comm), SC_COMM_GONE);
    assert_ok(d->stream_destroy(f->ctx, stream));
    assert_ok(d->mem_free(f->ctx, f->memory));

    assert_int_equal(sc_hal_check_breaches(f->check), 0);
    assert_int_equal(sc_hal_check_breaches(f->spy), 0);
    assert_int_equal(sc_hal_check_leaks(f->check, text, sizeof text), 0);
    assert_string_equal(text, "");
}

static void calls_are_counted_for_each_verb(void **state) {
    struct fixture *f = *state;

    assert_int_equal(sc_hal_check_calls(f->check, SC_VERB_comm_error), 0);
    assert_ok(f->device->comm_error(f->ctx, f->comm));
    assert_breach(f, "never handed out", f->device->comm_error(f->ctx, f->comm + 1));
    assert_int_equal(sc_hal_check_calls(f->check, SC_VERB_comm_error), 2);
    assert_int_equal(sc_hal_check_calls(f->check, SC_VERB_comm_create), 1);
    assert_int_equal(sc_hal_check_calls(f->check, SC_DEVICE_VERB_COUNT), 0);
}

static void leaks_are_named(void **state) {
    struct fixture *f = *state;
    char want[256], text[256], cut[8];
    uint64_t op = begin_op(f);

    assert_ok(f->device->group_begin(f->ctx));
    snprintf(want, sizeof want, "communicator %#llx, op %#llx, allocation %#llx, open group 0x1",
             (unsigned long long)f->comm, (unsigned long long)op, (unsigned long long)f->memory);
    assert_int_equal(sc_hal_check_leaks(f->check, text, sizeof text), 4);
    assert_string_equal(text, want);
    assert_int_equal(sc_hal_check_leaks(f->check, cut, sizeof cut), 4);
    assert_string_equal(cut, "communi");
    assert_int_equal(sc_hal_check_leaks(f->check, NULL, 0), 4);
}

static void an_incomplete_table_is_refused(void **state) {
    struct fixture *f = *state;
    struct sc_hal_check *check = NULL;
    struct sc_device lacking = f->fake;

    lacking.replay_end = NULL;
    assert_int_equal(sc_hal_check_create(&lacking, NULL, &check), SC_INVALID);
    lacking = f->fake;
    lacking.size--;
    assert_int_equal(sc_hal_check_create(&lacking, NULL, &check), SC_INVALID);
    assert_int_equal(sc_hal_check_create(NULL, NULL, &check), SC_INVALID);
    assert_null(check);
}

// Many handles come and go in an order that mixes them up; each stays findable until its end.
static void handles_are_found_while_others_come_and_go(void **state) {
    enum { OPS = 1500, ROUNDS = 20000 };
    static uint64_t ops[OPS];
    struct fixture *f = *state;
    enum sc_op_state op_state;
    uint32_t draw = 1;

    memset(ops, 0, sizeof ops);
    for (int round = 0; round < ROUNDS; round++) {
        draw = draw * 1664525u + 1013904223u;
        uint64_t *op = &ops[(draw >> 8) % OPS];
        if (*op == 0) {
            *op = begin_op(f);
            assert_ok(f->device->op_end(f->ctx, *op));
        } else {
            assert_ok(f->device->op_release(f->ctx, *op));
            assert_breach(f, "has ended", f->device->op_poll(f->ctx, *op, &op_state));
            *op = 0;
        }
    }
    for (int i = 0; i < OPS; i++) {
        if (ops[i] != 0) {
            assert_ok(f->device->op_poll(f->ctx, ops[i], &op_state));
            assert_ok(f->device->op_release(f->ctx, ops[i]));
        }
    }
    assert_int_equal(sc_hal_check_leaks(f->check, NULL, 0), 2);
}

static void too_many_handles_are_reported(void **state) {
    struct fixture *f = *state;
    uint64_t op;

    for (uint32_t i = 1; i < SC_HAL_CHECK_HANDLES_MAX; i++) // the communicator is the first
        begin_op(f);
    assert_int_equal(sc_hal_check_breaches(f->check), 0);
    assert_device_breach(f, "more than 2048", SC_OK, f->device->op_begin(f->ctx, STREAM, &op));
}

// ---- communicators --------------------------------------------------------------------------

static void a_second_abort_is_trapped(void **state) {
    struct fixture *f = *state;

    assert_ok(f->device->comm_abort(f->ctx, f->comm));
    assert_breach(f, "aborted before", f->device->comm_abort(f->ctx, f->comm));
}

static void use_after_abort_is_trapped(void **state) {
    struct fixture *f = *state;
    const struct sc_device *d = f->device;
    struct sc_comm_report report;
    uint64_t registration;

    assert_ok(d->comm_abort(f->ctx, f->comm));
    assert_breach(f, "was aborted", d->comm_error(f->ctx, f->comm));
    assert_breach(f, "was aborted", d->send(f->ctx, f->comm, f->memory, 64, 1, STREAM));
    assert_breach(f, "was aborted", d->recv(f->ctx, f->comm, f->memory, 64, 1, STREAM));
    assert_breach(f, "was aborted", d->all_reduce(f->ctx, f->comm, f->memory, 64, STREAM));
    assert_breach(f, "was aborted", d->broadcast(f->ctx, f->comm, f->memory, 64, 0, STREAM));
    assert_breach(f, "was aborted",
                  d->all_gather(f->ctx, f->comm, f->memory, f->memory, 64, STREAM));
    assert_breach(f, "was aborted",
                  d->reduce_scatter(f->ctx, f->comm, f->memory, f->memory, 64, STREAM));
    assert_breach(f, "was aborted", d->buf_register(f->ctx, f->comm, f->memory, 64, &registration));
    assert_int_equal(poll_comm(f, f->comm), SC_COMM_GONE);
    assert_breach(f, "has ended", d->comm_poll(f->ctx, f->comm, &report));
    assert_breach(f, "has ended", d->comm_abandon(f->ctx, f->comm));
}

static void abandon_without_abort_is_trapped(void **state) {
    struct fixture *f = *state;

    assert_breach(f, "not aborted first", f->device->comm_abandon(f->ctx, f->comm));
    assert_ok(f->device->comm_abort(f->ctx, f->comm));
    assert_ok(f->device->comm_abandon(f->ctx, f->comm));
    assert_breach(f, "has ended", f->device->comm_abort(f->ctx, f->comm));
}

static void use_while_forming_is_trapped(void **state) {
    struct fixture *f = *state;
    const struct sc_device *d = f->device;
    uint64_t comm = create_comm(f, 8), registration;
    uint32_t held;

    assert_breach(f, "not reported ready", d->comm_error(f->ctx, comm));
    assert_breach(f, "not reported ready", d->all_reduce(f->ctx, comm, f->memory, 64, STREAM));
    assert_breach(f, "not reported ready",
                  d->buf_register(f->ctx, comm, f->memory, 64, &registration));
    assert_breach(f, "not reported ready", d->captures_held(f->ctx, comm, &held));
    assert_ok(d->comm_abort(f->ctx, comm)); // an attempt may be given up
}

static void a_communicator_id_used_twice_is_trapped(void **state) {
    struct fixture *f = *state;
    struct sc_comm_spec spec = {.epoch = 8, .rank = 0, .world = 2};
    uint64_t comm;

    spec.id.bytes[0] = f->ids;
    assert_breach(f, "used before", f->device->comm_create(f->ctx, &spec, &comm));
    spec.id.bytes[SC_COMM_ID_BYTES - 1] = 1;
    assert_ok(f->device->comm_create(f->ctx, &spec, &comm));
    assert_breach(f, "used before", f->device->comm_create(f->ctx, &spec, &comm));
}

static void the_last_64_communicator_ids_are_remembered(void **state) {
    struct fixture *f = *state;
    struct sc_comm_spec spec = {.epoch = 8, .rank = 0, .world = 2};
    uint64_t comm;

    for (uint32_t i = 0; i < SC_HAL_CHECK_IDS_MAX; i++) {
        comm = create_comm(f, 8);
        assert_ok(f->device->comm_abort(f->ctx, comm));
        assert_int_equal(poll_comm(f, comm), SC_COMM_GONE);
    }
    spec.id.bytes[0] = 2;
    assert_breach(f, "used before", f->device->comm_create(f->ctx, &spec, &comm));
    spec.id.bytes[0] = 1;
    assert_ok(f->device->comm_create(f->ctx, &spec, &comm));
}

static void an_impossible_communicator_is_trapped(void **state) {
    static const struct sc_comm_spec specs[] = {
        {.epoch = 8, .rank = 2, .world = 2},
        {.epoch = 8, .rank = 0, .world = 0},
        {.epoch = 8, .rank = 0, .world = SC_WORLD_MAX + 1},
        {.epoch = 0, .rank = 0, .world = 2},
    };
    struct fixture *f = *state;
    uint64_t comm;

    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++)
        assert_breach(f, "no communicator", f->device->comm_create(f->ctx, &specs[i], &comm));
}

static void too_many_communicators_are_trapped(void **state) {
    struct fixture *f = *state;
    struct sc_comm_spec spec = {.epoch = 8, .rank = 0, .world = 2};
    uint64_t comm;

    for (uint32_t i = 1; i < SC_HAL_CHECK_COMMS_MAX; i++)
        create_comm(f, 8);
    assert_breach(f, "64 communicators", f->device->comm_create(f->ctx, &spec, &comm));
}

static void a_fence_raised_without_a_ready_communicator_is_trapped(void **state) {
    struct fixture *f = *state;

    assert_breach(f, "is ready", f->device->fence_set(f->ctx, 8));
    create_comm(f, 8);
    assert_breach(f, "is ready", f->device->fence_set(f->ctx, 8));
    assert_int_equal(sc_instant_device_fence(f->instant), EPOCH);
    assert_ok(f->device->fence_set(f->ctx, 0));
    assert_ok(f->device->comm_abort(f->ctx, f->comm));
    assert_breach(f, "is ready", f->device->fence_set(f->ctx, EPOCH));
}

// ---- memory ---------------------------------------------------------------------------------

static void memory_freed_under_a_communicator_is_trapped(void **state) {
    struct fixture *f = *state;
    const struct sc_device *d = f->device;
    uint64_t registered, used, registration;

    assert_ok(d->mem_alloc(f->ctx, 64, &registered));
    assert_ok(d->mem_alloc(f->ctx, 64, &used));
    assert_ok(d->buf_register(f->ctx, f->comm, registered, 64, &registration));
    assert_ok(d->buf_deregister(f->ctx, f->comm, registration));
    assert_ok(d->recv(f->ctx, f->comm, used + 62, 2, 1, STREAM));
    assert_breach(f, "live communicators", d->mem_free(f->ctx, registered));
    assert_breach(f, "live communicators", d->mem_free(f->ctx, used));
    assert_ok(d->mem_free(f->ctx, f->memory)); // which none knows of
    assert_ok(d->comm_abort(f->ctx, f->comm));
    assert_breach(f, "live communicators", d->mem_free(f->ctx, registered));
    assert_int_equal(poll_comm(f, f->comm), SC_COMM_GONE);
    assert_ok(d->mem_free(f->ctx, registered));
    assert_ok(d->mem_free(f->ctx, used));
}

static void memory_freed_twice_is_trapped(void **state) {
    struct fixture *f = *state;

    assert_breach(f, "was freed", f->device->mem_free(f->ctx, f->memory + 16));
    assert_breach(f, "was freed", f->device->mem_free(f->ctx, 16));
    assert_ok(f->device->mem_free(f->ctx, f->memory));
    assert_breach(f, "was freed", f->device->mem_free(f->ctx, f->memory));
}

static void registration_of_no_memory_is_trapped(void **state) {
    struct fixture *f = *state;
    const struct sc_device *d = f->device;
    uint64_t registration;

    assert_breach(f, "zero bytes", d->buf_register(f->ctx, f->comm, f->memory, 0, &registration));
    assert_breach(f, "address 0", d->buf_register(f->ctx, f->comm, 0, 64, &registration));
    assert_breach(f, "wraps", d->buf_register(f->ctx, f->comm, UINT64_MAX, 2, &registration));
    assert_ok(d->buf_register(f->ctx, f->comm, f->memory + 1, 63, &registration)); // no payload yet
}

static void deregistration_after_the_communicator_is_trapped(void **state) {
    struct fixture *f = *state;
    const struct sc_device *d = f->device;
    uint64_t registration, other;

    assert_ok(d->buf_register(f->ctx, f->comm, f->memory, 64, &registration));
    assert_ok(d->comm_abort(f->ctx, f->comm));
    assert_breach(f, "was aborted", d->buf_deregister(f->ctx, f->comm, registration));
    other = create_comm(f, 8);
    poll_comm(f, other);
    assert_breach(f, "has ended", d->buf_deregister(f->ctx, other, registration));
}

static void deregistration_with_another_communicator_is_trapped(void **state) {
    struct fixture *f = *state;
    uint64_t registration, other = create_comm(f, 8);

    poll_comm(f, other);
    assert_ok(f->device->buf_register(f->ctx, f->comm, f->memory, 64, &registration));
    assert_breach(f, "belongs to", f->device->buf_deregister(f->ctx, other, registration));
    assert_breach(f, "never handed out", f->device->buf_deregister(f->ctx, f->comm, 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(right_use_is_no_breach_and_leaves_nothing),
        TEST(calls_are_counted_for_each_verb),
        TEST(leaks_are_named),
        TEST(an_incomplete_table_is_refused),
        TEST(handles_are_found_while_others_come_and_go),
        TEST(too_many_handles_are_reported),
        TEST(a_second_abort_is_trapped),
        TEST(use_after_abort_is_trapped),
        TEST(abandon_without_abort_is_trapped),
        TEST(use_while_forming_is_trapped),
        TEST(a_communicator_id_used_twice_is_trapped),
        TEST(the_last_64_communicator_ids_are_remembered),
        TEST(an_impossible_communicator_is_trapped),
        TEST(too_many_communicators_are_trapped),
        TEST(a_fence_raised_without_a_ready_communicator_is_trapped),
        TEST(memory_freed_under_a_communicator_is_trapped),
        TEST(memory_freed_twice_is_trapped),
        TEST(registration_of_no_memory_is_trapped),
        TEST(deregistration_after_the_communicator_is_trapped),
        TEST(deregistration_with_another_communicator_is_trapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
