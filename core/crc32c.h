// SPDX-License-Identifier: AGPL-3.0-only
//
// CRC-32C (Castagnoli), as in RFC 3720 B.4. Guards frames against corruption, not against malice.
#ifndef SC_CORE_CRC32C_H
#define SC_CORE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

// Continues from `crc`, 0 at first.
uint32_t sc_crc32c(uint32_t crc, const uint8_t *data, size_t bytes);

#endif
