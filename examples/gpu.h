// SPDX-License-Identifier: AGPL-3.0-only
//
// What the engine asks of its GPU: memory, a stream, kernels by name, graphs. gpu_sim.c does it over
// the test double; over the CUDA driver it is memory, modules and graphs of one context.
//
// Every call answers SC_OK or a status of class TERMINAL, for an engine whose own GPU calls fail
// cannot go on; gpu_alloc may answer SC_NO_MEMORY too. Addresses are device addresses, streams are
// those of spark_comm.h. One thread at a time.
#ifndef ENGINE_GPU_H
#define ENGINE_GPU_H

#include <spark_comm.h>

struct gpu;
struct gpu_graph;

enum gpu_kernel {
    GPU_EMBED,         // input -> hidden
    GPU_EXPERTS,       // hidden, cache, weights -> cache of these rows, partial
    GPU_SHARED_EXPERT, // hidden -> shared
    GPU_UPDATE,        // hidden, reduced partial, shared -> hidden
    GPU_HEAD,          // hidden of the last row -> token
    GPU_KERNELS
};

// The argument of every kernel: where things lie on the device. Which rows are computed they read
// from the input, so that a graph serves any position.
struct gpu_args {
    void *input;   // struct model_input
    void *weights; // model_weights
    void *cache;   // model_cache
    void *hidden;  // BF16, MODEL_HIDDEN for each row
    void *partial; // the same; what is reduced
    void *shared;  // the same
    void *token;   // uint32_t
    uint32_t layer;
};

SC_MUST_USE sc_status gpu_alloc(struct gpu *gpu, uint64_t bytes, void **buffer);
void gpu_free(struct gpu *gpu, void *buffer); // NULL is let pass

SC_MUST_USE sc_status gpu_stream_create(struct gpu *gpu, void **stream);
void gpu_stream_destroy(struct gpu *gpu, void *stream); // NULL is let pass

// Host to device and back, in the order of the stream; what comes earlier in it and the copy itself
// are done on return.
SC_MUST_USE sc_status gpu_write(struct gpu *gpu, void *stream, void *to, const void *from,
                                uint64_t bytes);
SC_MUST_USE sc_status gpu_read(struct gpu *gpu, void *stream, void *to, const void *from,
                               uint64_t bytes);

// Enqueues a kernel; args are copied. Recorded, not run, while the stream is being captured.
SC_MUST_USE sc_status gpu_launch(struct gpu *gpu, void *stream, enum gpu_kernel kernel,
                                 const struct gpu_args *args);

// What is enqueued on the stream in between becomes a graph. `capture` is what sc_capture_begin()
// gave, 0 if it failed; *graph is NULL then, and whenever there is nothing to destroy.
SC_MUST_USE sc_status gpu_capture_begin(struct gpu *gpu, void *stream);
SC_MUST_USE sc_status gpu_capture_end(struct gpu *gpu, void *stream, sc_capture capture,
                                      struct gpu_graph **graph);
SC_MUST_USE sc_status gpu_graph_launch(struct gpu *gpu, struct gpu_graph *graph, void *stream);
void gpu_graph_destroy(struct gpu *gpu, struct gpu_graph *graph); // NULL is let pass

#endif
