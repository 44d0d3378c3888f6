// SPDX-License-Identifier: AGPL-3.0-only
//
// In the place of the other files here, where no GPU world is built: says so.
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
