// SPDX-License-Identifier: AGPL-3.0-only
//
// Steps, as an engine that decodes would make them.
#include "cli/gpu/steps.h"

#include "cli/pattern.h"
#include "core/op.h"

#include <stdlib.h>

static uint64_t layer_bytes(const struct sc_steps *s) {
    return s->spec.hidden_size * SC_BF16_BYTES;
}

static uint64_t memory_bytes(const struct sc_steps *s) {
    return s->spec.layers * layer_bytes(s);
}

static sc_status library(struct sc_steps *s, sc_status status) {
    if (status != SC_OK)
        s->why = sc_last_error();
    return status;
}

// What the library cannot have seen: the epoch is given up, on all ranks.
static sc_status device(struct sc_steps *s, sc_status status) {
    if (status == SC_OK)
        return SC_OK;
    s->why = sc_gpu_error(s->gpu);
    if (s->epoch != 0 && sc_reconnect(s->comm, s->epoch, 0) != SC_OK)
        s->why = sc_last_error();
    return status;
}

// ---- memory ----

static sc_status take_memory(struct sc_steps *s) {
    sc_status status = device(s, sc_gpu_stream_create(s->gpu, &s->stream));
    if (status == SC_OK)
        status = library(s, sc_mem_alloc(s->comm, memory_bytes(s), &s->memory));
    if (status == SC_OK)
        status = library(s, sc_buffer_register(s->comm, s->memory, memory_bytes(s)));
    if (status == SC_OK)
        status = device(s, sc_gpu_fill(s->gpu, s->memory, 0, memory_bytes(s), s->stream));
    if (status == SC_OK && s->spec.verify) {
        s->host = malloc(memory_bytes(s));
        s->why = "no memory to verify results in";
        status = s->host != NULL ? SC_OK : SC_NO_MEMORY;
    }
    return status;
}

sc_status sc_steps_open(struct sc_steps *s, const struct sc_steps_spec *spec, sc_comm comm,
                        struct sc_gpu *gpu) {
    *s = (struct sc_steps){.spec = *spec, .comm = comm, .gpu = gpu, .why = ""};
    sc_status status = take_memory(s);
    if (status != SC_OK)
        sc_steps_close(s);
    return status;
}

// The memory itself goes with the handle.
void sc_steps_close(struct sc_steps *s) {
    sc_steps_leave(s);
    free(s->host);
    s->host = NULL;
    sc_gpu_stream_destroy(s->gpu, s->stream);
    s->stream = NULL;
}

// ---- one step ----

static sc_status all_layers(struct sc_steps *s) {
    char *memory = s->memory;
    sc_status status = SC_OK;
    for (uint64_t i = 0; i < s->spec.layers && status == SC_OK; i++)
        status = library(s, sc_all_reduce(s->comm, s->epoch, memory + i * layer_bytes(s),
                                          layer_bytes(s), SC_BF16, s->stream));
    return status;
}

static sc_status replay(struct sc_steps *s) {
    sc_status status = library(s, sc_replay_begin(s->comm, s->epoch, s->capture, s->stream));
    if (status != SC_OK)
        return status;
    sc_status launched = device(s, sc_gpu_graph_launch(s->gpu, s->graph, s->stream));
    status = library(s, sc_replay_end(s->comm));
    return launched != SC_OK ? launched : status;
}

static sc_status put_in(struct sc_steps *s, uint64_t step) {
    for (uint64_t i = 0; i < s->spec.layers; i++)
        sc_pattern_fill(s->host + i * s->spec.hidden_size, s->spec.hidden_size, s->spec.rank,
                        step * s->spec.layers + i);
    return device(s, sc_gpu_to_device(s->gpu, s->memory, s->host, memory_bytes(s), s->stream));
}

static sc_status look_at(struct sc_steps *s, uint64_t step) {
    sc_status status =
        device(s, sc_gpu_to_host(s->gpu, s->host, s->memory, memory_bytes(s), s->stream));
    for (uint64_t i = 0; i < s->spec.layers && status == SC_OK; i++)
        s->wrong += sc_pattern_wrong(s->host + i * s->spec.hidden_size, s->spec.hidden_size,
                                     s->spec.world, step * s->spec.layers + i);
    if (status == SC_OK)
        s->verified += s->spec.layers * s->spec.hidden_size;
    return status;
}

sc_status sc_steps_one(struct sc_steps *s) {
    uint64_t step = s->mark + 1;
    sc_status status = s->spec.verify ? put_in(s, step) : SC_OK;
    if (status == SC_OK)
        status = s->spec.graph ? replay(s) : all_layers(s);
    if (status == SC_OK)
        status = library(s, sc_sync(s->comm, s->epoch, s->stream, SC_SYNC_AGREED, SC_FOREVER));
    if (status == SC_OK && s->spec.verify)
        status = look_at(s, step);
    if (status == SC_OK)
        status = library(s, sc_mark(s->comm, s->epoch, step));
    if (status == SC_OK)
        s->mark = step;
    return status;
}

// ---- epochs ----

static sc_status capture(struct sc_steps *s) {
    sc_status status = device(s, sc_gpu_graph_begin(s->gpu, s->stream));
    if (status != SC_OK)
        return status;
    status = library(s, sc_capture_begin(s->comm, s->epoch, s->stream, &s->capture));
    if (status == SC_OK) {
        status = all_layers(s);
        sc_status ended = library(s, sc_capture_end(s->comm, s->capture));
        status = status != SC_OK ? status : ended;
    }
    sc_status made = device(s, sc_gpu_graph_end(s->gpu, s->stream, &s->graph));
    return status != SC_OK ? status : made;
}

// Of those that remember one; all ranks read the same record, and so choose the same.
static uint64_t lowest_mark(const struct sc_recovery *recovery) {
    uint64_t mark = UINT64_MAX;
    for (uint32_t r = 0; r < recovery->world; r++)
        if (recovery->ranks[r].ready_epoch != 0 && recovery->ranks[r].mark < mark)
            mark = recovery->ranks[r].mark;
    return mark == UINT64_MAX ? 0 : mark;
}

sc_status sc_steps_enter(struct sc_steps *s, const struct sc_recovery *recovery) {
    s->epoch = recovery->epoch;
    s->mark = lowest_mark(recovery);
    // What a newcomer takes over it has, should the next loss come before its first own step.
    sc_status status = library(s, sc_mark(s->comm, s->epoch, s->mark));
    return status == SC_OK && s->spec.graph ? capture(s) : status;
}

void sc_steps_leave(struct sc_steps *s) {
    sc_gpu_graph_destroy(s->gpu, s->graph);
    if (s->capture != 0 && sc_capture_release(s->comm, s->capture) != SC_OK)
        s->why = sc_last_error();
    s->graph = NULL;
    s->capture = 0;
    s->epoch = 0;
}
