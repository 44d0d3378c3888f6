// SPDX-License-Identifier: AGPL-3.0-only
//
// The pump turns the core's actions into calls through the seam, and their results into events:
//
//     submit -> step -> action -> HAL -> event -> step
//
// It owns the core's memory, the links' buffers, the receive buffer and every handle of the seam.
// Everything is allocated at open; afterwards only a capture's list is written into its own slot.
// One thread at a time; callbacks run inside a call and must not call back.
#ifndef SC_CORE_PUMP_H
#define SC_CORE_PUMP_H

#include "core/core.h"
#include "hal/hal.h"

struct sc_pump;

// Kept free behind a COMMAND in a link's buffer for all that must not wait: heartbeats of a peer
// that reads nothing for a while, and an ABORT.
#define SC_LINK_RESERVE_BYTES 4096u

struct sc_pump_config {
    struct sc_core_config core;
    const char *master_host;    // where rank 0 listens and members dial; copied. A world of one …
    uint16_t master_port;       // … needs neither
    uint32_t captures_max;      // unreleased captures at a time
    uint32_t link_buffer_bytes; // each way, each link; bounds OFFER, and with a reserve COMMAND
    const struct sc_host *host; // the three outlive the pump
    const struct sc_link *link;
    const struct sc_device *device;

    // State changes and notices, as NOTIFY actions; see enum sc_notice.
    void (*on_notice)(void *arg, const struct sc_action *notice);
    // The op's result counts.
    void (*on_complete)(void *arg, uint64_t epoch, uint64_t number, uint64_t seq);
    // The results of these ops never count.
    void (*on_lost)(void *arg, uint64_t epoch, uint64_t first, uint64_t last);
    // A command from rank 0; `data` lives for the call. Those not yet told to be taken never cost
    // more than SC_COMMAND_WINDOW_BYTES together, by sc_command_cost(). `rank` is 0.
    void (*on_command)(void *arg, uint32_t rank, uint64_t epoch, const void *data, uint32_t bytes);
    // A monitor around all calls on the pump, NULL where only one thread makes them. submit and start,
    // join_op, submit_group, replay_begin, register and deregister leave it while the driver may
    // keep them waiting, and enter it again: SC_OK, or SC_SIM_KILLED outside, which the call then
    // answers. Others may call meanwhile, but none of these.
    void (*leave)(void *arg);
    sc_status (*enter)(void *arg);
    void *arg;
};

// Defaults for everything but core.rank, .world, .job, .capacity_bytes, master and tables. Callbacks
// may stay NULL.
void sc_pump_config_init(struct sc_pump_config *config);

// Checks the config, allocates, binds rank 0's address if there are members, and begins to make links; waits for nobody.
// On failure nothing is left behind and `why` says what went wrong, with the value.
SC_MUST_USE sc_status sc_pump_open(const struct sc_pump_config *config, struct sc_pump **out,
                                   char *why, size_t why_bytes);

// Does everything that is due: polls ops and communicator, reads links until they are empty, then
// judges deadlines. Returns when it next wants to run, at the latest; a wake of the host means now,
// and every call below that may bring that time forward wakes it.
uint64_t sc_pump_run(struct sc_pump *pump);

// Only looks at the ops in flight and tells of those that are complete: for a caller who waits for
// one and leaves links and deadlines to the next run.
void sc_pump_poll(struct sc_pump *pump);

// Enqueues one collective of `epoch`. On SC_OK *number names it for on_complete and on_lost and *seq
// is its place among the collectives (0 for send and recv). Errors: EPOCH_LOST, INVALID, ALIGN,
// CAPACITY, TOO_LARGE, BUSY had no effect; any other ended the epoch. While place->stream captures,
// the op is recorded instead: *number and *seq are 0.
SC_MUST_USE sc_status sc_pump_submit(struct sc_pump *pump, uint64_t epoch,
                                     const struct sc_op_desc *desc, const struct sc_op_place *place,
                                     uint64_t *number, uint64_t *seq);

// The same on place->stream, begun when what is enqueued on `from` so far is done. While `from`
// captures it is recorded there, in order.
SC_MUST_USE sc_status sc_pump_start(struct sc_pump *pump, uint64_t epoch,
                                    const struct sc_op_desc *desc, const struct sc_op_place *place,
                                    uint64_t from, uint64_t *number, uint64_t *seq);
// What comes later on `stream` waits for op `number` of the epoch; nothing to do if it is complete.
SC_MUST_USE sc_status sc_pump_join_op(struct sc_pump *pump, uint64_t epoch, uint64_t number,
                                      uint64_t stream);
// Sends and recvs of one stream, none of them empty, as one op; both lists are reordered.
SC_MUST_USE sc_status sc_pump_submit_group(struct sc_pump *pump, uint64_t epoch,
                                           struct sc_op_desc *descs, struct sc_op_place *places,
                                           uint32_t count, uint64_t *number);

// Whether somebody waits for ops: only then does a run ask to be called as often as the device is to
// be polled. Otherwise once a millisecond is enough, and leaves the device to the application.
void sc_pump_hurry(struct sc_pump *pump, bool hurry);

// Whether an op is in flight; the newest one in flight on a stream, 0 when none is; whether any is.
bool sc_pump_op_pending(const struct sc_pump *pump, uint64_t number);
uint64_t sc_pump_stream_newest(const struct sc_pump *pump, uint64_t stream);
bool sc_pump_ops_pending(const struct sc_pump *pump);

// A capture that fails, at a submit in it or at its end, ends no epoch: end and release it, and try
// again or go on eagerly.
// A capture belongs to the epoch it was begun in and must be released before the next one can form.
SC_MUST_USE sc_status sc_pump_capture_begin(struct sc_pump *pump, uint64_t epoch, uint64_t stream,
                                            uint64_t *capture);
SC_MUST_USE sc_status sc_pump_capture_end(struct sc_pump *pump, uint64_t capture);
SC_MUST_USE sc_status sc_pump_capture_release(struct sc_pump *pump, uint64_t capture);
// Around one launch of the captured graph by the caller; takes one number and as many seqs as ops.
SC_MUST_USE sc_status sc_pump_replay_begin(struct sc_pump *pump, uint64_t epoch, uint64_t capture,
                                           uint64_t stream, uint64_t *number, uint64_t *seq);
SC_MUST_USE sc_status sc_pump_replay_end(struct sc_pump *pump, uint64_t number);

// Remembered, and registered with every communicator from now on.
SC_MUST_USE sc_status sc_pump_register(struct sc_pump *pump, uint64_t address, uint64_t bytes);
SC_MUST_USE sc_status sc_pump_deregister(struct sc_pump *pump, uint64_t address);

// How the last listen or dial went, or how far the present one is, in the words of the link table;
// "" when it has none. Returns `text`, cut to `bytes`, which must be at least 1.
const char *sc_pump_explain(const struct sc_pump *pump, char *text, size_t bytes);

// The events of the same names; see core/event.h. None waits. EPOCH_LOST in any other epoch.
void sc_pump_join(struct sc_pump *pump);
SC_MUST_USE sc_status sc_pump_mark(struct sc_pump *pump, uint64_t epoch, uint64_t mark);
SC_MUST_USE sc_status sc_pump_sync(struct sc_pump *pump, uint64_t epoch, uint64_t seq);
// *number is which arrival of the epoch it was, from 1. That barrier has passed when a BARRIER
// notice, perhaps within this call, tells of as many.
SC_MUST_USE sc_status sc_pump_barrier(struct sc_pump *pump, uint64_t epoch, uint64_t *number);
// From rank 0 to every member; `data` is read within the call. BUSY: some member's window is full,
// or the buffer of its link; a COMMAND_ROOM notice says when another try is worth it. TOO_LARGE: it
// would never fit link_buffer_bytes. In a world of one it goes to nobody.
SC_MUST_USE sc_status sc_pump_command(struct sc_pump *pump, uint64_t epoch, const void *data,
                                      uint32_t bytes);
// A member's application has taken commands that cost so much by sc_command_cost(): rank 0 may send
// as much again. INVALID: so much did not come.
SC_MUST_USE sc_status sc_pump_command_taken(struct sc_pump *pump, uint64_t epoch,
                                            uint64_t cost_bytes);
SC_MUST_USE sc_status sc_pump_reconnect(struct sc_pump *pump, uint64_t epoch, uint32_t reason);
// Begins to leave; the state says CLOSED once it is clean. A second call answers SC_CLOSED.
SC_MUST_USE sc_status sc_pump_close(struct sc_pump *pump, bool final);

// Whether a communicator may still touch device memory that the epoch's ops used.
bool sc_pump_touches_memory(const struct sc_pump *pump);
// Communicators that were given up without an end: what they knew they may touch for ever.
uint32_t sc_pump_abandoned(const struct sc_pump *pump);
uint64_t sc_pump_device_bytes(const struct sc_pump *pump); // that the pump itself holds

// The core behind it, for its views.
const struct sc_core *sc_pump_core(const struct sc_pump *pump);
void sc_pump_view(const struct sc_pump *pump, struct sc_core_view *out);
SC_MUST_USE sc_status sc_pump_take_recovery(struct sc_pump *pump, struct sc_recovery *out);

// Frees everything. What a communicator that never ended may still touch is left to the process's
// end. The pump need not be CLOSED: a killed simulated process is destroyed as it stands.
void sc_pump_destroy(struct sc_pump *pump);

#endif
