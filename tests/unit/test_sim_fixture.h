// SPDX-License-Identifier: AGPL-3.0-only
//
// A simulated world with one process a rank, for tests of the simulator itself.
#ifndef SC_TEST_SIM_FIXTURE_H
#define SC_TEST_SIM_FIXTURE_H

#include "hal_sim/sc_sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)
#define RANKS_MAX 4
#define ELEMENTS 64u
#define BYTES (ELEMENTS * 2)
#define EPOCH 7u
#define PORT 29500u

struct life {
    struct sc_sim_process *process;
    const struct sc_host *host;
    const struct sc_link *link;
    const struct sc_device *device;
    unsigned wakes;
    uint64_t woken_ns;
    struct sc_sim *sim;
    // Once the ranks are joined:
    uint64_t comm, stream, buf, scratch;
};

struct fixture {
    struct sc_sim *sim;
    struct sc_sim_config config;
    struct life lives[RANKS_MAX];
    unsigned violations;
    char violation[256]; // the last one
};

static inline void note_violation(void *arg, uint32_t rank, const char *text) {
    struct fixture *f = arg;

    (void)rank;
    f->violations++;
    snprintf(f->violation, sizeof f->violation, "%s", text);
}

static inline void note_wake(void *arg) {
    struct life *life = arg;

    life->wakes++;
    life->woken_ns = sc_sim_now_ns(life->sim);
}

static inline void spawn(struct fixture *f, struct life *life, uint32_t rank) {
    memset(life, 0, sizeof *life);
    life->sim = f->sim;
    assert_int_equal(sc_sim_spawn(f->sim, rank, note_wake, life, &life->process), SC_OK);
    life->host = sc_sim_host(life->process);
    life->link = sc_sim_link(life->process);
    life->device = sc_sim_device(life->process);
}

static inline void start(struct fixture *f, uint64_t seed, uint32_t world) {
    memset(f, 0, sizeof *f);
    sc_sim_config_init(&f->config, seed, world);
    f->config.on_violation = note_violation;
    f->config.arg = f;
    assert_int_equal(sc_sim_create(&f->config, &f->sim), SC_OK);
    for (uint32_t rank = 0; rank < world; rank++)
        spawn(f, &f->lives[rank], rank);
}

// Ends the world; everything that happened in it kept the contract.
static inline void finish(struct fixture *f) {
    sc_sim_destroy(f->sim);
    if (f->violations != 0)
        fail_msg("a breach of contract: %s", f->violation);
}

// The last call broke the contract, and the report says so in these words.
static inline void expect_violation(struct fixture *f, const char *words) {
    if (f->violations != 1 || strstr(f->violation, words) == NULL)
        fail_msg("%u violations, the last '%s'; expected one with '%s'", f->violations,
                 f->violation, words);
    f->violations = 0;
}

static inline void run_for(struct fixture *f, uint64_t span_ns) {
    uint64_t until_ns = sc_sim_now_ns(f->sim) + span_ns;

    while (sc_sim_step(f->sim, until_ns))
        continue;
}

static inline bool inject(struct fixture *f, struct sc_sim_fault fault) {
    return sc_sim_inject(f->sim, &fault);
}

static inline enum sc_comm_state comm_state(struct life *life) {
    struct sc_comm_report report = {.state = SC_COMM_GONE};

    assert_int_equal(life->device->comm_poll(life->device->ctx, life->comm, &report), SC_OK);
    return report.state;
}

static inline enum sc_op_state op_state(struct life *life, uint64_t op) {
    enum sc_op_state state = SC_OP_FAILED;

    assert_int_equal(life->device->op_poll(life->device->ctx, op, &state), SC_OK);
    return state;
}

static inline struct sc_comm_id draw_id(struct life *life) {
    struct sc_comm_id id;

    assert_int_equal(life->device->comm_id(life->device->ctx, &id), SC_OK);
    return id;
}

static inline sc_status create_comm(struct life *life, struct sc_comm_id id, uint32_t rank,
                                    uint32_t world) {
    struct sc_comm_spec spec = {.id = id, .epoch = EPOCH, .rank = rank, .world = world};

    return life->device->comm_create(life->device->ctx, &spec, &life->comm);
}

// Begins to form a communicator of all ranks.
static inline void form(struct fixture *f) {
    struct sc_comm_id id = draw_id(&f->lives[0]);

    for (uint32_t rank = 0; rank < f->config.world; rank++)
        assert_int_equal(create_comm(&f->lives[rank], id, rank, f->config.world), SC_OK);
}

static inline void prepare(struct life *life) {
    const struct sc_device *d = life->device;

    assert_int_equal(d->stream_create(d->ctx, &life->stream), SC_OK);
    assert_int_equal(d->mem_alloc(d->ctx, BYTES, &life->buf), SC_OK);
    assert_int_equal(d->mem_alloc(d->ctx, BYTES, &life->scratch), SC_OK);
    assert_int_equal(d->fence_set(d->ctx, EPOCH), SC_OK);
}

// A world whose ranks have a ready communicator, a stream and two buffers each.
static inline void start_joined(struct fixture *f, uint64_t seed, uint32_t world) {
    start(f, seed, world);
    form(f);
    run_for(f, SECOND);
    for (uint32_t rank = 0; rank < world; rank++) {
        prepare(&f->lives[rank]);
        assert_int_equal(comm_state(&f->lives[rank]), SC_COMM_READY);
    }
}

static inline uint16_t *bytes_of(struct life *life, uint64_t address) {
    uint16_t *found = sc_sim_memory(life->process, address, BYTES);

    assert_non_null(found);
    return found;
}

static inline void fill(struct life *life, uint64_t address, uint16_t value) {
    uint16_t *at = bytes_of(life, address);

    for (unsigned element = 0; element < ELEMENTS; element++)
        at[element] = value;
}

static inline void expect_filled(struct life *life, uint64_t address, uint16_t value) {
    const uint16_t *at = bytes_of(life, address);

    for (unsigned element = 0; element < ELEMENTS; element++)
        assert_int_equal(at[element], value);
}

static inline bool is_filled(struct life *life, uint64_t address, uint16_t value) {
    const uint16_t *at = bytes_of(life, address);

    for (unsigned element = 0; element < ELEMENTS; element++) {
        if (at[element] != value)
            return false;
    }
    return true;
}

// One all-reduce of `buf` as an op of its own.
static inline uint64_t all_reduce(struct life *life) {
    const struct sc_device *d = life->device;
    uint64_t op = 0;

    assert_int_equal(d->op_begin(d->ctx, life->stream, &op), SC_OK);
    assert_int_equal(d->all_reduce(d->ctx, life->comm, life->buf, BYTES, life->stream), SC_OK);
    assert_int_equal(d->op_end(d->ctx, op), SC_OK);
    return op;
}

// The pair path: buf to the peer, the peer's into scratch, buf += scratch.
static inline uint64_t pair_add(struct life *life, uint32_t peer) {
    const struct sc_device *d = life->device;
    uint64_t op = 0;

    assert_int_equal(d->op_begin(d->ctx, life->stream, &op), SC_OK);
    assert_int_equal(d->group_begin(d->ctx), SC_OK);
    assert_int_equal(d->send(d->ctx, life->comm, life->buf, BYTES, peer, life->stream), SC_OK);
    assert_int_equal(d->recv(d->ctx, life->comm, life->scratch, BYTES, peer, life->stream), SC_OK);
    assert_int_equal(d->group_end(d->ctx), SC_OK);
    assert_int_equal(d->add_bf16(d->ctx, life->buf, life->scratch, BYTES, EPOCH, life->stream),
                     SC_OK);
    assert_int_equal(d->op_end(d->ctx, op), SC_OK);
    return op;
}

static inline void release(struct life *life, uint64_t op) {
    assert_int_equal(life->device->op_release(life->device->ctx, op), SC_OK);
}

// A buffered link between ranks 1 (dialling) and 0 (accepting).
static inline void connect_pair(struct fixture *f, uint64_t *listener, uint64_t *near,
                                uint64_t *far) {
    const struct sc_link *zero = f->lives[0].link;
    const struct sc_link *one = f->lives[1].link;

    assert_int_equal(zero->listen(zero->ctx, "zero", PORT, listener), SC_OK);
    assert_int_equal(one->dial(one->ctx, "zero", PORT, 0, near), SC_OK);
    run_for(f, MS);
    assert_int_equal(one->connected(one->ctx, *near), SC_OK);
    assert_int_equal(zero->accept(zero->ctx, *listener, far), SC_OK);
}

#endif
