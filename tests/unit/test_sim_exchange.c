// SPDX-License-Identifier: AGPL-3.0-only
//
// Simulated exchanges: when they complete, with which bits, and what comes of unequal ones.
#include "tests/unit/test_sim_fixture.h"

#define ONE 0x3F80 // BF16 1.0
#define TWO 0x4000
#define THREE 0x4040

// ---- exchanges --------------------------------------------------------------------------------

static void all_reduce_waits_for_the_last_rank(void **state) {
    struct fixture f;

    (void)state;
    start_joined(&f, 1, 2);
    fill(&f.lives[0], f.lives[0].buf, ONE);
    fill(&f.lives[1], f.lives[1].buf, TWO);
    uint64_t first = all_reduce(&f.lives[0]);
    run_for(&f, SECOND);
    assert_int_equal(op_state(&f.lives[0], first), SC_OP_STARTED);
    uint64_t last = all_reduce(&f.lives[1]);
    run_for(&f, f.config.op_latency.min_ns - 1);
    assert_int_equal(op_state(&f.lives[0], first), SC_OP_STARTED);
    run_for(&f, f.config.op_latency.max_ns);
    assert_int_equal(op_state(&f.lives[0], first), SC_OP_DONE);
    assert_int_equal(op_state(&f.lives[1], last), SC_OP_DONE);
    expect_filled(&f.lives[0], f.lives[0].buf, THREE);
    expect_filled(&f.lives[1], f.lives[1].buf, THREE);
    finish(&f);
}

static void sums_are_rounded_once_with_one_nan(void **state) {
    static const struct {
        uint16_t a, b, sum;
    } rows[] = {
        {0x3F80, 0x3B80, 0x3F80}, {0x3F81, 0x3B80, 0x3F82}, {0x7F7F, 0x7B00, 0x7F80},
        {0x7F7F, 0x7AFF, 0x7F7F}, {0x0001, 0x0001, 0x0002}, {0x8000, 0x8000, 0x8000},
        {0x7FC1, 0x7FD2, 0x7FFF}, {0x7F80, 0xFF80, 0x7FFF},
    };
    struct fixture f;

    (void)state;
    start_joined(&f, 1, 2);
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        bytes_of(&f.lives[0], f.lives[0].buf)[row] = rows[row].a;
        bytes_of(&f.lives[1], f.lives[1].buf)[row] = rows[row].b;
    }
    all_reduce(&f.lives[0]);
    all_reduce(&f.lives[1]);
    run_for(&f, MS);
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        assert_int_equal(bytes_of(&f.lives[0], f.lives[0].buf)[row], rows[row].sum);
        assert_int_equal(bytes_of(&f.lives[1], f.lives[1].buf)[row], rows[row].sum);
    }
    finish(&f);
}

static void three_addends_are_summed_in_fp32_and_rounded_once(void **state) {
    struct fixture f;

    (void)state;
    start_joined(&f, 1, 3);
    // 1 + 2^-8 + 2^-8: each half of a last place is lost if it is rounded on its own.
    fill(&f.lives[0], f.lives[0].buf, ONE);
    fill(&f.lives[1], f.lives[1].buf, 0x3B80);
    fill(&f.lives[2], f.lives[2].buf, 0x3B80);
    for (int rank = 0; rank < 3; rank++)
        all_reduce(&f.lives[rank]);
    run_for(&f, MS);
    for (int rank = 0; rank < 3; rank++)
        expect_filled(&f.lives[rank], f.lives[rank].buf, 0x3F81);
    finish(&f);
}

static void pair_path_sums_as_all_reduce_does(void **state) {
    struct fixture f;

    (void)state;
    start_joined(&f, 1, 2);
    for (int round = 0; round < 50; round++) {
        fill(&f.lives[0], f.lives[0].buf, ONE);
        fill(&f.lives[1], f.lives[1].buf, TWO);
        uint64_t first = pair_add(&f.lives[0], 1);
        uint64_t last = pair_add(&f.lives[1], 0);
        run_for(&f, MS);
        assert_int_equal(op_state(&f.lives[0], first), SC_OP_DONE);
        assert_int_equal(op_state(&f.lives[1], last), SC_OP_DONE);
        expect_filled(&f.lives[0], f.lives[0].buf, THREE);
        expect_filled(&f.lives[1], f.lives[1].buf, THREE);
        release(&f.lives[0], first);
        release(&f.lives[1], last);
    }
    finish(&f);
}

static void sends_match_receives_in_order(void **state) {
    struct fixture f;
    struct life *zero = &f.lives[0];
    struct life *one = &f.lives[1];

    (void)state;
    start_joined(&f, 1, 2);
    const struct sc_device *d = zero->device;
    fill(zero, zero->buf, ONE);
    fill(zero, zero->scratch, TWO);
    assert_int_equal(d->send(d->ctx, zero->comm, zero->buf, BYTES, 1, zero->stream), SC_OK);
    assert_int_equal(d->send(d->ctx, zero->comm, zero->scratch, BYTES, 1, zero->stream), SC_OK);
    d = one->device;
    assert_int_equal(d->group_begin(d->ctx), SC_OK);
    assert_int_equal(d->recv(d->ctx, one->comm, one->buf, BYTES, 0, one->stream), SC_OK);
    assert_int_equal(d->recv(d->ctx, one->comm, one->scratch, BYTES, 0, one->stream), SC_OK);
    assert_int_equal(d->group_end(d->ctx), SC_OK);
    run_for(&f, MS);
    expect_filled(one, one->buf, ONE);
    expect_filled(one, one->scratch, TWO);
    finish(&f);
}

static void broadcast_gather_and_scatter_move_what_they_should(void **state) {
    struct fixture f;
    uint64_t gathered[3], spread[3];

    (void)state;
    start_joined(&f, 1, 3);
    for (uint32_t rank = 0; rank < 3; rank++) {
        struct life *life = &f.lives[rank];
        const struct sc_device *d = life->device;
        assert_int_equal(d->mem_alloc(d->ctx, 3 * BYTES, &gathered[rank]), SC_OK);
        assert_int_equal(d->mem_alloc(d->ctx, 3 * BYTES, &spread[rank]), SC_OK);
        for (uint32_t share = 0; share < 3; share++)
            fill(life, spread[rank] + share * BYTES, share == 1 ? ONE : 0);
        fill(life, life->buf, (uint16_t)(0x3F80 + rank));
        assert_int_equal(
            d->all_gather(d->ctx, life->comm, life->buf, gathered[rank], BYTES, life->stream),
            SC_OK);
        assert_int_equal(d->broadcast(d->ctx, life->comm, life->buf, BYTES, 2, life->stream),
                         SC_OK);
        assert_int_equal(
            d->reduce_scatter(d->ctx, life->comm, spread[rank], life->scratch, BYTES, life->stream),
            SC_OK);
    }
    run_for(&f, MS);
    for (uint32_t rank = 0; rank < 3; rank++) {
        struct life *life = &f.lives[rank];
        for (uint32_t from = 0; from < 3; from++)
            expect_filled(life, gathered[rank] + from * BYTES, (uint16_t)(0x3F80 + from));
        expect_filled(life, life->buf, 0x3F82);
        expect_filled(life, life->scratch, rank == 1 ? THREE : 0);
    }
    finish(&f);
}

static void world_of_one_copies_and_adds_nothing(void **state) {
    struct fixture f;

    (void)state;
    start_joined(&f, 1, 1);
    fill(&f.lives[0], f.lives[0].buf, 0x7FC1);
    uint64_t op = all_reduce(&f.lives[0]);
    run_for(&f, MS);
    assert_int_equal(op_state(&f.lives[0], op), SC_OP_DONE);
    expect_filled(&f.lives[0], f.lives[0].buf, 0x7FC1);
    finish(&f);
}

static void zero_bytes_are_discarded(void **state) {
    struct fixture f;
    struct life *zero = &f.lives[0];
    const struct sc_device *d;

    (void)state;
    start_joined(&f, 1, 2);
    d = zero->device;
    fill(zero, zero->buf, ONE);
    fill(&f.lives[1], f.lives[1].buf, TWO);
    assert_int_equal(d->all_reduce(d->ctx, zero->comm, zero->buf, 0, zero->stream), SC_OK);
    all_reduce(zero);
    all_reduce(&f.lives[1]);
    run_for(&f, MS);
    expect_filled(zero, zero->buf, THREE); // it took no place in the order
    finish(&f);
}

static void group_over_two_streams_is_one_exchange(void **state) {
    struct fixture f;
    struct life *zero = &f.lives[0];
    uint64_t second = 0, op = 0;

    (void)state;
    start_joined(&f, 1, 2);
    const struct sc_device *d = zero->device;
    assert_int_equal(d->stream_create(d->ctx, &second), SC_OK);
    assert_int_equal(sc_sim_compute(zero->process, second, 10 * MS, NULL, NULL), SC_OK);
    assert_int_equal(d->group_begin(d->ctx), SC_OK);
    assert_int_equal(d->send(d->ctx, zero->comm, zero->buf, BYTES, 1, zero->stream), SC_OK);
    assert_int_equal(d->recv(d->ctx, zero->comm, zero->scratch, BYTES, 1, second), SC_OK);
    assert_int_equal(d->group_end(d->ctx), SC_OK);
    assert_int_equal(d->op_begin(d->ctx, zero->stream, &op), SC_OK);
    assert_int_equal(d->op_end(d->ctx, op), SC_OK);
    pair_add(&f.lives[1], 0);
    run_for(&f, 9 * MS);
    assert_int_equal(op_state(zero, op), SC_OP_ENQUEUED); // the other stream is not there yet
    run_for(&f, 2 * MS);
    assert_int_equal(op_state(zero, op), SC_OP_DONE);
    finish(&f);
}

// ---- what does not match ----------------------------------------------------------------------

static uint64_t lone_exchange(struct life *life, uint32_t peer, uint64_t bytes) {
    const struct sc_device *d = life->device;
    uint64_t op = 0;

    assert_int_equal(d->op_begin(d->ctx, life->stream, &op), SC_OK);
    assert_int_equal(d->group_begin(d->ctx), SC_OK);
    assert_int_equal(d->send(d->ctx, life->comm, life->buf, bytes, peer, life->stream), SC_OK);
    assert_int_equal(d->recv(d->ctx, life->comm, life->scratch, bytes, peer, life->stream), SC_OK);
    assert_int_equal(d->group_end(d->ctx), SC_OK);
    assert_int_equal(d->op_end(d->ctx, op), SC_OK);
    return op;
}

static void unequal_sizes_complete_only_where_less_was_asked_for(void **state) {
    struct fixture f;

    (void)state;
    start_joined(&f, 1, 2);
    uint64_t more = lone_exchange(&f.lives[0], 1, BYTES);
    uint64_t less = lone_exchange(&f.lives[1], 0, BYTES / 2);
    run_for(&f, 10 * SECOND);
    assert_int_equal(op_state(&f.lives[1], less), SC_OP_DONE);
    assert_int_equal(op_state(&f.lives[0], more), SC_OP_STARTED);
    finish(&f);
}

// Rank 0 reduces, rank 1 broadcasts from `root`; how many of the two complete?
static unsigned completions(uint64_t seed, bool reduce, uint32_t root) {
    struct fixture f;
    struct life *zero = &f.lives[0];
    struct life *one = &f.lives[1];
    uint64_t ops[2] = {0, 0};
    unsigned done = 0;

    start_joined(&f, seed, 2);
    fill(zero, zero->buf, ONE);
    fill(one, one->buf, TWO);
    if (reduce) {
        ops[0] = all_reduce(zero);
    } else {
        assert_int_equal(zero->device->op_begin(zero->device->ctx, zero->stream, &ops[0]), SC_OK);
        assert_int_equal(zero->device->broadcast(zero->device->ctx, zero->comm, zero->buf, BYTES, 0,
                                                 zero->stream),
                         SC_OK);
        assert_int_equal(zero->device->op_end(zero->device->ctx, ops[0]), SC_OK);
    }
    assert_int_equal(one->device->op_begin(one->device->ctx, one->stream, &ops[1]), SC_OK);
    assert_int_equal(
        one->device->broadcast(one->device->ctx, one->comm, one->buf, BYTES, root, one->stream),
        SC_OK);
    assert_int_equal(one->device->op_end(one->device->ctx, ops[1]), SC_OK);
    run_for(&f, SECOND);
    for (int rank = 0; rank < 2; rank++)
        done += op_state(&f.lives[rank], ops[rank]) == SC_OP_DONE;
    assert_false(is_filled(zero, zero->buf, THREE) || is_filled(one, one->buf, THREE));
    finish(&f);
    return done;
}

static void unlike_collectives_complete_on_one_rank_at_least(void **state) {
    unsigned seen[3] = {0, 0, 0};

    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++)
        seen[completions(seed, true, 0)]++;
    assert_int_equal(seen[0], 0);
    assert_true(seen[1] > 0 && seen[2] > 0);
}

static void broadcasts_from_different_roots_complete_on_both(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++)
        assert_int_equal(completions(seed, false, 1), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_reduce_waits_for_the_last_rank),
        cmocka_unit_test(sums_are_rounded_once_with_one_nan),
        cmocka_unit_test(three_addends_are_summed_in_fp32_and_rounded_once),
        cmocka_unit_test(pair_path_sums_as_all_reduce_does),
        cmocka_unit_test(sends_match_receives_in_order),
        cmocka_unit_test(broadcast_gather_and_scatter_move_what_they_should),
        cmocka_unit_test(world_of_one_copies_and_adds_nothing),
        cmocka_unit_test(zero_bytes_are_discarded),
        cmocka_unit_test(group_over_two_streams_is_one_exchange),
        cmocka_unit_test(unequal_sizes_complete_only_where_less_was_asked_for),
        cmocka_unit_test(unlike_collectives_complete_on_one_rank_at_least),
        cmocka_unit_test(broadcasts_from_different_roots_complete_on_both),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
