// SPDX-License-Identifier: AGPL-3.0-only
//
// Deaths and freezes at every moment: in each op of a step, all along the formation of an epoch, one
// after the other at every distance, in every order. Whenever it strikes, all ranks are in one epoch
// again and every result is exact.
#include "tests/scenario/test_lab_play.h"

#define STEPS 8u // of a run: the fault strikes in the middle of them

static struct sc_plan plan;
static struct sc_lab_result result;

static void kill_at_every_op(uint32_t ranks) {
    for (uint32_t rank = 0; rank < ranks; rank++) {
        for (uint64_t op = 1; op <= 4; op++) {
            plan_begin(&plan, op, ranks, STEPS);
            plan_at_op(&plan, op, 3, SC_PLAN_kill, rank);
            plan_play(&plan, &result);
            plan_wants(&plan, "the number of epochs", result.epochs, 2, 2);
            plan_wants(&plan, "the time to detect", result.detect_ns, 1, 10 * MS);
        }
    }
}

static void a_kill_at_any_op_is_recovered_exactly(void **state) {
    (void)state;
    for (uint32_t ranks = 2; ranks <= 4; ranks++)
        kill_at_every_op(ranks);
}

// A graph is one submit: what strikes within it comes so long after its launch.
static void a_kill_at_any_moment_of_a_graph_is_recovered_exactly(void **state) {
    (void)state;
    for (uint32_t ranks = 2; ranks <= 3; ranks++) {
        for (uint32_t rank = 0; rank < ranks; rank++) {
            for (uint64_t delay_ns = 0; delay_ns <= 140 * US; delay_ns += 20 * US) {
                plan_begin(&plan, 1 + delay_ns, ranks, STEPS);
                plan.work.graph = true;
                plan_at_op(&plan, 1, 3, SC_PLAN_slow_kernel, rank)->duration_ns = 10 * US;
                plan_after(&plan, delay_ns, SC_PLAN_kill, rank);
                plan_play(&plan, &result);
                plan_wants(&plan, "the number of epochs", result.epochs, 2, 2);
            }
        }
    }
}

static void two_streams_and_mixed_ops_are_recovered_exactly(void **state) {
    (void)state;
    for (uint32_t rank = 0; rank < 3; rank++) {
        for (uint64_t op = 1; op <= 6; op++) {
            plan_begin(&plan, op, 3, STEPS);
            plan.work.layers = 6;
            plan.work.streams = 2;
            plan.work.mixed = true;
            plan_at_op(&plan, op, 3, SC_PLAN_kill, rank);
            plan_play(&plan, &result);
            plan_wants(&plan, "the number of epochs", result.epochs, 2, 2);
        }
    }
}

// The first epoch forms from 40 ms to 600 ms; from the second on there is a past to respect.
static void a_kill_at_any_moment_of_forming_is_recovered(void **state) {
    (void)state;
    for (uint32_t ranks = 2; ranks <= 3; ranks++) {
        for (uint32_t rank = 0; rank < ranks; rank++) {
            for (uint64_t at_ns = 0; at_ns <= 620 * MS; at_ns += 5 * MS) {
                plan_begin(&plan, 1, ranks, 3);
                plan_at(&plan, at_ns, SC_PLAN_kill, rank);
                plan_play(&plan, &result);
                plan_wants(&plan, "the number of epochs", result.epochs, 1, 2);
            }
        }
    }
}

static void a_kill_at_any_moment_of_forming_anew_is_recovered(void **state) {
    (void)state;
    for (uint32_t rank = 0; rank < 3; rank++) {
        for (uint64_t delay_ns = 0; delay_ns <= 1150 * MS; delay_ns += 25 * MS) {
            plan_begin(&plan, 1, 3, STEPS);
            plan_at_mark(&plan, 3, SC_PLAN_reconnect, 1);
            plan_after(&plan, delay_ns, SC_PLAN_kill, rank);
            plan_play(&plan, &result);
            plan_wants(&plan, "the number of epochs", result.epochs, 2, 3);
        }
    }
}

static void a_second_kill(uint32_t ranks, uint32_t first, uint32_t second, uint64_t step_ns) {
    for (uint64_t delay_ns = 0; delay_ns <= SECOND; delay_ns += step_ns) {
        plan_begin(&plan, 1, ranks, STEPS);
        plan_at_op(&plan, 2, 3, SC_PLAN_kill, first);
        plan_after(&plan, delay_ns, SC_PLAN_kill, second);
        plan_play(&plan, &result);
        plan_wants(&plan, "the number of epochs", result.epochs, 2, 3);
    }
}

static void a_second_kill_at_any_distance_is_recovered(void **state) {
    (void)state;
    a_second_kill(2, 1, 0, 10 * MS);
    a_second_kill(2, 0, 1, 10 * MS);
    a_second_kill(2, 1, 1, 10 * MS); // its successor, once there is one
    a_second_kill(3, 1, 2, 50 * MS);
    a_second_kill(3, 2, 0, 50 * MS);
}

static void a_freeze(uint32_t ranks, uint32_t rank, uint64_t duration_ns) {
    plan_begin(&plan, 1, ranks, STEPS);
    const uint64_t silence_ns = plan.core.timing.silence_ns;
    // Between its last heartbeat and its stop lies up to one heartbeat, and the way of both.
    const uint64_t surely_heard_ns = silence_ns - plan.core.timing.heartbeat_ns - MS;

    plan_at_op(&plan, 2, 3, SC_PLAN_pause, rank)->duration_ns = duration_ns;
    plan_play(&plan, &result);
    plan_wants(&plan, "the number of epochs", result.epochs,
               duration_ns > silence_ns + MS ? 2 : 1, duration_ns < surely_heard_ns ? 1 : 2);
}

static void a_freeze_ends_the_epoch_only_beyond_the_silence_limit(void **state) {
    (void)state;
    for (uint32_t ranks = 2; ranks <= 3; ranks++)
        for (uint32_t rank = 0; rank < ranks; rank++)
            for (uint64_t duration_ns = 1500 * MS; duration_ns <= 2600 * MS; duration_ns += 50 * MS)
                a_freeze(ranks, rank, duration_ns);
}

static void a_kill_at_any_moment_of_a_freeze_is_recovered(void **state) {
    (void)state;
    for (uint32_t rank = 0; rank < 3; rank++) {
        for (uint64_t delay_ns = 0; delay_ns <= 9 * SECOND; delay_ns += 500 * MS) {
            plan_begin(&plan, 1, 3, STEPS);
            plan_at_mark(&plan, 3, SC_PLAN_pause, 1)->duration_ns = 8 * SECOND;
            plan_after(&plan, delay_ns, SC_PLAN_kill, rank);
            plan_play(&plan, &result);
            plan_wants(&plan, "the number of epochs", result.epochs, 2, 3);
        }
    }
}

static const uint8_t orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

// All die at once; they come back one by one, in each of the orders.
static void ranks_come_back_in_any_order(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        plan_begin(&plan, 1, 3, STEPS);
        plan.respawn_min_ns = plan.respawn_max_ns = 0;
        plan_at_mark(&plan, 3, SC_PLAN_kill, 0);
        plan_after(&plan, 0, SC_PLAN_kill, 1);
        plan_after(&plan, 0, SC_PLAN_kill, 2);
        for (uint32_t k = 0; k < 3; k++)
            plan_after(&plan, 700 * MS, SC_PLAN_restart, orders[i][k]);
        plan_play(&plan, &result);
        plan_wants(&plan, "the number of epochs", result.epochs, 2, 2);
    }
}

// One after the other, each killed while the one before it is on its way back or just back.
static void rolling_restarts_in_any_order_are_recovered(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        for (uint64_t pace_ns = 50 * MS; pace_ns <= 1250 * MS; pace_ns += 300 * MS) {
            plan_begin(&plan, 1, 3, STEPS);
            plan_at_mark(&plan, 3, SC_PLAN_kill, orders[i][0]);
            plan_after(&plan, pace_ns, SC_PLAN_kill, orders[i][1]);
            plan_after(&plan, pace_ns, SC_PLAN_kill, orders[i][2]);
            plan_play(&plan, &result);
            plan_wants(&plan, "the number of epochs", result.epochs, 2, 4);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kill_at_any_op_is_recovered_exactly),
        cmocka_unit_test(a_kill_at_any_moment_of_a_graph_is_recovered_exactly),
        cmocka_unit_test(two_streams_and_mixed_ops_are_recovered_exactly),
        cmocka_unit_test(a_kill_at_any_moment_of_forming_is_recovered),
        cmocka_unit_test(a_kill_at_any_moment_of_forming_anew_is_recovered),
        cmocka_unit_test(a_second_kill_at_any_distance_is_recovered),
        cmocka_unit_test(a_freeze_ends_the_epoch_only_beyond_the_silence_limit),
        cmocka_unit_test(a_kill_at_any_moment_of_a_freeze_is_recovered),
        cmocka_unit_test(ranks_come_back_in_any_order),
        cmocka_unit_test(rolling_restarts_in_any_order_are_recovered),
    };
    return cmocka_run_group_tests_name("lab_rules", tests, NULL, NULL);
}
