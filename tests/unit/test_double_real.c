// SPDX-License-Identifier: AGPL-3.0-only
//
// The test double under the real clock: threads, pauses and deaths. Times are bounds from below only.
#include "tests/support/double_rig.h"

#include <poll.h>
#include <pthread.h>

static void play_real(const char *plan, uint32_t links, sc_sim_main *run) {
    struct sc_sim_options options;

    sc_sim_options_init(&options, sizeof options);
    options.clock = SC_SIM_REAL;
    options.links = links;
    options.plan = plan;
    double_play_options(&options, run);
}

// ---- time and threads -------------------------------------------------------------------------

static int main_sleeps_and_computes(struct sc_sim_rank *rank, void *arg) {
    uint32_t r = sc_sim_rank_number(rank);
    void *stream = NULL;

    (void)arg;
    uint64_t begun_ns = sc_sim_rank_now_ns(rank);
    if (sc_sim_rank_sleep(rank, 20 * MS) != SC_OK ||
        sc_sim_rank_stream_create(rank, &stream) != SC_OK ||
        sc_sim_rank_launch(rank, stream, 30 * MS, NULL, NULL) != SC_OK)
        return 1;
    played.status[r] = sc_sim_rank_stream_wait(rank, stream, SC_FOREVER);
    played.at_ns[r] = sc_sim_rank_now_ns(rank) - begun_ns;
    played.seen[r] = begun_ns < 10 * SECOND;
    return sc_sim_rank_stream_destroy(rank, stream) == SC_OK ? 0 : 2;
}

static void time_follows_the_machines_clock_from_near_0(void **state) {
    (void)state;
    play_real("ranks 3", SC_SIM_NETWORK, main_sleeps_and_computes);
    double_expect_well();
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(played.status[r], SC_OK);
        assert_true(played.at_ns[r] >= 50 * MS);
        assert_true(played.seen[r]);
        assert_int_equal(played.report.exit_code[r], 0);
    }
}

static int main_awaits(struct sc_sim_rank *rank, void *arg) {
    struct small *h;

    (void)arg;
    if (small_open(rank, 2 * MS, &h) != SC_OK || small_enter(h) != SC_OK)
        return 1;
    h->notify_at = h->steps + 5;
    const struct sc_host *host = h->world.host;
    do
        played.status[0] = host->await(host->ctx, SC_NEVER_NS);
    while (played.status[0] == SC_OK && !h->noted && h->notes == 0);
    small_leave(h);
    uint64_t begun_ns = small_now(h);
    do
        played.status[1] = small_await(h, begun_ns + 10 * MS);
    while (played.status[1] == SC_OK);
    played.at_ns[1] = small_now(h) - begun_ns;
    struct pollfd event = {.fd = host->event_fd(host->ctx), .events = POLLIN};
    played.value[0] = (uint64_t)poll(&event, 1, 0);
    host->event_signal(host->ctx);
    played.value[1] = (uint64_t)poll(&event, 1, 0);
    small_close(h);
    return 0;
}

static void steps_run_on_threads_and_a_notify_ends_an_await(void **state) {
    (void)state;
    play_real("ranks 1", SC_SIM_NETWORK, main_awaits);
    double_expect_well();
    assert_int_equal(played.status[0], SC_OK);
    assert_int_equal(played.status[1], SC_TIMEOUT);
    assert_true(played.at_ns[1] >= 10 * MS);
    assert_int_equal(played.value[0], 0);
    assert_int_equal(played.value[1], 1);
}

struct helper {
    struct sc_sim_rank *rank;
    bool here_before, here_after;
    sc_status attached, again, slept;
    pthread_barrier_t is_attached;
};

static void *help(void *arg) {
    struct helper *helper = arg;

    helper->here_before = sc_sim_here();
    helper->attached = sc_sim_rank_attach(helper->rank);
    helper->again = sc_sim_rank_attach(helper->rank);
    helper->here_after = sc_sim_here();
    pthread_barrier_wait(&helper->is_attached);
    helper->slept = sc_sim_rank_sleep(helper->rank, SC_FOREVER);
    return NULL;
}

static struct helper helper;

static int main_returns_before_its_thread(struct sc_sim_rank *rank, void *arg) {
    pthread_t thread;

    (void)arg;
    helper.rank = rank;
    if (pthread_create(&thread, NULL, help, &helper) != 0)
        return 1;
    pthread_detach(thread);
    pthread_barrier_wait(&helper.is_attached);
    return 4;
}

static void attached_thread_is_told_that_main_has_returned(void **state) {
    (void)state;
    memset(&helper, 0, sizeof helper);
    pthread_barrier_init(&helper.is_attached, NULL, 2);
    play_real("ranks 1", SC_SIM_NETWORK, main_returns_before_its_thread);
    double_expect_well();
    assert_int_equal(played.report.exit_code[0], 4);
    assert_false(helper.here_before);
    assert_true(helper.here_after);
    assert_int_equal(helper.attached, SC_OK);
    assert_int_equal(helper.again, SC_OK);
    assert_int_equal(helper.slept, SC_SIM_KILLED);
    pthread_barrier_destroy(&helper.is_attached);
}

// ---- plans ------------------------------------------------------------------------------------

static int main_waits_somehow(struct sc_sim_rank *rank, void *arg) {
    uint32_t r = sc_sim_rank_number(rank);
    struct small *h;
    void *stream = NULL;

    (void)arg;
    if (sc_sim_rank_life(rank) > 1)
        return 7;
    if (small_open(rank, 5 * MS, &h) != SC_OK ||
        sc_sim_rank_stream_create(rank, &stream) != SC_OK ||
        sc_sim_rank_launch(rank, stream, 3600 * SECOND, NULL, NULL) != SC_OK)
        return 1;
    small_mark(h, 1);
    switch (r) {
    case 0: played.status[r] = sc_sim_rank_sleep(rank, SC_FOREVER); break;
    case 1: played.status[r] = small_await(h, SC_NEVER_NS); break;
    case 2: played.status[r] = sc_sim_rank_stream_wait(rank, stream, SC_FOREVER); break;
    default:
        while ((played.status[r] = small_submit(h)) == SC_OK)
            continue;
    }
    played.status[4 + r] = small_submit(h);
    return 0;
}

// A rank is about to wait when it sets its mark, and soon afterwards it dies.
#define DIES(rank) "at rank " #rank " mark 1: heal\nafter 20ms: rank " #rank " kill\n"

static void kill_them(const char *plan, uint32_t links) {
    play_real(plan, links, main_waits_somehow);
    double_expect_well();
    for (uint32_t r = 0; r < 4; r++) {
        assert_int_equal(played.status[r], SC_SIM_KILLED);
        assert_int_equal(played.status[4 + r], SC_SIM_KILLED);
        assert_int_equal(played.report.lives[r], r == 1 ? 2 : 1);
        assert_int_equal(played.report.exit_code[r], r == 1 ? 7 : -1);
    }
    assert_int_equal(played.abandoned, 4);
}

static void killed_rank_is_told_wherever_it_waits(void **state) {
    (void)state;
    kill_them("ranks 4\n" DIES(0) DIES(1) "after 10ms: rank 1 restart\n" DIES(2) DIES(3),
              SC_SIM_NETWORK);
}

static void killed_rank_is_told_over_sockets_too(void **state) {
    (void)state;
    kill_them("ranks 4\n" DIES(0) DIES(1) "after 0ms: rank 1 restart\n" DIES(2) DIES(3),
              SC_SIM_SOCKETS);
}

static int main_counts_steps(struct sc_sim_rank *rank, void *arg) {
    struct small *h;

    (void)arg;
    if (small_open(rank, 2 * MS, &h) != SC_OK || small_enter(h) != SC_OK)
        return 1;
    uint64_t steps = h->steps, begun_ns = sc_sim_rank_now_ns(rank);
    small_leave(h);
    // Here something strikes.
    if (small_submit(h) != SC_OK || small_enter(h) != SC_OK)
        return 2;
    played.value[0] = h->steps - steps;
    played.at_ns[0] = sc_sim_rank_now_ns(rank) - begun_ns;
    small_leave(h);
    small_close(h);
    return 0;
}

static void paused_rank_stands_still_with_its_threads(void **state) {
    (void)state;
    play_real("ranks 1\nat op 1 of mark 1: rank 0 pause 200ms", SC_SIM_NETWORK, main_counts_steps);
    double_expect_well();
    assert_int_equal(played.report.exit_code[0], 0);
    assert_true(played.at_ns[0] >= 200 * MS);
    assert_true(played.value[0] < 90); // those before the pause, and after it
}

static void stalled_rank_stands_still_without_its_threads(void **state) {
    (void)state;
    play_real("ranks 1\nat op 1 of mark 1: rank 0 stall 200ms", SC_SIM_NETWORK, main_counts_steps);
    double_expect_well();
    assert_int_equal(played.report.exit_code[0], 0);
    assert_true(played.at_ns[0] >= 200 * MS);
    assert_true(played.value[0] >= 2);
}

static int main_sleeps_for_ever(struct sc_sim_rank *rank, void *arg) {
    (void)arg;
    played.status[sc_sim_rank_number(rank)] = sc_sim_rank_sleep(rank, SC_FOREVER);
    return 0;
}

static void rank_that_runs_at_the_end_of_time_is_a_violation(void **state) {
    (void)state;
    play_real("ranks 2\nseconds 1", SC_SIM_NETWORK, main_sleeps_for_ever);
    double_expect_violation("rank 0: still runs at the end of the plan's time");
    assert_int_equal(played.report.violations, 2);
    assert_true(played.report.ended_ns >= SECOND);
    assert_int_equal(played.status[0], SC_SIM_KILLED);
    assert_int_equal(played.status[1], SC_SIM_KILLED);
}

// ---- callbacks --------------------------------------------------------------------------------

static void sleep_in_kernel(void *arg) {
    played.status[0] = sc_sim_rank_sleep(arg, MS);
}

static int main_launches_a_sleep(struct sc_sim_rank *rank, void *arg) {
    void *stream = NULL;

    (void)arg;
    if (sc_sim_rank_stream_create(rank, &stream) != SC_OK ||
        sc_sim_rank_launch(rank, stream, MS, sleep_in_kernel, rank) != SC_OK)
        return 1;
    return sc_sim_rank_stream_wait(rank, stream, SC_FOREVER) == SC_OK ? 0 : 2;
}

static void kernel_that_waits_is_a_violation_and_does_not_hang(void **state) {
    (void)state;
    play_real("ranks 1", SC_SIM_NETWORK, main_launches_a_sleep);
    double_expect_violation("sc_sim_rank_sleep() waits inside a callback");
    assert_int_equal(played.status[0], SC_SIM_KILLED);
    assert_int_equal(played.report.exit_code[0], 0);
}

static void fault_of_the_simulated_network_is_refused_over_sockets(void **state) {
    struct sc_sim_options options;
    struct sc_sim_report report = {.size = sizeof report};

    (void)state;
    sc_sim_options_init(&options, sizeof options);
    options.clock = SC_SIM_REAL;
    options.links = SC_SIM_SOCKETS;
    options.plan = "at 1s: link_reset 0 1";
    assert_int_equal(sc_sim_run(&options, main_sleeps_for_ever, NULL, &report), SC_INVALID);
    assert_non_null(
        strstr(sc_last_error(), "\"at 1s: link_reset 0 1\" is a fault of the simulated"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        DOUBLE_TEST(time_follows_the_machines_clock_from_near_0),
        DOUBLE_TEST(steps_run_on_threads_and_a_notify_ends_an_await),
        DOUBLE_TEST(attached_thread_is_told_that_main_has_returned),
        DOUBLE_TEST(killed_rank_is_told_wherever_it_waits),
        DOUBLE_TEST(killed_rank_is_told_over_sockets_too),
        DOUBLE_TEST(paused_rank_stands_still_with_its_threads),
        DOUBLE_TEST(stalled_rank_stands_still_without_its_threads),
        DOUBLE_TEST(rank_that_runs_at_the_end_of_time_is_a_violation),
        DOUBLE_TEST(kernel_that_waits_is_a_violation_and_does_not_hang),
        DOUBLE_TEST(fault_of_the_simulated_network_is_refused_over_sockets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
