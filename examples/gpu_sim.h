// SPDX-License-Identifier: AGPL-3.0-only
//
// The GPU of a simulated rank: gpu.h over the test double of spark_comm.
#ifndef ENGINE_GPU_SIM_H
#define ENGINE_GPU_SIM_H

#include "gpu.h"

#include <spark_comm_sim.h>

// One for each life of a rank; NULL: no memory. Close it when sc_sim_run() has returned: until then
// its kernels may run.
struct gpu *gpu_sim_open(struct sc_sim_rank *rank);
void gpu_sim_close(struct gpu *gpu);

#endif
