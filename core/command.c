// SPDX-License-Identifier: AGPL-3.0-only
//
// Commands: the application's bytes from rank 0 to every member, no more than a member can queue.
//
// What is on its way to a member or waits in its queue costs at most the window. Rank 0 counts what
// it sent; each member's PING tells what its application took. Both only rise within an epoch and
// begin with it. A member that has taken a quarter of the window since its last PING says so at
// once: whoever takes all there is never leaves a sender to wait for a heartbeat.
#include "core/inside.h"

#define TELL_BYTES (SC_COMMAND_WINDOW_BYTES / 4)

static bool fits_every_window(const struct sc_core *c, uint64_t cost) {
    for (uint32_t r = 1; r < c->config.world; r++)
        if (c->commands_sent - c->peers[r].commands_taken + cost > SC_COMMAND_WINDOW_BYTES)
            return false;
    return true;
}

sc_status sc_command_is_sent(struct sc_core *c, const struct sc_event *in, struct sc_actions *out) {
    uint64_t cost = sc_command_cost(in->u.command.bytes);
    if (in->epoch != c->epoch)
        return SC_EPOCH_LOST;
    if (!is_coordinator(c) || in->u.command.bytes > SC_COMMAND_MAX_BYTES)
        return SC_INVALID;
    if (!in->u.command.room || !fits_every_window(c, cost)) {
        c->command_refused = 1;
        return SC_BUSY;
    }
    c->commands_sent += cost;
    sc_act_send(out, SC_FRAME_COMMAND, sc_linked_mask(c), c->epoch);
    return SC_OK;
}

sc_status sc_command_is_received(struct sc_core *c, const struct sc_event *in,
                                 struct sc_actions *out) {
    uint64_t cost = sc_command_cost(in->u.frame.frame->u.command.bytes);
    (void)out;
    if (in->u.frame.frame->epoch != c->epoch)
        return SC_EPOCH_LOST;
    if (c->commands_received - c->commands_taken + cost > SC_COMMAND_WINDOW_BYTES)
        return SC_PROTOCOL;
    c->commands_received += cost;
    return SC_OK;
}

sc_status sc_command_is_late(struct sc_core *c, const struct sc_event *in, struct sc_actions *out) {
    (void)c, (void)in, (void)out;
    return SC_EPOCH_LOST;
}

sc_status sc_commands_are_taken(struct sc_core *c, const struct sc_event *in,
                                struct sc_actions *out) {
    if (in->epoch != c->epoch)
        return SC_EPOCH_LOST;
    if (in->u.taken > c->commands_received - c->commands_taken)
        return SC_INVALID; // more than came; at rank 0, anything
    c->commands_taken += in->u.taken;
    if (c->commands_taken - c->commands_told >= TELL_BYTES)
        sc_act_ping(c, UINT64_C(1), out);
    return SC_OK;
}

void sc_command_heard(struct sc_core *c, uint32_t rank, const struct sc_ping *ping,
                      struct sc_actions *out) {
    struct sc_peer *peer = &c->peers[rank];
    if (!is_coordinator(c) || ping->taken <= peer->commands_taken)
        return;
    peer->commands_taken = ping->taken;
    if (!c->command_refused)
        return;
    c->command_refused = 0;
    sc_actions_push(out, (struct sc_action){.type = SC_ACTION_NOTIFY,
                                            .kind = SC_NOTICE_COMMAND_ROOM,
                                            .epoch = c->epoch});
}
