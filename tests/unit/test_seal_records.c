// SPDX-License-Identifier: AGPL-3.0-only
//
// core/seal.h, the records: what somebody between the two ends can do to them, which is to end the
// link.
#include "tests/support/seal_ends.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void largest_record_passes_and_no_larger_one_is_sealed(void **state) {
    static struct seal_ends p;
    static uint8_t data[SC_SEAL_PLAIN_MAX_BYTES + 1];
    uint8_t out[SC_SEAL_RECORD_MAX_BYTES];
    size_t written = 0;
    (void)state;
    memset(data, 0x5a, sizeof data);
    seal_shake(&p, SEAL_STREAM_MAX);
    assert_int_equal(sc_seal_write(&p.a.seal, data, 0, out, &written), SC_INVALID);
    assert_int_equal(sc_seal_write(&p.a.seal, data, sizeof data, out, &written), SC_INVALID);
    seal_say(&p.a, data, sizeof data - 1);
    assert_int_equal(seal_pass(&p.d, &p.a, &p.from_a, 1000), SC_INPROGRESS);
    assert_int_equal(p.d.opened_bytes, sizeof data - 1);
    assert_memory_equal(p.d.opened, data, sizeof data - 1);
}

struct record {
    size_t at, bytes;
};

// Three records of the accepting side, not passed on yet.
static void three_records(struct seal_ends *p, struct record records[3]) {
    static const char *const texts[3] = {"first", "second", "the third"};
    seal_shake(p, SEAL_STREAM_MAX);
    for (uint32_t i = 0; i < 3; i++) {
        records[i].at = p->a.said_bytes;
        seal_say_text(&p->a, texts[i]);
        records[i].bytes = p->a.said_bytes - records[i].at;
    }
}

static sc_status deliver(struct seal_ends *p, const struct record *record) {
    return seal_tell(&p->d, p->a.said + record->at, record->bytes, SEAL_STREAM_MAX);
}

static void repeated_moved_and_dropped_records_are_refused(void **state) {
    static const uint32_t orders[][2] = {{0, 0}, {0, 2}, {1, 0}, {2, 0}};
    static struct seal_ends p;
    struct record records[3];
    (void)state;
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        const bool begins_well = orders[i][0] == 0;
        three_records(&p, records);
        sc_status status = deliver(&p, &records[orders[i][0]]);
        assert_int_equal(status, begins_well ? SC_INPROGRESS : SC_PROTOCOL);
        if (begins_well)
            assert_int_equal(deliver(&p, &records[orders[i][1]]), SC_PROTOCOL);
        seal_expect_opened(&p.d, begins_well ? "first" : "");
        seal_expect_over(&p.d, SC_PROTOCOL, "changed, repeated, dropped or moved");
    }
}

static void record_of_ones_own_is_refused(void **state) {
    static struct seal_ends p;
    struct record records[3];
    (void)state;
    three_records(&p, records);
    assert_int_equal(seal_tell(&p.a, p.a.said + records[0].at, records[0].bytes, SEAL_STREAM_MAX),
                     SC_PROTOCOL);
    assert_int_equal(p.a.opened_bytes, 0);
}

static void record_of_another_link_is_refused(void **state) {
    static struct seal_ends p;
    static struct seal_end a, d;
    struct record records[3];
    (void)state;
    three_records(&p, records);
    seal_begin(&a, SC_SEAL_ACCEPTS, seal_job_key, 3);
    seal_begin(&d, SC_SEAL_DIALS, seal_job_key, 103);
    assert_int_equal(seal_tell(&d, a.said, a.said_bytes, SEAL_STREAM_MAX), SC_INPROGRESS);
    assert_int_equal(seal_tell(&a, d.said, d.said_bytes, SEAL_STREAM_MAX), SC_INPROGRESS);
    assert_int_equal(
        seal_tell(&d, a.said + SC_SEAL_HELLO_BYTES, SC_SEAL_PROOF_BYTES, SEAL_STREAM_MAX),
        SC_INPROGRESS);
    assert_true(sc_seal_is_proved(&d.seal));
    assert_int_equal(seal_tell(&d, p.a.said + records[0].at, records[0].bytes, SEAL_STREAM_MAX),
                     SC_PROTOCOL);
    assert_int_equal(d.opened_bytes, 0);
}

static void flipped_bit_at_any_place_of_a_record_opens_nothing(void **state) {
    static struct seal_ends p;
    struct record records[3];
    (void)state;
    seal_shake(&p, SEAL_STREAM_MAX);
    const struct sc_seal before = p.d.seal;
    three_records(&p, records);
    for (size_t at = 0; at < records[0].bytes; at++) {
        for (uint32_t bit = 0; bit < 8; bit++) {
            p.d.seal = before;
            p.d.in_bytes = 0;
            p.a.said[records[0].at + at] ^= (uint8_t)(1u << bit);
            sc_status status = seal_tell(&p.d, p.a.said + records[0].at,
                                         p.a.said_bytes - records[0].at, SEAL_STREAM_MAX);
            p.a.said[records[0].at + at] ^= (uint8_t)(1u << bit);
            // A length that grew may wait for more than there is.
            assert_true(status == SC_PROTOCOL || (at < 2 && status == SC_INPROGRESS));
            assert_int_equal(p.d.opened_bytes, 0);
        }
    }
    p.d.seal = before;
    p.d.in_bytes = 0;
    assert_int_equal(deliver(&p, &records[0]), SC_INPROGRESS);
    seal_expect_opened(&p.d, "first");
}

static void length_out_of_bounds_is_refused_without_waiting_for_more(void **state) {
    static const uint8_t lengths[][4] = {
        {0, 0, 0, 0},    // an empty record that is not the last
        {1, 0x10, 0, 0}, // 4097
        {0xff, 0xff, 0xff, 0x7f},
        {1, 0, 0, 0x80}, // a last one with bytes in it
        {0xff, 0xff, 0xff, 0xff},
    };
    static struct seal_ends p;
    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        seal_shake(&p, SEAL_STREAM_MAX);
        assert_int_equal(seal_tell(&p.d, lengths[i], sizeof lengths[i], 1), SC_PROTOCOL);
        seal_expect_over(&p.d, SC_PROTOCOL, "out of bounds");
    }
}

static void cut_stream_yields_whole_records_only_and_says_that_it_was_cut(void **state) {
    static struct seal_ends p;
    struct record records[3];
    (void)state;
    seal_shake(&p, SEAL_STREAM_MAX);
    const struct sc_seal before = p.d.seal;
    three_records(&p, records);
    seal_end_it(&p.a);
    const size_t first = records[0].at, all = p.a.said_bytes - first;
    for (size_t bytes = 0; bytes < all; bytes++) {
        size_t whole = 0;
        p.d.seal = before;
        p.d.in_bytes = p.d.opened_bytes = 0;
        assert_true(bytes == 0 ||
                    seal_tell(&p.d, p.a.said + first, bytes, SEAL_STREAM_MAX) == SC_INPROGRESS);
        for (uint32_t i = 0; i < 3; i++)
            if (bytes >= records[i].at + records[i].bytes - first)
                whole += records[i].bytes - SC_SEAL_HEADER_BYTES - SC_SEAL_TAG_BYTES;
        assert_int_equal(p.d.opened_bytes, whole);
        assert_int_equal(sc_seal_cut(&p.d.seal), SC_LINK_EOF);
        seal_expect_over(&p.d, SC_LINK_EOF, "cut off");
    }
    p.d.seal = before;
    p.d.in_bytes = p.d.opened_bytes = 0;
    assert_int_equal(seal_tell(&p.d, p.a.said + first, all, SEAL_STREAM_MAX), SC_LINK_EOF);
    seal_expect_opened(&p.d, "firstsecondthe third");
    seal_expect_over(&p.d, SC_LINK_EOF, "the peer has ended the link");
}

static void nothing_counts_behind_the_last_record(void **state) {
    static struct seal_ends p;
    static uint8_t late[64];
    size_t written = 0;
    (void)state;
    seal_shake(&p, SEAL_STREAM_MAX);
    struct sc_seal copy = p.a.seal;
    seal_end_it(&p.a);
    seal_expect_over(&p.a, SC_CLOSED, "this end has ended the link");
    copy.records[SC_SEAL_ACCEPTS]++; // the next record, as if it had not ended
    assert_int_equal(sc_seal_write(&copy, "late", 4, late, &written), SC_OK);
    assert_int_equal(seal_pass(&p.d, &p.a, &p.from_a, SEAL_STREAM_MAX), SC_LINK_EOF);
    assert_int_equal(seal_tell(&p.d, late, written, SEAL_STREAM_MAX), SC_LINK_EOF);
    assert_int_equal(p.d.opened_bytes, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(largest_record_passes_and_no_larger_one_is_sealed),
        cmocka_unit_test(repeated_moved_and_dropped_records_are_refused),
        cmocka_unit_test(record_of_ones_own_is_refused),
        cmocka_unit_test(record_of_another_link_is_refused),
        cmocka_unit_test(flipped_bit_at_any_place_of_a_record_opens_nothing),
        cmocka_unit_test(length_out_of_bounds_is_refused_without_waiting_for_more),
        cmocka_unit_test(cut_stream_yields_whole_records_only_and_says_that_it_was_cut),
        cmocka_unit_test(nothing_counts_behind_the_last_record),
    };
    return cmocka_run_group_tests(tests, seal_start, NULL);
}
