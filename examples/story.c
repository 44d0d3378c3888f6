// SPDX-License-Identifier: AGPL-3.0-only
//
// A plan counts ops and marks. An op is a submit, so a step that is decoded layer by layer has one a
// layer, and a step that is a graph has one: there, time tells how far it has come.
#include "story.h"

#include <stdio.h>

#define SECOND UINT64_C(1000000000)
#define LAYER_US 35u // a layer takes a little more

static void add(struct story_play *play, const char *text) {
    size_t used = strlen(play->plan);

    snprintf(play->plan + used, sizeof play->plan - used, "%s", text);
}

static uint32_t layer_of(uint64_t seed) {
    return 1 + (uint32_t)((15 + seed) % (MODEL_LAYERS - 1));
}

// Within the first answer, where steps are of one token.
static uint32_t mark_of(uint64_t seed) {
    return 3 + (uint32_t)((5 + seed) % 7);
}

// While `rank` is in `layer` of the step that is to become `mark`.
static void add_strike(struct story_play *play, bool captured, uint32_t rank, uint32_t layer,
                       uint32_t mark, const char *action) {
    char text[160];

    if (captured)
        snprintf(text, sizeof text, "at rank %u op 1 of mark %u: heal\nafter %uus: %s\n", rank,
                 mark, layer * LAYER_US, action);
    else
        snprintf(text, sizeof text, "at rank %u op %u of mark %u: %s\n", rank, layer, mark, action);
    add(play, text);
}

// ---- the stories -------------------------------------------------------------------------------

static void write_clean(struct story_play *play, bool captured, uint64_t seed, uint32_t answers) {
    (void)play;
    (void)captured;
    (void)seed;
    (void)answers;
}

static void write_death(struct story_play *play, bool captured, uint64_t seed, uint32_t answers) {
    (void)answers;
    add_strike(play, captured, 1, layer_of(seed), mark_of(seed), "rank 1 kill");
    add(play, "after 300ms: rank 1 restart\n");
    play->recoveries = 1;
    play->lives[1] = 2;
    play->refills = true;
}

static void write_leader(struct story_play *play, bool captured, uint64_t seed, uint32_t answers) {
    (void)answers;
    add_strike(play, captured, 0, layer_of(seed), mark_of(seed), "rank 0 kill");
    add(play, "after 300ms: rank 0 restart\n");
    play->recoveries = 1;
    play->lives[0] = 2;
    play->refills = true;
}

// In any step, prompts included, but the first two: there what is done again is all that there is.
static void write_cut(struct story_play *play, bool captured, uint64_t seed, uint32_t answers) {
    uint32_t mark = 3 + (uint32_t)((seed + 5) % (answers - 2));

    add_strike(play, captured, (uint32_t)(seed / 2 % 2), layer_of(seed), mark, "link_reset 0 1");
    play->recoveries = 1;
}

static void write_both(struct story_play *play, bool captured, uint64_t seed, uint32_t answers) {
    write_death(play, captured, seed, answers);
    add(play, "after 0s: rank 0 kill\nafter 100ms: rank 0 restart\n");
    play->lives[0] = 2;
    play->forgets = true;
}

// The second strike comes before the first mark of the next epoch: while the caches are computed
// again, which is done layer by layer, or in the op before that, in which the conversation is shared.
static void write_double(struct story_play *play, bool captured, uint64_t seed, uint32_t answers) {
    uint32_t victim = (uint32_t)(seed % 3), ops = captured ? 1 : MODEL_LAYERS;
    char text[160];

    write_death(play, captured, seed, answers);
    if (victim == MODEL_RANKS) {
        snprintf(text, sizeof text, "at rank 0 op %u of mark %u: link_reset 0 1\n", ops + 1,
                 mark_of(seed));
    } else {
        snprintf(text, sizeof text,
                 "at rank 1 op %u of mark %u: rank %u kill\nafter 300ms: rank %u restart\n",
                 MODEL_LAYERS, mark_of(seed), victim, victim);
        play->recoveries = 2;
        play->lives[victim]++;
    }
    add(play, text);
}

static void write_idle(struct story_play *play, bool captured, uint64_t seed, uint32_t answers) {
    (void)captured;
    (void)seed;
    (void)answers;
    add(play, "seconds 4000\n");
    play->idle_ns = 3600 * SECOND;
}

// A plan cannot ask a process to leave; "heal" heals nothing here, and marks the time.
static void write_restart(struct story_play *play, bool captured, uint64_t seed, uint32_t answers) {
    (void)captured;
    (void)seed;
    for (uint32_t r = 0; r < MODEL_RANKS; r++) {
        uint32_t mark = r == 1 ? answers / 3 : answers * 3 / 4;
        char text[160];

        snprintf(text, sizeof text, "at rank %u mark %u: heal\nafter 4s: rank %u restart\n", r,
                 mark, r);
        add(play, text);
        play->leaves_after[r] = mark;
        play->lives[r] = 2;
    }
    play->recoveries = 2;
    play->refills = true;
}

static uint32_t draw(uint64_t *state, uint32_t from, uint32_t to) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return from + (uint32_t)((*state >> 33) % (to - from + 1));
}

static void write_blow(uint64_t *state, char *text, size_t bytes) {
    static const char *const verbs[] = {"op_begin",      "op_end",       "stream_wait", "send",
                                        "recv",          "group_end",    "comm_error",  "broadcast",
                                        "capture_begin", "replay_begin", "fence_set"};
    uint32_t rank = draw(state, 0, 1), kind = draw(state, 0, 4), ms = draw(state, 10, 3500);
    const char *verb = verbs[draw(state, 0, sizeof verbs / sizeof verbs[0] - 1)];

    if (kind == 0)
        snprintf(text, bytes, "link_reset 0 1");
    else if (kind == 1)
        snprintf(text, bytes, "rank %u pause %ums", rank, ms);
    else if (kind == 2)
        snprintf(text, bytes, "verb_fails rank %u %s nth %u with DEVICE_ERROR", rank, verb,
                 1 + ms % 2);
    else
        snprintf(text, bytes, "rank %u kill", rank);
}

// Ops are slow, so that a strike at any time finds something: a layer, a refill, the first op of an
// epoch. The last strike comes before the answers can all be there.
static void write_storm(struct story_play *play, bool captured, uint64_t seed, uint32_t answers) {
    uint64_t state = seed;
    uint32_t strikes = draw(&state, 3, 8), last_ms = 3000 + answers * MODEL_LAYERS * 10;

    (void)captured;
    add(play, "op takes 5ms 20ms\nrespawn 100ms 1s\n");
    for (uint32_t i = 0; i < strikes; i++) {
        char action[64], text[96];

        write_blow(&state, action, sizeof action);
        snprintf(text, sizeof text, "at %ums: %s\n", draw(&state, 2000, last_ms), action);
        add(play, text);
    }
    play->unforeseen = true;
}

const struct story stories[] = {
    {"clean", "nothing happens", write_clean},
    {"death", "rank 1 is killed in a layer of a token, and started again", write_death},
    {"cut", "the link is cut in a layer of a step, and both live", write_cut},
    {"double", "rank 1 is killed, comes back, and before its first mark a rank or the link fails",
     write_double},
    {"both", "both ranks are killed at once, and started again", write_both},
    {"leader", "rank 0 is killed in a layer of a token, and started again", write_leader},
    {"idle", "between two requests an hour passes", write_idle},
    {"restart", "both ranks are asked to leave, one after the other, and started again",
     write_restart},
    {"storm", "deaths, cuts, pauses and failing devices, at any time", write_storm},
};
const size_t stories_count = sizeof stories / sizeof stories[0];

const struct story *story_named(const char *name) {
    for (size_t i = 0; i < stories_count; i++)
        if (strcmp(stories[i].name, name) == 0)
            return &stories[i];
    return NULL;
}

void story_write(const struct story *story, bool captured, uint64_t seed, uint32_t answers,
                 struct story_play *play) {
    *play = (struct story_play){.idle_ns = SECOND, .lives = {1, 1}};
    add(play, "ranks 2\nseconds 120\n");
    story->write(play, captured, seed, answers);
}
