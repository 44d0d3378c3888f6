// SPDX-License-Identifier: AGPL-3.0-only
//
// What a sum is, to the bit: kernels/bf16.h between two ranks, and the same bits on every rank
// whatever their number.
#include "tests/conformance/conf.h"

#include <stdlib.h>

#define PAIRS 65536u

// Both orders of each; the rest of a vector's lines is filled with the first.
static const uint16_t table[][3] = {
    {0x3F80, 0x3B80, 0x3F80}, // a tie goes to even, below
    {0x3F81, 0x3B80, 0x3F82}, // … and above
    {0x7F7F, 0x7B00, 0x7F80}, // half of the last step overflows
    {0x7F7F, 0x7AFF, 0x7F7F}, // less than that does not
    {0x0001, 0x0001, 0x0002}, // subnormals are kept
    {0x0080, 0x8001, 0x007F}, // … and made
    {0x007F, 0x0001, 0x0080}, // … and left
    {0x8000, 0x8000, 0x8000}, // minus zero stays
    {0x0000, 0x8000, 0x0000}, {0x3F80, 0xBF80, 0x0000}, {0x7F80, 0x7F80, 0x7F80},
    {0xFF80, 0x7F7F, 0xFF80}, {0x7F80, 0xFF80, 0x7FFF}, // every NaN is the one
    {0x7FC0, 0x3F80, 0x7FFF}, {0xFFC1, 0x7F81, 0x7FFF}, {0x7FFF, 0x7FFF, 0x7FFF},
    {0x7F81, 0x0000, 0x7FFF}, {0xFFFF, 0xFF80, 0x7FFF},
};
#define ROWS (sizeof table / sizeof table[0])

static bool keeps_the_table(struct bench *b) {
    uint16_t host[2 * ROWS], *buffer;
    DO(conf_buffer(b, 2 * ROWS, &buffer));
    for (uint32_t swapped = 0; swapped < 2; swapped++)
        for (uint32_t i = 0; i < ROWS; i++)
            host[swapped * ROWS + i] = table[i][(b->rank + swapped) % 2];
    OK(b, b->w->put(b, buffer, host, sizeof host));
    OK(b, sc_all_reduce(b->comm, b->epoch, buffer, sizeof host, SC_BF16, b->stream));
    DO(conf_sync(b));
    OK(b, b->w->get(b, host, buffer, sizeof host));
    for (uint32_t i = 0; i < 2 * ROWS; i++)
        if (host[i] != table[i % ROWS][2])
            WRONG(b, "%04X + %04X is %04X, must be %04X", table[i % ROWS][i / ROWS],
                  table[i % ROWS][1 - i / ROWS], host[i], table[i % ROWS][2]);
    return true;
}

// A number drawn from a place, alike on every rank.
static uint16_t drawn(uint64_t at) {
    at = (at + 1) * UINT64_C(0x9E3779B97F4A7C15);
    at = (at ^ at >> 29) * UINT64_C(0xBF58476D1CE4E5B9);
    return (uint16_t)(at >> 40);
}

static bool draw_all(struct bench *b, uint16_t *host) {
    uint16_t *buffer;
    DO(conf_buffer(b, PAIRS, &buffer));
    for (uint64_t i = 0; i < PAIRS; i++)
        host[i] = drawn(b->rank * PAIRS + i);
    OK(b, b->w->put(b, buffer, host, PAIRS * sizeof *host));
    OK(b, sc_all_reduce(b->comm, b->epoch, buffer, PAIRS * sizeof *host, SC_BF16, b->stream));
    DO(conf_sync(b));
    OK(b, b->w->get(b, host, buffer, PAIRS * sizeof *host));
    uint64_t mixed = 0;
    for (uint64_t i = 0; i < PAIRS; i++)
        mixed = mixed * UINT64_C(0x100000001B3) + host[i];
    DO(conf_alike(b, mixed));
    for (uint64_t i = 0; i < PAIRS && b->ranks == 2; i++) {
        uint16_t wanted = sc_bf16_add(drawn(i), drawn(PAIRS + i));
        if (host[i] != wanted)
            WRONG(b, "%04X + %04X is %04X, must be %04X", drawn(i), drawn(PAIRS + i), host[i],
                  wanted);
    }
    return true;
}

static bool keeps_any_bits(struct bench *b) {
    uint16_t *host = malloc(PAIRS * sizeof *host);
    TRUE(b, host != NULL);
    bool well = draw_all(b, host);
    free(host);
    return well;
}

const struct conf_test conf_values[] = {
    {.name = "sum_of_two_is_rounded_once_and_every_nan_is_7fff",
     .run = keeps_the_table,
     .ranks_min = 2,
     .ranks_max = 2},
    {.name = "sum_of_any_bits_is_the_same_on_every_rank", .run = keeps_any_bits},
    {0},
};
