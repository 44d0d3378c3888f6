// SPDX-License-Identifier: AGPL-3.0-only
//
// One process of a rank: its tables, the contract checker in front of the device, its pump, its
// application. Born by the supervisor, ended by a kill or by its own exit.
#include "hal_sim/lab/inside.h"

#include <stdlib.h>

#define RUNS_MAX 16u // an application that acts more often than this at one moment never rests

static bool is_former(const struct life *life) {
    return life->seat->life != life;
}

static void on_breach(void *arg, const char *text) {
    struct life *life = arg;
    sc_lab_violation(life->seat->lab, life->seat->rank, "O4 contract: %s", text);
}

static void on_notice(void *arg, const struct sc_action *notice) {
    struct life *life = arg;
    life->dirty = true;
    if (notice->kind == SC_NOTICE_AGREED)
        life->agreed = notice->a;
    if (notice->kind == SC_NOTICE_STATE)
        life->state = (uint32_t)notice->b;
    struct sc_core_view view;
    if (life->pump != NULL) // not yet while it opens
        sc_pump_view(life->pump, &view);
    bool caused = sc_notice_has_cause(notice) && life->pump != NULL;
    sc_lab_trace(life->seat->lab, (struct sc_trace_entry){.kind = SC_TRACE_NOTICE,
                                                          .rank = life->seat->rank,
                                                          .former = is_former(life),
                                                          .epoch = notice->epoch,
                                                          .notice = notice,
                                                          .cause = caused ? &view.cause : NULL});
    if (notice->kind == SC_NOTICE_STATE)
        sc_oracle_state(life, notice);
    if (notice->kind == SC_NOTICE_BREACH)
        sc_lab_violation(life->seat->lab, life->seat->rank, "O4 rank %u broke the protocol",
                         notice->rank);
}

static void on_complete(void *arg, uint64_t epoch, uint64_t number, uint64_t seq) {
    sc_app_completed(arg, epoch, number, seq);
}

static void on_lost(void *arg, uint64_t epoch, uint64_t first, uint64_t last) {
    sc_app_lost(arg, epoch, first, last);
}

static void on_wake(void *arg) {
    sc_life_run(arg);
}

static sc_status open_pump(struct life *life, char *why, size_t why_bytes) {
    const struct sc_plan *plan = life->seat->lab->plan;
    struct sc_pump_config config;
    sc_pump_config_init(&config);
    config.core = plan->core;
    config.core.rank = life->seat->rank;
    config.master_host = "rank0.sim";
    config.master_port = 29500;
    config.captures_max = 2;
    config.link_buffer_bytes = 4096;
    config.host = sc_sim_host(life->process);
    config.link = sc_sim_link(life->process);
    config.device = sc_hal_check_device(life->check);
    config.on_notice = on_notice;
    config.on_complete = on_complete;
    config.on_lost = on_lost;
    config.arg = life;
    return sc_pump_open(&config, &life->pump, why, why_bytes);
}

static void bury(struct life *life) {
    sc_pump_destroy(life->pump);
    sc_hal_check_destroy(life->check);
    if (life->process != NULL)
        sc_sim_kill(life->process);
    struct seat *seat = life->seat;
    if (seat->life == life)
        seat->life = NULL;
    if (seat->ghost == life)
        seat->ghost = NULL;
    seat->lab->vacant = true;
    // The world may be inside this very process's wake: the corpse is reaped with the world.
    free(life);
}

static void trace_life(struct life *life, enum sc_trace_kind kind, const char *text) {
    sc_lab_trace(life->seat->lab, (struct sc_trace_entry){.kind = kind,
                                                          .rank = life->seat->rank,
                                                          .former = is_former(life),
                                                          .text = text});
}

struct life *sc_life_spawn(struct seat *seat) {
    struct lab *lab = seat->lab;
    struct life *life = calloc(1, sizeof *life);
    if (life == NULL)
        return NULL;
    life->seat = seat;
    seat->life = life;
    const struct sc_hal_check_config checked = {
        .capacity_bytes = lab->plan->core.capacity_bytes, .on_breach = on_breach, .arg = life};
    char why[256] = "the simulator has no memory";
    trace_life(life, SC_TRACE_SPAWN, "");
    if (sc_sim_spawn(lab->sim, seat->rank, on_wake, life, &life->process) != SC_OK ||
        sc_hal_check_create(sc_sim_device(life->process), &checked, &life->check) != SC_OK ||
        open_pump(life, why, sizeof why) != SC_OK || sc_app_open(life) != SC_OK) {
        trace_life(life, SC_TRACE_SPAWN, why);
        bury(life);
        return NULL;
    }
    struct sc_core_view view;
    sc_pump_view(life->pump, &view);
    life->incarnation = view.incarnation;
    sc_sim_timer(life->process, sc_lab_now(lab));
    return life;
}

void sc_life_kill(struct life *life, const char *why) {
    trace_life(life, SC_TRACE_END, why);
    sc_sim_kill(life->process);
    bury(life);
}

void sc_life_exit(struct life *life, const char *why) {
    struct sc_sim_held held;
    trace_life(life, SC_TRACE_END, why);
    sc_sim_held(life->process, &held);
    // What a communicator may still touch is the process's to the end; here that end is near.
    if (held.communicators == 0 && held.quarantined == 0)
        sc_app_close(life);
    sc_pump_destroy(life->pump);
    life->pump = NULL;
    sc_oracle_exit(life);
    bury(life);
}

void sc_life_run(struct life *life) {
    struct seat *seat = life->seat;
    uint64_t at = SC_NEVER_NS;
    for (uint32_t runs = 0; runs < RUNS_MAX; runs++) {
        uint64_t pump_at = sc_pump_run(life->pump);
        uint64_t app_at = sc_app_run(life);
        if (seat->life != life && seat->ghost != life)
            return; // it ended in there
        if (life->paused)
            return; // its thread stands still where it was
        at = pump_at < app_at ? pump_at : app_at;
        if (app_at > sc_lab_now(seat->lab))
            break;
    }
    if (sc_sim_group_depth(life->process) != 0)
        sc_lab_violation(seat->lab, seat->rank, "O4 a group was left open");
    sc_sim_timer(life->process, at);
}
