// SPDX-License-Identifier: AGPL-3.0-only
//
// What a conformance test stands on: one rank of a world, its GPU, and a few words with the other
// ranks. Each world implements it once, so that a test is written once and run against all of them:
//
//   world_sim.c    simulated ranks, each a thread, under the virtual or the real clock
//   world_seam.c   the simulator's own device tables, without a library above them
//   world_cuda.c   real GPUs, one process a rank
//
// Every call answers SC_OK or why not; SC_SIM_KILLED: this rank's process is dead, return at once.
// Memory and streams that a test leaves are freed after it.
#ifndef SC_CONFORMANCE_WORLD_H
#define SC_CONFORMANCE_WORLD_H

#include "hal/choose.h"

#define CONF_RANKS_MAX 8u
#define CONF_WORDS 24u // of 64 bits, that ranks tell each other at a time
#define CONF_WHY_BYTES 400u
#define CONF_MS UINT64_C(1000000)
#define CONF_SECOND UINT64_C(1000000000)

struct bench;

// What becomes of a rank's process once `at_rank` has set `mark`.
enum conf_act {
    CONF_NOTHING,
    CONF_KILL,   // SIGKILL; a new process of the rank after `lasts_ns`, 0: none
    CONF_FREEZE, // SIGSTOP, for `lasts_ns`
};
struct conf_strike {
    enum conf_act act;
    uint32_t victim, at_rank;
    uint64_t mark, lasts_ns;
};

// What a test is, or needs.
#define CONF_OWN 1u     // it opens its own handle, or none; others find one open and READY
#define CONF_SEAM 2u    // it is about the device's table
#define CONF_THREADS 4u // more than one thread a rank
#define CONF_CUDA 8u    // it says something of real GPUs only
#define CONF_MISUSE 16u // it makes calls in breach of the seam's contract, on purpose
#define CONF_LONG 32u   // it takes minutes by a real clock: up to CONF_LONG_S beside the usual time
#define CONF_LONG_S 360u

struct conf_test {
    const char *name; // NULL ends a list
    bool (*run)(struct bench *b);
    uint32_t flags;
    uint32_t ranks_min, ranks_max; // 0: any
    struct conf_strike strike;
};

// What a thread's current context may be, where there are contexts.
enum conf_context {
    CONF_CONTEXT_NONE,
    CONF_CONTEXT_RANK,  // the primary one of the rank's GPU, which the bench itself needs
    CONF_CONTEXT_OTHER, // another one of that GPU
};

struct conf_world {
    const char *name;
    uint64_t (*now_ns)(struct bench *b);
    sc_status (*pause)(struct bench *b, uint64_t duration_ns);
    // Waits for every rank, and gives each what all of them brought, by rank. SC_STATE: some rank's
    // test has failed, and it will not come.
    sc_status (*gather)(struct bench *b, const uint64_t mine[CONF_WORDS],
                        uint64_t all[][CONF_WORDS]);
    // The end of a test on this rank. SC_OK: it is well on every rank, and the next may begin.
    sc_status (*verdict)(struct bench *b, bool well);
    // `mark` was accepted: what is to strike then strikes before this returns, or soon after.
    sc_status (*marked)(struct bench *b, uint64_t mark);
    // This thread works for the rank from now on.
    sc_status (*attach)(struct bench *b);

    // What a handle is opened with: rank, world, address and device.
    void (*config)(struct bench *b, struct sc_config *config);
    // The tables of this rank, and their end. For CONF_SEAM.
    sc_status (*tables)(struct bench *b, struct sc_world *out);

    // ---- the GPU ----
    sc_status (*alloc)(struct bench *b, uint64_t bytes, void **buffer);
    sc_status (*free)(struct bench *b, void *buffer);
    // Copies, done when they return, beside whatever the streams do.
    sc_status (*put)(struct bench *b, void *device, const void *host, uint64_t bytes);
    sc_status (*get)(struct bench *b, void *host, const void *device, uint64_t bytes);
    sc_status (*stream_create)(struct bench *b, void **stream);
    sc_status (*stream_destroy)(struct bench *b, void *stream);
    // Until everything on it has run: SC_OK, SC_TIMEOUT.
    sc_status (*stream_wait)(struct bench *b, void *stream, uint64_t timeout_ns);
    // A kernel that takes so long and then stores `value` at `word`, if that is not NULL.
    sc_status (*compute)(struct bench *b, void *stream, uint64_t duration_ns, uint16_t *word,
                         uint16_t value);

    // ---- the application's own part of a capture ----
    sc_status (*capture_begin)(struct bench *b, void *stream);
    sc_status (*capture_end)(struct bench *b, void *stream, void **graph);
    // Launches `graph`, which belongs to the capture.
    sc_status (*graph_launch)(struct bench *b, void *graph, sc_capture capture, void *stream);
    sc_status (*graph_destroy)(struct bench *b, void *graph);

    // ---- of real GPUs only ----
    sc_status (*context_set)(struct bench *b, enum conf_context context);
    bool (*context_is)(struct bench *b, enum conf_context context);
    // How many other GPUs this process has a primary context on.
    uint32_t (*contexts_elsewhere)(struct bench *b);
};

#define CONF_TAKEN_MAX 64u

struct bench {
    const struct conf_world *w;
    void *own; // the world's
    uint32_t rank, ranks;
    uint32_t life;  // from 1: which process of this rank it is
    uint32_t scale; // how many times longer than usual everything may take
    bool dead;      // simulated: its process was killed
    char why[CONF_WHY_BYTES];

    // Of tests of the public calls:
    sc_comm comm; // 0: none is open
    uint64_t epoch;
    struct sc_recovery recovery;
    void *stream;

    // Of tests of the device's table:
    struct sc_world tables;
    const struct sc_device *raw; // as it is
    const struct sc_device
        *d; // behind hal/hal_check.h: whatever breaks the contract fails the test

    // What the test has taken and not given back.
    void *buffers[CONF_TAKEN_MAX], *streams[CONF_TAKEN_MAX];
    uint32_t buffers_count, streams_count;
};

// ---- running -----------------------------------------------------------------------------------

struct conf_options {
    uint32_t ranks;
    uint32_t scale;
    bool real_clock; // of a simulated world
    int32_t device;  // the one GPU of all ranks; -1: each has its own
};

struct conf_result {
    bool ran, well;
    char why[CONF_WHY_BYTES];
};

// One rank through some tests, in its thread or process; stops after the first that is not well on
// every rank. session.c.
void conf_live(struct bench *b, const struct conf_test *const *tests, uint32_t count);

// Each world runs tests[0], and as many of the following as it can in one go, and says of how many
// there is a result. `results` is zeroed.
uint32_t conf_sim_run(const struct conf_options *options, const struct conf_test *const *tests,
                      uint32_t count, struct conf_result *results);
uint32_t conf_seam_run(const struct conf_options *options, const struct conf_test *const *tests,
                       uint32_t count, struct conf_result *results);
uint32_t conf_cuda_run(const struct conf_options *options, const struct conf_test *const *tests,
                       uint32_t count, struct conf_result *results);
// In the process of a rank, that conf_cuda_run has started so: runs the tests, and ends the process.
_Noreturn void conf_cuda_live(const struct conf_options *options, const char *live,
                              const struct conf_test *const *tests, uint32_t count);
// GPUs of this machine that a program may use, 0 when there is none or no driver.
uint32_t conf_cuda_count(void);

// How much longer than usual the test may take, whatever the scale.
static inline uint32_t conf_extra_s(const struct conf_test *test) {
    return (test->flags & CONF_LONG) != 0 ? CONF_LONG_S : 0;
}

// Whether a rank will not be there at the end of the test: it was killed for good.
static inline bool conf_leaves(const struct conf_test *test, uint32_t rank) {
    return test->strike.act == CONF_KILL && test->strike.lasts_ns == 0 &&
           test->strike.victim == rank;
}

#endif
