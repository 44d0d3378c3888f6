// SPDX-License-Identifier: AGPL-3.0-only
//
// The real world: GPUs through the CUDA driver API, communicators through NCCL, sockets and the clock
// through hal/posix.h. Both libraries are opened with dlopen, so that nothing here is needed to build
// or to start a program on a machine without them.
#ifndef SC_CUDA_H
#define SC_CUDA_H

#include "hal/choose.h"

// A world on config->device: retains its primary context, loads the kernels, and takes every byte that
// it will ever need. SC_UNAVAILABLE names the library, the version or the device that is missing, and
// what was tried; SC_INVALID is sc_cuda_environment_check's.
SC_MUST_USE sc_status sc_cuda_choose(const struct sc_config *config, struct sc_world *out,
                                     char *why, size_t why_bytes);

// Which payloads the newest communicator of this process exchanges in pairs: from the one size to below
// the other. All the rest is NCCL's own all-reduce. For reports.
void sc_cuda_pair_range(uint64_t *from_bytes, uint64_t *to_bytes);

// ---- what the environment tells NCCL: built everywhere -----------------------------------------
//
// Both read the environment as it is when they are called.

// Makes a remark for each variable that is set and known to matter: its name, its value cut and without
// control bytes, and what it means where that is often mistaken.
void sc_cuda_environment_remarks(sc_remark *remark, void *arg);

// SC_INVALID, with `why`, when NCCL would be told what no communicator of ours survives.
SC_MUST_USE sc_status sc_cuda_environment_check(char *why, size_t why_bytes);

// ---- which of two ways to sum: built everywhere ------------------------------------------------
//
// Between two ranks an exchange in pairs and a sum of ours, or NCCL's all-reduce.

// Both are measured at 4 KiB, and at each power of two up to 8 MiB that the capacity has room for.
#define SC_CUDA_LANE_SIZES 12u
#define SC_CUDA_LANE_NOISE 1.02 // a gain of less is none
#define SC_CUDA_LANE_NEVER 1e9f // for a time: of a way that is not to be taken

// Of one op, by size; any unit.
struct sc_cuda_lane_times {
    float all_reduce[SC_CUDA_LANE_SIZES], pair[SC_CUDA_LANE_SIZES];
};

static inline uint64_t sc_cuda_lane_bytes(uint32_t size) {
    return UINT64_C(4096) << size;
}
// How many of them are measured, at least 1.
uint32_t sc_cuda_lane_sizes(uint64_t capacity_bytes);
// Payloads in [from, to) are to be exchanged in pairs; what was measured at a size stands for all
// up to the next, at the smallest for all below too, at the largest for all above. Both are
// UINT64_MAX if none are. `sizes` times of each way were taken, none of them 0.
void sc_cuda_lane_choice(const struct sc_cuda_lane_times *times, uint32_t sizes,
                         uint64_t *from_bytes, uint64_t *to_bytes);

// ---- a GPU for programs of ours ----------------------------------------------------------------
//
// What the command and the tests need to drive a GPU themselves, beside the library: on the driver
// that the library has loaded, so that nothing is linked against it. Streams, events and memory are
// CUDA's own handles, as the public calls take them; a NULL stream is the legacy default one.
//
// Used by the thread that opened it, in which its context is the current one. Whatever does not answer
// SC_OK has said why in sc_gpu_error().

struct sc_gpu;

// Makes the primary context of GPU `index` current. SC_UNAVAILABLE (no driver, no NCCL, no such GPU),
// SC_NO_MEMORY, SC_DEVICE_ERROR: `why` says what was tried; nothing is held.
SC_MUST_USE sc_status sc_gpu_open(int32_t index, struct sc_gpu **out, char *why, size_t why_bytes);
// What was made of it must have been given back. NULL is none.
void sc_gpu_close(struct sc_gpu *gpu);

const char *sc_gpu_error(const struct sc_gpu *gpu); // of the last call that failed
const char *sc_gpu_name(const struct sc_gpu *gpu);  // "NVIDIA H200"
uint32_t sc_gpu_driver(const struct sc_gpu *gpu);   // 13000 is CUDA 13.0
uint32_t sc_gpu_nccl(const struct sc_gpu *gpu);     // 22809 is NCCL 2.28.9
// Of the whole device, whoever uses it.
SC_MUST_USE sc_status sc_gpu_memory(struct sc_gpu *gpu, uint64_t *free_bytes,
                                    uint64_t *total_bytes);

SC_MUST_USE sc_status sc_gpu_alloc(struct sc_gpu *gpu, uint64_t bytes, void **memory);
void sc_gpu_free(struct sc_gpu *gpu, void *memory);
SC_MUST_USE sc_status sc_gpu_fill(struct sc_gpu *gpu, void *memory, uint8_t value, uint64_t bytes,
                                  void *stream);
// Both wait for the stream: the copy is done, and host memory may be used again, when they return.
SC_MUST_USE sc_status sc_gpu_to_device(struct sc_gpu *gpu, void *dst, const void *src,
                                       uint64_t bytes, void *stream);
SC_MUST_USE sc_status sc_gpu_to_host(struct sc_gpu *gpu, void *dst, const void *src, uint64_t bytes,
                                     void *stream);

// Streams that do not wait for the default one.
SC_MUST_USE sc_status sc_gpu_stream_create(struct sc_gpu *gpu, void **stream);
void sc_gpu_stream_destroy(struct sc_gpu *gpu, void *stream);
SC_MUST_USE sc_status sc_gpu_stream_sync(struct sc_gpu *gpu, void *stream);
SC_MUST_USE sc_status sc_gpu_stream_wait(struct sc_gpu *gpu, void *stream, void *event);

// Events that take times.
SC_MUST_USE sc_status sc_gpu_event_create(struct sc_gpu *gpu, void **event);
void sc_gpu_event_destroy(struct sc_gpu *gpu, void *event);
SC_MUST_USE sc_status sc_gpu_event_record(struct sc_gpu *gpu, void *event, void *stream);
// Whether the stream has passed it.
SC_MUST_USE sc_status sc_gpu_event_passed(struct sc_gpu *gpu, void *event, bool *passed);
// Both must have passed.
SC_MUST_USE sc_status sc_gpu_event_elapsed(struct sc_gpu *gpu, void *begun, void *ended,
                                           double *elapsed_us);

// A kernel that does nothing.
SC_MUST_USE sc_status sc_gpu_nothing(struct sc_gpu *gpu, void *stream);

// What comes later on `stream` waits until it is let go, so that all of it can be enqueued before
// any of it runs. The limit ends a hold that cannot be let go, because a stream that is full makes
// the host wait. One stream at a time; letting go of none does nothing.
SC_MUST_USE sc_status sc_gpu_hold(struct sc_gpu *gpu, uint64_t limit_ns, void *stream);
void sc_gpu_let_go(struct sc_gpu *gpu);

// What is enqueued on `stream` from begin to end becomes a graph that can be launched. end ends the
// capture whatever it answers; on an error there is no graph.
SC_MUST_USE sc_status sc_gpu_graph_begin(struct sc_gpu *gpu, void *stream);
SC_MUST_USE sc_status sc_gpu_graph_end(struct sc_gpu *gpu, void *stream, void **graph);
SC_MUST_USE sc_status sc_gpu_graph_launch(struct sc_gpu *gpu, void *graph, void *stream);
void sc_gpu_graph_destroy(struct sc_gpu *gpu, void *graph);

#endif
