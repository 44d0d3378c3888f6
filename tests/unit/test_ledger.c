// SPDX-License-Identifier: AGPL-3.0-only
//
// core/ledger.h: ops in flight by number, collectives by seq, and what they add up to.
#include "core/ledger.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ENTRIES 8u
#define A 0xaau // two streams
#define B 0xbbu

static struct sc_ledger *ledger;

static int open_ledger(void **state) {
    (void)state;
    ledger = calloc(1, sc_ledger_bytes(ENTRIES));
    assert_non_null(ledger);
    sc_ledger_init(ledger, ENTRIES);
    return 0;
}

static int close_ledger(void **state) {
    (void)state;
    free(ledger);
    return 0;
}

static struct sc_op_desc reduce(uint64_t bytes) {
    return (struct sc_op_desc){SC_OP_ALL_REDUCE, 0, bytes};
}

static struct sc_ledger_entry *push(uint64_t stream, uint32_t kind) {
    const struct sc_op_desc desc = {kind, 0, 64};
    assert_int_equal(sc_ledger_room(ledger, stream, sc_op_is_collective(kind)), SC_OK);
    return sc_ledger_push(ledger, stream, &desc, 1);
}

static struct sc_ledger_entry *push_run(uint64_t stream, uint32_t count) {
    struct sc_op_desc list[ENTRIES];
    for (uint32_t i = 0; i < count; i++)
        list[i] = reduce(2 * i + 2);
    assert_int_equal(sc_ledger_room(ledger, stream, count), SC_OK);
    return sc_ledger_push(ledger, stream, list, count);
}

static void finish(uint64_t number) {
    struct sc_ledger_entry *entry = sc_ledger_find(ledger, number);
    assert_non_null(entry);
    sc_ledger_finish(ledger, entry);
}

static void start(uint64_t number) {
    struct sc_ledger_entry *entry = sc_ledger_find(ledger, number);
    assert_non_null(entry);
    sc_ledger_start(ledger, entry);
}

static void an_empty_ledger_holds_nothing(void **state) {
    (void)state;
    assert_true(sc_ledger_empty(ledger));
    assert_false(sc_ledger_waits(ledger));
    assert_null(sc_ledger_oldest(ledger));
    assert_null(sc_ledger_find(ledger, 0));
    assert_null(sc_ledger_find(ledger, 1));
    assert_null(sc_ledger_seq(ledger, 0));
    assert_null(sc_ledger_seq(ledger, 1));
}

static void numbers_and_seqs_start_at_one(void **state) {
    (void)state;
    const struct sc_ledger_entry *entry = push(A, SC_OP_ALL_REDUCE);
    assert_int_equal(entry->number, 1);
    assert_int_equal(entry->first_seq, 1);
    assert_int_equal(sc_ledger_last_seq(entry), 1);
    assert_int_equal(ledger->submitted_seq, 1);
}

static void a_replay_takes_one_number_and_a_run_of_seqs(void **state) {
    (void)state;
    (void)push(A, SC_OP_ALL_REDUCE);
    const struct sc_ledger_entry *run = push_run(A, 5);
    assert_int_equal(run->number, 2);
    assert_int_equal(run->first_seq, 2);
    assert_int_equal(sc_ledger_last_seq(run), 6);
    assert_int_equal(ledger->submitted_seq, 6);
    const struct sc_ledger_entry *next = push(A, SC_OP_BROADCAST);
    assert_int_equal(next->number, 3);
    assert_int_equal(next->first_seq, 7);
}

static void send_and_recv_take_a_number_and_no_seq(void **state) {
    (void)state;
    const uint64_t before = ledger->digest;
    const struct sc_ledger_entry *send = push(A, SC_OP_SEND);
    const struct sc_ledger_entry *recv = push(A, SC_OP_RECV);
    assert_int_equal(recv->number, 2);
    assert_int_equal(send->first_seq, 0);
    assert_int_equal(sc_ledger_last_seq(recv), 0);
    assert_int_equal(ledger->submitted_seq, 0);
    assert_int_equal(ledger->digest, before);
}

static void a_run_with_pair_ops_in_it_takes_seqs_for_the_others_only(void **state) {
    const struct sc_op_desc list[] = {
        {SC_OP_SEND, 1, 2}, {SC_OP_ALL_REDUCE, 0, 2}, {SC_OP_RECV, 1, 2}, {SC_OP_BROADCAST, 1, 2}};
    (void)state;
    const struct sc_ledger_entry *entry = sc_ledger_push(ledger, A, list, 4);
    assert_int_equal(entry->seqs, 2);
    assert_int_equal(entry->first_seq, 1);
    assert_int_equal(sc_ledger_last_seq(entry), 2);
}

static void digests_are_equal_only_for_equal_sequences(void **state) {
    const struct sc_op_desc base[] = {{SC_OP_ALL_REDUCE, 0, 4096}, {SC_OP_BROADCAST, 1, 64}};
    const struct sc_op_desc others[][2] = {
        {base[1], base[0]},                     // order
        {{SC_OP_ALL_GATHER, 0, 4096}, base[1]}, // kind
        {base[0], {SC_OP_BROADCAST, 0, 64}},    // root
        {base[0], {SC_OP_BROADCAST, 1, 65}},    // bytes
        {{SC_OP_ALL_REDUCE, 0, 0}, base[1]},    // nothing
        {base[0], {SC_OP_ALL_REDUCE, 64, 1}},   // fields swapped
        {{SC_OP_ALL_REDUCE, 0, 4096ull << 32}, base[1]},
    };
    (void)state;
    const uint64_t digest = sc_digest_next(sc_digest_next(0, &base[0]), &base[1]);
    assert_int_equal(sc_digest_next(sc_digest_next(0, &base[0]), &base[1]), digest);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_int_not_equal(sc_digest_next(sc_digest_next(0, &others[i][0]), &others[i][1]),
                             digest);
    assert_int_not_equal(sc_digest_next(0, &base[0]), 0); // one op is not none
}

static void a_run_has_the_digest_of_its_ops_one_by_one(void **state) {
    uint64_t digest = 0;
    (void)state;
    (void)push_run(A, 3);
    for (uint64_t i = 0; i < 3; i++) {
        const struct sc_op_desc desc = reduce(2 * i + 2);
        digest = sc_digest_next(digest, &desc);
        assert_int_equal(sc_ledger_seq(ledger, i + 1)->digest, digest);
        assert_int_equal(sc_ledger_seq(ledger, i + 1)->desc.bytes, desc.bytes);
    }
    assert_int_equal(ledger->digest, digest);
}

static void finished_ops_count_when_all_before_them_have_finished(void **state) {
    (void)state;
    (void)push(A, SC_OP_ALL_REDUCE);
    (void)push(B, SC_OP_ALL_REDUCE);
    (void)push(B, SC_OP_ALL_REDUCE);
    finish(2);
    assert_int_equal(ledger->completed_seq, 0);
    assert_int_equal(sc_ledger_oldest(ledger)->number, 1);
    finish(1);
    assert_int_equal(ledger->completed_seq, 2);
    assert_null(sc_ledger_find(ledger, 2));
    finish(3);
    assert_int_equal(ledger->completed_seq, 3);
    assert_true(sc_ledger_empty(ledger));
}

static void started_counts_when_all_before_have_started(void **state) {
    (void)state;
    (void)push(A, SC_OP_ALL_REDUCE);
    (void)push(B, SC_OP_ALL_REDUCE);
    (void)push_run(B, 3);
    start(2);
    assert_int_equal(ledger->started_seq, 0);
    start(1);
    assert_int_equal(ledger->started_seq, 2);
    start(3);
    assert_int_equal(ledger->started_seq, 5);
    start(1); // told twice
    assert_int_equal(ledger->started_seq, 5);
}

static void what_has_finished_has_started(void **state) {
    (void)state;
    (void)push(A, SC_OP_ALL_REDUCE);
    finish(1);
    assert_int_equal(ledger->started_seq, 1);
}

static void the_oldest_op_that_has_not_started_waits(void **state) {
    (void)state;
    assert_false(sc_ledger_waits(ledger));
    (void)push(A, SC_OP_ALL_REDUCE);
    (void)push(B, SC_OP_ALL_REDUCE);
    assert_true(sc_ledger_waits(ledger));
    start(1);
    assert_false(sc_ledger_waits(ledger)); // the second may wait for the first, from its own stream
    finish(1);
    assert_true(sc_ledger_waits(ledger));
    start(2);
    assert_false(sc_ledger_waits(ledger));
}

static void an_op_that_never_ran_leaves_from_behind_the_others(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++)
        (void)push(A, SC_OP_ALL_REDUCE);
    finish(2);
    (void)push(A, SC_OP_ALL_REDUCE);
    finish(4);
    start(1);
    finish(1);
    assert_int_equal(sc_ledger_oldest(ledger)->number, 3);
    assert_true(sc_ledger_waits(ledger));
    finish(3);
    assert_true(sc_ledger_empty(ledger));
    assert_int_equal(ledger->completed_seq, 4);
    assert_int_equal(push(A, SC_OP_ALL_REDUCE)->number, 5);
}

static void a_void_op_uses_no_stream(void **state) {
    (void)state;
    for (uint64_t i = 0; i < SC_STREAMS_MAX && i + 1 < ENTRIES; i++)
        (void)push(i, SC_OP_ALL_REDUCE);
    const uint64_t number = push(SC_STREAM_NONE, SC_OP_ALL_REDUCE)->number;
    start(1);
    finish(number);
    assert_int_equal(sc_ledger_oldest(ledger)->number, 1);
    assert_int_equal(ledger->completed_seq, 0);
}

static void a_full_ledger_is_busy(void **state) {
    (void)state;
    for (uint32_t i = 0; i < ENTRIES; i++)
        (void)push(A, SC_OP_SEND);
    assert_int_equal(sc_ledger_room(ledger, A, 0), SC_BUSY);
    assert_int_equal(sc_ledger_room(ledger, SC_STREAM_NONE, 0), SC_BUSY);
    finish(1);
    assert_int_equal(sc_ledger_room(ledger, A, 0), SC_OK);
}

static void seqs_in_flight_are_bounded_like_entries(void **state) {
    (void)state;
    (void)push_run(A, ENTRIES - 1);
    assert_int_equal(sc_ledger_room(ledger, A, 2), SC_BUSY);
    assert_int_equal(sc_ledger_room(ledger, A, 1), SC_OK);
    finish(1);
    assert_int_equal(sc_ledger_room(ledger, A, ENTRIES), SC_OK);
}

static void a_run_that_can_never_fit_is_too_large(void **state) {
    (void)state;
    assert_int_equal(sc_ledger_room(ledger, A, ENTRIES), SC_OK);
    assert_int_equal(sc_ledger_room(ledger, A, ENTRIES + 1), SC_TOO_LARGE);
    assert_int_equal(sc_ledger_room(ledger, A, UINT32_MAX), SC_TOO_LARGE);
}

static void one_stream_more_than_there_are_slots_is_busy(void **state) {
    (void)state;
    struct sc_ledger *wide = calloc(1, sc_ledger_bytes(64));
    assert_non_null(wide);
    sc_ledger_init(wide, 64);
    const struct sc_op_desc desc = reduce(2);
    for (uint64_t i = 0; i < SC_STREAMS_MAX; i++)
        (void)sc_ledger_push(wide, i, &desc, 1);
    assert_int_equal(sc_ledger_room(wide, SC_STREAMS_MAX, 1), SC_BUSY);
    assert_int_equal(sc_ledger_room(wide, 3, 1), SC_OK);
    assert_int_equal(sc_ledger_room(wide, SC_STREAM_NONE, 1), SC_OK);
    sc_ledger_finish(wide, sc_ledger_find(wide, 5));
    assert_int_equal(sc_ledger_room(wide, SC_STREAMS_MAX, 1), SC_OK);
    free(wide);
}

static void the_last_seqs_are_remembered_and_no_others(void **state) {
    (void)state;
    for (uint64_t seq = 1; seq <= 3 * ENTRIES; seq++) {
        finish(push(A, SC_OP_ALL_REDUCE)->number);
        const uint64_t oldest = seq > ENTRIES ? seq - ENTRIES + 1 : 1;
        assert_non_null(sc_ledger_seq(ledger, oldest));
        assert_non_null(sc_ledger_seq(ledger, seq));
        assert_null(sc_ledger_seq(ledger, oldest - 1));
        assert_null(sc_ledger_seq(ledger, seq + 1));
    }
    assert_null(sc_ledger_seq(ledger, UINT64_MAX));
    assert_null(sc_ledger_seq(ledger, UINT64_MAX - ENTRIES + 1));
}

static void a_reset_ledger_is_as_new(void **state) {
    (void)state;
    (void)push_run(A, 4);
    (void)push(B, SC_OP_ALL_REDUCE);
    finish(2);
    sc_ledger_reset(ledger);
    an_empty_ledger_holds_nothing(state);
    assert_int_equal(ledger->digest, 0);
    assert_int_equal(ledger->submitted_seq + ledger->started_seq + ledger->completed_seq, 0);
    numbers_and_seqs_start_at_one(state);
    assert_int_equal(sc_ledger_room(ledger, B, ENTRIES - 1), SC_OK);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_ledger, close_ledger)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(an_empty_ledger_holds_nothing),
        TEST(numbers_and_seqs_start_at_one),
        TEST(a_replay_takes_one_number_and_a_run_of_seqs),
        TEST(send_and_recv_take_a_number_and_no_seq),
        TEST(a_run_with_pair_ops_in_it_takes_seqs_for_the_others_only),
        TEST(digests_are_equal_only_for_equal_sequences),
        TEST(a_run_has_the_digest_of_its_ops_one_by_one),
        TEST(finished_ops_count_when_all_before_them_have_finished),
        TEST(started_counts_when_all_before_have_started),
        TEST(what_has_finished_has_started),
        TEST(the_oldest_op_that_has_not_started_waits),
        TEST(an_op_that_never_ran_leaves_from_behind_the_others),
        TEST(a_void_op_uses_no_stream),
        TEST(a_full_ledger_is_busy),
        TEST(seqs_in_flight_are_bounded_like_entries),
        TEST(a_run_that_can_never_fit_is_too_large),
        TEST(one_stream_more_than_there_are_slots_is_busy),
        TEST(the_last_seqs_are_remembered_and_no_others),
        TEST(a_reset_ledger_is_as_new),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
