// SPDX-License-Identifier: AGPL-3.0-only
//
// Opening: each mistake is refused by name and leaves nothing behind; what the environment may change;
// how many handles there are.
#include "tests/support/real_world.h"
#include "tests/support/sockets_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void expect_error_says(const char *words) {
    if (strstr(sc_last_error(), words) == NULL)
        print_error("it says: %s\n", sc_last_error());
    assert_non_null(strstr(sc_last_error(), words));
}

static void expect_refused(const struct sc_config *config, sc_status status, const char *words) {
    sc_comm comm = 77;
    assert_int_equal(sc_open(config, &comm), status);
    assert_int_equal(comm, 77);
    expect_error_says("sc_open: ");
    expect_error_says(words);
}

// ---- mistakes ----

static const uint8_t some_key[SC_KEY_BYTES] = "thirty-two bytes that both hold!";

#define MISTAKE(name, change, words)                                                               \
    static void name(struct sc_config *config) {                                                   \
        change;                                                                                    \
    }                                                                                              \
    static const char name##_words[] = words;

MISTAKE(size_zero, config->size = 0, "its size is 0")
MISTAKE(size_of_tomorrow, config->size += 8, "sc_config_init sets it")
MISTAKE(unknown_flag, config->flags = 4, "flags are 0x4")
MISTAKE(no_world, config->world = 0, "world is 0")
MISTAKE(large_world, config->world = SC_WORLD_MAX + 1, "world is 65, must be from 1 to 64")
MISTAKE(rank_too_high, config->rank = 2, "rank is 2, must be from 0 to 1")
MISTAKE(no_capacity, config->capacity_bytes = 0, "capacity_bytes is 0")
MISTAKE(large_capacity, config->capacity_bytes = UINT64_MAX, "capacity_bytes is 184467440737")
MISTAKE(no_host, config->master_host = NULL, "master_host is empty")
MISTAKE(empty_host, config->master_host = "", "master_host is empty")
MISTAKE(no_port, config->master_port = 0, "master_port is 0")
MISTAKE(large_port, config->master_port = 65536, "master_port is 65536")
MISTAKE(two_keys, (config->key = some_key, config->key_file = "/dev/null"), "both key and key_file")
MISTAKE(small_ledger, config->ledger_ops = 3, "ledger_ops is 3, must be from 4 to 65536")
MISTAKE(no_notes, config->notes_max = 0, "notes_max is 0")
MISTAKE(many_notes, config->notes_max = 65537, "notes_max is 65537")
MISTAKE(no_heartbeat, config->timing.heartbeat_ns = 0, "timing.heartbeat_ns is 0")
MISTAKE(short_silence, config->timing.silence_ns = 1,
        "timing.silence_ns is 1, must be from 200000000")
MISTAKE(no_op_limit, config->timing.op_ns = 0, "timing.op_ns is 0")
MISTAKE(no_init_limit, config->timing.init_ns = 0, "timing.init_ns is 0")
MISTAKE(short_abort, config->timing.abort_ns = 1, "timing.abort_ns is 1, must be from 2200000000")
MISTAKE(endless_join, config->join_ns = UINT64_MAX, "join_ns is 18446744073709551615")

static void each_mistake_is_named_with_its_value(void **state) {
#define ROW(name)                                                                                  \
    { name, name##_words }
    static const struct {
        void (*make)(struct sc_config *config);
        const char *words;
    } rows[] = {
        ROW(size_zero),    ROW(size_of_tomorrow), ROW(unknown_flag), ROW(no_world),
        ROW(large_world),  ROW(rank_too_high),    ROW(no_capacity),  ROW(large_capacity),
        ROW(no_host),      ROW(empty_host),       ROW(no_port),      ROW(large_port),
        ROW(two_keys),     ROW(small_ledger),     ROW(no_notes),     ROW(many_notes),
        ROW(no_heartbeat), ROW(short_silence),    ROW(no_op_limit),  ROW(no_init_limit),
        ROW(short_abort),  ROW(endless_join),
    };
#undef ROW
    struct real_job job;
    struct sc_config config;
    sc_comm comm = 0;
    (void)state;
    real_job_begin(&job, 2);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        real_config(&job, 0, &config);
        rows[i].make(&config);
        expect_refused(&config, SC_INVALID, rows[i].words);
    }
    expect_refused(NULL, SC_INVALID, "config is NULL");
    real_config(&job, 0, &config);
    assert_int_equal(sc_open(&config, NULL), SC_INVALID);
    real_ok(sc_open(&config, &comm)); // without any
    real_close(comm);
    real_job_end(&job);
}

static void config_of_an_older_program_keeps_defaults_for_the_rest(void **state) {
    struct real_job job;
    struct sc_config config;
    (void)state;
    real_job_begin(&job, 1);
    real_config(&job, 0, &config);
    config.size = offsetof(struct sc_config, timing);
    memset(&config.timing, 0xff, sizeof config - config.size);
    sc_comm comm = real_open_with(&config);
    (void)real_ready_after(comm, 0);
    real_close(comm);
    real_job_end(&job);
}

// ---- the key file ----

static void write_key_file(const char *path, const char *text, mode_t mode) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fputs(text, file) >= 0, 1);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static void key_file_is_for_its_owner_only(void **state) {
    static const char digits[] =
        "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F\n";
    char folder[] = "/tmp/sc_key_XXXXXX", path[64];
    struct real_job job;
    struct sc_config config;
    uint8_t key[SC_KEY_BYTES];
    sc_comm comms[2];
    (void)state;
    real_job_begin(&job, 2);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/key", folder);
    real_config(&job, 0, &config);
    config.key_file = path;
    expect_refused(&config, SC_KEY, path); // there is none
    write_key_file(path, digits, 0644);
    expect_refused(&config, SC_KEY, "mode 0644");
    write_key_file(path, "short", 0600);
    expect_refused(&config, SC_KEY, "64 hexadecimal digits");
    write_key_file(path, digits, 0600);
    comms[0] = real_open_with(&config);
    for (uint32_t i = 0; i < SC_KEY_BYTES; i++)
        key[i] = (uint8_t)i;
    job.key = key; // the same one, given by value
    comms[1] = real_open(&job, 1);
    assert_true(real_ready_after(comms[0], 0) == real_ready_after(comms[1], 0));
    real_close_all(comms, 2);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
    real_job_end(&job);
}

// ---- the environment ----

static void environment_overrides_tunables_and_each_is_told(void **state) {
    static const struct {
        const char *name, *value, *note;
    } rows[] = {
        {"SPARK_COMM_HEARTBEAT_MS", "40", "SPARK_COMM_HEARTBEAT_MS=40 replaces 100 ms"},
        {"SPARK_COMM_SILENCE_MS", "1500", "SPARK_COMM_SILENCE_MS=1500 replaces 2000 ms"},
        {"SPARK_COMM_OP_MS", "12000", "SPARK_COMM_OP_MS=12000 replaces 30000 ms"},
        {"SPARK_COMM_BEHIND_MS", "0", "SPARK_COMM_BEHIND_MS=0 replaces 0 ms"},
        {"SPARK_COMM_INIT_MS", "9000", "SPARK_COMM_INIT_MS=9000 replaces 60000 ms"},
        {"SPARK_COMM_ABORT_MS", "3000", "SPARK_COMM_ABORT_MS=3000 replaces 5000 ms"},
        {"SPARK_COMM_JOIN_MS", "50", "SPARK_COMM_JOIN_MS=50 replaces 0 ms"},
    };
    enum { COUNT = sizeof rows / sizeof rows[0] };
    static struct real_notes notes;
    struct real_job job;
    struct sc_config config;
    struct sc_recovery recovery = {.size = sizeof recovery};
    (void)state;
    real_job_begin(&job, 2);
    real_notes_begin(&notes);
    real_config(&job, 1, &config);
    config.on_note = real_on_note;
    config.arg = &notes;
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(setenv(rows[i].name, rows[i].value, 1), 0);
    real_birth.environment = true;
    sc_comm comm = real_open_with(&config);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(unsetenv(rows[i].name), 0);
    real_until(real_notes_of(&notes, SC_NOTE_OVERRIDE) == COUNT);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_true(real_notes_say(&notes, SC_NOTE_OVERRIDE, rows[i].note));
    assert_int_equal(sc_wait_ready(comm, REAL_LIMIT_NS, &recovery), SC_JOIN_TIMEOUT); // it rules
    real_close(comm);
    real_job_end(&job);
}

static void environment_that_makes_no_sense_is_refused_by_name(void **state) {
    static const struct {
        const char *name, *value, *words;
    } rows[] = {
        {"SPARK_COMM_OP_MS", "soon", "SPARK_COMM_OP_MS is \"soon\""},
        {"SPARK_COMM_OP_MS", "", "SPARK_COMM_OP_MS is \"\""},
        {"SPARK_COMM_OP_MS", "-1", "SPARK_COMM_OP_MS is \"-1\""},
        {"SPARK_COMM_OP_MS", " -1", "SPARK_COMM_OP_MS is \" -1\""},
        {"SPARK_COMM_OP_MS", "+1", "SPARK_COMM_OP_MS is \"+1\""},
        {"SPARK_COMM_INIT_MS", "5s", "SPARK_COMM_INIT_MS is \"5s\""},
        {"SPARK_COMM_JOIN_MS", "99999999999", "SPARK_COMM_JOIN_MS is \"99999999999\""},
        {"SPARK_COMM_JOIN_MS", "99999999999999999999999", "at most 604800000"},
        // A whole number, and out of range all the same.
        {"SPARK_COMM_HEARTBEAT_MS", "0", "SPARK_COMM_HEARTBEAT_MS=0"},
        {"SPARK_COMM_HEARTBEAT_MS", "1500",
         "SPARK_COMM_HEARTBEAT_MS=1500"}, // for the silence limit
        {"SPARK_COMM_SILENCE_MS", "150", "SPARK_COMM_SILENCE_MS=150"},
        {"SPARK_COMM_SILENCE_MS", "150", "timing.silence_ns is 150000000"},
    };
    struct real_job job;
    struct sc_config config;
    (void)state;
    real_job_begin(&job, 2);
    real_config(&job, 0, &config);
    real_birth.environment = true;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(setenv(rows[i].name, rows[i].value, 1), 0);
        expect_refused(&config, SC_INVALID, rows[i].words);
        assert_int_equal(unsetenv(rows[i].name), 0);
    }
    real_job_end(&job);
}

static void environment_is_ignored_in_a_world_that_has_none(void **state) {
    static struct real_notes notes;
    struct real_job job;
    struct sc_config config;
    (void)state;
    real_job_begin(&job, 1);
    real_notes_begin(&notes);
    real_config(&job, 0, &config);
    config.on_note = real_on_note;
    config.arg = &notes;
    assert_int_equal(setenv("SPARK_COMM_OP_MS", "soon", 1), 0);
    sc_comm comm = real_open_with(&config);
    assert_int_equal(unsetenv("SPARK_COMM_OP_MS"), 0);
    real_close(comm);
    assert_int_equal(real_notes_of(&notes, SC_NOTE_OVERRIDE), 0);
    real_job_end(&job);
}

// ---- how many, how often ----

static void sixty_fifth_handle_is_refused(void **state) {
    enum { HANDLES = 64 };
    struct real_job job;
    struct sc_config config;
    sc_comm comms[HANDLES];
    (void)state;
    real_job_begin(&job, 1);
    real_config(&job, 0, &config);
    config.captures_max = 1;
    for (uint32_t i = 0; i < HANDLES; i++)
        comms[i] = real_open_with(&config);
    const uint32_t descriptors = sockets_descriptors(), threads = sockets_threads();
    expect_refused(&config, SC_BUSY, "64 handles are open");
    assert_int_equal(sockets_descriptors(), descriptors);
    assert_int_equal(sockets_threads(), threads);
    real_close(comms[31]);
    const sc_comm closed = comms[31];
    comms[31] = real_open_with(&config); // there is room for one again
    assert_true(comms[31] != closed);
    assert_int_equal(sc_mark(closed, 1, 1), SC_CLOSED);
    for (uint32_t i = 0; i < HANDLES; i++) {
        (void)real_ready_after(comms[i], 0);
        for (uint32_t k = 0; k < i; k++)
            assert_true(comms[i] != comms[k]);
    }
    real_close_all(comms, HANDLES);
    real_job_end(&job);
}

static void opened_and_closed_again_and_again_leaves_nothing(void **state) {
    enum { ROUNDS = 200 };
    struct real_job job;
    sc_comm before = 0;
    (void)state;
    real_job_begin(&job, 1);
    const uint32_t descriptors = sockets_descriptors();
    for (uint32_t round = 0; round < ROUNDS; round++) {
        sc_comm comm = real_open(&job, 0);
        assert_true(comm != before);
        before = comm;
        if (round % 4 != 0)
            (void)real_ready_after(comm, 0);
        real_close(comm);
        assert_int_equal(sockets_descriptors(), descriptors);
        real_until(sockets_threads() <= job.threads);
    }
    real_job_end(&job);
}

static void handles_that_never_were_are_closed(void **state) {
    static const sc_comm never[] = {0, 1, 63, 64, 255, 256, UINT64_MAX};
    (void)state;
    for (size_t i = 0; i < sizeof never / sizeof never[0]; i++) {
        assert_int_equal(sc_mark(never[i], 1, 1), SC_CLOSED);
        assert_int_equal(real_live(never[i]), 0);
        sc_interrupt(never[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_mistake_is_named_with_its_value),
        cmocka_unit_test(config_of_an_older_program_keeps_defaults_for_the_rest),
        cmocka_unit_test(key_file_is_for_its_owner_only),
        cmocka_unit_test(environment_overrides_tunables_and_each_is_told),
        cmocka_unit_test(environment_that_makes_no_sense_is_refused_by_name),
        cmocka_unit_test(environment_is_ignored_in_a_world_that_has_none),
        cmocka_unit_test(sixty_fifth_handle_is_refused),
        cmocka_unit_test(opened_and_closed_again_and_again_leaves_nothing),
        cmocka_unit_test(handles_that_never_were_are_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
