// SPDX-License-Identifier: AGPL-3.0-only
//
// Simulated device memory: its bounds, its red zones, and work that outlives it.
#include "tests/unit/test_sim_fixture.h"

static void add(struct life *life, uint64_t epoch) {
    const struct sc_device *d = life->device;

    assert_int_equal(d->add_bf16(d->ctx, life->buf, life->scratch, BYTES, epoch, life->stream),
                     SC_OK);
}

static void compute(struct life *life, uint64_t duration_ns) {
    assert_int_equal(sc_sim_compute(life->process, life->stream, duration_ns, NULL, NULL), SC_OK);
}

static void start_one(struct fixture *f) {
    start(f, 1, 1);
    prepare(&f->lives[0]);
}

// ---- memory -----------------------------------------------------------------------------------

static void memory_is_aligned_bounded_and_counted(void **state) {
    struct fixture f;
    struct life *life = &f.lives[0];
    const struct sc_device *d;
    struct sc_sim_held held;
    uint64_t odd = 0, next = 0, none = 0;

    (void)state;
    start(&f, 1, 1);
    d = life->device;
    assert_int_equal(d->mem_alloc(d->ctx, 7, &odd), SC_OK);
    assert_int_equal(d->mem_alloc(d->ctx, 32, &next), SC_OK);
    assert_int_equal(odd % 16, 0);
    assert_int_equal(next % 16, 0);
    assert_non_null(sc_sim_memory(life->process, odd, 7));
    assert_null(sc_sim_memory(life->process, odd, 8));
    assert_null(sc_sim_memory(life->process, odd + 8, 0));
    assert_null(sc_sim_memory(life->process, odd - 1, 1));
    assert_null(sc_sim_memory(life->process, odd + 4, UINT64_MAX));
    assert_int_equal(d->mem_alloc(d->ctx, 0, &none), SC_INVALID);
    assert_int_equal(d->mem_alloc(d->ctx, UINT64_MAX, &none), SC_NO_MEMORY);
    sc_sim_held(life->process, &held);
    assert_int_equal(held.allocations, 2);
    assert_int_equal(held.device_bytes, 39);
    assert_int_equal(d->mem_free(d->ctx, odd), SC_OK);
    assert_null(sc_sim_memory(life->process, odd, 1));
    assert_non_null(sc_sim_memory(life->process, next, 32));
    assert_int_equal(d->mem_free(d->ctx, next), SC_OK);
    assert_int_equal(d->mem_free(d->ctx, next), SC_INVALID);
    expect_violation(&f, "no live allocation");
    sc_sim_held(life->process, &held);
    assert_int_equal(held.allocations + held.device_bytes, 0);
    finish(&f);
}

static void overwritten_red_zone_is_reported_at_free_and_at_death(void **state) {
    struct fixture f;
    struct life *life = &f.lives[0];

    (void)state;
    start_one(&f);
    unsigned char *bytes = sc_sim_memory(life->process, life->buf, BYTES);
    bytes[BYTES] = 0;
    assert_int_equal(life->device->mem_free(life->device->ctx, life->buf), SC_OK);
    expect_violation(&f, "bytes behind the allocation");
    bytes = sc_sim_memory(life->process, life->scratch, BYTES);
    bytes[-1] = 0;
    sc_sim_kill(life->process);
    expect_violation(&f, "bytes before the allocation");
    finish(&f);
}

static void memory_of_a_killed_process_ends_but_may_be_written_until_it_is_reaped(void **state) {
    struct fixture f;
    struct life *life = &f.lives[0];
    struct sc_sim_held held;

    (void)state;
    start_one(&f);
    void *bytes = sc_sim_memory(life->process, life->buf, BYTES);
    assert_non_null(bytes);
    sc_sim_kill(life->process);
    memset(bytes, 1, BYTES); // of a thread that has not learned of it yet
    assert_null(sc_sim_memory(life->process, life->buf, BYTES));
    sc_sim_held(life->process, &held);
    assert_int_equal(held.allocations + held.device_bytes, 0);
    finish(&f);
}

static void range_outside_an_allocation_is_refused(void **state) {
    struct fixture f;
    struct life *life = &f.lives[0];
    const struct sc_device *d;

    (void)state;
    start_one(&f);
    d = life->device;
    assert_int_equal(d->add_bf16(d->ctx, life->buf + 2, life->scratch, BYTES, EPOCH, life->stream),
                     SC_INVALID);
    expect_violation(&f, "outside any live allocation");
    assert_int_equal(d->add_bf16(d->ctx, life->buf, life->scratch, 3, EPOCH, life->stream),
                     SC_INVALID);
    expect_violation(&f, "half an element");
    finish(&f);
}

static void work_on_freed_memory_is_reported_when_it_runs(void **state) {
    struct fixture f;
    struct life *life = &f.lives[0];

    (void)state;
    start_one(&f);
    compute(life, MS);
    add(life, EPOCH);
    assert_int_equal(life->device->mem_free(life->device->ctx, life->scratch), SC_OK);
    run_for(&f, 2 * MS);
    expect_violation(&f, "after they were freed");
    finish(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_aligned_bounded_and_counted),
        cmocka_unit_test(overwritten_red_zone_is_reported_at_free_and_at_death),
        cmocka_unit_test(memory_of_a_killed_process_ends_but_may_be_written_until_it_is_reaped),
        cmocka_unit_test(range_outside_an_allocation_is_refused),
        cmocka_unit_test(work_on_freed_memory_is_reported_when_it_runs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
