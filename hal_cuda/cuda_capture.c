// SPDX-License-Identifier: AGPL-3.0-only
//
// Captured graphs. The application captures its stream itself and tells when; a user object that the
// graph retains tells when the graph and everything made of it are gone, whatever the application
// says: NCCL's abort would hang on one that is left.
#include "hal_cuda/inside.h"

#include <stdatomic.h>
#include <stdlib.h>

struct sc_cuda_graph {
    _Atomic uint32_t holders; // the capture's slot, and the graph
    _Atomic bool lives;
};

static void let_go(struct sc_cuda_graph *graph) {
    if (atomic_fetch_sub(&graph->holders, 1) == 1)
        free(graph);
}

static void CUDA_CB graph_ends(void *arg) {
    struct sc_cuda_graph *graph = arg;
    atomic_store(&graph->lives, false);
    let_go(graph);
}

static struct sc_cuda_capture *find(struct sc_cuda *c, uint64_t handle) {
    for (uint32_t i = 0; handle != 0 && i < SC_CUDA_CAPTURES_MAX; i++)
        if (c->captures[i].handle == handle)
            return &c->captures[i];
    return NULL;
}

// Frees slots whose graphs have gone since they were released.
static struct sc_cuda_capture *take(struct sc_cuda *c) {
    struct sc_cuda_capture *free_slot = NULL;
    for (uint32_t i = 0; i < SC_CUDA_CAPTURES_MAX; i++) {
        struct sc_cuda_capture *slot = &c->captures[i];
        if (slot->handle == 0 && slot->graph != NULL && !atomic_load(&slot->graph->lives)) {
            let_go(slot->graph);
            slot->graph = NULL;
        }
        if (slot->handle == 0 && slot->graph == NULL)
            free_slot = slot;
    }
    return free_slot;
}

static sc_status watch_graph(struct sc_cuda *c, CUstream stream, struct sc_cuda_graph *graph) {
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    CUgraph made = NULL;
    CUuserObject object = NULL;
    sc_status status = sc_cuda_status(
        c, c->cu->cuStreamGetCaptureInfo_(stream, &capturing, NULL, &made, NULL, NULL, NULL));
    if (status != SC_OK)
        return status;
    if (capturing != CU_STREAM_CAPTURE_STATUS_ACTIVE || made == NULL)
        return SC_INVALID; // begin the stream's capture first
    status = sc_cuda_status(c, c->cu->cuUserObjectCreate_(&object, graph, graph_ends, 1,
                                                          CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    if (status != SC_OK)
        return status;
    atomic_fetch_add(&graph->holders, 1); // the object's, until its destructor
    atomic_store(&graph->lives, true);
    status = sc_cuda_status(
        c, c->cu->cuGraphRetainUserObject_(made, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    if (status != SC_OK)
        (void)c->cu->cuUserObjectRelease_(object, 1);
    return status;
}

sc_status sc_cuda_capture_begin(void *ctx, uint64_t stream, uint64_t *handle) {
    struct sc_cuda *c = ctx;
    struct sc_cuda_guard guard;
    struct sc_cuda_capture *slot = take(c);
    struct sc_cuda_graph *graph = slot != NULL ? calloc(1, sizeof *graph) : NULL;
    if (graph == NULL)
        return SC_NO_MEMORY;
    atomic_store(&graph->holders, 1);
    sc_cuda_enter(c, &guard);
    sc_status status = watch_graph(c, sc_cuda_stream(stream), graph);
    sc_cuda_leave(c, &guard);
    if (status != SC_OK) {
        let_go(graph);
        return status;
    }
    struct sc_cuda_capture made = {.handle = ++c->generation,
                                   .stream = sc_cuda_stream(stream),
                                   .comm = sc_cuda_comm_live(c),
                                   .open = true,
                                   .graph = graph};
    pthread_mutex_lock(&c->device->lock); // a replay looks for another one, beside this verb
    *slot = made;
    pthread_mutex_unlock(&c->device->lock);
    *handle = made.handle;
    return SC_OK;
}

sc_status sc_cuda_capture_end(void *ctx, uint64_t handle) {
    struct sc_cuda *c = ctx;
    struct sc_cuda_guard guard;
    struct sc_cuda_capture *slot = find(c, handle);
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    if (slot == NULL || !slot->open)
        return SC_INVALID;
    pthread_mutex_lock(&c->device->lock);
    slot->open = false;
    pthread_mutex_unlock(&c->device->lock);
    sc_cuda_enter(c, &guard);
    sc_status status = sc_cuda_status(c, c->cu->cuStreamIsCapturing_(slot->stream, &capturing));
    sc_cuda_leave(c, &guard);
    if (status != SC_OK)
        return status;
    return capturing == CU_STREAM_CAPTURE_STATUS_ACTIVE ? SC_OK : SC_CAPTURE; // it was invalidated
}

sc_status sc_cuda_capture_release(void *ctx, uint64_t handle) {
    struct sc_cuda *c = ctx;
    struct sc_cuda_capture *slot = find(c, handle);
    if (slot == NULL || slot->open)
        return SC_INVALID;
    pthread_mutex_lock(&c->device->lock);
    slot->handle = 0;
    pthread_mutex_unlock(&c->device->lock);
    (void)take(c);
    return SC_OK;
}

sc_status sc_cuda_captures_held(void *ctx, uint64_t comm, uint32_t *held) {
    struct sc_cuda *c = ctx;
    uint32_t count = 0;
    (void)take(c);
    for (uint32_t i = 0; i < SC_CUDA_CAPTURES_MAX; i++)
        count += (c->captures[i].handle != 0 || c->captures[i].graph != NULL) &&
                 c->captures[i].comm == comm;
    *held = count;
    return SC_OK;
}

sc_status sc_cuda_replay_begin(void *ctx, uint64_t handle, uint64_t stream, uint64_t epoch,
                               uint64_t *op) {
    struct sc_cuda *c = ctx;
    (void)epoch; // the sums in the graph were given theirs as they were captured
    pthread_mutex_lock(&c->device->lock);
    const struct sc_cuda_capture *slot = find(c, handle);
    bool replays = slot != NULL && !slot->open;
    pthread_mutex_unlock(&c->device->lock);
    return replays ? sc_cuda_op_begin_replay(c, stream, op) : SC_INVALID;
}

sc_status sc_cuda_replay_end(void *ctx, uint64_t op) {
    return sc_cuda_op_end_replay(ctx, op);
}

void sc_cuda_captures_close(struct sc_cuda *c) {
    for (uint32_t i = 0; i < SC_CUDA_CAPTURES_MAX; i++) {
        struct sc_cuda_graph *graph = c->captures[i].graph;
        c->captures[i] = (struct sc_cuda_capture){0};
        if (graph != NULL)
            let_go(graph); // the graph itself, if it lives, keeps the other hold
    }
}
