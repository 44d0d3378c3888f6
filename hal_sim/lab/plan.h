// SPDX-License-Identifier: AGPL-3.0-only
//
// A plan says everything about a run: the world, the work its ranks do, what goes wrong and when,
// and which lines its trace must hold. It comes from a seed (swarm.c) or a small text (plan_text.c);
// either way the same plan gives the same run, to the last bit.
#ifndef SC_LAB_PLAN_H
#define SC_LAB_PLAN_H

#include "core/config.h"
#include "hal_sim/sc_sim.h"

#define SC_PLAN_ENTRIES_MAX 128u
#define SC_PLAN_EXPECT_MAX 64u
#define SC_PLAN_LINE_BYTES 128u

// What each rank's application does: steps (tokens) of `layers` collectives, all of them checked.
struct sc_workload {
    uint32_t layers;
    uint32_t elements;   // BF16 elements of one payload
    uint32_t streams;    // 1 or 2; layers alternate
    uint32_t sync_every; // steps between agreements; 0: never
    uint64_t steps_max;  // the run ends when every rank has committed so many; 0: by time only
    uint64_t gap_ns;     // between steps
    uint64_t compute_ns; // kernel ahead of each collective
    bool graph;          // steps are captured once an epoch and replayed
    bool mixed;          // all kinds of collectives and empty ones, not only all_reduce
};

enum sc_plan_trigger {
    SC_PLAN_AT_TIME,
    SC_PLAN_AT_OP,   // just before `at_rank` submits op `op` (from 1) of the step after `mark`
    SC_PLAN_AT_MARK, // when `at_rank` has committed `mark`
    SC_PLAN_AFTER,   // time_ns after the entry above it has fired
};

// What an entry does, beyond the simulator's own faults: things that happen to processes, and things
// that applications do.
// clang-format off
#define SC_PLAN_VERBS(X)                                                                           \
    X(fault)            /* inject `fault` */                                                       \
    X(kill)             /* SIGKILL; comes back only by restart, or by the supervisor's delay */    \
    X(restart)          /* a new process of the rank */                                            \
    X(pause)            /* SIGSTOP for duration */                                                 \
    X(replace)          /* a new process of the rank while the old one stands paused */            \
    X(close_final)      /* the application closes for good: so do all; only a supervisor's respawn \
                           begins the job anew */                                                  \
    X(close_returning)  /* … and is started again after duration */                                \
    X(reconnect)        /* the application gives the epoch up */                                   \
    X(stall)            /* its application's thread is elsewhere for duration; the pump is not */  \
    X(slow_kernel)      /* a kernel of duration ahead of its next collective */                    \
    X(heal)             /* lifts every fault */
// clang-format on

enum sc_plan_verb {
#define SC_PLAN_VERB_ENUM(name) SC_PLAN_##name,
    SC_PLAN_VERBS(SC_PLAN_VERB_ENUM)
#undef SC_PLAN_VERB_ENUM
        SC_PLAN_VERB_COUNT
};

const char *sc_plan_verb_name(enum sc_plan_verb verb);

struct sc_plan_entry {
    enum sc_plan_trigger trigger;
    enum sc_plan_verb verb;
    uint32_t rank;    // whom it befalls
    uint32_t at_rank; // whose op or mark it waits for
    uint64_t time_ns;
    uint64_t op;
    uint64_t mark;
    uint64_t duration_ns;
    struct sc_sim_fault fault; // verb fault
};

struct sc_plan {
    struct sc_core_config core; // rank is filled in for each rank
    struct sc_sim_config sim;   // seed, world
    struct sc_workload work;
    uint64_t duration_ns;
    uint64_t quiet_ns;       // everything is healed and nothing more goes wrong from here on
    uint64_t respawn_min_ns; // a supervisor restarts ranks that ended by themselves or were killed,
    uint64_t respawn_max_ns; // after a delay from this range; max 0: only restart entries do
    bool free_end;           // the ranks need not be READY and working at the end
    bool guest;              // the ranks run somebody else's application: a text that concerns the
                             // lab's own is refused
    uint32_t entries_count;
    struct sc_plan_entry entries[SC_PLAN_ENTRIES_MAX];
    uint32_t expect_count;
    char expect[SC_PLAN_EXPECT_MAX][SC_PLAN_LINE_BYTES]; // lines the trace must hold, in order
};

// The entry as sc_plan_parse reads it, such as "at op 17 of mark 5: rank 1 kill": the step that
// becomes mark 5 comes after mark 4, which is the entry's `mark`. False when it does not fit.
bool sc_plan_entry_text(const struct sc_plan_entry *entry, char *out, size_t bytes);

// A quiet plan: `ranks` ranks, traffic throughout, nothing goes wrong.
void sc_plan_init(struct sc_plan *plan, uint64_t seed, uint32_t ranks);

// Everything drawn from the seed; ranks 0 draws the world's size too.
void sc_plan_swarm(struct sc_plan *plan, uint64_t seed, uint32_t ranks, uint64_t duration_ns);

// Reads a plan from text laid over `plan` as sc_plan_init left it, but for what its owner changed. On an error returns SC_INVALID and
// `why` gets one sentence that begins with "name:line: ".
SC_MUST_USE sc_status sc_plan_parse(struct sc_plan *plan, const char *name, const char *text,
                                    char *why, size_t why_bytes);

#endif
