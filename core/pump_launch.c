// SPDX-License-Identifier: AGPL-3.0-only
//
// Launching an op that the core allows: composing it out of the seam's verbs. They may wait for the
// driver, so all of it happens outside the monitor; the rest of the pump goes on meanwhile, and may even
// leave the epoch. The verbs then answer so, and the op ends like any other.
#include "core/pump_inside.h"

static void *ctx(const struct sc_pump *p) {
    return p->device->ctx;
}

// ---- composing ----

// The exchange of a world of two: one group moves both payloads, then the sum. The group ends
// exactly once whatever happened inside it, and nothing is added from an exchange in error.
static sc_status pair_exchange(const struct sc_pump *p, const struct sc_pump_means *means,
                               const struct sc_op_desc *desc, const struct sc_op_place *place,
                               uint64_t permit) {
    const struct sc_device *d = p->device;
    uint32_t peer = 1u - p->config.core.rank;
    sc_status status = d->group_begin(ctx(p));
    if (status != SC_OK)
        return status;
    status = d->send(ctx(p), means->comm, place->src, desc->bytes, peer, place->stream);
    if (status == SC_OK)
        status = d->recv(ctx(p), means->comm, means->receive, desc->bytes, peer, place->stream);
    if (SC_MUTANT(6) && status != SC_OK)
        return status;
    sc_status ended = d->group_end(ctx(p));
    status = status != SC_OK ? status : ended;
    if (status == SC_OK && !SC_MUTANT(7))
        status = d->comm_error(ctx(p), means->comm);
    if (status != SC_OK)
        return status;
    return d->add_bf16(ctx(p), place->dst, means->receive, desc->bytes, permit, place->stream);
}

static sc_status send_or_recv(const struct sc_pump *p, uint64_t comm, const struct sc_op_desc *desc,
                              const struct sc_op_place *place) {
    const struct sc_device *d = p->device;
    if (desc->kind == SC_OP_SEND)
        return d->send(ctx(p), comm, place->src, desc->bytes, desc->root, place->stream);
    return d->recv(ctx(p), comm, place->dst, desc->bytes, desc->root, place->stream);
}

sc_status sc_pump_compose(const struct sc_pump *p, const struct sc_pump_means *means,
                          const struct sc_op_desc *desc, const struct sc_op_place *place,
                          uint64_t permit) {
    const struct sc_device *d = p->device;
    uint64_t comm = means->comm, bytes = desc->bytes;
    SC_ASSERT(comm != 0 && bytes <= p->config.core.capacity_bytes);
    sc_status status = SC_INVALID;
    switch ((enum sc_op_kind)desc->kind) {
    case SC_OP_ALL_REDUCE:
        if (p->config.core.world == 2 && bytes >= means->pair_from_bytes &&
            bytes < means->pair_to_bytes)
            return pair_exchange(p, means, desc, place, permit);
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
    case SC_OP_RECV: status = send_or_recv(p, comm, desc, place); break;
    case SC_OP_KIND_COUNT: break;
    }
    if (status == SC_OK && !SC_MUTANT(7))
        status = d->comm_error(ctx(p), comm);
    return status;
}

// Every send and recv in one group, which ends exactly once whatever happened inside it.
sc_status sc_pump_compose_group(const struct sc_pump *p, const struct sc_pump_means *means,
                                const struct sc_op_desc *descs, const struct sc_op_place *places,
                                uint32_t count) {
    sc_status status = p->device->group_begin(ctx(p));
    if (status != SC_OK)
        return status;
    for (uint32_t i = 0; i < count && status == SC_OK; i++)
        status = send_or_recv(p, means->comm, &descs[i], &places[i]);
    sc_status ended = p->device->group_end(ctx(p));
    status = status != SC_OK ? status : ended;
    return status == SC_OK ? p->device->comm_error(ctx(p), means->comm) : status;
}

// ---- enqueueing: outside the monitor ----

// The op's stream waits for what is enqueued on `from` so far: an empty op there marks the place.
static sc_status fork_stream(const struct sc_pump *p, uint64_t from, uint64_t stream) {
    const struct sc_device *d = p->device;
    uint64_t mark = 0;
    sc_status status = d->op_begin(ctx(p), from, &mark);
    if (status != SC_OK)
        return status;
    status = d->op_end(ctx(p), mark);
    if (status == SC_OK)
        status = d->stream_wait(ctx(p), stream, mark);
    (void)d->op_release(ctx(p), mark);
    return status;
}

static sc_status enqueue_op(const struct sc_pump *p, const struct sc_pump_means *means,
                            uint64_t *op) {
    const struct sc_pump_launch *l = &p->launch;
    sc_status status = p->device->op_begin(ctx(p), l->stream, op);
    if (status != SC_OK)
        return status;
    if (l->count > 1)
        status = sc_pump_compose_group(p, means, l->desc, l->place, l->count);
    else
        status = sc_pump_compose(p, means, l->desc, l->place, l->epoch);
    if (status == SC_INPROGRESS) // half an op is none: nothing here is asked for again
        status = SC_SUBMIT_FAILED;
    sc_status ended = p->device->op_end(ctx(p), *op);
    return status != SC_OK ? status : ended;
}

// `after`: an op that this one's stream waits for; 0: none.
static sc_status enqueue(const struct sc_pump *p, const struct sc_pump_means *means, uint64_t after,
                         uint64_t *op) {
    const struct sc_pump_launch *l = &p->launch;
    sc_status status = SC_OK;
    if (after != 0)
        status = p->device->stream_wait(ctx(p), l->stream, after);
    if (status == SC_OK && l->from != SC_STREAM_NONE)
        status = fork_stream(p, l->from, l->stream);
    if (status != SC_OK)
        return status;
    if (l->replay != 0)
        return p->device->replay_begin(ctx(p), l->replay, l->stream, l->epoch, op);
    return enqueue_op(p, means, op);
}

// The application captures the stream and has not told: whatever we put on it would spoil the capture.
// What else the device may answer, the op itself meets again.
static bool is_captured(const struct sc_pump *p, uint64_t stream) {
    return p->device->stream_check(ctx(p), stream) == SC_CAPTURE;
}

// ---- inside again ----

// The handle of an op in flight, good until the thread that goes outside with it is back.
static uint64_t pin(struct sc_pump *p, uint64_t number) {
    uint64_t op = *sc_pump_op_slot(p, number);
    SC_ASSERT(p->pinned_number == 0);
    p->pinned_number = op != 0 ? number : 0;
    return op;
}

static void unpin(struct sc_pump *p) {
    if (p->pinned_op != 0)
        (void)p->device->op_release(ctx(p), p->pinned_op);
    p->pinned_number = p->pinned_op = 0;
}

// One receive buffer serves all streams: an op on another stream than its predecessor's waits for it.
static uint64_t pin_predecessor(struct sc_pump *p, uint64_t stream) {
    bool other = p->newest_stream != stream && p->newest_number != 0;
    return other ? pin(p, p->newest_number) : 0;
}

// The device said no, and the epoch is being left: that is no refusal, whatever it said.
static sc_status launch_failed(struct sc_pump *p, sc_status status, bool enqueued) {
    uint64_t number = p->launch.number;
    bool lived = sc_pump_is_live(p, p->launch.epoch);
    if (lived)
        sc_pump_feed_op(p, SC_EVENT_OP_FAILED, number, status);
    if (!enqueued) // it has left its stream already
        sc_pump_feed_op(p, SC_EVENT_OP_DONE, number, SC_OK);
    p->config.host->wake(p->config.host->ctx);
    if (!lived)
        return SC_EPOCH_LOST;
    bool refusal = sc_status_class(status) == SC_CLASS_CALLER;
    return refusal && status != SC_CLOSED ? SC_SUBMIT_FAILED : status;
}

static sc_status launch(struct sc_pump *p) {
    const struct sc_pump_launch *l = &p->launch;
    struct sc_pump_means means = sc_pump_means(p);
    uint64_t op = 0;
    if (sc_core_state(p->core) != SC_STATE_READY) // the step that allowed it found a disagreement
        return launch_failed(p, SC_EPOCH_LOST, false);
    uint64_t after = pin_predecessor(p, l->stream);
    sc_pump_leave(p);
    sc_status status = enqueue(p, &means, after, &op);
    if (!sc_pump_enter(p))
        return SC_SIM_KILLED;
    if (after != 0)
        unpin(p);
    *sc_pump_op_slot(p, l->number) = op;
    if (status != SC_OK)
        return launch_failed(p, status, op != 0);
    bool replays = l->replay != 0; // one that was begun must be ended
    if (replays)
        p->open_replay = l->number;
    if (!sc_pump_is_live(p, l->epoch))
        return replays ? SC_OK : SC_EPOCH_LOST;
    p->newest_number = l->number;
    p->newest_stream = l->stream;
    return SC_OK;
}

static sc_status check_streams(struct sc_pump *p) {
    sc_pump_leave(p);
    bool captured = is_captured(p, p->launch.stream) ||
                    (p->launch.from != SC_STREAM_NONE && is_captured(p, p->launch.from));
    if (!sc_pump_enter(p))
        return SC_SIM_KILLED;
    return captured ? SC_CAPTURE : SC_OK;
}

sc_status sc_pump_launch_through(struct sc_pump *p, struct sc_event *event, uint64_t *number,
                                 uint64_t *seq) {
    const struct sc_pump_launch *l = &p->launch;
    const struct sc_ledger *ledger = sc_core_ledger(p->core);
    sc_status status = sc_pump_is_live(p, event->epoch) ? check_streams(p) : SC_OK;
    if (status == SC_OK)
        status = sc_pump_feed(p, event);
    if (status != SC_OK)
        return status;
    // The newest entry of the ledger, whether it is to be launched or was complete at once.
    uint64_t taken = ledger->next_number - 1;
    uint64_t first = l->seqs != 0 ? ledger->submitted_seq - l->seqs + 1 : 0;
    status = l->number != 0 ? launch(p) : SC_OK;
    if (status != SC_OK)
        return status;
    *number = taken;
    *seq = first;
    return SC_OK;
}

sc_status sc_pump_join_op(struct sc_pump *p, uint64_t epoch, uint64_t number, uint64_t stream) {
    if (!sc_pump_is_live(p, epoch))
        return SC_EPOCH_LOST;
    if (!sc_pump_op_pending(p, number))
        return SC_OK; // complete, or recorded in order
    uint64_t op = pin(p, number);
    SC_ASSERT(op != 0);
    sc_pump_leave(p);
    bool captured = is_captured(p, stream);
    sc_status status = captured ? SC_CAPTURE : p->device->stream_wait(ctx(p), stream, op);
    if (!sc_pump_enter(p))
        return SC_SIM_KILLED;
    unpin(p);
    if (status != SC_OK && !captured)
        sc_pump_feed_op(p, SC_EVENT_OP_FAILED, number, status);
    return status;
}
