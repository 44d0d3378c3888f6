// SPDX-License-Identifier: AGPL-3.0-only
//
// Reads what to measure: sizes and repetitions, with the letters of nccl-tests.
#include "cli/bench.h"

#include "cli/bench_recover.h"
#include "cli/options.h"

#include <argp.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MIN 2u
#define OPS_MAX 1000u // of a sample: a graph, and the ledger, hold as many

enum { OPTION_DEVICE = 256 };

static const struct argp_option bench_options[] = {
    {"minbytes", 'b', "SIZE", 0, "smallest payload (default 256)", 0},
    {"maxbytes", 'e', "SIZE", 0, "largest payload (default 64M)", 0},
    {"stepfactor", 'f', "FACTOR", 0, "from one size to the next (default 2)", 0},
    {"iters", 'n', "ITERS", 0, "ops of one sample (default 100)", 0},
    {"warmup_iters", 'w', "ITERS", 0, "ops before each sample (default 5)", 0},
    {"rounds", 'N', "ROUNDS", 0, "samples of each way, in turns (default 33)", 0},
    {"device", OPTION_DEVICE, "D", 0, "all ranks on this GPU, and on sockets", 0},
    {"ngpus", 'g', "GPUS", 0, "one process each, 2 to 8 (default 2)", 0},
    {"output_file", 'J', "FILE", 0, "write everything as JSON", 0},
    {0},
};

static void check_all(const struct sc_bench_request *request, struct argp_state *state) {
    if (request->min_bytes > request->max_bytes)
        argp_error(state, "-b %" PRIu64 ": expected at most the %" PRIu64 " bytes of -e",
                   request->min_bytes, request->max_bytes);
    else if (request->min_bytes % 2 != 0)
        argp_error(state, "-b %" PRIu64 ": expected an even number, for an element has two bytes",
                   request->min_bytes);
}

static error_t parse_option(int key, char *arg, struct argp_state *state) {
    struct sc_bench_request *request = state->input;
    bool ok = true;

    switch (key) {
    case 'b':
        ok = sc_option_bytes("-b", arg, BYTES_MIN, SC_BENCH_BYTES_MAX, &request->min_bytes);
        break;
    case 'e':
        ok = sc_option_bytes("-e", arg, BYTES_MIN, SC_BENCH_BYTES_MAX, &request->max_bytes);
        break;
    case 'f': ok = sc_option_u64("-f", arg, 2, 1024, &request->factor); break;
    case 'n': ok = sc_option_u64("-n", arg, 1, OPS_MAX, &request->iterations); break;
    case 'w': ok = sc_option_u64("-w", arg, 1, OPS_MAX, &request->warm_ups); break;
    case 'N': ok = sc_option_u64("-N", arg, 1, SC_BENCH_ROUNDS_MAX, &request->rounds); break;
    case 'g': ok = sc_option_u64("-g", arg, 2, SC_BENCH_GPUS_MAX, &request->gpus); break;
    case OPTION_DEVICE:
        ok = sc_option_u64("--device", arg, 0, SC_BENCH_DEVICE_MAX, &request->device);
        request->shared = true;
        break;
    case 'J': request->json = arg; break;
    case ARGP_KEY_ARG:
        argp_error(state, "%s: expected options, or `recover' as the first word", arg);
        break;
    case ARGP_KEY_END: check_all(request, state); break;
    default: return ARGP_ERR_UNKNOWN;
    }
    if (!ok)
        exit(SC_EXIT_USAGE);
    return 0;
}

static const struct argp bench_argp = {
    .options = bench_options,
    .parser = parse_option,
    .doc = "Measures all-reduces of BF16 between GPUs of this machine, one process each: NCCL's "
           "own, an exchange and a sum, NCCL's on symmetric memory, and the library's, in turns in "
           "one run."
           "\v`spark-comm bench recover' measures recoveries.",
};

int sc_cli_bench(int argc, char **argv) {
    static struct sc_bench_request request = {.min_bytes = 256,
                                              .max_bytes = UINT64_C(64) << 20,
                                              .factor = 2,
                                              .iterations = 100,
                                              .warm_ups = 5,
                                              .rounds = 33,
                                              .gpus = 2};

    argp_err_exit_status = SC_EXIT_USAGE;
    if (argc > 1 && strcmp(argv[1], "recover") == 0)
        return sc_cli_bench_recover(argc - 1, argv + 1);
    if (argp_parse(&bench_argp, argc, argv, 0, NULL, &request) != 0)
        return SC_EXIT_USAGE;
    return sc_bench_play(&request);
}
