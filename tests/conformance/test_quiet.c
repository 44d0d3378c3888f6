// SPDX-License-Identifier: AGPL-3.0-only
//
// No false alarm: a healthy pair never leaves READY, whatever its application is slow at. Every limit
// is the one that an application gets which sets none. The minutes are as long as they say, whatever
// the scale; only how long a call may take is scaled.
#include "tests/conformance/conf.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define COUNT 2048u // 4 KiB
#define OPS 2u      // of a step
#define STEP_NS (250 * CONF_MS)
#define TRAFFIC_STEPS 1200u // five minutes
#define OP_LIMIT_NS (30 * CONF_SECOND)
#define KERNEL_NS (40 * CONF_SECOND)
#define IDLE_NS (120 * CONF_SECOND)
#define CAPTURE_STEPS 80u // twenty seconds
#define CAPTURE_NS (50 * CONF_MS)
#define LONG_CAPTURE_NS (3 * CONF_SECOND) // longer than a link may be silent
#define LONG_EVERY 16u                    // capture
#define LOOK_EVERY 16u                    // step
#define GAP_NS (10 * CONF_MS)             // between captures

#define CALL(b) (b)->comm, (b)->epoch

static bool begin(struct bench *b) {
    struct sc_config config;
    sc_config_init(&config, sizeof config);
    b->w->config(b, &config);
    config.capacity_bytes = CONF_CAPACITY;
    EQUAL(b, config.timing.op_ns, OP_LIMIT_NS);
    OK(b, sc_open(&config, &b->comm));
    return conf_renew(b);
}

// The first epoch still lives, and every op that was submitted in it has been counted and is done.
static bool undisturbed(struct bench *b, uint64_t ops) {
    struct sc_health_report health;
    OK(b, b->w->pause(b, STEP_NS)); // the picture is at most a heartbeat old
    DO(conf_health(b, &health));
    EQUAL(b, health.state, SC_STATE_READY);
    EQUAL(b, health.epoch, b->epoch);
    EQUAL(b, health.recoveries, 0);
    EQUAL(b, health.submitted, ops);
    EQUAL(b, health.completed, ops);
    EQUAL(b, *sc_live_epoch(b->comm), b->epoch);
    return true;
}

// Two sums behind each other: a one becomes the square of the number of ranks.
static bool add(struct bench *b, uint16_t *buffer, void *stream) {
    for (uint32_t i = 0; i < OPS; i++)
        OK(b, sc_all_reduce(CALL(b), buffer, COUNT * SC_BF16_BYTES, SC_BF16, stream));
    return true;
}

static uint16_t sum_of_ones(const struct bench *b) {
    return conf_whole(b->ranks * b->ranks);
}

static bool await_sums(struct bench *b, void *stream) {
    OK(b, sc_sync(CALL(b), stream, SC_SYNC_AGREED, KERNEL_NS + conf_limit(b)));
    return true;
}

// ---- traffic, and a kernel on one rank that is longer than an op may take ----------------------

static bool step(struct bench *b, uint16_t *buffer) {
    OK(b, b->w->pause(b, STEP_NS));
    DO(conf_fill(b, buffer, COUNT, conf_whole(1)));
    DO(add(b, buffer, b->stream));
    DO(await_sums(b, b->stream));
    return conf_holds(b, buffer, COUNT, sum_of_ones(b));
}

static bool step_behind_long_compute(struct bench *b, uint16_t *buffer) {
    uint64_t begun_ns = b->w->now_ns(b);
    if (b->rank == 1)
        OK(b, b->w->compute(b, b->stream, KERNEL_NS, NULL, 0));
    DO(step(b, buffer));
    TRUE(b, b->w->now_ns(b) - begun_ns > OP_LIMIT_NS + STEP_NS);
    return true;
}

static bool traffic(struct bench *b) {
    uint16_t *buffer;
    DO(begin(b));
    DO(conf_buffer(b, COUNT, &buffer));
    for (uint32_t i = 0; i < TRAFFIC_STEPS; i++)
        DO(i == TRAFFIC_STEPS / 2 ? step_behind_long_compute(b, buffer) : step(b, buffer));
    return undisturbed(b, OPS * TRAFFIC_STEPS);
}

// ---- nothing to do -----------------------------------------------------------------------------

static bool idleness(struct bench *b) {
    static const char word[] = "go on";
    char heard[sizeof word] = "";
    uint32_t bytes = sizeof word;
    DO(begin(b));
    DO(conf_works(b)); // there was work, and now there is none
    DO(conf_meet(b));
    if (b->rank == 0) {
        OK(b, b->w->pause(b, IDLE_NS));
        OK(b, sc_command_send(CALL(b), word, sizeof word, conf_limit(b)));
    } else {
        OK(b, sc_command_recv(CALL(b), heard, sizeof heard, &bytes, IDLE_NS + conf_limit(b)));
        TRUE(b, memcmp(heard, word, sizeof word) == 0);
    }
    EQUAL(b, bytes, sizeof word);
    DO(undisturbed(b, 1));
    DO(conf_works(b));
    return undisturbed(b, 2);
}

// ---- captures of another thread's --------------------------------------------------------------

// In the mode that forbids the most, no thread of the process may copy while one captures: whoever
// does either holds the lock. The library's calls need none.
struct capturer {
    struct bench *b;
    uint16_t *buffer;
    void *stream, *graph;
    sc_capture capture;
    pthread_mutex_t lock;
    atomic_bool capturing, over;
    bool well;
};

static bool record(struct capturer *t, uint64_t duration_ns) {
    struct bench *b = t->b;
    OK(b, b->w->capture_begin(b, t->stream));
    OK(b, sc_capture_begin(CALL(b), t->stream, &t->capture));
    DO(add(b, t->buffer, t->stream));
    atomic_store(&t->capturing, true);
    OK(b, b->w->pause(b, duration_ns));
    atomic_store(&t->capturing, false);
    OK(b, sc_capture_end(b->comm, t->capture));
    OK(b, b->w->capture_end(b, t->stream, &t->graph));
    return true;
}

static bool release(struct capturer *t) {
    OK(t->b, t->b->w->graph_destroy(t->b, t->graph));
    OK(t->b, sc_capture_release(t->b->comm, t->capture));
    return true;
}

// The last capture is left for a replay.
static bool capture_again_and_again(struct capturer *t) {
    OK(t->b, t->b->w->attach(t->b));
    for (uint32_t i = 1;; i++) {
        pthread_mutex_lock(&t->lock);
        bool well = record(t, i % LONG_EVERY == 0 ? LONG_CAPTURE_NS : CAPTURE_NS);
        pthread_mutex_unlock(&t->lock);
        if (!well || atomic_load(&t->over))
            return well;
        DO(release(t));
        OK(t->b, t->b->w->pause(t->b, GAP_NS));
    }
}

static void *run_capturer(void *arg) {
    struct capturer *t = arg;
    t->well = capture_again_and_again(t);
    return NULL;
}

static bool holds_sum(struct capturer *t, const uint16_t *buffer) {
    pthread_mutex_lock(&t->lock);
    bool well = conf_holds(t->b, buffer, 1, sum_of_ones(t->b)) &&
                conf_holds(t->b, buffer + 1, COUNT - 1, 0);
    pthread_mutex_unlock(&t->lock);
    return well;
}

// A kernel makes the first element a one again. The others are zero, and stay so.
static bool work_beside(struct capturer *t, uint16_t *buffer) {
    struct bench *b = t->b;
    uint32_t beside = 0;
    for (uint32_t i = 1; i <= CAPTURE_STEPS; i++) {
        OK(b, b->w->pause(b, STEP_NS));
        beside += atomic_load(&t->capturing);
        OK(b, b->w->compute(b, b->stream, 0, buffer, conf_whole(1)));
        DO(add(b, buffer, b->stream));
        DO(await_sums(b, b->stream));
        if (i % LOOK_EVERY == 0)
            DO(holds_sum(t, buffer));
    }
    TRUE(b, beside > 0);
    return true;
}

static bool replay(struct capturer *t) {
    struct bench *b = t->b;
    DO(conf_fill(b, t->buffer, COUNT, conf_whole(1)));
    OK(b, sc_replay_begin(CALL(b), t->capture, t->stream));
    OK(b, b->w->graph_launch(b, t->graph, t->capture, t->stream));
    OK(b, sc_replay_end(b->comm));
    DO(await_sums(b, t->stream));
    return conf_holds(b, t->buffer, COUNT, sum_of_ones(b));
}

static bool captures(struct bench *b) {
    struct capturer t = {.b = b, .lock = PTHREAD_MUTEX_INITIALIZER};
    uint16_t *buffer;
    pthread_t thread;
    DO(begin(b));
    DO(conf_buffer(b, COUNT, &t.buffer));
    DO(conf_buffer(b, COUNT, &buffer));
    DO(conf_fill(b, buffer, COUNT, 0));
    DO(conf_stream(b, &t.stream));
    OK(b, b->w->compute(b, b->stream, 0, buffer, 0)); // the kernel is loaded while it may be
    OK(b, b->w->stream_wait(b, b->stream, conf_limit(b)));
    TRUE(b, pthread_create(&thread, NULL, run_capturer, &t) == 0);
    bool well = work_beside(&t, buffer);
    atomic_store(&t.over, true);
    (void)pthread_join(thread, NULL);
    DO(well && t.well);
    DO(replay(&t));
    DO(release(&t));
    return undisturbed(b, OPS * (CAPTURE_STEPS + 1));
}

const struct conf_test conf_quiet[] = {
    {.name = "five_minutes_of_traffic_behind_long_compute_disturb_nobody",
     .run = traffic,
     .flags = CONF_OWN | CONF_LONG,
     .ranks_min = 2},
    {.name = "two_minutes_in_command_recv_disturb_nobody",
     .run = idleness,
     .flags = CONF_OWN | CONF_LONG,
     .ranks_min = 2},
    {.name = "captures_on_another_thread_disturb_nobody",
     .run = captures,
     .flags = CONF_OWN | CONF_LONG | CONF_THREADS,
     .ranks_min = 2},
    {0},
};
