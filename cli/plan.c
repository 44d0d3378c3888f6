// SPDX-License-Identifier: AGPL-3.0-only
//
// The plan is arithmetic on the model's figures: compute it once, then print it as a table or as
// JSON. Bytes are those of BF16 activations, whatever type the weights have.
#include "cli/plan.h"

#include "cli/model.h"
#include "cli/options.h"
#include "core/capacity.h"

#include <argp.h>
#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_TOKENS_MAX 1000000000u
#define WORLD_MAX 64u

enum { OPTION_BATCH = 256, OPTION_WORLD, OPTION_JSON };

struct request {
    const char *config;
    uint64_t max_batch_tokens; // 0 until given
    uint64_t world;
    bool json;
};

struct plan {
    struct sc_model model;
    uint64_t max_batch_tokens;
    uint64_t world;
    uint64_t capacity_bytes; // also the payload of a full batch
    uint64_t token_payload_bytes;
    uint64_t calls_per_token;
    uint64_t wire_bytes_per_token; // sent by one rank, and as many received
};

static const struct argp_option plan_options[] = {
    {"max-batch-tokens", OPTION_BATCH, "N", 0, "the most tokens one step can hold", 0},
    {"world", OPTION_WORLD, "W", 0, "ranks that share the model (default 2)", 0},
    {"json", OPTION_JSON, NULL, 0, "print one JSON object", 0},
    {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state) {
    struct request *request = state->input;
    bool ok = true;

    switch (key) {
    case OPTION_BATCH:
        ok = sc_option_u64("--max-batch-tokens", arg, 1, BATCH_TOKENS_MAX,
                           &request->max_batch_tokens);
        break;
    case OPTION_WORLD: ok = sc_option_u64("--world", arg, 1, WORLD_MAX, &request->world); break;
    case OPTION_JSON: request->json = true; break;
    case ARGP_KEY_ARG:
        if (request->config != NULL) {
            argp_error(state, "one model at a time, but both %s and %s are given", request->config,
                       arg);
        }
        request->config = arg;
        break;
    case ARGP_KEY_END:
        if (request->config == NULL)
            argp_error(state, "CONFIG.json is missing: give a model's config.json or its name");
        if (request->max_batch_tokens == 0) {
            argp_error(state, "--max-batch-tokens N is missing: give the most tokens one step can "
                              "hold, such as 8192");
        }
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    if (!ok)
        exit(SC_EXIT_USAGE);
    return 0;
}

static const struct argp plan_argp = {
    .options = plan_options,
    .parser = parse_option,
    .args_doc = "CONFIG.json",
    .doc = "Says what a model asks of its ranks: the capacity to open with, and the traffic."
           "\vCONFIG.json is a Hugging Face config.json, or the name of a model that spark-comm "
           "carries, such as deepseek-v3.",
};

// What one rank sends in one all-reduce: the whole payload when two exchange theirs, and in a
// ring 2 (W - 1) / W of it, which for two ranks is the same.
static uint64_t wire_bytes(uint64_t payload_bytes, uint64_t world) {
    return (2 * (world - 1) * payload_bytes + world - 1) / world;
}

static sc_status plan_make(const struct request *request, struct plan *plan) {
    uint64_t hidden_size = plan->model.hidden_size;
    sc_status status;

    plan->max_batch_tokens = request->max_batch_tokens;
    plan->world = request->world;
    status = sc_payload_capacity(1, hidden_size, &plan->token_payload_bytes);
    if (status != SC_OK)
        return status;
    status = sc_payload_capacity(request->max_batch_tokens, hidden_size, &plan->capacity_bytes);
    if (status != SC_OK)
        return status;
    plan->calls_per_token = plan->model.moe_layers;
    plan->wire_bytes_per_token =
        plan->calls_per_token * wire_bytes(plan->token_payload_bytes, plan->world);
    return SC_OK;
}

static void print_bytes(const char *label, uint64_t bytes) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes / 1024;
    size_t unit = 0;

    printf("%-28s%" PRIu64 " bytes", label, bytes);
    while (value >= 1024 && unit + 1 < sizeof units / sizeof units[0]) {
        value /= 1024;
        unit++;
    }
    if (value >= 1)
        printf(" (%.4g %s)", value, units[unit]);
    putchar('\n');
}

static void print_table(const struct plan *plan) {
    const struct sc_model *model = &plan->model;

    printf("%-28s%s\n", "model", model->name);
    printf("%-28s%" PRIu64 "\n", "hidden size", model->hidden_size);
    printf("%-28s%" PRIu64 ", %" PRIu64 " for each token\n", "experts", model->experts,
           model->experts_per_token);
    printf("%-28s%" PRIu64 " of %" PRIu64 "\n", "layers with an all-reduce", model->moe_layers,
           model->layers);
    printf("%-28s%" PRIu64 "\n", "world", plan->world);
    printf("%-28s%" PRIu64 " tokens\n", "full batch", plan->max_batch_tokens);
    print_bytes("capacity to open with", plan->capacity_bytes);
    print_bytes("payload of one token", plan->token_payload_bytes);
    print_bytes("payload of a full batch", plan->capacity_bytes);
    printf("%-28s%" PRIu64 "\n", "all-reduce calls a token", plan->calls_per_token);
    print_bytes("wire each way a token", plan->wire_bytes_per_token);
}

// As raw text, since cJSON's own numbers turn large integers into powers of ten.
static bool add_u64(cJSON *object, const char *key, uint64_t value) {
    char text[24];

    snprintf(text, sizeof text, "%" PRIu64, value);
    return cJSON_AddRawToObject(object, key, text) != NULL;
}

static bool print_json(const struct plan *plan) {
    const struct sc_model *model = &plan->model;
    cJSON *object = cJSON_CreateObject();
    bool ok = cJSON_AddStringToObject(object, "model", model->name) != NULL &&
              cJSON_AddStringToObject(object, "weights_dtype", model->dtype) != NULL &&
              add_u64(object, "hidden_size", model->hidden_size) &&
              add_u64(object, "layers", model->layers) &&
              add_u64(object, "moe_layers", model->moe_layers) &&
              add_u64(object, "experts", model->experts) &&
              add_u64(object, "experts_per_token", model->experts_per_token) &&
              add_u64(object, "world", plan->world) &&
              add_u64(object, "max_batch_tokens", plan->max_batch_tokens) &&
              add_u64(object, "capacity_bytes", plan->capacity_bytes) &&
              add_u64(object, "token_payload_bytes", plan->token_payload_bytes) &&
              add_u64(object, "batch_payload_bytes", plan->capacity_bytes) &&
              add_u64(object, "all_reduce_calls_per_token", plan->calls_per_token) &&
              add_u64(object, "wire_bytes_each_way_per_token", plan->wire_bytes_per_token);
    char *text = ok ? cJSON_Print(object) : NULL;

    if (text != NULL)
        puts(text);
    cJSON_free(text);
    cJSON_Delete(object);
    return text != NULL;
}

int sc_cli_plan(int argc, char **argv) {
    struct request request = {.world = 2};
    struct plan plan = {0};
    char err[1024];
    sc_status status;

    argp_err_exit_status = SC_EXIT_USAGE;
    if (argp_parse(&plan_argp, argc, argv, 0, NULL, &request) != 0)
        return SC_EXIT_USAGE;
    if (sc_model_resolve(request.config, &plan.model, err, sizeof err) != 0) {
        fprintf(stderr, "spark-comm: %s\n", err);
        return SC_EXIT_USAGE;
    }
    status = plan_make(&request, &plan);
    if (status != SC_OK) {
        fprintf(stderr, "spark-comm: --max-batch-tokens %" PRIu64 ": hidden size %" PRIu64 ": %s\n",
                request.max_batch_tokens, plan.model.hidden_size, sc_status_sentence(status));
        return SC_EXIT_USAGE;
    }
    if (!request.json) {
        print_table(&plan);
    } else if (!print_json(&plan)) {
        fprintf(stderr, "spark-comm: no memory to write the plan as JSON\n");
        return EXIT_FAILURE;
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "spark-comm: stdout cannot be written: %s\n", strerror(errno));
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
