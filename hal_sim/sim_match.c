// SPDX-License-Identifier: AGPL-3.0-only
//
// Who meets whom. A send meets the receive that stands at the same place among its pair's; a
// collective meets the collectives at the same place of all other ranks, whatever they are.
//
// What does not fit ends as it does with NCCL: a send that is too long is taken, one that is too
// short leaves its receiver waiting; different collectives complete on one rank at least, with
// success and undefined data, and on the others or not; broadcasts from different roots on all.
#include "hal_sim/sim_gpu.h"

static bool is_collective(const struct sc_sim_part *part) {
    return part->kind != SC_OP_SEND && part->kind != SC_OP_RECV;
}

static void matched(struct sc_sim_part *part) {
    struct sc_sim_exchange *exchange = part->exchange;

    part->state = SC_SIM_PART_MATCHED;
    if (--exchange->unmatched == 0 && !exchange->stuck && !exchange->starved)
        sc_sim_exchange_complete_soon(exchange);
}

// ---- send and recv ----------------------------------------------------------------------------

static struct sc_sim_part *counterpart(const struct sc_sim_part *part) {
    const struct sc_sim_comm *comm = part->exchange->comm;
    enum sc_op_kind wanted = part->kind == SC_OP_SEND ? SC_OP_RECV : SC_OP_SEND;

    for (struct sc_sim_exchange *at = comm->clique->first; at != NULL; at = at->after) {
        if (at->comm->rank != part->peer)
            continue;
        for (uint32_t index = 0; index < at->count; index++) {
            struct sc_sim_part *other = &at->parts[index];
            if (other->state == SC_SIM_PART_WAITING && other->kind == wanted &&
                other->peer == comm->rank && other->index == part->index)
                return other;
        }
    }
    return NULL;
}

static void match_pair(struct sc_sim_part *part) {
    struct sc_sim_part *other = counterpart(part);

    if (other == NULL)
        return;
    struct sc_sim_part *send = part->kind == SC_OP_SEND ? part : other;
    struct sc_sim_part *recv = part->kind == SC_OP_SEND ? other : part;
    bool stuck = send->exchange->stuck || recv->exchange->stuck;
    send->exchange->stuck = stuck;
    recv->exchange->stuck = stuck;
    if (send->bytes < recv->bytes)
        recv->exchange->starved = true;
    send->mate = recv;
    recv->mate = send;
    matched(part);
    matched(other);
}

// ---- collectives ------------------------------------------------------------------------------

// The collectives at the part's place, by rank; false while one is missing.
static bool gather(const struct sc_sim_part *part, struct sc_sim_part *ranks[SC_SIM_RANKS_MAX]) {
    const struct sc_sim_clique *clique = part->exchange->comm->clique;
    uint32_t found = 0;

    for (struct sc_sim_exchange *at = clique->first; at != NULL; at = at->after) {
        for (uint32_t index = 0; index < at->count; index++) {
            struct sc_sim_part *other = &at->parts[index];
            if (other->state == SC_SIM_PART_WAITING && is_collective(other) &&
                other->index == part->index) {
                ranks[at->comm->rank] = other;
                found++;
            }
        }
    }
    return found == clique->world;
}

static void match_equals(struct sc_sim_part *const ranks[], uint32_t world) {
    bool stuck = false;

    for (uint32_t rank = 0; rank < world; rank++)
        stuck = stuck || ranks[rank]->exchange->stuck;
    for (uint32_t rank = 0; rank < world; rank++) {
        ranks[rank]->exchange->stuck = stuck;
        ranks[rank]->mate = ranks[(rank + 1) % world];
    }
    for (uint32_t rank = 0; rank < world; rank++)
        matched(ranks[rank]);
}

static void match_unequals(struct sc_sim *sim, struct sc_sim_part *const ranks[], uint32_t world) {
    uint64_t lucky = sc_sim_below(sim, world);
    bool only_roots = true;

    for (uint32_t rank = 1; rank < world; rank++)
        only_roots = only_roots && ranks[rank]->kind == SC_OP_BROADCAST &&
                     ranks[0]->kind == SC_OP_BROADCAST && ranks[rank]->bytes == ranks[0]->bytes;
    for (uint32_t rank = 0; rank < world; rank++) {
        bool completes = sc_sim_below(sim, 2) == 0 || only_roots || rank == lucky;
        if (!completes)
            ranks[rank]->exchange->starved = true;
        matched(ranks[rank]);
    }
}

static void match_collective(struct sc_sim_part *part) {
    struct sc_sim_part *ranks[SC_SIM_RANKS_MAX];
    uint32_t world = part->exchange->comm->clique->world;
    bool equal = true;

    if (!gather(part, ranks))
        return;
    for (uint32_t rank = 1; rank < world; rank++)
        equal = equal && ranks[rank]->kind == ranks[0]->kind &&
                ranks[rank]->bytes == ranks[0]->bytes && ranks[rank]->peer == ranks[0]->peer;
    if (equal)
        match_equals(ranks, world);
    else
        match_unequals(part->exchange->object.owner->sim, ranks, world);
}

void sc_sim_match(struct sc_sim_exchange *exchange) {
    for (uint32_t at = 0; at < exchange->count; at++) {
        struct sc_sim_part *part = &exchange->parts[at];
        if (part->state != SC_SIM_PART_WAITING)
            continue; // an earlier part was its mate
        if (is_collective(part))
            match_collective(part);
        else
            match_pair(part);
    }
}

// ---- loss -------------------------------------------------------------------------------------

// Either all of the part's mates that are about to complete had their data by then, or none.
static bool data_landed(const struct sc_sim_part *part) {
    bool completing = false;

    for (const struct sc_sim_part *mate = part->mate; mate != part; mate = mate->mate)
        completing = completing || mate->exchange->completing;
    return completing && sc_sim_below(part->exchange->object.owner->sim, 2) == 0;
}

void sc_sim_match_break(struct sc_sim_exchange *exchange) {
    for (uint32_t at = 0; at < exchange->count; at++) {
        struct sc_sim_part *part = &exchange->parts[at];
        if (part->mate == NULL)
            continue;
        if (data_landed(part)) {
            sc_sim_move(part);
            continue;
        }
        for (struct sc_sim_part *mate = part->mate; mate != NULL;) {
            struct sc_sim_part *next = mate->mate;
            mate->mate = NULL;
            if (mate != part) {
                mate->exchange->completing = false;
                mate->exchange->starved = true;
            }
            mate = next;
        }
    }
}
