// SPDX-License-Identifier: AGPL-3.0-only
//
// Whether all ranks submitted the same collectives, in the same order.
//
// The coordinator alone compares: a member's PING says (submitted, D(submitted)); equal digests at a
// seq prove every op up to it. Where they differ it asks for descriptions from the last agreed seq
// on, and the first that differs is the verdict, told to all by ABORT. A rank that wants agreement
// says so in its PING and is answered the moment it is reached: one round trip.
#include "core/inside.h"

static void tell_agreed(struct sc_core *c, struct sc_actions *out) {
    PUSH(out, .type = SC_ACTION_NOTIFY, .kind = SC_NOTICE_AGREED, .epoch = c->epoch,
         .a = c->agreed);
    c->want = 0;
}

// The coordinator's agreed seq is the lowest that any peer has agreed to.
static void raise_agreed(struct sc_core *c, struct sc_actions *out) {
    if (c->state != SC_STATE_READY)
        return; // a reason is sought: nothing of that epoch is agreed upon any more
    uint64_t lowest = ledger_of(c)->submitted_seq;
    for (uint32_t r = 1; r < c->config.world; r++)
        if (c->peers[r].agreed_seq < lowest)
            lowest = c->peers[r].agreed_seq;
    c->agreed = lowest;
    if (c->want != 0 && c->agreed >= c->want)
        tell_agreed(c, out);
    uint64_t waiting = 0;
    for (uint32_t r = 1; r < c->config.world; r++) {
        if (c->peers[r].want != 0 && c->agreed >= c->peers[r].want) {
            c->peers[r].want = 0;
            waiting |= UINT64_C(1) << r;
        }
    }
    sc_act_ping(c, waiting, out);
}

static void ask_for_descriptions(struct sc_core *c, uint32_t rank, bool differs,
                                 struct sc_actions *out) {
    struct sc_peer *p = &c->peers[rank];
    p->differs = differs;
    if (p->queried != 0)
        return;
    p->queried = p->agreed_seq + 1;
    PUSH(out, .type = SC_ACTION_SEND, .kind = SC_FRAME_QUERY, .mask = UINT64_C(1) << rank,
         .epoch = c->epoch, .a = p->queried);
}

void sc_agreement_compare(struct sc_core *c, uint32_t rank, struct sc_actions *out) {
    struct sc_peer *p = &c->peers[rank];
    if (p->submitted <= p->agreed_seq)
        return;
    uint64_t submitted = ledger_of(c)->submitted_seq;
    if (p->submitted > submitted) {
        // It is ahead, and its digest up to ours is not known; its descriptions are. They are worth
        // asking for if somebody waits for agreement, or if we have not moved since it last said so:
        // we may be stuck in an op that is no match for its own.
        bool awaited = c->want > p->agreed_seq || c->asked > p->agreed_seq;
        c->agreement_due = 1;
        if (submitted > p->agreed_seq && (awaited || submitted == p->stood_at))
            ask_for_descriptions(c, rank, false, out);
        p->stood_at = submitted;
        return;
    }
    const struct sc_ledger_seq *own = sc_ledger_seq(ledger_of(c), p->submitted);
    if (own == NULL)
        return; // too long ago to be compared; a later one will be
    if (own->digest != p->digest) {
        ask_for_descriptions(c, rank, true, out);
        return;
    }
    p->agreed_seq = p->submitted;
    raise_agreed(c, out);
}

void sc_agreement_after_submit(struct sc_core *c, struct sc_actions *out) {
    struct sc_ledger *ledger = ledger_of(c);
    if (!is_coordinator(c)) {
        if (c->peers[0].want != 0 && ledger->submitted_seq >= c->peers[0].want) {
            c->peers[0].want = 0;
            sc_act_ping(c, UINT64_C(1), out);
        }
        return;
    }
    if (!c->agreement_due)
        return;
    c->agreement_due = 0;
    for (uint32_t r = 1; r < c->config.world && sc_actions_room(out) > 8; r++)
        sc_agreement_compare(c, r, out);
}

// The others' digests are wanted now, not at their next heartbeat.
static void pass_on(struct sc_core *c, uint32_t from, uint64_t want, struct sc_actions *out) {
    c->asked = want;
    sc_act_ping(c, sc_linked_mask(c) & ~(UINT64_C(1) << from), out);
}

void sc_agreement_heard(struct sc_core *c, uint32_t rank, const struct sc_ping *ping,
                        struct sc_actions *out) {
    struct sc_peer *peer = &c->peers[rank];
    peer->want = ping->want;
    if (is_coordinator(c)) {
        sc_agreement_compare(c, rank, out);
        if (peer->want != 0 && c->agreed >= peer->want)
            raise_agreed(c, out);
        else if (peer->want > c->asked)
            pass_on(c, rank, peer->want, out);
        return;
    }
    if (ping->agreed > c->agreed)
        c->agreed = ping->agreed;
    if (c->want != 0 && c->agreed >= c->want)
        tell_agreed(c, out);
    sc_agreement_after_submit(c, out);
}

sc_status sc_sync_asks(struct sc_core *c, const struct sc_event *in, struct sc_actions *out) {
    if (in->epoch != c->epoch)
        return SC_EPOCH_LOST;
    if (in->u.sync.seq > ledger_of(c)->submitted_seq)
        return SC_INVALID;
    if (c->config.world == 1)
        c->agreed = ledger_of(c)->submitted_seq;
    if (in->u.sync.seq > c->want)
        c->want = in->u.sync.seq;
    if (c->agreed >= c->want)
        tell_agreed(c, out);
    else
        sc_act_ping(c, sc_linked_mask(c), out);
    return SC_OK;
}

sc_status sc_query_is_answered(struct sc_core *c, const struct sc_event *in,
                               struct sc_actions *out) {
    if (in->u.frame.frame->epoch != c->epoch)
        return SC_OK;
    c->described_first = in->u.frame.frame->u.first;
    sc_act_send(out, SC_FRAME_DESCRIBE, UINT64_C(1), c->epoch);
    return SC_OK;
}

static bool same_desc(const struct sc_op_desc *a, const struct sc_op_desc *b) {
    return a->kind == b->kind && a->root == b->root && a->bytes == b->bytes;
}

static sc_status mismatch(struct sc_core *c, uint32_t rank, uint64_t seq,
                          const struct sc_op_desc *ours, const struct sc_op_desc *theirs,
                          struct sc_actions *out) {
    const struct sc_cause cause = {
        .code = SC_MISMATCH, .suspect = rank, .seq = seq, .op = {*ours, *theirs}};
    if (in_epoch(c))
        sc_leave_epoch(c, &cause, out);
    else
        (void)sc_reason_found(c, &cause, out);
    return SC_OK;
}

sc_status sc_description_is_compared(struct sc_core *c, const struct sc_event *in,
                                     struct sc_actions *out) {
    const struct sc_describe *theirs = &in->u.frame.frame->u.describe;
    struct sc_peer *p = sc_peer_by_link(c, in->u.frame.link);
    if (in->u.frame.frame->epoch != c->epoch)
        return SC_OK;
    if (p->queried == 0 || theirs->first != p->queried)
        return SC_PROTOCOL;
    p->queried = 0;
    uint32_t rank = (uint32_t)(p - c->peers);
    // Where digests differ an op does, and when it is too long ago for either side to describe, the
    // verdict stands without the descriptions. A mere suspicion must be shown.
    struct sc_op_desc unknown = {0};
    if (theirs->count == 0 && !p->differs)
        return SC_OK;
    if (theirs->count == 0)
        return mismatch(c, rank, theirs->first, &unknown, &unknown, out);
    for (uint32_t i = 0; i < theirs->count; i++) {
        uint64_t seq = theirs->first + i;
        const struct sc_ledger_seq *own = sc_ledger_seq(ledger_of(c), seq);
        if (own == NULL && (seq > ledger_of(c)->submitted_seq || !p->differs))
            break; // it went on meanwhile, or nothing can be shown
        if (own == NULL || !same_desc(&own->desc, &theirs->op[i]))
            return mismatch(c, rank, seq, own != NULL ? &own->desc : &unknown, &theirs->op[i], out);
        if (seq > p->agreed_seq) // digests may have agreed meanwhile
            p->agreed_seq = seq;
    }
    raise_agreed(c, out);
    sc_agreement_compare(c, rank, out);
    return SC_OK;
}
