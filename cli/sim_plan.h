// SPDX-License-Identifier: AGPL-3.0-only
//
// From what "spark-comm sim" was asked to the plan of its first run, and back to a command line.
#ifndef SC_CLI_SIM_PLAN_H
#define SC_CLI_SIM_PLAN_H

#include "hal_sim/lab/plan.h"

struct sc_sim_request {
    uint64_t seed; // of the only or the first run
    bool seed_given;
    uint64_t ranks;   // 0 until given
    uint64_t seconds; // 0 until given
    uint64_t runs;
    const char *faults; // none, swarm or a file's path
    const char *trace;  // NULL until given
    bool json;
};

bool sc_sim_is_swarm(const struct sc_sim_request *request);

// Makes the plan, and settles in the request what it leaves open: the seed of a file, the seconds of
// the swarm. Returns false after saying why on stderr.
bool sc_sim_plan_make(struct sc_sim_request *request, struct sc_plan *plan);

// The command that plays the run with this seed alone, cut to `bytes`. Returns out.
const char *sc_sim_replay(const struct sc_sim_request *request, uint64_t seed, char *out,
                          size_t bytes);

#endif
