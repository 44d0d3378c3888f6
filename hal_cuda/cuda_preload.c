// SPDX-License-Identifier: AGPL-3.0-only
//
// NCCL loads its kernels onto a GPU with the first communicator there, and that takes longer than all
// the rest of making one: a process that is started in a dead one's place would let every rank wait
// for it. So a communicator of this rank alone is made and destroyed as the handle opens, beside
// whatever the application loads meanwhile. Nothing depends on it: where it fails, the first epoch
// takes longer.
#include "hal_cuda/inside.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define PATIENCE_S 5 // at close, before the thread is left to itself

static _Atomic uint64_t preloaded; // GPUs by index, of this process

struct sc_cuda_preload {
    struct sc_cuda_device *device;
    const struct sc_cuda_nccl *nccl;
    pthread_t thread;
};

static void *work(void *arg) {
    struct sc_cuda_preload *p = arg;
    const struct sc_cuda_driver *cu = p->device->cu;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED; // beside any capture of others
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    config.blocking = 1;
    (void)cu->cuCtxSetCurrent_(p->device->context);
    (void)cu->cuThreadExchangeStreamCaptureMode_(&mode);
    if (p->nccl->ncclGetUniqueId_(&id) == ncclSuccess &&
        p->nccl->ncclCommInitRankConfig_(&comm, 1, id, 0, &config) == ncclSuccess && comm != NULL)
        (void)p->nccl->ncclCommDestroy_(comm);
    sc_cuda_device_let_go(p->device);
    return NULL;
}

struct sc_cuda_preload *sc_cuda_preload_begin(struct sc_cuda_device *device,
                                              const struct sc_cuda_nccl *nccl) {
    uint64_t bit = UINT64_C(1) << ((unsigned)device->device % 64u);
    // With an id in the environment every communicator has the same one, and takes its port.
    if (getenv("NCCL_COMM_ID") != NULL || (atomic_fetch_or(&preloaded, bit) & bit) != 0)
        return NULL;
    struct sc_cuda_preload *p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    p->device = device;
    p->nccl = nccl;
    sc_cuda_device_hold(device);
    if (sc_cuda_thread_start(&p->thread, work, p))
        return p;
    sc_cuda_device_let_go(device);
    free(p);
    return NULL;
}

void sc_cuda_preload_end(struct sc_cuda_preload *p) {
    struct timespec until;
    if (p == NULL)
        return;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    if (pthread_timedjoin_np(p->thread, NULL, &until) == 0)
        free(p);
    else
        (void)pthread_detach(p->thread);
}
