// SPDX-License-Identifier: AGPL-3.0-only
//
// NCCL's calls, bare.
#include "hal_cuda/bench/sc_raw.h"

#include "hal_cuda/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS 256u

_Static_assert(sizeof(ncclUniqueId) == SC_RAW_ID_BYTES, "an id is NCCL's");

struct sc_raw {
    const struct sc_cuda_driver *cu;
    const struct sc_cuda_nccl *nccl;
    struct sc_cuda_device *device;
    uint32_t rank, world;
    ncclComm_t comm;
    CUdeviceptr buffer, receive;
    void *window_memory; // NCCL's
    bool has_window;
#if NCCL_VERSION_CODE >= 22700
    ncclWindow_t window;
#endif
    CUevent events[EVENTS]; // used in turn
    uint32_t next_event;
    char error[256];
};

static sc_status nccl_answer(struct sc_raw *raw, const char *what, ncclResult_t result) {
    if (result == ncclSuccess)
        return SC_OK;
    snprintf(raw->error, sizeof raw->error, "%s: %s (%s)", what,
             raw->nccl->ncclGetErrorString_(result), raw->nccl->ncclGetLastError_(NULL));
    return sc_cuda_nccl_status(result);
}

static sc_status cuda_answer(struct sc_raw *raw, const char *what, CUresult result) {
    const char *name = "unknown";
    if (result == CUDA_SUCCESS)
        return SC_OK;
    (void)raw->cu->cuGetErrorName_(result, &name);
    snprintf(raw->error, sizeof raw->error, "%s: %s", what, name);
    return sc_cuda_meaning(result);
}

// ---- opening ----

sc_status sc_raw_id(unsigned char id[SC_RAW_ID_BYTES], char *why, size_t why_bytes) {
    struct sc_raw raw = {0};
    ncclUniqueId made;
    sc_status status = sc_cuda_load(&raw.cu, &raw.nccl, why, why_bytes);
    if (status != SC_OK)
        return status;
    status = nccl_answer(&raw, "ncclGetUniqueId", raw.nccl->ncclGetUniqueId_(&made));
    snprintf(why, why_bytes, "%s", raw.error);
    memcpy(id, &made, SC_RAW_ID_BYTES);
    return status;
}

// A window that cannot be had is no error: that way is missing then.
#if NCCL_VERSION_CODE >= 22700
static void open_window(struct sc_raw *raw, uint64_t bytes) {
    const struct sc_cuda_nccl *n = raw->nccl;
    if (n->ncclMemAlloc_ == NULL || n->ncclMemFree_ == NULL || n->ncclCommWindowRegister_ == NULL ||
        n->ncclCommWindowDeregister_ == NULL)
        return;
    if (n->ncclMemAlloc_(&raw->window_memory, bytes) != ncclSuccess) {
        raw->window_memory = NULL;
        return;
    }
    raw->has_window = n->ncclCommWindowRegister_(raw->comm, raw->window_memory, bytes, &raw->window,
                                                 NCCL_WIN_COLL_SYMMETRIC) == ncclSuccess &&
                      raw->window != NULL;
}

static void close_window(struct sc_raw *raw) {
    if (raw->has_window)
        (void)raw->nccl->ncclCommWindowDeregister_(raw->comm, raw->window);
}

static void free_window(struct sc_raw *raw) {
    if (raw->window_memory != NULL)
        (void)raw->nccl->ncclMemFree_(raw->window_memory);
}
#else
static void open_window(struct sc_raw *raw, uint64_t bytes) {
    (void)raw, (void)bytes;
}

static void close_window(struct sc_raw *raw) {
    (void)raw;
}

static void free_window(struct sc_raw *raw) {
    (void)raw;
}
#endif

static sc_status open_memory(struct sc_raw *raw, uint64_t bytes) {
    sc_status status = cuda_answer(raw, "cuMemAlloc", raw->cu->cuMemAlloc_(&raw->buffer, bytes));
    if (status == SC_OK)
        status = cuda_answer(raw, "cuMemAlloc", raw->cu->cuMemAlloc_(&raw->receive, bytes));
    for (uint32_t i = 0; i < EVENTS && status == SC_OK; i++)
        status = cuda_answer(raw, "cuEventCreate",
                             raw->cu->cuEventCreate_(&raw->events[i], CU_EVENT_DISABLE_TIMING));
    if (status == SC_OK) // the add is let through by a fence of 0
        status = cuda_answer(
            raw, "cuMemsetD8Async",
            raw->cu->cuMemsetD8Async_(raw->device->fence, 0, sizeof(uint64_t), CU_STREAM_LEGACY));
    return status;
}

static sc_status open_comm(struct sc_raw *raw, const unsigned char *id_bytes) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    config.blocking = 1;
    memcpy(&id, id_bytes, sizeof id);
    return nccl_answer(raw, "ncclCommInitRankConfig",
                       raw->nccl->ncclCommInitRankConfig_(&raw->comm, (int)raw->world, id,
                                                          (int)raw->rank, &config));
}

sc_status sc_raw_open(int32_t device, uint32_t rank, uint32_t world,
                      const unsigned char id[SC_RAW_ID_BYTES], uint64_t max_bytes,
                      struct sc_raw **out, char *why, size_t why_bytes) {
    struct sc_raw *raw = calloc(1, sizeof *raw);
    if (raw == NULL) {
        snprintf(why, why_bytes, "no memory");
        return SC_NO_MEMORY;
    }
    raw->rank = rank;
    raw->world = world;
    sc_status status = sc_cuda_load(&raw->cu, &raw->nccl, raw->error, sizeof raw->error);
    if (status == SC_OK)
        status = sc_cuda_device_open(raw->cu, device, max_bytes, &raw->device, raw->error,
                                     sizeof raw->error);
    if (status == SC_OK)
        status = open_memory(raw, max_bytes);
    if (status == SC_OK)
        status = open_comm(raw, id);
    if (status == SC_OK) {
        open_window(raw, max_bytes);
        *out = raw;
        return SC_OK;
    }
    snprintf(why, why_bytes, "%s", raw->error);
    sc_raw_close(raw);
    return status;
}

void sc_raw_close(struct sc_raw *raw) {
    if (raw == NULL)
        return;
    if (raw->comm != NULL) {
        close_window(raw);
        (void)raw->nccl->ncclCommAbort_(raw->comm);
    }
    free_window(raw);
    for (uint32_t i = 0; i < EVENTS; i++)
        if (raw->events[i] != NULL)
            (void)raw->cu->cuEventDestroy_(raw->events[i]);
    if (raw->receive != 0)
        (void)raw->cu->cuMemFree_(raw->receive);
    if (raw->buffer != 0)
        (void)raw->cu->cuMemFree_(raw->buffer);
    if (raw->device != NULL)
        sc_cuda_device_let_go(raw->device);
    free(raw);
}

const char *sc_raw_error(const struct sc_raw *raw) {
    return raw->error;
}

// ---- the ways ----

bool sc_raw_has(const struct sc_raw *raw, enum sc_raw_way way) {
    return way == SC_RAW_ALL_REDUCE || (way == SC_RAW_PAIR && raw->world == 2) ||
           (way == SC_RAW_WINDOW && raw->has_window);
}

void *sc_raw_buffer(const struct sc_raw *raw, enum sc_raw_way way) {
    return way == SC_RAW_WINDOW ? raw->window_memory : (void *)(uintptr_t)raw->buffer;
}

static sc_status pair(struct sc_raw *raw, uint64_t bytes, CUstream stream) {
    const struct sc_cuda_nccl *n = raw->nccl;
    int peer = 1 - (int)raw->rank;
    ncclResult_t result = n->ncclGroupStart_();
    if (result == ncclSuccess) {
        result = n->ncclSend_((void *)(uintptr_t)raw->buffer, bytes / SC_BF16_BYTES, ncclBfloat16,
                              peer, raw->comm, (cudaStream_t)stream);
        if (result == ncclSuccess)
            result = n->ncclRecv_((void *)(uintptr_t)raw->receive, bytes / SC_BF16_BYTES,
                                  ncclBfloat16, peer, raw->comm, (cudaStream_t)stream);
        ncclResult_t ended = n->ncclGroupEnd_();
        result = result != ncclSuccess ? result : ended;
    }
    if (result != ncclSuccess)
        return nccl_answer(raw, "ncclSend and ncclRecv", result);
    return cuda_answer(
        raw, "the add",
        sc_cuda_launch_add(raw->device, raw->buffer, raw->receive, bytes, 0, stream));
}

static sc_status sum(struct sc_raw *raw, enum sc_raw_way way, uint64_t bytes, CUstream stream) {
    void *buffer = sc_raw_buffer(raw, way);
    if (way == SC_RAW_PAIR)
        return pair(raw, bytes, stream);
    return nccl_answer(raw, "ncclAllReduce",
                       raw->nccl->ncclAllReduce_(buffer, buffer, bytes / SC_BF16_BYTES,
                                                 ncclBfloat16, ncclSum, raw->comm,
                                                 (cudaStream_t)stream));
}

sc_status sc_raw_sum(struct sc_raw *raw, enum sc_raw_way way, uint64_t bytes, void *stream) {
    return sum(raw, way, bytes, sc_cuda_stream((uint64_t)(uintptr_t)stream));
}

static CUresult mark(struct sc_raw *raw, CUstream stream) {
    return raw->cu->cuEventRecord_(raw->events[raw->next_event++ % EVENTS], stream);
}

sc_status sc_raw_sum_alike(struct sc_raw *raw, enum sc_raw_way way, uint64_t bytes, void *stream) {
    const struct sc_cuda_driver *cu = raw->cu;
    CUstream on = sc_cuda_stream((uint64_t)(uintptr_t)stream);
    CUstreamCaptureStatus capturing;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUcontext before;
    ncclResult_t error;
    sc_status status =
        cuda_answer(raw, "cuStreamIsCapturing", cu->cuStreamIsCapturing_(on, &capturing));
    (void)cu->cuCtxGetCurrent_(&before);
    (void)cu->cuThreadExchangeStreamCaptureMode_(&mode);
    if (status == SC_OK)
        status = cuda_answer(raw, "cuEventRecord", mark(raw, on));
    if (status == SC_OK)
        status = sum(raw, way, bytes, on);
    if (status == SC_OK)
        status = nccl_answer(raw, "ncclCommGetAsyncError",
                             raw->nccl->ncclCommGetAsyncError_(raw->comm, &error));
    if (status == SC_OK)
        status = cuda_answer(raw, "cuEventRecord", mark(raw, on));
    (void)cu->cuThreadExchangeStreamCaptureMode_(&mode);
    return status;
}
