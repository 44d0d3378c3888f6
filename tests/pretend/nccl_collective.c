// SPDX-License-Identifier: AGPL-3.0-only
//
// Collectives as exchanges of everybody with everybody. Sums go in pieces, so that what is received
// needs little room.
#include "tests/pretend/nccl_inside.h"

#include <string.h>

struct exchange {
    struct pretend_transfer transfers[2 * PRETEND_RANKS_MAX];
    uint32_t count;
};

static struct pretend_transfer *add(struct exchange *x, uint32_t peer, uint64_t bytes) {
    struct pretend_transfer *t = &x->transfers[x->count++];
    *t = (struct pretend_transfer){.peer = peer, .bytes = bytes};
    return t;
}

// The rank's own share of what stands at `from`, where each rank's begins `stride` behind the one
// before: 0 for a sum that all get.
static bool reduce(struct ncclComm *comm, const struct pretend_call *call, uint64_t stride) {
    const unsigned char *from = call->from;
    unsigned char *to = call->to;
    for (uint64_t at = 0; at < call->bytes; at += PRETEND_PIECE_BYTES) {
        const void *inputs[PRETEND_RANKS_MAX];
        struct exchange x = {.count = 0};
        uint64_t bytes = call->bytes - at;
        if (bytes > PRETEND_PIECE_BYTES)
            bytes = PRETEND_PIECE_BYTES;
        for (uint32_t r = 0; r < comm->world; r++) {
            unsigned char *piece = comm->scratch + r * PRETEND_PIECE_BYTES;
            inputs[r] = r == comm->rank ? from + r * stride + at : piece;
            if (r == comm->rank)
                continue;
            add(&x, r, bytes)->from = from + r * stride + at;
            add(&x, r, bytes)->to = piece;
        }
        if (!pretend_exchange(comm, x.transfers, x.count))
            return false;
        pretend_reduce(call->type, to + at, inputs, comm->rank, comm->world, bytes);
    }
    return true;
}

static bool all_gather(struct ncclComm *comm, const struct pretend_call *call) {
    struct exchange x = {.count = 0};
    unsigned char *to = call->to;
    memmove(to + comm->rank * call->bytes, call->from, call->bytes);
    for (uint32_t r = 0; r < comm->world; r++) {
        if (r == comm->rank)
            continue;
        add(&x, r, call->bytes)->from = to + comm->rank * call->bytes;
        add(&x, r, call->bytes)->to = to + r * call->bytes;
    }
    return pretend_exchange(comm, x.transfers, x.count);
}

static bool broadcast(struct ncclComm *comm, const struct pretend_call *call) {
    struct exchange x = {.count = 0};
    if (comm->rank == call->peer) {
        memmove(call->to, call->from, call->bytes);
        for (uint32_t r = 0; r < comm->world; r++)
            if (r != comm->rank)
                add(&x, r, call->bytes)->from = call->to;
    } else {
        add(&x, call->peer, call->bytes)->to = call->to;
    }
    return pretend_exchange(comm, x.transfers, x.count);
}

bool pretend_collective(struct ncclComm *comm, const struct pretend_call *call) {
    switch (call->kind) {
    case PRETEND_ALL_REDUCE: return reduce(comm, call, 0);
    case PRETEND_REDUCE_SCATTER: return reduce(comm, call, call->bytes);
    case PRETEND_ALL_GATHER: return all_gather(comm, call);
    case PRETEND_BROADCAST: return broadcast(comm, call);
    case PRETEND_SEND:
    case PRETEND_RECV:
    case PRETEND_ABORT: break;
    }
    return true;
}
