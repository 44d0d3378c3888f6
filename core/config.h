// SPDX-License-Identifier: AGPL-3.0-only
//
// What a core is told once, at open. Nothing here changes afterwards, except that rank 0's timing
// replaces every member's when it greets them: clocks that disagree about silence would quarrel.
#ifndef SC_CORE_CONFIG_H
#define SC_CORE_CONFIG_H

#include "core/op.h"
#include "core/status.h"

#include <stdint.h>

struct sc_core_config {
    uint32_t rank;
    uint32_t world;
    uint64_t job;            // tells jobs on one machine apart; equal on all ranks
    uint64_t capacity_bytes; // the largest payload; equal on all ranks
    uint32_t library;        // version number of the communication library; equal on all ranks
    uint32_t lanes;          // bit set of the lanes this rank can use; the common ones are used
    uint32_t ledger_ops;     // ops in flight, and seqs remembered for comparison
    uint32_t hold;           // 1: opened before it can serve; a JOIN event follows
    struct sc_timing timing;
    uint64_t handshake_ns;   // an accepted connection without a valid HELLO is dropped after this
    uint64_t greeting_ns;    // a dialled address without a WELCOME is left for the next one
    uint64_t backoff_min_ns; // second attempt; doubles up to the maximum, with jitter
    uint64_t backoff_max_ns;
    uint64_t stable_ns; // READY for this long forgets earlier failures
    uint64_t join_ns;   // after this long out of READY a notice names who is missing; 0: never
};

#define SC_LANE_NCCL 1u

// Fills in everything but rank, world, job and capacity_bytes.
void sc_core_config_init(struct sc_core_config *config);

// What is out of range, and what the range is.
struct sc_config_fault {
    const char *field; // a literal
    uint64_t value, min, max;
};

// SC_OK, or SC_INVALID with *fault set.
SC_MUST_USE sc_status sc_core_config_check(const struct sc_core_config *config,
                                           struct sc_config_fault *fault);

// What members compare with the coordinator, in the order in which a difference is reported.
enum sc_config_field {
    SC_FIELD_PROTOCOL,
    SC_FIELD_JOB,
    SC_FIELD_WORLD,
    SC_FIELD_RANK,
    SC_FIELD_CAPACITY,
    SC_FIELD_LIBRARY,
    SC_FIELD_LANES,
    SC_FIELD_COUNT,
};

const char *sc_config_field_name(enum sc_config_field field);

#endif
