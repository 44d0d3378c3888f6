// SPDX-License-Identifier: AGPL-3.0-only
//
// The names of the collectives, as reports and traces print them.
#include "core/op.h"

static const char *const names[SC_OP_KIND_COUNT] = {
    [SC_OP_ALL_REDUCE] = "all_reduce",
    [SC_OP_BROADCAST] = "broadcast",
    [SC_OP_ALL_GATHER] = "all_gather",
    [SC_OP_REDUCE_SCATTER] = "reduce_scatter",
    [SC_OP_SEND] = "send",
    [SC_OP_RECV] = "recv",
};

// The kind may have come over the wire: any value is answered.
const char *sc_op_kind_name(enum sc_op_kind kind) {
    return (unsigned)kind < SC_OP_KIND_COUNT ? names[kind] : "unknown";
}
