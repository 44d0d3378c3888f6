// SPDX-License-Identifier: AGPL-3.0-only
//
// A communicator and its worker: shared by cuda_comm.c, which runs it, and cuda_lanes.c, which the
// worker calls.
#ifndef SC_CUDA_COMM_H
#define SC_CUDA_COMM_H

#include "hal_cuda/inside.h"

struct sc_cuda_comm {
    uint64_t handle;
    struct sc_comm_spec spec;
    const struct sc_cuda_driver *cu;
    const struct sc_cuda_nccl *nccl;
    struct sc_cuda_device *device; // shared: it lives as long as a worker does
    struct sc_posix *posix;        // woken at each change, unless it was left behind
    pthread_t thread;

    pthread_mutex_t lock;
    pthread_cond_t change;
    enum sc_comm_state state;
    sc_status error;
    uint64_t formed_ns;
    uint64_t pair_from_bytes, pair_to_bytes; // set before it is ready; so is
    bool registers;                          // whether registered memory moves faster
    ncclComm_t comm;
    bool created; // the create has returned
    bool abort_wanted;
    bool orphaned; // … while the create had not returned
    bool left_behind;
};

// In the worker: until the stream is empty, SC_OK; SC_INPROGRESS when the abort is wanted first.
sc_status sc_cuda_comm_await(struct sc_cuda_comm *m, CUstream stream);

// In the worker of a world of two: measures both ways, and sets the pair's range and `registers`.
sc_status sc_cuda_lanes_choose(struct sc_cuda_comm *m, CUstream stream);

#endif
