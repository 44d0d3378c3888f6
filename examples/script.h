// SPDX-License-Identifier: AGPL-3.0-only
//
// What the clients of a simulated run ask, and what they must be told: a conversation of some turns,
// and the checker that compares every token of every rank with the reference.
#ifndef ENGINE_SCRIPT_H
#define ENGINE_SCRIPT_H

#include "engine.h"

#define SCRIPT_TURNS 2u
#define SCRIPT_ANSWERS_MIN 16u
#define SCRIPT_ANSWERS_MAX 400u

struct script {
    uint32_t prompt[SCRIPT_TURNS], answer[SCRIPT_TURNS]; // tokens of each turn
    uint32_t count;                                      // of the whole conversation
    uint32_t tokens[MODEL_POSITIONS_MAX];                // as they must be
    bool told[MODEL_RANKS][MODEL_POSITIONS_MAX];         // rightly
    uint32_t wrong;                                      // tokens that were not
    char first_wrong[128];                               // in words; "" when there is none
};

// `answers` is from SCRIPT_ANSWERS_MIN to SCRIPT_ANSWERS_MAX; the prompts are drawn from the seed.
// false: no memory.
bool script_write(struct script *script, uint32_t answers, uint64_t seed);

// What follows the first `count` tokens: ENGINE_GENERATE, ENGINE_PROMPT with the turn's prompt, or
// ENGINE_OVER. *turn is the one that it belongs to.
enum engine_next script_next(const struct script *script, uint32_t count, uint32_t *turn,
                             uint32_t *prompt, uint32_t *prompt_count);

// A rank was told, or told its client, that this token counts.
void script_check(struct script *script, uint32_t rank, uint32_t position, uint32_t token);

// How many tokens of answers a rank told rightly.
uint32_t script_answered(const struct script *script, uint32_t rank);

#endif
