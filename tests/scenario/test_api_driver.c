// SPDX-License-Identifier: AGPL-3.0-only
//
// A thread that submits is kept by the driver, as it is while another frees GPU memory and the GPU works
// on, or spins for a lost peer. Nobody else is kept with it.
#include "tests/support/real_world.h"

#include <string.h>

#define SILENCE_NS (400 * REAL_MS)

// A world of two, READY; rank 0's driver keeps the submit of `call`.
static uint64_t open_with_a_kept_submit(const struct real_job *job, sc_comm *comms,
                                        struct real_call *call) {
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct sc_config config;
        real_config(job, rank, &config);
        config.timing.heartbeat_ns = SILENCE_NS / 8;
        config.timing.silence_ns = SILENCE_NS;
        comms[rank] = real_open_with(&config);
    }
    const uint64_t epoch = real_ready_after(comms[0], 0);
    assert_true(real_ready_after(comms[1], 0) == epoch);
    sc_shared_device_keep(real_shared(comms[0]), true);
    *call = (struct real_call){.verb = REAL_SUBMIT, .comm = comms[0], .epoch = epoch};
    real_call_begin(call);
    real_until(sc_shared_device_kept(real_shared(comms[0])) == 1);
    return epoch;
}

static void kept_submit_stops_no_heartbeat(void **state) {
    struct real_job job;
    struct real_call call;
    sc_comm comms[2];
    (void)state;
    real_job_begin(&job, 2);
    const uint64_t epoch = open_with_a_kept_submit(&job, comms, &call);
    const uint64_t until_ns = real_now() + 4 * SILENCE_NS;
    while (real_now() < until_ns) {
        assert_true(real_live(comms[0]) == epoch && real_live(comms[1]) == epoch);
        assert_true(real_health(comms[1]).peers[0].heard_ns + SILENCE_NS > real_now());
        real_ok(sc_mark(comms[0], epoch, 1)); // other calls go on beside it
        sched_yield();
    }
    sc_shared_device_keep(real_shared(comms[0]), false);
    assert_int_equal(real_call_end(&call), SC_OK);
    real_ok(sc_sync(comms[0], epoch, real_stream(0), SC_SYNC_LOCAL, REAL_LIMIT_NS));
    real_close_all(comms, 2);
    real_job_end(&job);
}

static void loss_is_told_beside_a_kept_submit(void **state) {
    struct real_job job;
    struct real_call kept;
    sc_comm comms[2];
    (void)state;
    real_job_begin(&job, 2);
    const uint64_t epoch = open_with_a_kept_submit(&job, comms, &kept);
    struct real_call second = {.verb = REAL_SUBMIT, .comm = comms[0], .epoch = epoch};
    struct real_call ready = {.verb = REAL_WAIT_READY, .comm = comms[0], .epoch = epoch};
    real_call_begin(&second);
    real_until_waiting(comms[0], 2); // it, and the one that is kept
    real_kill(comms[1]);
    assert_int_equal(real_call_end(&second), SC_EPOCH_LOST);
    assert_true(real_live(comms[0]) == 0);
    assert_int_equal(real_submit(comms[0], epoch), SC_EPOCH_LOST);
    real_until(real_switches(comms[0])->aborts == 1);
    struct sc_recovery recovery = {.size = sizeof recovery};
    assert_int_equal(sc_wait_ready(comms[0], 1, &recovery), SC_TIMEOUT);
    assert_non_null(strstr(sc_last_error(), "the driver keeps a thread that enqueues"));
    real_call_begin(&ready);
    real_until_waiting(comms[0], 2); // it, and the one that is kept
    comms[1] = real_open(&job, 1);
    assert_int_equal(real_health(comms[0]).state, SC_STATE_ABORTING); // its op is not over
    sc_shared_device_keep(real_shared(comms[0]), false);
    assert_int_equal(real_call_end(&kept), SC_EPOCH_LOST);
    assert_int_equal(real_call_end(&ready), SC_OK);
    const uint64_t next = real_ready_after(comms[0], epoch);
    assert_true(real_ready_after(comms[1], 0) == next);
    real_ok(real_submit(comms[0], next));
    assert_int_equal(real_switches(comms[0])->aborts, 1);
    real_close_all(comms, 2);
    real_job_end(&job);
}

static void ticket_outlives_a_join_that_is_interrupted_beside_a_kept_submit(void **state) {
    static _Alignas(16) char buffer[1024];
    struct real_job job;
    struct real_call call;
    sc_comm comms[2];
    sc_ticket ticket;
    (void)state;
    real_job_begin(&job, 2);
    const uint64_t epoch = open_with_a_kept_submit(&job, comms, &call);
    struct sc_shared_device *shared = real_shared(comms[0]);
    sc_shared_device_keep(shared, false);
    assert_int_equal(real_call_end(&call), SC_OK);
    real_ok(sc_all_reduce_start(comms[0], epoch, buffer, sizeof buffer, SC_BF16, real_stream(0),
                                &ticket));
    sc_shared_device_keep(shared, true);
    real_call_begin(&call);
    real_until(sc_shared_device_kept(shared) == 1);
    sc_interrupt(comms[0]);
    assert_int_equal(sc_all_reduce_join(comms[0], epoch, ticket, real_stream(0)), SC_INTERRUPTED);
    sc_shared_device_keep(shared, false);
    assert_int_equal(real_call_end(&call), SC_OK);
    real_ok(sc_all_reduce_join(comms[0], epoch, ticket, real_stream(0)));
    assert_int_equal(sc_all_reduce_join(comms[0], epoch, ticket, real_stream(0)), SC_INVALID);
    real_close_all(comms, 2);
    real_job_end(&job);
}

static void close_waits_for_a_kept_submit_as_long_as_it_may(void **state) {
    struct real_job job;
    struct real_call call;
    sc_comm comms[2];
    (void)state;
    real_job_begin(&job, 2);
    (void)open_with_a_kept_submit(&job, comms, &call);
    assert_int_equal(sc_close(comms[0], SC_CLOSE_FINAL, SILENCE_NS), SC_TIMEOUT);
    sc_shared_device_keep(real_shared(comms[0]), false);
    (void)real_call_end(&call);
    real_close_all(comms, 2);
    real_job_end(&job);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kept_submit_stops_no_heartbeat),
        cmocka_unit_test(loss_is_told_beside_a_kept_submit),
        cmocka_unit_test(ticket_outlives_a_join_that_is_interrupted_beside_a_kept_submit),
        cmocka_unit_test(close_waits_for_a_kept_submit_as_long_as_it_may),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
