// SPDX-License-Identifier: AGPL-3.0-only
//
// Frames out of state: what a SEND action says, as the step that asked for it left the core.
#include "core/inside.h"

#include <string.h>

static void compose_hello(const struct sc_core *c, struct sc_hello *h) {
    *h = (struct sc_hello){
        .job = c->config.job,
        .incarnation = c->incarnation,
        .number = c->hello_number,
        .seen_epoch = c->seen_epoch,
        .ready_epoch = c->ready_epoch,
        .submitted = c->record_submitted,
        .completed = c->record_completed,
        .mark = c->mark,
        .capacity_bytes = c->config.capacity_bytes,
        .protocol = SC_PROTOCOL_VERSION,
        .rank = c->config.rank,
        .world = c->config.world,
        .library = c->config.library,
        .lanes = c->config.lanes,
        .able = c->able && c->state == SC_STATE_RENDEZVOUS,
    };
    memcpy(h->nonce, c->nonce, sizeof h->nonce);
}

static void compose_ping(const struct sc_core *c, struct sc_ping *p) {
    bool live = c->state == SC_STATE_READY || sc_reason_is_open(c);
    const struct sc_ledger *ledger = ledger_of(c);
    *p = (struct sc_ping){
        .submitted = live ? ledger->submitted_seq : 0,
        .started = live ? ledger->started_seq : 0,
        .completed = live ? ledger->completed_seq : 0,
        .digest = live ? ledger->digest : 0,
        .want = c->want > c->asked ? c->want : c->asked,
        .agreed = c->agreed,
        .all_started = live ? c->all_started : 0,
        .mark = c->mark,
        .barrier = sc_barrier_count(c),
        .taken = c->commands_taken,
        .pair = live ? sc_ledger_pair(ledger, c->config.rank) : (struct sc_pair){0},
        .laggard = live ? c->laggard : SC_RANK_NONE,
        .state = c->state,
        .loading = !c->able,
    };
}

static void compose_offer(const struct sc_core *c, struct sc_offer *o) {
    o->cause = c->cause;
    o->phases = c->phases;
    o->lane = SC_LANE_NCCL;
    o->world = c->config.world;
    memcpy(o->id, c->id, sizeof o->id);
    for (uint32_t r = 0; r < c->config.world; r++)
        o->ranks[r] = c->peers[r].record;
}

static void compose_describe(const struct sc_core *c, struct sc_describe *d) {
    const struct sc_ledger_seq *seq;
    d->first = c->described_first;
    d->count = 0;
    while (d->count < SC_DESCRIBE_MAX &&
           (seq = sc_ledger_seq(ledger_of(c), d->first + d->count)) != NULL)
        d->op[d->count++] = seq->desc;
}

static void compose_refusal(const struct sc_core *c, const struct sc_action *send,
                            struct sc_cause *cause) {
    *cause = (struct sc_cause){.code = send->status,
                               .suspect = SC_RANK_NONE,
                               .field = send->rank,
                               .value = {send->a, send->b}};
    if (send->status == c->terminal.code)
        *cause = c->terminal;
}

void sc_core_compose(const struct sc_core *c, const struct sc_action *send,
                     struct sc_frame *frame) {
    SC_ASSERT(send->type == SC_ACTION_SEND);
    frame->kind = send->kind;
    frame->epoch = send->epoch;
    switch ((enum sc_frame_kind)send->kind) {
    case SC_FRAME_CHALLENGE:
        for (uint32_t i = 0; i < SC_PENDING_MAX; i++)
            if (c->pending[i].link == send->link)
                memcpy(frame->u.nonce, c->pending[i].nonce, sizeof frame->u.nonce);
        break;
    case SC_FRAME_HELLO: compose_hello(c, &frame->u.hello); break;
    case SC_FRAME_WELCOME:
        frame->u.welcome.incarnation = c->incarnation;
        frame->u.welcome.timing = c->config.timing;
        break;
    case SC_FRAME_REFUSE: compose_refusal(c, send, &frame->u.cause); break;
    case SC_FRAME_OFFER: compose_offer(c, &frame->u.offer); break;
    case SC_FRAME_ABORT:
        frame->u.cause = c->cause;
        if (send->status != SC_OK) // news since the epoch was left
            frame->u.cause = (struct sc_cause){.code = send->status, .suspect = send->rank};
        break;
    case SC_FRAME_BYE: frame->u.cause = c->terminal; break;
    case SC_FRAME_PING: compose_ping(c, &frame->u.ping); break;
    case SC_FRAME_QUERY: frame->u.first = send->a; break;
    case SC_FRAME_DESCRIBE: compose_describe(c, &frame->u.describe); break;
    case SC_FRAME_JOINED:
    case SC_FRAME_GO:
    case SC_FRAME_COMMAND:
    case SC_FRAME_KIND_COUNT: break;
    }
}
