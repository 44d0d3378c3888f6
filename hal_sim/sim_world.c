// SPDX-License-Identifier: AGPL-3.0-only
//
// The world: its clock, and the heap of events that drives it.
#include "hal_sim/sim.h"
#include "hal_sim/sim_gpu.h"
#include "hal_sim/sim_net.h"

#include <stdlib.h>

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)

void sc_sim_config_init(struct sc_sim_config *config, uint64_t seed, uint32_t world) {
    *config = (struct sc_sim_config){
        .seed = seed,
        .world = world,
        .link_latency = {30 * US, 80 * US},
        .comm_init = {275 * MS, 350 * MS},
        .comm_warmup = {150 * MS, 200 * MS},
        .comm_abort = {490 * MS, 540 * MS},
        .op_latency = {6 * US, 12 * US},
    };
}

static bool span_is_sane(struct sc_sim_span span) {
    return span.min_ns <= span.max_ns && span.max_ns < SC_NEVER_NS / 2;
}

sc_status sc_sim_create(const struct sc_sim_config *config, struct sc_sim **out) {
    if (config == NULL || out == NULL || config->world == 0 || config->world > SC_SIM_RANKS_MAX ||
        config->peer_loss_error_chance > 256 || !span_is_sane(config->link_latency) ||
        !span_is_sane(config->comm_init) || !span_is_sane(config->comm_warmup) ||
        !span_is_sane(config->comm_abort) || !span_is_sane(config->op_latency))
        return SC_INVALID;
    struct sc_sim *sim = calloc(1, sizeof *sim);
    if (sim == NULL)
        return SC_NO_MEMORY;
    sim->config = *config;
    sc_sim_random_seed(sim, config->seed);
    *out = sim;
    return SC_OK;
}

void sc_sim_destroy(struct sc_sim *sim) {
    if (sim == NULL)
        return;
    for (uint32_t at = 0; at < sc_sim_pool_count(sim, SC_SIM_PROCESS); at++) {
        struct sc_sim_process *process = sc_sim_pool_at(sim, SC_SIM_PROCESS, at);
        if (process == NULL)
            continue;
        sc_sim_kill(process);
        sc_sim_reap(process);
    }
    sc_sim_net_free(sim);
    sc_sim_gpu_free(sim);
    for (int kind = 0; kind < SC_SIM_KIND_COUNT; kind++)
        sc_sim_pool_free(sim, (enum sc_sim_kind)kind);
    free(sim->events);
    free(sim);
}

uint64_t sc_sim_now_ns(const struct sc_sim *sim) {
    return sim->now_ns;
}

uint64_t sc_sim_later(uint64_t a_ns, uint64_t b_ns) {
    return a_ns > SC_NEVER_NS - b_ns ? SC_NEVER_NS : a_ns + b_ns;
}

// ---- the heap ---------------------------------------------------------------------------------

static bool before(const struct sc_sim_event *one, const struct sc_sim_event *other) {
    return one->at_ns != other->at_ns ? one->at_ns < other->at_ns : one->sequence < other->sequence;
}

void sc_sim_push(struct sc_sim *sim, uint64_t at_ns, sc_sim_event_fn fn, uint64_t a, uint64_t b) {
    if (at_ns == SC_NEVER_NS)
        return;
    if (sim->event_count == sim->event_capacity) {
        sim->event_capacity = sim->event_capacity == 0 ? 64 : sim->event_capacity * 2;
        sim->events = realloc(sim->events, sim->event_capacity * sizeof *sim->events);
        SC_ASSERT(sim->events != NULL);
    }
    struct sc_sim_event event = {
        .at_ns = at_ns < sim->now_ns ? sim->now_ns : at_ns,
        .sequence = sim->event_sequence++,
        .fn = fn,
        .a = a,
        .b = b,
    };
    size_t hole = sim->event_count++;
    while (hole > 0) {
        size_t parent = (hole - 1) / 2;
        if (!before(&event, &sim->events[parent]))
            break;
        sim->events[hole] = sim->events[parent];
        hole = parent;
    }
    sim->events[hole] = event;
}

static struct sc_sim_event pop(struct sc_sim *sim) {
    struct sc_sim_event *events = sim->events;
    struct sc_sim_event first = events[0];
    size_t count = --sim->event_count;
    struct sc_sim_event last = events[count];
    size_t hole = 0;

    for (;;) {
        size_t child = 2 * hole + 1;
        if (child >= count)
            break;
        if (child + 1 < count && before(&events[child + 1], &events[child]))
            child++;
        if (!before(&events[child], &last))
            break;
        events[hole] = events[child];
        hole = child;
    }
    events[hole] = last;
    return first;
}

bool sc_sim_step(struct sc_sim *sim, uint64_t until_ns) {
    if (sim->event_count == 0 || sim->events[0].at_ns > until_ns) {
        if (until_ns != SC_NEVER_NS && until_ns > sim->now_ns)
            sim->now_ns = until_ns;
        return false;
    }
    struct sc_sim_event event = pop(sim);
    SC_ASSERT(event.at_ns >= sim->now_ns);
    sim->now_ns = event.at_ns;
    event.fn(sim, event.a, event.b);
    return true;
}

uint64_t sc_sim_next_ns(const struct sc_sim *sim) {
    return sim->event_count == 0 ? SC_NEVER_NS : sim->events[0].at_ns;
}

// ---- calls of the caller's own ----------------------------------------------------------------

static void call(struct sc_sim *sim, uint64_t handle, uint64_t unused) {
    struct sc_sim_call *found = sc_sim_pool_find(sim, SC_SIM_CALL, handle);

    (void)unused;
    SC_ASSERT(found != NULL);
    struct sc_sim_call copy = *found;
    sc_sim_pool_put(sim, SC_SIM_CALL, &found->object);
    copy.fn(copy.arg);
}

void sc_sim_at(struct sc_sim *sim, uint64_t at_ns, void (*fn)(void *arg), void *arg) {
    struct sc_sim_call *made = sc_sim_pool_take(sim, SC_SIM_CALL, NULL);

    made->fn = fn;
    made->arg = arg;
    sc_sim_push(sim, at_ns, call, made->object.handle, 0);
}
