// SPDX-License-Identifier: AGPL-3.0-only
//
// Events. Whoever asks or waits means the newest record at that time; an older one that is still on
// its way stays what others wait for.
#include "tests/pretend/driver.h"

#include <stdlib.h>

struct record {
    _Atomic uint32_t holders; // the event, its own mark in a stream, those who wait
    bool passed;              // in the queues' lock, as what follows
    uint64_t at_ns;
};

struct CUevent_st {
    enum driver_kind kind;
    bool timed;
    // In the driver's lock:
    struct record *newest; // NULL: none, or in a capture
    cuuint64_t capture;    // that it was recorded in, 0: none
};

static void let_go(void *arg) {
    struct record *r = arg;
    if (r != NULL && atomic_fetch_sub(&r->holders, 1) == 1)
        free(r);
}

static void pass(void *arg) {
    struct record *r = arg;
    pthread_mutex_lock(&driver_queues);
    r->at_ns = driver_now_ns();
    r->passed = true;
    pthread_cond_broadcast(&driver_passed);
    pthread_mutex_unlock(&driver_queues);
}

static void await(void *arg) {
    struct record *r = arg;
    pthread_mutex_lock(&driver_queues);
    while (!r->passed)
        pthread_cond_wait(&driver_passed, &driver_queues);
    pthread_mutex_unlock(&driver_queues);
}

// When it was passed, 0: not yet.
static uint64_t passed_ns(const struct record *r) {
    pthread_mutex_lock(&driver_queues);
    uint64_t at_ns = r->passed ? r->at_ns : 0;
    pthread_mutex_unlock(&driver_queues);
    return at_ns;
}

CUresult cuEventCreate(CUevent *event, unsigned flags) {
    CUcontext context;
    if (event == NULL || (flags & ~(unsigned)CU_EVENT_DISABLE_TIMING) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = driver_enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    CUevent made = calloc(1, sizeof *made);
    if (made != NULL)
        *made = (struct CUevent_st){.kind = DRIVER_EVENT, .timed = flags == 0};
    *event = made;
    return driver_leave(made != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult cuEventDestroy(CUevent event) {
    CUcontext context;
    CUresult result = driver_enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!DRIVER_IS(event, DRIVER_EVENT))
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    let_go(event->newest);
    event->kind = 0;
    free(event);
    return driver_leave(CUDA_SUCCESS);
}

static CUresult record(CUevent event, CUstream stream) {
    struct record *r = malloc(sizeof *r);
    if (r == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *r = (struct record){.holders = 2};
    CUresult result = driver_put(stream, (struct pretend_work){pass, let_go, r});
    if (result != CUDA_SUCCESS) {
        let_go(r);
        return result;
    }
    let_go(event->newest);
    event->newest = r;
    event->capture = 0;
    return CUDA_SUCCESS;
}

// In a capture it marks a place in the graph, which the host can neither ask for nor wait for.
static CUresult record_captured(CUevent event, const struct driver_capture *capture) {
    if (capture->spoilt)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    let_go(event->newest);
    event->newest = NULL;
    event->capture = capture->id;
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream handle) {
    CUstream stream;
    CUresult result = driver_enter_stream(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!DRIVER_IS(event, DRIVER_EVENT))
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    return driver_leave(stream->capture != NULL ? record_captured(event, stream->capture)
                                                : record(event, stream));
}

CUresult cuEventQuery(CUevent event) {
    CUcontext context;
    CUresult result = driver_enter_unsafe(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!DRIVER_IS(event, DRIVER_EVENT))
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    if (event->capture != 0)
        return driver_leave(CUDA_ERROR_CAPTURED_EVENT);
    bool passed = event->newest == NULL || passed_ns(event->newest) != 0;
    return driver_leave(passed ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

// A captured stream waits for events of its own capture alone, which it has passed; no stream is drawn
// into another's.
static CUresult wait_captured(CUstream stream, const struct CUevent_st *event) {
    if (stream->capture == NULL)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture->id == event->capture)
        return CUDA_SUCCESS;
    stream->capture->spoilt = true;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags) {
    CUstream stream;
    CUresult result = driver_enter_stream(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!DRIVER_IS(event, DRIVER_EVENT) || flags != 0)
        return driver_leave(flags != 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE);
    if (event->newest == NULL && event->capture == 0) // never recorded
        return driver_leave(CUDA_SUCCESS);
    if (stream->capture != NULL || event->capture != 0)
        return driver_leave(wait_captured(stream, event));
    atomic_fetch_add(&event->newest->holders, 1);
    return driver_leave(driver_put(stream, (struct pretend_work){await, let_go, event->newest}));
}

CUresult cuEventElapsedTime(float *ms, CUevent begun, CUevent ended) {
    CUcontext context;
    if (ms == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = driver_enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!DRIVER_IS(begun, DRIVER_EVENT) || !DRIVER_IS(ended, DRIVER_EVENT) || !begun->timed ||
        !ended->timed || begun->newest == NULL || ended->newest == NULL)
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    uint64_t begun_ns = passed_ns(begun->newest), ended_ns = passed_ns(ended->newest);
    if (begun_ns == 0 || ended_ns == 0)
        return driver_leave(CUDA_ERROR_NOT_READY);
    *ms = (float)((double)(int64_t)(ended_ns - begun_ns) / 1e6);
    return driver_leave(CUDA_SUCCESS);
}
