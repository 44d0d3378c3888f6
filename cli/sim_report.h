// SPDX-License-Identifier: AGPL-3.0-only
//
// What "spark-comm sim" says at the end: of one run, or of many.
#ifndef SC_CLI_SIM_REPORT_H
#define SC_CLI_SIM_REPORT_H

#include "hal_sim/lab/lab.h"

#include <cjson/cJSON.h>

// What was played.
struct sc_sim_played {
    uint64_t seed;      // of the only or the first run
    uint64_t ranks;     // 0: each run drew its own
    const char *faults; // as given: none, swarm or a file
    const char *replay; // the command that plays the only run, or the first failed one, again
    double real_s;      // how long it took
};

// Each prints on stdout; the JSON ones return false after saying on stderr that memory ran out.
void sc_sim_report_run(const struct sc_sim_played *played, const struct sc_lab_result *result);
bool sc_sim_report_run_json(const struct sc_sim_played *played, const struct sc_lab_result *result);
void sc_sim_report_many(const struct sc_sim_played *played, const struct sc_lab_many *many);
bool sc_sim_report_many_json(const struct sc_sim_played *played, const struct sc_lab_many *many);

// Adds the phases of the last recovery as the member "last_recovery". False when out of memory.
bool sc_sim_report_recovery(cJSON *object, const struct sc_lab_result *result);

#endif
