// SPDX-License-Identifier: AGPL-3.0-only
//
// One rank's process in "bench". All ranks take the same samples in the same order; the ops before a
// sample bring them together, so that its first op waits for nobody.
#include "cli/gpu/bench.h"
#include "cli/gpu/child.h"
#include "cli/pattern.h"
#include "cli/report.h"
#include "core/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WAIT_NS UINT64_C(60000000000)
#define HOST_CALLS_MAX 32u          // of a sample; they must not fill up what a stream holds
#define HOLD_NS UINT64_C(100000000) // longer than the host needs to enqueue a sample

struct rank {
    struct sc_bench_start start;
    struct sc_bench_arms arms;
    void *begun, *ended; // events
    uint16_t *host;      // a payload
    uint64_t unheld;     // samples of this size that began before all was enqueued
    struct sc_bench_word samples[SC_ARMS][SC_BENCH_WHATS];
};

// ---- samples ------------------------------------------------------------------------------------

static bool bring_together(struct rank *r, enum sc_bench_arm arm, uint64_t bytes) {
    bool ok = true;
    for (uint64_t i = 0; i < r->start.warm_ups && ok; i++)
        ok = sc_bench_arm_sum(&r->arms, arm, bytes, false);
    return ok;
}

static bool settle(struct rank *r) {
    struct sc_bench_arms *a = &r->arms;
    return sc_bench_gpu(a, sc_gpu_stream_sync(a->gpu, a->stream));
}

static bool enqueue_device(struct rank *r, enum sc_bench_arm arm, uint64_t bytes, bool graph) {
    struct sc_bench_arms *a = &r->arms;
    bool ok = bring_together(r, arm, bytes) &&
              sc_bench_gpu(a, sc_gpu_event_record(a->gpu, r->begun, a->stream));
    if (graph)
        ok = ok && sc_bench_arm_launch(a, arm);
    for (uint64_t i = 0; i < r->start.iterations && ok && !graph; i++)
        ok = sc_bench_arm_sum(a, arm, bytes, false);
    return ok && sc_bench_gpu(a, sc_gpu_event_record(a->gpu, r->ended, a->stream));
}

// The stream is held until everything is enqueued: no op waits for the host, however slow it
// launches. The ranks let go at different times, and the ops before the sample bring them together.
static bool sample_device(struct rank *r, enum sc_bench_arm arm, uint64_t bytes, bool graph,
                          uint64_t *ns) {
    struct sc_bench_arms *a = &r->arms;
    double elapsed_us = 0;
    bool begun = false;
    bool ok = sc_bench_gpu(a, sc_gpu_hold(a->gpu, HOLD_NS, a->stream)) &&
              enqueue_device(r, arm, bytes, graph) &&
              sc_bench_gpu(a, sc_gpu_event_passed(a->gpu, r->begun, &begun));
    sc_gpu_let_go(a->gpu);
    ok = ok && settle(r) &&
         sc_bench_gpu(a, sc_gpu_event_elapsed(a->gpu, r->begun, r->ended, &elapsed_us));
    r->unheld += begun;
    *ns = (uint64_t)(elapsed_us * 1000 / (double)r->start.iterations + 0.5);
    return ok;
}

static bool sample_host(struct rank *r, enum sc_bench_arm arm, uint64_t bytes, uint64_t *ns) {
    uint64_t calls[HOST_CALLS_MAX];
    size_t count = r->start.iterations < HOST_CALLS_MAX ? r->start.iterations : HOST_CALLS_MAX;
    bool ok = bring_together(r, arm, bytes);
    for (size_t i = 0; i < count && ok; i++) {
        uint64_t begun_ns = sc_report_now_ns();
        ok = sc_bench_arm_sum(&r->arms, arm, bytes, true);
        calls[i] = sc_report_now_ns() - begun_ns;
    }
    sc_report_sort(calls, count);
    *ns = sc_report_quantile(calls, count, 50);
    return ok && settle(r);
}

static bool sample(struct rank *r, enum sc_bench_arm arm, enum sc_bench_what what, uint64_t bytes,
                   uint64_t *ns) {
    if (what == SC_BENCH_HOST)
        return sample_host(r, arm, bytes, ns);
    return sample_device(r, arm, bytes, what == SC_BENCH_GRAPH, ns);
}

// ---- one size -----------------------------------------------------------------------------------

static bool verify(struct rank *r, enum sc_bench_arm arm, uint64_t bytes, uint64_t *wrong) {
    struct sc_bench_arms *a = &r->arms;
    void *buffer = sc_bench_arm_buffer(a, arm);
    uint64_t count = bytes / SC_BF16_BYTES;

    if (buffer == NULL)
        return true;
    sc_pattern_fill(r->host, count, a->rank, bytes + arm);
    if (!sc_bench_gpu(a, sc_gpu_to_device(a->gpu, buffer, r->host, bytes, a->stream)) ||
        !sc_bench_arm_sum(a, arm, bytes, false) ||
        !sc_bench_gpu(a, sc_gpu_to_host(a->gpu, r->host, buffer, bytes, a->stream)))
        return false;
    *wrong = sc_pattern_wrong(r->host, count, a->world, bytes + arm);
    // From here on all add nothings, which grow no larger however often.
    return sc_bench_gpu(a, sc_gpu_fill(a->gpu, buffer, 0, bytes, a->stream));
}

// Everything is used once before anything is measured.
static bool prepare(struct rank *r, enum sc_bench_arm arm, uint64_t bytes, uint64_t *wrong) {
    return verify(r, arm, bytes, wrong) &&
           sc_bench_arm_capture(&r->arms, arm, bytes, r->start.iterations) &&
           sc_bench_arm_launch(&r->arms, arm) && settle(r);
}

static bool measure(struct rank *r, uint64_t bytes) {
    for (uint64_t round = 0; round < r->start.rounds; round++)
        for (uint32_t what = 0; what < SC_BENCH_WHATS; what++)
            for (uint32_t arm = 0; arm < SC_ARMS; arm++)
                if (sc_bench_arm_exists(&r->arms, (enum sc_bench_arm)arm) &&
                    !sample(r, (enum sc_bench_arm)arm, (enum sc_bench_what)what, bytes,
                            &r->samples[arm][what].ns[round]))
                    return false;
    return true;
}

static bool say(struct rank *r, struct sc_bench_word *word, enum sc_bench_word_kind kind) {
    word->kind = (uint32_t)kind;
    if (sc_child_say(SC_CHILD_CHANNEL, word, sizeof *word))
        return true;
    snprintf(r->arms.why, sizeof r->arms.why, "nobody listens");
    return false;
}

static bool say_samples(struct rank *r, uint64_t bytes, struct sc_bench_word *size) {
    uint64_t from = 0, to = 0;
    bool ok = true;
    for (uint32_t arm = 0; arm < SC_ARMS; arm++) {
        for (uint32_t what = 0; what < SC_BENCH_WHATS && ok; what++) {
            struct sc_bench_word *word = &r->samples[arm][what];
            word->arm = arm;
            word->what = what;
            if (sc_bench_arm_exists(&r->arms, (enum sc_bench_arm)arm))
                ok = say(r, word, SC_BENCH_SAMPLES);
        }
    }
    sc_cuda_pair_range(&from, &to);
    size->pair = r->start.world == 2 && bytes >= from && bytes < to;
    size->bytes = bytes;
    size->unheld = r->unheld;
    r->unheld = 0;
    return ok && say(r, size, SC_BENCH_SIZE);
}

static bool one_size(struct rank *r, uint64_t bytes) {
    static struct sc_bench_word size;
    bool ok = true;
    for (uint32_t arm = 0; arm < SC_ARMS && ok; arm++)
        if (sc_bench_arm_exists(&r->arms, (enum sc_bench_arm)arm))
            ok = prepare(r, (enum sc_bench_arm)arm, bytes, &size.wrong[arm]);
    ok = ok && measure(r, bytes);
    for (uint32_t arm = 0; arm < SC_ARMS && ok; arm++)
        ok = sc_bench_arm_release(&r->arms, (enum sc_bench_arm)arm);
    return ok && say_samples(r, bytes, &size);
}

// ---- opening ------------------------------------------------------------------------------------

static bool open_comm(struct rank *r) {
    struct sc_recovery recovery = {.size = sizeof recovery};
    struct sc_bench_arms *a = &r->arms;
    struct sc_config config;
    sc_config_init(&config, sizeof config);
    config.rank = r->start.rank;
    config.world = r->start.world;
    config.master_host = "127.0.0.1";
    config.master_port = r->start.port;
    config.device = r->start.device;
    config.capacity_bytes = r->start.max_bytes;
    uint64_t ops = r->start.warm_ups + r->start.iterations; // none ends while the stream is held
    if (ops > config.ledger_ops)
        config.ledger_ops = (uint32_t)ops;
    if (!sc_bench_library(a, sc_open(&config, &a->comm)) ||
        !sc_bench_library(a, sc_wait_ready(a->comm, WAIT_NS, &recovery)))
        return false;
    a->epoch = recovery.epoch;
    return sc_bench_library(a, sc_mem_alloc(a->comm, r->start.max_bytes, &a->memory)) &&
           sc_bench_library(a, sc_buffer_register(a->comm, a->memory, r->start.max_bytes));
}

// Rank 0 tells the others the id of NCCL's own communicator, through the library.
static bool open_raw(struct rank *r) {
    unsigned char id[SC_RAW_ID_BYTES];
    struct sc_bench_arms *a = &r->arms;
    uint32_t bytes = 0;
    if (a->rank == 0) {
        if (sc_raw_id(id, a->why, sizeof a->why) != SC_OK ||
            !sc_bench_library(a, sc_command_send(a->comm, a->epoch, id, sizeof id, WAIT_NS)))
            return false;
    } else if (!sc_bench_library(
                   a, sc_command_recv(a->comm, a->epoch, id, sizeof id, &bytes, WAIT_NS))) {
        return false;
    }
    return sc_raw_open(r->start.device, a->rank, a->world, id, r->start.max_bytes, &a->raw, a->why,
                       sizeof a->why) == SC_OK;
}

static bool open_all(struct rank *r) {
    static struct sc_bench_word ready;
    struct sc_bench_arms *a = &r->arms;
    a->rank = r->start.rank;
    a->world = r->start.world;
    if (sc_gpu_open(r->start.device, &a->gpu, a->why, sizeof a->why) != SC_OK || !open_comm(r) ||
        !open_raw(r) || !sc_bench_gpu(a, sc_gpu_stream_create(a->gpu, &a->stream)) ||
        !sc_bench_gpu(a, sc_gpu_event_create(a->gpu, &r->begun)) ||
        !sc_bench_gpu(a, sc_gpu_event_create(a->gpu, &r->ended)))
        return false;
    r->host = malloc(r->start.max_bytes);
    if (r->host == NULL) {
        snprintf(a->why, sizeof a->why, "no memory for a payload");
        return false;
    }
    snprintf(ready.text, sizeof ready.text, "%s", sc_gpu_name(a->gpu));
    ready.driver = sc_gpu_driver(a->gpu);
    ready.nccl = sc_gpu_nccl(a->gpu);
    for (uint32_t arm = 0; arm < SC_ARMS; arm++)
        ready.arms |= (uint32_t)sc_bench_arm_exists(a, (enum sc_bench_arm)arm) << arm;
    return say(r, &ready, SC_BENCH_READY);
}

// All have finished before anybody takes its communicator away.
static bool close_all(struct rank *r) {
    struct sc_bench_arms *a = &r->arms;
    if (!sc_bench_library(a, sc_barrier(a->comm, a->epoch, WAIT_NS)))
        return false;
    sc_raw_close(a->raw);
    return sc_bench_library(a, sc_close(a->comm, SC_CLOSE_FINAL, WAIT_NS));
}

int sc_bench_rank(int argc, char **argv) {
    static struct rank rank;
    static struct sc_bench_word failed;
    struct rank *r = &rank;
    (void)argc, (void)argv;

    if (!sc_child_hear(SC_CHILD_CHANNEL, &r->start, sizeof r->start))
        return EXIT_FAILURE;
    bool ok = open_all(r);
    for (uint64_t bytes = r->start.min_bytes; bytes != 0 && ok;
         bytes = sc_bench_next(bytes, r->start.max_bytes, r->start.factor))
        ok = one_size(r, bytes);
    if (ok && close_all(r))
        return EXIT_SUCCESS;
    snprintf(failed.text, sizeof failed.text, "%.250s", r->arms.why);
    (void)say(r, &failed, SC_BENCH_FAILED);
    _exit(EXIT_FAILURE); // a peer may hold whatever is torn down here
}
