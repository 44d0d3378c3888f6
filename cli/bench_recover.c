// SPDX-License-Identifier: AGPL-3.0-only
//
// Reads what is to be done to whom.
#include "cli/bench_recover.h"

#include "cli/bench.h"
#include "cli/options.h"
#include "core/text.h"

#include <argp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CYCLES_MAX 10000u
#define MS_MAX 600000u // of --load and --rest
#define KIB_MAX (UINT64_C(1) << 30)

enum {
    OPTION_CYCLES = 256,
    OPTION_HOW,
    OPTION_VICTIM,
    OPTION_MODEL,
    OPTION_LOAD,
    OPTION_REST,
    OPTION_GRAPH,
    OPTION_HOST,
    OPTION_GPU,
    OPTION_SOCKETS,
    OPTION_DEVICE
};

static const char *const hows[SC_RECOVER_HOWS] = {
    [SC_RECOVER_KILL] = "kill",
    [SC_RECOVER_STOP] = "stop",
    [SC_RECOVER_RESET] = "reset",
    [SC_RECOVER_ASYNC] = "async",
};

const char *sc_recover_how_name(enum sc_recover_how how) {
    return hows[how];
}

bool sc_recover_replaces(enum sc_recover_how how) {
    return how == SC_RECOVER_KILL || how == SC_RECOVER_STOP;
}

static const struct argp_option recover_options[] = {
    {"cycles", OPTION_CYCLES, "N", 0, "losses and recoveries (default 10)", 0},
    {"how", OPTION_HOW, "HOW", 0, "kill, stop, reset or async (default kill)", 0},
    {"victim", OPTION_VICTIM, "R", 0, "the rank it is done to (default the last)", 0},
    {"model", OPTION_MODEL, "CONFIG.json", 0, "or a name (default qwen3-30b-a3b)", 0},
    {"load", OPTION_LOAD, "MS", 0, "a newcomer loads so long (default 0)", 0},
    {"rest", OPTION_REST, "MS", 0, "work so long between strikes (default 200 to 500)", 0},
    {"graph", OPTION_GRAPH, NULL, 0, "replay each step as a CUDA graph", 0},
    {"leak-host-kib", OPTION_HOST, "N", 0, "resident memory may grow so (default 1024)", 0},
    {"leak-gpu-kib", OPTION_GPU, "N", 0, "GPU memory may grow so (default 2048)", 0},
    {"sockets", OPTION_SOCKETS, NULL, 0, "NCCL keeps to sockets of this machine", 0},
    {"device", OPTION_DEVICE, "D", 0, "all ranks on this GPU, and on sockets", 0},
    {"ngpus", 'g', "GPUS", 0, "one process each, 2 to 8 (default 2)", 0},
    {"output_file", 'J', "FILE", 0, "write everything as JSON", 0},
    {0},
};

static bool take_how(const char *text, enum sc_recover_how *out) {
    char shown[64];

    for (uint32_t i = 0; i < SC_RECOVER_HOWS; i++) {
        if (strcmp(text, hows[i]) == 0) {
            *out = (enum sc_recover_how)i;
            return true;
        }
    }
    sc_text_clean(text, shown, sizeof shown);
    fprintf(stderr, "spark-comm: --how %s: expected kill, stop, reset or async\n", shown);
    return false;
}

static void check_all(struct sc_recover_request *request, struct argp_state *state) {
    if (!request->victim_given)
        request->victim = request->gpus - 1;
    if (request->victim >= request->gpus)
        argp_error(state, "--victim %" PRIu64 ": expected less than the %" PRIu64 " of -g",
                   request->victim, request->gpus);
    if (request->load_ms != 0 && !sc_recover_replaces(request->how))
        argp_error(state, "--load %" PRIu64 ": nobody joins anew after --how %s", request->load_ms,
                   sc_recover_how_name(request->how));
}

static error_t parse_option(int key, char *arg, struct argp_state *state) {
    struct sc_recover_request *request = state->input;
    bool ok = true;

    switch (key) {
    case OPTION_CYCLES: ok = sc_option_u64("--cycles", arg, 1, CYCLES_MAX, &request->cycles); break;
    case OPTION_HOW: ok = take_how(arg, &request->how); break;
    case OPTION_VICTIM:
        ok = sc_option_u64("--victim", arg, 0, SC_BENCH_GPUS_MAX - 1, &request->victim);
        request->victim_given = true;
        break;
    case OPTION_MODEL: request->model_name = arg; break;
    case OPTION_LOAD: ok = sc_option_u64("--load", arg, 0, MS_MAX, &request->load_ms); break;
    case OPTION_REST: ok = sc_option_u64("--rest", arg, 1, MS_MAX, &request->rest_ms); break;
    case OPTION_GRAPH: request->graph = true; break;
    case OPTION_HOST:
        ok = sc_option_u64("--leak-host-kib", arg, 0, KIB_MAX, &request->leak_host_kib);
        break;
    case OPTION_GPU:
        ok = sc_option_u64("--leak-gpu-kib", arg, 0, KIB_MAX, &request->leak_gpu_kib);
        break;
    case OPTION_SOCKETS: request->sockets = true; break;
    case OPTION_DEVICE:
        ok = sc_option_u64("--device", arg, 0, SC_BENCH_DEVICE_MAX, &request->device);
        request->shared = true;
        break;
    case 'g': ok = sc_option_u64("-g", arg, 2, SC_BENCH_GPUS_MAX, &request->gpus); break;
    case 'J': request->json = arg; break;
    case ARGP_KEY_ARG: argp_error(state, "%s: no argument is expected", arg); break;
    case ARGP_KEY_END: check_all(request, state); break;
    default: return ARGP_ERR_UNKNOWN;
    }
    if (!ok)
        exit(SC_EXIT_USAGE);
    return 0;
}

static const struct argp recover_argp = {
    .options = recover_options,
    .parser = parse_option,
    .doc = "Measures recoveries of real processes that make verified steps of a model's shape, and "
           "what a survivor holds after them."
           "\vkill: a process is killed, and another started. stop: it is frozen, another started, "
           "the frozen one killed later. reset: its control link is shut down beneath the library. "
           "async: a data socket of its communicator is shut down beneath NCCL, which is kept to "
           "sockets for that.\n"
           "A strike within 10 s of a recovery meets the backoff of new attempts, which is then "
           "part of wait; --rest 10500 leaves it out.\n"
           "Ranks run with NCCL_RAS_ENABLE=0 unless the variable is set: NCCL's RAS dials a lost "
           "peer for a minute, and holds a descriptor meanwhile, which would count as a leak.",
};

int sc_cli_bench_recover(int argc, char **argv) {
    static struct sc_recover_request request = {.cycles = 10,
                                                .how = SC_RECOVER_KILL,
                                                .gpus = 2,
                                                .model_name = "qwen3-30b-a3b",
                                                .leak_host_kib = 1024,
                                                .leak_gpu_kib = 2048};
    char name[] = "spark-comm bench recover";
    char err[1024];

    argv[0] = name;
    if (argp_parse(&recover_argp, argc, argv, 0, NULL, &request) != 0)
        return SC_EXIT_USAGE;
    if (sc_model_resolve(request.model_name, &request.model, err, sizeof err) != 0) {
        fprintf(stderr, "spark-comm: %s\n", err);
        return SC_EXIT_USAGE;
    }
    return sc_recover_play(&request);
}
