// SPDX-License-Identifier: AGPL-3.0-only
//
// Captured lists of ops, and the replays that run them.
#include "core/pump_inside.h"

static void *ctx(const struct sc_pump *p) {
    return p->device->ctx;
}

struct sc_pump_capture *sc_pump_find_capturing(struct sc_pump *p, uint64_t stream) {
    for (uint32_t i = 0; i < p->captures_count; i++)
        if (p->captures[i].open && p->captures[i].stream == stream)
            return &p->captures[i];
    return NULL;
}

sc_status sc_pump_record(struct sc_pump *p, struct sc_pump_capture *capture, uint64_t epoch,
                         const struct sc_op_desc *descs, const struct sc_op_place *places,
                         uint32_t count) {
    if (!sc_pump_is_live(p, epoch) || epoch != capture->epoch)
        return SC_EPOCH_LOST;
    sc_status status = SC_OK;
    for (uint32_t i = 0; i < count && status == SC_OK; i++)
        status = sc_core_check_op(p->core, &descs[i], &places[i]);
    if (status != SC_OK)
        return status;
    if (count > p->config.core.ledger_ops - capture->count)
        return SC_TOO_LARGE;
    struct sc_pump_means means = sc_pump_means(p);
    bool nothing = sc_core_op_is_void(p->core, descs);
    sc_pump_leave(p);
    if (count > 1)
        status = sc_pump_compose_group(p, &means, descs, places, count);
    else if (!nothing)
        status = sc_pump_compose(p, &means, descs, places, epoch);
    if (!sc_pump_enter(p))
        return SC_SIM_KILLED;
    for (uint32_t i = 0; i < count && status == SC_OK; i++)
        capture->list[capture->count++] = descs[i];
    return status;
}

static struct sc_pump_capture *find_capture(struct sc_pump *p, uint64_t handle) {
    for (uint32_t i = 0; handle != 0 && i < p->captures_count; i++)
        if (p->captures[i].handle == handle)
            return &p->captures[i];
    return NULL;
}

void sc_pump_tell_captures(struct sc_pump *p) {
    struct sc_event event = {.type = SC_EVENT_CAPTURES};
    uint32_t held = 0, graphs = 0;
    for (uint32_t i = 0; i < p->captures_count; i++)
        held += p->captures[i].handle != 0;
    if (held == 0 && p->comm != 0 && (p->captures_told | p->graphs_told) != 0 &&
        (sc_core_state(p->core) == SC_STATE_ABORTING || sc_core_state(p->core) == SC_STATE_READY))
        (void)p->device->captures_held(ctx(p), p->comm, &graphs);
    if (held == p->captures_told && graphs == p->graphs_told)
        return;
    p->captures_told = event.u.captures.held = held;
    p->graphs_told = event.u.captures.graphs = graphs;
    (void)sc_pump_feed_word(p, &event);
}

sc_status sc_pump_capture_begin(struct sc_pump *p, uint64_t epoch, uint64_t stream,
                                uint64_t *capture) {
    if (!sc_pump_is_live(p, epoch))
        return SC_EPOCH_LOST;
    if (sc_pump_capturing_on(p, stream) != NULL)
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
    p->launch =
        (struct sc_pump_launch){.replay = capture, .stream = stream, .from = SC_STREAM_NONE};
    for (uint32_t i = 0; i < slot->count; i++)
        p->launch.seqs += sc_op_is_collective(slot->list[i].kind);
    struct sc_event event = {.type = SC_EVENT_REPLAY, .epoch = epoch};
    event.u.replay.list = slot->list;
    event.u.replay.count = slot->count;
    event.u.replay.stream = stream;
    return sc_pump_launch_through(p, &event, number, seq);
}

sc_status sc_pump_replay_end(struct sc_pump *p, uint64_t number) {
    if (number == 0 || number != p->open_replay)
        return SC_INVALID;
    p->open_replay = 0;
    return p->device->replay_end(ctx(p), *sc_pump_op_slot(p, number));
}
