// SPDX-License-Identifier: AGPL-3.0-only
//
// Processes that are killed or frozen in the middle of work. Every rank works in steps of a few ops
// and marks each; after a loss all go on from the lowest mark in the record.
#include "tests/conformance/conf.h"

#include <pthread.h>
#include <stdatomic.h>

#define STEPS 40u
#define STRIKE_AT 15u
#define OPS 4u
#define COUNT 5000u
#define SUBMITS 50u     // ahead of a wait
#define FROZEN_MS 6000u // far longer than a link may be silent

// One step: SC_OK, or what its first failing call answered.
static sc_status step(struct bench *b, uint16_t *buffer) {
    sc_status status = SC_OK;
    for (uint32_t i = 0; i < OPS && status == SC_OK; i++)
        status =
            sc_all_reduce(b->comm, b->epoch, buffer, COUNT * SC_BF16_BYTES, SC_BF16, b->stream);
    if (status == SC_OK)
        status = sc_sync(b->comm, b->epoch, b->stream, SC_SYNC_AGREED, conf_limit(b));
    return status;
}

static uint64_t lowest_mark(const struct bench *b) {
    uint64_t lowest = UINT64_MAX;
    for (uint32_t r = 0; r < b->ranks; r++)
        if (b->recovery.ranks[r].mark < lowest)
            lowest = b->recovery.ranks[r].mark;
    return lowest;
}

// The epoch is over, or will be: whatever the call answered. False for any other answer.
static bool is_loss(struct bench *b, sc_status status) {
    if (status != SC_EPOCH_LOST)
        IS(b, status, SC_OK);
    return true;
}

// The record after the strike. A new process has its own first record, and no cause to compare.
static bool check_record(struct bench *b, sc_status cause, uint32_t victim, bool anew) {
    EQUAL(b, b->recovery.cause.code, cause);
    if (b->rank != victim && victim != 0)
        EQUAL(b, b->recovery.cause.suspect, victim);
    for (uint32_t r = 0; r < b->ranks; r++)
        EQUAL(b, b->recovery.ranks[r].fresh, anew && r == victim);
    return true;
}

// Works until STEPS are marked. `expect` looks at the record of each new epoch.
static bool work(struct bench *b, uint16_t *buffer, bool (*expect)(struct bench *b)) {
    for (uint64_t at = lowest_mark(b); at < STEPS;) {
        DO(conf_fill(b, buffer, COUNT, conf_whole(0)));
        sc_status status = step(b, buffer);
        if (status == SC_OK)
            status = sc_mark(b->comm, b->epoch, at + 1);
        DO(is_loss(b, status));
        if (status == SC_OK) {
            OK(b, b->w->marked(b, ++at));
            continue;
        }
        DO(conf_renew(b));
        DO(expect(b));
        at = lowest_mark(b);
    }
    return true;
}

static bool begin(struct bench *b, uint16_t **buffer) {
    DO(conf_open(b, 0));
    DO(conf_buffer(b, COUNT, buffer));
    return conf_renew(b);
}

// Whoever is first to be done waits for the others: a closed peer is a loss, too.
static bool end(struct bench *b) {
    sc_status status = sc_barrier(b->comm, b->epoch, conf_limit(b));
    DO(is_loss(b, status));
    return conf_works(b);
}

static bool member_died(struct bench *b) {
    return check_record(b, SC_PEER_DEAD, 1, true);
}

static bool member_killed(struct bench *b) {
    uint16_t *buffer;
    DO(begin(b, &buffer));
    if (b->rank == 1 && b->life == 2)
        TRUE(b, b->recovery.ranks[1].fresh == 1);
    DO(work(b, buffer, member_died));
    if (b->rank != 1)
        EQUAL(b, b->recovery.ranks[1].fresh, 1);
    return end(b);
}

// The new coordinator knows no cause: it has lost nothing.
static bool coordinator_died(struct bench *b) {
    EQUAL(b, b->recovery.ranks[0].fresh, 1);
    return true;
}

static bool coordinator_killed(struct bench *b) {
    uint16_t *buffer;
    DO(begin(b, &buffer));
    DO(work(b, buffer, coordinator_died));
    EQUAL(b, b->recovery.ranks[0].fresh, 1);
    return end(b);
}

static bool member_was_silent(struct bench *b) {
    return check_record(b, SC_PEER_SILENT, 1, false);
}

static bool member_frozen(struct bench *b) {
    uint16_t *buffer;
    DO(begin(b, &buffer));
    uint64_t first = b->epoch;
    DO(work(b, buffer, member_was_silent));
    TRUE(b, b->epoch > first);
    return end(b);
}

// Far shorter than the silence limit: a stumble, not a loss.
static bool never(struct bench *b) {
    WRONG(b, "the epoch was lost");
}

static bool stumbles(struct bench *b) {
    uint16_t *buffer;
    DO(begin(b, &buffer));
    DO(work(b, buffer, never));
    return end(b);
}

// Nobody comes back: the others wait, and can be closed.
static bool gone_for_good(struct bench *b) {
    uint16_t *buffer;
    DO(begin(b, &buffer));
    sc_status status = SC_OK;
    for (uint64_t at = 1; (status = step(b, buffer)) == SC_OK; at++)
        if (b->rank == 1)
            DO(conf_mark(b, at));
    IS(b, status, SC_EPOCH_LOST);
    DO(conf_await_state(b, SC_STATE_RENDEZVOUS));
    struct sc_health_report health;
    DO(conf_health(b, &health));
    EQUAL(b, health.cause.code, SC_PEER_DEAD);
    EQUAL(b, health.cause.suspect, 1);
    IS(b, sc_wait_ready(b->comm, conf_ms(b, 100), &b->recovery), SC_TIMEOUT);
    return conf_close(b, SC_CLOSE_FINAL);
}

// An application may free memory at any time, and the driver then waits for all that runs: a kernel that
// spins for a lost peer too, until it is aborted.
static bool frees_beside_it(struct bench *b) {
    uint16_t *buffer;
    DO(begin(b, &buffer));
    uint64_t first = b->epoch;
    for (uint64_t at = 1; b->epoch == first && (b->rank != 1 || b->life == 1); at++) {
        void *other;
        if (b->rank == 1)
            DO(conf_mark(b, at));
        sc_status status =
            sc_all_reduce(b->comm, b->epoch, buffer, COUNT * SC_BF16_BYTES, SC_BF16, b->stream);
        DO(is_loss(b, status));
        OK(b, b->w->alloc(b, 1 << 20, &other));
        OK(b, b->w->free(b, other)); // waits for the op
        if (status == SC_OK)
            status = sc_sync(b->comm, b->epoch, b->stream, SC_SYNC_LOCAL, conf_limit(b));
        DO(is_loss(b, status));
        if (status == SC_EPOCH_LOST)
            DO(conf_renew(b));
    }
    if (b->rank != 1)
        DO(member_died(b));
    return end(b);
}

// The same by another thread: whoever submits or waits meanwhile is kept in the driver, too, and the peer
// is only frozen, so that nothing but its silence tells.
struct freer {
    struct bench *b;
    _Atomic bool over;
    bool well;
};

static bool free_again_and_again(struct freer *f) {
    struct bench *b = f->b;
    OK(b, b->w->attach(b));
    while (!atomic_load(&f->over)) {
        void *memory;
        OK(b, b->w->alloc(b, 1 << 20, &memory));
        OK(b, b->w->free(b, memory));
    }
    return true;
}

static void *run_freer(void *arg) {
    struct freer *f = arg;
    f->well = free_again_and_again(f);
    return NULL;
}

// Waits in the driver, not asleep.
static sc_status spin(struct bench *b) {
    sc_status status;
    do {
        status = sc_test(b->comm, b->epoch, b->stream);
    } while (status == SC_INPROGRESS);
    return status;
}

static bool submits_beside(struct bench *b, uint16_t *buffer) {
    uint64_t first = b->epoch;
    for (uint64_t at = 1; b->epoch == first; at++) {
        uint64_t begun_ns = b->w->now_ns(b);
        sc_status status =
            sc_all_reduce(b->comm, b->epoch, buffer, COUNT * SC_BF16_BYTES, SC_BF16, b->stream);
        if (status == SC_OK && at % SUBMITS == 0)
            status = spin(b);
        DO(is_loss(b, status));
        TRUE(b, b->rank == 1 || b->w->now_ns(b) - begun_ns < conf_ms(b, FROZEN_MS / 2));
        if (status == SC_EPOCH_LOST)
            DO(conf_renew(b));
        else if (b->rank == 1)
            DO(conf_mark(b, at));
    }
    return member_was_silent(b);
}

static bool another_frees_beside_it(struct bench *b) {
    struct freer f = {.b = b};
    uint16_t *buffer;
    pthread_t thread;
    DO(begin(b, &buffer));
    TRUE(b, pthread_create(&thread, NULL, run_freer, &f) == 0);
    bool well = submits_beside(b, buffer);
    atomic_store(&f.over, true);
    (void)pthread_join(thread, NULL);
    DO(well && f.well);
    return end(b);
}

#define MS_(n) ((n)*CONF_MS)
const struct conf_test conf_loss[] = {
    {.name = "killed_member_comes_back_and_all_are_whole",
     .run = member_killed,
     .flags = CONF_OWN,
     .ranks_min = 2,
     .strike = {CONF_KILL, 1, 1, STRIKE_AT, MS_(50)}},
    {.name = "memory_that_is_freed_beside_a_lost_peer_holds_nobody_up",
     .run = frees_beside_it,
     .flags = CONF_OWN,
     .ranks_min = 2,
     .strike = {CONF_KILL, 1, 1, STRIKE_AT, MS_(50)}},
    {.name = "another_thread_that_frees_memory_beside_a_frozen_peer_holds_nobody_up",
     .run = another_frees_beside_it,
     .flags = CONF_OWN | CONF_CUDA,
     .ranks_min = 2,
     .strike = {CONF_FREEZE, 1, 1, STRIKE_AT, MS_(FROZEN_MS)}},
    {.name = "killed_coordinator_comes_back_and_all_are_whole",
     .run = coordinator_killed,
     .flags = CONF_OWN,
     .ranks_min = 2,
     .strike = {CONF_KILL, 0, 1, STRIKE_AT, MS_(50)}},
    {.name = "frozen_member_is_known_by_its_silence_and_comes_back",
     .run = member_frozen,
     .flags = CONF_OWN,
     .ranks_min = 2,
     .strike = {CONF_FREEZE, 1, 1, STRIKE_AT, MS_(1800)}},
    {.name = "short_freeze_disturbs_nobody",
     .run = stumbles,
     .flags = CONF_OWN,
     .ranks_min = 2,
     .strike = {CONF_FREEZE, 1, 0, STRIKE_AT, MS_(200)}},
    {.name = "peer_killed_for_good_is_waited_for_until_close",
     .run = gone_for_good,
     .flags = CONF_OWN,
     .ranks_min = 2,
     .ranks_max = 2,
     .strike = {CONF_KILL, 1, 1, STRIKE_AT, 0}},
    {0},
};
