// SPDX-License-Identifier: AGPL-3.0-only
//
// What happened in a run, in order: hashed always, written out when somebody wants to read it.
#ifndef SC_LAB_TRACE_H
#define SC_LAB_TRACE_H

#include "core/core.h"

#include <stdio.h>

enum sc_trace_kind {
    SC_TRACE_NOTICE,   // a NOTIFY action: notice; cause, where a change of state has one
    SC_TRACE_READY,    // recovery record taken: recovery
    SC_TRACE_FAULT,    // text: what was injected, as it would be written in a plan
    SC_TRACE_SPAWN,    // a process started; text: why it then could not open, or empty
    SC_TRACE_END,      // a process ended; text: why
    SC_TRACE_STEP,     // a: mark committed, b: ops verified in it
    SC_TRACE_OP,       // a: seq, b: digest of the result; only hashed
    SC_TRACE_FIRST_OP, // first op of an epoch completed; a: ns since READY
    SC_TRACE_VIOLATION, // text: which oracle, and what it saw
    SC_TRACE_MARK, // a: mark that an application set, b: ops that it submitted since the last one
};

struct sc_trace_entry {
    enum sc_trace_kind kind;
    uint32_t rank; // SC_RANK_NONE: the world
    bool former;   // of a process whose place another has taken
    uint64_t now_ns;
    uint64_t epoch;
    uint64_t a, b;
    const char *text; // NULL where the kind has none
    const struct sc_action *notice;
    const struct sc_cause *cause;
    const struct sc_recovery *recovery;
};

// Mixes everything but addresses into a running hash; start with 0.
uint64_t sc_trace_hash(uint64_t hash, const struct sc_trace_entry *entry);

// One line without newline and without time, such as
//   rank 0 ready -> aborting PEER_DEAD rank 1 seq 17
//   rank 0 ready epoch 2 recovery: rank 1 fresh, mark 4
// Epochs are shown by their count. Returns false for kinds that have no line (SC_TRACE_OP).
bool sc_trace_line(const struct sc_trace_entry *entry, char *out, size_t bytes);

// Whether `line` matches an expected one: equal after folding white space, or `expected` is its
// beginning up to a word's end.
bool sc_trace_matches(const char *line, const char *expected);

// Chrome trace format (Perfetto reads it): a track a rank, states as slices, the rest as instants.
// Open writes the head, add one entry, close the tail; false when the file could not be written.
struct sc_trace_json {
    FILE *file;
    bool first;
    uint32_t ranks;
    uint64_t state_since_ns[SC_WORLD_MAX];
    uint32_t state[SC_WORLD_MAX];
};
bool sc_trace_json_open(struct sc_trace_json *json, const char *path, uint32_t ranks);
void sc_trace_json_add(struct sc_trace_json *json, const struct sc_trace_entry *entry);
bool sc_trace_json_close(struct sc_trace_json *json, uint64_t now_ns);

#endif
