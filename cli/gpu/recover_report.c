// SPDX-License-Identifier: AGPL-3.0-only
//
// What "bench recover" tells: a line a cycle, then a table, and the JSON with everything.
#include "cli/gpu/recover.h"
#include "cli/report.h"
#include "core/op.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const struct {
    const char *name, *key;
} times[SC_TIMES] = {
    [SC_TIME_DETECT] = {"detect", "detect_ns"},
    [SC_TIME_AGREE] = {"agree", "agree_ns"},
    [SC_TIME_ABORT] = {"abort", "abort_ns"},
    [SC_TIME_WAIT] = {"wait", "wait_ns"},
    [SC_TIME_FORM] = {"form", "form_ns"},
    [SC_TIME_WARM_UP] = {"warm-up", "warm_up_ns"},
    [SC_TIME_FIRST] = {"first step", "first_step_ns"},
    [SC_TIME_OPEN] = {"open", "open_ns"},
    [SC_TIME_JOIN] = {"join to first step", "join_to_first_step_ns"},
    [SC_TIME_WHOLE] = {"whole", "whole_ns"},
};

void sc_recover_tell_cycle(const struct sc_recover_result *result, uint64_t index) {
    const struct sc_recover_cycle *cycle = &result->cycles[index];
    char detect[SC_REPORT_TIME_BYTES], whole[SC_REPORT_TIME_BYTES], suspect[24] = "";

    if (cycle->suspect != SC_RANK_NONE)
        snprintf(suspect, sizeof suspect, " of rank %u", cycle->suspect);
    printf("cycle %3" PRIu64 "  %s%s%s, seen after %s, whole after %s\n", index + 1,
           sc_status_name((sc_status)cycle->code), suspect,
           cycle->right ? "" : ", which is the WRONG CAUSE",
           sc_report_time(cycle->times[SC_TIME_DETECT], detect),
           sc_report_time(cycle->times[SC_TIME_WHOLE], whole));
}

// ---- leaks ----

static const struct sc_recover_cycle *base_of(const struct sc_recover_result *result) {
    return result->done > SC_RECOVER_BASE_CYCLE ? &result->cycles[SC_RECOVER_BASE_CYCLE - 1] : NULL;
}

static bool within(uint64_t now, uint64_t before, uint64_t limit_kib) {
    return now <= before || now - before <= limit_kib * 1024;
}

bool sc_recover_is_level(const struct sc_recover_result *result) {
    const struct sc_recover_cycle *base = base_of(result);
    if (base == NULL)
        return true;
    const struct sc_recover_cycle *last = &result->cycles[result->done - 1];
    return last->counts.descriptors <= base->counts.descriptors &&
           last->counts.threads <= base->counts.threads &&
           within(last->counts.resident_bytes, base->counts.resident_bytes,
                  result->request->leak_host_kib) &&
           within(last->device_bytes, base->device_bytes, result->request->leak_gpu_kib);
}

// ---- the table ----

static bool is_newcomers(enum sc_recover_time time) {
    return time == SC_TIME_OPEN || time == SC_TIME_JOIN;
}

// Of all cycles, sorted; the caller frees it. NULL: nobody joined, or there is no memory.
static uint64_t *sorted(const struct sc_recover_result *result, enum sc_recover_time time,
                        size_t *count) {
    uint64_t *values = malloc(result->done * sizeof *values);
    *count = 0;
    for (uint64_t i = 0; values != NULL && i < result->done; i++)
        values[(*count)++] = result->cycles[i].times[time];
    if (values != NULL)
        sc_report_sort(values, *count);
    if (is_newcomers(time) && !sc_recover_replaces(result->request->how)) {
        free(values);
        return NULL;
    }
    return values;
}

static void tell_times(const struct sc_recover_result *result) {
    char p50[SC_REPORT_TIME_BYTES], p99[SC_REPORT_TIME_BYTES], most[SC_REPORT_TIME_BYTES];

    printf("\n%-20s %12s %12s %12s\n", "", "p50", "p99", "most");
    for (uint32_t i = 0; i < SC_TIMES; i++) {
        size_t count;
        uint64_t *values = sorted(result, (enum sc_recover_time)i, &count);
        if (values == NULL)
            continue;
        printf("%-20s %12s %12s %12s\n", times[i].name,
               sc_report_time(sc_report_quantile(values, count, 50), p50),
               sc_report_time(sc_report_quantile(values, count, 99), p99),
               sc_report_time(values[count - 1], most));
        free(values);
    }
}

static void tell_counts(const struct sc_recover_result *result) {
    const struct sc_recover_cycle *base = base_of(result);
    const struct sc_recover_cycle *last = &result->cycles[result->done - 1];
    if (base == NULL)
        return;
    printf("\nrank %u, after cycle %8u %12" PRIu64 "\n", result->survivor, SC_RECOVER_BASE_CYCLE,
           result->done);
    printf("%-20s %8" PRIu64 " %12" PRIu64 "\n", "descriptors", base->counts.descriptors,
           last->counts.descriptors);
    printf("%-20s %8" PRIu64 " %12" PRIu64 "\n", "threads", base->counts.threads,
           last->counts.threads);
    printf("%-20s %8" PRIu64 " %12" PRIu64 "\n", "resident KiB", base->counts.resident_bytes / 1024,
           last->counts.resident_bytes / 1024);
    printf("%-20s %8" PRIu64 " %12" PRIu64 "\n", "GPU KiB", base->device_bytes / 1024,
           last->device_bytes / 1024);
    if (!sc_recover_is_level(result))
        printf("rank %u LEAKS: it holds more than the limits allow\n", result->survivor);
}

void sc_recover_tell(const struct sc_recover_result *result) {
    const struct sc_recover_request *request = result->request;
    uint32_t driver = result->opened.driver, nccl = result->opened.nccl;
    uint64_t right = 0;

    for (uint64_t i = 0; i < result->done; i++)
        right += result->cycles[i].right;
    printf("\n%s of rank %" PRIu64 ", %" PRIu64 " ranks on %s, CUDA %u.%u, NCCL %u.%u.%u\n",
           sc_recover_how_name(request->how), request->victim, request->gpus, result->opened.text,
           driver / 1000, driver % 1000 / 10, nccl / 10000, nccl / 100 % 100, nccl % 100);
    printf("%s%s: %" PRIu64 " all-reduces of %" PRIu64 " bytes a step\n", request->model.name,
           request->graph ? ", as a graph" : "", request->model.moe_layers,
           request->model.hidden_size * SC_BF16_BYTES);
    if (request->load_ms != 0)
        printf("a newcomer joins %" PRIu64 " ms after it has opened\n", request->load_ms);
    if (request->rest_ms != 0)
        printf("the ranks work %" PRIu64 " ms between a recovery and the next strike\n",
               request->rest_ms);
    if (result->done > 0) {
        tell_times(result);
        tell_counts(result);
    }
    printf("\n%" PRIu64 " of %" PRIu64 " cycles ended as they must\n", right, request->cycles);
}

// ---- JSON ----

static bool add_cycle(cJSON *array, const struct sc_recover_cycle *cycle) {
    cJSON *object = cJSON_CreateObject();
    bool ok =
        cJSON_AddItemToArray(array, object) &&
        cJSON_AddStringToObject(object, "cause", sc_status_name((sc_status)cycle->code)) &&
        cJSON_AddNumberToObject(object, "suspect",
                                cycle->suspect == SC_RANK_NONE ? -1 : (double)cycle->suspect) &&
        cJSON_AddBoolToObject(object, "right", cycle->right);
    for (uint32_t i = 0; i < SC_TIMES && ok; i++)
        if (cycle->times[i] != 0 || !is_newcomers((enum sc_recover_time)i))
            ok = sc_report_u64(object, times[i].key, cycle->times[i]);
    return ok && sc_report_u64(object, "heard_ns", cycle->heard_ns) &&
           sc_report_u64(object, "descriptors", cycle->counts.descriptors) &&
           sc_report_u64(object, "threads", cycle->counts.threads) &&
           sc_report_u64(object, "resident_bytes", cycle->counts.resident_bytes) &&
           sc_report_u64(object, "gpu_bytes", cycle->device_bytes);
}

static bool add_quantiles(cJSON *object, const struct sc_recover_result *result, const char *key,
                          unsigned percent) {
    cJSON *group = cJSON_AddObjectToObject(object, key);
    bool ok = group != NULL;
    for (uint32_t i = 0; i < SC_TIMES && ok; i++) {
        size_t count;
        uint64_t *values = sorted(result, (enum sc_recover_time)i, &count);
        if (values != NULL)
            ok = sc_report_u64(group, times[i].key, sc_report_quantile(values, count, percent));
        free(values);
    }
    return ok;
}

bool sc_recover_write(const struct sc_recover_result *result, bool well) {
    const struct sc_recover_request *request = result->request;
    cJSON *object = cJSON_CreateObject();
    bool ok = cJSON_AddStringToObject(object, "how", sc_recover_how_name(request->how)) &&
              sc_report_u64(object, "ranks", request->gpus) &&
              sc_report_u64(object, "victim", request->victim) &&
              sc_report_u64(object, "survivor", result->survivor) &&
              cJSON_AddStringToObject(object, "model", request->model.name) &&
              sc_report_u64(object, "all_reduces_a_step", request->model.moe_layers) &&
              sc_report_u64(object, "bytes", request->model.hidden_size * SC_BF16_BYTES) &&
              cJSON_AddBoolToObject(object, "graph", request->graph) &&
              sc_report_u64(object, "load_ns", request->load_ms * 1000000) &&
              sc_report_u64(object, "rest_ns", request->rest_ms * 1000000) &&
              cJSON_AddStringToObject(object, "gpu", result->opened.text) &&
              sc_report_u64(object, "cuda", result->opened.driver) &&
              sc_report_u64(object, "nccl", result->opened.nccl) &&
              sc_report_u64(object, "cycles_wanted", request->cycles) &&
              sc_report_u64(object, "cycles_done", result->done) &&
              cJSON_AddStringToObject(object, "failure", result->why) &&
              cJSON_AddBoolToObject(object, "level", sc_recover_is_level(result)) &&
              cJSON_AddBoolToObject(object, "ok", well) &&
              add_quantiles(object, result, "p50", 50) && add_quantiles(object, result, "p99", 99);
    cJSON *array = ok ? cJSON_AddArrayToObject(object, "cycles") : NULL;
    ok = array != NULL;
    for (uint64_t i = 0; i < result->done && ok; i++)
        ok = add_cycle(array, &result->cycles[i]);
    return sc_report_json_file(object, ok, request->json);
}
