// SPDX-License-Identifier: AGPL-3.0-only
//
// A run: a plan played out in a simulated world, with an application and a supervisor for each rank
// and every oracle watching.
//
//   lab.c      the run: build the world, do what the plan's entries say, step, close, judge
//   player.c   when each entry is fired
//   life.c     one process of a rank: its tables, contract checker and pump
//   app.c      what the application does from epoch to epoch
//   step.c     … and within one step; the check of every result
//   payload.c  what goes into each collective, and what must come out
//   oracle.c   what must hold, whatever happens
//   swarm.c    plans from seeds          plan_text.c  plans from text
//   trace*.c   the record of it all      many.c       many runs on all cores
#ifndef SC_LAB_H
#define SC_LAB_H

#include "hal_sim/lab/plan.h"
#include "hal_sim/lab/trace.h"

struct sc_lab_options {
    // Each entry of the trace as it happens; may be NULL.
    void (*on_trace)(void *arg, const struct sc_trace_entry *entry);
    void *arg;
};

struct sc_lab_result {
    uint64_t hash; // of the whole trace
    uint64_t ended_ns;
    uint32_t violations;   // oracle breaches, and expected lines not met
    char violation[512];   // the first one
    uint64_t ops_verified; // per rank and op: results that were compared bit for bit
    uint64_t ops_exact;    // … and were right; equal, or there is a violation
    uint64_t ops_lost;
    uint64_t steps;  // highest mark
    uint64_t epochs; // that became READY
    uint64_t recoveries;
    bool ready_before_fault;             // every rank was READY before the first fault
    uint32_t faults[SC_SIM_FAULT_COUNT]; // injected, by kind
    uint32_t verbs[SC_PLAN_VERB_COUNT];
    // Of the last recovery, seen from outside: from the moment of the last kill, pause or fault.
    uint64_t fault_ns;       // when it struck
    uint64_t detect_ns;      // strike -> first rank out of READY
    struct sc_phases phases; // as rank 0's record told them
    uint64_t first_op_ns;    // READY -> first op complete
    uint64_t whole_ns;       // strike -> first op complete
};

// Plays a plan. SC_NO_MEMORY is the only error; what went wrong inside is in the result.
SC_MUST_USE sc_status sc_lab_run(const struct sc_plan *plan, const struct sc_lab_options *options,
                                 struct sc_lab_result *result);

// Many swarm runs: seeds first, first + 1, … on `threads` threads.
struct sc_lab_many {
    uint64_t runs, failed;
    uint64_t first_failed_seed;
    char violation[512];
    uint64_t ops_verified, ops_median, recoveries, epochs;
    uint64_t ready_before_fault;
    uint64_t virtual_ns;
    uint64_t hash;     // over all runs' hashes, in order of seed
    uint64_t replayed; // runs played twice to see the same hash
    uint64_t faults[SC_SIM_FAULT_COUNT];
    uint64_t verbs[SC_PLAN_VERB_COUNT];
};

// `progress` (may be NULL) is called about once a second from one thread with the runs done.
SC_MUST_USE sc_status sc_lab_many(uint64_t first_seed, uint64_t runs, uint32_t ranks,
                                  uint64_t duration_ns, uint32_t threads,
                                  void (*progress)(void *arg, uint64_t done), void *arg,
                                  struct sc_lab_many *out);

#endif
