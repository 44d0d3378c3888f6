// SPDX-License-Identifier: AGPL-3.0-only
//
// The world that a handle is opened in: the three tables of its rank's process, and what is heard
// of the application meanwhile.
#include "hal_sim/double/inside.h"

#include <stdio.h>
#include <stdlib.h>

bool sc_sim_here(void) {
    return sc_double_here() != NULL;
}

// ---- what the application does ----------------------------------------------------------------

static void on_submit(struct sc_sim_rank *rank) {
    sc_player_at_op(&rank->run->player, rank->seat->rank, rank->mark, ++rank->ops);
}

static void trace(struct sc_sim_rank *rank, struct sc_trace_entry entry) {
    rank->run->clock->enter(rank->run);
    entry.rank = rank->seat->rank;
    entry.former = rank->seat->life != rank;
    sc_double_trace(rank->run, entry);
    rank->run->clock->leave(rank->run);
}

static void on_mark(struct sc_sim_rank *rank, uint64_t mark) {
    trace(rank, (struct sc_trace_entry){.kind = SC_TRACE_MARK, .a = mark, .b = rank->ops});
    rank->mark = mark;
    rank->ops = 0;
    sc_player_at_mark(&rank->run->player, rank->seat->rank, mark);
}

// What strikes here strikes in the middle of the application's own call, which learns of it next.
static void on_word(void *owner, enum sc_word word, uint64_t value) {
    struct sc_double_handle *handle = owner;
    struct sc_sim_rank *rank = handle->rank;

    rank->run->clock->enter(rank->run);
    if (!sc_double_dead(rank)) {
        if (word == SC_WORD_SUBMIT)
            on_submit(rank);
        else
            on_mark(rank, value);
    }
    rank->run->clock->leave(rank->run);
}

static void on_notice(void *owner, const struct sc_action *notice, const struct sc_cause *cause) {
    const struct sc_double_handle *handle = owner;

    trace(handle->rank,
          (struct sc_trace_entry){
              .kind = SC_TRACE_NOTICE, .epoch = notice->epoch, .notice = notice, .cause = cause});
}

static void on_recovery(void *owner, const struct sc_recovery *recovery) {
    const struct sc_double_handle *handle = owner;

    trace(handle->rank, (struct sc_trace_entry){.kind = SC_TRACE_READY,
                                                .epoch = recovery->epoch,
                                                .recovery = recovery});
}

static void on_opened(void *owner, sc_comm comm) {
    struct sc_double_handle *handle = owner;

    handle->comm = comm;
}

static void on_release(void *owner) {
    sc_double_handle_free(owner);
}

void sc_double_handle_free(struct sc_double_handle *handle) {
    struct sc_double *run = handle->rank->run;
    struct sc_double_handle **link = &handle->rank->handles;

    run->clock->enter(run);
    while (*link != handle)
        link = &(*link)->next;
    *link = handle->next;
    run->clock->leave(run);
    run->clock->close(handle);
    free(handle);
}

// ---- opening ----------------------------------------------------------------------------------

static sc_status check(const struct sc_sim_rank *rank, const struct sc_config *config, char *why,
                       size_t why_bytes) {
    if (config->rank != rank->seat->rank) {
        snprintf(why, why_bytes,
                 "config.rank is %u, and this thread belongs to rank %u of the simulated world; "
                 "call sc_sim_rank_config()",
                 config->rank, rank->seat->rank);
        return SC_INVALID;
    }
    if (config->world > SC_SIM_RANKS_MAX) {
        snprintf(why, why_bytes, "config.world is %u, a simulated world has at most %u ranks",
                 config->world, SC_SIM_RANKS_MAX);
        return SC_INVALID;
    }
    return SC_OK;
}

static sc_status open_handle(struct sc_sim_rank *rank, struct sc_double_handle **out) {
    struct sc_double_handle *handle = calloc(1, sizeof *handle);

    if (handle == NULL)
        return SC_NO_MEMORY;
    handle->rank = rank;
    sc_status status = rank->run->clock->open(handle);
    if (status != SC_OK) {
        free(handle);
        return status;
    }
    handle->next = rank->handles;
    rank->handles = handle;
    *out = handle;
    return SC_OK;
}

sc_status sc_sim_choose(const struct sc_config *config, struct sc_world *out, char *why,
                        size_t why_bytes) {
    struct sc_sim_rank *rank = sc_double_here();
    struct sc_double *run = rank->run;
    struct sc_double_handle *handle = NULL;
    sc_status status = check(rank, config, why, why_bytes);

    if (status != SC_OK)
        return status;
    snprintf(why, why_bytes, "the simulated rank %u cannot open a handle", rank->seat->rank);
    run->clock->enter(run);
    status = run->clock->gate(rank);
    if (status == SC_OK)
        status = open_handle(rank, &handle);
    run->clock->leave(run);
    if (status != SC_OK)
        return status;
    *out = (struct sc_world){
        .host = &handle->host,
        .link = &handle->link,
        .device = &handle->device,
        .library = run->plan.core.library,
        .on_word = on_word,
        .on_notice = on_notice,
        .on_recovery = on_recovery,
        .opened = on_opened,
        .release = on_release,
        .owner = handle,
    };
    return SC_OK;
}
