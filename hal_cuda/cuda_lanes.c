// SPDX-License-Identifier: AGPL-3.0-only
//
// Which way sums fastest between these two GPUs: NCCL's all-reduce in place, or a pair exchange and
// our own sum. It depends on what links them, so it is measured as each communicator warms up, by a few
// short rounds of each. Both ranks then take the slower of their two times, by an all-reduce of the very kind that is being measured: so both know the same
// and choose alike, without a word between them.
#include "hal_cuda/comm.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 3u
#define REPEATS 8u
#define SIZES 4u

static const uint64_t sizes[SIZES] = {4096, 65536, 262144, SC_CUDA_SCRATCH_BYTES};

enum lane { LANE_ALL_REDUCE, LANE_PAIR, LANES };

// What was last chosen in this process; nothing decides by it.
static _Atomic uint64_t chosen_from, chosen_to;

struct lanes {
    struct sc_cuda_comm *m;
    CUstream stream;
    CUdeviceptr send, recv; // scratch
    CUevent begun, ended;
    float times[LANES][SIZES];
};

static ncclResult_t enqueue_pair(const struct lanes *l, uint64_t bytes) {
    const struct sc_cuda_nccl *n = l->m->nccl;
    int peer = 1 - (int)l->m->spec.rank;
    ncclResult_t result = n->ncclGroupStart_();
    if (result != ncclSuccess)
        return result;
    result = n->ncclSend_((void *)(uintptr_t)l->send, bytes / 2, ncclBfloat16, peer, l->m->comm,
                          (cudaStream_t)l->stream);
    if (result == ncclSuccess)
        result = n->ncclRecv_((void *)(uintptr_t)l->recv, bytes / 2, ncclBfloat16, peer, l->m->comm,
                              (cudaStream_t)l->stream);
    ncclResult_t ended = n->ncclGroupEnd_();
    result = result != ncclSuccess ? result : ended;
    if (result == ncclSuccess &&
        sc_cuda_launch_add(l->m->device, l->send, l->recv, bytes, 0, l->stream) != CUDA_SUCCESS)
        result = ncclUnhandledCudaError;
    return result;
}

static ncclResult_t enqueue(const struct lanes *l, enum lane lane, uint64_t bytes) {
    void *buffer = (void *)(uintptr_t)l->send;
    if (lane == LANE_PAIR)
        return enqueue_pair(l, bytes);
    return l->m->nccl->ncclAllReduce_(buffer, buffer, bytes / 2, ncclBfloat16, ncclSum, l->m->comm,
                                      (cudaStream_t)l->stream);
}

// The shortest of a few rounds: what else runs on the device only ever adds.
static sc_status measure(struct lanes *l, enum lane lane, uint32_t size) {
    const struct sc_cuda_driver *cu = l->m->cu;
    float ms = 0;
    if (cu->cuEventRecord_(l->begun, l->stream) != CUDA_SUCCESS)
        return SC_COMM_FAILED;
    for (uint32_t i = 0; i < REPEATS; i++)
        if (enqueue(l, lane, sizes[size]) != ncclSuccess)
            return SC_COMM_FAILED;
    if (cu->cuEventRecord_(l->ended, l->stream) != CUDA_SUCCESS)
        return SC_COMM_FAILED;
    sc_status status = sc_cuda_comm_await(l->m, l->stream);
    if (status != SC_OK)
        return status;
    if (cu->cuEventElapsedTime_(&ms, l->begun, l->ended) != CUDA_SUCCESS)
        return SC_COMM_FAILED;
    if (l->times[lane][size] == 0 || ms < l->times[lane][size])
        l->times[lane][size] = ms;
    return SC_OK;
}

// A lane that this rank's environment demands wins at every size: the other one is never faster.
static void prefer(struct lanes *l) {
    const char *chosen = getenv("SPARK_COMM_LANE");
    for (uint32_t lane = 0; chosen != NULL && lane < LANES; lane++)
        if (strcmp(chosen, lane == LANE_PAIR ? "all_reduce" : "pair") == 0)
            for (uint32_t size = 0; size < SIZES; size++)
                l->times[lane][size] = 1e9f;
}

// Waits in sc_cuda_comm_await alone, which ends when the abort is wanted: a copy to memory that is not
// page-locked would wait for a peer that may never come.
static sc_status agree(struct lanes *l) {
    const struct sc_cuda_driver *cu = l->m->cu;
    void *numbers = l->m->device->numbers, *there = (void *)(uintptr_t)l->send;
    _Static_assert(sizeof l->times <= SC_CUDA_NUMBERS_BYTES, "the times fit");
    memcpy(numbers, l->times, sizeof l->times);
    if (cu->cuMemcpyHtoDAsync_(l->send, numbers, sizeof l->times, l->stream) != CUDA_SUCCESS ||
        l->m->nccl->ncclAllReduce_(there, there, LANES * SIZES, ncclFloat32, ncclMax, l->m->comm,
                                   (cudaStream_t)l->stream) != ncclSuccess ||
        cu->cuMemcpyDtoHAsync_(numbers, l->send, sizeof l->times, l->stream) != CUDA_SUCCESS)
        return SC_COMM_FAILED;
    sc_status status = sc_cuda_comm_await(l->m, l->stream);
    if (status == SC_OK)
        memcpy(l->times, numbers, sizeof l->times);
    return status;
}

// The pair's range: from the first size at which it wins to the next at which it does not.
static void choose(const struct lanes *l, uint64_t *from_bytes, uint64_t *to_bytes) {
    uint32_t first = 0;
    while (first < SIZES && l->times[LANE_PAIR][first] >= l->times[LANE_ALL_REDUCE][first])
        first++;
    uint32_t end = first;
    while (end < SIZES && l->times[LANE_PAIR][end] < l->times[LANE_ALL_REDUCE][end])
        end++;
    *from_bytes = first == 0 ? 0 : first < SIZES ? sizes[first] : UINT64_MAX;
    *to_bytes = end < SIZES ? sizes[end] : UINT64_MAX;
    atomic_store(&chosen_from, *from_bytes);
    atomic_store(&chosen_to, *to_bytes);
}

void sc_cuda_pair_range(uint64_t *from_bytes, uint64_t *to_bytes) {
    *from_bytes = atomic_load(&chosen_from);
    *to_bytes = atomic_load(&chosen_to);
}

sc_status sc_cuda_lanes_choose(struct sc_cuda_comm *m, CUstream stream, CUdeviceptr scratch) {
    const struct sc_cuda_driver *cu = m->cu;
    struct lanes l = {
        .m = m, .stream = stream, .send = scratch, .recv = scratch + SC_CUDA_SCRATCH_BYTES};
    sc_status status = SC_COMM_FAILED;
    if (cu->cuEventCreate_(&l.begun, CU_EVENT_DEFAULT) == CUDA_SUCCESS &&
        cu->cuEventCreate_(&l.ended, CU_EVENT_DEFAULT) == CUDA_SUCCESS &&
        cu->cuMemsetD8Async_(scratch, 0, 2 * SC_CUDA_SCRATCH_BYTES, stream) == CUDA_SUCCESS)
        status = SC_OK;
    for (uint32_t i = 0; i < ROUNDS * LANES * SIZES && status == SC_OK; i++)
        status = measure(&l, (enum lane)(i % LANES), i / LANES % SIZES);
    prefer(&l);
    if (status == SC_OK)
        status = agree(&l);
    if (status == SC_OK)
        choose(&l, &m->pair_from_bytes, &m->pair_to_bytes);
    if (l.begun != NULL)
        (void)cu->cuEventDestroy_(l.begun);
    if (l.ended != NULL)
        (void)cu->cuEventDestroy_(l.ended);
    return status;
}
