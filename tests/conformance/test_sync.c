// SPDX-License-Identifier: AGPL-3.0-only
//
// When results count, and how waiting ends.
#include "tests/conformance/conf.h"

#define CALL(b) (b)->comm, (b)->epoch

static bool enqueue_behind(struct bench *b, uint16_t **buffer, uint64_t kernel_ms) {
    DO(conf_buffer(b, 64, buffer));
    DO(conf_fill(b, *buffer, 64, conf_whole(1)));
    OK(b, b->w->compute(b, b->stream, conf_ms(b, kernel_ms), NULL, 0));
    OK(b, sc_all_reduce(CALL(b), *buffer, 128, SC_BF16, b->stream));
    return true;
}

static bool early_and_late(struct bench *b) {
    uint16_t *buffer;
    DO(enqueue_behind(b, &buffer, 300));
    IS(b, sc_test(CALL(b), b->stream), SC_INPROGRESS);
    IS(b, sc_sync(CALL(b), b->stream, SC_SYNC_LOCAL, 0), SC_TIMEOUT);
    IS(b, sc_sync(CALL(b), b->stream, SC_SYNC_AGREED, CONF_MS), SC_TIMEOUT);
    IS(b, sc_sync(CALL(b), b->stream, (enum sc_sync_how)9, CONF_MS), SC_INVALID);
    OK(b, sc_sync(CALL(b), b->stream, SC_SYNC_LOCAL, conf_limit(b)));
    OK(b, sc_test(CALL(b), b->stream));
    DO(conf_sync(b));
    return conf_holds(b, buffer, 64, conf_whole(b->ranks));
}

static bool another_stream(struct bench *b) {
    uint16_t *buffer;
    void *idle;
    DO(conf_stream(b, &idle));
    DO(enqueue_behind(b, &buffer, 200));
    OK(b, sc_test(CALL(b), idle));
    OK(b, sc_sync(CALL(b), idle, SC_SYNC_LOCAL, 0));
    IS(b, sc_test(CALL(b), b->stream), SC_INPROGRESS);
    return conf_sync(b);
}

// Nobody agrees with the last op of a rank until the others have submitted it.
static bool agreed_later(struct bench *b) {
    uint16_t *buffer;
    DO(conf_buffer(b, 64, &buffer));
    DO(conf_meet(b));
    if (b->rank == 0) {
        OK(b, sc_all_reduce(CALL(b), buffer, 0, SC_BF16, b->stream)); // it is complete at once
        OK(b, sc_sync(CALL(b), b->stream, SC_SYNC_LOCAL, conf_limit(b)));
        IS(b, sc_sync(CALL(b), b->stream, SC_SYNC_AGREED, conf_ms(b, 80)), SC_TIMEOUT);
    }
    DO(conf_meet(b));
    if (b->rank != 0)
        OK(b, sc_all_reduce(CALL(b), buffer, 0, SC_BF16, b->stream));
    return conf_sync(b);
}

static bool interrupted(struct bench *b) {
    uint16_t *buffer;
    DO(enqueue_behind(b, &buffer, 100));
    sc_interrupt(b->comm); // the next call that would wait
    IS(b, sc_sync(CALL(b), b->stream, SC_SYNC_LOCAL, conf_limit(b)), SC_INTERRUPTED);
    DO(conf_sync(b)); // it lives on
    return conf_works(b);
}

const struct conf_test conf_sync_tests[] = {
    {.name = "test_and_sync_tell_when_an_op_is_complete", .run = early_and_late, .ranks_min = 2},
    {.name = "sync_waits_for_its_own_stream_only", .run = another_stream, .ranks_min = 2},
    {.name = "agreed_sync_waits_for_the_rank_that_is_behind", .run = agreed_later, .ranks_min = 2},
    {.name = "interrupt_ends_one_wait", .run = interrupted, .ranks_min = 2},
    {0},
};
