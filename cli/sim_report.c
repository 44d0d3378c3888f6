// SPDX-License-Identifier: AGPL-3.0-only
//
// The reports of "spark-comm sim", as text and as JSON.
#include "cli/sim_report.h"

#include "cli/report.h"

#include <inttypes.h>
#include <stdio.h>

static double seconds(uint64_t ns) {
    return (double)ns / 1e9;
}

static double share(uint64_t part, uint64_t whole) {
    return whole != 0 ? (double)part / (double)whole : 0;
}

static double throughput(const struct sc_sim_played *played, const struct sc_lab_many *many) {
    return played->real_s > 0 ? (double)many->runs / played->real_s : 0;
}

// ---- one run ------------------------------------------------------------------------------------

void sc_sim_report_run(const struct sc_sim_played *played, const struct sc_lab_result *result) {
    if (result->violations == 0) {
        printf("verdict: ok");
    } else {
        printf("verdict: %" PRIu32 " violation%s", result->violations,
               result->violations == 1 ? "" : "s");
    }
    printf(", %" PRIu64 " ops verified, %" PRIu64 " %s, trace %016" PRIx64 "\n",
           result->ops_verified, result->recoveries,
           result->recoveries == 1 ? "recovery" : "recoveries", result->hash);
    if (result->violations != 0)
        printf("violation: %s\nreplay: %s\n", result->violation, played->replay);
}

bool sc_sim_report_recovery(cJSON *object, const struct sc_lab_result *result) {
    cJSON *recovery = cJSON_AddObjectToObject(object, "last_recovery");

    return recovery != NULL && sc_report_u64(recovery, "fault_ns", result->fault_ns) &&
           sc_report_u64(recovery, "detect_ns", result->detect_ns) &&
           sc_report_u64(recovery, "agree_ns", result->phases.agree_ns) &&
           sc_report_u64(recovery, "abort_ns", result->phases.abort_ns) &&
           sc_report_u64(recovery, "wait_ns", result->phases.wait_ns) &&
           sc_report_u64(recovery, "form_ns", result->phases.form_ns) &&
           sc_report_u64(recovery, "warmup_ns", result->phases.warmup_ns) &&
           sc_report_u64(recovery, "first_op_ns", result->first_op_ns) &&
           sc_report_u64(recovery, "whole_ns", result->whole_ns);
}

static bool add_injected(cJSON *object, const uint64_t *faults, const uint64_t *verbs) {
    cJSON *injected = cJSON_AddObjectToObject(object, "injected");
    bool ok = injected != NULL;

    for (int kind = 0; kind < SC_SIM_FAULT_COUNT && ok; kind++)
        ok = sc_report_u64(injected, sc_sim_fault_name((enum sc_sim_fault_kind)kind), faults[kind]);
    for (int verb = SC_PLAN_fault + 1; verb < SC_PLAN_VERB_COUNT && ok; verb++)
        ok = sc_report_u64(injected, sc_plan_verb_name((enum sc_plan_verb)verb), verbs[verb]);
    return ok;
}

bool sc_sim_report_run_json(const struct sc_sim_played *played,
                            const struct sc_lab_result *result) {
    uint64_t faults[SC_SIM_FAULT_COUNT], verbs[SC_PLAN_VERB_COUNT];
    cJSON *object = cJSON_CreateObject();

    for (int kind = 0; kind < SC_SIM_FAULT_COUNT; kind++)
        faults[kind] = result->faults[kind];
    for (int verb = 0; verb < SC_PLAN_VERB_COUNT; verb++)
        verbs[verb] = result->verbs[verb];
    bool ok =
        sc_report_u64(object, "seed", played->seed) &&
        sc_report_u64(object, "ranks", played->ranks) &&
        cJSON_AddStringToObject(object, "faults", played->faults) != NULL &&
        sc_report_u64(object, "violations", result->violations) &&
        cJSON_AddStringToObject(object, "violation", result->violation) != NULL &&
        cJSON_AddNumberToObject(object, "virtual_seconds", seconds(result->ended_ns)) != NULL &&
        sc_report_u64(object, "ops_verified", result->ops_verified) &&
        sc_report_u64(object, "ops_exact", result->ops_exact) &&
        sc_report_u64(object, "ops_lost", result->ops_lost) &&
        sc_report_u64(object, "steps", result->steps) &&
        sc_report_u64(object, "epochs", result->epochs) &&
        sc_report_u64(object, "recoveries", result->recoveries) &&
        cJSON_AddBoolToObject(object, "ready_before_fault", result->ready_before_fault) != NULL &&
        (result->recoveries == 0 || sc_sim_report_recovery(object, result)) &&
        add_injected(object, faults, verbs) && sc_report_hex(object, "trace", result->hash) &&
        cJSON_AddStringToObject(object, "replay", played->replay) != NULL;
    return sc_report_json(object, ok);
}

// ---- many runs ----------------------------------------------------------------------------------

#define LABEL "%-28s"

static void print_virtual_time(uint64_t ns) {
    uint64_t minutes = ns / 60000000000u;

    printf(LABEL "%.1f s", "virtual time", seconds(ns));
    if (minutes >= 60) {
        printf(" (%" PRIu64 " h %" PRIu64 " min)", minutes / 60, minutes % 60);
    } else if (minutes > 0) {
        printf(" (%" PRIu64 " min)", minutes);
    }
    putchar('\n');
}

void sc_sim_report_many(const struct sc_sim_played *played, const struct sc_lab_many *many) {
    printf(LABEL "%" PRIu64 "\n", "runs", many->runs);
    printf(LABEL "%" PRIu64 "\n", "failed", many->failed);
    print_virtual_time(many->virtual_ns);
    printf(LABEL "%.1f runs/s\n", "throughput", throughput(played, many));
    printf(LABEL "%" PRIu64 ", median of a run %" PRIu64 "\n", "ops verified", many->ops_verified,
           many->ops_median);
    printf(LABEL "%.1f %% of the runs\n", "READY before first fault",
           100 * share(many->ready_before_fault, many->runs));
    printf(LABEL "%" PRIu64 "\n", "recoveries", many->recoveries);
    printf(LABEL "%" PRIu64 "\n", "epochs", many->epochs);
    printf(LABEL "%" PRIu64 "\n", "runs played twice", many->replayed);
    printf("faults injected\n");
    for (int kind = 0; kind < SC_SIM_FAULT_COUNT; kind++) {
        printf("  %-26s%" PRIu64 "\n", sc_sim_fault_name((enum sc_sim_fault_kind)kind),
               many->faults[kind]);
    }
    for (int verb = SC_PLAN_fault + 1; verb < SC_PLAN_VERB_COUNT; verb++) {
        if (verb == SC_PLAN_restart || verb == SC_PLAN_heal)
            continue; // remedies
        printf("  %-26s%" PRIu64 "\n", sc_plan_verb_name((enum sc_plan_verb)verb),
               many->verbs[verb]);
    }
    printf(LABEL "%016" PRIx64 "\n", "trace of all runs", many->hash);
    if (many->failed == 0) {
        puts("verdict: ok");
    } else {
        printf("verdict: %" PRIu64 " of %" PRIu64 " runs failed, first seed %" PRIu64
               "\nviolation: %s\nreplay: %s\n",
               many->failed, many->runs, many->first_failed_seed, many->violation, played->replay);
    }
}

static bool add_failure(cJSON *object, const struct sc_sim_played *played,
                        const struct sc_lab_many *many) {
    cJSON *failure = cJSON_AddObjectToObject(object, "first_failure");

    return failure != NULL && sc_report_u64(failure, "seed", many->first_failed_seed) &&
           cJSON_AddStringToObject(failure, "violation", many->violation) != NULL &&
           cJSON_AddStringToObject(failure, "replay", played->replay) != NULL;
}

bool sc_sim_report_many_json(const struct sc_sim_played *played, const struct sc_lab_many *many) {
    cJSON *object = cJSON_CreateObject();
    bool ok =
        sc_report_u64(object, "seed", played->seed) &&
        (played->ranks == 0 || sc_report_u64(object, "ranks", played->ranks)) &&
        cJSON_AddStringToObject(object, "faults", played->faults) != NULL &&
        sc_report_u64(object, "runs", many->runs) &&
        sc_report_u64(object, "failed", many->failed) &&
        cJSON_AddNumberToObject(object, "virtual_seconds", seconds(many->virtual_ns)) != NULL &&
        cJSON_AddNumberToObject(object, "real_seconds", played->real_s) != NULL &&
        cJSON_AddNumberToObject(object, "runs_per_second", throughput(played, many)) != NULL &&
        sc_report_u64(object, "ops_verified", many->ops_verified) &&
        sc_report_u64(object, "ops_median", many->ops_median) &&
        cJSON_AddNumberToObject(object, "ready_before_fault",
                                share(many->ready_before_fault, many->runs)) != NULL &&
        sc_report_u64(object, "recoveries", many->recoveries) &&
        sc_report_u64(object, "epochs", many->epochs) &&
        sc_report_u64(object, "played_twice", many->replayed) &&
        add_injected(object, many->faults, many->verbs) &&
        sc_report_hex(object, "trace", many->hash) &&
        (many->failed == 0 || add_failure(object, played, many));
    return sc_report_json(object, ok);
}
