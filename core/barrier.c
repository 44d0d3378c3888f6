// SPDX-License-Identifier: AGPL-3.0-only
//
// Barriers: how often every rank has arrived.
//
// A member's PING counts its own arrivals, the coordinator's those that all ranks have made. Counts
// only rise within an epoch, so that a PING which is late, repeated or lost changes nothing. An
// arrival, and each barrier that passes, is told at once: one round trip after the last arrival.
#include "core/inside.h"

static void pass(struct sc_core *c, uint64_t passed, struct sc_actions *out) {
    c->passed = passed;
    PUSH(out, .type = SC_ACTION_NOTIFY, .kind = SC_NOTICE_BARRIER, .epoch = c->epoch, .a = passed);
}

static void raise_passed(struct sc_core *c, struct sc_actions *out) {
    uint64_t lowest = c->arrived;
    for (uint32_t r = 1; r < c->config.world; r++)
        if (c->peers[r].arrived < lowest)
            lowest = c->peers[r].arrived;
    if (lowest == c->passed)
        return;
    pass(c, lowest, out);
    sc_act_ping(c, sc_linked_mask(c), out);
}

sc_status sc_barrier_arrives(struct sc_core *c, const struct sc_event *in, struct sc_actions *out) {
    if (in->epoch != c->epoch)
        return SC_EPOCH_LOST;
    c->arrived++;
    if (is_coordinator(c))
        raise_passed(c, out);
    else
        sc_act_ping(c, UINT64_C(1), out);
    return SC_OK;
}

uint64_t sc_barrier_count(const struct sc_core *c) {
    return is_coordinator(c) ? c->passed : c->arrived;
}

void sc_barrier_heard(struct sc_core *c, uint32_t rank, const struct sc_ping *ping,
                      struct sc_actions *out) {
    if (!is_coordinator(c)) {
        if (ping->barrier > c->passed)
            pass(c, ping->barrier, out);
    } else if (ping->barrier > c->peers[rank].arrived) {
        c->peers[rank].arrived = ping->barrier;
        raise_passed(c, out);
    }
}
