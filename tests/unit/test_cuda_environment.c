// SPDX-License-Identifier: AGPL-3.0-only
//
// What the environment tells NCCL: what is told of it, what is warned of, what is refused.
#include "hal_cuda/sc_cuda.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define REMARKS_MAX 64u
#define LINE_BYTES 256u // a note's

struct remarks {
    uint32_t count;
    struct {
        enum sc_note_kind kind;
        char line[LINE_BYTES];
    } list[REMARKS_MAX];
};

static void collect(void *arg, enum sc_note_kind kind, const char *line) {
    struct remarks *remarks = arg;
    assert_true(remarks->count < REMARKS_MAX);
    assert_true(strlen(line) < LINE_BYTES);
    remarks->list[remarks->count].kind = kind;
    strcpy(remarks->list[remarks->count].line, line);
    remarks->count++;
}

static struct remarks look(void) {
    struct remarks remarks = {.count = 0};
    sc_cuda_environment_remarks(collect, &remarks);
    return remarks;
}

static void set(const char *name, const char *value) {
    assert_int_equal(setenv(name, value, 1), 0);
}

static int with_nothing_set(void **state) {
    (void)state;
    return clearenv();
}

// ---- remarks ----

static void whatever_is_not_set_is_not_told(void **state) {
    (void)state;
    set("PATH", "/bin");
    set("NCCL_", "1");
    set("NCCL_NOBODY_KNOWS", "secret");
    assert_int_equal(look().count, 0);
}

static void each_known_variable_is_told_once_with_its_value(void **state) {
    static const char *const names[] = {
        "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA",        "NCCL_IB_GID_INDEX",  "NCCL_IB_TIMEOUT",
        "NCCL_IB_RETRY_CNT",  "NCCL_PROTO",         "NCCL_ALGO",          "NCCL_MIN_NCHANNELS",
        "NCCL_MAX_NCHANNELS", "NCCL_NET_GDR_LEVEL", "NCCL_NVLS_ENABLE",   "NCCL_P2P_DISABLE",
        "NCCL_SHM_DISABLE",   "NCCL_CUMEM_ENABLE",  "NCCL_DEBUG",         "NCCL_NET",
        "NCCL_HOSTID",        "NCCL_COMM_BLOCKING", "NCCL_SOCKET_FAMILY", "NCCL_IB_DISABLE",
        "NCCL_NET_PLUGIN",    "NCCL_P2P_LEVEL",     "NCCL_BUFFSIZE",      "NCCL_MIN_CTAS",
        "NCCL_MAX_CTAS",      "NCCL_CONF_FILE",     "NCCL_RAS_ENABLE",
    };
    enum { NAMES = sizeof names / sizeof names[0] };
    char expected[64];
    struct remarks all;
    (void)state;
    for (uint32_t i = 0; i < NAMES; i++) {
        set(names[i], "7");
        struct remarks remarks = look();
        assert_int_equal(remarks.count, 1);
        assert_int_equal(remarks.list[0].kind, SC_NOTE_ENVIRONMENT);
        snprintf(expected, sizeof expected, "%s=7", names[i]);
        assert_memory_equal(remarks.list[0].line, expected, strlen(expected));
        assert_int_equal(unsetenv(names[i]), 0);
    }
    for (uint32_t i = 0; i < NAMES; i++)
        set(names[i], "7");
    all = look();
    assert_int_equal(all.count, NAMES);
}

static void empty_value_is_told_too(void **state) {
    (void)state;
    set("NCCL_ALGO", "");
    const struct remarks remarks = look();
    assert_int_equal(remarks.count, 1);
    assert_string_equal(remarks.list[0].line, "NCCL_ALGO=");
}

static void values_are_cut_and_hold_no_control_bytes(void **state) {
    char value[5000];
    (void)state;
    memset(value, 'x', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    memcpy(value, "a\n\x1b[2J", 6);
    set("NCCL_TIMEOUT", value);
    const struct remarks remarks = look();
    assert_int_equal(remarks.count, 1);
    assert_memory_equal(remarks.list[0].line, "NCCL_TIMEOUT=a??[2Jxxx", 22);
    assert_non_null(strstr(remarks.list[0].line, "xxx...: NCCL does not read it")); // words survive
    assert_non_null(strstr(remarks.list[0].line, "SPARK_COMM_OP_MS"));
}

static void variables_that_do_not_do_what_they_seem_to_are_warned_of(void **state) {
    static const struct {
        const char *name, *words;
    } rows[] = {
        {"NCCL_TIMEOUT", "config.timing.op_ns"},
        {"NCCL_WATCHDOG_TIMEOUT", "config.timing.op_ns"},
        {"NCCL_COMM_ID", "unset it"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        set(rows[i].name, "10.0.0.1:7");
        const struct remarks remarks = look();
        assert_int_equal(remarks.count, 1);
        assert_int_equal(remarks.list[0].kind, SC_NOTE_WARNING);
        assert_non_null(strstr(remarks.list[0].line, rows[i].name));
        assert_non_null(strstr(remarks.list[0].line, "=10.0.0.1:7: "));
        assert_non_null(strstr(remarks.list[0].line, rows[i].words));
        assert_int_equal(unsetenv(rows[i].name), 0);
    }
}

// ---- what is refused ----

static void non_blocking_communicators_are_refused_by_name(void **state) {
    // NCCL reads a number, and of what is none the number is 0.
    static const char *const values[] = {"0", "00", "0x0", " 0", "-0", "false", "true", "\n"};
    char why[384], expected[64];
    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        const char *shown = values[i][0] == '\n' ? "?" : values[i];
        set("NCCL_COMM_BLOCKING", values[i]);
        assert_int_equal(sc_cuda_environment_check(why, sizeof why), SC_INVALID);
        snprintf(expected, sizeof expected, "NCCL_COMM_BLOCKING=%s, ", shown);
        assert_memory_equal(why, expected, strlen(expected));
        assert_non_null(strstr(why, "unset it"));
    }
}

static void communicators_that_block_all_the_same_are_let_pass(void **state) {
    static const char *const values[] = {
        "", "1", "01", "0x1", "2", "-1", "99999999999999999999999"};
    char why[384] = "untouched";
    (void)state;
    assert_int_equal(sc_cuda_environment_check(why, sizeof why), SC_OK);
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        set("NCCL_COMM_BLOCKING", values[i]);
        assert_int_equal(sc_cuda_environment_check(why, sizeof why), SC_OK);
    }
    assert_string_equal(why, "untouched");
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup(name, with_nothing_set)
    const struct CMUnitTest tests[] = {
        TEST(whatever_is_not_set_is_not_told),
        TEST(each_known_variable_is_told_once_with_its_value),
        TEST(empty_value_is_told_too),
        TEST(values_are_cut_and_hold_no_control_bytes),
        TEST(variables_that_do_not_do_what_they_seem_to_are_warned_of),
        TEST(non_blocking_communicators_are_refused_by_name),
        TEST(communicators_that_block_all_the_same_are_let_pass),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
