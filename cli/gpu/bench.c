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

#define LIMIT_MS 300000 // between two words, the largest size included

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

// The next word of those ranks that have not said all of what is awaited: of the others, that of the
// next size must not be heard yet. One that waits for a peer says nothing; the peer says why.
static bool hear(struct bench *b, uint32_t pending, uint32_t *rank, struct sc_bench_word *word) {
    struct pollfd ends[SC_BENCH_GPUS_MAX];
    uint32_t world = (uint32_t)b->result.request->gpus;
    for (uint32_t r = 0; r < world; r++)
        ends[r] = (struct pollfd){.fd = (pending >> r & 1u) != 0 ? b->ranks[r].channel : -1,
                                  .events = POLLIN};
    *rank = (uint32_t)__builtin_ctz(pending);
    if (poll(ends, world, LIMIT_MS) <= 0)
        return fail(b, *rank, "it has said nothing for long");
    for (*rank = 0; ends[*rank].revents == 0; ++*rank) {
    }
    if (!sc_child_hear(b->ranks[*rank].channel, word, sizeof *word))
        return fail(b, *rank, "its process has ended");
    return word->kind != SC_BENCH_FAILED || fail(b, *rank, word->text);
}

static uint32_t all_ranks(const struct bench *b) {
    return (1u << b->result.request->gpus) - 1;
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
    uint32_t rank;
    memset(result->samples, 0, sizeof result->samples);
    memset(result->wrong, 0, sizeof result->wrong);
    for (uint32_t pending = all_ranks(b); pending != 0;) {
        if (!hear(b, pending, &rank, &word))
            return false;
        if (word.kind == SC_BENCH_SAMPLES) {
            take(result, &word);
            continue;
        }
        pending &= ~(1u << rank);
        for (uint32_t arm = 0; arm < SC_ARMS; arm++)
            result->wrong[arm] += word.wrong[arm];
        result->unheld += word.unheld;
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
        start.device = request->shared ? (int32_t)request->device : (int32_t)rank;
        if (request->shared)
            sc_child_share_gpu(rank);
        if (!sc_child_start(&b->ranks[rank], SC_BENCH_ROLE) ||
            !sc_child_say(b->ranks[rank].channel, &start, sizeof start))
            return fail(b, rank, "its process cannot be started");
    }
    for (uint32_t pending = all_ranks(b), rank; pending != 0; pending &= ~(1u << rank))
        if (!hear(b, pending, &rank, &b->result.ready))
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
    if (request->shared)
        sc_child_keep_to_sockets();
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
