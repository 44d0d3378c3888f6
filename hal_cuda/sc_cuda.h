// SPDX-License-Identifier: AGPL-3.0-only
//
// The real world: GPUs through the CUDA driver API, communicators through NCCL, sockets and the clock
// through hal/posix.h. Both libraries are opened with dlopen, so that nothing here is needed to build
// or to start a program on a machine without them.
#ifndef SC_CUDA_H
#define SC_CUDA_H

#include "hal/choose.h"

// A world on config->device: retains its primary context, loads the kernels, and takes every byte that
// it will ever need. SC_UNAVAILABLE names the library, the version or the device that is missing, and
// what was tried.
SC_MUST_USE sc_status sc_cuda_choose(const struct sc_config *config, struct sc_world *out,
                                     char *why, size_t why_bytes);

#endif
