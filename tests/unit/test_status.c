// SPDX-License-Identifier: AGPL-3.0-only
//
// core/status.h: every answer has a name, a sentence and a class, and so has what is no answer.
#include "core/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static sc_status status_at(int value) {
    return (sc_status)value;
}

static void every_status_has_a_name_of_its_own(void **state) {
    (void)state;
    for (int i = 0; i < SC_STATUS_COUNT; i++) {
        const char *name = sc_status_name(status_at(i));
        assert_true(strlen(name) >= 2);
        assert_string_not_equal(name, "UNKNOWN");
        for (int j = 0; j < i; j++)
            assert_string_not_equal(name, sc_status_name(status_at(j)));
    }
    assert_string_equal(sc_status_name(SC_EPOCH_LOST), "EPOCH_LOST");
}

static void every_status_has_a_sentence_of_its_own(void **state) {
    (void)state;
    for (int i = 0; i < SC_STATUS_COUNT; i++) {
        const char *sentence = sc_status_sentence(status_at(i));
        assert_true(strlen(sentence) >= 4);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(sentence, sc_status_sentence(status_at(j)));
    }
}

static void each_class_has_its_statuses(void **state) {
    static const struct {
        sc_status status;
        enum sc_status_class class;
    } rows[] = {
        {SC_OK, SC_CLASS_DONE},           {SC_INPROGRESS, SC_CLASS_WAIT},
        {SC_TIMEOUT, SC_CLASS_WAIT},      {SC_BUSY, SC_CLASS_WAIT},
        {SC_INVALID, SC_CLASS_CALLER},    {SC_CAPACITY, SC_CLASS_CALLER},
        {SC_CLOSED, SC_CLASS_CALLER},     {SC_EPOCH_LOST, SC_CLASS_EPOCH},
        {SC_PEER_DEAD, SC_CLASS_PEER},    {SC_DUP_RANK, SC_CLASS_PEER},
        {SC_STALE, SC_CLASS_PEER},        {SC_INIT_TIMEOUT, SC_CLASS_LOCAL},
        {SC_ASYNC_ERROR, SC_CLASS_LOCAL}, {SC_BIND, SC_CLASS_LOCAL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(sc_status_class(rows[i].status), rows[i].class);
}

static void the_causes_of_failed_and_a_simulated_death_are_terminal_and_no_other(void **state) {
    (void)state;
    for (int i = 0; i < SC_STATUS_COUNT; i++) {
        sc_status s = status_at(i);
        bool terminal = s == SC_ABORT_STUCK || s == SC_CONTEXT_LOST || s == SC_FENCED ||
                        s == SC_CONFIG || s == SC_PEER_LEFT || s == SC_SIM_KILLED;
        assert_int_equal(sc_status_is_terminal(s), terminal);
    }
}

static void an_unknown_value_is_named_unknown_and_is_terminal(void **state) {
    static const int strange[] = {-1,  SC_STATUS_COUNT, SC_STATUS_COUNT + 1,
                                  255, INT32_MIN,       INT32_MAX};
    (void)state;
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        assert_string_equal(sc_status_name(status_at(strange[i])), "UNKNOWN");
        assert_true(strlen(sc_status_sentence(status_at(strange[i]))) > 4);
        assert_true(sc_status_is_terminal(status_at(strange[i])));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_a_name_of_its_own),
        cmocka_unit_test(every_status_has_a_sentence_of_its_own),
        cmocka_unit_test(each_class_has_its_statuses),
        cmocka_unit_test(the_causes_of_failed_and_a_simulated_death_are_terminal_and_no_other),
        cmocka_unit_test(an_unknown_value_is_named_unknown_and_is_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
