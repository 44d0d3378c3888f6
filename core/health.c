// SPDX-License-Identifier: AGPL-3.0-only
//
// Heartbeats, silence and op clocks: turning time into evidence.
//
// Every greeted link carries a PING each heartbeat, in every state, and silence drops the link in
// every state. With no op in flight nothing else times out. An op's clock runs from the moment every
// rank has started it; while a live peer has not, it is the peer that is behind, not the op late.
#include "core/inside.h"

static uint64_t all_started(struct sc_core *c) {
    uint64_t lowest = ledger_of(c)->started_seq;
    if (!is_coordinator(c))
        return c->all_started < lowest ? c->all_started : lowest;
    c->laggard = 0;
    for (uint32_t r = 1; r < c->config.world; r++) {
        if (c->peers[r].started < lowest) {
            lowest = c->peers[r].started;
            c->laggard = r;
        }
    }
    return c->all_started = lowest;
}

void sc_health_reset(struct sc_core *c) {
    c->clock_number = c->started_by_all_ns = c->started_here_ns = 0;
    c->all_started = 0;
    c->laggard = 0;
}

static bool same_pair(const struct sc_pair *a, const struct sc_pair *b) {
    return a->count == b->count && a->from == b->from && a->to == b->to;
}

// A send and its recv have no seq that all ranks share: the coordinator matches their two sides.
static void match_pairs(struct sc_core *c) {
    if (!is_coordinator(c))
        return;
    c->peers[0].pair = sc_ledger_pair(ledger_of(c), 0);
    for (uint32_t r = 0; r < c->config.world; r++) {
        struct sc_peer *p = &c->peers[r];
        bool both = p->pair.count != 0 && p->pair.from == r && p->pair.to < c->config.world &&
                    same_pair(&p->pair, &c->peers[p->pair.to].pair);
        if (!both)
            p->pair_since_ns = 0;
        else if (p->pair_since_ns == 0)
            p->pair_since_ns = c->now_ns;
    }
}

// The clock is that of the oldest op in flight, by its number.
void sc_op_clock_update(struct sc_core *c) {
    const struct sc_ledger_entry *oldest = sc_ledger_oldest(ledger_of(c));
    uint64_t number = oldest != NULL ? oldest->number : 0;
    uint64_t started = all_started(c); // also when nothing is in flight here: members rely on it
    match_pairs(c);
    if (number != c->clock_number) {
        c->clock_number = number;
        c->started_by_all_ns = c->started_here_ns = 0;
    }
    if (oldest == NULL)
        return;
    if (c->started_here_ns == 0 && oldest->started)
        c->started_here_ns = c->now_ns;
    if (c->started_by_all_ns == 0 && oldest->seqs != 0 && oldest->started &&
        started >= oldest->first_seq)
        c->started_by_all_ns = c->now_ns;
}

// A clock that runs: what it would prove, since when, and its limit.
struct op_clock {
    sc_status code;
    uint64_t since_ns; // 0: none runs
    uint64_t limit_ns;
};

static struct op_clock running_clock(const struct sc_core *c) {
    const struct sc_timing *t = &c->config.timing;
    struct op_clock clock = {.code = SC_FABRIC, .limit_ns = t->op_ns};
    if (c->state != SC_STATE_READY)
        return clock;
    clock.since_ns = c->started_by_all_ns;
    for (uint32_t r = 0; r < c->config.world; r++) {
        uint64_t since = c->peers[r].pair_since_ns;
        if (since != 0 && (clock.since_ns == 0 || since < clock.since_ns))
            clock.since_ns = since;
    }
    if (clock.since_ns == 0 && t->behind_ns != 0)
        clock = (struct op_clock){SC_PEER_BEHIND, c->started_here_ns, t->behind_ns};
    return clock;
}

static uint64_t op_deadline(const struct sc_core *c) {
    struct op_clock clock = running_clock(c);
    return clock.since_ns != 0 ? clock.since_ns + clock.limit_ns : SC_CORE_NEVER_NS;
}

// What no sound peer can say: that it took more than we sent, or that a barrier passed without us.
static bool is_impossible(const struct sc_core *c, const struct sc_ping *ping) {
    return is_coordinator(c) ? ping->taken > c->commands_sent : ping->barrier > c->arrived;
}

sc_status sc_ping_is_heard(struct sc_core *c, const struct sc_event *in, struct sc_actions *out) {
    const struct sc_ping *ping = &in->u.frame.frame->u.ping;
    struct sc_peer *peer = sc_peer_by_link(c, in->u.frame.link);
    uint32_t rank = (uint32_t)(peer - c->peers);
    bool same_epoch = in->u.frame.frame->epoch == c->epoch;
    peer->state = (uint8_t)ping->state;
    peer->loading = ping->loading != 0;
    bool there = same_epoch && (ping->state == SC_STATE_JOINING || ping->state == SC_STATE_READY);
    if (!there)
        sc_left_is_known(c, rank);
    if (same_epoch)
        sc_reason_heard(c, rank, ping, out);
    if (c->state != SC_STATE_READY || !same_epoch)
        return SC_OK;
    if (is_impossible(c, ping))
        return SC_PROTOCOL;
    peer->mark = ping->mark;
    peer->submitted = ping->submitted;
    peer->started = ping->started;
    peer->completed = ping->completed;
    peer->digest = ping->digest;
    peer->pair = ping->pair;
    if (!is_coordinator(c)) {
        c->all_started = ping->all_started;
        c->laggard = ping->laggard;
    }
    sc_op_clock_update(c);
    sc_agreement_heard(c, rank, ping, out);
    sc_barrier_heard(c, rank, ping, out);
    sc_command_heard(c, rank, ping, out);
    return SC_OK;
}

static void drop_silent_peers(struct sc_core *c, struct sc_actions *out) {
    for (uint32_t r = 0; r < c->config.world && sc_actions_room(out) > 8; r++) {
        struct sc_peer *p = &c->peers[r];
        if (p->link == 0 || c->now_ns - p->heard_ns < c->config.timing.silence_ns)
            continue;
        bool evidence = in_epoch(c);
        sc_act_drop(out, p->link);
        sc_peer_gone(c, r, SC_PEER_SILENT, out);
        if (evidence)
            c->phases.detect_ns = c->now_ns - p->heard_ns;
    }
}

static void judge_op_clock(struct sc_core *c, struct sc_actions *out) {
    if (c->now_ns < op_deadline(c))
        return;
    struct op_clock clock = running_clock(c);
    // A send or recv waits for its own peer, and has no seq.
    const struct sc_ledger_entry *oldest = sc_ledger_oldest(ledger_of(c));
    bool pair = oldest != NULL && oldest->seqs == 0;
    struct sc_cause cause = {.code = clock.code, .suspect = SC_RANK_NONE};
    if (clock.code == SC_PEER_BEHIND)
        cause.suspect = pair ? oldest->peer : c->laggard;
    if (!pair)
        cause.seq = sc_ledger_oldest_seq(ledger_of(c));
    sc_leave_epoch(c, &cause, out);
    c->phases.detect_ns = c->now_ns - clock.since_ns;
}

static uint64_t missing_ranks(const struct sc_core *c) {
    uint64_t missing = 0;
    for (uint32_t r = 0; r < c->config.world; r++)
        if (r != c->config.rank && c->peers[r].link == 0 && (is_coordinator(c) || r == 0))
            missing |= UINT64_C(1) << r;
    return missing;
}

void sc_health_tick(struct sc_core *c, struct sc_actions *out) {
    drop_silent_peers(c, out);
    judge_op_clock(c, out);
    if (c->now_ns >= c->missing_at_ns) {
        c->missing_at_ns = SC_CORE_NEVER_NS;
        PUSH(out, .type = SC_ACTION_NOTIFY, .kind = SC_NOTICE_MISSING, .mask = missing_ranks(c));
    }
    uint64_t linked = sc_linked_mask(c);
    if (linked != 0 && c->now_ns >= c->next_ping_ns) {
        sc_act_ping(c, linked, out);
        c->next_ping_ns = c->now_ns + c->config.timing.heartbeat_ns;
    }
}

uint64_t sc_health_deadline(const struct sc_core *c) {
    uint64_t at = op_deadline(c);
    at = c->missing_at_ns < at ? c->missing_at_ns : at;
    for (uint32_t r = 0; r < c->config.world; r++) {
        if (c->peers[r].link == 0)
            continue;
        uint64_t silent = c->peers[r].heard_ns + c->config.timing.silence_ns;
        at = silent < at ? silent : at;
        at = c->next_ping_ns < at ? c->next_ping_ns : at;
    }
    return at;
}
