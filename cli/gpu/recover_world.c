// SPDX-License-Identifier: AGPL-3.0-only
//
// The ranks' processes. One thread hears all of them; what they say is kept until it is asked for.
#include "cli/gpu/recover.h"

#include "cli/report.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

static bool fail(struct sc_recover_world *w, uint32_t rank, const char *what) {
    snprintf(w->why, sizeof w->why, "rank %u: %s", rank, what);
    return false;
}

bool sc_recover_world_start(struct sc_recover_world *w, uint32_t rank) {
    struct sc_recover_member *m = &w->members[rank];
    struct sc_recover_start start = w->start;

    start.rank = rank;
    if (start.device < 0)
        start.device = (int32_t)rank;
    else
        sc_child_share_gpu(rank);
    m->said = 0;
    return sc_child_start(&m->child, SC_RECOVER_ROLE) &&
                   sc_child_say(m->child.channel, &start, sizeof start)
               ? true
               : fail(w, rank, "its process cannot be started");
}

bool sc_recover_world_order(struct sc_recover_world *w, uint32_t rank,
                            enum sc_recover_order order) {
    return sc_child_say(w->members[rank].child.channel, &order, sizeof order)
               ? true
               : fail(w, rank, "its process has ended");
}

void sc_recover_world_forget(struct sc_recover_world *w) {
    for (uint32_t r = 0; r < w->start.world; r++)
        w->members[r].said &= 1u << SC_SAID_OPENED;
}

// ---- hearing ----

static bool has_said(const struct sc_recover_member *m, enum sc_recover_word_kind kind) {
    return (m->said >> kind & 1u) != 0;
}

static bool hear(struct sc_recover_world *w, uint32_t rank) {
    struct sc_recover_member *m = &w->members[rank];
    struct sc_recover_word word;

    if (!sc_child_hear(m->child.channel, &word, sizeof word))
        return fail(w, rank, "its process has ended");
    if (word.kind == SC_SAID_FAILED)
        return fail(w, rank, word.text);
    if (word.kind == SC_SAID_LEFT && has_said(m, SC_SAID_LEFT))
        return true; // a second attempt was given up: the first loss is the one that is measured
    if (word.kind == SC_SAID_LEFT)
        m->left_heard_ns = sc_report_now_ns();
    if (word.kind == SC_SAID_READY)
        m->said &= ~(1u << SC_SAID_FIRST);
    m->of[word.kind] = word;
    m->said |= 1u << word.kind;
    return true;
}

// Hears whatever comes until `until_ns`, or for one batch. False on a failure.
static bool hear_some(struct sc_recover_world *w, uint64_t until_ns) {
    struct pollfd ends[SC_BENCH_GPUS_MAX];
    uint64_t now = sc_report_now_ns();
    uint64_t rest_ms = until_ns > now ? (until_ns - now + 999999) / 1000000 : 0;

    for (uint32_t r = 0; r < w->start.world; r++) {
        const struct sc_child *child = &w->members[r].child;
        ends[r] = (struct pollfd){.fd = child->pid != 0 ? child->channel : -1, .events = POLLIN};
    }
    if (poll(ends, w->start.world, (int)rest_ms) <= 0)
        return true;
    for (uint32_t r = 0; r < w->start.world; r++)
        if (ends[r].revents != 0 && !hear(w, r))
            return false;
    return true;
}

static bool all_said(const struct sc_recover_world *w, enum sc_recover_word_kind kind,
                     uint32_t ranks, uint32_t *missing) {
    uint64_t epoch = 0;
    for (uint32_t r = 0; r < w->start.world; r++) {
        const struct sc_recover_member *m = &w->members[r];
        *missing = r;
        if ((ranks >> r & 1u) == 0)
            continue;
        if (!has_said(m, kind))
            return false;
        if (kind == SC_SAID_FIRST && epoch != 0 && m->of[kind].epoch != epoch)
            return false;
        epoch = m->of[kind].epoch;
    }
    return true;
}

bool sc_recover_world_await(struct sc_recover_world *w, enum sc_recover_word_kind kind,
                            uint32_t ranks, uint64_t limit_ns) {
    static const char *const words[] = {"opened",           "left its epoch", "become ready",
                                        "made a good step", "counted for us", "failed"};
    uint64_t until_ns = sc_report_now_ns() + limit_ns;
    uint32_t missing;
    char text[96];

    while (!all_said(w, kind, ranks, &missing)) {
        if (sc_report_now_ns() >= until_ns) {
            snprintf(text, sizeof text, "it has not %s within %u s", words[kind],
                     (unsigned)(limit_ns / 1000000000));
            return fail(w, missing, text);
        }
        if (!hear_some(w, until_ns))
            return false;
    }
    return true;
}

bool sc_recover_world_hear(struct sc_recover_world *w, uint64_t ns) {
    uint64_t until_ns = sc_report_now_ns() + ns;

    while (sc_report_now_ns() < until_ns)
        if (!hear_some(w, until_ns))
            return false;
    return true;
}

bool sc_recover_world_rest(struct sc_recover_world *w, uint64_t ns) {
    char cause[64];

    if (!sc_recover_world_hear(w, ns))
        return false;
    for (uint32_t r = 0; r < w->start.world; r++) {
        const struct sc_recover_word *left = &w->members[r].of[SC_SAID_LEFT];
        if (!has_said(&w->members[r], SC_SAID_LEFT))
            continue;
        snprintf(cause, sizeof cause, "it left its epoch unstruck: %s",
                 sc_status_name((sc_status)left->code));
        return fail(w, r, cause);
    }
    return true;
}

void sc_recover_world_end(struct sc_recover_world *w, bool well) {
    for (uint32_t r = 0; r < w->start.world && well; r++)
        well = sc_recover_world_order(w, r, SC_ORDER_LEAVE);
    for (uint32_t r = 0; r < w->start.world; r++) {
        sc_child_end(&w->members[r].former);
        if (well)
            (void)sc_child_await(&w->members[r].child);
        sc_child_end(&w->members[r].child);
    }
}
