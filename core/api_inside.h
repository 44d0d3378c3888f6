// SPDX-License-Identifier: AGPL-3.0-only
//
// The façade: what stands between any thread of an application and the one-threaded pump.
//
//   api_table.c     handles, and entering and leaving a call
//   api_error.c     what sc_last_error says
//   api_open.c      from a config to a handle, and back
//   api_config.c    defaults, the environment, versions and sizes
//   api_progress.c  the progress step, and what the pump tells
//   api_notes.c     notes for people, on the notifier thread
//   api_health.c    the picture that is read without a lock
//   api_epoch.c     wait_ready, reconnect, join, mark, barrier
//   api_ops.c       ops, groups, tickets
//   api_replay.c    captures and replays
//   api_sync.c      when results count
//   api_command.c   commands
//   api_memory.c    buffers and device memory
//   api_text.c      causes in words
//
// A call enters the host's monitor, speaks to the pump, and leaves; whoever waits in it is notified
// when the pump has told something new. What the pump tells is told inside a call, so that every
// field below is the monitor's, but for those that say otherwise.
#ifndef SC_CORE_API_INSIDE_H
#define SC_CORE_API_INSIDE_H

#include "core/api.h"
#include "core/assert.h"
#include "core/pump.h"
#include "hal/choose.h"

#include <stdatomic.h>

#define SC_API_HANDLES_MAX 64u
#define SC_NOTE_TEXT_BYTES 256u

struct sc_api_note {
    struct sc_note note;
    char text[SC_NOTE_TEXT_BYTES];
};

struct sc_api_ticket {
    uint64_t epoch; // 0: free
    uint64_t number;
    uint32_t generation;
    uint32_t next_free; // 1 + index
};

struct sc_api_memory {
    uint64_t address;
    uint64_t bytes;
    bool freed;        // by the application …
    uint64_t freed_in; // … in this communicator's epoch, which may still know it
    bool kept;         // to the process's end: a communicator that never ended may know it
};

// What was passed stays passed when the epoch is over: a waiter may come to look late.
struct sc_api_barriers {
    uint64_t epoch;
    uint64_t passed;
};

// As many 64-bit words as the report has; see api_health.c.
#define SC_PICTURE_WORDS (sizeof(struct sc_health_report) / sizeof(uint64_t))

struct sc_api {
    sc_comm comm;
    struct sc_world world;
    const struct sc_host *host; // of the world
    struct sc_pump *pump;
    _Atomic uint64_t *live_epoch; // the slot's word

    uint32_t rank, world_size, flags;
    uint64_t capacity_bytes;
    uint64_t heartbeat_ns; // the picture is never older
    uint64_t own_stream;   // of started ops

    uint32_t callers; // inside the monitor, or waiting in it
    bool changed;     // the pump has told something that a waiter may want
    bool state_changed;
    uint32_t hurried; // callers who wait for ops
    bool closing;
    bool closer; // a thread is in sc_close
    bool ended;  // … and about to free everything
    enum sc_state state;
    uint64_t epoch; // the live one; 0: none

    _Atomic uint64_t interrupts; // no lock
    uint64_t interrupts_served;
    uint64_t interrupts_told;

    uint64_t join_timeouts, join_timeouts_served;
    struct sc_action refusals[SC_WORLD_MAX]; // the last of each rank's hellos, until it is greeted
    uint64_t agreed;
    struct sc_api_barriers barriers[2]; // of the newest epoch, and of the one before
    uint64_t barriers_arrived, barriers_called;
    struct sc_call *turn; // the call that may leave the monitor for the driver
    uint32_t turns_wanted;
    const void *replayer; // the thread between replay_begin and replay_end
    uint64_t replay_number;

    struct sc_api_ticket *tickets;                      // tickets_count of them
    uint32_t tickets_count, tickets_used, tickets_free; // free: 1 + index

    struct sc_api_memory *memory;
    uint32_t memory_count, memory_capacity;
    uint64_t memory_bytes;
    bool memory_due;    // something freed can perhaps go back to the device
    uint32_t abandoned; // communicators that memory is kept for

    uint8_t *commands; // received and not yet taken: {uint64_t bytes, data, padding}, in order
    uint32_t commands_head, commands_tail;

    void (*on_note)(void *arg, const struct sc_note *note);
    void *note_arg;
    struct sc_api_note *notes;
    uint32_t notes_max, notes_first, notes_count;
    bool note_delivering;
    uint64_t notes_dropped;

    _Atomic uint64_t picture_version; // odd while it is being written
    _Atomic uint64_t picture[SC_PICTURE_WORDS];
};

// ---- api_table.c -------------------------------------------------------------------------------

// A call under way. Between begin and end it is inside the monitor, unless await said SIM_KILLED.
struct sc_call {
    struct sc_api *api;
    const char *name; // of the function, without sc_
    uint32_t slot;
    bool inside;
    uint64_t interrupts; // as they were served when it began
};

// Finds the handle and enters: SC_OK; or SC_CLOSED, SC_FORKED, SC_SIM_KILLED, and there is nothing to
// end. `word` (or SC_WORD_NONE) is told first.
#define SC_WORD_NONE (-1)
SC_MUST_USE sc_status sc_call_begin(struct sc_call *call, sc_comm comm, const char *name, int word);
// Leaves, having notified whoever waits for what has changed; returns `status`, which sc_last_error
// tells from now on if it is not SC_OK.
sc_status sc_call_end(struct sc_call *call, sc_status status);
// Waits for something to change: SC_OK to look again; SC_TIMEOUT, SC_INTERRUPTED, SC_CLOSED (somebody
// closes the handle), SC_SIM_KILLED.
SC_MUST_USE sc_status sc_call_await(struct sc_call *call, uint64_t deadline_ns);
// The same for something that an op's completion brings: meanwhile the device is polled closely.
SC_MUST_USE sc_status sc_call_await_op(struct sc_call *call, uint64_t deadline_ns);
// Out of the monitor and back: SC_OK or SC_SIM_KILLED.
void sc_call_leave(struct sc_call *call);
SC_MUST_USE sc_status sc_call_enter(struct sc_call *call);
// Has the device look at the ops in flight, outside: SC_OK or SC_SIM_KILLED.
SC_MUST_USE sc_status sc_call_look(struct sc_call *call);
// What is asked of the driver, and of the communicator, is asked outside the monitor, so that heartbeats
// go on and a lost peer is told of though the driver keeps whoever asked; one call at a time. Waits for
// the turn, one in an `epoch` also for another thread's replay to end: SC_OK, SC_EPOCH_LOST where that is
// so anyway, or what sc_call_await says. 0: in no epoch.
SC_MUST_USE sc_status sc_turn_take(struct sc_call *call, uint64_t epoch);
void sc_turn_give(struct sc_call *call);
// now + timeout, or never.
uint64_t sc_call_deadline(const struct sc_call *call, uint64_t timeout_ns);

// Only finds the handle, so that it cannot end: NULL when there is none, with *status set.
struct sc_api *sc_table_hold(sc_comm comm, uint32_t *slot, sc_status *status);
void sc_table_release(uint32_t slot);
// A free slot and its handle; SC_BUSY when all are taken.
SC_MUST_USE sc_status sc_table_take(uint32_t *slot, sc_comm *comm, _Atomic uint64_t **live_epoch);
void sc_table_publish(uint32_t slot, struct sc_api *api);
// Nobody finds the handle any more; returns when nobody holds it but the caller (`holders` times).
void sc_table_withdraw(uint32_t slot, uint32_t holders);
void sc_table_give_back(uint32_t slot); // free for another handle

// ---- api_error.c -------------------------------------------------------------------------------

// What sc_last_error of this thread says: the answer of a call, and what was noted of it just before.
void sc_error_set(const char *call, sc_status status);
// Notes the why of the failure that is about to be answered.
void sc_error_detail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void sc_error_cause(const struct sc_cause *cause);
const void *sc_error_thread(void); // an address that names the calling thread

// ---- api_progress.c ----------------------------------------------------------------------------

uint64_t sc_api_progress(void *arg); // the step of the PROGRESS thread
void sc_api_hooks(struct sc_api *api, struct sc_pump_config *config);
// Inside: publishes and notifies what has changed since the last time.
void sc_api_settle(struct sc_api *api);
// SC_OK when `epoch` lives.
static inline sc_status sc_api_epoch_status(const struct sc_api *api, uint64_t epoch) {
    return epoch != 0 && epoch == api->epoch ? SC_OK : SC_EPOCH_LOST;
}

// ---- api_notes.c -------------------------------------------------------------------------------

void sc_note_push(struct sc_api *api, struct sc_note note, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void sc_note_notice(struct sc_api *api, const struct sc_action *notice);
// Why a hello was refused, in words.
const char *sc_refusal_text(const struct sc_action *refusal, char *text, size_t bytes);
uint64_t sc_api_notify_step(void *arg); // the step of the NOTIFIER thread

// ---- api_ops.c ---------------------------------------------------------------------------------

// Waits for room, the ledger being full: SC_OK to try again, SC_BUSY where the handle was opened so, or
// what sc_call_await says.
SC_MUST_USE sc_status sc_submit_wait(struct sc_call *call);

// ---- the others --------------------------------------------------------------------------------

SC_MUST_USE sc_status sc_config_override(struct sc_config *config, struct sc_api *api, char *why,
                                         size_t why_bytes);
// Adds to why a config was refused what the environment has to do with it.
void sc_config_blame(char *why, size_t why_bytes);
void sc_picture_publish(struct sc_api *api);
void sc_picture_read(struct sc_api *api, struct sc_health_report *out);
void sc_tickets_reset(struct sc_api *api);
void sc_command_received(struct sc_api *api, const void *data, uint32_t bytes);
void sc_memory_sweep(struct sc_api *api); // inside: gives back what nobody can touch any more
void sc_memory_free(struct sc_api *api);  // at the end: all that nobody can touch
void sc_api_free(struct sc_api *api);     // everything; neither monitor nor threads are in use
// What this rank waits for, for people.
void sc_api_explain(struct sc_api *api, char *text, size_t bytes);

#endif
