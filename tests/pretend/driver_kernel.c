// SPDX-License-Identifier: AGPL-3.0-only
//
// Kernels by their names: what an image holds is not looked at, whoever loads one finds them all. Each
// runs at one go, whatever grid it is launched with, and means what its source says, kernels/*.cu or
// tests/conformance/compute.cu.
#include "tests/pretend/driver.h"

#include "kernels/bf16.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ARGUMENTS_MAX 5
#define LOOK_NS 20000u

struct CUmod_st {
    enum driver_kind kind;
    CUmodule next;
};

// Arguments lie in words, the first bytes of each.
struct CUfunc_st {
    const char *name;
    void (*run)(void *arguments);
    uint32_t count;
    uint32_t bytes[ARGUMENTS_MAX];
};

static CUmodule modules; // in the driver's lock

// ---- the kernels -------------------------------------------------------------------------------

static void rest(uint64_t duration_ns) {
    struct timespec time = {(time_t)(duration_ns / 1000000000u), (long)(duration_ns % 1000000000u)};
    while (nanosleep(&time, &time) != 0) {
    }
}

static uint64_t read_word(uint64_t address) {
    return __atomic_load_n((const uint64_t *)(uintptr_t)address, __ATOMIC_ACQUIRE);
}

static void add_bf16(void *arguments) {
    const uint64_t *words = arguments;
    uint64_t epoch = words[3], fence = words[4];
    if (read_word(fence) == epoch)
        sc_bf16_add_array((uint16_t *)(uintptr_t)words[0], (const uint16_t *)(uintptr_t)words[1],
                          words[2]);
}

static void hold(void *arguments) {
    const uint64_t *words = arguments;
    uint64_t begun_ns = driver_now_ns();
    while (read_word(words[0]) < words[1] && driver_now_ns() - begun_ns < words[2])
        rest(LOOK_NS);
}

static void nothing(void *arguments) {
    (void)arguments;
}

static void compute(void *arguments) {
    const uint64_t *words = arguments;
    uint16_t *word = (uint16_t *)(uintptr_t)words[1], value;
    memcpy(&value, &words[2], sizeof value);
    rest(words[0]);
    if (word != NULL)
        __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

static const struct CUfunc_st kernels[] = {
    {"sc_add_bf16", add_bf16, 5, {8, 8, 8, 8, 8}},
    {"sc_hold", hold, 3, {8, 8, 8}},
    {"sc_nothing", nothing, 0, {0}},
    {"conf_compute", compute, 3, {8, 8, 2}},
};
#define KERNELS (sizeof kernels / sizeof kernels[0])

// ---- CUDA's calls ------------------------------------------------------------------------------

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    CUcontext context;
    if (module == NULL || image == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = driver_enter_unsafe(&context);
    if (result != CUDA_SUCCESS)
        return result;
    CUmodule made = malloc(sizeof *made);
    if (made == NULL)
        return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    *made = (struct CUmod_st){DRIVER_MODULE, modules};
    *module = modules = made;
    return driver_leave(CUDA_SUCCESS);
}

static CUmodule *link_of(CUmodule module) {
    CUmodule *link = &modules;
    while (*link != NULL && *link != module)
        link = &(*link)->next;
    return link;
}

CUresult cuModuleUnload(CUmodule module) {
    CUcontext context;
    CUresult result = driver_enter_unsafe(&context);
    if (result != CUDA_SUCCESS)
        return result;
    CUmodule *link = link_of(module);
    if (module == NULL || *link == NULL)
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    *link = module->next;
    free(module);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    CUcontext context;
    if (function == NULL || name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = driver_enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (module == NULL || *link_of(module) == NULL)
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    for (size_t i = 0; i < KERNELS; i++)
        if (strcmp(kernels[i].name, name) == 0)
            return *function = (CUfunction)&kernels[i], driver_leave(CUDA_SUCCESS);
    return driver_leave(CUDA_ERROR_NOT_FOUND);
}

static bool is_kernel(const struct CUfunc_st *function) {
    for (size_t i = 0; i < KERNELS; i++)
        if (function == &kernels[i])
            return true;
    return false;
}

static CUresult launch(const struct CUfunc_st *kernel, CUstream stream, void **parameters) {
    uint64_t *words = calloc(ARGUMENTS_MAX, sizeof *words);
    if (words == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < kernel->count; i++)
        memcpy(&words[i], parameters[i], kernel->bytes[i]);
    return driver_put(stream, (struct pretend_work){kernel->run, free, words});
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream handle, void **parameters, void **extra) {
    CUstream stream;
    (void)shared_bytes;
    CUresult result = driver_enter_stream(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!is_kernel(function))
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    bool empty =
        grid_x == 0 || grid_y == 0 || grid_z == 0 || block_x == 0 || block_y == 0 || block_z == 0;
    if (empty || extra != NULL || (parameters == NULL && function->count != 0))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    return driver_leave(launch(function, stream, parameters));
}
