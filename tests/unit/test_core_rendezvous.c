// SPDX-License-Identifier: AGPL-3.0-only
//
// Forming an epoch: who is waited for, what is offered, and when it lives.
#include "tests/support/core_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(epoch) ((epoch) >> 24)

static void open_coordinator(uint32_t world) {
    core_rig_open(0, world);
    core_rig_rendezvous();
}

static void say_hello(uint32_t rank) {
    const struct sc_frame hello = core_rig_hello(rank);
    assert_int_equal(core_rig_from(rank, &hello), SC_OK);
}

// From ABORTING: this core is clean, and every member says that it is.
static void all_are_clean(void) {
    core_rig_clean();
    expect_state(SC_STATE_RENDEZVOUS);
    core_rig_wait(rig.config.backoff_max_ns);
    for (uint32_t r = 1; r < rig.config.world; r++)
        say_hello(r);
}

static void nothing_is_offered_before_all_are_present(void **state) {
    (void)state;
    open_coordinator(3);
    core_rig_greet(2);
    expect_no_action(SC_ACTION_GET_ID);
    core_rig_greet(1);
    (void)expect_action(SC_ACTION_GET_ID);
    core_rig_comm_id(SC_OK);
    assert_int_equal(core_rig_send_of(SC_FRAME_OFFER)->mask, 6);
    (void)expect_action(SC_ACTION_COMM_CREATE);
    expect_state(SC_STATE_JOINING);
}

static void nothing_is_offered_while_a_member_is_not_able(void **state) {
    (void)state;
    open_coordinator(2);
    core_rig_connect(1);
    struct sc_frame hello = core_rig_hello(1);
    hello.u.hello.able = 0;
    core_rig_from(1, &hello);
    (void)expect_frame(SC_FRAME_WELCOME);
    expect_no_action(SC_ACTION_GET_ID);
    say_hello(1);
    (void)expect_action(SC_ACTION_GET_ID);
}

static void nothing_is_offered_while_the_coordinator_is_on_hold(void **state) {
    struct sc_core_config config = core_rig_config(0, 2);
    (void)state;
    config.hold = 1;
    core_rig_open_config(&config, 1);
    core_rig_rendezvous();
    core_rig_greet(1);
    expect_no_action(SC_ACTION_GET_ID);
    expect_state(SC_STATE_IDLE);
    core_rig_simple(SC_EVENT_JOIN, 0);
    expect_state(SC_STATE_RENDEZVOUS);
    (void)expect_action(SC_ACTION_GET_ID);
}

static void a_second_join_changes_nothing(void **state) {
    (void)state;
    open_coordinator(2);
    core_rig_simple(SC_EVENT_JOIN, 0);
    expect_quiet();
}

static void a_world_of_one_is_ready_by_itself(void **state) {
    (void)state;
    core_rig_open(0, 1);
    core_rig_start();
    (void)expect_action(SC_ACTION_GET_ID);
    core_rig_comm_id(SC_OK);
    core_rig_simple(SC_EVENT_COMM_READY, rig.epoch);
    expect_state(SC_STATE_READY);
}

static void an_offer_spends_every_hello(void **state) {
    (void)state;
    core_rig_open(0, 3);
    core_rig_joining();
    core_rig_comm_failed(SC_COMM_FAILED);
    core_rig_clean();
    core_rig_wait(10 * RIG_MS);
    expect_state(SC_STATE_RENDEZVOUS);
    expect_no_action(SC_ACTION_GET_ID);
    say_hello(1);
    core_rig_wait(10 * RIG_MS);
    expect_no_action(SC_ACTION_GET_ID); // rank 2 still joins the former epoch, for all we know
    say_hello(2);
    (void)expect_action(SC_ACTION_GET_ID);
}

static void a_hello_read_before_we_are_clean_stands(void **state) {
    (void)state;
    core_rig_open(0, 2);
    core_rig_ready();
    core_rig_abort_from(1, rig.epoch, SC_ASYNC_ERROR);
    say_hello(1);
    expect_no_action(SC_ACTION_GET_ID);
    core_rig_clean();
    (void)expect_action(SC_ACTION_GET_ID);
}

static void an_epoch_rises_above_every_epoch_before(void **state) {
    uint64_t before = 0;
    (void)state;
    core_rig_open(0, 2);
    core_rig_rendezvous();
    core_rig_greet(1);
    for (int i = 0; i < 5; i++) {
        core_rig_comm_id(SC_OK);
        assert_true(COUNT(rig.epoch) == COUNT(before) + 1);
        before = rig.epoch;
        core_rig_comm_failed(SC_COMM_FAILED); // failed offers count
        all_are_clean();
    }
}

static void an_epoch_rises_above_what_any_member_saw(void **state) {
    (void)state;
    open_coordinator(3);
    rig.ranks[2].seen_epoch = UINT64_C(41) << 24 | 5;
    core_rig_greet(1);
    core_rig_greet(2);
    core_rig_comm_id(SC_OK);
    assert_int_equal(COUNT(rig.epoch), 42);
}

static void an_epoch_of_a_restarted_coordinator_is_another_number(void **state) {
    uint64_t epoch[2];
    const struct sc_core_config config = core_rig_config(0, 2);
    (void)state;
    for (uint64_t seed = 0; seed < 2; seed++) {
        core_rig_open_config(&config, seed);
        core_rig_joining();
        epoch[seed] = rig.epoch;
    }
    assert_int_equal(COUNT(epoch[0]), COUNT(epoch[1]));
    assert_int_not_equal(epoch[0], epoch[1]);
}

static void every_attempt_gets_an_id_of_its_own(void **state) {
    uint8_t ids[4][SC_COMM_ID_BYTES];
    (void)state;
    core_rig_open(0, 2);
    core_rig_rendezvous();
    core_rig_greet(1);
    for (int i = 0; i < 4; i++) {
        (void)expect_action(SC_ACTION_GET_ID);
        core_rig_comm_id(SC_OK);
        memcpy(ids[i], expect_frame(SC_FRAME_OFFER)->u.offer.id, SC_COMM_ID_BYTES);
        assert_memory_equal(ids[i], sc_core_comm_id(rig.core), SC_COMM_ID_BYTES);
        for (int j = 0; j < i; j++)
            assert_memory_not_equal(ids[i], ids[j], SC_COMM_ID_BYTES);
        core_rig_comm_failed(SC_COMM_FAILED);
        all_are_clean();
    }
}

static void an_id_that_arrives_after_a_rank_vanished_is_discarded(void **state) {
    (void)state;
    open_coordinator(2);
    core_rig_greet(1);
    core_rig_link_down(rig.ranks[1].link);
    core_rig_comm_id(SC_OK);
    expect_quiet();
    expect_state(SC_STATE_RENDEZVOUS);
    core_rig_greet(1);
    (void)expect_action(SC_ACTION_GET_ID); // and asked for anew
}

static void an_id_that_cannot_be_made_is_asked_for_again_after_a_while(void **state) {
    (void)state;
    open_coordinator(2);
    core_rig_greet(1);
    assert_int_equal(core_rig_comm_id(SC_DEVICE_ERROR), SC_DEVICE_ERROR);
    expect_state(SC_STATE_RENDEZVOUS);
    assert_int_equal(core_rig_view().cause.code, SC_DEVICE_ERROR);
    core_rig_tick();
    expect_no_action(SC_ACTION_GET_ID);
    assert_true(sc_core_deadline(rig.core) <= rig.now_ns + rig.config.backoff_min_ns);
    core_rig_wait(rig.config.backoff_min_ns);
    (void)expect_action(SC_ACTION_GET_ID);
}

// ---- go ----

static void go_waits_for_all_to_have_joined(void **state) {
    (void)state;
    core_rig_open(0, 3);
    core_rig_joining();
    core_rig_simple(SC_EVENT_COMM_READY, rig.epoch);
    (void)expect_action(SC_ACTION_REGISTER_ALL);
    expect_no_frame(SC_FRAME_GO);
    core_rig_plain(1, SC_FRAME_JOINED, rig.epoch);
    core_rig_plain(1, SC_FRAME_JOINED, rig.epoch);
    expect_no_frame(SC_FRAME_GO);
    core_rig_plain(2, SC_FRAME_JOINED, rig.epoch);
    assert_int_equal(core_rig_send_of(SC_FRAME_GO)->mask, 6);
    assert_int_equal(expect_action(SC_ACTION_FENCE)->epoch, rig.epoch);
    expect_state(SC_STATE_READY);
}

static void go_waits_for_the_coordinators_own_communicator(void **state) {
    (void)state;
    core_rig_open(0, 2);
    core_rig_joining();
    core_rig_plain(1, SC_FRAME_JOINED, rig.epoch);
    expect_no_frame(SC_FRAME_GO);
    core_rig_simple(SC_EVENT_COMM_READY, rig.epoch);
    (void)expect_frame(SC_FRAME_GO);
}

static void a_joined_or_ready_of_another_epoch_counts_for_nothing(void **state) {
    (void)state;
    core_rig_open(0, 2);
    core_rig_joining();
    core_rig_plain(1, SC_FRAME_JOINED, rig.epoch - 1);
    core_rig_simple(SC_EVENT_COMM_READY, rig.epoch - 1);
    expect_quiet();
    core_rig_simple(SC_EVENT_COMM_READY, rig.epoch);
    expect_no_frame(SC_FRAME_GO);
    expect_state(SC_STATE_JOINING);
}

static void a_member_says_joined_when_its_communicator_is_ready(void **state) {
    (void)state;
    core_rig_open(1, 2);
    core_rig_joining();
    core_rig_simple(SC_EVENT_COMM_READY, rig.epoch);
    (void)expect_action(SC_ACTION_REGISTER_ALL);
    assert_int_equal(expect_frame(SC_FRAME_JOINED)->epoch, rig.epoch);
    expect_state(SC_STATE_JOINING);
    core_rig_plain(0, SC_FRAME_GO, rig.epoch);
    expect_state(SC_STATE_READY);
    assert_int_equal(expect_action(SC_ACTION_FENCE)->epoch, rig.epoch);
}

static void a_go_before_we_joined_is_a_breach(void **state) {
    (void)state;
    core_rig_open(1, 2);
    core_rig_joining();
    assert_int_equal(core_rig_plain(0, SC_FRAME_GO, rig.epoch), SC_PROTOCOL);
    expect_state(SC_STATE_ABORTING);
    assert_int_equal(core_rig_view().cause.code, SC_PROTOCOL);
}

static void a_go_with_the_end_of_its_link_behind_it_is_void(void **state) {
    const struct sc_frame go = {.kind = SC_FRAME_GO, .epoch = UINT64_C(2) << 24};
    (void)state;
    core_rig_open(1, 2);
    core_rig_joining();
    assert_int_equal(rig.epoch, go.epoch);
    core_rig_simple(SC_EVENT_COMM_READY, rig.epoch);
    core_rig_feed(
        (struct sc_event){.type = SC_EVENT_FRAME,
                          .u.frame = {.link = rig.ranks[0].link, .frame = &go, .ended = true}});
    expect_state(SC_STATE_JOINING);
    core_rig_link_down(rig.ranks[0].link);
    expect_state(SC_STATE_ABORTING);
}

static void a_go_of_another_epoch_is_no_go(void **state) {
    (void)state;
    core_rig_open(1, 2);
    core_rig_joining();
    core_rig_simple(SC_EVENT_COMM_READY, rig.epoch);
    core_rig_plain(0, SC_FRAME_GO, rig.epoch - 1);
    expect_state(SC_STATE_JOINING);
}

static void joining_ends_at_the_init_deadline_on_both_sides(void **state) {
    (void)state;
    for (uint32_t rank = 0; rank < 2; rank++) {
        core_rig_open(rank, 2);
        core_rig_joining();
        const uint64_t end = rig.now_ns + rig.config.timing.init_ns;
        core_rig_live(end - rig.now_ns - 1);
        expect_state(SC_STATE_JOINING);
        core_rig_wait(end - rig.now_ns);
        expect_state(SC_STATE_ABORTING);
        assert_int_equal(core_rig_view().cause.code, SC_INIT_TIMEOUT);
        (void)expect_frame(SC_FRAME_ABORT);
        (void)expect_action(SC_ACTION_COMM_ABORT);
        expect_no_action(SC_ACTION_FENCE); // it never was up
    }
}

// ---- offers to a member ----

static void offer_is_a_breach(uint64_t epoch, uint32_t world) {
    struct sc_frame offer = core_rig_offer(epoch);
    offer.u.offer.world = world;
    assert_int_equal(core_rig_from(0, &offer), SC_PROTOCOL);
    expect_no_action(SC_ACTION_COMM_CREATE);
    assert_int_equal(expect_action(SC_ACTION_DROP)->link, rig.ranks[0].link);
}

static void an_offer_not_above_every_epoch_seen_is_a_breach(void **state) {
    (void)state;
    for (uint64_t back = 0; back < 2; back++) {
        core_rig_open(1, 2);
        core_rig_ready();
        core_rig_abort_from(0, rig.epoch, SC_RECONNECT);
        core_rig_clean();
        expect_state(SC_STATE_RENDEZVOUS);
        offer_is_a_breach(rig.epoch - back, 2);
    }
    core_rig_open(1, 2);
    core_rig_rendezvous();
    offer_is_a_breach(0, 2);
}

static void an_offer_for_another_world_is_a_breach(void **state) {
    (void)state;
    core_rig_open(1, 2);
    core_rig_rendezvous();
    offer_is_a_breach(rig.epoch + 1, 3);
}

static void an_offer_outside_rendezvous_is_a_breach(void **state) {
    struct sc_core_config config = core_rig_config(1, 2);
    (void)state;
    core_rig_open(1, 2);
    core_rig_joining();
    offer_is_a_breach(rig.epoch + 1, 2);
    core_rig_open(1, 2);
    core_rig_ready();
    offer_is_a_breach(rig.epoch + 1, 2);
    core_rig_open(1, 2);
    core_rig_ready();
    core_rig_abort_from(0, rig.epoch, SC_RECONNECT);
    offer_is_a_breach(rig.epoch + 1, 2);
    config.hold = 1;
    core_rig_open_config(&config, 1);
    core_rig_rendezvous();
    offer_is_a_breach(rig.epoch + 1, 2);
}

static void a_member_says_hello_again_on_the_same_link_once_clean(void **state) {
    (void)state;
    core_rig_open(1, 2);
    core_rig_ready();
    core_rig_abort_from(0, rig.epoch, SC_ASYNC_ERROR);
    core_rig_clean();
    const struct sc_hello *hello = &expect_frame(SC_FRAME_HELLO)->u.hello;
    assert_int_equal(core_rig_send_of(SC_FRAME_HELLO)->link, rig.ranks[0].link);
    assert_int_equal(hello->number, 2);
    assert_int_equal(hello->seen_epoch, rig.epoch);
    assert_int_equal(hello->ready_epoch, rig.epoch);
    assert_int_equal(hello->able, 1);
}

static void each_ready_after_the_first_is_a_recovery(void **state) {
    (void)state;
    core_rig_open(0, 2);
    core_rig_ready();
    assert_int_equal(core_rig_view().recoveries, 0);
    core_rig_simple(SC_EVENT_RECONNECT, rig.epoch);
    all_are_clean();
    core_rig_comm_id(SC_OK);
    core_rig_simple(SC_EVENT_COMM_READY, rig.epoch);
    core_rig_plain(1, SC_FRAME_JOINED, rig.epoch);
    expect_state(SC_STATE_READY);
    assert_int_equal(core_rig_view().recoveries, 1);
    assert_int_equal(core_rig_view().ready_epoch, rig.epoch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_offered_before_all_are_present),
        cmocka_unit_test(nothing_is_offered_while_a_member_is_not_able),
        cmocka_unit_test(nothing_is_offered_while_the_coordinator_is_on_hold),
        cmocka_unit_test(a_second_join_changes_nothing),
        cmocka_unit_test(a_world_of_one_is_ready_by_itself),
        cmocka_unit_test(an_offer_spends_every_hello),
        cmocka_unit_test(a_hello_read_before_we_are_clean_stands),
        cmocka_unit_test(an_epoch_rises_above_every_epoch_before),
        cmocka_unit_test(an_epoch_rises_above_what_any_member_saw),
        cmocka_unit_test(an_epoch_of_a_restarted_coordinator_is_another_number),
        cmocka_unit_test(every_attempt_gets_an_id_of_its_own),
        cmocka_unit_test(an_id_that_arrives_after_a_rank_vanished_is_discarded),
        cmocka_unit_test(an_id_that_cannot_be_made_is_asked_for_again_after_a_while),
        cmocka_unit_test(go_waits_for_all_to_have_joined),
        cmocka_unit_test(go_waits_for_the_coordinators_own_communicator),
        cmocka_unit_test(a_joined_or_ready_of_another_epoch_counts_for_nothing),
        cmocka_unit_test(a_member_says_joined_when_its_communicator_is_ready),
        cmocka_unit_test(a_go_before_we_joined_is_a_breach),
        cmocka_unit_test(a_go_with_the_end_of_its_link_behind_it_is_void),
        cmocka_unit_test(a_go_of_another_epoch_is_no_go),
        cmocka_unit_test(joining_ends_at_the_init_deadline_on_both_sides),
        cmocka_unit_test(an_offer_not_above_every_epoch_seen_is_a_breach),
        cmocka_unit_test(an_offer_for_another_world_is_a_breach),
        cmocka_unit_test(an_offer_outside_rendezvous_is_a_breach),
        cmocka_unit_test(a_member_says_hello_again_on_the_same_link_once_clean),
        cmocka_unit_test(each_ready_after_the_first_is_a_recovery),
    };
    return cmocka_run_group_tests(tests, NULL, core_rig_close);
}
