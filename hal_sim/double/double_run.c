// SPDX-License-Identifier: AGPL-3.0-only
//
// A run: its options are judged, its plan is read, its world is made and played, and what came of it
// is reported.
#include "hal_sim/double/inside.h"

#include "core/api.h"

#include <stdio.h>
#include <stdlib.h>

// ---- options ----------------------------------------------------------------------------------

static size_t smaller(size_t one, size_t other) {
    return one < other ? one : other;
}

void sc_sim_options_init(struct sc_sim_options *options, size_t size) {
    const struct sc_sim_options defaults = {
        .size = (uint32_t)smaller(size, sizeof defaults),
        .clock = SC_SIM_VIRTUAL,
        .links = SC_SIM_NETWORK,
        .port = 29500,
        .seed = 1,
        .plan_name = "plan",
    };

    memcpy(options, &defaults, smaller(size, sizeof defaults));
}

// What is wrong with them, or NULL.
static const char *objection(const struct sc_sim_options *options) {
    if (options->clock != SC_SIM_VIRTUAL && options->clock != SC_SIM_REAL)
        return "options.clock must be SC_SIM_VIRTUAL or SC_SIM_REAL";
    if (options->links != SC_SIM_NETWORK && options->links != SC_SIM_SOCKETS)
        return "options.links must be SC_SIM_NETWORK or SC_SIM_SOCKETS";
    if (options->links == SC_SIM_SOCKETS && options->clock != SC_SIM_REAL)
        return "options.links is SC_SIM_SOCKETS, which needs options.clock SC_SIM_REAL";
    if (options->port == 0 || options->port > 65535)
        return "options.port must be from 1 to 65535";
    if (options->plan_name == NULL)
        return "options.plan_name is NULL; sc_sim_options_init() sets one";
    return NULL;
}

// A fault that only the simulated network has, over real sockets.
static const struct sc_plan_entry *misplaced(const struct sc_double *run) {
    for (uint32_t i = 0; i < run->plan.entries_count; i++) {
        const struct sc_plan_entry *entry = &run->plan.entries[i];
        if (run->options.links == SC_SIM_SOCKETS && entry->verb == SC_PLAN_fault &&
            entry->fault.kind <= SC_SIM_stranger_replay)
            return entry;
    }
    return NULL;
}

static sc_status read_options(struct sc_double *run, const struct sc_sim_options *options) {
    char why[512];

    sc_sim_options_init(&run->options, sizeof run->options);
    memcpy(&run->options, options, smaller(options->size, sizeof run->options));
    const char *wrong = objection(&run->options);
    if (wrong != NULL) {
        sc_api_error("sim_run", SC_INVALID, "%s", wrong);
        return SC_INVALID;
    }
    sc_plan_init(&run->plan, run->options.seed, 2);
    run->plan.guest = true;
    run->plan.respawn_min_ns = run->plan.respawn_max_ns = 0;
    if (run->options.plan != NULL && sc_plan_parse(&run->plan, run->options.plan_name,
                                                   run->options.plan, why, sizeof why) != SC_OK) {
        sc_api_error("sim_run", SC_INVALID, "%s", why);
        return SC_INVALID;
    }
    const struct sc_plan_entry *entry = misplaced(run);
    if (entry != NULL) {
        char text[SC_PLAN_LINE_BYTES] = "";
        (void)sc_plan_entry_text(entry, text, sizeof text);
        sc_api_error("sim_run", SC_INVALID,
                     "%s: \"%s\" is a fault of the simulated network, and options.links is "
                     "SC_SIM_SOCKETS",
                     run->options.plan_name, text);
        return SC_INVALID;
    }
    return SC_OK;
}

// ---- the play ---------------------------------------------------------------------------------

bool sc_double_over(const struct sc_double *run) {
    if (run->failure != SC_OK || run->stuck || sc_double_now(run) >= sc_double_end_ns(run))
        return true;
    for (uint32_t r = 0; r < run->plan.core.world; r++)
        if (run->seats[r].wanted)
            return false;
    return run->running == 0 && !sc_player_restart_due(&run->player);
}

static void judge_end(struct sc_double *run) {
    for (struct sc_sim_rank *rank = run->lives; rank != NULL; rank = rank->next) {
        if (rank->ended || run->failure != SC_OK)
            continue;
        const char *where = rank->wait.where != NULL ? rank->wait.where : "main";
        if (sc_double_dead(rank))
            sc_double_violation(run, rank->seat->rank,
                                "was killed and does not return, it is in %s", where);
        else if (run->stuck)
            sc_double_violation(run, rank->seat->rank, "waits for ever in %s", where);
        else
            sc_double_violation(run, rank->seat->rank,
                                "still runs at the end of the plan's time, it is in %s", where);
    }
    if (atomic_load(&run->intruded))
        sc_double_violation(run, SC_RANK_NONE,
                            "a handle was used by a thread that is not its rank's; under the "
                            "virtual clock each rank has one thread");
}

static void play(struct sc_double *run) {
    run->clock->enter(run);
    sc_double_plan_start(run);
    while (!sc_double_over(run)) {
        run->clock->news(run);
        sc_double_bury(run);
    }
    run->report.ended_ns = sc_double_now(run) - run->base_ns;
    judge_end(run);
    run->ending = true;
    for (struct sc_sim_rank *rank = run->lives; rank != NULL; rank = rank->next)
        if (!sc_double_dead(rank))
            sc_double_kill(rank, "killed at the end");
    while (run->running > 0) {
        run->clock->news(run);
        sc_double_bury(run);
    }
    run->clock->leave(run);
}

static void on_violation(void *arg, uint32_t rank, const char *text) {
    sc_double_violation(arg, rank, "simulator: %s", text);
}

static sc_status play_world(struct sc_double *run) {
    struct sc_sim_config config = run->plan.sim;

    config.on_violation = on_violation;
    config.arg = run;
    sc_status status = sc_sim_create(&config, &run->sim);
    if (status != SC_OK)
        return status;
    status = run->clock->start(run);
    if (status == SC_OK) {
        play(run);
        run->clock->stop(run);
        status = run->failure;
    }
    sc_sim_destroy(run->sim);
    return status;
}

sc_status sc_sim_run(const struct sc_sim_options *options, sc_sim_main *main, void *arg,
                     struct sc_sim_report *report) {
    if (options == NULL || main == NULL || report == NULL || options->size == 0 ||
        report->size == 0) {
        sc_api_error("sim_run", SC_INVALID,
                     "options, main and report are needed; sc_sim_options_init() sets "
                     "options.size, report.size is sizeof(struct sc_sim_report)");
        return SC_INVALID;
    }
    if (sc_sim_here()) {
        sc_api_error("sim_run", SC_INVALID, "this thread belongs to a simulated rank");
        return SC_INVALID;
    }
    struct sc_double *run = calloc(1, sizeof *run);
    if (run == NULL) {
        sc_api_error("sim_run", SC_NO_MEMORY, "%s", sc_status_sentence(SC_NO_MEMORY));
        return SC_NO_MEMORY;
    }
    run->main = main;
    run->arg = arg;
    sc_status status = read_options(run, options);
    if (status == SC_OK) {
        run->clock = run->options.clock == SC_SIM_REAL ? &sc_double_real : &sc_double_virtual;
        run->report.size = (uint32_t)smaller(report->size, sizeof run->report);
        run->report.ranks = run->plan.core.world;
        status = play_world(run);
        if (status == SC_OK)
            memcpy(report, &run->report, run->report.size);
        else
            sc_api_error("sim_run", status, "%s", sc_status_sentence(status));
    }
    free(run);
    return status;
}
