// SPDX-License-Identifier: AGPL-3.0-only
//
// The seam's contract of ops: marks on streams, groups, the fence, captures.
#include "tests/conformance/seam.h"

#define COUNT 3000u
#define BYTES (COUNT * SC_BF16_BYTES)

static uint64_t number_of(const void *pointer) {
    return (uint64_t)(uintptr_t)pointer;
}

// Looks, where polls do not.
static bool poll(struct bench *b, uint64_t op, enum sc_op_state *state) {
    if (b->d->ops_look != NULL)
        b->d->ops_look(b->d->ctx);
    OK(b, b->d->op_poll(b->d->ctx, op, state));
    return true;
}

static bool await_op(struct bench *b, uint64_t op, enum sc_op_state wanted) {
    uint64_t end_ns = b->w->now_ns(b) + conf_limit(b);
    enum sc_op_state state, before = SC_OP_ENQUEUED;
    for (;;) {
        DO(poll(b, op, &state));
        TRUE(b, state >= before && state <= wanted);
        if (state == wanted)
            return true;
        before = state;
        TRUE(b, b->w->now_ns(b) < end_ns);
        OK(b, b->w->pause(b, CONF_MS));
    }
}

static bool marked(struct bench *b, void *stream, uint64_t kernel_ns, uint64_t *op) {
    OK(b, b->d->op_begin(b->d->ctx, number_of(stream), op));
    OK(b, b->w->compute(b, stream, kernel_ns, NULL, 0));
    OK(b, b->d->op_end(b->d->ctx, *op));
    return true;
}

static bool states(struct bench *b) {
    const struct sc_device *d = b->d;
    enum sc_op_state state;
    uint64_t op = 0;
    void *stream;
    DO(conf_stream(b, &stream));
    OK(b, b->w->compute(b, stream, 100 * CONF_MS, NULL, 0));
    DO(marked(b, stream, 100 * CONF_MS, &op));
    DO(poll(b, op, &state));
    EQUAL(b, state, SC_OP_ENQUEUED);
    DO(await_op(b, op, SC_OP_STARTED));
    DO(await_op(b, op, SC_OP_DONE));
    DO(poll(b, op, &state)); // and stays so
    EQUAL(b, state, SC_OP_DONE);
    OK(b, d->op_release(d->ctx, op));
    DO(marked(b, stream, 0, &op)); // released before it is done: it stays enqueued
    OK(b, d->op_release(d->ctx, op));
    return true;
}

static bool across_streams(struct bench *b) {
    const struct sc_device *d = b->d;
    enum sc_op_state state;
    uint64_t first = 0, second = 0;
    uint16_t *word;
    void *one, *other;
    DO(conf_stream(b, &one));
    DO(conf_stream(b, &other));
    DO(conf_buffer(b, 1, &word));
    DO(conf_fill(b, word, 1, 0));
    OK(b, d->op_begin(d->ctx, number_of(one), &first));
    OK(b, b->w->compute(b, one, 150 * CONF_MS, word, 1));
    OK(b, d->op_end(d->ctx, first));
    OK(b, d->stream_wait(d->ctx, number_of(other), first));
    OK(b, d->op_release(d->ctx, first)); // the wait stands
    DO(marked(b, other, 0, &second));
    DO(poll(b, second, &state));
    EQUAL(b, state, SC_OP_ENQUEUED);
    EQUAL(b, conf_peek(b, word), 0);
    DO(await_op(b, second, SC_OP_DONE));
    EQUAL(b, conf_peek(b, word), 1);
    OK(b, d->op_release(d->ctx, second));
    return true;
}

// ---- groups ------------------------------------------------------------------------------------

static bool exchange(struct bench *b, uint64_t comm, const uint16_t *src, const uint16_t *dst,
                     uint64_t bytes, void *stream) {
    const struct sc_device *d = b->d;
    uint32_t to = (b->rank + 1) % b->ranks, from = (b->rank + b->ranks - 1) % b->ranks;
    OK(b, d->send(d->ctx, comm, number_of(src), bytes, to, number_of(stream)));
    OK(b, d->recv(d->ctx, comm, number_of(dst), bytes, from, number_of(stream)));
    return true;
}

static bool groups(struct bench *b) {
    const struct sc_device *d = b->d;
    uint64_t comm = 0;
    uint16_t *src, *dst;
    void *stream;
    DO(conf_stream(b, &stream));
    DO(conf_buffer(b, COUNT, &src));
    DO(conf_buffer(b, COUNT, &dst));
    DO(conf_fill(b, src, COUNT, conf_whole(b->rank + 1)));
    DO(seam_begin(b, &comm));
    OK(b, d->group_begin(d->ctx));
    OK(b, d->group_begin(d->ctx)); // one launch, however deep
    DO(exchange(b, comm, src, dst, BYTES, stream));
    OK(b, d->group_end(d->ctx));
    OK(b, d->group_end(d->ctx));
    OK(b, d->comm_error(d->ctx, comm));
    OK(b, b->w->stream_wait(b, stream, conf_limit(b)));
    uint32_t from = (b->rank + b->ranks - 1) % b->ranks;
    DO(conf_holds(b, dst, COUNT, conf_whole(from + 1)));
    OK(b, d->group_begin(d->ctx)); // nothing in it
    OK(b, d->group_end(d->ctx));
    return seam_end(b, comm);
}

// A send to nobody fails; group_end says so too, and the next group is as good as any.
static bool failed_group(struct bench *b) {
    const struct sc_device *raw = b->raw;
    uint64_t comm = 0;
    uint16_t *src, *dst;
    void *stream;
    DO(conf_stream(b, &stream));
    DO(conf_buffer(b, COUNT, &src));
    DO(conf_buffer(b, COUNT, &dst));
    DO(conf_fill(b, src, COUNT, conf_whole(b->rank + 1)));
    DO(conf_fill(b, dst, COUNT, 0x1234));
    DO(seam_begin(b, &comm));
    OK(b, raw->group_begin(raw->ctx));
    OK(b, raw->recv(raw->ctx, comm, number_of(dst), BYTES, 1 - b->rank, number_of(stream)));
    sc_status status = raw->send(raw->ctx, comm, number_of(src), BYTES, 1000, number_of(stream));
    TRUE(b, status != SC_OK && status != SC_INPROGRESS);
    TRUE(b, raw->group_end(raw->ctx) != SC_OK);
    OK(b, b->w->stream_wait(b, stream, conf_limit(b)));
    DO(conf_holds(b, dst, COUNT, 0x1234));
    OK(b, raw->group_begin(raw->ctx));
    DO(exchange(b, comm, src, dst, BYTES, stream));
    OK(b, raw->group_end(raw->ctx));
    OK(b, b->w->stream_wait(b, stream, conf_limit(b)));
    DO(conf_holds(b, dst, COUNT, conf_whole(2 - b->rank)));
    return seam_end(b, comm);
}

// ---- the fence ---------------------------------------------------------------------------------

// An add behind a kernel looks at the fence when it comes to run, not when it was enqueued.
static bool fence(struct bench *b) {
    const struct sc_device *d = b->d;
    uint64_t comm = 0;
    uint16_t *dst, *src;
    void *stream;
    DO(conf_stream(b, &stream));
    DO(conf_buffer(b, COUNT, &dst));
    DO(conf_buffer(b, COUNT, &src));
    DO(conf_fill(b, dst, COUNT, conf_whole(1)));
    DO(conf_fill(b, src, COUNT, conf_whole(2)));
    DO(seam_begin(b, &comm));
    OK(b, b->w->compute(b, stream, 300 * CONF_MS, NULL, 0));
    OK(b,
       d->add_bf16(d->ctx, number_of(dst), number_of(src), BYTES, SEAM_EPOCH, number_of(stream)));
    OK(b, d->fence_set(d->ctx, 0));
    OK(b, b->w->stream_wait(b, stream, conf_limit(b)));
    DO(conf_holds(b, dst, COUNT, conf_whole(1)));
    OK(b, d->fence_set(d->ctx, SEAM_EPOCH));
    OK(b,
       d->add_bf16(d->ctx, number_of(dst), number_of(src), BYTES, SEAM_EPOCH, number_of(stream)));
    OK(b, b->w->stream_wait(b, stream, conf_limit(b)));
    DO(conf_holds(b, dst, COUNT, conf_whole(3)));
    return seam_end(b, comm);
}

// Any count from any two places, and nothing beside it.
static bool adds_exactly(struct bench *b) {
    const struct sc_device *d = b->d;
    uint64_t comm = 0;
    uint16_t *dst, *src;
    void *stream;
    DO(conf_stream(b, &stream));
    DO(conf_buffer(b, 64, &dst));
    DO(conf_buffer(b, 64, &src));
    DO(conf_fill(b, src, 64, conf_whole(2)));
    DO(seam_begin(b, &comm));
    for (uint32_t i = 0; i < 9 * 9; i++) {
        uint64_t to = i / 9, from = i % 9, count = 1 + i * 5 % 40;
        DO(conf_fill(b, dst, 64, conf_whole(1)));
        OK(b, d->add_bf16(d->ctx, number_of(dst + to), number_of(src + from), count * SC_BF16_BYTES,
                          SEAM_EPOCH, number_of(stream)));
        OK(b, b->w->stream_wait(b, stream, conf_limit(b)));
        if (to > 0)
            DO(conf_holds(b, dst, to, conf_whole(1)));
        DO(conf_holds(b, dst + to, count, conf_whole(3)));
        DO(conf_holds(b, dst + to + count, 64 - to - count, conf_whole(1)));
    }
    return seam_end(b, comm);
}

// ---- captures ----------------------------------------------------------------------------------

// A graph that was destroyed may linger until the device has passed its last launch.
static bool await_held(struct bench *b, uint64_t comm, uint32_t wanted) {
    uint64_t end_ns = b->w->now_ns(b) + conf_limit(b);
    uint32_t held = wanted + 1;
    for (;;) {
        OK(b, b->d->captures_held(b->d->ctx, comm, &held));
        if (held == wanted)
            return true;
        if (b->w->now_ns(b) > end_ns)
            WRONG(b, "%u captures are held, expected %u", held, wanted);
        OK(b, b->w->pause(b, CONF_MS));
    }
}

static bool captures(struct bench *b) {
    const struct sc_device *d = b->d;
    uint64_t comm = 0, capture = 0, op = 0;
    uint32_t held = 77;
    uint16_t *buffer;
    void *stream, *graph;
    DO(conf_stream(b, &stream));
    DO(conf_buffer(b, COUNT, &buffer));
    DO(conf_fill(b, buffer, COUNT, conf_whole(1)));
    DO(seam_begin(b, &comm));
    OK(b, d->captures_held(d->ctx, comm, &held));
    EQUAL(b, held, 0);
    OK(b, b->w->capture_begin(b, stream));
    OK(b, d->capture_begin(d->ctx, number_of(stream), &capture));
    OK(b, d->all_reduce(d->ctx, comm, number_of(buffer), BYTES, number_of(stream)));
    IS(b, d->stream_check(d->ctx, number_of(stream)), SC_CAPTURE);
    OK(b, d->capture_end(d->ctx, capture));
    OK(b, b->w->capture_end(b, stream, &graph));
    OK(b, d->captures_held(d->ctx, comm, &held));
    EQUAL(b, held, 1);
    for (uint32_t i = 1, sum = 1; i <= 3; i++) {
        OK(b, d->replay_begin(d->ctx, capture, number_of(stream), SEAM_EPOCH, &op));
        OK(b, b->w->graph_launch(b, graph, capture, stream));
        OK(b, d->replay_end(d->ctx, op));
        DO(await_op(b, op, SC_OP_DONE));
        OK(b, d->op_release(d->ctx, op));
        DO(conf_holds(b, buffer, COUNT, conf_whole(sum *= b->ranks)));
    }
    OK(b, b->w->graph_destroy(b, graph));
    OK(b, d->capture_release(d->ctx, capture));
    DO(await_held(b, comm, 0));
    return seam_end(b, comm);
}

// While a stream is capturing, of this thread or of another, ops elsewhere are polled and begun.
static bool beside_a_capture(struct bench *b) {
    const struct sc_device *d = b->d;
    uint64_t capture = 0, op = 0, comm = 0;
    void *stream, *other, *graph;
    DO(conf_stream(b, &stream));
    DO(conf_stream(b, &other));
    DO(seam_begin(b, &comm));
    DO(marked(b, stream, 30 * CONF_MS, &op));
    OK(b, b->w->capture_begin(b, other));
    OK(b, d->capture_begin(d->ctx, number_of(other), &capture));
    DO(await_op(b, op, SC_OP_DONE));
    OK(b, d->op_release(d->ctx, op));
    OK(b, d->comm_error(d->ctx, comm));
    OK(b, d->fence_set(d->ctx, SEAM_EPOCH));
    OK(b, d->capture_end(d->ctx, capture));
    OK(b, b->w->capture_end(b, other, &graph));
    OK(b, b->w->graph_destroy(b, graph));
    OK(b, d->capture_release(d->ctx, capture));
    return seam_end(b, comm);
}

const struct conf_test conf_seam_ops[] = {
    {.name = "seam_op_is_enqueued_started_and_done", .run = states, .flags = CONF_SEAM},
    {.name = "seam_stream_waits_for_an_op_of_another", .run = across_streams, .flags = CONF_SEAM},
    {.name = "seam_group_is_one_launch_however_deep",
     .run = groups,
     .flags = CONF_SEAM,
     .ranks_min = 2},
    {.name = "seam_failed_group_enqueues_nothing_and_leaves_no_trace",
     .run = failed_group,
     .flags = CONF_SEAM | CONF_MISUSE,
     .ranks_min = 2,
     .ranks_max = 2},
    {.name = "seam_add_looks_at_the_fence_when_it_runs", .run = fence, .flags = CONF_SEAM},
    {.name = "seam_add_sums_any_count_at_any_place", .run = adds_exactly, .flags = CONF_SEAM},
    {.name = "seam_captures_hold_their_communicator", .run = captures, .flags = CONF_SEAM},
    {.name = "seam_ops_are_polled_beside_a_capture", .run = beside_a_capture, .flags = CONF_SEAM},
    {0},
};
