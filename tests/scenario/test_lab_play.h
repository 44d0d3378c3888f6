// SPDX-License-Identifier: AGPL-3.0-only
//
// For tests that make their plans in C: a short plan, entries one by one, and a play that fails with
// what went wrong and with the entries as a plan file would have them.
#ifndef SC_TESTS_SCENARIO_TEST_LAB_PLAY_H
#define SC_TESTS_SCENARIO_TEST_LAB_PLAY_H

#include "hal_sim/lab/lab.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)

// A quiet plan that ends when every rank has committed `steps`; dead ranks are back within 300 ms.
static inline void plan_begin(struct sc_plan *plan, uint64_t seed, uint32_t ranks, uint64_t steps) {
    sc_plan_init(plan, seed, ranks);
    plan->work.gap_ns = 10 * MS;
    plan->work.sync_every = 2;
    plan->work.steps_max = steps;
    plan->respawn_min_ns = 100 * MS;
    plan->respawn_max_ns = 300 * MS;
}

static inline struct sc_plan_entry *plan_add(struct sc_plan *plan, enum sc_plan_trigger trigger,
                                             uint64_t time_ns, enum sc_plan_verb verb,
                                             uint32_t rank) {
    assert_true(plan->entries_count < SC_PLAN_ENTRIES_MAX);
    struct sc_plan_entry *entry = &plan->entries[plan->entries_count++];
    *entry = (struct sc_plan_entry){
        .trigger = trigger, .time_ns = time_ns, .verb = verb, .rank = rank, .at_rank = rank};
    return entry;
}

static inline struct sc_plan_entry *plan_at(struct sc_plan *plan, uint64_t time_ns,
                                            enum sc_plan_verb verb, uint32_t rank) {
    return plan_add(plan, SC_PLAN_AT_TIME, time_ns, verb, rank);
}

static inline struct sc_plan_entry *plan_after(struct sc_plan *plan, uint64_t delay_ns,
                                               enum sc_plan_verb verb, uint32_t rank) {
    return plan_add(plan, SC_PLAN_AFTER, delay_ns, verb, rank);
}

static inline struct sc_plan_entry *plan_at_mark(struct sc_plan *plan, uint64_t mark,
                                                 enum sc_plan_verb verb, uint32_t rank) {
    struct sc_plan_entry *entry = plan_add(plan, SC_PLAN_AT_MARK, 0, verb, rank);
    entry->mark = mark;
    return entry;
}

// Just before `rank` submits op `op`, from 1, of the step after `mark`.
static inline struct sc_plan_entry *plan_at_op(struct sc_plan *plan, uint64_t op, uint64_t mark,
                                               enum sc_plan_verb verb, uint32_t rank) {
    struct sc_plan_entry *entry = plan_add(plan, SC_PLAN_AT_OP, 0, verb, rank);
    entry->op = op;
    entry->mark = mark;
    return entry;
}

static inline void plan_fails(const struct sc_plan *plan, const char *why) {
    char line[SC_PLAN_LINE_BYTES];

    print_error("seed %" PRIu64 "\nranks %" PRIu32 "\n%s", plan->sim.seed, plan->core.world,
                plan->work.graph ? "graph\n" : "");
    for (uint32_t i = 0; i < plan->entries_count; i++)
        if (sc_plan_entry_text(&plan->entries[i], line, sizeof line))
            print_error("%s\n", line);
    fail_msg("%s", why);
}

// Plays it: no oracle is breached, every result was looked at and is exact. What else the test wants
// it says with plan_wants, which shows the plan too.
static inline void plan_play_watched(const struct sc_plan *plan,
                                     const struct sc_lab_options *options,
                                     struct sc_lab_result *result) {
    assert_int_equal(sc_lab_run(plan, options, result), SC_OK);
    if (result->violations != 0)
        plan_fails(plan, result->violation);
    if (result->ops_verified == 0 || result->ops_exact != result->ops_verified)
        plan_fails(plan, "not every result is exact");
}

static inline void plan_play(const struct sc_plan *plan, struct sc_lab_result *result) {
    plan_play_watched(plan, NULL, result);
}

static inline void plan_wants(const struct sc_plan *plan, const char *what, uint64_t is,
                              uint64_t least, uint64_t most) {
    char why[160];

    if (is >= least && is <= most)
        return;
    snprintf(why, sizeof why, "%s is %" PRIu64 ", wanted %" PRIu64 " to %" PRIu64, what, is, least,
             most);
    plan_fails(plan, why);
}

#endif
