// SPDX-License-Identifier: AGPL-3.0-only
//
// Started ops through the public calls: what runs beside them, what a join makes wait, and that a
// ticket is good for once and for its epoch only.
#include "tests/support/api_run.h"

#define SLOW "ranks 2\nop takes 5ms 5ms\n"

static void start(struct api_rank *me, void *buffer, uint64_t bytes, sc_ticket *ticket) {
    DO(me, sc_all_reduce_start(me->comm, me->epoch, buffer, bytes, SC_BF16, me->stream, ticket));
    TRUE(me, *ticket != 0);
}

struct kernel {
    uint16_t *memory;
    uint16_t seen;
};

static void sets_two(void *arg) {
    struct kernel *k = arg;
    for (int i = 0; i < 64; i++)
        k->memory[i] = api_bf16(2);
}

static void looks(void *arg) {
    struct kernel *k = arg;
    k->seen = k->memory[63];
}

static void launch(struct api_rank *me, uint64_t ns, void (*fn)(void *), struct kernel *k) {
    DO(me, sc_sim_rank_launch(me->sim, me->stream, ns, fn, k));
}

static uint64_t drained_after(struct api_rank *me, uint64_t begun_ns) {
    DO(me, sc_sim_rank_stream_wait(me->sim, me->stream, 10 * SECOND));
    return api_now(me) - begun_ns;
}

static void overlaps(struct api_rank *me) {
    api_begin(me);
    uint16_t *b = api_buffer(me, 64, 1);
    struct kernel k = {.memory = api_memory(me, b, 128)};
    sc_ticket ticket;
    DO(me, sc_barrier(me->comm, me->epoch, SECOND));
    uint64_t begun_ns = api_now(me);
    launch(me, MS, sets_two, &k); // what the op adds is made here
    start(me, b, 128, &ticket);
    launch(me, 2 * MS, NULL, NULL); // … and this does not wait for it
    TRUE(me, drained_after(me, begun_ns) < 4 * MS);
    EXPECT(me, sc_test(me->comm, me->epoch, me->stream), SC_INPROGRESS);
    DO(me, sc_all_reduce_join(me->comm, me->epoch, ticket, me->stream));
    launch(me, MS, looks, &k); // … but this does
    uint64_t took_ns = drained_after(me, begun_ns);
    TRUE(me, took_ns >= 7 * MS && took_ns < 8 * MS);
    EQUAL(me, k.seen, api_bf16(4));
    DO(me, sc_sync(me->comm, me->epoch, me->stream, SC_SYNC_AGREED, SECOND));
    HOLDS(me, b, 64, 4);
    api_leave(me);
}

static void stream_goes_on_beside_a_started_op_and_waits_at_its_join(void **state) {
    (void)state;
    api_play(SLOW, overlaps);
}

static void starts_and_joins_in_one(struct api_rank *me) {
    api_begin(me);
    uint16_t *b = api_buffer(me, 64, 1);
    struct kernel k = {.memory = api_memory(me, b, 128)};
    DO(me, sc_barrier(me->comm, me->epoch, SECOND));
    uint64_t begun_ns = api_now(me);
    launch(me, MS, sets_two, &k);
    DO(me, sc_all_reduce_async(me->comm, me->epoch, b, 128, SC_BF16, me->stream));
    launch(me, MS, looks, &k);
    EQUAL(me, api_now(me), begun_ns);
    uint64_t took_ns = drained_after(me, begun_ns);
    TRUE(me, took_ns >= 7 * MS && took_ns < 8 * MS);
    EQUAL(me, k.seen, api_bf16(4));
    api_leave(me);
}

static void async_is_start_and_join_in_one(void **state) {
    (void)state;
    api_play(SLOW, starts_and_joins_in_one);
}

static void joins_elsewhere(struct api_rank *me) {
    api_begin(me);
    void *other = api_stream(me);
    uint16_t *b[4];
    sc_ticket t[4];
    for (int i = 0; i < 4; i++) {
        b[i] = api_buffer(me, 64, (uint32_t)i + 1);
        start(me, b[i], 128, &t[i]);
    }
    for (int i = 3; i >= 0; i--) // in any order, on any stream
        DO(me, sc_all_reduce_join(me->comm, me->epoch, t[i], i % 2 == 0 ? other : me->stream));
    DO(me, sc_sync(me->comm, me->epoch, other, SC_SYNC_LOCAL, SECOND));
    for (int i = 0; i < 4; i++)
        HOLDS(me, b[i], 64, 2 * ((uint32_t)i + 1));
    api_leave(me);
}

static void tickets_are_joined_in_any_order_on_any_stream(void **state) {
    (void)state;
    api_play("ranks 2", joins_elsewhere);
}

static void joins_twice(struct api_rank *me) {
    api_begin(me);
    uint16_t *b = api_buffer(me, 64, 1);
    sc_ticket ticket, other;
    sc_capture capture;
    EXPECT(me, sc_all_reduce_join(me->comm, me->epoch, 0, me->stream), SC_INVALID);
    EXPECT(me, sc_all_reduce_join(me->comm, me->epoch, 12345, me->stream), SC_INVALID);
    SAYS(me, "ticket 0x3039");
    start(me, b, 128, &ticket);
    start(me, b, 128, &other);
    TRUE(me, other != ticket);
    DO(me, sc_all_reduce_join(me->comm, me->epoch, ticket, me->stream));
    EXPECT(me, sc_all_reduce_join(me->comm, me->epoch, ticket, me->stream), SC_INVALID);
    // A join that fails has consumed it, too: one in no epoch, and one that cannot be captured.
    EXPECT(me, sc_all_reduce_join(me->comm, 0, other, me->stream), SC_EPOCH_LOST);
    EXPECT(me, sc_all_reduce_join(me->comm, me->epoch, other, me->stream), SC_INVALID);
    DO(me, sc_sim_rank_launch(me->sim, me->stream, SECOND, NULL, NULL));
    start(me, b, 128, &ticket);
    void *captured = api_stream(me);
    DO(me, sc_capture_begin(me->comm, me->epoch, captured, &capture));
    EXPECT(me, sc_all_reduce_join(me->comm, me->epoch, ticket, captured), SC_CAPTURE);
    EXPECT(me, sc_all_reduce_join(me->comm, me->epoch, ticket, captured), SC_INVALID);
    DO(me, sc_capture_end(me->comm, capture));
    DO(me, sc_capture_release(me->comm, capture));
    DO(me, sc_sync(me->comm, me->epoch, me->stream, SC_SYNC_AGREED, 10 * SECOND));
    HOLDS(me, b, 64, 8);
    api_leave(me);
}

static void ticket_is_consumed_once_whatever_the_join_answers(void **state) {
    (void)state;
    api_play("ranks 2", joins_twice);
}

static void loses_its_tickets(struct api_rank *me) {
    api_begin(me);
    uint16_t *b = api_buffer(me, 64, 1);
    struct kernel k = {.memory = api_memory(me, b, 128)};
    uint64_t first = me->epoch;
    sc_ticket old[3], fresh[3];
    DO(me, sc_barrier(me->comm, first, SECOND));
    if (me->rank == 0) {
        for (int i = 0; i < 3; i++)
            start(me, b, 128, &old[i]);
        api_sleep(me, 10 * MS);
        DO(me, sc_reconnect(me->comm, first, 0));
        EXPECT(me, sc_all_reduce_join(me->comm, first, old[0], me->stream), SC_EPOCH_LOST);
        launch(me, MS, looks, &k); // nothing was put ahead of it
        TRUE(me, drained_after(me, api_now(me)) < 2 * MS);
    }
    while (*sc_live_epoch(me->comm) == first)
        api_sleep(me, MS);
    api_ready(me);
    api_fill(me, b, 64, 1);
    for (int i = 0; i < 3; i++)
        start(me, b, 128, &fresh[i]);
    if (me->rank == 0) {
        EXPECT(me, sc_all_reduce_join(me->comm, first, old[1], me->stream), SC_EPOCH_LOST);
        for (int i = 0; i < 3; i++)
            EXPECT(me, sc_all_reduce_join(me->comm, me->epoch, old[i], me->stream), SC_INVALID);
        for (int i = 0; i < 9; i++)
            TRUE(me, fresh[i / 3] != old[i % 3]);
    }
    for (int i = 0; i < 3; i++)
        DO(me, sc_all_reduce_join(me->comm, me->epoch, fresh[i], me->stream));
    DO(me, sc_sync(me->comm, me->epoch, me->stream, SC_SYNC_AGREED, SECOND));
    HOLDS(me, b, 64, 8);
    api_leave(me);
}

static void tickets_of_a_lost_epoch_enqueue_nothing_and_alias_none_r13(void **state) {
    (void)state;
    api_play("ranks 2", loses_its_tickets);
}

static void starts_too_many(struct api_rank *me) {
    struct sc_config config = api_config(me);
    config.ledger_ops = 4;
    api_open(me, &config);
    api_ready(me);
    uint16_t *b = api_buffer(me, 64, 1);
    sc_ticket t[5];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 4; i++)
            start(me, b, 128, &t[i]);
        DO(me, sc_sync(me->comm, me->epoch, me->stream, SC_SYNC_LOCAL, SECOND));
        uint64_t begun_ns = api_now(me); // the ledger is empty, the tickets are not
        EXPECT(me, sc_all_reduce_start(me->comm, me->epoch, b, 128, SC_BF16, me->stream, &t[4]),
               SC_BUSY);
        SAYS(me, "4 started ops are not joined");
        EQUAL(me, api_now(me), begun_ns);
        DO(me, sc_all_reduce_async(me->comm, me->epoch, b, 0, SC_BF16, me->stream));
        DO(me, sc_all_reduce_join(me->comm, me->epoch, t[2], me->stream));
        start(me, b, 0, &t[2]);
        for (int i = 0; i < 4; i++)
            DO(me, sc_all_reduce_join(me->comm, me->epoch, t[i], me->stream));
    }
    DO(me, sc_sync(me->comm, me->epoch, me->stream, SC_SYNC_AGREED, SECOND));
    api_sleep(me, SECOND / 5);
    EQUAL(me, api_health(me).submitted, 3 * 6); // a refused start took no seq
    api_leave(me);
}

static void as_many_tickets_as_the_ledger_has_ops_may_be_unjoined(void **state) {
    (void)state;
    api_play("ranks 2", starts_too_many);
}

static void loses_a_full_ledger(struct api_rank *me) {
    struct sc_config config = api_config(me);
    config.ledger_ops = 4;
    api_open(me, &config);
    api_ready(me);
    uint16_t *b = api_buffer(me, 64, 1);
    sc_ticket t;
    DO(me, sc_barrier(me->comm, me->epoch, SECOND));
    if (me->rank == 0) {
        for (int i = 0; i < 4; i++)
            DO(me, sc_all_reduce(me->comm, me->epoch, b, 128, SC_BF16, me->stream));
        EXPECT(me, sc_all_reduce_start(me->comm, me->epoch, b, 128, SC_BF16, me->stream, &t),
               SC_EPOCH_LOST);
    } else {
        api_sleep(me, SECOND);
        DO(me, sc_reconnect(me->comm, me->epoch, 0));
    }
    api_ready(me);
    for (int i = 0; i < 4; i++) // all four tickets are there
        start(me, b, 0, &t);
    EXPECT(me, sc_all_reduce_start(me->comm, me->epoch, b, 0, SC_BF16, me->stream, &t), SC_BUSY);
    api_leave(me);
}

static void start_that_waited_for_room_in_a_lost_epoch_leaves_no_ticket(void **state) {
    (void)state;
    api_play("ranks 2", loses_a_full_ledger);
}

// Rank 1 thaws in an epoch that is over: it finds that out in the middle of its start, which tells
// rank 0 what it has been waiting for.
static void thaws_into_a_start(struct api_rank *me) {
    api_begin(me);
    uint64_t first = me->epoch;
    sc_ticket old = 0, fresh = 0;
    DO(me, sc_barrier(me->comm, first, SECOND));
    if (me->rank == 0) {
        DO(me, sc_all_reduce(me->comm, first, NULL, 0, SC_BF16, me->stream));
        EXPECT(me, sc_sync(me->comm, first, me->stream, SC_SYNC_AGREED, SC_FOREVER), SC_EPOCH_LOST);
    } else {
        api_sleep(me, 50 * MS);
        DO(me, sc_mark(me->comm, first, 1)); // frozen for a while
        start(me, NULL, 0, &old);
        EQUAL(me, *sc_live_epoch(me->comm), 0);
        EXPECT(me, sc_all_reduce_join(me->comm, first, old, me->stream), SC_EPOCH_LOST);
    }
    api_ready(me);
    start(me, NULL, 0, &fresh);
    if (me->rank == 1)
        EXPECT(me, sc_all_reduce_join(me->comm, me->epoch, old, me->stream), SC_INVALID);
    DO(me, sc_all_reduce_join(me->comm, me->epoch, fresh, me->stream));
    api_leave(me);
}

static void ticket_of_an_epoch_that_ended_in_its_start_aliases_none(void **state) {
    (void)state;
    api_play("ranks 2\nat rank 1 mark 1: rank 1 pause 5s", thaws_into_a_start);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stream_goes_on_beside_a_started_op_and_waits_at_its_join),
        cmocka_unit_test(async_is_start_and_join_in_one),
        cmocka_unit_test(tickets_are_joined_in_any_order_on_any_stream),
        cmocka_unit_test(ticket_is_consumed_once_whatever_the_join_answers),
        cmocka_unit_test(tickets_of_a_lost_epoch_enqueue_nothing_and_alias_none_r13),
        cmocka_unit_test(ticket_of_an_epoch_that_ended_in_its_start_aliases_none),
        cmocka_unit_test(as_many_tickets_as_the_ledger_has_ops_may_be_unjoined),
        cmocka_unit_test(start_that_waited_for_room_in_a_lost_epoch_leaves_no_ticket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
