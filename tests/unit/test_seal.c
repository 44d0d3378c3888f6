// SPDX-License-Identifier: AGPL-3.0-only
//
// core/seal.h, the handshake: who proves what to whom, and who is refused. The pinned bytes are
// those that the page of core/seal.h says, computed by another program.
#include "core/frame.h"
#include "tests/support/frames.h"
#include "tests/support/seal_ends.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

// ---- what is said ----

static void expect_hex(const uint8_t *data, size_t bytes, const char *hex) {
    char text[2 * SEAL_STREAM_MAX + 1];
    for (size_t i = 0; i < bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", data[i]);
    assert_string_equal(text, hex);
}

static void given_random_bytes_yield_these_bytes(void **state) {
    static struct seal_ends p;
    (void)state;
    seal_shake(&p, SEAL_STREAM_MAX);
    seal_say_text(&p.a, "challenge");
    seal_end_it(&p.a);
    seal_say_text(&p.d, "hello");
    seal_say_text(&p.d, "hello");
    expect_hex(p.a.said, p.a.said_bytes,
               "4b455953434f4d010102030405060708090a0b0c0d0e0f101112131415161718"
               "191a1b1c1d1e1f205869aff450549732cbaaed5e5df9b30a6da31cb0e5742bad"
               "5ad4a1a768f1a67b5efc0ddfd63a6cb905029d1c742558f8be035d8525c0b490"
               "968bd68d1b0fd02e090000006157de06d7e5da9ba619f6c55f0d5329b87a461d"
               "3114461c98000000803a14e5bd88a59f61e3404b46e2d2f1c6");
    expect_hex(p.d.said, p.d.said_bytes,
               "4b455953434f4d0165666768696a6b6c6d6e6f707172737475767778797a7b7c"
               "7d7e7f8081828384e0895c817d5f67cd017f0a910a933f63da967f5ba99792b7"
               "89c4d75675c31959138c05e6e69a60f6f6b2186cdbf3e83d0c4bdab27a8bf1ec"
               "d8da7d05fd490cc4050000007ae518d99c2f937e7a3352100e6bf2f16410b2b8"
               "7d05000000c7c89384fe56cd92f07a36cab4a9fd4a7a754d6254");
}

static void handshake_and_records_stand_any_fragmentation(void **state) {
    static struct seal_ends p;
    (void)state;
    for (size_t step = 1; step <= SC_SEAL_SPEECH_MAX_BYTES + 1; step++) {
        seal_shake(&p, step);
        seal_say_text(&p.a, "to the dialling side, ");
        seal_say_text(&p.a, "in two records");
        seal_say_text(&p.d, "to the accepting side");
        assert_int_equal(seal_pass(&p.d, &p.a, &p.from_a, step), SC_INPROGRESS);
        assert_int_equal(seal_pass(&p.a, &p.d, &p.from_d, step), SC_INPROGRESS);
        seal_expect_opened(&p.d, "to the dialling side, in two records");
        seal_expect_opened(&p.a, "to the accepting side");
    }
}

static void nothing_is_sealed_before_the_peer_has_proved_the_key(void **state) {
    static struct seal_ends p;
    uint8_t out[SC_SEAL_RECORD_MAX_BYTES];
    size_t written = 0, used = 0, plain = 0;
    (void)state;
    seal_begin_both(&p);
    assert_int_equal(sc_seal_write(&p.a.seal, "x", 1, out, &written), SC_STATE);
    assert_int_equal(seal_tell(&p.d, p.a.said, SC_SEAL_HELLO_BYTES, SEAL_STREAM_MAX),
                     SC_INPROGRESS);
    assert_int_equal(sc_seal_write(&p.d.seal, "x", 1, out, &written), SC_STATE);
    assert_int_equal(sc_seal_finish(&p.d.seal, out, &written), SC_STATE);
    // Nor ahead of our own proof.
    assert_int_equal(sc_seal_read(&p.a.seal, p.d.said, SC_SEAL_SPEECH_MAX_BYTES, &used, &plain),
                     SC_OK);
    assert_int_equal(sc_seal_read(&p.a.seal, p.d.said + used, SC_SEAL_PROOF_BYTES, &used, &plain),
                     SC_OK);
    assert_true(sc_seal_is_proved(&p.a.seal));
    assert_int_equal(sc_seal_write(&p.a.seal, "x", 1, out, &written), SC_STATE);
    assert_int_equal(written, 0);
}

static void ephemeral_secret_and_key_are_gone_after_the_handshake(void **state) {
    static struct seal_ends p;
    uint8_t secret[32];
    (void)state;
    for (uint8_t i = 0; i < sizeof secret; i++)
        secret[i] = (uint8_t)(1 + 32 + i); // as seal_begin() made it
    seal_begin(&p.a, SC_SEAL_ACCEPTS, seal_job_key, 1);
    assert_non_null(memmem(&p.a.seal, sizeof p.a.seal, secret, sizeof secret));
    assert_non_null(memmem(&p.a.seal, sizeof p.a.seal, seal_job_key, sizeof seal_job_key));
    seal_shake(&p, SEAL_STREAM_MAX);
    assert_null(memmem(&p.a.seal, sizeof p.a.seal, secret, sizeof secret));
    assert_null(memmem(&p.a.seal, sizeof p.a.seal, seal_job_key, sizeof seal_job_key));
}

// ---- who is refused ----

static void wrong_key_is_refused_and_hears_one_hello(void **state) {
    static struct seal_ends p;
    uint8_t other_key[SC_KEY_BYTES];
    (void)state;
    for (uint32_t bit = 0; bit < 8 * SC_KEY_BYTES; bit += 17) { // a key that differs in one bit
        memcpy(other_key, seal_job_key, sizeof other_key);
        other_key[bit / 8] ^= (uint8_t)(1u << bit % 8);
        seal_begin(&p.a, SC_SEAL_ACCEPTS, seal_job_key, 1);
        seal_begin(&p.d, SC_SEAL_DIALS, other_key, 101);
        assert_int_equal(seal_tell(&p.d, p.a.said, p.a.said_bytes, SEAL_STREAM_MAX), SC_INPROGRESS);
        assert_int_equal(seal_tell(&p.a, p.d.said, p.d.said_bytes, SEAL_STREAM_MAX), SC_KEY);
        assert_int_equal(p.a.said_bytes, SC_SEAL_HELLO_BYTES);
        assert_false(sc_seal_is_proved(&p.a.seal));
        seal_expect_over(&p.a, SC_KEY, "another key");
        assert_int_equal(sc_seal_cut(&p.d.seal), SC_KEY);
        seal_expect_over(&p.d, SC_KEY, "hung up at our proof");
    }
}

static void impostor_that_accepts_proves_nothing(void **state) {
    static struct seal_ends p;
    uint8_t proof[SC_SEAL_PROOF_BYTES] = {0};
    (void)state;
    seal_begin(&p.a, SC_SEAL_ACCEPTS, (const uint8_t *)"some other key, of 32 bytes, too", 1);
    seal_begin(&p.d, SC_SEAL_DIALS, seal_job_key, 101);
    assert_int_equal(seal_tell(&p.d, p.a.said, p.a.said_bytes, SEAL_STREAM_MAX), SC_INPROGRESS);
    assert_int_equal(seal_tell(&p.d, proof, sizeof proof, SEAL_STREAM_MAX), SC_KEY);
    assert_false(sc_seal_is_proved(&p.d.seal));
    seal_expect_over(&p.d, SC_KEY, "another key");
}

// Flips a bit of the n-th byte of one message; everybody who goes on after it must not be fooled.
static void flipped(size_t message, size_t at) {
    static struct seal_ends p;
    struct seal_end *const judge = message == 2 ? &p.d : &p.a;
    seal_begin_both(&p);
    for (size_t number = 0; number < 3; number++) {
        struct seal_end *by = number == 1 ? &p.d : &p.a, *to = number == 1 ? &p.a : &p.d;
        size_t *from = number == 1 ? &p.from_d : &p.from_a;
        if (number == message)
            by->said[*from + at] ^= (uint8_t)(1u << at % 8);
        sc_status status = seal_pass(to, by, from, SEAL_STREAM_MAX);
        if (status == SC_INPROGRESS && number < 2)
            continue;
        assert_int_equal(status, SC_KEY);
        assert_false(sc_seal_is_proved(&to->seal));
        assert_true(to == judge || (message == 0 && at < 8)); // the magic is judged at once
        return;
    }
}

static void flipped_bit_at_any_place_of_the_handshake_is_refused(void **state) {
    static const size_t bytes[] = {SC_SEAL_HELLO_BYTES, SC_SEAL_SPEECH_MAX_BYTES,
                                   SC_SEAL_PROOF_BYTES};
    (void)state;
    for (size_t message = 0; message < 3; message++)
        for (size_t at = 0; at < bytes[message]; at++)
            flipped(message, at);
}

static void recorded_handshake_is_refused_by_either_side(void **state) {
    static struct seal_ends p;
    static struct seal_end fresh;
    (void)state;
    seal_shake(&p, SEAL_STREAM_MAX);
    seal_begin(&fresh, SC_SEAL_ACCEPTS, seal_job_key, 2);
    assert_int_equal(seal_tell(&fresh, p.d.said, p.d.said_bytes, SEAL_STREAM_MAX), SC_KEY);
    assert_int_equal(fresh.said_bytes, SC_SEAL_HELLO_BYTES);
    seal_begin(&fresh, SC_SEAL_DIALS, seal_job_key, 102);
    assert_int_equal(seal_tell(&fresh, p.a.said, p.a.said_bytes, SEAL_STREAM_MAX), SC_KEY);
    assert_false(sc_seal_is_proved(&fresh.seal));
}

static void reflected_messages_are_refused(void **state) {
    static struct seal_ends p;
    static struct seal_end second;
    (void)state;
    // The dialling side hears its own proof again.
    seal_begin_both(&p);
    assert_int_equal(seal_tell(&p.d, p.a.said, p.a.said_bytes, SEAL_STREAM_MAX), SC_INPROGRESS);
    assert_int_equal(
        seal_tell(&p.d, p.d.said + SC_SEAL_HELLO_BYTES, SC_SEAL_PROOF_BYTES, SEAL_STREAM_MAX),
        SC_KEY);
    // The accepting side hears its own hello again, with the best proof that is to be had: of a
    // dialling side that heard that very hello.
    assert_int_equal(seal_tell(&p.a, p.a.said, SC_SEAL_HELLO_BYTES, SEAL_STREAM_MAX),
                     SC_INPROGRESS);
    assert_int_equal(
        seal_tell(&p.a, p.d.said + SC_SEAL_HELLO_BYTES, SC_SEAL_PROOF_BYTES, SEAL_STREAM_MAX),
        SC_KEY);
    // Two accepting sides are made to talk to each other.
    seal_begin(&p.a, SC_SEAL_ACCEPTS, seal_job_key, 1);
    seal_begin(&second, SC_SEAL_ACCEPTS, seal_job_key, 2);
    assert_int_equal(seal_tell(&p.a, second.said, second.said_bytes, SEAL_STREAM_MAX),
                     SC_INPROGRESS);
    assert_int_equal(seal_tell(&second, p.a.said, p.a.said_bytes, SEAL_STREAM_MAX), SC_INPROGRESS);
    assert_int_equal(p.a.said_bytes + second.said_bytes, 2 * SC_SEAL_HELLO_BYTES);
}

static void unsealed_peer_is_told_from_its_first_byte_on(void **state) {
    static struct seal_end e;
    struct sc_frame frame;
    uint8_t bytes[SC_GREETING_MAX_BYTES];
    (void)state;
    seal_begin(&e, SC_SEAL_DIALS, seal_job_key, 101);
    frame_at_bounds(&frame, SC_FRAME_CHALLENGE);
    assert_true(sc_frame_encode(&frame, bytes, sizeof bytes) > 0);
    assert_int_equal(seal_tell(&e, bytes, 1, 1), SC_KEY);
    seal_expect_over(&e, SC_KEY, "not sealed");
    seal_begin(&e, SC_SEAL_ACCEPTS, seal_job_key, 1);
    frame_at_bounds(&frame, SC_FRAME_HELLO);
    assert_true(sc_frame_encode(&frame, bytes, sizeof bytes) > 0);
    assert_int_equal(seal_tell(&e, bytes, 1, 1), SC_KEY);
    seal_expect_over(&e, SC_KEY, "not sealed");
    // And the other way round: no frame begins like a hello.
    size_t used = 0;
    const char *why = NULL;
    seal_begin(&e, SC_SEAL_ACCEPTS, seal_job_key, 1);
    assert_int_equal(sc_frame_decode(e.said, 1, SC_GREETING_MAX_BYTES, &frame, &used, &why),
                     SC_PROTOCOL);
}

static void other_version_is_refused(void **state) {
    static struct seal_ends p;
    (void)state;
    for (uint8_t version = 0; version < 3; version += 2) { // an older one, and a newer
        seal_begin_both(&p);
        p.a.said[7] = version;
        assert_int_equal(seal_tell(&p.d, p.a.said, 8, 1), SC_KEY);
        seal_expect_over(&p.d, SC_KEY, "another version");
        assert_int_equal(p.d.said_bytes, 0);
    }
}

static void low_order_point_is_refused(void **state) {
    // Every one leads to the same Diffie-Hellman secret, whatever the other side's is.
    static const uint8_t points[][32] = {
        {0},
        {1},
        {0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3,
         0xfa, 0xf1, 0x9f, 0xc4, 0x6a, 0xda, 0x09, 0x8d, 0xeb, 0x9c, 0x32,
         0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49, 0xb8, 0x00},
        {0x5f, 0x9c, 0x95, 0xbc, 0xa3, 0x50, 0x8c, 0x24, 0xb1, 0xd0, 0xb1,
         0x55, 0x9c, 0x83, 0xef, 0x5b, 0x04, 0x44, 0x5c, 0xc4, 0x58, 0x1c,
         0x8e, 0x86, 0xd8, 0x22, 0x4e, 0xdd, 0xd0, 0x9f, 0x11, 0x57},
        {0xec, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
         0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
         0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f},
    };
    static struct seal_ends p;
    (void)state;
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        seal_begin_both(&p);
        memcpy(p.a.said + 40, points[i], sizeof points[i]);
        assert_int_equal(seal_tell(&p.d, p.a.said, SC_SEAL_HELLO_BYTES, SEAL_STREAM_MAX), SC_KEY);
        assert_int_equal(p.d.said_bytes, 0);
        seal_expect_over(&p.d, SC_KEY, "nothing secret");
        assert_int_equal(seal_tell(&p.a, p.a.said, SC_SEAL_HELLO_BYTES, SEAL_STREAM_MAX), SC_KEY);
        seal_expect_over(&p.a, SC_KEY, "nothing secret");
    }
}

static void link_that_ends_in_its_handshake_has_proved_nothing(void **state) {
    static struct seal_ends p;
    (void)state;
    seal_begin(&p.d, SC_SEAL_DIALS, seal_job_key, 101);
    assert_int_equal(sc_seal_cut(&p.d.seal), SC_LINK_EOF);
    seal_expect_over(&p.d, SC_LINK_EOF, "before the peer had said who it is");
    for (size_t bytes = 0; bytes < SC_SEAL_SPEECH_MAX_BYTES; bytes++) {
        seal_begin_both(&p);
        assert_int_equal(seal_tell(&p.d, p.a.said, p.a.said_bytes, SEAL_STREAM_MAX), SC_INPROGRESS);
        assert_true(seal_tell(&p.a, p.d.said, bytes, SEAL_STREAM_MAX) == SC_INPROGRESS);
        assert_int_equal(sc_seal_cut(&p.a.seal), SC_KEY);
        seal_expect_over(&p.a, SC_KEY, "without proving the key");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_random_bytes_yield_these_bytes),
        cmocka_unit_test(handshake_and_records_stand_any_fragmentation),
        cmocka_unit_test(nothing_is_sealed_before_the_peer_has_proved_the_key),
        cmocka_unit_test(ephemeral_secret_and_key_are_gone_after_the_handshake),
        cmocka_unit_test(wrong_key_is_refused_and_hears_one_hello),
        cmocka_unit_test(impostor_that_accepts_proves_nothing),
        cmocka_unit_test(flipped_bit_at_any_place_of_the_handshake_is_refused),
        cmocka_unit_test(recorded_handshake_is_refused_by_either_side),
        cmocka_unit_test(reflected_messages_are_refused),
        cmocka_unit_test(unsealed_peer_is_told_from_its_first_byte_on),
        cmocka_unit_test(other_version_is_refused),
        cmocka_unit_test(low_order_point_is_refused),
        cmocka_unit_test(link_that_ends_in_its_handshake_has_proved_nothing),
    };
    return cmocka_run_group_tests(tests, seal_start, NULL);
}
