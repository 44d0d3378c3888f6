// SPDX-License-Identifier: AGPL-3.0-only
//
// Forming an epoch: all present and able -> id -> OFFER -> JOINED from all -> GO.
//
// An OFFER spends every HELLO: whoever received one is in that epoch until it says HELLO again, so
// that a coordinator which failed early cannot offer to a rank still busy joining.
#include "core/inside.h"

#include <string.h>

#define EPOCH_NONCE_BITS 24

static uint64_t members(const struct sc_core *c) {
    uint64_t all = c->config.world == 64 ? UINT64_MAX : (UINT64_C(1) << c->config.world) - 1;
    return all & ~UINT64_C(1);
}

static bool all_able(const struct sc_core *c) {
    for (uint32_t r = 1; r < c->config.world; r++)
        if (c->peers[r].link == 0 || !c->peers[r].able)
            return false;
    return c->able != 0;
}

sc_status sc_join_makes_able(struct sc_core *c, const struct sc_event *in, struct sc_actions *out) {
    (void)in;
    c->able = 1;
    if (c->state != SC_STATE_IDLE)
        return SC_OK;
    sc_core_enter(c, SC_STATE_RENDEZVOUS, out);
    sc_renew_hello(c, out);
    sc_try_offer(c, out);
    return SC_OK;
}

void sc_try_offer(struct sc_core *c, struct sc_actions *out) {
    if (!is_coordinator(c) || c->state != SC_STATE_RENDEZVOUS || c->id_pending ||
        c->now_ns < c->retry_at_ns || !all_able(c))
        return;
    c->id_pending = 1;
    sc_act(out, SC_ACTION_GET_ID, 0);
}

static void begin_joining(struct sc_core *c, uint64_t epoch, struct sc_actions *out) {
    c->epoch = c->seen_epoch = epoch;
    sc_ledger_reset(ledger_of(c));
    for (uint32_t r = 0; r < c->config.world; r++) {
        struct sc_peer *p = &c->peers[r];
        p->submitted = p->started = p->completed = p->digest = p->agreed_seq = p->want = 0;
        p->stood_at = p->queried = p->arrived = p->commands_taken = 0;
        p->pair = (struct sc_pair){0};
        p->pair_since_ns = 0;
        p->joined = 0;
        p->able = SC_MUTANT(8) ? p->able : 0;
    }
    c->agreed = c->want = c->asked = 0;
    c->agreement_due = 0;
    c->arrived = c->passed = 0;
    c->commands_sent = c->commands_received = c->commands_taken = c->commands_told = 0;
    c->command_refused = 0;
    c->comm_ready = 0;
    c->comm_live = 1;
    c->abort_called = 0;
    c->offered_ns = c->now_ns;
    c->init_deadline_ns = c->now_ns + c->config.timing.init_ns;
    sc_act(out, SC_ACTION_COMM_CREATE, epoch);
    sc_core_enter(c, SC_STATE_JOINING, out);
}

sc_status sc_id_makes_offer(struct sc_core *c, const struct sc_event *in, struct sc_actions *out) {
    c->id_pending = 0;
    if (c->state != SC_STATE_RENDEZVOUS)
        return SC_OK; // an id that no epoch will use
    if (in->u.comm_id.status != SC_OK) {
        c->cause = (struct sc_cause){.code = in->u.comm_id.status, .suspect = 0};
        if (sc_status_is_terminal(in->u.comm_id.status))
            sc_fail(c, &c->cause, out);
        c->retry_at_ns = c->now_ns + sc_core_backoff(c, ++c->failures);
        return in->u.comm_id.status;
    }
    if (!all_able(c))
        return SC_OK;
    memcpy(c->id, in->u.comm_id.id, sizeof c->id);
    uint64_t highest = c->seen_epoch > c->known_ready_epoch ? c->seen_epoch : c->known_ready_epoch;
    uint64_t epoch = ((highest >> EPOCH_NONCE_BITS) + 1) << EPOCH_NONCE_BITS | c->epoch_nonce;
    if (SC_MUTANT(4))
        epoch = ((c->seen_epoch >> EPOCH_NONCE_BITS) + 1) << EPOCH_NONCE_BITS;
    c->phases.wait_ns = c->now_ns - c->clean_ns;
    c->peers[0].record = (struct sc_rank_record){
        .incarnation = c->incarnation,
        .ready_epoch = c->ready_epoch,
        .submitted = c->record_submitted,
        .completed = c->record_completed,
        .mark = c->mark,
    };
    sc_act_send(out, SC_FRAME_OFFER, members(c), epoch);
    begin_joining(c, epoch, out);
    return SC_OK;
}

sc_status sc_offer_starts_joining(struct sc_core *c, const struct sc_event *in,
                                  struct sc_actions *out) {
    const struct sc_offer *offer = &in->u.frame.frame->u.offer;
    uint64_t epoch = in->u.frame.frame->epoch;
    if (epoch <= c->seen_epoch || offer->world != c->config.world || !c->able)
        return SC_PROTOCOL;
    memcpy(c->id, offer->id, sizeof c->id);
    for (uint32_t r = 0; r < offer->world; r++)
        c->peers[r].record = offer->ranks[r];
    if (offer->cause.code != SC_OK || c->ready_epoch == 0)
        c->cause = offer->cause; // a coordinator that was started anew knows of none: ours stands
    c->phases = offer->phases;
    begin_joining(c, epoch, out);
    return SC_OK;
}

static void become_ready(struct sc_core *c, struct sc_actions *out) {
    c->recoveries += c->ready_epoch != 0;
    c->ready_epoch = c->epoch;
    if (c->epoch > c->known_ready_epoch)
        c->known_ready_epoch = c->epoch;
    c->ready_since_ns = c->now_ns;
    c->missing_at_ns = SC_CORE_NEVER_NS;
    c->phases.form_ns = c->formed_ns - c->offered_ns;
    c->phases.warmup_ns = c->now_ns - c->formed_ns;
    sc_health_reset(c);
    sc_act(out, SC_ACTION_FENCE, c->epoch);
    sc_core_enter(c, SC_STATE_READY, out);
}

static void try_go(struct sc_core *c, struct sc_actions *out) {
    if (!c->comm_ready)
        return;
    for (uint32_t r = 1; r < c->config.world; r++)
        if (!c->peers[r].joined)
            return;
    sc_act_send(out, SC_FRAME_GO, members(c), c->epoch);
    become_ready(c, out);
}

sc_status sc_comm_ready_joins(struct sc_core *c, const struct sc_event *in,
                              struct sc_actions *out) {
    if (in->epoch != c->epoch || c->comm_ready)
        return SC_OK;
    c->comm_ready = 1;
    // The device's clock may differ from ours by a poll; durations must not turn negative.
    c->formed_ns = in->u.comm_ready.formed_ns;
    if (c->formed_ns < c->offered_ns || c->formed_ns > c->now_ns)
        c->formed_ns = c->now_ns;
    sc_act(out, SC_ACTION_REGISTER_ALL, c->epoch);
    if (is_coordinator(c))
        try_go(c, out);
    else
        sc_act_send(out, SC_FRAME_JOINED, UINT64_C(1), c->epoch);
    return SC_OK;
}

sc_status sc_comm_failed_aborts(struct sc_core *c, const struct sc_event *in,
                                struct sc_actions *out) {
    if (in->epoch != c->epoch)
        return SC_OK;
    const struct sc_cause cause = {.code = in->u.comm_failed.status, .suspect = c->config.rank};
    if (sc_status_is_terminal(in->u.comm_failed.status))
        sc_fail(c, &cause, out);
    else
        sc_leave_epoch(c, &cause, out);
    return SC_OK;
}

sc_status sc_joined_counts(struct sc_core *c, const struct sc_event *in, struct sc_actions *out) {
    if (in->u.frame.frame->epoch != c->epoch)
        return SC_OK;
    sc_peer_by_link(c, in->u.frame.link)->joined = 1;
    try_go(c, out);
    return SC_OK;
}

sc_status sc_go_makes_ready(struct sc_core *c, const struct sc_event *in, struct sc_actions *out) {
    // A GO that was read together with the end of its link is void: whoever sent it is gone.
    if (in->u.frame.frame->epoch != c->epoch || in->u.frame.ended)
        return SC_OK;
    if (!c->comm_ready)
        return SC_PROTOCOL;
    become_ready(c, out);
    return SC_OK;
}
