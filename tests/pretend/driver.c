// SPDX-License-Identifier: AGPL-3.0-only
//
// Devices, their contexts, the driver's lock, and errors in words.
#include "tests/pretend/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define DEVICES 8
#define PROCESSORS 4 // of each

static pthread_mutex_t driver = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool ready; // cuInit was called
static struct CUctx_st primary[DEVICES];
static _Thread_local CUcontext current;

uint64_t driver_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

// ---- the lock ----------------------------------------------------------------------------------

CUresult driver_leave(CUresult result) {
    pthread_mutex_unlock(&driver);
    return result;
}

CUresult driver_enter(CUcontext *context) {
    if (!atomic_load(&ready))
        return CUDA_ERROR_NOT_INITIALIZED;
    if (current == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&driver);
    if (!atomic_load(&current->lives))
        return driver_leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    *context = current;
    return CUDA_SUCCESS;
}

CUresult driver_enter_unsafe(CUcontext *context) {
    CUresult result = driver_enter(context);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver_capture_permits();
    return result == CUDA_SUCCESS ? result : driver_leave(result);
}

CUresult driver_enter_stream(CUstream handle, CUstream *stream) {
    CUcontext context;
    CUresult result = driver_enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver_stream_find(handle, context, stream);
    return result == CUDA_SUCCESS ? result : driver_leave(result);
}

CUresult driver_enter_handle(CUstream handle, CUstream *stream) {
    if (current != NULL || handle == NULL || handle == CU_STREAM_LEGACY ||
        handle == CU_STREAM_PER_THREAD)
        return driver_enter_stream(handle, stream);
    if (!atomic_load(&ready))
        return CUDA_ERROR_NOT_INITIALIZED;
    pthread_mutex_lock(&driver);
    CUresult result = driver_stream_find(handle, NULL, stream);
    return result == CUDA_SUCCESS ? result : driver_leave(result);
}

// ---- devices -----------------------------------------------------------------------------------

static CUresult check_device(CUdevice device, const void *out) {
    if (!atomic_load(&ready))
        return CUDA_ERROR_NOT_INITIALIZED;
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return device >= 0 && device < DEVICES ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuInit(unsigned flags) {
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    atomic_store(&ready, true);
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
    if (version == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
    CUresult result = check_device(0, count);
    if (result == CUDA_SUCCESS)
        *count = DEVICES;
    return result;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    CUresult result = check_device(ordinal, device);
    if (result == CUDA_SUCCESS)
        *device = ordinal;
    return result;
}

CUresult cuDeviceGetName(char *name, int bytes, CUdevice device) {
    CUresult result = check_device(device, name);
    if (result == CUDA_SUCCESS)
        snprintf(name, (size_t)(bytes > 0 ? bytes : 0), "pretended GPU");
    return result;
}

CUresult cuDeviceGetPCIBusId(char *name, int bytes, CUdevice device) {
    CUresult result = check_device(device, name);
    if (result == CUDA_SUCCESS)
        snprintf(name, (size_t)(bytes > 0 ? bytes : 0), "0000:%02X:00.0", (unsigned)device + 1);
    return result;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    CUresult result = check_device(device, value);
    if (result != CUDA_SUCCESS)
        return result;
    if (attribute != CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
        return CUDA_ERROR_INVALID_VALUE;
    *value = PROCESSORS;
    return CUDA_SUCCESS;
}

// ---- contexts ----------------------------------------------------------------------------------

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    CUresult result = check_device(device, context);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver);
    struct CUctx_st *c = &primary[device];
    c->device = device;
    c->retained++;
    atomic_store(&c->lives, true);
    *context = c;
    return driver_leave(CUDA_SUCCESS);
}

// The last one ends what is left in it.
CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    CUresult result = check_device(device, &device);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver);
    struct CUctx_st *c = &primary[device];
    if (c->retained == 0)
        return driver_leave(CUDA_ERROR_INVALID_CONTEXT);
    if (--c->retained == 0) {
        driver_await_idle(c);
        driver_captures_drop(c);
        driver_streams_end(c);
        driver_memory_free_all(c);
        atomic_store(&c->lives, false);
    }
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    CUresult result = check_device(device, active);
    if (result != CUDA_SUCCESS)
        return result;
    if (flags != NULL)
        *flags = 0;
    *active = atomic_load(&primary[device].lives);
    return CUDA_SUCCESS;
}

// Declared by cuda.h under newer names, with other parameters. There is no call that ends it.
CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device) {
    CUresult result = check_device(device, context);
    if (result != CUDA_SUCCESS)
        return result;
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct CUctx_st *made = calloc(1, sizeof *made);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->device = device;
    atomic_store(&made->lives, true);
    *context = current = made;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    if (context == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *context = current;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
    if (context != NULL && !atomic_load(&context->lives))
        return CUDA_ERROR_INVALID_CONTEXT;
    current = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    CUcontext context;
    CUresult result = driver_enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (least != NULL)
        *least = 0;
    if (greatest != NULL)
        *greatest = 0;
    return driver_leave(CUDA_SUCCESS);
}

// ---- errors ------------------------------------------------------------------------------------

// clang-format off
#define ERRORS(X)                                                                                  \
    X(CUDA_SUCCESS, "no error")                                                                    \
    X(CUDA_ERROR_INVALID_VALUE, "invalid argument")                                                \
    X(CUDA_ERROR_OUT_OF_MEMORY, "out of memory")                                                   \
    X(CUDA_ERROR_NOT_INITIALIZED, "initialization error")                                          \
    X(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal")                                         \
    X(CUDA_ERROR_INVALID_CONTEXT, "invalid device context")                                        \
    X(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle")                                        \
    X(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state")          \
    X(CUDA_ERROR_NOT_FOUND, "named symbol not found")                                              \
    X(CUDA_ERROR_NOT_READY, "device not ready")                                                    \
    X(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed")                                     \
    X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing")   \
    X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture") \
    X(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream") \
    X(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "attempt to terminate a thread-local capture sequence from another thread") \
    X(CUDA_ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream")
// clang-format on

static const struct {
    CUresult error;
    const char *name, *text;
} errors[] = {
#define ROW(error, text) {error, #error, text},
    ERRORS(ROW)
#undef ROW
};

CUresult cuGetErrorName(CUresult error, const char **name) {
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].error == error)
            return *name = errors[i].name, CUDA_SUCCESS;
    *name = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].error == error)
            return *text = errors[i].text, CUDA_SUCCESS;
    *text = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}
