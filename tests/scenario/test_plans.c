// SPDX-License-Identifier: AGPL-3.0-only
//
// Plays every plan of tests/scenario/plans, one test a file: all its expected lines, no oracle
// breached, the same trace when played again, every entry with its effect, and no epoch beyond those
// that the plan expects: a plan names the last epoch of its run, so that a recovery which nobody asked
// for fails it.
#include "hal_sim/lab/lab.h"

#include <dirent.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PLANS_DIR "tests/scenario/plans"
#define PLANS_MAX 128u
#define PATH_BYTES 512u
#define PLAN_BYTES_MAX 16384u
#define SEED 1u // what "spark-comm sim --faults FILE" takes unless told otherwise

static char paths[PLANS_MAX][PATH_BYTES];
static struct CMUnitTest tests[PLANS_MAX]; // those without a name are passed over

static void read_plan(const char *path, struct sc_plan *plan) {
    static char text[PLAN_BYTES_MAX + 1];
    char why[512];
    FILE *file = fopen(path, "r");

    if (file == NULL)
        fail_msg("%s cannot be opened", path);
    size_t bytes = fread(text, 1, sizeof text, file);
    fclose(file);
    if (bytes == 0 || bytes == sizeof text)
        fail_msg("%s holds nothing, or more than %u bytes", path, PLAN_BYTES_MAX);
    text[bytes] = '\0';
    sc_plan_init(plan, SEED, 2);
    if (sc_plan_parse(plan, path, text, why, sizeof why) != SC_OK)
        fail_msg("%s", why);
}

static void note_last_epoch(void *arg, const struct sc_trace_entry *entry) {
    uint64_t *last = arg;
    uint64_t count = entry->epoch >> 24;

    if (entry->kind == SC_TRACE_READY && count > *last)
        *last = count;
}

static uint64_t last_expected_epoch(const struct sc_plan *plan) {
    static const char words[] = "ready epoch ";
    uint64_t last = 0;

    for (uint32_t i = 0; i < plan->expect_count; i++) {
        const char *at = strstr(plan->expect[i], words);
        uint64_t count = at != NULL ? strtoull(at + sizeof words - 1, NULL, 10) : 0;
        last = count > last ? count : last;
    }
    return last;
}

// An entry that finds nothing to strike, such as a fault of a rank that is not running, is a mistake
// in the plan.
static uint64_t effective_entries(const struct sc_lab_result *result) {
    uint64_t count = 0;

    for (uint32_t verb = 0; verb < SC_PLAN_VERB_COUNT; verb++)
        count += result->verbs[verb];
    return count;
}

static void holds(void **state) {
    static struct sc_plan plan;
    const char *path = *state;
    uint64_t last_epoch = 0;
    const struct sc_lab_options options = {.on_trace = note_last_epoch, .arg = &last_epoch};
    struct sc_lab_result result, again;

    read_plan(path, &plan);
    assert_int_not_equal(plan.expect_count, 0);
    assert_int_equal(sc_lab_run(&plan, &options, &result), SC_OK);
    if (result.violations != 0)
        fail_msg("%s\nreplay: spark-comm sim --faults %s", result.violation, path);
    if (effective_entries(&result) != plan.entries_count)
        fail_msg("of %" PRIu32 " entries %" PRIu64 " had an effect"
                 "\nreplay: spark-comm sim --faults %s",
                 plan.entries_count, effective_entries(&result), path);
    if (last_epoch != last_expected_epoch(&plan))
        fail_msg("the last epoch is %" PRIu64 ", the plan expects %" PRIu64
                 "\nreplay: spark-comm sim --faults %s",
                 last_epoch, last_expected_epoch(&plan), path);
    assert_int_equal(sc_lab_run(&plan, NULL, &again), SC_OK);
    assert_true(again.hash == result.hash);
}

static int by_name(const void *a, const void *b) {
    return strcmp(a, b);
}

static bool is_plan(const char *name) {
    size_t length = strlen(name);

    return length > 5 && strcmp(name + length - 5, ".plan") == 0;
}

// How many there are; 0 when the folder cannot be read or holds too many.
static size_t find_plans(const char *folder) {
    DIR *dir = opendir(folder);
    size_t count = 0;

    if (dir == NULL)
        return 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (!is_plan(entry->d_name))
            continue;
        if (count == PLANS_MAX ||
            snprintf(paths[count], PATH_BYTES, "%s/%s", folder, entry->d_name) >= (int)PATH_BYTES) {
            count = 0;
            break;
        }
        count++;
    }
    closedir(dir);
    qsort(paths, count, PATH_BYTES, by_name);
    return count;
}

int main(void) {
    const char *folder = getenv("SC_PLANS_DIR");
    folder = folder != NULL ? folder : PLANS_DIR;
    size_t count = find_plans(folder);

    if (count == 0) {
        fprintf(stderr,
                "test_plans: %s: no plans, or more than %u; start it at the repository's root or "
                "set SC_PLANS_DIR\n",
                folder, PLANS_MAX);
        return 1;
    }
    for (size_t i = 0; i < count; i++)
        tests[i] = (struct CMUnitTest){strrchr(paths[i], '/') + 1, holds, NULL, NULL, paths[i]};
    return cmocka_run_group_tests_name("plans", tests, NULL, NULL);
}
