// SPDX-License-Identifier: AGPL-3.0-only
//
// The trace: what its hash covers, what its lines say, which of them an expectation meets, and the
// file that trace viewers open.
#include "hal_sim/lab/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>
#include <cmocka.h>

#define EPOCH(count) ((uint64_t)(count) << 24 | 0xABCDEF)

static char line[512];

static const char *line_of(struct sc_trace_entry entry) {
    if (!sc_trace_line(&entry, line, sizeof line))
        return NULL;
    return line;
}

static const char *notice_line(uint32_t rank, struct sc_action notice) {
    return line_of(
        (struct sc_trace_entry){.kind = SC_TRACE_NOTICE, .rank = rank, .notice = &notice});
}

static const char *cause_line(uint32_t rank, struct sc_cause cause) {
    const struct sc_action notice = {
        .kind = SC_NOTICE_STATE, .a = SC_STATE_READY, .b = SC_STATE_ABORTING, .status = cause.code};
    return line_of((struct sc_trace_entry){
        .kind = SC_TRACE_NOTICE, .rank = rank, .notice = &notice, .cause = &cause});
}

// ---- the hash -----------------------------------------------------------------------------------

// Flips each bit of the bytes in turn and wants another hash each time.
static void covers(const struct sc_trace_entry *entry, void *part, size_t bytes) {
    uint64_t before = sc_trace_hash(1, entry);
    unsigned char *at = part;

    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        at[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_true(sc_trace_hash(1, entry) != before);
        at[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    assert_true(sc_trace_hash(1, entry) == before);
}

static void the_hash_covers_every_field(void **state) {
    struct sc_action notice = {.type = SC_ACTION_NOTIFY};
    struct sc_cause cause = {.code = SC_FABRIC};
    struct sc_recovery recovery = {.world = 3};
    char text[] = "more than eight bytes";
    struct sc_trace_entry entry = {
        .notice = &notice, .cause = &cause, .recovery = &recovery, .text = text};

    (void)state;
    covers(&entry, &entry.kind, sizeof entry.kind);
    covers(&entry, &entry.rank, sizeof entry.rank);
    covers(&entry, &entry.now_ns, 4 * sizeof(uint64_t)); // and epoch, a, b
    covers(&entry, &notice, sizeof notice);
    covers(&entry, &cause, sizeof cause);
    covers(&entry, &recovery.epoch,
           offsetof(struct sc_recovery, ranks) - offsetof(struct sc_recovery, epoch));
    covers(&entry, &recovery.world, 1); // ranks beyond 64 are not looked at
    covers(&entry, recovery.ranks, 3 * sizeof recovery.ranks[0]);
    for (size_t at = 0; at < sizeof text - 1; at++)
        covers(&entry, text + at, 1);
}

static void the_hash_ignores_addresses_and_ranks_outside_the_world(void **state) {
    struct sc_recovery one = {.world = 2}, other = {.world = 2};
    char text[] = "x", copy[] = "x";
    struct sc_trace_entry entry = {.recovery = &one, .text = text};

    (void)state;
    uint64_t before = sc_trace_hash(1, &entry);
    other.ranks[2].mark = 5;
    entry.recovery = &other;
    entry.text = copy;
    assert_true(sc_trace_hash(1, &entry) == before);
}

static void the_hash_tells_absent_from_empty(void **state) {
    const struct sc_action notice = {0};
    const struct sc_cause cause = {0};
    const struct sc_recovery recovery = {0};
    const struct sc_trace_entry entries[] = {
        {0}, {.text = ""}, {.notice = &notice}, {.cause = &cause}, {.recovery = &recovery}};

    (void)state;
    for (size_t i = 0; i < 5; i++)
        for (size_t k = 0; k < i; k++)
            assert_true(sc_trace_hash(0, &entries[i]) != sc_trace_hash(0, &entries[k]));
}

static void the_hash_depends_on_the_order(void **state) {
    const struct sc_trace_entry one = {.a = 1}, two = {.a = 2};

    (void)state;
    assert_true(sc_trace_hash(sc_trace_hash(0, &one), &two) !=
                sc_trace_hash(sc_trace_hash(0, &two), &one));
}

// The same everywhere: byte order, compiler and padding have no say in it.
static void the_hash_has_its_golden_value(void **state) {
    const struct sc_trace_entry entry = {
        .kind = SC_TRACE_END, .rank = 1, .now_ns = 2, .epoch = 3, .a = 4, .b = 5, .text = "killed"};

    (void)state;
    assert_true(sc_trace_hash(0, &entry) == UINT64_C(0x608B015D093121A0));
}

// ---- lines --------------------------------------------------------------------------------------

static void a_state_line_names_code_and_suspect(void **state) {
    struct sc_action notice = {.kind = SC_NOTICE_STATE,
                               .a = SC_STATE_READY,
                               .b = SC_STATE_ABORTING,
                               .status = SC_PEER_DEAD,
                               .rank = 1};
    const struct sc_cause cause = {.code = SC_PEER_DEAD, .suspect = 1, .seq = 17};

    (void)state;
    assert_string_equal(notice_line(0, notice), "rank 0 ready -> aborting PEER_DEAD rank 1");
    assert_string_equal(line_of((struct sc_trace_entry){
                            .kind = SC_TRACE_NOTICE, .notice = &notice, .cause = &cause}),
                        "rank 0 ready -> aborting PEER_DEAD rank 1 seq 17");
    notice.status = SC_FABRIC;
    notice.rank = SC_RANK_NONE;
    assert_string_equal(notice_line(2, notice), "rank 2 ready -> aborting FABRIC");
    notice.status = SC_OK;
    assert_string_equal(notice_line(2, notice), "rank 2 ready -> aborting");
}

static void notices_say_what_they_note(void **state) {
    (void)state;
    assert_string_equal(notice_line(0, (struct sc_action){.kind = SC_NOTICE_MISSING, .mask = 6}),
                        "rank 0 misses ranks 1 2");
    assert_string_equal(
        notice_line(0, (struct sc_action){.kind = SC_NOTICE_MISSING, .mask = UINT64_C(1) << 63}),
        "rank 0 misses rank 63");
    assert_string_equal(notice_line(1, (struct sc_action){.kind = SC_NOTICE_AGREED, .a = 48}),
                        "rank 1 agreed up to seq 48");
    assert_string_equal(notice_line(1, (struct sc_action){.kind = SC_NOTICE_BARRIER, .a = 7}),
                        "rank 1 passes barrier 7");
    assert_string_equal(notice_line(0, (struct sc_action){.kind = SC_NOTICE_COMMAND_ROOM}),
                        "rank 0 has room for a command again");
    assert_string_equal(notice_line(0, (struct sc_action){.kind = SC_NOTICE_CAPTURES, .a = 1}),
                        "rank 0 waits for 1 captures to be released");
    assert_string_equal(notice_line(0, (struct sc_action){.kind = SC_NOTICE_GREETED, .rank = 1}),
                        "rank 0 greets rank 1");
    assert_string_equal(notice_line(0, (struct sc_action){.kind = 99}),
                        "rank 0 notes something unknown (99)");
}

static void a_refusal_reads_from_either_side(void **state) {
    struct sc_action notice = {.kind = SC_NOTICE_REFUSED,
                               .rank = 1,
                               .status = SC_CONFIG,
                               .mask = SC_FIELD_WORLD,
                               .a = 2,
                               .b = 4};

    (void)state;
    assert_string_equal(notice_line(0, notice),
                        "rank 0 refuses rank 1 CONFIG: world 2 here, 4 there");
    assert_string_equal(notice_line(1, notice), "rank 1 is refused CONFIG: world 4 here, 2 there");
    notice.status = SC_DUP_RANK;
    assert_string_equal(notice_line(0, notice),
                        "rank 0 refuses rank 1 DUP_RANK: incarnation 0000000000000002 here, "
                        "0000000000000004 there");
    notice.status = SC_STALE;
    assert_string_equal(notice_line(0, notice),
                        "rank 0 refuses rank 1 STALE: hello 2 here, 4 there");
    notice.status = SC_FENCED;
    notice.a = EPOCH(9);
    notice.b = EPOCH(8);
    assert_string_equal(notice_line(0, notice),
                        "rank 0 refuses rank 1 FENCED: epoch 9 here, 8 there");
}

static void a_cause_is_told_with_its_values(void **state) {
    const struct sc_cause mismatch = {
        .code = SC_MISMATCH,
        .suspect = 1,
        .seq = 5,
        .op = {{SC_OP_ALL_REDUCE, 0, 8192}, {SC_OP_BROADCAST, 1, 4096}}};
    const struct sc_cause config = {
        .code = SC_CONFIG, .suspect = 1, .field = SC_FIELD_WORLD, .value = {2, 4}};

    (void)state;
    assert_string_equal(
        cause_line(0, (struct sc_cause){.code = SC_PEER_DEAD, .suspect = 1, .seq = 17}),
        "rank 0 ready -> aborting PEER_DEAD rank 1 seq 17");
    assert_string_equal(
        cause_line(0, (struct sc_cause){.code = SC_FABRIC, .suspect = SC_RANK_NONE, .seq = 2}),
        "rank 0 ready -> aborting FABRIC seq 2");
    assert_string_equal(
        cause_line(1, (struct sc_cause){.code = SC_RECONNECT, .suspect = 0, .value = {7, 0}}),
        "rank 1 ready -> aborting RECONNECT rank 0 reason 7");
    assert_string_equal(
        cause_line(0, mismatch),
        "rank 0 ready -> aborting MISMATCH rank 1 seq 5 ours all_reduce 8192 bytes, "
        "theirs broadcast 4096 bytes root 1");
    assert_string_equal(cause_line(1, mismatch),
                        "rank 1 ready -> aborting MISMATCH rank 1 seq 5 ours broadcast 4096 bytes "
                        "root 1, theirs all_reduce 8192 bytes");
    assert_string_equal(cause_line(0, config),
                        "rank 0 ready -> aborting CONFIG rank 1 field world: 2 here, 4 there");
    assert_string_equal(cause_line(1, config),
                        "rank 1 ready -> aborting CONFIG rank 1 field world: 4 here, 2 there");
}

static const char *ready_line(uint32_t rank, const struct sc_recovery *recovery) {
    return line_of(
        (struct sc_trace_entry){.kind = SC_TRACE_READY, .rank = rank, .recovery = recovery});
}

static void a_ready_line_tells_what_recovery_needs(void **state) {
    struct sc_recovery recovery = {.epoch = EPOCH(1), .world = 3};

    (void)state;
    for (int rank = 0; rank < 3; rank++)
        recovery.ranks[rank].fresh = 1;
    assert_string_equal(ready_line(0, &recovery), "rank 0 ready epoch 1");
    recovery.epoch = EPOCH(2);
    recovery.ranks[0] = (struct sc_rank_record){.ready_epoch = EPOCH(1), .mark = 4};
    assert_string_equal(ready_line(0, &recovery),
                        "rank 0 ready epoch 2 recovery: ranks 1 2 fresh, mark 4");
    recovery.ranks[2].fresh = 0;
    assert_string_equal(ready_line(0, &recovery),
                        "rank 0 ready epoch 2 recovery: rank 1 fresh, mark 4");
    const char *newcomer = "rank 1 ready epoch 2 recovery: as a newcomer, mark 4";
    assert_string_equal(ready_line(1, &recovery), newcomer);
    recovery.world = UINT32_MAX; // never beyond the record's end
    assert_string_equal(ready_line(1, &recovery), newcomer);
}

static void the_other_kinds_have_their_lines(void **state) {
    (void)state;
    assert_string_equal(line_of((struct sc_trace_entry){.kind = SC_TRACE_FAULT,
                                                        .rank = SC_RANK_NONE,
                                                        .text = "at 1s: rank 1 kill"}),
                        "fault at 1s: rank 1 kill");
    assert_string_equal(
        line_of((struct sc_trace_entry){.kind = SC_TRACE_SPAWN, .rank = 1, .a = 0xAB, .text = ""}),
        "rank 1 starts");
    assert_string_equal(
        line_of((struct sc_trace_entry){.kind = SC_TRACE_SPAWN, .rank = 1, .text = "no memory"}),
        "rank 1 cannot start: no memory");
    assert_string_equal(
        line_of((struct sc_trace_entry){.kind = SC_TRACE_END, .rank = 1, .text = "killed"}),
        "rank 1 ends: killed");
    assert_string_equal(
        line_of((struct sc_trace_entry){.kind = SC_TRACE_STEP, .rank = 0, .a = 5, .b = 48}),
        "rank 0 mark 5 (48 ops exact)");
    assert_string_equal(
        line_of((struct sc_trace_entry){.kind = SC_TRACE_MARK, .rank = 0, .a = 5, .b = 48}),
        "rank 0 mark 5 (48 ops submitted)");
    assert_string_equal(line_of((struct sc_trace_entry){
                            .kind = SC_TRACE_FIRST_OP, .rank = 0, .epoch = EPOCH(2), .a = 12345}),
                        "rank 0 first op of epoch 2 after 12.345 us");
    assert_string_equal(
        line_of((struct sc_trace_entry){.kind = SC_TRACE_VIOLATION, .rank = 1, .text = "O2 x"}),
        "violation rank 1: O2 x");
    assert_string_equal(line_of((struct sc_trace_entry){
                            .kind = SC_TRACE_VIOLATION, .rank = SC_RANK_NONE, .text = "O6 x"}),
                        "violation: O6 x");
    assert_null(line_of((struct sc_trace_entry){.kind = SC_TRACE_OP}));
}

static void a_line_is_cut_to_its_room(void **state) {
    const struct sc_trace_entry entry = {.kind = SC_TRACE_END, .rank = 1, .text = "killed"};
    char small[10];

    (void)state;
    memset(small, 'x', sizeof small);
    assert_true(sc_trace_line(&entry, small, sizeof small - 1));
    assert_string_equal(small, "rank 1 e");
    assert_int_equal(small[9], 'x');
    assert_false(sc_trace_line(&entry, small, 0));
}

// ---- expected lines -----------------------------------------------------------------------------

static void an_expectation_is_met_up_to_a_words_end(void **state) {
    static const struct {
        const char *line, *expected;
        bool met;
    } rows[] = {
        {"rank 0 ready epoch 2 recovery: mark 4", "rank 0 ready epoch 2 recovery: mark 4", true},
        {"rank 0 ready epoch 2 recovery: mark 4", "  rank 0   ready\tepoch 2 ", true},
        {"rank 0 ready epoch 2 recovery: mark 4", "rank 0 ready epoch 2 recovery", true},
        {"rank 0 ready epoch 2 recovery: mark 4", "rank 0 ready epoch 2 rec", false},
        {"rank 0 ready epoch 21", "rank 0 ready epoch 2", false},
        {"rank 0 ready epoch 2", "rank 0 ready epoch 21", false},
        {"rank 0 ready", "rank 0 ready epoch 2", false},
        {"rank 0 ready", "rank0 ready", false},
        {"rank 0 ready", "rank 1 ready", false},
        {"rank 0 ready, now", "rank 0 ready", true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (sc_trace_matches(rows[i].line, rows[i].expected) != rows[i].met)
            fail_msg("\"%s\" against \"%s\"", rows[i].line, rows[i].expected);
}

// ---- the file -----------------------------------------------------------------------------------

static cJSON *read_back(const char *path) {
    char text[8192];
    FILE *file = fopen(path, "r");

    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    cJSON *events = cJSON_Parse(text);
    if (!cJSON_IsArray(events))
        fail_msg("not a JSON array: %s", text);
    return events;
}

static const cJSON *find(const cJSON *events, const char *phase, const char *name) {
    const cJSON *event;

    cJSON_ArrayForEach(event, events) {
        if (strcmp(cJSON_GetObjectItem(event, "ph")->valuestring, phase) == 0 &&
            strcmp(cJSON_GetObjectItem(event, "name")->valuestring, name) == 0)
            return event;
    }
    fail_msg("no event %s of phase %s", name, phase);
    return NULL;
}

static double number(const cJSON *event, const char *key) {
    return cJSON_GetObjectItem(event, key)->valuedouble;
}

static void states_become_slices_and_the_rest_instants(void **state) {
    char path[] = "/tmp/test_trace_XXXXXX";
    struct sc_trace_json json;
    const struct sc_action notice = {
        .kind = SC_NOTICE_STATE, .a = SC_STATE_IDLE, .b = SC_STATE_RENDEZVOUS};
    struct sc_trace_entry entry = {.kind = SC_TRACE_SPAWN, .rank = 1, .now_ns = 1500, .text = ""};
    cJSON *events;

    (void)state;
    close(mkstemp(path));
    assert_true(sc_trace_json_open(&json, path, 2));
    sc_trace_json_add(&json, &entry);
    entry = (struct sc_trace_entry){
        .kind = SC_TRACE_NOTICE, .rank = 1, .now_ns = 4001, .notice = &notice};
    sc_trace_json_add(&json, &entry);
    entry = (struct sc_trace_entry){
        .kind = SC_TRACE_VIOLATION, .rank = SC_RANK_NONE, .now_ns = 5000, .text = "\"a\\b\"\x01"};
    sc_trace_json_add(&json, &entry);
    assert_true(sc_trace_json_close(&json, 9000));
    events = read_back(path);
    unlink(path);

    assert_true(number(find(events, "X", "idle"), "ts") == 1.5);
    assert_true(number(find(events, "X", "idle"), "dur") == 2.501);
    assert_true(number(find(events, "X", "idle"), "tid") == 1);
    assert_true(number(find(events, "X", "rendezvous"), "dur") == 4.999);
    assert_true(number(find(events, "i", "rank 1 idle -> rendezvous"), "ts") == 4.001);
    assert_true(number(find(events, "i", "violation: \"a\\b\"\x01"), "tid") == 2);
    find(events, "M", "thread_name");
    cJSON_Delete(events);
}

static void a_file_that_cannot_be_written_is_told(void **state) {
    struct sc_trace_json json;
    const struct sc_trace_entry entry = {.kind = SC_TRACE_END, .text = "x"};

    (void)state;
    assert_false(sc_trace_json_open(&json, "/nonexistent/t.json", 2));
    assert_false(sc_trace_json_open(&json, "/dev/null", SC_WORLD_MAX + 1));
    assert_true(sc_trace_json_open(&json, "/dev/full", 1));
    sc_trace_json_add(&json, &entry);
    assert_false(sc_trace_json_close(&json, 0));
    assert_false(sc_trace_json_close(&json, 0)); // closed: told, never undefined
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_hash_covers_every_field),
        cmocka_unit_test(the_hash_ignores_addresses_and_ranks_outside_the_world),
        cmocka_unit_test(the_hash_tells_absent_from_empty),
        cmocka_unit_test(the_hash_depends_on_the_order),
        cmocka_unit_test(the_hash_has_its_golden_value),
        cmocka_unit_test(a_state_line_names_code_and_suspect),
        cmocka_unit_test(notices_say_what_they_note),
        cmocka_unit_test(a_refusal_reads_from_either_side),
        cmocka_unit_test(a_cause_is_told_with_its_values),
        cmocka_unit_test(a_ready_line_tells_what_recovery_needs),
        cmocka_unit_test(the_other_kinds_have_their_lines),
        cmocka_unit_test(a_line_is_cut_to_its_room),
        cmocka_unit_test(an_expectation_is_met_up_to_a_words_end),
        cmocka_unit_test(states_become_slices_and_the_rest_instants),
        cmocka_unit_test(a_file_that_cannot_be_written_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
