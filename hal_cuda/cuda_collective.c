// SPDX-License-Identifier: AGPL-3.0-only
//
// Groups and collectives: NCCL's own, on the caller's stream, and the sum of a pair exchange. The
// depth of a group is the calling thread's, in NCCL as in the seam's contract.
//
// NCCL is called in our own context: it puts back the device that was current, not the context, and
// for a thread that has none that device is GPU 0, on which it would make one.
#include "hal_cuda/inside.h"

static cudaStream_t stream_of(uint64_t stream) {
    return (cudaStream_t)sc_cuda_stream(stream);
}

static void *at(uint64_t address) {
    return (void *)(uintptr_t)address;
}

sc_status sc_cuda_nccl_status(ncclResult_t result) {
    switch (result) {
    case ncclSuccess:
    case ncclInProgress: return SC_OK;
    case ncclInvalidArgument:
    case ncclInvalidUsage: return SC_INVALID;
    case ncclRemoteError: return SC_ASYNC_ERROR;
    default: return SC_SUBMIT_FAILED;
    }
}

sc_status sc_cuda_group_begin(void *ctx) {
    struct sc_cuda *c = ctx;
    if (c->context_lost)
        return SC_CONTEXT_LOST;
    sc_cuda_stay(c);
    sc_status status = sc_cuda_nccl_status(c->nccl->ncclGroupStart_());
    if (status != SC_OK)
        sc_cuda_stay_over(c);
    return status;
}

sc_status sc_cuda_group_end(void *ctx) {
    struct sc_cuda *c = ctx;
    if (c->stays == 0)
        return SC_STATE; // none is open
    sc_status status = sc_cuda_nccl_status(c->nccl->ncclGroupEnd_());
    sc_cuda_stay_over(c);
    return status;
}

// A call on the communicator `comm` of a handle, as the answer of the verb.
#define CALL(c, handle, name, ...)                                                                 \
    do {                                                                                           \
        struct sc_cuda_guard guard;                                                                \
        sc_cuda_enter((c), &guard);                                                                \
        ncclComm_t comm = sc_cuda_comm_usable((c), (handle));                                      \
        sc_status status = (c)->context_lost ? SC_CONTEXT_LOST : SC_STATE;                         \
        if (comm != NULL)                                                                          \
            status = sc_cuda_nccl_status((c)->nccl->name(__VA_ARGS__));                            \
        sc_cuda_leave((c), &guard);                                                                \
        return status;                                                                             \
    } while (0)

sc_status sc_cuda_send(void *ctx, uint64_t handle, uint64_t src, uint64_t bytes, uint32_t peer,
                       uint64_t stream) {
    struct sc_cuda *c = ctx;
    CALL(c, handle, ncclSend_, at(src), bytes / SC_BF16_BYTES, ncclBfloat16, (int)peer, comm,
         stream_of(stream));
}

sc_status sc_cuda_recv(void *ctx, uint64_t handle, uint64_t dst, uint64_t bytes, uint32_t peer,
                       uint64_t stream) {
    struct sc_cuda *c = ctx;
    CALL(c, handle, ncclRecv_, at(dst), bytes / SC_BF16_BYTES, ncclBfloat16, (int)peer, comm,
         stream_of(stream));
}

sc_status sc_cuda_all_reduce(void *ctx, uint64_t handle, uint64_t buf, uint64_t bytes,
                             uint64_t stream) {
    struct sc_cuda *c = ctx;
    CALL(c, handle, ncclAllReduce_, at(buf), at(buf), bytes / SC_BF16_BYTES, ncclBfloat16, ncclSum,
         comm, stream_of(stream));
}

sc_status sc_cuda_broadcast(void *ctx, uint64_t handle, uint64_t buf, uint64_t bytes, uint32_t root,
                            uint64_t stream) {
    struct sc_cuda *c = ctx;
    CALL(c, handle, ncclBroadcast_, at(buf), at(buf), bytes / SC_BF16_BYTES, ncclBfloat16,
         (int)root, comm, stream_of(stream));
}

sc_status sc_cuda_all_gather(void *ctx, uint64_t handle, uint64_t src, uint64_t dst, uint64_t bytes,
                             uint64_t stream) {
    struct sc_cuda *c = ctx;
    CALL(c, handle, ncclAllGather_, at(src), at(dst), bytes / SC_BF16_BYTES, ncclBfloat16, comm,
         stream_of(stream));
}

sc_status sc_cuda_reduce_scatter(void *ctx, uint64_t handle, uint64_t src, uint64_t dst,
                                 uint64_t bytes, uint64_t stream) {
    struct sc_cuda *c = ctx;
    CALL(c, handle, ncclReduceScatter_, at(src), at(dst), bytes / SC_BF16_BYTES, ncclBfloat16,
         ncclSum, comm, stream_of(stream));
}

sc_status sc_cuda_add_bf16(void *ctx, uint64_t dst, uint64_t src, uint64_t bytes, uint64_t epoch,
                           uint64_t stream) {
    struct sc_cuda *c = ctx;
    struct sc_cuda_guard guard;
    if (c->context_lost)
        return SC_CONTEXT_LOST;
    sc_cuda_enter(c, &guard);
    sc_status status = sc_cuda_status(
        c, sc_cuda_launch_add(c->device, dst, src, bytes, epoch, sc_cuda_stream(stream)));
    sc_cuda_leave(c, &guard);
    return status;
}
