// SPDX-License-Identifier: AGPL-3.0-only
//
// Pools of objects behind generation-tagged handles. Free objects are taken last in, first out, so
// that which index a handle gets follows from the calls alone.
#include "hal_sim/sim.h"
#include "hal_sim/sim_gpu.h"
#include "hal_sim/sim_net.h"

#include <stdlib.h>

#define INDEX_BITS 24u
#define GENERATION_BITS 32u

static const size_t object_bytes[SC_SIM_KIND_COUNT] = {
    [SC_SIM_PROCESS] = sizeof(struct sc_sim_process),
    [SC_SIM_CALL] = sizeof(struct sc_sim_call),
    [SC_SIM_LISTENER] = sizeof(struct sc_sim_listener),
    [SC_SIM_LINK] = sizeof(struct sc_sim_endpoint),
    [SC_SIM_STREAM] = sizeof(struct sc_sim_stream),
    [SC_SIM_OP] = sizeof(struct sc_sim_op),
    [SC_SIM_EXCHANGE] = sizeof(struct sc_sim_exchange),
    [SC_SIM_CAPTURE] = sizeof(struct sc_sim_capture),
    [SC_SIM_CLIQUE] = sizeof(struct sc_sim_clique),
    [SC_SIM_COMM] = sizeof(struct sc_sim_comm),
    [SC_SIM_REGISTRATION] = sizeof(struct sc_sim_registration),
};

void *sc_sim_grow(void *array, size_t element_bytes, size_t count, uint32_t *capacity) {
    if (count <= *capacity)
        return array;
    uint32_t larger = *capacity == 0 ? 4 : *capacity;
    while (larger < count)
        larger *= 2;
    void *grown = realloc(array, larger * element_bytes);
    SC_ASSERT(grown != NULL);
    *capacity = larger;
    return grown;
}

static struct sc_sim_object *object_at(const struct sc_sim *sim, enum sc_sim_kind kind,
                                       uint32_t index) {
    unsigned char *chunk = sim->pools[kind].chunks[index / SC_SIM_CHUNK_OBJECTS];

    return (struct sc_sim_object *)(void *)(chunk +
                                            index % SC_SIM_CHUNK_OBJECTS * object_bytes[kind]);
}

static void pool_grow(struct sc_sim_pool *pool, size_t bytes) {
    uint32_t chunk = pool->count / SC_SIM_CHUNK_OBJECTS;

    SC_ASSERT(pool->count < UINT32_C(1) << INDEX_BITS);
    // The list of chunks doubles when its length is a power of two.
    if ((chunk & (chunk - 1)) == 0) {
        size_t room = chunk == 0 ? 1 : (size_t)chunk * 2;
        unsigned char **chunks = realloc(pool->chunks, room * sizeof *chunks);
        SC_ASSERT(chunks != NULL);
        pool->chunks = chunks;
    }
    pool->chunks[chunk] = calloc(SC_SIM_CHUNK_OBJECTS, bytes);
    SC_ASSERT(pool->chunks[chunk] != NULL);
}

void *sc_sim_pool_take(struct sc_sim *sim, enum sc_sim_kind kind, struct sc_sim_process *owner) {
    struct sc_sim_pool *pool = &sim->pools[kind];
    struct sc_sim_object *object;

    if (pool->first_free != 0) {
        object = object_at(sim, kind, pool->first_free - 1);
        pool->first_free = object->next_free;
    } else {
        if (pool->count % SC_SIM_CHUNK_OBJECTS == 0)
            pool_grow(pool, object_bytes[kind]);
        object = object_at(sim, kind, pool->count);
        object->index = pool->count++;
    }
    object->generation++;
    object->handle = (uint64_t)(kind + 1) << (INDEX_BITS + GENERATION_BITS) |
                     (uint64_t)object->generation << INDEX_BITS | object->index;
    object->owner = owner;
    object->in_use = true;
    return object;
}

void sc_sim_pool_put(struct sc_sim *sim, enum sc_sim_kind kind, struct sc_sim_object *object) {
    struct sc_sim_pool *pool = &sim->pools[kind];

    SC_ASSERT(object->in_use);
    object->handle = 0;
    object->owner = NULL;
    object->in_use = false;
    object->next_free = pool->first_free;
    pool->first_free = object->index + 1;
}

void *sc_sim_pool_find(struct sc_sim *sim, enum sc_sim_kind kind, uint64_t handle) {
    uint32_t index = (uint32_t)handle & ((UINT32_C(1) << INDEX_BITS) - 1);

    if (handle == 0 || index >= sim->pools[kind].count)
        return NULL;
    struct sc_sim_object *object = object_at(sim, kind, index);
    return object->handle == handle ? object : NULL;
}

void *sc_sim_pool_any(struct sc_sim *sim, enum sc_sim_kind kind, uint32_t index) {
    return object_at(sim, kind, index);
}

void *sc_sim_pool_at(struct sc_sim *sim, enum sc_sim_kind kind, uint32_t index) {
    struct sc_sim_object *object = object_at(sim, kind, index);

    return object->in_use ? object : NULL;
}

void sc_sim_pool_free(struct sc_sim *sim, enum sc_sim_kind kind) {
    struct sc_sim_pool *pool = &sim->pools[kind];

    for (uint32_t at = 0; at < pool->count; at += SC_SIM_CHUNK_OBJECTS)
        free(pool->chunks[at / SC_SIM_CHUNK_OBJECTS]);
    free(pool->chunks);
}
