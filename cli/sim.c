// SPDX-License-Identifier: AGPL-3.0-only
//
// One run is told as it goes; many are summed up. The same seed and plan give the same run, so the
// replay line of a failure shows it again, to the last line.
#include "cli/sim.h"

#include "cli/options.h"
#include "cli/report.h"
#include "cli/sim_plan.h"
#include "cli/sim_report.h"
#include "core/text.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RANKS_MAX 8u
#define RUNS_MAX 1000000u
#define SECONDS_MAX 86400u
#define SECOND UINT64_C(1000000000)

enum {
    OPTION_SEED = 256,
    OPTION_RANKS,
    OPTION_FAULTS,
    OPTION_SECONDS,
    OPTION_RUNS,
    OPTION_TRACE,
    OPTION_JSON
};

static const struct argp_option sim_options[] = {
    {"seed", OPTION_SEED, "N", 0, "of the run, or of the first one (default 1)", 0},
    {"ranks", OPTION_RANKS, "R", 0, "1 to 8 (default 2; the swarm draws it)", 0},
    {"faults", OPTION_FAULTS, "PLAN", 0, "none, swarm or a file (default swarm)", 0},
    {"seconds", OPTION_SECONDS, "S", 0, "virtual length of a run (default 60)", 0},
    {"runs", OPTION_RUNS, "K", 0, "play K seeds and sum them up (default 1)", 0},
    {"trace", OPTION_TRACE, "FILE.json", 0, "write a trace for Perfetto", 0},
    {"json", OPTION_JSON, NULL, 0, "print one JSON object", 0},
    {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state) {
    struct sc_sim_request *request = state->input;
    bool ok = true;

    switch (key) {
    case OPTION_SEED:
        ok = sc_option_u64("--seed", arg, 0, UINT64_MAX, &request->seed);
        request->seed_given = true;
        break;
    case OPTION_RANKS: ok = sc_option_u64("--ranks", arg, 1, RANKS_MAX, &request->ranks); break;
    case OPTION_FAULTS: request->faults = arg; break;
    case OPTION_SECONDS:
        ok = sc_option_u64("--seconds", arg, 1, SECONDS_MAX, &request->seconds);
        break;
    case OPTION_RUNS: ok = sc_option_u64("--runs", arg, 1, RUNS_MAX, &request->runs); break;
    case OPTION_TRACE: request->trace = arg; break;
    case OPTION_JSON: request->json = true; break;
    case ARGP_KEY_ARG:
        argp_error(state, "%s: no argument is expected; a file of faults goes with --faults", arg);
        break;
    case ARGP_KEY_END:
        if (request->trace != NULL && request->runs > 1)
            argp_error(state, "--trace is of one run, but --runs asks for %" PRIu64, request->runs);
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    if (!ok)
        exit(SC_EXIT_USAGE);
    return 0;
}

static const struct argp sim_argp = {
    .options = sim_options,
    .parser = parse_option,
    .doc =
        "Plays simulated runs, every result checked bit for bit, and says what went wrong."
        "\vThe same seed gives the same run. The swarm draws world, clocks, work and faults from "
        "the seed; the last quarter of its run is for recovering, and may be too short where "
        "--seconds is less than 60. A file says what goes wrong and when, one line each, such as\n"
        "  at op 3 of mark 5: rank 1 kill\n"
        "  after 300ms: rank 1 restart",
};

// ---- one run ------------------------------------------------------------------------------------

struct teller {
    const struct sc_sim_request *request;
    struct sc_trace_json trace;
    struct sc_progress progress;
    uint64_t next_step_ns;
};

// Work that goes well fills no screens: one step a virtual second, and an agreement is part of its
// step.
static bool is_worth_a_line(struct teller *teller, const struct sc_trace_entry *entry) {
    if (entry->kind == SC_TRACE_NOTICE)
        return entry->notice->kind != SC_NOTICE_AGREED;
    if (entry->kind != SC_TRACE_STEP)
        return true;
    if (entry->now_ns < teller->next_step_ns)
        return false;
    teller->next_step_ns = entry->now_ns + SECOND;
    return true;
}

static void on_trace(void *arg, const struct sc_trace_entry *entry) {
    struct teller *teller = arg;
    char line[1024];

    sc_trace_json_add(&teller->trace, entry);
    if (teller->request->json) {
        sc_progress_show(&teller->progress, "%.1f virtual seconds played",
                         (double)entry->now_ns / 1e9);
        return;
    }
    if (is_worth_a_line(teller, entry) && sc_trace_line(entry, line, sizeof line)) {
        printf("%5" PRIu64 ".%06" PRIu64 "  %s\n", entry->now_ns / SECOND,
               entry->now_ns % SECOND / 1000, line);
    }
}

static bool report_trace(const struct sc_sim_request *request, const char *why) {
    char shown[128];

    sc_text_clean(request->trace, shown, sizeof shown);
    fprintf(stderr, "spark-comm: --trace %s: cannot be written: %s\n", shown, why);
    return false;
}

static int play_one(const struct sc_sim_request *request, const struct sc_plan *plan) {
    struct teller teller = {.request = request};
    const struct sc_lab_options options = {.on_trace = on_trace, .arg = &teller};
    struct sc_lab_result result;
    char replay[512];

    if (request->trace != NULL &&
        !sc_trace_json_open(&teller.trace, request->trace, plan->core.world)) {
        report_trace(request, strerror(errno));
        return SC_EXIT_USAGE;
    }
    sc_progress_begin(&teller.progress);
    sc_status status = sc_lab_run(plan, &options, &result);
    bool written = request->trace == NULL || sc_trace_json_close(&teller.trace, result.ended_ns) ||
                   report_trace(request, "the disk may be full");
    const struct sc_sim_played played = {
        .seed = request->seed,
        .ranks = plan->core.world,
        .faults = request->faults,
        .replay = sc_sim_replay(request, request->seed, replay, sizeof replay),
        .real_s = (double)sc_progress_end(&teller.progress) / 1e9,
    };
    if (status != SC_OK) {
        fprintf(stderr, "spark-comm: the run ended early: %s\n", sc_status_sentence(status));
        return EXIT_FAILURE;
    }
    if (!request->json) {
        sc_sim_report_run(&played, &result);
    } else if (!sc_sim_report_run_json(&played, &result)) {
        return EXIT_FAILURE;
    }
    return sc_report_end(written && result.violations == 0 ? EXIT_SUCCESS : EXIT_FAILURE);
}

// ---- many runs ----------------------------------------------------------------------------------

struct crowd {
    struct sc_progress progress;
    uint64_t runs;
};

static void on_progress(void *arg, uint64_t done) {
    struct crowd *crowd = arg;

    sc_progress_show(&crowd->progress, "%" PRIu64 " of %" PRIu64 " runs", done, crowd->runs);
}

static void add_result(struct sc_lab_many *many, const struct sc_lab_result *result,
                       uint64_t seed) {
    many->runs++;
    many->ops_verified += result->ops_verified;
    many->recoveries += result->recoveries;
    many->epochs += result->epochs;
    many->ready_before_fault += result->ready_before_fault;
    many->virtual_ns += result->ended_ns;
    many->hash = (many->hash ^ result->hash) * UINT64_C(0x9E3779B97F4A7C15);
    for (int kind = 0; kind < SC_SIM_FAULT_COUNT; kind++)
        many->faults[kind] += result->faults[kind];
    for (int verb = 0; verb < SC_PLAN_VERB_COUNT; verb++)
        many->verbs[verb] += result->verbs[verb];
    if (result->violations != 0) {
        many->failed = 1;
        many->first_failed_seed = seed;
        memcpy(many->violation, result->violation, sizeof many->violation);
    }
}

static int compare_u64(const void *a, const void *b) {
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;

    return (one > other) - (one < other);
}

// One plan with many seeds, up to the first failure.
static sc_status play_plan(struct sc_plan *plan, struct crowd *crowd, struct sc_lab_many *many) {
    uint64_t *ops = calloc(crowd->runs, sizeof *ops);
    sc_status status = ops != NULL ? SC_OK : SC_NO_MEMORY;
    struct sc_lab_result result;

    memset(many, 0, sizeof *many);
    while (status == SC_OK && many->runs < crowd->runs && many->failed == 0) {
        status = sc_lab_run(plan, NULL, &result);
        if (status != SC_OK)
            break;
        ops[many->runs] = result.ops_verified;
        add_result(many, &result, plan->sim.seed++);
        on_progress(crowd, many->runs);
    }
    if (status == SC_OK) {
        qsort(ops, many->runs, sizeof *ops, compare_u64);
        many->ops_median = ops[many->runs / 2];
    }
    free(ops);
    return status;
}

static int play_many(const struct sc_sim_request *request, struct sc_plan *plan) {
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    struct crowd crowd = {.runs = request->runs};
    struct sc_lab_many many;
    char replay[512];
    sc_status status;

    sc_progress_begin(&crowd.progress);
    if (sc_sim_is_swarm(request)) {
        status = sc_lab_many(request->seed, request->runs, (uint32_t)request->ranks,
                             request->seconds * SECOND, processors > 0 ? (uint32_t)processors : 1,
                             on_progress, &crowd, &many);
    } else {
        status = play_plan(plan, &crowd, &many);
    }
    uint64_t real_ns = sc_progress_end(&crowd.progress);
    if (status != SC_OK) {
        fprintf(stderr, "spark-comm: the runs ended early: %s\n", sc_status_sentence(status));
        return EXIT_FAILURE;
    }
    const struct sc_sim_played played = {
        .seed = request->seed,
        .ranks = sc_sim_is_swarm(request) ? request->ranks : plan->core.world,
        .faults = request->faults,
        .replay = sc_sim_replay(request, many.first_failed_seed, replay, sizeof replay),
        .real_s = (double)real_ns / 1e9,
    };
    if (!request->json) {
        sc_sim_report_many(&played, &many);
    } else if (!sc_sim_report_many_json(&played, &many)) {
        return EXIT_FAILURE;
    }
    return sc_report_end(many.failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE);
}

int sc_cli_sim(int argc, char **argv) {
    static struct sc_plan plan;
    struct sc_sim_request request = {.seed = 1, .runs = 1, .faults = "swarm"};

    argp_err_exit_status = SC_EXIT_USAGE;
    if (argp_parse(&sim_argp, argc, argv, 0, NULL, &request) != 0)
        return SC_EXIT_USAGE;
    if (!sc_sim_plan_make(&request, &plan))
        return SC_EXIT_USAGE;
    return request.runs > 1 ? play_many(&request, &plan) : play_one(&request, &plan);
}
