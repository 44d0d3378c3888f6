// SPDX-License-Identifier: AGPL-3.0-only
//
// For tests of core/seal.h: both ends of a link, with all that was said and all that could be opened.
#ifndef SC_TESTS_SUPPORT_SEAL_ENDS_H
#define SC_TESTS_SUPPORT_SEAL_ENDS_H

#include "core/seal.h"

#define SEAL_STREAM_MAX 16384u

struct seal_end {
    struct sc_seal seal;
    uint8_t in[SEAL_STREAM_MAX], said[SEAL_STREAM_MAX], opened[SEAL_STREAM_MAX];
    size_t in_bytes, said_bytes, opened_bytes;
};

struct seal_ends {
    struct seal_end a, d;  // accepts, dials
    size_t from_a, from_d; // of what they said, not passed on yet
};

extern const uint8_t seal_job_key[SC_KEY_BYTES];

// A new end; its random bytes are seed, seed + 1, ...
void seal_begin(struct seal_end *e, enum sc_seal_role role, const uint8_t *key, uint8_t seed);
// Two new ends that hold the key of the job.
void seal_begin_both(struct seal_ends *p);
// Tells it some bytes, `step` at a time, as long as it wants more: its last answer.
sc_status seal_tell(struct seal_end *e, const uint8_t *data, size_t bytes, size_t step);
// Tells it what the other end has said since *from.
sc_status seal_pass(struct seal_end *to, const struct seal_end *by, size_t *from, size_t step);
// Two new ends and a whole handshake between them, told `step` bytes at a time.
void seal_shake(struct seal_ends *p, size_t step);
// Seals a record, or the last one, behind all that it has said.
void seal_say(struct seal_end *e, const void *data, size_t bytes);
void seal_say_text(struct seal_end *e, const char *text);
void seal_end_it(struct seal_end *e);

void seal_expect_opened(const struct seal_end *e, const char *text);
// It has ended for that reason, gives the same answer to everything, and holds no secret any more.
void seal_expect_over(struct seal_end *e, sc_status verdict, const char *why);

// For cmocka_run_group_tests.
int seal_start(void **state);

#endif
