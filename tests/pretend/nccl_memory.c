// SPDX-License-Identifier: AGPL-3.0-only
//
// Registrations and windows: handles that end with their communicator. They change nothing here.
#include "tests/pretend/nccl_inside.h"

#include <stdlib.h>

#define SMALL_BYTES 64u // not registered, without a word

struct pretend_registration {
    struct pretend_registration *next;
};

static struct pretend_registration *add(struct ncclComm *comm) {
    struct pretend_registration *made = calloc(1, sizeof *made);
    if (made == NULL)
        return NULL;
    pthread_mutex_lock(&comm->lock);
    made->next = comm->registrations;
    comm->registrations = made;
    pthread_mutex_unlock(&comm->lock);
    return made;
}

static ncclResult_t end(const char *name, struct ncclComm *comm, const void *handle) {
    if (comm == NULL)
        return pretend_fail(ncclInvalidArgument, "%s: comm is NULL", name);
    pthread_mutex_lock(&comm->lock);
    struct pretend_registration **at = &comm->registrations;
    while (*at != NULL && *at != handle)
        at = &(*at)->next;
    struct pretend_registration *found = *at;
    if (found != NULL)
        *at = found->next;
    pthread_mutex_unlock(&comm->lock);
    free(found);
    return found != NULL ? ncclSuccess
                         : pretend_fail(ncclInvalidUsage, "%s: %p is none of this communicator's",
                                        name, handle);
}

void pretend_registrations_free(struct ncclComm *comm) {
    while (comm->registrations != NULL) {
        struct pretend_registration *first = comm->registrations;
        comm->registrations = first->next;
        free(first);
    }
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle) {
    if (comm == NULL || buff == NULL || handle == NULL)
        return pretend_fail(ncclInvalidArgument, "ncclCommRegister: an argument is NULL");
    *handle = NULL;
    if (size >= SMALL_BYTES && (*handle = add(comm)) == NULL)
        return pretend_fail(ncclSystemError, "ncclCommRegister: no memory");
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle) {
    return end("ncclCommDeregister", comm, handle);
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win,
                                    int winFlags) {
    (void)size, (void)winFlags;
    if (comm == NULL || buff == NULL || win == NULL)
        return pretend_fail(ncclInvalidArgument, "ncclCommWindowRegister: an argument is NULL");
    *win = (ncclWindow_t)add(comm);
    return *win != NULL ? ncclSuccess
                        : pretend_fail(ncclSystemError, "ncclCommWindowRegister: no memory");
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
    return end("ncclCommWindowDeregister", comm, win);
}

ncclResult_t ncclMemAlloc(void **ptr, size_t size) {
    CUdeviceptr made = 0;
    if (ptr == NULL)
        return pretend_fail(ncclInvalidArgument, "ncclMemAlloc: ptr is NULL");
    CUresult result = cuMemAlloc(&made, size);
    if (result != CUDA_SUCCESS)
        return pretend_fail(ncclUnhandledCudaError, "ncclMemAlloc: %zu bytes: CUDA error %d", size,
                            (int)result);
    *ptr = (void *)(uintptr_t)made;
    return ncclSuccess;
}

ncclResult_t ncclMemFree(void *ptr) {
    CUresult result = ptr != NULL ? cuMemFree((CUdeviceptr)(uintptr_t)ptr) : CUDA_SUCCESS;
    return result == CUDA_SUCCESS
               ? ncclSuccess
               : pretend_fail(ncclUnhandledCudaError, "ncclMemFree: CUDA error %d", (int)result);
}
