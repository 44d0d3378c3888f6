// SPDX-License-Identifier: AGPL-3.0-only
//
// What ranks put into a collective so that the result can be checked: whole numbers from 0 to 3, of
// which up to 64 add up without rounding, in any order.
#ifndef SC_CLI_PATTERN_H
#define SC_CLI_PATTERN_H

#include <stdint.h>

// What rank `rank` puts in. `salt` tells one use from another.
void sc_pattern_fill(uint16_t *elements, uint64_t count, uint32_t rank, uint64_t salt);

// How many of the elements are not the sum over `world` ranks.
uint64_t sc_pattern_wrong(const uint16_t *elements, uint64_t count, uint32_t world, uint64_t salt);

#endif
