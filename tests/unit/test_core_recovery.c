// SPDX-License-Identifier: AGPL-3.0-only
//
// The recovery record: why the epoch before ended, how long that took, and who is new.
#include "tests/support/core_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void ready(uint32_t rank, uint32_t world) {
    core_rig_open(rank, world);
    core_rig_ready();
}

static struct sc_recovery take(void) {
    struct sc_recovery recovery;
    memset(&recovery, 0, sizeof recovery);
    assert_int_equal(sc_core_take_recovery(rig.core, &recovery), SC_OK);
    return recovery;
}

static void there_is_no_record_outside_ready(void **state) {
    struct sc_recovery recovery;
    (void)state;
    core_rig_open(0, 2);
    assert_int_equal(sc_core_take_recovery(rig.core, &recovery), SC_STATE);
    core_rig_joining();
    assert_int_equal(sc_core_take_recovery(rig.core, &recovery), SC_STATE);
    ready(0, 2);
    core_rig_comm_failed(SC_ASYNC_ERROR);
    assert_int_equal(sc_core_take_recovery(rig.core, &recovery), SC_STATE);
}

static void the_first_epoch_has_no_cause_and_only_fresh_ranks(void **state) {
    (void)state;
    ready(0, 3);
    const struct sc_recovery first = take();
    assert_int_equal(first.epoch, rig.epoch);
    assert_int_equal(first.cause.code, SC_OK);
    assert_int_equal(first.world, 3);
    for (uint32_t r = 0; r < 3; r++)
        assert_int_equal(first.ranks[r].fresh, 1);
    assert_int_equal(first.ranks[2].incarnation, rig.ranks[2].incarnation);
    assert_int_equal(first.ranks[0].incarnation, core_rig_view().incarnation);
}

static void a_restarted_rank_is_fresh_and_the_others_are_not(void **state) {
    (void)state;
    ready(0, 3);
    (void)take();
    core_rig_link_down(rig.ranks[1].link);
    rig.ranks[1] = (struct core_rig_rank){.incarnation = 777};
    core_rig_recover();
    const struct sc_recovery second = take();
    assert_int_equal(second.cause.code, SC_PEER_DEAD);
    assert_int_equal(second.cause.suspect, 1);
    assert_int_equal(second.ranks[0].fresh, 0);
    assert_int_equal(second.ranks[1].fresh, 1);
    assert_int_equal(second.ranks[1].incarnation, 777);
    assert_int_equal(second.ranks[1].ready_epoch, 0);
    assert_int_equal(second.ranks[2].fresh, 0);
    assert_int_equal(take().ranks[1].fresh, 0); // it has been told
}

static void a_double_fault_hides_no_restart(void **state) {
    (void)state;
    ready(0, 2);
    (void)take();
    core_rig_link_down(rig.ranks[1].link);
    rig.ranks[1] = (struct core_rig_rank){.incarnation = 777};
    core_rig_recover(); // nobody reads this record
    core_rig_comm_failed(SC_ASYNC_ERROR);
    core_rig_recover();
    assert_int_equal(take().ranks[1].fresh, 1);
}

static void a_member_is_told_by_the_offer(void **state) {
    struct sc_frame offer;
    (void)state;
    core_rig_open(1, 2);
    core_rig_rendezvous();
    offer = core_rig_offer(rig.epoch += UINT64_C(1) << 24);
    offer.u.offer.cause.code = SC_PEER_SILENT;
    offer.u.offer.cause.suspect = 1;
    offer.u.offer.phases.agree_ns = 12;
    offer.u.offer.ranks[0].completed = 5;
    offer.u.offer.ranks[1].incarnation = core_rig_view().incarnation;
    core_rig_from(0, &offer);
    core_rig_simple(SC_EVENT_COMM_READY, rig.epoch);
    core_rig_plain(0, SC_FRAME_GO, rig.epoch);
    const struct sc_recovery told = take();
    assert_int_equal(told.cause.code, SC_PEER_SILENT);
    assert_int_equal(told.phases.agree_ns, 12);
    assert_int_equal(told.ranks[0].completed, 5);
    assert_int_equal(told.ranks[0].incarnation, rig.ranks[0].incarnation);
}

// It knows of no epoch before its own first, and offers no cause.
static void a_coordinator_started_anew_leaves_each_member_its_own_cause(void **state) {
    (void)state;
    ready(1, 2);
    core_rig_link_down(rig.ranks[0].link);
    rig.ranks[0] = (struct core_rig_rank){.incarnation = 777};
    core_rig_recover();
    const struct sc_recovery second = take();
    assert_int_equal(second.cause.code, SC_PEER_DEAD);
    assert_int_equal(second.cause.suspect, 0);
}

static void the_phases_add_up_to_what_was_waited(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_abort_from(1, rig.epoch, SC_FABRIC);
    const uint64_t left = rig.now_ns;
    rig.now_ns += 30 * RIG_MS;
    core_rig_clean();
    const uint64_t clean = rig.now_ns;
    rig.now_ns += 200 * RIG_MS;
    const struct sc_frame hello = core_rig_hello(1);
    core_rig_from(1, &hello);
    core_rig_comm_id(SC_OK);
    const uint64_t offered = rig.now_ns;
    rig.now_ns += 5 * RIG_MS;
    core_rig_feed((struct sc_event){.type = SC_EVENT_COMM_READY,
                                    .epoch = rig.epoch,
                                    .u.comm_ready = {.formed_ns = offered + 3 * RIG_MS}});
    core_rig_plain(1, SC_FRAME_JOINED, rig.epoch);
    const struct sc_phases phases = take().phases;
    assert_int_equal(phases.detect_ns, 0); // told at once
    assert_int_equal(phases.agree_ns, 0);
    assert_int_equal(phases.abort_ns, clean - left);
    assert_int_equal(phases.wait_ns, offered - clean);
    assert_int_equal(phases.form_ns, 3 * RIG_MS);
    assert_int_equal(phases.warmup_ns, rig.now_ns - offered - 3 * RIG_MS);
}

static void silence_tells_how_long_it_took_to_notice(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_ping_from(1, 0, 0, 0, 0);
    core_rig_wait(rig.config.timing.silence_ns);
    expect_state(SC_STATE_ABORTING);
    rig.ranks[1] = (struct core_rig_rank){.incarnation = 777};
    core_rig_recover();
    assert_int_equal(take().phases.detect_ns, rig.config.timing.silence_ns);
}

static void agreeing_ends_when_the_last_peer_is_known_to_have_left(void **state) {
    (void)state;
    ready(0, 3);
    core_rig_comm_failed(SC_ASYNC_ERROR);
    const uint64_t left = rig.now_ns;
    core_rig_abort_from(1, rig.epoch, SC_ASYNC_ERROR);
    rig.now_ns += 2 * RIG_MS;
    core_rig_abort_from(2, rig.epoch, SC_ASYNC_ERROR);
    const uint64_t known = rig.now_ns;
    core_rig_recover();
    assert_int_equal(take().phases.agree_ns, known - left);
}

static void a_clock_of_the_device_never_makes_a_duration_negative(void **state) {
    static const int64_t skews[] = {-5000000, 5000000};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        core_rig_open(0, 2);
        core_rig_joining();
        const uint64_t formed = rig.now_ns + (uint64_t)skews[i];
        core_rig_feed((struct sc_event){.type = SC_EVENT_COMM_READY,
                                        .epoch = rig.epoch,
                                        .u.comm_ready = {.formed_ns = formed}});
        core_rig_plain(1, SC_FRAME_JOINED, rig.epoch);
        const struct sc_phases phases = take().phases;
        assert_true(phases.form_ns <= RIG_MS);
        assert_true(phases.warmup_ns <= RIG_MS);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_is_no_record_outside_ready),
        cmocka_unit_test(the_first_epoch_has_no_cause_and_only_fresh_ranks),
        cmocka_unit_test(a_restarted_rank_is_fresh_and_the_others_are_not),
        cmocka_unit_test(a_double_fault_hides_no_restart),
        cmocka_unit_test(a_member_is_told_by_the_offer),
        cmocka_unit_test(a_coordinator_started_anew_leaves_each_member_its_own_cause),
        cmocka_unit_test(the_phases_add_up_to_what_was_waited),
        cmocka_unit_test(silence_tells_how_long_it_took_to_notice),
        cmocka_unit_test(agreeing_ends_when_the_last_peer_is_known_to_have_left),
        cmocka_unit_test(a_clock_of_the_device_never_makes_a_duration_negative),
    };
    return cmocka_run_group_tests(tests, NULL, core_rig_close);
}
