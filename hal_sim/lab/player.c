// SPDX-License-Identifier: AGPL-3.0-only
//
// Triggers, followers, and that nothing is fired twice.
#include "hal_sim/lab/player.h"

#include <string.h>

static void fire(struct sc_player *player, uint32_t index);

static void on_due(void *arg) {
    struct sc_player_due *due = arg;
    due->waits = false;
    fire(due->player, due->index);
}

static void schedule(struct sc_player *player, uint32_t index, uint64_t after_ns) {
    player->due[index] = (struct sc_player_due){player, index, true};
    sc_sim_at(player->sim, sc_sim_now_ns(player->sim) + after_ns, on_due, &player->due[index]);
}

static void schedule_follower(struct sc_player *player, uint32_t index) {
    const struct sc_plan *plan = player->plan;
    if (index + 1 < plan->entries_count && plan->entries[index + 1].trigger == SC_PLAN_AFTER)
        schedule(player, index + 1, plan->entries[index + 1].time_ns);
}

static void fire(struct sc_player *player, uint32_t index) {
    const struct sc_plan_entry *entry = &player->plan->entries[index];
    char text[SC_PLAN_LINE_BYTES];
    if (player->fired[index] || (player->quiet && entry->verb != SC_PLAN_restart))
        return;
    player->fired[index] = true;
    if (sc_plan_entry_text(entry, text, sizeof text))
        player->hooks.tell(player->hooks.arg, text);
    if (!player->hooks.act(player->hooks.arg, entry))
        player->hooks.tell(player->hooks.arg, "found nothing to strike");
    schedule_follower(player, index);
}

static void fire_where(struct sc_player *player, enum sc_plan_trigger trigger, uint32_t rank,
                       uint64_t mark, uint64_t op) {
    for (uint32_t i = 0; i < player->plan->entries_count; i++) {
        const struct sc_plan_entry *e = &player->plan->entries[i];
        if (e->trigger == trigger && e->at_rank == rank && e->mark == mark && e->op == op)
            fire(player, i);
    }
}

void sc_player_start(struct sc_player *player, const struct sc_plan *plan, struct sc_sim *sim,
                     const struct sc_player_hooks *hooks) {
    memset(player, 0, sizeof *player);
    player->plan = plan;
    player->sim = sim;
    player->hooks = *hooks;
    for (uint32_t i = 0; i < plan->entries_count; i++)
        if (plan->entries[i].trigger == SC_PLAN_AT_TIME)
            schedule(player, i, plan->entries[i].time_ns);
}

void sc_player_at_op(struct sc_player *player, uint32_t rank, uint64_t mark, uint64_t op) {
    fire_where(player, SC_PLAN_AT_OP, rank, mark, op);
}

void sc_player_at_mark(struct sc_player *player, uint32_t rank, uint64_t mark) {
    fire_where(player, SC_PLAN_AT_MARK, rank, mark, 0);
}

bool sc_player_restart_due(const struct sc_player *player) {
    for (uint32_t i = 0; i < player->plan->entries_count; i++)
        if (player->due[i].waits && player->plan->entries[i].verb == SC_PLAN_restart)
            return true;
    return false;
}
