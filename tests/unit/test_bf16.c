// SPDX-License-Identifier: AGPL-3.0-only
//
// BF16 addition against named values and an oracle of another make. tests/proofs/bf16_all_pairs.c
// is the same comparison for every pair there is.
#include "kernels/bf16.h"
#include "tests/support/bf16_oracle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#define VALUES 65536

static struct bf16_oracle oracle;

// Where rounding, cancelling, overflow, subnormals and the way between the two methods turn.
static const uint16_t hard[] = {
    0x0000, 0x8000, 0x0001, 0x8001, 0x007F, 0x0080, 0x8080, 0x0081, 0x00FF, 0x07FF, 0x87FF,
    0x0800, 0x8800, 0x0801, 0x0FFF, 0x3B7F, 0x3B80, 0x3B81, 0x3F7F, 0x3F80, 0xBF80, 0x3F81,
    0x4000, 0x7AFF, 0x7B00, 0x7B01, 0xFB00, 0x7F7F, 0xFF7F, 0x7F80, 0xFF80, 0x7F81, 0xFFFF,
};
#define HARD (sizeof hard / sizeof hard[0])

static int make_oracle(void **state) {
    (void)state;
    bf16_oracle_init(&oracle);
    return 0;
}

static void sum_is_rounded_once_to_nearest_even(void **state) {
    static const uint16_t rows[][3] = {
        {0x3F80, 0x3B80, 0x3F80}, // 1 + 2^-8: a tie, to even below
        {0x3F81, 0x3B80, 0x3F82}, // a tie, to even above
        {0x7F7F, 0x7B00, 0x7F80}, // the largest number and half its last place
        {0x7F7F, 0x7AFF, 0x7F7F}, // and just less
        {0x0001, 0x0001, 0x0002}, // subnormals
        {0x8000, 0x8000, 0x8000}, // -0 stays -0
        {0x0000, 0x8000, 0x0000}, //
        {0x3F80, 0xBF80, 0x0000}, // 1 - 1
        {0x7FC1, 0x7FD2, 0x7FFF}, // NaN and NaN
        {0xFF81, 0x0000, 0x7FFF}, // a signalling NaN
        {0x7F80, 0xFF80, 0x7FFF}, // infinity - infinity
        {0xFF80, 0x7F7F, 0xFF80}, //
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(sc_bf16_add(rows[i][0], rows[i][1]), rows[i][2]);
        assert_int_equal(sc_bf16_add(rows[i][1], rows[i][0]), rows[i][2]);
        assert_int_equal(bf16_oracle_add(&oracle, rows[i][0], rows[i][1]), rows[i][2]);
    }
}

static void check_every_value_with_hard_partners(void) {
    for (uint32_t a = 0; a < VALUES; a++) {
        for (size_t i = 0; i < HARD; i++) {
            uint16_t sum = sc_bf16_add((uint16_t)a, hard[i]);
            uint16_t want = bf16_oracle_add(&oracle, (uint16_t)a, hard[i]);

            if (sum != want)
                fail_msg("%04X + %04X gives %04X, not %04X", a, hard[i], sum, want);
            if (sum != sc_bf16_add(hard[i], (uint16_t)a))
                fail_msg("%04X + %04X depends on the order", a, hard[i]);
        }
    }
}

static void every_value_with_hard_partners_equals_the_oracle(void **state) {
    (void)state;
    check_every_value_with_hard_partners();
}

static void every_number_survives_the_way_to_float_and_back(void **state) {
    (void)state;
    for (uint32_t bits = 0; bits < VALUES; bits++) {
        uint16_t value = (uint16_t)bits;
        uint16_t want = bf16_is_nan(value) ? 0x7FFF : value;

        if (sc_bf16_from_float(sc_bf16_to_float(value)) != want)
            fail_msg("%04X comes back as %04X", bits, sc_bf16_from_float(sc_bf16_to_float(value)));
        if (bf16_is_nan(value) || bf16_is_infinite(value))
            continue;
        double difference = (double)sc_bf16_to_float(value) - oracle.value[bits];
        if (difference < 0 || difference > 0)
            fail_msg("%04X means %g, not %g", bits, (double)sc_bf16_to_float(value),
                     oracle.value[bits]);
    }
}

static void floats_round_to_nearest_even(void **state) {
    static const struct {
        uint32_t bits;
        uint16_t want;
    } rows[] = {
        {0x3F807FFF, 0x3F80}, {0x3F808000, 0x3F80}, {0x3F808001, 0x3F81}, {0x3F818000, 0x3F82},
        {0x7F7F7FFF, 0x7F7F}, {0x7F7F8000, 0x7F80}, {0xFF7FFFFF, 0xFF80}, {0x00008000, 0x0000},
        {0x00008001, 0x0001}, {0x80018000, 0x8002}, {0x7F800001, 0x7FFF}, {0xFFFFFFFF, 0x7FFF},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        float value;

        memcpy(&value, &rows[i].bits, sizeof value);
        assert_int_equal(sc_bf16_from_float(value), rows[i].want);
    }
}

// Arrays of every length around the block, with many tiny values and with few, in a buffer whose
// neighbours must not change.
static void check_arrays(void) {
    enum { MAX = 200, CANARY = 0x5A5A };
    uint16_t dst[MAX + 2], src[MAX], want[MAX];
    uint32_t draw = 1;

    for (size_t count = 0; count <= MAX; count++) {
        for (size_t i = 0; i < count; i++) {
            draw = draw * 1664525u + 1013904223u;
            dst[1 + i] = count % 2 == 0 ? hard[(draw >> 16) % HARD] : (uint16_t)(draw >> 16);
            src[i] = count % 2 == 0 ? hard[(draw >> 8) % HARD] : (uint16_t)(draw >> 4);
            want[i] = bf16_oracle_add(&oracle, dst[1 + i], src[i]);
        }
        dst[0] = dst[1 + count] = CANARY;
        sc_bf16_add_array(dst + 1, src, count);
        assert_memory_equal(dst + 1, want, count * sizeof want[0]);
        assert_int_equal(dst[0], CANARY);
        assert_int_equal(dst[1 + count], CANARY);
    }
}

static void array_sums_equal_single_sums_and_touch_nothing_else(void **state) {
    (void)state;
    check_arrays();
}

static void sums_do_not_depend_on_flush_to_zero(void **state) {
    (void)state;
#if defined(__SSE2__)
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040u); // flush to zero, denormals are zero
#elif defined(__aarch64__)
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"(before | (UINT64_C(1) << 24)));
#else
    skip();
#endif
    check_every_value_with_hard_partners();
    check_arrays();
#if defined(__SSE2__)
    _mm_setcsr(before);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(before));
#endif
}

static void an_array_may_be_added_to_itself(void **state) {
    uint16_t *all = malloc(VALUES * sizeof *all);

    (void)state;
    assert_non_null(all);
    for (uint32_t bits = 0; bits < VALUES; bits++)
        all[bits] = (uint16_t)bits;
    sc_bf16_add_array(all, all, VALUES);
    for (uint32_t bits = 0; bits < VALUES; bits++)
        if (all[bits] != bf16_oracle_add(&oracle, (uint16_t)bits, (uint16_t)bits))
            fail_msg("%04X doubled gives %04X", bits, all[bits]);
    free(all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sum_is_rounded_once_to_nearest_even),
        cmocka_unit_test(every_value_with_hard_partners_equals_the_oracle),
        cmocka_unit_test(every_number_survives_the_way_to_float_and_back),
        cmocka_unit_test(floats_round_to_nearest_even),
        cmocka_unit_test(array_sums_equal_single_sums_and_touch_nothing_else),
        cmocka_unit_test(sums_do_not_depend_on_flush_to_zero),
        cmocka_unit_test(an_array_may_be_added_to_itself),
    };
    return cmocka_run_group_tests(tests, make_oracle, NULL);
}
