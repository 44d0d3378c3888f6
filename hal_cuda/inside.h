// SPDX-License-Identifier: AGPL-3.0-only
//
// Inside the real world:
//
//   cuda_load.c        the two libraries, by dlopen
//   cuda_environment.c what the environment tells NCCL
//   cuda_open.c        a handle's world, and the table
//   cuda_device.c      a GPU: context, kernels, the fence's word
//   cuda_comm.c        communicators, each with a worker that may wait
//   cuda_preload.c     NCCL's kernels, ahead of the first communicator
//   cuda_lanes.c       how fast the two ways of summing are
//   cuda_lane_choice.c which one is taken for which payloads
//   cuda_op.c          events around ops; streams
//   cuda_watch.c       the thread that looks at them, and lowers the fence
//   cuda_collective.c  groups and collectives
//   cuda_memory.c      memory, registrations, the fence
//   cuda_capture.c     captured graphs and their replays
//   cuda_hold.c        holding a stream, to measure what is enqueued behind
//   cuda_gpu.c         a GPU for programs of ours, beside the library
//
// Verbs that the driver may keep waiting come from a thread of the application's, one op at a time; the
// others under the monitor, beside them. What both use is atomic or inside the device's lock. Workers
// have a lock of their own.
#ifndef SC_CUDA_INSIDE_H
#define SC_CUDA_INSIDE_H

#include "core/assert.h"
#include "hal/posix.h"
#include "hal_cuda/sc_cuda.h"

#include <cuda.h>
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>

// ---- the libraries: cuda_load.c ----------------------------------------------------------------

// clang-format off
#define SC_CUDA_DRIVER(X)                                                                          \
    X(cuInit) X(cuDriverGetVersion) X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetName)          \
    X(cuDeviceGetPCIBusId)                                                                         \
    X(cuDeviceGetAttribute) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease)               \
    X(cuDevicePrimaryCtxGetState)                                                                  \
    X(cuCtxGetCurrent) X(cuCtxSetCurrent) X(cuMemAlloc) X(cuMemFree) X(cuMemHostAlloc)             \
    X(cuMemFreeHost) X(cuMemcpyHtoDAsync) X(cuMemsetD8Async) X(cuStreamCreateWithPriority)         \
    X(cuStreamDestroy) X(cuStreamSynchronize) X(cuStreamWaitEvent) X(cuStreamQuery)                \
    X(cuStreamGetCaptureInfo) X(cuStreamIsCapturing) X(cuCtxGetStreamPriorityRange)                \
    X(cuThreadExchangeStreamCaptureMode) X(cuEventCreate)                                          \
    X(cuEventDestroy) X(cuEventRecord) X(cuEventQuery) X(cuEventElapsedTime) X(cuMemcpyDtoHAsync)  \
    X(cuModuleLoadData) X(cuModuleUnload)                                                          \
    X(cuModuleGetFunction) X(cuLaunchKernel) X(cuUserObjectCreate) X(cuUserObjectRelease)          \
    X(cuGraphRetainUserObject) X(cuGetErrorName) X(cuGetErrorString) X(cuMemGetInfo)               \
    X(cuStreamBeginCapture) X(cuStreamEndCapture) X(cuGraphInstantiate) X(cuGraphLaunch)           \
    X(cuGraphDestroy) X(cuGraphExecDestroy)
#define SC_CUDA_NCCL(X)                                                                            \
    X(ncclGetVersion) X(ncclGetUniqueId) X(ncclCommInitRankConfig) X(ncclCommAbort)                \
    X(ncclCommGetAsyncError) X(ncclGetErrorString) X(ncclGetLastError) X(ncclGroupStart)           \
    X(ncclGroupEnd) X(ncclSend) X(ncclRecv) X(ncclAllReduce) X(ncclBroadcast) X(ncclAllGather)     \
    X(ncclReduceScatter) X(ncclCommRegister) X(ncclCommDeregister)
#if NCCL_VERSION_CODE >= 22700
#define SC_CUDA_NCCL_OPTIONAL(X) /* NULL where the library is older than the header */             \
    X(ncclMemAlloc) X(ncclMemFree) X(ncclCommWindowRegister) X(ncclCommWindowDeregister)
#else
#define SC_CUDA_NCCL_OPTIONAL(X)
#endif
// clang-format on

// Where a library was found.
struct sc_cuda_origin {
    const char *path; // as the loader knows it; for ever, as the library
    bool shared;      // the program had loaded it before
};
struct sc_cuda_driver {
#define SC_CUDA_MEMBER(name) __typeof__(&name) name##_;
    SC_CUDA_DRIVER(SC_CUDA_MEMBER)
    int version;
    struct sc_cuda_origin origin;
};
struct sc_cuda_nccl {
    SC_CUDA_NCCL(SC_CUDA_MEMBER)
    SC_CUDA_NCCL_OPTIONAL(SC_CUDA_MEMBER)
#undef SC_CUDA_MEMBER
    int version;
    struct sc_cuda_origin origin;
};

// Loads both once in the life of the process; they stay. SC_UNAVAILABLE with `why`.
SC_MUST_USE sc_status sc_cuda_load(const struct sc_cuda_driver **cu,
                                   const struct sc_cuda_nccl **nccl, char *why, size_t why_bytes);

// ---- holding a stream: cuda_hold.c -------------------------------------------------------------

// One stream at a time, by one thread at a time, inside the context. All zero: not open.
struct sc_cuda_hold {
    CUfunction kernel;
    _Atomic uint64_t *word; // page-locked: up to which hold the host has let go
    uint64_t ticket;        // of the newest hold
};
CUresult sc_cuda_hold_open(struct sc_cuda_hold *hold, const struct sc_cuda_driver *cu,
                           CUmodule module);
// Also after an open that failed.
void sc_cuda_hold_close(struct sc_cuda_hold *hold, const struct sc_cuda_driver *cu);
// What comes later on `stream` waits for the end, but for so long at most.
CUresult sc_cuda_hold_begin(struct sc_cuda_hold *hold, const struct sc_cuda_driver *cu,
                            uint64_t limit_ns, CUstream stream);
void sc_cuda_hold_end(struct sc_cuda_hold *hold);

// ---- the device --------------------------------------------------------------------------------

#define SC_CUDA_COMMS_MAX 16u // forming, live, being aborted
#define SC_CUDA_CAPTURES_MAX 128u
#define SC_CUDA_REGISTRATIONS_MAX 512u
#define SC_CUDA_WARM_BYTES 256u // of an op whose only use is that it is made
#define SC_CUDA_NUMBERS_BYTES 128u

struct sc_cuda_comm;

// What a handle has on its GPU. It is shared by the handle and by its communicators' workers, of which
// one may be left behind: the last to let go frees it.
struct sc_cuda_device {
    _Atomic uint32_t holders;
    const struct sc_cuda_driver *cu;
    CUdevice device;
    CUcontext context; // the primary one
    CUmodule module;
    CUfunction add;
    uint32_t add_blocks; // as many as fill the device
    CUdeviceptr fence;
    uint64_t *fence_source; // page-locked
    CUstream side;          // of our own writes, which must pass whatever else is enqueued
    pthread_mutex_t lock;
    pthread_cond_t change;
    bool lower;                // the fence is to be 0, and may not be yet
    _Atomic uint32_t visitors; // threads inside the context, whom an abort waits for
    _Atomic uint32_t awaited;  // aborts that do
    // Of warm-ups. Scratch holds two payloads of the largest size that lanes are measured at, and
    // SC_CUDA_WARM_BYTES a rank and once more. Numbers are page-locked, SC_CUDA_NUMBERS_BYTES:
    // copies to and from them make nobody wait.
    uint32_t lane_sizes;
    CUdeviceptr scratch;
    void *numbers;
    struct sc_cuda_hold hold;
};

struct sc_cuda_op {
    uint32_t generation; // changes inside the device's lock only
    uint32_t next_free;  // 1 + index
    bool in_use, ended, failed;
    CUevent start, end; // made once, used again and again
    CUstream stream;
    // Of the watch: inside the device's lock.
    struct sc_cuda_line *line; // in which it waits to be done; NULL: it is, or has not ended
    uint32_t next, previous;   // in there; 1 + index
    bool started;
    sc_status answer; // of the last look
};

// The ops of one stream that are not known to be done, in their order; 1 + index, 0: none.
struct sc_cuda_line {
    CUstream stream;
    uint32_t first, last;
};
#define SC_CUDA_LINES_MAX 32u // streams with ops in flight

struct sc_cuda_capture {
    uint64_t handle; // 0: none, or released while the graph still lives
    CUstream stream;
    uint64_t comm; // that what it recorded is bound to
    bool open;
    struct sc_cuda_graph *graph; // lives as long as the graph does
};

struct sc_cuda_registration {
    uint64_t handle; // 0: free
    uint64_t comm;
    void *nccl;
};

struct sc_cuda_guard {
    CUcontext before;
    CUstreamCaptureMode mode;
    bool inside; // false: it was so already, and others put it back
};

struct sc_cuda {
    struct sc_device table;
    const struct sc_cuda_driver *cu;
    const struct sc_cuda_nccl *nccl;
    struct sc_posix *posix;
    struct sc_cuda_device *device;
    _Atomic bool context_lost;
    _Atomic uint64_t generation; // of comms, captures and registrations
    struct {
        _Atomic uint64_t handle; // 0: none
        _Atomic(ncclComm_t) comm;
        _Atomic bool registers;
    } ready; // the communicator that was told to be ready, and was not aborted since
    // From op_begin to op_end, and while a group is open, its thread is inside all along.
    _Atomic(pthread_t) stayer; // 0: nobody stays
    uint32_t stays;
    struct sc_cuda_guard stay;

    pthread_t watch;
    bool watched;     // the thread is there
    bool asked, over; // what it is to do; inside the device's lock
    struct sc_cuda_line lines[SC_CUDA_LINES_MAX];

    struct sc_cuda_op *ops; // room for all there may ever be, ops_count of them made
    uint32_t ops_count;
    uint32_t ops_free;     // 1 + index
    uint32_t ops_returned; // to be free; inside the device's lock
    struct sc_cuda_comm *comms[SC_CUDA_COMMS_MAX];
    struct sc_cuda_capture captures[SC_CUDA_CAPTURES_MAX];
    struct sc_cuda_registration registrations[SC_CUDA_REGISTRATIONS_MAX];
};

// ---- between the verbs -------------------------------------------------------------------------

// Makes our context the thread's and its capture mode relaxed, and restores what was. Otherwise what
// NCCL and we call would spoil captures that other threads have begun in global mode. Whoever stays is
// inside already: its verbs ask nothing.
void sc_cuda_context_in(struct sc_cuda *c, struct sc_cuda_guard *guard);
void sc_cuda_context_out(struct sc_cuda *c, const struct sc_cuda_guard *guard);
static inline void sc_cuda_enter(struct sc_cuda *c, struct sc_cuda_guard *guard) {
    guard->inside = false;
    if (atomic_load_explicit(&c->stayer, memory_order_relaxed) != pthread_self())
        sc_cuda_context_in(c, guard);
}
// Enters until it is left as often. One thread at a time.
void sc_cuda_stay(struct sc_cuda *c);
void sc_cuda_stay_over(struct sc_cuda *c);
static inline void sc_cuda_leave(struct sc_cuda *c, const struct sc_cuda_guard *guard) {
    if (guard->inside)
        sc_cuda_context_out(c, guard);
}

// cuda_device.c. Payloads may be as large as the capacity. `why` says what could not be had; on an
// error nothing is held.
SC_MUST_USE sc_status sc_cuda_device_open(const struct sc_cuda_driver *cu, int32_t index,
                                          uint64_t capacity_bytes, struct sc_cuda_device **out,
                                          char *why, size_t why_bytes);
void sc_cuda_device_hold(struct sc_cuda_device *device);
void sc_cuda_device_let_go(struct sc_cuda_device *device);
// dst += src, if the fence equals `epoch` when it runs. Inside the context.
CUresult sc_cuda_launch_add(const struct sc_cuda_device *device, uint64_t dst, uint64_t src,
                            uint64_t bytes, uint64_t epoch, CUstream stream);

// cuda_comm.c. A thread of our own, which no signal reaches.
bool sc_cuda_thread_start(pthread_t *thread, void *(*work)(void *), void *arg);

// cuda_watch.c. An op that has ended is watched until it is done or forgotten; false: its stream is one
// too many.
bool sc_cuda_watch_add(struct sc_cuda *c, struct sc_cuda_op *op);
// Its handle is good for nothing from now on.
void sc_cuda_watch_forget(struct sc_cuda *c, struct sc_cuda_op *op);
// What is known of it, and what the last look at it answered. If it is not done and it is the PROGRESS
// thread that asks, a look follows, and wakes it where there are news.
sc_status sc_cuda_watch_ask(struct sc_cuda *c, const struct sc_cuda_op *op,
                            enum sc_op_state *state);
bool sc_cuda_watch_open(struct sc_cuda *c);
// False: the driver does not let it go. Nothing of `c` may be freed then.
bool sc_cuda_watch_close(struct sc_cuda *c);
// By a copy engine, on a stream of its own: kernels that spin hold neither up. It is there when this
// returns, which takes one small copy. Inside the context.
CUresult sc_cuda_fence_write(struct sc_cuda_device *device, uint64_t epoch);

// cuda_preload.c. In the background, once for a GPU in this process.
void sc_cuda_preload(struct sc_cuda_device *device, const struct sc_cuda_nccl *nccl);
// Waits for its end, for some seconds at most: before another communicator is made, and before the
// process may exit.
void sc_cuda_preload_await(const struct sc_cuda_device *device);

// What a CUDA error means, without regard to the handle.
sc_status sc_cuda_meaning(CUresult result);
// SC_NO_MEMORY, SC_CONTEXT_LOST (from then on for every verb), SC_CAPTURE or SC_DEVICE_ERROR.
sc_status sc_cuda_failure(struct sc_cuda *c, CUresult result);
static inline sc_status sc_cuda_status(struct sc_cuda *c, CUresult result) {
    return result == CUDA_SUCCESS ? SC_OK : sc_cuda_failure(c, result);
}
// SC_OK, SC_INVALID, SC_ASYNC_ERROR (remote, system) or SC_SUBMIT_FAILED.
sc_status sc_cuda_nccl_status(ncclResult_t result);

// 0 is the legacy default stream.
static inline CUstream sc_cuda_stream(uint64_t stream) {
    return stream != 0 ? (CUstream)(uintptr_t)stream : CU_STREAM_LEGACY;
}

// The NCCL communicator of a handle that was told to be ready, or NULL. To be asked inside the context
// only: it lives for as long as the thread stays there, though it be aborted.
static inline ncclComm_t sc_cuda_comm_usable(struct sc_cuda *c, uint64_t comm) {
    ncclComm_t found = atomic_load(&c->ready.comm);
    return comm != 0 && atomic_load(&c->ready.handle) == comm ? found : NULL;
}
// The newest handle of a communicator; 0: there is none.
uint64_t sc_cuda_comm_live(const struct sc_cuda *c);
// Leaves all that are left behind.
void sc_cuda_comms_close(struct sc_cuda *c);
// Makes room in the pool for so many ops.
sc_status sc_cuda_ops_open(struct sc_cuda *c, uint32_t count);
void sc_cuda_ops_close(struct sc_cuda *c);
void sc_cuda_captures_close(struct sc_cuda *c);

sc_status sc_cuda_comm_id(void *ctx, struct sc_comm_id *id);
sc_status sc_cuda_comm_create(void *ctx, const struct sc_comm_spec *spec, uint64_t *comm);
sc_status sc_cuda_comm_poll(void *ctx, uint64_t comm, struct sc_comm_report *report);
sc_status sc_cuda_comm_error(void *ctx, uint64_t comm);
sc_status sc_cuda_comm_abort(void *ctx, uint64_t comm);
sc_status sc_cuda_comm_abandon(void *ctx, uint64_t comm);
sc_status sc_cuda_mem_alloc(void *ctx, uint64_t bytes, uint64_t *address);
sc_status sc_cuda_mem_free(void *ctx, uint64_t address);
sc_status sc_cuda_buf_register(void *ctx, uint64_t comm, uint64_t address, uint64_t bytes,
                               uint64_t *registration);
sc_status sc_cuda_buf_deregister(void *ctx, uint64_t comm, uint64_t registration);
void sc_cuda_registrations_end(struct sc_cuda *c, uint64_t comm); // with their communicator
sc_status sc_cuda_fence_set(void *ctx, uint64_t epoch);
sc_status sc_cuda_op_begin(void *ctx, uint64_t stream, uint64_t *op);
sc_status sc_cuda_op_begin_replay(struct sc_cuda *c, uint64_t stream, uint64_t *op);
sc_status sc_cuda_op_end_replay(struct sc_cuda *c, uint64_t op);
sc_status sc_cuda_op_end(void *ctx, uint64_t op);
sc_status sc_cuda_op_poll(void *ctx, uint64_t op, enum sc_op_state *state);
sc_status sc_cuda_op_release(void *ctx, uint64_t op);
void sc_cuda_ops_look(void *ctx);
sc_status sc_cuda_stream_check(void *ctx, uint64_t stream);
sc_status sc_cuda_stream_wait(void *ctx, uint64_t stream, uint64_t op);
sc_status sc_cuda_stream_create(void *ctx, uint64_t *stream);
sc_status sc_cuda_stream_destroy(void *ctx, uint64_t stream);
sc_status sc_cuda_group_begin(void *ctx);
sc_status sc_cuda_group_end(void *ctx);
sc_status sc_cuda_send(void *ctx, uint64_t comm, uint64_t src, uint64_t bytes, uint32_t peer,
                       uint64_t stream);
sc_status sc_cuda_recv(void *ctx, uint64_t comm, uint64_t dst, uint64_t bytes, uint32_t peer,
                       uint64_t stream);
sc_status sc_cuda_all_reduce(void *ctx, uint64_t comm, uint64_t buf, uint64_t bytes,
                             uint64_t stream);
sc_status sc_cuda_broadcast(void *ctx, uint64_t comm, uint64_t buf, uint64_t bytes, uint32_t root,
                            uint64_t stream);
sc_status sc_cuda_all_gather(void *ctx, uint64_t comm, uint64_t src, uint64_t dst, uint64_t bytes,
                             uint64_t stream);
sc_status sc_cuda_reduce_scatter(void *ctx, uint64_t comm, uint64_t src, uint64_t dst,
                                 uint64_t bytes, uint64_t stream);
sc_status sc_cuda_add_bf16(void *ctx, uint64_t dst, uint64_t src, uint64_t bytes, uint64_t epoch,
                           uint64_t stream);
sc_status sc_cuda_capture_begin(void *ctx, uint64_t stream, uint64_t *capture);
sc_status sc_cuda_capture_end(void *ctx, uint64_t capture);
sc_status sc_cuda_capture_release(void *ctx, uint64_t capture);
sc_status sc_cuda_captures_held(void *ctx, uint64_t comm, uint32_t *held);
sc_status sc_cuda_replay_begin(void *ctx, uint64_t capture, uint64_t stream, uint64_t epoch,
                               uint64_t *op);
sc_status sc_cuda_replay_end(void *ctx, uint64_t op);

// The kernels, as SConstruct embeds them.
extern const unsigned char sc_cuda_fatbin[];

#endif
