// SPDX-License-Identifier: AGPL-3.0-only
//
// What a plan's entries do to the ranks, and the supervisor that starts them.
#include "hal_sim/double/inside.h"

#define MS UINT64_C(1000000)

// ---- the supervisor ---------------------------------------------------------------------------

static void respawn_in(struct sc_double_seat *seat, uint64_t delay_ns);

// A dead process of this rank has not closed its sockets yet: it could hold the port.
static bool lingers(const struct sc_double_seat *seat) {
    for (const struct sc_sim_rank *rank = seat->run->lives; rank != NULL; rank = rank->next)
        for (const struct sc_double_handle *h = rank->handles; h != NULL; h = h->next)
            if (rank->seat == seat && sc_double_dead(rank) && h->posix != NULL && !h->hung_up)
                return true;
    return false;
}

static void on_respawn(void *arg) {
    struct sc_double_seat *seat = arg;
    struct sc_double *run = seat->run;

    if (run->ending || !seat->wanted || sc_double_now(run) < seat->respawn_at_ns)
        return;
    if (seat->life == NULL && lingers(seat)) {
        respawn_in(seat, MS);
        return;
    }
    seat->wanted = false;
    if (seat->life == NULL && run->failure == SC_OK)
        run->failure = sc_double_spawn(seat);
}

static void respawn_in(struct sc_double_seat *seat, uint64_t delay_ns) {
    seat->wanted = true;
    seat->respawn_at_ns = sc_double_now(seat->run) + delay_ns;
    sc_sim_at(seat->run->sim, seat->respawn_at_ns, on_respawn, seat);
}

static uint64_t draw(struct sc_double *run, uint64_t min_ns, uint64_t max_ns) {
    return min_ns + sc_sim_random(run->sim) % (max_ns - min_ns + 1);
}

void sc_double_supervise(struct sc_double_seat *seat) {
    const struct sc_plan *plan = &seat->run->plan;

    if (plan->respawn_max_ns != 0)
        respawn_in(seat, draw(seat->run, plan->respawn_min_ns, plan->respawn_max_ns));
}

// ---- pauses -----------------------------------------------------------------------------------

static void resume(struct sc_double_seat *seat) {
    seat->paused_until_ns = 0;
    for (struct sc_sim_rank *rank = seat->run->lives; rank != NULL; rank = rank->next) {
        if (rank->seat != seat || !rank->paused)
            continue;
        rank->paused = false;
        sc_sim_resume(rank->process);
        seat->run->clock->stir(rank);
    }
}

static void on_resume(void *arg) {
    struct sc_double_seat *seat = arg;

    if (seat->paused_until_ns != 0 && sc_double_now(seat->run) >= seat->paused_until_ns)
        resume(seat);
}

static bool pause_seat(struct sc_double_seat *seat, uint64_t duration_ns) {
    if (seat->life == NULL || seat->paused_until_ns != 0)
        return false;
    seat->life->paused = true;
    sc_sim_pause(seat->life->process);
    seat->run->clock->stir(seat->life);
    seat->paused_until_ns = sc_double_now(seat->run) + duration_ns;
    sc_sim_at(seat->run->sim, seat->paused_until_ns, on_resume, seat);
    return true;
}

static bool replace_seat(struct sc_double_seat *seat, uint64_t duration_ns) {
    if (seat->rank == 0 || !pause_seat(seat, duration_ns))
        return false; // two coordinators on one address cannot be
    seat->life = NULL;
    respawn_in(seat, 0);
    return true;
}

// ---- entries ----------------------------------------------------------------------------------

// Nothing on its streams will ever run.
static void end_drains(struct sc_sim_rank *rank) {
    for (struct sc_double_drain *drain = rank->drains; drain != NULL; drain = drain->next)
        drain->done = true;
    rank->run->clock->stir(rank);
}

static bool inject(struct sc_double *run, const struct sc_sim_fault *fault) {
    bool breaks = fault->kind == SC_SIM_verb_fails || fault->kind == SC_SIM_context_lost;
    bool struck = sc_sim_inject(run->sim, fault);

    for (struct sc_sim_rank *rank = run->lives; rank != NULL; rank = rank->next) {
        rank->broken |= breaks && rank->seat->rank == fault->a;
        if (rank->process->context_lost)
            end_drains(rank);
    }
    return struck;
}

static bool on_act(void *arg, const struct sc_plan_entry *entry) {
    struct sc_double *run = arg;
    struct sc_double_seat *seat = &run->seats[entry->rank];

    switch (entry->verb) {
    case SC_PLAN_fault: return inject(run, &entry->fault);
    case SC_PLAN_heal: sc_sim_heal(run->sim); return true;
    case SC_PLAN_pause: return pause_seat(seat, entry->duration_ns);
    case SC_PLAN_replace: return replace_seat(seat, entry->duration_ns);
    case SC_PLAN_restart:
        if (seat->life == NULL)
            respawn_in(seat, 0);
        return seat->life == NULL;
    case SC_PLAN_kill:
        if (seat->life == NULL)
            return false;
        sc_double_kill(seat->life, "killed");
        sc_double_supervise(seat);
        return true;
    case SC_PLAN_stall:
        if (seat->life == NULL)
            return false;
        seat->life->stalled_until_ns = sc_double_now(run) + entry->duration_ns;
        run->clock->stir(seat->life);
        return true;
    default: return false; // the plan's reader lets no other pass
    }
}

static void on_told(void *arg, const char *text) {
    sc_double_trace(
        arg, (struct sc_trace_entry){.kind = SC_TRACE_FAULT, .rank = SC_RANK_NONE, .text = text});
}

static void on_quiet(void *arg) {
    struct sc_double *run = arg;

    run->player.quiet = true;
    sc_sim_heal(run->sim);
    for (uint32_t r = 0; r < run->plan.core.world; r++)
        resume(&run->seats[r]);
}

void sc_double_plan_start(struct sc_double *run) {
    const struct sc_player_hooks hooks = {.tell = on_told, .act = on_act, .arg = run};

    for (uint32_t r = 0; r < run->plan.core.world; r++) {
        run->seats[r] = (struct sc_double_seat){.run = run, .rank = r};
        respawn_in(&run->seats[r], draw(run, 0, 50 * MS));
    }
    sc_player_start(&run->player, &run->plan, run->sim, &hooks);
    sc_sim_at(run->sim, run->base_ns + run->plan.quiet_ns, on_quiet, run);
}
