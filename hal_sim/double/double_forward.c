// SPDX-License-Identifier: AGPL-3.0-only
//
// Device and link under the real clock: each verb is the simulator's, at the present time, while no
// other thread of the run is in it. A process that dies in the middle of a call is told so by it.
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

// clang-format off
DEVICE(comm_id, (void *ctx, struct sc_comm_id *id), (to->ctx, id))
DEVICE(comm_create, (void *ctx, const struct sc_comm_spec *spec, uint64_t *comm),
       (to->ctx, spec, comm))
DEVICE(comm_poll, (void *ctx, uint64_t comm, struct sc_comm_report *report),
       (to->ctx, comm, report))
DEVICE(comm_error, (void *ctx, uint64_t comm), (to->ctx, comm))
DEVICE(comm_abort, (void *ctx, uint64_t comm), (to->ctx, comm))
DEVICE(comm_abandon, (void *ctx, uint64_t comm), (to->ctx, comm))
DEVICE(mem_alloc, (void *ctx, uint64_t bytes, uint64_t *address), (to->ctx, bytes, address))
DEVICE(mem_free, (void *ctx, uint64_t address), (to->ctx, address))
DEVICE(buf_register, (void *ctx, uint64_t comm, uint64_t address, uint64_t bytes, uint64_t *made),
       (to->ctx, comm, address, bytes, made))
DEVICE(buf_deregister, (void *ctx, uint64_t comm, uint64_t made), (to->ctx, comm, made))
DEVICE(stream_check, (void *ctx, uint64_t stream), (to->ctx, stream))
DEVICE(op_begin, (void *ctx, uint64_t stream, uint64_t *op), (to->ctx, stream, op))
DEVICE(op_end, (void *ctx, uint64_t op), (to->ctx, op))
DEVICE(op_poll, (void *ctx, uint64_t op, enum sc_op_state *state), (to->ctx, op, state))
DEVICE(op_release, (void *ctx, uint64_t op), (to->ctx, op))
DEVICE(stream_wait, (void *ctx, uint64_t stream, uint64_t op), (to->ctx, stream, op))
DEVICE(group_begin, (void *ctx), (to->ctx))
DEVICE(group_end, (void *ctx), (to->ctx))
DEVICE(send, (void *ctx, uint64_t comm, uint64_t src, uint64_t bytes, uint32_t peer, uint64_t stream),
       (to->ctx, comm, src, bytes, peer, stream))
DEVICE(recv, (void *ctx, uint64_t comm, uint64_t dst, uint64_t bytes, uint32_t peer, uint64_t stream),
       (to->ctx, comm, dst, bytes, peer, stream))
DEVICE(all_reduce, (void *ctx, uint64_t comm, uint64_t buf, uint64_t bytes, uint64_t stream),
       (to->ctx, comm, buf, bytes, stream))
DEVICE(broadcast,
       (void *ctx, uint64_t comm, uint64_t buf, uint64_t bytes, uint32_t root, uint64_t stream),
       (to->ctx, comm, buf, bytes, root, stream))
DEVICE(all_gather,
       (void *ctx, uint64_t comm, uint64_t src, uint64_t dst, uint64_t bytes, uint64_t stream),
       (to->ctx, comm, src, dst, bytes, stream))
DEVICE(reduce_scatter,
       (void *ctx, uint64_t comm, uint64_t src, uint64_t dst, uint64_t bytes, uint64_t stream),
       (to->ctx, comm, src, dst, bytes, stream))
DEVICE(add_bf16,
       (void *ctx, uint64_t dst, uint64_t src, uint64_t bytes, uint64_t epoch, uint64_t stream),
       (to->ctx, dst, src, bytes, epoch, stream))
DEVICE(fence_set, (void *ctx, uint64_t epoch), (to->ctx, epoch))
DEVICE(stream_create, (void *ctx, uint64_t *stream), (to->ctx, stream))
DEVICE(stream_destroy, (void *ctx, uint64_t stream), (to->ctx, stream))
DEVICE(capture_begin, (void *ctx, uint64_t stream, uint64_t *capture), (to->ctx, stream, capture))
DEVICE(capture_end, (void *ctx, uint64_t capture), (to->ctx, capture))
DEVICE(capture_release, (void *ctx, uint64_t capture), (to->ctx, capture))
DEVICE(captures_held, (void *ctx, uint64_t comm, uint32_t *held), (to->ctx, comm, held))
DEVICE(replay_begin,
       (void *ctx, uint64_t capture, uint64_t stream, uint64_t epoch, uint64_t *op),
       (to->ctx, capture, stream, epoch, op))
DEVICE(replay_end, (void *ctx, uint64_t op), (to->ctx, op))
// clang-format on

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
