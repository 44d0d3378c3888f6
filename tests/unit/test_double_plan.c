// SPDX-License-Identifier: AGPL-3.0-only
//
// What a plan does to the ranks of the test double, and that equal runs are equal.
#include "tests/support/double_rig.h"

// ---- plans ------------------------------------------------------------------------------------

// Sleeps, awaits, waits for a stream, each in its own rank, until it is told that it is dead.
static int main_waits_somehow(struct sc_sim_rank *rank, void *arg) {
    uint32_t r = sc_sim_rank_number(rank);
    struct small *h;
    void *stream = NULL;

    (void)arg;
    if (sc_sim_rank_life(rank) > 1)
        return 7;
    if (small_open(rank, 100 * MS, &h) != SC_OK ||
        sc_sim_rank_stream_create(rank, &stream) != SC_OK ||
        sc_sim_rank_launch(rank, stream, 3600 * SECOND, NULL, NULL) != SC_OK)
        return 1;
    switch (r) {
    case 0: played.status[r] = sc_sim_rank_sleep(rank, SC_FOREVER); break;
    case 1: played.status[r] = small_await(h, SC_NEVER_NS); break;
    default: played.status[r] = sc_sim_rank_stream_wait(rank, stream, SC_FOREVER); break;
    }
    played.at_ns[r] = sc_sim_rank_now_ns(rank);
    played.status[4 + r] = small_submit(h);
    played.seen[r] = sc_sim_rank_sleep(rank, 1) == SC_SIM_KILLED &&
                     sc_sim_rank_alloc(rank, 16, &stream) == SC_SIM_KILLED &&
                     sc_sim_rank_memory(rank, stream, 1) == NULL;
    return 0;
}

static void killed_rank_is_told_wherever_it_waits(void **state) {
    (void)state;
    double_play("ranks 3\nat 1s: rank 0 kill\nat 2s: rank 1 kill\nat 3s: rank 2 kill",
                main_waits_somehow);
    double_expect_well();
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(played.status[r], SC_SIM_KILLED);
        assert_int_equal(played.status[4 + r], SC_SIM_KILLED);
        assert_int_equal(played.at_ns[r], (r + 1) * SECOND);
        assert_true(played.seen[r]);
        assert_int_equal(played.report.exit_code[r], -1);
        assert_int_equal(played.report.lives[r], 1);
    }
    assert_int_equal(played.abandoned, 3);
    assert_int_equal(played.report.ended_ns, 3 * SECOND);
}

static void killed_rank_comes_back_by_entry_or_by_supervisor(void **state) {
    (void)state;
    double_play("ranks 2\nat 1s: rank 0 kill\nafter 300ms: rank 0 restart\nat 1s: rank 1 kill\n"
                "after 0ms: rank 1 restart",
                main_waits_somehow);
    double_expect_well();
    double_play("ranks 2\nrespawn 100ms 200ms\nat 1s: rank 0 kill\nat 1s: rank 1 kill",
                main_waits_somehow);
    double_expect_well();
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(played.report.lives[r], 2);
        assert_int_equal(played.report.exit_code[r], 7);
    }
    assert_true(played.report.ended_ns >= 1100 * MS && played.report.ended_ns <= 1200 * MS);
}

static int main_returns_life(struct sc_sim_rank *rank, void *arg) {
    (void)arg;
    return (int)sc_sim_rank_life(rank);
}

static void rank_that_returned_comes_back_by_entry_alone(void **state) {
    (void)state;
    double_play("ranks 2\nrespawn 100ms 200ms\nat 5s: rank 1 restart", main_returns_life);
    double_expect_well();
    assert_int_equal(played.report.exit_code[0], 1);
    assert_int_equal(played.report.exit_code[1], 2);
    assert_int_equal(played.report.ended_ns, 5 * SECOND);
}

static int main_submits(struct sc_sim_rank *rank, void *arg) {
    uint32_t r = sc_sim_rank_number(rank);
    struct small *h;

    (void)arg;
    if (sc_sim_rank_life(rank) > 1)
        return 7;
    if (small_open(rank, 100 * MS, &h) != SC_OK)
        return 1;
    for (uint64_t mark = 1; mark <= 6; mark++) {
        for (uint64_t op = 1; op <= 20; op++) {
            if (small_submit(h) != SC_OK)
                return 2;
            played.value[r] = mark * 100 + op;
        }
        small_mark(h, mark);
    }
    small_close(h);
    return 0;
}

static void entry_strikes_in_the_middle_of_the_call_that_it_names(void **state) {
    (void)state;
    double_play("ranks 2\nat op 17 of mark 5: rank 1 kill\nafter 1s: rank 1 restart", main_submits);
    double_expect_well();
    assert_int_equal(played.value[0], 620);
    assert_int_equal(played.value[1], 516);
    assert_int_equal(played.report.lives[1], 2);
    assert_int_equal(played.report.exit_code[1], 7);
    double_expect_line("fault at op 17 of mark 5: rank 1 kill");
    double_expect_line("rank 1 mark 4 (20 ops submitted)");
    double_play("ranks 2\nat rank 0 mark 3: rank 1 kill\nat mark 2: rank 0 kill", main_submits);
    double_expect_well();
    assert_int_equal(played.value[0], 220);
    assert_int_equal(played.report.exit_code[0], -1);
}

static int main_logs_sleeps(struct sc_sim_rank *rank, void *arg) {
    struct small *h;

    (void)arg;
    if (sc_sim_rank_life(rank) > 1 || small_open(rank, 10 * MS, &h) != SC_OK)
        return 1;
    while (sc_sim_rank_now_ns(rank) < 1500 * MS)
        if (sc_sim_rank_sleep(rank, 10 * MS) != SC_OK)
            return 2;
    played.value[0] = h->steps;
    if (small_submit(h) != SC_OK)
        return 3;
    played.at_ns[0] = sc_sim_rank_now_ns(rank);
    played.value[1] = h->steps;
    small_close(h);
    return 0;
}

static void paused_rank_stands_still_with_its_steps(void **state) {
    (void)state;
    double_play("ranks 1\nat 1s: rank 0 pause 2s", main_logs_sleeps);
    double_expect_well();
    assert_true(played.at_ns[0] >= 3 * SECOND && played.at_ns[0] < 3010 * MS);
    assert_true(played.value[0] < 110); // those of the first second
    assert_int_equal(played.report.exit_code[0], 0);
    double_play("ranks 1\nat op 1 of mark 1: rank 0 pause 2s", main_logs_sleeps);
    double_expect_well();
    assert_true(played.at_ns[0] >= 3500 * MS && played.at_ns[0] < 3520 * MS);
    assert_true(played.value[1] <= played.value[0] + 1);
}

static void stalled_rank_stands_still_without_its_steps(void **state) {
    (void)state;
    double_play("ranks 1\nat op 1 of mark 1: rank 0 stall 2s", main_logs_sleeps);
    double_expect_well();
    assert_true(played.at_ns[0] >= 3500 * MS && played.at_ns[0] < 3520 * MS);
    assert_true(played.value[1] >= played.value[0] + 199);
}

static void quiet_resumes_what_is_paused(void **state) {
    (void)state;
    double_play("ranks 1\nseconds 20\nquiet 5s\nat 1s: rank 0 pause 1000s", main_logs_sleeps);
    double_expect_well();
    assert_int_equal(played.at_ns[0], 5 * SECOND);
}

static int main_is_replaced(struct sc_sim_rank *rank, void *arg) {
    uint32_t life = sc_sim_rank_life(rank);

    (void)arg;
    if (sc_sim_rank_number(rank) == 0)
        return 0;
    sc_status status = sc_sim_rank_sleep(rank, life == 1 ? 2 * SECOND : MS);
    played.at_ns[life] = sc_sim_rank_now_ns(rank);
    return status == SC_OK ? (int)life : 9;
}

static void replaced_rank_goes_on_beside_its_successor(void **state) {
    (void)state;
    double_play("ranks 2\nat 1s: rank 1 replace 4s", main_is_replaced);
    double_expect_well();
    assert_int_equal(played.at_ns[2], 1001 * MS);
    assert_int_equal(played.at_ns[1], 5 * SECOND);
    assert_int_equal(played.report.lives[1], 2);
    assert_int_equal(played.report.exit_code[1], 2); // the last life's
    double_expect_line("rank 1 (former) ends: returned 1");
}

// ---- the same run again -----------------------------------------------------------------------

static int main_lives_through_much(struct sc_sim_rank *rank, void *arg) {
    struct small *h;
    void *stream = NULL;

    (void)arg;
    if (small_open(rank, 20 * MS, &h) != SC_OK || sc_sim_rank_stream_create(rank, &stream) != SC_OK)
        return 1;
    for (uint64_t step = 1; step <= 40; step++) {
        if (sc_sim_rank_launch(rank, stream, 30 * MS, NULL, NULL) != SC_OK ||
            small_submit(h) != SC_OK || small_await(h, small_now(h) + 10 * MS) == SC_SIM_KILLED ||
            sc_sim_rank_stream_wait(rank, stream, SC_FOREVER) != SC_OK)
            return 2;
        small_mark(h, step);
    }
    small_close(h);
    return 0;
}

static void equal_options_give_equal_runs(void **state) {
    static const char plan[] = "ranks 4\nrespawn 10ms 500ms\n"
                               "at 200ms: rank 0 kill\nat 300ms: rank 1 pause 400ms\n"
                               "at op 1 of mark 9: rank 2 kill\nat 500ms: rank 3 replace 700ms\n"
                               "at 600ms: rank 2 stall 100ms\nat mark 20: rank 1 kill\n";

    (void)state;
    double_play_seed(4, plan, main_lives_through_much);
    double_expect_well();
    const struct sc_sim_report first = played.report;
    assert_true(played.report.lives[0] == 2 && played.report.lives[1] == 2 &&
                played.report.lives[2] == 2);
    for (int i = 0; i < 100; i++) {
        double_play_seed(4, plan, main_lives_through_much);
        assert_memory_equal(&played.report, &first, sizeof first);
    }
    double_play_seed(5, plan, main_lives_through_much);
    assert_true(played.report.hash != first.hash);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        DOUBLE_TEST(killed_rank_is_told_wherever_it_waits),
        DOUBLE_TEST(killed_rank_comes_back_by_entry_or_by_supervisor),
        DOUBLE_TEST(rank_that_returned_comes_back_by_entry_alone),
        DOUBLE_TEST(entry_strikes_in_the_middle_of_the_call_that_it_names),
        DOUBLE_TEST(paused_rank_stands_still_with_its_steps),
        DOUBLE_TEST(stalled_rank_stands_still_without_its_steps),
        DOUBLE_TEST(quiet_resumes_what_is_paused),
        DOUBLE_TEST(replaced_rank_goes_on_beside_its_successor),
        DOUBLE_TEST(equal_options_give_equal_runs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
