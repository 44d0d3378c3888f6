// SPDX-License-Identifier: AGPL-3.0-only
//
// Inside the pretended driver:
//
//   driver.c          devices and contexts, the lock, errors in words
//   driver_memory.c   memory, copies
//   driver_stream.c   streams: queues with a thread each
//   driver_event.c    events
//   driver_capture.c  captures, and what threads may not do beside them
//   driver_graph.c    graphs, and the objects that they keep
//   driver_kernel.c   kernels by their names
//
// There are two locks. The driver's is taken by nearly every call for a moment, and by what frees
// memory for as long as anything runs; it guards contexts, memory, events and captures. The queues' is
// taken inside it, and guards what streams have to do and have done. Streams' threads take that one
// only, so that work goes on while somebody keeps the others out of the driver.
//
// A handle is its object's address. Each begins with its kind, which a wrong one lacks.
#ifndef SC_PRETEND_DRIVER_H
#define SC_PRETEND_DRIVER_H

#include "tests/pretend/pretend.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

enum driver_kind {
    DRIVER_STREAM = 0x5101,
    DRIVER_EVENT,
    DRIVER_GRAPH,
    DRIVER_EXEC,
    DRIVER_OBJECT,
    DRIVER_MODULE,
};

#define DRIVER_IS(handle, of) ((handle) != NULL && (handle)->kind == (of))

struct CUctx_st {
    CUdevice device;
    atomic_bool lives;
    uint32_t retained; // a primary one
    CUstream streams;  // in the queues' lock, also those that are destroyed and not yet done
    CUstream legacy;   // made at first use
};

struct CUstream_st {
    enum driver_kind kind;
    CUcontext context; // NULL: the driver's own
    bool of_thread;    // CU_STREAM_PER_THREAD of `thread`
    pthread_t thread;
    struct driver_capture *capture;
    // In the queues' lock:
    CUstream next; // of the context
    struct driver_item *first, **last;
    uint64_t put, done;
    bool started, ended;
    pthread_cond_t more;
};

struct driver_capture {
    struct driver_capture *next;
    CUstream stream;
    CUstreamCaptureMode mode;
    pthread_t thread;
    CUgraph graph;
    cuuint64_t id; // never 0
    bool spoilt;
};

// ---- driver.c ----------------------------------------------------------------------------------

// Takes the driver's lock; `context` is the thread's current one. On an error nothing is held.
CUresult driver_enter(CUcontext *context);
// The same for a call that captures of others may forbid: see driver_capture_permits.
CUresult driver_enter_unsafe(CUcontext *context);
// The same, and finds the stream that the handle means here.
CUresult driver_enter_stream(CUstream handle, CUstream *stream);
// The same, and asks for no context where the handle is one.
CUresult driver_enter_handle(CUstream handle, CUstream *stream);
// Gives `result` back.
CUresult driver_leave(CUresult result);

uint64_t driver_now_ns(void);
static inline void driver_drop(struct pretend_work work) {
    if (work.drop != NULL)
        work.drop(work.arg);
}

// ---- driver_memory.c: in the driver's lock -----------------------------------------------------

// Of a context that ends; nothing runs there any more.
void driver_memory_free_all(CUcontext context);

// ---- driver_stream.c ---------------------------------------------------------------------------

extern pthread_mutex_t driver_queues;
extern pthread_cond_t driver_passed; // a stream has done something, or passed an event

// In the driver's lock.
CUresult driver_stream_find(CUstream handle, CUcontext context, CUstream *stream);
// Enqueues, or records. Takes `work` over, also on an error.
CUresult driver_put(CUstream stream, struct pretend_work work);
// Until everything that has been put on the stream is done. Outside of all locks.
void driver_stream_await(CUstream stream);
// Until nothing runs there. With the driver's lock held all along.
void driver_await_idle(CUcontext context);
void driver_streams_end(CUcontext context);
// Runs it soon, on a thread of the driver's own.
void driver_later(struct pretend_work work);

// ---- driver_capture.c: in the driver's lock ----------------------------------------------------

// What could disturb a capture is refused to a thread by its mode, and spoils the captures that refuse
// it. In global mode: while any thread captures in global mode, or this one in another than relaxed. In
// thread-local mode: the latter alone.
CUresult driver_capture_permits(void);
// A call that a capturing stream never stands.
CUresult driver_capture_spoil(CUstream stream);
// Without a graph for anybody: the one of a stream that is destroyed; all of a context that ends.
void driver_capture_drop(CUstream stream);
void driver_captures_drop(CUcontext context);

// ---- driver_graph.c ----------------------------------------------------------------------------

CUgraph driver_graph_new(void);
CUresult driver_graph_add(CUgraph graph, struct pretend_work work);
void driver_graph_close(CUgraph graph); // nothing more is recorded
void driver_graph_let_go(CUgraph graph);

#endif
