// SPDX-License-Identifier: AGPL-3.0-only
//
// Which payloads are exchanged in pairs, by the times of both ways.
#include "hal_cuda/sc_cuda.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define SIZES SC_CUDA_LANE_SIZES
#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)
#define NEVER SC_CUDA_LANE_NEVER

struct row {
    const char *name;
    // By size from 4 KiB on: the pair's times, where NCCL's all-reduce takes 100 each.
    float pair[SIZES];
    uint64_t from, to;
};

static const struct row rows[] = {
    // 4 KiB  8K  16K  32K  64K 128K 256K 512K  1M   2M   4M   8M
    {"never", {120, 120, 120, 120, 120, 120, 120, 120, 120, 120, 120, 120}, UINT64_MAX, UINT64_MAX},
    {"always", {50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50}, 0, UINT64_MAX},
    {"nothing to choose",
     {100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100},
     UINT64_MAX,
     UINT64_MAX},
    {"only 2 MiB", {150, 150, 150, 150, 150, 150, 150, 140, 124, 86, 105, 120}, 2 * MIB, 4 * MIB},
    {"from 64 KiB on", {150, 140, 130, 110, 90, 80, 70, 60, 60, 60, 60, 60}, 64 * KIB, UINT64_MAX},
    {"below 64 KiB", {60, 60, 70, 80, 101, 120, 130, 140, 140, 140, 140, 140}, 0, 64 * KIB},
    {"noise of 1 % does not count",
     {99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99},
     UINT64_MAX,
     UINT64_MAX},
    {"noise around a win is left out",
     {120, 99, 99, 50, 99, 99, 120, 120, 120, 120, 120, 120},
     32 * KIB,
     64 * KIB},
    {"noise between two wins parts nothing",
     {120, 80, 101, 80, 120, 120, 120, 120, 120, 120, 120, 120},
     8 * KIB,
     64 * KIB},
    {"a small loss between two wins is taken with them",
     {120, 50, 110, 50, 120, 120, 120, 120, 120, 120, 120, 120},
     8 * KIB,
     64 * KIB},
    {"a great loss between two wins parts them",
     {90, 120, 200, 50, 50, 120, 120, 120, 120, 120, 120, 120},
     32 * KIB,
     128 * KIB},
    {"many small wins outdo a greater one",
     {70, 200, 85, 85, 85, 200, 200, 200, 200, 200, 200, 200},
     16 * KIB,
     128 * KIB},
    {"all_reduce is forced",
     {NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER},
     UINT64_MAX,
     UINT64_MAX},
};

static struct sc_cuda_lane_times times_of(const struct row *row, float all_reduce) {
    struct sc_cuda_lane_times times;
    for (uint32_t i = 0; i < SIZES; i++) {
        times.all_reduce[i] = all_reduce;
        times.pair[i] = row->pair[i];
    }
    return times;
}

static void expect(const char *name, const struct sc_cuda_lane_times *times, uint32_t sizes,
                   uint64_t from, uint64_t to) {
    uint64_t chosen_from = 1, chosen_to = 1;
    sc_cuda_lane_choice(times, sizes, &chosen_from, &chosen_to);
    if (chosen_from != from || chosen_to != to)
        fail_msg("%s: from %llu to %llu, expected from %llu to %llu", name,
                 (unsigned long long)chosen_from, (unsigned long long)chosen_to,
                 (unsigned long long)from, (unsigned long long)to);
}

static void the_range_by_which_most_is_gained_is_exchanged_in_pairs(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct sc_cuda_lane_times times = times_of(&rows[i], 100);
        expect(rows[i].name, &times, SIZES, rows[i].from, rows[i].to);
    }
}

static void a_forced_pair_is_taken_at_every_size(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct sc_cuda_lane_times times = times_of(&rows[i], NEVER);
        // Ranks of which each forces another way take the all-reduce.
        bool both = rows[i].pair[0] >= NEVER;
        expect(rows[i].name, &times, SIZES, both ? UINT64_MAX : 0, UINT64_MAX);
    }
}

static void the_largest_size_that_was_measured_stands_for_all_above(void **state) {
    (void)state;
    struct sc_cuda_lane_times times = {.all_reduce = {100, 100, 100}, .pair = {120, 50, 50}};
    expect("two of three", &times, 3, 8 * KIB, UINT64_MAX);
    expect("one of two", &times, 2, 8 * KIB, UINT64_MAX);
    expect("none of one", &times, 1, UINT64_MAX, UINT64_MAX);
    times.pair[0] = 50;
    expect("one of one", &times, 1, 0, UINT64_MAX);
}

static void no_size_above_the_capacity_is_measured_but_the_smallest(void **state) {
    static const struct {
        uint64_t capacity_bytes;
        uint32_t sizes;
    } expected[] = {
        {2, 1},        {4096, 1},     {8191, 1},        {8192, 2},         {MIB, 9},
        {2 * MIB, 10}, {6 * MIB, 11}, {8 * MIB, SIZES}, {64 * MIB, SIZES}, {UINT64_MAX, SIZES},
    };
    (void)state;
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        assert_int_equal(sc_cuda_lane_sizes(expected[i].capacity_bytes), expected[i].sizes);
    assert_int_equal(sc_cuda_lane_bytes(SIZES - 1), 8 * MIB);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_range_by_which_most_is_gained_is_exchanged_in_pairs),
        cmocka_unit_test(a_forced_pair_is_taken_at_every_size),
        cmocka_unit_test(the_largest_size_that_was_measured_stands_for_all_above),
        cmocka_unit_test(no_size_above_the_capacity_is_measured_but_the_smallest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
