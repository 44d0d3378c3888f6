// SPDX-License-Identifier: AGPL-3.0-only
//
// Inside "bench":
//
//   bench.c         starts the ranks, and takes of each sample the slowest
//   bench_rank.c    one rank's process: size after size
//   bench_arms.c    the ways that are measured, alike to whoever measures
//   bench_report.c  the table, and the JSON
#ifndef SC_CLI_GPU_BENCH_H
#define SC_CLI_GPU_BENCH_H

#include "cli/bench.h"
#include "hal_cuda/bench/sc_raw.h"
#include "hal_cuda/sc_cuda.h"

#define SC_BENCH_ROLE "bench-rank"

// Ways of summing, in the order of their turns; the first ones are those of sc_raw.h.
enum sc_bench_arm {
    SC_ARM_ALL_REDUCE = SC_RAW_ALL_REDUCE,
    SC_ARM_PAIR = SC_RAW_PAIR,
    SC_ARM_WINDOW = SC_RAW_WINDOW,
    SC_ARM_LIBRARY,
    SC_ARM_NOTHING, // an empty kernel: what any launch costs
    SC_ARMS
};

// What is measured of each, in ns an op.
enum sc_bench_what {
    SC_BENCH_STREAM, // on the device, one after the other, all enqueued before the first begins
    SC_BENCH_GRAPH,  // on the device, in one graph, launched before it begins
    SC_BENCH_HOST, // in the calling thread; NCCL's with the calls that the library makes around it
    SC_BENCH_WHATS
};

// ---- what is said over the channel ----

// The first message to a rank, and the only one.
struct sc_bench_start {
    uint32_t rank, world, port;
    int32_t device;
    uint64_t min_bytes, max_bytes, factor, iterations, warm_ups, rounds;
};

enum sc_bench_word_kind {
    SC_BENCH_READY,   // text: the GPU; driver, nccl, arms
    SC_BENCH_SAMPLES, // arm, what, ns
    SC_BENCH_SIZE,    // all samples of this size were said: bytes, wrong, pair, unheld
    SC_BENCH_FAILED,  // text
};

struct sc_bench_word {
    uint32_t kind;
    uint32_t driver, nccl;
    uint32_t arms; // mask of those there are
    uint32_t arm, what;
    uint64_t bytes;
    uint64_t wrong[SC_ARMS]; // elements
    uint32_t pair;           // 1: the library exchanges this size in pairs
    uint64_t unheld;         // samples that began before all of them was enqueued
    char text[256];
    uint64_t ns[SC_BENCH_ROUNDS_MAX];
};

// The size after this one; 0: it was the last. All ranks take the same ones.
uint64_t sc_bench_next(uint64_t bytes, uint64_t max_bytes, uint64_t factor);

// ---- the ways, in a rank: bench_arms.c ----

struct sc_bench_arms {
    uint32_t rank, world;
    struct sc_gpu *gpu;
    struct sc_raw *raw;
    sc_comm comm;
    uint64_t epoch;
    void *stream;
    void *memory;          // the library's
    void *graphs[SC_ARMS]; // of the present size
    sc_capture capture;    // that of the library's
    char why[320];         // of the last that failed
};

bool sc_bench_arm_exists(const struct sc_bench_arms *a, enum sc_bench_arm arm);
const char *sc_bench_arm_name(enum sc_bench_arm arm);
// What it sums in place; NULL for the empty kernel.
void *sc_bench_arm_buffer(const struct sc_bench_arms *a, enum sc_bench_arm arm);
// One op. `alike`: NCCL's with the calls of CUDA and NCCL that the library makes around it.
bool sc_bench_arm_sum(struct sc_bench_arms *a, enum sc_bench_arm arm, uint64_t bytes, bool alike);
// A graph of so many ops, its launch, and its end.
bool sc_bench_arm_capture(struct sc_bench_arms *a, enum sc_bench_arm arm, uint64_t bytes,
                          uint64_t count);
bool sc_bench_arm_launch(struct sc_bench_arms *a, enum sc_bench_arm arm);
bool sc_bench_arm_release(struct sc_bench_arms *a, enum sc_bench_arm arm);
// Notes why, in words of the GPU's or the library's. Returns whether it went well.
bool sc_bench_gpu(struct sc_bench_arms *a, sc_status status);
bool sc_bench_library(struct sc_bench_arms *a, sc_status status);

// ---- what came of it: bench_report.c ----

struct sc_bench_result {
    const struct sc_bench_request *request;
    struct sc_bench_word ready; // by one of the ranks
    uint64_t bytes;             // the present size
    uint64_t samples[SC_ARMS][SC_BENCH_WHATS]
                    [SC_BENCH_ROUNDS_MAX]; // of the slowest rank; then sorted
    uint64_t wrong[SC_ARMS];
    bool pair;
    // How the library compares: the largest ratio to the faster of NCCL's two, and where; the largest
    // difference on the host.
    double worst_ratio[2];
    uint64_t worst_bytes[2];
    // Of each size, by how much a call of the library's takes longer than the same calls made bare:
    // the median over the rounds, each a difference of neighbours in time.
    int64_t host_more_ns[SC_BENCH_SIZES_MAX], worst_host_ns;
    uint64_t worst_host_bytes;
    uint32_t host_sizes;
    uint64_t wrong_in_all;
    uint64_t unheld; // samples of all ranks that have the host's time in them
    void *sizes;     // a cJSON array, if there is to be one
    bool memory_ran_out;
};

void sc_bench_tell_head(const struct sc_bench_result *result);
// Sorts the samples, prints the rows, and keeps what the end needs.
void sc_bench_tell_size(struct sc_bench_result *result);
void sc_bench_tell_end(const struct sc_bench_result *result);
bool sc_bench_write(struct sc_bench_result *result);

#endif
