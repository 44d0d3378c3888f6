// SPDX-License-Identifier: AGPL-3.0-only
//
// The ways of summing, alike to whoever measures them.
#include "cli/gpu/bench.h"

#include <stdio.h>

const char *sc_bench_arm_name(enum sc_bench_arm arm) {
    static const char *const names[SC_ARMS] = {
        [SC_ARM_ALL_REDUCE] = "ncclAllReduce", [SC_ARM_PAIR] = "send+recv+add",
        [SC_ARM_WINDOW] = "symmetric window",  [SC_ARM_LIBRARY] = "spark_comm",
        [SC_ARM_NOTHING] = "empty kernel",
    };
    return names[arm];
}

static bool is_raw(enum sc_bench_arm arm) {
    return arm < SC_ARM_LIBRARY;
}

bool sc_bench_arm_exists(const struct sc_bench_arms *a, enum sc_bench_arm arm) {
    return !is_raw(arm) || sc_raw_has(a->raw, (enum sc_raw_way)arm);
}

void *sc_bench_arm_buffer(const struct sc_bench_arms *a, enum sc_bench_arm arm) {
    if (arm == SC_ARM_NOTHING)
        return NULL;
    return arm == SC_ARM_LIBRARY ? a->memory : sc_raw_buffer(a->raw, (enum sc_raw_way)arm);
}

bool sc_bench_gpu(struct sc_bench_arms *a, sc_status status) {
    if (status != SC_OK)
        snprintf(a->why, sizeof a->why, "%s", sc_gpu_error(a->gpu));
    return status == SC_OK;
}

bool sc_bench_library(struct sc_bench_arms *a, sc_status status) {
    if (status != SC_OK)
        snprintf(a->why, sizeof a->why, "%s", sc_last_error());
    return status == SC_OK;
}

static bool raw(struct sc_bench_arms *a, sc_status status) {
    if (status != SC_OK)
        snprintf(a->why, sizeof a->why, "%s", sc_raw_error(a->raw));
    return status == SC_OK;
}

bool sc_bench_arm_sum(struct sc_bench_arms *a, enum sc_bench_arm arm, uint64_t bytes, bool alike) {
    if (arm == SC_ARM_NOTHING)
        return sc_bench_gpu(a, sc_gpu_nothing(a->gpu, a->stream));
    if (arm == SC_ARM_LIBRARY)
        return sc_bench_library(
            a, sc_all_reduce(a->comm, a->epoch, a->memory, bytes, SC_BF16, a->stream));
    if (alike)
        return raw(a, sc_raw_sum_alike(a->raw, (enum sc_raw_way)arm, bytes, a->stream));
    return raw(a, sc_raw_sum(a->raw, (enum sc_raw_way)arm, bytes, a->stream));
}

bool sc_bench_arm_capture(struct sc_bench_arms *a, enum sc_bench_arm arm, uint64_t bytes,
                          uint64_t count) {
    bool library = arm == SC_ARM_LIBRARY;
    if (!sc_bench_gpu(a, sc_gpu_graph_begin(a->gpu, a->stream)))
        return false;
    bool ok = !library ||
              sc_bench_library(a, sc_capture_begin(a->comm, a->epoch, a->stream, &a->capture));
    for (uint64_t i = 0; i < count && ok; i++)
        ok = sc_bench_arm_sum(a, arm, bytes, false);
    if (a->capture != 0 && library)
        ok = sc_bench_library(a, sc_capture_end(a->comm, a->capture)) && ok;
    return sc_bench_gpu(a, sc_gpu_graph_end(a->gpu, a->stream, &a->graphs[arm])) && ok;
}

bool sc_bench_arm_launch(struct sc_bench_arms *a, enum sc_bench_arm arm) {
    if (arm != SC_ARM_LIBRARY)
        return sc_bench_gpu(a, sc_gpu_graph_launch(a->gpu, a->graphs[arm], a->stream));
    if (!sc_bench_library(a, sc_replay_begin(a->comm, a->epoch, a->capture, a->stream)))
        return false;
    bool ok = sc_bench_gpu(a, sc_gpu_graph_launch(a->gpu, a->graphs[arm], a->stream));
    return sc_bench_library(a, sc_replay_end(a->comm)) && ok;
}

bool sc_bench_arm_release(struct sc_bench_arms *a, enum sc_bench_arm arm) {
    sc_capture capture = a->capture;
    sc_gpu_graph_destroy(a->gpu, a->graphs[arm]);
    a->graphs[arm] = NULL;
    if (arm != SC_ARM_LIBRARY || capture == 0)
        return true;
    a->capture = 0;
    return sc_bench_library(a, sc_capture_release(a->comm, capture));
}
