// SPDX-License-Identifier: AGPL-3.0-only
//
// What the test double judges: engines that leave something behind or never return, and runs that it
// refuses to play.
#include "tests/support/double_rig.h"

static int main_returns(struct sc_sim_rank *rank, void *arg) {
    (void)rank;
    (void)arg;
    return 0;
}

// ---- what is judged ---------------------------------------------------------------------------

static int main_waits_for_ever(struct sc_sim_rank *rank, void *arg) {
    struct small *h;

    (void)arg;
    if (sc_sim_rank_number(rank) == 0)
        return 0;
    if (small_open(rank, 0, &h) != SC_OK)
        return 1;
    played.status[0] = small_await(h, SC_NEVER_NS);
    return 2;
}

static void wait_that_nothing_can_end_is_a_violation(void **state) {
    (void)state;
    double_play("ranks 2\nseconds 1000\nquiet 2s", main_waits_for_ever);
    double_expect_violation("rank 1: waits for ever in a call of the library");
    assert_int_equal(played.report.violations, 1);
    assert_int_equal(played.report.ended_ns, 2 * SECOND); // the last that the world had to do
    assert_int_equal(played.status[0], SC_SIM_KILLED);
    assert_int_equal(played.report.exit_code[0], 0);
    assert_int_equal(played.report.exit_code[1], -1);
}

static int main_sleeps_long(struct sc_sim_rank *rank, void *arg) {
    (void)arg;
    played.status[sc_sim_rank_number(rank)] = sc_sim_rank_sleep(rank, 3600 * SECOND);
    return 0;
}

static void rank_that_runs_at_the_end_of_time_is_a_violation(void **state) {
    (void)state;
    double_play("ranks 2\nseconds 10", main_sleeps_long);
    double_expect_violation("rank 0: still runs at the end of the plan's time, it is in "
                            "sc_sim_rank_sleep()");
    assert_int_equal(played.report.violations, 2);
    assert_int_equal(played.report.ended_ns, 10 * SECOND);
    assert_int_equal(played.status[1], SC_SIM_KILLED);
}

static int main_leaves_its_handle(struct sc_sim_rank *rank, void *arg) {
    struct small *h;

    (void)arg;
    return small_open(rank, 10 * MS, &h) == SC_OK ? 3 : 1;
}

static void handle_left_open_is_a_violation_and_is_abandoned(void **state) {
    (void)state;
    double_play("ranks 1", main_leaves_its_handle);
    double_expect_violation("main returned 3 with a handle open");
    assert_int_equal(played.abandoned, 1);
    assert_int_equal(played.report.exit_code[0], 3);
}

static int main_leaks(struct sc_sim_rank *rank, void *arg) {
    struct small *h;
    uint64_t address = 0;
    void *own = NULL;

    (void)arg;
    if (small_open(rank, 10 * MS, &h) != SC_OK || sc_sim_rank_alloc(rank, 16, &own) != SC_OK)
        return 1;
    sc_status status = h->world.device->mem_alloc(h->world.device->ctx, 64, &address);
    small_close(h);
    return status == SC_OK ? 0 : 2;
}

static void what_the_library_leaves_behind_is_a_violation(void **state) {
    (void)state;
    double_play("ranks 1", main_leaks);
    double_expect_violation("at exit the library still holds 1 allocations, 0 streams");
}

static int main_breaks_the_contract(struct sc_sim_rank *rank, void *arg) {
    struct small *h;

    (void)arg;
    if (small_open(rank, 10 * MS, &h) != SC_OK)
        return 1;
    played.status[0] = h->world.device->group_end(h->world.device->ctx);
    small_close(h);
    return 0;
}

static void breach_below_the_seam_is_a_violation(void **state) {
    (void)state;
    double_play("ranks 1", main_breaks_the_contract);
    double_expect_violation("contract: group_end");
    assert_int_equal(played.status[0], SC_STATE);
}

// ---- what is refused --------------------------------------------------------------------------

static int main_opens_as_another(struct sc_sim_rank *rank, void *arg) {
    struct sc_config config = {.size = sizeof config};
    struct sc_world world;
    char why[256];

    (void)arg;
    sc_sim_rank_config(rank, &config);
    config.rank = 1;
    played.status[0] = sc_sim_choose(&config, &world, why, sizeof why);
    played.seen[0] = strstr(why, "config.rank is 1") != NULL;
    config.rank = 0;
    config.world = 9;
    played.status[1] = sc_sim_choose(&config, &world, why, sizeof why);
    played.seen[1] = strstr(why, "config.world is 9") != NULL;
    return 0;
}

static void config_that_does_not_fit_the_rank_is_refused(void **state) {
    (void)state;
    double_play("ranks 1", main_opens_as_another);
    double_expect_well();
    assert_int_equal(played.status[0], SC_INVALID);
    assert_int_equal(played.status[1], SC_INVALID);
    assert_true(played.seen[0] && played.seen[1]);
}

static void refuses(const struct sc_sim_options *options, const char *words) {
    struct sc_sim_report untouched;

    memset(&untouched, 0x5A, sizeof untouched);
    struct sc_sim_report before = untouched;
    assert_int_equal(sc_sim_run(options, main_returns, NULL, &untouched), SC_INVALID);
    assert_memory_equal(&untouched, &before, sizeof before);
    if (strstr(sc_last_error(), words) == NULL)
        fail_msg("'%s' does not say '%s'", sc_last_error(), words);
}

static void wrong_options_are_refused(void **state) {
    struct sc_sim_options options;

    (void)state;
    refuses(NULL, "options, main and report are needed");
    sc_sim_options_init(&options, sizeof options);
    options.clock = 7;
    refuses(&options, "options.clock");
    sc_sim_options_init(&options, sizeof options);
    options.links = SC_SIM_SOCKETS;
    refuses(&options, "options.links");
    sc_sim_options_init(&options, sizeof options);
    options.port = 65536;
    refuses(&options, "options.port");
    sc_sim_options_init(&options, sizeof options);
    options.plan_name = NULL;
    refuses(&options, "options.plan_name");
    options.size = 0;
    refuses(&options, "are needed");
}

static void plan_that_the_double_cannot_play_is_refused_with_its_line(void **state) {
    struct sc_sim_options options;

    (void)state;
    sc_sim_options_init(&options, sizeof options);
    options.plan_name = "engine.plan";
    options.plan = "ranks 2\nat 1s: rank 1 reconnect";
    refuses(&options, "engine.plan:2: \"reconnect\" is for spark-comm's own runs");
    options.plan = "ranks 2\nsteps 5";
    refuses(&options, "engine.plan:2: \"steps\" is for spark-comm's own runs");
    options.plan = "ranks 9";
    refuses(&options, "engine.plan:1: ");
}

static int main_runs_a_run(struct sc_sim_rank *rank, void *arg) {
    struct sc_sim_options options;
    struct sc_sim_report inner = {.size = sizeof inner};

    (void)rank;
    (void)arg;
    sc_sim_options_init(&options, sizeof options);
    played.status[0] = sc_sim_run(&options, main_returns, NULL, &inner);
    return 0;
}

static void run_inside_a_run_is_refused(void **state) {
    (void)state;
    double_play("ranks 1", main_runs_a_run);
    double_expect_well();
    assert_int_equal(played.status[0], SC_INVALID);
}

static void report_of_an_older_caller_is_not_overrun(void **state) {
    struct sc_sim_options options;
    struct sc_sim_report old;

    (void)state;
    sc_sim_options_init(&options, sizeof options);
    memset(&old, 0x5A, sizeof old);
    old.size = offsetof(struct sc_sim_report, violation);
    assert_int_equal(sc_sim_run(&options, main_returns, NULL, &old), SC_OK);
    assert_int_equal(old.lives[1], 1);
    assert_int_equal(old.violation[0], 0x5A);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        DOUBLE_TEST(wait_that_nothing_can_end_is_a_violation),
        DOUBLE_TEST(rank_that_runs_at_the_end_of_time_is_a_violation),
        DOUBLE_TEST(handle_left_open_is_a_violation_and_is_abandoned),
        DOUBLE_TEST(what_the_library_leaves_behind_is_a_violation),
        DOUBLE_TEST(breach_below_the_seam_is_a_violation),
        DOUBLE_TEST(config_that_does_not_fit_the_rank_is_refused),
        DOUBLE_TEST(wrong_options_are_refused),
        DOUBLE_TEST(plan_that_the_double_cannot_play_is_refused_with_its_line),
        DOUBLE_TEST(run_inside_a_run_is_refused),
        DOUBLE_TEST(report_of_an_older_caller_is_not_overrun),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
