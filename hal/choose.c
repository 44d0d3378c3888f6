// SPDX-License-Identifier: AGPL-3.0-only
//
// The one place that knows which worlds there are. SC_CHOOSE_SIM: this library holds the simulated
// one, for threads that belong to it. SC_CHOOSE_CUDA: it was built where CUDA and NCCL are.
#include "hal/choose.h"

#if SC_CHOOSE_SIM
#include "hal_sim/sc_sim.h"
#endif
#if SC_CHOOSE_CUDA
#include "hal_cuda/sc_cuda.h"
#endif

#include <stdio.h>
#include <string.h>

static sc_status choose_gpus(const struct sc_config *config, struct sc_world *out, char *why,
                             size_t why_bytes) {
#if SC_CHOOSE_CUDA
    return sc_cuda_choose(config, out, why, why_bytes);
#else
    (void)config, (void)out;
    snprintf(why, why_bytes, "this build has no GPU world");
    return SC_UNAVAILABLE;
#endif
}

sc_status sc_choose_world(const struct sc_config *config, struct sc_world *out, char *why,
                          size_t why_bytes) {
#if SC_CHOOSE_SIM
    if (sc_sim_here())
        return sc_sim_choose(config, out, why, why_bytes);
#endif
    sc_status status = choose_gpus(config, out, why, why_bytes);
    size_t used = strnlen(why, why_bytes);
    if (SC_CHOOSE_SIM && status == SC_UNAVAILABLE)
        snprintf(why + used, why_bytes - used,
                 ", and this thread belongs to no simulated rank (see sc_sim_run)");
    return status;
}
