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

sc_status sc_cuda_buf_register(void *ctx, uint64_t handle, uint64_t address, uint64_t bytes,
                               uint64_t *registration) {
    struct sc_cuda *c = ctx;
    ncclComm_t comm = sc_cuda_comm_usable(c, handle);
    struct sc_cuda_guard guard;
    void *made = NULL;
    uint32_t i = 0;
    while (i < SC_CUDA_REGISTRATIONS_MAX && c->registrations[i].handle != 0)
        i++;
    if (comm == NULL)
        return SC_STATE;
    if (!c->ready.registers) {
        *registration = 0;
        return SC_OK;
    }
    if (i == SC_CUDA_REGISTRATIONS_MAX)
        return SC_NO_MEMORY;
    sc_cuda_enter(c, &guard);
    sc_status status = sc_cuda_nccl_status(
        c->nccl->ncclCommRegister_(comm, (void *)(uintptr_t)address, bytes, &made));
    sc_cuda_leave(c, &guard);
    if (status != SC_OK)
        return status;
    *registration = 0; // NCCL may say success and have registered nothing
    if (made == NULL)
        return SC_OK;
    c->registrations[i] =
        (struct sc_cuda_registration){.handle = ++c->generation, .comm = handle, .nccl = made};
    *registration = c->registrations[i].handle;
    return SC_OK;
}

sc_status sc_cuda_buf_deregister(void *ctx, uint64_t handle, uint64_t registration) {
    struct sc_cuda *c = ctx;
    ncclComm_t comm = sc_cuda_comm_usable(c, handle);
    uint32_t i = 0;
    while (i < SC_CUDA_REGISTRATIONS_MAX &&
           (c->registrations[i].handle != registration || c->registrations[i].comm != handle))
        i++;
    if (comm == NULL || registration == 0 || i == SC_CUDA_REGISTRATIONS_MAX)
        return SC_INVALID;
    void *nccl = c->registrations[i].nccl;
    c->registrations[i] = (struct sc_cuda_registration){0};
    struct sc_cuda_guard guard;
    sc_cuda_enter(c, &guard);
    sc_status status = sc_cuda_nccl_status(c->nccl->ncclCommDeregister_(comm, nccl));
    sc_cuda_leave(c, &guard);
    return status;
}

CUresult sc_cuda_fence_write(struct sc_cuda_device *d, uint64_t epoch) {
    *d->fence_source = epoch;
    CUresult result = d->cu->cuMemcpyHtoDAsync_(d->fence, d->fence_source, sizeof epoch, d->side);
    return result == CUDA_SUCCESS ? d->cu->cuStreamSynchronize_(d->side) : result;
}
