// SPDX-License-Identifier: AGPL-3.0-only
//
// See double_rig.h.
#include "tests/support/double_rig.h"

#include "core/api.h"

#include <pthread.h>

struct double_played played;

// ---- the small library ------------------------------------------------------------------------

#define SMALL_MAX 64u

static struct small smalls[SMALL_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // of in_use and played.abandoned

static struct small *take(void) {
    struct small *small = smalls;

    pthread_mutex_lock(&lock);
    while (small->in_use)
        small++;
    *small = (struct small){.in_use = true};
    pthread_mutex_unlock(&lock);
    return small;
}

static void give_back(struct small *small) {
    pthread_mutex_lock(&lock);
    small->in_use = false;
    pthread_mutex_unlock(&lock);
}

void small_close(struct small *small) {
    const struct sc_host *host = small->world.host;

    host->thread_stop(host->ctx, SC_HOST_PROGRESS);
    host->thread_stop(host->ctx, SC_HOST_NOTIFIER);
    small->world.release(small->world.owner);
    give_back(small);
}

// Weak: a program that opens real handles has the library's own.
__attribute__((weak)) void sc_api_abandon(sc_comm comm) {
    pthread_mutex_lock(&lock);
    played.abandoned++;
    pthread_mutex_unlock(&lock);
    small_close(&smalls[comm - 1]);
}

static uint64_t on_progress(void *arg) {
    struct small *small = arg;
    const struct sc_host *host = small->world.host;

    if (host->enter(host->ctx) != SC_OK)
        return SC_NEVER_NS;
    if (++small->steps == small->notify_at)
        small_notify(small);
    uint64_t next_ns = SC_NEVER_NS;
    if (small->period_ns != 0)
        next_ns = small_now(small) + small->period_ns;
    host->leave(host->ctx);
    return next_ns;
}

static uint64_t on_notifier(void *arg) {
    struct small *small = arg;

    if (small_enter(small) != SC_OK)
        return SC_NEVER_NS;
    small->notes += small->noted;
    small->noted = false;
    small_leave(small);
    return SC_NEVER_NS;
}

sc_status small_open(struct sc_sim_rank *rank, uint64_t period_ns, struct small **out) {
    struct sc_config config = {.size = sizeof config};
    struct small *small = take();
    char why[256];

    sc_sim_rank_config(rank, &config);
    small->period_ns = period_ns;
    sc_status status = sc_sim_choose(&config, &small->world, why, sizeof why);
    if (status != SC_OK) {
        give_back(small);
        return status;
    }
    const struct sc_host *host = small->world.host;
    (void)host->thread_start(host->ctx, SC_HOST_PROGRESS, on_progress, small);
    (void)host->thread_start(host->ctx, SC_HOST_NOTIFIER, on_notifier, small);
    small->world.opened(small->world.owner, (sc_comm)(small - smalls) + 1);
    *out = small;
    return SC_OK;
}

uint64_t small_now(const struct small *small) {
    return small->world.host->now_ns(small->world.host->ctx);
}

sc_status small_enter(struct small *small) {
    return small->world.host->enter(small->world.host->ctx);
}

void small_leave(struct small *small) {
    small->world.host->leave(small->world.host->ctx);
}

void small_notify(struct small *small) {
    small->noted = true;
    small->world.host->notify(small->world.host->ctx);
}

sc_status small_await(struct small *small, uint64_t deadline_ns) {
    sc_status status = small_enter(small);

    if (status == SC_OK)
        status = small->world.host->await(small->world.host->ctx, deadline_ns);
    if (status != SC_SIM_KILLED)
        small_leave(small);
    return status;
}

sc_status small_submit(struct small *small) {
    small->world.on_word(small->world.owner, SC_WORD_SUBMIT, 0);
    sc_status status = small_enter(small);
    if (status == SC_OK)
        small_leave(small);
    return status;
}

void small_mark(struct small *small, uint64_t mark) {
    small->world.on_word(small->world.owner, SC_WORD_MARK, mark);
}

// ---- the run ----------------------------------------------------------------------------------

int double_rig_reset(void **state) {
    (void)state;
    memset(&played, 0, sizeof played);
    memset(smalls, 0, sizeof smalls);
    return 0;
}

static void on_trace(void *arg, const char *line) {
    size_t room = sizeof played.trace - played.trace_used;

    (void)arg;
    int length = snprintf(played.trace + played.trace_used, room, "%s\n", line);
    if (length > 0 && (size_t)length < room)
        played.trace_used += (size_t)length;
}

void double_play_options(const struct sc_sim_options *given, sc_sim_main *run) {
    struct sc_sim_options options = *given;

    options.on_trace = on_trace;
    played.report = (struct sc_sim_report){.size = sizeof played.report};
    played.trace_used = 0;
    played.trace[0] = '\0';
    played.abandoned = 0;
    sc_status status = sc_sim_run(&options, run, NULL, &played.report);
    if (status != SC_OK)
        fail_msg("%s: %s", sc_status_name(status), sc_last_error());
    for (uint32_t i = 0; i < SMALL_MAX; i++)
        assert_false(smalls[i].in_use);
}

void double_play_seed(uint64_t seed, const char *plan, sc_sim_main *run) {
    struct sc_sim_options options;

    sc_sim_options_init(&options, sizeof options);
    options.seed = seed;
    options.plan = plan;
    double_play_options(&options, run);
}

void double_play(const char *plan, sc_sim_main *run) {
    double_play_seed(1, plan, run);
}

void double_expect_well(void) {
    if (played.report.violations != 0)
        fail_msg("%s\n%s", played.report.violation, played.trace);
}

void double_expect_violation(const char *words) {
    if (played.report.violations == 0 || strstr(played.report.violation, words) == NULL)
        fail_msg("%u violations, the first '%s'; expected one with '%s'", played.report.violations,
                 played.report.violation, words);
}

void double_expect_line(const char *words) {
    if (strstr(played.trace, words) == NULL)
        fail_msg("no line with '%s' in\n%s", words, played.trace);
}

void double_nap(struct sc_sim_rank *rank, uint64_t duration_ns) {
    sc_status status = sc_sim_rank_sleep(rank, duration_ns);
    (void)status;
}
