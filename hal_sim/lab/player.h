// SPDX-License-Identifier: AGPL-3.0-only
//
// Plays the entries of a plan: each is fired once, when its trigger says so. What an entry then does
// is its owner's business.
#ifndef SC_LAB_PLAYER_H
#define SC_LAB_PLAYER_H

#include "hal_sim/lab/plan.h"

struct sc_player;

struct sc_player_hooks {
    // What is about to happen, as a plan would have it; or that it found nothing to strike. Told
    // before it is done, so that a trace reads in the order of cause and effect.
    void (*tell)(void *arg, const char *text);
    // Does it; false: there was nothing to strike.
    bool (*act)(void *arg, const struct sc_plan_entry *entry);
    void *arg;
};

// An entry on its way through the world's clock.
struct sc_player_due {
    struct sc_player *player;
    uint32_t index;
    bool waits;
};

struct sc_player {
    const struct sc_plan *plan;
    struct sc_sim *sim;
    struct sc_player_hooks hooks;
    bool quiet; // nothing but restarts is fired any more
    bool fired[SC_PLAN_ENTRIES_MAX];
    struct sc_player_due due[SC_PLAN_ENTRIES_MAX];
};

// Times count from this call. Plan and world are borrowed; the player stays where it is.
void sc_player_start(struct sc_player *player, const struct sc_plan *plan, struct sc_sim *sim,
                     const struct sc_player_hooks *hooks);
// `rank` is about to submit op `op`, from 1, of the step after `mark`.
void sc_player_at_op(struct sc_player *player, uint32_t rank, uint64_t mark, uint64_t op);
// `rank` has committed `mark`.
void sc_player_at_mark(struct sc_player *player, uint32_t rank, uint64_t mark);
// Whether the clock will bring a restart, without anything else having to happen first.
bool sc_player_restart_due(const struct sc_player *player);

#endif
