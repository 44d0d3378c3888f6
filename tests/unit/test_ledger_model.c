// SPDX-License-Identifier: AGPL-3.0-only
//
// core/ledger.h against a model that keeps every op in one long list and counts anew each time.
#include "core/ledger.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define OPS 1200u
#define RUN_MAX 5u
#define STREAMS 20u // more than there are slots

struct op {
    uint64_t stream;
    uint32_t seqs;
    bool started, done;
};

static struct op ops[OPS + 1]; // by number
static struct sc_op_desc seqs[OPS * RUN_MAX + 1];
static uint64_t digests[OPS * RUN_MAX + 1];
static uint64_t ops_count, seqs_count, left_count;
static struct sc_ledger *ledger;

static uint64_t random_state;

static uint32_t random_below(uint32_t limit) { // xorshift64*
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (uint32_t)((random_state * 0x2545f4914f6cdd1du) >> 33) % limit;
}

// The first op that is not done: every earlier one has left.
static uint64_t oldest(void) {
    while (left_count < ops_count && ops[left_count + 1].done)
        left_count++;
    return left_count + 1;
}

static sc_status room(uint64_t stream, uint32_t count) {
    uint32_t in_flight = 0, streams = 0;
    bool known = stream == SC_STREAM_NONE;
    if (count > ledger->capacity)
        return SC_TOO_LARGE;
    for (uint64_t n = oldest(); n <= ops_count; n++) {
        in_flight += ops[n].seqs;
        bool first = !ops[n].done && ops[n].stream != SC_STREAM_NONE;
        for (uint64_t m = oldest(); m < n; m++)
            first = first && (ops[m].done || ops[m].stream != ops[n].stream);
        streams += first;
        known = known || (!ops[n].done && ops[n].stream == stream);
    }
    bool full = ops_count - oldest() + 1 >= ledger->capacity;
    bool late = in_flight + count > ledger->capacity;
    return full || late || (!known && streams == SC_STREAMS_MAX) ? SC_BUSY : SC_OK;
}

static void push_something(void) {
    struct sc_op_desc list[RUN_MAX];
    uint32_t count = 1 + random_below(RUN_MAX), collectives = 0;
    uint64_t stream = random_below(8) == 0 ? SC_STREAM_NONE : random_below(STREAMS);
    for (uint32_t i = 0; i < count; i++) {
        list[i] =
            (struct sc_op_desc){random_below(SC_OP_KIND_COUNT), random_below(3), random_below(100)};
        collectives += sc_op_is_collective(list[i].kind);
    }
    sc_status verdict = room(stream, collectives);
    assert_int_equal(sc_ledger_room(ledger, stream, collectives), verdict);
    if (verdict != SC_OK)
        return;
    const struct sc_ledger_entry *entry = sc_ledger_push(ledger, stream, list, count);
    ops[++ops_count] = (struct op){.stream = stream, .seqs = collectives};
    assert_int_equal(entry->number, ops_count);
    assert_int_equal(entry->first_seq, collectives != 0 ? seqs_count + 1 : 0);
    for (uint32_t i = 0; i < count; i++) {
        if (!sc_op_is_collective(list[i].kind))
            continue;
        seqs[++seqs_count] = list[i];
        digests[seqs_count] = sc_digest_next(digests[seqs_count - 1], &list[i]);
    }
    assert_int_equal(sc_ledger_last_seq(entry), collectives != 0 ? seqs_count : 0);
}

static void advance_something(void) {
    uint64_t first = oldest();
    if (first > ops_count)
        return;
    uint64_t number = first + random_below((uint32_t)(ops_count - first + 1));
    struct op *op = &ops[number];
    struct sc_ledger_entry *entry = sc_ledger_find(ledger, number);
    assert_non_null(entry);
    assert_int_equal(entry->done, op->done);
    assert_int_equal(entry->started, op->started);
    if (op->done)
        return;
    op->started = true;
    if (random_below(2) == 0) {
        sc_ledger_start(ledger, entry);
    } else {
        op->done = true;
        sc_ledger_finish(ledger, entry);
    }
}

static bool waits(void) {
    return oldest() <= ops_count && !ops[oldest()].started;
}

static void compare(void) {
    uint64_t completed = 0, started = 0, n;
    for (n = 1; n < oldest(); n++)
        completed += ops[n].seqs;
    for (n = 1; n <= ops_count && ops[n].started; n++)
        started += ops[n].seqs;
    assert_int_equal(ledger->submitted_seq, seqs_count);
    assert_int_equal(ledger->started_seq, started);
    assert_int_equal(ledger->completed_seq, completed);
    assert_int_equal(ledger->digest, digests[seqs_count]);
    assert_int_equal(ledger->oldest_number, oldest());
    assert_int_equal(sc_ledger_empty(ledger), oldest() > ops_count);
    assert_int_equal(sc_ledger_waits(ledger), waits());
    assert_null(sc_ledger_find(ledger, oldest() - 1));
    assert_null(sc_ledger_find(ledger, ops_count + 1));
    uint64_t seq = 1 + random_below((uint32_t)seqs_count + 1);
    const struct sc_ledger_seq *known = sc_ledger_seq(ledger, seq);
    bool within = seq <= seqs_count && seqs_count - seq < ledger->capacity;
    assert_int_equal(known != NULL, within);
    if (known == NULL)
        return;
    assert_memory_equal(&known->desc, &seqs[seq], sizeof seqs[seq]);
    assert_int_equal(known->digest, digests[seq]);
}

// Fills and drains by turns: `fill` of ten steps push.
static void agrees_with_the_model(uint64_t seed, uint32_t capacity, uint32_t steps) {
    random_state = seed;
    ledger = calloc(1, sc_ledger_bytes(capacity));
    assert_non_null(ledger);
    sc_ledger_init(ledger, capacity);
    uint64_t pushed = 0;
    for (uint32_t fill = 8; fill > 1; fill -= 2) {
        ops_count = seqs_count = left_count = 0;
        for (uint32_t i = 0; i < steps && ops_count < OPS; i++) {
            if (random_below(10) < fill)
                push_something();
            else
                advance_something();
            compare();
        }
        pushed += ops_count;
        sc_ledger_reset(ledger);
    }
    free(ledger);
    assert_true(pushed > 4 * capacity); // the ring went round
}

static void a_small_ledger_agrees_with_the_model(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++)
        agrees_with_the_model(seed, 4 + (uint32_t)seed, 600);
}

static void a_ledger_with_more_streams_than_slots_agrees_with_the_model(void **state) {
    (void)state;
    for (uint64_t seed = 101; seed <= 103; seed++)
        agrees_with_the_model(seed, 60, 1200);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_ledger_agrees_with_the_model),
        cmocka_unit_test(a_ledger_with_more_streams_than_slots_agrees_with_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
