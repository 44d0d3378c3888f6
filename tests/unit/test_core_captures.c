// SPDX-License-Identifier: AGPL-3.0-only
//
// Captures and graphs while an epoch is left: what the abort waits for, and what it must not wait for.
#include "tests/support/core_rig.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static uint64_t abort_ns;

static void ready(uint32_t rank, uint32_t world) {
    core_rig_open(rank, world);
    core_rig_ready();
    abort_ns = rig.config.timing.abort_ns;
}

static void captures_hold_the_abort_back_untimed_and_visibly(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_captures(2);
    core_rig_comm_failed(SC_ASYNC_ERROR);
    expect_no_action(SC_ACTION_COMM_ABORT);
    assert_int_equal(expect_notice(SC_NOTICE_CAPTURES)->a, 2);
    assert_int_equal(core_rig_view().captures, 2);
    core_rig_live(20 * abort_ns);
    expect_state(SC_STATE_ABORTING);
    core_rig_captures(1);
    expect_no_action(SC_ACTION_COMM_ABORT);
    core_rig_captures(0);
    (void)expect_action(SC_ACTION_COMM_ABORT);
    core_rig_clean();
    expect_state(SC_STATE_RENDEZVOUS);
}

static void graphs(uint32_t held, uint32_t living) {
    core_rig_feed((struct sc_event){.type = SC_EVENT_CAPTURES, .u.captures = {held, living}});
}

// One that was destroyed while its kernels ran goes only when the abort has ended them.
static void graphs_that_outlive_their_release_do_not_hold_the_abort_back(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_submit_on(1);
    core_rig_captures(1);
    core_rig_comm_failed(SC_ASYNC_ERROR);
    graphs(0, 1);
    (void)expect_action(SC_ACTION_COMM_ABORT);
    assert_int_equal(core_rig_view().captures, 1);
    core_rig_op(SC_EVENT_OP_DONE, 1);
    graphs(0, 0);
    core_rig_clean();
    expect_state(SC_STATE_RENDEZVOUS);
}

static void graphs_that_run_no_more_hold_the_abort_back(void **state) {
    (void)state;
    ready(0, 2);
    graphs(0, 1);
    core_rig_comm_failed(SC_ASYNC_ERROR);
    expect_no_action(SC_ACTION_COMM_ABORT);
    assert_int_equal(expect_notice(SC_NOTICE_CAPTURES)->a, 1);
    core_rig_live(20 * abort_ns);
    expect_state(SC_STATE_ABORTING);
    graphs(0, 0);
    (void)expect_action(SC_ACTION_COMM_ABORT);
}

static void graphs_that_are_kept_after_their_release_make_no_abort_stuck(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_submit_on(1);
    graphs(0, 2);
    core_rig_comm_failed(SC_ASYNC_ERROR);
    core_rig_op(SC_EVENT_OP_DONE, 1);
    for (uint32_t i = 0; i < 3; i++) {
        rig.now_ns += abort_ns;
        core_rig_ping_from(1, 0, 0, 0, 0);
        core_rig_tick();
        assert_int_equal(expect_notice(SC_NOTICE_CAPTURES)->a, 2);
        expect_state(SC_STATE_ABORTING);
    }
    graphs(0, 0);
    core_rig_live(abort_ns + RIG_MS);
    expect_state(SC_STATE_FAILED);
    assert_int_equal(core_rig_view().cause.code, SC_ABORT_STUCK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(captures_hold_the_abort_back_untimed_and_visibly),
        cmocka_unit_test(graphs_that_outlive_their_release_do_not_hold_the_abort_back),
        cmocka_unit_test(graphs_that_run_no_more_hold_the_abort_back),
        cmocka_unit_test(graphs_that_are_kept_after_their_release_make_no_abort_stuck),
    };
    return cmocka_run_group_tests(tests, NULL, core_rig_close);
}
