// SPDX-License-Identifier: AGPL-3.0-only
//
// Ops among the application's own kernels: behind them on a stream, beside them when started, and
// never taken for stuck because of them. In a world of 1 there is nothing to wait for.
#include "tests/conformance/conf.h"

// A kernel stores the operand of an op behind it, and another one behind that overwrites the sum.
static bool in_order(struct bench *b) {
    uint16_t *word;
    DO(conf_buffer(b, 1, &word));
    DO(conf_fill(b, word, 1, conf_whole(100)));
    OK(b, b->w->compute(b, b->stream, 20 * CONF_MS, word, conf_whole(7)));
    OK(b, sc_all_reduce(b->comm, b->epoch, word, SC_BF16_BYTES, SC_BF16, b->stream));
    DO(conf_sync(b));
    DO(conf_holds(b, word, 1, conf_whole(7 * b->ranks)));
    OK(b, b->w->compute(b, b->stream, 0, word, conf_whole(9)));
    OK(b, b->w->stream_wait(b, b->stream, conf_limit(b)));
    return conf_holds(b, word, 1, conf_whole(9));
}

static bool forked_and_joined(struct bench *b) {
    uint16_t *word;
    DO(conf_buffer(b, 1, &word));
    DO(conf_fill(b, word, 1, conf_whole(100)));
    OK(b, b->w->compute(b, b->stream, 20 * CONF_MS, word, conf_whole(5)));
    OK(b, sc_all_reduce_async(b->comm, b->epoch, word, SC_BF16_BYTES, SC_BF16, b->stream));
    DO(conf_sync(b));
    return conf_holds(b, word, 1, conf_whole(5 * b->ranks));
}

static bool await_completed(struct bench *b, uint64_t seqs) {
    uint64_t end_ns = b->w->now_ns(b) + conf_limit(b);
    struct sc_health_report health;
    do {
        OK(b, b->w->pause(b, CONF_MS));
        DO(conf_health(b, &health));
        EQUAL(b, health.state, SC_STATE_READY);
        TRUE(b, b->w->now_ns(b) < end_ns);
    } while (health.completed < seqs);
    return true;
}

// The started sum is there while the kernel behind it on the caller's stream still runs.
static bool beside_a_kernel(struct bench *b) {
    struct sc_health_report health;
    uint16_t *sum, *word;
    sc_ticket ticket = 0;
    DO(conf_buffer(b, 1000, &sum));
    DO(conf_buffer(b, 1, &word));
    DO(conf_fill(b, sum, 1000, conf_whole(2)));
    DO(conf_fill(b, word, 1, 0));
    DO(conf_works(b)); // nothing is in flight
    OK(b, b->w->pause(b, conf_ms(b, 60)));
    DO(conf_health(b, &health));
    OK(b, sc_all_reduce_start(b->comm, b->epoch, sum, 1000 * SC_BF16_BYTES, SC_BF16, b->stream,
                              &ticket));
    OK(b, b->w->compute(b, b->stream, conf_ms(b, 500), word, 1));
    DO(await_completed(b, health.submitted + 1));
    EQUAL(b, conf_peek(b, word), 0);
    DO(conf_holds(b, sum, 1000, conf_whole(2 * b->ranks)));
    OK(b, sc_all_reduce_join(b->comm, b->epoch, ticket, b->stream));
    IS(b, sc_all_reduce_join(b->comm, b->epoch, ticket, b->stream), SC_INVALID);
    OK(b, b->w->stream_wait(b, b->stream, conf_limit(b)));
    DO(conf_sync(b));
    return conf_holds(b, word, 1, 1);
}

// What comes behind the join waits for the sum, which waits for a kernel of the other stream.
static bool joined_by_another_stream(struct bench *b) {
    uint16_t *word;
    void *other;
    sc_ticket ticket = 0;
    DO(conf_buffer(b, 1, &word));
    DO(conf_stream(b, &other));
    DO(conf_fill(b, word, 1, 0));
    OK(b, b->w->compute(b, b->stream, 50 * CONF_MS, word, conf_whole(4)));
    OK(b, sc_all_reduce_start(b->comm, b->epoch, word, SC_BF16_BYTES, SC_BF16, b->stream, &ticket));
    OK(b, sc_all_reduce_join(b->comm, b->epoch, ticket, other));
    OK(b, sc_all_reduce(b->comm, b->epoch, word, SC_BF16_BYTES, SC_BF16, other));
    OK(b, sc_sync(b->comm, b->epoch, other, SC_SYNC_AGREED, conf_limit(b)));
    DO(conf_holds(b, word, 1, conf_whole(4 * b->ranks * b->ranks)));
    OK(b, b->w->stream_wait(b, other, conf_limit(b)));
    return true;
}

// One rank alone computes for longer than an op may take, in front of an op.
static bool late_on_one_rank(struct bench *b) {
    uint64_t epoch = b->epoch;
    if (b->rank == 0)
        OK(b, b->w->compute(b, b->stream, conf_ms(b, 1400), NULL, 0));
    DO(conf_works(b));
    EQUAL(b, *sc_live_epoch(b->comm), epoch);
    return true;
}

const struct conf_test conf_overlap[] = {
    {.name = "op_runs_behind_the_kernels_of_its_stream", .run = in_order, .ranks_min = 2},
    {.name = "async_op_is_forked_and_joined", .run = forked_and_joined, .ranks_min = 2},
    {.name = "started_op_runs_beside_a_kernel", .run = beside_a_kernel, .ranks_min = 2},
    {.name = "another_stream_joins_a_started_op", .run = joined_by_another_stream, .ranks_min = 2},
    {.name = "kernel_longer_than_the_op_limit_is_no_false_alarm", .run = late_on_one_rank},
    {0},
};
