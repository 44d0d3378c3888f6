// SPDX-License-Identifier: AGPL-3.0-only
//
// Entries of a plan both ways: one that was written is read as the same entry.
#include "hal_sim/lab/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define SECOND UINT64_C(1000000000)

static struct sc_plan plan;
static char why[512];

static void reads(const char *text) {
    why[0] = '\0';
    sc_plan_init(&plan, 7, 2);
    if (sc_plan_parse(&plan, "x", text, why, sizeof why) != SC_OK)
        fail_msg("%s\nrefused: %s", text, why);
    assert_string_equal(why, "");
}

// Every line stands as sc_plan_entry_text writes it.
static const char *const entry_lines[] = {
    "at 300ms: heal",
    "at 1.5ms: rank 1 kill",
    "at op 17 of mark 5: rank 1 restart",
    "at rank 1 op 2 of mark 1: rank 0 replace 5s",
    "at mark 5: rank 0 reconnect",
    "at rank 0 mark 5: heal",
    "after 0s: rank 1 close final",
    "after 7ns: rank 1 close returning 2s",
    "at 8.076265175s: rank 1 pause 4s",
    "at 1s: rank 0 stall 1.5s",
    "at 1s: rank 0 slow kernel 20ms",
    "at 1s: link_reset 0 1",
    "at 1s: link_blackhole 1 0 for 3s",
    "at 1s: link_oneway 0 to 1 for 3s",
    "at 1s: link_delay 0 1 for 50ms",
    "at 1s: link_fragment 0 1 for 1s",
    "at 1s: name_unresolved rank 1 for 2s",
    "at 1s: port_squatted for 1s",
    "at 1s: stranger_silent for 1s",
    "at 1s: stranger_garbage",
    "at 1s: stranger_http for 2s",
    "at rank 0 mark 2: stranger_banner",
    "at 1s: stranger_replay rank 1",
    "at 1s: init_hang rank 1",
    "at 1s: init_error rank 1",
    "at 1s: init_null rank 1",
    "at 1s: register_null rank 1 times 3",
    "at op 1 of mark 1: async_error rank 1",
    "at 1s: op_slow rank 1 for 20ms",
    "at rank 0 op 1 of mark 9: op_stuck rank 1",
    "at 1s: op_late rank 1 for 20ms",
    "at 1s: abort_slow rank 1 for 2s",
    "at 1s: abort_stuck rank 1",
    "at 1s: verb_fails rank 0 send nth 3 with DEVICE_ERROR",
    "at 1s: verb_fails rank 0 op_poll nth 1 with INPROGRESS for ever",
    "at 1s: context_lost rank 1",
};
#define ENTRY_LINES (sizeof entry_lines / sizeof entry_lines[0])

static void an_entry_written_is_the_line_read(void **state) {
    char text[SC_PLAN_LINE_BYTES];

    (void)state;
    for (size_t i = 0; i < ENTRY_LINES; i++) {
        char whole[256];
        snprintf(whole, sizeof whole, "at 0s: heal\n%s", entry_lines[i]);
        reads(whole);
        assert_true(sc_plan_entry_text(&plan.entries[1], text, sizeof text));
        assert_string_equal(text, entry_lines[i]);
    }
}

static void every_verb_and_fault_has_its_line(void **state) {
    bool verbs[SC_PLAN_VERB_COUNT] = {false};
    bool faults[SC_SIM_FAULT_COUNT] = {false};

    (void)state;
    for (size_t i = 0; i < ENTRY_LINES; i++) {
        char whole[256];
        snprintf(whole, sizeof whole, "at 0s: heal\n%s", entry_lines[i]);
        reads(whole);
        verbs[plan.entries[1].verb] = true;
        if (plan.entries[1].verb == SC_PLAN_fault)
            faults[plan.entries[1].fault.kind] = true;
    }
    for (size_t i = 0; i < SC_PLAN_VERB_COUNT; i++)
        assert_true(verbs[i]);
    for (size_t i = 0; i < SC_SIM_FAULT_COUNT; i++)
        assert_true(faults[i]);
}

static void an_entry_of_the_swarm_reads_back_as_itself(void **state) {
    static struct sc_plan swarm;
    char text[SC_PLAN_LINE_BYTES], again[SC_PLAN_LINE_BYTES], whole[1024];

    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        sc_plan_swarm(&swarm, seed, 4, 20 * SECOND);
        for (uint32_t i = 0; i < swarm.entries_count; i++) {
            const struct sc_plan_entry *entry = &swarm.entries[i];
            assert_true(sc_plan_entry_text(entry, text, sizeof text));
            snprintf(whole, sizeof whole, "ranks 4\nat 0s: heal\n%s\n", text);
            reads(whole);
            const struct sc_plan_entry *read = &plan.entries[1];
            assert_int_equal(read->trigger, entry->trigger);
            assert_int_equal(read->verb, entry->verb);
            assert_true(sc_plan_entry_text(read, again, sizeof again));
            assert_string_equal(again, text);
        }
    }
}

static void an_entry_that_does_not_fit_or_is_none_is_not_written(void **state) {
    char text[SC_PLAN_LINE_BYTES];
    struct sc_plan_entry entry;

    (void)state;
    reads("at 300ms: heal");
    entry = plan.entries[0];
    assert_true(sc_plan_entry_text(&entry, text, sizeof "at 300ms: heal"));
    assert_false(sc_plan_entry_text(&entry, text, sizeof "at 300ms: heal" - 1));
    assert_false(sc_plan_entry_text(&entry, text, 0));
    entry.verb = SC_PLAN_VERB_COUNT;
    assert_false(sc_plan_entry_text(&entry, text, sizeof text));
}

static void every_verb_has_a_name(void **state) {
    (void)state;
    assert_string_equal(sc_plan_verb_name(SC_PLAN_close_returning), "close_returning");
    assert_string_equal(sc_plan_verb_name(SC_PLAN_VERB_COUNT), "unknown");
    for (int verb = 0; verb < SC_PLAN_VERB_COUNT; verb++)
        assert_non_null(sc_plan_verb_name((enum sc_plan_verb)verb));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_entry_written_is_the_line_read),
        cmocka_unit_test(every_verb_and_fault_has_its_line),
        cmocka_unit_test(an_entry_of_the_swarm_reads_back_as_itself),
        cmocka_unit_test(an_entry_that_does_not_fit_or_is_none_is_not_written),
        cmocka_unit_test(every_verb_has_a_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
