// SPDX-License-Identifier: AGPL-3.0-only
//
// Streams: each a queue, and a thread that begins with the first work and ends once the stream is
// destroyed and has done all. Priorities are taken and mean nothing; the legacy stream waits for no
// other, nor others for it.
#include "tests/pretend/driver.h"

#include <signal.h>
#include <stdlib.h>

struct driver_item {
    struct driver_item *next;
    struct pretend_work work;
};

pthread_mutex_t driver_queues = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t driver_passed = PTHREAD_COND_INITIALIZER;

// ---- the queue: in its lock --------------------------------------------------------------------

static CUstream stream_new(CUcontext context) {
    CUstream s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->kind = DRIVER_STREAM;
    s->context = context;
    s->last = &s->first;
    pthread_cond_init(&s->more, NULL);
    if (context != NULL) {
        s->next = context->streams;
        context->streams = s;
    }
    return s;
}

static void stream_free(CUstream s) {
    CUstream *link = &s->context->streams;
    while (*link != s)
        link = &(*link)->next;
    *link = s->next;
    pthread_cond_destroy(&s->more);
    free(s);
}

static struct driver_item *take(CUstream s) {
    struct driver_item *item = s->first;
    s->first = item->next;
    if (s->first == NULL)
        s->last = &s->first;
    return item;
}

static void *run_stream(void *arg) {
    CUstream s = arg;
    pthread_mutex_lock(&driver_queues);
    while (s->first != NULL || !s->ended) {
        if (s->first == NULL) {
            pthread_cond_wait(&s->more, &driver_queues);
            continue;
        }
        struct driver_item *item = take(s);
        pthread_mutex_unlock(&driver_queues);
        item->work.run(item->work.arg);
        driver_drop(item->work);
        free(item);
        pthread_mutex_lock(&driver_queues);
        s->done++;
        pthread_cond_broadcast(&driver_passed);
    }
    stream_free(s);
    pthread_mutex_unlock(&driver_queues);
    return NULL;
}

// No signal of the application's reaches it.
static bool start(CUstream s) {
    pthread_attr_t detached;
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    s->started = pthread_create(&thread, &detached, run_stream, s) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
    return s->started;
}

static void end(CUstream s) {
    s->ended = true;
    s->kind = 0;
    if (s->started)
        pthread_cond_signal(&s->more);
    else
        stream_free(s);
}

static CUresult enqueue(CUstream s, struct pretend_work work) {
    struct driver_item *item = malloc(sizeof *item);
    bool ready = item != NULL && (s->started || start(s));
    if (!ready) {
        free(item);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *item = (struct driver_item){.work = work};
    *s->last = item;
    s->last = &item->next;
    s->put++;
    pthread_cond_signal(&s->more);
    return CUDA_SUCCESS;
}

static CUresult enqueue_outside(CUstream s, struct pretend_work work) {
    pthread_mutex_lock(&driver_queues);
    CUresult result = enqueue(s, work);
    pthread_mutex_unlock(&driver_queues);
    if (result != CUDA_SUCCESS)
        driver_drop(work);
    return result;
}

// ---- for the others ----------------------------------------------------------------------------

CUresult driver_put(CUstream s, struct pretend_work work) {
    if (s->capture == NULL)
        return enqueue_outside(s, work);
    if (!s->capture->spoilt)
        return driver_graph_add(s->capture->graph, work);
    driver_drop(work);
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

static void await_done(CUstream s, uint64_t done) {
    while (s->done < done)
        pthread_cond_wait(&driver_passed, &driver_queues);
}

void driver_stream_await(CUstream s) {
    pthread_mutex_lock(&driver_queues);
    await_done(s, s->put);
    pthread_mutex_unlock(&driver_queues);
}

static bool is_idle(CUcontext context) {
    for (CUstream s = context->streams; s != NULL; s = s->next)
        if (s->done < s->put)
            return false;
    return true;
}

void driver_await_idle(CUcontext context) {
    pthread_mutex_lock(&driver_queues);
    while (!is_idle(context))
        pthread_cond_wait(&driver_passed, &driver_queues);
    pthread_mutex_unlock(&driver_queues);
}

void driver_streams_end(CUcontext context) {
    pthread_mutex_lock(&driver_queues);
    for (CUstream s = context->streams, next; s != NULL; s = next) {
        next = s->next;
        if (!s->ended)
            end(s);
    }
    context->legacy = NULL;
    pthread_mutex_unlock(&driver_queues);
}

void driver_later(struct pretend_work work) {
    static CUstream own;
    pthread_mutex_lock(&driver_queues);
    if (own == NULL)
        own = stream_new(NULL);
    CUresult result = own != NULL ? enqueue(own, work) : CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_unlock(&driver_queues);
    if (result == CUDA_SUCCESS)
        return;
    work.run(work.arg);
    driver_drop(work);
}

static CUstream of_thread(CUcontext context) {
    for (CUstream s = context->streams; s != NULL; s = s->next)
        if (s->of_thread && !s->ended && pthread_equal(s->thread, pthread_self()))
            return s;
    CUstream made = stream_new(context);
    if (made != NULL) {
        made->of_thread = true;
        made->thread = pthread_self();
    }
    return made;
}

CUresult driver_stream_find(CUstream handle, CUcontext context, CUstream *stream) {
    if (handle != NULL && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD) {
        *stream = handle;
        return handle->kind == DRIVER_STREAM ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    }
    pthread_mutex_lock(&driver_queues);
    if (handle == CU_STREAM_PER_THREAD)
        *stream = of_thread(context);
    else
        *stream = context->legacy != NULL ? context->legacy : stream_new(context);
    if (handle != CU_STREAM_PER_THREAD)
        context->legacy = *stream;
    pthread_mutex_unlock(&driver_queues);
    return *stream != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult pretend_put(CUstream handle, struct pretend_work work) {
    CUstream stream;
    CUresult result = driver_enter_stream(handle, &stream);
    if (result == CUDA_SUCCESS)
        return driver_leave(driver_put(stream, work));
    driver_drop(work);
    return result;
}

// ---- CUDA's calls ------------------------------------------------------------------------------

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
    CUcontext context;
    (void)priority;
    if (stream == NULL || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = driver_enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver_queues);
    *stream = stream_new(context);
    pthread_mutex_unlock(&driver_queues);
    return driver_leave(*stream != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    return cuStreamCreateWithPriority(stream, flags, 0);
}

CUresult cuStreamDestroy(CUstream handle) {
    CUstream stream;
    CUresult result = driver_enter_stream(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (stream != handle) // one of those without a handle
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    driver_capture_drop(stream);
    pthread_mutex_lock(&driver_queues);
    end(stream);
    pthread_mutex_unlock(&driver_queues);
    return driver_leave(CUDA_SUCCESS);
}

// Finds the stream for a call that asks how far it is.
static CUresult enter_to_ask(CUstream handle, CUstream *stream) {
    CUresult result = driver_enter_stream(handle, stream);
    if (result != CUDA_SUCCESS)
        return result;
    result = (*stream)->capture != NULL ? driver_capture_spoil(*stream) : driver_capture_permits();
    return result == CUDA_SUCCESS ? result : driver_leave(result);
}

CUresult cuStreamSynchronize(CUstream handle) {
    CUstream stream;
    CUresult result = enter_to_ask(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    (void)driver_leave(CUDA_SUCCESS);
    driver_stream_await(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream handle) {
    CUstream stream;
    CUresult result = enter_to_ask(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver_queues);
    bool done = stream->done == stream->put;
    pthread_mutex_unlock(&driver_queues);
    return driver_leave(done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}
