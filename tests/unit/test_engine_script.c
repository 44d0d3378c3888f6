// SPDX-License-Identifier: AGPL-3.0-only
//
// examples/script.h: what the checker of the example's runs finds, and that the model it compares
// with leaves no room for luck.
#include "examples/script.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#define ANSWERS 24u

static struct script script;

static int write_one(void **state) {
    (void)state;
    return script_write(&script, ANSWERS, 7) ? 0 : -1;
}

static uint32_t last_position(void) {
    return script.count - 1;
}

static void tell_all_rightly(uint32_t rank) {
    for (uint32_t position = 0; position < script.count; position++)
        script_check(&script, rank, position, script.tokens[position]);
}

static void a_wrong_token_is_reported(void **state) {
    uint32_t position = last_position(), right = script.tokens[position];
    char sentence[128];

    (void)state;
    script_check(&script, 1, position, right + 1);
    assert_int_equal(script.wrong, 1);
    snprintf(sentence, sizeof sentence, "rank 1: token %u at position %u, where %u was expected",
             right + 1, position, right);
    assert_string_equal(script.first_wrong, sentence);
    script_check(&script, 0, position, right + 2);
    assert_int_equal(script.wrong, 2);
    assert_string_equal(script.first_wrong, sentence); // the first stays
}

static void a_token_behind_the_end_is_wrong(void **state) {
    (void)state;
    script_check(&script, 0, script.count, 0);
    script_check(&script, 0, UINT32_MAX, 0);
    assert_int_equal(script.wrong, 2);
}

static void an_answer_is_whole_when_every_token_was_told_rightly(void **state) {
    (void)state;
    tell_all_rightly(0);
    assert_int_equal(script_answered(&script, 0), ANSWERS);
    assert_int_equal(script_answered(&script, 1), 0);
    assert_int_equal(script.wrong, 0);
    script.told[0][last_position()] = false;
    assert_int_equal(script_answered(&script, 0), ANSWERS - 1);
}

static void a_wrong_token_does_not_count_as_told(void **state) {
    (void)state;
    script_check(&script, 0, last_position(), script.tokens[last_position()] + 1);
    assert_int_equal(script_answered(&script, 0), 0);
}

static void prompts_and_answers_take_turns(void **state) {
    uint32_t turn, prompt[MODEL_POSITIONS_MAX], count = 0, at = 0;

    (void)state;
    for (uint32_t expected = 0; expected < SCRIPT_TURNS; expected++) {
        assert_int_equal(script_next(&script, at, &turn, prompt, &count), ENGINE_PROMPT);
        assert_int_equal(turn, expected);
        assert_int_equal(count, script.prompt[expected]);
        assert_memory_equal(prompt, script.tokens + at, count * sizeof prompt[0]);
        for (at += count, count = 0; count < script.answer[expected]; count++, at++)
            assert_int_equal(script_next(&script, at, &turn, prompt, &count), ENGINE_GENERATE);
    }
    assert_int_equal(at, script.count);
    assert_int_equal(script_next(&script, at, &turn, prompt, &count), ENGINE_OVER);
}

static void the_rest_of_a_prompt_that_was_cut_short_follows(void **state) {
    uint32_t turn, prompt[MODEL_POSITIONS_MAX], count = 0;

    (void)state;
    assert_int_equal(script_next(&script, 3, &turn, prompt, &count), ENGINE_PROMPT);
    assert_int_equal(count, script.prompt[0] - 3);
    assert_int_equal(prompt[0], script.tokens[3]);
}

// A cache that lacks one position, of one rank, or one layer's work: another token comes out.
static void every_cache_entry_matters_to_the_next_token(void **state) {
    static struct model_reference reference;
    uint32_t right, missed = 0, tried = 0;

    (void)state;
    for (uint32_t rank = 0; rank < MODEL_RANKS; rank++) {
        for (uint32_t layer = 0; layer < MODEL_LAYERS; layer += 5) {
            for (uint32_t position = 0; position < 8; position++, tried++) {
                memset(&reference, 0, sizeof reference);
                (void)model_reference_next(&reference, script.tokens, 8);
                right = model_reference_next(&reference, script.tokens, 9);
                memset(reference.cache[rank][layer][position], 0, MODEL_HIDDEN);
                reference.cached = 8;
                missed += model_reference_next(&reference, script.tokens, 9) == right;
            }
        }
    }
    assert_int_equal(tried, 160);
    assert_int_equal(missed, 0);
}

static void sums_of_two_ranks_are_exact_in_bf16(void **state) {
    (void)state;
    for (uint32_t value = 0; value <= 2 * (MODEL_MODULUS - 1); value++)
        assert_int_equal(model_from_bf16(model_to_bf16(value)), value);
}

static void whatever_an_aborted_op_left_is_read_as_some_number(void **state) {
    (void)state;
    for (uint32_t element = 0; element <= UINT16_MAX; element++)
        assert_true(model_from_bf16((uint16_t)element) <= 256);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_wrong_token_is_reported, write_one),
        cmocka_unit_test_setup(a_token_behind_the_end_is_wrong, write_one),
        cmocka_unit_test_setup(an_answer_is_whole_when_every_token_was_told_rightly, write_one),
        cmocka_unit_test_setup(a_wrong_token_does_not_count_as_told, write_one),
        cmocka_unit_test_setup(prompts_and_answers_take_turns, write_one),
        cmocka_unit_test_setup(the_rest_of_a_prompt_that_was_cut_short_follows, write_one),
        cmocka_unit_test_setup(every_cache_entry_matters_to_the_next_token, write_one),
        cmocka_unit_test_setup(sums_of_two_ranks_are_exact_in_bf16, write_one),
        cmocka_unit_test_setup(whatever_an_aborted_op_left_is_read_as_some_number, write_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
