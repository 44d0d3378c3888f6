// SPDX-License-Identifier: AGPL-3.0-only
//
// What the driver may keep waiting, in a thread of its own.
//
// Whoever frees GPU memory, anywhere in the process, waits for all that runs on the GPU, and may keep
// every other thread out of the driver meanwhile. When a peer is lost, what runs spins until the abort:
// a PROGRESS thread that waited for the driver would then never come to it, nor send a heartbeat. So it
// asks the driver nothing. This thread looks at the ops in flight for it, those of each stream in their
// order, and lowers the fence. A thread of the application's looks by itself, outside the monitor: that is
// quicker, and keeps nobody.
#include "hal_cuda/inside.h"

#include <errno.h>
#include <time.h>

#define FENCE_PATIENCE_NS 20000000l
#define CLOSE_PATIENCE_S 5

// ---- the ops in flight, by stream; inside the lock ----

static struct sc_cuda_line *line_of(struct sc_cuda *c, CUstream stream) {
    struct sc_cuda_line *vacant = NULL;
    for (uint32_t i = 0; i < SC_CUDA_LINES_MAX; i++) {
        struct sc_cuda_line *line = &c->lines[i];
        if (line->first != 0 && line->stream == stream)
            return line;
        if (line->first == 0 && vacant == NULL)
            vacant = line;
    }
    return vacant;
}

bool sc_cuda_watch_add(struct sc_cuda *c, struct sc_cuda_op *op) {
    uint32_t place = (uint32_t)(op - c->ops) + 1;
    pthread_mutex_lock(&c->device->lock);
    struct sc_cuda_line *line = line_of(c, op->stream);
    if (line != NULL) {
        op->line = line;
        op->next = 0;
        op->previous = line->first != 0 ? line->last : 0;
        if (op->previous != 0)
            c->ops[op->previous - 1].next = place;
        else
            *line = (struct sc_cuda_line){.stream = op->stream, .first = place};
        line->last = place;
    }
    pthread_mutex_unlock(&c->device->lock);
    return line != NULL;
}

static void unlink_op(struct sc_cuda *c, struct sc_cuda_op *op) {
    if (op->line == NULL)
        return;
    if (op->previous != 0)
        c->ops[op->previous - 1].next = op->next;
    else
        op->line->first = op->next;
    if (op->next != 0)
        c->ops[op->next - 1].previous = op->previous;
    else
        op->line->last = op->previous;
    op->line = NULL;
}

void sc_cuda_watch_forget(struct sc_cuda *c, struct sc_cuda_op *op) {
    pthread_mutex_lock(&c->device->lock);
    unlink_op(c, op);
    op->generation = op->generation == UINT32_MAX ? 1 : op->generation + 1;
    op->next_free = c->ops_returned;
    c->ops_returned = (uint32_t)(op - c->ops) + 1;
    pthread_mutex_unlock(&c->device->lock);
}

static enum sc_op_state known(const struct sc_cuda_op *op) {
    if (op->line == NULL)
        return SC_OP_DONE;
    return op->started ? SC_OP_STARTED : SC_OP_ENQUEUED;
}

// ---- looking ----

// What one look finds of an op.
struct sight {
    uint32_t place, generation;
    CUevent start, end;
    bool started, done;
    sc_status answer;
};

static struct sight aim(const struct sc_cuda *c, uint32_t place) {
    const struct sc_cuda_op *op = &c->ops[place - 1];
    return (struct sight){.place = place,
                          .generation = op->generation,
                          .start = op->start,
                          .end = op->end,
                          .started = op->started};
}

static bool query(const struct sc_cuda *c, CUevent event, sc_status *answer) {
    CUresult result = c->cu->cuEventQuery_(event);
    bool passed = result == CUDA_SUCCESS;
    *answer = passed || result == CUDA_ERROR_NOT_READY ? SC_OK : sc_cuda_meaning(result);
    return passed;
}

// Outside the lock.
static void see(const struct sc_cuda *c, struct sight *sight) {
    sight->done = query(c, sight->end, &sight->answer);
    if (sight->answer == SC_OK && !sight->done && !sight->started)
        sight->started = query(c, sight->start, &sight->answer);
}

// Inside the lock. Says whether something is known that was not. The op may have been forgotten.
static bool note(struct sc_cuda *c, const struct sight *sight) {
    struct sc_cuda_op *op = &c->ops[sight->place - 1];
    if (op->generation != sight->generation || op->line == NULL)
        return false;
    struct sc_cuda_line *line = op->line;
    bool news = sight->done || sight->started != op->started || sight->answer != op->answer;
    op->started = sight->started;
    op->answer = sight->answer;
    for (bool over = !sight->done; !over;) { // with all that is ahead of it
        struct sc_cuda_op *done = &c->ops[line->first - 1];
        over = done == op;
        unlink_op(c, done);
    }
    return news;
}

sc_status sc_cuda_watch_ask(struct sc_cuda *c, const struct sc_cuda_op *op,
                            enum sc_op_state *state) {
    struct sc_cuda_device *d = c->device;
    pthread_mutex_lock(&d->lock);
    if (op->line != NULL && sc_posix_in_progress(c->posix)) {
        c->asked = true;
        pthread_cond_broadcast(&d->change);
    }
    sc_status answer = op->answer;
    *state = known(op);
    pthread_mutex_unlock(&d->lock);
    return answer;
}

// The last of a line, then its first: a stream is done with all when it is done with the last, and
// often it is. Inside the lock, which is let go of while the driver is asked. Says whether something
// is known that was not, and whether there may be more to see.
static bool look_at(struct sc_cuda *c, const struct sc_cuda_line *line, bool *more) {
    struct sight last = aim(c, line->last), first = aim(c, line->first);
    pthread_mutex_unlock(&c->device->lock);
    see(c, &last);
    if (!last.done)
        see(c, &first);
    pthread_mutex_lock(&c->device->lock);
    *more = last.done || first.done;
    return note(c, last.done ? &last : &first);
}

static bool look(struct sc_cuda *c) {
    bool news = false;
    for (uint32_t i = 0; i < SC_CUDA_LINES_MAX; i++)
        for (bool more = true; more && c->lines[i].first != 0 && !c->device->lower;)
            news |= look_at(c, &c->lines[i], &more);
    return news;
}

void sc_cuda_ops_look(void *ctx) {
    struct sc_cuda *c = ctx;
    struct sc_cuda_guard guard;
    sc_cuda_enter(c, &guard);
    pthread_mutex_lock(&c->device->lock);
    (void)look(c);
    pthread_mutex_unlock(&c->device->lock);
    sc_cuda_leave(c, &guard);
}

// ---- the thread ----

static void *work(void *arg) {
    struct sc_cuda *c = arg;
    struct sc_cuda_device *d = c->device;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED; // beside any capture of others
    (void)pthread_setname_np(pthread_self(), "spark-watch");
    (void)c->cu->cuCtxSetCurrent_(d->context);
    (void)c->cu->cuThreadExchangeStreamCaptureMode_(&mode);
    pthread_mutex_lock(&d->lock);
    while (!c->over) {
        if (d->lower) {
            pthread_mutex_unlock(&d->lock);
            (void)sc_cuda_fence_write(d, 0);
            pthread_mutex_lock(&d->lock);
            d->lower = false;
            pthread_cond_broadcast(&d->change);
        } else if (c->asked) {
            c->asked = false;
            if (look(c)) {
                const struct sc_host *host = sc_posix_host(c->posix);
                host->wake(host->ctx);
            }
        } else {
            (void)pthread_cond_wait(&d->change, &d->lock);
        }
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

bool sc_cuda_watch_open(struct sc_cuda *c) {
    return c->watched = sc_cuda_thread_start(&c->watch, work, c);
}

bool sc_cuda_watch_close(struct sc_cuda *c) {
    struct timespec until;
    if (!c->watched)
        return true;
    pthread_mutex_lock(&c->device->lock);
    c->over = true;
    pthread_cond_broadcast(&c->device->change);
    pthread_mutex_unlock(&c->device->lock);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += CLOSE_PATIENCE_S;
    return pthread_timedjoin_np(c->watch, NULL, &until) == 0;
}

// ---- the fence ----

// Until it is there, or for as long as a driver that answers can take.
static void await_fence(struct sc_cuda_device *d) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += FENCE_PATIENCE_NS;
    until.tv_sec += until.tv_nsec / 1000000000l;
    until.tv_nsec %= 1000000000l;
    while (d->lower && pthread_cond_timedwait(&d->change, &d->lock, &until) != ETIMEDOUT) {
    }
}

sc_status sc_cuda_fence_set(void *ctx, uint64_t epoch) {
    struct sc_cuda *c = ctx;
    struct sc_cuda_device *d = c->device;
    struct sc_cuda_guard guard;
    if (c->context_lost)
        return SC_CONTEXT_LOST;
    pthread_mutex_lock(&d->lock);
    if (epoch == 0)
        d->lower = true;
    pthread_cond_broadcast(&d->change);
    await_fence(d);
    bool late = d->lower; // whoever raises it must not be overtaken by a lowering of before
    pthread_mutex_unlock(&d->lock);
    if (epoch == 0)
        return SC_OK;
    if (late)
        return SC_DEVICE_ERROR;
    sc_cuda_enter(c, &guard);
    sc_status status = sc_cuda_status(c, sc_cuda_fence_write(d, epoch));
    sc_cuda_leave(c, &guard);
    return status;
}
