// SPDX-License-Identifier: AGPL-3.0-only
//
// Why an epoch ended, where an error of the communicator's came first.
#include "tests/support/core_rig.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void ready(uint32_t rank, uint32_t world) {
    core_rig_open(rank, world);
    core_rig_ready();
    core_rig_submit(SC_OP_ALL_REDUCE, 64);
    core_rig_submit(SC_OP_ALL_REDUCE, 32);
}

static void cause_is(sc_status code, uint32_t suspect) {
    const struct sc_core_view view = core_rig_view();
    assert_int_equal(view.cause.code, code);
    assert_int_equal(view.cause.suspect, suspect);
}

static void learned(sc_status code, uint32_t suspect) {
    assert_int_equal(expect_notice(SC_NOTICE_CAUSE)->status, code);
    assert_int_equal(expect_notice(SC_NOTICE_CAUSE)->rank, suspect);
    cause_is(code, suspect);
}

static void abort_with(uint32_t rank, struct sc_cause cause) {
    const struct sc_frame frame = {.kind = SC_FRAME_ABORT, .epoch = rig.epoch, .u.cause = cause};
    core_rig_from(rank, &frame);
}

// What a member says of itself once it has left.
static void left_ping(uint32_t rank, uint64_t submitted, uint64_t digest) {
    struct sc_frame ping = {.kind = SC_FRAME_PING, .epoch = rig.epoch};
    ping.u.ping =
        (struct sc_ping){.submitted = submitted, .digest = digest, .state = SC_STATE_ABORTING};
    core_rig_from(rank, &ping);
}

static void describe(uint32_t rank, uint64_t first, uint64_t bytes) {
    struct sc_frame frame = {.kind = SC_FRAME_DESCRIBE, .epoch = rig.epoch};
    frame.u.describe.first = first;
    frame.u.describe.count = 1;
    frame.u.describe.op[0] = (struct sc_op_desc){SC_OP_ALL_REDUCE, 0, bytes};
    core_rig_from(rank, &frame);
}

// ---- a peer that went without a word ----

static void an_error_is_explained_by_the_end_of_the_peer(void **state) {
    (void)state;
    for (uint32_t rank = 0; rank < 2; rank++) {
        ready(rank, 2);
        core_rig_comm_failed(SC_ASYNC_ERROR);
        cause_is(SC_ASYNC_ERROR, rank);
        core_rig_link_down(rig.ranks[1 - rank].link);
        learned(SC_PEER_DEAD, 1 - rank);
        assert_int_equal(core_rig_view().cause.seq, 1);
        expect_state(SC_STATE_ABORTING);
    }
}

static void an_error_is_explained_by_the_silence_of_the_peer(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_comm_failed(SC_ASYNC_ERROR);
    core_rig_op(SC_EVENT_OP_DONE, 1);
    core_rig_op(SC_EVENT_OP_DONE, 2);
    core_rig_clean();
    expect_state(SC_STATE_RENDEZVOUS);
    core_rig_wait(rig.config.timing.silence_ns);
    learned(SC_PEER_SILENT, 1);
}

static void a_peer_that_has_said_that_it_left_explains_nothing_by_going(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_comm_failed(SC_ASYNC_ERROR);
    core_rig_abort_from(1, rig.epoch, SC_ASYNC_ERROR);
    core_rig_link_down(rig.ranks[1].link);
    cause_is(SC_ASYNC_ERROR, 0);
}

static void a_cause_that_is_none_of_the_communicators_stands(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_op_failed(1, SC_DEVICE_ERROR);
    core_rig_link_down(rig.ranks[1].link);
    cause_is(SC_DEVICE_ERROR, 0);
}

static void the_coordinator_tells_the_others_what_it_learned(void **state) {
    (void)state;
    ready(0, 3);
    core_rig_abort_from(1, rig.epoch, SC_ASYNC_ERROR);
    cause_is(SC_ASYNC_ERROR, 1);
    core_rig_link_down(rig.ranks[2].link);
    learned(SC_PEER_DEAD, 2);
    assert_int_equal(core_rig_send_of(SC_FRAME_ABORT)->mask, 2);
    assert_int_equal(expect_frame(SC_FRAME_ABORT)->u.cause.code, SC_PEER_DEAD);
    assert_int_equal(expect_frame(SC_FRAME_ABORT)->u.cause.suspect, 2);
}

static void a_member_takes_the_coordinators_word(void **state) {
    (void)state;
    ready(1, 3);
    core_rig_comm_failed(SC_ASYNC_ERROR);
    abort_with(0, (struct sc_cause){.code = SC_ASYNC_ERROR, .suspect = 2});
    cause_is(SC_ASYNC_ERROR, 1);
    abort_with(0, (struct sc_cause){.code = SC_PEER_DEAD, .suspect = 2});
    learned(SC_PEER_DEAD, 2);
    abort_with(0, (struct sc_cause){.code = SC_PEER_SILENT, .suspect = 0}); // it is open no more
    cause_is(SC_PEER_DEAD, 2);
}

// ---- ranks that submitted different ops ----

static void an_error_is_explained_by_ops_that_differ(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_comm_failed(SC_ASYNC_ERROR);
    left_ping(1, 2, 12345);
    assert_int_equal(expect_frame(SC_FRAME_QUERY)->u.first, 1);
    describe(1, 1, 128);
    learned(SC_MISMATCH, 1);
    const struct sc_cause *told = &expect_frame(SC_FRAME_ABORT)->u.cause;
    assert_int_equal(told->code, SC_MISMATCH);
    assert_int_equal(told->seq, 1);
    assert_int_equal(told->op[0].bytes, 64);
    assert_int_equal(told->op[1].bytes, 128);
    expect_state(SC_STATE_ABORTING);
}

static void ops_that_are_alike_explain_nothing_and_agree_on_nothing(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_comm_failed(SC_ASYNC_ERROR);
    left_ping(1, 2, sc_core_ledger(rig.core)->digest);
    expect_quiet();
    assert_int_equal(core_rig_view().agreed, 0);
    cause_is(SC_ASYNC_ERROR, 0);
}

static void a_member_says_what_it_had_submitted_as_it_leaves_with_an_error(void **state) {
    (void)state;
    ready(1, 2);
    core_rig_comm_failed(SC_ASYNC_ERROR);
    const struct sc_ping *told = &expect_frame(SC_FRAME_PING)->u.ping;
    assert_int_equal(told->state, SC_STATE_ABORTING);
    assert_int_equal(told->submitted, 2);
    assert_int_equal(told->digest, sc_core_ledger(rig.core)->digest);
    struct sc_frame query = {.kind = SC_FRAME_QUERY, .epoch = rig.epoch, .u.first = 1};
    core_rig_from(0, &query);
    assert_int_equal(expect_frame(SC_FRAME_DESCRIBE)->u.describe.count, 2);
}

static void a_member_that_leaves_for_another_reason_says_nothing_of_it(void **state) {
    (void)state;
    ready(1, 2);
    core_rig_op_failed(1, SC_DEVICE_ERROR);
    expect_no_frame(SC_FRAME_PING);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_error_is_explained_by_the_end_of_the_peer),
        cmocka_unit_test(an_error_is_explained_by_the_silence_of_the_peer),
        cmocka_unit_test(a_peer_that_has_said_that_it_left_explains_nothing_by_going),
        cmocka_unit_test(a_cause_that_is_none_of_the_communicators_stands),
        cmocka_unit_test(the_coordinator_tells_the_others_what_it_learned),
        cmocka_unit_test(a_member_takes_the_coordinators_word),
        cmocka_unit_test(an_error_is_explained_by_ops_that_differ),
        cmocka_unit_test(ops_that_are_alike_explain_nothing_and_agree_on_nothing),
        cmocka_unit_test(a_member_says_what_it_had_submitted_as_it_leaves_with_an_error),
        cmocka_unit_test(a_member_that_leaves_for_another_reason_says_nothing_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, core_rig_close);
}
