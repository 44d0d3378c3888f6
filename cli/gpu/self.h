// SPDX-License-Identifier: AGPL-3.0-only
//
// This process, as the system sees it: what it holds, and its TCP connections, which can be cut beneath
// whoever uses them, as a failing network would.
#ifndef SC_CLI_GPU_SELF_H
#define SC_CLI_GPU_SELF_H

#include <stdint.h>

struct sc_self_counts {
    uint64_t descriptors, threads, resident_bytes;
};

void sc_self_count(struct sc_self_counts *out);

// Shuts down every connection that has `port` at either end. Returns how many.
uint32_t sc_self_cut_port(uint32_t port);
// Shuts down that of the others which has carried the most. Returns 1, or 0 if none has carried any.
uint32_t sc_self_cut_busiest(uint32_t but_port);

#endif
