// SPDX-License-Identifier: AGPL-3.0-only
//
// The core: a pure function of state, event and the time that the event carries.
//
//     verdict = sc_core_step(core, event, actions)
//
// It calls nothing outside, allocates nothing, and lies in one zeroed block without pointers:
// sc_core_bytes(config) bytes that may be copied, hashed and compared. One thread at a time.
#ifndef SC_CORE_CORE_H
#define SC_CORE_CORE_H

#include "core/action.h"
#include "core/config.h"
#include "core/event.h"
#include "core/ledger.h"

struct sc_core;

#define SC_PENDING_MAX 16u // handshakes side by side at the coordinator

// Bytes of the block for a config that sc_core_config_check accepts. Aligned to 16 suffices.
size_t sc_core_bytes(const struct sc_core_config *config);

// Lays the core into `memory`. The seed makes incarnation, epoch nonce and jitter: draw it from the
// operating system, except in a simulation.
struct sc_core *sc_core_init(void *memory, const struct sc_core_config *config, uint64_t seed);

// Decides. Returns the verdict on the event, as its origin should hear it: OP_SUBMIT, REPLAY,
// COMMAND, COMMAND_TAKEN, SYNC, BARRIER, MARK and RECONNECT may be refused; for the others it is
// SC_OK, or says what was wrong with a frame. `out` is overwritten.
sc_status sc_core_step(struct sc_core *core, const struct sc_event *event, struct sc_actions *out);

// When the core next wants a TICK, or SC_CORE_NEVER_NS.
#define SC_CORE_NEVER_NS UINT64_MAX
uint64_t sc_core_deadline(const struct sc_core *core);

// Fills in the frame that a SEND action names, from the state as the step left it. Call it before
// the next step. frame->u.command is the caller's to fill.
void sc_core_compose(const struct sc_core *core, const struct sc_action *send,
                     struct sc_frame *frame);

// ---- what it knows, for the pump and for reports ----

struct sc_core_view {
    enum sc_state state;
    uint64_t epoch;       // live epoch in READY, the one being left or joined otherwise; 0: none
    uint64_t ready_epoch; // highest epoch in which this rank was READY
    uint64_t incarnation;
    uint64_t recoveries;                    // epochs lost and replaced
    uint64_t submitted, started, completed; // seqs of `epoch`
    uint64_t agreed;
    uint64_t arrived, passed; // barriers of `epoch`: here, and by every rank
    uint64_t mark;
    uint32_t captures;
    uint32_t draining;       // 1: ABORTING, and ops still wait behind the application's own work
    struct sc_cause cause;   // why the last epoch ended, or why it FAILED; code SC_OK: none
    struct sc_phases phases; // of the last recovery
};

enum sc_state sc_core_state(const struct sc_core *core);
void sc_core_view(const struct sc_core *core, struct sc_core_view *out);

// What is known of another rank; a member knows only of rank 0.
struct sc_peer_view {
    uint64_t heard_ns; // last sign of life on its present link; 0: no link
    uint64_t incarnation;
    uint64_t submitted, completed, mark; // as its last PING in the live epoch said
    uint32_t state;                      // enum sc_state, as its last PING said
    uint32_t loading;                    // 1: open, but it cannot serve yet
};

// SC_INVALID for this rank itself and for ranks outside the world.
SC_MUST_USE sc_status sc_core_peer_view(const struct sc_core *core, uint32_t rank,
                                        struct sc_peer_view *out);

// The record of the live epoch. SC_STATE outside READY. Taking it is what `fresh` is relative to.
SC_MUST_USE sc_status sc_core_take_recovery(struct sc_core *core, struct sc_recovery *out);

// Whether an op may be submitted or captured: SC_OK, SC_INVALID, SC_ALIGN, SC_CAPACITY, SC_TOO_LARGE.
SC_MUST_USE sc_status sc_core_check_op(const struct sc_core *core, const struct sc_op_desc *desc,
                                       const struct sc_op_place *place);

// Whether it moves nothing: no bytes, or nobody to move them to. Such an op takes its seq, launches
// nothing and is complete at once; its buffer is left as it is.
bool sc_core_op_is_void(const struct sc_core *core, const struct sc_op_desc *desc);

const uint8_t *sc_core_comm_id(const struct sc_core *core);
// The link to a rank, 0 when there is none.
uint64_t sc_core_link_of(const struct sc_core *core, uint32_t rank);
const struct sc_ledger *sc_core_ledger(const struct sc_core *core);

#endif
