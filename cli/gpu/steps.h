// SPDX-License-Identifier: AGPL-3.0-only
//
// The work of one rank: steps of a model's shape. A step is one token: an all-reduce after each layer
// of experts, each in memory of its own, then the agreement that it counts, then the mark. After a
// loss the steps go on from the lowest mark that any rank remembers.
#ifndef SC_CLI_GPU_STEPS_H
#define SC_CLI_GPU_STEPS_H

#include "hal_cuda/sc_cuda.h"

struct sc_steps_spec {
    uint32_t rank, world;
    uint64_t layers;
    uint64_t hidden_size; // elements of one all-reduce
    bool verify;          // every result is looked at
    bool graph;           // the step is captured once an epoch, and replayed
};

struct sc_steps {
    struct sc_steps_spec spec;
    sc_comm comm;
    struct sc_gpu *gpu;
    void *stream;
    void *memory;   // of all layers, on the GPU
    uint16_t *host; // the same here; only to verify
    uint64_t epoch; // 0: none is lived in
    uint64_t mark;  // the last step that counts
    sc_capture capture;
    void *graph;
    uint64_t verified, wrong; // elements
    const char *why;          // of the last answer that was not SC_OK
};

// Takes memory and registers it. On an error nothing is held, and steps->why says why.
SC_MUST_USE sc_status sc_steps_open(struct sc_steps *steps, const struct sc_steps_spec *spec,
                                    sc_comm comm, struct sc_gpu *gpu);
// Before the handle is closed.
void sc_steps_close(struct sc_steps *steps);

// Begins an epoch: marks the step to go on from, and captures the graph.
SC_MUST_USE sc_status sc_steps_enter(struct sc_steps *steps, const struct sc_recovery *recovery);
// One step. Any answer of class DONE aside, the epoch must be left: sc_steps_leave().
SC_MUST_USE sc_status sc_steps_one(struct sc_steps *steps);
// Gives back what is bound to the epoch, without which recovery would not go on.
void sc_steps_leave(struct sc_steps *steps);

#endif
