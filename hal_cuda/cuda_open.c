// SPDX-License-Identifier: AGPL-3.0-only
//
// A handle's world, and the table of its device.
#include "hal_cuda/inside.h"

#include <stdio.h>
#include <stdlib.h>

#define POLL_NS 20000u
#define LINE_BYTES 512u

void sc_cuda_context_in(struct sc_cuda *c, struct sc_cuda_guard *guard) {
    atomic_fetch_add(&c->device->visitors, 1);
    guard->before = NULL;
    (void)c->cu->cuCtxGetCurrent_(&guard->before);
    if (guard->before != c->device->context)
        (void)c->cu->cuCtxSetCurrent_(c->device->context);
    guard->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    (void)c->cu->cuThreadExchangeStreamCaptureMode_(&guard->mode);
    guard->inside = true;
}

void sc_cuda_context_out(struct sc_cuda *c, const struct sc_cuda_guard *guard) {
    CUstreamCaptureMode mode = guard->mode;
    (void)c->cu->cuThreadExchangeStreamCaptureMode_(&mode);
    if (guard->before != c->device->context)
        (void)c->cu->cuCtxSetCurrent_(guard->before);
    if (atomic_fetch_sub(&c->device->visitors, 1) == 1 && atomic_load(&c->device->awaited) != 0) {
        pthread_mutex_lock(&c->device->lock);
        pthread_cond_broadcast(&c->device->change);
        pthread_mutex_unlock(&c->device->lock);
    }
}

void sc_cuda_stay(struct sc_cuda *c) {
    if (c->stays++ != 0)
        return;
    sc_cuda_context_in(c, &c->stay);
    atomic_store_explicit(&c->stayer, pthread_self(), memory_order_relaxed);
}

void sc_cuda_stay_over(struct sc_cuda *c) {
    if (--c->stays != 0)
        return;
    atomic_store_explicit(&c->stayer, 0, memory_order_relaxed);
    sc_cuda_context_out(c, &c->stay);
}

sc_status sc_cuda_failure(struct sc_cuda *c, CUresult result) {
    sc_status status = sc_cuda_meaning(result);
    if (status == SC_CONTEXT_LOST)
        c->context_lost = true;
    return status;
}

static const struct sc_device table = {
    .size = sizeof table,
    .name = "cuda",
    .poll_ns = POLL_NS,
    .comm_id = sc_cuda_comm_id,
    .comm_create = sc_cuda_comm_create,
    .comm_poll = sc_cuda_comm_poll,
    .comm_error = sc_cuda_comm_error,
    .comm_abort = sc_cuda_comm_abort,
    .comm_abandon = sc_cuda_comm_abandon,
    .mem_alloc = sc_cuda_mem_alloc,
    .mem_free = sc_cuda_mem_free,
    .buf_register = sc_cuda_buf_register,
    .buf_deregister = sc_cuda_buf_deregister,
    .stream_check = sc_cuda_stream_check,
    .op_begin = sc_cuda_op_begin,
    .op_end = sc_cuda_op_end,
    .op_poll = sc_cuda_op_poll,
    .op_release = sc_cuda_op_release,
    .stream_wait = sc_cuda_stream_wait,
    .group_begin = sc_cuda_group_begin,
    .group_end = sc_cuda_group_end,
    .send = sc_cuda_send,
    .recv = sc_cuda_recv,
    .all_reduce = sc_cuda_all_reduce,
    .broadcast = sc_cuda_broadcast,
    .all_gather = sc_cuda_all_gather,
    .reduce_scatter = sc_cuda_reduce_scatter,
    .add_bf16 = sc_cuda_add_bf16,
    .fence_set = sc_cuda_fence_set,
    .stream_create = sc_cuda_stream_create,
    .stream_destroy = sc_cuda_stream_destroy,
    .capture_begin = sc_cuda_capture_begin,
    .capture_end = sc_cuda_capture_end,
    .capture_release = sc_cuda_capture_release,
    .captures_held = sc_cuda_captures_held,
    .replay_begin = sc_cuda_replay_begin,
    .replay_end = sc_cuda_replay_end,
    .ops_look = sc_cuda_ops_look,
};

// ---- opening ----

static void release(void *owner) {
    struct sc_cuda *c = owner;
    struct sc_cuda_guard guard;
    if (c->device != NULL) {
        sc_cuda_preload_await(c->device);
        sc_cuda_comms_close(c);
        if (!sc_cuda_watch_close(c))
            return; // kept with all that it may touch
        sc_cuda_enter(c, &guard);
        sc_cuda_captures_close(c);
        sc_cuda_ops_close(c);
        sc_cuda_leave(c, &guard);
        sc_cuda_device_let_go(c->device);
    }
    sc_posix_destroy(c->posix);
    free(c);
}

static sc_status open_world(struct sc_cuda *c, const struct sc_config *config, char *why,
                            size_t why_bytes) {
    struct sc_cuda_guard guard;
    sc_status status = sc_cuda_environment_check(why, why_bytes);
    if (status == SC_OK)
        status = sc_cuda_load(&c->cu, &c->nccl, why, why_bytes);
    if (status == SC_OK)
        status = sc_cuda_device_open(c->cu, config->device, config->capacity_bytes, &c->device, why,
                                     why_bytes);
    if (status != SC_OK)
        return status;
    sc_cuda_enter(c, &guard);
    status = sc_cuda_ops_open(c, config->ledger_ops);
    if (status == SC_OK)
        status = sc_cuda_status(c, sc_cuda_fence_write(c->device, 0));
    sc_cuda_leave(c, &guard);
    if (status == SC_OK)
        status = sc_posix_create(&c->posix);
    if (status == SC_OK && !sc_cuda_watch_open(c))
        status = SC_NO_MEMORY;
    if (status == SC_OK)
        sc_cuda_preload(c->device, c->nccl);
    return status;
}

static const char *how_found(const struct sc_cuda_origin *origin) {
    return origin->shared ? "shared with the program" : "loaded by spark_comm";
}

// What this rank runs on, in one line that another rank's can be held against; and what NCCL is told.
static void make_remarks(void *owner, sc_remark *remark, void *arg) {
    const struct sc_cuda *c = owner;
    const struct sc_cuda_driver *cu = c->cu;
    const int nccl = c->nccl->version;
    char name[64] = "unknown", address[16] = "unknown", line[LINE_BYTES];
    (void)cu->cuDeviceGetName_(name, (int)sizeof name, c->device->device);
    (void)cu->cuDeviceGetPCIBusId_(address, (int)sizeof address, c->device->device);
    snprintf(line, sizeof line, "GPU %s at %s; CUDA driver %d.%d, %s: %s; NCCL %d.%d.%d, %s: %s",
             name, address, cu->version / 1000, cu->version % 1000 / 10, how_found(&cu->origin),
             cu->origin.path, nccl / 10000, nccl / 100 % 100, nccl % 100,
             how_found(&c->nccl->origin), c->nccl->origin.path);
    remark(arg, SC_NOTE_ENVIRONMENT, line);
    sc_cuda_environment_remarks(remark, arg);
}

sc_status sc_cuda_choose(const struct sc_config *config, struct sc_world *out, char *why,
                         size_t why_bytes) {
    struct sc_cuda *c = calloc(1, sizeof *c);
    if (c == NULL)
        return SC_NO_MEMORY;
    sc_status status = open_world(c, config, why, why_bytes);
    if (status != SC_OK) {
        release(c);
        return status;
    }
    c->table = table;
    c->table.ctx = c;
    *out = (struct sc_world){
        .host = sc_posix_host(c->posix),
        .link = sc_posix_link(c->posix),
        .device = &c->table,
        .library = (uint32_t)c->nccl->version,
        .environment = true,
        .remarks = make_remarks,
        .release = release,
        .owner = c,
    };
    return SC_OK;
}
