// SPDX-License-Identifier: AGPL-3.0-only
//
// The virtual clock. Of all threads of a run exactly one is awake: it holds the baton, and the run
// is its alone. Whoever has to wait hands the baton to the lowest rank that can go on; while there
// is none, it steps the world.
#include "hal_sim/double/inside.h"

#define CALLS_MAX 1024u         // of a thread at one moment: so polling lets time pass too
#define POLL_NS UINT64_C(10000) // … this much

// ---- whose turn it is -------------------------------------------------------------------------

// The lowest rank whose thread can go on; NULL and the earliest time when one can.
static struct sc_sim_rank *first_due(const struct sc_double *run, uint64_t *earliest_ns) {
    struct sc_sim_rank *first = NULL;

    *earliest_ns = SC_NEVER_NS;
    for (struct sc_sim_rank *rank = run->lives; rank != NULL; rank = rank->next) {
        uint64_t due = rank->ended ? SC_NEVER_NS : sc_double_due_ns(rank, &rank->wait);
        if (due < *earliest_ns)
            *earliest_ns = due;
        if (due <= sc_double_now(run) && (first == NULL || rank->seat->rank < first->seat->rank))
            first = rank;
    }
    return first;
}

// Lets the world go on until somebody can: NULL for the run's own thread, which has something to
// look at.
static struct sc_sim_rank *next_holder(struct sc_double *run) {
    for (;;) {
        uint64_t until_ns;
        struct sc_sim_rank *rank = first_due(run, &until_ns);
        if (run->unjoined || rank != NULL)
            return run->unjoined ? NULL : rank;
        sc_double_steps_rouse(run);
        run->stuck = until_ns == SC_NEVER_NS && sc_sim_next_ns(run->sim) == SC_NEVER_NS;
        if (sc_double_over(run))
            return NULL;
        if (until_ns > sc_double_end_ns(run))
            until_ns = sc_double_end_ns(run);
        run->stepping = true;
        (void)sc_sim_step(run->sim, until_ns);
        run->stepping = false;
    }
}

// ---- the baton --------------------------------------------------------------------------------

static pthread_cond_t *turn_of(struct sc_double *run, struct sc_sim_rank *rank) {
    return rank != NULL ? &rank->turn : &run->turn;
}

static void await_turn(struct sc_double *run, struct sc_sim_rank *self) {
    while (run->holder != self)
        pthread_cond_wait(turn_of(run, self), &run->lock);
}

static void pass(struct sc_double *run, struct sc_sim_rank *self) {
    struct sc_sim_rank *next = next_holder(run);

    if (next == self)
        return;
    pthread_mutex_lock(&run->lock);
    run->holder = next;
    pthread_cond_signal(turn_of(run, next));
    await_turn(run, self);
    pthread_mutex_unlock(&run->lock);
}

static void on_news(struct sc_double *run) {
    pass(run, NULL);
}

static void on_born(struct sc_sim_rank *rank) {
    pthread_mutex_lock(&rank->run->lock);
    await_turn(rank->run, rank);
    pthread_mutex_unlock(&rank->run->lock);
}

static void on_gone(struct sc_sim_rank *rank) {
    struct sc_double *run = rank->run;

    rank->ended = true;
    run->running--;
    run->unjoined = true;
    pthread_mutex_lock(&run->lock);
    run->holder = NULL;
    pthread_cond_signal(&run->turn);
    pthread_mutex_unlock(&run->lock);
}

// ---- waiting ----------------------------------------------------------------------------------

static sc_status on_wait(struct sc_sim_rank *rank, const struct sc_double_wait *wait) {
    struct sc_double *run = rank->run;

    if (sc_double_dead(rank))
        return SC_SIM_KILLED;
    if (run->stepping)
        return sc_double_refuse_wait(rank, wait);
    rank->wait = *wait;
    pass(run, rank);
    if (sc_double_dead(rank))
        return SC_SIM_KILLED;
    return wait->done != NULL && *wait->done ? SC_OK : SC_TIMEOUT;
}

static sc_status on_gate(struct sc_sim_rank *rank) {
    struct sc_double *run = rank->run;
    struct sc_double_wait wait = {.where = "a call"};

    if (sc_double_dead(rank))
        return SC_SIM_KILLED;
    if (run->stepping)
        return SC_OK;
    if (sc_double_here() != rank) {
        atomic_store(&run->intruded, true);
        return SC_SIM_KILLED;
    }
    if (rank->called_ns != sc_double_now(run))
        rank->calls = 0;
    rank->called_ns = sc_double_now(run);
    if (++rank->calls > CALLS_MAX)
        wait.deadline_ns = sc_double_now(run) + POLL_NS;
    else if (!rank->paused && rank->stalled_until_ns <= sc_double_now(run))
        return SC_OK;
    return on_wait(rank, &wait) == SC_SIM_KILLED ? SC_SIM_KILLED : SC_OK;
}

// ---- the clock --------------------------------------------------------------------------------

static sc_status on_start(struct sc_double *run) {
    pthread_mutex_init(&run->lock, NULL);
    pthread_cond_init(&run->turn, NULL);
    return SC_OK;
}

static void on_stop(struct sc_double *run) {
    pthread_cond_destroy(&run->turn);
    pthread_mutex_destroy(&run->lock);
}

// Whoever is awake is alone.
static void on_enter(struct sc_double *run) {
    (void)run;
}

static void on_close(struct sc_double_handle *handle) {
    (void)handle;
}

// Those that wait are looked at whenever the baton passes.
static void on_stir(struct sc_sim_rank *rank) {
    (void)rank;
}

const struct sc_double_clock sc_double_virtual = {
    .start = on_start,
    .stop = on_stop,
    .enter = on_enter,
    .leave = on_enter,
    .news = on_news,
    .born = on_born,
    .gone = on_gone,
    .wait = on_wait,
    .gate = on_gate,
    .stir = on_stir,
    .woken = sc_double_steps_run,
    .open = sc_double_steps_open,
    .close = on_close,
};
