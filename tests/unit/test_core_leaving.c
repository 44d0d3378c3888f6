// SPDX-License-Identifier: AGPL-3.0-only
//
// From evidence to ABORTING: what makes a rank leave, in which order it says and does so, and that
// nothing of the epoch counts afterwards.
#include "tests/support/core_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void ready(uint32_t rank, uint32_t world) {
    core_rig_open(rank, world);
    core_rig_ready();
}

static void left_with(sc_status code, uint32_t suspect) {
    expect_state(SC_STATE_ABORTING);
    const struct sc_core_view view = core_rig_view();
    assert_int_equal(view.cause.code, code);
    assert_int_equal(view.cause.suspect, suspect);
    assert_int_equal(view.epoch, rig.epoch);
    assert_int_equal(expect_action(SC_ACTION_FENCE)->epoch, 0);
    assert_int_equal(core_rig_count(SC_ACTION_COMM_ABORT), 1);
    assert_int_equal(expect_action(SC_ACTION_COMM_ABORT)->epoch, rig.epoch);
    assert_int_equal(expect_notice(SC_NOTICE_STATE)->status, code);
}

// ---- evidence ----

static void a_link_that_ends_is_a_dead_peer(void **state) {
    (void)state;
    ready(0, 3);
    core_rig_link_down(rig.ranks[2].link);
    left_with(SC_PEER_DEAD, 2);
    assert_int_equal(core_rig_send_of(SC_FRAME_ABORT)->mask, 2);
    ready(1, 2);
    core_rig_link_down(rig.ranks[0].link);
    left_with(SC_PEER_DEAD, 0);
    expect_no_frame(SC_FRAME_ABORT); // nobody is left to be told
}

static void the_cause_names_the_oldest_op_in_flight(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_link_down(rig.ranks[1].link);
    assert_int_equal(core_rig_view().cause.seq, 0);
    ready(0, 2);
    core_rig_submit_on(1);
    core_rig_submit_on(1);
    core_rig_op(SC_EVENT_OP_DONE, 1);
    core_rig_link_down(rig.ranks[1].link);
    assert_int_equal(core_rig_view().cause.seq, 2);
}

static void a_link_that_ends_while_joining_ends_the_attempt(void **state) {
    (void)state;
    core_rig_open(0, 2);
    core_rig_joining();
    core_rig_link_down(rig.ranks[1].link);
    expect_state(SC_STATE_ABORTING);
    expect_no_action(SC_ACTION_FENCE);
    (void)expect_action(SC_ACTION_COMM_ABORT);
}

static void silence_drops_the_link_and_leaves(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_wait(rig.config.timing.silence_ns - RIG_MS);
    expect_state(SC_STATE_READY);
    core_rig_wait(RIG_MS);
    left_with(SC_PEER_SILENT, 1);
    assert_int_equal(core_rig_index(SC_ACTION_DROP), 0);
    assert_int_equal(sc_core_link_of(rig.core, 1), 0);
}

static void an_async_error_leaves(void **state) {
    (void)state;
    ready(1, 2);
    core_rig_comm_failed(SC_ASYNC_ERROR);
    left_with(SC_ASYNC_ERROR, 1);
    assert_int_equal(expect_frame(SC_FRAME_ABORT)->u.cause.code, SC_ASYNC_ERROR);
}

static void an_async_error_of_another_epoch_is_ignored(void **state) {
    (void)state;
    ready(1, 2);
    core_rig_feed((struct sc_event){
        .type = SC_EVENT_COMM_FAILED, .epoch = rig.epoch - 1, .u.comm_failed = {SC_ASYNC_ERROR}});
    expect_state(SC_STATE_READY);
}

static void an_op_that_fails_leaves_with_its_seq(void **state) {
    (void)state;
    ready(1, 2);
    core_rig_submit_on(1);
    core_rig_submit_on(1);
    core_rig_op_failed(2, SC_SUBMIT_FAILED);
    left_with(SC_SUBMIT_FAILED, 1);
    assert_int_equal(core_rig_view().cause.seq, 2);
}

static void polls_that_never_answer_are_evidence(void **state) {
    (void)state;
    ready(1, 2);
    core_rig_submit_on(1);
    core_rig_op_failed(1, SC_INPROGRESS);
    left_with(SC_DEVICE_ERROR, 1);
}

static void an_abort_is_heeded_and_fans_out_at_the_coordinator(void **state) {
    (void)state;
    ready(0, 4);
    core_rig_abort_from(2, rig.epoch, SC_ASYNC_ERROR);
    left_with(SC_ASYNC_ERROR, 2);
    assert_int_equal(core_rig_send_of(SC_FRAME_ABORT)->mask, 0xe);
    assert_int_equal(expect_frame(SC_FRAME_ABORT)->epoch, rig.epoch);
    assert_int_equal(expect_frame(SC_FRAME_ABORT)->u.cause.suspect, 2);
}

static void an_abort_of_another_epoch_is_ignored(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_abort_from(1, rig.epoch - 1, SC_ASYNC_ERROR);
    expect_state(SC_STATE_READY);
    expect_quiet();
}

static void a_second_abort_changes_nothing(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_abort_from(1, rig.epoch, SC_ASYNC_ERROR);
    core_rig_abort_from(1, rig.epoch, SC_FABRIC);
    expect_quiet();
    assert_int_equal(core_rig_view().cause.code, SC_ASYNC_ERROR);
    core_rig_clean();
    core_rig_abort_from(1, rig.epoch, SC_FABRIC);
    expect_quiet();
    expect_state(SC_STATE_RENDEZVOUS);
}

static void reconnect_leaves_the_epoch_it_names_and_no_other(void **state) {
    (void)state;
    ready(1, 2);
    core_rig_simple(SC_EVENT_RECONNECT, rig.epoch - 1);
    expect_state(SC_STATE_READY);
    expect_quiet();
    core_rig_feed(
        (struct sc_event){.type = SC_EVENT_RECONNECT, .epoch = rig.epoch, .u.reason = 1234});
    left_with(SC_RECONNECT, 1);
    assert_int_equal(expect_frame(SC_FRAME_ABORT)->u.cause.value[0], 1234);
    core_rig_simple(SC_EVENT_RECONNECT, rig.epoch); // eight threads, one recovery
    expect_quiet();
}

static void a_hello_of_a_clean_rank_says_that_it_has_left(void **state) {
    (void)state;
    ready(0, 3);
    const struct sc_frame hello = core_rig_hello(1);
    core_rig_from(1, &hello);
    left_with(SC_PEER_ABORTED, 1);
}

static void a_breach_ends_the_epoch(void **state) {
    (void)state;
    ready(0, 2);
    assert_int_equal(core_rig_plain(1, SC_FRAME_JOINED, rig.epoch), SC_PROTOCOL);
    left_with(SC_PROTOCOL, 1);
    assert_int_equal(expect_notice(SC_NOTICE_BREACH)->rank, 1);
}

static void a_frame_only_the_other_side_sends_is_a_breach(void **state) {
    static const enum sc_frame_kind from_coordinator[] = {SC_FRAME_CHALLENGE, SC_FRAME_WELCOME,
                                                          SC_FRAME_REFUSE,    SC_FRAME_OFFER,
                                                          SC_FRAME_GO,        SC_FRAME_QUERY};
    static const enum sc_frame_kind from_members[] = {SC_FRAME_HELLO, SC_FRAME_JOINED,
                                                      SC_FRAME_DESCRIBE};
    (void)state;
    for (size_t i = 0; i < sizeof from_coordinator / sizeof from_coordinator[0]; i++) {
        ready(0, 2);
        assert_int_equal(core_rig_plain(1, from_coordinator[i], rig.epoch), SC_PROTOCOL);
        left_with(SC_PROTOCOL, 1);
    }
    for (size_t i = 0; i < sizeof from_members / sizeof from_members[0]; i++) {
        ready(1, 2);
        assert_int_equal(core_rig_plain(0, from_members[i], rig.epoch), SC_PROTOCOL);
        left_with(SC_PROTOCOL, 0);
    }
}

// ---- order, and what counts ----

static void the_order_is_lost_fence_abort_notice_comm_abort(void **state) {
    (void)state;
    ready(0, 3);
    core_rig_submit_on(1);
    core_rig_submit_on(2);
    core_rig_submit_on(1);
    core_rig_op(SC_EVENT_OP_DONE, 1);
    core_rig_comm_failed(SC_ASYNC_ERROR);
    const int lost = core_rig_index(SC_ACTION_LOST), fence = core_rig_index(SC_ACTION_FENCE);
    const int abort = core_rig_index_of_frame(SC_FRAME_ABORT);
    assert_int_equal(lost, 0);
    assert_true(lost < fence && fence < abort && abort < core_rig_index(SC_ACTION_NOTIFY));
    assert_true(core_rig_index(SC_ACTION_NOTIFY) < core_rig_index(SC_ACTION_COMM_ABORT));
    assert_int_equal(rig.last.list[lost].a, 2);
    assert_int_equal(rig.last.list[lost].b, 3);
    assert_int_equal(rig.last.list[lost].epoch, rig.epoch);
}

static void with_nothing_in_flight_nothing_is_lost(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_comm_failed(SC_ASYNC_ERROR);
    expect_no_action(SC_ACTION_LOST);
}

static void what_completes_after_the_epoch_was_left_never_counts(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_submit_on(1);
    core_rig_submit_on(1);
    core_rig_op(SC_EVENT_OP_DONE, 1);
    core_rig_comm_failed(SC_ASYNC_ERROR);
    core_rig_op(SC_EVENT_OP_DONE, 2);
    expect_no_action(SC_ACTION_OP_COMPLETE);
    core_rig_clean();
    const struct sc_frame hello = core_rig_hello(1);
    core_rig_from(1, &hello);
    core_rig_comm_id(SC_OK);
    const struct sc_rank_record *record = &expect_frame(SC_FRAME_OFFER)->u.offer.ranks[0];
    assert_int_equal(record->submitted, 2);
    assert_int_equal(record->completed, 1);
}

static void the_hello_after_a_loss_tells_how_far_this_rank_was(void **state) {
    (void)state;
    ready(1, 2);
    core_rig_submit_on(1);
    core_rig_submit_on(1);
    core_rig_op(SC_EVENT_OP_DONE, 1);
    core_rig_feed((struct sc_event){.type = SC_EVENT_MARK, .epoch = rig.epoch, .u.mark = 17});
    core_rig_abort_from(0, rig.epoch, SC_FABRIC);
    core_rig_op(SC_EVENT_OP_DONE, 2);
    core_rig_clean();
    const struct sc_hello *hello = &expect_frame(SC_FRAME_HELLO)->u.hello;
    assert_int_equal(hello->ready_epoch, rig.epoch);
    assert_int_equal(hello->submitted, 2);
    assert_int_equal(hello->completed, 1);
    assert_int_equal(hello->mark, 17);
}

static void one_abort_only_whatever_comes(void **state) {
    uint32_t aborts = 0;
    (void)state;
    ready(0, 3);
    core_rig_submit_on(1);
    core_rig_comm_failed(SC_ASYNC_ERROR);
    aborts += core_rig_count(SC_ACTION_COMM_ABORT);
    core_rig_link_down(rig.ranks[1].link);
    aborts += core_rig_count(SC_ACTION_COMM_ABORT);
    core_rig_abort_from(2, rig.epoch, SC_FABRIC);
    aborts += core_rig_count(SC_ACTION_COMM_ABORT);
    core_rig_comm_failed(SC_ASYNC_ERROR);
    aborts += core_rig_count(SC_ACTION_COMM_ABORT);
    core_rig_captures(1);
    core_rig_captures(0);
    aborts += core_rig_count(SC_ACTION_COMM_ABORT);
    core_rig_close_core(true);
    aborts += core_rig_count(SC_ACTION_COMM_ABORT);
    assert_int_equal(aborts, 1);
}

static void a_loss_of_another_peer_meanwhile_is_told_to_those_still_linked(void **state) {
    (void)state;
    ready(0, 3);
    core_rig_submit_on(1);
    core_rig_op_failed(1, SC_DEVICE_ERROR);
    core_rig_link_down(rig.ranks[1].link);
    const struct sc_cause *news = &expect_frame(SC_FRAME_ABORT)->u.cause;
    assert_int_equal(core_rig_send_of(SC_FRAME_ABORT)->mask, 1u << 2);
    assert_int_equal(news->code, SC_PEER_DEAD);
    assert_int_equal(news->suspect, 1);
    assert_int_equal(core_rig_view().cause.code, SC_DEVICE_ERROR); // the first stands
}

// ---- the backoff of offers ----

static uint64_t lose_and_wait_for_the_offer(void) {
    core_rig_comm_failed(SC_ASYNC_ERROR);
    const uint64_t left = rig.now_ns;
    core_rig_clean();
    const struct sc_frame hello = core_rig_hello(1);
    core_rig_from(1, &hello);
    while (core_rig_index(SC_ACTION_GET_ID) < 0) {
        const uint64_t at = sc_core_deadline(rig.core);
        core_rig_wait(at > rig.now_ns ? at - rig.now_ns : 0);
        assert_true(rig.now_ns - left <= 2 * RIG_SECOND);
    }
    const uint64_t waited = rig.now_ns - left;
    core_rig_comm_id(SC_OK);
    core_rig_simple(SC_EVENT_COMM_READY, rig.epoch);
    core_rig_plain(1, SC_FRAME_JOINED, rig.epoch);
    expect_state(SC_STATE_READY);
    return waited;
}

static void offers_back_off_and_a_stable_epoch_forgets_it(void **state) {
    (void)state;
    ready(0, 2);
    assert_true(lose_and_wait_for_the_offer() < RIG_MS); // at once
    uint64_t base = rig.config.backoff_min_ns;
    for (int i = 0; i < 6; i++) {
        assert_in_range(lose_and_wait_for_the_offer(), base / 2, base);
        base = 2 * base < rig.config.backoff_max_ns ? 2 * base : rig.config.backoff_max_ns;
    }
    core_rig_live(rig.config.stable_ns);
    expect_state(SC_STATE_READY);
    assert_true(lose_and_wait_for_the_offer() < RIG_MS);
}

static void a_hello_of_a_rank_that_is_not_clean_says_nothing_of_the_sort(void **state) {
    (void)state;
    ready(0, 3);
    struct sc_frame hello = core_rig_hello(1);
    hello.u.hello.able = 0;
    core_rig_from(1, &hello);
    expect_state(SC_STATE_READY);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_link_that_ends_is_a_dead_peer),
        cmocka_unit_test(the_cause_names_the_oldest_op_in_flight),
        cmocka_unit_test(a_link_that_ends_while_joining_ends_the_attempt),
        cmocka_unit_test(silence_drops_the_link_and_leaves),
        cmocka_unit_test(an_async_error_leaves),
        cmocka_unit_test(an_async_error_of_another_epoch_is_ignored),
        cmocka_unit_test(an_op_that_fails_leaves_with_its_seq),
        cmocka_unit_test(polls_that_never_answer_are_evidence),
        cmocka_unit_test(an_abort_is_heeded_and_fans_out_at_the_coordinator),
        cmocka_unit_test(an_abort_of_another_epoch_is_ignored),
        cmocka_unit_test(a_second_abort_changes_nothing),
        cmocka_unit_test(reconnect_leaves_the_epoch_it_names_and_no_other),
        cmocka_unit_test(a_hello_of_a_clean_rank_says_that_it_has_left),
        cmocka_unit_test(a_breach_ends_the_epoch),
        cmocka_unit_test(a_frame_only_the_other_side_sends_is_a_breach),
        cmocka_unit_test(the_order_is_lost_fence_abort_notice_comm_abort),
        cmocka_unit_test(with_nothing_in_flight_nothing_is_lost),
        cmocka_unit_test(what_completes_after_the_epoch_was_left_never_counts),
        cmocka_unit_test(the_hello_after_a_loss_tells_how_far_this_rank_was),
        cmocka_unit_test(one_abort_only_whatever_comes),
        cmocka_unit_test(a_loss_of_another_peer_meanwhile_is_told_to_those_still_linked),
        cmocka_unit_test(offers_back_off_and_a_stable_epoch_forgets_it),
        cmocka_unit_test(a_hello_of_a_rank_that_is_not_clean_says_nothing_of_the_sort),
    };
    return cmocka_run_group_tests(tests, NULL, core_rig_close);
}
