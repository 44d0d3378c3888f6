// SPDX-License-Identifier: AGPL-3.0-only
//
// A run: build the world, do what the plan's entries say, step, restart what died, close, judge.
#include "hal_sim/lab/inside.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS 1000000ull
#define SECOND (1000ull * MS)

uint64_t sc_lab_now(const struct lab *lab) {
    return sc_sim_now_ns(lab->sim);
}

uint64_t sc_lab_draw(struct lab *lab, uint64_t min, uint64_t max) {
    uint64_t z = lab->random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return min + (z ^ (z >> 31)) % (max - min + 1);
}

// ---- the record ----

static void meet_expectation(struct lab *lab, const struct sc_trace_entry *entry) {
    char line[512];
    if (lab->expect_met < lab->plan->expect_count && sc_trace_line(entry, line, sizeof line) &&
        sc_trace_matches(line, lab->plan->expect[lab->expect_met]))
        lab->expect_met++;
}

void sc_lab_trace(struct lab *lab, struct sc_trace_entry entry) {
    entry.now_ns = sc_lab_now(lab);
    lab->result->hash = sc_trace_hash(lab->result->hash, &entry);
    if (lab->options != NULL && lab->options->on_trace != NULL)
        lab->options->on_trace(lab->options->arg, &entry);
    if (lab->plan->expect_count != 0)
        meet_expectation(lab, &entry);
}

void sc_lab_violation(struct lab *lab, uint32_t rank, const char *format, ...) {
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    char whose[24] = "";
    if (rank != SC_RANK_NONE)
        snprintf(whose, sizeof whose, " rank %u", rank);
    if (lab->result->violations++ == 0)
        snprintf(lab->result->violation, sizeof lab->result->violation, "at %llu.%06llu s%s: %s",
                 (unsigned long long)(sc_lab_now(lab) / SECOND),
                 (unsigned long long)(sc_lab_now(lab) % SECOND / 1000), whose, text);
    sc_lab_trace(lab,
                 (struct sc_trace_entry){.kind = SC_TRACE_VIOLATION, .rank = rank, .text = text});
}

static void on_sim_violation(void *arg, uint32_t rank, const char *text) {
    sc_lab_violation(arg, rank, "O4 simulator: %s", text);
}

// ---- the supervisor ----

static void respawn_in(struct seat *seat, uint64_t delay_ns);

static void on_respawn(void *arg) {
    struct seat *seat = arg;
    struct lab *lab = seat->lab;
    if (lab->ending || !seat->wanted || sc_lab_now(lab) < seat->respawn_at_ns)
        return;
    seat->wanted = false;
    if (seat->life == NULL && sc_life_spawn(seat) == NULL)
        respawn_in(seat, 500 * MS); // it could not open; a supervisor tries again
}

static void respawn_in(struct seat *seat, uint64_t delay_ns) {
    seat->wanted = true;
    seat->respawn_at_ns = sc_lab_now(seat->lab) + delay_ns;
    sc_sim_at(seat->lab->sim, seat->respawn_at_ns, on_respawn, seat);
}

static void supervise(struct lab *lab) {
    const struct sc_plan *plan = lab->plan;
    lab->vacant = false;
    for (uint32_t r = 0; r < plan->core.world && plan->respawn_max_ns != 0; r++) {
        struct seat *seat = &lab->seats[r];
        if (seat->life == NULL && !seat->wanted && !seat->left)
            respawn_in(seat, sc_lab_draw(lab, plan->respawn_min_ns, plan->respawn_max_ns));
    }
}

// ---- the plan's entries ----

static void on_unpause(void *arg) {
    struct seat *seat = arg;
    if (sc_lab_now(seat->lab) < seat->paused_until_ns)
        return;
    seat->paused_until_ns = 0;
    struct life *lives[] = {seat->life, seat->ghost};
    for (uint32_t i = 0; i < LAB_LIVES; i++) {
        if (lives[i] == NULL || !lives[i]->paused)
            continue;
        lives[i]->paused = false;
        sc_sim_resume(lives[i]->process);
        sc_sim_timer(lives[i]->process, sc_lab_now(seat->lab));
    }
}

static bool pause_seat(struct seat *seat, uint64_t duration_ns) {
    if (seat->life == NULL || seat->paused_until_ns != 0)
        return false;
    seat->life->paused = true;
    sc_sim_pause(seat->life->process);
    seat->paused_until_ns = sc_lab_now(seat->lab) + duration_ns;
    sc_sim_at(seat->lab->sim, seat->paused_until_ns, on_unpause, seat);
    return true;
}

static bool replace_seat(struct seat *seat, uint64_t duration_ns) {
    if (seat->rank == 0 || seat->ghost != NULL || !pause_seat(seat, duration_ns))
        return false; // two coordinators on one address cannot be
    seat->ghost = seat->life;
    seat->life = NULL;
    respawn_in(seat, 0);
    return true;
}

static bool close_seat(struct seat *seat, bool final, uint64_t away_ns) {
    if (seat->life == NULL || seat->life->paused)
        return false;
    sc_sim_timer(seat->life->process, sc_lab_now(seat->lab));
    if (sc_pump_close(seat->life->pump, final) != SC_OK)
        return false;
    seat->life->app.phase = APP_CLOSED;
    // For good, unless a supervisor begins the job anew.
    seat->left = final && seat->lab->plan->respawn_max_ns == 0;
    if (!final)
        respawn_in(seat, away_ns + 2 * seat->lab->plan->core.timing.abort_ns);
    return true;
}

static bool reconnect_seat(struct seat *seat) {
    if (seat->life == NULL || seat->life->paused)
        return false;
    struct sc_core_view view;
    sc_pump_view(seat->life->pump, &view);
    if (view.state != SC_STATE_READY)
        return false;
    bool done = sc_pump_reconnect(seat->life->pump, view.epoch, 7) == SC_OK;
    sc_sim_timer(seat->life->process, sc_lab_now(seat->lab));
    return done;
}

// How long links or hosts may be slower than usual because of a fault; 0: not at all.
static uint64_t disturbance(const struct lab *lab, const struct sc_plan_entry *entry) {
    uint64_t silence = lab->plan->core.timing.silence_ns;
    if (entry->verb == SC_PLAN_pause || entry->verb == SC_PLAN_replace)
        return entry->duration_ns + silence;
    if (entry->verb != SC_PLAN_fault)
        return 0;
    switch (entry->fault.kind) {
    case SC_SIM_link_blackhole:
    case SC_SIM_link_oneway:
    case SC_SIM_link_fragment: return entry->fault.duration_ns + silence;
    case SC_SIM_link_delay: return 9 * entry->fault.duration_ns + silence;
    case SC_SIM_link_reset: return silence;
    default: return 0;
    }
}

static bool act_entry(struct lab *lab, const struct sc_plan_entry *entry) {
    struct seat *seat = &lab->seats[entry->rank];
    switch (entry->verb) {
    case SC_PLAN_fault: return sc_sim_inject(lab->sim, &entry->fault);
    case SC_PLAN_kill:
        if (seat->life != NULL)
            sc_life_kill(seat->life, "killed");
        else
            return false;
        return true;
    case SC_PLAN_restart:
        if (seat->life == NULL)
            respawn_in(seat, 0);
        return seat->life == NULL;
    case SC_PLAN_pause: return pause_seat(seat, entry->duration_ns);
    case SC_PLAN_replace: return replace_seat(seat, entry->duration_ns);
    case SC_PLAN_close_final: return close_seat(seat, true, 0);
    case SC_PLAN_close_returning: return close_seat(seat, false, entry->duration_ns);
    case SC_PLAN_reconnect: return reconnect_seat(seat);
    case SC_PLAN_stall:
        if (seat->life != NULL)
            seat->life->app.stalled_until_ns = sc_lab_now(lab) + entry->duration_ns;
        return seat->life != NULL;
    case SC_PLAN_slow_kernel:
        if (seat->life != NULL)
            seat->life->app.slow_kernel_ns = entry->duration_ns;
        return seat->life != NULL;
    case SC_PLAN_heal: sc_sim_heal(lab->sim); return true;
    case SC_PLAN_VERB_COUNT: break;
    }
    return false;
}

// Tells the oracles what they must not take for a defect of ours.
static void note_entry(struct lab *lab, const struct sc_plan_entry *entry) {
    bool delays = entry->verb == SC_PLAN_slow_kernel || entry->verb == SC_PLAN_stall;
    bool harmless = entry->verb == SC_PLAN_restart || entry->verb == SC_PLAN_heal ||
                    (delays && lab->plan->core.timing.behind_ns == 0);
    if (!harmless)
        sc_oracle_fault(lab, disturbance(lab, entry));
    if (entry->verb != SC_PLAN_fault)
        return;
    const struct seat *seat = &lab->seats[entry->fault.a];
    struct life *lives[] = {seat->life, seat->ghost};
    bool breaks =
        entry->fault.kind == SC_SIM_verb_fails || entry->fault.kind == SC_SIM_context_lost;
    for (uint32_t i = 0; i < LAB_LIVES; i++) {
        if (lives[i] == NULL)
            continue;
        lives[i]->broken |= breaks;
        lives[i]->unregistered |= breaks || entry->fault.kind == SC_SIM_register_null;
    }
}

static void on_told(void *arg, const char *text) {
    sc_lab_trace(
        arg, (struct sc_trace_entry){.kind = SC_TRACE_FAULT, .rank = SC_RANK_NONE, .text = text});
}

static bool on_act(void *arg, const struct sc_plan_entry *entry) {
    struct lab *lab = arg;
    note_entry(lab, entry);
    if (!act_entry(lab, entry))
        return false;
    if (entry->verb == SC_PLAN_fault)
        lab->result->faults[entry->fault.kind]++;
    lab->result->verbs[entry->verb]++;
    return true;
}

bool sc_lab_fire_at_op(struct lab *lab, uint32_t rank, uint64_t mark, uint64_t op) {
    const struct life *before = lab->seats[rank].life;
    sc_player_at_op(&lab->player, rank, mark, op);
    return lab->seats[rank].life != before;
}

bool sc_lab_fire_at_mark(struct lab *lab, uint32_t rank, uint64_t mark) {
    const struct life *before = lab->seats[rank].life;
    sc_player_at_mark(&lab->player, rank, mark);
    return lab->seats[rank].life != before;
}

static void on_quiet(void *arg) {
    struct lab *lab = arg;
    lab->player.quiet = true;
    sc_sim_heal(lab->sim);
    for (uint32_t r = 0; r < lab->plan->core.world; r++) {
        struct seat *seat = &lab->seats[r];
        seat->commits_at_quiet = seat->commits;
        if (seat->ghost != NULL)
            sc_life_kill(seat->ghost, "ghost killed");
        if (seat->paused_until_ns != 0) {
            seat->paused_until_ns = sc_lab_now(lab);
            on_unpause(seat);
        }
    }
}

// ---- the run ----

static bool all_steps_done(const struct lab *lab) {
    if (lab->plan->work.steps_max == 0)
        return false;
    for (uint32_t r = 0; r < lab->plan->core.world; r++)
        if (lab->seats[r].mark < lab->plan->work.steps_max)
            return false;
    return true;
}

static void play(struct lab *lab) {
    const struct sc_plan *plan = lab->plan;
    for (uint32_t r = 0; r < plan->core.world; r++) {
        lab->seats[r] = (struct seat){.lab = lab, .rank = r};
        respawn_in(&lab->seats[r], sc_lab_draw(lab, 0, 50 * MS));
    }
    const struct sc_player_hooks hooks = {.tell = on_told, .act = on_act, .arg = lab};
    sc_player_start(&lab->player, plan, lab->sim, &hooks);
    sc_sim_at(lab->sim, plan->quiet_ns, on_quiet, lab);
    while (sc_sim_step(lab->sim, plan->duration_ns) && !all_steps_done(lab)) {
        if (lab->vacant)
            supervise(lab);
        sc_oracle_time(lab);
    }
}

static void close_all(struct lab *lab) {
    const struct sc_plan *plan = lab->plan;
    uint64_t until = sc_lab_now(lab) + 2 * plan->core.timing.abort_ns + SECOND;
    lab->ending = true;
    for (uint32_t r = 0; r < plan->core.world; r++)
        (void)close_seat(&lab->seats[r], true, 0);
    while (sc_sim_step(lab->sim, until)) {
    }
    for (uint32_t r = 0; r < plan->core.world; r++) {
        struct life *life = lab->seats[r].life;
        if (life != NULL)
            sc_lab_violation(lab, r, "O9 close did not end it: it is %s",
                             sc_state_name((enum sc_state)life->state));
        for (uint32_t i = 0; i < LAB_LIVES; i++)
            if ((life = i == 0 ? lab->seats[r].life : lab->seats[r].ghost) != NULL)
                sc_life_kill(life, "killed at the end");
    }
}

sc_status sc_lab_run(const struct sc_plan *plan, const struct sc_lab_options *options,
                     struct sc_lab_result *result) {
    struct lab *lab = calloc(1, sizeof *lab);
    if (lab == NULL)
        return SC_NO_MEMORY;
    memset(result, 0, sizeof *result);
    lab->plan = plan;
    lab->options = options;
    lab->result = result;
    lab->random = plan->sim.seed ^ 0x6c6162u;
    struct sc_sim_config sim = plan->sim;
    sim.on_violation = on_sim_violation;
    sim.arg = lab;
    sc_status status = sc_sim_create(&sim, &lab->sim);
    if (status == SC_OK) {
        play(lab);
        result->ended_ns = sc_lab_now(lab);
        sc_oracle_end(lab);
        close_all(lab);
        if (lab->expect_met < plan->expect_count)
            sc_lab_violation(lab, SC_RANK_NONE, "expected line %u is not in the trace: %s",
                             lab->expect_met + 1, plan->expect[lab->expect_met]);
        sc_sim_destroy(lab->sim);
    }
    free(lab);
    return status;
}
