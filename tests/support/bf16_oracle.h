// SPDX-License-Identifier: AGPL-3.0-only
//
// What a + b must be, worked out in double precision from the definition, with nothing taken from
// kernels/bf16.h: the sum as a double and the exact remainder it lacks, counted in units of the
// last place, rounded by comparison with one half. All values are normal doubles, so a thread that
// has switched subnormals off gets the same answers.
#ifndef SC_BF16_ORACLE_H
#define SC_BF16_ORACLE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#define ORACLE_SMALLEST_EXPONENT (-133) // of the smallest subnormal
#define ORACLE_LARGEST_EXPONENT 120     // of the last place of the largest number

struct bf16_oracle {
    double value[65536];                                                  // of each finite pattern
    double power[ORACLE_LARGEST_EXPONENT - ORACLE_SMALLEST_EXPONENT + 2]; // 2^-place
};

static inline void bf16_oracle_init(struct bf16_oracle *oracle) {
    int places = ORACLE_LARGEST_EXPONENT - ORACLE_SMALLEST_EXPONENT + 2;

    for (int place = 0; place < places; place++)
        oracle->power[place] = ldexp(1.0, -(place + ORACLE_SMALLEST_EXPONENT));
    for (int bits = 0; bits < 65536; bits++) {
        int exponent = bits / 128 % 256;
        int fraction = bits % 128;
        double size = exponent == 0 ? ldexp(fraction, -133) : ldexp(128 + fraction, exponent - 134);
        oracle->value[bits] = exponent == 255 ? 0.0 : bits >= 32768 ? -size : size;
    }
}

static inline bool bf16_is_nan(uint16_t bits) {
    return bits % 32768 > 0x7F80;
}

static inline bool bf16_is_infinite(uint16_t bits) {
    return bits % 32768 == 0x7F80;
}

// The finite a + b.
static inline uint16_t bf16_oracle_add_finite(const struct bf16_oracle *oracle, uint16_t a,
                                              uint16_t b) {
    double x = oracle->value[a];
    double y = oracle->value[b];
    double larger = fabs(x) < fabs(y) ? y : x;
    double sum = x + y;
    double lacking = (fabs(x) < fabs(y) ? x : y) - (sum - larger); // exact: x + y = sum + lacking

    if (!(sum < 0) && !(sum > 0)) // an exact zero is negative only as -0 + -0
        return a == 0x8000 && b == 0x8000 ? 0x8000 : 0;

    bool negative = sum < 0;
    if (negative) {
        sum = -sum;
        lacking = -lacking;
    }

    union {
        double value;
        uint64_t bits;
    } parts = {.value = sum};
    int place = (int)(parts.bits >> 52) - 1023 - 7 - ORACLE_SMALLEST_EXPONENT;
    if (place < 0)
        place = 0;

    double count = sum * oracle->power[place]; // in units of the last place, below 256
    int whole = (int)count;
    double over_half = count - whole - 0.5;
    bool tie = !(over_half < 0) && !(over_half > 0);
    bool up = over_half > 0 || (tie && (lacking > 0 || (!(lacking < 0) && whole % 2 == 1)));
    int result = place * 128 + whole + (up ? 1 : 0);

    if (result > 0x7F80)
        result = 0x7F80;
    return (uint16_t)(negative ? result + 32768 : result);
}

static inline uint16_t bf16_oracle_add(const struct bf16_oracle *oracle, uint16_t a, uint16_t b) {
    if (bf16_is_nan(a) || bf16_is_nan(b))
        return 0x7FFF;
    if (bf16_is_infinite(a) && bf16_is_infinite(b))
        return a == b ? a : 0x7FFF;
    if (bf16_is_infinite(a))
        return a;
    if (bf16_is_infinite(b))
        return b;
    return bf16_oracle_add_finite(oracle, a, b);
}

#endif
