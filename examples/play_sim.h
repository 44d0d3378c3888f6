// SPDX-License-Identifier: AGPL-3.0-only
//
// One run: a story, played with the engine on two simulated ranks, recorded, judged and told.
#ifndef ENGINE_PLAY_SIM_H
#define ENGINE_PLAY_SIM_H

#include "story.h"

struct settings {
    const struct story *story;
    bool captured;    // decode by graph
    bool trace;       // print every event
    bool real;        // the machine's clock
    uint32_t answers; // tokens, as in script.h
    uint64_t seed;
};

// Whether all was right: every token of both ranks, their ends, and what the story says must follow.
// Prints the run in full, or only if something was wrong. Adds to *recoveries those that there were.
bool play_story(const struct settings *settings, bool in_full, uint32_t *recoveries);

#endif
