// SPDX-License-Identifier: AGPL-3.0-only
//
// From ABORTING to clean: the abort's clock, quarantine, captures, terminal causes, and close.
#include "tests/support/core_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static uint64_t abort_ns;

static void ready(uint32_t rank, uint32_t world) {
    core_rig_open(rank, world);
    core_rig_ready();
    abort_ns = rig.config.timing.abort_ns;
}

// So many ops on one stream; then the epoch is lost, with every peer alive.
static void lost_with_ops(uint32_t ops) {
    ready(0, 2);
    for (uint32_t i = 0; i < ops; i++)
        core_rig_submit_on(RIG_STREAM);
    core_rig_comm_failed(SC_ASYNC_ERROR);
    expect_state(SC_STATE_ABORTING);
}

static void failed_with(sc_status code) {
    expect_state(SC_STATE_FAILED);
    assert_int_equal(core_rig_view().cause.code, code);
}

// ---- clean ----

static void clean_is_an_abort_that_returned_and_streams_that_drained(void **state) {
    (void)state;
    lost_with_ops(2);
    core_rig_clean();
    expect_state(SC_STATE_ABORTING);
    core_rig_op(SC_EVENT_OP_DONE, 1);
    expect_state(SC_STATE_ABORTING);
    core_rig_op(SC_EVENT_OP_DONE, 2);
    expect_state(SC_STATE_RENDEZVOUS);
    lost_with_ops(1);
    core_rig_op(SC_EVENT_OP_DONE, 1);
    expect_state(SC_STATE_ABORTING);
    core_rig_clean();
    expect_state(SC_STATE_RENDEZVOUS);
}

static void the_end_of_another_communicator_cleans_nothing(void **state) {
    (void)state;
    lost_with_ops(0);
    core_rig_simple(SC_EVENT_COMM_GONE, rig.epoch - 1);
    expect_state(SC_STATE_ABORTING);
}

static void health_says_draining_while_an_op_waits_behind_the_application(void **state) {
    (void)state;
    lost_with_ops(1);
    assert_int_equal(core_rig_view().draining, 1);
    core_rig_op(SC_EVENT_OP_STARTED, 1);
    assert_int_equal(core_rig_view().draining, 0);
}

// ---- the clock ----

static void the_abort_has_no_deadline_while_an_op_waits(void **state) {
    (void)state;
    lost_with_ops(1);
    core_rig_live(20 * abort_ns);
    expect_state(SC_STATE_ABORTING);
    core_rig_op(SC_EVENT_OP_STARTED, 1);
    core_rig_live(abort_ns - 1);
    expect_state(SC_STATE_ABORTING);
    core_rig_live(2);
    failed_with(SC_ABORT_STUCK);
}

static void the_abort_of_an_idle_epoch_is_timed_from_the_loss(void **state) {
    (void)state;
    lost_with_ops(0);
    core_rig_live(abort_ns - 1);
    expect_state(SC_STATE_ABORTING);
    core_rig_live(2);
    failed_with(SC_ABORT_STUCK);
    assert_int_equal(core_rig_view().cause.suspect, 0);
}

static void progress_starts_the_clock_anew(void **state) {
    (void)state;
    lost_with_ops(3);
    for (uint64_t op = 1; op <= 3; op++) {
        core_rig_op(SC_EVENT_OP_STARTED, op);
        core_rig_live(abort_ns - 1);
        expect_state(SC_STATE_ABORTING);
        core_rig_op(SC_EVENT_OP_DONE, op);
    }
    core_rig_live(abort_ns - 1);
    expect_state(SC_STATE_ABORTING);
    core_rig_live(2);
    failed_with(SC_ABORT_STUCK);
}

static void an_op_behind_a_stuck_one_on_another_stream_excuses_nothing(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_submit_on(RIG_STREAM);
    core_rig_submit_on(RIG_STREAM + 1);
    core_rig_op(SC_EVENT_OP_STARTED, 1);
    core_rig_comm_failed(SC_ASYNC_ERROR);
    core_rig_live(abort_ns + 1);
    failed_with(SC_ABORT_STUCK);
}

static void a_report_without_progress_leaves_the_clock_alone(void **state) {
    (void)state;
    lost_with_ops(1);
    core_rig_op(SC_EVENT_OP_STARTED, 1);
    core_rig_live(abort_ns / 2);
    core_rig_op_failed(1, SC_DEVICE_ERROR);
    core_rig_live(abort_ns / 2 + 1);
    failed_with(SC_ABORT_STUCK);
}

// ---- quarantine ----

static void an_abort_that_a_dead_peer_holds_up_is_given_up(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_link_down(rig.ranks[1].link);
    core_rig_wait(abort_ns);
    assert_int_equal(expect_action(SC_ACTION_COMM_ABANDON)->epoch, rig.epoch);
    expect_state(SC_STATE_RENDEZVOUS);
}

static void a_dead_peer_that_was_replaced_still_holds_it_up(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_comm_failed(SC_ASYNC_ERROR);
    core_rig_link_down(rig.ranks[1].link);
    rig.ranks[1] = (struct core_rig_rank){.incarnation = 5};
    core_rig_greet(1);
    while (core_rig_view().state == SC_STATE_ABORTING)
        core_rig_live(abort_ns);
    expect_state(SC_STATE_RENDEZVOUS);
}

static void a_peer_dead_elsewhere_holds_a_members_abort_up_too(void **state) {
    struct sc_frame news = {.kind = SC_FRAME_ABORT, .u.cause = {.code = SC_PEER_SILENT}};
    (void)state;
    ready(1, 3);
    core_rig_abort_from(0, rig.epoch, SC_ASYNC_ERROR);
    news.epoch = rig.epoch;
    news.u.cause.suspect = 2;
    core_rig_from(0, &news);
    core_rig_live(abort_ns + 1);
    (void)expect_action(SC_ACTION_COMM_ABANDON);
}

static void nothing_is_given_up_before_the_streams_have_drained(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_submit_on(RIG_STREAM);
    core_rig_op(SC_EVENT_OP_STARTED, 1);
    core_rig_link_down(rig.ranks[1].link);
    core_rig_wait(abort_ns);
    expect_no_action(SC_ACTION_COMM_ABANDON);
    failed_with(SC_ABORT_STUCK);
}

static void a_late_end_of_an_abandoned_communicator_is_ignored(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_link_down(rig.ranks[1].link);
    core_rig_wait(abort_ns);
    core_rig_clean();
    expect_quiet();
    expect_state(SC_STATE_RENDEZVOUS);
}

// ---- terminal ----

static void a_lost_context_fails_at_once_and_tells_the_peers(void **state) {
    (void)state;
    ready(0, 3);
    core_rig_submit_on(RIG_STREAM);
    core_rig_op_failed(1, SC_CONTEXT_LOST);
    failed_with(SC_CONTEXT_LOST);
    assert_int_equal(expect_frame(SC_FRAME_ABORT)->u.cause.code, SC_CONTEXT_LOST);
    assert_int_equal(expect_frame(SC_FRAME_BYE)->u.cause.code, SC_CONTEXT_LOST);
    assert_int_equal(core_rig_send_of(SC_FRAME_BYE)->mask, 6);
    assert_int_equal(expect_action(SC_ACTION_DROP)->mask, 6);
    assert_true(core_rig_index_of_frame(SC_FRAME_BYE) < core_rig_index(SC_ACTION_DROP));
}

static void a_context_lost_while_leaving_fails_at_once(void **state) {
    (void)state;
    lost_with_ops(1);
    core_rig_op_failed(1, SC_CONTEXT_LOST);
    failed_with(SC_CONTEXT_LOST);
    lost_with_ops(1);
    core_rig_comm_failed(SC_CONTEXT_LOST);
    failed_with(SC_CONTEXT_LOST);
}

static void the_links_of_a_failed_rank_are_forgotten(void **state) {
    (void)state;
    ready(0, 3);
    core_rig_comm_failed(SC_CONTEXT_LOST);
    core_rig_tick();
    assert_int_equal(sc_core_link_of(rig.core, 1), 0);
    assert_int_equal(sc_core_link_of(rig.core, 2), 0);
    assert_int_equal(sc_core_deadline(rig.core), SC_CORE_NEVER_NS);
}

static void in_a_failed_rank_no_epoch_lives_to_submit_in(void **state) {
    (void)state;
    ready(1, 2);
    core_rig_comm_failed(SC_CONTEXT_LOST);
    assert_int_equal(core_rig_submit_on(1), SC_EPOCH_LOST);
    expect_quiet();
}

static void peer_left_fails_a_clean_rank_at_once_and_others_when_clean(void **state) {
    (void)state;
    core_rig_open(0, 3);
    core_rig_rendezvous();
    core_rig_greet(1);
    core_rig_greet(2);
    core_rig_bye_from(1, SC_PEER_LEFT);
    failed_with(SC_PEER_LEFT);
    assert_int_equal(core_rig_view().cause.suspect, 1);
    assert_int_equal(expect_frame(SC_FRAME_BYE)->u.cause.code, SC_PEER_LEFT);
    assert_int_equal(core_rig_send_of(SC_FRAME_BYE)->mask, 1u << 2);
    ready(1, 2);
    core_rig_bye_from(0, SC_PEER_LEFT);
    expect_state(SC_STATE_ABORTING);
    core_rig_clean();
    failed_with(SC_PEER_LEFT);
}

static void any_other_bye_is_the_end_of_a_link_only(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_bye_from(1, SC_CLOSED);
    expect_state(SC_STATE_ABORTING);
    core_rig_clean();
    expect_state(SC_STATE_RENDEZVOUS);
}

// ---- close ----

static void closing_a_live_epoch_aborts_says_bye_and_waits_to_be_clean(void **state) {
    (void)state;
    for (int final = 0; final < 2; final++) {
        ready(0, 2);
        assert_int_equal(core_rig_close_core(final != 0), SC_OK);
        expect_state(SC_STATE_ABORTING);
        (void)expect_action(SC_ACTION_COMM_ABORT);
        const sc_status said = final != 0 ? SC_PEER_LEFT : SC_CLOSED;
        assert_int_equal(expect_frame(SC_FRAME_BYE)->u.cause.code, said);
        assert_true(core_rig_index_of_frame(SC_FRAME_ABORT) <
                    core_rig_index_of_frame(SC_FRAME_BYE));
        core_rig_clean();
        expect_state(SC_STATE_CLOSED);
        assert_int_equal(sc_core_deadline(rig.core), SC_CORE_NEVER_NS);
    }
}

static void close_is_legal_in_every_state(void **state) {
    (void)state;
    for (uint32_t rank = 0; rank < 2; rank++) {
        core_rig_open(rank, 2); // IDLE
        assert_int_equal(core_rig_close_core(true), SC_OK);
        expect_state(SC_STATE_CLOSED);
        core_rig_open(rank, 2);
        core_rig_rendezvous();
        assert_int_equal(core_rig_close_core(true), SC_OK);
        expect_state(SC_STATE_CLOSED);
        core_rig_open(rank, 2);
        core_rig_joining();
        assert_int_equal(core_rig_close_core(true), SC_OK);
        core_rig_clean();
        expect_state(SC_STATE_CLOSED);
        ready(rank, 2);
        core_rig_comm_failed(SC_ASYNC_ERROR);
        assert_int_equal(core_rig_close_core(true), SC_OK);
        core_rig_clean();
        expect_state(SC_STATE_CLOSED);
        ready(rank, 2);
        core_rig_comm_failed(SC_CONTEXT_LOST);
        assert_int_equal(core_rig_close_core(true), SC_OK);
        expect_state(SC_STATE_CLOSED);
    }
}

static void a_second_close_is_told(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_close_core(true);
    assert_int_equal(core_rig_close_core(true), SC_CLOSED);
    core_rig_clean();
    assert_int_equal(core_rig_close_core(false), SC_CLOSED);
    assert_int_equal(core_rig_submit_on(1), SC_CLOSED);
    expect_quiet();
}

static void closing_drops_the_dial_under_way(void **state) {
    (void)state;
    core_rig_open(1, 2);
    core_rig_start();
    core_rig_close_core(true);
    assert_int_equal(expect_action(SC_ACTION_DROP)->link, 0);
    core_rig_feed((struct sc_event){.type = SC_EVENT_LINK_UP, .u.link_up = {.link = 7}});
    assert_int_equal(expect_action(SC_ACTION_DROP)->link, 7);
}

static void a_closing_rank_dials_no_more(void **state) {
    (void)state;
    ready(1, 2);
    core_rig_submit_on(1); // holds CLOSED back
    core_rig_close_core(true);
    core_rig_link_down(rig.ranks[0].link);
    core_rig_wait(20 * RIG_SECOND);
    expect_no_action(SC_ACTION_DIAL);
}

static void a_close_whose_abort_is_stuck_ends_and_says_so(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_close_core(true);
    core_rig_live(abort_ns + 1);
    expect_state(SC_STATE_CLOSED);
    assert_int_equal(core_rig_view().cause.code, SC_ABORT_STUCK);
}

static void a_close_after_a_lost_context_ends(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_submit_on(1);
    core_rig_close_core(true);
    core_rig_op_failed(1, SC_CONTEXT_LOST);
    expect_state(SC_STATE_CLOSED);
}

static void a_close_after_a_quarantine_says_that_memory_may_still_be_touched(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_link_down(rig.ranks[1].link);
    core_rig_wait(abort_ns);
    (void)expect_action(SC_ACTION_COMM_ABANDON);
    core_rig_close_core(true);
    expect_state(SC_STATE_CLOSED);
    assert_int_equal(core_rig_view().cause.code, SC_ABORT_STUCK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clean_is_an_abort_that_returned_and_streams_that_drained),
        cmocka_unit_test(the_end_of_another_communicator_cleans_nothing),
        cmocka_unit_test(health_says_draining_while_an_op_waits_behind_the_application),
        cmocka_unit_test(the_abort_has_no_deadline_while_an_op_waits),
        cmocka_unit_test(the_abort_of_an_idle_epoch_is_timed_from_the_loss),
        cmocka_unit_test(progress_starts_the_clock_anew),
        cmocka_unit_test(an_op_behind_a_stuck_one_on_another_stream_excuses_nothing),
        cmocka_unit_test(a_report_without_progress_leaves_the_clock_alone),
        cmocka_unit_test(an_abort_that_a_dead_peer_holds_up_is_given_up),
        cmocka_unit_test(a_dead_peer_that_was_replaced_still_holds_it_up),
        cmocka_unit_test(a_peer_dead_elsewhere_holds_a_members_abort_up_too),
        cmocka_unit_test(nothing_is_given_up_before_the_streams_have_drained),
        cmocka_unit_test(a_late_end_of_an_abandoned_communicator_is_ignored),
        cmocka_unit_test(a_lost_context_fails_at_once_and_tells_the_peers),
        cmocka_unit_test(a_context_lost_while_leaving_fails_at_once),
        cmocka_unit_test(the_links_of_a_failed_rank_are_forgotten),
        cmocka_unit_test(in_a_failed_rank_no_epoch_lives_to_submit_in),
        cmocka_unit_test(peer_left_fails_a_clean_rank_at_once_and_others_when_clean),
        cmocka_unit_test(any_other_bye_is_the_end_of_a_link_only),
        cmocka_unit_test(closing_a_live_epoch_aborts_says_bye_and_waits_to_be_clean),
        cmocka_unit_test(close_is_legal_in_every_state),
        cmocka_unit_test(a_second_close_is_told),
        cmocka_unit_test(closing_drops_the_dial_under_way),
        cmocka_unit_test(a_closing_rank_dials_no_more),
        cmocka_unit_test(a_close_whose_abort_is_stuck_ends_and_says_so),
        cmocka_unit_test(a_close_after_a_lost_context_ends),
        cmocka_unit_test(a_close_after_a_quarantine_says_that_memory_may_still_be_touched),
    };
    return cmocka_run_group_tests(tests, NULL, core_rig_close);
}
