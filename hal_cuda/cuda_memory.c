// SPDX-License-Identifier: AGPL-3.0-only
//
// Memory, registrations, and the fence's word.
#include "hal_cuda/inside.h"

sc_status sc_cuda_mem_alloc(void *ctx, uint64_t bytes, uint64_t *address) {
    struct sc_cuda *c = ctx;
    struct sc_cuda_guard guard;
    CUdeviceptr made = 0;
    if (c->context_lost)
        return SC_CONTEXT_LOST;
    sc_cuda_enter(c, &guard);
    sc_status status = sc_cuda_status(c, c->cu->cuMemAlloc_(&made, bytes));
    sc_cuda_leave(c, &guard);
    if (status == SC_OK)
        *address = made;
    return status;
}

sc_status sc_cuda_mem_free(void *ctx, uint64_t address) {
    struct sc_cuda *c = ctx;
    struct sc_cuda_guard guard;
    if (address == 0)
        return SC_INVALID;
    sc_cuda_enter(c, &guard);
    sc_status status = sc_cuda_status(c, c->cu->cuMemFree_(address));
    sc_cuda_leave(c, &guard);
    return status;
}

// ---- registrations: the table inside the device's lock ----

static struct sc_cuda_registration *find(struct sc_cuda *c, uint64_t handle, uint64_t comm) {
    for (uint32_t i = 0; i < SC_CUDA_REGISTRATIONS_MAX; i++)
        if (c->registrations[i].handle == handle &&
            (handle == 0 || c->registrations[i].comm == comm))
            return &c->registrations[i];
    return NULL;
}

static bool remember(struct sc_cuda *c, const struct sc_cuda_registration *made) {
    pthread_mutex_lock(&c->device->lock);
    struct sc_cuda_registration *place = find(c, 0, 0);
    if (place != NULL)
        *place = *made;
    pthread_mutex_unlock(&c->device->lock);
    return place != NULL;
}

// NCCL may say success and have registered nothing: *registration is 0 then.
static sc_status register_with(struct sc_cuda *c, uint64_t handle, uint64_t address, uint64_t bytes,
                               uint64_t *registration) {
    ncclComm_t comm = sc_cuda_comm_usable(c, handle);
    struct sc_cuda_registration made = {.handle = ++c->generation, .comm = handle};
    if (comm == NULL)
        return SC_STATE;
    *registration = 0;
    if (!c->ready.registers)
        return SC_OK;
    sc_status status = sc_cuda_nccl_status(
        c->nccl->ncclCommRegister_(comm, (void *)(uintptr_t)address, bytes, &made.nccl));
    if (status != SC_OK || made.nccl == NULL)
        return status;
    if (!remember(c, &made)) {
        (void)c->nccl->ncclCommDeregister_(comm, made.nccl);
        return SC_NO_MEMORY;
    }
    *registration = made.handle;
    return SC_OK;
}

sc_status sc_cuda_buf_register(void *ctx, uint64_t handle, uint64_t address, uint64_t bytes,
                               uint64_t *registration) {
    struct sc_cuda *c = ctx;
    struct sc_cuda_guard guard;
    uint64_t made;
    sc_cuda_enter(c, &guard);
    sc_status status = register_with(c, handle, address, bytes, &made);
    sc_cuda_leave(c, &guard);
    if (status == SC_OK)
        *registration = made;
    return status;
}

sc_status sc_cuda_buf_deregister(void *ctx, uint64_t handle, uint64_t registration) {
    struct sc_cuda *c = ctx;
    struct sc_cuda_guard guard;
    pthread_mutex_lock(&c->device->lock);
    struct sc_cuda_registration *place = registration != 0 ? find(c, registration, handle) : NULL;
    void *nccl = place != NULL ? place->nccl : NULL;
    if (place != NULL)
        *place = (struct sc_cuda_registration){0};
    pthread_mutex_unlock(&c->device->lock);
    if (nccl == NULL)
        return SC_INVALID;
    sc_cuda_enter(c, &guard);
    ncclComm_t comm = sc_cuda_comm_usable(c, handle);
    sc_status status = SC_INVALID;
    if (comm != NULL)
        status = sc_cuda_nccl_status(c->nccl->ncclCommDeregister_(comm, nccl));
    sc_cuda_leave(c, &guard);
    return status;
}

void sc_cuda_registrations_end(struct sc_cuda *c, uint64_t comm) {
    pthread_mutex_lock(&c->device->lock);
    for (uint32_t i = 0; i < SC_CUDA_REGISTRATIONS_MAX; i++)
        if (c->registrations[i].comm == comm)
            c->registrations[i] = (struct sc_cuda_registration){0};
    pthread_mutex_unlock(&c->device->lock);
}

CUresult sc_cuda_fence_write(struct sc_cuda_device *d, uint64_t epoch) {
    *d->fence_source = epoch;
    CUresult result = d->cu->cuMemcpyHtoDAsync_(d->fence, d->fence_source, sizeof epoch, d->side);
    return result == CUDA_SUCCESS ? d->cu->cuStreamSynchronize_(d->side) : result;
}
