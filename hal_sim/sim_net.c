// SPDX-License-Identifier: AGPL-3.0-only
//
// Listeners, and how connections begin and end. A port names its listener, whoever has it.
#include "hal_sim/sim_net.h"

#include <stdlib.h>

#define BACKLOG_MAX 128u

struct sc_sim_endpoint *sc_sim_endpoint_create(struct sc_sim *sim, struct sc_sim_process *owner) {
    struct sc_sim_endpoint *made = sc_sim_pool_take(sim, SC_SIM_LINK, owner);

    *made = (struct sc_sim_endpoint){
        .object = made->object,
        .ring = made->ring,
        .ring_bytes = made->ring_bytes,
        .here = owner != NULL ? owner->rank : SC_SIM_STRANGER,
        .there = SC_SIM_STRANGER,
    };
    return made;
}

struct sc_sim_listener *sc_sim_net_any_listener(struct sc_sim *sim) {
    for (uint32_t at = 0; at < sc_sim_pool_count(sim, SC_SIM_LISTENER); at++) {
        struct sc_sim_listener *listener = sc_sim_pool_at(sim, SC_SIM_LISTENER, at);
        if (listener != NULL)
            return listener;
    }
    return NULL;
}

struct sc_sim_listener *sc_sim_net_listener(struct sc_sim *sim, uint16_t port) {
    for (uint32_t at = 0; at < sc_sim_pool_count(sim, SC_SIM_LISTENER); at++) {
        struct sc_sim_listener *listener = sc_sim_pool_at(sim, SC_SIM_LISTENER, at);
        if (listener != NULL && listener->port == port)
            return listener;
    }
    return NULL;
}

// ---- dialling ---------------------------------------------------------------------------------

static void dial_answered(struct sc_sim *sim, uint64_t handle, uint64_t unused) {
    struct sc_sim_endpoint *dialler = sc_sim_endpoint_find(sim, handle);

    (void)unused;
    if (dialler == NULL)
        return;
    dialler->state = dialler->refused ? SC_SIM_LINK_REFUSED : SC_SIM_LINK_OPEN;
    if (dialler->stranger != SC_SIM_NO_STRANGER)
        sc_sim_stranger_connected(sim, dialler);
    else
        sc_sim_endpoint_wake(dialler);
}

void sc_sim_net_join(struct sc_sim_endpoint *dialler, struct sc_sim_endpoint *other) {
    other->state = SC_SIM_LINK_OPEN;
    other->peer = dialler->object.handle;
    other->there = dialler->here;
    dialler->peer = other->object.handle;
    dialler->there = other->here;
}

static void listener_answers(struct sc_sim *sim, struct sc_sim_listener *listener,
                             struct sc_sim_endpoint *dialler) {
    if (listener->backlog_count == BACKLOG_MAX) {
        dialler->refused = true;
        return;
    }
    struct sc_sim_endpoint *made = sc_sim_endpoint_create(sim, listener->object.owner);
    sc_sim_net_join(dialler, made);
    listener->backlog = sc_sim_grow(listener->backlog, sizeof *listener->backlog,
                                    listener->backlog_count + 1, &listener->backlog_capacity);
    listener->backlog[listener->backlog_count++] = made->object.handle;
    sc_sim_wake(listener->object.owner);
}

static void dial_arrived(struct sc_sim *sim, uint64_t handle, uint64_t unused) {
    struct sc_sim_endpoint *dialler = sc_sim_endpoint_find(sim, handle);

    (void)unused;
    if (dialler == NULL || dialler->state != SC_SIM_LINK_DIALLING)
        return;
    struct sc_sim_listener *listener = sc_sim_net_listener(sim, dialler->port);
    if (listener != NULL) {
        uint32_t there = listener->object.owner->rank;
        if (sc_sim_path_is_hole(sim, dialler->here, there) ||
            sc_sim_path_is_hole(sim, there, dialler->here)) {
            dialler->held_dial = true;
            return;
        }
    }
    dialler->state = SC_SIM_LINK_ANSWERED;
    if (listener != NULL)
        listener_answers(sim, listener, dialler);
    else if (sim->now_ns < sim->squatted_until_ns)
        sc_sim_squatter_answers(sim, dialler);
    else
        dialler->refused = true;
    // What the other end sends comes after its answer.
    dialler->last_due_ns = sc_sim_path_due(sim, dialler);
    sc_sim_push(sim, dialler->last_due_ns, dial_answered, handle, 0);
}

void sc_sim_net_dial(struct sc_sim *sim, struct sc_sim_endpoint *endpoint, uint16_t port) {
    endpoint->state = SC_SIM_LINK_DIALLING;
    endpoint->port = port;
    sc_sim_push(sim, sim->now_ns + sc_sim_draw(sim, sim->config.link_latency), dial_arrived,
                endpoint->object.handle, 0);
}

void sc_sim_net_redial(struct sc_sim *sim, struct sc_sim_endpoint *dialler) {
    dial_arrived(sim, dialler->object.handle, 0);
}

// ---- ends -------------------------------------------------------------------------------------

void sc_sim_net_close(struct sc_sim *sim, struct sc_sim_endpoint *endpoint) {
    struct sc_sim_endpoint *peer = sc_sim_endpoint_find(sim, endpoint->peer);

    if (peer != NULL)
        sc_sim_net_send_eof(sim, peer);
    if (endpoint->object.owner != NULL && endpoint->accepted)
        endpoint->object.owner->held.links--;
    sc_sim_pool_put(sim, SC_SIM_LINK, &endpoint->object);
}

void sc_sim_net_unlisten(struct sc_sim *sim, struct sc_sim_listener *listener) {
    for (uint32_t at = 0; at < listener->backlog_count; at++) {
        struct sc_sim_endpoint *waiting = sc_sim_endpoint_find(sim, listener->backlog[at]);
        if (waiting != NULL)
            sc_sim_net_close(sim, waiting);
    }
    listener->object.owner->held.listeners--;
    sc_sim_pool_put(sim, SC_SIM_LISTENER, &listener->object);
}

void sc_sim_net_kill(struct sc_sim_process *process) {
    struct sc_sim *sim = process->sim;

    for (uint32_t at = 0; at < sc_sim_pool_count(sim, SC_SIM_LISTENER); at++) {
        struct sc_sim_listener *listener = sc_sim_pool_at(sim, SC_SIM_LISTENER, at);
        if (listener != NULL && listener->object.owner == process)
            sc_sim_net_unlisten(sim, listener);
    }
    for (uint32_t at = 0; at < sc_sim_pool_count(sim, SC_SIM_LINK); at++) {
        struct sc_sim_endpoint *endpoint = sc_sim_pool_at(sim, SC_SIM_LINK, at);
        if (endpoint != NULL && endpoint->object.owner == process)
            sc_sim_net_close(sim, endpoint);
    }
}

void sc_sim_net_free(struct sc_sim *sim) {
    for (uint32_t at = 0; at < sc_sim_pool_count(sim, SC_SIM_LINK); at++) {
        struct sc_sim_endpoint *endpoint = sc_sim_pool_any(sim, SC_SIM_LINK, at);
        free(endpoint->ring);
    }
    for (uint32_t at = 0; at < sc_sim_pool_count(sim, SC_SIM_LISTENER); at++) {
        struct sc_sim_listener *listener = sc_sim_pool_any(sim, SC_SIM_LISTENER, at);
        free(listener->backlog);
    }
}
