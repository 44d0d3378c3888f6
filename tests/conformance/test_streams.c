// SPDX-License-Identifier: AGPL-3.0-only
//
// Streams of every kind: the caller's own, several at a time, and the ones that have no handle.
#include "tests/conformance/conf.h"

#define COUNT 70000u

static bool reduce_on(struct bench *b, void *stream, uint16_t *word) {
    DO(conf_fill(b, word, COUNT, conf_whole(3)));
    OK(b, b->w->compute(b, stream, 5 * CONF_MS, word, conf_whole(5)));
    OK(b, sc_all_reduce(b->comm, b->epoch, word, COUNT * SC_BF16_BYTES, SC_BF16, stream));
    OK(b, sc_sync(b->comm, b->epoch, stream, SC_SYNC_AGREED, conf_limit(b)));
    DO(conf_holds(b, word, 1, conf_whole(5 * b->ranks)));
    return conf_holds(b, word + 1, COUNT - 1, conf_whole(3 * b->ranks));
}

// NULL and 1 are the legacy default stream, 2 is the thread's own.
static bool without_a_handle(struct bench *b) {
    uint16_t *word;
    DO(conf_buffer(b, COUNT, &word));
    for (uintptr_t stream = 0; stream <= 2; stream++)
        DO(reduce_on(b, (void *)stream, word));
    return true;
}

static bool alternating(struct bench *b) {
    uint16_t *buffers[6];
    void *streams[2] = {b->stream, NULL};
    DO(conf_stream(b, &streams[1]));
    for (uint32_t i = 0; i < 6; i++) {
        DO(conf_buffer(b, COUNT, &buffers[i]));
        DO(conf_fill(b, buffers[i], COUNT, conf_whole(i)));
    }
    for (uint32_t i = 0; i < 6; i++)
        OK(b, sc_all_reduce(b->comm, b->epoch, buffers[i], COUNT * SC_BF16_BYTES, SC_BF16,
                            streams[i % 2]));
    DO(conf_sync(b));
    OK(b, sc_sync(b->comm, b->epoch, streams[1], SC_SYNC_LOCAL, conf_limit(b)));
    for (uint32_t i = 0; i < 6; i++)
        DO(conf_holds(b, buffers[i], COUNT, conf_whole(i * b->ranks)));
    return true;
}

const struct conf_test conf_streams[] = {
    {.name = "streams_without_a_handle_are_served",
     .run = without_a_handle,
     .flags = CONF_CUDA,
     .ranks_min = 2},
    {.name = "ops_on_two_streams_do_not_disturb_each_other", .run = alternating},
    {0},
};
