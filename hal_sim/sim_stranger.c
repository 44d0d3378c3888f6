// SPDX-License-Identifier: AGPL-3.0-only
//
// Strangers: connections to a listener that are none of ours, and the process that squats on a
// port. They take whatever they are sent; how much is counted.
#include "hal_sim/sim_net.h"

#include <stdio.h>

#define GARBAGE_BYTES 64u
#define SQUATTER_BANNER_BYTES 200u

static const char http_request[] = "GET / HTTP/1.1\r\nHost: spark\r\nAccept: */*\r\n\r\n";
static const char banner[] = "220 mail.example ESMTP ready\r\n";

static void leave(struct sc_sim *sim, uint64_t handle, uint64_t unused) {
    struct sc_sim_endpoint *stranger = sc_sim_endpoint_find(sim, handle);

    (void)unused;
    if (stranger != NULL)
        sc_sim_net_close(sim, stranger);
}

static void leave_rudely(struct sc_sim *sim, uint64_t handle, uint64_t unused) {
    struct sc_sim_endpoint *stranger = sc_sim_endpoint_find(sim, handle);
    struct sc_sim_endpoint *met =
        stranger == NULL ? NULL : sc_sim_endpoint_find(sim, stranger->peer);

    (void)unused;
    if (met != NULL)
        sc_sim_net_reset(sim, met);
    if (stranger != NULL)
        sc_sim_pool_put(sim, SC_SIM_LINK, &stranger->object);
}

void sc_sim_stranger_connected(struct sc_sim *sim, struct sc_sim_endpoint *stranger) {
    unsigned char garbage[GARBAGE_BYTES];
    const struct sc_sim_hello *hello = NULL;
    sc_sim_event_fn goes = leave;
    uint64_t stays_ns = stranger->stay_ns;

    switch (stranger->stranger) {
    case SC_SIM_GARBAGE:
        sc_sim_fill(sim, garbage, sizeof garbage);
        sc_sim_net_send(sim, stranger, garbage, sizeof garbage);
        break;
    case SC_SIM_HTTP: sc_sim_net_send(sim, stranger, http_request, sizeof http_request - 1); break;
    case SC_SIM_BANNER:
        sc_sim_net_send(sim, stranger, banner, sizeof banner - 1);
        goes = leave_rudely;
        stays_ns = sc_sim_draw(sim, sim->config.link_latency);
        break;
    case SC_SIM_REPLAY:
        hello = &sim->hellos[stranger->imitated];
        sc_sim_net_send(sim, stranger, hello->data, hello->bytes);
        break;
    default: break;
    }
    sc_sim_push(sim, sc_sim_later(sim->now_ns, stays_ns), goes, stranger->object.handle, 0);
}

void sc_sim_squatter_answers(struct sc_sim *sim, struct sc_sim_endpoint *dialler) {
    struct sc_sim_endpoint *squatter = sc_sim_endpoint_create(sim, NULL);
    char text[SQUATTER_BANNER_BYTES];

    squatter->stranger = SC_SIM_SQUATTER;
    sc_sim_net_join(dialler, squatter);
    for (size_t at = 0; at < sizeof text; at++)
        text[at] = (char)('A' + at % 26);
    sc_sim_net_send(sim, squatter, text, sizeof text);
    sc_sim_push(sim, sim->squatted_until_ns, leave, squatter->object.handle, 0);
}

static enum sc_sim_stranger_kind stranger_of(enum sc_sim_fault_kind kind) {
    switch (kind) {
    case SC_SIM_stranger_silent: return SC_SIM_SILENT;
    case SC_SIM_stranger_garbage: return SC_SIM_GARBAGE;
    case SC_SIM_stranger_http: return SC_SIM_HTTP;
    case SC_SIM_stranger_banner: return SC_SIM_BANNER;
    case SC_SIM_stranger_replay: return SC_SIM_REPLAY;
    default: return SC_SIM_NO_STRANGER;
    }
}

bool sc_sim_inject_stranger(struct sc_sim *sim, const struct sc_sim_fault *fault) {
    enum sc_sim_stranger_kind kind = stranger_of(fault->kind);
    struct sc_sim_listener *listener = sc_sim_net_any_listener(sim);

    if (fault->kind == SC_SIM_port_squatted) {
        if (listener != NULL)
            return false;
        sim->squatted_until_ns = sc_sim_later(sim->now_ns, fault->duration_ns);
        return true;
    }
    if (listener == NULL || kind == SC_SIM_NO_STRANGER)
        return false;
    if (kind == SC_SIM_REPLAY &&
        (fault->a >= sim->config.world || sim->hellos[fault->a].bytes == 0))
        return false;
    struct sc_sim_endpoint *stranger = sc_sim_endpoint_create(sim, NULL);
    stranger->stranger = kind;
    stranger->imitated = fault->a;
    stranger->stay_ns = fault->duration_ns;
    sc_sim_net_dial(sim, stranger, listener->port);
    return true;
}

void sc_sim_heal_strangers(struct sc_sim *sim) {
    sim->squatted_until_ns = 0;
    for (uint32_t at = 0; at < sc_sim_pool_count(sim, SC_SIM_LINK); at++) {
        struct sc_sim_endpoint *stranger = sc_sim_pool_at(sim, SC_SIM_LINK, at);
        if (stranger != NULL && stranger->object.owner == NULL)
            sc_sim_net_close(sim, stranger);
    }
}

void sc_sim_hello_note(struct sc_sim *sim, struct sc_sim_endpoint *from, const void *data,
                       size_t bytes) {
    struct sc_sim_endpoint *to = sc_sim_endpoint_find(sim, from->peer);

    if (from->port == 0 || from->here >= SC_SIM_RANKS_MAX || to == NULL || to->object.owner == NULL)
        return;
    struct sc_sim_hello *hello = &sim->hellos[from->here];
    if (hello->link != from->object.handle) {
        hello->link = from->object.handle;
        hello->sent_ns = sim->now_ns;
        hello->bytes = 0;
    } else if (hello->sent_ns != sim->now_ns) {
        return; // later words are no hello
    }
    size_t room = sizeof hello->data - hello->bytes;
    size_t taken = bytes < room ? bytes : room;
    memcpy(hello->data + hello->bytes, data, taken);
    hello->bytes += (uint32_t)taken;
}

uint64_t sc_sim_stranger_bytes(const struct sc_sim *sim) {
    return sim->stranger_bytes_max;
}
