// SPDX-License-Identifier: AGPL-3.0-only
//
// Simulated communicators: how they form, and what becomes of them when a rank is lost.
#include "tests/unit/test_sim_fixture.h"

#define ONE 0x3F80 // BF16 1.0
#define TWO 0x4000
#define THREE 0x4040

// ---- forming ----------------------------------------------------------------------------------

static void forms_once_all_ranks_have_come(void **state) {
    struct fixture f;
    struct sc_comm_report report;
    struct life *zero = &f.lives[0];
    struct life *one = &f.lives[1];

    (void)state;
    start(&f, 1, 2);
    struct sc_comm_id id = draw_id(zero);
    assert_int_equal(create_comm(zero, id, 0, 2), SC_OK);
    run_for(&f, 10 * SECOND);
    assert_int_equal(comm_state(zero), SC_COMM_FORMING);
    assert_int_equal(create_comm(one, id, 1, 2), SC_OK);
    uint64_t began_ns = sc_sim_now_ns(f.sim);
    unsigned wakes = one->wakes;
    run_for(&f, f.config.comm_init.max_ns);
    assert_int_equal(one->device->comm_poll(one->device->ctx, one->comm, &report), SC_OK);
    assert_int_equal(report.state, SC_COMM_FORMING); // created, and warming up
    assert_true(report.formed_ns >= began_ns + f.config.comm_init.min_ns);
    run_for(&f, f.config.comm_warmup.max_ns);
    assert_int_equal(comm_state(zero), SC_COMM_READY);
    assert_int_equal(comm_state(one), SC_COMM_READY);
    assert_int_equal(one->wakes, wakes + 2);
    finish(&f);
}

static void id_is_single_use(void **state) {
    struct fixture f;

    (void)state;
    start(&f, 1, 2);
    struct sc_comm_id id = draw_id(&f.lives[0]);
    struct sc_comm_id other = draw_id(&f.lives[0]);
    assert_memory_not_equal(&id, &other, sizeof id);
    assert_int_equal(create_comm(&f.lives[0], id, 0, 2), SC_OK);
    assert_int_equal(create_comm(&f.lives[0], id, 0, 2), SC_COMM_FAILED);
    expect_violation(&f, "used twice");
    assert_int_equal(create_comm(&f.lives[1], id, 1, 3), SC_COMM_FAILED);
    expect_violation(&f, "world size");
    id.bytes[0] ^= 1;
    assert_int_equal(create_comm(&f.lives[1], id, 1, 2), SC_COMM_FAILED);
    expect_violation(&f, "never issued");
    assert_int_equal(create_comm(&f.lives[1], other, 2, 2), SC_INVALID);
    expect_violation(&f, "rank 2 in a world of 2");
    finish(&f);
}

static void ready_verbs_are_refused_while_forming(void **state) {
    struct fixture f;
    struct life *life = &f.lives[0];
    const struct sc_device *d;

    (void)state;
    start(&f, 1, 2);
    d = life->device;
    prepare(life);
    form(&f);
    assert_int_equal(d->comm_error(d->ctx, life->comm), SC_INVALID);
    expect_violation(&f, "not ready");
    assert_int_equal(d->all_reduce(d->ctx, life->comm, life->buf, BYTES, life->stream), SC_INVALID);
    expect_violation(&f, "not ready");
    finish(&f);
}

static void rank_lost_while_forming_leaves_the_others_hanging(void **state) {
    struct fixture f;

    (void)state;
    start(&f, 1, 3);
    form(&f);
    sc_sim_kill(f.lives[2].process);
    run_for(&f, 100 * SECOND);
    assert_int_equal(comm_state(&f.lives[0]), SC_COMM_FORMING);
    assert_int_equal(comm_state(&f.lives[1]), SC_COMM_FORMING);
    finish(&f);
}

static void stopped_rank_holds_the_forming_up(void **state) {
    struct fixture f;

    (void)state;
    start(&f, 1, 2);
    form(&f);
    sc_sim_pause(f.lives[1].process);
    run_for(&f, 100 * SECOND);
    assert_int_equal(comm_state(&f.lives[0]), SC_COMM_FORMING);
    sc_sim_resume(f.lives[1].process);
    run_for(&f, f.config.comm_warmup.min_ns / 2); // stopped again, now in the warm-up
    sc_sim_pause(f.lives[1].process);
    run_for(&f, 100 * SECOND);
    assert_int_equal(comm_state(&f.lives[0]), SC_COMM_FORMING);
    sc_sim_resume(f.lives[1].process);
    assert_int_equal(comm_state(&f.lives[0]), SC_COMM_READY);
    assert_int_equal(comm_state(&f.lives[1]), SC_COMM_READY);
    finish(&f);
}

// ---- loss -------------------------------------------------------------------------------------

static void dead_peer_leaves_ops_spinning_or_an_async_error(void **state) {
    (void)state;
    for (uint32_t chance = 0; chance <= 256; chance += 256) {
        struct fixture f, *g = &f;
        struct life *zero = &f.lives[0];
        memset(g, 0, sizeof *g);
        sc_sim_config_init(&f.config, 1, 2);
        f.config.peer_loss_error_chance = chance;
        assert_int_equal(sc_sim_create(&f.config, &f.sim), SC_OK);
        spawn(g, zero, 0);
        spawn(g, &f.lives[1], 1);
        form(g);
        run_for(g, SECOND);
        prepare(zero);
        uint64_t op = all_reduce(zero);
        sc_sim_kill(f.lives[1].process);
        run_for(g, 300 * US);
        assert_int_equal(comm_state(zero), SC_COMM_READY);
        run_for(g, 100 * SECOND);
        assert_int_equal(op_state(zero, op), SC_OP_STARTED);
        assert_int_equal(comm_state(zero), chance == 0 ? SC_COMM_READY : SC_COMM_ERROR);
        assert_int_equal(zero->device->comm_error(zero->device->ctx, zero->comm),
                         chance == 0 ? SC_OK : SC_ASYNC_ERROR);
        finish(g);
    }
}

// A rank that dies as the op completes: its peer may have the sum or spin, but a peer that is told
// DONE has the right bits.
static void death_in_mid_completion_is_ragged_and_never_wrong(void **state) {
    unsigned done = 0, spinning = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct fixture f;
        struct life *zero = &f.lives[0];
        start_joined(&f, seed, 2);
        fill(zero, zero->buf, ONE);
        fill(&f.lives[1], f.lives[1].buf, TWO);
        uint64_t op = all_reduce(zero);
        all_reduce(&f.lives[1]);
        run_for(&f, 9 * US); // between the shortest latency and the longest
        sc_sim_kill(f.lives[1].process);
        run_for(&f, SECOND);
        if (op_state(zero, op) == SC_OP_DONE) {
            expect_filled(zero, zero->buf, THREE);
            done++;
        } else {
            spinning++;
        }
        finish(&f);
    }
    assert_true(done > 0 && spinning > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms_once_all_ranks_have_come),
        cmocka_unit_test(id_is_single_use),
        cmocka_unit_test(ready_verbs_are_refused_while_forming),
        cmocka_unit_test(rank_lost_while_forming_leaves_the_others_hanging),
        cmocka_unit_test(stopped_rank_holds_the_forming_up),
        cmocka_unit_test(dead_peer_leaves_ops_spinning_or_an_async_error),
        cmocka_unit_test(death_in_mid_completion_is_ragged_and_never_wrong),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
