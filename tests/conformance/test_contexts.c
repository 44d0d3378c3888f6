// SPDX-License-Identifier: AGPL-3.0-only
//
// CUDA's contexts are the caller's: every call leaves the current one as it found it, and uses none
// but the one of the rank's GPU.
#include "tests/conformance/conf.h"

#define COUNT 100000u
#define BYTES (COUNT * SC_BF16_BYTES)

// The call answers OK, and the context is still `context`, which stands in the scope.
#define KEEPS(b, call)                                                                             \
    do {                                                                                           \
        OK(b, call);                                                                               \
        if (!(b)->w->context_is((b), context))                                                     \
            WRONG((b), "%s has changed the current context", #call);                               \
    } while (0)

static bool ops_keep(struct bench *b, enum conf_context context, uint16_t *one, uint16_t *all) {
    sc_comm c = b->comm;
    uint64_t e = b->epoch;
    void *stream = b->stream;
    sc_ticket ticket = 0;
    KEEPS(b, sc_all_reduce(c, e, one, 128, SC_BF16, stream));
    KEEPS(b, sc_all_reduce(c, e, one, BYTES, SC_BF16, stream));
    KEEPS(b, sc_all_reduce_start(c, e, one, BYTES, SC_BF16, stream, &ticket));
    KEEPS(b, sc_all_reduce_join(c, e, ticket, stream));
    KEEPS(b, sc_all_reduce_async(c, e, one, BYTES, SC_BF16, stream));
    KEEPS(b, sc_broadcast(c, e, one, BYTES, 0, stream));
    KEEPS(b, sc_all_gather(c, e, one, all, BYTES, stream));
    KEEPS(b, sc_reduce_scatter(c, e, all, one, BYTES, SC_BF16, stream));
    KEEPS(b, sc_group_begin(c, e));
    for (uint32_t r = 0; r < b->ranks; r++) {
        if (r == b->rank)
            continue;
        KEEPS(b, sc_send(c, e, one, BYTES, r, stream));
        KEEPS(b, sc_recv(c, e, all + r * COUNT, BYTES, r, stream));
    }
    KEEPS(b, sc_group_end(c));
    KEEPS(b, sc_sync(c, e, stream, SC_SYNC_AGREED, conf_limit(b)));
    KEEPS(b, sc_test(c, e, stream));
    return true;
}

static bool rest_keeps(struct bench *b, enum conf_context context, uint16_t *one) {
    sc_comm c = b->comm;
    struct sc_health_report health = {.size = sizeof health};
    void *memory;
    int fd;
    KEEPS(b, sc_mem_alloc(c, BYTES, &memory));
    KEEPS(b, sc_buffer_register(c, memory, BYTES));
    KEEPS(b, sc_buffer_register(c, one, BYTES));
    KEEPS(b, sc_buffer_deregister(c, one));
    KEEPS(b, sc_buffer_deregister(c, memory));
    KEEPS(b, sc_mem_free(c, memory));
    KEEPS(b, sc_barrier(c, b->epoch, conf_limit(b)));
    KEEPS(b, sc_mark(c, b->epoch, 1));
    KEEPS(b, sc_health(c, &health));
    KEEPS(b, sc_event_fd(c, &fd));
    KEEPS(b, sc_join(c));
    DO(conf_meet(b)); // the mark of every rank is of this epoch
    KEEPS(b, sc_reconnect(c, b->epoch, 1));
    DO(conf_renew(b));
    TRUE(b, b->w->context_is(b, context));
    return true;
}

// The graph is the application's, in the context of the rank.
static bool captures_keep(struct bench *b, enum conf_context context, uint16_t *one) {
    sc_capture capture;
    void *graph;
    OK(b, b->w->context_set(b, CONF_CONTEXT_RANK));
    OK(b, b->w->capture_begin(b, b->stream));
    OK(b, b->w->context_set(b, context));
    KEEPS(b, sc_capture_begin(b->comm, b->epoch, b->stream, &capture));
    KEEPS(b, sc_all_reduce(b->comm, b->epoch, one, BYTES, SC_BF16, b->stream));
    KEEPS(b, sc_capture_end(b->comm, capture));
    OK(b, b->w->context_set(b, CONF_CONTEXT_RANK));
    OK(b, b->w->capture_end(b, b->stream, &graph));
    OK(b, b->w->context_set(b, context));
    KEEPS(b, sc_replay_begin(b->comm, b->epoch, capture, b->stream));
    OK(b, b->w->context_set(b, CONF_CONTEXT_RANK));
    OK(b, b->w->graph_launch(b, graph, capture, b->stream));
    OK(b, b->w->context_set(b, context));
    KEEPS(b, sc_replay_end(b->comm));
    KEEPS(b, sc_sync(b->comm, b->epoch, b->stream, SC_SYNC_AGREED, conf_limit(b)));
    OK(b, b->w->context_set(b, CONF_CONTEXT_RANK));
    OK(b, b->w->graph_destroy(b, graph));
    OK(b, b->w->context_set(b, context));
    KEEPS(b, sc_capture_release(b->comm, capture));
    return true;
}

static bool everything_keeps(struct bench *b, enum conf_context context) {
    struct sc_config config;
    uint16_t *one, *all;
    DO(conf_buffer(b, COUNT, &one));
    DO(conf_buffer(b, COUNT * b->ranks, &all));
    conf_config(b, &config);
    OK(b, b->w->context_set(b, context));
    KEEPS(b, sc_open(&config, &b->comm));
    DO(conf_renew(b));
    DO(ops_keep(b, context, one, all));
    DO(captures_keep(b, context, one));
    DO(rest_keeps(b, context, one));
    DO(conf_meet(b));
    DO(conf_close(b, SC_CLOSE_FINAL));
    TRUE(b, b->w->context_is(b, context));
    OK(b, b->w->context_set(b, CONF_CONTEXT_RANK));
    return true;
}

static bool without_a_context(struct bench *b) {
    DO(everything_keeps(b, CONF_CONTEXT_NONE));
    EQUAL(b, b->w->contexts_elsewhere(b), 0);
    return true;
}

static bool with_another_context(struct bench *b) {
    return everything_keeps(b, CONF_CONTEXT_OTHER);
}

const struct conf_test conf_contexts[] = {
    {.name = "calls_without_a_context_set_none_and_use_no_other_gpu",
     .run = without_a_context,
     .flags = CONF_OWN | CONF_CUDA,
     .ranks_min = 2},
    {.name = "calls_in_another_context_leave_it_current",
     .run = with_another_context,
     .flags = CONF_OWN | CONF_CUDA,
     .ranks_min = 2},
    {0},
};
