// SPDX-License-Identifier: AGPL-3.0-only
//
// NCCL loads its kernels onto a GPU with the first communicator there, and that takes longer than all
// the rest of making one: a process that is started in a dead one's place would let every rank wait
// for it. So a communicator of this rank alone is made as the handle opens, beside whatever the
// application loads meanwhile. Nothing depends on it: where it fails, the first epoch takes longer.
//
// It is kept until the process ends. Destroying it would free memory, which waits for all that runs on
// the GPU and keeps every other thread out of the driver: a kernel that spins for a lost peer could
// then never be aborted. For the same reason no other communicator is made beside it.
#include "hal_cuda/inside.h"

#include <stdlib.h>
#include <time.h>

#define PATIENCE_S 5 // of those who wait for it

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static uint64_t begun, ended; // GPUs by index, of this process

struct sc_cuda_preload {
    struct sc_cuda_device *device;
    const struct sc_cuda_nccl *nccl;
};

static uint64_t bit_of(const struct sc_cuda_device *device) {
    return UINT64_C(1) << ((unsigned)device->device % 64u);
}

static void *work(void *arg) {
    struct sc_cuda_preload *p = arg;
    const struct sc_cuda_driver *cu = p->device->cu;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED; // beside any capture of others
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    ncclComm_t kept = NULL;
    config.blocking = 1;
    (void)cu->cuCtxSetCurrent_(p->device->context);
    (void)cu->cuThreadExchangeStreamCaptureMode_(&mode);
    if (p->nccl->ncclGetUniqueId_(&id) == ncclSuccess)
        (void)p->nccl->ncclCommInitRankConfig_(&kept, 1, id, 0, &config);
    pthread_mutex_lock(&lock);
    ended |= bit_of(p->device);
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
    sc_cuda_device_let_go(p->device);
    free(p);
    return NULL;
}

static bool start(struct sc_cuda_device *device, const struct sc_cuda_nccl *nccl) {
    struct sc_cuda_preload *p = calloc(1, sizeof *p);
    pthread_t thread;
    if (p == NULL)
        return false;
    *p = (struct sc_cuda_preload){device, nccl};
    sc_cuda_device_hold(device);
    if (sc_cuda_thread_start(&thread, work, p)) {
        (void)pthread_detach(thread);
        return true;
    }
    sc_cuda_device_let_go(device);
    free(p);
    return false;
}

void sc_cuda_preload(struct sc_cuda_device *device, const struct sc_cuda_nccl *nccl) {
    if (getenv("NCCL_COMM_ID") != NULL)
        return; // every communicator has the same id then, and takes its port
    pthread_mutex_lock(&lock);
    if ((begun & bit_of(device)) == 0 && start(device, nccl))
        begun |= bit_of(device);
    pthread_mutex_unlock(&lock);
}

void sc_cuda_preload_await(const struct sc_cuda_device *device) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    pthread_mutex_lock(&lock);
    while ((begun & ~ended & bit_of(device)) != 0 &&
           pthread_cond_timedwait(&change, &lock, &until) == 0) {
    }
    pthread_mutex_unlock(&lock);
}
