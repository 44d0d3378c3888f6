// SPDX-License-Identifier: AGPL-3.0-only
//
// Collectives of a world of two: what is refused before it begins, what is told when ranks disagree,
// and that what is told as complete is right to the last bit.
#include "core/capacity.h"
#include "tests/support/rig.h"

#define MS RIG_MS
#define SECOND RIG_SECOND
#define ONE 0x3F80u
#define TWO 0x4000u
#define FOUR 0x4080u

static struct sc_op_desc all_reduce_of(uint64_t bytes) {
    return (struct sc_op_desc){.kind = SC_OP_ALL_REDUCE, .bytes = bytes};
}

static struct sc_op_desc broadcast_of(uint64_t bytes, uint32_t root) {
    return (struct sc_op_desc){.kind = SC_OP_BROADCAST, .root = root, .bytes = bytes};
}

static struct rig_op submit_at(struct rig *rig, uint32_t rank, struct sc_op_desc desc,
                               uint64_t address) {
    return rig_submit(rig, rank, desc,
                      (struct sc_op_place){address, address, rig->ranks[rank].streams[0]});
}

// ---- ranks that disagree ----

// Each rank submits its op under seq 1 and wants agreement: none is told of it, both leave with the
// same verdict, which holds both descriptions, and a new epoch forms.
static void expect_mismatch(struct sc_op_desc ours, struct sc_op_desc theirs) {
    struct rig_config config = rig_config(2);
    config.core.capacity_bytes = 1 << 20;
    struct rig *rig = rig_start(&config);
    const struct sc_op_desc descs[] = {ours, theirs};
    uint64_t epoch = rig_epoch(rig, 0);
    for (uint32_t r = 0; r < 2; r++) {
        uint64_t address = rig_alloc(rig, r, 1 << 20);
        rig_fill(rig, r, address, 1 << 19, ONE);
        struct rig_op op = submit_at(rig, r, descs[r], address);
        assert_int_equal(op.status, SC_OK);
        assert_int_equal(op.seq, 1);
        assert_int_equal(rig_sync(rig, r, op.seq), SC_OK);
    }
    rig_until(rig, SECOND,
              rig_change(rig, 0, SC_STATE_ABORTING) != NULL &&
                  rig_change(rig, 1, SC_STATE_ABORTING) != NULL);
    for (uint32_t r = 0; r < 2; r++) {
        struct sc_cause cause = rig_view(rig, r).cause;
        rig_expect_cause(rig, r, SC_MISMATCH, 1);
        assert_int_equal(cause.seq, 1);
        assert_memory_equal(&cause.op[0], &ours, sizeof ours);
        assert_memory_equal(&cause.op[1], &theirs, sizeof theirs);
    }
    rig_until(rig, 10 * SECOND, rig_is_ready_after(rig, epoch));
    assert_int_equal(rig_notices(rig, 0, SC_NOTICE_AGREED), 0);
    assert_int_equal(rig_notices(rig, 1, SC_NOTICE_AGREED), 0);
    rig_close(rig);
}

static void unequal_sizes_are_a_mismatch_that_names_both_c1(void **state) {
    (void)state;
    expect_mismatch(all_reduce_of(8192), all_reduce_of(4096));
    expect_mismatch(all_reduce_of(4096), all_reduce_of(8192));
}

static void sizes_that_differ_by_two_elements_are_a_mismatch_c1(void **state) {
    (void)state;
    expect_mismatch(all_reduce_of(819200), all_reduce_of(819196));
    expect_mismatch(all_reduce_of(819196), all_reduce_of(819200));
}

static void different_kinds_are_a_mismatch_c3(void **state) {
    (void)state;
    expect_mismatch(broadcast_of(4096, 0), all_reduce_of(4096));
    expect_mismatch(all_reduce_of(4096), broadcast_of(4096, 0));
}

static void different_roots_are_a_mismatch_c3(void **state) {
    (void)state;
    expect_mismatch(broadcast_of(4096, 0), broadcast_of(4096, 1));
}

static void an_empty_op_never_pairs_with_a_full_one_c2(void **state) {
    struct rig *rig = rig_start_world(2);
    (void)state;
    uint64_t mine = rig_alloc(rig, 0, 4096), theirs = rig_alloc(rig, 1, 4096);
    assert_int_equal(submit_at(rig, 0, all_reduce_of(0), mine).status, SC_OK);
    struct rig_op second = submit_at(rig, 0, all_reduce_of(4096), mine);
    struct rig_op first = submit_at(rig, 1, all_reduce_of(4096), theirs);
    assert_int_equal(second.seq, 2);
    assert_int_equal(first.seq, 1);
    assert_int_equal(rig_sync(rig, 0, 2), SC_OK);
    assert_int_equal(rig_sync(rig, 1, 1), SC_OK);
    rig_until(rig, SECOND,
              rig_change(rig, 0, SC_STATE_ABORTING) != NULL &&
                  rig_change(rig, 1, SC_STATE_ABORTING) != NULL);
    for (uint32_t r = 0; r < 2; r++) {
        rig_expect_cause(rig, r, SC_MISMATCH, 1);
        assert_int_equal(rig_view(rig, r).cause.seq, 1);
        assert_int_equal(rig_view(rig, r).cause.op[0].bytes, 0);
        assert_int_equal(rig_view(rig, r).cause.op[1].bytes, 4096);
        assert_int_equal(rig_notices(rig, r, SC_NOTICE_AGREED), 0);
    }
    rig_finish(rig);
}

static void empty_ops_are_agreed_upon_and_launch_nothing_c2(void **state) {
    struct rig *rig = rig_start_world(2);
    uint64_t before[2];
    (void)state;
    for (uint32_t r = 0; r < 2; r++) {
        before[r] = rig_calls_of_all_verbs(rig, r);
        struct rig_op op = submit_at(rig, r, all_reduce_of(0), 0);
        assert_int_equal(op.status, SC_OK);
        assert_int_equal(op.seq, 1);
        assert_true(rig_is_done(rig, r, &op));
        assert_int_equal(rig_calls_of_all_verbs(rig, r), before[r]);
        assert_int_equal(rig_sync(rig, r, 1), SC_OK);
    }
    uint64_t epoch = rig_epoch(rig, 0);
    rig_until(rig, 10 * MS, rig_has_agreed(rig, 0, epoch, 1) && rig_has_agreed(rig, 1, epoch, 1));
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(rig_calls(rig, r, SC_VERB_op_begin), 0);
        assert_int_equal(rig_calls(rig, r, SC_VERB_group_begin), 0);
    }
    rig_close(rig);
}

// A stream is done with its ops in order, so that one answer tells of all before.
static void ops_that_are_all_done_are_not_asked_one_by_one(void **state) {
    struct rig *rig = rig_start_world(2);
    const uint64_t ops = 60;
    struct rig_op last = {.epoch = 0};
    (void)state;
    for (uint32_t r = 0; r < 2; r++) {
        uint64_t address = rig_alloc(rig, r, 4096);
        for (uint64_t i = 0; i < ops; i++)
            last = submit_at(rig, r, all_reduce_of(4096), address);
        assert_int_equal(last.status, SC_OK);
    }
    sc_sim_pause(rig->ranks[1].process); // its GPU goes on
    rig_run(rig, 10 * MS);
    sc_sim_resume(rig->ranks[1].process);
    uint64_t before = rig_calls(rig, 1, SC_VERB_op_poll);
    rig_until(rig, SECOND, rig_is_done(rig, 1, &last));
    assert_int_equal(rig_view(rig, 1).completed, ops);
    assert_int_equal(rig_calls(rig, 1, SC_VERB_op_poll) - before, 2);
    rig_close(rig);
}

// ---- what is refused ----

static void capacity_passes_whole_c4(void **state) {
    struct rig_config config = rig_config(2);
    struct rig_op ops[2];
    uint64_t addresses[2];
    const uint64_t canary = 256;
    (void)state;
    assert_int_equal(sc_payload_capacity(8192, 4096, &config.core.capacity_bytes), SC_OK);
    const uint64_t bytes = config.core.capacity_bytes;
    assert_int_equal(bytes, UINT64_C(8192) * 4096 * 2);
    struct rig *rig = rig_start(&config);
    for (uint32_t r = 0; r < 2; r++) {
        addresses[r] = rig_alloc(rig, r, bytes + canary);
        rig_fill(rig, r, addresses[r], bytes / 2, ONE);
        rig_fill(rig, r, addresses[r] + bytes, canary / 2, 0xA5A5);
        ops[r] = rig_all_reduce(rig, r, addresses[r], bytes, 0);
        assert_int_equal(ops[r].status, SC_OK);
    }
    rig_until(rig, SECOND, rig_is_done(rig, 0, &ops[0]) && rig_is_done(rig, 1, &ops[1]));
    for (uint32_t r = 0; r < 2; r++) {
        rig_expect_all(rig, r, addresses[r], bytes / 2, TWO);
        rig_expect_all(rig, r, addresses[r] + bytes, canary / 2, 0xA5A5);
    }
    rig_close(rig);
}

static void refused_at_once(struct rig *rig, struct sc_op_desc desc, uint64_t address,
                            sc_status status) {
    uint64_t before = rig_calls_of_all_verbs(rig, 0);
    struct sc_core_view view = rig_view(rig, 0);
    assert_int_equal(submit_at(rig, 0, desc, address).status, status);
    assert_int_equal(rig_calls_of_all_verbs(rig, 0), before);
    assert_int_equal(rig_view(rig, 0).submitted, view.submitted);
    assert_int_equal(rig_state(rig, 0), SC_STATE_READY);
}

static void capacity_plus_two_is_refused_before_anything_is_sent_c4(void **state) {
    struct rig_config config = rig_config(2);
    (void)state;
    config.core.capacity_bytes = 8192;
    struct rig *rig = rig_start(&config);
    uint64_t address = rig_alloc(rig, 0, 8192 + 256);
    rig_fill(rig, 0, address, 4096, ONE);
    rig_fill(rig, 0, address + 8192, 128, 0xA5A5);
    refused_at_once(rig, all_reduce_of(8192 + 2), address, SC_CAPACITY);
    refused_at_once(rig, broadcast_of(8192 + 2, 0), address, SC_CAPACITY);
    struct sc_op_desc gather = {.kind = SC_OP_ALL_GATHER, .bytes = 4096 + 2};
    refused_at_once(rig, gather, address, SC_CAPACITY);
    rig_run(rig, SECOND);
    rig_expect_all(rig, 0, address, 4096, ONE);
    rig_expect_all(rig, 0, address + 8192, 128, 0xA5A5);
    rig_close(rig);
}

static void a_size_that_overflows_is_refused_c4(void **state) {
    struct rig_config config = rig_config(2);
    uint64_t bytes = 1;
    (void)state;
    assert_int_equal(sc_payload_capacity(UINT64_C(1) << 40, UINT64_C(1) << 40, &bytes),
                     SC_TOO_LARGE);
    assert_int_equal(bytes, 1);
    struct rig *rig = rig_start(&config);
    uint64_t address = rig_alloc(rig, 0, 4096);
    refused_at_once(rig, all_reduce_of(UINT64_MAX - 1), address, SC_TOO_LARGE);
    refused_at_once(rig, all_reduce_of(UINT64_C(1) << 63), address, SC_TOO_LARGE);
    refused_at_once(rig, all_reduce_of(4096), UINT64_MAX - 1, SC_INVALID);
    rig_close(rig);
}

static void half_an_element_is_refused_c5(void **state) {
    struct rig *rig = rig_start_world(2);
    (void)state;
    uint64_t address = rig_alloc(rig, 0, 8192);
    refused_at_once(rig, all_reduce_of(2), address + 1, SC_ALIGN);
    refused_at_once(rig, all_reduce_of(4096), address + 1, SC_ALIGN);
    refused_at_once(rig, all_reduce_of(4097), address, SC_INVALID);
    refused_at_once(rig, all_reduce_of(1), address, SC_INVALID);
    rig_close(rig);
}

// ---- what is exact ----

static void an_element_aligned_address_is_exact_and_its_neighbours_stay_c5(void **state) {
    struct rig *rig = rig_start_world(2);
    uint64_t addresses[2];
    struct rig_op ops[2];
    (void)state;
    for (uint32_t r = 0; r < 2; r++)
        addresses[r] = rig_alloc(rig, r, 64);
    for (uint64_t count = 1; count <= 17; count++) {
        for (uint32_t r = 0; r < 2; r++) {
            rig_fill(rig, r, addresses[r], 32, 0x1234);
            rig_fill(rig, r, addresses[r] + 2, count, r == 0 ? ONE : TWO);
            ops[r] = rig_all_reduce(rig, r, addresses[r] + 2, count * 2, 0);
            assert_int_equal(ops[r].status, SC_OK);
        }
        rig_until(rig, SECOND, rig_is_done(rig, 0, &ops[0]) && rig_is_done(rig, 1, &ops[1]));
        for (uint32_t r = 0; r < 2; r++) {
            rig_expect_all(rig, r, addresses[r], 1, 0x1234);
            rig_expect_all(rig, r, addresses[r] + 2, count, 0x4040);
            rig_expect_all(rig, r, addresses[r] + 2 + count * 2, 31 - count, 0x1234);
        }
    }
    rig_close(rig);
}

static void sums_have_the_same_right_bits_on_both_ranks_c6(void **state) {
    static const struct {
        uint16_t a, b, sum;
    } rows[] = {
        {0x3F80, 0x3B80, 0x3F80}, {0x3F81, 0x3B80, 0x3F82}, {0x7F7F, 0x7B00, 0x7F80},
        {0x7F7F, 0x7AFF, 0x7F7F}, {0x0001, 0x0001, 0x0002}, {0x8000, 0x8000, 0x8000},
        {0x7FC1, 0x7FD2, 0x7FFF},
    };
    const uint32_t count = sizeof rows / sizeof rows[0];
    struct rig *rig = rig_start_world(2);
    uint64_t addresses[2];
    struct rig_op ops[2];
    (void)state;
    for (uint32_t r = 0; r < 2; r++) {
        addresses[r] = rig_alloc(rig, r, 4 * count);
        uint16_t *memory = rig_memory(rig, r, addresses[r], 2 * count);
        for (uint32_t i = 0; i < count; i++) { // each row in both orders
            memory[i] = r == 0 ? rows[i].a : rows[i].b;
            memory[count + i] = r == 0 ? rows[i].b : rows[i].a;
        }
        ops[r] = rig_all_reduce(rig, r, addresses[r], 4 * count, 0);
    }
    rig_until(rig, SECOND, rig_is_done(rig, 0, &ops[0]) && rig_is_done(rig, 1, &ops[1]));
    for (uint32_t r = 0; r < 2; r++) {
        for (uint32_t i = 0; i < count; i++) {
            rig_expect_all(rig, r, addresses[r] + 2 * i, 1, rows[i].sum);
            rig_expect_all(rig, r, addresses[r] + 2 * (count + i), 1, rows[i].sum);
        }
    }
    rig_close(rig);
}

static void counts_around_two_to_the_31_are_right_or_too_large_c7(void **state) {
    static const uint64_t counts[] = {2147483647, 2147483648, 2147483656};
    struct rig_config config = rig_config(2);
    (void)state;
    config.core.capacity_bytes = counts[2] * 2;
    config.sizes_only = true;
    struct rig *rig = rig_start(&config);
    uint64_t address = rig_alloc(rig, 0, config.core.capacity_bytes);
    for (uint32_t i = 0; i < 3; i++) {
        struct rig_spy *spy = &rig->ranks[0].spy;
        uint64_t sends = rig_calls(rig, 0, SC_VERB_send);
        spy->sent_bytes = spy->received_bytes = spy->added_bytes = 0;
        struct rig_op op = rig_all_reduce(rig, 0, address, counts[i] * 2, 0);
        if (op.status == SC_TOO_LARGE) {
            assert_int_equal(rig_calls(rig, 0, SC_VERB_send), sends);
            continue;
        }
        assert_int_equal(op.status, SC_OK);
        assert_int_equal(spy->sent_bytes, counts[i] * 2);
        assert_int_equal(spy->received_bytes, counts[i] * 2);
        assert_int_equal(spy->added_bytes, counts[i] * 2);
    }
    rig_finish(rig);
}

// ---- two streams, one receive buffer ----

static void two_streams_never_share_the_receive_buffer_c9(void **state) {
    struct rig *rig = rig_start_world(2);
    uint64_t a[2], b[2];
    struct rig_op ops[2][2];
    (void)state;
    for (uint32_t r = 0; r < 2; r++) {
        a[r] = rig_alloc(rig, r, 128);
        b[r] = rig_alloc(rig, r, 128);
        rig->ranks[r].spy.add_late_stream = rig->ranks[r].streams[0];
    }
    for (uint32_t i = 0; i < 1000; i++) {
        for (uint32_t r = 0; r < 2; r++) { // late on both, on one, on the other, on none
            rig->ranks[r].spy.add_late_ns = (i >> r & 1u) == 0 ? 50 * MS : 0;
            rig_fill(rig, r, a[r], 64, ONE);
            rig_fill(rig, r, b[r], 64, TWO);
            ops[r][0] = rig_all_reduce(rig, r, a[r], 128, 0);
            ops[r][1] = rig_all_reduce(rig, r, b[r], 128, 1);
            assert_int_equal(ops[r][0].status, SC_OK);
            assert_int_equal(ops[r][1].status, SC_OK);
        }
        for (uint32_t r = 0; r < 2; r++)
            rig_until(rig, SECOND,
                      rig_is_done(rig, r, &ops[r][0]) && rig_is_done(rig, r, &ops[r][1]));
        for (uint32_t r = 0; r < 2; r++) {
            rig_expect_all(rig, r, a[r], 64, TWO);
            rig_expect_all(rig, r, b[r], 64, FOUR);
        }
    }
    assert_int_equal(rig_view(rig, 0).recoveries, 0);
    rig_close(rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(unequal_sizes_are_a_mismatch_that_names_both_c1, rig_teardown),
        cmocka_unit_test_teardown(sizes_that_differ_by_two_elements_are_a_mismatch_c1,
                                  rig_teardown),
        cmocka_unit_test_teardown(an_empty_op_never_pairs_with_a_full_one_c2, rig_teardown),
        cmocka_unit_test_teardown(empty_ops_are_agreed_upon_and_launch_nothing_c2, rig_teardown),
        cmocka_unit_test_teardown(ops_that_are_all_done_are_not_asked_one_by_one, rig_teardown),
        cmocka_unit_test_teardown(different_kinds_are_a_mismatch_c3, rig_teardown),
        cmocka_unit_test_teardown(different_roots_are_a_mismatch_c3, rig_teardown),
        cmocka_unit_test_teardown(capacity_passes_whole_c4, rig_teardown),
        cmocka_unit_test_teardown(capacity_plus_two_is_refused_before_anything_is_sent_c4,
                                  rig_teardown),
        cmocka_unit_test_teardown(a_size_that_overflows_is_refused_c4, rig_teardown),
        cmocka_unit_test_teardown(half_an_element_is_refused_c5, rig_teardown),
        cmocka_unit_test_teardown(an_element_aligned_address_is_exact_and_its_neighbours_stay_c5,
                                  rig_teardown),
        cmocka_unit_test_teardown(sums_have_the_same_right_bits_on_both_ranks_c6, rig_teardown),
        cmocka_unit_test_teardown(counts_around_two_to_the_31_are_right_or_too_large_c7,
                                  rig_teardown),
        cmocka_unit_test_teardown(two_streams_never_share_the_receive_buffer_c9, rig_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
