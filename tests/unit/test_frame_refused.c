// SPDX-License-Identifier: AGPL-3.0-only
//
// core/frame.h: what is not a frame of ours is refused: what was cut, flipped or lengthened on the
// way, what a stranger says, and every field out of its bounds, though the checksum be right.
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

// ---- damage ----

// A command is cut and flipped in its short form: 64 KiB of payload show nothing more.
static size_t encode_short(int kind) {
    make((enum sc_frame_kind)kind);
    if (kind == SC_FRAME_COMMAND)
        sent.u.command.bytes = 5;
    return encode();
}

static void every_cut_frame_needs_more_bytes(void **state) {
    (void)state;
    for (int kind = 0; kind < SC_FRAME_KIND_COUNT; kind++) {
        size_t bytes = encode_short(kind);
        for (size_t cut = 0; cut < bytes; cut++)
            assert_int_equal(decode(cut), SC_INPROGRESS);
    }
}

static void a_frame_with_a_flipped_bit_is_never_accepted(void **state) {
    (void)state;
    for (int kind = 0; kind < SC_FRAME_KIND_COUNT; kind++) {
        size_t bytes = encode_short(kind);
        for (size_t bit = 0; bit < 8 * bytes; bit++) {
            wire[bit / 8] ^= (uint8_t)(1u << bit % 8);
            sc_status status = decode(bytes);
            // Only a length that grew may still wait for the rest.
            assert_true(status == SC_PROTOCOL || (status == SC_INPROGRESS && bit / 8 / 4 == 2));
            wire[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
    }
}

static void a_payload_with_a_trailing_byte_is_refused(void **state) {
    (void)state;
    for (int kind = 0; kind < SC_FRAME_KIND_COUNT; kind++) {
        size_t bytes = encode_short(kind);
        wire[bytes] = 0;
        assert_int_equal(decode(frame_seal(wire, bytes - SC_FRAME_HEADER_BYTES + 1)), SC_PROTOCOL);
    }
}

static void a_payload_that_lacks_a_byte_is_refused(void **state) {
    (void)state;
    for (int kind = 0; kind < SC_FRAME_KIND_COUNT; kind++) {
        size_t bytes = encode_short(kind);
        assert_int_equal(decode(frame_seal(wire, bytes - SC_FRAME_HEADER_BYTES - 1)), SC_PROTOCOL);
    }
}

// ---- strangers ----

static void refused_at(size_t bytes, const char *text) {
    memcpy(wire, text, strlen(text));
    assert_int_equal(decode(bytes), SC_PROTOCOL);
}

static void a_stranger_is_refused_at_the_first_byte_that_differs(void **state) {
    (void)state;
    refused_at(1, "GET / HTTP/1.1\r\n\r\n");
    refused_at(2, "SSH-2.0-OpenSSH_9.2\r\n");
    refused_at(1, "\x16\x03\x01");
    refused_at(4, "SCOX");
    assert_int_equal(decode(3), SC_INPROGRESS);
}

static void each_byte_of_the_header_is_judged_as_it_comes(void **state) {
    static const struct {
        size_t at;
        uint8_t wrong;
    } rows[] = {
        {0, 'G'}, {1, 'G'}, {2, 'G'}, {3, 'G'}, {4, SC_FRAME_FORMAT + 1}, {5, SC_FRAME_KIND_COUNT},
        {7, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        make(SC_FRAME_GO);
        (void)encode();
        wire[rows[i].at] = rows[i].wrong;
        assert_int_equal(decode(rows[i].at), SC_INPROGRESS);
        assert_int_equal(decode(rows[i].at + 1), SC_PROTOCOL);
    }
}

static void a_length_over_the_limit_is_refused_before_it_arrives(void **state) {
    size_t used = 0;
    const char *why = NULL;
    (void)state;
    make(SC_FRAME_COMMAND);
    size_t bytes = encode();
    assert_int_equal(
        sc_frame_decode(wire, SC_FRAME_HEADER_BYTES, SC_GREETING_MAX_BYTES, &got, &used, &why),
        SC_PROTOCOL);
    assert_string_equal(why, "frame too long");
    assert_int_equal(sc_frame_decode(wire, SC_FRAME_HEADER_BYTES, bytes, &got, &used, &why),
                     SC_INPROGRESS);
    assert_int_equal(sc_frame_decode(wire, SC_FRAME_HEADER_BYTES, bytes - 1, &got, &used, &why),
                     SC_PROTOCOL);
    memset(wire + 8, 0xff, 4);
    assert_int_equal(decode(SC_FRAME_HEADER_BYTES), SC_PROTOCOL);
}

// ---- fields out of bounds ----

// Puts a number where the payload of the frame in `wire` has one, and wants it refused.
static void refused_with(size_t payload_at, uint32_t value, size_t bytes, const char *reason) {
    size_t used = 0;
    const char *why = NULL;
    for (size_t i = 0; i < 4; i++)
        wire[SC_FRAME_HEADER_BYTES + payload_at + i] = (uint8_t)(value >> (8 * i));
    (void)frame_seal(wire, bytes - SC_FRAME_HEADER_BYTES);
    assert_int_equal(sc_frame_decode(wire, bytes, bytes, &got, &used, &why), SC_PROTOCOL);
    assert_string_equal(why, reason);
}

enum { // where the payloads have what is bounded; the epoch's 8 bytes come first
    CAUSE_CODE = 8,
    CAUSE_SUSPECT = 12,
    CAUSE_OP_KIND = 40,
    CAUSE_OP_ROOT = 44,
    CAUSE_FIELD = 72,
    OFFER_WORLD = 8 + 68 + 4 * 8 + 4,
    PING_PAIR_FROM = 8 + 10 * 8,
    PING_PAIR_TO = PING_PAIR_FROM + 4,
    PING_LAGGARD = PING_PAIR_TO + 4 + 8,
    PING_STATE = PING_LAGGARD + 4,
    PING_LOADING = PING_STATE + 4,
    DESCRIBE_COUNT = 16,
    DESCRIBE_KIND = 20,
    DESCRIBE_ROOT = 24,
    HELLO_ABLE = 8 + 32 + 4 + 9 * 8 + 4 * 4,
    COMMAND_BYTES = 8,
};

static void each_field_out_of_bounds_is_refused_by_name(void **state) {
    static const struct {
        enum sc_frame_kind kind;
        size_t at;
        uint32_t value;
        const char *why;
    } rows[] = {
        {SC_FRAME_ABORT, CAUSE_CODE, SC_STATUS_COUNT, "cause code out of range"},
        {SC_FRAME_REFUSE, CAUSE_CODE, SC_OK, "no cause given"},
        {SC_FRAME_ABORT, CAUSE_CODE, SC_OK, "no cause given"},
        {SC_FRAME_BYE, CAUSE_CODE, SC_OK, "no cause given"},
        {SC_FRAME_BYE, CAUSE_SUSPECT, SC_WORLD_MAX, "rank out of range"},
        {SC_FRAME_BYE, CAUSE_SUSPECT, UINT32_MAX - 1, "rank out of range"},
        {SC_FRAME_REFUSE, CAUSE_OP_KIND, SC_OP_KIND_COUNT, "op kind out of range"},
        {SC_FRAME_ABORT, CAUSE_OP_ROOT, SC_WORLD_MAX, "root out of range"},
        {SC_FRAME_REFUSE, CAUSE_FIELD, SC_FIELD_COUNT, "config field out of range"},
        {SC_FRAME_OFFER, OFFER_WORLD, SC_WORLD_MAX + 1, "world out of range"},
        {SC_FRAME_OFFER, CAUSE_CODE, UINT32_MAX, "cause code out of range"},
        {SC_FRAME_PING, PING_PAIR_FROM, SC_WORLD_MAX, "rank out of range"},
        {SC_FRAME_PING, PING_PAIR_TO, SC_RANK_NONE, "rank out of range"},
        {SC_FRAME_PING, PING_LAGGARD, SC_WORLD_MAX, "rank out of range"},
        {SC_FRAME_PING, PING_STATE, SC_STATE_COUNT, "state out of range"},
        {SC_FRAME_PING, PING_LOADING, 2, "loading is neither 0 nor 1"},
        {SC_FRAME_DESCRIBE, DESCRIBE_COUNT, SC_DESCRIBE_MAX + 1, "too many descriptions"},
        {SC_FRAME_DESCRIBE, DESCRIBE_KIND, SC_OP_KIND_COUNT, "op kind out of range"},
        {SC_FRAME_DESCRIBE, DESCRIBE_ROOT, SC_WORLD_MAX, "root out of range"},
        {SC_FRAME_HELLO, HELLO_ABLE, 2, "able is neither 0 nor 1"},
        {SC_FRAME_COMMAND, COMMAND_BYTES, SC_COMMAND_MAX_BYTES + 1, "command too long"},
        {SC_FRAME_COMMAND, COMMAND_BYTES, 6, "payload too short"},
        {SC_FRAME_COMMAND, COMMAND_BYTES, 4, "payload too long"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        refused_with(rows[i].at, rows[i].value, encode_short((int)rows[i].kind), rows[i].why);
}

static void counters_out_of_order_are_refused(void **state) {
    (void)state;
    memset(&sent, 0, sizeof sent);
    sent.kind = SC_FRAME_PING;
    sent.u.ping.submitted = 2;
    sent.u.ping.started = 2;
    sent.u.ping.completed = 2;
    size_t bytes = encode();
    assert_int_equal(decode(bytes), SC_OK);
    refused_with(8, 1, bytes, "counters out of order");
    (void)encode();
    refused_with(8 + 8, 1, bytes, "counters out of order");
}

// ---- anything ----

static uint64_t random_state;

static uint32_t random_below(uint32_t limit) { // xorshift64*
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (uint32_t)((random_state * 0x2545f4914f6cdd1du) >> 33) % limit;
}

static void cause_is_in_bounds(const struct sc_cause *c) {
    assert_true(c->code < SC_STATUS_COUNT && c->field < SC_FIELD_COUNT);
    assert_true(c->suspect < SC_WORLD_MAX || c->suspect == SC_RANK_NONE);
    for (int i = 0; i < 2; i++)
        assert_true(c->op[i].kind < SC_OP_KIND_COUNT && c->op[i].root < SC_WORLD_MAX);
}

static void frame_is_in_bounds(size_t used) {
    const struct sc_ping *p = &got.u.ping;
    switch ((enum sc_frame_kind)got.kind) {
    case SC_FRAME_REFUSE:
    case SC_FRAME_ABORT:
    case SC_FRAME_BYE: cause_is_in_bounds(&got.u.cause); break;
    case SC_FRAME_OFFER:
        cause_is_in_bounds(&got.u.offer.cause);
        assert_true(got.u.offer.world <= SC_WORLD_MAX);
        break;
    case SC_FRAME_PING:
        assert_true(p->state < SC_STATE_COUNT && p->loading <= 1);
        assert_true(p->completed <= p->started && p->started <= p->submitted);
        break;
    case SC_FRAME_DESCRIBE:
        assert_true(got.u.describe.count <= SC_DESCRIBE_MAX);
        for (uint32_t i = 0; i < got.u.describe.count; i++)
            assert_true(got.u.describe.op[i].kind < SC_OP_KIND_COUNT);
        break;
    case SC_FRAME_COMMAND:
        assert_true(got.u.command.data >= wire);
        assert_true(got.u.command.data + got.u.command.bytes <= wire + used);
        break;
    default: assert_true(got.kind < SC_FRAME_KIND_COUNT); break;
    }
}

// Sound frames with a few bytes changed and a checksum that says they are sound: half of them are
// still accepted, and then every field is within its bounds.
static void random_bytes_with_a_right_checksum_stay_within_bounds(void **state) {
    size_t accepted = 0, refused = 0;
    (void)state;
    random_state = 1;
    for (int run = 0; run < 20000; run++) {
        size_t bytes = encode_short((int)random_below(SC_FRAME_KIND_COUNT));
        size_t payload = bytes - SC_FRAME_HEADER_BYTES;
        for (uint32_t n = random_below(4); n > 0; n--)
            wire[SC_FRAME_HEADER_BYTES + random_below((uint32_t)payload)] =
                (uint8_t)random_below(256);
        if (random_below(8) == 0)
            payload = random_below((uint32_t)payload + 9);
        bytes = frame_seal(wire, payload);
        if (decode(bytes) == SC_OK) {
            accepted++;
            frame_is_in_bounds(bytes);
        } else {
            refused++;
        }
    }
    assert_true(accepted > 1000 && refused > 1000); // both ways were taken
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cut_frame_needs_more_bytes),
        cmocka_unit_test(a_frame_with_a_flipped_bit_is_never_accepted),
        cmocka_unit_test(a_payload_with_a_trailing_byte_is_refused),
        cmocka_unit_test(a_payload_that_lacks_a_byte_is_refused),
        cmocka_unit_test(a_stranger_is_refused_at_the_first_byte_that_differs),
        cmocka_unit_test(each_byte_of_the_header_is_judged_as_it_comes),
        cmocka_unit_test(a_length_over_the_limit_is_refused_before_it_arrives),
        cmocka_unit_test(each_field_out_of_bounds_is_refused_by_name),
        cmocka_unit_test(counters_out_of_order_are_refused),
        cmocka_unit_test(random_bytes_with_a_right_checksum_stay_within_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
