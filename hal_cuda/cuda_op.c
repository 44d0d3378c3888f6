// SPDX-License-Identifier: AGPL-3.0-only
//
// Events around ops, and streams. An op's two events come from a pool that only grows; they tell
// where a stream stands without anybody waiting for it.
#include "hal_cuda/inside.h"

#include <stdlib.h>

#define INDEX_BITS 17
#define OPS_MAX (1u << INDEX_BITS) // the largest ledger, twice
#define POOL_STEP 256u

static struct sc_cuda_op *op_of(struct sc_cuda *c, uint64_t handle) {
    uint32_t index = (uint32_t)(handle & (OPS_MAX - 1));
    if (handle == 0)
        return NULL;
    struct sc_cuda_op *op = &c->ops[index];
    return op->in_use && op->generation == (uint32_t)(handle >> INDEX_BITS) ? op : NULL;
}

static uint64_t handle_of(const struct sc_cuda *c, const struct sc_cuda_op *op) {
    return (uint64_t)op->generation << INDEX_BITS | (uint64_t)(op - c->ops);
}

static sc_status grow(struct sc_cuda *c) {
    if (c->ops_count + POOL_STEP > OPS_MAX)
        return SC_NO_MEMORY;
    for (uint32_t i = 0; i < POOL_STEP; i++) {
        struct sc_cuda_op *op = &c->ops[c->ops_count];
        *op = (struct sc_cuda_op){.generation = 1};
        sc_status status =
            sc_cuda_status(c, c->cu->cuEventCreate_(&op->start, CU_EVENT_DISABLE_TIMING));
        if (status == SC_OK)
            status = sc_cuda_status(c, c->cu->cuEventCreate_(&op->end, CU_EVENT_DISABLE_TIMING));
        if (status != SC_OK)
            return c->ops_free != 0 ? SC_OK : status;
        op->next_free = c->ops_free;
        c->ops_free = ++c->ops_count;
    }
    return SC_OK;
}

sc_status sc_cuda_ops_open(struct sc_cuda *c, uint32_t count) {
    c->ops = calloc(OPS_MAX, sizeof *c->ops); // touched as far as they are made
    sc_status status = c->ops != NULL ? SC_OK : SC_NO_MEMORY;
    while (status == SC_OK && c->ops_count < count)
        status = grow(c);
    return status;
}

void sc_cuda_ops_close(struct sc_cuda *c) {
    for (uint32_t i = 0; i < c->ops_count; i++) {
        (void)c->cu->cuEventDestroy_(c->ops[i].start);
        (void)c->cu->cuEventDestroy_(c->ops[i].end);
    }
    free(c->ops);
}

static sc_status take(struct sc_cuda *c, struct sc_cuda_op **out) {
    if (c->ops_free == 0) {
        pthread_mutex_lock(&c->device->lock);
        c->ops_free = c->ops_returned;
        c->ops_returned = 0;
        pthread_mutex_unlock(&c->device->lock);
    }
    if (c->ops_free == 0) {
        sc_status status = grow(c);
        if (status != SC_OK)
            return status;
    }
    struct sc_cuda_op *op = &c->ops[c->ops_free - 1];
    c->ops_free = op->next_free;
    op->in_use = true;
    op->ended = op->failed = op->started = false;
    op->answer = SC_OK;
    op->line = NULL;
    *out = op;
    return SC_OK;
}

static void put(struct sc_cuda *c, struct sc_cuda_op *op) {
    op->in_use = false;
    sc_cuda_watch_forget(c, op);
}

sc_status sc_cuda_stream_check(void *ctx, uint64_t stream) {
    struct sc_cuda *c = ctx;
    struct sc_cuda_guard guard = {0};
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    CUstream on = sc_cuda_stream(stream);
    bool default_stream = on == CU_STREAM_LEGACY || on == CU_STREAM_PER_THREAD;
    if (default_stream) // which are those of the thread's context
        sc_cuda_enter(c, &guard);
    sc_status status = sc_cuda_status(c, c->cu->cuStreamIsCapturing_(on, &capturing));
    if (default_stream)
        sc_cuda_leave(c, &guard);
    return status == SC_OK && capturing != CU_STREAM_CAPTURE_STATUS_NONE ? SC_CAPTURE : status;
}

static sc_status begin(struct sc_cuda *c, CUstream stream, uint64_t *handle) {
    struct sc_cuda_op *op = NULL;
    sc_status status = take(c, &op);
    if (status != SC_OK)
        return status;
    op->stream = stream;
    status = sc_cuda_status(c, c->cu->cuEventRecord_(op->start, stream));
    if (status != SC_OK) {
        put(c, op);
        return status;
    }
    *handle = handle_of(c, op);
    return SC_OK;
}

sc_status sc_cuda_op_begin(void *ctx, uint64_t stream, uint64_t *handle) {
    struct sc_cuda *c = ctx;
    if (c->context_lost)
        return SC_CONTEXT_LOST;
    sc_cuda_stay(c);
    sc_status status = begin(c, sc_cuda_stream(stream), handle);
    if (status != SC_OK)
        sc_cuda_stay_over(c);
    return status;
}

// The application launches its graph in between, in a context of its own.
sc_status sc_cuda_op_begin_replay(struct sc_cuda *c, uint64_t stream, uint64_t *handle) {
    sc_status status = sc_cuda_op_begin(c, stream, handle);
    if (status == SC_OK)
        sc_cuda_stay_over(c);
    return status;
}

static sc_status end(struct sc_cuda *c, struct sc_cuda_op *op) {
    op->ended = true;
    sc_status status = sc_cuda_status(c, c->cu->cuEventRecord_(op->end, op->stream));
    op->failed = status != SC_OK || !sc_cuda_watch_add(c, op);
    return status;
}

sc_status sc_cuda_op_end(void *ctx, uint64_t handle) {
    struct sc_cuda *c = ctx;
    struct sc_cuda_op *op = op_of(c, handle);
    if (op == NULL || op->ended)
        return SC_INVALID;
    sc_status status = end(c, op);
    sc_cuda_stay_over(c);
    return status;
}

sc_status sc_cuda_op_end_replay(struct sc_cuda *c, uint64_t handle) {
    struct sc_cuda_op *op = op_of(c, handle);
    struct sc_cuda_guard guard;
    if (op == NULL || op->ended)
        return SC_INVALID;
    sc_cuda_enter(c, &guard);
    sc_status status = end(c, op);
    sc_cuda_leave(c, &guard);
    return status;
}

sc_status sc_cuda_op_poll(void *ctx, uint64_t handle, enum sc_op_state *state) {
    struct sc_cuda *c = ctx;
    const struct sc_cuda_op *op = op_of(c, handle);
    if (op == NULL || !op->ended)
        return SC_INVALID;
    if (c->context_lost)
        return SC_CONTEXT_LOST;
    if (op->failed) {
        *state = SC_OP_FAILED;
        return SC_OK;
    }
    enum sc_op_state known;
    sc_status status = sc_cuda_watch_ask(c, op, &known);
    if (status == SC_CONTEXT_LOST)
        c->context_lost = true;
    if (status == SC_OK)
        *state = known;
    return status;
}

sc_status sc_cuda_op_release(void *ctx, uint64_t handle) {
    struct sc_cuda *c = ctx;
    struct sc_cuda_op *op = op_of(c, handle);
    if (op == NULL || !op->ended)
        return SC_INVALID;
    put(c, op);
    return SC_OK;
}

sc_status sc_cuda_stream_wait(void *ctx, uint64_t stream, uint64_t handle) {
    struct sc_cuda *c = ctx;
    struct sc_cuda_op *op = op_of(c, handle);
    struct sc_cuda_guard guard;
    if (op == NULL || !op->ended)
        return SC_INVALID;
    sc_cuda_enter(c, &guard);
    sc_status status =
        sc_cuda_status(c, c->cu->cuStreamWaitEvent_(sc_cuda_stream(stream), op->end, 0));
    sc_cuda_leave(c, &guard);
    return status;
}

sc_status sc_cuda_stream_create(void *ctx, uint64_t *stream) {
    struct sc_cuda *c = ctx;
    struct sc_cuda_guard guard;
    CUstream made = NULL;
    int lowest = 0, highest = 0;
    sc_cuda_enter(c, &guard);
    (void)c->cu->cuCtxGetStreamPriorityRange_(&lowest, &highest);
    sc_status status = sc_cuda_status(
        c, c->cu->cuStreamCreateWithPriority_(&made, CU_STREAM_NON_BLOCKING, highest));
    sc_cuda_leave(c, &guard);
    if (status == SC_OK)
        *stream = (uint64_t)(uintptr_t)made;
    return status;
}

sc_status sc_cuda_stream_destroy(void *ctx, uint64_t stream) {
    struct sc_cuda *c = ctx;
    struct sc_cuda_guard guard;
    if (stream == 0)
        return SC_INVALID;
    sc_cuda_enter(c, &guard);
    sc_status status = sc_cuda_status(c, c->cu->cuStreamDestroy_(sc_cuda_stream(stream)));
    sc_cuda_leave(c, &guard);
    return status;
}
