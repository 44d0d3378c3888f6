// SPDX-License-Identifier: AGPL-3.0-only
//
// The test double under the virtual clock: time, the monitor and the steps of the library, the GPU.
#include "tests/support/double_rig.h"

#include <pthread.h>

// ---- lives and time ---------------------------------------------------------------------------

static int main_returns(struct sc_sim_rank *rank, void *arg) {
    (void)arg;
    played.seen[sc_sim_rank_number(rank)] = sc_sim_here();
    return (int)(10 + sc_sim_rank_number(rank) + 100 * sc_sim_rank_life(rank));
}

static void every_rank_lives_once_and_tells_its_exit_code(void **state) {
    (void)state;
    double_play("ranks 3", main_returns);
    double_expect_well();
    assert_int_equal(played.report.ranks, 3);
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(played.report.lives[r], 1);
        assert_int_equal(played.report.exit_code[r], 110 + (int)r);
        assert_true(played.seen[r]);
    }
    assert_false(sc_sim_here());
    assert_true(played.report.ended_ns <= 50 * MS);
    double_expect_line("rank 2 ends: returned 112");
}

static int main_sleeps(struct sc_sim_rank *rank, void *arg) {
    uint32_t r = sc_sim_rank_number(rank);
    uint64_t begun_ns = sc_sim_rank_now_ns(rank);

    (void)arg;
    for (int i = 0; i < 1000; i++)
        if (sc_sim_rank_sleep(rank, (r + 1) * MS) != SC_OK)
            return 1;
    played.at_ns[r] = sc_sim_rank_now_ns(rank) - begun_ns;
    return 0;
}

static void sleep_takes_exactly_as_long_as_it_was_told(void **state) {
    (void)state;
    double_play("ranks 3", main_sleeps);
    double_expect_well();
    for (uint32_t r = 0; r < 3; r++)
        assert_int_equal(played.at_ns[r], (r + 1) * SECOND);
}

// Increments that threads at the same time would lose.
static int main_counts(struct sc_sim_rank *rank, void *arg) {
    (void)arg;
    for (int i = 0; i < 2000; i++) {
        played.count++;
        if (sc_sim_rank_sleep(rank, 0) != SC_OK)
            return 1;
    }
    return 0;
}

static void one_thread_runs_at_a_time(void **state) {
    (void)state;
    double_play("ranks 8", main_counts);
    double_expect_well();
    assert_int_equal(played.count, 16000);
}

static int main_polls(struct sc_sim_rank *rank, void *arg) {
    struct small *h;

    (void)arg;
    if (small_open(rank, 1 * MS, &h) != SC_OK)
        return 1;
    uint64_t until_ns = small_now(h) + 10 * MS;
    while (small_now(h) < until_ns && small_submit(h) == SC_OK)
        played.count++;
    small_close(h);
    return 0;
}

static void polling_lets_time_pass(void **state) {
    (void)state;
    double_play("ranks 1", main_polls);
    double_expect_well();
    assert_true(played.count > 1000);
    assert_int_equal(played.report.exit_code[0], 0);
}

// ---- the monitor and the steps ----------------------------------------------------------------

static int main_awaits_steps(struct sc_sim_rank *rank, void *arg) {
    uint32_t r = sc_sim_rank_number(rank);
    struct small *h;

    (void)arg;
    if (small_open(rank, 5 * MS, &h) != SC_OK)
        return 1;
    uint64_t begun_ns = small_now(h);
    h->notify_at = 11;
    played.status[r] = small_await(h, begun_ns + SECOND);
    played.at_ns[r] = small_now(h) - begun_ns;
    double_nap(rank, MS);
    played.value[r] = h->notes;
    small_close(h);
    return 0;
}

static void notify_ends_an_await_and_calls_the_notifier(void **state) {
    (void)state;
    double_play("ranks 2", main_awaits_steps);
    double_expect_well();
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(played.status[r], SC_OK);
        assert_int_equal(played.at_ns[r], 50 * MS); // the first step comes at once
        assert_int_equal(played.value[r], 1);
    }
}

static int main_awaits_time(struct sc_sim_rank *rank, void *arg) {
    uint32_t r = sc_sim_rank_number(rank);
    struct small *h;

    (void)arg;
    if (small_open(rank, 0, &h) != SC_OK)
        return 1;
    uint64_t begun_ns = small_now(h);
    played.status[r] = small_await(h, begun_ns + 7 * MS);
    played.at_ns[r] = small_now(h) - begun_ns;
    small_close(h);
    return 0;
}

static void await_ends_at_its_deadline(void **state) {
    (void)state;
    double_play("ranks 2", main_awaits_time);
    double_expect_well();
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(played.status[r], SC_TIMEOUT);
        assert_int_equal(played.at_ns[r], 7 * MS);
    }
}

static int main_notifies(struct sc_sim_rank *rank, void *arg) {
    struct small *h;

    (void)arg;
    if (small_open(rank, 0, &h) != SC_OK)
        return 1;
    double_nap(rank, MS);
    if (small_enter(h) == SC_OK) {
        small_notify(h);
        small_leave(h);
    }
    double_nap(rank, MS);
    played.value[0] = h->notes;
    uint64_t steps = h->steps;
    h->world.host->wake(h->world.host->ctx);
    double_nap(rank, MS);
    played.value[1] = h->steps - steps;
    played.value[2] = (uint64_t)h->world.host->event_fd(h->world.host->ctx);
    small_close(h);
    return 0;
}

static void notify_of_the_application_calls_the_notifier_and_wake_the_progress(void **state) {
    (void)state;
    double_play("ranks 1", main_notifies);
    double_expect_well();
    assert_int_equal(played.value[0], 1);
    assert_int_equal(played.value[1], 1);
    assert_true(played.value[2] == (uint64_t)-1);
}

static uint64_t step_that_waits(void *arg) {
    struct small *h = arg;

    played.status[0] = small_await(h, SC_NEVER_NS);
    return SC_NEVER_NS;
}

static int main_waits_in_a_step(struct sc_sim_rank *rank, void *arg) {
    struct small *h;

    (void)arg;
    if (small_open(rank, 0, &h) != SC_OK)
        return 1;
    const struct sc_host *host = h->world.host;
    (void)host->thread_start(host->ctx, SC_HOST_NOTIFIER, step_that_waits, h);
    double_nap(rank, MS);
    small_close(h);
    return 0;
}

static void callback_that_waits_is_a_violation_and_does_not_hang(void **state) {
    (void)state;
    double_play("ranks 1", main_waits_in_a_step);
    double_expect_violation("waits inside a callback");
    assert_int_equal(played.status[0], SC_SIM_KILLED);
}

static void *intrude(void *arg) {
    played.status[0] = small_submit(arg);
    return NULL;
}

static int main_has_a_second_thread(struct sc_sim_rank *rank, void *arg) {
    struct small *h;
    pthread_t thread;

    (void)arg;
    played.status[1] = sc_sim_rank_attach(rank);
    if (small_open(rank, 0, &h) != SC_OK || pthread_create(&thread, NULL, intrude, h) != 0)
        return 1;
    pthread_join(thread, NULL);
    small_close(h);
    return 0;
}

static void second_thread_is_turned_away_and_told(void **state) {
    (void)state;
    double_play("ranks 1", main_has_a_second_thread);
    double_expect_violation("a thread that is not its rank's");
    assert_int_equal(played.status[0], SC_SIM_KILLED);
    assert_int_equal(played.status[1], SC_STATE);
}

// ---- the GPU ----------------------------------------------------------------------------------

struct kernel {
    struct sc_sim_rank *rank;
    void *buffer;
};

static void add_one(void *arg) {
    const struct kernel *kernel = arg;
    uint32_t *words = sc_sim_rank_memory(kernel->rank, kernel->buffer, 16);

    played.seen[0] = words != NULL;
    if (words != NULL)
        words[3]++;
}

static int main_computes(struct sc_sim_rank *rank, void *arg) {
    struct kernel kernel = {.rank = rank};
    void *stream = NULL;

    (void)arg;
    if (sc_sim_rank_alloc(rank, 16, &kernel.buffer) != SC_OK ||
        sc_sim_rank_stream_create(rank, &stream) != SC_OK)
        return 1;
    memset(sc_sim_rank_memory(rank, kernel.buffer, 16), 0, 16);
    uint64_t begun_ns = sc_sim_rank_now_ns(rank);
    for (int i = 0; i < 10; i++)
        if (sc_sim_rank_launch(rank, stream, 3 * MS, add_one, &kernel) != SC_OK)
            return 2;
    played.status[0] = sc_sim_rank_stream_wait(rank, stream, 20 * MS);
    played.at_ns[0] = sc_sim_rank_now_ns(rank) - begun_ns;
    played.status[1] = sc_sim_rank_stream_wait(rank, stream, SC_FOREVER);
    played.at_ns[1] = sc_sim_rank_now_ns(rank) - begun_ns;
    played.value[0] = ((uint32_t *)sc_sim_rank_memory(rank, kernel.buffer, 16))[3];
    played.seen[1] = sc_sim_rank_memory(rank, kernel.buffer, 17) == NULL;
    played.status[2] = sc_sim_rank_stream_destroy(rank, stream);
    played.status[3] = sc_sim_rank_free(rank, kernel.buffer);
    played.seen[2] = sc_sim_rank_memory(rank, kernel.buffer, 16) == NULL;
    return 0;
}

static void kernels_run_in_order_and_a_stream_is_waited_for(void **state) {
    (void)state;
    double_play("ranks 1", main_computes);
    double_expect_well();
    assert_int_equal(played.report.exit_code[0], 0);
    assert_int_equal(played.status[0], SC_TIMEOUT);
    assert_int_equal(played.at_ns[0], 20 * MS);
    assert_int_equal(played.status[1], SC_OK);
    assert_int_equal(played.at_ns[1], 30 * MS);
    assert_int_equal(played.value[0], 10);
    assert_true(played.seen[0] && played.seen[1] && played.seen[2]);
    assert_int_equal(played.status[2], SC_OK);
    assert_int_equal(played.status[3], SC_OK);
}

static int main_uses_strange_streams(struct sc_sim_rank *rank, void *arg) {
    void *stream = NULL;

    (void)arg;
    played.status[0] = sc_sim_rank_launch(rank, NULL, 0, NULL, NULL);
    played.status[1] = sc_sim_rank_stream_create(rank, NULL);
    played.status[2] = sc_sim_rank_alloc(rank, 16, NULL);
    if (sc_sim_rank_stream_create(rank, &stream) != SC_OK)
        return 1;
    return sc_sim_rank_stream_wait(rank, stream, SC_FOREVER) == SC_OK ? 0 : 2;
}

static void unknown_stream_is_refused_and_a_violation(void **state) {
    (void)state;
    double_play("ranks 1", main_uses_strange_streams);
    double_expect_violation("unknown stream");
    assert_int_equal(played.status[0], SC_INVALID);
    assert_int_equal(played.status[1], SC_INVALID);
    assert_int_equal(played.status[2], SC_INVALID);
    assert_int_equal(played.report.exit_code[0],
                     0); // an engine's own stream may be left to the exit
}

static int main_waits_for_a_lost_context(struct sc_sim_rank *rank, void *arg) {
    void *stream = NULL;

    (void)arg;
    if (sc_sim_rank_stream_create(rank, &stream) != SC_OK ||
        sc_sim_rank_launch(rank, stream, 3600 * SECOND, NULL, NULL) != SC_OK)
        return 1;
    played.status[0] = sc_sim_rank_stream_wait(rank, stream, SC_FOREVER);
    played.at_ns[0] = sc_sim_rank_now_ns(rank);
    return 0;
}

static void lost_context_ends_the_wait_for_a_stream(void **state) {
    (void)state;
    double_play("ranks 1\nat 1s: context_lost rank 0", main_waits_for_a_lost_context);
    double_expect_well();
    assert_int_equal(played.status[0], SC_CONTEXT_LOST);
    assert_int_equal(played.at_ns[0], SECOND);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        DOUBLE_TEST(every_rank_lives_once_and_tells_its_exit_code),
        DOUBLE_TEST(sleep_takes_exactly_as_long_as_it_was_told),
        DOUBLE_TEST(one_thread_runs_at_a_time),
        DOUBLE_TEST(polling_lets_time_pass),
        DOUBLE_TEST(notify_ends_an_await_and_calls_the_notifier),
        DOUBLE_TEST(await_ends_at_its_deadline),
        DOUBLE_TEST(notify_of_the_application_calls_the_notifier_and_wake_the_progress),
        DOUBLE_TEST(callback_that_waits_is_a_violation_and_does_not_hang),
        DOUBLE_TEST(second_thread_is_turned_away_and_told),
        DOUBLE_TEST(kernels_run_in_order_and_a_stream_is_waited_for),
        DOUBLE_TEST(unknown_stream_is_refused_and_a_violation),
        DOUBLE_TEST(lost_context_ends_the_wait_for_a_stream),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
