// SPDX-License-Identifier: AGPL-3.0-only
//
// core/crc32c.h: the vectors of RFC 3720 B.4, and that pieces give what the whole gives.
#include "core/crc32c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void nothing_has_the_checksum_it_continues_from(void **state) {
    static const uint8_t none[1] = {0};
    (void)state;
    assert_int_equal(sc_crc32c(0, none, 0), 0);
    assert_int_equal(sc_crc32c(0x12345678u, none, 0), 0x12345678u);
}

static void rfc_3720_vectors_hold(void **state) {
    uint8_t data[32] = {0};
    (void)state;
    assert_int_equal(sc_crc32c(0, data, sizeof data), 0x8a9136aau);
    memset(data, 0xff, sizeof data);
    assert_int_equal(sc_crc32c(0, data, sizeof data), 0x62a8ab43u);
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)i;
    assert_int_equal(sc_crc32c(0, data, sizeof data), 0x46dd794eu);
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(31 - i);
    assert_int_equal(sc_crc32c(0, data, sizeof data), 0x113fdb5cu);
}

static void the_nine_digits_have_the_catalogued_checksum(void **state) {
    (void)state;
    assert_int_equal(sc_crc32c(0, (const uint8_t *)"123456789", 9), 0xe3069283u);
}

static void pieces_give_the_checksum_of_the_whole(void **state) {
    uint8_t data[97];
    (void)state;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 37 + 11);
    const uint32_t whole = sc_crc32c(0, data, sizeof data);
    for (size_t cut = 0; cut <= sizeof data; cut++) {
        uint32_t crc = sc_crc32c(0, data, cut);
        assert_int_equal(sc_crc32c(crc, data + cut, sizeof data - cut), whole);
    }
}

static void every_flipped_bit_changes_the_checksum(void **state) {
    uint8_t data[64];
    (void)state;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)i;
    const uint32_t sound = sc_crc32c(0, data, sizeof data);
    for (size_t bit = 0; bit < 8 * sizeof data; bit++) {
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_not_equal(sc_crc32c(0, data, sizeof data), sound);
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_has_the_checksum_it_continues_from),
        cmocka_unit_test(rfc_3720_vectors_hold),
        cmocka_unit_test(the_nine_digits_have_the_catalogued_checksum),
        cmocka_unit_test(pieces_give_the_checksum_of_the_whole),
        cmocka_unit_test(every_flipped_bit_changes_the_checksum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
