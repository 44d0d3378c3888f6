// SPDX-License-Identifier: AGPL-3.0-only
//
// The real clock. One lock guards the world, and whoever takes it first brings the world to the
// present time; a thread of its own does so whenever an event is due and nobody else came. A rank's
// monitors are taken before the lock, never inside it.
#include "hal_sim/double/inside.h"

#include <signal.h>
#include <time.h>

#define SECOND_NS UINT64_C(1000000000)

// ---- the lock ---------------------------------------------------------------------------------

static uint64_t now_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

static void catch_up(struct sc_double *run) {
    uint64_t until_ns = now_ns();

    run->stepping = true;
    while (sc_sim_step(run->sim, until_ns))
        continue;
    run->stepping = false;
}

// The clock's thread sleeps no longer than to the next event.
static void note_events(struct sc_double *run) {
    if (sc_sim_next_ns(run->sim) >= run->ticks_ns)
        return;
    run->ticks_ns = sc_sim_next_ns(run->sim);
    pthread_cond_signal(&run->earlier);
}

static void on_enter(struct sc_double *run) {
    pthread_mutex_lock(&run->lock);
    if (run->depth++ == 0)
        catch_up(run);
}

static void on_leave(struct sc_double *run) {
    if (--run->depth == 0)
        note_events(run);
    pthread_mutex_unlock(&run->lock);
}

// Lets go of the lock until something has changed or it is that late.
static void rest(struct sc_double *run, pthread_cond_t *until, uint64_t until_ns) {
    const struct timespec deadline = {.tv_sec = (time_t)(until_ns / SECOND_NS),
                                      .tv_nsec = (long)(until_ns % SECOND_NS)};

    SC_ASSERT(run->depth == 1);
    note_events(run);
    run->depth = 0;
    if (until_ns == SC_NEVER_NS)
        pthread_cond_wait(until, &run->lock);
    else
        (void)pthread_cond_timedwait(until, &run->lock, &deadline);
    run->depth = 1;
    catch_up(run);
}

// ---- waiting ----------------------------------------------------------------------------------

static void on_news(struct sc_double *run) {
    uint64_t end_ns = sc_double_end_ns(run);

    rest(run, &run->changed, sc_double_now(run) < end_ns ? end_ns : SC_NEVER_NS);
}

static sc_status on_wait(struct sc_sim_rank *rank, const struct sc_double_wait *wait) {
    struct sc_double *run = rank->run;
    uint64_t due_ns;

    if (run->stepping)
        return sc_double_refuse_wait(rank, wait);
    while ((due_ns = sc_double_due_ns(rank, wait)) > sc_double_now(run))
        rest(run, &run->changed, due_ns);
    if (sc_double_dead(rank))
        return SC_SIM_KILLED;
    return wait->done != NULL && *wait->done ? SC_OK : SC_TIMEOUT;
}

sc_status sc_double_stand(struct sc_sim_rank *rank) {
    struct sc_double *run = rank->run;

    while (rank->paused && !sc_double_dead(rank) && !run->stepping)
        rest(run, &run->changed, SC_NEVER_NS);
    return sc_double_dead(rank) ? SC_SIM_KILLED : SC_OK;
}

// Only the engine's own threads are stalled.
static sc_status on_gate(struct sc_sim_rank *rank) {
    const struct sc_double_wait wait = {0};

    if (rank->run->stepping || sc_double_here() != rank)
        return sc_double_stand(rank);
    return on_wait(rank, &wait) == SC_SIM_KILLED ? SC_SIM_KILLED : SC_OK;
}

static void on_stir(struct sc_sim_rank *rank) {
    pthread_cond_broadcast(&rank->run->changed);
    sc_double_threads_wake(rank);
}

static void on_born(struct sc_sim_rank *rank) {
    (void)rank;
}

static void on_gone(struct sc_sim_rank *rank) {
    struct sc_double *run = rank->run;

    on_enter(run);
    rank->ended = true;
    run->running--;
    run->unjoined = true;
    pthread_cond_broadcast(&run->changed);
    on_leave(run);
}

// ---- the clock's thread -----------------------------------------------------------------------

static void *tick(void *arg) {
    struct sc_double *run = arg;

    on_enter(run);
    while (!run->ticker_stops) {
        run->ticks_ns = sc_sim_next_ns(run->sim);
        rest(run, &run->earlier, run->ticks_ns);
    }
    on_leave(run);
    return NULL;
}

static void make_locks(struct sc_double *run) {
    pthread_mutexattr_t recursive;
    pthread_condattr_t monotonic;

    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&run->lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&run->changed, &monotonic);
    pthread_cond_init(&run->earlier, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static void free_locks(struct sc_double *run) {
    pthread_cond_destroy(&run->earlier);
    pthread_cond_destroy(&run->changed);
    pthread_mutex_destroy(&run->lock);
}

static sc_status on_start(struct sc_double *run) {
    sigset_t all, before;

    make_locks(run);
    run->base_ns = now_ns();
    (void)sc_sim_step(run->sim, run->base_ns);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&run->ticker, NULL, tick, run);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        free_locks(run);
    return failed ? SC_NO_MEMORY : SC_OK;
}

static void on_stop(struct sc_double *run) {
    on_enter(run);
    run->ticker_stops = true;
    pthread_cond_signal(&run->earlier);
    on_leave(run);
    pthread_join(run->ticker, NULL);
    free_locks(run);
}

const struct sc_double_clock sc_double_real = {
    .start = on_start,
    .stop = on_stop,
    .enter = on_enter,
    .leave = on_leave,
    .news = on_news,
    .born = on_born,
    .gone = on_gone,
    .wait = on_wait,
    .gate = on_gate,
    .stir = on_stir,
    .woken = sc_double_threads_wake,
    .open = sc_double_threads_open,
    .close = sc_double_threads_close,
};
