// SPDX-License-Identifier: AGPL-3.0-only
//
// The calls that move data, and what they refuse. One of no elements does nothing.
#include "tests/pretend/nccl_inside.h"

static uint64_t size_of(ncclDataType_t type) {
    switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32: return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64: return 8;
    default: return 0;
    }
}

static bool lacks_memory(const struct pretend_call *call) {
    bool reads = call->kind != PRETEND_RECV &&
                 (call->kind != PRETEND_BROADCAST || call->comm->rank == call->peer);
    bool writes = call->kind != PRETEND_SEND;
    return (reads && call->from == NULL) || (writes && call->to == NULL);
}

static ncclResult_t check(const char *name, const struct pretend_call *call, size_t count) {
    uint64_t size = size_of(call->type);
    if (call->comm == NULL)
        return pretend_fail(ncclInvalidArgument, "%s: comm is NULL", name);
    if (size == 0)
        return pretend_fail(ncclInvalidArgument, "%s: there is no data type %d", name,
                            (int)call->type);
    if (call->peer >= call->comm->world)
        return pretend_fail(ncclInvalidArgument, "%s: rank %d is not in a world of %u", name,
                            (int)call->peer, call->comm->world);
    if (count > SIZE_MAX / size / PRETEND_RANKS_MAX)
        return pretend_fail(ncclInvalidArgument, "%s: %zu elements are more than memory", name,
                            count);
    if (count > 0 && lacks_memory(call))
        return pretend_fail(ncclInvalidArgument, "%s: a buffer of %zu elements is NULL", name,
                            count);
    return ncclSuccess;
}

static ncclResult_t submit(const char *name, struct pretend_call *call, size_t count) {
    ncclResult_t result = check(name, call, count);
    if (result != ncclSuccess)
        return pretend_group_spoil(result);
    if (count == 0)
        return ncclSuccess;
    call->bytes = count * size_of(call->type);
    return pretend_group_add(call);
}

static ncclResult_t submit_sum(const char *name, struct pretend_call *call, ncclRedOp_t op,
                               size_t count) {
    if (!pretend_can_reduce(call->type, op))
        return pretend_group_spoil(pretend_fail(
            ncclInvalidArgument,
            "%s: operation %d of data type %d is not pretended: the sum of bfloat16 is, and the "
            "largest of float32",
            name, (int)op, (int)call->type));
    return submit(name, call, count);
}

ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
    struct pretend_call call = {.kind = PRETEND_SEND,
                                .type = datatype,
                                .comm = comm,
                                .from = sendbuff,
                                .peer = (uint32_t)peer,
                                .stream = stream};
    return submit("ncclSend", &call, count);
}

ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
    struct pretend_call call = {.kind = PRETEND_RECV,
                                .type = datatype,
                                .comm = comm,
                                .to = recvbuff,
                                .peer = (uint32_t)peer,
                                .stream = stream};
    return submit("ncclRecv", &call, count);
}

ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm,
                           cudaStream_t stream) {
    struct pretend_call call = {.kind = PRETEND_BROADCAST,
                                .type = datatype,
                                .comm = comm,
                                .from = sendbuff,
                                .to = recvbuff,
                                .peer = (uint32_t)root,
                                .stream = stream};
    return submit("ncclBroadcast", &call, count);
}

ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
    struct pretend_call call = {.kind = PRETEND_ALL_GATHER,
                                .type = datatype,
                                .comm = comm,
                                .from = sendbuff,
                                .to = recvbuff,
                                .stream = stream};
    return submit("ncclAllGather", &call, sendcount);
}

ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
    struct pretend_call call = {.kind = PRETEND_ALL_REDUCE,
                                .type = datatype,
                                .comm = comm,
                                .from = sendbuff,
                                .to = recvbuff,
                                .stream = stream};
    return submit_sum("ncclAllReduce", &call, op, count);
}

ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
    struct pretend_call call = {.kind = PRETEND_REDUCE_SCATTER,
                                .type = datatype,
                                .comm = comm,
                                .from = sendbuff,
                                .to = recvbuff,
                                .stream = stream};
    return submit_sum("ncclReduceScatter", &call, op, recvcount);
}
