// SPDX-License-Identifier: AGPL-3.0-only
//
// The one generator behind every draw: xoshiro256**, seeded through splitmix64. Integers only, so
// that every compiler draws the same.
#include "hal_sim/sim.h"

static uint64_t rotate_left(uint64_t value, unsigned bits) {
    return value << bits | value >> (64 - bits);
}

void sc_sim_random_seed(struct sc_sim *sim, uint64_t seed) {
    for (int at = 0; at < 4; at++) {
        seed += UINT64_C(0x9E3779B97F4A7C15);
        uint64_t mixed = seed;
        mixed = (mixed ^ mixed >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
        mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94D049BB133111EB);
        sim->random[at] = mixed ^ mixed >> 31;
    }
}

uint64_t sc_sim_random(struct sc_sim *sim) {
    uint64_t *s = sim->random;
    uint64_t drawn = rotate_left(s[1] * 5, 7) * 9;
    uint64_t shifted = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = rotate_left(s[3], 45);
    return drawn;
}

uint64_t sc_sim_below(struct sc_sim *sim, uint64_t bound) {
    return sc_sim_random(sim) % bound;
}

uint64_t sc_sim_draw(struct sc_sim *sim, struct sc_sim_span span) {
    if (span.max_ns <= span.min_ns)
        return span.min_ns;
    return span.min_ns + sc_sim_below(sim, span.max_ns - span.min_ns + 1);
}

void sc_sim_fill(struct sc_sim *sim, void *out, size_t bytes) {
    unsigned char *at = out;

    for (size_t done = 0; done < bytes; done += 8) {
        uint64_t drawn = sc_sim_random(sim);
        size_t part = bytes - done < 8 ? bytes - done : 8;
        for (size_t byte = 0; byte < part; byte++)
            at[done + byte] = (unsigned char)(drawn >> 8 * byte);
    }
}
