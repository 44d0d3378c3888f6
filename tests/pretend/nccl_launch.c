// SPDX-License-Identifier: AGPL-3.0-only
//
// A launch: what one call, or one group, has a communicator do, as one kernel of a stream. It spins
// until the peers have done their part or the communicator is aborted; either way the stream goes on.
// A graph that recorded it runs it again and again, and holds the communicator.
#include "tests/pretend/nccl_inside.h"

#include <stdlib.h>

struct launch {
    struct ncclComm *comm;
    struct pretend_transfer *transfers; // room for all sends and recvs
    uint32_t count;
    struct pretend_call calls[];
};

static bool take_turn(struct ncclComm *comm) {
    uint32_t looks = 0;
    while (!atomic_load(&comm->aborted)) {
        bool busy = false;
        if (atomic_compare_exchange_strong(&comm->busy, &busy, true))
            return true;
        pretend_rest(&looks);
    }
    return false;
}

static bool is_transfer(const struct pretend_call *call) {
    return call->kind == PRETEND_SEND || call->kind == PRETEND_RECV;
}

static void run(void *arg) {
    struct launch *l = arg;
    uint32_t transfers = 0;
    if (!take_turn(l->comm))
        return;
    bool well = true;
    for (uint32_t i = 0; i < l->count && well; i++) {
        const struct pretend_call *call = &l->calls[i];
        if (is_transfer(call))
            l->transfers[transfers++] = (struct pretend_transfer){
                .from = call->from, .to = call->to, .bytes = call->bytes, .peer = call->peer};
        else
            well = pretend_collective(l->comm, call);
    }
    if (well)
        (void)pretend_exchange(l->comm, l->transfers, transfers);
    atomic_store(&l->comm->busy, false);
}

static void drop(void *arg) {
    struct launch *l = arg;
    pretend_comm_let_go(l->comm);
    free(l->transfers);
    free(l);
}

static struct launch *make(struct ncclComm *comm, uint32_t count) {
    struct launch *l = malloc(sizeof *l + count * sizeof l->calls[0]);
    struct pretend_transfer *transfers = calloc(count, sizeof *transfers);
    if (l == NULL || transfers == NULL) {
        free(l);
        free(transfers);
        return NULL;
    }
    *l = (struct launch){.comm = comm, .transfers = transfers};
    pretend_comm_hold(comm);
    return l;
}

ncclResult_t pretend_launch(struct ncclComm *comm, const struct pretend_call *calls,
                            uint32_t count) {
    struct launch *l = make(comm, count);
    CUstream stream = NULL;
    pretend_context_disturb();
    if (l == NULL)
        return pretend_fail(ncclSystemError, "no memory for a launch of %u calls", count);
    for (uint32_t i = 0; i < count; i++) {
        if (calls[i].comm != comm || calls[i].kind == PRETEND_ABORT)
            continue;
        stream = calls[i].stream;
        l->calls[l->count++] = calls[i];
    }
    CUresult result = pretend_put(stream, (struct pretend_work){run, drop, l});
    if (result != CUDA_SUCCESS)
        return pretend_fail(ncclUnhandledCudaError, "the stream takes no kernel: CUDA error %d",
                            (int)result);
    return ncclSuccess;
}
