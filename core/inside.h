// SPDX-License-Identifier: AGPL-3.0-only
//
// The core's state, and what its rooms call of each other. Not for anyone outside core/.
//
//   core.c        the block, small words for actions, backoff, views
//   machine.c     which handler answers which event in which state
//   greeting.c    links: who is at the other end, and whether the slot is theirs
//   rendezvous.c  from HELLO to GO: forming an epoch
//   leaving.c     from evidence to clean: ending one
//   reason.c      why it ended, when that is learned later
//   ops.c         submits and completions
//   health.c      heartbeats, silence, op clocks
//   agreement.c   whether all ranks submitted the same
//   barrier.c     how often every rank has arrived
//   command.c     from rank 0 to every member, no more than a member can queue
//   compose.c     frames out of state
#ifndef SC_CORE_INSIDE_H
#define SC_CORE_INSIDE_H

#include "core/core.h"

// A connection at the coordinator that has not said a valid HELLO yet.
struct sc_pending {
    uint64_t link; // 0: free
    uint64_t since_ns;
    uint8_t nonce[SC_NONCE_BYTES];
};

// What is known of another rank. At a member only entry 0, the coordinator, has a link.
struct sc_peer {
    uint64_t link; // 0: none
    uint64_t heard_ns;
    uint64_t incarnation;
    uint64_t hello_number; // the last of this incarnation
    uint64_t submitted;    // as its PINGs in the live epoch say
    uint64_t started;
    uint64_t completed;
    uint64_t digest;     // D(submitted)
    uint64_t agreed_seq; // equal to ours up to here
    uint64_t queried;    // first seq of the QUERY that is on its way; 0: none
    uint64_t stood_at;   // our submitted seq when it was last ahead of us
    uint64_t want;       // it waits for agreement up to here
    uint64_t mark;
    uint64_t arrived;        // barriers of the epoch
    uint64_t commands_taken; // what those that its application took cost
    struct sc_pair pair;     // the send or recv that its oldest op is (rank 0 knows its own, too)
    uint64_t pair_since_ns;  // both sides have been in it since then; 0: they are not
    uint8_t able;            // its HELLO stands: an epoch may be offered
    uint8_t joined;          // its communicator of the epoch being formed is warm
    uint8_t in_epoch;        // not yet known to have left the epoch that was aborted
    uint8_t differs;         // its digest did, where we asked; otherwise we only wonder
    uint8_t loading;
    uint8_t state;
    uint8_t reserved[2];
    struct sc_rank_record record; // as of the last HELLO (coordinator) or OFFER (member)
    uint64_t taken_incarnation;   // in the last recovery record that the application took
};

enum sc_call_state { // a member's way to the coordinator
    SC_CALL_IDLE,    // waits for call.at_ns to dial
    SC_CALL_DIALING,
    SC_CALL_CHALLENGE, // connected; waits for the nonce
    SC_CALL_WELCOME,   // HELLO is out; waits for the answer
    SC_CALL_UP,
};

struct sc_core {
    struct sc_core_config config;
    uint64_t random; // state of the jitter's generator
    uint64_t incarnation;
    uint64_t epoch_nonce; // rank 0: low bits of every epoch
    uint64_t now_ns;

    uint32_t state; // enum sc_state
    uint32_t able;  // the application can serve
    uint32_t closing;
    uint32_t failures;     // epochs lost since the last stable one
    uint64_t parting;      // ranks whose links this step lets go of; forgotten when the next begins
    struct sc_cause cause; // why the last epoch ended
    struct sc_cause terminal; // once set, FAILED follows as soon as it is clean

    // Epochs.
    uint64_t epoch;
    uint64_t seen_epoch;
    uint64_t ready_epoch;
    uint64_t known_ready_epoch; // highest READY of anybody
    uint64_t recoveries;
    uint64_t ready_since_ns;
    uint64_t missing_at_ns;    // when to name the missing ranks
    uint64_t record_submitted; // seqs of ready_epoch, frozen when it was left
    uint64_t record_completed;
    uint64_t mark;

    // Forming.
    uint64_t retry_at_ns; // rank 0: no OFFER before
    uint64_t init_deadline_ns;
    uint64_t offered_ns;
    uint64_t formed_ns;
    uint32_t id_pending;
    uint32_t comm_ready;
    uint8_t id[SC_COMM_ID_BYTES];

    // Leaving.
    uint64_t left_ns;
    uint64_t clean_ns;
    uint64_t abort_clock_ns; // the abort's time runs from here; SC_CORE_NEVER_NS: not yet
    uint32_t comm_live;
    uint32_t abort_called;
    uint32_t abandoned; // some communicator was given up without its abort having returned
    uint32_t peer_lost; // a peer of the epoch died, froze or was replaced: it may hold our abort up
    uint32_t captures;  // that the application has not released
    uint32_t graphs;    // that hold the communicator although it has
    struct sc_phases phases;

    // Health.
    uint64_t next_ping_ns;
    uint64_t clock_number;      // the op whose clock runs
    uint64_t started_by_all_ns; // 0: not yet
    uint64_t started_here_ns;
    uint64_t all_started;
    uint32_t laggard;

    // Agreement.
    uint32_t agreement_due; // rank 0: a peer was ahead; compare again after our next submit
    uint64_t agreed;
    uint64_t want;
    uint64_t asked; // rank 0: the highest seq up to which a member wants agreement

    // Barriers of the epoch.
    uint64_t arrived; // the application has arrived at so many
    uint64_t passed;  // and every rank at so many

    // Commands of the epoch, as what they cost.
    uint64_t commands_sent;     // rank 0, to every member
    uint64_t commands_received; // member
    uint64_t commands_taken;    // … by its application
    uint64_t commands_told;     // … as its last PING said
    uint32_t command_refused;   // rank 0: BUSY was answered, and no notice of room has followed

    // A member's call.
    uint64_t call_link;
    uint64_t call_at_ns; // when to dial, or when to give the present attempt up
    uint64_t hello_number;
    uint64_t described_first;
    uint32_t call; // enum sc_call_state
    uint32_t call_failures;
    uint32_t call_attempt;
    uint32_t reserved;
    uint8_t nonce[SC_NONCE_BYTES];

    struct sc_pending pending[SC_PENDING_MAX];
    uint32_t pending_count;
    uint32_t ledger_offset;
    struct sc_peer peers[]; // world of them, then the ledger
};

typedef sc_status sc_handler(struct sc_core *c, const struct sc_event *in, struct sc_actions *out);

static inline bool is_coordinator(const struct sc_core *c) {
    return c->config.rank == 0;
}

static inline struct sc_ledger *ledger_of(const struct sc_core *c) {
    return (struct sc_ledger *)((uintptr_t)c + c->ledger_offset);
}

static inline bool in_epoch(const struct sc_core *c) {
    return c->state == SC_STATE_JOINING || c->state == SC_STATE_READY;
}

// machine.c, core.c
void sc_core_enter(struct sc_core *c, enum sc_state state, struct sc_actions *out);
uint64_t sc_core_backoff(struct sc_core *c, uint32_t failures);

// Small words for the actions.
#define PUSH(out, ...) sc_actions_push((out), (struct sc_action){__VA_ARGS__})
uint64_t sc_linked_mask(const struct sc_core *c); // ranks with a greeted link
void sc_act(struct sc_actions *out, enum sc_action_type type, uint64_t epoch);
void sc_act_send(struct sc_actions *out, enum sc_frame_kind kind, uint64_t mask, uint64_t epoch);
void sc_act_ping(struct sc_core *c, uint64_t mask, struct sc_actions *out);
void sc_act_send_link(struct sc_actions *out, enum sc_frame_kind kind, uint64_t link);
void sc_act_drop(struct sc_actions *out, uint64_t link);

// greeting.c
sc_handler sc_start_making_links, sc_link_up, sc_link_down;
sc_handler sc_challenge_is_answered, sc_hello_is_judged, sc_welcome_greets, sc_refusal_is_heeded,
    sc_bye_is_heeded;
void sc_renew_hello(struct sc_core *c, struct sc_actions *out);
void sc_say_hello(struct sc_core *c, struct sc_actions *out);
void sc_greeting_tick(struct sc_core *c, struct sc_actions *out);
uint64_t sc_greeting_deadline(const struct sc_core *c);
struct sc_peer *sc_peer_by_link(struct sc_core *c, uint64_t link);
// A greeted link is gone: forget it, and treat it as evidence where an epoch depends on it.
void sc_peer_gone(struct sc_core *c, uint32_t rank, sc_status code, struct sc_actions *out);

// rendezvous.c
sc_handler sc_join_makes_able, sc_id_makes_offer, sc_offer_starts_joining, sc_comm_ready_joins,
    sc_comm_failed_aborts, sc_joined_counts, sc_go_makes_ready;
void sc_try_offer(struct sc_core *c, struct sc_actions *out);

// leaving.c
sc_handler sc_abort_is_heeded, sc_stray_abort_is_noted, sc_comm_gone_cleans, sc_captures_change,
    sc_op_drains, sc_reconnect_leaves, sc_close_leaves, sc_comm_failed_while_leaving;
void sc_leave_epoch(struct sc_core *c, const struct sc_cause *cause, struct sc_actions *out);
void sc_fail(struct sc_core *c, const struct sc_cause *cause, struct sc_actions *out);
// A peer is not there any more.
bool sc_cause_is_loss(uint32_t code);
void sc_left_is_known(struct sc_core *c, uint32_t rank);
void sc_leaving_tick(struct sc_core *c, struct sc_actions *out);
uint64_t sc_leaving_deadline(const struct sc_core *c);

// reason.c
// Whether an error of the communicator's is all that is known of why the last epoch ended.
bool sc_reason_is_open(const struct sc_core *c);
// True: it was open, and this is the cause from now on.
bool sc_reason_found(struct sc_core *c, const struct sc_cause *cause, struct sc_actions *out);
// A PING of the epoch that was left: what its rank had submitted may tell.
void sc_reason_heard(struct sc_core *c, uint32_t rank, const struct sc_ping *ping,
                     struct sc_actions *out);

// ops.c
sc_handler sc_submit_launches, sc_replay_launches, sc_submit_is_refused, sc_op_starts,
    sc_op_completes, sc_op_fails;

// health.c
sc_handler sc_ping_is_heard;
void sc_health_tick(struct sc_core *c, struct sc_actions *out);
uint64_t sc_health_deadline(const struct sc_core *c);
void sc_health_reset(struct sc_core *c);
void sc_op_clock_update(struct sc_core *c);

// agreement.c
sc_handler sc_sync_asks, sc_query_is_answered, sc_description_is_compared;
void sc_agreement_compare(struct sc_core *c, uint32_t rank, struct sc_actions *out);
void sc_agreement_after_submit(struct sc_core *c, struct sc_actions *out);
void sc_agreement_heard(struct sc_core *c, uint32_t rank, const struct sc_ping *ping,
                        struct sc_actions *out);

// barrier.c
sc_handler sc_barrier_arrives;
uint64_t sc_barrier_count(const struct sc_core *c); // what a PING of ours tells
void sc_barrier_heard(struct sc_core *c, uint32_t rank, const struct sc_ping *ping,
                      struct sc_actions *out);

// command.c
sc_handler sc_command_is_sent, sc_command_is_received, sc_command_is_late, sc_commands_are_taken;
void sc_command_heard(struct sc_core *c, uint32_t rank, const struct sc_ping *ping,
                      struct sc_actions *out);

#endif
