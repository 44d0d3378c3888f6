// SPDX-License-Identifier: AGPL-3.0-only
//
// The simulator's own device tables, for the tests of the seam: nothing stands between them and the
// test. The simulator is of one thread; here each rank has one, of which one is awake at a time, and
// time passes only while all of them pause.
#include "tests/conformance/world.h"

#include "hal_sim/sc_sim.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_NS (CONF_MS / 5)
#define NOBODY UINT32_MAX

struct write {
    struct write *next;
    struct sc_sim_process *process;
    uint16_t *word;
    uint16_t value;
};

struct run;

struct seat {
    struct bench bench;
    struct run *run;
    struct sc_sim_process *process;
    pthread_t thread;
    uint64_t wake_ns;
    bool ended, told;
    uint64_t words[2][CONF_WORDS];
    uint64_t round;
};

struct run {
    const struct conf_test *test;
    struct conf_result *result;
    struct sc_sim *sim;
    uint32_t ranks;
    struct seat seats[CONF_RANKS_MAX];
    struct write *writes;
    uint32_t violations;

    pthread_mutex_t lock; // of whose turn it is; all else is the holder's
    pthread_cond_t turn;
    uint32_t holder;
};

static struct seat *seat_of(struct bench *b) {
    return b->own;
}

// ---- whose turn it is --------------------------------------------------------------------------

static void pass(struct run *run) {
    uint32_t next = NOBODY;
    for (uint32_t r = 0; r < run->ranks; r++)
        if (!run->seats[r].ended &&
            (next == NOBODY || run->seats[r].wake_ns < run->seats[next].wake_ns))
            next = r;
    if (next != NOBODY)
        while (sc_sim_step(run->sim, run->seats[next].wake_ns)) {
        }
    pthread_mutex_lock(&run->lock);
    run->holder = next;
    pthread_cond_broadcast(&run->turn);
    pthread_mutex_unlock(&run->lock);
}

static void await_turn(struct run *run, uint32_t rank) {
    pthread_mutex_lock(&run->lock);
    while (run->holder != rank)
        pthread_cond_wait(&run->turn, &run->lock);
    pthread_mutex_unlock(&run->lock);
}

static uint64_t now_ns(struct bench *b) {
    return sc_sim_now_ns(seat_of(b)->run->sim);
}

static sc_status pause_for(struct bench *b, uint64_t duration_ns) {
    struct seat *seat = seat_of(b);
    seat->wake_ns = now_ns(b) + duration_ns + !duration_ns;
    pass(seat->run);
    await_turn(seat->run, b->rank);
    return SC_OK;
}

// ---- the other ranks ---------------------------------------------------------------------------

static bool has_failed(const struct run *run) {
    return run->result->ran && !run->result->well;
}

static sc_status gather(struct bench *b, const uint64_t mine[CONF_WORDS],
                        uint64_t all[][CONF_WORDS]) {
    struct seat *seat = seat_of(b);
    struct run *run = seat->run;
    uint64_t round = ++seat->round;
    memcpy(seat->words[round % 2], mine, sizeof seat->words[0]);
    for (uint32_t r = 0; r < run->ranks;) {
        if (run->seats[r].round >= round)
            r++;
        else if (has_failed(run))
            return SC_STATE;
        else
            (void)pause_for(b, LOOK_NS);
    }
    for (uint32_t r = 0; r < run->ranks; r++)
        memcpy(all[r], run->seats[r].words[round % 2], sizeof all[r]);
    return SC_OK;
}

static sc_status verdict(struct bench *b, bool well) {
    struct seat *seat = seat_of(b);
    struct run *run = seat->run;
    seat->told = true;
    if (!run->result->ran || (run->result->well && !well)) {
        *run->result = (struct conf_result){.ran = true, .well = well};
        snprintf(run->result->why, sizeof run->result->why, "%s", b->why);
    }
    for (uint32_t r = 0; r < run->ranks;) {
        if (run->seats[r].told)
            r++;
        else
            (void)pause_for(b, LOOK_NS);
    }
    return has_failed(run) ? SC_STATE : SC_OK;
}

static void on_wake(void *arg) {
    (void)arg; // whoever waits for the device pauses and looks
}

static sc_status tables(struct bench *b, struct sc_world *out) {
    struct sc_sim_process *process = seat_of(b)->process;
    *out = (struct sc_world){.host = sc_sim_host(process),
                             .link = sc_sim_link(process),
                             .device = sc_sim_device(process)};
    return SC_OK;
}

// ---- the GPU -----------------------------------------------------------------------------------

static uint64_t number_of(const void *pointer) {
    return (uint64_t)(uintptr_t)pointer;
}

static sc_status take(struct bench *b, uint64_t bytes, void **buffer) {
    const struct sc_device *device = sc_sim_device(seat_of(b)->process);
    uint64_t address = 0;
    sc_status status = device->mem_alloc(device->ctx, bytes, &address);
    *buffer = (void *)(uintptr_t)address;
    return status;
}

static sc_status give(struct bench *b, void *buffer) {
    return sc_sim_free(seat_of(b)->process, number_of(buffer));
}

static sc_status put(struct bench *b, void *device, const void *host, uint64_t bytes) {
    void *at = sc_sim_memory(seat_of(b)->process, number_of(device), bytes);
    if (at != NULL)
        memcpy(at, host, bytes);
    return at != NULL ? SC_OK : SC_INVALID;
}

static sc_status get(struct bench *b, void *host, const void *device, uint64_t bytes) {
    const void *at = sc_sim_memory(seat_of(b)->process, number_of(device), bytes);
    if (at != NULL)
        memcpy(host, at, bytes);
    return at != NULL ? SC_OK : SC_INVALID;
}

static sc_status stream_create(struct bench *b, void **stream) {
    const struct sc_device *device = sc_sim_device(seat_of(b)->process);
    uint64_t handle = 0;
    sc_status status = device->stream_create(device->ctx, &handle);
    *stream = (void *)(uintptr_t)handle;
    return status;
}

static sc_status stream_destroy(struct bench *b, void *stream) {
    const struct sc_device *device = sc_sim_device(seat_of(b)->process);
    return device->stream_destroy(device->ctx, number_of(stream));
}

static void store(void *arg) {
    const struct write *write = arg;
    uint16_t *at = sc_sim_memory(write->process, number_of(write->word), sizeof *at);
    if (at != NULL)
        *at = write->value;
}

static sc_status compute(struct bench *b, void *stream, uint64_t duration_ns, uint16_t *word,
                         uint16_t value) {
    struct seat *seat = seat_of(b);
    struct write *write = word != NULL ? malloc(sizeof *write) : NULL;
    if (word != NULL && write == NULL)
        return SC_NO_MEMORY;
    if (write != NULL) {
        *write = (struct write){seat->run->writes, seat->process, word, value};
        seat->run->writes = write;
    }
    return sc_sim_compute(seat->process, number_of(stream), duration_ns,
                          write != NULL ? store : NULL, write);
}

// Behind everything on the stream goes a kernel that stores.
static sc_status stream_wait(struct bench *b, void *stream, uint64_t timeout_ns) {
    void *word = NULL;
    uint16_t passed = 0;
    uint64_t end_ns = now_ns(b) + timeout_ns;
    sc_status status = take(b, sizeof passed, &word);
    if (status == SC_OK)
        status = put(b, word, &passed, sizeof passed);
    if (status == SC_OK)
        status = compute(b, stream, 0, word, 1);
    while (status == SC_OK && passed == 0) {
        status = get(b, &passed, word, sizeof passed);
        if (status == SC_OK && passed == 0)
            status = now_ns(b) < end_ns ? pause_for(b, LOOK_NS) : SC_TIMEOUT;
    }
    if (status == SC_OK)
        status = give(b, word);
    return status;
}

// ---- captures: the simulator's own -------------------------------------------------------------

static sc_status capture_begin(struct bench *b, void *stream) {
    (void)b, (void)stream;
    return SC_OK;
}

static sc_status capture_end(struct bench *b, void *stream, void **graph) {
    (void)stream;
    *graph = b;
    return SC_OK;
}

static sc_status graph_launch(struct bench *b, void *graph, sc_capture capture, void *stream) {
    (void)graph;
    return sc_sim_graph_launch(seat_of(b)->process, capture, number_of(stream));
}

static sc_status graph_destroy(struct bench *b, void *graph) {
    (void)b, (void)graph;
    return SC_OK;
}

static const struct conf_world world = {
    .name = "seam",
    .now_ns = now_ns,
    .pause = pause_for,
    .gather = gather,
    .verdict = verdict,
    .tables = tables,
    .alloc = take,
    .free = give,
    .put = put,
    .get = get,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_wait = stream_wait,
    .compute = compute,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .graph_launch = graph_launch,
    .graph_destroy = graph_destroy,
};

// ---- a run -------------------------------------------------------------------------------------

static void on_violation(void *arg, uint32_t rank, const char *text) {
    struct run *run = arg;
    if (run->violations++ == 0 && (run->test->flags & CONF_MISUSE) == 0 && !has_failed(run)) {
        *run->result = (struct conf_result){.ran = true};
        snprintf(run->result->why, sizeof run->result->why, "rank %u: %s", rank, text);
    }
}

static void *live(void *arg) {
    struct seat *seat = arg;
    struct run *run = seat->run;
    await_turn(run, seat->bench.rank);
    conf_live(&seat->bench, &run->test, 1);
    seat->ended = true;
    pass(run);
    return NULL;
}

static void start(struct run *run, uint32_t rank, uint32_t scale) {
    struct seat *seat = &run->seats[rank];
    seat->run = run;
    seat->bench = (struct bench){
        .w = &world, .own = seat, .rank = rank, .ranks = run->ranks, .life = 1, .scale = scale};
    if (sc_sim_spawn(run->sim, rank, on_wake, seat, &seat->process) != SC_OK ||
        pthread_create(&seat->thread, NULL, live, seat) != 0) {
        fprintf(stderr, "conformance: no memory for a simulated rank\n");
        exit(2);
    }
}

uint32_t conf_seam_run(const struct conf_options *options, const struct conf_test *const *tests,
                       uint32_t count, struct conf_result *results) {
    struct run *run = calloc(1, sizeof *run);
    struct sc_sim_config config;
    (void)count;
    sc_sim_config_init(&config, 1, options->ranks);
    config.on_violation = on_violation;
    config.arg = run;
    if (run == NULL || sc_sim_create(&config, &run->sim) != SC_OK) {
        fprintf(stderr, "conformance: no memory for a simulated world\n");
        exit(2);
    }
    run->test = tests[0];
    run->result = results;
    run->ranks = options->ranks;
    run->holder = NOBODY;
    pthread_mutex_init(&run->lock, NULL);
    pthread_cond_init(&run->turn, NULL);
    for (uint32_t r = 0; r < run->ranks; r++)
        start(run, r, options->scale);
    pass(run);
    for (uint32_t r = 0; r < run->ranks; r++)
        pthread_join(run->seats[r].thread, NULL);
    sc_sim_destroy(run->sim);
    while (run->writes != NULL) {
        struct write *next = run->writes->next;
        free(run->writes);
        run->writes = next;
    }
    pthread_cond_destroy(&run->turn);
    pthread_mutex_destroy(&run->lock);
    free(run);
    return 1;
}
