// SPDX-License-Identifier: AGPL-3.0-only
//
// Plans as text: what is read, and the sentence for each line that is refused.
#include "hal_sim/lab/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)

static struct sc_plan plan;
static char why[512];

static void reads(const char *text) {
    why[0] = '\0';
    sc_plan_init(&plan, 7, 2);
    if (sc_plan_parse(&plan, "x", text, why, sizeof why) != SC_OK)
        fail_msg("%s\nrefused: %s", text, why);
    assert_string_equal(why, "");
}

static void refuses(const char *text, const char *sentence) {
    static struct sc_plan before;

    sc_plan_init(&plan, 7, 2);
    before = plan;
    assert_int_equal(sc_plan_parse(&plan, "x", text, why, sizeof why), SC_INVALID);
    assert_memory_equal(&plan, &before, sizeof plan);
    assert_string_equal(why, sentence);
}

static void guest_refuses(const char *text, const char *name, uint32_t line) {
    char sentence[256];

    sc_plan_init(&plan, 7, 2);
    plan.guest = true;
    assert_int_equal(sc_plan_parse(&plan, "x", text, why, sizeof why), SC_INVALID);
    snprintf(sentence, sizeof sentence,
             "x:%u: \"%s\" is for spark-comm's own runs, and here the ranks run your application: "
             "leave it out",
             line, name);
    assert_string_equal(why, sentence);
}

// ---- what is read -------------------------------------------------------------------------------

static void an_empty_text_changes_nothing(void **state) {
    static struct sc_plan before;

    (void)state;
    sc_plan_init(&before, 7, 2);
    reads("");
    assert_memory_equal(&plan, &before, sizeof plan);
    reads("\n  # a comment\n\t\r\n");
    assert_memory_equal(&plan, &before, sizeof plan);
}

static void a_scenario_is_read(void **state) {
    (void)state;
    reads("ranks 2\n"
          "at op 17 of mark 5: rank 1 kill\n"
          "after 300ms: rank 1 restart\n"
          "expect\n"
          "  rank 0 ready -> aborting   PEER_DEAD rank 1\n"
          "\n"
          "  rank 0 ready epoch 2       recovery: rank 1 fresh, mark 4  # why\n");
    assert_int_equal(plan.entries_count, 2);
    assert_int_equal(plan.entries[0].trigger, SC_PLAN_AT_OP);
    assert_int_equal(plan.entries[0].verb, SC_PLAN_kill);
    assert_int_equal(plan.entries[0].rank, 1);
    assert_int_equal(plan.entries[0].at_rank, 1);
    assert_int_equal(plan.entries[0].op, 17);
    assert_int_equal(plan.entries[0].mark, 4); // the step that becomes mark 5 follows mark 4
    assert_int_equal(plan.entries[1].trigger, SC_PLAN_AFTER);
    assert_int_equal(plan.entries[1].verb, SC_PLAN_restart);
    assert_int_equal(plan.entries[1].time_ns, 300 * MS);
    assert_int_equal(plan.expect_count, 2);
    assert_string_equal(plan.expect[0], "rank 0 ready -> aborting   PEER_DEAD rank 1");
    assert_string_equal(plan.expect[1],
                        "rank 0 ready epoch 2       recovery: rank 1 fresh, mark 4");
}

static void every_setting_is_read(void **state) {
    (void)state;
    reads("ranks 3\nseed 18446744073709551615\nsteps 9\nseconds 8\nlayers 48\nelements 2048\n"
          "streams 2\ngap 5ms\ncompute 20us\nsync every 3\nmixed\nrespawn 1ms 2s\n"
          "free end\nheartbeat 200ms\nsilence 1s\nop limit 3s\nbehind limit 4s\n"
          "init limit 5s\nabort limit 6s\nstable 7s\njoin limit 8s\nlink latency 1us 2us\n"
          "init takes 3us 4us\nwarmup takes 5us 6us\nabort takes 7us 8us\nop takes 9us 10us\n");
    assert_int_equal(plan.core.world, 3);
    assert_int_equal(plan.sim.world, 3);
    assert_true(plan.sim.seed == UINT64_MAX);
    assert_int_equal(plan.duration_ns, 8 * SECOND);
    assert_int_equal(plan.quiet_ns, 6 * SECOND);
    assert_int_equal(plan.work.steps_max, 9);
    assert_int_equal(plan.work.layers, 48);
    assert_int_equal(plan.work.elements, 2048);
    assert_int_equal(plan.work.streams, 2);
    assert_int_equal(plan.work.gap_ns, 5 * MS);
    assert_int_equal(plan.work.compute_ns, 20000);
    assert_int_equal(plan.work.sync_every, 3);
    assert_true(plan.work.mixed && plan.free_end && !plan.work.graph);
    assert_int_equal(plan.respawn_min_ns, MS);
    assert_int_equal(plan.respawn_max_ns, 2 * SECOND);
    assert_int_equal(plan.core.timing.heartbeat_ns, 200 * MS);
    assert_int_equal(plan.core.timing.silence_ns, SECOND);
    assert_int_equal(plan.core.timing.op_ns, 3 * SECOND);
    assert_int_equal(plan.core.timing.behind_ns, 4 * SECOND);
    assert_int_equal(plan.core.timing.init_ns, 5 * SECOND);
    assert_int_equal(plan.core.timing.abort_ns, 6 * SECOND);
    assert_int_equal(plan.core.stable_ns, 7 * SECOND);
    assert_int_equal(plan.core.join_ns, 8 * SECOND);
    assert_int_equal(plan.sim.link_latency.min_ns, 1000);
    assert_int_equal(plan.sim.link_latency.max_ns, 2000);
    assert_int_equal(plan.sim.comm_init.max_ns, 4000);
    assert_int_equal(plan.sim.comm_warmup.max_ns, 6000);
    assert_int_equal(plan.sim.comm_abort.max_ns, 8000);
    assert_int_equal(plan.sim.op_latency.max_ns, 10000);
    assert_true(plan.core.capacity_bytes >= 3 * 2048 * SC_BF16_BYTES);
    reads("graph");
    assert_true(plan.work.graph);
    reads("respawn never");
    assert_int_equal(plan.respawn_max_ns, 0);
    reads("seconds 8\nquiet 8s");
    assert_int_equal(plan.quiet_ns, 8 * SECOND);
}

static void an_op_makes_room_for_itself_unless_layers_are_given(void **state) {
    (void)state;
    reads("at op 100 of mark 1: rank 0 kill");
    assert_int_equal(plan.work.layers, 100);
    refuses("layers 48\nat op 49 of mark 1: rank 0 kill",
            "x:2: the op is \"49\", expected a whole number from 1 to 48");
    refuses("graph\nat op 2 of mark 1: rank 0 kill",
            "x:2: the op is \"2\", expected a whole number from 1 to 1");
}

static void blank_underscore_and_hyphen_are_alike_in_names(void **state) {
    (void)state;
    reads("link-latency 1us 2us\nop_limit 1s\n"
          "at 1s: link blackhole 0 1 for 3s\nat 1s: link-blackhole 0 1 for 3s\n"
          "at 1s: link_blackhole 0 1 for 3s\nat 1s: rank 0 close-final\n");
    assert_int_equal(plan.core.timing.op_ns, SECOND);
    assert_int_equal(plan.entries_count, 4);
    assert_memory_equal(&plan.entries[0], &plan.entries[1], sizeof plan.entries[0]);
    assert_memory_equal(&plan.entries[0], &plan.entries[2], sizeof plan.entries[0]);
    assert_int_equal(plan.entries[3].verb, SC_PLAN_close_final);
}

static void a_trigger_may_watch_another_rank(void **state) {
    (void)state;
    reads("at rank 0 op 2 of mark 3: rank 1 kill\nat rank 1 mark 3: heal\n"
          "at mark 4: async_error rank 1\n");
    assert_int_equal(plan.entries[0].at_rank, 0);
    assert_int_equal(plan.entries[0].rank, 1);
    assert_int_equal(plan.entries[1].at_rank, 1);
    assert_int_equal(plan.entries[1].mark, 3);
    assert_int_equal(plan.entries[2].at_rank, 1);
}

static void durations_keep_their_last_nanosecond(void **state) {
    (void)state;
    reads("at 1.5s: heal\nat 0.000000001s: heal\nat 2.25ms: heal\nat 7ns: heal\n");
    assert_int_equal(plan.entries[0].time_ns, 1500 * MS);
    assert_int_equal(plan.entries[1].time_ns, 1);
    assert_int_equal(plan.entries[2].time_ns, 2250000);
    assert_int_equal(plan.entries[3].time_ns, 7);
}

// ---- what is refused ----------------------------------------------------------------------------

static void unknown_words_name_the_nearest_known_one(void **state) {
    (void)state;
    refuses("ranks 2\nat op 17 of mark 5: rank 1 kil\n",
            "x:2: \"kil\" is not an action of a rank, the nearest one is \"kill\"");
    refuses("rnaks 2", "x:1: \"rnaks\" is not a statement, the nearest one is \"ranks\"");
    refuses("sync evry 2", "x:1: \"sync\" is not a statement, the nearest one is \"sync every\"");
    refuses("at 1s: link_blakhole 0 1 for 1s",
            "x:1: \"link_blakhole\" is not an action, the nearest one is \"link_blackhole\"");
    refuses("at 1s: verb_fails rank 0 snd nth 1 with BUSY",
            "x:1: \"snd\" is not a device verb, the nearest one is \"send\"");
    refuses("at 1s: verb_fails rank 0 send nth 1 with DEVICE_EROR",
            "x:1: \"DEVICE_EROR\" is not a status that is an error, the nearest one is "
            "\"DEVICE_ERROR\"");
}

static void numbers_outside_their_range_are_refused(void **state) {
    (void)state;
    refuses("ranks 0", "x:1: ranks is \"0\", expected a whole number from 1 to 8");
    refuses("ranks 9", "x:1: ranks is \"9\", expected a whole number from 1 to 8");
    refuses("ranks -1", "x:1: ranks is \"-1\", expected a whole number from 1 to 8");
    refuses("ranks", "x:1: ranks is missing, expected a whole number from 1 to 8");
    refuses("seed 18446744073709551616", "x:1: seed is \"18446744073709551616\", expected a whole "
                                         "number from 0 to 18446744073709551615");
    refuses("at 1s: rank 2 kill", "x:1: the rank is \"2\", expected a whole number from 0 to 1");
    refuses("at op 0 of mark 1: rank 0 kill",
            "x:1: the op is \"0\", expected a whole number from 1 to 128");
    refuses("at op 1 of mark 0: rank 0 kill",
            "x:1: the mark is \"0\", expected a whole number from 1 to 1000000000");
    refuses("at mark 0: rank 0 kill",
            "x:1: the mark is \"0\", expected a whole number from 1 to 1000000000");
    refuses("ranks 8\nlayers 128\nelements 1048576\n",
            "x:3: layers x elements x ranks takes 2147483648 bytes, expected at most 67108864");
}

static void durations_need_their_unit(void **state) {
    (void)state;
    refuses("gap 5", "x:1: gap is \"5\", expected a duration with its unit: ns, us, ms or s");
    refuses("gap 1.s", "x:1: gap is \"1.s\", expected a duration with its unit: ns, us, ms or s");
    refuses("gap 0.5ns", "x:1: gap is \"0.5ns\", expected a duration with its unit: ns, us, ms or "
                         "s");
    refuses("gap", "x:1: gap is missing, expected a duration such as 300ms");
    refuses("gap 700000s", "x:1: gap is 700000s, expected a duration from 1us to 604800s");
    refuses("op takes 2ms 1ms", "x:1: the longest is 1ms, expected a duration from 2ms to 604800s");
    refuses("gap 0s", "x:1: gap is 0s, expected a duration from 1us to 604800s");
    refuses("at 1s: rank 0 pause", "x:1: the duration is missing, expected a duration such as "
                                   "300ms");
    refuses("at 1s: op_slow rank 0 for 0ms",
            "x:1: the duration is 0ms, expected a duration from 1ns to 604800s");
}

static void what_can_never_happen_is_refused(void **state) {
    (void)state;
    refuses("after 1s: heal", "x:1: \"after\" counts from the entry above it, and there is none; "
                              "expected \"at\"");
    refuses("seconds 8\nat 6s: rank 0 kill", "x:2: the time is 6s, expected one before 6s: from "
                                             "then on nothing goes wrong (quiet)");
    refuses("seconds 8\nat 8s: rank 0 restart",
            "x:2: the time is 8s, expected one before 8s: from then on the run is over");
    refuses("seconds 8\nquiet 9s", "x:2: quiet is 9s, expected at most the run's 8s");
    refuses("at 1s: link_reset 1 1",
            "x:1: the link is from rank 1 to itself, expected two different ranks");
    refuses("at mark 1: stranger_http for 1s", "x:1: whose op or mark is meant? The action names "
                                               "no rank, expected \"at rank R\"");
    refuses("graph\nstreams 2\nat 1s: heal", "x:3: a graph is of one stream, but streams is 2");
    refuses("heartbeat 3s\nat 1s: heal",
            "x:2: the settings above make timing.silence_ns 2000000000, expected 6000000000 to "
            "604800000000000");
}

static void lines_that_go_on_or_break_off_are_refused(void **state) {
    (void)state;
    refuses("at 1s: rank 0 kill now", "x:1: found \"now\", expected the end of the line");
    refuses("graph 2", "x:1: found \"2\", expected the end of the line");
    refuses("at 1s rank 0 kill", "x:1: found \"rank\", expected \":\"");
    refuses("at 1s", "x:1: the line ends where \":\" is expected");
    refuses("at 1s:", "x:1: the line ends where an action is expected");
    refuses("at", "x:1: the time is missing, expected a duration such as 300ms");
    refuses("at op 1 mark 2: heal", "x:1: found \"mark\", expected \"of\"");
    refuses("at 1s: link_oneway 0 1 for 1s", "x:1: found \"1\", expected \"to\"");
    refuses("at 1s: heal\nranks 2", "x:2: \"ranks\" stands below an entry, expected settings above "
                                    "all entries");
    refuses("at 1s: \x1b[31m", "x:1: \"?[31m\" is not an action, the nearest one is \"rank\"");
}

static void too_much_is_refused(void **state) {
    static char text[64 * 1024];
    char sentence[128];
    size_t used = 0;

    (void)state;
    for (unsigned i = 0; i < SC_PLAN_ENTRIES_MAX; i++)
        used += (size_t)sprintf(text + used, "at 1s: heal\n");
    reads(text);
    assert_int_equal(plan.entries_count, SC_PLAN_ENTRIES_MAX);
    strcpy(text + used, "at 1s: heal\n");
    snprintf(sentence, sizeof sentence, "x:%u: one entry too many, expected at most %u",
             SC_PLAN_ENTRIES_MAX + 1, SC_PLAN_ENTRIES_MAX);
    refuses(text, sentence);

    used = (size_t)sprintf(text, "expect\n");
    for (unsigned i = 0; i < SC_PLAN_EXPECT_MAX; i++)
        used += (size_t)sprintf(text + used, "a\n");
    reads(text);
    strcpy(text + used, "a\n");
    snprintf(sentence, sizeof sentence, "x:%u: one expected line too many, expected at most %u",
             SC_PLAN_EXPECT_MAX + 2, SC_PLAN_EXPECT_MAX);
    refuses(text, sentence);

    snprintf(text, sizeof text, "expect\n%0*d\n", (int)SC_PLAN_LINE_BYTES - 1, 0);
    reads(text);
    snprintf(text, sizeof text, "expect\n%0*d\n", (int)SC_PLAN_LINE_BYTES, 0);
    refuses(text, "x:2: the expected line has 128 bytes, expected at most 127");
    snprintf(text, sizeof text, "%0257d", 0);
    refuses(text, "x:1: the line has 257 bytes, expected at most 256");
    refuses("a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a",
            "x:1: the line has more than 32 words, expected a statement");
}

static void a_sentence_is_cut_to_its_room(void **state) {
    char small[8] = "1234567";

    (void)state;
    sc_plan_init(&plan, 7, 2);
    assert_int_equal(sc_plan_parse(&plan, "name", "bad", small, sizeof small), SC_INVALID);
    assert_string_equal(small, "name:1:");
    assert_int_equal(sc_plan_parse(&plan, "name", "bad", small, 0), SC_INVALID);
    assert_string_equal(small, "name:1:");
}

// Whatever bytes come, the reader returns, and what it says is one line with the name in front.
static void any_bytes_are_answered(void **state) {
    static const char *const pieces[] = {
        "at ",    "after ", "rank ", "1 ",    "0 ",          ": ",    "op ",  "of ",
        "mark ",  "300ms ", "kill ", "heal",  "for ",        "\n",    "#",    "to ",
        "expect", "ranks ", "2 ",    "seed ", "verb_fails ", "send ", "nth ", "with ",
        "ever",   "\xff",   "\t",    "_",     "-",
    };
    uint64_t random = 1;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        char text[400] = "";
        for (int piece = 0; piece < 24; piece++) {
            random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
            strcat(text, pieces[(random >> 33) % (sizeof pieces / sizeof pieces[0])]);
        }
        sc_plan_init(&plan, 7, 2);
        if (sc_plan_parse(&plan, "x", text, why, sizeof why) == SC_OK)
            continue;
        assert_memory_equal(why, "x:", 2);
        assert_null(strchr(why, '\n'));
    }
}

// ---- plans for somebody else's application ------------------------------------------------------

static void what_is_for_own_runs_is_refused_to_a_guest(void **state) {
    (void)state;
    guest_refuses("steps 9", "steps", 1);
    guest_refuses("ranks 3\nlayers 4", "layers", 2);
    guest_refuses("elements 4", "elements", 1);
    guest_refuses("streams 2", "streams", 1);
    guest_refuses("gap 5ms", "gap", 1);
    guest_refuses("compute 5us", "compute", 1);
    guest_refuses("sync every 2", "sync every", 1);
    guest_refuses("graph", "graph", 1);
    guest_refuses("mixed", "mixed", 1);
    guest_refuses("free end", "free end", 1);
    guest_refuses("stable 2s", "stable", 1);
    guest_refuses("at 1s: rank 1 close final", "close final", 1);
    guest_refuses("at 1s: rank 1 close returning 1s", "close returning", 1);
    guest_refuses("at 1s: rank 1 reconnect", "reconnect", 1);
    guest_refuses("at 1s: rank 1 slow kernel 1ms", "slow kernel", 1);
    guest_refuses("at 1s: rank 1 kill\nexpect\n rank 1 ready", "expect", 2);
}

static void a_guests_op_may_have_any_number(void **state) {
    (void)state;
    sc_plan_init(&plan, 7, 2);
    plan.guest = true;
    const char *text = "at op 1000 of mark 5: rank 1 kill\nat 1s: rank 0 stall 1s\nat 1s: heal\n"
                       "at 1s: rank 0 pause 1s\nat 1s: rank 1 replace 1s\n";
    assert_int_equal(sc_plan_parse(&plan, "x", text, why, sizeof why), SC_OK);
    assert_int_equal(plan.entries[0].op, 1000);
    assert_int_equal(plan.work.layers, 4); // nobody's
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_text_changes_nothing),
        cmocka_unit_test(a_scenario_is_read),
        cmocka_unit_test(every_setting_is_read),
        cmocka_unit_test(an_op_makes_room_for_itself_unless_layers_are_given),
        cmocka_unit_test(blank_underscore_and_hyphen_are_alike_in_names),
        cmocka_unit_test(a_trigger_may_watch_another_rank),
        cmocka_unit_test(durations_keep_their_last_nanosecond),
        cmocka_unit_test(unknown_words_name_the_nearest_known_one),
        cmocka_unit_test(numbers_outside_their_range_are_refused),
        cmocka_unit_test(durations_need_their_unit),
        cmocka_unit_test(what_can_never_happen_is_refused),
        cmocka_unit_test(lines_that_go_on_or_break_off_are_refused),
        cmocka_unit_test(too_much_is_refused),
        cmocka_unit_test(a_sentence_is_cut_to_its_room),
        cmocka_unit_test(any_bytes_are_answered),
        cmocka_unit_test(what_is_for_own_runs_is_refused_to_a_guest),
        cmocka_unit_test(a_guests_op_may_have_any_number),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
