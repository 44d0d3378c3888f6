// SPDX-License-Identifier: AGPL-3.0-only
//
// The seam. Above it a core that only decides; below it a world that only does.
//
// Three tables of functions: a clock (sc_host), a network (sc_link), a GPU with its communicators
// (sc_device). Any three make a world, so a simulated device may run over real sockets.
//
// Rules for every function here, unless its own comment says otherwise:
//   - it returns SC_OK, SC_INPROGRESS (nothing wrong, ask again) or an error, and never blocks;
//   - outputs come last and are written only on SC_OK;
//   - a handle is a generation-tagged 64-bit number, never 0; 0 stands for "none". A handle that
//     was closed, released or aborted is answered with SC_INVALID for ever after;
//   - calls on one table come from one thread at a time; the pump sees to that. But the driver of a GPU
//     may keep whoever asks it waiting, so verbs that enqueue, register or allocate are called outside
//     the monitor, one op at a time, and any others may come beside them;
//   - `ctx` is the table's own and is passed back unchanged.
// A table begins with its size, so that verbs can be added at its end.
#ifndef SC_HAL_H
#define SC_HAL_H

#include "core/op.h"
#include "core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SC_NEVER_NS UINT64_MAX

// ---------------------------------------------------------------------------------------------
// Clock, entropy, waiting, threads.
enum sc_host_thread { SC_HOST_PROGRESS, SC_HOST_NOTIFIER, SC_HOST_THREADS };

struct sc_host {
    size_t size;
    const char *name;
    void *ctx;

    // Monotonic, never steps back, unaffected by the wall clock.
    uint64_t (*now_ns)(void *ctx);

    // Fills `out` with bytes fit for nonces and keys.
    sc_status (*entropy)(void *ctx, void *out, size_t bytes);

    // The one function that blocks. Returns SC_OK when a link became ready, the device reported a
    // change or wake was called; SC_TIMEOUT when `deadline_ns` passed first. It may tell of a link
    // only once, until that is asked again: ask until the answer is SC_INPROGRESS, then wait. A dial
    // that nobody has asked yet counts as ready as soon as it is decided, be it before the wait.
    sc_status (*wait)(void *ctx, uint64_t deadline_ns);

    // Ends a wait, now or the next one. Any thread, and safe in a signal handler.
    void (*wake)(void *ctx);

    // The rest is for core/api alone; a host that only a pump runs on may leave it out.

    // ---- a monitor: one lock, and the threads that wait in it ----
    // For the callers of one handle, whichever threads they are. enter and leave pair on one thread
    // and do not nest. enter answers SC_OK, or SC_SIM_KILLED without having entered: this process is
    // dead, and all that is left to do is to return.
    sc_status (*enter)(void *ctx);
    void (*leave)(void *ctx);
    // Inside: leaves, blocks until notify or the deadline, and enters again: SC_OK or SC_TIMEOUT; or
    // SC_SIM_KILLED, outside.
    sc_status (*await)(void *ctx, uint64_t deadline_ns);
    // Inside: whoever is in await looks again.
    void (*notify)(void *ctx);

    // ---- two threads of the library's own, as steps ----
    // Calls step(arg) from a thread of its own that blocks all signals: again at the time that it
    // returned, or earlier, PROGRESS when wait would have ended, NOTIFIER at a notify. A step is
    // called outside the monitor. A world whose time is virtual may call the steps by itself.
    // SC_NO_MEMORY.
    sc_status (*thread_start)(void *ctx, enum sc_host_thread thread, uint64_t (*step)(void *arg),
                              void *arg);
    // Its last step has returned when this does. Outside the monitor; never from a step. Stopping one
    // that was not started does nothing.
    void (*thread_stop)(void *ctx, enum sc_host_thread thread);

    // A descriptor that polls as readable after event_signal until eight bytes are read from it; -1
    // where there is none. It belongs to the host.
    int (*event_fd)(void *ctx);
    void (*event_signal)(void *ctx);
};

// ---------------------------------------------------------------------------------------------
// Ordered, reliable byte streams between processes: sockets, in the real world.
struct sc_link {
    size_t size;
    const char *name;
    void *ctx;

    // Binds and listens. SC_BIND when the address is taken or not ours, SC_UNREACHABLE when the
    // name does not resolve, SC_NO_MEMORY. port is 1..65535. May wait for the name service: it is
    // called at open only.
    sc_status (*listen)(void *ctx, const char *host, uint16_t port, uint64_t *listener);

    // Takes the next incoming connection; SC_INPROGRESS when there is none.
    sc_status (*accept)(void *ctx, uint64_t listener, uint64_t *link);

    // Starts a connection. The name is resolved anew each time and `attempt` picks among its
    // addresses in turn. SC_OK hands out a link that may still be connecting. SC_NO_MEMORY, here or
    // from connected, when there are too many.
    sc_status (*dial)(void *ctx, const char *host, uint16_t port, uint32_t attempt, uint64_t *link);

    // SC_OK once connected, SC_INPROGRESS while connecting, else why it failed (SC_REFUSED,
    // SC_UNREACHABLE). A failed link must still be closed.
    sc_status (*connected)(void *ctx, uint64_t link);

    // Takes 1..bytes bytes from `data`; *sent tells how many. SC_INPROGRESS when none fit now,
    // SC_LINK_EOF when the peer is gone. Never raises a signal.
    sc_status (*send)(void *ctx, uint64_t link, const void *data, size_t bytes, size_t *sent);

    // Reads 1..bytes bytes. SC_INPROGRESS when there is nothing yet; SC_LINK_EOF after the last
    // byte of an orderly end. A reset may lose bytes that had arrived.
    sc_status (*recv)(void *ctx, uint64_t link, void *data, size_t bytes, size_t *received);

    // Ends a link or a listener. Unsent bytes may be lost. Closing 0 does nothing.
    void (*close)(void *ctx, uint64_t handle);

    // Says for people how the last listen or dial went, or how far the present one is: first the host
    // and the port, then addresses, and the system's own words. Returns `text`, cut to `bytes`, which must be at least 1; "" when
    // there is nothing to say.
    const char *(*explain)(void *ctx, char *text, size_t bytes);
};

// ---------------------------------------------------------------------------------------------
// GPU memory, streams and communicators.
enum sc_comm_state {
    SC_COMM_FORMING, // creation or warm-up is under way
    SC_COMM_READY,   // created, and warmed up with one exchange with every peer
    SC_COMM_ERROR,   // creation failed, or an asynchronous error: `error` says which
    SC_COMM_GONE,    // the abort has returned; the handle is now invalid
};

struct sc_comm_id {
    uint8_t bytes[SC_COMM_ID_BYTES];
};

struct sc_comm_spec {
    struct sc_comm_id id; // single use: one communicator, once a rank
    uint64_t epoch;
    uint32_t rank;
    uint32_t world;
};

struct sc_comm_report {
    enum sc_comm_state state;
    sc_status error;    // SC_COMM_ERROR: SC_COMM_FAILED, SC_ASYNC_ERROR or SC_CONTEXT_LOST
    uint64_t formed_ns; // when creation returned and the warm-up began; 0 before
    // SC_COMM_READY in a world of two: payloads in [from, to) are summed faster by a pair exchange, a
    // group of send and recv and then add_bf16, than by all_reduce. Alike on both ranks.
    uint64_t pair_from_bytes;
    uint64_t pair_to_bytes;
};

enum sc_op_state {
    SC_OP_ENQUEUED, // behind earlier work of its stream
    SC_OP_STARTED,  // the stream has reached it
    SC_OP_DONE,     // the stream has passed its end. After an abort this says nothing of its data
    SC_OP_FAILED,   // the device reported an error for it
};

struct sc_device {
    size_t size;
    const char *name;
    void *ctx;

    // How often pending ops and communicators should be polled; 0 when the device itself wakes the
    // host at each change.
    uint64_t poll_ns;

    // ---- communicators ----

    // A fresh id, drawn by rank 0 only. Fast and local.
    sc_status (*comm_id)(void *ctx, struct sc_comm_id *id);

    // Begins to form a communicator in the background. SC_OK hands out a handle in SC_COMM_FORMING.
    // No verb but comm_poll, comm_abort and comm_abandon is legal on it until it is SC_COMM_READY.
    sc_status (*comm_create)(void *ctx, const struct sc_comm_spec *spec, uint64_t *comm);

    // Where it stands. The report of SC_COMM_GONE is the last one: the handle ends with it.
    sc_status (*comm_poll)(void *ctx, uint64_t comm, struct sc_comm_report *report);

    // The cheap look at the asynchronous error, for use right after a group has ended.
    // SC_OK, SC_ASYNC_ERROR or SC_CONTEXT_LOST.
    sc_status (*comm_error)(void *ctx, uint64_t comm);

    // Begins to give the communicator up; comm_poll says SC_COMM_GONE when it has returned. Its
    // pending ops then drain without an error and with undefined data. Legal once, in any state;
    // on a forming communicator it orphans the attempt. Its registrations end with it. While
    // captures hold the communicator it does not return (captures_held tells). It may come while an op
    // is being composed: the verbs of that op may then fail, and it returns after op_end.
    sc_status (*comm_abort)(void *ctx, uint64_t comm);

    // Gives up waiting for an abort that does not return: the handle ends at once, what it holds
    // is kept aside until the process exits. Legal after comm_abort only.
    sc_status (*comm_abandon)(void *ctx, uint64_t comm);

    // ---- memory ----

    // At least 16-byte aligned. SC_NO_MEMORY. Freed by mem_free, after every communicator that it
    // was registered with or used by is gone.
    sc_status (*mem_alloc)(void *ctx, uint64_t bytes, uint64_t *address);
    sc_status (*mem_free)(void *ctx, uint64_t address);

    // Tells the communicator of a buffer. *registration may be 0 on success: nothing to undo.
    // Registrations end with their communicator.
    sc_status (*buf_register)(void *ctx, uint64_t comm, uint64_t address, uint64_t bytes,
                              uint64_t *registration);
    sc_status (*buf_deregister)(void *ctx, uint64_t comm, uint64_t registration);

    // ---- ops: everything between op_begin and op_end belongs to one op ----

    // Whether an op may go on the stream: asked before it takes its seq. SC_CAPTURE when the stream is
    // capturing: captured verbs belong to the replay that later runs them. Never disturbs a capture.
    sc_status (*stream_check)(void *ctx, uint64_t stream);
    // Marks the op's start on the stream, which captures nothing.
    sc_status (*op_begin)(void *ctx, uint64_t stream, uint64_t *op);
    // Marks its end. Legal once, and also after a verb in between failed.
    sc_status (*op_end)(void *ctx, uint64_t op);
    // Never disturbs a capture on any thread. Done means that all before it on its stream are done. Where
    // there is ops_look it tells what the last look found, and a poll by the PROGRESS thread makes the
    // device look again.
    sc_status (*op_poll)(void *ctx, uint64_t op, enum sc_op_state *state);
    // Forgets the handle; what is enqueued stays enqueued. Legal in any state after op_end.
    sc_status (*op_release)(void *ctx, uint64_t op);
    // Later work on `stream` waits for the op's end.
    sc_status (*stream_wait)(void *ctx, uint64_t stream, uint64_t op);

    // ---- collectives, enqueued on a stream; sizes in bytes of BF16 elements ----

    // A group turns the verbs in it into one launch. Its depth belongs to the calling thread:
    // every group_begin is followed by exactly one group_end, also after an error inside it, and
    // group_end then returns that error and enqueues nothing.
    sc_status (*group_begin)(void *ctx);
    sc_status (*group_end)(void *ctx);
    sc_status (*send)(void *ctx, uint64_t comm, uint64_t src, uint64_t bytes, uint32_t peer,
                      uint64_t stream);
    sc_status (*recv)(void *ctx, uint64_t comm, uint64_t dst, uint64_t bytes, uint32_t peer,
                      uint64_t stream);
    // In place: buf = sum over ranks, identical bits on every rank.
    sc_status (*all_reduce)(void *ctx, uint64_t comm, uint64_t buf, uint64_t bytes,
                            uint64_t stream);
    sc_status (*broadcast)(void *ctx, uint64_t comm, uint64_t buf, uint64_t bytes, uint32_t root,
                           uint64_t stream);
    // dst holds world × bytes, in rank order; src holds bytes.
    sc_status (*all_gather)(void *ctx, uint64_t comm, uint64_t src, uint64_t dst, uint64_t bytes,
                            uint64_t stream);
    // src holds world × bytes; dst gets this rank's share of the sum, bytes long.
    sc_status (*reduce_scatter)(void *ctx, uint64_t comm, uint64_t src, uint64_t dst,
                                uint64_t bytes, uint64_t stream);
    // dst += src, BF16, by the rules of kernels/bf16.h, if the fence equals `epoch` when it runs;
    // otherwise it does nothing. In a capture `epoch` is the one that the capture belongs to; a world
    // may compare the permit of the replay instead, which is the same.
    sc_status (*add_bf16)(void *ctx, uint64_t dst, uint64_t src, uint64_t bytes, uint64_t epoch,
                          uint64_t stream);

    // The live epoch, or 0 for none, in the device word that kernels compare. Takes effect at once,
    // ahead of everything enqueued.
    sc_status (*fence_set)(void *ctx, uint64_t epoch);

    // ---- streams, captures and replays ----

    sc_status (*stream_create)(void *ctx, uint64_t *stream);
    sc_status (*stream_destroy)(void *ctx, uint64_t stream);

    // Verbs on `stream` are recorded from here to capture_end, and not run. A capture_end that
    // fails has ended the capture too; what it recorded can only be released.
    sc_status (*capture_begin)(void *ctx, uint64_t stream, uint64_t *capture);
    sc_status (*capture_end)(void *ctx, uint64_t capture);
    // The application has destroyed its graph.
    sc_status (*capture_release)(void *ctx, uint64_t capture);
    // How many captures hold the communicator: those not released, and those whose graphs still live.
    sc_status (*captures_held)(void *ctx, uint64_t comm, uint32_t *held);
    // Around one launch of the captured graph by the application: marks the start, puts the permit
    // `epoch` on the stream; then marks the end. The pair is one op, polled and released as such.
    sc_status (*replay_begin)(void *ctx, uint64_t capture, uint64_t stream, uint64_t epoch,
                              uint64_t *op);
    sc_status (*replay_end)(void *ctx, uint64_t op);

    // Looks at the ops in flight. NULL where op_poll does. The driver may keep it waiting: outside the
    // monitor, but any thread, and beside all other verbs.
    void (*ops_look)(void *ctx);
};

// The names of the device verbs, for reports and for making the n-th call of each fail.
// clang-format off
#define SC_DEVICE_VERBS(X)                                                                         \
    X(comm_id) X(comm_create) X(comm_poll) X(comm_error) X(comm_abort) X(comm_abandon)             \
    X(mem_alloc) X(mem_free) X(buf_register) X(buf_deregister)                                     \
    X(stream_check) X(op_begin) X(op_end) X(op_poll) X(op_release) X(stream_wait)                  \
    X(group_begin) X(group_end) X(send) X(recv) X(all_reduce) X(broadcast) X(all_gather)           \
    X(reduce_scatter) X(add_bf16) X(fence_set) X(stream_create) X(stream_destroy)                  \
    X(capture_begin) X(capture_end) X(capture_release) X(captures_held)                            \
    X(replay_begin) X(replay_end)
// clang-format on

enum sc_device_verb {
#define SC_DEVICE_VERB_ENUM(name) SC_VERB_##name,
    SC_DEVICE_VERBS(SC_DEVICE_VERB_ENUM)
#undef SC_DEVICE_VERB_ENUM
        SC_DEVICE_VERB_COUNT
};

#endif
