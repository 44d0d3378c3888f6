// SPDX-License-Identifier: AGPL-3.0-only
//
// Handles are places in one pool: index below, a generation above, so that a number never comes
// back. What a place holds says all about its handle.
#include "tests/support/instant_device.h"

#include <stdlib.h>
#include <string.h>

#define INDEX_BITS 16

enum kind { FREE, COMM, REGISTRATION, STREAM, OP, CAPTURE };

struct place {
    uint64_t handle;
    uint64_t stream; // CAPTURE
    uint64_t comm;   // CAPTURE: the one it holds; REGISTRATION: its own
    uint32_t world;  // COMM
    uint32_t next_free;
    enum kind kind;
    bool over; // COMM: aborted; OP, CAPTURE: ended
    bool replay;
};

struct sc_instant_device {
    struct sc_device table;
    struct sc_instant_switches switches;
    uint64_t fence, ids;
    uint32_t group_depth;
    uint32_t capturing, captures;
    uint32_t first_free;
    struct place places[SC_INSTANT_HANDLES_MAX];
    uint32_t allocation_count;
    void *allocations[SC_INSTANT_ALLOCATIONS_MAX];
};

// ---- the pool -------------------------------------------------------------------------------

static struct place *find(struct sc_instant_device *instant, enum kind kind, uint64_t handle) {
    struct place *place =
        &instant->places[(handle & ((1u << INDEX_BITS) - 1u)) % SC_INSTANT_HANDLES_MAX];

    return place->kind == kind && place->handle == handle ? place : NULL;
}

static struct place *take(struct sc_instant_device *instant, enum kind kind, uint64_t *handle) {
    if (instant->first_free == SC_INSTANT_HANDLES_MAX)
        return NULL;
    struct place *place = &instant->places[instant->first_free];

    instant->first_free = place->next_free;
    place->kind = kind;
    place->stream = place->comm = 0;
    place->over = place->replay = false;
    *handle = place->handle;
    return place;
}

static void give_back(struct sc_instant_device *instant, struct place *place) {
    place->kind = FREE;
    place->handle += UINT64_C(1) << INDEX_BITS;
    place->next_free = instant->first_free;
    instant->first_free = (uint32_t)(place - instant->places);
}

static struct place *find_capturing(struct sc_instant_device *instant, uint64_t stream) {
    for (uint32_t i = 0; instant->capturing > 0 && i < SC_INSTANT_HANDLES_MAX; i++) {
        struct place *place = &instant->places[i];

        if (place->kind == CAPTURE && !place->over && place->stream == stream)
            return place;
    }
    return NULL;
}

static uint32_t count_captures(const struct sc_instant_device *instant, uint64_t comm) {
    uint32_t count = 0;

    for (uint32_t i = 0; instant->captures > 0 && i < SC_INSTANT_HANDLES_MAX; i++)
        count += instant->places[i].kind == CAPTURE && instant->places[i].comm == comm;
    return count;
}

// ---- communicators --------------------------------------------------------------------------

static sc_status comm_id(void *ctx, struct sc_comm_id *id) {
    static const char mark[] = SC_INSTANT_ID_MARK;
    struct sc_instant_device *instant = ctx;

    memset(id, 0, sizeof *id);
    instant->ids++;
    memcpy(id->bytes, mark, sizeof mark);
    memcpy(id->bytes + sizeof mark, &instant->ids, sizeof instant->ids);
    return SC_OK;
}

static sc_status comm_create(void *ctx, const struct sc_comm_spec *spec, uint64_t *comm) {
    struct sc_instant_device *instant = ctx;

    if (spec->world < 1 || spec->rank >= spec->world)
        return SC_INVALID;
    if (instant->switches.creates_fail)
        return SC_DEVICE_ERROR;
    if (instant->switches.creates_null) {
        *comm = 0;
        return SC_OK;
    }
    struct place *place = take(ctx, COMM, comm);
    if (place == NULL)
        return SC_NO_MEMORY;
    instant->switches.creates++;
    place->world = spec->world;
    return SC_OK;
}

static sc_status comm_poll(void *ctx, uint64_t comm, struct sc_comm_report *report) {
    const struct sc_instant_device *instant = ctx;
    struct place *place = find(ctx, COMM, comm);

    if (place == NULL)
        return SC_INVALID;
    bool gone = place->over && count_captures(ctx, comm) == 0 && !instant->switches.aborts_hang;
    // Formed at the beginning of time: there is no clock here.
    *report = (struct sc_comm_report){gone ? SC_COMM_GONE : SC_COMM_READY, SC_OK, 1, 0, UINT64_MAX};
    if (gone)
        give_back(ctx, place);
    return SC_OK;
}

static sc_status comm_error(void *ctx, uint64_t comm) {
    return find(ctx, COMM, comm) != NULL ? SC_OK : SC_INVALID;
}

static sc_status comm_abort(void *ctx, uint64_t comm) {
    struct sc_instant_device *instant = ctx;
    struct place *place = find(instant, COMM, comm);

    if (place == NULL || place->over)
        return SC_INVALID;
    place->over = true;
    instant->switches.aborts++;
    instant->switches.ops_hang = false;
    for (uint32_t i = 0; i < SC_INSTANT_HANDLES_MAX; i++)
        if (instant->places[i].kind == REGISTRATION && instant->places[i].comm == comm)
            give_back(instant, &instant->places[i]);
    return SC_OK;
}

static sc_status comm_abandon(void *ctx, uint64_t comm) {
    struct place *place = find(ctx, COMM, comm);

    if (place == NULL || !place->over)
        return SC_INVALID;
    give_back(ctx, place);
    return SC_OK;
}

static sc_status captures_held(void *ctx, uint64_t comm, uint32_t *held) {
    if (find(ctx, COMM, comm) == NULL)
        return SC_INVALID;
    *held = count_captures(ctx, comm);
    return SC_OK;
}

// ---- memory ---------------------------------------------------------------------------------

static sc_status mem_alloc(void *ctx, uint64_t bytes, uint64_t *address) {
    struct sc_instant_device *instant = ctx;

    if (instant->allocation_count == SC_INSTANT_ALLOCATIONS_MAX || bytes > SIZE_MAX - 15 ||
        instant->switches.allocs_fail)
        return SC_NO_MEMORY;
    void *memory = aligned_alloc(16, bytes == 0 ? 16 : (bytes + 15) / 16 * 16);
    if (memory == NULL)
        return SC_NO_MEMORY;
    instant->allocations[instant->allocation_count++] = memory;
    instant->switches.allocs++;
    *address = (uint64_t)(uintptr_t)memory;
    return SC_OK;
}

static sc_status mem_free(void *ctx, uint64_t address) {
    struct sc_instant_device *instant = ctx;

    for (uint32_t i = 0; i < instant->allocation_count; i++) {
        if ((uint64_t)(uintptr_t)instant->allocations[i] == address) {
            free(instant->allocations[i]);
            instant->allocations[i] = instant->allocations[--instant->allocation_count];
            return SC_OK;
        }
    }
    return SC_INVALID;
}

static sc_status buf_register(void *ctx, uint64_t comm, uint64_t address, uint64_t bytes,
                              uint64_t *registration) {
    if (find(ctx, COMM, comm) == NULL || address == 0 || bytes == 0)
        return SC_INVALID;
    struct place *place = take(ctx, REGISTRATION, registration);
    if (place == NULL)
        return SC_NO_MEMORY;
    place->comm = comm;
    return SC_OK;
}

static sc_status buf_deregister(void *ctx, uint64_t comm, uint64_t registration) {
    struct place *place = find(ctx, REGISTRATION, registration);

    if (place == NULL || place->comm != comm)
        return SC_INVALID;
    give_back(ctx, place);
    return SC_OK;
}

// ---- ops ------------------------------------------------------------------------------------

static sc_status op_begin(void *ctx, uint64_t stream, uint64_t *op) {
    (void)stream;
    return take(ctx, OP, op) != NULL ? SC_OK : SC_NO_MEMORY;
}

static sc_status end(void *ctx, uint64_t op, bool replay) {
    struct place *place = find(ctx, OP, op);

    if (place == NULL || place->over || place->replay != replay)
        return SC_INVALID;
    place->over = true;
    return SC_OK;
}

static sc_status op_end(void *ctx, uint64_t op) {
    return end(ctx, op, false);
}

static sc_status op_poll(void *ctx, uint64_t op, enum sc_op_state *state) {
    const struct sc_instant_device *instant = ctx;
    const struct place *place = find(ctx, OP, op);

    if (place == NULL)
        return SC_INVALID;
    *state = place->over && !instant->switches.ops_hang ? SC_OP_DONE : SC_OP_STARTED;
    return SC_OK;
}

static sc_status op_release(void *ctx, uint64_t op) {
    struct place *place = find(ctx, OP, op);

    if (place == NULL || !place->over)
        return SC_INVALID;
    give_back(ctx, place);
    return SC_OK;
}

static sc_status stream_check(void *ctx, uint64_t stream) {
    return find_capturing(ctx, stream) != NULL ? SC_CAPTURE : SC_OK;
}

static sc_status stream_wait(void *ctx, uint64_t stream, uint64_t op) {
    (void)stream;
    return find(ctx, OP, op) != NULL ? SC_OK : SC_INVALID;
}

// ---- collectives ----------------------------------------------------------------------------

static sc_status group_begin(void *ctx) {
    struct sc_instant_device *instant = ctx;

    instant->group_depth++;
    return SC_OK;
}

static sc_status group_end(void *ctx) {
    struct sc_instant_device *instant = ctx;

    if (instant->group_depth == 0)
        return SC_STATE;
    instant->group_depth--;
    return SC_OK;
}

// What every collective does: nothing, but a capture that records it holds the communicator.
static sc_status use(struct sc_instant_device *instant, uint64_t comm, uint32_t rank,
                     uint64_t stream) {
    const struct place *place = find(instant, COMM, comm);

    if (place == NULL || place->over || rank >= place->world)
        return SC_INVALID;
    struct place *capture = find_capturing(instant, stream);
    if (capture != NULL)
        capture->comm = comm;
    return SC_OK;
}

static sc_status send(void *ctx, uint64_t comm, uint64_t src, uint64_t bytes, uint32_t peer,
                      uint64_t stream) {
    (void)src, (void)bytes;
    return use(ctx, comm, peer, stream);
}

static sc_status recv(void *ctx, uint64_t comm, uint64_t dst, uint64_t bytes, uint32_t peer,
                      uint64_t stream) {
    (void)dst, (void)bytes;
    return use(ctx, comm, peer, stream);
}

static sc_status all_reduce(void *ctx, uint64_t comm, uint64_t buf, uint64_t bytes,
                            uint64_t stream) {
    (void)buf, (void)bytes;
    return use(ctx, comm, 0, stream);
}

static sc_status broadcast(void *ctx, uint64_t comm, uint64_t buf, uint64_t bytes, uint32_t root,
                           uint64_t stream) {
    (void)buf, (void)bytes;
    return use(ctx, comm, root, stream);
}

static sc_status all_gather(void *ctx, uint64_t comm, uint64_t src, uint64_t dst, uint64_t bytes,
                            uint64_t stream) {
    (void)src, (void)dst, (void)bytes;
    return use(ctx, comm, 0, stream);
}

static sc_status reduce_scatter(void *ctx, uint64_t comm, uint64_t src, uint64_t dst,
                                uint64_t bytes, uint64_t stream) {
    (void)src, (void)dst, (void)bytes;
    return use(ctx, comm, 0, stream);
}

static sc_status add_bf16(void *ctx, uint64_t dst, uint64_t src, uint64_t bytes, uint64_t epoch,
                          uint64_t stream) {
    (void)ctx, (void)dst, (void)src, (void)bytes, (void)epoch, (void)stream;
    return SC_OK;
}

static sc_status fence_set(void *ctx, uint64_t epoch) {
    struct sc_instant_device *instant = ctx;

    instant->fence = epoch;
    return SC_OK;
}

// ---- streams, captures and replays ----------------------------------------------------------

static sc_status stream_create(void *ctx, uint64_t *stream) {
    return take(ctx, STREAM, stream) != NULL ? SC_OK : SC_NO_MEMORY;
}

static sc_status stream_destroy(void *ctx, uint64_t stream) {
    struct place *place = find(ctx, STREAM, stream);

    if (place == NULL)
        return SC_INVALID;
    give_back(ctx, place);
    return SC_OK;
}

static sc_status capture_begin(void *ctx, uint64_t stream, uint64_t *capture) {
    struct sc_instant_device *instant = ctx;

    if (find_capturing(instant, stream) != NULL)
        return SC_STATE;
    struct place *place = take(instant, CAPTURE, capture);
    if (place == NULL)
        return SC_NO_MEMORY;
    place->stream = stream;
    instant->capturing++;
    instant->captures++;
    return SC_OK;
}

static sc_status capture_end(void *ctx, uint64_t capture) {
    struct sc_instant_device *instant = ctx;
    struct place *place = find(instant, CAPTURE, capture);

    if (place == NULL || place->over)
        return SC_INVALID;
    place->over = true;
    instant->capturing--;
    return SC_OK;
}

static sc_status capture_release(void *ctx, uint64_t capture) {
    struct sc_instant_device *instant = ctx;
    struct place *place = find(instant, CAPTURE, capture);

    if (place == NULL || !place->over)
        return SC_INVALID;
    give_back(instant, place);
    instant->captures--;
    return SC_OK;
}

static sc_status replay_begin(void *ctx, uint64_t capture, uint64_t stream, uint64_t epoch,
                              uint64_t *op) {
    const struct place *recorded = find(ctx, CAPTURE, capture);

    (void)stream, (void)epoch;
    if (recorded == NULL || !recorded->over)
        return SC_INVALID;
    struct place *place = take(ctx, OP, op);
    if (place == NULL)
        return SC_NO_MEMORY;
    place->replay = true;
    return SC_OK;
}

static sc_status replay_end(void *ctx, uint64_t op) {
    return end(ctx, op, true);
}

// ---- its life -------------------------------------------------------------------------------

sc_status sc_instant_device_create(struct sc_instant_device **out) {
    struct sc_instant_device *instant = calloc(1, sizeof *instant);

    if (instant == NULL)
        return SC_NO_MEMORY;
    instant->table = (struct sc_device){.size = sizeof instant->table, .name = "instant"};
    instant->table.ctx = instant;
#define ENTER(verb) instant->table.verb = verb;
    SC_DEVICE_VERBS(ENTER)
#undef ENTER
    for (uint32_t i = 0; i < SC_INSTANT_HANDLES_MAX; i++) {
        instant->places[i].handle = (UINT64_C(1) << INDEX_BITS) + i;
        instant->places[i].next_free = i + 1;
    }
    *out = instant;
    return SC_OK;
}

void sc_instant_device_destroy(struct sc_instant_device *instant) {
    if (instant == NULL)
        return;
    for (uint32_t i = 0; i < instant->allocation_count; i++)
        free(instant->allocations[i]);
    free(instant);
}

const struct sc_device *sc_instant_device_table(const struct sc_instant_device *instant) {
    return &instant->table;
}

struct sc_instant_switches *sc_instant_device_switches(struct sc_instant_device *instant) {
    return &instant->switches;
}

uint64_t sc_instant_device_fence(const struct sc_instant_device *instant) {
    return instant->fence;
}
