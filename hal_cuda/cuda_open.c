// SPDX-License-Identifier: AGPL-3.0-only
//
// A device: its primary context, the kernels, the fence's word, and the table.
#include "hal_cuda/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POLL_NS 20000u
#define BLOCKS_AN_SM 8u // of the sum: as many as are resident at once

void sc_cuda_enter(struct sc_cuda *c, struct sc_cuda_guard *guard) {
    guard->before = NULL;
    guard->relaxed = false;
    (void)c->cu->cuCtxGetCurrent_(&guard->before);
    guard->changed = guard->before != c->context;
    if (guard->changed)
        (void)c->cu->cuCtxSetCurrent_(c->context);
}

void sc_cuda_enter_polling(struct sc_cuda *c, struct sc_cuda_guard *guard) {
    sc_cuda_enter(c, guard);
    guard->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    guard->relaxed = c->cu->cuThreadExchangeStreamCaptureMode_(&guard->mode) == CUDA_SUCCESS;
}

void sc_cuda_leave(struct sc_cuda *c, const struct sc_cuda_guard *guard) {
    CUstreamCaptureMode mode = guard->mode;
    if (guard->relaxed)
        (void)c->cu->cuThreadExchangeStreamCaptureMode_(&mode);
    if (guard->changed)
        (void)c->cu->cuCtxSetCurrent_(guard->before);
}

// Errors that a context does not recover from.
static bool is_sticky(CUresult result) {
    switch (result) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_DEINITIALIZED: return true;
    default: return false;
    }
}

sc_status sc_cuda_status(struct sc_cuda *c, CUresult result) {
    if (result == CUDA_SUCCESS)
        return SC_OK;
    if (is_sticky(result)) {
        c->context_lost = true;
        return SC_CONTEXT_LOST;
    }
    switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY: return SC_NO_MEMORY;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE: return SC_INVALID;
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
    case CUDA_ERROR_STREAM_CAPTURE_ISOLATION:
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
    case CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD: return SC_CAPTURE;
    default: return SC_DEVICE_ERROR;
    }
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
};

// ---- opening ----

static sc_status fail(struct sc_cuda *c, const char *what, CUresult result, char *why,
                      size_t why_bytes) {
    const char *name = "unknown", *text = "";
    (void)c->cu->cuGetErrorName_(result, &name);
    (void)c->cu->cuGetErrorString_(result, &text);
    snprintf(why, why_bytes, "%s: %s (%s)", what, name, text);
    return sc_cuda_status(c, result);
}

static sc_status find_device(struct sc_cuda *c, int32_t index, char *why, size_t why_bytes) {
    int count = 0;
    CUresult result = c->cu->cuDeviceGetCount_(&count);
    if (result != CUDA_SUCCESS)
        return fail(c, "cuDeviceGetCount", result, why, why_bytes);
    if (index < 0 || index >= count) {
        snprintf(why, why_bytes, "config: device is %d, and there are %d GPUs, from 0", index,
                 count);
        return SC_UNAVAILABLE;
    }
    result = c->cu->cuDeviceGet_(&c->device, index);
    if (result == CUDA_SUCCESS)
        result = c->cu->cuDevicePrimaryCtxRetain_(&c->context, c->device);
    return result == CUDA_SUCCESS ? SC_OK
                                  : fail(c, "the GPU's primary context", result, why, why_bytes);
}

// Inside the context.
static sc_status load_kernels(struct sc_cuda *c, char *why, size_t why_bytes) {
    int processors = 1;
    CUresult result = c->cu->cuModuleLoadData_(&c->module, sc_cuda_fatbin);
    if (result == CUDA_SUCCESS)
        result = c->cu->cuModuleGetFunction_(&c->add, c->module, "sc_add_bf16");
    if (result == CUDA_SUCCESS)
        result = c->cu->cuDeviceGetAttribute_(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                              c->device);
    c->add_blocks = (uint32_t)processors * BLOCKS_AN_SM;
    return result == CUDA_SUCCESS ? SC_OK : fail(c, "kernels for this GPU", result, why, why_bytes);
}

static sc_status take_memory(struct sc_cuda *c, char *why, size_t why_bytes) {
    void *source = NULL;
    CUresult result = c->cu->cuMemAlloc_(&c->fence, sizeof(uint64_t));
    if (result == CUDA_SUCCESS)
        result = c->cu->cuMemHostAlloc_(&source, sizeof(uint64_t), 0);
    c->fence_source = source;
    if (result == CUDA_SUCCESS)
        result = c->cu->cuStreamCreateWithPriority_(&c->side, CU_STREAM_NON_BLOCKING, 0);
    if (result != CUDA_SUCCESS)
        return fail(c, "memory and stream of the fence", result, why, why_bytes);
    return sc_cuda_fence_set(c, 0);
}

static void close_device(struct sc_cuda *c) {
    struct sc_cuda_guard guard;
    if (c->context != NULL) {
        bool last = sc_cuda_comms_close(c);
        sc_cuda_enter_polling(c, &guard);
        sc_cuda_captures_close(c);
        sc_cuda_ops_close(c);
        if (c->side != NULL)
            (void)c->cu->cuStreamDestroy_(c->side);
        if (c->fence_source != NULL)
            (void)c->cu->cuMemFreeHost_(c->fence_source);
        if (c->fence != 0 && last) // else a kernel may still look at it
            (void)c->cu->cuMemFree_(c->fence);
        if (c->module != NULL && last)
            (void)c->cu->cuModuleUnload_(c->module);
        sc_cuda_leave(c, &guard);
        if (last) // else the context must outlive a worker that is left behind
            (void)c->cu->cuDevicePrimaryCtxRelease_(c->device);
    }
    sc_posix_destroy(c->posix);
    free(c);
}

static void release(void *owner) {
    close_device(owner);
}

static sc_status open_device(struct sc_cuda *c, const struct sc_config *config, char *why,
                             size_t why_bytes) {
    struct sc_cuda_guard guard;
    sc_status status = sc_cuda_load(&c->cu, &c->nccl, why, why_bytes);
    if (status == SC_OK)
        status = find_device(c, config->device, why, why_bytes);
    if (status != SC_OK)
        return status;
    sc_cuda_enter_polling(c, &guard);
    status = load_kernels(c, why, why_bytes);
    if (status == SC_OK)
        status = take_memory(c, why, why_bytes);
    if (status == SC_OK)
        status = sc_cuda_ops_open(c, config->ledger_ops);
    sc_cuda_leave(c, &guard);
    if (status == SC_OK)
        status = sc_posix_create(&c->posix);
    return status;
}

sc_status sc_cuda_choose(const struct sc_config *config, struct sc_world *out, char *why,
                         size_t why_bytes) {
    struct sc_cuda *c = calloc(1, sizeof *c);
    if (c == NULL)
        return SC_NO_MEMORY;
    sc_status status = open_device(c, config, why, why_bytes);
    if (status != SC_OK) {
        close_device(c);
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
        .release = release,
        .owner = c,
    };
    return SC_OK;
}
