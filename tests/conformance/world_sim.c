// SPDX-License-Identifier: AGPL-3.0-only
//
// Simulated ranks, as an engine's own tests have them: hal_sim/spark_comm_sim.h. What strikes becomes
// the run's plan. One test a run, so that whatever the run finds wrong is known to be that test's.
#include "tests/conformance/world.h"

#include "hal_sim/spark_comm_sim.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_NS (CONF_MS / 5)

// A kernel's store. Kernels may outlive the test: it lasts as long as the run.
struct write {
    struct write *next;
    struct sc_sim_rank *rank;
    uint16_t *word;
    uint16_t value;
};

struct run {
    const struct conf_options *options;
    const struct conf_test *test;
    pthread_mutex_t lock; // of what follows
    uint64_t words[CONF_RANKS_MAX][2][CONF_WORDS];
    uint64_t rounds[CONF_RANKS_MAX];
    bool told[CONF_RANKS_MAX]; // its verdict is in
    struct conf_result *result;
    struct write *writes;
};

struct life {
    struct bench bench;
    struct sc_sim_rank *rank;
    struct run *run;
};

static struct life *life_of(struct bench *b) {
    return b->own;
}

// ---- time, and the other ranks -----------------------------------------------------------------

static uint64_t now_ns(struct bench *b) {
    return sc_sim_rank_now_ns(life_of(b)->rank);
}

static sc_status pause_for(struct bench *b, uint64_t duration_ns) {
    return sc_sim_rank_sleep(life_of(b)->rank, duration_ns);
}

// One may be a round ahead of another, but not two: so two places are enough.
static bool has_gathered(struct run *run, uint32_t ranks, uint64_t round,
                         uint64_t all[][CONF_WORDS]) {
    bool everybody = true;
    pthread_mutex_lock(&run->lock);
    for (uint32_t r = 0; r < ranks; r++)
        everybody = everybody && run->rounds[r] >= round;
    for (uint32_t r = 0; r < ranks && everybody; r++)
        memcpy(all[r], run->words[r][round % 2], sizeof all[r]);
    pthread_mutex_unlock(&run->lock);
    return everybody;
}

static bool has_failed(struct run *run) {
    pthread_mutex_lock(&run->lock);
    bool failed = run->result->ran && !run->result->well;
    pthread_mutex_unlock(&run->lock);
    return failed;
}

static sc_status gather(struct bench *b, const uint64_t mine[CONF_WORDS],
                        uint64_t all[][CONF_WORDS]) {
    struct run *run = life_of(b)->run;
    pthread_mutex_lock(&run->lock);
    uint64_t round = ++run->rounds[b->rank];
    memcpy(run->words[b->rank][round % 2], mine, sizeof run->words[0][0]);
    pthread_mutex_unlock(&run->lock);
    while (!has_gathered(run, b->ranks, round, all)) {
        if (has_failed(run))
            return SC_STATE;
        sc_status status = pause_for(b, LOOK_NS);
        if (status != SC_OK)
            return status;
    }
    return SC_OK;
}

static bool all_told(struct run *run, uint32_t ranks) {
    bool all = true;
    pthread_mutex_lock(&run->lock);
    for (uint32_t r = 0; r < ranks; r++)
        all = all && (run->told[r] || conf_leaves(run->test, r));
    pthread_mutex_unlock(&run->lock);
    return all;
}

static sc_status verdict(struct bench *b, bool well) {
    struct run *run = life_of(b)->run;
    struct conf_result *result = run->result;
    pthread_mutex_lock(&run->lock);
    run->told[b->rank] = true;
    if (!result->ran || (result->well && !well)) {
        *result = (struct conf_result){.ran = true, .well = well};
        snprintf(result->why, sizeof result->why, "%s", b->why);
    }
    pthread_mutex_unlock(&run->lock);
    while (!all_told(run, b->ranks)) {
        sc_status status = pause_for(b, LOOK_NS);
        if (status != SC_OK)
            return status;
    }
    return has_failed(run) ? SC_STATE : SC_OK;
}

// The run's plan has heard of it.
static sc_status marked(struct bench *b, uint64_t mark) {
    (void)b, (void)mark;
    return SC_OK;
}

static sc_status attach(struct bench *b) {
    return sc_sim_rank_attach(life_of(b)->rank);
}

static void config(struct bench *b, struct sc_config *out) {
    sc_sim_rank_config(life_of(b)->rank, out);
}

// ---- the GPU -----------------------------------------------------------------------------------

static sc_status take(struct bench *b, uint64_t bytes, void **buffer) {
    return sc_sim_rank_alloc(life_of(b)->rank, bytes, buffer);
}

static sc_status give(struct bench *b, void *buffer) {
    return sc_sim_rank_free(life_of(b)->rank, buffer);
}

// A single element may be looked at while a kernel stores it.
static sc_status put(struct bench *b, void *device, const void *host, uint64_t bytes) {
    void *at = sc_sim_rank_memory(life_of(b)->rank, device, bytes);
    if (at == NULL)
        return SC_SIM_KILLED;
    memcpy(at, host, bytes);
    return SC_OK;
}

static sc_status get(struct bench *b, void *host, const void *device, uint64_t bytes) {
    const void *at = sc_sim_rank_memory(life_of(b)->rank, device, bytes);
    if (at == NULL)
        return SC_SIM_KILLED;
    if (bytes == sizeof(uint16_t))
        *(uint16_t *)host = __atomic_load_n((const uint16_t *)at, __ATOMIC_RELAXED);
    else
        memcpy(host, at, bytes);
    return SC_OK;
}

static sc_status stream_create(struct bench *b, void **stream) {
    return sc_sim_rank_stream_create(life_of(b)->rank, stream);
}

static sc_status stream_destroy(struct bench *b, void *stream) {
    return sc_sim_rank_stream_destroy(life_of(b)->rank, stream);
}

static sc_status stream_wait(struct bench *b, void *stream, uint64_t timeout_ns) {
    return sc_sim_rank_stream_wait(life_of(b)->rank, stream, timeout_ns);
}

static void store(void *arg) {
    const struct write *write = arg;
    uint16_t *at = sc_sim_rank_memory(write->rank, write->word, sizeof *at);
    if (at != NULL)
        __atomic_store_n(at, write->value, __ATOMIC_RELAXED);
}

static sc_status compute(struct bench *b, void *stream, uint64_t duration_ns, uint16_t *word,
                         uint16_t value) {
    struct life *life = life_of(b);
    if (word == NULL)
        return sc_sim_rank_launch(life->rank, stream, duration_ns, NULL, NULL);
    struct write *write = malloc(sizeof *write);
    if (write == NULL)
        return SC_NO_MEMORY;
    pthread_mutex_lock(&life->run->lock);
    *write = (struct write){life->run->writes, life->rank, word, value};
    life->run->writes = write;
    pthread_mutex_unlock(&life->run->lock);
    return sc_sim_rank_launch(life->rank, stream, duration_ns, store, write);
}

// ---- captures: the simulator's own -------------------------------------------------------------

static sc_status capture_begin(struct bench *b, void *stream) {
    (void)b, (void)stream;
    return SC_OK;
}

static sc_status capture_end(struct bench *b, void *stream, void **graph) {
    (void)stream;
    *graph = b;
    return SC_OK;
}

static sc_status graph_launch(struct bench *b, void *graph, sc_capture capture, void *stream) {
    (void)graph;
    return sc_sim_rank_graph_launch(life_of(b)->rank, capture, stream);
}

static sc_status graph_destroy(struct bench *b, void *graph) {
    (void)b, (void)graph;
    return SC_OK;
}

static const struct conf_world world = {
    .name = "sim",
    .now_ns = now_ns,
    .pause = pause_for,
    .gather = gather,
    .verdict = verdict,
    .marked = marked,
    .attach = attach,
    .config = config,
    .alloc = take,
    .free = give,
    .put = put,
    .get = get,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_wait = stream_wait,
    .compute = compute,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .graph_launch = graph_launch,
    .graph_destroy = graph_destroy,
};

// ---- a run -------------------------------------------------------------------------------------

static int live(struct sc_sim_rank *rank, void *arg) {
    struct run *run = arg;
    struct life *life = calloc(1, sizeof *life);
    if (life == NULL)
        return 1;
    *life = (struct life){.rank = rank, .run = run};
    life->bench = (struct bench){.w = &world,
                                 .own = life,
                                 .rank = sc_sim_rank_number(rank),
                                 .ranks = run->options->ranks,
                                 .life = sc_sim_rank_life(rank),
                                 .scale = run->options->scale};
    conf_live(&life->bench, &run->test, 1);
    free(life);
    return 0;
}

static void plan_text(const struct run *run, char *text, size_t bytes) {
    const struct conf_strike *strike = &run->test->strike;
    unsigned long long ms = strike->lasts_ns / CONF_MS * run->options->scale;
    int used = snprintf(text, bytes,
                        "ranks %u\nseconds %u\ninit takes 2ms 4ms\nwarmup takes 2ms 4ms\n"
                        "abort takes 5ms 10ms\n",
                        run->options->ranks, 120 * run->options->scale + conf_extra_s(run->test));
    if (strike->act == CONF_NOTHING)
        return;
    used += snprintf(text + used, bytes - (size_t)used, "at rank %u mark %llu: rank %u ",
                     strike->at_rank, (unsigned long long)strike->mark, strike->victim);
    if (strike->act == CONF_FREEZE)
        snprintf(text + used, bytes - (size_t)used, "pause %llums\n", ms);
    else if (strike->lasts_ns == 0)
        snprintf(text + used, bytes - (size_t)used, "kill\n");
    else
        snprintf(text + used, bytes - (size_t)used, "kill\nafter %llums: rank %u restart\n", ms,
                 strike->victim);
}

// What the run found wrong, unless the test did.
static void judge(struct run *run, sc_status status, const struct sc_sim_report *report) {
    struct conf_result *result = run->result;
    if (result->ran && !result->well)
        return;
    const char *why = NULL;
    if (status != SC_OK)
        why = sc_last_error();
    else if (report->violations != 0)
        why = report->violation;
    else if (!result->ran)
        why = "the run ended without a verdict";
    result->ran = true;
    result->well = why == NULL;
    snprintf(result->why, sizeof result->why, "%.*s", (int)sizeof result->why - 1,
             why != NULL ? why : "");
}

uint32_t conf_sim_run(const struct conf_options *options, const struct conf_test *const *tests,
                      uint32_t count, struct conf_result *results) {
    struct run run = {.options = options, .test = tests[0], .result = results};
    struct sc_sim_options sim;
    struct sc_sim_report report = {.size = sizeof report};
    char plan[512];
    (void)count;
    plan_text(&run, plan, sizeof plan);
    sc_sim_options_init(&sim, sizeof sim);
    sim.clock = options->real_clock ? SC_SIM_REAL : SC_SIM_VIRTUAL;
    sim.plan = plan;
    sim.plan_name = tests[0]->name;
    pthread_mutex_init(&run.lock, NULL);
    sc_status status = sc_sim_run(&sim, live, &run, &report);
    judge(&run, status, &report);
    while (run.writes != NULL) {
        struct write *next = run.writes->next;
        free(run.writes);
        run.writes = next;
    }
    pthread_mutex_destroy(&run.lock);
    return 1;
}
