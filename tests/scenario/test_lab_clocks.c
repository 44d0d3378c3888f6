// SPDX-License-Identifier: AGPL-3.0-only
//
// How long it takes: from a fault to its detection, to everybody's leaving, to the next result; and
// what must be over at a limit. Virtual time, so that every bound is exact.
#include "tests/scenario/test_lab_play.h"

#define STEPS 8u
#define SEEDS 10u

static struct sc_plan plan;
static struct sc_lab_result result;

// ---- a log of the trace -------------------------------------------------------------------------

#define LOG_MAX 4096u

struct logged {
    enum sc_trace_kind kind;
    uint32_t rank;
    uint64_t now_ns, epoch;
    struct sc_action notice; // kind NOTICE
    bool failed;             // kind SPAWN: it could not open; kind END: it ended as failed
};

static struct logged entries[LOG_MAX];
static uint32_t entries_count;

static void log_entry(void *arg, const struct sc_trace_entry *entry) {
    bool wanted = entry->kind == SC_TRACE_NOTICE || entry->kind == SC_TRACE_SPAWN ||
                  entry->kind == SC_TRACE_END || entry->kind == SC_TRACE_READY;
    (void)arg;
    if (!wanted)
        return;
    assert_true(entries_count < LOG_MAX);
    struct logged *logged = &entries[entries_count++];
    *logged = (struct logged){
        .kind = entry->kind, .rank = entry->rank, .now_ns = entry->now_ns, .epoch = entry->epoch};
    if (entry->notice != NULL)
        logged->notice = *entry->notice;
    const char *text = entry->text != NULL ? entry->text : "";
    if (entry->kind == SC_TRACE_SPAWN)
        logged->failed = text[0] != '\0';
    if (entry->kind == SC_TRACE_END)
        logged->failed = strcmp(text, "failed") == 0;
}

static void play(void) {
    const struct sc_lab_options options = {.on_trace = log_entry};

    entries_count = 0;
    plan_play_watched(&plan, &options, &result);
}

static bool is_move(const struct logged *logged, uint32_t rank, enum sc_state from,
                    enum sc_state to) {
    return logged->kind == SC_TRACE_NOTICE && logged->rank == rank &&
           logged->notice.kind == SC_NOTICE_STATE && logged->notice.a == from &&
           logged->notice.b == to;
}

// The first move of `rank` between the two states at or after a time.
static const struct logged *move_of(uint32_t rank, enum sc_state from, enum sc_state to,
                                    uint64_t since_ns) {
    for (uint32_t i = 0; i < entries_count; i++)
        if (entries[i].now_ns >= since_ns && is_move(&entries[i], rank, from, to))
            return &entries[i];
    plan_fails(&plan, "a rank did not move as wanted");
    return NULL;
}

// ---- detection ----------------------------------------------------------------------------------

static void a_killed_peer_is_detected_within_10_ms_of_its_death(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        for (uint32_t ranks = 2; ranks <= 4; ranks++) {
            plan_begin(&plan, seed, ranks, STEPS);
            plan_at_op(&plan, 2, 3, SC_PLAN_kill, ranks - 1);
            play();
            plan_wants(&plan, "the time to detect", result.detect_ns, 1, 10 * MS);
            for (uint32_t r = 0; r < ranks - 1; r++) { // … and all know it one round trip later
                uint64_t left_ns =
                    move_of(r, SC_STATE_READY, SC_STATE_ABORTING, result.fault_ns)->now_ns;
                plan_wants(&plan, "the time until the last has left", left_ns - result.fault_ns, 1,
                           10 * MS);
            }
        }
    }
}

static void a_silent_peer_is_detected_at_the_silence_limit(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        plan_begin(&plan, seed, 2, STEPS);
        const struct sc_timing *t = &plan.core.timing;
        plan_at_op(&plan, 2, 3, SC_PLAN_pause, 1)->duration_ns = 4 * SECOND;
        play();
        plan_wants(&plan, "the time to detect", result.detect_ns,
                   t->silence_ns - t->heartbeat_ns - MS, t->silence_ns + MS);
        plan_wants(&plan, "the recorded silence", result.phases.detect_ns, t->silence_ns,
                   t->silence_ns + MS);
    }
}

static void a_stuck_op_ends_the_epoch_at_its_limit_after_its_start(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        plan_begin(&plan, seed, 2, STEPS);
        plan.core.timing.op_ns = 3 * SECOND;
        struct sc_plan_entry *entry = plan_at_op(&plan, 2, 3, SC_PLAN_fault, 1);
        entry->fault = (struct sc_sim_fault){.kind = SC_SIM_op_stuck, .a = 1};
        play();
        // The last rank's start is told by its next heartbeat.
        plan_wants(&plan, "the time to detect", result.detect_ns, 3 * SECOND,
                   3 * SECOND + plan.core.timing.heartbeat_ns + 2 * MS);
        plan_wants(&plan, "the recorded time of the op", result.phases.detect_ns, 3 * SECOND,
                   3 * SECOND + MS);
        plan_wants(&plan, "the cause",
                   move_of(0, SC_STATE_READY, SC_STATE_ABORTING, 0)->notice.status, SC_FABRIC,
                   SC_FABRIC);
    }
}

// ---- recovery -----------------------------------------------------------------------------------

// After the restart nothing is waited for but what the devices take: the later of abort and restart,
// then init and warm-up.
static void a_pair_is_whole_again_within_1_s_of_a_restart_after_300_ms(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        for (uint32_t rank = 0; rank < 2; rank++) {
            plan_begin(&plan, seed, 2, STEPS);
            const struct sc_sim_config *sim = &plan.sim;
            plan.respawn_min_ns = plan.respawn_max_ns = 0;
            plan_at_op(&plan, 2, 3, SC_PLAN_kill, rank);
            plan_after(&plan, 300 * MS, SC_PLAN_restart, rank);
            play();
            plan_wants(&plan, "the time until the next result", result.whole_ns, 300 * MS,
                       1300 * MS);
            plan_wants(&plan, "the time until the next result", result.whole_ns,
                       sim->comm_abort.min_ns + sim->comm_init.min_ns + sim->comm_warmup.min_ns,
                       sim->comm_abort.max_ns + sim->comm_init.max_ns + sim->comm_warmup.max_ns +
                           5 * MS + plan.core.backoff_min_ns * 4);
        }
    }
}

static void a_reconnect_takes_no_longer_than_its_devices(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        plan_begin(&plan, seed, 2, STEPS);
        const struct sc_sim_config *sim = &plan.sim;
        plan_at_op(&plan, 2, 3, SC_PLAN_reconnect, (uint32_t)(seed & 1));
        play();
        plan_wants(&plan, "the time until the next result", result.whole_ns,
                   sim->comm_abort.min_ns + sim->comm_init.min_ns + sim->comm_warmup.min_ns,
                   sim->comm_abort.max_ns + sim->comm_init.max_ns + sim->comm_warmup.max_ns +
                       2 * MS);
    }
}

// ---- b7, b8: what must be over, or told, at a limit ---------------------------------------------

static void an_init_that_never_returns_ends_at_the_deadline_on_every_rank(void **state) {
    (void)state;
    for (uint32_t ranks = 2; ranks <= 4; ranks++) {
        for (uint32_t rank = 0; rank < ranks; rank++) {
            plan_begin(&plan, 1, ranks, STEPS);
            plan.core.timing.init_ns = 2 * SECOND;
            plan_at_mark(&plan, 3, SC_PLAN_fault, rank)->fault =
                (struct sc_sim_fault){.kind = SC_SIM_init_hang, .a = rank};
            plan_after(&plan, 0, SC_PLAN_reconnect, 0);
            play();
            for (uint32_t r = 0; r < ranks; r++) {
                const struct logged *begins =
                    move_of(r, SC_STATE_RENDEZVOUS, SC_STATE_JOINING, result.fault_ns);
                const struct logged *ends =
                    move_of(r, SC_STATE_JOINING, SC_STATE_ABORTING, result.fault_ns);
                plan_wants(&plan, "the cause", ends->notice.status, SC_INIT_TIMEOUT,
                           SC_INIT_TIMEOUT);
                plan_wants(&plan, "the attempt", ends->now_ns - begins->now_ns, 2 * SECOND - MS,
                           2 * SECOND + MS);
            }
        }
    }
}

static const struct logged *first_refusal(uint32_t rank, sc_status status) {
    for (uint32_t i = 0; i < entries_count; i++)
        if (entries[i].kind == SC_TRACE_NOTICE && entries[i].rank == rank &&
            entries[i].notice.kind == SC_NOTICE_REFUSED && entries[i].notice.status == status)
            return &entries[i];
    plan_fails(&plan, "nobody was refused");
    return NULL;
}

static void a_second_process_of_a_live_rank_is_told_within_1_s(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        plan_begin(&plan, seed, 3, 0);
        plan.work.gap_ns = 100 * MS;
        plan.duration_ns = 10 * SECOND;
        plan.quiet_ns = 5 * SECOND;
        plan_at_mark(&plan, 3, SC_PLAN_replace, 1)->duration_ns = 200 * MS;
        play();
        plan_wants(&plan, "DUP_RANK", first_refusal(0, SC_DUP_RANK)->now_ns - result.fault_ns, 1,
                   SECOND);
        plan_wants(&plan, "DUP_RANK", first_refusal(1, SC_DUP_RANK)->now_ns - result.fault_ns, 1,
                   SECOND);
        // Once the first process is gone, and not before, its place is taken.
        plan_wants(&plan, "the end of the first epoch",
                   move_of(0, SC_STATE_READY, SC_STATE_ABORTING, 0)->now_ns, plan.quiet_ns,
                   plan.quiet_ns + MS);
    }
}

static void missing_ranks_are_named_at_the_join_limit(void **state) {
    (void)state;
    for (uint32_t ranks = 2; ranks <= 4; ranks++) {
        plan_begin(&plan, 1, ranks, STEPS);
        plan.core.join_ns = 3 * SECOND;
        plan.respawn_min_ns = plan.respawn_max_ns = 0;
        plan_at_mark(&plan, 3, SC_PLAN_kill, ranks - 1);
        plan_after(&plan, 5 * SECOND, SC_PLAN_restart, ranks - 1);
        play();
        uint64_t left_ns = move_of(0, SC_STATE_READY, SC_STATE_ABORTING, 0)->now_ns;
        uint32_t told = 0;
        for (uint32_t i = 0; i < entries_count; i++) {
            if (entries[i].kind != SC_TRACE_NOTICE || entries[i].rank != 0 ||
                entries[i].notice.kind != SC_NOTICE_MISSING)
                continue;
            told++;
            plan_wants(&plan, "the missing ranks", entries[i].notice.mask,
                       UINT64_C(1) << (ranks - 1), UINT64_C(1) << (ranks - 1));
            plan_wants(&plan, "the time it took to name them", entries[i].now_ns - left_ns,
                       3 * SECOND, 3 * SECOND + MS);
        }
        plan_wants(&plan, "the number of times that they are named", told, 1, 1);
    }
}

// ---- b9, b11: again and again -------------------------------------------------------------------

static uint64_t spawns_of(uint32_t rank, bool failed) {
    uint64_t count = 0;

    for (uint32_t i = 0; i < entries_count; i++)
        count += entries[i].kind == SC_TRACE_SPAWN && entries[i].rank == rank &&
                 entries[i].failed == failed;
    return count;
}

static void a_coordinator_restarted_20_times_at_once_binds_every_time(void **state) {
    (void)state;
    for (uint64_t pace_ns = 0; pace_ns <= 40 * MS; pace_ns += 10 * MS) {
        plan_begin(&plan, 1, 2, STEPS);
        plan.respawn_min_ns = plan.respawn_max_ns = 0;
        plan_at_mark(&plan, 3, SC_PLAN_kill, 0);
        for (uint32_t i = 1; i < 20; i++) {
            plan_after(&plan, pace_ns, SC_PLAN_restart, 0);
            plan_after(&plan, pace_ns + MS, SC_PLAN_kill, 0);
        }
        plan_after(&plan, pace_ns, SC_PLAN_restart, 0);
        play();
        plan_wants(&plan, "the number of processes that bound", spawns_of(0, false), 21, 21);
        plan_wants(&plan, "the number that did not", spawns_of(0, true), 0, 0);
    }
}

// The simulator traps an id that is used twice, the oracles an epoch that is.
static void a_hundred_reconnects_make_101_epochs(void **state) {
    (void)state;
    plan_begin(&plan, 1, 2, 102);
    plan.duration_ns = 300 * SECOND;
    plan.quiet_ns = 250 * SECOND;
    for (uint64_t i = 1; i <= 100; i++)
        plan_at_mark(&plan, i, SC_PLAN_reconnect, (uint32_t)(i & 1));
    play();
    plan_wants(&plan, "the number of epochs", result.epochs, 101, 101);
    uint64_t last = 0;
    for (uint32_t i = 0; i < entries_count; i++) {
        if (entries[i].kind != SC_TRACE_READY || entries[i].rank != 0)
            continue;
        plan_wants(&plan, "the epoch", entries[i].epoch, last + 1, UINT64_MAX);
        last = entries[i].epoch;
    }
    plan_wants(&plan, "the last epoch's count", last >> 24, 101, 101);
}

// ---- r9: nobody alive remembers the epoch of the one that thaws ---------------------------------

static void what_thaws_after_both_lives_changed_is_fenced(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        plan_begin(&plan, seed, 2, 0);
        plan.work.gap_ns = 100 * MS;
        plan.duration_ns = 40 * SECOND;
        plan.quiet_ns = 30 * SECOND;
        plan_at_mark(&plan, 3, SC_PLAN_replace, 1)->duration_ns = 15 * SECOND;
        plan_after(&plan, 100 * MS, SC_PLAN_kill, 0);
        play();
        plan_wants(&plan, "the number of epochs", result.epochs, 2, 2);
        (void)first_refusal(1, SC_FENCED);
        uint32_t failed = 0;
        for (uint32_t i = 0; i < entries_count; i++)
            failed += entries[i].kind == SC_TRACE_END && entries[i].failed;
        plan_wants(&plan, "the number of processes that failed", failed, 1, 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_peer_is_detected_within_10_ms_of_its_death),
        cmocka_unit_test(a_silent_peer_is_detected_at_the_silence_limit),
        cmocka_unit_test(a_stuck_op_ends_the_epoch_at_its_limit_after_its_start),
        cmocka_unit_test(a_pair_is_whole_again_within_1_s_of_a_restart_after_300_ms),
        cmocka_unit_test(a_reconnect_takes_no_longer_than_its_devices),
        cmocka_unit_test(an_init_that_never_returns_ends_at_the_deadline_on_every_rank),
        cmocka_unit_test(a_second_process_of_a_live_rank_is_told_within_1_s),
        cmocka_unit_test(missing_ranks_are_named_at_the_join_limit),
        cmocka_unit_test(a_coordinator_restarted_20_times_at_once_binds_every_time),
        cmocka_unit_test(a_hundred_reconnects_make_101_epochs),
        cmocka_unit_test(what_thaws_after_both_lives_changed_is_fenced),
    };
    return cmocka_run_group_tests_name("lab_clocks", tests, NULL, NULL);
}
