// SPDX-License-Identifier: AGPL-3.0-only
//
// Inside the engine: one process, and what its two files ask of each other.
//
//   engine.c        epochs: opening, commands, recovery, the end
//   engine_step.c   within one: a step, from its first kernel to its mark
#ifndef ENGINE_INSIDE_H
#define ENGINE_INSIDE_H

#include "engine.h"

struct engine {
    struct gpu *gpu;
    const struct engine_client *client;
    bool captured;
    uint32_t rank;
    sc_comm comm;
    uint64_t epoch;
    void *stream;
    struct gpu_args args;

    struct model_input input; // the conversation
    uint32_t first_before;    // input.first before the last step that counted
    uint64_t step;            // that counted last; always this rank's mark

    sc_capture capture; // of this epoch; 0: none
    struct gpu_graph *graph;

    bool idle;    // as rank 0 said last
    bool ending;  // nothing more is to be computed
    bool over;    // and every rank knows
    bool leaving; // asked to
};

// Waits until the results of the epoch's ops count here, and every rank has submitted the same.
sc_status engine_sync(struct engine *e);

// Computes the conversation's next token on this rank, which e->input begins. When it does not
// answer SC_OK nothing has changed but buffers.
sc_status engine_step(struct engine *e);

// The first of two answers that is not SC_OK.
static inline sc_status failure_of(sc_status one, sc_status other) {
    return one != SC_OK ? one : other;
}

#endif
