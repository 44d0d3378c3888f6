// SPDX-License-Identifier: AGPL-3.0-only
//
// Table-driven CRC-32C, a byte at a time; the table is spelled out by the preprocessor.
#include "core/crc32c.h"

#define POLYNOMIAL 0x82f63b78u // reflected
#define BIT(c) (((c) >> 1) ^ (((c)&1u) != 0 ? POLYNOMIAL : 0u))
#define NIBBLE(c) BIT(BIT(BIT(BIT(c))))

// Two lookups of four bits a byte: the table fits one cache line, and its rows can be read.
static const uint32_t nibbles[16] = {
    NIBBLE(0u),  NIBBLE(1u),  NIBBLE(2u),  NIBBLE(3u),  NIBBLE(4u),  NIBBLE(5u),
    NIBBLE(6u),  NIBBLE(7u),  NIBBLE(8u),  NIBBLE(9u),  NIBBLE(10u), NIBBLE(11u),
    NIBBLE(12u), NIBBLE(13u), NIBBLE(14u), NIBBLE(15u),
};

uint32_t sc_crc32c(uint32_t crc, const uint8_t *data, size_t bytes) {
    crc = ~crc;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= data[i];
        crc = (crc >> 4) ^ nibbles[crc & 15u];
        crc = (crc >> 4) ^ nibbles[crc & 15u];
    }
    return ~crc;
}
