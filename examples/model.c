// SPDX-License-Identifier: AGPL-3.0-only
//
// The reference: position by position, in whole numbers, with nothing that could be reduced wrongly.
#include "model.h"

static uint32_t attention(model_cache cache, uint32_t layer, uint32_t position, uint32_t i) {
    uint32_t sum = 0;

    for (uint32_t p = 0; p <= position; p++)
        sum += model_attend(cache[layer][p][i], position - p);
    return sum % MODEL_MODULUS;
}

static void compute_layer(struct model_reference *reference, uint32_t layer, uint32_t position,
                          uint32_t hidden[MODEL_HIDDEN]) {
    uint32_t sum[MODEL_HIDDEN] = {0}, before[MODEL_HIDDEN];

    memcpy(before, hidden, sizeof before);
    for (uint32_t rank = 0; rank < MODEL_RANKS; rank++) {
        for (uint32_t i = 0; i < MODEL_HIDDEN; i++) {
            uint32_t weight = model_weight(rank, layer, i);

            reference->cache[rank][layer][position][i] = model_cache_entry(before[i], weight);
            sum[i] += model_expert(attention(reference->cache[rank], layer, position, i),
                                   before[model_neighbour(i)], weight);
        }
    }
    for (uint32_t i = 0; i < MODEL_HIDDEN; i++) {
        uint32_t shared = model_has_shared_expert(layer)
                              ? model_shared_expert(before[i], before[model_neighbour(i)])
                              : 0;

        hidden[i] = model_update(before[i], sum[i], shared);
    }
}

uint32_t model_reference_next(struct model_reference *reference, const uint32_t *tokens,
                              uint32_t count) {
    uint32_t hidden[MODEL_HIDDEN] = {0}, token = 0;
    uint32_t position = reference->cached < count ? reference->cached : count - 1;

    for (; position < count; position++) {
        for (uint32_t i = 0; i < MODEL_HIDDEN; i++)
            hidden[i] = model_embed(tokens[position], position, i);
        for (uint32_t layer = 0; layer < MODEL_LAYERS; layer++)
            compute_layer(reference, layer, position, hidden);
    }
    reference->cached = count;
    for (uint32_t i = 0; i < MODEL_HIDDEN; i++)
        token = model_head(token, hidden[i]);
    return token;
}
