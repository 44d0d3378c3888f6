// SPDX-License-Identifier: AGPL-3.0-only
//
/// @file
/// spark_comm keeps a small, fixed group of GPU ranks reducing tensors together, and survives the
/// death, restart, freeze and misbehaviour of any of them. This header is the whole contract.
///
/// Nine sentences:
///
/// 1. An epoch is one agreed communicator. Every op, sync, mark and command names the epoch that its
///    caller believes in; in any other it is refused EPOCH_LOST, without effect and without a seq. A
///    caller learns of a new epoch from sc_wait_ready() only.
/// 2. A submit waits for no GPU and no peer. A full ledger is the one exception: it waits, ended by
///    loss; a handle opened with SC_OPEN_BUSY is answered BUSY instead.
/// 3. A refused submit enqueued nothing and took no seq; a submit that fails later than that ends
///    the epoch.
/// 4. Results count only after sc_sync() or sc_test() said OK. A drained stream proves nothing: an
///    aborted collective drains as success.
/// 5. EPOCH_LOST says that the epoch is over, not that its kernels are: its buffers may be touched
///    until sc_wait_ready() returns a later epoch or sc_close() returns OK (after ABORT_STUCK, until
///    the process exits). The contents of in-place buffers are then unspecified.
/// 6. Forming a new epoch is the library's work; what to do again is the application's.
/// 7. Every blocking call has a timeout, ends at once when the epoch is lost, and can be interrupted
///    (sc_interrupt() is async-signal-safe).
/// 8. Callbacks run on a notifier thread with a bounded queue, never on the thread that keeps the
///    heartbeats; what is dropped is counted. An event descriptor tells of state changes.
/// 9. The library installs no signal handler (its threads block all signals), reads no file but the
///    key, and prints nothing by itself.
///
/// Every function may be called from any thread, unless it says otherwise. The order of submits must
/// be the same on all ranks. CUDA's driver keeps whoever calls it while memory is being freed anywhere in
/// the process and the GPU works on: a submit too, but no heartbeat, nor the notice of a loss, which
/// frees it. Pointers to buffers and streams are the device's own: device addresses
/// and CUstream handles on a GPU. Sizes are in bytes, times in nanoseconds of the monotonic clock.
/// What a call was refused for, in words, is sc_last_error() of the calling thread.
#ifndef SPARK_COMM_H
#define SPARK_COMM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SC_API __attribute__((visibility("default")))   ///< what the libraries export
#define SC_MUST_USE __attribute__((warn_unused_result)) ///< an answer that must be looked at

#define SC_ABI_VERSION 1u           ///< raised when a call or a struct changes its meaning
#define SC_WORLD_MAX 64u            ///< ranks in a job
#define SC_KEY_BYTES 32u            ///< of a pre-shared key
#define SC_COMMAND_MAX_BYTES 65536u ///< of one command
#define SC_RANK_NONE UINT32_MAX     ///< no rank in particular
#define SC_FOREVER UINT64_MAX       ///< a timeout that never comes

// ---- answers -----------------------------------------------------------------------------------

/// Every answer the library gives. sc_status_class() tells how to react without knowing each,
/// sc_status_sentence() what it means and what to do.
typedef enum sc_status {
    SC_OK = 0, ///< done

    // Not yet; nothing is wrong.
    SC_INPROGRESS = 1,   ///< not finished yet
    SC_TIMEOUT = 2,      ///< the caller's time ran out; the library goes on trying
    SC_JOIN_TIMEOUT = 3, ///< config.join_ns ran out with ranks missing; the library goes on trying
    SC_BUSY = 4,         ///< too many are in flight
    SC_INTERRUPTED = 5,  ///< sc_interrupt() ended the wait

    // The call was wrong and had no effect.
    SC_INVALID = 6,      ///< an argument is out of range
    SC_ALIGN = 7,        ///< an address is not aligned to its element size
    SC_CAPACITY = 8,     ///< the payload is larger than the capacity given at open
    SC_TOO_LARGE = 9,    ///< a size does not fit the range of a later stage
    SC_CLOSED = 10,      ///< this handle is closed, or never was one
    SC_STATE = 11,       ///< not legal in the present state
    SC_CAPTURE = 12,     ///< this cannot be captured
    SC_FORKED = 13,      ///< the handle belongs to the parent of this forked process
    SC_UNAVAILABLE = 14, ///< this build, or this machine, lacks what was asked for

    // The epoch named is over, or not yet.
    SC_EPOCH_LOST = 15, ///< wait for the next epoch and redo the step

    // Verdicts about a peer; recovery follows by itself.
    SC_PEER_DEAD = 16,    ///< its control link ended
    SC_PEER_SILENT = 17,  ///< no heartbeat within the silence limit
    SC_PEER_BEHIND = 18,  ///< alive, but it has not started the op
    SC_PEER_ABORTED = 19, ///< it gave the epoch up
    SC_LINK_LOST = 20,    ///< its control link was replaced by a new one
    SC_MISMATCH = 21,     ///< ranks submitted different ops under the same number
    SC_FABRIC = 22,       ///< every rank started the op and none finishes it
    SC_PROTOCOL = 23,     ///< a frame broke the protocol
    SC_STALE = 24,        ///< an old hello
    SC_DUP_RANK = 25,     ///< another live process holds this rank
    SC_RECONNECT = 26,    ///< the application asked for a new epoch
    SC_LINK_EOF = 27,     ///< the link has ended
    SC_REFUSED = 28,      ///< nobody accepts connections at this address
    SC_UNREACHABLE = 29,  ///< the address or name cannot be reached or resolved
    SC_KEY = 30,          ///< the peer did not prove the pre-shared key

    // Something on this side failed; an attempt was given up, another follows.
    SC_INIT_TIMEOUT = 31,  ///< the communicator did not form in time
    SC_ASYNC_ERROR = 32,   ///< the communicator reported an asynchronous error
    SC_SUBMIT_FAILED = 33, ///< the device refused part of an op
    SC_COMM_FAILED = 34,   ///< the communicator could not be created
    SC_DEVICE_ERROR = 35,  ///< a device call failed
    SC_NO_MEMORY = 36,     ///< memory, or descriptors, could not be had
    SC_BIND = 37,          ///< the coordinator's address cannot be bound

    // This rank cannot go on: close it, restart the process.
    SC_ABORT_STUCK = 38,  ///< the communicator's abort never returned
    SC_CONTEXT_LOST = 39, ///< the device context is corrupt
    SC_FENCED = 40,       ///< another process took this rank's place while it was away
    SC_CONFIG = 41,       ///< ranks were configured differently
    SC_PEER_LEFT = 42,    ///< a peer left for good
    SC_SIM_KILLED = 43,   ///< simulation only: this rank's process is dead, its thread must return

    SC_STATUS_COUNT ///< one above the last; grows
} sc_status;

/// How to react to an answer.
enum sc_status_class {
    SC_CLASS_DONE = 0,     ///< it happened
    SC_CLASS_WAIT = 1,     ///< not yet; nothing is wrong
    SC_CLASS_CALLER = 2,   ///< the call was wrong and had no effect; mend the call
    SC_CLASS_EPOCH = 3,    ///< the epoch is over; wait for the next one and redo the step
    SC_CLASS_PEER = 4,     ///< a verdict about a peer; recovery follows by itself
    SC_CLASS_LOCAL = 5,    ///< something on this side failed: of an op, or a verdict, it ended the
                           ///< epoch, and another follows; of any other call it did not
    SC_CLASS_TERMINAL = 6, ///< this rank cannot go on; close it and start again
};

/// These answer for any value; an unknown one is named "UNKNOWN" and is TERMINAL.
SC_API const char *sc_status_name(sc_status status);
SC_API const char *sc_status_sentence(sc_status status);       ///< one sentence; static
SC_API enum sc_status_class sc_status_class(sc_status status); ///< see enum sc_status_class

/// Why the last call on this thread that did not answer OK answered so: what, where, with which
/// values, and what to do. Never NULL; valid until this thread's next call.
SC_API const char *sc_last_error(void);

// ---- the library -------------------------------------------------------------------------------

SC_API uint32_t sc_abi(void);        ///< SC_ABI_VERSION of the library that is loaded
SC_API const char *sc_version(void); ///< "major.minor.patch"; static
/// Bytes of a struct of this header in the library that is loaded, by name ("sc_config"); 0 when it
/// knows none of that name. For bindings that check themselves.
SC_API size_t sc_struct_bytes(const char *name);

// ---- words -------------------------------------------------------------------------------------

typedef uint64_t sc_comm;    ///< one rank of one job; never 0. A closed one is answered CLOSED
typedef uint64_t sc_ticket;  ///< a started op that waits to be joined; never 0
typedef uint64_t sc_capture; ///< a captured list of ops; never 0

/// The type of a buffer's elements.
enum sc_dtype {
    SC_BF16 = 1, ///< bfloat16: sums are rounded to nearest even; every NaN result is 0x7FFF
};

/// The states of a rank.
/// @verbatim
///              join            OFFER           GO
///     IDLE ---------> RENDEZVOUS ---> JOINING ---> READY
///                         ^              |           |
///                         |              v           v      evidence, ABORT, reconnect
///                         +---- clean -- ABORTING <--+
///                                           |
///                                           v  stuck, or a terminal cause
///     close, anywhere ---> CLOSED        FAILED
/// @endverbatim
enum sc_state {
    SC_STATE_IDLE = 0,       ///< open; links are made, but it cannot serve yet
    SC_STATE_RENDEZVOUS = 1, ///< clean and waiting to be offered an epoch, or to offer one
    SC_STATE_JOINING = 2,    ///< its communicator is forming
    SC_STATE_READY = 3,      ///< the epoch lives; ops are accepted
    SC_STATE_ABORTING = 4,   ///< the epoch is over; communicator and streams are being cleared
    SC_STATE_FAILED = 5,     ///< terminal, with a cause
    SC_STATE_CLOSED = 6,     ///< closed
    SC_STATE_COUNT           ///< one above the last
};

SC_API const char *sc_state_name(enum sc_state state); ///< "ready"; any value is answered

/// The kinds of ops.
enum sc_op_kind {
    SC_OP_ALL_REDUCE = 0,     ///< sc_all_reduce() and its kin
    SC_OP_BROADCAST = 1,      ///< sc_broadcast()
    SC_OP_ALL_GATHER = 2,     ///< sc_all_gather()
    SC_OP_REDUCE_SCATTER = 3, ///< sc_reduce_scatter()
    SC_OP_SEND = 4,           ///< sc_send()
    SC_OP_RECV = 5,           ///< sc_recv()
    SC_OP_KIND_COUNT          ///< one above the last
};

SC_API const char *sc_op_kind_name(enum sc_op_kind kind); ///< "all_reduce"; any value is answered

/// An op as every rank must describe it alike: this is what ranks compare.
struct sc_op_desc {
    uint32_t kind;  ///< enum sc_op_kind
    uint32_t root;  ///< broadcast: the source rank; send, recv: the peer; otherwise 0
    uint64_t bytes; ///< the whole buffer, or one rank's share (all_gather, reduce_scatter)
};

/// Why an epoch ended, or why this rank FAILED. sc_cause_text() says it in words.
///
/// | code | what else is set |
/// |---|---|
/// | PEER_DEAD, PEER_SILENT, PEER_BEHIND, LINK_LOST | suspect; seq of the oldest op in flight |
/// | MISMATCH | suspect, seq, op[0] the coordinator's, op[1] the suspect's |
/// | FABRIC | seq |
/// | CONFIG | field, value[0] the coordinator's, value[1] the member's |
/// | RECONNECT | value[0] the application's reason |
/// | any other | suspect: the rank where it happened |
struct sc_cause {
    uint32_t code;           ///< sc_status; SC_OK: there is no cause
    uint32_t suspect;        ///< a rank, or SC_RANK_NONE
    uint64_t seq;            ///< of an op; 0: of none
    uint64_t value[2];       ///< see the table
    struct sc_op_desc op[2]; ///< see the table
    uint32_t field;          ///< which part of the configuration differs
    uint32_t reserved;       ///< 0
};

/// The cause in one sentence. Returns `text`, cut to `bytes`, which must be at least 1.
SC_API const char *sc_cause_text(const struct sc_cause *cause, char *text, size_t bytes);

/// How long a recovery took: its first four phases as the coordinator saw them, the others as this
/// rank did.
struct sc_phases {
    uint64_t
        detect_ns; ///< last sign of life, or start of the stuck op, to evidence; 0: told at once
    uint64_t agree_ns;  ///< evidence to every live rank being known to have left the epoch
    uint64_t abort_ns;  ///< evidence to communicator gone and streams clear
    uint64_t wait_ns;   ///< clean to every rank present and able
    uint64_t form_ns;   ///< OFFER to communicator created
    uint64_t warmup_ns; ///< created to READY
};

/// What a rank had done when the last epoch ended.
struct sc_rank_record {
    uint64_t incarnation; ///< differs from before: the process is a new one
    uint64_t ready_epoch; ///< last epoch in which this rank was READY; 0: never
    uint64_t submitted;   ///< seqs within that epoch
    uint64_t completed;   ///< seqs within that epoch
    uint64_t mark;        ///< the application's last mark
    uint32_t
        fresh; ///< 1: a new process since the last record that this application took. Told once:
               ///< act on it, or keep it, before the epoch that came with it can be lost
    uint32_t reserved; ///< 0
};

/// What an application needs to decide which work to do again. All ranks read the same of each rank
/// but for `fresh`: so all can choose the same step without asking each other. Cause and phases are
/// the coordinator's; one that was started anew knows of none, and each member then keeps its own.
struct sc_recovery {
    uint32_t size;  ///< in: sizeof(struct sc_recovery)
    uint32_t world; ///< entries of ranks that count
    uint64_t epoch; ///< the new one
    struct sc_cause
        cause; ///< why the last epoch ended, or the last attempt at one; code SC_OK: neither
    struct sc_phases phases;                   ///< how long it took
    struct sc_rank_record ranks[SC_WORLD_MAX]; ///< by rank
};

// ---- notes -------------------------------------------------------------------------------------

/// What a note tells of.
enum sc_note_kind {
    SC_NOTE_STATE = 0,    ///< from, to: enum sc_state; status, rank: the cause's when one is left
    SC_NOTE_REFUSED = 1,  ///< rank, status: a hello was refused
    SC_NOTE_MISSING = 2,  ///< value: mask of the ranks that are not here after config.join_ns
    SC_NOTE_CAPTURES = 3, ///< value: captures that must be released before recovery goes on
    SC_NOTE_GREETED = 4,  ///< rank: its link is up
    SC_NOTE_BYE = 5,      ///< rank, status: it said that it leaves, and why
    SC_NOTE_BREACH = 6,   ///< rank, status: its link was dropped, for it broke the protocol
    SC_NOTE_OVERRIDE = 7, ///< the environment replaced a tunable
    SC_NOTE_UNKEYED = 8,  ///< links are not keyed, and what that means; once
    SC_NOTE_WARNING = 9,  ///< something in the surroundings that is likely to be a mistake
    SC_NOTE_CAUSE = 10,   ///< status, rank: why the last epoch ended, known only now
    SC_NOTE_ENVIRONMENT = 11, ///< at open: what this rank runs on, or what its surroundings set
};

/// One note. `text` lives for the call, everything else is copied.
struct sc_note {
    uint32_t size;    ///< of this struct in the library that is loaded
    uint32_t kind;    ///< enum sc_note_kind; says which of the following are set
    uint32_t from;    ///< enum sc_state
    uint32_t to;      ///< enum sc_state
    uint32_t rank;    ///< see the kind
    uint32_t status;  ///< sc_status; see the kind
    uint64_t epoch;   ///< of this rank, when it happened; 0: none
    uint64_t value;   ///< see the kind
    uint64_t at_ns;   ///< when it happened
    uint64_t dropped; ///< notes lost so far because the queue was full
    const char *text; ///< one line for people, without a newline
};

// ---- opening -----------------------------------------------------------------------------------

/// Clocks. Rank 0's values rule for all ranks, from the moment it greets them.
struct sc_timing {
    uint64_t heartbeat_ns; ///< a sign of life goes out this often; 100 ms
    uint64_t silence_ns;   ///< a link unheard for this long is dropped; at least 2 heartbeats; 2 s
    uint64_t op_ns;        ///< limit for an op, from the moment every rank has started it; 30 s
    uint64_t behind_ns;    ///< limit for a live peer that has not started it; 0: none; 0
    uint64_t init_ns;      ///< limit for forming a communicator; 60 s
    uint64_t abort_ns; ///< limit for an abort, once nothing waits behind the application's work; at
                       ///< least silence_ns and 2 heartbeats; 5 s
};

#define SC_OPEN_HOLD 1u ///< opened before it can serve: no epoch is offered until sc_join()
#define SC_OPEN_BUSY 2u ///< a full ledger is answered BUSY instead of being waited for

/// What a handle is opened with. sc_config_init() fills in defaults; rank, world, master_host,
/// master_port and capacity_bytes are the caller's to set. Everything is copied by sc_open().
struct sc_config {
    uint32_t size;           ///< set by sc_config_init()
    uint32_t flags;          ///< SC_OPEN_…
    uint32_t rank;           ///< [0, world); rank 0 is the coordinator
    uint32_t world;          ///< 1 to SC_WORLD_MAX; fixed for the life of the job; default 2
    uint64_t job;            ///< tells jobs apart; equal on all ranks; default 0
    uint64_t capacity_bytes; ///< the largest payload; equal on all ranks; sc_payload_capacity()
    const char *master_host; ///< where rank 0 listens and the others dial; unused in a world of 1
    uint32_t master_port;    ///< 1 to 65535
    int32_t device;          ///< index of the GPU; default 0
    const void *key;         ///< SC_KEY_BYTES that all ranks share, or NULL
    const char *key_file; ///< instead of key: a file of 64 hexadecimal digits, for its owner only
    struct sc_timing timing; ///< rank 0's is everybody's
    uint64_t join_ns;        ///< sc_wait_ready() says JOIN_TIMEOUT after this long; 0: never; 0
    uint32_t ledger_ops;     ///< ops in flight, 4 to 65536; default 1024
    uint32_t captures_max;   ///< unreleased captures at a time, 0 to 4096; default 64
    uint32_t notes_max;      ///< notes waiting for on_note, 1 to 65536; default 256
    uint32_t reserved;       ///< 0
    void (*on_note)(void *arg, const struct sc_note *note); ///< may be NULL; on the notifier thread
    void *arg;                                              ///< handed to on_note
};

/// Writes defaults into the first `size` bytes; size is sizeof(struct sc_config).
SC_API void sc_config_init(struct sc_config *config, size_t size);

/// capacity_bytes for batches of max_batch_tokens rows of hidden_size BF16 elements. SC_INVALID when
/// either is 0, SC_TOO_LARGE when the product overflows; *bytes is set on SC_OK only.
SC_API SC_MUST_USE sc_status sc_payload_capacity(uint64_t max_batch_tokens, uint64_t hidden_size,
                                                 uint64_t *bytes);

/// Opens this process's rank: checks the configuration, opens device and key, binds rank 0's
/// address, starts threads, and takes every byte of device memory that recovery will ever need. Local
/// work only, under 2 s; waits for no peer. The tunables may be overridden by the environment:
/// SPARK_COMM_HEARTBEAT_MS, _SILENCE_MS, _OP_MS, _BEHIND_MS, _INIT_MS, _ABORT_MS, _JOIN_MS; each
/// override is told by a note.
///
/// Errors: INVALID, UNAVAILABLE, BIND, UNREACHABLE, NO_MEMORY, DEVICE_ERROR, CONTEXT_LOST, KEY (the
/// key file cannot be used), BUSY (64 handles are open). Then nothing is left behind.
SC_API SC_MUST_USE sc_status sc_open(const struct sc_config *config, sc_comm *comm);

/// Says that this rank can serve, after SC_OPEN_HOLD. Harmless otherwise. CLOSED, FORKED.
SC_API SC_MUST_USE sc_status sc_join(sc_comm comm);

/// Waits until this rank is READY. OK: *recovery is set, and its epoch may be used. TIMEOUT and
/// JOIN_TIMEOUT (once each time it comes) are answers, not states: the library goes on trying, and
/// sc_last_error() says what it waits for. A terminal status means FAILED: close the handle. Also
/// INTERRUPTED, INVALID, CLOSED, FORKED.
SC_API SC_MUST_USE sc_status sc_wait_ready(sc_comm comm, uint64_t timeout_ns,
                                           struct sc_recovery *recovery);

/// The address of a word that holds the live epoch, 0 when there is none: one load a layer. It is
/// zeroed before any kernel of the epoch can be released. It is written atomically: read it so where
/// races are looked for. May be read for ever; after sc_close() it means nothing.
SC_API const volatile uint64_t *sc_live_epoch(sc_comm comm);

/// Gives the epoch up on every rank; for any other epoch it does nothing, so that eight threads cause
/// one recovery. `reason` is the application's own number; peers see it in their cause. Waits for
/// nobody. OK, CLOSED, FORKED.
SC_API SC_MUST_USE sc_status sc_reconnect(sc_comm comm, uint64_t epoch, uint32_t reason);

/// Ends every call that waits on this handle with INTERRUPTED, or if none does the next that would
/// wait; sc_close() only if it waits already. Async-signal-safe.
SC_API void sc_interrupt(sc_comm comm);

/// How a handle is closed.
enum sc_close_how {
    SC_CLOSE_FINAL = 0,     ///< for good: peers fail with PEER_LEFT
    SC_CLOSE_RETURNING = 1, ///< this rank will be opened again: peers wait for it
};

/// Closes the handle and frees all that is the library's, memory of sc_mem_alloc() included. TIMEOUT
/// and INTERRUPTED: not yet; call it again. ABORT_STUCK: closed, but what the communicator may still
/// touch stays until the process exits. A second close is answered CLOSED. Captures must have been
/// released. Never call it from on_note.
SC_API SC_MUST_USE sc_status sc_close(sc_comm comm, enum sc_close_how how, uint64_t timeout_ns);

// ---- memory ------------------------------------------------------------------------------------

/// Remembers a buffer and registers it with every communicator, the present one included; deregister
/// forgets it. Never required; it may make ops faster. INVALID, NO_MEMORY (256 buffers), CLOSED,
/// FORKED; INTERRUPTED while another call is in the driver: without effect.
SC_API SC_MUST_USE sc_status sc_buffer_register(sc_comm comm, void *buffer, uint64_t bytes);
/// See sc_buffer_register(). INVALID: no buffer that begins here was registered. INTERRUPTED likewise.
SC_API SC_MUST_USE sc_status sc_buffer_deregister(sc_comm comm, void *buffer);

/// Device memory of the kind that the communicator likes best, at least 16-byte aligned. Free it with
/// sc_mem_free(), or leave it to sc_close().
SC_API SC_MUST_USE sc_status sc_mem_alloc(sc_comm comm, uint64_t bytes, void **buffer);
/// Gives memory back, once no communicator can touch it any more: what is used in a live epoch goes
/// back when that epoch's communicator has ended. INTERRUPTED as with sc_buffer_register().
SC_API SC_MUST_USE sc_status sc_mem_free(sc_comm comm, void *buffer);

// ---- ops: enqueued on a stream -----------------------------------------------------------------
//
// Errors of each: EPOCH_LOST; INVALID, ALIGN, CAPACITY, TOO_LARGE, CAPTURE, BUSY (SC_OPEN_BUSY),
// INTERRUPTED, CLOSED, FORKED had no effect; any other ended the epoch. Zero bytes is OK: it takes a
// seq and launches nothing. Buffers are the caller's and must stay until the results count or the
// epoch's kernels are known to be over (sentence 5).

/// In place: buffer = sum over ranks, with identical bits on every rank. In a world of 1 nothing is
/// touched.
SC_API SC_MUST_USE sc_status sc_all_reduce(sc_comm comm, uint64_t epoch, void *buffer,
                                           uint64_t bytes, enum sc_dtype dtype, void *stream);

/// Forks an all_reduce from `stream` to the library's own stream: it begins when what is enqueued on
/// `stream` so far is done, and what comes later on `stream` does not wait for it. BUSY also when
/// config.ledger_ops tickets are unjoined.
SC_API SC_MUST_USE sc_status sc_all_reduce_start(sc_comm comm, uint64_t epoch, void *buffer,
                                                 uint64_t bytes, enum sc_dtype dtype, void *stream,
                                                 sc_ticket *ticket);
/// Makes what comes later on `stream` wait for a started all_reduce. The ticket is consumed whatever
/// this returns, but for INTERRUPTED; after a loss it enqueues nothing and says EPOCH_LOST.
SC_API SC_MUST_USE sc_status sc_all_reduce_join(sc_comm comm, uint64_t epoch, sc_ticket ticket,
                                                void *stream);
/// Start and join in one: on the library's own stream, and `stream` waits for it.
SC_API SC_MUST_USE sc_status sc_all_reduce_async(sc_comm comm, uint64_t epoch, void *buffer,
                                                 uint64_t bytes, enum sc_dtype dtype, void *stream);

/// In place, from `root` to all.
SC_API SC_MUST_USE sc_status sc_broadcast(sc_comm comm, uint64_t epoch, void *buffer,
                                          uint64_t bytes, uint32_t root, void *stream);
/// dst holds world × bytes, in order of rank; src holds this rank's `bytes`.
SC_API SC_MUST_USE sc_status sc_all_gather(sc_comm comm, uint64_t epoch, const void *src, void *dst,
                                           uint64_t bytes, void *stream);
/// src holds world × bytes; dst gets this rank's share of the sum, `bytes` long.
SC_API SC_MUST_USE sc_status sc_reduce_scatter(sc_comm comm, uint64_t epoch, const void *src,
                                               void *dst, uint64_t bytes, enum sc_dtype dtype,
                                               void *stream);
/// To `peer`, which must call sc_recv() with the same bytes. Takes no seq.
SC_API SC_MUST_USE sc_status sc_send(sc_comm comm, uint64_t epoch, const void *src, uint64_t bytes,
                                     uint32_t peer, void *stream);
/// From `peer`, which must call sc_send() with the same bytes. Takes no seq.
SC_API SC_MUST_USE sc_status sc_recv(sc_comm comm, uint64_t epoch, void *dst, uint64_t bytes,
                                     uint32_t peer, void *stream);

/// From here to sc_group_end() the sends and recvs of this thread, all on one stream, are collected
/// and become one launch, so that ranks may exchange in both directions. Up to 128 of them. Collectives
/// in between are refused INVALID. A group is of the calling thread; a second begin is INVALID.
SC_API SC_MUST_USE sc_status sc_group_begin(sc_comm comm, uint64_t epoch);
/// Ends the group, also after a send or recv in it was refused, which it then returns, and enqueues
/// nothing.
SC_API SC_MUST_USE sc_status sc_group_end(sc_comm comm);

// ---- when results count ------------------------------------------------------------------------

/// What sc_sync() waits for.
enum sc_sync_how {
    SC_SYNC_LOCAL = 0,  ///< everything submitted on the stream so far has completed in this epoch
    SC_SYNC_AGREED = 1, ///< also: every rank has submitted the same collectives up to here
};

/// Waits until the results of what was submitted on `stream` before the call count. AGREED costs one
/// control round trip and covers the collectives of all streams. TIMEOUT and INTERRUPTED change
/// nothing. EPOCH_LOST: they never will; sc_last_error() says the cause. Also INVALID, CLOSED, FORKED.
SC_API SC_MUST_USE sc_status sc_sync(sc_comm comm, uint64_t epoch, void *stream,
                                     enum sc_sync_how how, uint64_t timeout_ns);
/// SC_SYNC_LOCAL without waiting: OK, INPROGRESS, EPOCH_LOST, CLOSED, FORKED.
SC_API SC_MUST_USE sc_status sc_test(sc_comm comm, uint64_t epoch, void *stream);

// ---- captured ops ------------------------------------------------------------------------------
//
// A replayed graph is N ops without N calls, so it is announced. Order on a GPU: begin the stream's
// capture, sc_capture_begin(), ops, sc_capture_end(), end the stream's capture, instantiate. Then for
// each launch: sc_replay_begin(), launch, sc_replay_end(). A capture belongs to its epoch: after a
// loss, destroy the graph and release the capture; recovery waits for that, untimed and visibly.

/// Ops on `stream` are recorded from here to sc_capture_end(), and take no seq. A capture that fails
/// ends no epoch: end it, release it and go on. EPOCH_LOST, CAPTURE (this stream is capturing
/// already), BUSY (config.captures_max), CLOSED, FORKED, or the device's error.
SC_API SC_MUST_USE sc_status sc_capture_begin(sc_comm comm, uint64_t epoch, void *stream,
                                              sc_capture *capture);
/// INVALID when it is not open; otherwise the device's answer. It has ended either way.
SC_API SC_MUST_USE sc_status sc_capture_end(sc_comm comm, sc_capture capture);
/// The application has destroyed the graph and all that was made of it. INVALID when the capture is
/// open or none.
SC_API SC_MUST_USE sc_status sc_capture_release(sc_comm comm, sc_capture capture);
/// Announces one launch of the captured ops on `stream`: takes their seqs. Other threads' submits
/// wait until sc_replay_end(), which the same thread must call whatever became of the launch. If the
/// launch failed, call sc_reconnect() too.
SC_API SC_MUST_USE sc_status sc_replay_begin(sc_comm comm, uint64_t epoch, sc_capture capture,
                                             void *stream);
/// Ends the announcement. INVALID when this thread has begun none.
SC_API SC_MUST_USE sc_status sc_replay_end(sc_comm comm);

// ---- between the hosts -------------------------------------------------------------------------

/// Waits until every rank has called it as often in this epoch. Host-level; it says nothing of streams
/// and takes no seq. After TIMEOUT or INTERRUPTED the arrival stands: the next call waits for the same
/// barrier. EPOCH_LOST, CLOSED, FORKED.
SC_API SC_MUST_USE sc_status sc_barrier(sc_comm comm, uint64_t epoch, uint64_t timeout_ns);

/// From rank 0 to every other rank, over the control links, in order: 0 to SC_COMMAND_MAX_BYTES bytes.
/// Waits while some rank's queue is full. Commands that were not received are dropped when the epoch
/// ends. TIMEOUT and INTERRUPTED: nothing was sent. INVALID (not rank 0, too long), EPOCH_LOST, CLOSED,
/// FORKED.
SC_API SC_MUST_USE sc_status sc_command_send(sc_comm comm, uint64_t epoch, const void *data,
                                             uint32_t bytes, uint64_t timeout_ns);
/// Takes the next command of this epoch; *bytes tells its length. It may wait for hours: nothing
/// spins and no op's clock runs. TOO_LARGE: it does not fit `capacity` bytes, *bytes tells its length
/// and it stays. TIMEOUT, INTERRUPTED, INVALID (on rank 0), EPOCH_LOST, CLOSED, FORKED.
SC_API SC_MUST_USE sc_status sc_command_recv(sc_comm comm, uint64_t epoch, void *data,
                                             uint32_t capacity, uint32_t *bytes,
                                             uint64_t timeout_ns);

/// The application's committed step. It travels with every sign of life, and the recovery record tells
/// it. EPOCH_LOST, CLOSED, FORKED.
SC_API SC_MUST_USE sc_status sc_mark(sc_comm comm, uint64_t epoch, uint64_t mark);

// ---- how it is ---------------------------------------------------------------------------------

/// What is known of another rank. A member knows of rank 0 only.
struct sc_peer_health {
    uint64_t heard_ns;    ///< last sign of life, as a time; 0: there is no link
    uint64_t incarnation; ///< of its process
    uint64_t submitted;   ///< seqs of the live epoch, as it last said
    uint64_t completed;   ///< seqs of the live epoch, as it last said
    uint64_t mark;        ///< as it last said
    uint32_t state;       ///< enum sc_state, as it last said
    uint32_t loading;     ///< 1: open, but it cannot serve yet
};

/// A picture of this rank.
struct sc_health_report {
    uint32_t size;           ///< in: sizeof(struct sc_health_report)
    uint32_t state;          ///< enum sc_state
    uint64_t now_ns;         ///< when the picture was taken
    uint64_t epoch;          ///< the live one, or the one being joined or left; 0: none
    uint64_t recoveries;     ///< epochs lost and replaced
    uint64_t incarnation;    ///< of this process
    uint64_t submitted;      ///< seqs of the epoch
    uint64_t completed;      ///< seqs of the epoch
    uint64_t mark;           ///< the application's last
    uint64_t device_bytes;   ///< device memory that the library holds, sc_mem_alloc() included
    uint64_t notes_dropped;  ///< notes that found the queue full
    uint64_t captures;       ///< captures that recovery waits for
    uint32_t draining;       ///< 1: ABORTING, and ops still wait behind the application's own work
    uint32_t world;          ///< entries of peers that count
    struct sc_cause cause;   ///< why the last epoch ended, or why it FAILED
    struct sc_phases phases; ///< of the last recovery
    struct sc_peer_health peers[SC_WORLD_MAX]; ///< the own entry is all zero
};

/// A picture at most a heartbeat old, and renewed at every change of state. Takes no lock, calls no
/// GPU, waits for nobody: under a microsecond, whatever other threads do. INVALID, CLOSED, FORKED.
SC_API SC_MUST_USE sc_status sc_health(sc_comm comm, struct sc_health_report *out);

/// A descriptor that becomes readable at each change of state; read eight bytes to wait for the next.
/// The library's: do not close it; it ends with sc_close(). UNAVAILABLE in virtual time.
SC_API SC_MUST_USE sc_status sc_event_fd(sc_comm comm, int *fd);

#ifdef __cplusplus
}
#endif

#endif
