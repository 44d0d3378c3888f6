// SPDX-License-Identifier: AGPL-3.0-only
//
// Captured ops: replayed as they are, announced, bound to their epoch, and in nobody's way.
#include "tests/conformance/conf.h"

#include <pthread.h>
#include <stdatomic.h>

#define COUNT 1000u
#define OPS 2u // in each capture

struct graph {
    sc_capture capture;
    void *graph;
};

static bool record(struct bench *b, uint16_t *one, uint16_t *other, struct graph *made) {
    OK(b, b->w->capture_begin(b, b->stream));
    OK(b, sc_capture_begin(b->comm, b->epoch, b->stream, &made->capture));
    OK(b, sc_all_reduce(b->comm, b->epoch, one, COUNT * SC_BF16_BYTES, SC_BF16, b->stream));
    OK(b, sc_all_reduce(b->comm, b->epoch, other, SC_BF16_BYTES, SC_BF16, b->stream));
    OK(b, sc_capture_end(b->comm, made->capture));
    OK(b, b->w->capture_end(b, b->stream, &made->graph));
    return true;
}

static bool replay(struct bench *b, const struct graph *graph, uint32_t times) {
    for (uint32_t i = 0; i < times; i++) {
        OK(b, sc_replay_begin(b->comm, b->epoch, graph->capture, b->stream));
        OK(b, b->w->graph_launch(b, graph->graph, graph->capture, b->stream));
        OK(b, sc_replay_end(b->comm));
    }
    return conf_sync(b);
}

static bool release(struct bench *b, const struct graph *graph) {
    OK(b, b->w->graph_destroy(b, graph->graph));
    OK(b, sc_capture_release(b->comm, graph->capture));
    return true;
}

static bool make_buffers(struct bench *b, uint16_t **one, uint16_t **other) {
    DO(conf_buffer(b, COUNT, one));
    DO(conf_buffer(b, 1, other));
    DO(conf_fill(b, *one, COUNT, conf_whole(1)));
    return conf_fill(b, *other, 1, conf_whole(1));
}

// Each replay sums what the one before left, so that none can be missed.
static bool once_twice_a_hundred_times(struct bench *b) {
    static const uint32_t times[] = {1, 2, 97};
    struct sc_health_report health;
    struct graph graph;
    uint16_t *one, *other;
    float sum = 1;
    DO(make_buffers(b, &one, &other));
    OK(b, b->w->pause(b, conf_ms(b, 60)));
    DO(conf_health(b, &health));
    uint64_t before = health.submitted, replays = 0;
    DO(record(b, one, other, &graph));
    DO(conf_holds(b, one, COUNT, conf_whole(1)));
    for (uint32_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        DO(replay(b, &graph, times[i]));
        for (uint32_t k = 0; k < times[i]; k++)
            sum *= (float)b->ranks;
        replays += times[i];
        DO(conf_holds(b, one, COUNT, sc_bf16_from_float(sum)));
        DO(conf_holds(b, other, 1, sc_bf16_from_float(sum)));
    }
    OK(b, b->w->pause(b, conf_ms(b, 60)));
    DO(conf_health(b, &health));
    EQUAL(b, health.submitted - before, replays * OPS);
    EQUAL(b, health.completed, health.submitted);
    DO(release(b, &graph));
    return conf_works(b);
}

static bool refusals(struct bench *b) {
    struct graph graph;
    sc_capture second;
    uint16_t *one, *other;
    sc_comm c = b->comm;
    uint64_t e = b->epoch;
    DO(make_buffers(b, &one, &other));
    IS(b, sc_replay_end(c), SC_INVALID);
    IS(b, sc_capture_begin(c, e, b->stream, NULL), SC_INVALID);
    IS(b, sc_capture_begin(c, e + 1, b->stream, &second), SC_EPOCH_LOST);
    OK(b, b->w->capture_begin(b, b->stream));
    OK(b, sc_capture_begin(c, e, b->stream, &graph.capture));
    IS(b, sc_capture_begin(c, e, b->stream, &second), SC_CAPTURE);
    IS(b, sc_replay_begin(c, e, graph.capture, b->stream), SC_INVALID);
    IS(b, sc_capture_release(c, graph.capture), SC_INVALID);
    IS(b, sc_all_reduce(c, e, one, 3, SC_BF16, b->stream), SC_INVALID);
    OK(b, sc_all_reduce(c, e, one, COUNT * SC_BF16_BYTES, SC_BF16, b->stream));
    OK(b, sc_capture_end(c, graph.capture));
    IS(b, sc_capture_end(c, graph.capture), SC_INVALID);
    OK(b, b->w->capture_end(b, b->stream, &graph.graph));
    IS(b, sc_replay_begin(c, e + 1, graph.capture, b->stream), SC_EPOCH_LOST);
    IS(b, sc_replay_begin(c, e, graph.capture + 1000, b->stream), SC_INVALID);
    DO(replay(b, &graph, 1));
    DO(conf_holds(b, one, COUNT, conf_whole(b->ranks)));
    DO(release(b, &graph));
    IS(b, sc_capture_release(c, graph.capture), SC_INVALID);
    return true;
}

// The application captures its stream and has not said so.
static bool unannounced(struct bench *b) {
    uint16_t *one, *other;
    uint64_t before = b->epoch;
    void *graph;
    DO(make_buffers(b, &one, &other));
    OK(b, b->w->capture_begin(b, b->stream));
    sc_status status =
        sc_all_reduce(b->comm, b->epoch, one, COUNT * SC_BF16_BYTES, SC_BF16, b->stream);
    OK(b, b->w->capture_end(b, b->stream, &graph));
    OK(b, b->w->graph_destroy(b, graph));
    EQUAL(b, status, SC_CAPTURE);
    EQUAL(b, *sc_live_epoch(b->comm), before);
    DO(conf_holds(b, one, COUNT, conf_whole(1)));
    return conf_works(b);
}

// Captures that recovery waits for.
static bool await_held(struct bench *b, uint64_t captures) {
    uint64_t end_ns = b->w->now_ns(b) + conf_limit(b);
    struct sc_health_report health;
    for (;;) {
        DO(conf_health(b, &health));
        if (health.state == SC_STATE_ABORTING && health.captures == captures)
            return true;
        TRUE(b, health.state != SC_STATE_RENDEZVOUS && health.state != SC_STATE_FAILED);
        TRUE(b, b->w->now_ns(b) < end_ns);
        OK(b, b->w->pause(b, CONF_MS));
    }
}

static bool recovery_waits(struct bench *b) {
    struct graph graph;
    uint16_t *one, *other;
    uint64_t before = b->epoch;
    DO(make_buffers(b, &one, &other));
    DO(record(b, one, other, &graph));
    DO(replay(b, &graph, 3));
    DO(conf_meet(b));
    OK(b, sc_reconnect(b->comm, b->epoch, 5));
    IS(b, sc_replay_begin(b->comm, before, graph.capture, b->stream), SC_EPOCH_LOST);
    DO(await_held(b, 1));
    IS(b, sc_wait_ready(b->comm, conf_ms(b, 1500), &b->recovery), SC_TIMEOUT);
    DO(await_held(b, 1));
    DO(conf_meet(b));
    DO(release(b, &graph));
    DO(conf_renew(b));
    TRUE(b, b->epoch > before);
    DO(conf_works(b));
    DO(make_buffers(b, &one, &other));
    DO(record(b, one, other, &graph));
    DO(replay(b, &graph, 1));
    DO(conf_holds(b, one, COUNT, conf_whole(b->ranks)));
    return release(b, &graph);
}

// The application says that its graph is destroyed when it is not.
static bool graph_left(struct bench *b) {
    struct graph graph;
    uint16_t *one, *other;
    DO(make_buffers(b, &one, &other));
    DO(record(b, one, other, &graph));
    DO(replay(b, &graph, 1));
    DO(conf_meet(b));
    OK(b, sc_capture_release(b->comm, graph.capture));
    OK(b, sc_reconnect(b->comm, b->epoch, 6));
    IS(b, sc_wait_ready(b->comm, conf_ms(b, 1000), &b->recovery), SC_TIMEOUT);
    DO(await_held(b, 1));
    DO(conf_meet(b));
    OK(b, b->w->graph_destroy(b, graph.graph));
    DO(conf_renew(b));
    return conf_works(b);
}

// ---- a capture of another thread's -------------------------------------------------------------

struct other_thread {
    struct bench *b;
    struct graph graph;
    uint16_t *one, *other;
    atomic_int step; // 1: it captures; 2: it may end
    bool well;
};

static bool capture_meanwhile(struct other_thread *t) {
    struct bench *b = t->b;
    OK(b, b->w->attach(b));
    OK(b, b->w->capture_begin(b, b->stream));
    OK(b, sc_capture_begin(b->comm, b->epoch, b->stream, &t->graph.capture));
    atomic_store(&t->step, 1);
    while (atomic_load(&t->step) != 2)
        OK(b, b->w->pause(b, CONF_MS));
    OK(b, sc_all_reduce(b->comm, b->epoch, t->one, COUNT * SC_BF16_BYTES, SC_BF16, b->stream));
    OK(b, sc_all_reduce(b->comm, b->epoch, t->other, SC_BF16_BYTES, SC_BF16, b->stream));
    OK(b, sc_capture_end(b->comm, t->graph.capture));
    OK(b, b->w->capture_end(b, b->stream, &t->graph.graph));
    return true;
}

static void *run_other(void *arg) {
    struct other_thread *t = arg;
    t->well = capture_meanwhile(t);
    atomic_store(&t->step, 3);
    return NULL;
}

static bool work_beside(struct bench *b, struct other_thread *t, uint16_t *buffer, void *stream) {
    while (atomic_load(&t->step) == 0)
        OK(b, b->w->pause(b, CONF_MS));
    for (uint32_t i = 0; i < 20 && atomic_load(&t->step) == 1; i++) {
        OK(b, sc_all_reduce(b->comm, b->epoch, buffer, COUNT * SC_BF16_BYTES, SC_BF16, stream));
        OK(b, sc_sync(b->comm, b->epoch, stream, SC_SYNC_AGREED, conf_limit(b)));
    }
    return true;
}

static bool beside_other_thread(struct bench *b) {
    struct other_thread t = {.b = b};
    uint16_t *buffer;
    void *stream;
    pthread_t thread;
    DO(make_buffers(b, &t.one, &t.other));
    DO(conf_buffer(b, COUNT, &buffer));
    DO(conf_fill(b, buffer, COUNT, 0));
    DO(conf_stream(b, &stream));
    TRUE(b, pthread_create(&thread, NULL, run_other, &t) == 0);
    bool well = work_beside(b, &t, buffer, stream);
    if (atomic_load(&t.step) != 3)
        atomic_store(&t.step, 2);
    (void)pthread_join(thread, NULL);
    DO(well && t.well);
    DO(replay(b, &t.graph, 2));
    DO(conf_holds(b, t.one, COUNT, conf_whole(b->ranks * b->ranks)));
    return release(b, &t.graph);
}

const struct conf_test conf_captures[] = {
    {.name = "captured_ops_replay_once_twice_and_a_hundred_times",
     .run = once_twice_a_hundred_times,
     .ranks_min = 2,
     .ranks_max = 2},
    {.name = "wrong_captures_and_replays_are_refused", .run = refusals, .ranks_min = 2},
    {.name = "op_in_a_capture_that_was_not_announced_is_refused",
     .run = unannounced,
     .flags = CONF_CUDA,
     .ranks_min = 2},
    {.name = "recovery_waits_for_captures_and_goes_on", .run = recovery_waits, .ranks_min = 2},
    {.name = "graph_that_outlives_its_release_holds_the_recovery",
     .run = graph_left,
     .flags = CONF_CUDA,
     .ranks_min = 2},
    {.name = "capture_of_another_thread_survives_traffic",
     .run = beside_other_thread,
     .flags = CONF_THREADS,
     .ranks_min = 2},
    {0},
};
