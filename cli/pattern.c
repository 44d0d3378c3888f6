// SPDX-License-Identifier: AGPL-3.0-only
//
// The numbers that results are checked with.
#include "cli/pattern.h"

#include "kernels/bf16.h"

#define VALUES 4u

// Neighbours differ, and so do the same places of two uses.
static uint32_t at(uint64_t element, uint64_t salt) {
    return (uint32_t)((element + salt) * UINT64_C(0x9E3779B97F4A7C15) >> 40) % VALUES;
}

static uint32_t value_of(uint32_t place, uint32_t rank) {
    return (place + 3 * rank) % VALUES;
}

void sc_pattern_fill(uint16_t *elements, uint64_t count, uint32_t rank, uint64_t salt) {
    uint16_t value[VALUES];
    for (uint32_t i = 0; i < VALUES; i++)
        value[i] = sc_bf16_from_float((float)value_of(i, rank));
    for (uint64_t i = 0; i < count; i++)
        elements[i] = value[at(i, salt)];
}

uint64_t sc_pattern_wrong(const uint16_t *elements, uint64_t count, uint32_t world, uint64_t salt) {
    uint16_t sum[VALUES];
    uint64_t wrong = 0;
    for (uint32_t i = 0; i < VALUES; i++) {
        uint32_t total = 0;
        for (uint32_t rank = 0; rank < world; rank++)
            total += value_of(i, rank);
        sum[i] = sc_bf16_from_float((float)total);
    }
    for (uint64_t i = 0; i < count; i++)
        wrong += elements[i] != sum[at(i, salt)];
    return wrong;
}
