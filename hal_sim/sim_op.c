// SPDX-License-Identifier: AGPL-3.0-only
//
// Ops: the marks of a start and an end on a stream. A released op lives on for as long as a stream
// still holds one of its marks.
#include "hal_sim/sim_gpu.h"

static struct sc_sim_op *op_of(struct sc_sim_process *process, const char *verb, uint64_t handle) {
    struct sc_sim_op *op = sc_sim_pool_find(process->sim, SC_SIM_OP, handle);

    if (op != NULL && op->object.owner == process)
        return op;
    sc_sim_breach(process, "%s: unknown op %#llx", verb, (unsigned long long)handle);
    return NULL;
}

static void mark(struct sc_sim_stream *stream, enum sc_sim_item_kind kind, struct sc_sim_op *op) {
    struct sc_sim_item item = {.kind = kind};

    op->references++;
    item.op = op;
    sc_sim_stream_push(stream, &item);
}

static void permit(struct sc_sim_stream *stream, uint64_t epoch) {
    struct sc_sim_item item = {.kind = SC_SIM_ITEM_PERMIT};

    item.permit = epoch;
    sc_sim_stream_push(stream, &item);
}

void sc_sim_op_drop(struct sc_sim *sim, struct sc_sim_op *op) {
    if (--op->references == 0)
        sc_sim_pool_put(sim, SC_SIM_OP, &op->object);
}

void sc_sim_op_started(struct sc_sim_op *op) {
    struct sc_sim_process *process = op->object.owner;

    op->started = true;
    sc_sim_wake(process);
    sc_sim_op_drop(process->sim, op);
}

static void becomes_visible(struct sc_sim *sim, uint64_t handle, uint64_t unused) {
    struct sc_sim_op *op = sc_sim_pool_find(sim, SC_SIM_OP, handle);

    (void)unused;
    if (op == NULL)
        return;
    op->visible = true;
    sc_sim_wake(op->object.owner);
}

void sc_sim_op_done(struct sc_sim_op *op) {
    struct sc_sim_process *process = op->object.owner;
    struct sc_sim *sim = process->sim;
    struct sc_sim_stream *waiter = op->waiters;

    op->done = true;
    op->waiters = NULL;
    if (process->armed.op_late_ns == 0) {
        op->visible = true;
        sc_sim_wake(process);
    } else {
        sc_sim_push(sim, sc_sim_later(sim->now_ns, process->armed.op_late_ns), becomes_visible,
                    op->object.handle, 0);
        process->armed.op_late_ns = 0;
    }
    sc_sim_op_drop(sim, op);
    while (waiter != NULL) {
        struct sc_sim_stream *next = waiter->next_waiter;
        sc_sim_stream_run(waiter);
        waiter = next;
    }
}

// ---- verbs ------------------------------------------------------------------------------------

static struct sc_sim_op *op_create(struct sc_sim_process *process, struct sc_sim_stream *stream) {
    struct sc_sim_op *made = sc_sim_pool_take(process->sim, SC_SIM_OP, process);

    *made = (struct sc_sim_op){
        .object = made->object,
        .stream = stream->object.handle,
        .references = 1,
    };
    process->held.ops++;
    mark(stream, SC_SIM_ITEM_OP_START, made);
    return made;
}

sc_status sc_sim_verb_stream_check(void *ctx, uint64_t handle) {
    struct sc_sim_process *process = ctx;
    sc_status status = sc_sim_enter(process, SC_VERB_stream_check);

    if (status != SC_OK)
        return status;
    const struct sc_sim_stream *stream = sc_sim_stream_of(process, "stream_check", handle);
    if (stream == NULL)
        return SC_INVALID;
    return stream->capture != 0 ? SC_CAPTURE : SC_OK;
}

sc_status sc_sim_verb_op_begin(void *ctx, uint64_t handle, uint64_t *op) {
    struct sc_sim_process *process = ctx;
    sc_status status = sc_sim_enter(process, SC_VERB_op_begin);

    if (status != SC_OK)
        return status;
    if (process->group_depth != 0)
        return sc_sim_breach(process, "op_begin: a group is open, %u deep", process->group_depth);
    struct sc_sim_stream *stream = sc_sim_stream_of(process, "op_begin", handle);
    if (stream == NULL)
        return SC_INVALID;
    if (stream->capture != 0)
        return SC_CAPTURE;
    *op = op_create(process, stream)->object.handle;
    sc_sim_stream_run(stream);
    return SC_OK;
}

// Marks the end on the op's stream; a permit ends with the replay that brought it.
static sc_status op_finish(struct sc_sim_process *process, struct sc_sim_op *op) {
    struct sc_sim_stream *stream = sc_sim_pool_find(process->sim, SC_SIM_STREAM, op->stream);

    op->ended = true;
    if (stream == NULL || stream->destroyed) {
        op->failed = true;
        return sc_sim_breach(process, "op_end: the op's stream %#llx is destroyed",
                             (unsigned long long)op->stream);
    }
    if (op->replay)
        permit(stream, 0);
    mark(stream, SC_SIM_ITEM_OP_END, op);
    sc_sim_stream_run(stream);
    return SC_OK;
}

// An end that cannot be marked still ends the op: it counts as failed and may be released.
static sc_status end_verb(struct sc_sim_process *process, enum sc_device_verb verb,
                          uint64_t handle) {
    bool replay = verb == SC_VERB_replay_end;
    sc_status status = sc_sim_enter(process, verb);

    if (status == SC_CLOSED || process->context_lost)
        return status;
    struct sc_sim_op *op = op_of(process, sc_sim_verb_name(verb), handle);
    if (op == NULL)
        return SC_INVALID;
    if (op->ended || op->replay != replay)
        return sc_sim_breach(process, "%s: op %#llx has ended or was begun otherwise",
                             sc_sim_verb_name(verb), (unsigned long long)handle);
    if (status == SC_OK)
        return op_finish(process, op);
    op->ended = true;
    op->failed = true;
    return status;
}

sc_status sc_sim_verb_op_end(void *ctx, uint64_t op) {
    return end_verb(ctx, SC_VERB_op_end, op);
}

sc_status sc_sim_verb_op_poll(void *ctx, uint64_t handle, enum sc_op_state *state) {
    struct sc_sim_process *process = ctx;
    sc_status status = sc_sim_enter(process, SC_VERB_op_poll);

    if (status != SC_OK)
        return status;
    const struct sc_sim_op *op = op_of(process, "op_poll", handle);
    if (op == NULL)
        return SC_INVALID;
    if (op->failed)
        *state = SC_OP_FAILED;
    else if (op->visible)
        *state = SC_OP_DONE;
    else
        *state = op->started ? SC_OP_STARTED : SC_OP_ENQUEUED;
    return SC_OK;
}

sc_status sc_sim_verb_op_release(void *ctx, uint64_t handle) {
    struct sc_sim_process *process = ctx;
    sc_status status = sc_sim_enter(process, SC_VERB_op_release);

    if (status != SC_OK)
        return status;
    struct sc_sim_op *op = op_of(process, "op_release", handle);
    if (op == NULL)
        return SC_INVALID;
    if (!op->ended)
        return sc_sim_breach(process, "op_release: op %#llx has not ended",
                             (unsigned long long)handle);
    process->held.ops--;
    sc_sim_pool_retire(&op->object);
    sc_sim_op_drop(process->sim, op);
    return SC_OK;
}

sc_status sc_sim_verb_stream_wait(void *ctx, uint64_t handle, uint64_t op_handle) {
    struct sc_sim_process *process = ctx;
    sc_status status = sc_sim_enter(process, SC_VERB_stream_wait);

    if (status != SC_OK)
        return status;
    struct sc_sim_stream *stream = sc_sim_stream_of(process, "stream_wait", handle);
    struct sc_sim_op *op = op_of(process, "stream_wait", op_handle);
    if (stream == NULL || op == NULL)
        return SC_INVALID;
    if (stream->capture != 0)
        return SC_CAPTURE;
    if (!op->ended)
        return sc_sim_breach(process, "stream_wait: op %#llx has not ended",
                             (unsigned long long)op_handle);
    if (op->done || op->failed)
        return SC_OK; // there is nothing, or nothing any more, to wait for
    mark(stream, SC_SIM_ITEM_OP_WAIT, op);
    sc_sim_stream_run(stream);
    return SC_OK;
}

sc_status sc_sim_verb_replay_begin(void *ctx, uint64_t capture_handle, uint64_t handle,
                                   uint64_t epoch, uint64_t *op) {
    struct sc_sim_process *process = ctx;
    sc_status status = sc_sim_enter(process, SC_VERB_replay_begin);

    if (status != SC_OK)
        return status;
    const struct sc_sim_capture *capture =
        sc_sim_capture_of(process, "replay_begin", capture_handle);
    struct sc_sim_stream *stream = sc_sim_stream_of(process, "replay_begin", handle);
    if (capture == NULL || stream == NULL)
        return SC_INVALID;
    if (stream->capture != 0)
        return SC_CAPTURE;
    if (!capture->ended)
        return sc_sim_breach(process, "replay_begin: capture %#llx has not ended",
                             (unsigned long long)capture_handle);
    struct sc_sim_op *made = op_create(process, stream);
    made->replay = true;
    permit(stream, epoch);
    *op = made->object.handle;
    sc_sim_stream_run(stream);
    return SC_OK;
}

sc_status sc_sim_verb_replay_end(void *ctx, uint64_t op) {
    return end_verb(ctx, SC_VERB_replay_end, op);
}
