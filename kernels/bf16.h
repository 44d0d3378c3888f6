// SPDX-License-Identifier: AGPL-3.0-only
//
// BF16 addition, one meaning for host and device: the exact sum, rounded once to nearest, ties to
// even. Every NaN result is 7FFF, because ranks add in different orders and must agree on the bits.
//
// BF16 is the upper half of an IEEE float: 1 sign, 8 exponent, 7 fraction bits. Two BF16 added as
// floats and then rounded give the exact sum rounded once, because a float's 24 significant bits
// are at least 2 × 8 + 2: the first rounding never makes a tie that was not there. Below the
// smallest normal number nothing is rounded at all.
//
// Assumed of the host: rounding to nearest, as every thread starts with, and masked floating-point
// exceptions. Not assumed: that subnormals survive. Libraries built with -ffast-math switch them
// off for the threads that load them, so sums near zero are made with integers. On the device the
// instruction itself says that subnormals are kept, whatever nvcc's flags.
#ifndef SC_KERNELS_BF16_H
#define SC_KERNELS_BF16_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define SC_HD __host__ __device__
#else
#define SC_HD
#endif

#if defined(__FAST_MATH__) && !defined(__CUDA_ARCH__)
#error "kernels/bf16.h must not be compiled with -ffast-math: its sums would lose their meaning"
#endif

#define SC_BF16_NAN 0x7FFFu
#define SC_BF16_INFINITY 0x7F80u

// Exact.
SC_HD static inline float sc_bf16_to_float(uint16_t value) {
    uint32_t bits = (uint32_t)value << 16;
    float wide;

    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

// To nearest, ties to even; too large becomes infinity, every NaN 7FFF; subnormals are kept.
SC_HD static inline uint16_t sc_bf16_from_float(float value) {
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    return (uint16_t)((bits & 0x7FFFFFFFu) > 0x7F800000u ? SC_BF16_NAN : rounded);
}

// By way of float. On a host without subnormals it is right unless sc_bf16_both_tiny.
SC_HD static inline uint16_t sc_bf16_add_as_float(uint16_t a, uint16_t b) {
#ifdef __CUDA_ARCH__
    float sum;

    asm("add.rn.f32 %0, %1, %2;" : "=f"(sum) : "f"(sc_bf16_to_float(a)), "f"(sc_bf16_to_float(b)));
    return sc_bf16_from_float(sum);
#else
    return sc_bf16_from_float((float)(sc_bf16_to_float(a) + sc_bf16_to_float(b)));
#endif
}

// Both below 2^-111, and not both zero. Only such a pair can have a subnormal sum, or an addend
// that is subnormal and yet large enough to matter.
SC_HD static inline int sc_bf16_both_tiny(uint16_t a, uint16_t b) {
    return ((a | b) & 0x7FFFu) - 1u < 0x7FFu;
}

// A tiny value as a count of the smallest subnormal, 2^-133; below 2^22 in magnitude.
SC_HD static inline int32_t sc_bf16_tiny_units(uint16_t value) {
    uint32_t exponent = (value >> 7) & 0xFFu;
    uint32_t fraction = value & 0x7Fu;
    int32_t units = (int32_t)(exponent == 0 ? fraction : (fraction | 0x80u) << (exponent - 1u));

    return (value & 0x8000u) != 0 ? -units : units;
}

// By way of integers, for sc_bf16_both_tiny: the sum of the counts is exact.
SC_HD static inline uint16_t sc_bf16_add_tiny(uint16_t a, uint16_t b) {
    int32_t sum = sc_bf16_tiny_units(a) + sc_bf16_tiny_units(b);
    uint32_t units = (uint32_t)(sum < 0 ? -sum : sum);
    uint32_t shift = 0;

    while (units >> shift > 0xFFu)
        shift++;
    if (shift > 0)
        units += (1u << (shift - 1u)) - 1u + ((units >> shift) & 1u);
    // The significand's leading bit, once there is one, adds the missing 1 to the exponent.
    uint32_t magnitude = (shift << 7) + (units >> shift);
    return (uint16_t)((sum < 0 ? 0x8000u : 0u) | magnitude);
}

// a + b. The same bits for b + a.
SC_HD static inline uint16_t sc_bf16_add(uint16_t a, uint16_t b) {
#ifndef __CUDA_ARCH__
    if (sc_bf16_both_tiny(a, b))
        return sc_bf16_add_tiny(a, b);
#endif
    return sc_bf16_add_as_float(a, b);
}

// dst[i] += src[i]. The two may be the same array, and must not overlap otherwise. The block is of
// fixed size and lies in arrays of its own, so that compilers make vector code of its loops.
static inline void sc_bf16_add_array(uint16_t *dst, const uint16_t *src, size_t count) {
    enum { BLOCK = 64 };
    size_t whole = count - count % BLOCK;

    for (size_t at = 0; at < whole; at += BLOCK) {
        uint16_t a[BLOCK], b[BLOCK];
        int tiny = 0;

        memcpy(a, dst + at, sizeof a);
        memcpy(b, src + at, sizeof b);
        for (int i = 0; i < BLOCK; i++)
            tiny |= sc_bf16_both_tiny(a[i], b[i]);
        if (tiny) {
            for (int i = 0; i < BLOCK; i++)
                a[i] = sc_bf16_add(a[i], b[i]);
        } else {
            for (int i = 0; i < BLOCK; i++)
                a[i] = sc_bf16_add_as_float(a[i], b[i]);
        }
        memcpy(dst + at, a, sizeof a);
    }
    for (size_t at = whole; at < count; at++)
        dst[at] = sc_bf16_add(dst[at], src[at]);
}

#endif
