// SPDX-License-Identifier: AGPL-3.0-only
//
// Plans from seeds: every run draws its own world, clocks, work and misfortunes, so that a few
// thousand seeds meet combinations that nobody would write down.
#include "hal_sim/lab/plan.h"

#include <string.h>

#define US 1000ull
#define MS 1000000ull
#define SECOND (1000ull * MS)

struct dice {
    uint64_t state;
};

static uint64_t roll(struct dice *d, uint64_t min, uint64_t max) {
    uint64_t z = d->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return min + (z ^ (z >> 31)) % (max - min + 1);
}

static bool chance(struct dice *d, uint32_t in_256) {
    return roll(d, 0, 255) < in_256;
}

static void size_capacity(struct sc_plan *plan) {
    plan->core.capacity_bytes = (uint64_t)plan->core.world * plan->work.elements * SC_BF16_BYTES;
}

void sc_plan_init(struct sc_plan *plan, uint64_t seed, uint32_t ranks) {
    memset(plan, 0, sizeof *plan);
    sc_core_config_init(&plan->core);
    plan->core.world = ranks;
    plan->core.job = 0x73696du;
    plan->core.library = 22809;
    plan->core.timing.init_ns = 10 * SECOND;
    sc_sim_config_init(&plan->sim, seed, ranks);
    plan->work = (struct sc_workload){
        .layers = 4,
        .elements = 64,
        .streams = 1,
        .sync_every = 8,
        .gap_ns = 100 * MS,
        .compute_ns = 20 * US,
    };
    plan->duration_ns = 60 * SECOND;
    plan->quiet_ns = 45 * SECOND;
    plan->respawn_min_ns = 100 * MS;
    plan->respawn_max_ns = SECOND;
    size_capacity(plan);
}

// ---- swarm ----

static uint32_t draw_ranks(struct dice *d) {
    uint64_t x = roll(d, 0, 99);
    return x < 74 ? 2 : x < 88 ? 3 : x < 94 ? 4 : x < 96 ? 1 : (uint32_t)roll(d, 5, 8);
}

static void draw_clocks(struct dice *d, struct sc_plan *plan) {
    struct sc_core_config *c = &plan->core;
    c->timing.heartbeat_ns = roll(d, 2, 5) * 100 * MS;
    c->timing.silence_ns = c->timing.heartbeat_ns * roll(d, 3, 4);
    c->timing.op_ns = roll(d, 5, 30) * 100 * MS;
    c->timing.behind_ns = chance(d, 64) ? roll(d, 10, 40) * 100 * MS : 0;
    c->timing.init_ns = roll(d, 15, 30) * 100 * MS;
    c->timing.abort_ns =
        c->timing.silence_ns + 2 * c->timing.heartbeat_ns + roll(d, 2, 10) * 100 * MS;
    c->handshake_ns = roll(d, 3, 10) * 100 * MS;
    c->greeting_ns = roll(d, 5, 20) * 100 * MS;
    c->backoff_min_ns = roll(d, 10, 50) * MS;
    c->backoff_max_ns = roll(d, 100, 600) * MS;
    c->stable_ns = roll(d, 1, 10) * SECOND;
    c->join_ns = chance(d, 64) ? roll(d, 1, 5) * SECOND : 0;
    plan->sim.link_latency = (struct sc_sim_span){roll(d, 10, 100) * US, roll(d, 100, 2000) * US};
    plan->sim.comm_init = (struct sc_sim_span){roll(d, 50, 200) * MS, roll(d, 200, 400) * MS};
    plan->sim.comm_warmup = (struct sc_sim_span){roll(d, 1, 30) * MS, roll(d, 30, 180) * MS};
    plan->sim.comm_abort = (struct sc_sim_span){roll(d, 1, 50) * MS, roll(d, 50, 510) * MS};
    plan->sim.op_latency = (struct sc_sim_span){roll(d, 4, 10) * US, roll(d, 10, 500) * US};
    plan->sim.peer_loss_error_chance = (uint32_t)roll(d, 0, 2) * 128;
}

static void draw_work(struct dice *d, struct sc_plan *plan) {
    struct sc_workload *w = &plan->work;
    w->layers = (uint32_t)roll(d, 1, 6);
    w->elements = (uint32_t)roll(d, 4, 16);
    w->streams = (uint32_t)roll(d, 1, 2);
    w->sync_every = (uint32_t)roll(d, 0, 4);
    // Slow enough to be cheap, fast enough that every run verifies hundreds of ops.
    w->gap_ns = w->layers * roll(d, 120, 320) * MS;
    w->compute_ns = chance(d, 128) ? roll(d, 1, 2000) * US : 0;
    w->graph = chance(d, 64);
    w->mixed = chance(d, 128);
    if (w->graph)
        w->streams = 1;
    plan->core.ledger_ops = (uint32_t)roll(d, 8, 32);
    size_capacity(plan);
}

static sc_status draw_status(struct dice *d, enum sc_device_verb verb) {
    if (verb == SC_VERB_mem_alloc)
        return SC_NO_MEMORY;
    if (verb == SC_VERB_op_poll && chance(d, 64))
        return SC_INPROGRESS; // a query that never returns
    return SC_DEVICE_ERROR;
}

static void draw_fault(struct dice *d, const struct sc_plan *plan, struct sc_sim_fault *f) {
    uint32_t world = plan->core.world;
    f->kind = (enum sc_sim_fault_kind)roll(d, 0, SC_SIM_FAULT_COUNT - 1);
    f->a = (uint32_t)roll(d, 0, world - 1);
    f->b = 0;
    f->nth = 1;
    f->duration_ns = roll(d, 1, 60) * 50 * MS;
    switch (f->kind) {
    case SC_SIM_link_reset:
    case SC_SIM_link_blackhole:
    case SC_SIM_link_oneway:
    case SC_SIM_link_delay:
    case SC_SIM_link_fragment: // links are a member's with rank 0
        f->a = world > 1 ? (uint32_t)roll(d, 1, world - 1) : 0;
        if (f->kind == SC_SIM_link_oneway && chance(d, 128)) {
            f->b = f->a;
            f->a = 0;
        }
        if (f->kind == SC_SIM_link_delay)
            f->duration_ns = roll(d, 1, 100) * MS;
        break;
    case SC_SIM_register_null: f->nth = (uint32_t)roll(d, 1, 3); break;
    case SC_SIM_verb_fails:
        f->verb = (enum sc_device_verb)roll(d, 0, SC_DEVICE_VERB_COUNT - 1);
        f->nth = (uint32_t)roll(d, 1, 20);
        f->duration_ns = chance(d, 48) ? SECOND : 0;
        f->status = draw_status(d, f->verb);
        break;
    default: break;
    }
}

static void draw_entry(struct dice *d, const struct sc_plan *plan, struct sc_plan_entry *e) {
    static const enum sc_plan_verb verbs[] = {
        SC_PLAN_kill,    SC_PLAN_kill,        SC_PLAN_kill,        SC_PLAN_pause,
        SC_PLAN_replace, SC_PLAN_reconnect,   SC_PLAN_slow_kernel, SC_PLAN_close_returning,
        SC_PLAN_stall,   SC_PLAN_close_final,
    };
    memset(e, 0, sizeof *e);
    e->rank = e->at_rank = (uint32_t)roll(d, 0, plan->core.world - 1);
    e->duration_ns = roll(d, 1, 80) * 50 * MS;
    e->verb = chance(d, 80) ? verbs[roll(d, 0, sizeof verbs / sizeof verbs[0] - 1)] : SC_PLAN_fault;
    if (e->verb == SC_PLAN_replace)
        e->duration_ns += 2 * plan->core.timing.silence_ns;
    if (e->verb == SC_PLAN_fault)
        draw_fault(d, plan, &e->fault);
    // Most strike at a time, some in the middle of a step, some hard on the heels of another.
    uint64_t calm = 4 * SECOND;
    e->trigger = SC_PLAN_AT_TIME;
    e->time_ns = roll(d, chance(d, 4) ? 0 : calm, plan->quiet_ns);
    if (chance(d, 64)) {
        e->trigger = SC_PLAN_AT_OP;
        e->mark = 8 + roll(d, 0, 40);
        e->op = roll(d, 1, plan->work.graph ? 1 : plan->work.layers);
    }
}

// A port can only be squatted on while nobody listens: rank 0 dies just before.
static void squat_after_a_kill(struct sc_plan *plan, struct sc_plan_entry *e) {
    struct sc_plan_entry *squat = &plan->entries[plan->entries_count++];
    *squat = *e;
    squat->trigger = SC_PLAN_AFTER;
    squat->time_ns = MS;
    e->verb = SC_PLAN_kill;
    e->rank = e->at_rank = 0;
}

void sc_plan_swarm(struct sc_plan *plan, uint64_t seed, uint32_t ranks, uint64_t duration_ns) {
    struct dice d = {seed};
    sc_plan_init(plan, seed, ranks != 0 ? ranks : draw_ranks(&d));
    plan->duration_ns = duration_ns;
    // The end of a run is quiet for long enough that every recovery must have come to its end.
    plan->quiet_ns = duration_ns > 20 * SECOND ? duration_ns - 15 * SECOND : duration_ns / 4;
    draw_clocks(&d, plan);
    draw_work(&d, plan);
    plan->respawn_min_ns = roll(&d, 1, 500) * MS;
    plan->respawn_max_ns = plan->respawn_min_ns + roll(&d, 0, 3000) * MS;
    for (uint64_t left = roll(&d, 1, 10); left > 0; left--) {
        struct sc_plan_entry *e = &plan->entries[plan->entries_count++];
        draw_entry(&d, plan, e);
        if (e > plan->entries && chance(&d, 64)) {
            e->trigger = SC_PLAN_AFTER;
            e->time_ns = roll(&d, 0, 40) * 10 * MS;
        }
        if (e->verb == SC_PLAN_fault && e->fault.kind == SC_SIM_port_squatted)
            squat_after_a_kill(plan, e);
    }
}
