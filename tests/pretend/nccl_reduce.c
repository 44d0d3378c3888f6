// SPDX-License-Identifier: AGPL-3.0-only
//
// Sums: of BF16, between two by kernels/bf16.h, among more in FP32 in the order of the ranks and rounded
// once; of FP32 the largest. Every rank gets the same bits.
#include "kernels/bf16.h"
#include "tests/pretend/nccl_inside.h"

bool pretend_can_reduce(ncclDataType_t type, ncclRedOp_t op) {
    return (type == ncclBfloat16 && op == ncclSum) || (type == ncclFloat32 && op == ncclMax);
}

// By blocks that lie in arrays of its own: thread sanitizers then look once a block.
static void sum_many(uint16_t *to, const void *const *inputs, uint32_t world, uint64_t count) {
    enum { BLOCK = 256 };
    for (uint64_t at = 0; at < count; at += BLOCK) {
        uint64_t part = count - at < BLOCK ? count - at : BLOCK;
        uint16_t values[BLOCK] = {0};
        float sums[BLOCK];
        for (uint32_t r = 0; r < world; r++) {
            memcpy(values, (const uint16_t *)inputs[r] + at, part * sizeof *values);
            for (uint32_t i = 0; i < BLOCK; i++) {
                float value = sc_bf16_to_float(values[i]);
                sums[i] = r == 0 ? value : sums[i] + value;
            }
        }
        for (uint32_t i = 0; i < BLOCK; i++)
            values[i] = sc_bf16_from_float(sums[i]);
        memcpy(to + at, values, part * sizeof *values);
    }
}

static void take_largest(float *to, const void *const *inputs, uint32_t world, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        float largest = ((const float *)inputs[0])[i];
        for (uint32_t r = 1; r < world; r++)
            if (((const float *)inputs[r])[i] > largest)
                largest = ((const float *)inputs[r])[i];
        to[i] = largest;
    }
}

void pretend_reduce(ncclDataType_t type, void *to, const void *const *inputs, uint32_t rank,
                    uint32_t world, uint64_t bytes) {
    if (type == ncclFloat32) {
        take_largest(to, inputs, world, bytes / sizeof(float));
    } else if (world <= 2) {
        memmove(to, inputs[rank], bytes);
        if (world == 2)
            sc_bf16_add_array(to, inputs[1 - rank], bytes / sizeof(uint16_t));
    } else {
        sum_many(to, inputs, world, bytes / sizeof(uint16_t));
    }
}
