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

static void cleaned_text_is_cut_between_characters(void **state) {
    char out[8];

    (void)state;
    sc_text_clean("1234567", out, sizeof out);
    assert_string_equal(out, "1234567");
    sc_text_clean("12345678", out, sizeof out);
    assert_string_equal(out, "1234...");
    sc_text_clean("123\xc3\xa9"
                  "678",
                  out, sizeof out);
    assert_string_equal(out, "123...");
    sc_text_clean("a\tb\x7f", out, sizeof out);
    assert_string_equal(out, "a?b?");
    sc_text_clean("12345", out, 4);
    assert_string_equal(out, "...");
    sc_text_clean("", out, sizeof out);
    assert_string_equal(out, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_numbers_within_the_bounds_are_read),
        cmocka_unit_test(numbers_outside_the_bounds_are_refused),
        cmocka_unit_test(whatever_is_not_digits_alone_is_no_number),
        cmocka_unit_test(refusals_stay_on_one_line_however_odd_the_text),
        cmocka_unit_test(cleaned_text_is_cut_between_characters),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
