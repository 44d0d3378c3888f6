// SPDX-License-Identifier: AGPL-3.0-only
//
// The sum of a pair exchange: dst += src, by the rules of bf16.h, unless the epoch is over.
//
// The fence is looked at before anything else is touched: once an epoch is over its buffers may be
// freed, and what an aborted exchange left in src must not be added. Eight elements a thread at a time
// where both arrays lie alike in their 16-byte lines, one otherwise and at the ends.
#include "kernels/bf16.h"

#define LINE_BYTES 16u
#define LINE_ELEMENTS 8u

static __device__ inline uint32_t add_two(uint32_t a, uint32_t b) {
    uint32_t low = sc_bf16_add((uint16_t)a, (uint16_t)b);
    uint32_t high = sc_bf16_add((uint16_t)(a >> 16), (uint16_t)(b >> 16));
    return high << 16 | low;
}

static __device__ inline uint4 add_line(uint4 a, uint4 b) {
    return make_uint4(add_two(a.x, b.x), add_two(a.y, b.y), add_two(a.z, b.z), add_two(a.w, b.w));
}

extern "C" __global__ void __launch_bounds__(256)
    sc_add_bf16(uint16_t *dst, const uint16_t *src, uint64_t count, uint64_t epoch,
                const volatile uint64_t *fence) {
    if (*fence != epoch)
        return;
    uint64_t first = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    uint64_t offset = (uintptr_t)dst % LINE_BYTES;
    bool alike = (uintptr_t)src % LINE_BYTES == offset;
    uint64_t head = alike ? (LINE_BYTES - offset) % LINE_BYTES / sizeof *dst : count;
    head = head < count ? head : count;
    uint64_t lines = (count - head) / LINE_ELEMENTS;
    uint64_t tail = head + lines * LINE_ELEMENTS;

    uint4 *to = reinterpret_cast<uint4 *>(dst + head);
    const uint4 *from = reinterpret_cast<const uint4 *>(src + head);
    for (uint64_t i = first; i < lines; i += step)
        to[i] = add_line(to[i], from[i]);
    for (uint64_t i = first; i < head; i += step)
        dst[i] = sc_bf16_add(dst[i], src[i]);
    for (uint64_t i = tail + first; i < count; i += step)
        dst[i] = sc_bf16_add(dst[i], src[i]);
}
