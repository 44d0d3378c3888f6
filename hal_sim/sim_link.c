// SPDX-License-Identifier: AGPL-3.0-only
//
// The link table: what a process may ask of the network. Host names are not looked at.
#include "hal_sim/sim_net.h"

static sc_status link_listen(void *ctx, const char *host, uint16_t port, uint64_t *listener) {
    struct sc_sim_process *process = ctx;
    struct sc_sim *sim = process->sim;

    (void)host;
    if (!process->alive)
        return SC_CLOSED;
    if (port == 0)
        return SC_INVALID;
    if (sim->now_ns < sim->squatted_until_ns || sc_sim_net_listener(sim, port) != NULL)
        return SC_BIND;
    struct sc_sim_listener *made = sc_sim_pool_take(sim, SC_SIM_LISTENER, process);
    made->port = port;
    made->backlog_count = 0;
    process->held.listeners++;
    *listener = made->object.handle;
    return SC_OK;
}

static sc_status link_accept(void *ctx, uint64_t handle, uint64_t *link) {
    struct sc_sim_process *process = ctx;
    struct sc_sim_listener *listener = sc_sim_pool_find(process->sim, SC_SIM_LISTENER, handle);

    if (!process->alive)
        return SC_CLOSED;
    if (listener == NULL || listener->object.owner != process)
        return sc_sim_breach(process, "accept: unknown listener %#llx", (unsigned long long)handle);
    if (listener->backlog_count == 0)
        return SC_INPROGRESS;
    struct sc_sim_endpoint *first = sc_sim_endpoint_find(process->sim, listener->backlog[0]);
    SC_ASSERT(first != NULL);
    listener->backlog_count--;
    memmove(listener->backlog, listener->backlog + 1,
            listener->backlog_count * sizeof *listener->backlog);
    first->accepted = true;
    process->held.links++;
    *link = first->object.handle;
    return SC_OK;
}

static sc_status link_dial(void *ctx, const char *host, uint16_t port, uint32_t attempt,
                           uint64_t *link) {
    struct sc_sim_process *process = ctx;
    struct sc_sim *sim = process->sim;

    (void)host;
    (void)attempt;
    if (!process->alive)
        return SC_CLOSED;
    if (port == 0)
        return SC_INVALID;
    if (sim->now_ns < sim->unresolved_until_ns[process->rank])
        return SC_UNREACHABLE;
    struct sc_sim_endpoint *made = sc_sim_endpoint_create(sim, process);
    made->accepted = true;
    process->held.links++;
    sc_sim_net_dial(sim, made, port);
    *link = made->object.handle;
    return SC_OK;
}

// The endpoint behind a call, or NULL and the answer to give.
static struct sc_sim_endpoint *enter(struct sc_sim_process *process, const char *verb,
                                     uint64_t handle, sc_status *status) {
    struct sc_sim_endpoint *endpoint = sc_sim_endpoint_find(process->sim, handle);

    if (!process->alive) {
        *status = SC_CLOSED;
        return NULL;
    }
    if (endpoint == NULL || endpoint->object.owner != process || !endpoint->accepted) {
        *status =
            sc_sim_breach(process, "%s: unknown link %#llx", verb, (unsigned long long)handle);
        return NULL;
    }
    return endpoint;
}

static sc_status standing(const struct sc_sim_endpoint *endpoint) {
    switch (endpoint->state) {
    case SC_SIM_LINK_OPEN: return SC_OK;
    case SC_SIM_LINK_REFUSED: return SC_REFUSED;
    default: return SC_INPROGRESS;
    }
}

static sc_status link_connected(void *ctx, uint64_t handle) {
    sc_status status = SC_OK;
    struct sc_sim_endpoint *endpoint = enter(ctx, "connected", handle, &status);

    return endpoint != NULL ? standing(endpoint) : status;
}

static sc_status link_send(void *ctx, uint64_t handle, const void *data, size_t bytes,
                           size_t *sent) {
    struct sc_sim_process *process = ctx;
    sc_status status = SC_OK;
    struct sc_sim_endpoint *endpoint = enter(process, "send", handle, &status);

    if (endpoint == NULL)
        return status;
    if (bytes == 0)
        return SC_INVALID;
    status = standing(endpoint);
    if (status != SC_OK)
        return status;
    if (endpoint->eof || endpoint->reset)
        return SC_LINK_EOF;
    size_t taken = sc_sim_net_send(process->sim, endpoint, data, bytes);
    if (taken == 0)
        return SC_INPROGRESS;
    sc_sim_hello_note(process->sim, endpoint, data, taken);
    *sent = taken;
    return SC_OK;
}

static sc_status link_recv(void *ctx, uint64_t handle, void *data, size_t bytes, size_t *received) {
    struct sc_sim_process *process = ctx;
    sc_status status = SC_OK;
    struct sc_sim_endpoint *endpoint = enter(process, "recv", handle, &status);

    if (endpoint == NULL)
        return status;
    if (bytes == 0)
        return SC_INVALID;
    status = standing(endpoint);
    if (status != SC_OK)
        return status;
    if (endpoint->reset)
        return SC_LINK_EOF;
    uint64_t ready = endpoint->visible - endpoint->head;
    if (ready == 0)
        return endpoint->eof && endpoint->head == endpoint->tail ? SC_LINK_EOF : SC_INPROGRESS;
    size_t taken = ready < bytes ? (size_t)ready : bytes;
    sc_sim_net_read(process->sim, endpoint, data, taken);
    *received = taken;
    return SC_OK;
}

static void link_close(void *ctx, uint64_t handle) {
    struct sc_sim_process *process = ctx;
    struct sc_sim *sim = process->sim;

    if (!process->alive || handle == 0)
        return;
    struct sc_sim_listener *listener = sc_sim_pool_find(sim, SC_SIM_LISTENER, handle);
    if (listener != NULL && listener->object.owner == process) {
        sc_sim_net_unlisten(sim, listener);
        return;
    }
    sc_status status = SC_OK;
    struct sc_sim_endpoint *endpoint = enter(process, "close", handle, &status);
    if (endpoint != NULL)
        sc_sim_net_close(sim, endpoint);
}

static const char *link_explain(void *ctx, char *text, size_t bytes) {
    (void)ctx, (void)bytes; // a simulated network has no addresses and no system behind it
    text[0] = '\0';
    return text;
}

const struct sc_link sc_sim_link_table = {
    .size = sizeof sc_sim_link_table,
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
