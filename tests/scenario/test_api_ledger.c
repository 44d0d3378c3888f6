// SPDX-License-Identifier: AGPL-3.0-only
//
// Ops in flight through the public calls: a ledger that is full, and two streams with one receive
// buffer.
#include "tests/support/api_run.h"

static void synced(struct api_rank *me) {
    DO(me, sc_sync(me->comm, me->epoch, me->stream, SC_SYNC_AGREED, 10 * SECOND));
}

// ---- a full ledger -----------------------------------------------------------------------------

static void fills_the_ledger(struct api_rank *me) {
    struct sc_config config = api_config(me);
    config.ledger_ops = 4;
    api_open(me, &config);
    api_ready(me);
    uint16_t *b = api_buffer(me, 64, 1);
    if (me->rank == 1)
        api_sleep(me, SECOND);
    uint64_t begun_ns = api_now(me);
    for (int i = 0; i < 4; i++)
        DO(me, sc_all_reduce(me->comm, me->epoch, b, 128, SC_BF16, me->stream));
    EQUAL(me, api_now(me), begun_ns);
    DO(me, sc_all_reduce(me->comm, me->epoch, b, 128, SC_BF16, me->stream));
    if (me->rank == 0) // the fifth had to wait for the peer
        TRUE(me, api_now(me) - begun_ns >= SECOND / 2);
    synced(me);
    HOLDS(me, b, 64, 32);
    DO(me, sc_barrier(me->comm, me->epoch, SECOND));
    if (me->rank == 1) {
        api_sleep(me, SECOND);
        board[0] = api_now(me);
        DO(me, sc_reconnect(me->comm, me->epoch, 0));
    } else {
        for (int i = 0; i < 4; i++)
            DO(me, sc_all_reduce(me->comm, me->epoch, b, 128, SC_BF16, me->stream));
        EXPECT(me, sc_all_reduce(me->comm, me->epoch, b, 128, SC_BF16, me->stream), SC_EPOCH_LOST);
        TRUE(me, board[0] != 0 && api_now(me) - board[0] < 10 * MS);
        EQUAL(me, api_health(me).submitted, 9);
    }
    api_ready(me);
    EQUAL(me, me->recovery.ranks[0].submitted, 9);
    api_works(me);
    api_leave(me);
}

static void full_ledger_is_waited_for_and_the_wait_ends_with_the_epoch_r3(void **state) {
    (void)state;
    api_play("ranks 2", fills_the_ledger);
}

static void is_told_of_a_full_ledger(struct api_rank *me) {
    struct sc_config config = api_config(me);
    config.ledger_ops = 4;
    config.flags = SC_OPEN_BUSY;
    api_open(me, &config);
    api_ready(me);
    uint16_t *b = api_buffer(me, 64, 1);
    DO(me, sc_barrier(me->comm, me->epoch, SECOND));
    if (me->rank == 1)
        api_sleep(me, SECOND);
    for (int i = 0; i < 4; i++)
        DO(me, sc_all_reduce(me->comm, me->epoch, b, 128, SC_BF16, me->stream));
    if (me->rank == 0) {
        sc_ticket t;
        uint64_t begun_ns = api_now(me);
        EXPECT(me, sc_all_reduce(me->comm, me->epoch, b, 128, SC_BF16, me->stream), SC_BUSY);
        SAYS(me, "sc_all_reduce: BUSY");
        EXPECT(me, sc_all_reduce_async(me->comm, me->epoch, b, 128, SC_BF16, me->stream), SC_BUSY);
        EXPECT(me, sc_all_reduce_start(me->comm, me->epoch, b, 128, SC_BF16, me->stream, &t),
               SC_BUSY);
        EXPECT(me, sc_send(me->comm, me->epoch, b, 128, 1, me->stream), SC_BUSY);
        EQUAL(me, api_now(me), begun_ns);
    }
    synced(me);
    DO(me, sc_all_reduce(me->comm, me->epoch, b, 128, SC_BF16, me->stream));
    synced(me);
    HOLDS(me, b, 64, 32);
    api_leave(me);
}

static void full_ledger_is_told_at_once_to_who_opened_so(void **state) {
    (void)state;
    api_play("ranks 2", is_told_of_a_full_ledger);
}

// ---- two streams -------------------------------------------------------------------------------

static void uses_two_streams(struct api_rank *me) {
    void *other = api_stream(me);
    uint16_t *a = api_buffer(me, 64, 0), *b = api_buffer(me, 64, 0);
    api_begin(me);
    for (int i = 0; i < 100; i++) {
        api_fill(me, a, 64, 1);
        api_fill(me, b, 64, 2);
        DO(me, sc_sim_rank_launch(me->sim, me->stream, (uint64_t)(i % 3) * 25 * MS, NULL, NULL));
        DO(me, sc_all_reduce(me->comm, me->epoch, a, 128, SC_BF16, me->stream));
        DO(me, sc_all_reduce(me->comm, me->epoch, b, 128, SC_BF16, other));
        DO(me, sc_sync(me->comm, me->epoch, other, SC_SYNC_LOCAL, 10 * SECOND));
        HOLDS(me, b, 64, 4);
        DO(me, sc_sync(me->comm, me->epoch, me->stream, SC_SYNC_LOCAL, 10 * SECOND));
        HOLDS(me, a, 64, 2);
    }
    api_leave(me);
}

static void two_streams_share_a_receive_buffer_and_no_bit_c9(void **state) {
    (void)state;
    api_play("ranks 2\nop takes 1us 3ms", uses_two_streams);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_ledger_is_waited_for_and_the_wait_ends_with_the_epoch_r3),
        cmocka_unit_test(full_ledger_is_told_at_once_to_who_opened_so),
        cmocka_unit_test(two_streams_share_a_receive_buffer_and_no_bit_c9),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
