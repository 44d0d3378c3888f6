// SPDX-License-Identifier: AGPL-3.0-only
//
// A life: a simulated process and the thread that runs the engine's main function in it.
#include "hal_sim/double/inside.h"

#include "core/api.h"

#include <stdlib.h>

// ---- which rank a thread belongs to -----------------------------------------------------------

static pthread_key_t here;
static pthread_once_t here_once = PTHREAD_ONCE_INIT;
static bool here_made;

// A thread that was attached has ended. The first thread of a life belongs to nobody when it ends.
static void on_thread_end(void *arg) {
    struct sc_sim_rank *rank = arg;
    struct sc_double *run = rank->run;

    run->clock->enter(run);
    rank->attached--;
    run->clock->stir(rank);
    run->clock->leave(run);
}

static void here_make(void) {
    here_made = pthread_key_create(&here, on_thread_end) == 0;
}

struct sc_sim_rank *sc_double_here(void) {
    (void)pthread_once(&here_once, here_make);
    return here_made ? pthread_getspecific(here) : NULL;
}

sc_status sc_double_here_set(struct sc_sim_rank *rank) {
    (void)pthread_once(&here_once, here_make);
    return here_made && pthread_setspecific(here, rank) == 0 ? SC_OK : SC_NO_MEMORY;
}

uint64_t sc_double_due_ns(const struct sc_sim_rank *rank, const struct sc_double_wait *wait) {
    if (sc_double_dead(rank))
        return 0;
    if (rank->paused)
        return SC_NEVER_NS;
    uint64_t due = wait->done != NULL && *wait->done ? 0 : wait->deadline_ns;
    return due > rank->stalled_until_ns ? due : rank->stalled_until_ns;
}

sc_status sc_double_refuse_wait(struct sc_sim_rank *rank, const struct sc_double_wait *wait) {
    if (!sc_double_dead(rank))
        sc_double_violation(rank->run, rank->seat->rank,
                            "%s waits inside a callback, where nothing may", wait->where);
    return SC_SIM_KILLED;
}

// ---- the end ----------------------------------------------------------------------------------

static void trace_life(struct sc_sim_rank *rank, enum sc_trace_kind kind, const char *text) {
    sc_double_trace(rank->run, (struct sc_trace_entry){.kind = kind,
                                                       .rank = rank->seat->rank,
                                                       .former = rank->seat->life != rank,
                                                       .text = text});
}

static bool is_last_life(const struct sc_sim_rank *rank) {
    return rank->life == rank->run->report.lives[rank->seat->rank];
}

static void set_exit_code(struct sc_sim_rank *rank, int32_t code) {
    if (is_last_life(rank))
        rank->run->report.exit_code[rank->seat->rank] = code;
    if (rank->seat->life == rank)
        rank->seat->life = NULL;
}

void sc_double_kill(struct sc_sim_rank *rank, const char *why) {
    trace_life(rank, SC_TRACE_END, why);
    sc_sim_kill(rank->process);
    set_exit_code(rank, -1);
    rank->run->clock->stir(rank);
}

static bool has_open_handle(const struct sc_sim_rank *rank) {
    for (const struct sc_double_handle *h = rank->handles; h != NULL; h = h->next)
        if (h->comm != 0)
            return true;
    return false;
}

// What the library owes at the end of a process whose handle was closed. A communicator whose abort
// never returned keeps what it may still touch; a device whose calls were made to fail keeps
// anything.
static void judge_held(struct sc_sim_rank *rank) {
    struct sc_sim_held held;

    sc_sim_held(rank->process, &held);
    bool excused = rank->broken || held.quarantined != 0 || held.communicators != 0;
    if (!excused && (held.allocations > rank->allocations || held.streams > rank->streams ||
                     held.ops != 0 || held.captures != 0 || held.registrations != 0))
        sc_double_violation(rank->run, rank->seat->rank,
                            "at exit the library still holds %u allocations, %u streams, %u ops, "
                            "%u captures and %u registrations",
                            held.allocations - rank->allocations, held.streams - rank->streams,
                            held.ops, held.captures, held.registrations);
    if (held.links != 0 || held.listeners != 0)
        sc_double_violation(rank->run, rank->seat->rank,
                            "at exit the library still holds %u links and %u listeners", held.links,
                            held.listeners);
}

static void exit_process(struct sc_sim_rank *rank, int code) {
    char text[32];

    if (has_open_handle(rank))
        sc_double_violation(rank->run, rank->seat->rank,
                            "main returned %d with a handle open; end with sc_close()", code);
    else
        judge_held(rank);
    snprintf(text, sizeof text, "returned %d", code);
    trace_life(rank, SC_TRACE_END, text);
    sc_sim_kill(rank->process);
    set_exit_code(rank, code);
    rank->run->clock->stir(rank);
}

static void abandon_handles(struct sc_sim_rank *rank) {
    while (rank->handles != NULL) {
        struct sc_double_handle *handle = rank->handles;
        if (handle->comm != 0)
            sc_api_abandon(handle->comm);
        if (rank->handles == handle)
            sc_double_handle_free(handle);
    }
}

static void *live(void *arg) {
    struct sc_sim_rank *rank = arg;
    struct sc_double *run = rank->run;

    run->clock->born(rank);
    int code = sc_double_here_set(rank) == SC_OK ? run->main(rank, run->arg) : -1;
    run->clock->enter(run);
    if (run->clock->gate(rank) == SC_OK)
        exit_process(rank, code);
    while (rank->attached > 0) // told by their next call that the process is dead
        run->clock->news(run);
    run->clock->leave(run);
    abandon_handles(rank);
    (void)sc_double_here_set(NULL);
    run->clock->gone(rank);
    return NULL;
}

static void free_life(struct sc_sim_rank *rank) {
    while (rank->drains != NULL) {
        struct sc_double_drain *drain = rank->drains;
        rank->drains = drain->next;
        free(drain);
    }
    if (rank->process != NULL) {
        sc_sim_kill(rank->process);
        sc_sim_reap(rank->process);
    }
    sc_hal_check_destroy(rank->check);
    pthread_cond_destroy(&rank->turn);
    free(rank);
}

void sc_double_bury(struct sc_double *run) {
    struct sc_sim_rank **link = &run->lives;

    run->unjoined = false;
    while (*link != NULL) {
        struct sc_sim_rank *rank = *link;
        if (!rank->ended) {
            link = &rank->next;
            continue;
        }
        *link = rank->next;
        pthread_join(rank->thread, NULL);
        free_life(rank);
    }
}

// ---- the beginning ----------------------------------------------------------------------------

static void on_breach(void *arg, const char *text) {
    struct sc_sim_rank *rank = arg;

    if (!sc_double_dead(rank)) // the dead are answered CLOSED by everything
        sc_double_violation(rank->run, rank->seat->rank, "contract: %s", text);
}

static sc_status make_process(struct sc_sim_rank *rank) {
    const struct sc_hal_check_config checked = {.on_breach = on_breach, .arg = rank};
    sc_status status = sc_sim_spawn(rank->run->sim, rank->seat->rank, rank->run->clock->woken, rank,
                                    &rank->process);

    if (status != SC_OK)
        return status;
    return sc_hal_check_create(sc_sim_device(rank->process), &checked, &rank->check);
}

sc_status sc_double_spawn(struct sc_double_seat *seat) {
    struct sc_double *run = seat->run;
    struct sc_sim_rank *rank = calloc(1, sizeof *rank);
    struct sc_sim_rank **last = &run->lives;

    if (rank == NULL)
        return SC_NO_MEMORY;
    pthread_cond_init(&rank->turn, NULL);
    rank->run = run;
    rank->seat = seat;
    rank->life = run->report.lives[seat->rank] + 1;
    sc_status status = make_process(rank);
    if (status == SC_OK && pthread_create(&rank->thread, NULL, live, rank) != 0)
        status = SC_NO_MEMORY;
    if (status != SC_OK) {
        free_life(rank);
        return status;
    }
    while (*last != NULL)
        last = &(*last)->next;
    *last = rank;
    seat->life = rank;
    run->running++;
    run->report.lives[seat->rank]++;
    run->report.exit_code[seat->rank] = -1;
    trace_life(rank, SC_TRACE_SPAWN, "");
    return SC_OK;
}
