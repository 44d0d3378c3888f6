// SPDX-License-Identifier: AGPL-3.0-only
//
// See engine.h.
#include "tests/support/engine.h"

#include <stdio.h>
#include <string.h>

#define ELEMENTS 256u
#define BYTES (ELEMENTS * sizeof(uint16_t))

struct life {
    struct sc_sim_rank *rank;
    struct engine *engine;
    struct engine_rank *own;
    uint32_t world;
    sc_comm comm;
    uint64_t epoch;
    void *stream;
    void *buffers; // one a layer
};

// Small whole numbers: their sums are exact in BF16.
static uint16_t bf16_of(uint32_t number) {
    union {
        float value;
        uint32_t bits;
    } as = {.value = (float)number};

    return (uint16_t)(as.bits >> 16);
}

static uint32_t term(uint64_t step, uint32_t layer, uint32_t rank, uint32_t element) {
    return (uint32_t)(step * 5 + layer * 3 + rank + element) % 8;
}

static void *buffer_of(const struct life *life, uint32_t layer) {
    return (char *)life->buffers + layer * BYTES;
}

static void fill(const struct life *life, uint64_t step) {
    for (uint32_t layer = 0; layer < life->engine->layers; layer++) {
        uint16_t *words = sc_sim_rank_memory(life->rank, buffer_of(life, layer), BYTES);
        for (uint32_t i = 0; words != NULL && i < ELEMENTS; i++)
            words[i] = bf16_of(term(step, layer, sc_sim_rank_number(life->rank), i));
    }
}

static void check(const struct life *life, uint64_t step) {
    for (uint32_t layer = 0; layer < life->engine->layers; layer++) {
        const uint16_t *words = sc_sim_rank_memory(life->rank, buffer_of(life, layer), BYTES);
        bool right = words != NULL;
        for (uint32_t i = 0; right && i < ELEMENTS; i++) {
            uint32_t sum = 0;
            for (uint32_t r = 0; r < life->world; r++)
                sum += term(step, layer, r, i);
            right = words[i] == bf16_of(sum);
        }
        life->own->wrong += !right;
    }
}

static sc_status run_step(const struct life *life, uint64_t step) {
    const struct engine *engine = life->engine;
    enum sc_sync_how how = engine->agreed ? SC_SYNC_AGREED : SC_SYNC_LOCAL;
    sc_status status = SC_OK;

    fill(life, step);
    for (uint32_t layer = 0; layer < engine->layers && status == SC_OK; layer++) {
        if (engine->kernel_ns != 0)
            status = sc_sim_rank_launch(life->rank, life->stream, engine->kernel_ns, NULL, NULL);
        if (status == SC_OK)
            status = sc_all_reduce(life->comm, life->epoch, buffer_of(life, layer), BYTES, SC_BF16,
                                   life->stream);
    }
    if (status == SC_OK)
        status = sc_sync(life->comm, life->epoch, life->stream, how, SC_FOREVER);
    if (status != SC_OK)
        return status;
    check(life, step);
    return sc_mark(life->comm, life->epoch, step);
}

static uint64_t lowest_mark(const struct sc_recovery *record) {
    uint64_t mark = UINT64_MAX;

    for (uint32_t r = 0; r < record->world; r++)
        if (record->ranks[r].ready_epoch != 0 && record->ranks[r].mark < mark)
            mark = record->ranks[r].mark;
    return mark == UINT64_MAX ? 0 : mark;
}

// Whether to wait for the next epoch and redo the step.
static bool goes_on(sc_status status) {
    enum sc_status_class class = sc_status_class(status);

    return class == SC_CLASS_EPOCH || class == SC_CLASS_PEER || class == SC_CLASS_LOCAL;
}

// One epoch, to the end of the work: SC_OK, or what ended it.
static sc_status run_epoch(struct life *life) {
    struct engine_rank *own = life->own;
    struct sc_recovery record = {.size = sizeof record};
    sc_status status = sc_wait_ready(life->comm, SC_FOREVER, &record);

    if (status != SC_OK)
        return status;
    life->epoch = record.epoch;
    life->world = record.world;
    own->epochs++;
    own->recoveries += record.cause.code != SC_OK;
    if (record.cause.code != SC_OK)
        own->cause = record.cause.code;
    uint64_t step = lowest_mark(&record);
    own->redone += own->marks > step ? own->marks - step : 0;
    status = sc_mark(life->comm, life->epoch, step);
    while (status == SC_OK && step < life->engine->steps) {
        status = run_step(life, ++step);
        if (status == SC_OK)
            own->marks = step;
        if (status == SC_OK && life->engine->rest_ns != 0)
            status = sc_sim_rank_sleep(life->rank, life->engine->rest_ns);
    }
    if (status == SC_OK)
        status = sc_barrier(life->comm, life->epoch, SC_FOREVER);
    return status;
}

static sc_status open_rank(struct life *life) {
    struct sc_config config;

    sc_config_init(&config, sizeof config);
    sc_sim_rank_config(life->rank, &config);
    config.capacity_bytes = BYTES;
    sc_status status = sc_open(&config, &life->comm);
    if (status == SC_OK)
        status = sc_sim_rank_stream_create(life->rank, &life->stream);
    if (status == SC_OK)
        status = sc_sim_rank_alloc(life->rank, life->engine->layers * BYTES, &life->buffers);
    return status;
}

static sc_status close_rank(struct life *life) {
    if (life->engine->leaves_handle)
        return SC_OK;
    return sc_close(life->comm, SC_CLOSE_FINAL, SC_FOREVER);
}

int engine_main(struct sc_sim_rank *rank, void *arg) {
    struct engine *engine = arg;
    struct life life = {.rank = rank, .engine = engine};

    life.own = &engine->ranks[sc_sim_rank_number(rank)];
    life.own->marks = 0;
    life.own->failed = SC_OK;
    sc_status status = open_rank(&life);
    if (status == SC_OK)
        do
            status = run_epoch(&life);
        while (goes_on(status));
    if (status == SC_SIM_KILLED)
        return ENGINE_KILLED;
    life.own->failed = status;
    if (status != SC_OK)
        snprintf(life.own->why, sizeof life.own->why, "%s", sc_last_error());
    sc_status closed = life.comm != 0 ? close_rank(&life) : SC_OK;
    if (closed != SC_OK && status == SC_OK)
        snprintf(life.own->why, sizeof life.own->why, "%s", sc_last_error());
    return status == SC_OK && closed == SC_OK ? ENGINE_DONE : ENGINE_FAILED;
}
