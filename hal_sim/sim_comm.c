// SPDX-License-Identifier: AGPL-3.0-only
//
// How ranks form a communicator: an id, all of them present, initialization, warm-up. It takes every
// rank's host, so a stopped process holds it up, and one that is lost leaves the others hanging.
#include "hal_sim/sim_gpu.h"

// What sockets need to notice that a peer is gone.
static const struct sc_sim_span peer_loss = {300000, 500000};

// ---- finding ----------------------------------------------------------------------------------

struct sc_sim_comm *sc_sim_comm_find(struct sc_sim_process *process, uint64_t handle) {
    struct sc_sim_comm *comm = sc_sim_pool_find(process->sim, SC_SIM_COMM, handle);

    return comm != NULL && comm->object.owner == process && !comm->abandoned ? comm : NULL;
}

// An asynchronous error does not make a verb illegal: it is what the caller looks for afterwards.
static bool usable(const struct sc_sim_comm *comm) {
    return !comm->aborting && (comm->state == SC_COMM_READY ||
                               (comm->state == SC_COMM_ERROR && comm->error == SC_ASYNC_ERROR));
}

struct sc_sim_comm *sc_sim_comm_ready(struct sc_sim_process *process, const char *verb,
                                      uint64_t handle) {
    struct sc_sim_comm *comm = sc_sim_comm_find(process, handle);

    if (comm == NULL) {
        sc_sim_breach(process, "%s: unknown communicator %#llx", verb, (unsigned long long)handle);
        return NULL;
    }
    if (!usable(comm)) {
        sc_sim_breach(process, "%s: communicator %#llx is %s", verb, (unsigned long long)handle,
                      comm->aborting ? "being aborted" : "not ready");
        return NULL;
    }
    return comm;
}

static struct sc_sim_clique *clique_of(struct sc_sim *sim, const struct sc_comm_id *id) {
    for (uint32_t at = sc_sim_pool_count(sim, SC_SIM_CLIQUE); at > 0; at--) {
        struct sc_sim_clique *clique = sc_sim_pool_at(sim, SC_SIM_CLIQUE, at - 1);
        if (clique != NULL && memcmp(clique->id.bytes, id->bytes, sizeof id->bytes) == 0)
            return clique;
    }
    return NULL;
}

// ---- forming ----------------------------------------------------------------------------------

static bool stopped(const struct sc_sim_comm *member) {
    return member != NULL && member->object.owner->paused;
}

static void warm(struct sc_sim *sim, uint64_t handle, uint64_t unused);

static void form(struct sc_sim *sim, struct sc_sim_clique *clique) {
    for (uint32_t rank = 0; rank < clique->world; rank++) {
        if (stopped(clique->members[rank]))
            return;
    }
    clique->formed = true;
    for (uint32_t rank = 0; rank < clique->world; rank++) {
        struct sc_sim_comm *member = clique->members[rank];
        member->formed_ns = sim->now_ns;
        sc_sim_wake(member->object.owner);
        sc_sim_push(sim, sim->now_ns + sc_sim_draw(sim, sim->config.comm_warmup), warm,
                    member->object.handle, 0);
    }
}

static void become_ready(struct sc_sim_clique *clique) {
    for (uint32_t rank = 0; rank < clique->world; rank++) {
        if (stopped(clique->members[rank]) && clique->members[rank]->state != SC_COMM_READY)
            return;
    }
    for (uint32_t rank = 0; rank < clique->world; rank++) {
        struct sc_sim_comm *member = clique->members[rank];
        if (member == NULL || !member->warm || member->state != SC_COMM_FORMING)
            continue;
        member->state = SC_COMM_READY;
        sc_sim_wake(member->object.owner);
    }
}

static void advance(struct sc_sim *sim, struct sc_sim_clique *clique) {
    if (clique->hung || !clique->initialized)
        return;
    if (!clique->formed)
        form(sim, clique);
    else
        become_ready(clique);
}

static void initialized(struct sc_sim *sim, uint64_t handle, uint64_t unused) {
    struct sc_sim_clique *clique = sc_sim_pool_find(sim, SC_SIM_CLIQUE, handle);

    (void)unused;
    clique->initialized = true;
    advance(sim, clique);
}

static void warm(struct sc_sim *sim, uint64_t handle, uint64_t unused) {
    struct sc_sim_comm *comm = sc_sim_pool_find(sim, SC_SIM_COMM, handle);

    (void)unused;
    if (comm == NULL)
        return;
    comm->warm = true;
    advance(sim, comm->clique);
}

void sc_sim_clique_thawed(struct sc_sim *sim, struct sc_sim_clique *clique) {
    advance(sim, clique);
}

static void creation_failed(struct sc_sim *sim, uint64_t handle, uint64_t unused) {
    struct sc_sim_comm *comm = sc_sim_pool_find(sim, SC_SIM_COMM, handle);

    (void)unused;
    if (comm != NULL)
        sc_sim_comm_fail(comm, SC_COMM_FAILED);
}

static void join(struct sc_sim *sim, struct sc_sim_clique *clique, struct sc_sim_comm *comm) {
    struct sc_sim_armed *armed = &comm->object.owner->armed;

    clique->members[comm->rank] = comm;
    if (armed->init_error) {
        armed->init_error = false;
        clique->hung = true;
        sc_sim_push(sim, sim->now_ns + sc_sim_draw(sim, sim->config.comm_init), creation_failed,
                    comm->object.handle, 0);
    } else if (armed->init_hang) {
        armed->init_hang = false;
        clique->hung = true;
    }
    if (!clique->hung && clique->used_ranks == (UINT32_C(1) << clique->world) - 1)
        sc_sim_push(sim, sim->now_ns + sc_sim_draw(sim, sim->config.comm_init), initialized,
                    clique->object.handle, 0);
}

// ---- failing ----------------------------------------------------------------------------------

void sc_sim_comm_fail(struct sc_sim_comm *comm, sc_status error) {
    if (comm->aborting || (comm->state != SC_COMM_FORMING && comm->state != SC_COMM_READY))
        return;
    comm->state = SC_COMM_ERROR;
    comm->error = error;
    sc_sim_exchange_stick_all(comm);
    sc_sim_wake(comm->object.owner);
}

static void peer_missed(struct sc_sim *sim, uint64_t handle, uint64_t unused) {
    struct sc_sim_comm *comm = sc_sim_pool_find(sim, SC_SIM_COMM, handle);

    (void)unused;
    if (comm != NULL && comm->state == SC_COMM_READY)
        sc_sim_comm_fail(comm, SC_ASYNC_ERROR);
}

void sc_sim_comm_lost(struct sc_sim_comm *comm) {
    struct sc_sim *sim = comm->object.owner->sim;
    struct sc_sim_clique *clique = comm->clique;

    if (comm->state == SC_COMM_FORMING)
        clique->hung = true;
    if (comm->state != SC_COMM_READY || comm->aborting)
        return;
    for (uint32_t rank = 0; rank < clique->world; rank++) {
        struct sc_sim_comm *peer = clique->members[rank];
        if (peer == NULL || peer == comm || peer->state != SC_COMM_READY || peer->aborting)
            continue;
        if (sc_sim_below(sim, 256) < sim->config.peer_loss_error_chance)
            sc_sim_push(sim, sim->now_ns + sc_sim_draw(sim, peer_loss), peer_missed,
                        peer->object.handle, 0);
    }
}

void sc_sim_comm_put(struct sc_sim_comm *comm) {
    struct sc_sim *sim = comm->object.owner->sim;

    comm->clique->members[comm->rank] = NULL;
    sc_sim_abort_settle_peers(comm);
    sc_sim_pool_put(sim, SC_SIM_COMM, &comm->object);
}

// ---- verbs ------------------------------------------------------------------------------------

sc_status sc_sim_verb_comm_id(void *ctx, struct sc_comm_id *id) {
    struct sc_sim_process *process = ctx;
    sc_status status = sc_sim_enter(process, SC_VERB_comm_id);

    if (status != SC_OK)
        return status;
    struct sc_sim_clique *made = sc_sim_pool_take(process->sim, SC_SIM_CLIQUE, NULL);
    *made = (struct sc_sim_clique){.object = made->object};
    sc_sim_fill(process->sim, made->id.bytes, sizeof made->id.bytes);
    *id = made->id;
    return SC_OK;
}

// Why these ranks cannot form with that id; NULL if they can.
static const char *objection(const struct sc_sim_clique *clique, const struct sc_comm_spec *spec) {
    if (clique == NULL)
        return "was never issued";
    if (clique->used_ranks >> spec->rank & 1)
        return "is used twice by this rank";
    if (clique->formed)
        return "is used twice: it has formed already";
    if (clique->world != 0 && clique->world != spec->world)
        return "is used with another world size by another rank";
    return NULL;
}

sc_status sc_sim_verb_comm_create(void *ctx, const struct sc_comm_spec *spec, uint64_t *comm) {
    struct sc_sim_process *process = ctx;
    struct sc_sim *sim = process->sim;
    sc_status status = sc_sim_enter(process, SC_VERB_comm_create);

    if (status != SC_OK)
        return status;
    if (spec->world == 0 || spec->world > SC_SIM_RANKS_MAX || spec->rank >= spec->world)
        return sc_sim_breach(process, "comm_create: rank %u in a world of %u", spec->rank,
                             spec->world);
    // With a group left open, NCCL only queues the work and hands out nothing.
    if (process->group_depth > 0 || process->armed.init_null) {
        process->armed.init_null = process->armed.init_null && process->group_depth > 0;
        *comm = 0;
        return SC_OK;
    }
    struct sc_sim_clique *clique = clique_of(sim, &spec->id);
    const char *why = objection(clique, spec);
    if (why != NULL) {
        sc_sim_breach(process, "comm_create: the id %02x%02x%02x%02x… %s", spec->id.bytes[0],
                      spec->id.bytes[1], spec->id.bytes[2], spec->id.bytes[3], why);
        return SC_COMM_FAILED;
    }
    struct sc_sim_comm *made = sc_sim_pool_take(sim, SC_SIM_COMM, process);
    *made = (struct sc_sim_comm){.object = made->object, .clique = clique, .rank = spec->rank};
    clique->world = spec->world;
    clique->used_ranks |= UINT32_C(1) << spec->rank;
    join(sim, clique, made);
    process->held.communicators++;
    *comm = made->object.handle;
    return SC_OK;
}

sc_status sc_sim_verb_comm_poll(void *ctx, uint64_t handle, struct sc_comm_report *report) {
    struct sc_sim_process *process = ctx;
    sc_status status = sc_sim_enter(process, SC_VERB_comm_poll);
    struct sc_sim_comm *comm = sc_sim_comm_find(process, handle);

    if (status == SC_CONTEXT_LOST && process->context_lost && comm != NULL) {
        *report = (struct sc_comm_report){
            .state = SC_COMM_ERROR, .error = SC_CONTEXT_LOST, .formed_ns = comm->formed_ns};
        return SC_OK;
    }
    if (status != SC_OK)
        return status;
    if (comm == NULL)
        return sc_sim_breach(process, "comm_poll: unknown communicator %#llx",
                             (unsigned long long)handle);
    *report = (struct sc_comm_report){.state = comm->state,
                                      .error = comm->error,
                                      .formed_ns = comm->formed_ns,
                                      .pair_to_bytes = UINT64_MAX};
    if (comm->state == SC_COMM_GONE) {
        process->held.communicators--;
        sc_sim_comm_put(comm);
    }
    return SC_OK;
}

sc_status sc_sim_verb_comm_error(void *ctx, uint64_t handle) {
    struct sc_sim_process *process = ctx;
    sc_status status = sc_sim_enter(process, SC_VERB_comm_error);

    if (status != SC_OK)
        return status;
    const struct sc_sim_comm *comm = sc_sim_comm_ready(process, "comm_error", handle);
    if (comm == NULL)
        return SC_INVALID;
    return comm->state == SC_COMM_ERROR ? comm->error : SC_OK;
}
