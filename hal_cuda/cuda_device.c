// SPDX-License-Identifier: AGPL-3.0-only
//
// A GPU: its primary context, the kernels, the fence's word, and what warm-ups need.
#include "hal_cuda/inside.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define BLOCK_THREADS 256u
#define ELEMENTS_A_THREAD 8u  // 16 bytes
#define BLOCKS_A_PROCESSOR 8u // as many as are resident at once

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

sc_status sc_cuda_meaning(CUresult result) {
    if (is_sticky(result))
        return SC_CONTEXT_LOST;
    switch (result) {
    case CUDA_SUCCESS: return SC_OK;
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

// ---- opening ----

static sc_status fail(const struct sc_cuda_device *d, const char *what, CUresult result, char *why,
                      size_t why_bytes) {
    const char *name = "unknown", *text = "";
    (void)d->cu->cuGetErrorName_(result, &name);
    (void)d->cu->cuGetErrorString_(result, &text);
    snprintf(why, why_bytes, "%s: %s (%s)", what, name, text);
    return sc_cuda_meaning(result);
}

static sc_status find(struct sc_cuda_device *d, int32_t index, char *why, size_t why_bytes) {
    int count = 0;
    CUresult result = d->cu->cuDeviceGetCount_(&count);
    if (result != CUDA_SUCCESS)
        return fail(d, "cuDeviceGetCount", result, why, why_bytes);
    if (index < 0 || index >= count) {
        snprintf(why, why_bytes, "config: device is %d; there are %d GPUs, counted from 0", index,
                 count);
        return SC_UNAVAILABLE;
    }
    result = d->cu->cuDeviceGet_(&d->device, index);
    if (result == CUDA_SUCCESS)
        result = d->cu->cuDevicePrimaryCtxRetain_(&d->context, d->device);
    return result == CUDA_SUCCESS ? SC_OK : fail(d, "the GPU's context", result, why, why_bytes);
}

static sc_status load_kernels(struct sc_cuda_device *d, char *why, size_t why_bytes) {
    int processors = 1;
    CUresult result = d->cu->cuModuleLoadData_(&d->module, sc_cuda_fatbin);
    if (result == CUDA_SUCCESS)
        result = d->cu->cuModuleGetFunction_(&d->add, d->module, "sc_add_bf16");
    if (result == CUDA_SUCCESS)
        result = sc_cuda_hold_open(&d->hold, d->cu, d->module);
    if (result == CUDA_SUCCESS)
        result = d->cu->cuDeviceGetAttribute_(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                              d->device);
    d->add_blocks = (uint32_t)processors * BLOCKS_A_PROCESSOR;
    return result == CUDA_SUCCESS ? SC_OK : fail(d, "kernels for this GPU", result, why, why_bytes);
}

static sc_status take_memory(struct sc_cuda_device *d, char *why, size_t why_bytes) {
    void *source = NULL;
    uint64_t lanes_bytes = 2 * sc_cuda_lane_bytes(d->lane_sizes - 1);
    uint64_t warm_bytes = (1 + SC_WORLD_MAX) * SC_CUDA_WARM_BYTES;
    CUresult result = d->cu->cuMemAlloc_(&d->fence, sizeof(uint64_t));
    if (result == CUDA_SUCCESS)
        result =
            d->cu->cuMemAlloc_(&d->scratch, lanes_bytes > warm_bytes ? lanes_bytes : warm_bytes);
    if (result == CUDA_SUCCESS)
        result = d->cu->cuMemHostAlloc_(&source, sizeof(uint64_t), 0);
    d->fence_source = source;
    if (result == CUDA_SUCCESS)
        result = d->cu->cuMemHostAlloc_(&d->numbers, SC_CUDA_NUMBERS_BYTES, 0);
    if (result == CUDA_SUCCESS)
        result = d->cu->cuStreamCreateWithPriority_(&d->side, CU_STREAM_NON_BLOCKING, 0);
    return result == CUDA_SUCCESS ? SC_OK : fail(d, "memory at open", result, why, why_bytes);
}

// Inside the context.
static void free_all(struct sc_cuda_device *d) {
    if (d->side != NULL)
        (void)d->cu->cuStreamDestroy_(d->side);
    if (d->numbers != NULL)
        (void)d->cu->cuMemFreeHost_(d->numbers);
    sc_cuda_hold_close(&d->hold, d->cu);
    if (d->fence_source != NULL)
        (void)d->cu->cuMemFreeHost_(d->fence_source);
    if (d->scratch != 0)
        (void)d->cu->cuMemFree_(d->scratch);
    if (d->fence != 0)
        (void)d->cu->cuMemFree_(d->fence);
    if (d->module != NULL)
        (void)d->cu->cuModuleUnload_(d->module);
}

void sc_cuda_device_hold(struct sc_cuda_device *d) {
    atomic_fetch_add(&d->holders, 1);
}

// Whether somebody else still holds the primary context.
static bool context_lives(const struct sc_cuda_device *d) {
    unsigned flags = 0;
    int active = 0;
    return d->cu->cuDevicePrimaryCtxGetState_(d->device, &flags, &active) == CUDA_SUCCESS &&
           active != 0;
}

void sc_cuda_device_let_go(struct sc_cuda_device *d) {
    CUcontext before = NULL;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (atomic_fetch_sub(&d->holders, 1) != 1)
        return;
    if (d->context != NULL) {
        (void)d->cu->cuCtxGetCurrent_(&before);
        (void)d->cu->cuCtxSetCurrent_(d->context);
        (void)d->cu->cuThreadExchangeStreamCaptureMode_(&mode);
        free_all(d);
        (void)d->cu->cuThreadExchangeStreamCaptureMode_(&mode);
        (void)d->cu->cuCtxSetCurrent_(NULL);
        (void)d->cu->cuDevicePrimaryCtxRelease_(d->device);
        if (before != d->context || context_lives(d))
            (void)d->cu->cuCtxSetCurrent_(before);
    }
    pthread_cond_destroy(&d->change);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

sc_status sc_cuda_device_open(const struct sc_cuda_driver *cu, int32_t index,
                              uint64_t capacity_bytes, struct sc_cuda_device **out, char *why,
                              size_t why_bytes) {
    struct sc_cuda_device *d = calloc(1, sizeof *d);
    CUcontext before = NULL;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED; // beside any capture of others
    if (d == NULL)
        return SC_NO_MEMORY;
    d->cu = cu;
    d->lane_sizes = sc_cuda_lane_sizes(capacity_bytes);
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->change, NULL);
    atomic_store(&d->holders, 1);
    sc_status status = find(d, index, why, why_bytes);
    if (status == SC_OK) {
        (void)cu->cuCtxGetCurrent_(&before);
        (void)cu->cuCtxSetCurrent_(d->context);
        (void)cu->cuThreadExchangeStreamCaptureMode_(&mode);
        status = load_kernels(d, why, why_bytes);
        if (status == SC_OK)
            status = take_memory(d, why, why_bytes);
        (void)cu->cuThreadExchangeStreamCaptureMode_(&mode);
        (void)cu->cuCtxSetCurrent_(before);
    }
    if (status == SC_OK)
        *out = d;
    else
        sc_cuda_device_let_go(d);
    return status;
}

// ---- the sum ----

CUresult sc_cuda_launch_add(const struct sc_cuda_device *d, uint64_t dst, uint64_t src,
                            uint64_t bytes, uint64_t epoch, CUstream stream) {
    uint64_t count = bytes / SC_BF16_BYTES;
    uint64_t wanted =
        (count + BLOCK_THREADS * ELEMENTS_A_THREAD - 1) / (BLOCK_THREADS * ELEMENTS_A_THREAD);
    uint32_t blocks = wanted < d->add_blocks ? (uint32_t)wanted : d->add_blocks;
    CUdeviceptr fence = d->fence;
    void *arguments[] = {&dst, &src, &count, &epoch, &fence};
    return d->cu->cuLaunchKernel_(d->add, blocks, 1, 1, BLOCK_THREADS, 1, 1, 0, stream, arguments,
                                  NULL);
}
