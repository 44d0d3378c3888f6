// SPDX-License-Identifier: AGPL-3.0-only
//
// Holding a stream while work is enqueued on it. What was enqueued before the first of it ran waits
// for no host: the times between events in it are the device's alone.
#include "hal_cuda/inside.h"

#include <stdatomic.h>

CUresult sc_cuda_hold_open(struct sc_cuda_hold *hold, const struct sc_cuda_driver *cu,
                           CUmodule module) {
    void *word = NULL;
    CUresult result = cu->cuModuleGetFunction_(&hold->kernel, module, "sc_hold");
    if (result == CUDA_SUCCESS)
        result = cu->cuMemHostAlloc_(&word, sizeof *hold->word, 0);
    hold->word = word;
    if (result == CUDA_SUCCESS)
        atomic_init(hold->word, 0);
    return result;
}

void sc_cuda_hold_close(struct sc_cuda_hold *hold, const struct sc_cuda_driver *cu) {
    if (hold->word != NULL)
        (void)cu->cuMemFreeHost_((void *)hold->word);
    hold->word = NULL;
}

// The GPU reads page-locked memory at the address that the host writes.
CUresult sc_cuda_hold_begin(struct sc_cuda_hold *hold, const struct sc_cuda_driver *cu,
                            uint64_t limit_ns, CUstream stream) {
    uint64_t ticket = ++hold->ticket;
    void *arguments[] = {(void *)&hold->word, &ticket, &limit_ns};
    return cu->cuLaunchKernel_(hold->kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

void sc_cuda_hold_end(struct sc_cuda_hold *hold) {
    atomic_store(hold->word, hold->ticket);
}
