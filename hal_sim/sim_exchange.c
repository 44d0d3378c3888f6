// SPDX-License-Identifier: AGPL-3.0-only
//
// The life of an exchange: enqueued, reached by its streams, completed or drained.
#include "hal_sim/sim_gpu.h"

static void unlink_from_clique(struct sc_sim_exchange *exchange) {
    struct sc_sim_clique *clique = exchange->comm->clique;

    *(exchange->before != NULL ? &exchange->before->after : &clique->first) = exchange->after;
    *(exchange->after != NULL ? &exchange->after->before : &clique->last) = exchange->before;
    exchange->arrived = false;
}

static void link_to_clique(struct sc_sim_exchange *exchange) {
    struct sc_sim_clique *clique = exchange->comm->clique;

    exchange->before = clique->last;
    exchange->after = NULL;
    *(clique->last != NULL ? &clique->last->after : &clique->first) = exchange;
    clique->last = exchange;
    exchange->arrived = true;
}

// ---- enqueued ---------------------------------------------------------------------------------

static void add_stream(struct sc_sim_exchange *exchange, struct sc_sim_stream *stream) {
    for (uint32_t at = 0; at < exchange->stream_count; at++) {
        if (exchange->streams[at] == stream)
            return;
    }
    exchange->streams = sc_sim_grow(exchange->streams, sizeof(struct sc_sim_stream *),
                                    exchange->stream_count + 1, &exchange->stream_capacity);
    exchange->streams[exchange->stream_count++] = stream;
}

// Its place among the comm's own: this is what ranks are matched by.
static uint64_t next_index(struct sc_sim_comm *comm, const struct sc_sim_part *part) {
    switch (part->kind) {
    case SC_OP_SEND: return comm->sends[part->peer]++;
    case SC_OP_RECV: return comm->receives[part->peer]++;
    default: return comm->collectives++;
    }
}

static struct sc_sim_exchange *create(struct sc_sim_process *process, struct sc_sim_comm *comm,
                                      const struct sc_sim_part *parts, uint32_t count) {
    struct sc_sim_exchange *made = sc_sim_pool_take(process->sim, SC_SIM_EXCHANGE, process);

    *made = (struct sc_sim_exchange){
        .object = made->object,
        .comm = comm,
        .parts = sc_sim_grow(made->parts, sizeof *parts, count, &made->capacity),
        .count = count,
        .capacity = made->capacity,
        .unmatched = count,
        .streams = made->streams,
        .stream_capacity = made->stream_capacity,
    };
    memcpy(made->parts, parts, count * sizeof *parts);
    for (uint32_t at = 0; at < count; at++) {
        made->parts[at].exchange = made;
        if (comm != NULL)
            made->parts[at].index = next_index(comm, &made->parts[at]);
    }
    if (comm != NULL)
        comm->exchanges++;
    return made;
}

void sc_sim_exchange_launch(struct sc_sim_process *process, struct sc_sim_comm *comm,
                            const struct sc_sim_part *parts, uint32_t count) {
    struct sc_sim_exchange *exchange = create(process, comm, parts, count);

    for (uint32_t at = 0; at < count; at++) {
        struct sc_sim_stream *stream = sc_sim_stream_of(process, "group_end", parts[at].stream);
        if (stream != NULL)
            add_stream(exchange, stream);
    }
    struct sc_sim_item item = {.kind = SC_SIM_ITEM_EXCHANGE};
    item.exchange = exchange;
    for (uint32_t at = 0; at < exchange->stream_count; at++)
        sc_sim_stream_push(exchange->streams[at], &item);
    uint64_t handle = exchange->object.handle;
    if (exchange->stream_count == 0)
        sc_sim_exchange_vanish(exchange);
    // Running the last of them may already complete it.
    for (uint32_t at = 0; sc_sim_pool_find(process->sim, SC_SIM_EXCHANGE, handle) == exchange &&
                          at < exchange->stream_count;
         at++)
        sc_sim_stream_run(exchange->streams[at]);
}

// ---- reached ----------------------------------------------------------------------------------

void sc_sim_exchange_reach(struct sc_sim_exchange *exchange) {
    struct sc_sim_armed *armed = &exchange->object.owner->armed;
    struct sc_sim_comm *comm = exchange->comm;

    if (++exchange->reached < exchange->stream_count)
        return;
    if (comm == NULL || comm->draining) {
        sc_sim_exchange_drain(exchange);
        return;
    }
    exchange->stuck = armed->op_stuck || comm->state == SC_COMM_ERROR;
    armed->op_stuck = false;
    link_to_clique(exchange);
    sc_sim_match(exchange);
}

// ---- passed -----------------------------------------------------------------------------------

static void pass(struct sc_sim_exchange *exchange) {
    struct sc_sim *sim = exchange->object.owner->sim;
    struct sc_sim_comm *comm = exchange->comm;

    if (exchange->arrived)
        unlink_from_clique(exchange);
    for (uint32_t at = 0; at < exchange->stream_count; at++)
        sc_sim_stream_pass(exchange->streams[at]);
    sc_sim_pool_put(sim, SC_SIM_EXCHANGE, &exchange->object);
    if (comm != NULL) {
        comm->exchanges--;
        sc_sim_abort_settle(comm);
    }
}

static void complete(struct sc_sim *sim, uint64_t handle, uint64_t unused) {
    struct sc_sim_exchange *exchange = sc_sim_pool_find(sim, SC_SIM_EXCHANGE, handle);

    (void)unused;
    if (exchange == NULL || !exchange->completing)
        return;
    for (uint32_t at = 0; at < exchange->count; at++)
        sc_sim_move(&exchange->parts[at]);
    pass(exchange);
}

void sc_sim_exchange_complete_soon(struct sc_sim_exchange *exchange) {
    struct sc_sim *sim = exchange->object.owner->sim;

    exchange->completing = true;
    sc_sim_push(sim, sim->now_ns + sc_sim_draw(sim, sim->config.op_latency), complete,
                exchange->object.handle, 0);
}

void sc_sim_exchange_drain(struct sc_sim_exchange *exchange) {
    sc_sim_match_break(exchange);
    for (uint32_t at = 0; at < exchange->count; at++)
        sc_sim_move_garbage(&exchange->parts[at]);
    pass(exchange);
}

static struct sc_sim_exchange *first_of(const struct sc_sim_comm *comm) {
    struct sc_sim_exchange *exchange = comm->clique->first;

    while (exchange != NULL && exchange->comm != comm)
        exchange = exchange->after;
    return exchange;
}

void sc_sim_exchange_drain_all(struct sc_sim_comm *comm) {
    struct sc_sim_exchange *exchange = first_of(comm);

    while (exchange != NULL) {
        sc_sim_exchange_drain(exchange);
        exchange = first_of(comm);
    }
}

void sc_sim_exchange_stick_all(struct sc_sim_comm *comm) {
    for (struct sc_sim_exchange *at = comm->clique->first; at != NULL; at = at->after) {
        if (at->comm == comm && !at->completing)
            at->stuck = true;
    }
}

void sc_sim_exchange_vanish(struct sc_sim_exchange *exchange) {
    sc_sim_match_break(exchange);
    if (exchange->arrived)
        unlink_from_clique(exchange);
    if (exchange->comm != NULL)
        exchange->comm->exchanges--;
    sc_sim_pool_put(exchange->object.owner->sim, SC_SIM_EXCHANGE, &exchange->object);
}
