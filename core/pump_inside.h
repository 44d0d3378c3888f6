// SPDX-License-Identifier: AGPL-3.0-only
//
// The pump's state, shared by its files:
//
//   pump.c        the loop: feed an event, perform the actions, feed what came of them
//   pump_links.c  links: dialling, accepting, buffers, frames in and out
//   pump_comm.c   the communicator of the epoch, registrations, the fence
//   pump_ops.c    ops: submitting, polling
//   pump_launch.c    … composing and enqueueing them, outside the monitor
//   pump_captures.c  captured lists and their replays
//
// Verbs that may wait for the driver are called outside the monitor, between sc_pump_leave and
// sc_pump_enter, by a thread that the façade lets do so alone. Meanwhile others run the pump: what such a
// thread uses it takes along.
#ifndef SC_CORE_PUMP_INSIDE_H
#define SC_CORE_PUMP_INSIDE_H

#include "core/pump.h"
#include "core/registry.h"

#define SC_PUMP_QUEUE 64u // results waiting to be fed; a step's actions yield at most 16
#define SC_PUMP_SLACK 4u  // links being flushed, or replaced by a new one of the same rank

struct sc_pump_link {
    uint64_t handle;     // 0: free
    uint64_t drop_at_ns; // 0: in use; otherwise flushed until then, and closed
    uint32_t received, queued;
    bool ended;
    uint8_t *in, *out; // link_buffer_bytes each
};

struct sc_pump_capture {
    uint64_t handle; // 0: free
    uint64_t epoch;
    uint64_t stream;
    bool open; // between begin and end
    uint32_t count;
    struct sc_op_desc *list; // core.ledger_ops of them
};

// What ops are composed with.
struct sc_pump_means {
    uint64_t comm;
    uint64_t receive;
    uint64_t pair_from_bytes, pair_to_bytes;
};

// What is to be enqueued: set by the call that feeds OP_SUBMIT or REPLAY; its last lines by LAUNCH.
struct sc_pump_launch {
    const struct sc_op_desc *desc;
    const struct sc_op_place *place;
    uint32_t count;  // of a group of sends and recvs
    uint64_t replay; // a capture instead of desc; 0: none
    uint64_t stream;
    uint64_t from;   // the stream it forks from; SC_STREAM_NONE: none
    uint32_t seqs;   // that it takes
    uint64_t number; // 0: LAUNCH has not come
    uint64_t epoch;
};

struct sc_pump {
    struct sc_pump_config config;
    struct sc_core *core;
    const struct sc_device *device;
    char *master_host;

    struct sc_event queue[SC_PUMP_QUEUE];
    uint32_t queue_first, queue_count;
    sc_status listen_status;

    // links
    uint64_t listener;
    uint64_t dialling;
    uint32_t links_count;
    uint32_t links_used; // no link stands at or behind this one
    struct sc_pump_link *links;
    const void *command; // payload of the COMMAND being sent
    uint32_t command_bytes;
    const char *strange; // why what came last on a link not yet greeted was no frame; NULL: it was
    uint64_t refused_bytes; // room that a COMMAND found missing on a link; 0: none is awaited
    uint64_t refused_epoch;

    // communicator
    uint64_t comm; // 0: none
    uint64_t comm_epoch;
    bool comm_told;   // COMM_READY was fed
    bool comm_failed; // COMM_FAILED was fed
    bool comm_aborted;
    bool context_told; // that failure was a lost context, which ends more than an epoch
    bool comm_lives;   // not known to have ended: its memory must stay
    uint32_t abandoned;
    uint64_t pair_from_bytes, pair_to_bytes; // payloads that a pair exchange sums
    struct sc_comm_id id;
    uint64_t receive; // buffer of the pair exchange
    struct sc_registry registry;
    uint64_t fence_wanted;
    bool fence_due;

    // ops
    uint64_t *ops;          // handle by number % ledger_ops; 0: none
    uint64_t newest_number; // last op that used the receive buffer
    uint64_t newest_stream;
    uint64_t mute_number; // op whose polls give no answer, since then
    uint64_t mute_since_ns;
    uint64_t open_replay;   // number between replay_begin and replay_end
    bool outside;           // a thread is
    uint64_t pinned_number; // op whose handle a thread outside uses
    uint64_t pinned_op;     // … to be released when it is back; 0: not yet
    struct sc_pump_launch launch;
    bool hurry; // somebody waits for ops
    uint32_t captures_count;
    uint32_t captures_open; // between begin and end
    uint32_t captures_told; // what the core knows to be held
    uint32_t graphs_told;
    struct sc_pump_capture *captures;
};

// A rank that has failed, or is closed, looks at its device no more.
static inline bool sc_pump_is_watching(const struct sc_pump *p) {
    return sc_core_state(p->core) < SC_STATE_FAILED;
}

static inline uint64_t sc_pump_now(const struct sc_pump *p) {
    return p->config.host->now_ns(p->config.host->ctx);
}

static inline bool sc_pump_is_live(const struct sc_pump *p, uint64_t epoch) {
    return sc_core_state(p->core) == SC_STATE_READY && epoch == p->comm_epoch;
}

static inline uint64_t *sc_pump_op_slot(struct sc_pump *p, uint64_t number) {
    return &p->ops[number % p->config.core.ledger_ops];
}

// Steps the core on `event` (its now_ns is set here), performs, and feeds what came of it.
sc_status sc_pump_feed(struct sc_pump *p, struct sc_event *event);
// The same for a word of the application's: whoever waits for the next run's time must look again.
sc_status sc_pump_feed_word(struct sc_pump *p, struct sc_event *event);
// Out of the monitor and back: false when the process is dead, outside; then nothing here is the
// caller's any more. A pump that only one thread runs has no monitor. A communicator that was aborted
// meanwhile is still there: its end is looked for when the thread is back.
static inline void sc_pump_leave(struct sc_pump *p) {
    p->outside = true;
    if (p->config.leave != NULL)
        p->config.leave(p->config.arg);
}
static inline bool sc_pump_enter(struct sc_pump *p) {
    if (p->config.enter != NULL && p->config.enter(p->config.arg) != SC_OK)
        return false;
    p->outside = false;
    if (p->comm_aborted)
        p->config.host->wake(p->config.host->ctx);
    return true;
}
// Queues a result for after the actions of the present step.
void sc_pump_queue(struct sc_pump *p, const struct sc_event *event);

void sc_pump_notify(struct sc_pump *p, const struct sc_action *notice);

// pump_links.c
sc_status sc_pump_links_open(struct sc_pump *p);
void sc_pump_links_close(struct sc_pump *p);
void sc_pump_links_run(struct sc_pump *p);
uint64_t sc_pump_links_deadline(const struct sc_pump *p);
void sc_pump_listen(struct sc_pump *p);
void sc_pump_dial(struct sc_pump *p, uint32_t attempt);
void sc_pump_drop(struct sc_pump *p, uint64_t link);
void sc_pump_send(struct sc_pump *p, const struct sc_action *action);
bool sc_pump_links_have_room(struct sc_pump *p, uint64_t bytes); // on every rank's

// pump_comm.c
sc_status sc_pump_comm_open(struct sc_pump *p);
void sc_pump_comm_close(struct sc_pump *p);
void sc_pump_comm_run(struct sc_pump *p);
void sc_pump_comm_get_id(struct sc_pump *p);
void sc_pump_comm_create(struct sc_pump *p, uint64_t epoch);
void sc_pump_comm_abort(struct sc_pump *p, uint64_t epoch);
void sc_pump_comm_abandon(struct sc_pump *p);
void sc_pump_register_all(struct sc_pump *p);
void sc_pump_fence(struct sc_pump *p, uint64_t epoch);

// pump_launch.c
// The verdict on a submit: of the core, or of the launch that followed.
sc_status sc_pump_launch_through(struct sc_pump *p, struct sc_event *event, uint64_t *number,
                                 uint64_t *seq);
// As things stand; to be taken along by whoever goes outside.
static inline struct sc_pump_means sc_pump_means(const struct sc_pump *p) {
    return (struct sc_pump_means){p->comm, p->receive, p->pair_from_bytes, p->pair_to_bytes};
}
sc_status sc_pump_compose(const struct sc_pump *p, const struct sc_pump_means *means,
                          const struct sc_op_desc *desc, const struct sc_op_place *place,
                          uint64_t permit);
sc_status sc_pump_compose_group(const struct sc_pump *p, const struct sc_pump_means *means,
                                const struct sc_op_desc *descs, const struct sc_op_place *places,
                                uint32_t count);

// pump_ops.c
void sc_pump_feed_op(struct sc_pump *p, enum sc_event_type type, uint64_t number, sc_status status);
void sc_pump_ops_close(struct sc_pump *p);

// pump_captures.c
struct sc_pump_capture *sc_pump_find_capturing(struct sc_pump *p, uint64_t stream);
static inline struct sc_pump_capture *sc_pump_capturing_on(struct sc_pump *p, uint64_t stream) {
    return p->captures_open != 0 ? sc_pump_find_capturing(p, stream) : NULL;
}
sc_status sc_pump_record(struct sc_pump *p, struct sc_pump_capture *capture, uint64_t epoch,
                         const struct sc_op_desc *descs, const struct sc_op_place *places,
                         uint32_t count);
void sc_pump_tell_captures(struct sc_pump *p);

#endif
