// SPDX-License-Identifier: AGPL-3.0-only
//
// Ops, beyond what the public header says of them: the words shared by core, seam and worlds.
#ifndef SC_CORE_OP_H
#define SC_CORE_OP_H

#include "core/spark_comm.h"

#define SC_COMM_ID_BYTES 128u
#define SC_BF16_BYTES 2u

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
