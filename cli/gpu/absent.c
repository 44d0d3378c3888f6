// SPDX-License-Identifier: AGPL-3.0-only
//
// In the place of the other files here, where no GPU world is built: says so.
#include "cli/bench.h"
#include "cli/options.h"
#include "cli/run.h"

#include <stdio.h>

static int refuse(const char *command) {
    fprintf(stderr,
            "spark-comm: %s needs a GPU, and this build has no GPU world: build it where nvcc, "
            "cuda.h and nccl.h are (scons config says what was found); demo and sim need none\n",
            command);
    return SC_EXIT_USAGE;
}

int sc_run_play(const struct sc_run_request *request) {
    (void)request;
    return refuse("run");
}

int sc_bench_play(const struct sc_bench_request *request) {
    (void)request;
    return refuse("bench");
}

int sc_recover_play(const struct sc_recover_request *request) {
    (void)request;
    return refuse("bench recover");
}

int sc_bench_rank(int argc, char **argv) {
    (void)argc, (void)argv;
    return refuse("bench");
}

int sc_recover_rank(int argc, char **argv) {
    (void)argc, (void)argv;
    return refuse("bench recover");
}
