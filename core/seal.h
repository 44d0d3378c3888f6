// SPDX-License-Identifier: AGPL-3.0-only
//
// Sealed links: both ends prove that they hold one key before anything is told, then every byte is
// sealed and kept in order. A pure state machine: bytes in, bytes out.
//
//   hello (72)    magic 7 | version 1 | nonce 32 | ephemeral X25519 key 32
//   proof (32)
//   record        length 4, little-endian, its top bit set in the last one | sealed bytes | tag 16
//
//     accepting side                                        dialling side
//         hello                        ------------------>
//                                      <------------------  hello, proof
//         proof                        ------------------>
//         records                      <----------------->  records
//
// A root is BLAKE2b, keyed with the key of the job, of the Diffie-Hellman secret and both hellos;
// under distinct labels it yields two proofs and two record keys. Why this holds:
//   - a proof takes the key of the job, and the fresh nonces and ephemeral keys of both sides go
//     into it: a recorded one fits no other handshake, a changed byte of any hello spoils it;
//   - the proofs of the two roles differ, and so do the keys of the two directions: nothing can be
//     sent back to whom it came from;
//   - the dialling side proves itself first: a stranger who dials gets one hello, no proof, no record;
//   - record keys need the ephemeral secrets, which are wiped at once: a key that leaks later opens
//     no recording;
//   - the n-th record of a direction is sealed (ChaCha20-Poly1305) under nonce n, its length bound
//     in: none can be changed, dropped, repeated or moved, and the last one says that it is the last;
//   - there is one version and one set of algorithms, and no unsealed mode to fall back to.
// What it rests on: a key of 32 random bytes. Whoever answers at the dialled address gets a proof
// that a guessable key could be tried against.
#ifndef SC_CORE_SEAL_H
#define SC_CORE_SEAL_H

#include "core/status.h"

#define SC_SEAL_RANDOM_BYTES 64u
#define SC_SEAL_HELLO_BYTES 72u
#define SC_SEAL_PROOF_BYTES 32u
#define SC_SEAL_SPEECH_MAX_BYTES (SC_SEAL_HELLO_BYTES + SC_SEAL_PROOF_BYTES)
#define SC_SEAL_HEADER_BYTES 4u
#define SC_SEAL_TAG_BYTES 16u
#define SC_SEAL_PLAIN_MAX_BYTES 4096u // in one record
#define SC_SEAL_RECORD_MAX_BYTES                                                                   \
    (SC_SEAL_HEADER_BYTES + SC_SEAL_PLAIN_MAX_BYTES + SC_SEAL_TAG_BYTES)

enum sc_seal_role { SC_SEAL_ACCEPTS, SC_SEAL_DIALS, SC_SEAL_ROLES };

enum sc_seal_stage {
    SC_SEAL_HEARS_HELLO,
    SC_SEAL_HEARS_PROOF,
    SC_SEAL_HEARS_RECORDS,
    SC_SEAL_IS_OVER,
};

// One end of one link, in memory of the caller's. Its fields are seal.c's own.
struct sc_seal {
    enum sc_seal_role role;
    enum sc_seal_stage stage;
    bool owes_hello, owes_proof; // to be said next
    bool proved;
    sc_status verdict; // once it is over
    const char *why;
    uint8_t key[SC_KEY_BYTES];
    uint8_t secret[32]; // the ephemeral one
    // By the role that says it, sends with it, has sent so many.
    uint8_t hello[SC_SEAL_ROLES][SC_SEAL_HELLO_BYTES];
    uint8_t proof[SC_SEAL_ROLES][SC_SEAL_PROOF_BYTES];
    uint8_t record_key[SC_SEAL_ROLES][32];
    uint64_t records[SC_SEAL_ROLES];
};

// Starts the library behind it; before anything else here, any number of times, from any thread.
// SC_UNAVAILABLE when it does not start.
SC_MUST_USE sc_status sc_seal_start(void);

// Begins a link. `random` is fresh for each one, and fit for secrets; the caller wipes it.
void sc_seal_init(struct sc_seal *seal, enum sc_seal_role role, const uint8_t key[SC_KEY_BYTES],
                  const uint8_t random[SC_SEAL_RANDOM_BYTES]);
// Forgets everything.
void sc_seal_wipe(struct sc_seal *seal);

// Writes what the handshake has to say now: after init, and after each read. Returns how many bytes
// that is, often 0.
size_t sc_seal_speak(struct sc_seal *seal, uint8_t out[SC_SEAL_SPEECH_MAX_BYTES]);

// Takes one step, a hello, a proof or a record, from the front of what has arrived: *used bytes of
// `data` are done with, and *plain bytes, opened in place, stand at data + SC_SEAL_HEADER_BYTES; 0
// for a step of the handshake. SC_INPROGRESS: more must arrive; a whole step is at most
// SC_SEAL_RECORD_MAX_BYTES long. Any other answer is the link's last, and stands for ever:
//   SC_KEY       the peer seals nothing, or has not proved the key
//   SC_PROTOCOL  a record is not the one that was sealed
//   SC_LINK_EOF  the peer has ended the link, and said so under seal
SC_MUST_USE sc_status sc_seal_read(struct sc_seal *seal, uint8_t *data, size_t bytes, size_t *used,
                                   size_t *plain);

// Says that no more will arrive, and returns the link's last answer. SC_LINK_EOF also when it was
// cut off without a last record, as the links of a killed process are; `why` tells the two apart.
sc_status sc_seal_cut(struct sc_seal *seal);

// Seals 1..SC_SEAL_PLAIN_MAX_BYTES bytes into one record at `out`: SC_SEAL_HEADER_BYTES before them,
// SC_SEAL_TAG_BYTES behind. SC_STATE before the peer has proved the key or while there is something to
// speak; SC_INVALID for another size; once the link is over, its last answer.
SC_MUST_USE sc_status sc_seal_write(struct sc_seal *seal, const void *data, size_t bytes,
                                    uint8_t *out, size_t *written);
// Seals the last record, an empty one, and is over: SC_CLOSED. The same errors.
SC_MUST_USE sc_status sc_seal_finish(struct sc_seal *seal, uint8_t *out, size_t *written);

// Whether the peer has proved the key; stays true when the link is over.
bool sc_seal_is_proved(const struct sc_seal *seal);
sc_status sc_seal_verdict(const struct sc_seal *seal); // the last answer, or SC_OK: it is not over
// Why the link is over, for people; "" before. Static.
const char *sc_seal_why(const struct sc_seal *seal);

#endif
