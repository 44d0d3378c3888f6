// SPDX-License-Identifier: AGPL-3.0-only
//
// Work of an application's own: a kernel that takes `ns` and then stores `value` at `word`, if that is
// not NULL. One thread of one block, so that whatever else there is runs beside it.
#include <stdint.h>

static __device__ uint64_t now_ns() {
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

extern "C" __global__ void conf_compute(uint64_t ns, volatile uint16_t *word, uint16_t value) {
    uint64_t begun = now_ns();
    while (now_ns() - begun < ns) {
    }
    if (word != nullptr)
        *word = value;
}
