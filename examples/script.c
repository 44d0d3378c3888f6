// SPDX-License-Identifier: AGPL-3.0-only
//
// The conversation as it must be comes from the reference alone.
#include "script.h"

#include <stdio.h>
#include <stdlib.h>

// Which turn a position belongs to, and where in it; the turn is SCRIPT_TURNS behind the last one.
static uint32_t turn_at(const struct script *script, uint32_t position, uint32_t *offset) {
    uint32_t turn = 0;

    while (turn < SCRIPT_TURNS && position >= script->prompt[turn] + script->answer[turn]) {
        position -= script->prompt[turn] + script->answer[turn];
        turn++;
    }
    *offset = position;
    return turn;
}

static bool is_answer(const struct script *script, uint32_t position) {
    uint32_t offset, turn = turn_at(script, position, &offset);

    return turn < SCRIPT_TURNS && offset >= script->prompt[turn];
}

bool script_write(struct script *script, uint32_t answers, uint64_t seed) {
    struct model_reference *reference = calloc(1, sizeof *reference);

    if (reference == NULL)
        return false;
    memset(script, 0, sizeof *script);
    script->prompt[0] = 10 + (uint32_t)(seed % 23);
    script->prompt[1] = 5 + (uint32_t)(seed % 11);
    script->answer[0] = answers * 2 / 3;
    script->answer[1] = answers - script->answer[0];
    for (uint32_t turn = 0; turn < SCRIPT_TURNS; turn++)
        script->count += script->prompt[turn] + script->answer[turn];
    for (uint32_t position = 0; position < script->count; position++)
        script->tokens[position] =
            is_answer(script, position)
                ? model_reference_next(reference, script->tokens, position)
                : (uint32_t)((seed + 1) * (position + 1) * 7919 % MODEL_VOCABULARY);
    free(reference);
    return true;
}

enum engine_next script_next(const struct script *script, uint32_t count, uint32_t *turn,
                             uint32_t *prompt, uint32_t *prompt_count) {
    uint32_t offset;

    *turn = turn_at(script, count, &offset);
    if (*turn == SCRIPT_TURNS)
        return ENGINE_OVER;
    if (offset >= script->prompt[*turn])
        return ENGINE_GENERATE;
    *prompt_count = script->prompt[*turn] - offset;
    memcpy(prompt, script->tokens + count, *prompt_count * sizeof *prompt);
    return ENGINE_PROMPT;
}

void script_check(struct script *script, uint32_t rank, uint32_t position, uint32_t token) {
    if (rank < MODEL_RANKS && position < script->count && token == script->tokens[position]) {
        script->told[rank][position] = true;
        return;
    }
    if (script->wrong++ == 0)
        snprintf(script->first_wrong, sizeof script->first_wrong,
                 "rank %u: token %u at position %u, where %u was expected", rank, token, position,
                 position < script->count ? script->tokens[position] : 0);
}

uint32_t script_answered(const struct script *script, uint32_t rank) {
    uint32_t answered = 0;

    for (uint32_t position = 0; position < script->count; position++)
        answered += is_answer(script, position) && script->told[rank][position];
    return answered;
}
