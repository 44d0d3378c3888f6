// SPDX-License-Identifier: AGPL-3.0-only
//
// The checker reports a device that breaks its own contract and hands its answer on, and judges in
// the caller's favour what the contract leaves open.
#include "tests/support/hal_check_fixture.h"

// ---- what the device does wrong -------------------------------------------------------------

static sc_status begin_with_handle_0(void *ctx, uint64_t stream, uint64_t *op) {
    (void)ctx, (void)stream;
    *op = 0;
    return SC_OK;
}

static sc_status begin_with_a_held_handle(void *ctx, uint64_t stream, uint64_t *op) {
    (void)ctx, (void)stream;
    *op = 0x123;
    return SC_OK;
}

static sc_status begin_without_output(void *ctx, uint64_t stream, uint64_t *op) {
    (void)ctx, (void)stream, (void)op;
    return SC_OK;
}

static sc_status begin_failing_with_output(void *ctx, uint64_t stream, uint64_t *op) {
    (void)ctx, (void)stream;
    *op = 5;
    return SC_DEVICE_ERROR;
}

static void a_device_that_begins_ops_wrongly_is_reported(void **state) {
    struct fixture *f = *state;
    const struct sc_device *d = f->device;
    uint64_t op = 99;

    f->fake.op_begin = begin_with_a_held_handle;
    assert_ok(d->op_begin(f->ctx, STREAM, &op));
    assert_device_breach(f, "still held", SC_OK, d->op_begin(f->ctx, STREAM, &op));
    f->fake.op_begin = begin_with_handle_0;
    assert_device_breach(f, "handle 0", SC_OK, d->op_begin(f->ctx, STREAM, &op));
    op = 99;
    f->fake.op_begin = begin_without_output;
    assert_device_breach(f, "did not write", SC_OK, d->op_begin(f->ctx, STREAM, &op));
    f->fake.op_begin = begin_failing_with_output;
    assert_device_breach(f, "wrote its output", SC_DEVICE_ERROR, d->op_begin(f->ctx, STREAM, &op));
    assert_int_equal(op, 99);
}

static sc_status create_ok_with_handle_0(void *ctx, const struct sc_comm_spec *spec,
                                         uint64_t *comm) {
    (void)ctx, (void)spec;
    *comm = 0;
    return SC_OK;
}

static void a_communicator_created_with_handle_0_passes_unchanged(void **state) {
    struct fixture *f = *state;

    f->fake.comm_create = create_ok_with_handle_0;
    assert_int_equal(create_comm(f, 8), 0);
    assert_int_equal(sc_hal_check_breaches(f->check), 0);
    assert_int_equal(sc_hal_check_leaks(f->check, NULL, 0), 2);
}

static sc_status register_with_0(void *ctx, uint64_t comm, uint64_t address, uint64_t bytes,
                                 uint64_t *registration) {
    (void)ctx, (void)comm, (void)address, (void)bytes;
    *registration = 0;
    return SC_OK;
}

static void registration_0_is_allowed_and_holds_the_memory(void **state) {
    struct fixture *f = *state;
    uint64_t registration = 99;

    f->fake.buf_register = register_with_0;
    assert_ok(f->device->buf_register(f->ctx, f->comm, f->memory, 64, &registration));
    assert_int_equal(registration, 0);
    assert_int_equal(sc_hal_check_breaches(f->check), 0);
    assert_breach(f, "live communicators", f->device->mem_free(f->ctx, f->memory));
}

static struct sc_comm_report told;

static sc_status poll_as_told(void *ctx, uint64_t comm, struct sc_comm_report *report) {
    (void)ctx, (void)comm;
    *report = told;
    return SC_OK;
}

static void a_device_that_reports_nonsense_of_a_communicator_is_reported(void **state) {
    static const struct {
        struct sc_comm_report report;
        const char *words;
    } rows[] = {
        {{.state = SC_COMM_FORMING}, "ready communicator as forming"},
        {{.state = SC_COMM_GONE}, "nobody aborted"},
        {{.state = SC_COMM_ERROR, .error = SC_FABRIC}, "none of a communicator's"},
        {{.state = (enum sc_comm_state)(SC_COMM_GONE + 1)}, "does not exist"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct fixture *f = *state;
        struct sc_comm_report report;

        f->fake.comm_poll = poll_as_told;
        told = rows[i].report;
        assert_device_breach(f, rows[i].words, SC_OK,
                             f->device->comm_poll(f->ctx, f->comm, &report));
        assert_int_equal(report.state, told.state);
        tear_down(state);
        set_up(state);
    }
}

static void a_failed_communicator_raises_no_fence(void **state) {
    struct fixture *f = *state;

    f->fake.comm_poll = poll_as_told;
    told = (struct sc_comm_report){.state = SC_COMM_ERROR, .error = SC_ASYNC_ERROR};
    assert_int_equal(poll_comm(f, f->comm), SC_COMM_ERROR);
    assert_breach(f, "is ready", f->device->fence_set(f->ctx, EPOCH));
    told.state = SC_COMM_READY;
    struct sc_comm_report report;
    assert_device_breach(f, "failed communicator as ready", SC_OK,
                         f->device->comm_poll(f->ctx, f->comm, &report));
}

static sc_status alloc_misaligned(void *ctx, uint64_t bytes, uint64_t *address) {
    (void)ctx, (void)bytes;
    *address = 24;
    return SC_OK;
}

static uint64_t taken;

static sc_status alloc_the_same(void *ctx, uint64_t bytes, uint64_t *address) {
    (void)ctx, (void)bytes;
    *address = taken + 32;
    return SC_OK;
}

static void a_device_that_hands_out_bad_memory_is_reported(void **state) {
    struct fixture *f = *state;
    uint64_t address;

    f->fake.mem_alloc = alloc_misaligned;
    assert_device_breach(f, "misaligned", SC_OK, f->device->mem_alloc(f->ctx, 64, &address));
    f->fake.mem_alloc = alloc_the_same;
    taken = f->memory;
    assert_device_breach(f, "held already", SC_OK, f->device->mem_alloc(f->ctx, 64, &address));
}

static sc_status poll_no_state(void *ctx, uint64_t op, enum sc_op_state *op_state) {
    (void)ctx, (void)op, (void)op_state;
    return SC_OK;
}

static void a_device_that_reports_no_state_of_an_op_is_reported(void **state) {
    struct fixture *f = *state;
    enum sc_op_state op_state;

    f->fake.op_poll = poll_no_state;
    assert_device_breach(f, "no state", SC_OK, f->device->op_poll(f->ctx, begin_op(f), &op_state));
}

// ---- what hal.h leaves open -----------------------------------------------------------------

static sc_status abort_failing(void *ctx, uint64_t comm) {
    (void)ctx, (void)comm;
    return SC_DEVICE_ERROR;
}

static void a_failed_abort_may_be_repeated(void **state) {
    struct fixture *f = *state;

    f->fake.comm_abort = abort_failing;
    assert_int_equal(f->device->comm_abort(f->ctx, f->comm), SC_DEVICE_ERROR);
    assert_ok(f->device->comm_error(f->ctx, f->comm)); // it lives on
    f->fake.comm_abort = sc_hal_check_device(f->spy)->comm_abort;
    assert_ok(f->device->comm_abort(f->ctx, f->comm));
    assert_int_equal(poll_comm(f, f->comm), SC_COMM_GONE);
    assert_int_equal(sc_hal_check_breaches(f->check), 0);
}

static sc_status group_failing(void *ctx) {
    (void)ctx;
    return SC_DEVICE_ERROR;
}

static void a_failed_group_begin_opens_nothing_and_a_failed_end_closes(void **state) {
    struct fixture *f = *state;

    f->fake.group_begin = group_failing;
    assert_int_equal(f->device->group_begin(f->ctx), SC_DEVICE_ERROR);
    assert_breach(f, "no group is open", f->device->group_end(f->ctx));
    f->fake.group_begin = sc_hal_check_device(f->spy)->group_begin;
    f->fake.group_end = group_failing;
    assert_ok(f->device->group_begin(f->ctx));
    assert_int_equal(f->device->group_end(f->ctx), SC_DEVICE_ERROR);
    assert_breach(f, "no group is open", f->device->group_end(f->ctx));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_device_that_begins_ops_wrongly_is_reported),
        TEST(a_communicator_created_with_handle_0_passes_unchanged),
        TEST(registration_0_is_allowed_and_holds_the_memory),
        TEST(a_device_that_reports_nonsense_of_a_communicator_is_reported),
        TEST(a_failed_communicator_raises_no_fence),
        TEST(a_device_that_hands_out_bad_memory_is_reported),
        TEST(a_device_that_reports_no_state_of_an_op_is_reported),
        TEST(a_failed_abort_may_be_repeated),
        TEST(a_failed_group_begin_opens_nothing_and_a_failed_end_closes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
