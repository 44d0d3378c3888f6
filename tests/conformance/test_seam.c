// SPDX-License-Identifier: AGPL-3.0-only
//
// The seam's contract of communicators: how they form and end, and what ends with them.
#include "tests/conformance/seam.h"

#include <string.h>

bool seam_create(struct bench *b, const struct sc_device *d, uint64_t epoch, uint64_t *comm) {
    struct sc_comm_spec spec = {.epoch = epoch, .rank = b->rank, .world = b->ranks};
    uint64_t id[sizeof spec.id / sizeof(uint64_t)] = {0};
    if (b->rank == 0) {
        OK(b, d->comm_id(d->ctx, &spec.id));
        memcpy(id, &spec.id, sizeof id);
    }
    DO(conf_tell(b, id, sizeof id / sizeof id[0]));
    memcpy(&spec.id, id, sizeof spec.id);
    OK(b, d->comm_create(d->ctx, &spec, comm));
    TRUE(b, *comm != 0);
    return true;
}

bool seam_await(struct bench *b, const struct sc_device *d, uint64_t comm,
                enum sc_comm_state wanted, struct sc_comm_report *report) {
    uint64_t end_ns = b->w->now_ns(b) + conf_limit(b);
    for (;;) {
        OK(b, d->comm_poll(d->ctx, comm, report));
        if (report->state == wanted)
            return true;
        if (report->state == SC_COMM_ERROR && wanted != SC_COMM_GONE)
            WRONG(b, "the communicator is in error: %s", sc_status_name(report->error));
        TRUE(b, b->w->now_ns(b) < end_ns);
        OK(b, b->w->pause(b, CONF_MS));
    }
}

bool seam_begin(struct bench *b, uint64_t *comm) {
    struct sc_comm_report report;
    DO(seam_create(b, b->d, SEAM_EPOCH, comm));
    DO(seam_await(b, b->d, *comm, SC_COMM_READY, &report));
    OK(b, b->d->fence_set(b->d->ctx, SEAM_EPOCH));
    return true;
}

bool seam_end(struct bench *b, uint64_t comm) {
    struct sc_comm_report report;
    OK(b, b->d->fence_set(b->d->ctx, 0));
    DO(conf_meet(b));
    OK(b, b->d->comm_abort(b->d->ctx, comm));
    return seam_await(b, b->d, comm, SC_COMM_GONE, &report);
}

// ---- communicators -----------------------------------------------------------------------------

static bool forms_and_ends(struct bench *b) {
    const struct sc_device *d = b->d;
    for (uint32_t i = 0; i < 2; i++) { // each from an id of its own
        uint64_t comm = 0;
        struct sc_comm_report report;
        DO(seam_create(b, d, i + 1, &comm));
        OK(b, d->comm_poll(d->ctx, comm, &report));
        TRUE(b, report.state == SC_COMM_FORMING || report.state == SC_COMM_READY);
        DO(seam_await(b, d, comm, SC_COMM_READY, &report));
        TRUE(b, report.formed_ns != 0);
        OK(b, d->comm_error(d->ctx, comm));
        DO(conf_alike(b, report.pair_from_bytes));
        DO(conf_alike(b, report.pair_to_bytes));
        OK(b, d->comm_abort(d->ctx, comm));
        DO(seam_await(b, d, comm, SC_COMM_GONE, &report));
    }
    return true;
}

// One rank has come, and goes before the others have.
static bool aborted_while_forming(struct bench *b) {
    const struct sc_device *d = b->d;
    struct sc_comm_spec spec = {.epoch = 1, .rank = 0, .world = b->ranks};
    struct sc_comm_report report;
    uint64_t comm = 0;
    if (b->rank == 0) {
        OK(b, d->comm_id(d->ctx, &spec.id));
        OK(b, d->comm_create(d->ctx, &spec, &comm));
        OK(b, b->w->pause(b, 50 * CONF_MS));
        OK(b, d->comm_poll(d->ctx, comm, &report));
        EQUAL(b, report.state, SC_COMM_FORMING);
        OK(b, d->comm_abort(d->ctx, comm));
        DO(seam_await(b, d, comm, SC_COMM_GONE, &report));
    }
    DO(conf_meet(b));
    DO(seam_begin(b, &comm));
    return seam_end(b, comm);
}

// Nobody waits for that abort; the next communicator forms beside it.
static bool abandoned(struct bench *b) {
    const struct sc_device *d = b->d;
    uint64_t comm = 0, next = 0;
    DO(seam_begin(b, &comm));
    OK(b, d->fence_set(d->ctx, 0));
    DO(conf_meet(b));
    OK(b, d->comm_abort(d->ctx, comm));
    OK(b, d->comm_abandon(d->ctx, comm));
    DO(seam_begin(b, &next));
    TRUE(b, next != comm);
    return seam_end(b, next);
}

static bool handles_end(struct bench *b) {
    const struct sc_device *raw = b->raw;
    struct sc_comm_report report;
    enum sc_op_state state;
    uint64_t comm = 0, op = 0, buffer = 0, registration = 0, capture = 0;
    void *stream;
    DO(conf_stream(b, &stream));
    uint64_t on = (uint64_t)(uintptr_t)stream;
    IS(b, raw->comm_poll(raw->ctx, 0, &report), SC_INVALID);
    IS(b, raw->op_poll(raw->ctx, 0, &state), SC_INVALID);
    DO(seam_create(b, raw, SEAM_EPOCH, &comm));
    DO(seam_await(b, raw, comm, SC_COMM_READY, &report));
    OK(b, raw->mem_alloc(raw->ctx, 4096, &buffer));
    OK(b, raw->buf_register(raw->ctx, comm, buffer, 4096, &registration));
    OK(b, raw->op_begin(raw->ctx, on, &op));
    IS(b, raw->op_release(raw->ctx, op), SC_INVALID); // its end is not marked
    OK(b, raw->op_end(raw->ctx, op));
    IS(b, raw->op_end(raw->ctx, op), SC_INVALID);
    OK(b, raw->op_release(raw->ctx, op));
    IS(b, raw->op_release(raw->ctx, op), SC_INVALID);
    IS(b, raw->op_poll(raw->ctx, op, &state), SC_INVALID);
    IS(b, raw->stream_wait(raw->ctx, on, op), SC_INVALID);
    IS(b, raw->capture_end(raw->ctx, capture), SC_INVALID);
    IS(b, raw->capture_release(raw->ctx, capture), SC_INVALID);
    DO(conf_meet(b));
    OK(b, raw->comm_abort(raw->ctx, comm));
    IS(b, raw->comm_abort(raw->ctx, comm), SC_INVALID);
    DO(seam_await(b, raw, comm, SC_COMM_GONE, &report));
    IS(b, raw->comm_poll(raw->ctx, comm, &report), SC_INVALID);
    IS(b, raw->comm_error(raw->ctx, comm), SC_INVALID);
    IS(b, raw->comm_abort(raw->ctx, comm), SC_INVALID);
    IS(b, raw->comm_abandon(raw->ctx, comm), SC_INVALID);
    if (registration != 0)
        IS(b, raw->buf_deregister(raw->ctx, comm, registration), SC_INVALID);
    OK(b, raw->mem_free(raw->ctx, buffer));
    return true;
}

// ---- registrations -----------------------------------------------------------------------------

static bool registrations(struct bench *b) {
    const struct sc_device *d = b->d;
    uint64_t comm = 0, buffer = 0, first = 0, second = 0;
    void *stream;
    DO(conf_stream(b, &stream));
    DO(seam_begin(b, &comm));
    OK(b, d->mem_alloc(d->ctx, 1u << 20, &buffer));
    EQUAL(b, buffer % 16, 0);
    OK(b, d->buf_register(d->ctx, comm, buffer, 1u << 20, &first));
    if (first != 0)
        OK(b, d->buf_deregister(d->ctx, comm, first));
    OK(b,
       d->buf_register(d->ctx, comm, buffer, 1u << 20, &second)); // it ends with the communicator
    uint16_t *elements = (uint16_t *)(uintptr_t)buffer; // NOLINT(performance-no-int-to-ptr)
    DO(conf_fill(b, elements, 1000, conf_whole(6)));
    OK(b, d->all_reduce(d->ctx, comm, buffer, 2000, (uint64_t)(uintptr_t)stream));
    OK(b, b->w->stream_wait(b, stream, conf_limit(b)));
    DO(conf_holds(b, elements, 1000, conf_whole(6 * b->ranks)));
    DO(seam_end(b, comm));
    OK(b, d->mem_free(d->ctx, buffer));
    return true;
}

const struct conf_test conf_seam[] = {
    {.name = "seam_communicators_form_alike_and_end", .run = forms_and_ends, .flags = CONF_SEAM},
    {.name = "seam_abort_while_forming_spoils_nothing",
     .run = aborted_while_forming,
     .flags = CONF_SEAM,
     .ranks_min = 2},
    {.name = "seam_next_communicator_forms_beside_an_abandoned_one",
     .run = abandoned,
     .flags = CONF_SEAM},
    {.name = "seam_handles_are_invalid_for_ever_after",
     .run = handles_end,
     .flags = CONF_SEAM | CONF_MISUSE},
    {.name = "seam_registrations_end_with_their_communicator",
     .run = registrations,
     .flags = CONF_SEAM},
    {0},
};
