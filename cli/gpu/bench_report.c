// SPDX-License-Identifier: AGPL-3.0-only
//
// What "bench" tells: rows of nccl-tests' columns, and the JSON with both quantiles.
#include "cli/gpu/bench.h"
#include "cli/report.h"
#include "core/op.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const what_names[SC_BENCH_WHATS] = {
    [SC_BENCH_STREAM] = "stream_ns",
    [SC_BENCH_GRAPH] = "graph_ns",
    [SC_BENCH_HOST] = "host_ns",
};

static bool exists(const struct sc_bench_result *result, uint32_t arm) {
    return (result->ready.arms >> arm & 1u) != 0;
}

static uint64_t quantile(const struct sc_bench_result *result, uint32_t arm,
                         enum sc_bench_what what, unsigned percent) {
    return sc_report_quantile(result->samples[arm][what], result->request->rounds, percent);
}

// GB/s of payload, by the time in the stream.
static double bandwidth(const struct sc_bench_result *result, uint32_t arm) {
    uint64_t ns = quantile(result, arm, SC_BENCH_STREAM, 50);
    return ns == 0 ? 0 : (double)result->bytes / (double)ns;
}

// What each link carries of it, as nccl-tests counts.
static double bus_factor(const struct sc_bench_result *result) {
    double gpus = (double)result->request->gpus;
    return 2 * (gpus - 1) / gpus;
}

void sc_bench_tell_head(const struct sc_bench_result *result) {
    const struct sc_bench_request *request = result->request;
    uint32_t driver = result->ready.driver, nccl = result->ready.nccl;

    printf("# %" PRIu64 " x %s, CUDA %u.%u, NCCL %u.%u.%u\n", request->gpus, result->ready.text,
           driver / 1000, driver % 1000 / 10, nccl / 10000, nccl / 100 % 100, nccl % 100);
    printf("# all-reduce of BF16 in place; medians of %" PRIu64 " samples of %" PRIu64
           " ops in turns, %" PRIu64 " ops before each;\n# the slowest rank counts\n",
           request->rounds, request->iterations, request->warm_ups);
    printf("# stream, graph: on the device; a sample begins when all of it is enqueued\n"
           "# host: of one call; NCCL's with the calls of CUDA and NCCL that the library makes "
           "around it\n#\n");
    if (!exists(result, SC_ARM_WINDOW))
        printf("# no symmetric window: this NCCL has none, or none between these GPUs\n#\n");
    printf("#%9s %10s  %-17s %8s %8s %7s %7s %6s %6s\n", "size", "count", "way", "stream", "graph",
           "algbw", "busbw", "#wrong", "host");
    printf("#%9s %10s  %-17s %8s %8s %7s %7s %6s %6s\n", "(B)", "(elements)", "", "(us)", "(us)",
           "(GB/s)", "(GB/s)", "", "(ns)");
}

// ---- rows ----

static void compare(struct sc_bench_result *result) {
    for (uint32_t what = SC_BENCH_STREAM; what <= SC_BENCH_GRAPH; what++) {
        uint64_t own = quantile(result, SC_ARM_LIBRARY, (enum sc_bench_what)what, 50);
        uint64_t best = quantile(result, SC_ARM_ALL_REDUCE, (enum sc_bench_what)what, 50);
        uint64_t pair = quantile(result, SC_ARM_PAIR, (enum sc_bench_what)what, 50);
        if (exists(result, SC_ARM_PAIR) && pair < best)
            best = pair;
        double ratio = best == 0 ? 0 : (double)own / (double)best;
        if (ratio > result->worst_ratio[what]) {
            result->worst_ratio[what] = ratio;
            result->worst_bytes[what] = result->bytes;
        }
    }
}

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

// While the samples are in the order of their rounds.
static void compare_host(struct sc_bench_result *result) {
    uint64_t rounds = result->request->rounds;
    enum sc_bench_arm bare = result->pair ? SC_ARM_PAIR : SC_ARM_ALL_REDUCE;
    int64_t more[SC_BENCH_ROUNDS_MAX];
    for (uint64_t i = 0; i < rounds; i++)
        more[i] = (int64_t)result->samples[SC_ARM_LIBRARY][SC_BENCH_HOST][i] -
                  (int64_t)result->samples[bare][SC_BENCH_HOST][i];
    qsort(more, rounds, sizeof more[0], by_value);
    int64_t median = more[(rounds - 1) / 2];
    if (result->host_sizes == 0 || median > result->worst_host_ns) {
        result->worst_host_ns = median;
        result->worst_host_bytes = result->bytes;
    }
    if (result->host_sizes < SC_BENCH_SIZES_MAX)
        result->host_more_ns[result->host_sizes++] = median;
}

static int64_t usual_host_more(const struct sc_bench_result *result) {
    int64_t more[SC_BENCH_SIZES_MAX];
    if (result->host_sizes == 0)
        return 0;
    memcpy(more, result->host_more_ns, sizeof more);
    qsort(more, result->host_sizes, sizeof more[0], by_value);
    return more[(result->host_sizes - 1) / 2];
}

static void tell_row(const struct sc_bench_result *result, uint32_t arm, bool first) {
    double bytes_a_ns = bandwidth(result, arm);
    if (first)
        printf("%10" PRIu64 " %10" PRIu64, result->bytes, result->bytes / SC_BF16_BYTES);
    else
        printf("%21s", "");
    printf("  %-17s %8.2f %8.2f", sc_bench_arm_name((enum sc_bench_arm)arm),
           (double)quantile(result, arm, SC_BENCH_STREAM, 50) / 1000,
           (double)quantile(result, arm, SC_BENCH_GRAPH, 50) / 1000);
    if (arm == SC_ARM_NOTHING)
        printf(" %7s %7s %6s", "", "", "");
    else
        printf(" %7.2f %7.2f %6" PRIu64, bytes_a_ns, bytes_a_ns * bus_factor(result),
               result->wrong[arm]);
    printf(" %6" PRIu64 "\n", quantile(result, arm, SC_BENCH_HOST, 50));
}

static bool add_arm(cJSON *ways, const struct sc_bench_result *result, uint32_t arm) {
    cJSON *way = cJSON_AddObjectToObject(ways, sc_bench_arm_name((enum sc_bench_arm)arm));
    bool ok = way != NULL;
    for (uint32_t what = 0; what < SC_BENCH_WHATS && ok; what++) {
        cJSON *times = cJSON_AddObjectToObject(way, what_names[what]);
        ok = times != NULL &&
             sc_report_u64(times, "p50", quantile(result, arm, (enum sc_bench_what)what, 50)) &&
             sc_report_u64(times, "p99", quantile(result, arm, (enum sc_bench_what)what, 99));
    }
    double gb_s = bandwidth(result, arm);
    return ok && (arm == SC_ARM_NOTHING ||
                  (cJSON_AddNumberToObject(way, "algbw", gb_s) &&
                   cJSON_AddNumberToObject(way, "busbw", gb_s * bus_factor(result)) &&
                   sc_report_u64(way, "wrong", result->wrong[arm])));
}

static bool keep_for_json(struct sc_bench_result *result) {
    if (result->sizes == NULL)
        result->sizes = cJSON_CreateArray();
    cJSON *size = cJSON_CreateObject();
    if (!cJSON_AddItemToArray(result->sizes, size)) {
        cJSON_Delete(size);
        return false;
    }
    cJSON *ways = NULL;
    bool ok = sc_report_u64(size, "bytes", result->bytes) &&
              sc_report_u64(size, "count", result->bytes / SC_BF16_BYTES) &&
              cJSON_AddBoolToObject(size, "exchanged_in_pairs", result->pair) &&
              (ways = cJSON_AddObjectToObject(size, "ways")) != NULL;
    for (uint32_t arm = 0; arm < SC_ARMS && ok; arm++)
        ok = !exists(result, arm) || add_arm(ways, result, arm);
    return ok;
}

void sc_bench_tell_size(struct sc_bench_result *result) {
    bool first = true;
    compare_host(result);
    for (uint32_t arm = 0; arm < SC_ARMS; arm++) {
        if (!exists(result, arm))
            continue;
        for (uint32_t what = 0; what < SC_BENCH_WHATS; what++)
            sc_report_sort(result->samples[arm][what], result->request->rounds);
        result->wrong_in_all += result->wrong[arm];
        tell_row(result, arm, first);
        first = false;
    }
    compare(result);
    if (result->request->json != NULL && !keep_for_json(result))
        result->memory_ran_out = true;
}

// ---- the end ----

void sc_bench_tell_end(const struct sc_bench_result *result) {
    printf(
        "#\n# spark_comm against the faster of ncclAllReduce and send+recv+add, at its worst:\n");
    printf("#   stream %.3f times (at %" PRIu64 " bytes), graph %.3f times (at %" PRIu64
           " bytes)\n",
           result->worst_ratio[0], result->worst_bytes[0], result->worst_ratio[1],
           result->worst_bytes[1]);
    printf("#   host %+.2f us over the same calls made bare (at %" PRIu64
           " bytes); median of all sizes %+.2f us\n",
           (double)result->worst_host_ns / 1000, result->worst_host_bytes,
           (double)usual_host_more(result) / 1000);
    printf("# wrong elements: %" PRIu64 "\n", result->wrong_in_all);
    if (result->unheld != 0)
        printf("# %" PRIu64 " samples began before all of them was enqueued: the host's time is in "
               "their stream or graph\n",
               result->unheld);
}

bool sc_bench_write(struct sc_bench_result *result) {
    const struct sc_bench_request *request = result->request;
    cJSON *object = cJSON_CreateObject();
    bool ok = !result->memory_ran_out &&
              cJSON_AddStringToObject(object, "gpu", result->ready.text) &&
              sc_report_u64(object, "gpus", request->gpus) &&
              sc_report_u64(object, "cuda", result->ready.driver) &&
              sc_report_u64(object, "nccl", result->ready.nccl) &&
              sc_report_u64(object, "iterations", request->iterations) &&
              sc_report_u64(object, "warm_ups", request->warm_ups) &&
              sc_report_u64(object, "rounds", request->rounds) &&
              cJSON_AddNumberToObject(object, "worst_stream_ratio", result->worst_ratio[0]) &&
              cJSON_AddNumberToObject(object, "worst_graph_ratio", result->worst_ratio[1]) &&
              cJSON_AddNumberToObject(object, "worst_host_ns", (double)result->worst_host_ns) &&
              cJSON_AddNumberToObject(object, "usual_host_ns", (double)usual_host_more(result)) &&
              sc_report_u64(object, "wrong", result->wrong_in_all) &&
              sc_report_u64(object, "unheld_samples", result->unheld);
    if (result->sizes != NULL && !cJSON_AddItemToObject(object, "sizes", result->sizes)) {
        cJSON_Delete(result->sizes);
        ok = false;
    }
    return sc_report_json_file(object, ok, request->json);
}
