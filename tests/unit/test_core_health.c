// SPDX-License-Identifier: AGPL-3.0-only
//
// Time as evidence: heartbeats, silence, and the clock of an op that every rank has started.
#include "tests/support/core_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void ready_with(uint32_t rank, uint32_t world, uint64_t behind_ns) {
    struct sc_core_config config = core_rig_config(rank, world);
    config.timing.behind_ns = behind_ns;
    core_rig_open_config(&config, 7);
    core_rig_ready();
}

static void ready(uint32_t rank, uint32_t world) {
    ready_with(rank, world, 0);
}

static void submit_and_start(void) {
    core_rig_submit_on(RIG_STREAM);
    core_rig_op(SC_EVENT_OP_STARTED, sc_core_ledger(rig.core)->next_number - 1);
}

// So long with everybody alive, and no further than that.
static void live_in_epoch(uint64_t ns, uint64_t submitted, uint64_t started) {
    const uint64_t end = rig.now_ns + ns;
    while (rig.now_ns < end && core_rig_view().state == SC_STATE_READY) {
        for (uint32_t r = 0; r < rig.config.world; r++)
            if (sc_core_link_of(rig.core, r) != 0)
                core_rig_ping_from(r, submitted, started, sc_core_ledger(rig.core)->digest, 0);
        const uint64_t left = end - rig.now_ns;
        core_rig_wait(left < 50 * RIG_MS ? left : 50 * RIG_MS);
    }
}

// ---- heartbeats ----

static void a_ping_goes_out_every_heartbeat(enum sc_state state) {
    expect_state(state);
    core_rig_wait(rig.config.timing.heartbeat_ns);
    (void)expect_frame(SC_FRAME_PING);
    assert_int_equal(expect_frame(SC_FRAME_PING)->u.ping.state, state);
    core_rig_wait(rig.config.timing.heartbeat_ns - 1);
    expect_no_frame(SC_FRAME_PING);
    assert_int_equal(sc_core_deadline(rig.core), rig.now_ns + 1);
    core_rig_wait(1);
    (void)expect_frame(SC_FRAME_PING);
}

static void pings_flow_in_every_state_from_the_greeting_on(void **state) {
    struct sc_core_config config = core_rig_config(1, 2);
    (void)state;
    config.hold = 1;
    core_rig_open_config(&config, 1);
    core_rig_rendezvous();
    a_ping_goes_out_every_heartbeat(SC_STATE_IDLE);
    core_rig_open(1, 2);
    core_rig_rendezvous();
    a_ping_goes_out_every_heartbeat(SC_STATE_RENDEZVOUS);
    for (uint32_t rank = 0; rank < 2; rank++) {
        core_rig_open(rank, 2);
        core_rig_joining();
        a_ping_goes_out_every_heartbeat(SC_STATE_JOINING);
        ready(rank, 2);
        a_ping_goes_out_every_heartbeat(SC_STATE_READY);
        core_rig_comm_failed(SC_ASYNC_ERROR);
        a_ping_goes_out_every_heartbeat(SC_STATE_ABORTING);
    }
}

static void nobody_greeted_gets_no_ping(void **state) {
    (void)state;
    core_rig_open(0, 2);
    core_rig_start();
    core_rig_accept();
    core_rig_wait(RIG_SECOND);
    expect_no_frame(SC_FRAME_PING);
}

static void a_ping_says_how_far_this_rank_is(void **state) {
    (void)state;
    ready(1, 2);
    submit_and_start();
    submit_and_start();
    core_rig_submit_on(RIG_STREAM);
    core_rig_op(SC_EVENT_OP_DONE, 1);
    core_rig_wait(rig.config.timing.heartbeat_ns);
    const struct sc_ping *ping = &expect_frame(SC_FRAME_PING)->u.ping;
    assert_int_equal(expect_frame(SC_FRAME_PING)->epoch, rig.epoch);
    assert_int_equal(ping->submitted, 3);
    assert_int_equal(ping->started, 2);
    assert_int_equal(ping->completed, 1);
    assert_int_equal(ping->digest, sc_core_ledger(rig.core)->digest);
    assert_int_equal(ping->loading, 0);
}

static void silence_drops_a_link_in_every_state(void **state) {
    (void)state;
    for (int joining = 0; joining < 2; joining++) {
        core_rig_open(0, 3);
        if (joining)
            core_rig_joining();
        else
            core_rig_rendezvous();
        if (!joining)
            core_rig_greet(1);
        core_rig_wait(rig.config.timing.silence_ns);
        assert_int_equal(expect_action(SC_ACTION_DROP)->link, rig.ranks[1].link);
        assert_int_equal(sc_core_link_of(rig.core, 1), 0);
    }
    expect_state(SC_STATE_ABORTING);
}

static void any_frame_ends_the_silence(void **state) {
    (void)state;
    ready(0, 2);
    for (int i = 0; i < 5; i++) {
        core_rig_wait(rig.config.timing.silence_ns - RIG_MS);
        core_rig_plain(1, SC_FRAME_DESCRIBE, rig.epoch - 1);
    }
    expect_state(SC_STATE_READY);
}

static void silence_is_counted_for_each_peer(void **state) {
    (void)state;
    ready(0, 3);
    core_rig_wait(rig.config.timing.silence_ns / 2);
    core_rig_ping_from(1, 0, 0, 0, 0);
    core_rig_wait(rig.config.timing.silence_ns / 2 + RIG_MS);
    expect_state(SC_STATE_ABORTING);
    assert_int_equal(core_rig_view().cause.suspect, 2);
    assert_int_equal(core_rig_send_of(SC_FRAME_ABORT)->mask, 2);
}

// ---- op clocks ----

static void with_no_op_in_flight_nothing_times_out(void **state) {
    (void)state;
    for (uint32_t rank = 0; rank < 2; rank++) {
        ready_with(rank, 2, 5 * RIG_SECOND);
        live_in_epoch(600 * RIG_SECOND, 0, 0);
        expect_state(SC_STATE_READY);
    }
}

static void an_op_that_all_have_started_is_the_fabrics_after_its_limit(void **state) {
    (void)state;
    ready(0, 3);
    submit_and_start();
    live_in_epoch(5 * RIG_SECOND, 1, 0); // no clock runs before the others have started
    core_rig_ping_from(1, 1, 1, sc_core_ledger(rig.core)->digest, 0);
    core_rig_ping_from(2, 1, 1, sc_core_ledger(rig.core)->digest, 0);
    const uint64_t since = rig.now_ns;
    live_in_epoch(rig.config.timing.op_ns - RIG_MS, 1, 1);
    expect_state(SC_STATE_READY);
    live_in_epoch(2 * RIG_MS, 1, 1);
    expect_state(SC_STATE_ABORTING);
    assert_int_equal(core_rig_view().cause.code, SC_FABRIC);
    assert_int_equal(core_rig_view().cause.seq, 1);
    assert_in_range(rig.now_ns - since, rig.config.timing.op_ns,
                    rig.config.timing.op_ns + 2 * RIG_MS);
}

static void a_member_learns_from_the_coordinator_that_all_have_started(void **state) {
    struct sc_frame ping = {.kind = SC_FRAME_PING};
    (void)state;
    ready(1, 2);
    submit_and_start();
    live_in_epoch(2 * rig.config.timing.op_ns, 1, 1);
    expect_state(SC_STATE_READY); // the coordinator's own start is not that of all
    ping.epoch = rig.epoch;
    ping.u.ping =
        (struct sc_ping){.submitted = 1, .started = 1, .all_started = 1, .state = SC_STATE_READY};
    core_rig_from(0, &ping);
    live_in_epoch(rig.config.timing.op_ns, 1, 1);
    expect_state(SC_STATE_ABORTING);
    assert_int_equal(core_rig_view().cause.code, SC_FABRIC);
}

static void the_coordinator_tells_what_all_have_started_though_it_is_done_itself(void **state) {
    (void)state;
    ready(0, 2);
    submit_and_start();
    core_rig_op(SC_EVENT_OP_DONE, 1);
    core_rig_ping_from(1, 1, 1, sc_core_ledger(rig.core)->digest, 0);
    core_rig_wait(rig.config.timing.heartbeat_ns);
    assert_int_equal(expect_frame(SC_FRAME_PING)->u.ping.all_started, 1);
}

static void the_limit_counts_for_each_op_anew(void **state) {
    (void)state;
    ready(0, 2);
    for (uint64_t op = 1; op <= 3; op++) {
        submit_and_start();
        live_in_epoch(rig.config.timing.op_ns - RIG_SECOND, op, op);
        core_rig_op(SC_EVENT_OP_DONE, op);
        expect_state(SC_STATE_READY);
    }
}

static void an_op_behind_the_applications_own_work_has_no_clock(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_submit_on(RIG_STREAM);
    live_in_epoch(4 * rig.config.timing.op_ns, 1, 1);
    expect_state(SC_STATE_READY);
}

static void a_slow_peer_is_not_a_dead_one(void **state) {
    (void)state;
    ready(0, 2);
    submit_and_start();
    live_in_epoch(10 * rig.config.timing.op_ns, 0, 0);
    expect_state(SC_STATE_READY);
}

static void a_peer_that_does_not_start_is_behind_after_the_limit_if_there_is_one(void **state) {
    (void)state;
    ready_with(0, 3, 5 * RIG_SECOND);
    submit_and_start();
    while (core_rig_view().state == SC_STATE_READY) {
        core_rig_ping_from(1, 1, 1, sc_core_ledger(rig.core)->digest, 0);
        core_rig_ping_from(2, 0, 0, 0, 0);
        core_rig_wait(100 * RIG_MS);
    }
    assert_int_equal(core_rig_view().cause.code, SC_PEER_BEHIND);
    assert_int_equal(core_rig_view().cause.suspect, 2);
    assert_int_equal(core_rig_view().cause.seq, 1);
}

static void a_member_names_the_coordinator_that_is_behind(void **state) {
    (void)state;
    ready_with(1, 2, 5 * RIG_SECOND);
    submit_and_start();
    live_in_epoch(6 * RIG_SECOND, 0, 0);
    expect_state(SC_STATE_ABORTING);
    assert_int_equal(core_rig_view().cause.code, SC_PEER_BEHIND);
    assert_int_equal(core_rig_view().cause.suspect, 0);
}

// ---- pairs ----

static void ping_with_pair(uint32_t rank, struct sc_pair pair) {
    struct sc_frame ping = {.kind = SC_FRAME_PING, .epoch = rig.epoch};
    ping.u.ping = (struct sc_ping){.pair = pair, .state = SC_STATE_READY};
    core_rig_from(rank, &ping);
}

static void live_with_pair(uint64_t ns, struct sc_pair theirs) {
    for (uint64_t gone = 0; gone < ns && core_rig_view().state == SC_STATE_READY;
         gone += 100 * RIG_MS) {
        ping_with_pair(1, theirs);
        core_rig_wait(100 * RIG_MS);
    }
}

static void start_a_send_to_rank_1(void) {
    core_rig_feed(
        (struct sc_event){.type = SC_EVENT_OP_SUBMIT,
                          .epoch = rig.epoch,
                          .u.submit = {.desc = {SC_OP_SEND, 1, 64}, .place = {2, 2, RIG_STREAM}}});
    core_rig_op(SC_EVENT_OP_STARTED, 1);
}

static void a_send_whose_recv_has_started_is_the_fabrics_after_its_limit(void **state) {
    (void)state;
    ready(0, 2);
    start_a_send_to_rank_1();
    live_with_pair(rig.config.timing.op_ns + RIG_SECOND, (struct sc_pair){0, 1, 1});
    expect_state(SC_STATE_ABORTING);
    assert_int_equal(core_rig_view().cause.code, SC_FABRIC);
}

static void a_send_that_nobody_receives_yet_has_no_clock(void **state) {
    static const struct sc_pair others[] = {{0, 0, 0}, {0, 1, 2}, {1, 0, 1}, {0, 63, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        ready(0, 2);
        start_a_send_to_rank_1();
        live_with_pair(2 * rig.config.timing.op_ns, others[i]);
        expect_state(SC_STATE_READY);
    }
}

// ---- missing ----

static void after_the_join_budget_the_missing_ranks_are_named_once(void **state) {
    struct sc_core_config config = core_rig_config(0, 4);
    (void)state;
    config.join_ns = RIG_SECOND;
    core_rig_open_config(&config, 1);
    core_rig_rendezvous();
    core_rig_greet(2);
    core_rig_wait(RIG_SECOND);
    assert_int_equal(expect_notice(SC_NOTICE_MISSING)->mask, 0xa);
    expect_state(SC_STATE_RENDEZVOUS); // it goes on trying
    core_rig_wait(RIG_SECOND);
    for (uint32_t i = 0; i < rig.last.count; i++)
        assert_true(rig.last.list[i].type != SC_ACTION_NOTIFY ||
                    rig.last.list[i].kind != SC_NOTICE_MISSING);
}

static void in_a_live_epoch_nobody_is_missing(void **state) {
    struct sc_core_config config = core_rig_config(0, 2);
    (void)state;
    config.join_ns = RIG_SECOND;
    core_rig_open_config(&config, 1);
    core_rig_ready();
    core_rig_wait(RIG_SECOND);
    assert_int_equal(core_rig_index(SC_ACTION_NOTIFY), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pings_flow_in_every_state_from_the_greeting_on),
        cmocka_unit_test(nobody_greeted_gets_no_ping),
        cmocka_unit_test(a_ping_says_how_far_this_rank_is),
        cmocka_unit_test(silence_drops_a_link_in_every_state),
        cmocka_unit_test(any_frame_ends_the_silence),
        cmocka_unit_test(silence_is_counted_for_each_peer),
        cmocka_unit_test(with_no_op_in_flight_nothing_times_out),
        cmocka_unit_test(an_op_that_all_have_started_is_the_fabrics_after_its_limit),
        cmocka_unit_test(a_member_learns_from_the_coordinator_that_all_have_started),
        cmocka_unit_test(the_coordinator_tells_what_all_have_started_though_it_is_done_itself),
        cmocka_unit_test(the_limit_counts_for_each_op_anew),
        cmocka_unit_test(an_op_behind_the_applications_own_work_has_no_clock),
        cmocka_unit_test(a_slow_peer_is_not_a_dead_one),
        cmocka_unit_test(a_peer_that_does_not_start_is_behind_after_the_limit_if_there_is_one),
        cmocka_unit_test(a_member_names_the_coordinator_that_is_behind),
        cmocka_unit_test(a_send_whose_recv_has_started_is_the_fabrics_after_its_limit),
        cmocka_unit_test(a_send_that_nobody_receives_yet_has_no_clock),
        cmocka_unit_test(after_the_join_budget_the_missing_ranks_are_named_once),
        cmocka_unit_test(in_a_live_epoch_nobody_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, core_rig_close);
}
