// SPDX-License-Identifier: AGPL-3.0-only
//
// The CUDA driver as the tests use it, by dlopen, and with nothing of the library that they test.
#ifndef SC_CONFORMANCE_GPU_H
#define SC_CONFORMANCE_GPU_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

// clang-format off
#define CONF_GPU_CALLS(X)                                                                          \
    X(cuInit) X(cuDeviceGetCount) X(cuDeviceGet) X(cuDevicePrimaryCtxRetain)                       \
    X(cuDevicePrimaryCtxGetState) X(cuCtxGetCurrent) X(cuCtxSetCurrent) X(cuMemAlloc) X(cuMemFree) \
    X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync) X(cuStreamCreate) X(cuStreamDestroy)                 \
    X(cuStreamSynchronize) X(cuStreamQuery) X(cuStreamBeginCapture) X(cuStreamEndCapture)          \
    X(cuGraphInstantiateWithFlags) X(cuGraphLaunch) X(cuGraphExecDestroy) X(cuGraphDestroy)        \
    X(cuModuleLoadData) X(cuModuleGetFunction) X(cuLaunchKernel) X(cuGetErrorName)                 \
    X(cuThreadExchangeStreamCaptureMode)
// clang-format on

struct conf_gpu_calls {
#define CONF_GPU_CALL(name) __typeof__(&name) name##_;
    CONF_GPU_CALLS(CONF_GPU_CALL)
#undef CONF_GPU_CALL
    // By its oldest name: the newer ones' parameters differ from toolkit to toolkit.
    CUresult (*create_context)(CUcontext *context, unsigned flags, CUdevice device);
};

// False without a driver; otherwise cuInit was called.
bool conf_gpu_load(struct conf_gpu_calls *calls);
uint32_t conf_gpu_count(void); // 0 also without a driver

// Written by SConstruct from compute.cu: conf_compute, see there.
extern const unsigned char conf_kernels[];

#endif
