// SPDX-License-Identifier: AGPL-3.0-only
//
// Many runs on all cores. A run is one thread's own; what is summed up is summed in order of seed,
// so that the totals and the hash over all runs do not depend on how many threads there were.
#include "hal_sim/lab/lab.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define THREADS_MAX 64u
#define REPLAY_EVERY 500u // one run in so many is played twice, for oracle O11

struct many {
    uint64_t first_seed, runs, duration_ns;
    uint32_t ranks;
    atomic_uint_fast64_t next, done;
    atomic_uint threads_left;
    atomic_bool no_memory;
    struct sc_lab_result *results;
};

static sc_status run_one(struct many *many, uint64_t index) {
    struct sc_plan *plan = malloc(sizeof *plan);
    struct sc_lab_result *result = &many->results[index];
    if (plan == NULL)
        return SC_NO_MEMORY;
    sc_plan_swarm(plan, many->first_seed + index, many->ranks, many->duration_ns);
    sc_status status = sc_lab_run(plan, NULL, result);
    if (status == SC_OK && index % REPLAY_EVERY == 0) {
        struct sc_lab_result again;
        status = sc_lab_run(plan, NULL, &again);
        if (status == SC_OK && again.hash != result->hash && result->violations++ == 0)
            strcpy(result->violation, "O11 the same seed gave another trace");
    }
    free(plan);
    return status;
}

static void *worker(void *arg) {
    struct many *many = arg;
    for (uint64_t i; (i = atomic_fetch_add(&many->next, 1)) < many->runs;) {
        if (run_one(many, i) != SC_OK)
            atomic_store(&many->no_memory, true);
        atomic_fetch_add(&many->done, 1);
    }
    atomic_fetch_sub(&many->threads_left, 1);
    return NULL;
}

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t median_ops(const struct many *many) {
    uint64_t *ops = malloc(many->runs * sizeof *ops);
    if (ops == NULL)
        return 0;
    for (uint64_t i = 0; i < many->runs; i++)
        ops[i] = many->results[i].ops_verified;
    qsort(ops, many->runs, sizeof *ops, compare);
    uint64_t median = ops[many->runs / 2];
    free(ops);
    return median;
}

static void sum_up(const struct many *many, struct sc_lab_many *out) {
    memset(out, 0, sizeof *out);
    out->runs = many->runs;
    out->replayed = (many->runs + REPLAY_EVERY - 1) / REPLAY_EVERY;
    for (uint64_t i = 0; i < many->runs; i++) {
        const struct sc_lab_result *r = &many->results[i];
        if (r->violations != 0 && out->failed++ == 0) {
            out->first_failed_seed = many->first_seed + i;
            memcpy(out->violation, r->violation, sizeof out->violation);
        }
        out->ops_verified += r->ops_verified;
        out->recoveries += r->recoveries;
        out->epochs += r->epochs;
        out->ready_before_fault += r->ready_before_fault;
        out->virtual_ns += r->ended_ns;
        out->hash = (out->hash ^ r->hash) * 0x9e3779b97f4a7c15u;
        for (uint32_t k = 0; k < SC_SIM_FAULT_COUNT; k++)
            out->faults[k] += r->faults[k];
        for (uint32_t k = 0; k < SC_PLAN_VERB_COUNT; k++)
            out->verbs[k] += r->verbs[k];
    }
    out->ops_median = median_ops(many);
}

// Reports once a second until the workers are through.
static void watch(struct many *many, void (*progress)(void *arg, uint64_t done), void *arg) {
    const struct timespec tick = {.tv_nsec = 20 * 1000 * 1000};
    for (uint32_t ticks = 1; atomic_load(&many->threads_left) > 0; ticks++) {
        nanosleep(&tick, NULL);
        if (progress != NULL && ticks % 50 == 0)
            progress(arg, atomic_load(&many->done));
    }
}

sc_status sc_lab_many(uint64_t first_seed, uint64_t runs, uint32_t ranks, uint64_t duration_ns,
                      uint32_t threads, void (*progress)(void *arg, uint64_t done), void *arg,
                      struct sc_lab_many *out) {
    struct many many = {
        .first_seed = first_seed, .runs = runs, .duration_ns = duration_ns, .ranks = ranks};
    pthread_t ids[THREADS_MAX];
    if (runs == 0 || threads == 0)
        return SC_INVALID;
    threads = threads > THREADS_MAX ? THREADS_MAX : threads;
    many.results = calloc(runs, sizeof *many.results);
    if (many.results == NULL)
        return SC_NO_MEMORY;
    uint32_t started = 0;
    atomic_store(&many.threads_left, threads);
    while (started < threads && pthread_create(&ids[started], NULL, worker, &many) == 0)
        started++;
    atomic_fetch_sub(&many.threads_left, threads - started);
    watch(&many, progress, arg);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(ids[i], NULL);
    bool lacking = started == 0 || atomic_load(&many.no_memory);
    if (!lacking)
        sum_up(&many, out);
    free(many.results);
    return lacking ? SC_NO_MEMORY : SC_OK;
}
