// SPDX-License-Identifier: AGPL-3.0-only
//
// Submits: what is refused has no effect, what is accepted is launched under a number and a seq.
#include "tests/support/core_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void ready(uint32_t world) {
    core_rig_open(0, world);
    core_rig_ready();
}

static struct sc_event submit(uint32_t kind, uint32_t root, uint64_t bytes) {
    return (struct sc_event){
        .type = SC_EVENT_OP_SUBMIT,
        .epoch = rig.epoch,
        .u.submit = {.desc = {kind, root, bytes}, .place = {0x1000, 0x1000, RIG_STREAM}}};
}

static void refused(struct sc_event event, sc_status why) {
    const struct sc_core_view before = core_rig_view();
    const uint64_t number = sc_core_ledger(rig.core)->next_number;
    assert_int_equal(core_rig_feed(event), why);
    expect_quiet();
    assert_int_equal(core_rig_view().submitted, before.submitted);
    assert_int_equal(sc_core_ledger(rig.core)->next_number, number);
}

static void launched(struct sc_event event, uint64_t number, uint64_t seq) {
    assert_int_equal(core_rig_feed(event), SC_OK);
    const struct sc_action *launch = expect_action(SC_ACTION_LAUNCH);
    assert_int_equal(launch->a, number);
    assert_int_equal(launch->b, seq);
    assert_int_equal(launch->epoch, rig.epoch);
}

static void an_accepted_op_is_launched_with_its_number_and_seq(void **state) {
    (void)state;
    ready(2);
    launched(submit(SC_OP_ALL_REDUCE, 0, 4096), 1, 1);
    launched(submit(SC_OP_SEND, 1, 4096), 2, 0);
    launched(submit(SC_OP_BROADCAST, 1, 2), 3, 2);
    assert_int_equal(core_rig_view().submitted, 2);
}

static void an_op_of_another_epoch_is_refused_without_effect(void **state) {
    struct sc_event event;
    (void)state;
    ready(2);
    event = submit(SC_OP_ALL_REDUCE, 0, 64);
    event.epoch--;
    refused(event, SC_EPOCH_LOST);
    event.epoch = 0;
    refused(event, SC_EPOCH_LOST);
}

static void kinds_and_roots_out_of_range_are_invalid(void **state) {
    (void)state;
    ready(2);
    refused(submit(SC_OP_KIND_COUNT, 0, 64), SC_INVALID);
    refused(submit(UINT32_MAX, 0, 64), SC_INVALID);
    refused(submit(SC_OP_BROADCAST, 2, 64), SC_INVALID);
    refused(submit(SC_OP_SEND, UINT32_MAX, 64), SC_INVALID);
}

static void kinds_that_work_in_place_take_one_buffer(void **state) {
    (void)state;
    ready(2);
    const uint32_t in_place[] = {SC_OP_ALL_REDUCE, SC_OP_BROADCAST};
    for (int i = 0; i < 2; i++) {
        struct sc_event event = submit(in_place[i], 0, 64);
        event.u.submit.place.dst = 0x2000;
        refused(event, SC_INVALID);
    }
    struct sc_event gather = submit(SC_OP_ALL_GATHER, 0, 64);
    gather.u.submit.place.dst = 0x2000;
    launched(gather, 1, 1);
}

static void a_rank_cannot_send_to_or_receive_from_itself(void **state) {
    (void)state;
    ready(2);
    refused(submit(SC_OP_SEND, 0, 64), SC_INVALID);
    refused(submit(SC_OP_RECV, 0, 64), SC_INVALID);
    launched(submit(SC_OP_RECV, 1, 64), 1, 0);
}

static void odd_bytes_and_odd_addresses_are_refused(void **state) {
    struct sc_event event;
    (void)state;
    ready(2);
    refused(submit(SC_OP_ALL_REDUCE, 0, 4097), SC_INVALID);
    event = submit(SC_OP_ALL_REDUCE, 0, 4096);
    event.u.submit.place.src++;
    refused(event, SC_ALIGN);
    event = submit(SC_OP_ALL_REDUCE, 0, 4096);
    event.u.submit.place.dst++;
    refused(event, SC_ALIGN);
    event = submit(SC_OP_ALL_REDUCE, 0, 4096);
    event.u.submit.place.dst = UINT64_MAX - 1;
    refused(event, SC_INVALID);
}

static void capacity_passes_and_two_bytes_more_do_not(void **state) {
    (void)state;
    ready(2);
    launched(submit(SC_OP_ALL_REDUCE, 0, RIG_CAPACITY_BYTES), 1, 1);
    refused(submit(SC_OP_ALL_REDUCE, 0, RIG_CAPACITY_BYTES + 2), SC_CAPACITY);
}

static void the_side_that_holds_every_share_is_held_to_the_capacity(void **state) {
    (void)state;
    ready(2);
    launched(submit(SC_OP_ALL_GATHER, 0, RIG_CAPACITY_BYTES / 2), 1, 1);
    launched(submit(SC_OP_REDUCE_SCATTER, 0, RIG_CAPACITY_BYTES / 2), 2, 2);
    refused(submit(SC_OP_ALL_GATHER, 0, RIG_CAPACITY_BYTES / 2 + 2), SC_CAPACITY);
    refused(submit(SC_OP_REDUCE_SCATTER, 0, RIG_CAPACITY_BYTES / 2 + 2), SC_CAPACITY);
}

static void sizes_that_overflow_are_too_large(void **state) {
    (void)state;
    ready(3);
    refused(submit(SC_OP_ALL_GATHER, 0, UINT64_MAX - 1), SC_TOO_LARGE);
    refused(submit(SC_OP_REDUCE_SCATTER, 0, (UINT64_C(1) << 63) + 2), SC_TOO_LARGE);
}

static void a_full_ledger_is_busy_until_an_op_completes(void **state) {
    (void)state;
    ready(2);
    for (uint64_t i = 1; i <= rig.config.ledger_ops; i++)
        launched(submit(SC_OP_ALL_REDUCE, 0, 64), i, i);
    refused(submit(SC_OP_ALL_REDUCE, 0, 64), SC_BUSY);
    refused(submit(SC_OP_ALL_REDUCE, 0, 0), SC_BUSY);
    core_rig_op(SC_EVENT_OP_DONE, 1);
    launched(submit(SC_OP_ALL_REDUCE, 0, 64), 17, 17);
}

static void zero_bytes_complete_at_once_and_take_a_seq(void **state) {
    (void)state;
    ready(2);
    launched(submit(SC_OP_ALL_REDUCE, 0, 64), 1, 1);
    assert_int_equal(core_rig_feed(submit(SC_OP_ALL_REDUCE, 0, 0)), SC_OK);
    expect_no_action(SC_ACTION_LAUNCH);
    assert_int_equal(expect_action(SC_ACTION_OP_COMPLETE)->a, 2);
    assert_int_equal(expect_action(SC_ACTION_OP_COMPLETE)->b, 2);
    launched(submit(SC_OP_ALL_REDUCE, 0, 64), 3, 3);
    assert_int_equal(core_rig_view().completed, 0); // the first is still in flight
}

static void zero_bytes_need_no_address(void **state) {
    struct sc_event event;
    (void)state;
    ready(2);
    event = submit(SC_OP_ALL_REDUCE, 0, 0);
    event.u.submit.place = (struct sc_op_place){1, 1, 0};
    assert_int_equal(core_rig_feed(event), SC_OK);
}

static void nothing_is_launched_in_a_world_of_one(void **state) {
    (void)state;
    ready(1);
    assert_int_equal(core_rig_feed(submit(SC_OP_ALL_REDUCE, 0, 4096)), SC_OK);
    expect_no_action(SC_ACTION_LAUNCH);
    (void)expect_action(SC_ACTION_OP_COMPLETE);
    assert_int_equal(core_rig_feed(submit(SC_OP_BROADCAST, 0, 4096)), SC_OK);
    expect_no_action(SC_ACTION_LAUNCH);
    assert_int_equal(core_rig_view().completed, 2);
    launched(submit(SC_OP_ALL_GATHER, 0, 4096), 3, 3); // its two buffers may differ
}

static void a_completion_counts_once(void **state) {
    (void)state;
    ready(2);
    launched(submit(SC_OP_ALL_REDUCE, 0, 64), 1, 1);
    launched(submit(SC_OP_ALL_REDUCE, 0, 64), 2, 2);
    core_rig_op(SC_EVENT_OP_DONE, 1);
    assert_int_equal(expect_action(SC_ACTION_OP_COMPLETE)->b, 1);
    assert_int_equal(core_rig_view().completed, 1);
    core_rig_op(SC_EVENT_OP_DONE, 1);
    expect_quiet();
    core_rig_op(SC_EVENT_OP_DONE, 3); // never was
    expect_quiet();
}

static void completions_of_another_epoch_are_ignored(void **state) {
    (void)state;
    ready(2);
    launched(submit(SC_OP_ALL_REDUCE, 0, 64), 1, 1);
    for (int type = SC_EVENT_OP_STARTED; type <= SC_EVENT_OP_FAILED; type++) {
        core_rig_feed((struct sc_event){.type = (enum sc_event_type)type,
                                        .epoch = rig.epoch - 1,
                                        .u.op = {1, SC_DEVICE_ERROR}});
        expect_quiet();
    }
    assert_int_equal(core_rig_view().started, 0);
    expect_state(SC_STATE_READY);
}

// ---- replay ----

static struct sc_event replay(const struct sc_op_desc *list, uint32_t count) {
    return (struct sc_event){.type = SC_EVENT_REPLAY,
                             .epoch = rig.epoch,
                             .u.replay = {.list = list, .count = count, .stream = RIG_STREAM}};
}

static const struct sc_op_desc captured[] = {
    {SC_OP_ALL_REDUCE, 0, 8192}, {SC_OP_SEND, 1, 64}, {SC_OP_BROADCAST, 1, 8192}};

static void a_replay_is_one_launch_with_a_seq_for_each_collective(void **state) {
    (void)state;
    ready(2);
    launched(submit(SC_OP_ALL_REDUCE, 0, 64), 1, 1);
    launched(replay(captured, 3), 2, 2);
    assert_int_equal(core_rig_view().submitted, 3);
    launched(submit(SC_OP_ALL_REDUCE, 0, 64), 3, 4);
    core_rig_op(SC_EVENT_OP_DONE, 1);
    core_rig_op(SC_EVENT_OP_DONE, 2);
    assert_int_equal(expect_action(SC_ACTION_OP_COMPLETE)->b, 3);
    assert_int_equal(core_rig_view().completed, 3);
}

static void a_replay_has_the_digest_of_the_same_ops_submitted(void **state) {
    uint64_t digest;
    (void)state;
    ready(2);
    core_rig_feed(replay(captured, 3));
    digest = sc_core_ledger(rig.core)->digest;
    ready(2);
    for (int i = 0; i < 3; i++)
        core_rig_feed(submit(captured[i].kind, captured[i].root, captured[i].bytes));
    assert_int_equal(sc_core_ledger(rig.core)->digest, digest);
}

static void a_replay_that_cannot_be_is_refused_whole(void **state) {
    struct sc_op_desc list[17];
    struct sc_event event;
    (void)state;
    ready(2);
    for (int i = 0; i < 17; i++)
        list[i] = (struct sc_op_desc){SC_OP_ALL_REDUCE, 0, 64};
    refused(replay(list, 0), SC_INVALID);
    refused(replay(list, 17), SC_TOO_LARGE);
    list[2].kind = SC_OP_KIND_COUNT;
    refused(replay(list, 3), SC_INVALID);
    list[2] = (struct sc_op_desc){SC_OP_BROADCAST, 5, 64};
    refused(replay(list, 3), SC_INVALID);
    event = replay(captured, 3);
    event.epoch++;
    refused(event, SC_EPOCH_LOST);
    launched(replay(list, 2), 1, 1);
    launched(replay(list, 2), 2, 3);
    list[2] = list[0];
    refused(replay(list, 13), SC_BUSY);
}

// ---- other states ----

static void nothing_but_the_live_epoch_takes_work(enum sc_state state) {
    expect_state(state);
    refused(submit(SC_OP_ALL_REDUCE, 0, 64), SC_EPOCH_LOST);
    refused(submit(SC_OP_KIND_COUNT, 9, 3), SC_EPOCH_LOST); // that comes first
    refused(replay(captured, 3), SC_EPOCH_LOST);
    refused((struct sc_event){.type = SC_EVENT_SYNC, .epoch = rig.epoch}, SC_EPOCH_LOST);
    refused((struct sc_event){.type = SC_EVENT_MARK, .epoch = rig.epoch}, SC_EPOCH_LOST);
    refused((struct sc_event){.type = SC_EVENT_BARRIER, .epoch = rig.epoch}, SC_EPOCH_LOST);
    refused((struct sc_event){.type = SC_EVENT_COMMAND, .epoch = rig.epoch, .u.command = {1, true}},
            SC_EPOCH_LOST);
    refused((struct sc_event){.type = SC_EVENT_COMMAND_TAKEN, .epoch = rig.epoch}, SC_EPOCH_LOST);
}

static void in_every_other_state_work_is_refused_as_of_a_lost_epoch(void **state) {
    (void)state;
    core_rig_open(0, 2);
    nothing_but_the_live_epoch_takes_work(SC_STATE_IDLE);
    core_rig_rendezvous();
    nothing_but_the_live_epoch_takes_work(SC_STATE_RENDEZVOUS);
    core_rig_open(0, 2);
    core_rig_joining();
    nothing_but_the_live_epoch_takes_work(SC_STATE_JOINING);
    ready(2);
    core_rig_comm_failed(SC_ASYNC_ERROR);
    nothing_but_the_live_epoch_takes_work(SC_STATE_ABORTING);
    core_rig_clean();
    nothing_but_the_live_epoch_takes_work(SC_STATE_RENDEZVOUS);
}

// ---- marks ----

static void a_mark_is_kept_for_the_epoch_it_names(void **state) {
    struct sc_event mark = {.type = SC_EVENT_MARK, .u.mark = 7};
    (void)state;
    ready(2);
    mark.epoch = rig.epoch;
    assert_int_equal(core_rig_feed(mark), SC_OK);
    mark.epoch = rig.epoch - 1;
    mark.u.mark = 8;
    assert_int_equal(core_rig_feed(mark), SC_EPOCH_LOST);
    assert_int_equal(core_rig_view().mark, 7);
    core_rig_wait(rig.config.timing.heartbeat_ns);
    assert_int_equal(expect_frame(SC_FRAME_PING)->u.ping.mark, 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_accepted_op_is_launched_with_its_number_and_seq),
        cmocka_unit_test(an_op_of_another_epoch_is_refused_without_effect),
        cmocka_unit_test(kinds_and_roots_out_of_range_are_invalid),
        cmocka_unit_test(kinds_that_work_in_place_take_one_buffer),
        cmocka_unit_test(a_rank_cannot_send_to_or_receive_from_itself),
        cmocka_unit_test(odd_bytes_and_odd_addresses_are_refused),
        cmocka_unit_test(capacity_passes_and_two_bytes_more_do_not),
        cmocka_unit_test(the_side_that_holds_every_share_is_held_to_the_capacity),
        cmocka_unit_test(sizes_that_overflow_are_too_large),
        cmocka_unit_test(a_full_ledger_is_busy_until_an_op_completes),
        cmocka_unit_test(zero_bytes_complete_at_once_and_take_a_seq),
        cmocka_unit_test(zero_bytes_need_no_address),
        cmocka_unit_test(nothing_is_launched_in_a_world_of_one),
        cmocka_unit_test(a_completion_counts_once),
        cmocka_unit_test(completions_of_another_epoch_are_ignored),
        cmocka_unit_test(a_replay_is_one_launch_with_a_seq_for_each_collective),
        cmocka_unit_test(a_replay_has_the_digest_of_the_same_ops_submitted),
        cmocka_unit_test(a_replay_that_cannot_be_is_refused_whole),
        cmocka_unit_test(in_every_other_state_work_is_refused_as_of_a_lost_epoch),
        cmocka_unit_test(a_mark_is_kept_for_the_epoch_it_names),
    };
    return cmocka_run_group_tests(tests, NULL, core_rig_close);
}
