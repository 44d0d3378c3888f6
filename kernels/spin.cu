// SPDX-License-Identifier: AGPL-3.0-only
//
// Stand-ins for the work of an application: a kernel that keeps its stream busy for a time, and one
// that does nothing, by which the cost of a launch is known.
#include <stdint.h>

static __device__ inline uint64_t time_ns(void) {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

extern "C" __global__ void sc_spin(uint64_t ns) {
    uint64_t begun = time_ns();
    while (time_ns() - begun < ns)
        __nanosleep(100);
}

extern "C" __global__ void sc_nothing(void) {}
