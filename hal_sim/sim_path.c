// SPDX-License-Identifier: AGPL-3.0-only
//
// What happens to bytes on their way from one rank to another: latency, delay, fragmentation, black
// holes and resets. Strangers' bytes suffer none of the faults.
#include "hal_sim/sim_net.h"

static const struct sc_sim_path *path(const struct sc_sim *sim, uint32_t from, uint32_t to) {
    static const struct sc_sim_path clear;

    return from < SC_SIM_RANKS_MAX && to < SC_SIM_RANKS_MAX ? &sim->paths[from][to] : &clear;
}

bool sc_sim_path_is_hole(const struct sc_sim *sim, uint32_t from, uint32_t to) {
    return sim->now_ns < path(sim, from, to)->hole_until_ns;
}

bool sc_sim_path_fragments(const struct sc_sim *sim, uint32_t from, uint32_t to) {
    return sim->now_ns < path(sim, from, to)->fragment_until_ns;
}

uint64_t sc_sim_path_due(struct sc_sim *sim, struct sc_sim_endpoint *to) {
    const struct sc_sim_path *way = path(sim, to->there, to->here);
    uint64_t due_ns = sim->now_ns + sc_sim_draw(sim, sim->config.link_latency);

    if (sim->now_ns < way->delay_until_ns)
        due_ns = sc_sim_later(due_ns, way->delay_ns);
    return due_ns > to->last_due_ns ? due_ns : to->last_due_ns;
}

static void hole_ends(struct sc_sim *sim, uint64_t unused_a, uint64_t unused_b) {
    (void)unused_a;
    (void)unused_b;
    sc_sim_net_release(sim);
}

static void dig(struct sc_sim *sim, uint32_t from, uint32_t to, uint64_t until_ns) {
    struct sc_sim_path *way = &sim->paths[from][to];

    if (until_ns > way->hole_until_ns)
        way->hole_until_ns = until_ns;
    sc_sim_push(sim, until_ns, hole_ends, 0, 0);
}

static bool joins(const struct sc_sim_endpoint *endpoint, uint32_t a, uint32_t b) {
    return endpoint->state == SC_SIM_LINK_OPEN && endpoint->object.owner != NULL &&
           ((endpoint->here == a && endpoint->there == b) ||
            (endpoint->here == b && endpoint->there == a));
}

// Resets every link between the two, or only tells whether there is one.
static bool reset_links(struct sc_sim *sim, uint32_t a, uint32_t b, bool really) {
    bool any = false;

    for (uint32_t at = 0; at < sc_sim_pool_count(sim, SC_SIM_LINK); at++) {
        struct sc_sim_endpoint *endpoint = sc_sim_pool_at(sim, SC_SIM_LINK, at);
        if (endpoint == NULL || endpoint->reset || !joins(endpoint, a, b))
            continue;
        any = true;
        if (really)
            sc_sim_net_reset(sim, endpoint);
    }
    return any;
}

bool sc_sim_inject_path(struct sc_sim *sim, const struct sc_sim_fault *fault) {
    uint32_t a = fault->a;
    uint32_t b = fault->b;
    uint64_t until_ns = sc_sim_later(sim->now_ns, fault->duration_ns);

    if (a >= sim->config.world || b >= sim->config.world || !reset_links(sim, a, b, false))
        return false;
    struct sc_sim_path *there = &sim->paths[a][b];
    struct sc_sim_path *back = &sim->paths[b][a];
    switch (fault->kind) {
    case SC_SIM_link_reset: reset_links(sim, a, b, true); break;
    case SC_SIM_link_oneway: dig(sim, a, b, until_ns); break;
    case SC_SIM_link_blackhole:
        dig(sim, a, b, until_ns);
        dig(sim, b, a, until_ns);
        break;
    case SC_SIM_link_delay:
        if (fault->duration_ns > SC_NEVER_NS / 8)
            return false;
        until_ns = sc_sim_later(sim->now_ns, fault->duration_ns * 8);
        there->delay_ns = back->delay_ns = fault->duration_ns;
        there->delay_until_ns = back->delay_until_ns = until_ns;
        break;
    case SC_SIM_link_fragment: there->fragment_until_ns = back->fragment_until_ns = until_ns; break;
    default: return false;
    }
    return true;
}

void sc_sim_heal_paths(struct sc_sim *sim) {
    memset(sim->paths, 0, sizeof sim->paths);
    memset(sim->unresolved_until_ns, 0, sizeof sim->unresolved_until_ns);
    sc_sim_net_release(sim);
}
