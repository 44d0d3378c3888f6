// SPDX-License-Identifier: AGPL-3.0-only
//
// Barriers: one passes when every rank has arrived at it, in whatever order they come and however
// their PINGs are late, repeated or lost; and none passes otherwise.
#include "tests/support/core_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void ready(uint32_t rank, uint32_t world) {
    core_rig_open(rank, world);
    core_rig_ready();
}

static sc_status arrive(void) {
    return core_rig_simple(SC_EVENT_BARRIER, rig.epoch);
}

static sc_status hear_of_epoch(uint32_t rank, uint64_t barrier, uint64_t epoch) {
    const struct sc_frame frame = {
        .kind = SC_FRAME_PING,
        .epoch = epoch,
        .u.ping = {.barrier = barrier, .laggard = SC_RANK_NONE, .state = SC_STATE_READY}};
    return core_rig_from(rank, &frame);
}

static sc_status hear(uint32_t rank, uint64_t barrier) {
    return hear_of_epoch(rank, barrier, rig.epoch);
}

static void told_to(uint64_t mask, uint64_t barrier) {
    const struct sc_frame *ping = expect_frame(SC_FRAME_PING);
    assert_int_equal(core_rig_send_of(SC_FRAME_PING)->mask, mask);
    assert_int_equal(ping->epoch, rig.epoch);
    assert_int_equal(ping->u.ping.barrier, barrier);
}

static void passed(uint64_t barrier) {
    const struct sc_action *notice = expect_notice(SC_NOTICE_BARRIER);
    assert_int_equal(core_rig_count(SC_ACTION_NOTIFY), 1);
    assert_int_equal(notice->epoch, rig.epoch);
    assert_int_equal(notice->a, barrier);
    assert_int_equal(core_rig_view().passed, barrier);
}

// ---- the coordinator ----

static void a_lone_rank_passes_at_once(void **state) {
    (void)state;
    ready(0, 1);
    for (uint64_t i = 1; i < 4; i++) {
        assert_int_equal(arrive(), SC_OK);
        passed(i);
        expect_no_action(SC_ACTION_SEND);
    }
}

// Every order in which the bits of `left` may come.
static void arrive_in_every_order(uint32_t world, uint32_t left, uint64_t *barrier, uint32_t *order,
                                  uint32_t count) {
    for (uint32_t r = 0; r < world; r++) {
        if (left >> r & 1u) {
            order[count] = r;
            arrive_in_every_order(world, left & ~(1u << r), barrier, order, count + 1);
        }
    }
    if (left != 0)
        return;
    ++*barrier;
    for (uint32_t i = 0; i < world; i++) {
        assert_int_equal(order[i] == 0 ? arrive() : hear(order[i], *barrier), SC_OK);
        if (i + 1 < world)
            expect_quiet();
    }
    passed(*barrier);
    told_to((1u << world) - 2, *barrier);
}

static void the_last_arrival_of_any_order_passes_and_is_told_to_all(void **state) {
    static const uint64_t orders[] = {0, 1, 2, 6, 24};
    (void)state;
    for (uint32_t world = 2; world <= 4; world++) {
        uint64_t barrier = 0;
        uint32_t order[4];
        ready(0, world);
        arrive_in_every_order(world, (1u << world) - 1, &barrier, order, 0);
        assert_int_equal(barrier, orders[world]);
    }
}

static void a_rank_may_be_ahead_and_several_pass_in_one(void **state) {
    (void)state;
    ready(0, 3);
    hear(1, 3);
    arrive();
    arrive();
    expect_quiet();
    hear(2, 5);
    passed(2);
    told_to(6, 2);
    arrive();
    passed(3);
    arrive();
    expect_quiet(); // rank 1 has not
}

static void a_count_never_goes_back(void **state) {
    (void)state;
    ready(0, 2);
    hear(1, 2);
    hear(1, 1);
    hear(1, 0);
    arrive();
    passed(1);
    hear(1, 1);
    expect_quiet();
    arrive();
    passed(2);
}

static void a_repeated_ping_changes_nothing(void **state) {
    (void)state;
    ready(0, 2);
    arrive();
    hear(1, 1);
    passed(1);
    for (int i = 0; i < 3; i++) {
        hear(1, 1);
        expect_quiet();
    }
}

static void a_lost_word_is_made_up_for_by_the_heartbeat(void **state) {
    (void)state;
    ready(0, 2);
    arrive();
    hear(1, 1);
    core_rig_wait(rig.config.timing.heartbeat_ns);
    told_to(2, 1);
    ready(1, 2);
    arrive();
    core_rig_wait(rig.config.timing.heartbeat_ns);
    told_to(1, 1);
}

// ---- a member ----

static void a_members_arrival_is_told_at_once(void **state) {
    (void)state;
    ready(1, 3);
    for (uint64_t i = 1; i < 4; i++) {
        assert_int_equal(arrive(), SC_OK);
        told_to(1, i);
        assert_int_equal(rig.last.count, 1);
        assert_int_equal(core_rig_view().arrived, i);
    }
}

static void a_member_passes_when_it_is_told_so_once(void **state) {
    (void)state;
    ready(1, 3);
    arrive();
    hear(0, 0);
    expect_quiet();
    hear(0, 1);
    passed(1);
    hear(0, 1);
    expect_quiet();
    arrive();
    arrive();
    hear(0, 3);
    passed(3);
    hear(0, 2);
    expect_quiet();
    assert_int_equal(core_rig_view().passed, 3);
}

static void a_barrier_that_passed_without_this_rank_is_a_breach(void **state) {
    (void)state;
    ready(1, 2);
    arrive();
    assert_int_equal(hear(0, 2), SC_PROTOCOL);
    assert_int_equal(core_rig_view().passed, 0);
    expect_state(SC_STATE_ABORTING);
}

// ---- epochs ----

static void only_the_live_epoch_has_barriers(void **state) {
    (void)state;
    for (uint32_t rank = 0; rank < 2; rank++) {
        ready(rank, 2);
        assert_int_equal(core_rig_simple(SC_EVENT_BARRIER, rig.epoch + 1), SC_EPOCH_LOST);
        expect_quiet();
        assert_int_equal(core_rig_simple(SC_EVENT_BARRIER, rig.epoch - 1), SC_EPOCH_LOST);
        expect_quiet();
        assert_int_equal(core_rig_view().arrived, 0);
        core_rig_comm_failed(SC_ASYNC_ERROR);
        assert_int_equal(arrive(), SC_EPOCH_LOST);
        expect_quiet();
    }
}

static void a_ping_of_another_epoch_counts_for_nothing(void **state) {
    (void)state;
    ready(0, 2);
    arrive();
    hear_of_epoch(1, 1, rig.epoch - 1);
    expect_quiet();
    hear_of_epoch(1, 1, rig.epoch + 1);
    expect_quiet();
    hear(1, 1);
    passed(1);
}

static void an_epoch_that_ends_passes_nothing_more(void **state) {
    (void)state;
    ready(0, 3);
    arrive();
    hear(1, 1);
    core_rig_link_down(rig.ranks[2].link);
    expect_state(SC_STATE_ABORTING);
    hear(1, 2);
    expect_quiet();
    assert_int_equal(core_rig_view().passed, 0);
}

static void every_epoch_counts_from_nothing(void **state) {
    (void)state;
    for (uint32_t rank = 0; rank < 2; rank++) {
        ready(rank, 2);
        arrive();
        arrive();
        hear(!rank, 1 + !rank);
        assert_int_equal(core_rig_view().passed, 1 + !rank);
        core_rig_comm_failed(SC_ASYNC_ERROR);
        core_rig_recover();
        assert_int_equal(core_rig_view().arrived, 0);
        assert_int_equal(core_rig_view().passed, 0);
        arrive();
        assert_int_equal(core_rig_index(SC_ACTION_NOTIFY), -1);
        hear(!rank, 1);
        passed(1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lone_rank_passes_at_once),
        cmocka_unit_test(the_last_arrival_of_any_order_passes_and_is_told_to_all),
        cmocka_unit_test(a_rank_may_be_ahead_and_several_pass_in_one),
        cmocka_unit_test(a_count_never_goes_back),
        cmocka_unit_test(a_repeated_ping_changes_nothing),
        cmocka_unit_test(a_lost_word_is_made_up_for_by_the_heartbeat),
        cmocka_unit_test(a_members_arrival_is_told_at_once),
        cmocka_unit_test(a_member_passes_when_it_is_told_so_once),
        cmocka_unit_test(a_barrier_that_passed_without_this_rank_is_a_breach),
        cmocka_unit_test(only_the_live_epoch_has_barriers),
        cmocka_unit_test(a_ping_of_another_epoch_counts_for_nothing),
        cmocka_unit_test(an_epoch_that_ends_passes_nothing_more),
        cmocka_unit_test(every_epoch_counts_from_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, core_rig_close);
}
