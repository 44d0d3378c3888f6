// SPDX-License-Identifier: AGPL-3.0-only
//
// An engine that knows the two public headers alone, on the test double: what it computes, what it
// survives, and that its runs repeat.
#include "tests/support/engine.h"
#include "tests/support/sockets_rig.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)

static struct engine engine;
static struct sc_sim_report report;
static char trace[65536];
static size_t trace_used;

static void on_trace(void *arg, const char *line) {
    size_t room = sizeof trace - trace_used;

    (void)arg;
    int length = snprintf(trace + trace_used, room, "%s\n", line);
    if (length > 0 && (size_t)length < room)
        trace_used += (size_t)length;
}

static void begin(struct sc_sim_options *options, const char *plan) {
    sc_sim_options_init(options, sizeof *options);
    options->plan = plan;
    options->on_trace = on_trace;
    report = (struct sc_sim_report){.size = sizeof report};
    trace_used = 0;
    trace[0] = '\0';
    memset(engine.ranks, 0, sizeof engine.ranks);
}

static void play_options(const struct sc_sim_options *options) {
    if (sc_sim_run(options, engine_main, &engine, &report) != SC_OK)
        fail_msg("%s", sc_last_error());
}

static void play(uint64_t seed, const char *plan) {
    struct sc_sim_options options;

    begin(&options, plan);
    options.seed = seed;
    play_options(&options);
}

static int reset(void **state) {
    (void)state;
    engine = (struct engine){.steps = 12, .layers = 4, .kernel_ns = MS, .rest_ns = 20 * MS};
    return 0;
}

static void expect_well(void) {
    if (report.violations != 0)
        fail_msg("%s\n%s", report.violation, trace);
    for (uint32_t r = 0; r < report.ranks; r++) {
        const struct engine_rank *rank = &engine.ranks[r];
        assert_int_equal(rank->wrong, 0);
        if (report.exit_code[r] != ENGINE_DONE || rank->marks != engine.steps)
            fail_msg("rank %u: exit %d, mark %llu: %s\n%s", r, report.exit_code[r],
                     (unsigned long long)rank->marks, rank->why, trace);
    }
}

static void expect_recovered(uint32_t rank, sc_status cause) {
    expect_well();
    if (engine.ranks[rank].recoveries != 1 || engine.ranks[rank].cause != (uint32_t)cause)
        fail_msg("rank %u: %llu recoveries, the last for %s, expected one for %s\n%s", rank,
                 (unsigned long long)engine.ranks[rank].recoveries,
                 sc_status_name((sc_status)engine.ranks[rank].cause), sc_status_name(cause), trace);
}

// ---- nothing goes wrong -----------------------------------------------------------------------

static void any_number_of_ranks_compute_the_right_bits(void **state) {
    static const char *const plans[] = {"ranks 1", "ranks 2", "ranks 3", "ranks 8"};

    (void)state;
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        for (int agreed = 0; agreed < 2; agreed++) {
            engine.agreed = agreed;
            play(1, plans[i]);
            expect_well();
            for (uint32_t r = 0; r < report.ranks; r++) {
                assert_int_equal(engine.ranks[r].epochs, 1);
                assert_int_equal(report.lives[r], 1);
            }
        }
    }
}

static void hour_of_work_takes_moments(void **state) {
    (void)state;
    engine.steps = 600;
    engine.rest_ns = 6 * SECOND;
    play(1, "ranks 2\nseconds 4000");
    expect_well();
    assert_true(report.ended_ns > 3600 * SECOND);
}

// ---- deaths -----------------------------------------------------------------------------------

static void killed_rank_comes_back_at_every_op_of_a_step(void **state) {
    char plan[128];

    (void)state;
    for (uint32_t rank = 0; rank < 2; rank++) {
        for (uint32_t op = 1; op <= engine.layers; op++) {
            snprintf(plan, sizeof plan, "respawn 100ms 300ms\nat op %u of mark 5: rank %u kill", op,
                     rank);
            play(op, plan);
            expect_well();
            assert_int_equal(report.lives[rank], 2);
            assert_int_equal(report.lives[1 - rank], 1);
            assert_int_equal(engine.ranks[1 - rank].epochs, 2);
        }
    }
}

static void killed_peer_is_named_in_the_record(void **state) {
    (void)state;
    play(1, "ranks 3\nat op 2 of mark 3: rank 2 kill\nafter 1s: rank 2 restart");
    expect_recovered(0, SC_PEER_DEAD);
    assert_int_equal(report.lives[2], 2);
    assert_int_equal(report.exit_code[2], ENGINE_DONE);
}

// Every 23 ms from the first start to the end of the work.
static void killed_rank_comes_back_at_any_time(void **state) {
    char plan[128];

    (void)state;
    for (uint64_t at_ms = 40; at_ms < 800; at_ms += 23) {
        snprintf(plan, sizeof plan, "ranks 2\nrespawn 10ms 1s\nat %llums: rank %u kill",
                 (unsigned long long)at_ms, (unsigned)at_ms % 2);
        play(at_ms, plan);
        expect_well();
    }
}

static void rank_that_never_comes_back_is_waited_for_to_the_end(void **state) {
    (void)state;
    play(1, "ranks 2\nseconds 20\nat op 1 of mark 4: rank 1 kill");
    assert_int_equal(report.violations, 1);
    assert_non_null(strstr(report.violation, "rank 0: still runs at the end of the plan's time"));
    assert_int_equal(report.exit_code[0], -1);
    assert_int_equal(report.exit_code[1], -1);
}

// ---- other misfortunes ------------------------------------------------------------------------

static void long_pause_ends_the_epoch_and_a_short_one_does_not(void **state) {
    (void)state;
    play(1, "ranks 2\nat op 2 of mark 4: rank 1 pause 5s");
    expect_recovered(0, SC_PEER_SILENT);
    assert_int_equal(report.lives[1], 1);
    play(1, "ranks 2\nat op 2 of mark 4: rank 1 pause 1s");
    expect_well();
    assert_int_equal(engine.ranks[0].epochs, 1);
}

static void stalled_application_ends_no_epoch(void **state) {
    (void)state;
    play(1, "ranks 2\nat op 2 of mark 4: rank 1 stall 20s");
    expect_well();
    assert_int_equal(engine.ranks[0].epochs, 1);
    assert_true(report.ended_ns > 20 * SECOND);
}

static void faults_of_links_and_device_are_recovered_from(void **state) {
    static const struct {
        const char *plan;
        sc_status cause;
    } rows[] = {
        {"at op 2 of mark 4: async_error rank 1", SC_ASYNC_ERROR},
        {"op limit 1s\nat op 2 of mark 4: op_stuck rank 1", SC_FABRIC},
        {"at op 2 of mark 4: verb_fails rank 1 send nth 1 with DEVICE_ERROR", SC_DEVICE_ERROR},
        {"ranks 2\nat rank 1 op 2 of mark 4: link_blackhole 0 1 for 4s", SC_PEER_SILENT},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        play(1, rows[i].plan);
        expect_recovered(0, rows[i].cause);
        expect_recovered(1, rows[i].cause);
    }
}

static void lost_context_is_told_and_the_process_ends_well(void **state) {
    (void)state;
    play(1,
         "ranks 2\nseconds 30\nat op 2 of mark 4: context_lost rank 1\nafter 2s: rank 1 restart");
    expect_well();
    assert_int_equal(report.lives[1], 2);
}

// ---- what is judged ---------------------------------------------------------------------------

static void handle_left_open_is_a_violation(void **state) {
    (void)state;
    engine.leaves_handle = true;
    play(1, "ranks 2");
    assert_int_equal(report.violations, 2);
    assert_non_null(strstr(report.violation, "main returned 0 with a handle open"));
}

static void without_a_run_there_is_no_simulated_rank(void **state) {
    struct sc_config config;
    sc_comm comm;

    (void)state;
    sc_config_init(&config, sizeof config);
    config.capacity_bytes = 1024;
    config.master_host = "127.0.0.1";
    config.master_port = 29500;
    config.device = 9999; // where there are GPUs, not so many
    assert_int_equal(sc_open(&config, &comm), SC_UNAVAILABLE);
    assert_non_null(strstr(sc_last_error(), "belongs to no simulated rank"));
}

// ---- the same run again -----------------------------------------------------------------------

static void equal_options_give_equal_runs(void **state) {
    static const char plan[] = "ranks 3\nrespawn 100ms 500ms\nat op 3 of mark 3: rank 1 kill\n"
                               "at 2s: rank 2 pause 3s\nat 3s: rank 0 kill\n";

    (void)state;
    engine.steps = 200;
    play(7, plan);
    expect_well();
    const struct sc_sim_report first = report;
    for (int i = 0; i < 20; i++) {
        play(7, plan);
        assert_memory_equal(&report, &first, sizeof first);
    }
    play(8, plan);
    expect_well();
    assert_true(report.hash != first.hash);
}

// ---- one rank's own story ---------------------------------------------------------------------

// Asserted after the run: a failure ends its own thread.
static struct {
    sc_status event_fd, synced;
    uint32_t notes;
    uint16_t sum;
} story[2];

static void on_note(void *arg, const struct sc_note *note) {
    uint32_t *notes = arg;

    *notes += note->kind == SC_NOTE_STATE && note->to == SC_STATE_READY;
}

static sc_status replay(struct sc_sim_rank *rank, sc_comm comm, uint64_t epoch, void *buffer,
                        void *stream, bool rests) {
    sc_capture capture = 0;
    sc_status status = sc_capture_begin(comm, epoch, stream, &capture);

    if (status == SC_OK)
        status = sc_all_reduce(comm, epoch, buffer, 64, SC_BF16, stream);
    if (status == SC_OK)
        status = sc_capture_end(comm, capture);
    for (int i = 0; i < 3 && status == SC_OK; i++) {
        status = sc_replay_begin(comm, epoch, capture, stream);
        if (status == SC_OK)
            status = sc_sim_rank_graph_launch(rank, capture, stream);
        if (status == SC_OK)
            status = sc_replay_end(comm);
    }
    sc_status synced = SC_INPROGRESS;
    while (status == SC_OK && (synced = sc_test(comm, epoch, stream)) == SC_INPROGRESS)
        if (rests)
            status = sc_sim_rank_sleep(rank, MS);
    story[sc_sim_rank_number(rank)].synced = synced;
    return status == SC_OK ? sc_capture_release(comm, capture) : status;
}

static int main_replays(struct sc_sim_rank *rank, void *arg) {
    uint32_t r = sc_sim_rank_number(rank);
    struct sc_recovery record = {.size = sizeof record};
    struct sc_config config;
    sc_comm comm;
    void *buffer = NULL, *stream = NULL;
    const uint32_t *clock = arg;
    int fd;

    sc_config_init(&config, sizeof config);
    sc_sim_rank_config(rank, &config);
    config.capacity_bytes = 64;
    config.on_note = on_note;
    config.arg = &story[r].notes;
    if (sc_open(&config, &comm) != SC_OK || sc_sim_rank_alloc(rank, 64, &buffer) != SC_OK ||
        sc_sim_rank_stream_create(rank, &stream) != SC_OK)
        return 1;
    story[r].event_fd = sc_event_fd(comm, &fd);
    uint16_t *words = sc_sim_rank_memory(rank, buffer, 64);
    for (int i = 0; i < 32; i++)
        words[i] = 0x3F80; // 1
    if (sc_wait_ready(comm, SC_FOREVER, &record) != SC_OK ||
        replay(rank, comm, record.epoch, buffer, stream, *clock == SC_SIM_REAL) != SC_OK ||
        sc_barrier(comm, record.epoch, SC_FOREVER) != SC_OK)
        return 2;
    story[r].sum = words[31];
    return sc_close(comm, SC_CLOSE_FINAL, SC_FOREVER) == SC_OK ? 0 : 3;
}

static void captured_ops_notes_and_polling_work_as_on_a_gpu(void **state) {
    struct sc_sim_options options;

    (void)state;
    for (uint32_t clock = SC_SIM_VIRTUAL; clock <= SC_SIM_REAL; clock++) {
        memset(story, 0, sizeof story);
        begin(&options, "ranks 2\nwarmup takes 5ms 5ms\ninit takes 5ms 5ms\nabort takes 5ms 5ms");
        options.clock = clock;
        assert_int_equal(sc_sim_run(&options, main_replays, &clock, &report), SC_OK);
        if (report.violations != 0)
            fail_msg("%s", report.violation);
        for (int r = 0; r < 2; r++) {
            assert_int_equal(report.exit_code[r], 0);
            assert_int_equal(story[r].event_fd, clock == SC_SIM_REAL ? SC_OK : SC_UNAVAILABLE);
            assert_int_equal(story[r].synced, SC_OK);
            assert_int_equal(story[r].notes, 1);
            assert_int_equal(story[r].sum, 0x4100); // 8
        }
    }
}

static sc_comm interrupted;

static void on_signal(int number) {
    (void)number;
    sc_interrupt(interrupted);
}

static int main_is_interrupted(struct sc_sim_rank *rank, void *arg) {
    struct sc_recovery record = {.size = sizeof record};
    struct sc_config config;

    (void)arg;
    sc_config_init(&config, sizeof config);
    sc_sim_rank_config(rank, &config);
    config.capacity_bytes = 64;
    if (sc_open(&config, &interrupted) != SC_OK)
        return 1;
    (void)raise(SIGUSR1);
    story[0].synced = sc_wait_ready(interrupted, SC_FOREVER, &record);
    return sc_close(interrupted, SC_CLOSE_FINAL, SC_FOREVER) == SC_OK ? 0 : 2;
}

static void signal_handler_may_interrupt(void **state) {
    struct sigaction action = {.sa_handler = on_signal}, before;
    struct sc_sim_options options;

    (void)state;
    memset(story, 0, sizeof story);
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    begin(&options, "ranks 1");
    assert_int_equal(sc_sim_run(&options, main_is_interrupted, NULL, &report), SC_OK);
    assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
    assert_int_equal(report.violations, 0);
    assert_int_equal(report.exit_code[0], 0);
    assert_int_equal(story[0].synced, SC_INTERRUPTED);
}

// ---- the real clock ---------------------------------------------------------------------------

#define QUICK "init takes 5ms 10ms\nwarmup takes 5ms 10ms\nabort takes 5ms 10ms\n"

static void play_real(uint32_t links, const char *plan) {
    struct sc_sim_options options;
    int reserved;

    begin(&options, plan);
    options.clock = SC_SIM_REAL;
    options.links = links;
    options.port = sockets_reserve(V4, &reserved);
    assert_int_not_equal(options.port, 0);
    play_options(&options);
    close(reserved);
}

static void real_clock_survives_a_death(void **state) {
    (void)state;
    play_real(SC_SIM_NETWORK, QUICK "ranks 3\nrespawn 20ms 50ms\nat op 3 of mark 5: rank 1 kill");
    expect_well();
    assert_int_equal(report.lives[1], 2);
}

static void real_sockets_survive_a_death_of_either_rank(void **state) {
    (void)state;
    play_real(SC_SIM_SOCKETS, QUICK "ranks 2\nrespawn 20ms 50ms\nat op 3 of mark 5: rank 1 kill");
    expect_well();
    assert_int_equal(report.lives[1], 2);
    play_real(SC_SIM_SOCKETS, QUICK "ranks 2\nrespawn 20ms 50ms\nat op 3 of mark 5: rank 0 kill");
    expect_well();
    assert_int_equal(report.lives[0], 2);
}

static void real_sockets_survive_a_pause(void **state) {
    (void)state;
    play_real(SC_SIM_SOCKETS, QUICK "ranks 2\nheartbeat 100ms\nsilence 500ms\n"
                                    "at op 3 of mark 5: rank 1 pause 1500ms");
    expect_well();
    assert_int_equal(report.lives[1], 1);
    assert_int_equal(engine.ranks[0].epochs, 2);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup(name, reset)
    const struct CMUnitTest tests[] = {
        TEST(any_number_of_ranks_compute_the_right_bits),
        TEST(hour_of_work_takes_moments),
        TEST(killed_rank_comes_back_at_every_op_of_a_step),
        TEST(killed_peer_is_named_in_the_record),
        TEST(killed_rank_comes_back_at_any_time),
        TEST(rank_that_never_comes_back_is_waited_for_to_the_end),
        TEST(long_pause_ends_the_epoch_and_a_short_one_does_not),
        TEST(stalled_application_ends_no_epoch),
        TEST(faults_of_links_and_device_are_recovered_from),
        TEST(lost_context_is_told_and_the_process_ends_well),
        TEST(handle_left_open_is_a_violation),
        TEST(without_a_run_there_is_no_simulated_rank),
        TEST(equal_options_give_equal_runs),
        TEST(captured_ops_notes_and_polling_work_as_on_a_gpu),
        TEST(signal_handler_may_interrupt),
        TEST(real_clock_survives_a_death),
        TEST(real_sockets_survive_a_death_of_either_rank),
        TEST(real_sockets_survive_a_pause),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
