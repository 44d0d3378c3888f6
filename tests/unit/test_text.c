// SPDX-License-Identifier: AGPL-3.0-only
//
// core/text.h: what comes from outside and is to stand in a sentence.
#include "core/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

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
        cmocka_unit_test(cleaned_text_is_cut_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
