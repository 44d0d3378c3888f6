// SPDX-License-Identifier: AGPL-3.0-only
//
// Reads what a rank is started with.
#include "cli/run.h"

#include "cli/options.h"
#include "core/spark_comm.h"

#include <argp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define DEVICE_MAX 1023u
#define TOKENS_MAX UINT64_C(1000000000000)

enum {
    OPTION_RANK = 256,
    OPTION_WORLD,
    OPTION_MASTER,
    OPTION_DEVICE,
    OPTION_MODEL,
    OPTION_TOKENS,
    OPTION_VERIFY,
    OPTION_GRAPH,
    OPTION_KEY_FILE,
    OPTION_FINAL
};

static const struct argp_option run_options[] = {
    {"rank", OPTION_RANK, "R", 0, "of this process, from 0", 0},
    {"world", OPTION_WORLD, "W", 0, "ranks in the job, 1 to 64", 0},
    {"master", OPTION_MASTER, "HOST:PORT", 0, "where rank 0 listens", 0},
    {"device", OPTION_DEVICE, "D", 0, "index of the GPU (default 0)", 0},
    {"model", OPTION_MODEL, "CONFIG.json", 0, "or a name (default qwen3-30b-a3b)", 0},
    {"tokens", OPTION_TOKENS, "N", 0, "stop after N (default: at a signal)", 0},
    {"verify", OPTION_VERIFY, NULL, 0, "check every result", 0},
    {"graph", OPTION_GRAPH, NULL, 0, "replay each step as a CUDA graph", 0},
    {"key-file", OPTION_KEY_FILE, "FILE", 0, "64 hex digits that all ranks share", 0},
    {"final", OPTION_FINAL, NULL, 0, "leave for good when told to stop", 0},
    {0},
};

static void check_all(const struct sc_run_request *request, struct argp_state *state) {
    if (!request->rank_given)
        argp_error(state, "--rank R is missing: give this process's place, from 0");
    else if (!request->world_given)
        argp_error(state, "--world W is missing: give how many ranks there are");
    else if (request->rank >= request->world)
        argp_error(state, "--rank %" PRIu64 ": expected less than the world of %" PRIu64,
                   request->rank, request->world);
    else if (request->port == 0 && request->world > 1)
        argp_error(state, "--master HOST:PORT is missing: give where rank 0 listens");
}

static error_t parse_option(int key, char *arg, struct argp_state *state) {
    struct sc_run_request *request = state->input;
    bool ok = true;

    switch (key) {
    case OPTION_RANK:
        ok = sc_option_u64("--rank", arg, 0, SC_WORLD_MAX - 1, &request->rank);
        request->rank_given = true;
        break;
    case OPTION_WORLD:
        ok = sc_option_u64("--world", arg, 1, SC_WORLD_MAX, &request->world);
        request->world_given = true;
        break;
    case OPTION_MASTER:
        ok =
            sc_option_address("--master", arg, request->host, sizeof request->host, &request->port);
        break;
    case OPTION_DEVICE: ok = sc_option_u64("--device", arg, 0, DEVICE_MAX, &request->device); break;
    case OPTION_MODEL: request->model_name = arg; break;
    case OPTION_TOKENS: ok = sc_option_u64("--tokens", arg, 1, TOKENS_MAX, &request->tokens); break;
    case OPTION_VERIFY: request->verify = true; break;
    case OPTION_GRAPH: request->graph = true; break;
    case OPTION_KEY_FILE: request->key_file = arg; break;
    case OPTION_FINAL: request->final = true; break;
    case ARGP_KEY_ARG:
        argp_error(state, "%s: no argument is expected; a model goes with --model", arg);
        break;
    case ARGP_KEY_END: check_all(request, state); break;
    default: return ARGP_ERR_UNKNOWN;
    }
    if (!ok)
        exit(SC_EXIT_USAGE);
    return 0;
}

static const struct argp run_argp = {
    .options = run_options,
    .parser = parse_option,
    .doc = "Runs one rank on a GPU: steps of a model's shape, each layer of experts one "
           "all-reduce, each token one step. Start as many as the world has, on one machine or on "
           "several; kill one, start it again, and see them go on."
           "\vSIGINT or SIGTERM stops it after the step: it says that it will return, so that the "
           "others wait for it, or with --final that it will not.",
};

int sc_cli_run(int argc, char **argv) {
    static struct sc_run_request request = {.model_name = "qwen3-30b-a3b"};
    char err[1024];

    argp_err_exit_status = SC_EXIT_USAGE;
    if (argp_parse(&run_argp, argc, argv, 0, NULL, &request) != 0)
        return SC_EXIT_USAGE;
    if (sc_model_resolve(request.model_name, &request.model, err, sizeof err) != 0) {
        fprintf(stderr, "spark-comm: %s\n", err);
        return SC_EXIT_USAGE;
    }
    return sc_run_play(&request);
}
