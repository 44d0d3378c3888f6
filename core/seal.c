// SPDX-License-Identifier: AGPL-3.0-only
//
// The handshake and the records of sealed links; the argument stands in core/seal.h.
#include "core/seal.h"

#include <sodium.h>
#include <string.h>

#define MAGIC_BYTES 8u
#define NONCE_BYTES 32u
#define PUBLIC_AT (MAGIC_BYTES + NONCE_BYTES)
#define LAST UINT32_C(0x80000000) // in a record's length

// No frame begins so: an end that knows no seals is told from the first byte on.
static const uint8_t magic[MAGIC_BYTES] = {'K', 'E', 'Y', 'S', 'C', 'O', 'M', 1};

static const char *const proof_label[SC_SEAL_ROLES] = {
    [SC_SEAL_ACCEPTS] = "spark_comm seal 1: proof of the accepting side",
    [SC_SEAL_DIALS] = "spark_comm seal 1: proof of the dialling side",
};
static const char *const record_label[SC_SEAL_ROLES] = {
    [SC_SEAL_ACCEPTS] = "spark_comm seal 1: records of the accepting side",
    [SC_SEAL_DIALS] = "spark_comm seal 1: records of the dialling side",
};

_Static_assert(PUBLIC_AT + crypto_scalarmult_BYTES == SC_SEAL_HELLO_BYTES, "a hello has no gaps");
_Static_assert(NONCE_BYTES + crypto_scalarmult_SCALARBYTES == SC_SEAL_RANDOM_BYTES,
               "the random bytes are one nonce and one secret");
_Static_assert(crypto_aead_chacha20poly1305_ietf_ABYTES == SC_SEAL_TAG_BYTES &&
                   crypto_aead_chacha20poly1305_ietf_KEYBYTES == 32,
               "the shape of a record is its cipher's");

static enum sc_seal_role other(const struct sc_seal *s) {
    return s->role == SC_SEAL_ACCEPTS ? SC_SEAL_DIALS : SC_SEAL_ACCEPTS;
}

sc_status sc_seal_start(void) {
    return sodium_init() < 0 ? SC_UNAVAILABLE : SC_OK;
}

void sc_seal_init(struct sc_seal *s, enum sc_seal_role role, const uint8_t key[SC_KEY_BYTES],
                  const uint8_t random[SC_SEAL_RANDOM_BYTES]) {
    memset(s, 0, sizeof *s);
    s->role = role;
    s->stage = SC_SEAL_HEARS_HELLO;
    s->owes_hello = role == SC_SEAL_ACCEPTS;
    s->why = "";
    memcpy(s->key, key, sizeof s->key);
    memcpy(s->secret, random + NONCE_BYTES, sizeof s->secret);
    memcpy(s->hello[role], magic, MAGIC_BYTES);
    memcpy(s->hello[role] + MAGIC_BYTES, random, NONCE_BYTES);
    (void)crypto_scalarmult_base(s->hello[role] + PUBLIC_AT, s->secret); // cannot fail
}

void sc_seal_wipe(struct sc_seal *s) {
    sodium_memzero(s, sizeof *s);
    s->stage = SC_SEAL_IS_OVER;
    s->verdict = SC_CLOSED;
    s->why = "";
}

static sc_status over(struct sc_seal *s, sc_status verdict, const char *why) {
    const bool proved = s->proved;
    sc_seal_wipe(s);
    s->proved = proved;
    s->verdict = verdict;
    s->why = why;
    return verdict;
}

// ---- handshake ----

static void derive(const uint8_t root[32], const char *label, uint8_t out[32]) {
    (void)crypto_generichash(out, 32, (const uint8_t *)label, strlen(label), root, 32);
}

// Proofs and record keys, from the key of the job and both hellos. False when the peer's public key
// is a point that leaves nothing secret.
static bool agree(struct sc_seal *s) {
    uint8_t shared[crypto_scalarmult_BYTES], root[32];
    crypto_generichash_state hash;
    const bool sound = crypto_scalarmult(shared, s->secret, s->hello[other(s)] + PUBLIC_AT) == 0;
    if (sound) {
        (void)crypto_generichash_init(&hash, s->key, sizeof s->key, sizeof root);
        (void)crypto_generichash_update(&hash, shared, sizeof shared);
        for (int role = 0; role < SC_SEAL_ROLES; role++)
            (void)crypto_generichash_update(&hash, s->hello[role], sizeof s->hello[role]);
        (void)crypto_generichash_final(&hash, root, sizeof root);
        for (int role = 0; role < SC_SEAL_ROLES; role++) {
            derive(root, proof_label[role], s->proof[role]);
            derive(root, record_label[role], s->record_key[role]);
        }
        sodium_memzero(&hash, sizeof hash);
    }
    sodium_memzero(shared, sizeof shared);
    sodium_memzero(root, sizeof root);
    sodium_memzero(s->secret, sizeof s->secret);
    sodium_memzero(s->key, sizeof s->key);
    return sound;
}

static sc_status hear_hello(struct sc_seal *s, const uint8_t *data, size_t bytes, size_t *used,
                            size_t *plain) {
    const size_t name_bytes = MAGIC_BYTES - 1;
    if (memcmp(data, magic, bytes < name_bytes ? bytes : name_bytes) != 0)
        return over(s, SC_KEY, "the peer's links are not sealed: it was given no key");
    if (bytes >= MAGIC_BYTES && data[name_bytes] != magic[name_bytes])
        return over(s, SC_KEY, "the peer seals its links in another version");
    if (bytes < SC_SEAL_HELLO_BYTES)
        return SC_INPROGRESS;
    memcpy(s->hello[other(s)], data, SC_SEAL_HELLO_BYTES);
    if (!agree(s))
        return over(s, SC_KEY, "the peer's ephemeral key leaves nothing secret");
    if (s->role == SC_SEAL_DIALS)
        s->owes_hello = s->owes_proof = true;
    s->stage = SC_SEAL_HEARS_PROOF;
    *used = SC_SEAL_HELLO_BYTES;
    *plain = 0;
    return SC_OK;
}

static sc_status hear_proof(struct sc_seal *s, const uint8_t *data, size_t bytes, size_t *used,
                            size_t *plain) {
    if (bytes < SC_SEAL_PROOF_BYTES)
        return SC_INPROGRESS;
    if (sodium_memcmp(data, s->proof[other(s)], SC_SEAL_PROOF_BYTES) != 0)
        return over(s, SC_KEY, "the peer holds another key");
    s->proved = true;
    s->owes_proof = s->role == SC_SEAL_ACCEPTS;
    s->stage = SC_SEAL_HEARS_RECORDS;
    *used = SC_SEAL_PROOF_BYTES;
    *plain = 0;
    return SC_OK;
}

size_t sc_seal_speak(struct sc_seal *s, uint8_t out[SC_SEAL_SPEECH_MAX_BYTES]) {
    size_t bytes = 0;
    if (s->owes_hello) {
        memcpy(out, s->hello[s->role], SC_SEAL_HELLO_BYTES);
        bytes = SC_SEAL_HELLO_BYTES;
    }
    if (s->owes_proof) {
        memcpy(out + bytes, s->proof[s->role], SC_SEAL_PROOF_BYTES);
        bytes += SC_SEAL_PROOF_BYTES;
    }
    s->owes_hello = s->owes_proof = false;
    return bytes;
}

// ---- records ----

static void next_nonce(struct sc_seal *s, enum sc_seal_role from,
                       uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES]) {
    const uint64_t number = s->records[from]++;
    memset(nonce, 0, crypto_aead_chacha20poly1305_ietf_NPUBBYTES);
    for (int i = 0; i < 8; i++)
        nonce[4 + i] = (uint8_t)(number >> 8 * i);
}

static sc_status hear_record(struct sc_seal *s, uint8_t *data, size_t bytes, size_t *used,
                             size_t *plain) {
    uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES];
    uint8_t *const body = data + SC_SEAL_HEADER_BYTES;
    if (bytes < SC_SEAL_HEADER_BYTES)
        return SC_INPROGRESS;
    const uint32_t header = (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
                            (uint32_t)data[3] << 24;
    if (header != LAST && (header == 0 || header > SC_SEAL_PLAIN_MAX_BYTES))
        return over(s, SC_PROTOCOL, "a record's length is out of bounds");
    const size_t length = header & ~LAST;
    if (bytes < SC_SEAL_HEADER_BYTES + length + SC_SEAL_TAG_BYTES)
        return SC_INPROGRESS;
    next_nonce(s, other(s), nonce);
    if (crypto_aead_chacha20poly1305_ietf_decrypt(
            body, NULL, NULL, body, length + SC_SEAL_TAG_BYTES, data, SC_SEAL_HEADER_BYTES, nonce,
            s->record_key[other(s)]) != 0)
        return over(s, SC_PROTOCOL, "a record was changed, repeated, dropped or moved");
    if (header == LAST)
        return over(s, SC_LINK_EOF, "the peer has ended the link");
    *used = SC_SEAL_HEADER_BYTES + length + SC_SEAL_TAG_BYTES;
    *plain = length;
    return SC_OK;
}

static sc_status seal_record(struct sc_seal *s, uint32_t header, const void *data, uint8_t *out,
                             size_t *written) {
    uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES];
    const size_t length = header & ~LAST;
    if (s->stage == SC_SEAL_IS_OVER)
        return s->verdict;
    if (!s->proved || s->owes_proof)
        return SC_STATE;
    for (uint32_t i = 0; i < SC_SEAL_HEADER_BYTES; i++)
        out[i] = (uint8_t)(header >> 8 * i);
    next_nonce(s, s->role, nonce);
    (void)crypto_aead_chacha20poly1305_ietf_encrypt(out + SC_SEAL_HEADER_BYTES, NULL, data, length,
                                                    out, SC_SEAL_HEADER_BYTES, NULL, nonce,
                                                    s->record_key[s->role]);
    *written = SC_SEAL_HEADER_BYTES + length + SC_SEAL_TAG_BYTES;
    return SC_OK;
}

sc_status sc_seal_write(struct sc_seal *s, const void *data, size_t bytes, uint8_t *out,
                        size_t *written) {
    if (bytes == 0 || bytes > SC_SEAL_PLAIN_MAX_BYTES)
        return SC_INVALID;
    return seal_record(s, (uint32_t)bytes, data, out, written);
}

sc_status sc_seal_finish(struct sc_seal *s, uint8_t *out, size_t *written) {
    const sc_status status = seal_record(s, LAST, NULL, out, written);
    if (status == SC_OK)
        (void)over(s, SC_CLOSED, "this end has ended the link");
    return status;
}

// ---- what arrives ----

sc_status sc_seal_read(struct sc_seal *s, uint8_t *data, size_t bytes, size_t *used,
                       size_t *plain) {
    switch (s->stage) {
    case SC_SEAL_HEARS_HELLO: return hear_hello(s, data, bytes, used, plain);
    case SC_SEAL_HEARS_PROOF: return hear_proof(s, data, bytes, used, plain);
    case SC_SEAL_HEARS_RECORDS: return hear_record(s, data, bytes, used, plain);
    case SC_SEAL_IS_OVER: break;
    }
    return s->verdict;
}

sc_status sc_seal_cut(struct sc_seal *s) {
    if (s->stage == SC_SEAL_IS_OVER)
        return s->verdict;
    if (s->proved)
        return over(s, SC_LINK_EOF, "the link was cut off, the peer has not ended it");
    if (s->role == SC_SEAL_ACCEPTS)
        return over(s, SC_KEY,
                    "a caller hung up without proving the key: it holds none, or another");
    if (s->stage == SC_SEAL_HEARS_PROOF)
        return over(s, SC_KEY, "the peer hung up at our proof: it holds another key");
    return over(s, SC_LINK_EOF, "the link ended before the peer had said who it is");
}

bool sc_seal_is_proved(const struct sc_seal *s) {
    return s->proved;
}

sc_status sc_seal_verdict(const struct sc_seal *s) {
    return s->verdict;
}

const char *sc_seal_why(const struct sc_seal *s) {
    return s->why;
}
