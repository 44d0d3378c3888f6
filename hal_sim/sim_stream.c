// SPDX-License-Identifier: AGPL-3.0-only
//
// Streams: queues of items, run in order. An item that takes no time passes as soon as it is first;
// a kernel passes by an event, an exchange when its counterparts have come.
#include "hal_sim/sim_gpu.h"

#include "kernels/bf16.h"

#include <stdlib.h>

struct sc_sim_stream *sc_sim_stream_of(struct sc_sim_process *process, const char *verb,
                                       uint64_t handle) {
    struct sc_sim_stream *stream = sc_sim_pool_find(process->sim, SC_SIM_STREAM, handle);

    if (stream != NULL && stream->object.owner == process && !stream->destroyed)
        return stream;
    sc_sim_breach(process, "%s: unknown stream %#llx", verb, (unsigned long long)handle);
    return NULL;
}

// ---- the queue --------------------------------------------------------------------------------

static void grow(struct sc_sim_stream *stream) {
    uint32_t larger = stream->capacity == 0 ? 16 : stream->capacity * 2;
    struct sc_sim_item *items = malloc(larger * sizeof *items);

    SC_ASSERT(items != NULL);
    for (uint32_t at = 0; at < stream->count; at++)
        items[at] = stream->items[(stream->first + at) & (stream->capacity - 1)];
    free(stream->items);
    stream->items = items;
    stream->capacity = larger;
    stream->first = 0;
}

void sc_sim_stream_push(struct sc_sim_stream *stream, const struct sc_sim_item *item) {
    if (stream->count == stream->capacity)
        grow(stream);
    stream->items[(stream->first + stream->count++) & (stream->capacity - 1)] = *item;
}

static struct sc_sim_item pop(struct sc_sim_stream *stream) {
    struct sc_sim_item item = stream->items[stream->first];

    stream->first = (stream->first + 1) & (stream->capacity - 1);
    stream->count--;
    stream->begun = false;
    return item;
}

// ---- items ------------------------------------------------------------------------------------

static void kernel_done(struct sc_sim *sim, uint64_t handle, uint64_t unused) {
    struct sc_sim_stream *stream = sc_sim_pool_find(sim, SC_SIM_STREAM, handle);

    (void)unused;
    if (stream == NULL || !stream->begun)
        return;
    struct sc_sim_item item = pop(stream);
    if (item.kernel.fn != NULL)
        item.kernel.fn(item.kernel.arg);
    // The callback may have killed its own process.
    if (sc_sim_pool_find(sim, SC_SIM_STREAM, handle) == stream)
        sc_sim_stream_run(stream);
}

static void kernel_begin(struct sc_sim_stream *stream, uint64_t duration_ns) {
    struct sc_sim *sim = stream->object.owner->sim;

    stream->begun = true;
    sc_sim_push(sim, sc_sim_later(sim->now_ns, duration_ns), kernel_done, stream->object.handle, 0);
}

static void add_run(struct sc_sim_stream *stream, const struct sc_sim_item *item) {
    struct sc_sim_process *process = stream->object.owner;
    uint64_t epoch = item->captured ? stream->permit : item->add.epoch;

    if (epoch == 0 || epoch != process->fence)
        return;
    unsigned char *dst = sc_sim_memory_touch(process, item->add.dst, item->add.bytes);
    unsigned char *src = sc_sim_memory_touch(process, item->add.src, item->add.bytes);
    if (dst != NULL && src != NULL)
        sc_bf16_add_array((uint16_t *)(void *)dst, (const uint16_t *)(const void *)src,
                          (size_t)item->add.bytes / SC_BF16_BYTES);
}

static void late_no_more(struct sc_sim *sim, uint64_t handle, uint64_t unused) {
    struct sc_sim_stream *stream = sc_sim_pool_find(sim, SC_SIM_STREAM, handle);

    (void)unused;
    if (stream == NULL || !stream->delayed)
        return;
    stream->delayed = false;
    sc_sim_stream_run(stream);
}

// Its rank is late: neither the op's start nor its exchange is reached yet.
static bool is_late(struct sc_sim_stream *stream, const struct sc_sim_item *item) {
    struct sc_sim_process *process = stream->object.owner;
    struct sc_sim *sim = process->sim;

    if (stream->delayed)
        return true;
    if (process->armed.op_slow_ns == 0 ||
        (item->kind != SC_SIM_ITEM_OP_START && item->kind != SC_SIM_ITEM_EXCHANGE))
        return false;
    stream->delayed = true;
    sc_sim_push(sim, sc_sim_later(sim->now_ns, process->armed.op_slow_ns), late_no_more,
                stream->object.handle, 0);
    process->armed.op_slow_ns = 0;
    return true;
}

// Whether the first item lets the next one come.
static bool step(struct sc_sim_stream *stream) {
    struct sc_sim_item item = stream->items[stream->first];

    if (item.kind == SC_SIM_ITEM_OP_WAIT && item.op->done) {
        pop(stream);
        sc_sim_op_drop(stream->object.owner->sim, item.op);
        return true;
    }
    if (stream->begun || is_late(stream, &item))
        return false;
    switch (item.kind) {
    case SC_SIM_ITEM_KERNEL: kernel_begin(stream, item.kernel.duration_ns); return false;
    case SC_SIM_ITEM_OP_WAIT: {
        struct sc_sim_stream **last = &item.op->waiters;
        while (*last != NULL)
            last = &(*last)->next_waiter;
        *last = stream;
        stream->next_waiter = NULL;
        stream->begun = true;
        return false;
    }
    case SC_SIM_ITEM_EXCHANGE:
        stream->begun = true;
        sc_sim_exchange_reach(item.exchange);
        return !stream->begun; // it may have passed at once
    case SC_SIM_ITEM_OP_START:
        pop(stream);
        sc_sim_op_started(item.op);
        return true;
    case SC_SIM_ITEM_OP_END:
        pop(stream);
        sc_sim_op_done(item.op);
        return true;
    case SC_SIM_ITEM_ADD:
        pop(stream);
        add_run(stream, &item);
        return true;
    case SC_SIM_ITEM_PERMIT:
        pop(stream);
        stream->permit = item.permit;
        return true;
    }
    return false;
}

void sc_sim_stream_run(struct sc_sim_stream *stream) {
    if (stream->running || stream->object.owner->context_lost)
        return;
    stream->running = true;
    while (stream->count > 0 && step(stream))
        continue;
    stream->running = false;
    if (stream->destroyed && stream->count == 0)
        sc_sim_pool_put(stream->object.owner->sim, SC_SIM_STREAM, &stream->object);
}

void sc_sim_stream_pass(struct sc_sim_stream *stream) {
    pop(stream);
    sc_sim_stream_run(stream);
}

// ---- verbs ------------------------------------------------------------------------------------

sc_status sc_sim_verb_stream_create(void *ctx, uint64_t *stream) {
    struct sc_sim_process *process = ctx;
    sc_status status = sc_sim_enter(process, SC_VERB_stream_create);

    if (status != SC_OK)
        return status;
    struct sc_sim_stream *made = sc_sim_pool_take(process->sim, SC_SIM_STREAM, process);
    *made = (struct sc_sim_stream){
        .object = made->object,
        .items = made->items,
        .capacity = made->capacity,
    };
    process->held.streams++;
    *stream = made->object.handle;
    return SC_OK;
}

sc_status sc_sim_verb_stream_destroy(void *ctx, uint64_t handle) {
    struct sc_sim_process *process = ctx;
    sc_status status = sc_sim_enter(process, SC_VERB_stream_destroy);

    if (status != SC_OK)
        return status;
    struct sc_sim_stream *stream = sc_sim_stream_of(process, "stream_destroy", handle);
    if (stream == NULL)
        return SC_INVALID;
    if (stream->capture != 0)
        return SC_CAPTURE;
    stream->destroyed = true;
    process->held.streams--;
    sc_sim_stream_run(stream);
    return SC_OK;
}

sc_status sc_sim_verb_add_bf16(void *ctx, uint64_t dst, uint64_t src, uint64_t bytes,
                               uint64_t epoch, uint64_t handle) {
    struct sc_sim_process *process = ctx;
    sc_status status = sc_sim_enter(process, SC_VERB_add_bf16);

    if (status != SC_OK)
        return status;
    struct sc_sim_stream *stream = sc_sim_stream_of(process, "add_bf16", handle);
    if (stream == NULL)
        return SC_INVALID;
    if ((dst | src | bytes) % SC_BF16_BYTES != 0)
        return sc_sim_breach(process, "add_bf16: dst %#llx, src %#llx, %llu bytes: half an element",
                             (unsigned long long)dst, (unsigned long long)src,
                             (unsigned long long)bytes);
    status = sc_sim_memory_use(process, "add_bf16", dst, bytes, 0);
    if (status == SC_OK)
        status = sc_sim_memory_use(process, "add_bf16", src, bytes, 0);
    if (status != SC_OK)
        return status;
    struct sc_sim_item item = {.kind = SC_SIM_ITEM_ADD};
    item.add.dst = dst;
    item.add.src = src;
    item.add.bytes = bytes;
    item.add.epoch = epoch;
    sc_sim_enqueue(stream, &item);
    return SC_OK;
}

sc_status sc_sim_verb_fence_set(void *ctx, uint64_t epoch) {
    struct sc_sim_process *process = ctx;
    sc_status status = sc_sim_enter(process, SC_VERB_fence_set);

    if (status == SC_OK)
        process->fence = epoch;
    return status;
}

sc_status sc_sim_compute(struct sc_sim_process *process, uint64_t handle, uint64_t duration_ns,
                         void (*fn)(void *arg), void *arg) {
    if (!process->alive)
        return SC_CLOSED;
    if (process->context_lost)
        return SC_CONTEXT_LOST;
    struct sc_sim_stream *stream = sc_sim_stream_of(process, "compute", handle);
    if (stream == NULL)
        return SC_INVALID;
    struct sc_sim_item item = {.kind = SC_SIM_ITEM_KERNEL};
    item.kernel.duration_ns = duration_ns;
    item.kernel.fn = fn;
    item.kernel.arg = arg;
    sc_sim_enqueue(stream, &item);
    return SC_OK;
}
