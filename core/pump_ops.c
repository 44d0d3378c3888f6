// SPDX-License-Identifier: AGPL-3.0-only
//
// Ops: submitting them, and polling those in flight.
#include "core/pump_inside.h"

static void *ctx(const struct sc_pump *p) {
    return p->device->ctx;
}

void sc_pump_feed_op(struct sc_pump *p, enum sc_event_type type, uint64_t number,
                     sc_status status) {
    struct sc_event event;
    event.type = type;
    event.epoch = p->comm_epoch;
    event.u.op.number = number;
    event.u.op.status = status;
    (void)sc_pump_feed(p, &event);
}

static sc_status submit_from(struct sc_pump *p, uint64_t epoch, const struct sc_op_desc *desc,
                             const struct sc_op_place *place, uint64_t from, uint64_t *number,
                             uint64_t *seq) {
    p->launch = (struct sc_pump_launch){.desc = desc,
                                        .place = place,
                                        .stream = place->stream,
                                        .from = from,
                                        .seqs = sc_op_is_collective(desc->kind)};
    struct sc_event event;
    event.type = SC_EVENT_OP_SUBMIT;
    event.epoch = epoch;
    event.u.submit.desc = *desc;
    event.u.submit.place = *place;
    return sc_pump_launch_through(p, &event, number, seq);
}

sc_status sc_pump_submit(struct sc_pump *p, uint64_t epoch, const struct sc_op_desc *desc,
                         const struct sc_op_place *place, uint64_t *number, uint64_t *seq) {
    struct sc_pump_capture *capture = sc_pump_capturing_on(p, place->stream);
    if (capture == NULL)
        return submit_from(p, epoch, desc, place, SC_STREAM_NONE, number, seq);
    *number = *seq = 0;
    return sc_pump_record(p, capture, epoch, desc, place, 1);
}

sc_status sc_pump_start(struct sc_pump *p, uint64_t epoch, const struct sc_op_desc *desc,
                        const struct sc_op_place *place, uint64_t from, uint64_t *number,
                        uint64_t *seq) {
    struct sc_pump_capture *capture = sc_pump_capturing_on(p, from);
    if (capture == NULL)
        return submit_from(p, epoch, desc, place, from, number, seq);
    struct sc_op_place there = *place; // a capture is of one stream: in there, in order
    there.stream = from;
    *number = *seq = 0;
    return sc_pump_record(p, capture, epoch, desc, &there, 1);
}

// Both sides of a pair must name it alike: the lowest pair of a group comes first in it.
static void put_lowest_pair_first(const struct sc_pump *p, struct sc_op_desc *descs,
                                  struct sc_op_place *places, uint32_t count) {
    uint32_t own = p->config.core.rank, lowest = 0, at = 0;
    for (uint32_t i = 0; i < count; i++) {
        bool sends = descs[i].kind == SC_OP_SEND;
        uint32_t from = sends ? own : descs[i].root, to = sends ? descs[i].root : own;
        if (i == 0 || from * SC_WORLD_MAX + to < lowest) {
            lowest = from * SC_WORLD_MAX + to;
            at = i;
        }
    }
    struct sc_op_desc desc = descs[0];
    struct sc_op_place place = places[0];
    descs[0] = descs[at];
    places[0] = places[at];
    descs[at] = desc;
    places[at] = place;
}

sc_status sc_pump_submit_group(struct sc_pump *p, uint64_t epoch, struct sc_op_desc *descs,
                               struct sc_op_place *places, uint32_t count, uint64_t *number) {
    uint64_t seq = 0;
    *number = 0;
    for (uint32_t i = 0; i < count; i++) {
        sc_status status = sc_core_check_op(p->core, &descs[i], &places[i]);
        bool fits = !sc_op_is_collective(descs[i].kind) && descs[i].bytes != 0 &&
                    places[i].stream == places[0].stream;
        if (status != SC_OK || !fits)
            return status != SC_OK ? status : SC_INVALID;
    }
    if (count == 0)
        return sc_pump_is_live(p, epoch) ? SC_OK : SC_EPOCH_LOST;
    put_lowest_pair_first(p, descs, places, count);
    struct sc_pump_capture *capture = sc_pump_capturing_on(p, places[0].stream);
    if (capture != NULL)
        return sc_pump_record(p, capture, epoch, descs, places, count);
    p->launch = (struct sc_pump_launch){.desc = descs,
                                        .place = places,
                                        .count = count,
                                        .stream = places[0].stream,
                                        .from = SC_STREAM_NONE};
    struct sc_event event = {.type = SC_EVENT_REPLAY, .epoch = epoch};
    event.u.replay.list = descs;
    event.u.replay.count = count;
    event.u.replay.stream = places[0].stream;
    return sc_pump_launch_through(p, &event, number, &seq);
}

// ---- polling ----

// Whether an op's polls have given no answer for longer than an op may take; while the epoch is being
// left, that excuses no delay at all.
static bool is_mute(struct sc_pump *p, uint64_t number) {
    if (p->mute_number == 0) {
        p->mute_number = number;
        p->mute_since_ns = sc_pump_now(p);
    }
    return sc_core_state(p->core) == SC_STATE_ABORTING ||
           (p->mute_number == number &&
            sc_pump_now(p) - p->mute_since_ns >= p->config.core.timing.op_ns);
}

// The op has left its stream.
static inline void finish(struct sc_pump *p, uint64_t number, uint64_t *op) {
    if (number == p->pinned_number)
        p->pinned_op = *op;
    else if (*op != 0)
        (void)p->device->op_release(ctx(p), *op);
    *op = 0;
    sc_pump_feed_op(p, SC_EVENT_OP_DONE, number, SC_OK);
}

// Polls the oldest op of one stream; true when it left, and the next one may be looked at. A poll
// that itself fails says nothing of where the op is: it is evidence, and the op stays.
static bool poll_oldest(struct sc_pump *p, const struct sc_ledger_entry *entry) {
    uint64_t number = entry->number;
    uint64_t *op = sc_pump_op_slot(p, number);
    if (*op == 0 || number == p->open_replay)
        return false;
    enum sc_op_state state = SC_OP_ENQUEUED;
    sc_status status = p->device->op_poll(ctx(p), *op, &state);
    if (status == SC_INPROGRESS && !is_mute(p, number))
        return false;
    if (status != SC_OK) {
        sc_pump_feed_op(p, SC_EVENT_OP_FAILED, number, status);
        return false;
    }
    if (p->mute_number != 0 && p->mute_number == number)
        p->mute_number = 0;
    if (state == SC_OP_ENQUEUED)
        return false;
    if (state == SC_OP_STARTED) {
        if (!entry->started)
            sc_pump_feed_op(p, SC_EVENT_OP_STARTED, number, SC_OK);
        return false;
    }
    if (state == SC_OP_FAILED)
        sc_pump_feed_op(p, SC_EVENT_OP_FAILED, number, SC_DEVICE_ERROR);
    finish(p, number, op);
    return true;
}

static bool is_done(struct sc_pump *p, uint64_t number) {
    enum sc_op_state state = SC_OP_ENQUEUED;
    uint64_t op = *sc_pump_op_slot(p, number);
    return op != 0 && number != p->open_replay && p->device->op_poll(ctx(p), op, &state) == SC_OK &&
           state == SC_OP_DONE;
}

// A stream is done with its ops in their order. When the oldest is done the newest is asked next: often
// all are, and a poll of each would take longer than whoever waits for them should.
static void poll_stream(struct sc_pump *p, const struct sc_ledger *ledger,
                        const struct sc_ledger_stream *s) {
    bool asked = false;
    while (s->oldest != 0 && poll_oldest(p, sc_ledger_at(ledger, s->oldest))) {
        uint64_t newest = s->newest;
        if (asked || s->oldest == 0 || s->oldest == newest)
            continue;
        asked = true;
        if (is_done(p, newest))
            while (s->oldest != 0 && s->oldest <= newest && s->oldest != p->open_replay)
                finish(p, s->oldest, sc_pump_op_slot(p, s->oldest));
    }
}

void sc_pump_poll(struct sc_pump *p) {
    const struct sc_ledger *ledger = sc_core_ledger(p->core);
    if (sc_ledger_empty(ledger) || !sc_pump_is_watching(p))
        return;
    for (uint32_t i = 0; i < ledger->streams_used; i++)
        poll_stream(p, ledger, &ledger->streams[i]);
}

uint64_t sc_pump_stream_newest(const struct sc_pump *p, uint64_t stream) {
    const struct sc_ledger *ledger = sc_core_ledger(p->core);
    for (uint32_t i = 0; i < ledger->streams_used; i++)
        if (ledger->streams[i].oldest != 0 && ledger->streams[i].stream == stream)
            return ledger->streams[i].newest;
    return 0;
}

bool sc_pump_op_pending(const struct sc_pump *p, uint64_t number) {
    const struct sc_ledger *ledger = sc_core_ledger(p->core);
    return number >= ledger->oldest_number && number < ledger->next_number &&
           !sc_ledger_at(ledger, number)->done;
}

bool sc_pump_ops_pending(const struct sc_pump *p) {
    return !sc_ledger_empty(sc_core_ledger(p->core));
}

void sc_pump_ops_close(struct sc_pump *p) {
    if (p->open_replay != 0)
        (void)p->device->replay_end(ctx(p), *sc_pump_op_slot(p, p->open_replay));
    for (uint32_t i = 0; p->ops != NULL && i < p->config.core.ledger_ops; i++)
        if (p->ops[i] != 0)
            (void)p->device->op_release(ctx(p), p->ops[i]);
}
