// SPDX-License-Identifier: AGPL-3.0-only
//
// cli/options.h: what is read, what is refused, and the sentence that a refusal prints.
#include "cli/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define UNTOUCHED UINT64_C(0xA5A5)
#define MS UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)

static char printed[512];
static FILE *capture;
static int real_stderr;

static void capture_begin(void) {
    fflush(stderr);
    capture = tmpfile();
    assert_non_null(capture);
    real_stderr = dup(STDERR_FILENO);
    assert_true(real_stderr >= 0);
    assert_true(dup2(fileno(capture), STDERR_FILENO) >= 0);
}

static void capture_end(void) {
    size_t bytes;

    fflush(stderr);
    dup2(real_stderr, STDERR_FILENO);
    close(real_stderr);
    rewind(capture);
    bytes = fread(printed, 1, sizeof printed - 1, capture);
    printed[bytes] = '\0';
    fclose(capture);
}

// What the option prints for `text`: "" when it is read, into *out.
static const char *u64_says(const char *text, uint64_t min, uint64_t max, uint64_t *out) {
    bool ok;

    *out = UNTOUCHED;
    capture_begin();
    ok = sc_option_u64("--world", text, min, max, out);
    capture_end();
    assert_int_equal(ok, printed[0] == '\0');
    assert_true(ok || *out == UNTOUCHED);
    return printed;
}

static void whole_numbers_within_the_bounds_are_read(void **state) {
    static const struct {
        const char *text;
        uint64_t value;
    } rows[] = {{"0", 0}, {"1", 1}, {"64", 64}, {"007", 7}, {"18446744073709551615", UINT64_MAX}};
    uint64_t value;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_string_equal(u64_says(rows[i].text, 0, UINT64_MAX, &value), "");
        assert_int_equal(value, rows[i].value);
    }
}

static void numbers_outside_the_bounds_are_refused(void **state) {
    uint64_t value;

    (void)state;
    assert_string_equal(u64_says("0", 1, 64, &value),
                        "spark-comm: --world 0: expected a whole number from 1 to 64\n");
    assert_string_equal(u64_says("65", 1, 64, &value),
                        "spark-comm: --world 65: expected a whole number from 1 to 64\n");
    assert_string_equal(u64_says("1", 1, 64, &value), "");
    assert_string_equal(u64_says("64", 1, 64, &value), "");
}

static void whatever_is_not_digits_alone_is_no_number(void **state) {
    static const char *const texts[] = {"-3",
                                        "+3",
                                        " 3",
                                        "3 ",
                                        "3.0",
                                        "3e0",
                                        "0x3",
                                        "3k",
                                        "nan",
                                        "three",
                                        "--",
                                        "18446744073709551616",
                                        "99999999999999999999999999"};
    uint64_t value;

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const char *says = u64_says(texts[i], 0, UINT64_MAX, &value);

        assert_non_null(strstr(says, texts[i]));
        assert_non_null(strstr(says, "expected a whole number from 0 to 18446744073709551615\n"));
    }
    assert_string_equal(u64_says("", 1, 2, &value),
                        "spark-comm: --world \"\": expected a whole number from 1 to 2\n");
}

static void refusals_stay_on_one_line_however_odd_the_text(void **state) {
    char text[1000];
    uint64_t value;
    const char *says;

    (void)state;
    memset(text, '7', sizeof text);
    text[sizeof text - 1] = '\0';
    assert_true(strlen(u64_says(text, 1, 64, &value)) < 160);
    says = u64_says("1\n2\x1b[31m", 1, 64, &value);
    assert_string_equal(says,
                        "spark-comm: --world 1?2?[31m: expected a whole number from 1 to 64\n");
}

// What the option prints for `text`, likewise.
static const char *bytes_say(const char *text, uint64_t max, uint64_t *out) {
    *out = UNTOUCHED;
    capture_begin();
    bool ok = sc_option_bytes("-b", text, 2, max, out);
    capture_end();
    assert_int_equal(ok, printed[0] == '\0');
    assert_true(ok || *out == UNTOUCHED);
    return printed;
}

static void sizes_may_end_in_a_multiple_of_1024(void **state) {
    static const struct {
        const char *text;
        uint64_t value;
    } rows[] = {{"2", 2},
                {"4096", 4096},
                {"64K", 65536},
                {"16M", UINT64_C(16) << 20},
                {"17179869183G", UINT64_C(17179869183) << 30}};
    uint64_t value;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_string_equal(bytes_say(rows[i].text, UINT64_MAX, &value), "");
        assert_int_equal(value, rows[i].value);
    }
}

static void sizes_that_are_none_or_do_not_fit_are_refused(void **state) {
    static const char *const texts[] = {"",   "K",   "1",     "1.5K", "-2K",          "2 K", "2KB",
                                        "2k", "2KM", "1025K", "2T",   "17179869184G", "0K"};
    uint64_t value;

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_non_null(strstr(bytes_say(texts[i], 1024 * 1024, &value),
                               ": expected a size from 2 to 1048576 bytes, such as 4096"));
    assert_non_null(strstr(bytes_say("17179869184G", UINT64_MAX, &value), "17179869184G"));
}

static bool reads_address(const char *text, char *host, size_t host_bytes, uint32_t *port) {
    capture_begin();
    bool ok = sc_option_address("--master", text, host, host_bytes, port);
    capture_end();
    assert_int_equal(ok, printed[0] == '\0');
    return ok;
}

static void addresses_are_a_host_and_a_port(void **state) {
    static const struct {
        const char *text, *host;
        uint32_t port;
    } rows[] = {{"spark-1:29500", "spark-1", 29500},
                {"10.0.0.1:1", "10.0.0.1", 1},
                {"[fe80::1]:65535", "fe80::1", 65535},
                {"1234567:80", "1234567", 80}};
    char host[8];
    char wide[16];
    uint32_t port;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_true(reads_address(rows[i].text, wide, sizeof wide, &port));
        assert_string_equal(wide, rows[i].host);
        assert_int_equal(port, rows[i].port);
    }
    assert_true(reads_address("1234567:80", host, sizeof host, &port));
    assert_false(reads_address("12345678:80", host, sizeof host, &port));
}

static void whatever_lacks_a_host_or_a_port_is_no_address(void **state) {
    static const char *const texts[] = {"",      "spark-1", "spark-1:", ":29500",     "spark-1:0",
                                        "[]:80", "a:65536", "a:+80",    "fe80::1:80", "a:80 "};
    char host[16];
    uint32_t port;

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_false(reads_address(texts[i], host, sizeof host, &port));
        assert_non_null(strstr(printed, ": expected HOST:PORT, such as "));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_numbers_within_the_bounds_are_read),
        cmocka_unit_test(numbers_outside_the_bounds_are_refused),
        cmocka_unit_test(whatever_is_not_digits_alone_is_no_number),
        cmocka_unit_test(refusals_stay_on_one_line_however_odd_the_text),
        cmocka_unit_test(sizes_may_end_in_a_multiple_of_1024),
        cmocka_unit_test(sizes_that_are_none_or_do_not_fit_are_refused),
        cmocka_unit_test(addresses_are_a_host_and_a_port),
        cmocka_unit_test(whatever_lacks_a_host_or_a_port_is_no_address),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
