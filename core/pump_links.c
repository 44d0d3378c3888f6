// SPDX-License-Identifier: AGPL-3.0-only
//
// Links: dialling, accepting, bounded buffers, frames in and out.
#include "core/pump_inside.h"
#include "core/text.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const struct sc_link *net(const struct sc_pump *p) {
    return p->config.link;
}

static struct sc_pump_link *find(struct sc_pump *p, uint64_t handle) {
    for (uint32_t i = 0; handle != 0 && i < p->links_used; i++)
        if (p->links[i].handle == handle)
            return &p->links[i];
    return NULL;
}

sc_status sc_pump_links_open(struct sc_pump *p) {
    size_t bytes = p->config.link_buffer_bytes;
    for (uint32_t i = 0; i < p->links_count; i++) {
        if ((p->links[i].in = malloc(2 * bytes)) == NULL)
            return SC_NO_MEMORY;
        p->links[i].out = p->links[i].in + bytes;
    }
    return SC_OK;
}

static void end(struct sc_pump *p, struct sc_pump_link *l) {
    net(p)->close(net(p)->ctx, l->handle);
    l->handle = 0;
    while (p->links_used > 0 && p->links[p->links_used - 1].handle == 0)
        p->links_used--;
}

void sc_pump_links_close(struct sc_pump *p) {
    for (uint32_t i = 0; p->links != NULL && i < p->links_count; i++) {
        if (p->links[i].handle != 0)
            end(p, &p->links[i]);
        free(p->links[i].in);
    }
    net(p)->close(net(p)->ctx, p->dialling);
    net(p)->close(net(p)->ctx, p->listener);
    p->dialling = p->listener = 0;
}

static struct sc_pump_link *take(struct sc_pump *p, uint64_t handle) {
    for (uint32_t i = 0; i < p->links_count; i++) {
        struct sc_pump_link *l = &p->links[i];
        if (l->handle != 0)
            continue;
        l->handle = handle;
        l->drop_at_ns = 0;
        l->received = l->queued = 0;
        l->ended = false;
        p->links_used = i >= p->links_used ? i + 1 : p->links_used;
        return l;
    }
    net(p)->close(net(p)->ctx, handle);
    return NULL;
}

static void queue_down(struct sc_pump *p, uint64_t link, sc_status status) {
    const struct sc_event down = {.type = SC_EVENT_LINK_DOWN,
                                  .u.link_down = {.link = link, .status = status}};
    sc_pump_queue(p, &down);
}

static void feed_down(struct sc_pump *p, uint64_t link, sc_status status) {
    struct sc_event down = {.type = SC_EVENT_LINK_DOWN,
                            .u.link_down = {.link = link, .status = status}};
    (void)sc_pump_feed(p, &down);
}

const char *sc_pump_explain(const struct sc_pump *p, char *text, size_t bytes) {
    const struct sc_link *link = net(p);
    const size_t known = offsetof(struct sc_link, explain) + sizeof link->explain;
    text[0] = '\0';
    if (link->size >= known && link->explain != NULL)
        (void)link->explain(link->ctx, text, bytes);
    struct sc_text more = {text, bytes, strnlen(text, bytes - 1)};
    if (p->strange != NULL)
        sc_text_add(&more,
                    "%swhat answers there is not rank 0 as it is configured here (%s): another "
                    "program, or a key on one side only",
                    more.used != 0 ? "; " : "", p->strange);
    return text;
}

// ---- actions ----

void sc_pump_listen(struct sc_pump *p) {
    p->listen_status =
        net(p)->listen(net(p)->ctx, p->config.master_host, p->config.master_port, &p->listener);
}

void sc_pump_dial(struct sc_pump *p, uint32_t attempt) {
    SC_ASSERT(p->dialling == 0);
    sc_status status = net(p)->dial(net(p)->ctx, p->config.master_host, p->config.master_port,
                                    attempt, &p->dialling);
    if (status != SC_OK) {
        p->dialling = 0;
        queue_down(p, 0, status);
    }
}

// Sends what it can; what is left stays queued. SC_OK also when some is left.
static sc_status flush(struct sc_pump *p, struct sc_pump_link *l) {
    while (l->queued > 0) {
        size_t sent = 0;
        sc_status status = net(p)->send(net(p)->ctx, l->handle, l->out, l->queued, &sent);
        if (status == SC_INPROGRESS)
            return SC_OK;
        if (status != SC_OK)
            return status;
        l->queued -= (uint32_t)sent;
        memmove(l->out, l->out + sent, l->queued);
    }
    return SC_OK;
}

void sc_pump_drop(struct sc_pump *p, uint64_t link) {
    if (link == 0) { // the dial under way
        net(p)->close(net(p)->ctx, p->dialling);
        p->dialling = 0;
        return;
    }
    struct sc_pump_link *l = find(p, link);
    if (l == NULL)
        return;
    if (!l->ended && flush(p, l) == SC_OK && l->queued > 0)
        l->drop_at_ns = sc_pump_now(p) + p->config.core.handshake_ns;
    else
        end(p, l);
}

static void send_one(struct sc_pump *p, uint64_t handle, const uint8_t *frame, size_t bytes) {
    struct sc_pump_link *l = find(p, handle);
    if (l == NULL || l->drop_at_ns != 0 || l->ended)
        return; // its end is about to be fed
    size_t sent = 0;
    sc_status status = flush(p, l);
    if (status == SC_OK && l->queued == 0) {
        status = net(p)->send(net(p)->ctx, handle, frame, bytes, &sent);
        status = status == SC_INPROGRESS ? SC_OK : status;
    }
    // A peer that reads nothing while a whole buffer waits for it is as good as gone.
    if (status == SC_OK && bytes - sent > p->config.link_buffer_bytes - l->queued)
        status = SC_LINK_EOF;
    if (status != SC_OK) {
        end(p, l);
        queue_down(p, handle, status);
        return;
    }
    memcpy(l->out + l->queued, frame + sent, bytes - sent);
    l->queued += (uint32_t)(bytes - sent);
}

void sc_pump_send(struct sc_pump *p, const struct sc_action *action) {
    uint8_t bytes[SC_FRAME_MAX_BYTES];
    struct sc_frame frame;
    sc_core_compose(p->core, action, &frame);
    if (action->kind == SC_FRAME_COMMAND) {
        frame.u.command.data = p->command;
        frame.u.command.bytes = p->command_bytes;
    }
    size_t length = sc_frame_encode(&frame, bytes, sizeof bytes);
    if (action->mask == 0) {
        send_one(p, action->link, bytes, length);
        return;
    }
    for (uint32_t r = 0; r < p->config.core.world; r++)
        if (action->mask >> r & 1u)
            send_one(p, sc_core_link_of(p->core, r), bytes, length);
}

bool sc_pump_links_have_room(struct sc_pump *p, uint64_t bytes) {
    for (uint32_t r = 0; r < p->config.core.world; r++) {
        const struct sc_pump_link *l = find(p, sc_core_link_of(p->core, r));
        if (l != NULL && bytes > p->config.link_buffer_bytes - l->queued)
            return false;
    }
    return true;
}

static void tell_room(struct sc_pump *p) {
    if (p->refused_bytes == 0 || !sc_pump_links_have_room(p, p->refused_bytes))
        return;
    p->refused_bytes = 0;
    const struct sc_action notice = {
        .type = SC_ACTION_NOTIFY, .kind = SC_NOTICE_COMMAND_ROOM, .epoch = p->refused_epoch};
    sc_pump_notify(p, &notice);
}

// ---- what arrives ----

static void accept_all(struct sc_pump *p) {
    uint64_t handle;
    while (p->listener != 0 && net(p)->accept(net(p)->ctx, p->listener, &handle) == SC_OK) {
        struct sc_event up = {.type = SC_EVENT_LINK_UP,
                              .u.link_up = {.link = handle, .incoming = 1}};
        if (take(p, handle) == NULL)
            continue;
        // Without fresh bytes a recorded hello could pass: better no link.
        if (p->config.host->entropy(p->config.host->ctx, up.u.link_up.random,
                                    sizeof up.u.link_up.random) == SC_OK)
            (void)sc_pump_feed(p, &up);
        else
            sc_pump_drop(p, handle);
    }
}

static void follow_dial(struct sc_pump *p) {
    if (p->dialling == 0)
        return;
    uint64_t handle = p->dialling;
    sc_status status = net(p)->connected(net(p)->ctx, handle);
    if (status == SC_INPROGRESS)
        return;
    p->dialling = 0;
    if (status != SC_OK)
        net(p)->close(net(p)->ctx, handle);
    else if (take(p, handle) == NULL)
        status = SC_NO_MEMORY; // too many earlier links are still being flushed
    if (status != SC_OK) {
        feed_down(p, 0, status);
        return;
    }
    struct sc_event up = {.type = SC_EVENT_LINK_UP, .u.link_up = {.link = handle}};
    (void)sc_pump_feed(p, &up);
}

static bool is_greeted(const struct sc_pump *p, uint64_t handle) {
    for (uint32_t r = 0; r < p->config.core.world; r++)
        if (sc_core_link_of(p->core, r) == handle)
            return true;
    return false;
}

static uint32_t rank_of(const struct sc_pump *p, uint64_t handle) {
    uint32_t rank = 0;
    while (rank < p->config.core.world && sc_core_link_of(p->core, rank) != handle)
        rank++;
    return rank;
}

static void deliver(struct sc_pump *p, uint64_t handle, struct sc_frame *frame, bool ended) {
    uint32_t rank = rank_of(p, handle);
    struct sc_event event = {.type = SC_EVENT_FRAME,
                             .u.frame = {.link = handle, .frame = frame, .ended = ended}};
    sc_status verdict = sc_pump_feed(p, &event);
    if (verdict == SC_OK && frame->kind == SC_FRAME_COMMAND && p->config.on_command != NULL)
        p->config.on_command(p->config.arg, rank, frame->epoch, frame->u.command.data,
                             frame->u.command.bytes);
}

// Feeds every whole frame in the buffer. False when the link is gone, or broke the protocol.
static bool feed_frames(struct sc_pump *p, struct sc_pump_link *l) {
    uint64_t handle = l->handle;
    uint32_t used = 0;
    for (;;) {
        struct sc_frame frame;
        size_t bytes = 0;
        const char *why = NULL;
        size_t limit = is_greeted(p, handle) ? p->config.link_buffer_bytes : SC_GREETING_MAX_BYTES;
        sc_status status =
            sc_frame_decode(l->in + used, l->received - used, limit, &frame, &bytes, &why);
        if (status == SC_INPROGRESS)
            break;
        if (p->config.core.rank != 0 && !is_greeted(p, handle))
            p->strange = status != SC_OK ? why : NULL;
        if (status != SC_OK) {
            end(p, l);
            feed_down(p, handle, status);
            return false;
        }
        used += (uint32_t)bytes;
        deliver(p, handle, &frame, l->ended);
        if (l->handle != handle || l->drop_at_ns != 0)
            return false;
    }
    l->received -= used;
    memmove(l->in, l->in + used, l->received);
    return true;
}

static void read_link(struct sc_pump *p, struct sc_pump_link *l) {
    uint64_t handle = l->handle;
    sc_status status = SC_OK;
    while (status == SC_OK) {
        size_t got = 0;
        size_t room = p->config.link_buffer_bytes - l->received;
        // Read to the end before feeding, so that a frame knows whether its link ended behind it.
        while (room > 0 && (status = net(p)->recv(net(p)->ctx, handle, l->in + l->received, room,
                                                  &got)) == SC_OK) {
            l->received += (uint32_t)got;
            room -= got;
        }
        l->ended = status != SC_OK && status != SC_INPROGRESS;
        if (l->received > 0 && !feed_frames(p, l))
            return;
        if (room == 0 && l->received == p->config.link_buffer_bytes)
            break; // cannot be: a frame longer than the buffer is refused by its header
    }
    if (status != SC_INPROGRESS) {
        end(p, l);
        feed_down(p, handle, status);
    }
}

static void finish_drop(struct sc_pump *p, struct sc_pump_link *l) {
    if (flush(p, l) != SC_OK || l->queued == 0 || sc_pump_now(p) >= l->drop_at_ns)
        end(p, l);
}

void sc_pump_links_run(struct sc_pump *p) {
    accept_all(p);
    follow_dial(p);
    for (uint32_t i = 0; i < p->links_used; i++) {
        struct sc_pump_link *l = &p->links[i];
        uint64_t handle = l->handle;
        if (handle != 0 && l->drop_at_ns != 0)
            finish_drop(p, l);
        else if (handle != 0 && flush(p, l) == SC_OK)
            read_link(p, l);
        else if (handle != 0) {
            end(p, l);
            feed_down(p, handle, SC_LINK_EOF);
        }
    }
    tell_room(p);
    if (sc_core_state(p->core) != SC_STATE_CLOSED)
        return;
    net(p)->close(net(p)->ctx, p->listener);
    p->listener = 0;
    for (uint32_t i = 0; i < p->links_used; i++)
        if (p->links[i].handle != 0 && p->links[i].drop_at_ns == 0)
            end(p, &p->links[i]);
}

uint64_t sc_pump_links_deadline(const struct sc_pump *p) {
    uint64_t at = SC_NEVER_NS;
    for (uint32_t i = 0; i < p->links_used; i++)
        if (p->links[i].handle != 0 && p->links[i].drop_at_ns != 0 && p->links[i].drop_at_ns < at)
            at = p->links[i].drop_at_ns;
    return at;
}
