// SPDX-License-Identifier: AGPL-3.0-only
//
// The miniature pump of the storm: carries actions out, and fails where they cannot be.
#include "tests/support/core_storm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const uint8_t storm_command[SC_COMMAND_MAX_BYTES];

static struct storm_link *known_link(struct storm *s, uint64_t handle) {
    for (uint32_t i = 0; handle != 0 && i < STORM_LINKS; i++)
        if (s->links[i].handle == handle)
            return &s->links[i];
    return NULL;
}

static void drop(struct storm *s, uint64_t handle) {
    struct storm_link *link = known_link(s, handle);
    if (link != NULL)
        link->handle = 0;
}

static void carry_drop(struct storm *s, const struct sc_action *a) {
    if (a->mask == 0 && a->link == 0)
        s->dialling = false;
    if (a->mask == 0)
        drop(s, a->link);
    for (uint32_t r = 0; r < s->config.world; r++)
        if (a->mask >> r & 1u)
            drop(s, sc_core_link_of(s->core, r));
}

static void carry_send(struct storm *s, const struct sc_action *a) {
    static uint8_t wire[SC_FRAME_MAX_BYTES];
    static struct sc_frame frame;
    assert_true((a->link != 0) != (a->mask != 0));
    if (a->link != 0)
        assert_non_null(known_link(s, a->link));
    for (uint32_t r = 0; r < SC_WORLD_MAX; r++)
        if (a->mask >> r & 1u)
            assert_non_null(known_link(s, sc_core_link_of(s->core, r)));
    memset(&frame, 0x5a, sizeof frame);
    sc_core_compose(s->core, a, &frame);
    if (frame.kind == SC_FRAME_COMMAND) {
        frame.u.command.bytes = s->command_bytes;
        frame.u.command.data = storm_command;
        s->commands_sent += sc_command_cost(s->command_bytes);
        assert_int_equal(s->config.rank, 0);
        assert_true(s->commands_sent - s->commands_taken <= SC_COMMAND_WINDOW_BYTES);
    }
    assert_true(sc_frame_encode(&frame, wire, sizeof wire) <= sizeof wire);
}

static void carry_launch(struct storm *s, const struct sc_action *a) {
    assert_int_equal(a->epoch, s->fence);
    for (uint32_t i = 0; i < STORM_OPS; i++) {
        if (s->ops[i].number != 0)
            continue;
        s->ops[i] = (struct storm_op){.number = a->a, .epoch = a->epoch};
        return;
    }
    fail_msg("more ops in flight than the ledger holds");
}

static void carry_fence(struct storm *s, const struct sc_action *a) {
    assert_true(a->epoch == 0 || a->epoch == s->epoch);
    assert_true((a->epoch == 0) != (s->fence == 0)); // up and down by turns
    s->fence = a->epoch;
}

static void carry_comm(struct storm *s, const struct sc_action *a) {
    switch ((enum sc_action_type)a->type) {
    case SC_ACTION_COMM_CREATE:
        assert_int_equal(s->comm, STORM_NONE);
        assert_true(a->epoch > s->epoch);
        s->epoch = a->epoch;
        s->passed = s->commands_sent = s->commands_taken = 0;
        s->comm = STORM_FORMING;
        s->comm_failed = false;
        break;
    case SC_ACTION_COMM_ABORT:
        assert_true(s->comm == STORM_FORMING || s->comm == STORM_LIVE);
        assert_int_equal(a->epoch, s->epoch);
        assert_int_equal(s->fence, 0);
        s->comm = STORM_ABORTING;
        break;
    case SC_ACTION_COMM_ABANDON:
        assert_int_equal(s->comm, STORM_ABORTING);
        s->comm = STORM_NONE;
        break;
    default:
        assert_int_equal(s->comm, STORM_LIVE); // REGISTER_ALL
        break;
    }
}

static void carry_notice(struct storm *s, const struct sc_action *a) {
    struct sc_core_view view;
    if (a->kind != SC_NOTICE_BARRIER)
        return;
    sc_core_view(s->core, &view);
    assert_true(a->a > s->passed && a->a <= view.arrived); // none passes twice, or without us
    s->passed = a->a;
}

static void carry_out(struct storm *s, const struct sc_action *a) {
    switch ((enum sc_action_type)a->type) {
    case SC_ACTION_LISTEN:
        assert_false(s->listening);
        assert_true(s->config.world > 1);
        s->listening = true;
        break;
    case SC_ACTION_DIAL:
        assert_false(s->dialling);
        s->dialling = true;
        break;
    case SC_ACTION_DROP: carry_drop(s, a); break;
    case SC_ACTION_SEND: carry_send(s, a); break;
    case SC_ACTION_GET_ID:
        assert_false(s->id_pending);
        s->id_pending = true;
        break;
    case SC_ACTION_COMM_CREATE:
    case SC_ACTION_COMM_ABORT:
    case SC_ACTION_COMM_ABANDON:
    case SC_ACTION_REGISTER_ALL: carry_comm(s, a); break;
    case SC_ACTION_FENCE: carry_fence(s, a); break;
    case SC_ACTION_LAUNCH: carry_launch(s, a); break;
    case SC_ACTION_OP_COMPLETE:
        assert_int_equal(a->epoch, s->fence); // no result counts once the fence is down
        break;
    case SC_ACTION_LOST: assert_true(a->a <= a->b); break;
    case SC_ACTION_NOTIFY: carry_notice(s, a); break;
    case SC_ACTION_COUNT: break;
    }
}

void storm_perform(struct storm *s, const struct sc_actions *actions) {
    assert_true(actions->count <= SC_ACTIONS_MAX);
    for (uint32_t i = 0; i < actions->count; i++)
        carry_out(s, &actions->list[i]);
}
