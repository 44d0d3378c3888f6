// SPDX-License-Identifier: AGPL-3.0-only
//
// The part of the host table that many threads share: the monitor, the library's own two threads,
// and the descriptor for events.
#include "core/assert.h"
#include "hal/posix_inside.h"

#include <errno.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>

#define SECOND_NS UINT64_C(1000000000)
#define TIMER_SLACK_NS 1ul
#define REST_NS 1000000l

// ---- the monitor ----

static sc_status host_enter(void *ctx) {
    struct sc_posix *posix = ctx;
    pthread_mutex_lock(&posix->lock);
    return SC_OK;
}

static void host_leave(void *ctx) {
    struct sc_posix *posix = ctx;
    pthread_mutex_unlock(&posix->lock);
}

static sc_status host_await(void *ctx, uint64_t deadline_ns) {
    struct sc_posix *posix = ctx;
    if (deadline_ns == SC_NEVER_NS) {
        pthread_cond_wait(&posix->change, &posix->lock);
        return SC_OK;
    }
    const struct timespec deadline = {.tv_sec = (time_t)(deadline_ns / SECOND_NS),
                                      .tv_nsec = (long)(deadline_ns % SECOND_NS)};
    int error = pthread_cond_timedwait(&posix->change, &posix->lock, &deadline);
    return error == ETIMEDOUT ? SC_TIMEOUT : SC_OK;
}

static void host_notify(void *ctx) {
    struct sc_posix *posix = ctx;
    posix->notifies++;
    pthread_cond_broadcast(&posix->change);
}

// ---- the threads ----

// Whose PROGRESS thread this is.
static _Thread_local const struct sc_posix *progress_of;

bool sc_posix_in_progress(const struct sc_posix *posix) {
    return progress_of == posix;
}

static bool is_to_stop(struct sc_posix_thread *thread) {
    pthread_mutex_lock(&thread->posix->lock);
    bool stop = thread->told_to_stop;
    pthread_mutex_unlock(&thread->posix->lock);
    return stop;
}

static void progress(struct sc_posix_thread *thread) {
    const struct sc_host *host = &thread->posix->host;
    (void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS); // later without, not wrong
    progress_of = thread->posix;
    while (!is_to_stop(thread)) {
        sc_status status = host->wait(host->ctx, thread->step(thread->arg));
        // Where the kernel cannot wait the steps go on, without spinning.
        if (status != SC_OK && status != SC_TIMEOUT)
            (void)nanosleep(&(const struct timespec){.tv_nsec = REST_NS}, NULL);
    }
}

// What is notified while a step runs may be too late for that one: it makes the next.
static void notifier(struct sc_posix_thread *thread) {
    struct sc_posix *posix = thread->posix;
    pthread_mutex_lock(&posix->lock);
    while (!thread->told_to_stop) {
        const uint64_t notifies = posix->notifies;
        pthread_mutex_unlock(&posix->lock);
        const uint64_t deadline_ns = thread->step(thread->arg);
        pthread_mutex_lock(&posix->lock);
        while (!thread->told_to_stop && posix->notifies == notifies &&
               host_await(posix, deadline_ns) == SC_OK)
            continue;
    }
    pthread_mutex_unlock(&posix->lock);
}

static void *begin(void *arg) {
    struct sc_posix_thread *thread = arg;
    (void)pthread_setname_np(pthread_self(), thread->name);
    thread->run(thread);
    return NULL;
}

static sc_status host_thread_start(void *ctx, enum sc_host_thread which,
                                   uint64_t (*step)(void *arg), void *arg) {
    struct sc_posix *posix = ctx;
    if (which >= SC_HOST_THREADS || step == NULL)
        return SC_INVALID;
    struct sc_posix_thread *thread = &posix->threads[which];
    if (thread->started)
        return SC_STATE;
    thread->step = step;
    thread->arg = arg;
    thread->told_to_stop = false;
    // The application's signal handlers run on the application's threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread->started = pthread_create(&thread->id, NULL, begin, thread) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return thread->started ? SC_OK : SC_NO_MEMORY;
}

static void host_thread_stop(void *ctx, enum sc_host_thread which) {
    struct sc_posix *posix = ctx;
    struct sc_posix_thread *thread = which < SC_HOST_THREADS ? &posix->threads[which] : NULL;
    if (thread == NULL || !thread->started)
        return;
    pthread_mutex_lock(&posix->lock);
    thread->told_to_stop = true;
    pthread_cond_broadcast(&posix->change);
    pthread_mutex_unlock(&posix->lock);
    posix->host.wake(posix);
    SC_ASSERT(pthread_join(thread->id, NULL) == 0); // it is no step that calls this
    thread->started = false;
}

// ---- the descriptor ----

static int host_event_fd(void *ctx) {
    const struct sc_posix *posix = ctx;
    return posix->event_fd;
}

static void host_event_signal(void *ctx) {
    const struct sc_posix *posix = ctx;
    (void)eventfd_write(posix->event_fd, 1); // it fails only when the counter is full: readable
}

// ---- the object's part ----

void sc_posix_threads_open(struct sc_posix *posix) {
    pthread_mutexattr_t lock;
    pthread_mutexattr_init(&lock);
    pthread_mutexattr_settype(&lock, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(&posix->lock, &lock);
    pthread_mutexattr_destroy(&lock);

    pthread_condattr_t change;
    pthread_condattr_init(&change);
    pthread_condattr_setclock(&change, CLOCK_MONOTONIC);
    pthread_cond_init(&posix->change, &change);
    pthread_condattr_destroy(&change);

    posix->threads[SC_HOST_PROGRESS] =
        (struct sc_posix_thread){.posix = posix, .name = "spark-progress", .run = progress};
    posix->threads[SC_HOST_NOTIFIER] =
        (struct sc_posix_thread){.posix = posix, .name = "spark-notify", .run = notifier};

    struct sc_host *host = &posix->host;
    host->enter = host_enter;
    host->leave = host_leave;
    host->await = host_await;
    host->notify = host_notify;
    host->thread_start = host_thread_start;
    host->thread_stop = host_thread_stop;
    host->event_fd = host_event_fd;
    host->event_signal = host_event_signal;
}

void sc_posix_threads_close(struct sc_posix *posix) {
    for (uint32_t i = 0; i < SC_HOST_THREADS; i++)
        SC_ASSERT(!posix->threads[i].started);
    pthread_cond_destroy(&posix->change);
    pthread_mutex_destroy(&posix->lock);
}
