// SPDX-License-Identifier: AGPL-3.0-only
//
// What one collective is: the words shared by the core, the seam and both worlds.
#ifndef SC_CORE_OP_H
#define SC_CORE_OP_H

#include <stdint.h>

#define SC_WORLD_MAX 64u
#define SC_COMM_ID_BYTES 128u
#define SC_BF16_BYTES 2u

enum sc_op_kind {
    SC_OP_ALL_REDUCE,
    SC_OP_BROADCAST,
    SC_OP_ALL_GATHER,
    SC_OP_REDUCE_SCATTER,
    SC_OP_SEND,
    SC_OP_RECV,
    SC_OP_KIND_COUNT,
};

const char *sc_op_kind_name(enum sc_op_kind kind);

// A collective as every rank must describe it alike: this is what digests compare.
//   root   broadcast: the source rank; send, recv: the peer; otherwise 0
//   bytes  payload: the whole buffer (all_reduce, broadcast, send, recv) or one rank's share
//          (all_gather, reduce_scatter)
struct sc_op_desc {
    uint32_t kind;
    uint32_t root;
    uint64_t bytes;
};

// A send with its recv: the count-th between this sender and this receiver in the epoch, from 1.
// Ranks outside the pair know nothing of it, so that it has a number of its own. count 0: none.
struct sc_pair {
    uint32_t from;
    uint32_t to;
    uint64_t count;
};

// Where its payload lies. src == dst for the in-place kinds.
struct sc_op_place {
    uint64_t src;
    uint64_t dst;
    uint64_t stream;
};

#endif
