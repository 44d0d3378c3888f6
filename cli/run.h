// SPDX-License-Identifier: AGPL-3.0-only
//
// spark-comm run: one real rank that drives steps of a model's shape, until it is told to stop.
#ifndef SC_CLI_RUN_H
#define SC_CLI_RUN_H

#include "cli/model.h"

#include <stdbool.h>
#include <stdint.h>

#define SC_HOST_BYTES 256u

struct sc_run_request {
    const char *model_name;
    struct sc_model model;
    uint64_t rank, world;
    char host[SC_HOST_BYTES]; // where rank 0 listens; "" until given
    uint32_t port;
    uint64_t device;
    uint64_t tokens; // 0: until it is told to stop
    const char *key_file;
    bool rank_given, world_given;
    bool verify, graph, final;
};

// Runs "spark-comm run"; argv[0] is that name. Returns the exit status: 0 when all tokens were decoded
// or it was told to stop, and every result that was looked at was right; 1 when the rank failed, a
// result was wrong or stdout cannot be written; 2 for wrong input, or where there is no GPU to drive,
// after one sentence on stderr.
int sc_cli_run(int argc, char **argv);

// What it does once the words are read; where no GPU world is built it says so.
int sc_run_play(const struct sc_run_request *request);

#endif
