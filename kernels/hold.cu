// SPDX-License-Identifier: AGPL-3.0-only
//
// For measuring: a kernel that holds its stream until the host lets go, and one that does nothing, by
// which the cost of a launch is known.
#include <stdint.h>

static __device__ inline uint64_t time_ns(void) {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

// The host writes `word`. A host that waits for the stream, whatever for, would never write it: hence
// the limit.
extern "C" __global__ void sc_hold(const volatile uint64_t *word, uint64_t ticket,
                                   uint64_t limit_ns) {
    uint64_t begun = time_ns();
    while (*word < ticket && time_ns() - begun < limit_ns)
        __nanosleep(100);
}

extern "C" __global__ void sc_nothing(void) {}
