// SPDX-License-Identifier: AGPL-3.0-only
//
// Giving a communicator up. Two moments count: when the abort takes effect, from which on its
// exchanges pass with undefined data, and when it returns. It returns no sooner than all of them
// have passed, also those behind the application's own work, than every capture is released, and
// than no stopped peer is connected any more.
#include "hal_sim/sim_gpu.h"

// What it takes to turn away from an attempt that has not come to anything.
static const struct sc_sim_span orphaning = {50000, 200000};

static bool peers_let_go(const struct sc_sim_comm *comm) {
    for (uint32_t rank = 0; rank < comm->clique->world; rank++) {
        const struct sc_sim_comm *peer = comm->clique->members[rank];
        if (peer != NULL && peer != comm && peer->object.owner->paused && !peer->aborting)
            return false;
    }
    return true;
}

void sc_sim_abort_settle(struct sc_sim_comm *comm) {
    if (!comm->draining || comm->stuck || comm->abandoned || comm->state == SC_COMM_GONE ||
        comm->exchanges > 0 || comm->captures > 0 || !(comm->orphan || peers_let_go(comm)))
        return;
    comm->state = SC_COMM_GONE;
    sc_sim_wake(comm->object.owner);
}

void sc_sim_abort_settle_peers(struct sc_sim_comm *comm) {
    for (uint32_t rank = 0; rank < comm->clique->world; rank++) {
        struct sc_sim_comm *peer = comm->clique->members[rank];
        if (peer != NULL && peer != comm)
            sc_sim_abort_settle(peer);
    }
}

static void takes_effect(struct sc_sim *sim, uint64_t handle, uint64_t unused) {
    struct sc_sim_comm *comm = sc_sim_pool_find(sim, SC_SIM_COMM, handle);

    (void)unused;
    if (comm == NULL)
        return;
    comm->draining = true;
    sc_sim_exchange_drain_all(comm);
    sc_sim_abort_settle(comm);
}

static void begin(struct sc_sim_comm *comm) {
    struct sc_sim_process *process = comm->object.owner;
    struct sc_sim *sim = process->sim;
    struct sc_sim_span span = comm->orphan ? orphaning : sim->config.comm_abort;
    uint64_t takes_ns = sc_sim_draw(sim, span);

    if (!comm->orphan && process->armed.abort_slow_ns > 0) {
        takes_ns = process->armed.abort_slow_ns;
        process->armed.abort_slow_ns = 0;
    }
    if (!comm->orphan && process->armed.abort_stuck) {
        comm->stuck = true;
        process->armed.abort_stuck = false;
    }
    comm->queued = false;
    sc_sim_push(sim, sc_sim_later(sim->now_ns, takes_ns), takes_effect, comm->object.handle, 0);
}

void sc_sim_abort_begin_queued(struct sc_sim_process *process) {
    if (process->aborts_queued == 0)
        return;
    process->aborts_queued = 0;
    for (uint32_t at = 0; at < sc_sim_pool_count(process->sim, SC_SIM_COMM); at++) {
        struct sc_sim_comm *comm = sc_sim_pool_at(process->sim, SC_SIM_COMM, at);
        if (comm != NULL && comm->object.owner == process && comm->queued)
            begin(comm);
    }
}

sc_status sc_sim_verb_comm_abort(void *ctx, uint64_t handle) {
    struct sc_sim_process *process = ctx;
    sc_status status = sc_sim_enter(process, SC_VERB_comm_abort);
    struct sc_sim_comm *comm = sc_sim_comm_find(process, handle);

    if (comm != NULL)
        comm->abort_called = true; // a call that failed was one, too
    if (status != SC_OK)
        return status;
    if (comm == NULL)
        return sc_sim_breach(process, "comm_abort: unknown communicator %#llx",
                             (unsigned long long)handle);
    if (comm->aborting)
        return sc_sim_breach(process, "comm_abort: communicator %#llx is aborted twice",
                             (unsigned long long)handle);
    if (comm->state == SC_COMM_FORMING)
        comm->clique->hung = true;
    comm->orphan = comm->state == SC_COMM_FORMING || comm->error == SC_COMM_FAILED;
    comm->aborting = true;
    sc_sim_registrations_end(process->sim, handle);
    if (process->group_depth > 0) {
        comm->queued = true;
        process->aborts_queued++;
    } else {
        begin(comm);
    }
    return SC_OK;
}

sc_status sc_sim_verb_comm_abandon(void *ctx, uint64_t handle) {
    struct sc_sim_process *process = ctx;
    sc_status status = sc_sim_enter(process, SC_VERB_comm_abandon);

    if (status != SC_OK)
        return status;
    struct sc_sim_comm *comm = sc_sim_comm_find(process, handle);
    if (comm == NULL || !comm->abort_called)
        return sc_sim_breach(process, "comm_abandon: communicator %#llx is not being aborted",
                             (unsigned long long)handle);
    comm->aborting = true;
    process->held.communicators--;
    if (comm->state == SC_COMM_GONE) { // it has returned just in time
        sc_sim_comm_put(comm);
        return SC_OK;
    }
    process->held.quarantined++;
    comm->abandoned = true;
    return SC_OK;
}
