// SPDX-License-Identifier: AGPL-3.0-only
//
// Recovery: from a loss to the next epoch, with nothing leaked and nothing done twice.
#include "core/frame.h"
#include "tests/support/rig.h"

#define MS RIG_MS
#define SECOND RIG_SECOND
#define BYTES 4096u
#define ONE 0x3F80u
#define TWO 0x4000u

static void expect_traffic(struct rig *rig) {
    uint64_t addresses[2];
    struct rig_op ops[2];
    for (uint32_t r = 0; r < 2; r++) {
        addresses[r] = rig_alloc(rig, r, BYTES);
        rig_fill(rig, r, addresses[r], BYTES / 2, ONE);
        ops[r] = rig_all_reduce(rig, r, addresses[r], BYTES, 0);
    }
    rig_until(rig, SECOND, rig_is_done(rig, 0, &ops[0]) && rig_is_done(rig, 1, &ops[1]));
    for (uint32_t r = 0; r < 2; r++)
        rig_expect_all(rig, r, addresses[r], BYTES / 2, TWO);
}

static size_t challenge_bytes(void) {
    const struct sc_frame challenge = {.kind = SC_FRAME_CHALLENGE};
    uint8_t bytes[SC_GREETING_MAX_BYTES];
    return sc_frame_encode(&challenge, bytes, sizeof bytes);
}

// ---- r1, r2 ----

static void an_absent_rank_is_waited_for_with_one_abort_r1(void **state) {
    struct rig *rig = rig_start_world(2);
    (void)state;
    uint64_t epoch = rig_epoch(rig, 0);
    for (uint32_t r = 0; r < 2; r++)
        rig_inject(rig, (struct sc_sim_fault){.kind = SC_SIM_async_error, .a = r});
    rig_until(rig, MS, rig_state(rig, 0) == SC_STATE_ABORTING);
    rig_kill(rig, 1);
    rig_run(rig, 300 * SECOND);
    assert_int_equal(rig_state(rig, 0), SC_STATE_RENDEZVOUS);
    assert_int_equal(rig_held(rig, 0).communicators, 0); // the handle was forgotten
    assert_int_equal(rig_calls(rig, 0, SC_VERB_comm_abort), 1);
    assert_int_equal(rig_calls(rig, 0, SC_VERB_comm_create), 1);
    assert_int_equal(rig_spawn(rig, 1, NULL), SC_OK);
    rig_until(rig, 2 * SECOND, rig_is_ready_after(rig, epoch));
    assert_int_equal(rig_view(rig, 0).recoveries, 1);
    assert_int_equal(rig_calls(rig, 0, SC_VERB_comm_abort), 1);
    assert_int_equal(rig_calls(rig, 0, SC_VERB_comm_create), 2);
    expect_traffic(rig);
    rig_close(rig);
}

static void an_error_on_one_rank_is_told_to_the_other_at_once_r2(void **state) {
    (void)state;
    for (uint32_t broken = 0; broken < 2; broken++) {
        struct rig *rig = rig_start_world(2);
        uint64_t epoch = rig_epoch(rig, 0);
        rig_inject(rig, (struct sc_sim_fault){.kind = SC_SIM_async_error, .a = broken});
        rig_until(rig, MS,
                  rig_state(rig, 0) == SC_STATE_ABORTING && rig_state(rig, 1) == SC_STATE_ABORTING);
        rig_expect_cause(rig, 0, SC_ASYNC_ERROR, broken);
        rig_expect_cause(rig, 1, SC_ASYNC_ERROR, broken);
        rig_until(rig, 5 * SECOND, rig_is_ready_after(rig, epoch));
        expect_traffic(rig);
        rig_close(rig);
    }
}

static void a_replayed_hello_of_an_old_epoch_gets_no_more_than_a_challenge_r2(void **state) {
    struct rig *rig = rig_start_world(2);
    struct sc_recovery record;
    (void)state;
    uint64_t first = rig_epoch(rig, 0);
    rig_inject(rig, (struct sc_sim_fault){.kind = SC_SIM_async_error, .a = 0});
    rig_until(rig, 5 * SECOND, rig_is_ready_after(rig, first));
    uint64_t second = rig_epoch(rig, 0);
    assert_int_equal(sc_pump_take_recovery(rig->ranks[0].pump, &record), SC_OK);
    rig_run(rig, 5 * SECOND);
    uint32_t greeted = rig_notices(rig, 0, SC_NOTICE_GREETED);
    rig_inject(rig, (struct sc_sim_fault){
                        .kind = SC_SIM_stranger_replay, .a = 1, .duration_ns = 10 * SECOND});
    rig_run(rig, 20 * SECOND);
    assert_in_range(sc_sim_stranger_bytes(rig->sim), 1, challenge_bytes());
    assert_int_equal(rig_notices(rig, 0, SC_NOTICE_GREETED), greeted);
    assert_true(rig_is_ready(rig));
    assert_int_equal(rig_epoch(rig, 1), second);
    expect_traffic(rig);
    rig_close(rig);
}

// ---- r5: 500 recoveries ----

static void five_hundred_recoveries_leave_every_count_flat_r5(void **state) {
    struct rig_config config = rig_config(2);
    struct sc_sim_held flat[2];
    (void)state;
    config.sim.comm_init = (struct sc_sim_span){MS, 2 * MS};
    config.core.backoff_max_ns = 100 * MS;
    struct rig *rig = rig_start(&config);
    for (uint32_t r = 0; r < 2; r++)
        for (uint32_t i = 0; i < 3; i++)
            assert_int_equal(sc_pump_register(rig->ranks[r].pump, rig_alloc(rig, r, BYTES), BYTES),
                             SC_OK);
    for (uint32_t i = 1; i <= 500; i++) {
        uint64_t epoch = rig_epoch(rig, 0), calls[2];
        for (uint32_t r = 0; r < 2; r++)
            calls[r] = rig_calls(rig, r, SC_VERB_buf_register);
        rig_reconnect(rig, i % 2);
        rig_until(rig, 5 * SECOND, rig_is_ready_after(rig, epoch));
        for (uint32_t r = 0; r < 2; r++) {
            struct sc_sim_held held = rig_held(rig, r);
            if (i == 3)
                flat[r] = held;
            if (i >= 3)
                assert_memory_equal(&held, &flat[r], sizeof held);
            assert_int_equal(held.registrations, 4); // the three, and the receive buffer
            assert_int_equal(rig_calls(rig, r, SC_VERB_buf_register), calls[r] + 4);
        }
    }
    assert_int_equal(rig_view(rig, 0).recoveries, 500);
    assert_int_equal(rig_calls(rig, 0, SC_VERB_comm_id), 501);
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(rig_calls(rig, r, SC_VERB_comm_create), 501);
        assert_int_equal(rig_calls(rig, r, SC_VERB_comm_abort), 500);
    }
    expect_traffic(rig);
    rig_close(rig);
}

// ---- r6: what fails while forming ----

static const struct sc_sim_fault no_memory = {
    .kind = SC_SIM_verb_fails, .a = 1, .verb = SC_VERB_mem_alloc, .nth = 1, .status = SC_NO_MEMORY};

static void an_open_without_memory_contacts_no_peer_and_keeps_nothing_r6(void **state) {
    const struct rig_config config = rig_config(2);
    struct rig *rig = rig_create(&config);
    char leaks[256];
    (void)state;
    assert_int_equal(rig_spawn(rig, 0, NULL), SC_OK);
    assert_int_equal(rig_spawn(rig, 1, &no_memory), SC_NO_MEMORY);
    assert_non_null(strstr(rig->why, "receive buffer"));
    assert_null(rig->ranks[1].pump);
    const struct sc_sim_held nothing = {0};
    struct sc_sim_held held = rig_held(rig, 1);
    assert_memory_equal(&held, &nothing, sizeof held);
    assert_int_equal(sc_hal_check_leaks(rig->ranks[1].check, leaks, sizeof leaks), 0);
    rig_run(rig, 5 * SECOND);
    assert_int_equal(rig_notices(rig, 0, SC_NOTICE_GREETED), 0);
    assert_int_equal(rig_notices(rig, 0, SC_NOTICE_REFUSED), 0);
    assert_int_equal(rig_held(rig, 0).links, 0);
    assert_int_equal(rig_held(rig, 0).listeners, 1);
    rig_kill(rig, 1);
    assert_int_equal(rig_spawn(rig, 1, NULL), SC_OK);
    rig_until(rig, 2 * SECOND, rig_is_ready(rig));
    rig_close(rig);
}

// The first communicator of a rank fails as `fault` says: everybody leaves JOINING within a second
// of it, and the next attempt, of a later epoch, succeeds with nothing kept of the first.
static void expect_next_attempt(struct sc_sim_fault fault, sc_status code) {
    const struct rig_config config = rig_config(2);
    for (fault.a = 0; fault.a < 2; fault.a++) {
        struct rig *rig = rig_create(&config);
        for (uint32_t r = 0; r < 2; r++)
            assert_int_equal(rig_spawn(rig, r, r == fault.a ? &fault : NULL), SC_OK);
        rig_until(rig, SECOND, rig_change(rig, 0, SC_STATE_JOINING) != NULL);
        uint64_t failed = rig_change(rig, 0, SC_STATE_JOINING)->notice.epoch;
        rig_until(rig, SECOND, rig_change(rig, 0, SC_STATE_ABORTING) != NULL);
        rig_until(rig, 10 * MS, rig_change(rig, 1, SC_STATE_ABORTING) != NULL);
        rig_expect_cause(rig, 0, code, fault.a);
        rig_expect_cause(rig, 1, code, fault.a);
        rig_until(rig, 5 * SECOND, rig_is_ready_after(rig, failed));
        for (uint32_t r = 0; r < 2; r++) {
            const struct rig_spy *spy = &rig->ranks[r].spy;
            for (uint32_t i = 0; i < spy->comms_count; i++)
                assert_int_equal(spy->comms[i].aborts, i + 1 < spy->comms_count);
            assert_int_equal(rig_held(rig, r).communicators, 1);
            assert_int_equal(rig_held(rig, r).quarantined, 0);
        }
        expect_traffic(rig);
        rig_close(rig);
    }
}

static void a_failed_creation_is_followed_by_a_new_attempt_r6(void **state) {
    (void)state;
    expect_next_attempt((struct sc_sim_fault){.kind = SC_SIM_init_error}, SC_COMM_FAILED);
    expect_next_attempt((struct sc_sim_fault){.kind = SC_SIM_verb_fails,
                                              .nth = 1,
                                              .verb = SC_VERB_comm_create,
                                              .status = SC_DEVICE_ERROR},
                        SC_DEVICE_ERROR);
}

static void a_creation_that_is_ok_without_a_handle_is_a_failed_one_r6(void **state) {
    (void)state;
    expect_next_attempt((struct sc_sim_fault){.kind = SC_SIM_init_null}, SC_COMM_FAILED);
}

static void a_creation_that_hangs_ends_at_the_init_deadline_r6(void **state) {
    const struct rig_config config = rig_config(2);
    const struct sc_sim_fault hang = {.kind = SC_SIM_init_hang, .a = 1};
    struct rig *rig = rig_create(&config);
    (void)state;
    assert_int_equal(rig_spawn(rig, 0, NULL), SC_OK);
    assert_int_equal(rig_spawn(rig, 1, &hang), SC_OK);
    rig_until(rig, SECOND, rig_state(rig, 0) == SC_STATE_JOINING);
    rig_run(rig, config.core.timing.init_ns - SECOND);
    assert_int_equal(rig_state(rig, 0), SC_STATE_JOINING);
    uint64_t failed = rig_epoch(rig, 0);
    rig_until(rig, 2 * SECOND, rig_state(rig, 0) != SC_STATE_JOINING);
    rig_expect_cause(rig, 0, SC_INIT_TIMEOUT, SC_RANK_NONE);
    rig_until(rig, 5 * SECOND, rig_is_ready_after(rig, failed));
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(rig_held(rig, r).communicators, 1);
        assert_int_equal(rig_held(rig, r).quarantined, 0);
    }
    rig_close(rig);
}

#define TEST(name) cmocka_unit_test_teardown(name, rig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(an_absent_rank_is_waited_for_with_one_abort_r1),
        TEST(an_error_on_one_rank_is_told_to_the_other_at_once_r2),
        TEST(a_replayed_hello_of_an_old_epoch_gets_no_more_than_a_challenge_r2),
        TEST(five_hundred_recoveries_leave_every_count_flat_r5),
        TEST(an_open_without_memory_contacts_no_peer_and_keeps_nothing_r6),
        TEST(a_failed_creation_is_followed_by_a_new_attempt_r6),
        TEST(a_creation_that_is_ok_without_a_handle_is_a_failed_one_r6),
        TEST(a_creation_that_hangs_ends_at_the_init_deadline_r6),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
