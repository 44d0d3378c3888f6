// SPDX-License-Identifier: AGPL-3.0-only
//
// Device and link under the real clock: each verb is the simulator's, at the present time, while no
// other thread of the run is in it. A process that dies in the middle of a call is told so by it.
#include "hal/forward.h"
#include "hal_sim/double/inside.h"

// Defines the verb `kind`_`name` of a table whose inner one is `inner`.
#define FORWARD(kind, inner, name, parameters, arguments)                                          \
    static sc_status kind##_##name parameters {                                                    \
        struct sc_sim_rank *rank = ctx;                                                            \
        const struct sc_##kind *to = inner;                                                        \
        rank->run->clock->enter(rank->run);                                                        \
        sc_status status = to->name arguments;                                                     \
        if (status == SC_CLOSED && sc_double_dead(rank))                                           \
            status = SC_SIM_KILLED;                                                                \
        rank->run->clock->leave(rank->run);                                                        \
        return status;                                                                             \
    }

// ---- the device -------------------------------------------------------------------------------

#define DEVICE(name, parameters, arguments)                                                        \
    FORWARD(device, sc_hal_check_device(rank->check), name, parameters, arguments)

SC_DEVICE_SIGNATURES(DEVICE)

const struct sc_device sc_double_device = {.size = sizeof sc_double_device,
                                           .name = "sim",
#define DEVICE_ENTRY(name) .name = device_##name,
                                           SC_DEVICE_VERBS(DEVICE_ENTRY)
#undef DEVICE_ENTRY
};

// ---- the link ---------------------------------------------------------------------------------

#define LINK(name, parameters, arguments)                                                          \
    FORWARD(link, sc_sim_link(rank->process), name, parameters, arguments)

// clang-format off
LINK(listen, (void *ctx, const char *host, uint16_t port, uint64_t *listener),
     (to->ctx, host, port, listener))
LINK(accept, (void *ctx, uint64_t listener, uint64_t *link), (to->ctx, listener, link))
LINK(dial, (void *ctx, const char *host, uint16_t port, uint32_t attempt, uint64_t *link),
     (to->ctx, host, port, attempt, link))
LINK(connected, (void *ctx, uint64_t link), (to->ctx, link))
LINK(send, (void *ctx, uint64_t link, const void *data, size_t bytes, size_t *sent),
     (to->ctx, link, data, bytes, sent))
LINK(recv, (void *ctx, uint64_t link, void *data, size_t bytes, size_t *received),
     (to->ctx, link, data, bytes, received))
// clang-format on

static void link_close(void *ctx, uint64_t handle) {
    struct sc_sim_rank *rank = ctx;
    const struct sc_link *to = sc_sim_link(rank->process);

    rank->run->clock->enter(rank->run);
    to->close(to->ctx, handle);
    rank->run->clock->leave(rank->run);
}

static const char *link_explain(void *ctx, char *text, size_t bytes) {
    struct sc_sim_rank *rank = ctx;
    const struct sc_link *to = sc_sim_link(rank->process);

    rank->run->clock->enter(rank->run);
    (void)to->explain(to->ctx, text, bytes);
    rank->run->clock->leave(rank->run);
    return text;
}

const struct sc_link sc_double_link = {
    .size = sizeof sc_double_link,
    .name = "sim",
    .listen = link_listen,
    .accept = link_accept,
    .dial = link_dial,
    .connected = link_connected,
    .send = link_send,
    .recv = link_recv,
    .close = link_close,
    .explain = link_explain,
};
