// SPDX-License-Identifier: AGPL-3.0-only
//
// Which payloads are to be exchanged in pairs, by what was measured of both ways.
//
// The device's table knows one range, so one run of sizes is chosen: that by which most is gained
// over NCCL's all-reduce at all of its sizes, in ratios. What the pair loses at a size within the
// run counts against it; what it gains by less than noise does not count for it.
//
// This file needs neither CUDA nor NCCL, and is built wherever the library is.
#include "hal_cuda/sc_cuda.h"

uint32_t sc_cuda_lane_sizes(uint64_t capacity_bytes) {
    uint32_t sizes = 1;
    while (sizes < SC_CUDA_LANE_SIZES && sc_cuda_lane_bytes(sizes) <= capacity_bytes)
        sizes++;
    return sizes;
}

static double gain(const struct sc_cuda_lane_times *times, uint32_t size) {
    double ratio = (double)times->all_reduce[size] / (double)times->pair[size];
    return ratio > 1 && ratio <= SC_CUDA_LANE_NOISE ? 1 : ratio;
}

// Of all runs of neighbours the one whose gains have the largest product, the shortest of equals.
void sc_cuda_lane_choice(const struct sc_cuda_lane_times *times, uint32_t sizes,
                         uint64_t *from_bytes, uint64_t *to_bytes) {
    double best = 1, run = 1;
    uint32_t begin = 0, best_begin = 0, best_end = 0;
    for (uint32_t size = 0; size < sizes; size++) {
        if (run <= 1) { // what came before only takes away
            run = 1;
            begin = size;
        }
        run *= gain(times, size);
        if (run > best) {
            best = run;
            best_begin = begin;
            best_end = size + 1;
        }
    }
    *from_bytes = *to_bytes = UINT64_MAX;
    if (best_end == 0)
        return;
    *from_bytes = best_begin == 0 ? 0 : sc_cuda_lane_bytes(best_begin);
    if (best_end < sizes)
        *to_bytes = sc_cuda_lane_bytes(best_end);
}
