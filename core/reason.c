// SPDX-License-Identifier: AGPL-3.0-only
//
// Why an epoch ended, when that is learned only after it has.
//
// A communicator's error is a symptom. Over sockets it comes within a millisecond of a peer's death,
// often ahead of the link's own end, and it is also what one rank gets when another submitted a
// different size. So after such an error the cause stays open while the epoch is left, and until the
// next is offered: a peer that goes before it could say that it has left, or ranks that turn out to
// have submitted different ops, are the better one. The coordinator finds it and tells the members.
#include "core/inside.h"

static bool is_symptom(uint32_t code) {
    return code == SC_ASYNC_ERROR || code == SC_COMM_FAILED;
}

bool sc_reason_is_open(const struct sc_core *c) {
    return (c->state == SC_STATE_ABORTING || c->state == SC_STATE_RENDEZVOUS) &&
           is_symptom(c->cause.code);
}

bool sc_reason_found(struct sc_core *c, const struct sc_cause *cause, struct sc_actions *out) {
    if (!sc_reason_is_open(c) || is_symptom(cause->code))
        return false;
    c->cause = *cause;
    PUSH(out, .type = SC_ACTION_NOTIFY, .kind = SC_NOTICE_CAUSE, .status = cause->code,
         .rank = cause->suspect, .epoch = c->epoch);
    if (is_coordinator(c))
        sc_act_send(out, SC_FRAME_ABORT, sc_linked_mask(c), c->epoch);
    return true;
}

void sc_reason_heard(struct sc_core *c, uint32_t rank, const struct sc_ping *ping,
                     struct sc_actions *out) {
    if (!is_coordinator(c) || !sc_reason_is_open(c))
        return;
    c->peers[rank].submitted = ping->submitted;
    c->peers[rank].digest = ping->digest;
    sc_agreement_compare(c, rank, out);
}
