// SPDX-License-Identifier: AGPL-3.0-only
//
// What a completed exchange does to memory. Data moves once for all ranks of a match, when the
// first of them completes: from then on that rank may overwrite its source.
#include "hal_sim/sim_gpu.h"

#include "kernels/bf16.h"

#define BLOCK_ELEMENTS 256u

// The parts of a match by rank, and how many.
struct match {
    struct sc_sim_part *ranks[SC_SIM_RANKS_MAX];
    uint32_t world;
};

static struct sc_sim_process *owner(const struct sc_sim_part *part) {
    return part->exchange->object.owner;
}

static void copy(const struct sc_sim_part *from, uint64_t src, const struct sc_sim_part *to,
                 uint64_t dst, uint64_t bytes) {
    unsigned char *source = sc_sim_memory_touch(owner(from), src, bytes);
    unsigned char *target = sc_sim_memory_touch(owner(to), dst, bytes);

    if (source != NULL && target != NULL)
        memmove(target, source, (size_t)bytes);
}

// ---- sums -------------------------------------------------------------------------------------

// The sum of one block over all ranks: in FP32, in rank order, rounded once. Two addends need no
// FP32 of their own: their exact sum rounded once is what kernels/bf16.h gives.
static void sum_block(unsigned char *const sources[], uint32_t world, size_t offset, size_t count,
                      uint16_t out[BLOCK_ELEMENTS]) {
    uint16_t block[BLOCK_ELEMENTS];
    float sums[BLOCK_ELEMENTS];

    memcpy(out, sources[0] + offset, count * SC_BF16_BYTES);
    if (world == 1) // nothing is added: a copy, NaN and all
        return;
    if (world == 2) {
        memcpy(block, sources[1] + offset, count * SC_BF16_BYTES);
        sc_bf16_add_array(out, block, count);
        return;
    }
    for (size_t at = 0; at < count; at++)
        sums[at] = sc_bf16_to_float(out[at]);
    for (uint32_t rank = 1; rank < world; rank++) {
        memcpy(block, sources[rank] + offset, count * SC_BF16_BYTES);
        for (size_t at = 0; at < count; at++)
            sums[at] += sc_bf16_to_float(block[at]);
    }
    for (size_t at = 0; at < count; at++)
        out[at] = sc_bf16_from_float(sums[at]);
}

// Sums what the sources hold and gives it to each target in turn.
static void sum(unsigned char *const sources[], uint32_t world, unsigned char *const targets[],
                uint32_t target_count, uint64_t bytes) {
    uint16_t block[BLOCK_ELEMENTS];

    for (size_t offset = 0; offset < bytes; offset += sizeof block) {
        size_t left = (size_t)bytes - offset;
        size_t part = left < sizeof block ? left : sizeof block;
        sum_block(sources, world, offset, part / SC_BF16_BYTES, block);
        for (uint32_t at = 0; at < target_count; at++)
            memcpy(targets[at] + offset, block, part);
    }
}

static void all_reduce(const struct match *match) {
    unsigned char *buffers[SC_SIM_RANKS_MAX];

    for (uint32_t rank = 0; rank < match->world; rank++) {
        const struct sc_sim_part *part = match->ranks[rank];
        buffers[rank] = sc_sim_memory_touch(owner(part), part->dst, part->bytes);
        if (buffers[rank] == NULL)
            return;
    }
    sum(buffers, match->world, buffers, match->world, match->ranks[0]->bytes);
}

static void reduce_scatter(const struct match *match) {
    unsigned char *sources[SC_SIM_RANKS_MAX];
    uint64_t bytes = match->ranks[0]->bytes;

    for (uint32_t to = 0; to < match->world; to++) {
        const struct sc_sim_part *part = match->ranks[to];
        unsigned char *target = sc_sim_memory_touch(owner(part), part->dst, bytes);
        if (target == NULL)
            return;
        for (uint32_t from = 0; from < match->world; from++) {
            part = match->ranks[from];
            sources[from] = sc_sim_memory_touch(owner(part), part->src + to * bytes, bytes);
            if (sources[from] == NULL)
                return;
        }
        sum(sources, match->world, &target, 1, bytes);
    }
}

// ---- copies -----------------------------------------------------------------------------------

static void broadcast(const struct match *match) {
    const struct sc_sim_part *root = match->ranks[match->ranks[0]->peer];

    for (uint32_t rank = 0; rank < match->world; rank++) {
        const struct sc_sim_part *part = match->ranks[rank];
        if (part != root)
            copy(root, root->src, part, part->dst, part->bytes);
    }
}

static void all_gather(const struct match *match) {
    for (uint32_t from = 0; from < match->world; from++) {
        const struct sc_sim_part *source = match->ranks[from];
        for (uint32_t to = 0; to < match->world; to++) {
            const struct sc_sim_part *target = match->ranks[to];
            copy(source, source->src, target, target->dst + from * source->bytes, source->bytes);
        }
    }
}

static void send_recv(const struct sc_sim_part *part) {
    const struct sc_sim_part *send = part->kind == SC_OP_SEND ? part : part->mate;
    const struct sc_sim_part *recv = send->mate;

    copy(send, send->src, recv, recv->dst, send->bytes < recv->bytes ? send->bytes : recv->bytes);
}

// ---- matches ----------------------------------------------------------------------------------

static void collective(struct sc_sim_part *part) {
    struct match match = {.world = part->exchange->comm->clique->world};
    struct sc_sim_part *at = part;

    for (uint32_t count = 0; count < match.world; count++) {
        match.ranks[at->exchange->comm->rank] = at;
        at = at->mate;
    }
    switch (part->kind) {
    case SC_OP_ALL_REDUCE: all_reduce(&match); break;
    case SC_OP_BROADCAST: broadcast(&match); break;
    case SC_OP_ALL_GATHER: all_gather(&match); break;
    case SC_OP_REDUCE_SCATTER: reduce_scatter(&match); break;
    default: break;
    }
}

void sc_sim_move(struct sc_sim_part *part) {
    if (part->state == SC_SIM_PART_MOVED)
        return;
    if (part->mate == NULL) {
        sc_sim_move_garbage(part);
        return;
    }
    if (part->kind == SC_OP_SEND || part->kind == SC_OP_RECV)
        send_recv(part);
    else
        collective(part);
    while (part != NULL) {
        struct sc_sim_part *next = part->mate;
        part->state = SC_SIM_PART_MOVED;
        part->mate = NULL;
        part = next;
    }
}

void sc_sim_move_garbage(struct sc_sim_part *part) {
    const struct sc_sim_comm *comm = part->exchange->comm;
    bool is_root = comm != NULL && part->kind == SC_OP_BROADCAST && part->peer == comm->rank;
    uint64_t shares = part->kind == SC_OP_ALL_GATHER && comm != NULL ? comm->clique->world : 1;

    if (part->kind != SC_OP_SEND && !is_root)
        sc_sim_memory_garble(owner(part), part->dst, part->bytes * shares);
}
