// SPDX-License-Identifier: AGPL-3.0-only
//
// What hosts say to each other between the collectives: barriers.
#include "tests/support/rig.h"

#define MS RIG_MS
#define SECOND RIG_SECOND
#define AT_ONCE (20 * MS) // some hops, and well below a heartbeat

// ---- barriers ----

static uint64_t arrive(struct rig *rig, uint32_t rank) {
    uint64_t number = 0;
    assert_int_equal(sc_pump_barrier(rig->ranks[rank].pump, rig_epoch(rig, rank), &number), SC_OK);
    rig_touch(rig, rank);
    return number;
}

static bool all_passed(const struct rig *rig, uint64_t barrier) {
    for (uint32_t r = 0; r < rig->config.core.world; r++)
        if (rig_view(rig, r).passed != barrier)
            return false;
    return true;
}

static void expect_notices(const struct rig *rig, uint32_t count) {
    for (uint32_t r = 0; r < rig->config.core.world; r++)
        assert_int_equal(rig_notices(rig, r, SC_NOTICE_BARRIER), count);
}

// Every order in which the ranks of `left` may come; `order` has those that came before.
static void arrive_in_every_order(struct rig *rig, uint32_t left, uint32_t *order, uint32_t count) {
    for (uint32_t r = 0; r < rig->config.core.world; r++) {
        if (left >> r & 1u) {
            order[count] = r;
            arrive_in_every_order(rig, left & ~(1u << r), order, count + 1);
        }
    }
    if (left != 0)
        return;
    const uint64_t before = rig_view(rig, 0).passed;
    for (uint32_t i = 0; i < count; i++) {
        assert_true(all_passed(rig, before));
        assert_int_equal(arrive(rig, order[i]), before + 1);
        if (i + 1 < count)
            rig_run(rig, i % 2 == 0 ? 0 : SECOND); // on each other's heels, and heartbeats later
    }
    rig_until(rig, AT_ONCE, all_passed(rig, before + 1));
    expect_notices(rig, (uint32_t)before + 1);
}

static void a_barrier_passes_whatever_the_order_of_arrivals(void **state) {
    static const uint64_t orders[] = {0, 1, 2, 6, 24};
    (void)state;
    for (uint32_t world = 1; world <= 4; world++) {
        struct rig *rig = rig_start_world(world);
        uint32_t order[4];
        arrive_in_every_order(rig, (1u << world) - 1, order, 0);
        assert_true(all_passed(rig, orders[world]));
        rig_close(rig);
    }
}

static void no_barrier_passes_without_a_rank_that_died(void **state) {
    (void)state;
    for (uint32_t dead = 0; dead < 3; dead++) {
        struct rig *rig = rig_start_world(3);
        const uint64_t epoch = rig_epoch(rig, 0);
        uint64_t number = 0;
        for (uint32_t r = 0; r < 3; r++)
            if (r != dead)
                assert_int_equal(arrive(rig, r), 1);
        rig_run(rig, SECOND);
        rig_kill(rig, dead);
        for (uint32_t r = 0; r < 3; r++) {
            if (r == dead)
                continue;
            rig_until(rig, SECOND, rig_change(rig, r, SC_STATE_ABORTING) != NULL);
            assert_int_equal(rig_notices(rig, r, SC_NOTICE_BARRIER), 0);
            assert_int_equal(sc_pump_barrier(rig->ranks[r].pump, epoch, &number), SC_EPOCH_LOST);
        }
        assert_int_equal(rig_spawn(rig, dead, NULL), SC_OK);
        rig_until(rig, 5 * SECOND, rig_is_ready_after(rig, epoch));
        assert_int_equal(arrive(rig, dead), 1); // the others' arrivals went with their epoch
        rig_run(rig, SECOND);
        expect_notices(rig, 0);
        for (uint32_t r = 0; r < 3; r++)
            if (r != dead)
                assert_int_equal(arrive(rig, r), 1);
        rig_until(rig, AT_ONCE, all_passed(rig, 1));
        rig_close(rig);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_barrier_passes_whatever_the_order_of_arrivals, rig_teardown),
        cmocka_unit_test_teardown(no_barrier_passes_without_a_rank_that_died, rig_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
