// SPDX-License-Identifier: AGPL-3.0-only
//
// What the device does wrong, as an application sees it over real sockets: opens that fail, communicators
// that do not form, aborts that do not return.
#include "core/api_inside.h"
#include "tests/support/real_world.h"
#include "tests/support/sockets_rig.h"

#include <string.h>

static void expect_error_says(const char *words) {
    if (strstr(sc_last_error(), words) == NULL)
        print_error("it says: %s\n", sc_last_error());
    assert_non_null(strstr(sc_last_error(), words));
}

// Clocks short enough to wait for: an abort is given up after 1.1 s.
static sc_comm open_impatient(const struct real_job *job, uint32_t rank) {
    struct sc_config config;
    real_config(job, rank, &config);
    config.timing.heartbeat_ns = 50 * REAL_MS;
    config.timing.silence_ns = REAL_SECOND;
    config.timing.abort_ns = 1100 * REAL_MS;
    return real_open_with(&config);
}

static uint64_t open_both(const struct real_job *job, sc_comm *comms) {
    comms[0] = open_impatient(job, 0);
    comms[1] = open_impatient(job, 1);
    const uint64_t epoch = real_ready_after(comms[0], 0);
    assert_true(real_ready_after(comms[1], 0) == epoch);
    return epoch;
}

// ---- no memory, no communicator ----

static void open_that_finds_no_memory_fails_and_meets_no_peer_r6(void **state) {
    static struct real_notes notes;
    struct real_job job;
    struct sc_config config;
    sc_comm comms[2], none = 77;
    (void)state;
    real_job_begin(&job, 2);
    real_notes_begin(&notes);
    real_config(&job, 0, &config);
    config.on_note = real_on_note;
    config.arg = &notes;
    comms[0] = real_open_with(&config);
    const uint32_t descriptors = sockets_descriptors();
    real_config(&job, 1, &config);
    real_birth.allocs_fail = true;
    assert_int_equal(sc_open(&config, &none), SC_NO_MEMORY);
    real_birth.allocs_fail = false;
    expect_error_says("receive buffer of capacity_bytes");
    assert_int_equal(none, 77);
    assert_int_equal(sockets_descriptors(), descriptors);
    assert_int_equal(real_notes_of(&notes, SC_NOTE_GREETED), 0);
    comms[1] = real_open(&job, 1);
    assert_true(real_ready_after(comms[1], 0) == real_ready_after(comms[0], 0));
    real_close_all(comms, 2);
    real_job_end(&job);
}

// Rank 1's communicator does not form once; rank 0 leaves JOINING, and the next attempt succeeds.
static void one_creation_goes_wrong(_Atomic bool *(*which)(struct sc_instant_switches *)) {
    struct real_job job;
    struct sc_recovery recovery = {.size = sizeof recovery};
    sc_comm comms[2];
    real_job_begin(&job, 2);
    const uint64_t epoch = open_both(&job, comms);
    struct sc_instant_switches *switches = real_switches(comms[1]);
    *which(switches) = true;
    const uint64_t since_ns = real_now();
    real_ok(sc_reconnect(comms[0], epoch, 1));
    real_until(real_health(comms[0]).cause.code == SC_COMM_FAILED ||
               real_health(comms[0]).cause.code == SC_DEVICE_ERROR);
    assert_true(real_now() - since_ns < REAL_SECOND);
    assert_int_equal(switches->creates, 1);
    assert_int_equal(sc_wait_ready(comms[0], 1, &recovery), SC_TIMEOUT);
    expect_error_says("last cause: ");
    *which(switches) = false;
    const uint64_t next = real_ready_after(comms[0], epoch);
    assert_true(real_ready_after(comms[1], epoch) == next);
    real_close_all(comms, 2);
    real_job_end(&job);
}

static _Atomic bool *creates_fail(struct sc_instant_switches *switches) {
    return &switches->creates_fail;
}

static _Atomic bool *creates_null(struct sc_instant_switches *switches) {
    return &switches->creates_null;
}

static void failed_creation_is_followed_by_another_attempt_r6(void **state) {
    (void)state;
    one_creation_goes_wrong(creates_fail);
}

static void creation_without_a_communicator_is_a_failure_r6(void **state) {
    (void)state;
    one_creation_goes_wrong(creates_null);
}

// ---- aborts that do not return ----

static void abort_that_never_returns_is_terminal_where_all_peers_are_well_h6(void **state) {
    struct real_job job;
    struct sc_recovery recovery = {.size = sizeof recovery};
    sc_comm comms[2];
    (void)state;
    real_job_begin(&job, 2);
    const uint64_t epoch = open_both(&job, comms);
    real_switches(comms[1])->aborts_hang = true;
    const uint64_t since_ns = real_now();
    real_ok(sc_reconnect(comms[1], epoch, 1));
    assert_int_equal(sc_wait_ready(comms[1], REAL_LIMIT_NS, &recovery), SC_ABORT_STUCK);
    assert_true(real_now() - since_ns >= 1100 * REAL_MS);
    assert_int_equal(real_health(comms[1]).state, SC_STATE_FAILED);
    assert_int_equal(sc_wait_ready(comms[1], REAL_LIMIT_NS, &recovery), SC_ABORT_STUCK);
    // It is closed all the same; only what the communicator may touch stays.
    assert_int_equal(sc_close(comms[1], SC_CLOSE_FINAL, REAL_LIMIT_NS), SC_ABORT_STUCK);
    assert_int_equal(sc_close(comms[1], SC_CLOSE_FINAL, REAL_LIMIT_NS), SC_CLOSED);
    comms[1] = open_impatient(&job, 1);
    (void)real_ready_after(comms[1], epoch);
    (void)real_ready_after(comms[0], epoch);
    real_close_all(comms, 2);
    real_job_end(&job);
}

static void abort_that_a_dead_peer_holds_up_is_left_behind_h6(void **state) {
    struct real_job job;
    sc_comm comms[2];
    (void)state;
    real_job_begin(&job, 2);
    const uint64_t epoch = open_both(&job, comms);
    struct sc_instant_switches *switches = real_switches(comms[0]);
    const uint32_t allocs = switches->allocs;
    switches->aborts_hang = true;
    real_kill(comms[1]);
    comms[1] = open_impatient(&job, 1);
    const uint64_t next = real_ready_after(comms[0], epoch);
    assert_true(real_ready_after(comms[1], epoch) == next);
    assert_int_equal(switches->aborts, 1);
    assert_int_equal(switches->allocs, allocs + 1); // another receive buffer
    switches->aborts_hang = false;
    assert_int_equal(sc_close(comms[0], SC_CLOSE_FINAL, REAL_LIMIT_NS), SC_ABORT_STUCK);
    real_close(comms[1]);
    real_job_end(&job);
}

// Whoever holds the monitor, for however long: here it is the test itself.
static void health_answers_whatever_other_threads_do_h6(void **state) {
    struct real_job job;
    sc_comm comms[2];
    uint32_t slot;
    sc_status status;
    (void)state;
    real_job_begin(&job, 2);
    const uint64_t epoch = real_open_all(&job, comms);
    struct sc_api *api = sc_table_hold(comms[1], &slot, &status);
    assert_non_null(api);
    assert_int_equal(api->host->enter(api->host->ctx), SC_OK);
    assert_int_equal(real_health(comms[1]).epoch, epoch);
    assert_int_equal(real_live(comms[1]), epoch);
    sc_interrupt(comms[1]);
    api->host->leave(api->host->ctx);
    sc_table_release(slot);
    real_close_all(comms, 2);
    real_job_end(&job);
}

static void health_tells_of_an_epoch_being_left(void **state) {
    struct real_job job;
    sc_comm comms[2];
    (void)state;
    real_job_begin(&job, 2);
    const uint64_t epoch = open_both(&job, comms);
    struct sc_instant_switches *switches = real_switches(comms[0]);
    real_ok(real_submit(comms[0], epoch));
    switches->aborts_hang = true;
    real_ok(sc_reconnect(comms[0], epoch, 3));
    const struct sc_health_report health = real_health(comms[0]);
    assert_int_equal(health.state, SC_STATE_ABORTING);
    assert_int_equal(health.epoch, epoch);
    assert_int_equal(health.cause.code, SC_RECONNECT);
    assert_int_equal(health.cause.value[0], 3);
    assert_int_equal(health.world, 2);
    assert_int_equal(health.peers[0].incarnation, 0);
    assert_int_not_equal(health.peers[1].incarnation, 0);
    assert_int_equal(real_live(comms[0]), 0);
    switches->aborts_hang = false;
    (void)real_ready_after(comms[0], epoch);
    real_close_all(comms, 2);
    real_job_end(&job);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_that_finds_no_memory_fails_and_meets_no_peer_r6),
        cmocka_unit_test(failed_creation_is_followed_by_another_attempt_r6),
        cmocka_unit_test(creation_without_a_communicator_is_a_failure_r6),
        cmocka_unit_test(abort_that_never_returns_is_terminal_where_all_peers_are_well_h6),
        cmocka_unit_test(abort_that_a_dead_peer_holds_up_is_left_behind_h6),
        cmocka_unit_test(health_answers_whatever_other_threads_do_h6),
        cmocka_unit_test(health_tells_of_an_epoch_being_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
