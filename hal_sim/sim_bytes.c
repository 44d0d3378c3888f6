// SPDX-License-Identifier: AGPL-3.0-only
//
// Bytes between endpoints: their rings, the events by which they arrive, and the ends of links.
#include "hal_sim/sim_net.h"

#include <stdlib.h>

#define RING_BYTES_MIN 1024u

static void arrive(struct sc_sim *sim, uint64_t handle, uint64_t visible) {
    struct sc_sim_endpoint *to = sc_sim_endpoint_find(sim, handle);

    if (to == NULL || to->reset)
        return;
    if (sc_sim_path_is_hole(sim, to->there, to->here)) {
        to->held = true;
        to->held_visible = visible;
        return;
    }
    if (visible > to->visible)
        to->visible = visible;
    sc_sim_endpoint_wake(to);
}

static void arrive_eof(struct sc_sim *sim, uint64_t handle, uint64_t unused) {
    struct sc_sim_endpoint *to = sc_sim_endpoint_find(sim, handle);

    (void)unused;
    if (to == NULL)
        return;
    if (sc_sim_path_is_hole(sim, to->there, to->here)) {
        to->held_eof = true;
        return;
    }
    to->eof = true;
    sc_sim_endpoint_wake(to);
}

void sc_sim_net_send_eof(struct sc_sim *sim, struct sc_sim_endpoint *to) {
    to->last_due_ns = sc_sim_path_due(sim, to);
    sc_sim_push(sim, to->last_due_ns, arrive_eof, to->object.handle, 0);
}

static void arrive_reset(struct sc_sim *sim, uint64_t handle, uint64_t unused) {
    struct sc_sim_endpoint *to = sc_sim_endpoint_find(sim, handle);

    (void)unused;
    if (to == NULL)
        return;
    to->reset = true;
    sc_sim_endpoint_wake(to);
}

void sc_sim_net_reset(struct sc_sim *sim, struct sc_sim_endpoint *endpoint) {
    sc_sim_push(sim, sim->now_ns + sc_sim_draw(sim, sim->config.link_latency), arrive_reset,
                endpoint->object.handle, 0);
}

void sc_sim_net_release(struct sc_sim *sim) {
    for (uint32_t at = 0; at < sc_sim_pool_count(sim, SC_SIM_LINK); at++) {
        struct sc_sim_endpoint *to = sc_sim_pool_at(sim, SC_SIM_LINK, at);
        if (to == NULL)
            continue;
        uint64_t handle = to->object.handle;
        if (to->held_dial) {
            to->held_dial = false;
            sc_sim_net_redial(sim, to);
        }
        if (to->held) {
            to->held = false;
            arrive(sim, handle, to->held_visible);
        }
        if (to->held_eof) {
            to->held_eof = false;
            arrive_eof(sim, handle, 0);
        }
    }
}

static void ring_grow(struct sc_sim_endpoint *to, uint64_t bytes) {
    uint32_t larger = to->ring_bytes == 0 ? RING_BYTES_MIN : to->ring_bytes;

    while (larger < bytes)
        larger *= 2;
    if (larger == to->ring_bytes)
        return;
    unsigned char *ring = malloc(larger);
    SC_ASSERT(ring != NULL);
    for (uint64_t at = to->head; at < to->tail; at++)
        ring[at & (larger - 1)] = to->ring[at & (to->ring_bytes - 1)];
    free(to->ring);
    to->ring = ring;
    to->ring_bytes = larger;
}

static void ring_write(struct sc_sim_endpoint *to, const unsigned char *data, size_t bytes) {
    ring_grow(to, to->tail - to->head + bytes);
    size_t start = (size_t)(to->tail & (to->ring_bytes - 1));
    size_t first = to->ring_bytes - start < bytes ? to->ring_bytes - start : bytes;
    memcpy(to->ring + start, data, first);
    memcpy(to->ring, data + first, bytes - first);
    to->tail += bytes;
}

void sc_sim_net_read(struct sc_sim *sim, struct sc_sim_endpoint *from, unsigned char *out,
                     size_t bytes) {
    size_t start = (size_t)(from->head & (from->ring_bytes - 1));
    size_t first = from->ring_bytes - start < bytes ? from->ring_bytes - start : bytes;

    memcpy(out, from->ring + start, first);
    memcpy(out + first, from->ring, bytes - first);
    from->head += bytes;
    if (!from->writer_blocked)
        return;
    from->writer_blocked = false;
    struct sc_sim_endpoint *writer = sc_sim_endpoint_find(sim, from->peer);
    if (writer != NULL)
        sc_sim_endpoint_wake(writer);
}

// Bytes that come a few at a time still come by only a few events.
static void deliver_in_pieces(struct sc_sim *sim, struct sc_sim_endpoint *to, size_t bytes) {
    uint64_t done = to->tail - bytes;
    uint64_t most = bytes / 8 < 7 ? 7 : bytes / 8;

    while (done < to->tail) {
        done += 1 + sc_sim_below(sim, most);
        if (done > to->tail)
            done = to->tail;
        sc_sim_push(sim, to->last_due_ns, arrive, to->object.handle, done);
        to->last_due_ns += 1000 + sc_sim_below(sim, 50000);
    }
}

size_t sc_sim_net_send(struct sc_sim *sim, struct sc_sim_endpoint *from, const void *data,
                       size_t bytes) {
    struct sc_sim_endpoint *to = sc_sim_endpoint_find(sim, from->peer);

    if (to == NULL || to->reset)
        return bytes; // the other end is gone, and word of it still under way
    if (to->object.owner == NULL) {
        to->taken_bytes += bytes;
        if (to->taken_bytes > sim->stranger_bytes_max)
            sim->stranger_bytes_max = to->taken_bytes;
        return bytes;
    }
    uint64_t room = SC_SIM_LINK_BYTES - (to->tail - to->head);
    if (room == 0) {
        to->writer_blocked = true;
        return 0;
    }
    size_t taken = bytes < room ? bytes : (size_t)room;
    ring_write(to, data, taken);
    to->last_due_ns = sc_sim_path_due(sim, to);
    if (sc_sim_path_fragments(sim, to->there, to->here))
        deliver_in_pieces(sim, to, taken);
    else
        sc_sim_push(sim, to->last_due_ns, arrive, to->object.handle, to->tail);
    return taken;
}
