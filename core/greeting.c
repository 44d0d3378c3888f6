// SPDX-License-Identifier: AGPL-3.0-only
//
// Links: who is at the other end, and whether the rank's slot is theirs.
//
// The coordinator speaks first, with a nonce that the HELLO must echo, so that a recorded HELLO gets
// nothing. A connection that has not said a valid HELLO holds no slot and is dropped in time.
#include "core/inside.h"

#include <string.h>

#define EPOCH_COUNT_MAX (UINT64_C(1) << 39) // of a HELLO: leaves room to count on

struct sc_peer *sc_peer_by_link(struct sc_core *c, uint64_t link) {
    for (uint32_t r = 0; link != 0 && r < c->config.world; r++)
        if (c->peers[r].link == link)
            return &c->peers[r];
    return NULL;
}

static struct sc_pending *pending_by_link(struct sc_core *c, uint64_t link) {
    for (uint32_t i = 0; link != 0 && i < SC_PENDING_MAX; i++)
        if (c->pending[i].link == link)
            return &c->pending[i];
    return NULL;
}

static void forget_pending(struct sc_core *c, struct sc_pending *pending) {
    if (pending == NULL)
        return;
    pending->link = 0;
    c->pending_count--;
}

sc_status sc_start_making_links(struct sc_core *c, const struct sc_event *in,
                                struct sc_actions *out) {
    (void)in;
    c->able = !c->config.hold;
    c->clean_ns = c->call_at_ns = c->next_ping_ns = c->now_ns;
    c->missing_at_ns = c->config.join_ns ? c->now_ns + c->config.join_ns : SC_CORE_NEVER_NS;
    if (is_coordinator(c) && c->config.world > 1)
        sc_act(out, SC_ACTION_LISTEN, 0);
    if (c->able)
        sc_core_enter(c, SC_STATE_RENDEZVOUS, out);
    sc_greeting_tick(c, out);
    sc_try_offer(c, out);
    return SC_OK;
}

// ---- a member's call ----

static void call_fails(struct sc_core *c) {
    c->call = SC_CALL_IDLE;
    c->call_link = 0;
    c->call_at_ns = c->now_ns + sc_core_backoff(c, c->call_failures++);
    c->call_attempt++;
}

void sc_say_hello(struct sc_core *c, struct sc_actions *out) {
    c->hello_number++;
    sc_act_send_link(out, SC_FRAME_HELLO, c->call_link);
}

// What the last HELLO said of being able has changed.
void sc_renew_hello(struct sc_core *c, struct sc_actions *out) {
    if (c->call == SC_CALL_WELCOME || c->call == SC_CALL_UP)
        sc_say_hello(c, out);
}

sc_status sc_challenge_is_answered(struct sc_core *c, const struct sc_event *in,
                                   struct sc_actions *out) {
    if (in->u.frame.link != c->call_link || c->call != SC_CALL_CHALLENGE)
        return SC_PROTOCOL;
    memcpy(c->nonce, in->u.frame.frame->u.nonce, sizeof c->nonce);
    c->call = SC_CALL_WELCOME;
    c->call_at_ns = c->now_ns + c->config.greeting_ns;
    sc_say_hello(c, out);
    return SC_OK;
}

sc_status sc_welcome_greets(struct sc_core *c, const struct sc_event *in, struct sc_actions *out) {
    if (in->u.frame.link != c->call_link || c->call != SC_CALL_WELCOME)
        return SC_PROTOCOL;
    struct sc_core_config adopted = c->config;
    adopted.timing = in->u.frame.frame->u.welcome.timing;
    struct sc_config_fault fault;
    if (sc_core_config_check(&adopted, &fault) != SC_OK)
        return SC_PROTOCOL;
    c->config.timing = adopted.timing;
    c->call = SC_CALL_UP;
    c->call_failures = 0;
    c->next_ping_ns = c->now_ns;
    c->peers[0].link = c->call_link;
    c->peers[0].heard_ns = c->now_ns;
    c->peers[0].incarnation = in->u.frame.frame->u.welcome.incarnation;
    PUSH(out, .type = SC_ACTION_NOTIFY, .kind = SC_NOTICE_GREETED);
    return SC_OK;
}

static void note_refusal(struct sc_actions *out, uint32_t rank, sc_status code, uint64_t field,
                         uint64_t mine, uint64_t theirs) {
    PUSH(out, .type = SC_ACTION_NOTIFY, .kind = SC_NOTICE_REFUSED, .rank = rank, .status = code,
         .mask = field, .a = mine, .b = theirs);
}

sc_status sc_refusal_is_heeded(struct sc_core *c, const struct sc_event *in,
                               struct sc_actions *out) {
    if (in->u.frame.link != c->call_link || c->call != SC_CALL_WELCOME)
        return SC_PROTOCOL;
    const struct sc_cause *why = &in->u.frame.frame->u.cause;
    note_refusal(out, c->config.rank, (sc_status)why->code, why->field, why->value[0],
                 why->value[1]);
    sc_act_drop(out, c->call_link);
    call_fails(c);
    // The coordinator's own misfortune is no verdict on us; these three are.
    if (why->code == SC_CONFIG || why->code == SC_FENCED || why->code == SC_PEER_LEFT)
        sc_fail(c, why, out);
    return SC_OK;
}

// ---- the coordinator's judgement ----

static sc_status refuse(struct sc_core *c, uint64_t link, uint32_t rank, sc_status code,
                        enum sc_config_field field, uint64_t mine, uint64_t theirs,
                        struct sc_actions *out) {
    struct sc_pending *pending = pending_by_link(c, link);
    forget_pending(c, pending);
    PUSH(out, .type = SC_ACTION_SEND, .kind = SC_FRAME_REFUSE, .link = link, .rank = field,
         .status = code, .a = mine, .b = theirs);
    sc_act_drop(out, link);
    note_refusal(out, rank, code, field, mine, theirs);
    return SC_OK;
}

// The first field that differs, with both values; SC_FIELD_COUNT when all agree.
static enum sc_config_field differing_field(const struct sc_core *c, const struct sc_hello *h,
                                            uint64_t *mine, uint64_t *theirs) {
    const struct sc_core_config *own = &c->config;
    const struct {
        enum sc_config_field field;
        uint64_t mine, theirs;
        bool differs;
    } rows[] = {
        {SC_FIELD_PROTOCOL, SC_PROTOCOL_VERSION, h->protocol, h->protocol != SC_PROTOCOL_VERSION},
        {SC_FIELD_JOB, own->job, h->job, h->job != own->job},
        {SC_FIELD_WORLD, own->world, h->world, h->world != own->world},
        {SC_FIELD_RANK, own->world, h->rank, h->rank == 0 || h->rank >= own->world},
        {SC_FIELD_CAPACITY, own->capacity_bytes, h->capacity_bytes,
         h->capacity_bytes != own->capacity_bytes},
        {SC_FIELD_LIBRARY, own->library, h->library, h->library != own->library},
        {SC_FIELD_LANES, own->lanes, h->lanes, (h->lanes & own->lanes) == 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].differs) {
            *mine = rows[i].mine;
            *theirs = rows[i].theirs;
            return rows[i].field;
        }
    }
    return SC_FIELD_COUNT;
}

static void take_slot(struct sc_core *c, uint32_t rank, uint64_t link, struct sc_actions *out) {
    struct sc_peer *peer = &c->peers[rank];
    peer->link = link;
    struct sc_pending *pending = pending_by_link(c, link);
    forget_pending(c, pending);
    sc_act_send_link(out, SC_FRAME_WELCOME, link);
    sc_actions_push(
        out, (struct sc_action){.type = SC_ACTION_NOTIFY, .kind = SC_NOTICE_GREETED, .rank = rank});
}

static void note_hello(struct sc_core *c, const struct sc_hello *h) {
    struct sc_peer *peer = &c->peers[h->rank];
    peer->heard_ns = c->now_ns;
    peer->incarnation = h->incarnation;
    peer->hello_number = h->number;
    peer->able = h->able != 0;
    peer->record = (struct sc_rank_record){
        .incarnation = h->incarnation,
        .ready_epoch = h->ready_epoch,
        .submitted = h->submitted,
        .completed = h->completed,
        .mark = h->mark,
    };
    if (h->ready_epoch > c->known_ready_epoch)
        c->known_ready_epoch = h->ready_epoch;
    if (!SC_MUTANT(4) && h->seen_epoch > c->seen_epoch)
        c->seen_epoch = h->seen_epoch;
    sc_left_is_known(c, h->rank);
}

static bool hello_is_sane(const struct sc_hello *h) {
    return h->seen_epoch >> 24 < EPOCH_COUNT_MAX && h->ready_epoch <= h->seen_epoch &&
           h->completed <= h->submitted;
}

// An epoch that it has not seen became READY without it. One of equal count but another number was
// offered by another life of rank 0, which counts on from all that its members have seen: so it was
// no member of that one.
static bool place_was_taken(const struct sc_core *c, const struct sc_hello *h) {
    return h->seen_epoch != 0 && h->seen_epoch != c->known_ready_epoch &&
           h->seen_epoch >> 24 <= c->known_ready_epoch >> 24;
}

// Whose slot it is, from a link that has none yet. Judged in this order; each rule has its reason in
// docs/PROTOCOL.md.
static sc_status judge_newcomer(struct sc_core *c, const struct sc_hello *h, uint64_t link,
                                struct sc_actions *out) {
    uint64_t mine = 0, theirs = 0;
    enum sc_config_field field = differing_field(c, h, &mine, &theirs);
    if (field != SC_FIELD_COUNT)
        return refuse(c, link, h->rank, SC_CONFIG, field, mine, theirs, out);
    struct sc_peer *peer = &c->peers[h->rank];
    if (h->incarnation == peer->incarnation && h->number <= peer->hello_number)
        return refuse(c, link, h->rank, SC_STALE, 0, peer->hello_number, h->number, out);
    if (place_was_taken(c, h))
        return refuse(c, link, h->rank, SC_FENCED, 0, c->known_ready_epoch, h->seen_epoch, out);
    if (peer->link != 0 && h->incarnation != peer->incarnation)
        return refuse(c, link, h->rank, SC_DUP_RANK, 0, peer->incarnation, h->incarnation, out);
    if (peer->link != 0) {
        sc_act_drop(out, peer->link);
        sc_peer_gone(c, h->rank, SC_LINK_LOST, out);
    }
    take_slot(c, h->rank, link, out);
    note_hello(c, h);
    sc_try_offer(c, out);
    return SC_OK;
}

sc_status sc_hello_is_judged(struct sc_core *c, const struct sc_event *in, struct sc_actions *out) {
    const struct sc_hello *h = &in->u.frame.frame->u.hello;
    uint64_t link = in->u.frame.link;
    struct sc_peer *peer = sc_peer_by_link(c, link);
    struct sc_pending *pending = pending_by_link(c, link);
    if (!hello_is_sane(h))
        return SC_PROTOCOL;
    if (peer == NULL) {
        if (pending == NULL || memcmp(pending->nonce, h->nonce, sizeof h->nonce) != 0)
            return SC_PROTOCOL;
        if (c->state == SC_STATE_FAILED)
            return refuse(c, link, h->rank, (sc_status)c->terminal.code, 0, 0, 0, out);
        return judge_newcomer(c, h, link, out);
    }
    uint32_t rank = (uint32_t)(peer - c->peers);
    if (h->rank != rank || h->incarnation != peer->incarnation || h->number <= peer->hello_number)
        return SC_PROTOCOL;
    if (in_epoch(c) && h->able) { // it is clean: it has left the epoch that we are still in
        const struct sc_cause cause = {.code = SC_PEER_ABORTED, .suspect = rank};
        sc_leave_epoch(c, &cause, out);
    }
    note_hello(c, h);
    sc_try_offer(c, out);
    return SC_OK;
}

// ---- links come and go ----

static sc_status challenge_stranger(struct sc_core *c, const struct sc_event *in,
                                    struct sc_actions *out) {
    struct sc_pending *slot = &c->pending[0];
    for (uint32_t i = 0; i < SC_PENDING_MAX && slot->link != 0; i++)
        if (c->pending[i].link == 0 || c->pending[i].since_ns < slot->since_ns)
            slot = &c->pending[i];
    if (slot->link != 0) { // all taken: the oldest has had its chance
        sc_act_drop(out, slot->link);
        forget_pending(c, slot);
    }
    c->pending_count++;
    slot->link = in->u.link_up.link;
    slot->since_ns = c->now_ns;
    memcpy(slot->nonce, in->u.link_up.random, sizeof slot->nonce);
    sc_act_send_link(out, SC_FRAME_CHALLENGE, slot->link);
    return SC_OK;
}

sc_status sc_link_up(struct sc_core *c, const struct sc_event *in, struct sc_actions *out) {
    if (in->u.link_up.incoming)
        return challenge_stranger(c, in, out);
    if (c->call != SC_CALL_DIALING) {
        sc_act_drop(out, in->u.link_up.link);
        return SC_OK;
    }
    c->call = SC_CALL_CHALLENGE;
    c->call_link = in->u.link_up.link;
    c->call_at_ns = c->now_ns + c->config.greeting_ns;
    return SC_OK;
}

sc_status sc_link_down(struct sc_core *c, const struct sc_event *in, struct sc_actions *out) {
    uint64_t link = in->u.link_down.link;
    struct sc_peer *peer = sc_peer_by_link(c, link);
    struct sc_pending *pending = pending_by_link(c, link);
    bool breach = in->u.link_down.status == SC_PROTOCOL;
    if (peer != NULL) {
        uint32_t rank = (uint32_t)(peer - c->peers);
        if (breach)
            PUSH(out, .type = SC_ACTION_NOTIFY, .rank = rank, .kind = SC_NOTICE_BREACH);
        sc_peer_gone(c, rank, breach ? SC_PROTOCOL : SC_PEER_DEAD, out);
    } else if (pending != NULL) {
        forget_pending(c, pending);
    } else if (!is_coordinator(c) && link == c->call_link && c->call != SC_CALL_IDLE) {
        call_fails(c);
    }
    return SC_OK;
}

void sc_peer_gone(struct sc_core *c, uint32_t rank, sc_status code, struct sc_actions *out) {
    struct sc_peer *peer = &c->peers[rank];
    const struct sc_cause cause = {
        .code = code,
        .suspect = rank,
        .seq = sc_ledger_oldest_seq(ledger_of(c)),
    };
    bool untold = peer->in_epoch != 0 && sc_cause_is_loss(code); // it went without a word
    peer->link = 0;
    peer->able = peer->joined = 0;
    sc_left_is_known(c, rank);
    bool found = untold && sc_reason_found(c, &cause, out);
    if (c->state == SC_STATE_ABORTING) { // others may wonder what holds their abort up
        c->peer_lost = 1;
        if (is_coordinator(c) && sc_linked_mask(c) != 0 && !found)
            PUSH(out, .type = SC_ACTION_SEND, .kind = SC_FRAME_ABORT, .epoch = c->epoch,
                 .mask = sc_linked_mask(c), .status = code, .rank = rank);
    }
    if (!is_coordinator(c))
        call_fails(c);
    if (!in_epoch(c))
        return;
    sc_leave_epoch(c, &cause, out);
    c->peer_lost = 1; // whatever it is called: nobody is there to end the exchange with
}

sc_status sc_bye_is_heeded(struct sc_core *c, const struct sc_event *in, struct sc_actions *out) {
    struct sc_peer *peer = sc_peer_by_link(c, in->u.frame.link);
    uint32_t rank = (uint32_t)(peer - c->peers);
    struct sc_cause why = in->u.frame.frame->u.cause;
    sc_act_drop(out, peer->link);
    PUSH(out, .type = SC_ACTION_NOTIFY, .kind = SC_NOTICE_BYE, .rank = rank, .status = why.code);
    sc_peer_gone(c, rank, (sc_status)why.code, out);
    if (why.code == SC_PEER_LEFT)
        sc_fail(c, &why, out);
    return SC_OK;
}

// ---- time ----

static bool is_calling(const struct sc_core *c) {
    return !is_coordinator(c) && c->call != SC_CALL_UP && c->state < SC_STATE_FAILED &&
           !c->closing && c->terminal.code == SC_OK;
}

void sc_greeting_tick(struct sc_core *c, struct sc_actions *out) {
    for (uint32_t i = 0; c->pending_count != 0 && i < SC_PENDING_MAX && sc_actions_room(out) > 8;
         i++) {
        struct sc_pending *p = &c->pending[i];
        if (p->link != 0 && c->now_ns - p->since_ns >= c->config.handshake_ns) {
            sc_act_drop(out, p->link);
            forget_pending(c, p);
        }
    }
    if (!is_calling(c) || c->now_ns < c->call_at_ns)
        return;
    if (c->call == SC_CALL_IDLE) {
        c->call = SC_CALL_DIALING;
        c->call_at_ns = c->now_ns + c->config.greeting_ns;
        PUSH(out, .type = SC_ACTION_DIAL, .a = c->call_attempt);
    } else {
        sc_act_drop(out, c->call_link); // 0 while dialling: the dial under way
        call_fails(c);
    }
}

uint64_t sc_greeting_deadline(const struct sc_core *c) {
    uint64_t at = SC_CORE_NEVER_NS;
    for (uint32_t i = 0; c->pending_count != 0 && i < SC_PENDING_MAX; i++)
        if (c->pending[i].link != 0 && c->pending[i].since_ns + c->config.handshake_ns < at)
            at = c->pending[i].since_ns + c->config.handshake_ns;
    if (is_calling(c))
        at = c->call_at_ns;
    return at;
}
