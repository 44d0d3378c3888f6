// SPDX-License-Identifier: AGPL-3.0-only
//
// The loop: feed an event, perform the actions in order, feed what came of them.
#include "core/pump.h"

#include "core/pump_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEISURE_POLL_NS 1000000u
#define TICKS_MAX 64u // more TICKs than this in one run would mean a deadline that never moves

void sc_pump_config_init(struct sc_pump_config *config) {
    memset(config, 0, sizeof *config);
    sc_core_config_init(&config->core);
    config->captures_max = 64;
    config->link_buffer_bytes = SC_FRAME_MAX_BYTES + SC_LINK_RESERVE_BYTES;
}

// ---- feed and perform ----

void sc_pump_queue(struct sc_pump *p, const struct sc_event *event) {
    SC_ASSERT(p->queue_count < SC_PUMP_QUEUE);
    p->queue[(p->queue_first + p->queue_count++) % SC_PUMP_QUEUE] = *event;
}

void sc_pump_notify(struct sc_pump *p, const struct sc_action *notice) {
    if (p->config.on_notice != NULL)
        p->config.on_notice(p->config.arg, notice);
}

static void perform(struct sc_pump *p, const struct sc_action *a) {
    switch ((enum sc_action_type)a->type) {
    case SC_ACTION_LISTEN: sc_pump_listen(p); break;
    case SC_ACTION_DIAL: sc_pump_dial(p, (uint32_t)a->a); break;
    case SC_ACTION_DROP:
        for (uint32_t r = 0; r < p->config.core.world && a->mask != 0; r++)
            if (a->mask >> r & 1u)
                sc_pump_drop(p, sc_core_link_of(p->core, r));
        if (a->mask == 0)
            sc_pump_drop(p, a->link);
        break;
    case SC_ACTION_SEND: sc_pump_send(p, a); break;
    case SC_ACTION_GET_ID: sc_pump_comm_get_id(p); break;
    case SC_ACTION_COMM_CREATE: sc_pump_comm_create(p, a->epoch); break;
    case SC_ACTION_COMM_ABORT: sc_pump_comm_abort(p, a->epoch); break;
    case SC_ACTION_COMM_ABANDON: sc_pump_comm_abandon(p); break;
    case SC_ACTION_FENCE: sc_pump_fence(p, a->epoch); break;
    case SC_ACTION_REGISTER_ALL: sc_pump_register_all(p); break;
    case SC_ACTION_LAUNCH: // by the thread that submits, once the step is over
        p->launch.number = a->a;
        p->launch.epoch = a->epoch;
        break;
    case SC_ACTION_OP_COMPLETE:
        if (p->config.on_complete != NULL)
            p->config.on_complete(p->config.arg, a->epoch, a->a, a->b);
        break;
    case SC_ACTION_LOST:
        if (p->config.on_lost != NULL)
            p->config.on_lost(p->config.arg, a->epoch, a->a, a->b);
        break;
    case SC_ACTION_NOTIFY: sc_pump_notify(p, a); break;
    case SC_ACTION_COUNT: break;
    }
}

static sc_status step(struct sc_pump *p, struct sc_event *event) {
    struct sc_actions actions;
    event->now_ns = sc_pump_now(p);
    sc_status verdict = sc_core_step(p->core, event, &actions);
    for (uint32_t i = 0; i < actions.count; i++)
        perform(p, &actions.list[i]);
    return verdict;
}

sc_status sc_pump_feed(struct sc_pump *p, struct sc_event *event) {
    sc_status verdict = step(p, event);
    while (p->queue_count > 0) {
        struct sc_event next = p->queue[p->queue_first];
        p->queue_first = (p->queue_first + 1) % SC_PUMP_QUEUE;
        p->queue_count--;
        (void)step(p, &next);
    }
    return verdict;
}

sc_status sc_pump_feed_word(struct sc_pump *p, struct sc_event *event) {
    sc_status verdict = sc_pump_feed(p, event);
    p->config.host->wake(p->config.host->ctx);
    return verdict;
}

// ---- the run ----

uint64_t sc_pump_run(struct sc_pump *p) {
    // Completions first: what is done is done, whatever evidence the links bring next. Links are
    // empty before a deadline is judged: a heartbeat that lies there unread is not silence.
    sc_pump_poll(p);
    sc_pump_comm_run(p);
    if (p->graphs_told != 0 ||
        (p->captures_told != 0 && sc_core_state(p->core) == SC_STATE_ABORTING))
        sc_pump_tell_captures(p); // a graph that lived on after its release has gone at last
    sc_pump_links_run(p);
    uint64_t now = sc_pump_now(p), deadline;
    for (uint32_t ticks = 0; (deadline = sc_core_deadline(p->core)) <= now; ticks++) {
        SC_ASSERT(ticks < TICKS_MAX);
        struct sc_event tick = {.type = SC_EVENT_TICK};
        (void)sc_pump_feed(p, &tick);
        now = sc_pump_now(p);
    }
    uint64_t links = sc_pump_links_deadline(p);
    deadline = links < deadline ? links : deadline;
    uint64_t poll_ns = p->device->poll_ns != 0 ? p->device->poll_ns : SC_NEVER_NS - now;
    enum sc_state state = sc_core_state(p->core);
    bool pending = sc_pump_ops_pending(p);
    bool watching = state < SC_STATE_FAILED && (p->comm != 0 || pending);
    if (state == SC_STATE_READY && poll_ns < LEISURE_POLL_NS && !(p->hurry && pending))
        poll_ns = LEISURE_POLL_NS;
    if (p->fence_due)
        poll_ns = p->config.core.timing.heartbeat_ns;
    if ((watching || p->fence_due) && now + poll_ns < deadline)
        deadline = now + poll_ns;
    return deadline;
}

// ---- open, close ----

static sc_status fail_open(struct sc_pump *p, sc_status status, const char *what, char *why,
                           size_t why_bytes) {
    snprintf(why, why_bytes, "%s: %s", what, sc_status_sentence(status));
    sc_pump_destroy(p);
    return status;
}

static void *zeroed(size_t count, size_t bytes) {
    return calloc(count != 0 ? count : 1, bytes);
}

static bool allocate(struct sc_pump *p, const struct sc_pump_config *config) {
    uint32_t ledger_ops = config->core.ledger_ops;
    p->captures_count = config->captures_max;
    p->links_count = config->core.world + SC_PENDING_MAX + SC_PUMP_SLACK;
    p->master_host = strdup(config->master_host != NULL ? config->master_host : "");
    p->ops = zeroed(ledger_ops, sizeof *p->ops);
    p->links = zeroed(p->links_count, sizeof *p->links);
    p->captures = zeroed(p->captures_count, sizeof *p->captures);
    if (p->master_host == NULL || p->ops == NULL || p->links == NULL || p->captures == NULL)
        return false;
    for (uint32_t i = 0; i < p->captures_count; i++)
        if ((p->captures[i].list = zeroed(ledger_ops, sizeof *p->captures[i].list)) == NULL)
            return false;
    p->core = aligned_alloc(16, (sc_core_bytes(&config->core) + 15u) & ~(size_t)15u);
    return p->core != NULL;
}

static sc_status check_config(const struct sc_pump_config *config, char *why, size_t why_bytes) {
    struct sc_config_fault fault;
    bool alone = config->core.world == 1;
    uint32_t offer = SC_FRAME_HEADER_BYTES + 512u + 64u * config->core.world;
    if (sc_core_config_check(&config->core, &fault) != SC_OK)
        snprintf(why, why_bytes, "config: %s is %llu, must be from %llu to %llu", fault.field,
                 (unsigned long long)fault.value, (unsigned long long)fault.min,
                 (unsigned long long)fault.max);
    else if (!alone && (config->master_host == NULL || config->master_host[0] == '\0'))
        snprintf(why, why_bytes, "config: master_host is empty; every rank needs rank 0's address");
    else if (!alone && config->master_port == 0)
        snprintf(why, why_bytes, "config: master_port is 0; give a fixed port, the same on all");
    else if (config->link_buffer_bytes < offer)
        snprintf(why, why_bytes, "config: link_buffer_bytes is %u, a world of %u needs %u",
                 config->link_buffer_bytes, config->core.world, offer);
    else
        return SC_OK;
    return SC_INVALID;
}

sc_status sc_pump_open(const struct sc_pump_config *config, struct sc_pump **out, char *why,
                       size_t why_bytes) {
    sc_status status = check_config(config, why, why_bytes);
    if (status != SC_OK)
        return status;
    struct sc_pump *p = zeroed(1, sizeof *p);
    if (p == NULL || !allocate(p, config))
        return fail_open(p, SC_NO_MEMORY, "open", why, why_bytes);
    p->config = *config;
    p->config.master_host = p->master_host;
    p->device = config->device;
    uint64_t seed;
    if ((status = config->host->entropy(config->host->ctx, &seed, sizeof seed)) != SC_OK)
        return fail_open(p, status, "open: entropy", why, why_bytes);
    p->core = sc_core_init(p->core, &config->core, seed);
    if ((status = sc_pump_links_open(p)) != SC_OK)
        return fail_open(p, status, "open: link buffers", why, why_bytes);
    if ((status = sc_pump_comm_open(p)) != SC_OK)
        return fail_open(p, status, "open: receive buffer of capacity_bytes", why, why_bytes);
    struct sc_event start = {.type = SC_EVENT_START};
    (void)sc_pump_feed(p, &start);
    if (p->listen_status != SC_OK) {
        char where[400], what[sizeof where + 32];
        if (sc_pump_explain(p, where, sizeof where)[0] == '\0')
            snprintf(where, sizeof where, "%.300s port %u", p->master_host,
                     (unsigned)config->master_port);
        snprintf(what, sizeof what, "open: listen on %s", where);
        return fail_open(p, p->listen_status, what, why, why_bytes);
    }
    *out = p;
    return SC_OK;
}

void sc_pump_destroy(struct sc_pump *p) {
    if (p == NULL)
        return;
    if (p->device != NULL) {
        sc_pump_ops_close(p);
        sc_pump_comm_close(p);
        sc_pump_links_close(p);
    }
    for (uint32_t i = 0; p->captures != NULL && i < p->captures_count; i++)
        free(p->captures[i].list);
    free(p->captures);
    free(p->links);
    free(p->ops);
    free(p->master_host);
    free(p->core);
    free(p);
}

// ---- the application's words ----

void sc_pump_join(struct sc_pump *p) {
    struct sc_event event = {.type = SC_EVENT_JOIN};
    (void)sc_pump_feed_word(p, &event);
}

sc_status sc_pump_mark(struct sc_pump *p, uint64_t epoch, uint64_t mark) {
    struct sc_event event = {.type = SC_EVENT_MARK, .epoch = epoch, .u.mark = mark};
    return sc_pump_feed_word(p, &event);
}

sc_status sc_pump_sync(struct sc_pump *p, uint64_t epoch, uint64_t seq) {
    struct sc_event event = {.type = SC_EVENT_SYNC, .epoch = epoch, .u.sync.seq = seq};
    return sc_pump_feed_word(p, &event);
}

sc_status sc_pump_barrier(struct sc_pump *p, uint64_t epoch, uint64_t *number) {
    struct sc_event event = {.type = SC_EVENT_BARRIER, .epoch = epoch};
    struct sc_core_view view;
    sc_status status = sc_pump_feed_word(p, &event);
    sc_core_view(p->core, &view);
    if (status == SC_OK)
        *number = view.arrived;
    return status;
}

sc_status sc_pump_command(struct sc_pump *p, uint64_t epoch, const void *data, uint32_t bytes) {
    uint64_t needed = SC_COMMAND_FRAME_BYTES((uint64_t)bytes) + SC_LINK_RESERVE_BYTES;
    if (bytes <= SC_COMMAND_MAX_BYTES && needed > p->config.link_buffer_bytes)
        return SC_TOO_LARGE;
    p->command = data;
    p->command_bytes = bytes;
    bool room = sc_pump_links_have_room(p, needed);
    struct sc_event event = {
        .type = SC_EVENT_COMMAND, .epoch = epoch, .u.command = {.bytes = bytes, .room = room}};
    sc_status status = sc_pump_feed_word(p, &event);
    if (status == SC_BUSY && !room) { // the core hears of windows only; of links we tell
        p->refused_epoch = epoch;
        p->refused_bytes = needed;
    }
    return status;
}

sc_status sc_pump_command_taken(struct sc_pump *p, uint64_t epoch, uint64_t cost_bytes) {
    struct sc_event event = {.type = SC_EVENT_COMMAND_TAKEN, .epoch = epoch, .u.taken = cost_bytes};
    return sc_pump_feed_word(p, &event);
}

sc_status sc_pump_reconnect(struct sc_pump *p, uint64_t epoch, uint32_t reason) {
    sc_pump_poll(p);
    struct sc_event event = {.type = SC_EVENT_RECONNECT, .epoch = epoch, .u.reason = reason};
    return sc_pump_feed_word(p, &event);
}

sc_status sc_pump_close(struct sc_pump *p, bool final) {
    sc_pump_poll(p);
    struct sc_event event = {.type = SC_EVENT_CLOSE, .u.final = final};
    return sc_pump_feed_word(p, &event);
}

void sc_pump_hurry(struct sc_pump *p, bool hurry) {
    p->hurry = hurry;
}

const struct sc_core *sc_pump_core(const struct sc_pump *p) {
    return p->core;
}

void sc_pump_view(const struct sc_pump *p, struct sc_core_view *out) {
    sc_core_view(p->core, out);
}

sc_status sc_pump_take_recovery(struct sc_pump *p, struct sc_recovery *out) {
    return sc_core_take_recovery(p->core, out);
}
