// SPDX-License-Identifier: AGPL-3.0-only
//
// The demo is a plan like any other, with the work of a model: it is written as text, played by the
// lab, and its trace is told in the words of somebody who decodes tokens.
#include "cli/demo.h"

#include "cli/model.h"
#include "cli/options.h"
#include "cli/report.h"
#include "cli/sim_report.h"
#include "core/capacity.h"
#include "hal_sim/lab/lab.h"

#include <argp.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 2u
#define TOKENS_MIN 2u
#define TOKENS_MAX 100000u
#define BATCH_TOKENS 512u // a full batch, unless the simulator's memory is too small for it
#define CAPACITY_BYTES_MAX (UINT64_C(16) << 20)
#define RESTART_MS 300u
#define SECOND UINT64_C(1000000000)

enum { OPTION_MODEL = 256, OPTION_TOKENS, OPTION_KILL_AT, OPTION_JSON };

struct request {
    const char *model;
    uint64_t tokens;
    uint64_t kill_at; // 0 until given
    bool json;
};

static const struct argp_option demo_options[] = {
    {"model", OPTION_MODEL, "CONFIG.json", 0, "or a name (default qwen3-30b-a3b)", 0},
    {"tokens", OPTION_TOKENS, "N", 0, "how many to decode (default 16)", 0},
    {"kill-at", OPTION_KILL_AT, "T", 0, "the token that rank 1 dies in (default N / 2)", 0},
    {"json", OPTION_JSON, NULL, 0, "print one JSON object", 0},
    {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state) {
    struct request *request = state->input;
    bool ok = true;

    switch (key) {
    case OPTION_MODEL: request->model = arg; break;
    case OPTION_TOKENS:
        ok = sc_option_u64("--tokens", arg, TOKENS_MIN, TOKENS_MAX, &request->tokens);
        break;
    case OPTION_KILL_AT:
        ok = sc_option_u64("--kill-at", arg, 1, TOKENS_MAX, &request->kill_at);
        break;
    case OPTION_JSON: request->json = true; break;
    case ARGP_KEY_ARG:
        argp_error(state, "%s: no argument is expected; a model goes with --model", arg);
        break;
    case ARGP_KEY_END:
        if (request->kill_at == 0)
            request->kill_at = request->tokens / 2;
        if (request->kill_at > request->tokens) {
            argp_error(state, "--kill-at %" PRIu64 ": expected at most the %" PRIu64 " tokens",
                       request->kill_at, request->tokens);
        }
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    if (!ok)
        exit(SC_EXIT_USAGE);
    return 0;
}

static const struct argp demo_argp = {
    .options = demo_options,
    .parser = parse_option,
    .doc = "Two simulated ranks decode with the shape of a model. One is killed in the middle of a "
           "token and started again; the other keeps its state, and both decode on.",
};

// ---- the plan -----------------------------------------------------------------------------------

struct demo {
    struct request request;
    struct sc_model model;
    struct sc_plan plan;
    uint64_t kill_layer; // rank 1 dies before its all-reduce; from 1
    struct sc_progress progress;
    // What has been told so far.
    uint64_t mark[RANKS];
    uint64_t decoded_ns; // when both had the last token
    uint64_t killed_ns;  // 0: not yet
    uint32_t ready;      // mask of the ranks in the present epoch
    uint64_t ready_epoch;
};

static bool size_capacity(struct demo *demo) {
    uint64_t *bytes = &demo->plan.core.capacity_bytes;
    uint64_t needed = *bytes; // by the simulated work itself

    if (sc_payload_capacity(BATCH_TOKENS, demo->model.hidden_size, bytes) != SC_OK ||
        *bytes > CAPACITY_BYTES_MAX)
        return sc_payload_capacity(1, demo->model.hidden_size, bytes) == SC_OK;
    if (*bytes < needed)
        *bytes = needed;
    return true;
}

static bool make_plan(struct demo *demo) {
    const struct request *request = &demo->request;
    uint64_t layers = demo->model.moe_layers;
    // Generous: the run ends with the last token.
    uint64_t seconds = 60 + request->tokens * (layers + 4) / 2000;
    char text[512], why[256];

    demo->kill_layer = layers > 1 ? layers / 2 : 1;
    snprintf(text, sizeof text,
             "layers %" PRIu64 "\nelements %" PRIu64 "\nsteps %" PRIu64 "\nseconds %" PRIu64
             "\nquiet %" PRIu64 "s\ngap 1ms\ncompute 100us\nrespawn never\n"
             "at op %" PRIu64 " of mark %" PRIu64 ": rank 1 kill\n"
             "after %ums: rank 1 restart\n",
             layers, demo->model.hidden_size, request->tokens, seconds, seconds, demo->kill_layer,
             request->kill_at, RESTART_MS);
    sc_plan_init(&demo->plan, 1, RANKS);
    if (sc_plan_parse(&demo->plan, demo->model.name, text, why, sizeof why) == SC_OK &&
        size_capacity(demo))
        return true;
    fprintf(stderr, "spark-comm: --model %s: too large to simulate: %s\n", request->model, why);
    return false;
}

// ---- telling ------------------------------------------------------------------------------------

__attribute__((format(printf, 3, 4))) static void tell(struct demo *demo, uint64_t now_ns,
                                                       const char *format, ...) {
    va_list arguments;

    sc_progress_clear(&demo->progress);
    printf("%5" PRIu64 ".%06" PRIu64 " s  ", now_ns / SECOND, now_ns % SECOND / 1000);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
}

static void tell_head(const struct demo *demo) {
    const struct request *request = &demo->request;

    printf("model   %s: hidden size %" PRIu64 ", %" PRIu64 " layers of experts\n", demo->model.name,
           demo->model.hidden_size, demo->model.moe_layers);
    printf("plan    two ranks decode %" PRIu64 " tokens, with an all-reduce of %" PRIu64
           " bytes after each of these layers\n",
           request->tokens, demo->model.hidden_size * SC_BF16_BYTES);
    printf("        rank 1 is killed in token %" PRIu64 ", layer %" PRIu64
           ", and started again %u ms later\n",
           request->kill_at, demo->kill_layer, RESTART_MS);
    printf("times   virtual: simulated, with the durations measured on a pair of NVLink GPUs\n\n");
}

static void tell_decoded(struct demo *demo, uint64_t first, uint64_t last) {
    if (first < last) {
        tell(demo, demo->decoded_ns,
             "tokens %" PRIu64 " to %" PRIu64 " decoded, %" PRIu64 " all-reduces each", first, last,
             demo->model.moe_layers);
    } else if (first == last) {
        tell(demo, demo->decoded_ns, "token %" PRIu64 " decoded, %" PRIu64 " all-reduces", first,
             demo->model.moe_layers);
    }
}

static void tell_step(struct demo *demo, const struct sc_trace_entry *entry) {
    const struct request *request = &demo->request;

    demo->mark[entry->rank] = entry->a;
    if (demo->mark[0] != demo->mark[1])
        return;
    demo->decoded_ns = entry->now_ns;
    if (demo->killed_ns != 0 && entry->a == request->kill_at) {
        tell(demo, entry->now_ns,
             "token %" PRIu64 " decoded, from its beginning, in epoch %" PRIu64, entry->a,
             entry->epoch >> 24);
    } else if (entry->a == request->tokens) {
        tell_decoded(demo, request->kill_at + 1, request->tokens);
    }
}

static void tell_fault(struct demo *demo, const struct sc_trace_entry *entry) {
    const struct request *request = &demo->request;

    if (demo->killed_ns != 0)
        return; // the restart; the new process tells itself
    tell_decoded(demo, 1, demo->mark[0] < demo->mark[1] ? demo->mark[0] : demo->mark[1]);
    demo->killed_ns = entry->now_ns;
    tell(demo, entry->now_ns,
         "rank 1 is killed in token %" PRIu64 ", before its all-reduce of layer "
         "%" PRIu64,
         request->kill_at, demo->kill_layer);
}

static void tell_state(struct demo *demo, const struct sc_trace_entry *entry) {
    const struct sc_action *notice = entry->notice;
    char time[SC_REPORT_TIME_BYTES];

    bool done = demo->mark[0] == demo->request.tokens && demo->mark[1] == demo->request.tokens;
    if (notice->kind != SC_NOTICE_STATE || entry->rank != 0 || demo->killed_ns == 0 || done)
        return;
    if (notice->a == SC_STATE_READY && demo->ready_epoch == notice->epoch) {
        tell(demo, entry->now_ns,
             "rank 0 sees %s of rank %" PRIu32 ", %s after the kill, and aborts "
             "epoch %" PRIu64,
             sc_status_name((sc_status)notice->status), notice->rank,
             sc_report_time(entry->now_ns - demo->killed_ns, time), notice->epoch >> 24);
    } else if (notice->b == SC_STATE_RENDEZVOUS) {
        tell(demo, entry->now_ns,
             "rank 0 is clean: its process, weights and caches were never touched");
    } else if (notice->b == SC_STATE_JOINING) {
        tell(demo, entry->now_ns, "both ranks are there and form a new communicator");
    }
}

static void tell_ready(struct demo *demo, const struct sc_trace_entry *entry) {
    const struct sc_recovery *recovery = entry->recovery;
    char line[256];

    if (recovery->epoch != demo->ready_epoch)
        demo->ready = 0;
    demo->ready_epoch = recovery->epoch;
    demo->ready |= 1u << entry->rank;
    if (demo->killed_ns != 0 && entry->rank == 0 && sc_trace_line(entry, line, sizeof line))
        tell(demo, entry->now_ns, "%s", line);
    if (demo->ready == (1u << RANKS) - 1)
        tell(demo, entry->now_ns, "both ranks are READY in epoch %" PRIu64, recovery->epoch >> 24);
}

static void tell_spawn(struct demo *demo, const struct sc_trace_entry *entry) {
    const char *how =
        demo->killed_ns == 0 ? "starts" : "starts again, a new process with nothing but its place";

    if (entry->text[0] != '\0') {
        tell(demo, entry->now_ns, "rank %" PRIu32 " cannot start: %s", entry->rank, entry->text);
    } else {
        tell(demo, entry->now_ns, "rank %" PRIu32 " %s", entry->rank, how);
    }
}

static void on_trace(void *arg, const struct sc_trace_entry *entry) {
    struct demo *demo = arg;
    char line[1024];

    sc_progress_show(&demo->progress, "token %" PRIu64 " of %" PRIu64, demo->mark[0],
                     demo->request.tokens);
    if (demo->request.json) {
        if (entry->kind == SC_TRACE_STEP)
            demo->mark[entry->rank] = entry->a;
        return;
    }
    switch (entry->kind) {
    case SC_TRACE_STEP: tell_step(demo, entry); break;
    case SC_TRACE_FAULT: tell_fault(demo, entry); break;
    case SC_TRACE_NOTICE: tell_state(demo, entry); break;
    case SC_TRACE_READY: tell_ready(demo, entry); break;
    case SC_TRACE_SPAWN: tell_spawn(demo, entry); break;
    case SC_TRACE_VIOLATION:
        if (sc_trace_line(entry, line, sizeof line))
            tell(demo, entry->now_ns, "%s", line);
        break;
    default: break;
    }
}

// ---- the end ------------------------------------------------------------------------------------

static bool went_well(const struct demo *demo, const struct sc_lab_result *result) {
    uint64_t expected = demo->request.tokens * demo->model.moe_layers * RANKS;

    return result->violations == 0 && result->ops_exact == result->ops_verified &&
           result->ops_exact >= expected && result->recoveries > 0 &&
           result->steps == demo->request.tokens;
}

static void tell_end(const struct demo *demo, const struct sc_lab_result *result) {
    const uint64_t ns[] = {result->detect_ns,       result->phases.agree_ns,
                           result->phases.abort_ns, result->phases.wait_ns,
                           result->phases.form_ns,  result->phases.warmup_ns,
                           result->first_op_ns,     result->whole_ns};
    static const char *const names[] = {"detect", "agree",   "abort",    "wait (restart)",
                                        "form",   "warm-up", "first op", "whole"};
    char time[SC_REPORT_TIME_BYTES];

    printf("\n%" PRIu64 " of %" PRIu64 " all-reduces bit-exact on both ranks\n", result->ops_exact,
           result->ops_verified);
    if (result->recoveries == 0) {
        puts("recovery: none");
        return;
    }
    for (size_t i = 0; i < sizeof ns / sizeof ns[0]; i++)
        printf("%s %s %s", i == 0 ? "recovery:" : ",", names[i], sc_report_time(ns[i], time));
    putchar('\n');
    if (result->violations != 0) {
        printf("violation: %s\n", result->violation);
    } else if (!went_well(demo, result)) {
        printf("violation: the run ended at token %" PRIu64 " of %" PRIu64 "\n", result->steps,
               demo->request.tokens);
    }
}

static bool print_json(const struct demo *demo, const struct sc_lab_result *result) {
    const struct sc_model *model = &demo->model;
    cJSON *object = cJSON_CreateObject();
    bool ok = cJSON_AddStringToObject(object, "model", model->name) != NULL &&
              sc_report_u64(object, "hidden_size", model->hidden_size) &&
              sc_report_u64(object, "moe_layers", model->moe_layers) &&
              sc_report_u64(object, "capacity_bytes", demo->plan.core.capacity_bytes) &&
              sc_report_u64(object, "tokens", demo->request.tokens) &&
              sc_report_u64(object, "kill_at", demo->request.kill_at) &&
              sc_report_u64(object, "kill_layer", demo->kill_layer) &&
              cJSON_AddBoolToObject(object, "ok", went_well(demo, result)) != NULL &&
              sc_report_u64(object, "tokens_decoded", result->steps) &&
              sc_report_u64(object, "all_reduces_verified", result->ops_verified) &&
              sc_report_u64(object, "all_reduces_exact", result->ops_exact) &&
              sc_report_u64(object, "violations", result->violations) &&
              cJSON_AddStringToObject(object, "violation", result->violation) != NULL &&
              sc_report_u64(object, "recoveries", result->recoveries) &&
              (result->recoveries == 0 || sc_sim_report_recovery(object, result)) &&
              sc_report_u64(object, "virtual_ns", result->ended_ns) &&
              sc_report_hex(object, "trace", result->hash);
    return sc_report_json(object, ok);
}

int sc_cli_demo(int argc, char **argv) {
    static struct demo demo = {.request = {.model = "qwen3-30b-a3b", .tokens = 16}};
    const struct sc_lab_options options = {.on_trace = on_trace, .arg = &demo};
    struct sc_lab_result result;
    char err[1024];

    argp_err_exit_status = SC_EXIT_USAGE;
    if (argp_parse(&demo_argp, argc, argv, 0, NULL, &demo.request) != 0)
        return SC_EXIT_USAGE;
    if (sc_model_resolve(demo.request.model, &demo.model, err, sizeof err) != 0) {
        fprintf(stderr, "spark-comm: %s\n", err);
        return SC_EXIT_USAGE;
    }
    if (!make_plan(&demo))
        return SC_EXIT_USAGE;
    if (!demo.request.json)
        tell_head(&demo);
    sc_progress_begin(&demo.progress);
    sc_status status = sc_lab_run(&demo.plan, &options, &result);
    sc_progress_end(&demo.progress);
    if (status != SC_OK) {
        fprintf(stderr, "spark-comm: the run ended early: %s\n", sc_status_sentence(status));
        return EXIT_FAILURE;
    }
    if (!demo.request.json) {
        tell_end(&demo, &result);
    } else if (!print_json(&demo, &result)) {
        return EXIT_FAILURE;
    }
    return sc_report_end(went_well(&demo, &result) ? EXIT_SUCCESS : EXIT_FAILURE);
}
