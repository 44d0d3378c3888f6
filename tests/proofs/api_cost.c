// SPDX-License-Identifier: AGPL-3.0-only
//
// What the public calls cost the caller, on the test double. Two figures:
//
//   submit   sc_all_reduce() of 4 KiB in a world of two, against the same device verbs called bare, in
//            turn, on the same device: the difference is what the library spends
//   health   sc_health() while another thread gives the epoch up and waits for the next, over and over
//
// Prints medians and spread; nothing here passes or fails by its timing.
#include "core/api_inside.h"
#include "core/pump_inside.h"
#include "hal_sim/spark_comm_sim.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BYTES 4096u
#define LAYERS 48u
#define ROUNDS 400u
#define LOOKS 200000u
#define FOREVER_NS UINT64_C(60000000000)

struct samples {
    uint32_t count;
    uint64_t ns[LOOKS];
};

static struct samples submit, bare, health;
static _Atomic bool done;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t quantile(struct samples *s, uint32_t percent) {
    qsort(s->ns, s->count, sizeof s->ns[0], by_value);
    return s->ns[(uint64_t)(s->count - 1) * percent / 100];
}

static void print(const char *what, struct samples *s) {
    printf("%-28s median %4llu ns   p10 %4llu   p90 %4llu   p99 %5llu   (%u calls)\n", what,
           (unsigned long long)quantile(s, 50), (unsigned long long)quantile(s, 10),
           (unsigned long long)quantile(s, 90), (unsigned long long)quantile(s, 99), s->count);
}

// ---- submit ----

static struct sc_api *hold(sc_comm comm) {
    uint32_t slot;
    sc_status status;
    struct sc_api *api = sc_table_hold(comm, &slot, &status);
    SC_ASSERT(api != NULL);
    sc_table_release(slot);
    return api;
}

// What the pump asks of the device for one all-reduce.
static void all_reduce_bare(const struct sc_pump *p, uint64_t buffer, uint64_t stream,
                            uint64_t *op) {
    const struct sc_device *d = p->device;
    uint32_t peer = 1 - p->config.core.rank;
    SC_ASSERT(d->op_begin(d->ctx, stream, op) == SC_OK);
    SC_ASSERT(d->group_begin(d->ctx) == SC_OK);
    SC_ASSERT(d->send(d->ctx, p->comm, buffer, BYTES, peer, stream) == SC_OK);
    SC_ASSERT(d->recv(d->ctx, p->comm, p->receive, BYTES, peer, stream) == SC_OK);
    SC_ASSERT(d->group_end(d->ctx) == SC_OK);
    SC_ASSERT(d->comm_error(d->ctx, p->comm) == SC_OK);
    SC_ASSERT(d->add_bf16(d->ctx, buffer, p->receive, BYTES, p->comm_epoch, stream) == SC_OK);
    SC_ASSERT(d->op_end(d->ctx, *op) == SC_OK);
}

static void note(struct samples *s, uint64_t begun_ns) {
    s->ns[s->count++] = now_ns() - begun_ns;
}

static void measure_round(struct sc_sim_rank *rank, sc_comm comm, uint64_t epoch, void *buffer,
                          void *stream) {
    const struct sc_pump *pump = hold(comm)->pump;
    const struct sc_device *d = pump->device;
    bool first = sc_sim_rank_number(rank) == 0;
    uint64_t ops[LAYERS];
    for (uint32_t i = 0; i < LAYERS; i++) {
        uint64_t begun_ns = now_ns();
        SC_ASSERT(sc_all_reduce(comm, epoch, buffer, BYTES, SC_BF16, stream) == SC_OK);
        if (first)
            note(&submit, begun_ns);
    }
    SC_ASSERT(sc_sync(comm, epoch, stream, SC_SYNC_AGREED, FOREVER_NS) == SC_OK);
    for (uint32_t i = 0; i < LAYERS; i++) {
        uint64_t begun_ns = now_ns();
        all_reduce_bare(pump, (uint64_t)(uintptr_t)buffer, (uint64_t)(uintptr_t)stream, &ops[i]);
        if (first)
            note(&bare, begun_ns);
    }
    SC_ASSERT(sc_sim_rank_stream_wait(rank, stream, FOREVER_NS) == SC_OK);
    for (uint32_t i = 0; i < LAYERS; i++)
        SC_ASSERT(d->op_release(d->ctx, ops[i]) == SC_OK);
}

static sc_comm open_rank(struct sc_sim_rank *rank) {
    struct sc_config config;
    sc_comm comm;
    sc_config_init(&config, sizeof config);
    sc_sim_rank_config(rank, &config);
    config.capacity_bytes = BYTES;
    SC_ASSERT(sc_open(&config, &comm) == SC_OK);
    return comm;
}

static int submits(struct sc_sim_rank *rank, void *arg) {
    struct sc_recovery recovery = {.size = sizeof recovery};
    void *buffer, *stream;
    (void)arg;
    sc_comm comm = open_rank(rank);
    SC_ASSERT(sc_wait_ready(comm, FOREVER_NS, &recovery) == SC_OK);
    SC_ASSERT(sc_sim_rank_alloc(rank, BYTES, &buffer) == SC_OK);
    SC_ASSERT(sc_sim_rank_stream_create(rank, &stream) == SC_OK);
    for (uint32_t i = 0; i < ROUNDS; i++)
        measure_round(rank, comm, recovery.epoch, buffer, stream);
    SC_ASSERT(sc_barrier(comm, recovery.epoch, FOREVER_NS) == SC_OK);
    return sc_close(comm, SC_CLOSE_FINAL, FOREVER_NS) == SC_OK ? 0 : 1;
}

// ---- health ----

struct recoverer {
    struct sc_sim_rank *rank;
    sc_comm comm;
    uint32_t recoveries;
};

static void *recover(void *arg) {
    struct recoverer *r = arg;
    struct sc_recovery recovery = {.size = sizeof recovery};
    SC_ASSERT(sc_sim_rank_attach(r->rank) == SC_OK);
    while (!done) {
        SC_ASSERT(sc_wait_ready(r->comm, FOREVER_NS, &recovery) == SC_OK);
        SC_ASSERT(sc_reconnect(r->comm, recovery.epoch, 1) == SC_OK);
        r->recoveries++;
    }
    return NULL;
}

static int looks(struct sc_sim_rank *rank, void *arg) {
    struct sc_recovery recovery = {.size = sizeof recovery};
    struct recoverer *r = arg;
    sc_comm comm = open_rank(rank);
    if (sc_sim_rank_number(rank) == 0) {
        pthread_t thread;
        *r = (struct recoverer){rank, comm, 0};
        SC_ASSERT(pthread_create(&thread, NULL, recover, r) == 0);
        struct sc_health_report report = {.size = sizeof report};
        while (health.count < LOOKS) {
            uint64_t begun_ns = now_ns();
            SC_ASSERT(sc_health(comm, &report) == SC_OK);
            note(&health, begun_ns);
            if (health.count % 100 == 0) // spread over several recoveries
                SC_ASSERT(sc_sim_rank_sleep(rank, 1000000) == SC_OK);
        }
        done = true;
        SC_ASSERT(pthread_join(thread, NULL) == 0);
        return sc_close(comm, SC_CLOSE_FINAL, FOREVER_NS) == SC_OK ? 0 : 1;
    }
    while (sc_wait_ready(comm, FOREVER_NS, &recovery) == SC_OK)
        SC_ASSERT(sc_sim_rank_sleep(rank, 1000000) == SC_OK);
    return sc_close(comm, SC_CLOSE_FINAL, FOREVER_NS) == SC_OK ? 0 : 1;
}

static void run(enum sc_sim_clock clock, sc_sim_main *main_of_rank, void *arg) {
    struct sc_sim_options options;
    struct sc_sim_report report = {.size = sizeof report};
    sc_sim_options_init(&options, sizeof options);
    options.clock = clock;
    options.plan = "ranks 2\nseconds 600\n";
    sc_status status = sc_sim_run(&options, main_of_rank, arg, &report);
    if (status == SC_OK && report.violations == 0 && report.exit_code[0] == 0 &&
        report.exit_code[1] == 0)
        return;
    printf("api_cost: %s; violation: %s\n", sc_last_error(), report.violation);
    exit(1);
}

int main(void) {
    struct recoverer recoverer;
    run(SC_SIM_VIRTUAL, submits, NULL);
    run(SC_SIM_REAL, looks, &recoverer);
    print("sc_all_reduce", &submit);
    print("the same device verbs, bare", &bare);
    printf("%-28s median %4lld ns\n", "the library's own share",
           (long long)(quantile(&submit, 50) - quantile(&bare, 50)));
    print("sc_health", &health);
    printf("%-28s %u\n", "recoveries meanwhile", recoverer.recoveries);
    return 0;
}
