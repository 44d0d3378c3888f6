// SPDX-License-Identifier: AGPL-3.0-only
//
// cli/pattern.h, by which results are judged, and the quantiles of cli/report.h.
#include "cli/pattern.h"
#include "cli/report.h"
#include "kernels/bf16.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define COUNT 1000u
#define WORLD_MAX 64u

// As ranks would, one after the other.
static void add_up(uint16_t *sum, uint32_t world, uint64_t salt) {
    uint16_t input[COUNT];

    sc_pattern_fill(sum, COUNT, 0, salt);
    for (uint32_t rank = 1; rank < world; rank++) {
        sc_pattern_fill(input, COUNT, rank, salt);
        sc_bf16_add_array(sum, input, COUNT);
    }
}

static void the_sum_of_all_ranks_is_right_in_every_world(void **state) {
    uint16_t sum[COUNT];

    (void)state;
    for (uint32_t world = 1; world <= WORLD_MAX; world++) {
        add_up(sum, world, 7);
        assert_int_equal(sc_pattern_wrong(sum, COUNT, world, 7), 0);
    }
}

static void every_wrong_element_is_counted(void **state) {
    uint16_t sum[COUNT];

    (void)state;
    add_up(sum, 2, 1);
    sum[0] ^= 1u;
    sum[COUNT - 1] ^= 0x8000u;
    assert_int_equal(sc_pattern_wrong(sum, COUNT, 2, 1), 2);
}

static void what_was_never_added_is_wrong(void **state) {
    uint16_t input[COUNT] = {0};

    (void)state;
    assert_true(sc_pattern_wrong(input, COUNT, 2, 1) > COUNT / 2);
    sc_pattern_fill(input, COUNT, 0, 1);
    assert_true(sc_pattern_wrong(input, COUNT, 2, 1) > COUNT / 2);
}

static void the_sum_of_another_use_is_wrong(void **state) {
    uint16_t sum[COUNT];

    (void)state;
    add_up(sum, 2, 1);
    assert_true(sc_pattern_wrong(sum, COUNT, 2, 2) > COUNT / 2);
    assert_true(sc_pattern_wrong(sum + 1, COUNT - 1, 2, 1) > COUNT / 2);
}

static void quantiles_are_values_of_the_list_by_nearest_rank(void **state) {
    uint64_t values[] = {40, 10, 50, 30, 20};

    (void)state;
    sc_report_sort(values, 5);
    assert_int_equal(sc_report_quantile(values, 5, 0), 10);
    assert_int_equal(sc_report_quantile(values, 5, 20), 10);
    assert_int_equal(sc_report_quantile(values, 5, 21), 20);
    assert_int_equal(sc_report_quantile(values, 5, 50), 30);
    assert_int_equal(sc_report_quantile(values, 5, 99), 50);
    assert_int_equal(sc_report_quantile(values, 5, 100), 50);
    assert_int_equal(sc_report_quantile(values, 1, 50), 10);
    assert_int_equal(sc_report_quantile(values, 0, 50), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sum_of_all_ranks_is_right_in_every_world),
        cmocka_unit_test(every_wrong_element_is_counted),
        cmocka_unit_test(what_was_never_added_is_wrong),
        cmocka_unit_test(the_sum_of_another_use_is_wrong),
        cmocka_unit_test(quantiles_are_values_of_the_list_by_nearest_rank),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
