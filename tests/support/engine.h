// SPDX-License-Identifier: AGPL-3.0-only
//
// A small engine that knows the library by spark_comm.h alone: steps of all-reduces, each checked to
// the last bit and marked; after a loss it takes the record and goes on behind the lowest mark.
#ifndef SC_TEST_ENGINE_H
#define SC_TEST_ENGINE_H

#include "hal_sim/spark_comm_sim.h"

#include <stdbool.h>

#define ENGINE_RANKS_MAX SC_SIM_RANKS_MAX

// What an engine is told by its test, and tells it.
struct engine {
    uint64_t steps;     // to be done
    uint32_t layers;    // all-reduces of a step
    uint64_t kernel_ns; // ahead of each
    uint64_t rest_ns;   // between steps
    bool agreed;        // SC_SYNC_AGREED instead of LOCAL
    bool leaves_handle; // returns without sc_close()

    // Each written by its rank's thread alone.
    struct engine_rank {
        uint64_t marks;      // of the last life
        uint64_t redone;     // steps begun again, over all lives
        uint64_t epochs;     // that it was READY in
        uint64_t recoveries; // whose record had a cause
        uint32_t cause;      // of the last of them
        uint64_t wrong;      // results with wrong bits
        sc_status failed;    // what ended it early
        char why[256];
    } ranks[ENGINE_RANKS_MAX];
};

sc_sim_main engine_main; // arg: struct engine

// Exit codes.
enum { ENGINE_DONE = 0, ENGINE_FAILED = 1, ENGINE_KILLED = 2 };

#endif
