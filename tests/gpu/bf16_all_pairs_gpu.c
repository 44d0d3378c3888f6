// SPDX-License-Identifier: AGPL-3.0-only
//
// The proof that the GPU's sum is what kernels/bf16.h says: all 2^32 pairs, in 65536 batches of one
// left operand each, through the device's own add. Exits with 0, 1, or 77 where there is no GPU.
#include "hal/choose.h"
#include "kernels/bf16.h"
#include "tests/conformance/gpu.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define VALUES 65536u
#define BATCH 256u // left operands a launch
#define COUNT ((uint64_t)BATCH * VALUES)
#define BYTES (COUNT * SC_BF16_BYTES)
#define THREADS_MAX 16u
#define EPOCH 1u

static struct conf_gpu_calls cu;
static uint16_t *sums; // of the present batch, page-locked by nobody: 32 MiB

static void check(bool well, const char *what) {
    if (well)
        return;
    fprintf(stderr, "bf16_all_pairs_gpu: %s\n", what);
    exit(1);
}

// ---- comparing ---------------------------------------------------------------------------------

struct share {
    pthread_t thread;
    uint32_t base, first, step;
    bool equal;
};

static void *compare(void *arg) {
    struct share *share = arg;
    share->equal = true;
    for (uint32_t i = share->first; i < BATCH; i += share->step) {
        uint16_t a = (uint16_t)(share->base + i);
        const uint16_t *row = sums + (uint64_t)i * VALUES;
        for (uint32_t b = 0; b < VALUES; b++) {
            uint16_t wanted = sc_bf16_add(a, (uint16_t)b);
            if (row[b] == wanted)
                continue;
            fprintf(stderr, "%04X + %04X is %04X on the GPU, must be %04X\n", a, b, row[b], wanted);
            share->equal = false;
            return NULL;
        }
    }
    return NULL;
}

static bool compare_batch(uint32_t base, uint32_t threads) {
    struct share shares[THREADS_MAX];
    bool equal = true;
    for (uint32_t t = 0; t < threads; t++) {
        shares[t] = (struct share){.base = base, .first = t, .step = threads};
        check(pthread_create(&shares[t].thread, NULL, compare, &shares[t]) == 0, "no thread");
    }
    for (uint32_t t = 0; t < threads; t++) {
        (void)pthread_join(shares[t].thread, NULL);
        equal = equal && shares[t].equal;
    }
    return equal;
}

// ---- the GPU -----------------------------------------------------------------------------------

static void open_gpu(struct sc_world *world) {
    struct sc_config config;
    char why[400] = "";
    if (!conf_gpu_load(&cu) || conf_gpu_count() == 0) {
        printf("skipped: no GPU\n");
        exit(77);
    }
    CUdevice device = 0;
    CUcontext context = NULL;
    check(cu.cuDeviceGet_(&device, 0) == CUDA_SUCCESS &&
              cu.cuDevicePrimaryCtxRetain_(&context, device) == CUDA_SUCCESS &&
              cu.cuCtxSetCurrent_(context) == CUDA_SUCCESS,
          "the GPU's context");
    sc_config_init(&config, sizeof config);
    check(sc_choose_world(&config, world, why, sizeof why) == SC_OK, why);
    check(world->device->fence_set(world->device->ctx, EPOCH) == SC_OK, "the fence");
}

// Left operands base … base + BATCH - 1, each against all right ones.
static void add_batch(const struct sc_device *d, CUdeviceptr dst, CUdeviceptr src, CUstream stream,
                      uint32_t base) {
    for (uint64_t i = 0; i < COUNT; i++)
        sums[i] = (uint16_t)(base + i / VALUES);
    check(cu.cuMemcpyHtoDAsync_(dst, sums, BYTES, stream) == CUDA_SUCCESS &&
              d->add_bf16(d->ctx, dst, src, BYTES, EPOCH, (uint64_t)(uintptr_t)stream) == SC_OK &&
              cu.cuMemcpyDtoHAsync_(sums, dst, BYTES, stream) == CUDA_SUCCESS &&
              cu.cuStreamSynchronize_(stream) == CUDA_SUCCESS,
          "a batch did not run");
}

int main(void) {
    struct sc_world world;
    CUdeviceptr dst = 0, src = 0;
    CUstream stream = NULL;
    uint32_t threads = THREADS_MAX;
    bool equal = true;
    open_gpu(&world);
    sums = malloc(BYTES);
    check(sums != NULL && cu.cuMemAlloc_(&dst, BYTES) == CUDA_SUCCESS &&
              cu.cuMemAlloc_(&src, BYTES) == CUDA_SUCCESS &&
              cu.cuStreamCreate_(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS,
          "memory");
    for (uint64_t i = 0; i < COUNT; i++)
        sums[i] = (uint16_t)i;
    check(cu.cuMemcpyHtoDAsync_(src, sums, BYTES, stream) == CUDA_SUCCESS &&
              cu.cuStreamSynchronize_(stream) == CUDA_SUCCESS,
          "copy");
    for (uint32_t base = 0; base < VALUES && equal; base += BATCH) {
        add_batch(world.device, dst, src, stream, base);
        equal = compare_batch(base, threads);
    }
    (void)cu.cuMemFree_(dst);
    (void)cu.cuMemFree_(src);
    (void)cu.cuStreamDestroy_(stream);
    sc_world_release(&world);
    free(sums);
    if (!equal)
        return 1;
    printf("%" PRIu64 " pairs equal\n", (uint64_t)VALUES * VALUES);
    return 0;
}
