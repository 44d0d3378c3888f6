// SPDX-License-Identifier: AGPL-3.0-only
//
// A GPU for programs of ours: each call is one of the driver's, with its error put into words.
#include "hal_cuda/inside.h"

#include <stdio.h>
#include <stdlib.h>

struct sc_gpu {
    const struct sc_cuda_driver *cu;
    uint32_t driver, nccl;
    CUdevice device;
    CUcontext context; // the primary one
    CUmodule module;
    CUfunction nothing;
    struct sc_cuda_hold hold;
    char name[96];
    char error[256];
};

static CUdeviceptr at(const void *memory) {
    return (CUdeviceptr)(uintptr_t)memory;
}

static CUstream on(void *stream) {
    return sc_cuda_stream((uint64_t)(uintptr_t)stream);
}

// Puts a result into words; the caller's answer.
static sc_status answer(struct sc_gpu *gpu, const char *what, CUresult result) {
    const char *name = "unknown", *text = "";
    if (result == CUDA_SUCCESS)
        return SC_OK;
    (void)gpu->cu->cuGetErrorName_(result, &name);
    (void)gpu->cu->cuGetErrorString_(result, &text);
    snprintf(gpu->error, sizeof gpu->error, "%s: %s (%s)", what, name, text);
    return sc_cuda_meaning(result);
}

// ---- opening ----

static sc_status load_kernels(struct sc_gpu *gpu) {
    CUresult result = gpu->cu->cuModuleLoadData_(&gpu->module, sc_cuda_fatbin);
    if (result == CUDA_SUCCESS)
        result = gpu->cu->cuModuleGetFunction_(&gpu->nothing, gpu->module, "sc_nothing");
    if (result == CUDA_SUCCESS)
        result = sc_cuda_hold_open(&gpu->hold, gpu->cu, gpu->module);
    return answer(gpu, "kernels for this GPU", result);
}

static sc_status enter(struct sc_gpu *gpu, int32_t index) {
    int count = 0;
    sc_status status = answer(gpu, "cuDeviceGetCount", gpu->cu->cuDeviceGetCount_(&count));
    if (status != SC_OK)
        return status;
    if (index < 0 || index >= count) {
        snprintf(gpu->error, sizeof gpu->error, "GPU %d: there are %d, counted from 0", index,
                 count);
        return SC_UNAVAILABLE;
    }
    CUresult result = gpu->cu->cuDeviceGet_(&gpu->device, index);
    if (result == CUDA_SUCCESS)
        result = gpu->cu->cuDeviceGetName_(gpu->name, (int)sizeof gpu->name, gpu->device);
    if (result == CUDA_SUCCESS)
        result = gpu->cu->cuDevicePrimaryCtxRetain_(&gpu->context, gpu->device);
    if (result == CUDA_SUCCESS)
        result = gpu->cu->cuCtxSetCurrent_(gpu->context);
    return answer(gpu, "the GPU's context", result);
}

sc_status sc_gpu_open(int32_t index, struct sc_gpu **out, char *why, size_t why_bytes) {
    const struct sc_cuda_nccl *nccl;
    struct sc_gpu *gpu = calloc(1, sizeof *gpu);
    if (gpu == NULL) {
        snprintf(why, why_bytes, "no memory");
        return SC_NO_MEMORY;
    }
    sc_status status = sc_cuda_load(&gpu->cu, &nccl, why, why_bytes);
    if (status != SC_OK) {
        free(gpu);
        return status;
    }
    gpu->driver = (uint32_t)gpu->cu->version;
    gpu->nccl = (uint32_t)nccl->version;
    status = enter(gpu, index);
    if (status == SC_OK)
        status = load_kernels(gpu);
    if (status == SC_OK) {
        *out = gpu;
        return SC_OK;
    }
    snprintf(why, why_bytes, "%s", gpu->error);
    sc_gpu_close(gpu);
    return status;
}

void sc_gpu_close(struct sc_gpu *gpu) {
    if (gpu == NULL)
        return;
    sc_cuda_hold_close(&gpu->hold, gpu->cu);
    if (gpu->module != NULL)
        (void)gpu->cu->cuModuleUnload_(gpu->module);
    if (gpu->context != NULL) {
        (void)gpu->cu->cuCtxSetCurrent_(NULL);
        (void)gpu->cu->cuDevicePrimaryCtxRelease_(gpu->device);
    }
    free(gpu);
}

const char *sc_gpu_error(const struct sc_gpu *gpu) {
    return gpu->error;
}

const char *sc_gpu_name(const struct sc_gpu *gpu) {
    return gpu->name;
}

uint32_t sc_gpu_driver(const struct sc_gpu *gpu) {
    return gpu->driver;
}

uint32_t sc_gpu_nccl(const struct sc_gpu *gpu) {
    return gpu->nccl;
}

// ---- memory ----

sc_status sc_gpu_memory(struct sc_gpu *gpu, uint64_t *free_bytes, uint64_t *total_bytes) {
    size_t available = 0, total = 0;
    sc_status status = answer(gpu, "cuMemGetInfo", gpu->cu->cuMemGetInfo_(&available, &total));
    *free_bytes = available;
    *total_bytes = total;
    return status;
}

sc_status sc_gpu_alloc(struct sc_gpu *gpu, uint64_t bytes, void **memory) {
    CUdeviceptr made = 0;
    sc_status status = answer(gpu, "cuMemAlloc", gpu->cu->cuMemAlloc_(&made, bytes));
    *memory = (void *)(uintptr_t)made;
    return status;
}

void sc_gpu_free(struct sc_gpu *gpu, void *memory) {
    if (memory != NULL)
        (void)gpu->cu->cuMemFree_(at(memory));
}

sc_status sc_gpu_fill(struct sc_gpu *gpu, void *memory, uint8_t value, uint64_t bytes,
                      void *stream) {
    return answer(gpu, "cuMemsetD8Async",
                  gpu->cu->cuMemsetD8Async_(at(memory), value, bytes, on(stream)));
}

sc_status sc_gpu_to_device(struct sc_gpu *gpu, void *dst, const void *src, uint64_t bytes,
                           void *stream) {
    CUresult result = gpu->cu->cuMemcpyHtoDAsync_(at(dst), src, bytes, on(stream));
    if (result == CUDA_SUCCESS)
        result = gpu->cu->cuStreamSynchronize_(on(stream));
    return answer(gpu, "cuMemcpyHtoDAsync", result);
}

sc_status sc_gpu_to_host(struct sc_gpu *gpu, void *dst, const void *src, uint64_t bytes,
                         void *stream) {
    CUresult result = gpu->cu->cuMemcpyDtoHAsync_(dst, at(src), bytes, on(stream));
    if (result == CUDA_SUCCESS)
        result = gpu->cu->cuStreamSynchronize_(on(stream));
    return answer(gpu, "cuMemcpyDtoHAsync", result);
}

// ---- streams and events ----

sc_status sc_gpu_stream_create(struct sc_gpu *gpu, void **stream) {
    CUstream made = NULL;
    sc_status status =
        answer(gpu, "cuStreamCreateWithPriority",
               gpu->cu->cuStreamCreateWithPriority_(&made, CU_STREAM_NON_BLOCKING, 0));
    *stream = made;
    return status;
}

void sc_gpu_stream_destroy(struct sc_gpu *gpu, void *stream) {
    if (stream != NULL)
        (void)gpu->cu->cuStreamDestroy_(on(stream));
}

sc_status sc_gpu_stream_sync(struct sc_gpu *gpu, void *stream) {
    return answer(gpu, "cuStreamSynchronize", gpu->cu->cuStreamSynchronize_(on(stream)));
}

sc_status sc_gpu_stream_wait(struct sc_gpu *gpu, void *stream, void *event) {
    return answer(gpu, "cuStreamWaitEvent", gpu->cu->cuStreamWaitEvent_(on(stream), event, 0));
}

sc_status sc_gpu_event_create(struct sc_gpu *gpu, void **event) {
    CUevent made = NULL;
    sc_status status =
        answer(gpu, "cuEventCreate", gpu->cu->cuEventCreate_(&made, CU_EVENT_DEFAULT));
    *event = made;
    return status;
}

void sc_gpu_event_destroy(struct sc_gpu *gpu, void *event) {
    if (event != NULL)
        (void)gpu->cu->cuEventDestroy_(event);
}

sc_status sc_gpu_event_record(struct sc_gpu *gpu, void *event, void *stream) {
    return answer(gpu, "cuEventRecord", gpu->cu->cuEventRecord_(event, on(stream)));
}

sc_status sc_gpu_event_passed(struct sc_gpu *gpu, void *event, bool *passed) {
    CUresult result = gpu->cu->cuEventQuery_(event);
    *passed = result == CUDA_SUCCESS;
    return answer(gpu, "cuEventQuery", result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result);
}

sc_status sc_gpu_event_elapsed(struct sc_gpu *gpu, void *begun, void *ended, double *elapsed_us) {
    float ms = 0;
    sc_status status =
        answer(gpu, "cuEventElapsedTime", gpu->cu->cuEventElapsedTime_(&ms, begun, ended));
    *elapsed_us = (double)ms * 1000;
    return status;
}

// ---- kernels and graphs ----

sc_status sc_gpu_nothing(struct sc_gpu *gpu, void *stream) {
    return answer(
        gpu, "sc_nothing",
        gpu->cu->cuLaunchKernel_(gpu->nothing, 1, 1, 1, 1, 1, 1, 0, on(stream), NULL, NULL));
}

sc_status sc_gpu_hold(struct sc_gpu *gpu, uint64_t limit_ns, void *stream) {
    return answer(gpu, "sc_hold", sc_cuda_hold_begin(&gpu->hold, gpu->cu, limit_ns, on(stream)));
}

void sc_gpu_let_go(struct sc_gpu *gpu) {
    sc_cuda_hold_end(&gpu->hold);
}

sc_status sc_gpu_graph_begin(struct sc_gpu *gpu, void *stream) {
    return answer(gpu, "cuStreamBeginCapture",
                  gpu->cu->cuStreamBeginCapture_(on(stream), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
}

sc_status sc_gpu_graph_end(struct sc_gpu *gpu, void *stream, void **graph) {
    CUgraph recorded = NULL;
    CUgraphExec made = NULL;
    sc_status status =
        answer(gpu, "cuStreamEndCapture", gpu->cu->cuStreamEndCapture_(on(stream), &recorded));
    if (status == SC_OK)
        status =
            answer(gpu, "cuGraphInstantiate", gpu->cu->cuGraphInstantiate_(&made, recorded, 0));
    if (recorded != NULL)
        (void)gpu->cu->cuGraphDestroy_(recorded);
    *graph = made;
    return status;
}

sc_status sc_gpu_graph_launch(struct sc_gpu *gpu, void *graph, void *stream) {
    return answer(gpu, "cuGraphLaunch", gpu->cu->cuGraphLaunch_(graph, on(stream)));
}

void sc_gpu_graph_destroy(struct sc_gpu *gpu, void *graph) {
    if (graph != NULL)
        (void)gpu->cu->cuGraphExecDestroy_(graph);
}
