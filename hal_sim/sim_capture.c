// SPDX-License-Identifier: AGPL-3.0-only
//
// Captures: lists of items that a launch enqueues anew. A capture with an exchange in it holds the
// communicator until it is released.
#include "hal_sim/sim_gpu.h"

struct sc_sim_capture *sc_sim_capture_of(struct sc_sim_process *process, const char *verb,
                                         uint64_t handle) {
    struct sc_sim_capture *capture = sc_sim_pool_find(process->sim, SC_SIM_CAPTURE, handle);

    if (capture != NULL && capture->object.owner == process)
        return capture;
    sc_sim_breach(process, "%s: unknown capture %#llx", verb, (unsigned long long)handle);
    return NULL;
}

// ---- recording --------------------------------------------------------------------------------

static void record(struct sc_sim_capture *capture, const struct sc_sim_item *item) {
    capture->items =
        sc_sim_grow(capture->items, sizeof *capture->items, capture->count + 1, &capture->capacity);
    struct sc_sim_item *recorded = &capture->items[capture->count++];
    *recorded = *item;
    recorded->captured = true;
}

void sc_sim_enqueue(struct sc_sim_stream *stream, const struct sc_sim_item *item) {
    struct sc_sim *sim = stream->object.owner->sim;

    if (stream->capture != 0) {
        record(sc_sim_pool_find(sim, SC_SIM_CAPTURE, stream->capture), item);
        return;
    }
    sc_sim_stream_push(stream, item);
    sc_sim_stream_run(stream);
}

static void hold(struct sc_sim_capture *capture, uint64_t handle) {
    for (uint32_t at = 0; at < capture->comm_count; at++) {
        if (capture->comms[at] == handle)
            return;
    }
    struct sc_sim_comm *comm = sc_sim_pool_find(capture->object.owner->sim, SC_SIM_COMM, handle);
    if (comm == NULL)
        return;
    comm->captures++;
    capture->comms = sc_sim_grow(capture->comms, sizeof *capture->comms, capture->comm_count + 1,
                                 &capture->comm_capacity);
    capture->comms[capture->comm_count++] = handle;
}

void sc_sim_capture_exchange(struct sc_sim_capture *capture, const struct sc_sim_part *parts,
                             uint32_t count) {
    struct sc_sim_item item = {.kind = SC_SIM_ITEM_EXCHANGE};

    item.parts.first = capture->part_count;
    item.parts.count = count;
    capture->parts = sc_sim_grow(capture->parts, sizeof *capture->parts,
                                 capture->part_count + count, &capture->part_capacity);
    memcpy(capture->parts + capture->part_count, parts, count * sizeof *parts);
    capture->part_count += count;
    hold(capture, parts[0].comm);
    record(capture, &item);
}

// ---- launching --------------------------------------------------------------------------------

static void launch_exchange(struct sc_sim_capture *capture, const struct sc_sim_item *item,
                            struct sc_sim_stream *stream) {
    struct sc_sim_process *process = capture->object.owner;
    struct sc_sim_part *parts = capture->parts + item->parts.first;

    for (uint32_t at = 0; at < item->parts.count; at++)
        parts[at].stream = stream->object.handle;
    sc_sim_exchange_launch(process, sc_sim_pool_find(process->sim, SC_SIM_COMM, parts[0].comm),
                           parts, item->parts.count);
}

sc_status sc_sim_graph_launch(struct sc_sim_process *process, uint64_t capture_handle,
                              uint64_t handle) {
    if (!process->alive)
        return SC_CLOSED;
    if (process->context_lost)
        return SC_CONTEXT_LOST;
    struct sc_sim_capture *capture = sc_sim_capture_of(process, "graph launch", capture_handle);
    struct sc_sim_stream *stream = sc_sim_stream_of(process, "graph launch", handle);
    if (capture == NULL || stream == NULL)
        return SC_INVALID;
    if (stream->capture != 0)
        return SC_CAPTURE;
    if (!capture->ended)
        return SC_STATE;
    for (uint32_t at = 0; at < capture->count; at++) {
        const struct sc_sim_item *item = &capture->items[at];
        if (item->kind == SC_SIM_ITEM_EXCHANGE)
            launch_exchange(capture, item, stream);
        else
            sc_sim_enqueue(stream, item);
    }
    return SC_OK;
}

// ---- verbs ------------------------------------------------------------------------------------

sc_status sc_sim_verb_capture_begin(void *ctx, uint64_t handle, uint64_t *capture) {
    struct sc_sim_process *process = ctx;
    sc_status status = sc_sim_enter(process, SC_VERB_capture_begin);

    if (status != SC_OK)
        return status;
    struct sc_sim_stream *stream = sc_sim_stream_of(process, "capture_begin", handle);
    if (stream == NULL)
        return SC_INVALID;
    if (stream->capture != 0)
        return SC_CAPTURE;
    struct sc_sim_capture *made = sc_sim_pool_take(process->sim, SC_SIM_CAPTURE, process);
    made->stream = handle;
    made->ended = false;
    made->count = 0;
    made->part_count = 0;
    made->comm_count = 0;
    stream->capture = made->object.handle;
    process->held.captures++;
    *capture = made->object.handle;
    return SC_OK;
}

// A capture whose end fails has ended all the same; only its graph is worth nothing.
sc_status sc_sim_verb_capture_end(void *ctx, uint64_t handle) {
    struct sc_sim_process *process = ctx;
    sc_status status = sc_sim_enter(process, SC_VERB_capture_end);

    if (status == SC_CLOSED || process->context_lost)
        return status;
    struct sc_sim_capture *capture = sc_sim_capture_of(process, "capture_end", handle);
    if (capture == NULL)
        return SC_INVALID;
    if (capture->ended)
        return sc_sim_breach(process, "capture_end: capture %#llx has ended already",
                             (unsigned long long)handle);
    struct sc_sim_stream *stream = sc_sim_pool_find(process->sim, SC_SIM_STREAM, capture->stream);
    stream->capture = 0;
    capture->ended = true;
    return status;
}

sc_status sc_sim_verb_capture_release(void *ctx, uint64_t handle) {
    struct sc_sim_process *process = ctx;
    sc_status status = sc_sim_enter(process, SC_VERB_capture_release);

    if (status != SC_OK)
        return status;
    struct sc_sim_capture *capture = sc_sim_capture_of(process, "capture_release", handle);
    if (capture == NULL)
        return SC_INVALID;
    if (!capture->ended)
        return sc_sim_breach(process, "capture_release: capture %#llx has not ended",
                             (unsigned long long)handle);
    for (uint32_t at = 0; at < capture->comm_count; at++) {
        struct sc_sim_comm *comm = sc_sim_pool_find(process->sim, SC_SIM_COMM, capture->comms[at]);
        if (comm == NULL)
            continue;
        comm->captures--;
        sc_sim_wake(process);
        sc_sim_abort_settle(comm);
    }
    process->held.captures--;
    sc_sim_pool_put(process->sim, SC_SIM_CAPTURE, &capture->object);
    return SC_OK;
}

sc_status sc_sim_verb_captures_held(void *ctx, uint64_t handle, uint32_t *held) {
    struct sc_sim_process *process = ctx;
    sc_status status = sc_sim_enter(process, SC_VERB_captures_held);

    if (status != SC_OK)
        return status;
    const struct sc_sim_comm *comm = sc_sim_comm_find(process, handle);
    if (comm == NULL)
        return sc_sim_breach(process, "captures_held: unknown communicator %#llx",
                             (unsigned long long)handle);
    *held = comm->captures;
    return SC_OK;
}
