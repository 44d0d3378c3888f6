// SPDX-License-Identifier: AGPL-3.0-only
//
// Ops: composing one out of the seam's verbs, polling those in flight, captures and replays.
#include "core/pump_inside.h"

static void *ctx(const struct sc_pump *p) {
    return p->device->ctx;
}

static uint64_t *op_slot(struct sc_pump *p, uint64_t number) {
    return &p->ops[number % p->config.core.ledger_ops];
}

// ---- composing ----

// The exchange of a world of two: one group moves both payloads, then the sum. The group ends
// exactly once whatever happened inside it, and nothing is added from an exchange in error.
static sc_status pair_exchange(struct sc_pump *p, const struct sc_op_desc *desc,
                               const struct sc_op_place *place, uint64_t permit) {
    const struct sc_device *d = p->device;
    uint32_t peer = 1u - p->config.core.rank;
    sc_status status = d->group_begin(ctx(p));
    if (status != SC_OK)
        return status;
    status = d->send(ctx(p), p->comm, place->src, desc->bytes, peer, place->stream);
    if (status == SC_OK)
        status = d->recv(ctx(p), p->comm, p->receive, desc->bytes, peer, place->stream);
    if (SC_MUTANT(6) && status != SC_OK)
        return status;
    sc_status ended = d->group_end(ctx(p));
    status = status != SC_OK ? status : ended;
    if (status == SC_OK && !SC_MUTANT(7))
        status = d->comm_error(ctx(p), p->comm);
    if (status != SC_OK)
        return status;
    return d->add_bf16(ctx(p), place->dst, p->receive, desc->bytes, permit, place->stream);
}

static sc_status compose(struct sc_pump *p, const struct sc_op_desc *desc,
                         const struct sc_op_place *place, uint64_t permit) {
    const struct sc_device *d = p->device;
    uint64_t comm = p->comm, bytes = desc->bytes;
    SC_ASSERT(comm != 0 && bytes <= p->config.core.capacity_bytes);
    sc_status status = SC_INVALID;
    switch ((enum sc_op_kind)desc->kind) {
    case SC_OP_ALL_REDUCE:
        if (p->config.core.world == 2)
            return pair_exchange(p, desc, place, permit);
        status = d->all_reduce(ctx(p), comm, place->dst, bytes, place->stream);
        break;
    case SC_OP_BROADCAST:
        status = d->broadcast(ctx(p), comm, place->dst, bytes, desc->root, place->stream);
        break;
    case SC_OP_ALL_GATHER:
        status = d->all_gather(ctx(p), comm, place->src, place->dst, bytes, place->stream);
        break;
    case SC_OP_REDUCE_SCATTER:
        status = d->reduce_scatter(ctx(p), comm, place->src, place->dst, bytes, place->stream);
        break;
    case SC_OP_SEND:
        status = d->send(ctx(p), comm, place->src, bytes, desc->root, place->stream);
        break;
    case SC_OP_RECV:
        status = d->recv(ctx(p), comm, place->dst, bytes, desc->root, place->stream);
        break;
    case SC_OP_KIND_COUNT: break;
    }
    if (status == SC_OK && !SC_MUTANT(7))
        status = d->comm_error(ctx(p), comm);
    return status;
}

// One receive buffer serves all streams: an op on another stream than its predecessor's waits for it.
static sc_status order_streams(struct sc_pump *p, uint64_t stream) {
    uint64_t newest = p->newest_number != 0 ? *op_slot(p, p->newest_number) : 0;
    if (newest == 0 || p->newest_stream == stream)
        return SC_OK;
    return p->device->stream_wait(ctx(p), stream, newest);
}

static sc_status launch_op(struct sc_pump *p, uint64_t epoch, uint64_t *op) {
    const struct sc_pump_launch *l = &p->launch;
    sc_status status = p->device->op_begin(ctx(p), l->stream, op);
    if (status != SC_OK)
        return status;
    status = compose(p, l->desc, l->place, epoch);
    if (status == SC_INPROGRESS) // half an op is none: nothing here is asked for again
        status = SC_SUBMIT_FAILED;
    sc_status ended = p->device->op_end(ctx(p), *op);
    return status != SC_OK ? status : ended;
}

void sc_pump_launch(struct sc_pump *p, const struct sc_action *action) {
    struct sc_pump_launch *l = &p->launch;
    uint64_t op = 0;
    uint64_t number = action->a;
    l->status = order_streams(p, l->stream);
    if (l->status == SC_OK && l->replay != NULL)
        l->status =
            p->device->replay_begin(ctx(p), l->replay->handle, l->stream, action->epoch, &op);
    else if (l->status == SC_OK)
        l->status = launch_op(p, action->epoch, &op);
    *op_slot(p, number) = op;
    if (l->status == SC_OK) {
        p->newest_number = number;
        p->newest_stream = l->stream;
        p->open_replay = l->replay != NULL ? number : p->open_replay;
        return;
    }
    struct sc_event event = {.type = SC_EVENT_OP_FAILED, .epoch = action->epoch};
    event.u.op.number = number;
    event.u.op.status = l->status;
    sc_pump_queue(p, &event);
    if (op == 0) { // nothing is on the stream: it has drained already
        event.type = SC_EVENT_OP_DONE;
        sc_pump_queue(p, &event);
    }
}

// The verdict on a submit: of the core, or of the launch that followed.
static sc_status launch_through(struct sc_pump *p, struct sc_event *event, uint64_t *number,
                                uint64_t *seq) {
    sc_status status = sc_pump_feed(p, event);
    if (status != SC_OK)
        return status;
    if (p->launch.status != SC_OK) { // the epoch is being left
        p->config.host->wake(p->config.host->ctx);
        return p->launch.status;
    }
    // The newest entry of the ledger, whether it was launched or was complete at once.
    const struct sc_ledger *ledger = sc_core_ledger(p->core);
    *number = ledger->next_number - 1;
    *seq = p->launch.seqs != 0 ? ledger->submitted_seq - p->launch.seqs + 1 : 0;
    return SC_OK;
}

static struct sc_pump_capture *capturing_on(struct sc_pump *p, uint64_t stream) {
    for (uint32_t i = 0; p->captures_open != 0 && i < p->captures_count; i++)
        if (p->captures[i].open && p->captures[i].stream == stream)
            return &p->captures[i];
    return NULL;
}

static bool is_live(const struct sc_pump *p, uint64_t epoch) {
    return sc_core_state(p->core) == SC_STATE_READY && epoch == p->comm_epoch;
}

static sc_status record(struct sc_pump *p, struct sc_pump_capture *capture, uint64_t epoch,
                        const struct sc_op_desc *desc, const struct sc_op_place *place) {
    if (!is_live(p, epoch) || epoch != capture->epoch)
        return SC_EPOCH_LOST;
    sc_status status = sc_core_check_op(p->core, desc, place);
    if (status != SC_OK)
        return status;
    if (capture->count == p->config.core.ledger_ops)
        return SC_TOO_LARGE;
    if (!sc_core_op_is_void(p->core, desc))
        status = compose(p, desc, place, 0);
    if (status != SC_OK)
        return status;
    capture->list[capture->count++] = *desc;
    return SC_OK;
}

sc_status sc_pump_submit(struct sc_pump *p, uint64_t epoch, const struct sc_op_desc *desc,
                         const struct sc_op_place *place, uint64_t *number, uint64_t *seq) {
    struct sc_pump_capture *capture = capturing_on(p, place->stream);
    if (capture != NULL) {
        *number = *seq = 0;
        return record(p, capture, epoch, desc, place);
    }
    p->launch = (struct sc_pump_launch){.desc = desc,
                                        .place = place,
                                        .stream = place->stream,
                                        .seqs = sc_op_is_collective(desc->kind)};
    struct sc_event event;
    event.type = SC_EVENT_OP_SUBMIT;
    event.epoch = epoch;
    event.u.submit.desc = *desc;
    event.u.submit.place = *place;
    return launch_through(p, &event, number, seq);
}

// ---- polling ----

static void feed_op(struct sc_pump *p, enum sc_event_type type, uint64_t number, sc_status status) {
    struct sc_event event;
    event.type = type;
    event.epoch = p->comm_epoch;
    event.u.op.number = number;
    event.u.op.status = status;
    (void)sc_pump_feed(p, &event);
}

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

// Polls the oldest op of one stream; true when it left, and the next one may be looked at. A poll
// that itself fails says nothing of where the op is: it is evidence, and the op stays.
static bool poll_oldest(struct sc_pump *p, const struct sc_ledger_entry *entry) {
    uint64_t number = entry->number;
    uint64_t *op = op_slot(p, number);
    if (*op == 0 || number == p->open_replay)
        return false;
    enum sc_op_state state = SC_OP_ENQUEUED;
    sc_status status = p->device->op_poll(ctx(p), *op, &state);
    if (status == SC_INPROGRESS && !is_mute(p, number))
        return false;
    if (status != SC_OK) {
        feed_op(p, SC_EVENT_OP_FAILED, number, status);
        return false;
    }
    p->mute_number = p->mute_number == number ? 0 : p->mute_number;
    if (state == SC_OP_ENQUEUED)
        return false;
    if (state == SC_OP_STARTED) {
        if (!entry->started)
            feed_op(p, SC_EVENT_OP_STARTED, number, SC_OK);
        return false;
    }
    (void)p->device->op_release(ctx(p), *op);
    *op = 0;
    if (state == SC_OP_FAILED)
        feed_op(p, SC_EVENT_OP_FAILED, number, SC_DEVICE_ERROR);
    feed_op(p, SC_EVENT_OP_DONE, number, SC_OK);
    return true;
}

void sc_pump_poll(struct sc_pump *p) {
    const struct sc_ledger *ledger = sc_core_ledger(p->core);
    if (sc_ledger_empty(ledger) || !sc_pump_is_watching(p))
        return;
    for (uint32_t i = 0; i < ledger->streams_used; i++)
        while (ledger->streams[i].oldest != 0 &&
               poll_oldest(p, sc_ledger_at(ledger, ledger->streams[i].oldest))) {
        }
}

bool sc_pump_ops_pending(const struct sc_pump *p) {
    return !sc_ledger_empty(sc_core_ledger(p->core));
}

void sc_pump_ops_close(struct sc_pump *p) {
    if (p->open_replay != 0)
        (void)p->device->replay_end(ctx(p), *op_slot(p, p->open_replay));
    for (uint32_t i = 0; p->ops != NULL && i < p->config.core.ledger_ops; i++)
        if (p->ops[i] != 0)
            (void)p->device->op_release(ctx(p), p->ops[i]);
}

// ---- captures and replays ----

static struct sc_pump_capture *find_capture(struct sc_pump *p, uint64_t handle) {
    for (uint32_t i = 0; handle != 0 && i < p->captures_count; i++)
        if (p->captures[i].handle == handle)
            return &p->captures[i];
    return NULL;
}

// Those the application has not released; then, whatever it said, those whose graphs still live.
static uint32_t captures_held(struct sc_pump *p) {
    uint32_t held = 0;
    for (uint32_t i = 0; i < p->captures_count; i++)
        held += p->captures[i].handle != 0;
    if (held == 0 && p->comm != 0 && p->captures_told != 0)
        (void)p->device->captures_held(ctx(p), p->comm, &held);
    return held;
}

void sc_pump_tell_captures(struct sc_pump *p) {
    struct sc_event event = {.type = SC_EVENT_CAPTURES, .u.captures.held = captures_held(p)};
    if (event.u.captures.held == p->captures_told)
        return;
    p->captures_told = event.u.captures.held;
    (void)sc_pump_feed_word(p, &event);
}

sc_status sc_pump_capture_begin(struct sc_pump *p, uint64_t epoch, uint64_t stream,
                                uint64_t *capture) {
    if (!is_live(p, epoch))
        return SC_EPOCH_LOST;
    if (capturing_on(p, stream) != NULL)
        return SC_CAPTURE;
    struct sc_pump_capture *slot = NULL;
    for (uint32_t i = 0; i < p->captures_count && slot == NULL; i++)
        slot = p->captures[i].handle == 0 ? &p->captures[i] : NULL;
    if (slot == NULL)
        return SC_BUSY;
    sc_status status = p->device->capture_begin(ctx(p), stream, capture);
    if (status != SC_OK)
        return status;
    slot->handle = *capture;
    slot->epoch = epoch;
    slot->stream = stream;
    slot->open = true;
    p->captures_open++;
    slot->count = 0;
    sc_pump_tell_captures(p);
    return SC_OK;
}

sc_status sc_pump_capture_end(struct sc_pump *p, uint64_t capture) {
    struct sc_pump_capture *slot = find_capture(p, capture);
    if (slot == NULL || !slot->open)
        return SC_INVALID;
    slot->open = false;
    p->captures_open--;
    return p->device->capture_end(ctx(p), capture);
}

sc_status sc_pump_capture_release(struct sc_pump *p, uint64_t capture) {
    struct sc_pump_capture *slot = find_capture(p, capture);
    if (slot == NULL || slot->open)
        return SC_INVALID;
    sc_status status = p->device->capture_release(ctx(p), capture);
    if (status != SC_OK)
        return status;
    slot->handle = 0;
    sc_pump_tell_captures(p);
    return SC_OK;
}

sc_status sc_pump_replay_begin(struct sc_pump *p, uint64_t epoch, uint64_t capture, uint64_t stream,
                               uint64_t *number, uint64_t *seq) {
    const struct sc_pump_capture *slot = find_capture(p, capture);
    if (slot == NULL || slot->open || p->open_replay != 0)
        return SC_INVALID;
    if (slot->epoch != epoch)
        return SC_EPOCH_LOST; // a captured exchange is bound to the communicator of its epoch
    p->launch = (struct sc_pump_launch){.replay = slot, .stream = stream};
    for (uint32_t i = 0; i < slot->count; i++)
        p->launch.seqs += sc_op_is_collective(slot->list[i].kind);
    struct sc_event event = {.type = SC_EVENT_REPLAY, .epoch = epoch};
    event.u.replay.list = slot->list;
    event.u.replay.count = slot->count;
    event.u.replay.stream = stream;
    return launch_through(p, &event, number, seq);
}

sc_status sc_pump_replay_end(struct sc_pump *p, uint64_t number) {
    if (number == 0 || number != p->open_replay)
        return SC_INVALID;
    p->open_replay = 0;
    return p->device->replay_end(ctx(p), *op_slot(p, number));
}
