// SPDX-License-Identifier: AGPL-3.0-only
//
// core/capacity.h: the products that fit, those that are refused, and who may pass under them.
#include "core/capacity.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define CAP_BYTES (UINT64_C(8192) * 4096 * 2)
#define UNTOUCHED UINT64_C(0xA5A5)

static void capacity_is_tokens_times_hidden_times_two(void **state) {
    uint64_t bytes = 0;

    (void)state;
    assert_int_equal(sc_payload_capacity(8192, 4096, &bytes), SC_OK);
    assert_int_equal(bytes, 67108864);
    assert_int_equal(bytes, CAP_BYTES);
    assert_int_equal(sc_payload_capacity(1, 7168, &bytes), SC_OK);
    assert_int_equal(bytes, 14336);
    assert_int_equal(sc_payload_capacity(1, 1, &bytes), SC_OK);
    assert_int_equal(bytes, 2);
}

static void capacity_overflow_is_refused(void **state) {
    uint64_t bytes = UNTOUCHED;

    (void)state;
    assert_int_equal(sc_payload_capacity(UINT64_C(1) << 40, UINT64_C(1) << 40, &bytes),
                     SC_TOO_LARGE);
    assert_int_equal(sc_payload_capacity(UINT64_MAX, 2, &bytes), SC_TOO_LARGE);
    assert_int_equal(sc_payload_capacity(2, UINT64_MAX, &bytes), SC_TOO_LARGE);
    assert_int_equal(bytes, UNTOUCHED);
}

static void capacity_overflow_by_the_element_size_is_refused(void **state) {
    uint64_t bytes = UNTOUCHED;

    (void)state;
    assert_int_equal(sc_payload_capacity(UINT64_C(1) << 31, UINT64_C(1) << 32, &bytes),
                     SC_TOO_LARGE);
    assert_int_equal(bytes, UNTOUCHED);
    assert_int_equal(sc_payload_capacity((UINT64_C(1) << 31) - 1, UINT64_C(1) << 32, &bytes),
                     SC_OK);
    assert_int_equal(bytes, UINT64_MAX - (UINT64_C(1) << 33) + 1);
}

static void capacity_of_nothing_is_refused(void **state) {
    uint64_t bytes = UNTOUCHED;

    (void)state;
    assert_int_equal(sc_payload_capacity(0, 4096, &bytes), SC_INVALID);
    assert_int_equal(sc_payload_capacity(8192, 0, &bytes), SC_INVALID);
    assert_int_equal(sc_payload_capacity(0, UINT64_MAX, &bytes), SC_INVALID);
    assert_int_equal(bytes, UNTOUCHED);
    assert_int_equal(sc_payload_capacity(8192, 4096, NULL), SC_INVALID);
}

static void payload_up_to_the_capacity_passes(void **state) {
    (void)state;
    assert_int_equal(sc_payload_check(4096, 2, CAP_BYTES), SC_OK);
    assert_int_equal(sc_payload_check(4096, CAP_BYTES - 2, CAP_BYTES), SC_OK);
    assert_int_equal(sc_payload_check(4096, CAP_BYTES, CAP_BYTES), SC_OK);
}

static void payload_one_element_over_the_capacity_is_refused(void **state) {
    (void)state;
    assert_int_equal(sc_payload_check(4096, CAP_BYTES + 2, CAP_BYTES), SC_CAPACITY);
    assert_int_equal(sc_payload_check(4096, 2, 0), SC_CAPACITY);
    assert_int_equal(sc_payload_check(4096, 2, 1), SC_CAPACITY);
    assert_int_equal(sc_payload_check(0, UINT64_MAX - 1, CAP_BYTES), SC_CAPACITY);
}

static void payload_of_odd_bytes_is_refused(void **state) {
    (void)state;
    assert_int_equal(sc_payload_check(4096, 1, CAP_BYTES), SC_INVALID);
    assert_int_equal(sc_payload_check(4096, CAP_BYTES - 1, CAP_BYTES), SC_INVALID);
    assert_int_equal(sc_payload_check(4097, CAP_BYTES + 1, CAP_BYTES), SC_INVALID);
}

static void payload_at_an_odd_address_is_refused(void **state) {
    (void)state;
    assert_int_equal(sc_payload_check(4097, 2, CAP_BYTES), SC_ALIGN);
    assert_int_equal(sc_payload_check(4098, 2, CAP_BYTES), SC_OK);
}

static void payload_that_wraps_around_memory_is_refused(void **state) {
    (void)state;
    assert_int_equal(sc_payload_check(UINT64_MAX - 1, 2, CAP_BYTES), SC_INVALID);
    assert_int_equal(sc_payload_check(UINT64_MAX - 3, 4096, CAP_BYTES), SC_INVALID);
    assert_int_equal(sc_payload_check(UINT64_MAX - 3, 2, CAP_BYTES), SC_OK);
}

static void payload_of_zero_bytes_passes_anywhere(void **state) {
    (void)state;
    assert_int_equal(sc_payload_check(0, 0, CAP_BYTES), SC_OK);
    assert_int_equal(sc_payload_check(4097, 0, 0), SC_OK);
    assert_int_equal(sc_payload_check(UINT64_MAX, 0, 0), SC_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(capacity_is_tokens_times_hidden_times_two),
        cmocka_unit_test(capacity_overflow_is_refused),
        cmocka_unit_test(capacity_overflow_by_the_element_size_is_refused),
        cmocka_unit_test(capacity_of_nothing_is_refused),
        cmocka_unit_test(payload_up_to_the_capacity_passes),
        cmocka_unit_test(payload_one_element_over_the_capacity_is_refused),
        cmocka_unit_test(payload_of_odd_bytes_is_refused),
        cmocka_unit_test(payload_at_an_odd_address_is_refused),
        cmocka_unit_test(payload_that_wraps_around_memory_is_refused),
        cmocka_unit_test(payload_of_zero_bytes_passes_anywhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
