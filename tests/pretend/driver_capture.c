// SPDX-License-Identifier: AGPL-3.0-only
//
// Captures of one stream each, and the modes in which threads live beside them.
#include "tests/pretend/driver.h"

#include <stdlib.h>

static struct driver_capture *captures; // that are open; in the driver's lock
static cuuint64_t last_id;
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

// ---- in the driver's lock ----------------------------------------------------------------------

static bool forbids(const struct driver_capture *c) {
    bool own = pthread_equal(c->thread, pthread_self()) != 0;
    switch (thread_mode) {
    case CU_STREAM_CAPTURE_MODE_GLOBAL:
        return c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL ||
               (own && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED);
    case CU_STREAM_CAPTURE_MODE_THREAD_LOCAL:
        return own && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    default: return false;
    }
}

CUresult driver_capture_permits(void) {
    CUresult result = CUDA_SUCCESS;
    for (struct driver_capture *c = captures; c != NULL; c = c->next) {
        if (!forbids(c))
            continue;
        c->spoilt = true;
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return result;
}

CUresult driver_capture_spoil(CUstream stream) {
    stream->capture->spoilt = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

// Takes the capture off its stream. Its graph is the caller's.
static CUgraph unlink(CUstream stream) {
    struct driver_capture *c = stream->capture, **link = &captures;
    CUgraph graph = c->graph;
    while (*link != c)
        link = &(*link)->next;
    *link = c->next;
    stream->capture = NULL;
    free(c);
    driver_graph_close(graph);
    return graph;
}

void driver_capture_drop(CUstream stream) {
    if (stream->capture != NULL)
        driver_graph_let_go(unlink(stream));
}

void driver_captures_drop(CUcontext context) {
    for (struct driver_capture *c = captures, *next; c != NULL; c = next) {
        next = c->next;
        if (c->stream->context == context)
            driver_capture_drop(c->stream);
    }
}

static CUresult begin(CUstream stream, CUstreamCaptureMode mode) {
    struct driver_capture *c = malloc(sizeof *c);
    CUgraph graph = c != NULL ? driver_graph_new() : NULL;
    if (graph == NULL) {
        free(c);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *c = (struct driver_capture){captures, stream, mode, pthread_self(), graph, ++last_id, false};
    captures = stream->capture = c;
    return CUDA_SUCCESS;
}

static CUresult end(CUstream stream, CUgraph *graph) {
    const struct driver_capture *c = stream->capture;
    if (c == NULL)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(c->thread, pthread_self()))
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    if (c->spoilt) {
        driver_capture_drop(stream);
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    *graph = unlink(stream);
    return CUDA_SUCCESS;
}

static CUstreamCaptureStatus status_of(CUstream stream) {
    if (stream->capture == NULL)
        return CU_STREAM_CAPTURE_STATUS_NONE;
    return stream->capture->spoilt ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                   : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

// ---- CUDA's calls ------------------------------------------------------------------------------

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    if (mode == NULL || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
    CUstream stream;
    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = driver_enter_stream(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (handle == NULL || handle == CU_STREAM_LEGACY)
        return driver_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    return driver_leave(stream->capture != NULL ? CUDA_ERROR_ILLEGAL_STATE : begin(stream, mode));
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph) {
    CUstream stream;
    if (graph == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *graph = NULL;
    CUresult result = driver_enter_stream(handle, &stream);
    return result == CUDA_SUCCESS ? driver_leave(end(stream, graph)) : result;
}

CUresult cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id,
                                CUgraph *graph, const CUgraphNode **dependencies,
                                const CUgraphEdgeData **edges, size_t *count) {
    CUstream stream;
    if (status == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (dependencies != NULL || edges != NULL || count != NULL)
        return CUDA_ERROR_NOT_SUPPORTED; // a graph is a list here, whose nodes have no handles
    CUresult result = driver_enter_stream(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    *status = status_of(stream);
    bool active = *status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (id != NULL && active)
        *id = stream->capture->id;
    if (graph != NULL && active)
        *graph = stream->capture->graph;
    return driver_leave(CUDA_SUCCESS);
}

// A stream with a handle is asked without a context, too.
CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status) {
    CUstream stream;
    if (status == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = driver_enter_handle(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    *status = status_of(stream);
    return driver_leave(CUDA_SUCCESS);
}
