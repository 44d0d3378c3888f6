// SPDX-License-Identifier: AGPL-3.0-only
//
// Many threads in one handle: they work side by side, one recovery is enough for all of them, and a
// close ends whatever waits.
#include "core/api_inside.h"
#include "tests/support/real_world.h"

#include <string.h>

#define LEDGER_OPS 4u // of a ledger that is to be full

static sc_comm open_with_a_small_ledger(const struct real_job *job, uint32_t rank, uint32_t flags) {
    struct sc_config config;
    real_config(job, rank, &config);
    config.ledger_ops = LEDGER_OPS;
    config.flags = flags;
    return real_open_with(&config);
}

// A world of two; that rank's ledger is full of ops that do not end before the epoch does.
static uint64_t open_with_a_full_ledger(const struct real_job *job, sc_comm *comms, uint32_t rank,
                                        uint32_t flags) {
    comms[1 - rank] = real_open(job, 1 - rank);
    comms[rank] = open_with_a_small_ledger(job, rank, flags);
    uint64_t epoch = real_ready_after(comms[0], 0);
    assert_true(real_ready_after(comms[1], 0) == epoch);
    real_switches(comms[rank])->ops_hang = true;
    for (uint32_t i = 0; i < LEDGER_OPS; i++)
        real_ok(real_submit(comms[rank], epoch));
    return epoch;
}

// ---- one recovery for all ----

static void submit_on_a_full_ledger_is_ended_by_another_threads_reconnect_r3(void **state) {
    struct real_job job;
    sc_comm comms[2];
    (void)state;
    real_job_begin(&job, 2);
    const uint64_t epoch = open_with_a_full_ledger(&job, comms, 0, 0);
    struct real_call call = {.verb = REAL_SUBMIT, .comm = comms[0], .epoch = epoch};
    real_call_begin(&call);
    real_until_waiting(comms[0], 1);
    const uint64_t since_ns = real_now();
    real_ok(sc_reconnect(comms[0], epoch, 7));
    assert_int_equal(real_call_end(&call), SC_EPOCH_LOST);
    assert_true(call.ended_ns - since_ns < REAL_SECOND);
    for (uint32_t rank = 0; rank < 2; rank++) {
        (void)real_ready_after(comms[rank], epoch);
        const struct sc_health_report health = real_health(comms[rank]);
        assert_int_equal(health.recoveries, 1);
        assert_int_equal(health.cause.code, SC_RECONNECT);
        assert_int_equal(health.cause.value[0], 7);
        assert_int_equal(real_switches(comms[rank])->aborts, 1);
        assert_int_equal(real_switches(comms[rank])->creates, 2);
    }
    real_close_all(comms, 2);
    real_job_end(&job);
}

static void submit_on_a_full_ledger_goes_on_when_there_is_room(void **state) {
    struct real_job job;
    sc_comm comms[2];
    (void)state;
    real_job_begin(&job, 2);
    const uint64_t epoch = open_with_a_full_ledger(&job, comms, 1, 0);
    struct real_call call = {.verb = REAL_SUBMIT, .comm = comms[1], .epoch = epoch};
    real_call_begin(&call);
    real_until_waiting(comms[1], 1);
    real_switches(comms[1])->ops_hang = false;
    assert_int_equal(real_call_end(&call), SC_OK);
    real_close_all(comms, 2);
    real_job_end(&job);
}

static void full_ledger_is_answered_busy_where_it_was_asked_for(void **state) {
    struct real_job job;
    sc_comm comms[2];
    (void)state;
    real_job_begin(&job, 2);
    const uint64_t epoch = open_with_a_full_ledger(&job, comms, 0, SC_OPEN_BUSY);
    assert_int_equal(real_submit(comms[0], epoch), SC_BUSY);
    assert_int_equal(real_health(comms[0]).state, SC_STATE_READY);
    real_close_all(comms, 2);
    real_job_end(&job);
}

static void eight_threads_that_reconnect_cause_one_recovery_r3(void **state) {
    enum { THREADS = 8, ROUNDS = 4 };
    struct real_job job;
    sc_comm comms[2];
    (void)state;
    real_job_begin(&job, 2);
    uint64_t epoch = real_open_all(&job, comms);
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        struct real_call calls[THREADS];
        pthread_barrier_t start;
        pthread_barrier_init(&start, NULL, THREADS);
        for (uint32_t i = 0; i < THREADS; i++) {
            calls[i] = (struct real_call){
                .verb = REAL_RECONNECT, .comm = comms[i % 2], .epoch = epoch, .start = &start};
            real_call_begin(&calls[i]);
        }
        for (uint32_t i = 0; i < THREADS; i++)
            assert_int_equal(real_call_end(&calls[i]), SC_OK);
        pthread_barrier_destroy(&start);
        const uint64_t next = real_ready_after(comms[0], epoch);
        assert_true(real_ready_after(comms[1], epoch) == next);
        real_ok(sc_reconnect(comms[1], epoch, 7)); // too late for that epoch: no effect
        epoch = next;
        for (uint32_t rank = 0; rank < 2; rank++) {
            assert_int_equal(real_health(comms[rank]).recoveries, round);
            assert_int_equal(real_switches(comms[rank])->aborts, round);
            assert_int_equal(real_switches(comms[rank])->creates, round + 1);
        }
    }
    assert_int_equal(real_health(comms[1]).epoch, epoch);
    real_close_all(comms, 2);
    real_job_end(&job);
}

// ---- side by side ----

struct worker {
    sc_comm comm;
    uint64_t epoch; // 0: whichever it finds
    uint32_t number;
    uint32_t turns; // 0: until it is told to stop
    const _Atomic bool *stop;
    _Atomic uint32_t *done; // turns of all
    sc_status wrong;        // what it met that it should not have
    char error[256];
    pthread_t thread;
};

static sc_status turn(struct worker *w, uint32_t i) {
    static _Alignas(16) char buffer[1024];
    struct sc_health_report health = {.size = sizeof health};
    void *stream = real_stream(w->number);
    sc_status status = sc_all_reduce(w->comm, w->epoch, buffer, sizeof buffer, SC_BF16, stream);
    if (status == SC_OK)
        status = sc_test(w->comm, w->epoch, stream);
    if (status == SC_OK || status == SC_INPROGRESS)
        status = sc_sync(w->comm, w->epoch, stream, SC_SYNC_LOCAL, REAL_LIMIT_NS);
    if (status == SC_OK)
        status = sc_mark(w->comm, w->epoch, i);
    if (status == SC_OK)
        status = sc_health(w->comm, &health);
    return status;
}

static sc_status next_epoch(struct worker *w) {
    struct sc_recovery recovery = {.size = sizeof recovery};
    sc_status status = sc_wait_ready(w->comm, REAL_LIMIT_NS, &recovery);
    if (status == SC_OK)
        w->epoch = recovery.epoch;
    return status;
}

static void *work(void *arg) {
    struct worker *w = arg;
    sc_status status = w->epoch != 0 ? SC_OK : next_epoch(w);
    for (uint32_t i = 1; status == SC_OK && (w->turns == 0 || i <= w->turns); i++) {
        if (w->stop != NULL && *w->stop)
            break;
        status = turn(w, i);
        (*w->done)++;
        if (status == SC_EPOCH_LOST && w->stop != NULL)
            status = next_epoch(w);
    }
    w->wrong = status;
    strncpy(w->error, status != SC_OK ? sc_last_error() : "", sizeof w->error - 1);
    return NULL;
}

enum { WORKERS = 8 }; // a rank; each on a stream of its own

static void start_work(struct worker workers[2][WORKERS], const struct worker *like,
                       const sc_comm *comms) {
    for (uint32_t rank = 0; rank < 2; rank++) {
        for (uint32_t i = 0; i < WORKERS; i++) {
            struct worker *w = &workers[rank][i];
            *w = *like;
            w->comm = comms[rank];
            w->number = i;
            assert_int_equal(pthread_create(&w->thread, NULL, work, w), 0);
        }
    }
}

static void end_work(struct worker workers[2][WORKERS]) {
    for (uint32_t rank = 0; rank < 2; rank++)
        for (uint32_t i = 0; i < WORKERS; i++)
            assert_int_equal(pthread_join(workers[rank][i].thread, NULL), 0);
    for (uint32_t rank = 0; rank < 2; rank++)
        for (uint32_t i = 0; i < WORKERS; i++)
            assert_string_equal(workers[rank][i].error, "");
}

static void eight_threads_work_side_by_side(void **state) {
    enum { TURNS = 250 };
    static struct worker workers[2][WORKERS];
    struct real_job job;
    sc_comm comms[2];
    _Atomic uint32_t done = 0;
    (void)state;
    real_job_begin(&job, 2);
    const uint64_t epoch = real_open_all(&job, comms);
    start_work(workers, &(struct worker){.epoch = epoch, .turns = TURNS, .done = &done}, comms);
    end_work(workers);
    for (uint32_t rank = 0; rank < 2; rank++) {
        real_ok(sc_sync(comms[rank], epoch, NULL, SC_SYNC_AGREED, REAL_LIMIT_NS));
        real_until(real_health(comms[rank]).completed == WORKERS * TURNS);
        assert_int_equal(real_health(comms[rank]).submitted, WORKERS * TURNS);
        assert_int_equal(real_health(comms[rank]).mark, TURNS);
        assert_int_equal(real_health(comms[rank]).epoch, epoch);
    }
    real_close_all(comms, 2);
    real_job_end(&job);
}

static void threads_work_on_through_losses(void **state) {
    enum { LOSSES = 3, TURNS = 200 };
    static struct worker workers[2][WORKERS];
    struct real_job job;
    sc_comm comms[2];
    _Atomic uint32_t done = 0;
    _Atomic bool stop = false;
    (void)state;
    real_job_begin(&job, 2);
    comms[0] = real_open(&job, 0);
    comms[1] = real_open(&job, 1);
    start_work(workers, &(struct worker){.stop = &stop, .done = &done}, comms);
    uint64_t epoch = real_ready_after(comms[0], 0);
    for (uint32_t loss = 0; loss < LOSSES; loss++) {
        const uint32_t before = done;
        real_until(done - before >= TURNS);
        real_until(real_live(comms[1]) == epoch); // the turns may all be the other's
        real_ok(sc_reconnect(comms[loss % 2], epoch, loss));
        epoch = real_ready_after(comms[0], epoch);
    }
    const uint32_t before = done;
    real_until(done - before >= TURNS);
    real_until(real_live(comms[1]) == epoch);
    stop = true;
    end_work(workers);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(real_health(comms[rank]).recoveries, LOSSES);
        assert_int_equal(real_health(comms[rank]).epoch, epoch);
    }
    real_close_all(comms, 2);
    real_job_end(&job);
}

// ---- replays ----

static sc_capture capture_one_op(sc_comm comm, uint64_t epoch) {
    sc_capture capture;
    real_ok(sc_capture_begin(comm, epoch, real_stream(0), &capture));
    real_ok(real_submit(comm, epoch));
    real_ok(sc_capture_end(comm, capture));
    return capture;
}

static void what_waits_for_a_replay_is_ended_by_a_loss(void **state) {
    struct real_job job;
    struct sc_recovery recovery = {.size = sizeof recovery};
    (void)state;
    real_job_begin(&job, 1);
    sc_comm comm = real_open(&job, 0);
    const uint64_t epoch = real_ready_after(comm, 0);
    const sc_capture capture = capture_one_op(comm, epoch);
    real_ok(sc_replay_begin(comm, epoch, capture, real_stream(0)));
    struct real_call submit = {.verb = REAL_SUBMIT, .comm = comm, .epoch = epoch};
    struct real_call replay = {
        .verb = REAL_REPLAY, .comm = comm, .epoch = epoch, .capture = capture};
    real_call_begin(&submit);
    real_call_begin(&replay);
    real_until_waiting(comm, 2);
    real_ok(sc_reconnect(comm, epoch, 1));
    assert_int_equal(real_call_end(&submit), SC_EPOCH_LOST);
    assert_int_equal(real_call_end(&replay), SC_EPOCH_LOST);
    assert_int_equal(sc_wait_ready(comm, 1, &recovery), SC_TIMEOUT);
    assert_non_null(strstr(sc_last_error(), "a thread has begun a replay and not ended it"));
    real_ok(sc_replay_end(comm));
    assert_int_equal(sc_wait_ready(comm, 1, &recovery), SC_TIMEOUT);
    assert_non_null(strstr(sc_last_error(), "1 captures are not released"));
    real_ok(sc_capture_release(comm, capture));
    (void)real_ready_after(comm, epoch);
    real_close(comm);
    real_job_end(&job);
}

static void submits_wait_for_a_replay_of_another_thread(void **state) {
    struct real_job job;
    (void)state;
    real_job_begin(&job, 1);
    sc_comm comm = real_open(&job, 0);
    const uint64_t epoch = real_ready_after(comm, 0);
    const sc_capture capture = capture_one_op(comm, epoch);
    real_ok(sc_replay_begin(comm, epoch, capture, real_stream(0)));
    struct real_call calls[] = {
        {.verb = REAL_REPLAY, .comm = comm, .epoch = epoch, .capture = capture},
        {.verb = REAL_SUBMIT, .comm = comm, .epoch = epoch},
    };
    for (uint32_t i = 0; i < 2; i++)
        real_call_begin(&calls[i]);
    real_until_waiting(comm, 2);
    real_ok(real_submit(comm, epoch)); // this thread's own does not wait
    real_ok(sc_replay_end(comm));
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(real_call_end(&calls[i]), SC_OK);
    assert_int_equal(sc_replay_end(comm), SC_INVALID);
    real_ok(sc_reconnect(comm, epoch, 1));
    real_ok(sc_capture_release(comm, capture));
    (void)real_ready_after(comm, epoch);
    real_close(comm);
    real_job_end(&job);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(submit_on_a_full_ledger_is_ended_by_another_threads_reconnect_r3),
        cmocka_unit_test(submit_on_a_full_ledger_goes_on_when_there_is_room),
        cmocka_unit_test(full_ledger_is_answered_busy_where_it_was_asked_for),
        cmocka_unit_test(eight_threads_that_reconnect_cause_one_recovery_r3),
        cmocka_unit_test(eight_threads_work_side_by_side),
        cmocka_unit_test(threads_work_on_through_losses),
        cmocka_unit_test(what_waits_for_a_replay_is_ended_by_a_loss),
        cmocka_unit_test(submits_wait_for_a_replay_of_another_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
