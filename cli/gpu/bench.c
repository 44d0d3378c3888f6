// SPDX-License-Identifier: AGPL-3.0-only
//
// Starts one process a GPU before anything of CUDA is touched, hears the samples of all, and keeps of
// each round the slowest rank's.
#include "cli/gpu/bench.h"

#include "cli/gpu/child.h"
#include "cli/options.h"
#include "cli/report.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_MS 300000 // for one size, the largest and slowest included

struct bench {
    struct sc_child ranks[SC_BENCH_GPUS_MAX];
    struct sc_bench_result result;
    char why[320];
};

uint64_t sc_bench_next(uint64_t bytes, uint64_t max_bytes, uint64_t factor) {
    return bytes > max_bytes / factor ? 0 : bytes * factor;
}

static bool fail(struct bench *b, uint32_t rank, const char *what) {
    snprintf(b->why, sizeof b->why, "rank %u: %s", rank, what);
    return false;
}

// Whoever has failed says more than whoever has only ended, or waits.
static bool hear(struct bench *b, uint32_t rank, struct sc_bench_word *word) {
    uint32_t world = (uint32_t)b->result.request->gpus;
    struct pollfd end = {.fd = b->ranks[rank].channel, .events = POLLIN};
    if (poll(&end, 1, LIMIT_MS) == 0)
        return fail(b, rank, "it has said nothing for 300 s");
    if (!sc_child_hear(b->ranks[rank].channel, word, sizeof *word)) {
        (void)fail(b, rank, "its process has ended");
        word->kind = SC_BENCH_FAILED;
        for (uint32_t other = 0; other < world && other != rank; other++)
            while (poll(&(struct pollfd){b->ranks[other].channel, POLLIN, 0}, 1, 0) > 0 &&
                   sc_child_hear(b->ranks[other].channel, word, sizeof *word))
                if (word->kind == SC_BENCH_FAILED)
                    return fail(b, other, word->text);
        return false;
    }
    return word->kind != SC_BENCH_FAILED || fail(b, rank, word->text);
}

static void take(struct sc_bench_result *result, const struct sc_bench_word *word) {
    uint64_t *slowest = result->samples[word->arm][word->what];
    for (uint64_t i = 0; i < result->request->rounds; i++)
        if (word->ns[i] > slowest[i])
            slowest[i] = word->ns[i];
}

static bool hear_size(struct bench *b) {
    static struct sc_bench_word word;
    struct sc_bench_result *result = &b->result;
    memset(result->samples, 0, sizeof result->samples);
    memset(result->wrong, 0, sizeof result->wrong);
    for (uint32_t rank = 0; rank < result->request->gpus; rank++) {
        do {
            if (!hear(b, rank, &word))
                return false;
            if (word.kind == SC_BENCH_SAMPLES)
                take(result, &word);
        } while (word.kind != SC_BENCH_SIZE);
        for (uint32_t arm = 0; arm < SC_ARMS; arm++)
            result->wrong[arm] += word.wrong[arm];
    }
    result->bytes = word.bytes;
    result->pair = word.pair != 0;
    return true;
}

static bool start_all(struct bench *b, uint32_t port) {
    const struct sc_bench_request *request = b->result.request;
    struct sc_bench_start start = {.world = (uint32_t)request->gpus,
                                   .port = port,
                                   .min_bytes = request->min_bytes,
                                   .max_bytes = request->max_bytes,
                                   .factor = request->factor,
                                   .iterations = request->iterations,
                                   .warm_ups = request->warm_ups,
                                   .rounds = request->rounds};
    for (uint32_t rank = 0; rank < request->gpus; rank++) {
        start.rank = rank;
        start.device = (int32_t)rank;
        if (!sc_child_start(&b->ranks[rank], SC_BENCH_ROLE) ||
            !sc_child_say(b->ranks[rank].channel, &start, sizeof start))
            return fail(b, rank, "its process cannot be started");
    }
    for (uint32_t rank = (uint32_t)request->gpus; rank-- > 0;) // rank 0's word is kept
        if (!hear(b, rank, &b->result.ready))
            return false;
    return true;
}

static bool play(struct bench *b) {
    const struct sc_bench_request *request = b->result.request;
    for (uint64_t bytes = request->min_bytes; bytes != 0;
         bytes = sc_bench_next(bytes, request->max_bytes, request->factor)) {
        if (!hear_size(b))
            return false;
        sc_bench_tell_size(&b->result);
    }
    for (uint32_t rank = 0; rank < request->gpus; rank++)
        if (!sc_child_await(&b->ranks[rank]))
            return fail(b, rank, "it did not end well");
    return true;
}

int sc_bench_play(const struct sc_bench_request *request) {
    static struct bench b;
    uint32_t port = sc_child_free_port();

    b.result.request = request;
    b.result.worst_host_ns = INT64_MIN;
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    bool started = port != 0 && start_all(&b, port);
    bool well = started;
    if (started) {
        sc_bench_tell_head(&b.result);
        well = play(&b);
    }
    for (uint32_t rank = 0; rank < request->gpus; rank++)
        sc_child_end(&b.ranks[rank]);
    if (!well)
        fprintf(stderr, "spark-comm: bench: %s\n", b.why);
    if (!started)
        return SC_EXIT_USAGE;
    if (well)
        sc_bench_tell_end(&b.result);
    if (request->json != NULL && !sc_bench_write(&b.result))
        well = false;
    return sc_report_end(well && b.result.wrong_in_all == 0 ? EXIT_SUCCESS : EXIT_FAILURE);
}
