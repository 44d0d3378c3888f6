// SPDX-License-Identifier: AGPL-3.0-only
//
// The model: a mixture of experts that is no use for talking, but every number of which can be
// checked. All values are whole numbers modulo MODEL_MODULUS, so that a sum over two ranks is below
// 256 and exact in BF16. A layer mixes a position's hidden state with the cache entries of all
// positions up to it, and each rank holds half of the heads and experts: a token is right only if
// every all-reduce of its step met its own counterpart, and if every cache entry is there.
//
// The functions below are the arithmetic of one element, for the kernels and for the reference.
#ifndef ENGINE_MODEL_H
#define ENGINE_MODEL_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define MODEL_RANKS 2u
#define MODEL_LAYERS 48u
#define MODEL_HIDDEN 32u
#define MODEL_VOCABULARY 32003u
#define MODEL_MODULUS 127u
#define MODEL_POSITIONS_MAX 512u
#define MODEL_ROW_BYTES (MODEL_HIDDEN * sizeof(uint16_t)) // of an activation, in BF16

// A conversation, and how far it is computed. tokens[0, first) have their cache entries; the next
// step computes those of tokens[first, first + rows) and with them the token that follows.
struct model_input {
    uint32_t first;
    uint32_t rows;
    uint32_t tokens[MODEL_POSITIONS_MAX];
};

// One rank's weights and one rank's cache, as they lie in its memory.
typedef uint8_t model_weights[MODEL_LAYERS][MODEL_HIDDEN];
typedef uint8_t model_cache[MODEL_LAYERS][MODEL_POSITIONS_MAX][MODEL_HIDDEN];

// Some layers have a shared expert, which is small and on every rank: it runs while the activation is
// reduced.
static inline bool model_has_shared_expert(uint32_t layer) {
    return layer % 8 == 7;
}

static inline uint8_t model_weight(uint32_t rank, uint32_t layer, uint32_t i) {
    return (uint8_t)(1 + (rank * 53 + layer * 31 + i * 17 + layer * i) % (MODEL_MODULUS - 1));
}

static inline uint32_t model_embed(uint32_t token, uint32_t position, uint32_t i) {
    return (token * (2 * i + 3) + position + i) % MODEL_MODULUS;
}

// What a position leaves in the cache for those that come after it.
static inline uint8_t model_cache_entry(uint32_t hidden, uint32_t weight) {
    return (uint8_t)((hidden * weight + 1) % MODEL_MODULUS);
}

// What a position, seen from `distance` positions later, adds to its attention.
static inline uint32_t model_attend(uint32_t entry, uint32_t distance) {
    return entry * (1 + distance % 4);
}

static inline uint32_t model_expert(uint32_t attention, uint32_t neighbour, uint32_t weight) {
    return (attention * 3 + neighbour * weight) % MODEL_MODULUS;
}

static inline uint32_t model_shared_expert(uint32_t hidden, uint32_t neighbour) {
    return (hidden + neighbour * 7 + 2) % MODEL_MODULUS;
}

// `reduced` is the sum of all ranks' experts; `shared` is 0 in a layer without a shared expert.
static inline uint32_t model_update(uint32_t hidden, uint32_t reduced, uint32_t shared) {
    return (hidden * 5 + reduced + shared) % MODEL_MODULUS;
}

// The token so far, and one more element of the last hidden state.
static inline uint32_t model_head(uint32_t token, uint32_t hidden) {
    return (token * MODEL_MODULUS + hidden) % MODEL_VOCABULARY;
}

static inline uint32_t model_neighbour(uint32_t i) {
    return (i + 1) % MODEL_HIDDEN;
}

// Exact up to 256.
static inline uint16_t model_to_bf16(uint32_t value) {
    float number = (float)value;
    uint32_t bits;

    memcpy(&bits, &number, sizeof bits);
    return (uint16_t)(bits >> 16);
}

// What an aborted all-reduce has left behind may be any bits, and is read before anybody knows.
static inline uint32_t model_from_bf16(uint16_t element) {
    uint32_t bits = (uint32_t)element << 16;
    float number;

    memcpy(&number, &bits, sizeof number);
    return number >= 0 && number <= 256 ? (uint32_t)number : 0;
}

// ---- the reference -----------------------------------------------------------------------------

// All ranks' experts and caches in one place: what the engine must say, computed without it.
struct model_reference {
    uint32_t cached; // positions
    model_cache cache[MODEL_RANKS];
};

// The token that follows tokens[0, count). The cache must be of this conversation, or `cached` 0;
// count is from 1 to MODEL_POSITIONS_MAX.
uint32_t model_reference_next(struct model_reference *reference, const uint32_t *tokens,
                              uint32_t count);

#endif
