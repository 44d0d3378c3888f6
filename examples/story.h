// SPDX-License-Identifier: AGPL-3.0-only
//
// What can become of two ranks while they answer: plans of the test double, and what must follow.
#ifndef ENGINE_STORY_H
#define ENGINE_STORY_H

#include "model.h"

#include <stddef.h>

#define STORY_PLAN_BYTES 1024u

// A story as it is played.
struct story_play {
    char plan[STORY_PLAN_BYTES];        // for sc_sim_run()
    uint64_t idle_ns;                   // between the turns of the conversation
    uint32_t leaves_after[MODEL_RANKS]; // token of an answer, in the rank's first life; 0: never
    bool unforeseen;                    // what follows is drawn, and none of the below
    uint32_t recoveries;                // epochs that must follow, and come as far as to go on
    uint32_t lives[MODEL_RANKS];        // processes that each rank must have had
    bool refills;                       // whether caches must be computed again
    bool forgets;                       // whether nobody is left who knows the conversation
};

// What is drawn from the seed is where in the answer it strikes, and whom.
struct story {
    const char *name;
    const char *about;
    void (*write)(struct story_play *play, bool captured, uint64_t seed, uint32_t answers);
};

extern const struct story stories[];
extern const size_t stories_count;

// NULL: there is none of that name.
const struct story *story_named(const char *name);

// Writes the whole play. `answers` is as in script.h; captured: steps are graphs.
void story_write(const struct story *story, bool captured, uint64_t seed, uint32_t answers,
                 struct story_play *play);

#endif
