// SPDX-License-Identifier: AGPL-3.0-only
//
// Inside the simulated GPU: streams of items, captures, and communicators.
//
// A clique is what ranks form together; a comm is one rank's part in it. An exchange is what one
// rank enqueues in one group: it stands in its streams like any other item, and passes when each of
// its parts has met its counterpart on the other ranks, or when its comm is given up.
#ifndef SC_SIM_GPU_H
#define SC_SIM_GPU_H

#include "hal_sim/sim.h"

// ---- streams ----------------------------------------------------------------------------------

enum sc_sim_item_kind {
    SC_SIM_ITEM_KERNEL,
    SC_SIM_ITEM_OP_START,
    SC_SIM_ITEM_OP_END,
    SC_SIM_ITEM_OP_WAIT,
    SC_SIM_ITEM_EXCHANGE,
    SC_SIM_ITEM_ADD,
    SC_SIM_ITEM_PERMIT,
};

struct sc_sim_item {
    enum sc_sim_item_kind kind;
    bool captured; // an add that compares the permit of its replay
    union {
        struct {
            uint64_t duration_ns;
            void (*fn)(void *arg);
            void *arg;
        } kernel;
        struct sc_sim_op *op; // holds a reference
        struct sc_sim_exchange *exchange;
        struct {
            uint32_t first; // in a capture an exchange is its parts
            uint32_t count;
        } parts;
        struct {
            uint64_t dst;
            uint64_t src;
            uint64_t bytes;
            uint64_t epoch;
        } add;
        uint64_t permit;
    };
};

struct sc_sim_stream {
    struct sc_sim_object object;
    struct sc_sim_item *items; // a ring
    uint32_t capacity;         // a power of two
    uint32_t first;
    uint32_t count;
    bool begun;     // the first item is under way
    bool delayed;   // its rank is late: the first item waits
    bool running;   // the loop over its items is on the stack
    bool destroyed; // goes when its last item has passed
    uint64_t permit;
    uint64_t capture;                  // the capture that records it, or 0
    struct sc_sim_stream *next_waiter; // behind it among those that wait for the same op
};

struct sc_sim_op {
    struct sc_sim_object object; // retired once released
    uint64_t stream;
    uint32_t references; // the handle's, and one for each item
    bool ended;          // op_end was called
    bool failed;         // … and could not mark the end
    bool started;
    bool done;
    bool visible; // its host may know that it is done
    bool replay;
    struct sc_sim_stream *waiters;
};

// ---- exchanges --------------------------------------------------------------------------------

enum sc_sim_part_state {
    SC_SIM_PART_WAITING,
    SC_SIM_PART_MATCHED,
    SC_SIM_PART_MOVED, // its data is where it belongs, and its mates know
};

struct sc_sim_part {
    enum sc_op_kind kind;
    enum sc_sim_part_state state;
    uint32_t peer; // send, recv: the other rank; broadcast: the root
    uint64_t
        index; // in the order of its comm's collectives, or of its sends to or receives from peer
    uint64_t src;
    uint64_t dst;
    uint64_t bytes;
    uint64_t comm; // these two until it is enqueued
    uint64_t stream;
    struct sc_sim_exchange *exchange;
    struct sc_sim_part *mate; // the other end; of a collective, the next in the ring of all ranks
};

struct sc_sim_exchange {
    struct sc_sim_object object;
    struct sc_sim_comm *comm; // NULL: gone before this was launched
    struct sc_sim_part *parts;
    uint32_t count;
    uint32_t capacity;
    uint32_t unmatched;
    struct sc_sim_stream **streams;
    uint32_t stream_count;
    uint32_t stream_capacity;
    uint32_t reached; // by that many of its streams
    bool arrived;     // by all: it stands in its clique's list
    bool stuck;       // never completes, nor do those that match it
    bool starved;     // never completes: a mate has gone, or sent too little
    bool completing;
    struct sc_sim_exchange *before;
    struct sc_sim_exchange *after;
};

struct sc_sim_capture {
    struct sc_sim_object object;
    uint64_t stream;
    bool ended;
    struct sc_sim_item *items;
    uint32_t count;
    uint32_t capacity;
    struct sc_sim_part *parts;
    uint32_t part_count;
    uint32_t part_capacity;
    uint64_t *comms; // those it holds
    uint32_t comm_count;
    uint32_t comm_capacity;
};

// ---- communicators ----------------------------------------------------------------------------

// From comm_id on; kept for ever, so that an id used twice is noticed.
struct sc_sim_clique {
    struct sc_sim_object object;
    struct sc_comm_id id;
    uint32_t world;      // 0 until the first rank comes
    uint32_t used_ranks; // a mask
    bool formed;
    bool hung;        // a rank that has not become ready is lost: nobody else becomes ready
    bool initialized; // all ranks are there, and the time of init is over
    struct sc_sim_comm *members[SC_SIM_RANKS_MAX];
    struct sc_sim_exchange *first; // those that have arrived
    struct sc_sim_exchange *last;
};

struct sc_sim_comm {
    struct sc_sim_object object;
    struct sc_sim_clique *clique;
    uint32_t rank;
    enum sc_comm_state state;
    sc_status error;
    uint64_t formed_ns;
    bool warm;          // its own warm-up is over
    bool orphan;        // given up before it was ready
    bool aborting;      // … by a comm_abort that took effect
    bool abort_called;  // comm_abort was called, and may have failed
    bool queued;        // … with a group open: it has not begun
    bool draining;      // its exchanges pass
    bool stuck;         // the abort does not return
    bool abandoned;     // comm_abandon was called
    uint32_t exchanges; // enqueued and not passed
    uint32_t captures;  // that hold it
    uint64_t collectives;
    uint64_t sends[SC_SIM_RANKS_MAX];
    uint64_t receives[SC_SIM_RANKS_MAX];
};

struct sc_sim_registration {
    struct sc_sim_object object;
    uint64_t comm;
    uint64_t address;
};

// ---- sim_device.c -----------------------------------------------------------------------------

extern const struct sc_device sc_sim_device_table;

// What every device verb does first: the answer of a dead process, of a lost context, or of a fault
// that waits for this call; SC_OK when the verb may go on.
SC_MUST_USE sc_status sc_sim_enter(struct sc_sim_process *process, enum sc_device_verb verb);
const char *sc_sim_verb_name(enum sc_device_verb verb);
void sc_sim_gpu_kill(struct sc_sim_process *process);
void sc_sim_gpu_resume(struct sc_sim_process *process);
void sc_sim_gpu_lose_context(struct sc_sim_process *process);
void sc_sim_gpu_free(struct sc_sim *sim);

// ---- sim_memory.c -----------------------------------------------------------------------------

sc_status sc_sim_verb_mem_alloc(void *ctx, uint64_t bytes, uint64_t *address);
sc_status sc_sim_verb_mem_free(void *ctx, uint64_t address);
sc_status sc_sim_verb_buf_register(void *ctx, uint64_t comm, uint64_t address, uint64_t bytes,
                                   uint64_t *registration);
sc_status sc_sim_verb_buf_deregister(void *ctx, uint64_t comm, uint64_t registration);
// Checks at the call that a verb may touch this range, and remembers for which comm (0: for none).
SC_MUST_USE sc_status sc_sim_memory_use(struct sc_sim_process *process, const char *verb,
                                        uint64_t address, uint64_t bytes, uint64_t comm);
// The bytes of a range as the device touches them; NULL, and a breach, if they are freed by now.
unsigned char *sc_sim_memory_touch(struct sc_sim_process *process, uint64_t address,
                                   uint64_t bytes);
void sc_sim_memory_garble(struct sc_sim_process *process, uint64_t address, uint64_t bytes);
// Its allocations end, but their bytes stay: a thread of the process may be in the middle of writing there
// when another kills it.
void sc_sim_memory_kill(struct sc_sim_process *process);
void sc_sim_memory_reap(struct sc_sim_process *process); // … until nothing of it is left
void sc_sim_registrations_end(struct sc_sim *sim, uint64_t comm);

// ---- sim_stream.c -----------------------------------------------------------------------------

sc_status sc_sim_verb_stream_create(void *ctx, uint64_t *stream);
sc_status sc_sim_verb_stream_destroy(void *ctx, uint64_t stream);
sc_status sc_sim_verb_add_bf16(void *ctx, uint64_t dst, uint64_t src, uint64_t bytes,
                               uint64_t epoch, uint64_t stream);
sc_status sc_sim_verb_fence_set(void *ctx, uint64_t epoch);
// The stream behind a handle; NULL, and a breach, if there is none.
struct sc_sim_stream *sc_sim_stream_of(struct sc_sim_process *process, const char *verb,
                                       uint64_t handle);
void sc_sim_stream_push(struct sc_sim_stream *stream, const struct sc_sim_item *item);
// Goes on with the stream's items until one takes time. Harmless at any moment.
void sc_sim_stream_run(struct sc_sim_stream *stream);
// The first item, an exchange, has passed.
void sc_sim_stream_pass(struct sc_sim_stream *stream);

// ---- sim_op.c ---------------------------------------------------------------------------------

sc_status sc_sim_verb_op_begin(void *ctx, uint64_t stream, uint64_t *op);
sc_status sc_sim_verb_op_end(void *ctx, uint64_t op);
sc_status sc_sim_verb_op_poll(void *ctx, uint64_t op, enum sc_op_state *state);
sc_status sc_sim_verb_op_release(void *ctx, uint64_t op);
sc_status sc_sim_verb_stream_check(void *ctx, uint64_t stream);
sc_status sc_sim_verb_stream_wait(void *ctx, uint64_t stream, uint64_t op);
sc_status sc_sim_verb_replay_begin(void *ctx, uint64_t capture, uint64_t stream, uint64_t epoch,
                                   uint64_t *op);
sc_status sc_sim_verb_replay_end(void *ctx, uint64_t op);
void sc_sim_op_started(struct sc_sim_op *op);
void sc_sim_op_done(struct sc_sim_op *op);
void sc_sim_op_drop(struct sc_sim *sim, struct sc_sim_op *op); // one reference less

// ---- sim_capture.c ----------------------------------------------------------------------------

sc_status sc_sim_verb_capture_begin(void *ctx, uint64_t stream, uint64_t *capture);
sc_status sc_sim_verb_capture_end(void *ctx, uint64_t capture);
sc_status sc_sim_verb_capture_release(void *ctx, uint64_t capture);
sc_status sc_sim_verb_captures_held(void *ctx, uint64_t comm, uint32_t *held);
// The capture behind a handle; NULL, and a breach, if there is none.
struct sc_sim_capture *sc_sim_capture_of(struct sc_sim_process *process, const char *verb,
                                         uint64_t handle);
// Puts an item on the stream, or into the capture that records it.
void sc_sim_enqueue(struct sc_sim_stream *stream, const struct sc_sim_item *item);
// Records parts as one exchange.
void sc_sim_capture_exchange(struct sc_sim_capture *capture, const struct sc_sim_part *parts,
                             uint32_t count);

// ---- sim_group.c ------------------------------------------------------------------------------

sc_status sc_sim_verb_group_begin(void *ctx);
sc_status sc_sim_verb_group_end(void *ctx);
sc_status sc_sim_verb_send(void *ctx, uint64_t comm, uint64_t src, uint64_t bytes, uint32_t peer,
                           uint64_t stream);
sc_status sc_sim_verb_recv(void *ctx, uint64_t comm, uint64_t dst, uint64_t bytes, uint32_t peer,
                           uint64_t stream);
sc_status sc_sim_verb_all_reduce(void *ctx, uint64_t comm, uint64_t buf, uint64_t bytes,
                                 uint64_t stream);
sc_status sc_sim_verb_broadcast(void *ctx, uint64_t comm, uint64_t buf, uint64_t bytes,
                                uint32_t root, uint64_t stream);
sc_status sc_sim_verb_all_gather(void *ctx, uint64_t comm, uint64_t src, uint64_t dst,
                                 uint64_t bytes, uint64_t stream);
sc_status sc_sim_verb_reduce_scatter(void *ctx, uint64_t comm, uint64_t src, uint64_t dst,
                                     uint64_t bytes, uint64_t stream);

// ---- sim_exchange.c ---------------------------------------------------------------------------

// Puts parts, all of one comm (NULL: gone), as one exchange on their streams.
void sc_sim_exchange_launch(struct sc_sim_process *process, struct sc_sim_comm *comm,
                            const struct sc_sim_part *parts, uint32_t count);
// One of its streams has come to it.
void sc_sim_exchange_reach(struct sc_sim_exchange *exchange);
// Passes it at once, with undefined data.
void sc_sim_exchange_drain(struct sc_sim_exchange *exchange);
// Drains all of a comm's that have arrived.
void sc_sim_exchange_drain_all(struct sc_sim_comm *comm);
// Those of a comm in error spin for ever.
void sc_sim_exchange_stick_all(struct sc_sim_comm *comm);
// Takes it out of its clique's list and away from its mates, and gives it back.
void sc_sim_exchange_vanish(struct sc_sim_exchange *exchange);
// All its parts are matched: it completes after the latency of an op.
void sc_sim_exchange_complete_soon(struct sc_sim_exchange *exchange);

// ---- sim_match.c ------------------------------------------------------------------------------

// Looks for counterparts among those that have arrived, now that this one has too.
void sc_sim_match(struct sc_sim_exchange *exchange);
// Its rank is lost in mid-exchange: some mates had their data by then, the others spin.
void sc_sim_match_break(struct sc_sim_exchange *exchange);

// ---- sim_move.c -------------------------------------------------------------------------------

// Moves the data of a matched part, on all ranks that it is matched with, and parts the mates.
void sc_sim_move(struct sc_sim_part *part);
// Makes visible that its data is undefined.
void sc_sim_move_garbage(struct sc_sim_part *part);

// ---- sim_comm.c -------------------------------------------------------------------------------

sc_status sc_sim_verb_comm_id(void *ctx, struct sc_comm_id *id);
sc_status sc_sim_verb_comm_create(void *ctx, const struct sc_comm_spec *spec, uint64_t *comm);
sc_status sc_sim_verb_comm_poll(void *ctx, uint64_t comm, struct sc_comm_report *report);
sc_status sc_sim_verb_comm_error(void *ctx, uint64_t comm);
// The comm behind a handle, whatever its state; NULL if there is none or it was abandoned.
struct sc_sim_comm *sc_sim_comm_find(struct sc_sim_process *process, uint64_t handle);
// The same for verbs that need a ready one; NULL, and a breach, if it is not.
struct sc_sim_comm *sc_sim_comm_ready(struct sc_sim_process *process, const char *verb,
                                      uint64_t handle);
void sc_sim_comm_fail(struct sc_sim_comm *comm, sc_status error);
// Its rank is lost to the others: by death, by a lost context, or while it was forming.
void sc_sim_comm_lost(struct sc_sim_comm *comm);
// A stopped process goes on: what waited for it does too.
void sc_sim_clique_thawed(struct sc_sim *sim, struct sc_sim_clique *clique);
void sc_sim_comm_put(struct sc_sim_comm *comm);

// ---- sim_abort.c ------------------------------------------------------------------------------

sc_status sc_sim_verb_comm_abort(void *ctx, uint64_t comm);
sc_status sc_sim_verb_comm_abandon(void *ctx, uint64_t comm);
// The group of this process was closed: aborts that were only queued begin.
void sc_sim_abort_begin_queued(struct sc_sim_process *process);
// Lets the abort return if nothing keeps it any more.
void sc_sim_abort_settle(struct sc_sim_comm *comm);
// The same for the other ranks, which may have waited for this one.
void sc_sim_abort_settle_peers(struct sc_sim_comm *comm);

#endif
