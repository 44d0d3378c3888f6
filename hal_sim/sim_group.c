// SPDX-License-Identifier: AGPL-3.0-only
//
// Groups, and the verbs that are collected in them. A verb outside any group is a group of its own.
// An error inside a group is remembered: group_end returns it and enqueues nothing.
#include "hal_sim/sim_gpu.h"

// ---- a group's end ----------------------------------------------------------------------------

static void flush_comm(struct sc_sim_process *process, const struct sc_sim_part *parts,
                       uint32_t count) {
    struct sc_sim *sim = process->sim;
    const struct sc_sim_stream *stream = sc_sim_pool_find(sim, SC_SIM_STREAM, parts[0].stream);

    if (stream != NULL && stream->capture != 0)
        sc_sim_capture_exchange(sc_sim_pool_find(sim, SC_SIM_CAPTURE, stream->capture), parts,
                                count);
    else
        sc_sim_exchange_launch(process, sc_sim_pool_find(sim, SC_SIM_COMM, parts[0].comm), parts,
                               count);
}

// Each communicator's parts become one exchange. They are brought together in place, in order of
// their calls: `from` is where the next communicator's begin.
static void flush(struct sc_sim_process *process) {
    struct sc_sim_part *parts = process->group_parts;
    uint32_t count = process->group_count;

    for (uint32_t from = 0; from < count;) {
        uint32_t end = from + 1;
        for (uint32_t at = end; at < count; at++) {
            if (parts[at].comm != parts[from].comm)
                continue;
            struct sc_sim_part part = parts[at];
            memmove(parts + end + 1, parts + end, (at - end) * sizeof *parts);
            parts[end++] = part;
        }
        flush_comm(process, parts + from, end - from);
        from = end;
    }
    process->group_count = 0;
}

// ---- a verb -----------------------------------------------------------------------------------

// The ranges that the part touches must be allocated; they count as used by its communicator.
static sc_status use_memory(struct sc_sim_process *process, const char *verb, uint32_t world,
                            const struct sc_sim_part *part) {
    uint64_t read = part->kind == SC_OP_REDUCE_SCATTER ? part->bytes * world : part->bytes;
    uint64_t written = part->kind == SC_OP_ALL_GATHER ? part->bytes * world : part->bytes;
    sc_status status = SC_OK;

    if (part->kind != SC_OP_RECV)
        status = sc_sim_memory_use(process, verb, part->src, read, part->comm);
    if (status == SC_OK && part->kind != SC_OP_SEND)
        status = sc_sim_memory_use(process, verb, part->dst, written, part->comm);
    return status;
}

static sc_status check(struct sc_sim_process *process, const char *verb,
                       const struct sc_sim_part *part) {
    const struct sc_sim_comm *comm = sc_sim_comm_ready(process, verb, part->comm);

    if (comm == NULL || sc_sim_stream_of(process, verb, part->stream) == NULL)
        return SC_INVALID;
    if (part->peer >= comm->clique->world)
        return sc_sim_breach(process, "%s: rank %u in a world of %u", verb, part->peer,
                             comm->clique->world);
    if ((part->src | part->dst | part->bytes) % SC_BF16_BYTES != 0 ||
        part->bytes > UINT64_MAX / SC_SIM_RANKS_MAX)
        return sc_sim_breach(process, "%s: src %#llx, dst %#llx, %llu bytes are no BF16 elements",
                             verb, (unsigned long long)part->src, (unsigned long long)part->dst,
                             (unsigned long long)part->bytes);
    return part->bytes == 0 ? SC_OK : use_memory(process, verb, comm->clique->world, part);
}

static sc_status issue(struct sc_sim_process *process, enum sc_device_verb verb,
                       const struct sc_sim_part *part) {
    sc_status status = sc_sim_enter(process, verb);

    if (status == SC_OK)
        status = check(process, sc_sim_verb_name(verb), part);
    if (status != SC_OK) {
        if (process->group_depth > 0 && process->group_error == SC_OK)
            process->group_error = status;
        return status;
    }
    if (part->bytes == 0)
        return SC_OK; // discarded: it is no barrier either
    process->group_parts = sc_sim_grow(process->group_parts, sizeof *process->group_parts,
                                       process->group_count + 1, &process->group_capacity);
    process->group_parts[process->group_count++] = *part;
    if (process->group_depth == 0)
        flush(process);
    return SC_OK;
}

sc_status sc_sim_verb_group_begin(void *ctx) {
    struct sc_sim_process *process = ctx;
    sc_status status = sc_sim_enter(process, SC_VERB_group_begin);

    if (status == SC_OK)
        process->group_depth++;
    return status;
}

// One that is made to fail still closes its group, as the real one does.
sc_status sc_sim_verb_group_end(void *ctx) {
    struct sc_sim_process *process = ctx;
    sc_status status = sc_sim_enter(process, SC_VERB_group_end);

    if (status == SC_CLOSED)
        return status;
    if (process->group_depth == 0)
        return status != SC_OK ? status : sc_sim_breach(process, "group_end: no group is open");
    if (status != SC_OK && process->group_error == SC_OK)
        process->group_error = status;
    if (--process->group_depth > 0)
        return status;
    status = process->group_error;
    process->group_error = SC_OK;
    if (status == SC_OK)
        flush(process);
    process->group_count = 0;
    sc_sim_abort_begin_queued(process);
    return status;
}

sc_status sc_sim_verb_send(void *ctx, uint64_t comm, uint64_t src, uint64_t bytes, uint32_t peer,
                           uint64_t stream) {
    struct sc_sim_part part = {
        .kind = SC_OP_SEND,
        .peer = peer,
        .src = src,
        .bytes = bytes,
        .comm = comm,
        .stream = stream,
    };

    return issue(ctx, SC_VERB_send, &part);
}

sc_status sc_sim_verb_recv(void *ctx, uint64_t comm, uint64_t dst, uint64_t bytes, uint32_t peer,
                           uint64_t stream) {
    struct sc_sim_part part = {
        .kind = SC_OP_RECV,
        .peer = peer,
        .dst = dst,
        .bytes = bytes,
        .comm = comm,
        .stream = stream,
    };

    return issue(ctx, SC_VERB_recv, &part);
}

static struct sc_sim_part collective(enum sc_op_kind kind, uint64_t comm, uint64_t src,
                                     uint64_t dst, uint64_t bytes, uint64_t stream) {
    return (struct sc_sim_part){
        .kind = kind,
        .src = src,
        .dst = dst,
        .bytes = bytes,
        .comm = comm,
        .stream = stream,
    };
}

sc_status sc_sim_verb_all_reduce(void *ctx, uint64_t comm, uint64_t buf, uint64_t bytes,
                                 uint64_t stream) {
    struct sc_sim_part part = collective(SC_OP_ALL_REDUCE, comm, buf, buf, bytes, stream);

    return issue(ctx, SC_VERB_all_reduce, &part);
}

sc_status sc_sim_verb_broadcast(void *ctx, uint64_t comm, uint64_t buf, uint64_t bytes,
                                uint32_t root, uint64_t stream) {
    struct sc_sim_part part = collective(SC_OP_BROADCAST, comm, buf, buf, bytes, stream);

    part.peer = root;
    return issue(ctx, SC_VERB_broadcast, &part);
}

sc_status sc_sim_verb_all_gather(void *ctx, uint64_t comm, uint64_t src, uint64_t dst,
                                 uint64_t bytes, uint64_t stream) {
    struct sc_sim_part part = collective(SC_OP_ALL_GATHER, comm, src, dst, bytes, stream);

    return issue(ctx, SC_VERB_all_gather, &part);
}

sc_status sc_sim_verb_reduce_scatter(void *ctx, uint64_t comm, uint64_t src, uint64_t dst,
                                     uint64_t bytes, uint64_t stream) {
    struct sc_sim_part part = collective(SC_OP_REDUCE_SCATTER, comm, src, dst, bytes, stream);

    return issue(ctx, SC_VERB_reduce_scatter, &part);
}
