// SPDX-License-Identifier: AGPL-3.0-only
//
// Both ends of a sealed link, for tests of core/seal.h.
#include "tests/support/seal_ends.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

const uint8_t seal_job_key[SC_KEY_BYTES] = "thirty-two bytes that both hold!";

void seal_begin(struct seal_end *e, enum sc_seal_role role, const uint8_t *key, uint8_t seed) {
    uint8_t random[SC_SEAL_RANDOM_BYTES];
    for (uint32_t i = 0; i < sizeof random; i++)
        random[i] = (uint8_t)(seed + i);
    memset(e, 0, sizeof *e);
    sc_seal_init(&e->seal, role, key, random);
    e->said_bytes = sc_seal_speak(&e->seal, e->said);
}

sc_status seal_tell(struct seal_end *e, const uint8_t *data, size_t bytes, size_t step) {
    sc_status status = SC_INPROGRESS;
    while (bytes > 0 && status == SC_INPROGRESS) {
        const size_t part = bytes < step ? bytes : step;
        size_t used = 0, plain = 0;
        memcpy(e->in + e->in_bytes, data, part);
        e->in_bytes += part;
        data += part;
        bytes -= part;
        while ((status = sc_seal_read(&e->seal, e->in, e->in_bytes, &used, &plain)) == SC_OK) {
            memcpy(e->opened + e->opened_bytes, e->in + SC_SEAL_HEADER_BYTES, plain);
            e->opened_bytes += plain;
            e->in_bytes -= used;
            memmove(e->in, e->in + used, e->in_bytes);
            e->said_bytes += sc_seal_speak(&e->seal, e->said + e->said_bytes);
        }
    }
    return status;
}

sc_status seal_pass(struct seal_end *to, const struct seal_end *by, size_t *from, size_t step) {
    const size_t at = *from;
    *from = by->said_bytes;
    return seal_tell(to, by->said + at, by->said_bytes - at, step);
}

void seal_begin_both(struct seal_ends *p) {
    seal_begin(&p->a, SC_SEAL_ACCEPTS, seal_job_key, 1);
    seal_begin(&p->d, SC_SEAL_DIALS, seal_job_key, 101);
    p->from_a = p->from_d = 0;
}

void seal_shake(struct seal_ends *p, size_t step) {
    seal_begin_both(p);
    assert_int_equal(p->d.said_bytes, 0);
    assert_int_equal(seal_pass(&p->d, &p->a, &p->from_a, step), SC_INPROGRESS);
    assert_int_equal(seal_pass(&p->a, &p->d, &p->from_d, step), SC_INPROGRESS);
    assert_true(sc_seal_is_proved(&p->a.seal));
    assert_false(sc_seal_is_proved(&p->d.seal));
    assert_int_equal(seal_pass(&p->d, &p->a, &p->from_a, step), SC_INPROGRESS);
    assert_true(sc_seal_is_proved(&p->d.seal));
}

void seal_say(struct seal_end *e, const void *data, size_t bytes) {
    size_t written = 0;
    assert_int_equal(sc_seal_write(&e->seal, data, bytes, e->said + e->said_bytes, &written),
                     SC_OK);
    assert_int_equal(written, SC_SEAL_HEADER_BYTES + bytes + SC_SEAL_TAG_BYTES);
    e->said_bytes += written;
}

void seal_say_text(struct seal_end *e, const char *text) {
    seal_say(e, text, strlen(text));
}

void seal_end_it(struct seal_end *e) {
    size_t written = 0;
    assert_int_equal(sc_seal_finish(&e->seal, e->said + e->said_bytes, &written), SC_OK);
    e->said_bytes += written;
}

void seal_expect_opened(const struct seal_end *e, const char *text) {
    assert_int_equal(e->opened_bytes, strlen(text));
    assert_memory_equal(e->opened, text, strlen(text));
}

void seal_expect_over(struct seal_end *e, sc_status verdict, const char *why) {
    static const uint8_t nothing[sizeof e->seal.record_key];
    uint8_t out[SC_SEAL_RECORD_MAX_BYTES];
    size_t used = 0, plain = 0, written = 0;
    assert_int_equal(sc_seal_verdict(&e->seal), verdict);
    if (strstr(sc_seal_why(&e->seal), why) == NULL)
        fail_msg("'%s' does not say '%s'", sc_seal_why(&e->seal), why);
    assert_int_equal(sc_seal_read(&e->seal, e->in, e->in_bytes, &used, &plain), verdict);
    assert_int_equal(sc_seal_write(&e->seal, "x", 1, out, &written), verdict);
    assert_int_equal(sc_seal_finish(&e->seal, out, &written), verdict);
    assert_int_equal(sc_seal_cut(&e->seal), verdict);
    assert_int_equal(sc_seal_speak(&e->seal, out), 0);
    assert_int_equal(used + plain + written, 0);
    assert_memory_equal(e->seal.key, nothing, sizeof e->seal.key);
    assert_memory_equal(e->seal.secret, nothing, sizeof e->seal.secret);
    assert_memory_equal(e->seal.record_key, nothing, sizeof e->seal.record_key);
}

int seal_start(void **state) {
    (void)state;
    return sc_seal_start() == SC_OK ? 0 : -1;
}
