// SPDX-License-Identifier: AGPL-3.0-only
//
// Links in memory; the n-th handle is entry n - 1 of one table.
#include "tests/support/fake_net.h"

#include "core/assert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fake_end *fake_end_of(struct fake_net *net, uint64_t handle) {
    SC_ASSERT(handle > 0 && handle < net->next);
    return &net->ends[handle - 1];
}

static struct fake_end *open_end(struct fake_net *net, uint64_t handle) {
    struct fake_end *end = handle > 0 && handle < net->next ? &net->ends[handle - 1] : NULL;
    if (end != NULL && end->handle == handle && end->wire != NULL)
        return end;
    net->misused++;
    return NULL;
}

static struct fake_end *take(struct fake_net *net) {
    SC_ASSERT(net->next <= FAKE_ENDS_MAX);
    struct fake_end *end = &net->ends[net->next - 1];
    end->handle = net->next++;
    end->wire = malloc(FAKE_WIRE_MAX);
    SC_ASSERT(end->wire != NULL);
    return end;
}

static sc_status fake_listen(void *ctx, const char *host, uint16_t port, uint64_t *listener) {
    struct fake_net *net = ctx;
    (void)host, (void)port;
    SC_ASSERT(net->next <= FAKE_ENDS_MAX);
    net->listener = net->next++;
    *listener = net->listener;
    return SC_OK;
}

static sc_status fake_accept(void *ctx, uint64_t listener, uint64_t *link) {
    struct fake_net *net = ctx;
    if (listener != net->listener)
        return SC_INVALID;
    if (net->backlog_count == 0)
        return SC_INPROGRESS;
    *link = net->backlog[0];
    net->backlog_count--;
    memmove(net->backlog, net->backlog + 1, net->backlog_count * sizeof net->backlog[0]);
    return SC_OK;
}

static sc_status fake_dial(void *ctx, const char *host, uint16_t port, uint32_t attempt,
                           uint64_t *link) {
    struct fake_net *net = ctx;
    (void)host, (void)port, (void)attempt;
    if (net->dial_answer != SC_OK)
        return net->dial_answer;
    struct fake_end *near = take(net), *far = take(net);
    near->peer = far->handle;
    far->peer = near->handle;
    near->connecting = true;
    net->backlog[net->backlog_count++] = far->handle;
    *link = near->handle;
    return SC_OK;
}

static sc_status fake_connected(void *ctx, uint64_t link) {
    struct fake_net *net = ctx;
    struct fake_end *end = open_end(net, link);
    if (end == NULL)
        return SC_INVALID;
    end->connecting &= !net->connects;
    return end->connecting ? SC_INPROGRESS : SC_OK;
}

static sc_status fake_send(void *ctx, uint64_t link, const void *data, size_t bytes, size_t *sent) {
    struct fake_net *net = ctx;
    struct fake_end *end = open_end(net, link);
    if (end == NULL || bytes == 0)
        return SC_INVALID;
    if (end->connecting)
        return SC_INPROGRESS;
    if (end->eof)
        return SC_LINK_EOF;
    const struct fake_end *peer = fake_end_of(net, end->peer);
    const size_t unread = peer->wire_bytes - peer->read_bytes;
    size_t part = bytes < net->step ? bytes : net->step;
    if (part + unread > net->room)
        part = unread < net->room ? net->room - unread : 0;
    if (part == 0)
        return SC_INPROGRESS;
    fake_inject(net, end->peer, data, part);
    *sent = part;
    return SC_OK;
}

static sc_status fake_recv(void *ctx, uint64_t link, void *data, size_t bytes, size_t *received) {
    struct fake_net *net = ctx;
    struct fake_end *end = open_end(net, link);
    if (end == NULL || bytes == 0)
        return SC_INVALID;
    size_t part = end->wire_bytes - end->read_bytes;
    if (part == 0)
        return end->eof ? SC_LINK_EOF : SC_INPROGRESS;
    part = part < net->step ? part : net->step;
    part = part < bytes ? part : bytes;
    memcpy(data, end->wire + end->read_bytes, part);
    end->read_bytes += part;
    *received = part;
    return SC_OK;
}

static void fake_close(void *ctx, uint64_t handle) {
    struct fake_net *net = ctx;
    if (handle == 0)
        return;
    if (handle == net->listener) {
        net->listener = 0;
        return;
    }
    struct fake_end *end = open_end(net, handle);
    if (end == NULL)
        return;
    end->handle = 0;
    fake_end_of(net, end->peer)->eof = true;
}

static const char *fake_explain(void *ctx, char *text, size_t bytes) {
    (void)ctx;
    snprintf(text, bytes, "in memory");
    return text;
}

static uint64_t fake_now(void *ctx) {
    (void)ctx;
    return 0;
}

static sc_status fake_entropy(void *ctx, void *out, size_t bytes) {
    struct fake_net *net = ctx;
    if (net->entropy_fails)
        return SC_DEVICE_ERROR;
    for (size_t i = 0; i < bytes; i++)
        ((uint8_t *)out)[i] = net->random++;
    net->random++; // so that no two links have the same ones
    return SC_OK;
}

static void fake_wake(void *ctx) {
    ((struct fake_net *)ctx)->wakes++;
}

void fake_net_open(struct fake_net *net) {
    memset(net, 0, sizeof *net);
    net->next = 1;
    net->step = net->room = FAKE_WIRE_MAX;
    net->connects = true;
    net->link = (struct sc_link){
        .size = sizeof net->link,
        .name = "fake",
        .ctx = net,
        .listen = fake_listen,
        .accept = fake_accept,
        .dial = fake_dial,
        .connected = fake_connected,
        .send = fake_send,
        .recv = fake_recv,
        .close = fake_close,
        .explain = fake_explain,
    };
    net->host = (struct sc_host){
        .size = sizeof net->host,
        .name = "fake",
        .ctx = net,
        .now_ns = fake_now,
        .entropy = fake_entropy,
        .wake = fake_wake,
    };
}

void fake_net_close(struct fake_net *net) {
    for (uint32_t i = 0; i < FAKE_ENDS_MAX; i++)
        free(net->ends[i].wire);
}

uint32_t fake_net_open_ends(const struct fake_net *net) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < FAKE_ENDS_MAX; i++)
        count += net->ends[i].wire != NULL && net->ends[i].handle != 0;
    return count;
}

void fake_inject(struct fake_net *net, uint64_t handle, const void *data, size_t bytes) {
    struct fake_end *end = fake_end_of(net, handle);
    SC_ASSERT(bytes <= FAKE_WIRE_MAX - end->wire_bytes);
    memcpy(end->wire + end->wire_bytes, data, bytes);
    end->wire_bytes += bytes;
}
