// SPDX-License-Identifier: AGPL-3.0-only
//
// core/frame.h: what is encoded is decoded alike.
#include "tests/support/frames.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static uint8_t wire[SC_FRAME_MAX_BYTES];
static struct sc_frame sent, got; // several KiB each

static void make(enum sc_frame_kind kind) {
    frame_at_bounds(&sent, kind);
}

static size_t encode(void) {
    return sc_frame_encode(&sent, wire, sizeof wire);
}

static sc_status decode(size_t bytes) {
    size_t used = 0;
    const char *why = NULL;
    sc_status status = sc_frame_decode(wire, bytes, SC_FRAME_MAX_BYTES, &got, &used, &why);
    assert_true((status == SC_PROTOCOL) == (why != NULL));
    return status;
}

// The payload's size in memory, of what is compared as bytes.
static size_t payload_size(enum sc_frame_kind kind) {
    switch (kind) {
    case SC_FRAME_CHALLENGE: return sizeof sent.u.nonce;
    case SC_FRAME_HELLO: return sizeof sent.u.hello;
    case SC_FRAME_WELCOME: return sizeof sent.u.welcome;
    case SC_FRAME_REFUSE:
    case SC_FRAME_ABORT:
    case SC_FRAME_BYE: return sizeof sent.u.cause;
    case SC_FRAME_OFFER:
        return offsetof(struct sc_offer, ranks) + sent.u.offer.world * sizeof sent.u.offer.ranks[0];
    case SC_FRAME_PING: return offsetof(struct sc_ping, loading) + sizeof sent.u.ping.loading;
    case SC_FRAME_QUERY: return sizeof sent.u.first;
    case SC_FRAME_DESCRIBE:
        return offsetof(struct sc_describe, op) +
               sent.u.describe.count * sizeof sent.u.describe.op[0];
    default: return 0;
    }
}

static void round_trip(enum sc_frame_kind kind) {
    size_t bytes = encode(), used = 0;
    const char *why = "";
    memset(&got, 0x5a, sizeof got);
    assert_int_equal(sc_frame_decode(wire, bytes, bytes, &got, &used, &why), SC_OK);
    assert_null(why);
    assert_int_equal(used, bytes);
    assert_int_equal(got.kind, kind);
    assert_int_equal(got.epoch, sent.epoch);
    assert_memory_equal(&got.u, &sent.u, payload_size(kind));
}

// ---- round trips ----

static void every_kind_returns_alike_at_its_upper_bounds(void **state) {
    (void)state;
    for (int kind = 0; kind < SC_FRAME_KIND_COUNT; kind++) {
        make((enum sc_frame_kind)kind);
        round_trip((enum sc_frame_kind)kind);
    }
}

static bool has_a_cause(enum sc_frame_kind kind) {
    return kind == SC_FRAME_REFUSE || kind == SC_FRAME_ABORT || kind == SC_FRAME_BYE;
}

static void every_kind_returns_alike_at_its_lower_bounds(void **state) {
    (void)state;
    for (int kind = 0; kind < SC_FRAME_KIND_COUNT; kind++) {
        memset(&sent, 0, sizeof sent);
        sent.kind = (uint32_t)kind;
        if (kind == SC_FRAME_COMMAND)
            sent.u.command.data = frame_command_bytes;
        if (has_a_cause((enum sc_frame_kind)kind))
            sent.u.cause.code = SC_OK + 1; // an end without a reason is none
        round_trip((enum sc_frame_kind)kind);
    }
}

// At its bounds one field looks like the next.
static void a_pings_counters_return_each_in_its_place(void **state) {
    (void)state;
    memset(&sent, 0, sizeof sent);
    sent.kind = SC_FRAME_PING;
    sent.u.ping = (struct sc_ping){.submitted = 9,
                                   .started = 8,
                                   .completed = 7,
                                   .digest = 1,
                                   .want = 2,
                                   .agreed = 3,
                                   .all_started = 4,
                                   .mark = 5,
                                   .barrier = 6,
                                   .taken = 10,
                                   .pair = {.from = 1, .to = 2, .count = 3}};
    round_trip(SC_FRAME_PING);
}

static void no_rank_is_a_rank_that_may_be_told(void **state) {
    (void)state;
    make(SC_FRAME_ABORT);
    sent.u.cause.suspect = SC_RANK_NONE;
    round_trip(SC_FRAME_ABORT);
    make(SC_FRAME_PING);
    sent.u.ping.laggard = SC_RANK_NONE;
    round_trip(SC_FRAME_PING);
}

static void a_command_returns_byte_for_byte(void **state) {
    static const uint32_t lengths[] = {0, 1, 3, SC_COMMAND_MAX_BYTES};
    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        make(SC_FRAME_COMMAND);
        sent.u.command.bytes = lengths[i];
        assert_int_equal(encode(), SC_COMMAND_FRAME_BYTES(lengths[i]));
        assert_int_equal(decode(encode()), SC_OK);
        assert_int_equal(got.u.command.bytes, lengths[i]);
        if (lengths[i] != 0)
            assert_memory_equal(got.u.command.data, frame_command_bytes, lengths[i]);
    }
}

static void a_command_costs_its_bytes_aligned_and_sixteen_more(void **state) {
    (void)state;
    assert_int_equal(sc_command_cost(0), 16);
    assert_int_equal(sc_command_cost(1), 24);
    assert_int_equal(sc_command_cost(8), 24);
    assert_int_equal(sc_command_cost(9), 32);
    assert_int_equal(sc_command_cost(SC_COMMAND_MAX_BYTES) * 2, SC_COMMAND_WINDOW_BYTES);
    assert_int_equal(sc_command_cost(UINT32_MAX), 16 + (UINT64_C(1) << 32));
}

static void encoding_leaves_a_constant_frame_alone(void **state) {
    static const struct sc_frame constant = {.kind = SC_FRAME_DESCRIBE,
                                             .u.describe = {.first = 1, .count = 1, .reserved = 9}};
    (void)state;
    assert_true(sc_frame_encode(&constant, wire, sizeof wire) > SC_FRAME_HEADER_BYTES);
    assert_int_equal(constant.u.describe.reserved, 9);
}

static void greetings_fit_their_limit(void **state) {
    static const enum sc_frame_kind kinds[] = {SC_FRAME_CHALLENGE, SC_FRAME_HELLO, SC_FRAME_WELCOME,
                                               SC_FRAME_REFUSE};
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        make(kinds[i]);
        assert_true(encode() <= SC_GREETING_MAX_BYTES);
    }
}

static void two_frames_in_one_buffer_are_read_one_after_the_other(void **state) {
    size_t used = 0;
    const char *why = NULL;
    (void)state;
    make(SC_FRAME_GO);
    size_t first = encode();
    make(SC_FRAME_PING);
    size_t both = first + sc_frame_encode(&sent, wire + first, sizeof wire - first);
    assert_int_equal(sc_frame_decode(wire, both, both, &got, &used, &why), SC_OK);
    assert_int_equal(got.kind, SC_FRAME_GO);
    assert_int_equal(used, first);
    assert_int_equal(sc_frame_decode(wire + used, both - used, both, &got, &used, &why), SC_OK);
    assert_int_equal(got.kind, SC_FRAME_PING);
}

static void every_kind_has_a_name(void **state) {
    (void)state;
    for (int kind = 0; kind < SC_FRAME_KIND_COUNT; kind++)
        assert_string_not_equal(sc_frame_kind_name((enum sc_frame_kind)kind), "UNKNOWN");
    assert_string_equal(sc_frame_kind_name(SC_FRAME_KIND_COUNT), "UNKNOWN");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_returns_alike_at_its_upper_bounds),
        cmocka_unit_test(every_kind_returns_alike_at_its_lower_bounds),
        cmocka_unit_test(a_pings_counters_return_each_in_its_place),
        cmocka_unit_test(no_rank_is_a_rank_that_may_be_told),
        cmocka_unit_test(a_command_returns_byte_for_byte),
        cmocka_unit_test(a_command_costs_its_bytes_aligned_and_sixteen_more),
        cmocka_unit_test(encoding_leaves_a_constant_frame_alone),
        cmocka_unit_test(greetings_fit_their_limit),
        cmocka_unit_test(two_frames_in_one_buffer_are_read_one_after_the_other),
        cmocka_unit_test(every_kind_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
