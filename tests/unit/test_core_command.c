// SPDX-License-Identifier: AGPL-3.0-only
//
// Commands: from rank 0 to every member, and never more than a member's window holds, whatever the
// other end claims.
#include "tests/support/core_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define WINDOW ((uint64_t)SC_COMMAND_WINDOW_BYTES)
#define QUARTER (WINDOW / 4)
#define LONGEST (WINDOW / 2) // what the longest command costs

static void ready(uint32_t rank, uint32_t world) {
    core_rig_open(rank, world);
    core_rig_ready();
}

static struct sc_event command(uint32_t bytes) {
    return (struct sc_event){
        .type = SC_EVENT_COMMAND, .epoch = rig.epoch, .u.command = {.bytes = bytes, .room = true}};
}

static sc_status send(uint32_t bytes) {
    return core_rig_feed(command(bytes));
}

static void refused(struct sc_event event, sc_status status) {
    assert_int_equal(core_rig_feed(event), status);
    expect_quiet();
}

// A PING of a member whose application took so much.
static sc_status hear_taken(uint32_t rank, uint64_t taken) {
    const struct sc_frame frame = {
        .kind = SC_FRAME_PING,
        .epoch = rig.epoch,
        .u.ping = {.taken = taken, .laggard = SC_RANK_NONE, .state = SC_STATE_READY}};
    return core_rig_from(rank, &frame);
}

static sc_status receive_of_epoch(uint32_t bytes, uint64_t epoch) {
    static const uint8_t data[SC_COMMAND_MAX_BYTES];
    const struct sc_frame frame = {
        .kind = SC_FRAME_COMMAND, .epoch = epoch, .u.command = {.bytes = bytes, .data = data}};
    return core_rig_from(0, &frame);
}

static sc_status receive(uint32_t bytes) {
    return receive_of_epoch(bytes, rig.epoch);
}

static sc_status take(uint64_t cost) {
    return core_rig_feed(
        (struct sc_event){.type = SC_EVENT_COMMAND_TAKEN, .epoch = rig.epoch, .u.taken = cost});
}

static void told(uint64_t taken) {
    assert_int_equal(expect_frame(SC_FRAME_PING)->u.ping.taken, taken);
    assert_int_equal(core_rig_send_of(SC_FRAME_PING)->mask, 1);
}

// ---- sending ----

static void a_command_goes_to_every_member(void **state) {
    (void)state;
    ready(0, 4);
    assert_int_equal(send(SC_COMMAND_MAX_BYTES), SC_OK);
    assert_int_equal(core_rig_send_of(SC_FRAME_COMMAND)->mask, 0xe);
    assert_int_equal(core_rig_send_of(SC_FRAME_COMMAND)->epoch, rig.epoch);
    assert_int_equal(send(0), SC_OK);
    assert_int_equal(rig.last.count, 1);
}

static void a_lone_rank_sends_to_nobody_for_ever(void **state) {
    (void)state;
    ready(0, 1);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(send(SC_COMMAND_MAX_BYTES), SC_OK);
        expect_quiet();
    }
    refused(command(SC_COMMAND_MAX_BYTES + 1), SC_INVALID);
}

static void only_rank_0_sends_and_no_more_than_64_kib(void **state) {
    (void)state;
    ready(0, 2);
    refused(command(SC_COMMAND_MAX_BYTES + 1), SC_INVALID);
    refused(command(UINT32_MAX), SC_INVALID);
    ready(1, 2);
    refused(command(1), SC_INVALID);
}

static void a_command_of_another_epoch_is_refused_first(void **state) {
    (void)state;
    for (uint32_t rank = 0; rank < 2; rank++) {
        ready(rank, 2);
        struct sc_event late = command(SC_COMMAND_MAX_BYTES + 1);
        late.epoch--;
        refused(late, SC_EPOCH_LOST);
        late.epoch += 2;
        refused(late, SC_EPOCH_LOST);
    }
}

// ---- the window ----

static void two_of_the_longest_fill_a_window(void **state) {
    (void)state;
    ready(0, 2);
    assert_int_equal(send(SC_COMMAND_MAX_BYTES), SC_OK);
    assert_int_equal(send(SC_COMMAND_MAX_BYTES), SC_OK);
    refused(command(0), SC_BUSY);
    hear_taken(1, LONGEST);
    refused(command(SC_COMMAND_MAX_BYTES + 1), SC_INVALID);
    assert_int_equal(send(SC_COMMAND_MAX_BYTES), SC_OK);
    refused(command(0), SC_BUSY);
}

static void empty_commands_fill_a_window_too(void **state) {
    (void)state;
    ready(0, 2);
    for (uint64_t used = 0; used < WINDOW; used += sc_command_cost(0))
        assert_int_equal(send(0), SC_OK);
    refused(command(0), SC_BUSY);
    hear_taken(1, sc_command_cost(0));
    refused(command(1), SC_BUSY);
    assert_int_equal(send(0), SC_OK);
}

static void the_fullest_window_decides(void **state) {
    (void)state;
    ready(0, 3);
    send(SC_COMMAND_MAX_BYTES);
    send(SC_COMMAND_MAX_BYTES);
    hear_taken(1, WINDOW);
    refused(command(0), SC_BUSY);
    hear_taken(2, 16);
    refused(command(1), SC_BUSY);
    assert_int_equal(send(0), SC_OK);
    assert_int_equal(core_rig_send_of(SC_FRAME_COMMAND)->mask, 6);
}

static void a_link_without_room_is_busy_too(void **state) {
    struct sc_event full;
    (void)state;
    ready(0, 2);
    full = command(1);
    full.u.command.room = false;
    refused(full, SC_BUSY);
    full.epoch--;
    refused(full, SC_EPOCH_LOST);
    assert_int_equal(send(1), SC_OK);
}

static void a_refused_command_costs_nothing(void **state) {
    (void)state;
    ready(0, 2);
    send(SC_COMMAND_MAX_BYTES);
    send(1);
    for (int i = 0; i < 3; i++)
        refused(command(SC_COMMAND_MAX_BYTES), SC_BUSY);
    assert_int_equal(send(SC_COMMAND_MAX_BYTES - 24), SC_OK);
}

// ---- word of room ----

static void room_is_told_once_to_a_sender_that_was_refused(void **state) {
    (void)state;
    ready(0, 3);
    send(SC_COMMAND_MAX_BYTES);
    hear_taken(1, 8);
    assert_int_equal(core_rig_index(SC_ACTION_NOTIFY), -1); // nobody waits
    send(SC_COMMAND_MAX_BYTES - 8);
    refused(command(SC_COMMAND_MAX_BYTES), SC_BUSY);
    hear_taken(1, 8);
    expect_quiet(); // nothing new
    hear_taken(2, LONGEST);
    assert_int_equal(expect_notice(SC_NOTICE_COMMAND_ROOM)->epoch, rig.epoch);
    assert_int_equal(core_rig_count(SC_ACTION_NOTIFY), 1);
    hear_taken(1, LONGEST);
    assert_int_equal(core_rig_index(SC_ACTION_NOTIFY), -1);
}

static void a_sender_that_is_refused_again_is_told_again(void **state) {
    (void)state;
    ready(0, 3);
    send(SC_COMMAND_MAX_BYTES);
    send(SC_COMMAND_MAX_BYTES);
    refused(command(0), SC_BUSY);
    for (uint32_t r = 1; r < 3; r++) {
        hear_taken(r, LONGEST);
        (void)expect_notice(SC_NOTICE_COMMAND_ROOM);
        if (r == 1)
            refused(command(0), SC_BUSY); // rank 2 still has taken nothing
    }
    assert_int_equal(send(0), SC_OK);
}

static void what_a_member_took_never_goes_back(void **state) {
    (void)state;
    ready(0, 2);
    send(SC_COMMAND_MAX_BYTES);
    send(SC_COMMAND_MAX_BYTES);
    hear_taken(1, WINDOW);
    hear_taken(1, 0);
    hear_taken(1, LONGEST);
    assert_int_equal(send(SC_COMMAND_MAX_BYTES), SC_OK);
    assert_int_equal(send(SC_COMMAND_MAX_BYTES), SC_OK);
}

static void a_member_that_took_more_than_it_was_sent_is_dropped(void **state) {
    static const uint64_t claims[] = {LONGEST + 1, LONGEST + 8, WINDOW, UINT64_MAX};
    (void)state;
    for (size_t i = 0; i < sizeof claims / sizeof claims[0]; i++) {
        ready(0, 2);
        send(SC_COMMAND_MAX_BYTES);
        assert_int_equal(hear_taken(1, LONGEST), SC_OK);
        assert_int_equal(hear_taken(1, claims[i]), SC_PROTOCOL);
        assert_int_equal(expect_action(SC_ACTION_DROP)->link, rig.ranks[1].link);
        expect_state(SC_STATE_ABORTING);
        refused(command(0), SC_EPOCH_LOST);
    }
}

// ---- receiving ----

static void a_member_gets_what_its_window_holds_and_no_more(void **state) {
    (void)state;
    ready(1, 2);
    assert_int_equal(receive(SC_COMMAND_MAX_BYTES), SC_OK);
    assert_int_equal(receive(SC_COMMAND_MAX_BYTES - 24), SC_OK);
    assert_int_equal(receive(0), SC_OK);
    assert_int_equal(take(16), SC_OK);
    assert_int_equal(receive(8), SC_OK);
    expect_quiet();
    assert_int_equal(receive(0), SC_PROTOCOL);
    assert_int_equal(expect_action(SC_ACTION_DROP)->link, rig.ranks[0].link);
    expect_state(SC_STATE_ABORTING);
    assert_int_equal(core_rig_view().cause.code, SC_PROTOCOL);
}

static void a_command_is_received_in_the_live_epoch_only(void **state) {
    (void)state;
    ready(1, 2);
    for (int i = 0; i < 3; i++) { // what comes late takes no room
        assert_int_equal(receive_of_epoch(SC_COMMAND_MAX_BYTES, rig.epoch - 1), SC_EPOCH_LOST);
        assert_int_equal(receive_of_epoch(SC_COMMAND_MAX_BYTES, rig.epoch + 1), SC_EPOCH_LOST);
    }
    assert_int_equal(receive(SC_COMMAND_MAX_BYTES), SC_OK);
    assert_int_equal(receive(SC_COMMAND_MAX_BYTES), SC_OK);
    core_rig_comm_failed(SC_ASYNC_ERROR);
    assert_int_equal(receive(0), SC_EPOCH_LOST);
    core_rig_clean();
    assert_int_equal(receive(0), SC_EPOCH_LOST);
    expect_state(SC_STATE_RENDEZVOUS);
}

static void a_command_from_a_member_is_a_breach(void **state) {
    (void)state;
    ready(0, 2);
    assert_int_equal(core_rig_plain(1, SC_FRAME_COMMAND, rig.epoch), SC_PROTOCOL);
    expect_state(SC_STATE_ABORTING);
}

// ---- taking ----

static void a_quarter_of_the_window_is_told_at_once(void **state) {
    (void)state;
    ready(1, 2);
    receive(SC_COMMAND_MAX_BYTES);
    receive(SC_COMMAND_MAX_BYTES);
    assert_int_equal(take(QUARTER - 8), SC_OK);
    expect_quiet();
    assert_int_equal(take(8), SC_OK);
    told(QUARTER);
    assert_int_equal(take(8), SC_OK);
    expect_quiet(); // counted from what was told
    assert_int_equal(take(LONGEST), SC_OK);
    told(QUARTER + 8 + LONGEST);
}

static void less_is_told_by_the_next_heartbeat(void **state) {
    (void)state;
    ready(1, 2);
    receive(SC_COMMAND_MAX_BYTES);
    take(QUARTER - 8);
    core_rig_wait(rig.config.timing.heartbeat_ns);
    told(QUARTER - 8);
    take(QUARTER - 8);
    expect_quiet(); // the heartbeat has told of the first
    take(8);
    told(2 * QUARTER - 8);
}

static void any_other_ping_tells_as_well(void **state) {
    (void)state;
    ready(1, 2);
    receive(SC_COMMAND_MAX_BYTES);
    take(QUARTER - 8);
    core_rig_simple(SC_EVENT_BARRIER, rig.epoch);
    told(QUARTER - 8);
    take(8);
    expect_quiet();
}

static void more_than_came_cannot_be_taken(void **state) {
    (void)state;
    ready(1, 2);
    assert_int_equal(take(16), SC_INVALID);
    receive(0);
    assert_int_equal(take(24), SC_INVALID);
    expect_quiet();
    assert_int_equal(take(16), SC_OK);
    assert_int_equal(take(UINT64_MAX), SC_INVALID);
    assert_int_equal(
        core_rig_feed((struct sc_event){.type = SC_EVENT_COMMAND_TAKEN, .epoch = rig.epoch - 1}),
        SC_EPOCH_LOST);
    ready(0, 2);
    send(SC_COMMAND_MAX_BYTES);
    assert_int_equal(take(16), SC_INVALID); // rank 0 gets none
}

// ---- epochs ----

static void every_epoch_begins_with_empty_windows_at_the_sender(void **state) {
    (void)state;
    ready(0, 2);
    send(SC_COMMAND_MAX_BYTES);
    send(SC_COMMAND_MAX_BYTES);
    hear_taken(1, LONGEST);
    send(SC_COMMAND_MAX_BYTES);
    refused(command(0), SC_BUSY);
    core_rig_comm_failed(SC_ASYNC_ERROR);
    core_rig_recover();
    hear_taken(1, 0);
    expect_quiet(); // whoever was refused then does not wait now
    assert_int_equal(send(SC_COMMAND_MAX_BYTES), SC_OK);
    assert_int_equal(send(SC_COMMAND_MAX_BYTES), SC_OK);
    refused(command(0), SC_BUSY);
    hear_taken(1, 16);
    (void)expect_notice(SC_NOTICE_COMMAND_ROOM);
}

static void every_epoch_begins_with_an_empty_window_at_the_receiver(void **state) {
    (void)state;
    ready(1, 2);
    receive(SC_COMMAND_MAX_BYTES);
    receive(SC_COMMAND_MAX_BYTES);
    take(LONGEST);
    core_rig_comm_failed(SC_ASYNC_ERROR);
    core_rig_recover();
    assert_int_equal(take(16), SC_INVALID); // what was not taken went with its epoch
    core_rig_wait(rig.config.timing.heartbeat_ns);
    told(0);
    assert_int_equal(receive(SC_COMMAND_MAX_BYTES), SC_OK);
    assert_int_equal(receive(SC_COMMAND_MAX_BYTES), SC_OK);
    take(QUARTER);
    told(QUARTER);
    assert_int_equal(receive(SC_COMMAND_MAX_BYTES), SC_PROTOCOL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_command_goes_to_every_member),
        cmocka_unit_test(a_lone_rank_sends_to_nobody_for_ever),
        cmocka_unit_test(only_rank_0_sends_and_no_more_than_64_kib),
        cmocka_unit_test(a_command_of_another_epoch_is_refused_first),
        cmocka_unit_test(two_of_the_longest_fill_a_window),
        cmocka_unit_test(empty_commands_fill_a_window_too),
        cmocka_unit_test(the_fullest_window_decides),
        cmocka_unit_test(a_link_without_room_is_busy_too),
        cmocka_unit_test(a_refused_command_costs_nothing),
        cmocka_unit_test(room_is_told_once_to_a_sender_that_was_refused),
        cmocka_unit_test(a_sender_that_is_refused_again_is_told_again),
        cmocka_unit_test(what_a_member_took_never_goes_back),
        cmocka_unit_test(a_member_that_took_more_than_it_was_sent_is_dropped),
        cmocka_unit_test(a_member_gets_what_its_window_holds_and_no_more),
        cmocka_unit_test(a_command_is_received_in_the_live_epoch_only),
        cmocka_unit_test(a_command_from_a_member_is_a_breach),
        cmocka_unit_test(a_quarter_of_the_window_is_told_at_once),
        cmocka_unit_test(less_is_told_by_the_next_heartbeat),
        cmocka_unit_test(any_other_ping_tells_as_well),
        cmocka_unit_test(more_than_came_cannot_be_taken),
        cmocka_unit_test(every_epoch_begins_with_empty_windows_at_the_sender),
        cmocka_unit_test(every_epoch_begins_with_an_empty_window_at_the_receiver),
    };
    return cmocka_run_group_tests(tests, NULL, core_rig_close);
}
