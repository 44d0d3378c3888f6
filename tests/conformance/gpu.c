// SPDX-License-Identifier: AGPL-3.0-only
//
// Finds the driver's calls, in the version that cuda.h means, in the library that spark_comm takes.
#include "tests/conformance/gpu.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>

#define NAME2(name) #name
#define NAME(name) NAME2(name) // as cuda.h versions it: cuMemAlloc_v2

static bool find(void *library, const char *name, void *slot) {
    void *symbol = dlsym(library, name);
    *(void **)slot = symbol;
    return symbol != NULL;
}

bool conf_gpu_load(struct conf_gpu_calls *calls) {
    const char *chosen = getenv("SPARK_COMM_CUDA_LIBRARY");
    void *library = dlopen(chosen != NULL ? chosen : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return false;
#define FIND(name)                                                                                 \
    if (!find(library, NAME(name), &calls->name##_))                                               \
        return false;
    CONF_GPU_CALLS(FIND)
    if (!find(library, "cuCtxCreate_v2", &calls->create_context))
        return false;
    return calls->cuInit_(0) == CUDA_SUCCESS;
}

uint32_t conf_gpu_count(void) {
    struct conf_gpu_calls calls;
    int count = 0;
    bool known = conf_gpu_load(&calls) && calls.cuDeviceGetCount_(&count) == CUDA_SUCCESS;
    return known ? (uint32_t)count : 0;
}
