// SPDX-License-Identifier: AGPL-3.0-only
//
// Ending an epoch: evidence -> ABORTING -> clean -> RENDEZVOUS, FAILED or CLOSED.
//
// Clean means: no communicator of ours lives (or an abort that a dead or frozen peer holds up was
// given up), and every op of the epoch has left its stream. The abort's clock runs only while no op
// waits behind the application's own work, and starts anew at each sign of progress.
#include "core/inside.h"

bool sc_cause_is_loss(uint32_t code) {
    return code == SC_PEER_DEAD || code == SC_PEER_SILENT || code == SC_LINK_LOST;
}

static uint64_t clock_start(const struct sc_core *c) {
    return !c->abort_called || sc_ledger_waits(ledger_of(c)) ? SC_CORE_NEVER_NS : c->now_ns;
}

static void tell_captures(uint32_t count, struct sc_actions *out) {
    PUSH(out, .type = SC_ACTION_NOTIFY, .kind = SC_NOTICE_CAPTURES, .a = count);
}

// What the abort must wait for: captures that the application has not released, and graphs that it has
// kept all the same. But a graph that was destroyed in mid-launch lives until its kernels end, and
// these spin until the abort: while an op is in flight, graphs are not waited for.
static uint32_t captures_ahead(const struct sc_core *c) {
    return c->captures != 0 || !sc_ledger_empty(ledger_of(c)) ? c->captures : c->graphs;
}

static void call_abort(struct sc_core *c, struct sc_actions *out) {
    if (captures_ahead(c) != 0) {
        tell_captures(captures_ahead(c), out);
        return;
    }
    if (SC_MUTANT(2))
        sc_act(out, SC_ACTION_COMM_ABORT, c->epoch);
    sc_act(out, SC_ACTION_COMM_ABORT, c->epoch);
    c->abort_called = 1;
    c->abort_clock_ns = clock_start(c);
}

void sc_leave_epoch(struct sc_core *c, const struct sc_cause *cause, struct sc_actions *out) {
    SC_ASSERT(in_epoch(c));
    struct sc_ledger *ledger = ledger_of(c);
    bool was_ready = c->state == SC_STATE_READY;
    c->cause = *cause;
    c->peer_lost = sc_cause_is_loss(cause->code);
    c->phases = (struct sc_phases){0}; // who had to wait for its evidence says so itself
    c->left_ns = c->now_ns;
    c->missing_at_ns = c->config.join_ns ? c->now_ns + c->config.join_ns : SC_CORE_NEVER_NS;
    if (was_ready) {
        c->record_submitted = ledger->submitted_seq;
        c->record_completed = ledger->completed_seq;
        if (c->now_ns - c->ready_since_ns >= c->config.stable_ns)
            c->failures = 0;
    }
    c->retry_at_ns = c->now_ns + sc_core_backoff(c, c->failures++);
    for (uint32_t r = 0; r < c->config.world; r++)
        c->peers[r].in_epoch = c->peers[r].link != 0;

    if (!sc_ledger_empty(ledger))
        PUSH(out, .type = SC_ACTION_LOST, .epoch = c->epoch, .a = ledger->oldest_number,
             .b = ledger->next_number - 1);
    if (was_ready)
        sc_act(out, SC_ACTION_FENCE, 0);
    uint64_t told = sc_linked_mask(c);
    if (SC_MUTANT(3))
        told &= told - 1;
    sc_act_send(out, SC_FRAME_ABORT, told, c->epoch);
    sc_core_enter(c, SC_STATE_ABORTING, out);
    if (!is_coordinator(c) && sc_reason_is_open(c))
        sc_act_ping(c, told, out); // what we submitted may be the reason
    c->abort_clock_ns = SC_CORE_NEVER_NS;
    call_abort(c, out);
}

void sc_left_is_known(struct sc_core *c, uint32_t rank) {
    if (!c->peers[rank].in_epoch)
        return;
    c->peers[rank].in_epoch = 0;
    for (uint32_t r = 0; r < c->config.world; r++)
        if (c->peers[r].in_epoch)
            return;
    c->phases.agree_ns = c->now_ns - c->left_ns;
}

// ---- terminal ----

static void drop_all_links(struct sc_core *c, struct sc_actions *out) {
    uint64_t linked = sc_linked_mask(c);
    if (linked != 0)
        PUSH(out, .type = SC_ACTION_DROP, .mask = linked);
    c->parting = linked;
    if (!is_coordinator(c) && c->call != SC_CALL_UP && c->call != SC_CALL_IDLE)
        sc_act_drop(out, c->call_link);
    c->call = SC_CALL_IDLE;
    c->call_link = 0;
}

static void enter_failed(struct sc_core *c, struct sc_actions *out) {
    c->cause = c->terminal;
    sc_act_send(out, SC_FRAME_BYE, sc_linked_mask(c), 0);
    drop_all_links(c, out);
    sc_core_enter(c, SC_STATE_FAILED, out);
}

static void enter_closed(struct sc_core *c, struct sc_actions *out) {
    drop_all_links(c, out);
    // Memory that an abandoned communicator may touch is not the application's to free.
    if (c->abandoned)
        c->cause = (struct sc_cause){.code = SC_ABORT_STUCK, .suspect = c->config.rank};
    for (uint32_t i = 0; i < SC_PENDING_MAX; i++)
        c->pending[i].link = 0; // the pump closes listener and links that no rank holds
    c->pending_count = 0;
    sc_core_enter(c, SC_STATE_CLOSED, out);
}

void sc_fail(struct sc_core *c, const struct sc_cause *cause, struct sc_actions *out) {
    if (c->state == SC_STATE_FAILED || c->state == SC_STATE_CLOSED)
        return;
    if (c->terminal.code == SC_OK)
        c->terminal = *cause;
    if (in_epoch(c))
        sc_leave_epoch(c, cause, out);
    // A lost context can neither abort nor drain: nothing to wait for.
    if (c->state == SC_STATE_ABORTING && cause->code != SC_CONTEXT_LOST)
        return;
    if (c->closing)
        enter_closed(c, out);
    else
        enter_failed(c, out);
}

// ---- clean ----

static void settle_if_clean(struct sc_core *c, struct sc_actions *out) {
    if (c->state != SC_STATE_ABORTING || c->comm_live || !sc_ledger_empty(ledger_of(c)))
        return;
    c->clean_ns = c->now_ns;
    c->phases.abort_ns = c->now_ns - c->left_ns;
    if (c->closing) {
        enter_closed(c, out);
    } else if (c->terminal.code != SC_OK) {
        enter_failed(c, out);
    } else {
        sc_core_enter(c, SC_STATE_RENDEZVOUS, out);
        sc_renew_hello(c, out);
        sc_try_offer(c, out);
    }
}

sc_status sc_comm_gone_cleans(struct sc_core *c, const struct sc_event *in,
                              struct sc_actions *out) {
    if (in->epoch != c->epoch)
        return SC_OK;
    c->comm_live = 0;
    settle_if_clean(c, out);
    return SC_OK;
}

// An op of the epoch being left was reached, or left its stream. Its result does not count: the
// ledger's numbers were frozen when the epoch was left.
sc_status sc_op_drains(struct sc_core *c, const struct sc_event *in, struct sc_actions *out) {
    struct sc_ledger *ledger = ledger_of(c);
    struct sc_ledger_entry *entry = sc_ledger_find(ledger, in->u.op.number);
    if (in->epoch != c->epoch || entry == NULL || entry->done)
        return SC_OK;
    if (in->type == SC_EVENT_OP_FAILED && sc_status_is_terminal(in->u.op.status)) {
        const struct sc_cause cause = {.code = in->u.op.status, .suspect = c->config.rank};
        sc_fail(c, &cause, out);
        return SC_OK;
    }
    if (in->type == SC_EVENT_OP_STARTED) {
        sc_ledger_start(ledger, entry);
    } else if (in->type == SC_EVENT_OP_DONE) {
        if (SC_MUTANT(1))
            PUSH(out, .type = SC_ACTION_OP_COMPLETE, .epoch = c->epoch, .a = entry->number,
                 .b = sc_ledger_last_seq(entry));
        sc_ledger_finish(ledger, entry);
    } else if (in->type == SC_EVENT_OP_FAILED && c->abort_clock_ns == SC_CORE_NEVER_NS) {
        sc_ledger_start(ledger, entry); // where it stands cannot be told: that excuses no delay
    } else {
        return SC_OK; // no progress
    }
    c->abort_clock_ns = clock_start(c);
    settle_if_clean(c, out);
    return SC_OK;
}

sc_status sc_captures_change(struct sc_core *c, const struct sc_event *in, struct sc_actions *out) {
    c->captures = in->u.captures.held;
    c->graphs = in->u.captures.graphs;
    if (c->state != SC_STATE_ABORTING)
        return SC_OK;
    if (!c->abort_called && captures_ahead(c) == 0)
        call_abort(c, out);
    else
        c->abort_clock_ns = clock_start(c);
    return SC_OK;
}

// ---- what makes a rank leave ----

sc_status sc_abort_is_heeded(struct sc_core *c, const struct sc_event *in, struct sc_actions *out) {
    uint32_t rank = (uint32_t)(sc_peer_by_link(c, in->u.frame.link) - c->peers);
    if (in->u.frame.frame->epoch == c->epoch)
        sc_leave_epoch(c, &in->u.frame.frame->u.cause, out);
    sc_left_is_known(c, rank);
    return SC_OK;
}

sc_status sc_stray_abort_is_noted(struct sc_core *c, const struct sc_event *in,
                                  struct sc_actions *out) {
    const struct sc_cause *cause = &in->u.frame.frame->u.cause;
    if (in->u.frame.frame->epoch == c->epoch) {
        c->peer_lost |= sc_cause_is_loss(cause->code);
        if (!is_coordinator(c))
            (void)sc_reason_found(c, cause, out);
    }
    sc_left_is_known(c, (uint32_t)(sc_peer_by_link(c, in->u.frame.link) - c->peers));
    return SC_OK;
}

// While leaving, only a lost context matters: it will neither abort nor drain.
sc_status sc_comm_failed_while_leaving(struct sc_core *c, const struct sc_event *in,
                                       struct sc_actions *out) {
    const struct sc_cause cause = {.code = in->u.comm_failed.status, .suspect = c->config.rank};
    if (sc_status_is_terminal(in->u.comm_failed.status))
        sc_fail(c, &cause, out);
    return SC_OK;
}

sc_status sc_reconnect_leaves(struct sc_core *c, const struct sc_event *in,
                              struct sc_actions *out) {
    if (c->state != SC_STATE_READY || in->epoch != c->epoch)
        return SC_OK;
    const struct sc_cause cause = {
        .code = SC_RECONNECT, .suspect = c->config.rank, .value = {in->u.reason}};
    sc_leave_epoch(c, &cause, out);
    return SC_OK;
}

sc_status sc_close_leaves(struct sc_core *c, const struct sc_event *in, struct sc_actions *out) {
    if (c->state == SC_STATE_CLOSED || c->closing)
        return SC_CLOSED;
    c->closing = 1;
    const struct sc_cause cause = {.code = SC_CLOSED, .suspect = c->config.rank};
    if (c->state != SC_STATE_FAILED) {
        c->terminal = cause; // what BYE tells
        c->terminal.code = in->u.final ? SC_PEER_LEFT : SC_CLOSED;
    }
    if (in_epoch(c))
        sc_leave_epoch(c, &cause, out);
    sc_act_send(out, SC_FRAME_BYE, sc_linked_mask(c), 0);
    if (c->state != SC_STATE_ABORTING)
        enter_closed(c, out);
    return SC_OK;
}

// ---- time ----

// The rank that kept the others waiting; none when no communicator is known to be warm. A member knows
// of its own only.
static uint32_t who_has_not_joined(const struct sc_core *c) {
    uint32_t first_missing = SC_RANK_NONE;
    bool any = false;
    for (uint32_t r = 0; is_coordinator(c) && r < c->config.world; r++) {
        bool joined = r == 0 ? c->comm_ready : c->peers[r].joined;
        any |= joined;
        if (!joined && first_missing == SC_RANK_NONE)
            first_missing = r;
    }
    return any ? first_missing : SC_RANK_NONE;
}

void sc_leaving_tick(struct sc_core *c, struct sc_actions *out) {
    if (c->state == SC_STATE_JOINING && c->now_ns >= c->init_deadline_ns) {
        const struct sc_cause cause = {.code = SC_INIT_TIMEOUT, .suspect = who_has_not_joined(c)};
        sc_leave_epoch(c, &cause, out);
    }
    if (c->state != SC_STATE_ABORTING || c->now_ns < sc_leaving_deadline(c))
        return;
    if (c->graphs != 0) { // the application has released them and kept them
        tell_captures(c->graphs, out);
        c->abort_clock_ns = c->now_ns;
        return;
    }
    // A dead or frozen peer can hold an abort up for ever; a well one cannot.
    if (sc_ledger_empty(ledger_of(c)) && c->peer_lost) {
        sc_act(out, SC_ACTION_COMM_ABANDON, c->epoch);
        c->abandoned = 1;
        c->comm_live = 0;
        settle_if_clean(c, out);
        return;
    }
    const struct sc_cause stuck = {.code = SC_ABORT_STUCK, .suspect = c->config.rank};
    c->terminal = stuck;
    if (c->closing) {
        c->cause = stuck;
        enter_closed(c, out);
    } else {
        enter_failed(c, out);
    }
}

uint64_t sc_leaving_deadline(const struct sc_core *c) {
    if (c->state == SC_STATE_JOINING)
        return c->init_deadline_ns;
    if (c->state == SC_STATE_ABORTING && c->abort_clock_ns != SC_CORE_NEVER_NS)
        return c->abort_clock_ns + c->config.timing.abort_ns;
    return SC_CORE_NEVER_NS;
}
