// SPDX-License-Identifier: AGPL-3.0-only
//
// Payload arithmetic that refuses what it cannot represent; nothing is ever truncated.

#include "core/capacity.h"

#include "core/op.h"

#include <stddef.h>

sc_status sc_payload_capacity(uint64_t max_batch_tokens, uint64_t hidden_size,
                              uint64_t *out_bytes) {
    uint64_t elements = 0;
    uint64_t bytes = 0;

    if (max_batch_tokens == 0 || hidden_size == 0 || out_bytes == NULL)
        return SC_INVALID;
    if (__builtin_mul_overflow(max_batch_tokens, hidden_size, &elements) ||
        __builtin_mul_overflow(elements, SC_BF16_BYTES, &bytes))
        return SC_TOO_LARGE;
    *out_bytes = bytes;
    return SC_OK;
}

sc_status sc_payload_check(uint64_t address, uint64_t bytes, uint64_t capacity_bytes) {
    if (bytes == 0)
        return SC_OK;
    if (bytes % SC_BF16_BYTES != 0)
        return SC_INVALID;
    if (address % SC_BF16_BYTES != 0)
        return SC_ALIGN;
    if (bytes > capacity_bytes)
        return SC_CAPACITY;
    if (address + bytes < address)
        return SC_INVALID;
    return SC_OK;
}
