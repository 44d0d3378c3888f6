// SPDX-License-Identifier: AGPL-3.0-only
//
// Groups of sends and recvs through the public calls.
#include "tests/support/api_run.h"

static void begin(struct api_rank *me) {
    DO(me, sc_group_begin(me->comm, me->epoch));
}

static sc_status send_to(struct api_rank *me, const void *b, uint64_t bytes, uint32_t peer) {
    return sc_send(me->comm, me->epoch, b, bytes, peer, me->stream);
}

static sc_status recv_from(struct api_rank *me, void *b, uint64_t bytes, uint32_t peer) {
    return sc_recv(me->comm, me->epoch, b, bytes, peer, me->stream);
}

static void synced(struct api_rank *me) {
    DO(me, sc_sync(me->comm, me->epoch, me->stream, SC_SYNC_AGREED, 10 * SECOND));
}

// From every rank to every other, all at once; different values to each.
static void exchanges(struct api_rank *me) {
    api_begin(me);
    uint16_t *out[SC_SIM_RANKS_MAX], *in[SC_SIM_RANKS_MAX];
    for (uint32_t round = 0; round < 3; round++) {
        begin(me);
        for (uint32_t r = 0; r < me->world; r++) {
            out[r] = api_buffer(me, 64, 10 * me->rank + r + 1);
            in[r] = api_buffer(me, 64, 0);
            if (r == me->rank)
                continue;
            DO(me, send_to(me, out[r], 128, r));
            DO(me, recv_from(me, in[r], 128, r));
        }
        DO(me, sc_group_end(me->comm));
        synced(me);
        for (uint32_t r = 0; r < me->world; r++)
            HOLDS(me, in[r], 64, r == me->rank ? 0 : 10 * r + me->rank + 1);
    }
    api_sleep(me, SECOND / 5);
    EQUAL(me, api_health(me).submitted, 0); // sends and recvs take no seq
    api_works(me);
    api_leave(me);
}

static void group_exchanges_in_all_directions_at_once(void **state) {
    (void)state;
    api_play("ranks 2", exchanges);
    api_play("ranks 3", exchanges);
    api_play("ranks 4", exchanges);
}

static void errs_within(struct api_rank *me) {
    api_begin(me);
    uint16_t *b = api_buffer(me, 64, 5), *in = api_buffer(me, 64, 0);
    uint32_t peer = 1 - me->rank;
    begin(me);
    DO(me, send_to(me, b, 128, peer));
    EXPECT(me, recv_from(me, in, 3, peer), SC_INVALID);
    SAYS(me, "sc_recv: INVALID");
    SAYS(me, "3 bytes");
    DO(me, recv_from(me, in, 128, peer)); // too late to help
    EXPECT(me, recv_from(me, in, API_CAPACITY + 2, peer), SC_CAPACITY);
    EXPECT(me, sc_group_end(me->comm), SC_INVALID); // the first error
    SAYS(me, "sc_group_end: INVALID");
    EXPECT(me, sc_group_end(me->comm), SC_INVALID);
    SAYS(me, "no group");
    DO(me, sc_sim_rank_stream_wait(me->sim, me->stream, SECOND)); // nothing was enqueued
    api_sleep(me, 10 * MS);
    HOLDS(me, in, 64, 0);
    begin(me);
    DO(me, send_to(me, b, 128, peer));
    DO(me, recv_from(me, in, 128, peer));
    DO(me, sc_group_end(me->comm));
    synced(me);
    HOLDS(me, in, 64, 5);
    EQUAL(me, api_health(me).state, SC_STATE_READY);
    api_leave(me);
}

static void group_with_an_error_ends_once_says_it_and_enqueues_nothing_h2(void **state) {
    (void)state;
    api_play("ranks 2", errs_within);
}

static void mixes(struct api_rank *me) {
    api_begin(me);
    uint16_t *b = api_buffer(me, 256, 5), *in = api_buffer(me, 64, 0);
    uint32_t peer = 1 - me->rank;
    sc_ticket t;
    sc_comm c = me->comm;
    uint64_t e = me->epoch;
    begin(me);
    DO(me, send_to(me, b, 128, peer));
    EXPECT(me, sc_all_reduce(c, e, b, 128, SC_BF16, me->stream), SC_INVALID);
    SAYS(me, "a group is open on this thread");
    EXPECT(me, sc_all_reduce_async(c, e, b, 128, SC_BF16, me->stream), SC_INVALID);
    SAYS(me, "a group is open on this thread");
    EXPECT(me, sc_all_reduce_start(c, e, b, 128, SC_BF16, me->stream, &t), SC_INVALID);
    SAYS(me, "a group is open on this thread");
    EXPECT(me, sc_broadcast(c, e, b, 128, 0, me->stream), SC_INVALID);
    EXPECT(me, sc_all_gather(c, e, in, b, 128, me->stream), SC_INVALID);
    EXPECT(me, sc_reduce_scatter(c, e, b, in, 128, SC_BF16, me->stream), SC_INVALID);
    EXPECT(me, sc_group_begin(c, e), SC_INVALID);
    SAYS(me, "a group is open on this thread already");
    DO(me, recv_from(me, in, 128, peer));
    DO(me, sc_group_end(c));
    synced(me);
    HOLDS(me, in, 64, 5);
    HOLDS(me, b, 256, 5);
    api_sleep(me, SECOND / 5);
    EQUAL(me, api_health(me).submitted, 0);
    api_leave(me);
}

static void collectives_and_a_second_begin_are_refused_inside_a_group(void **state) {
    (void)state;
    api_play("ranks 2", mixes);
}

static void uses_edges(struct api_rank *me) {
    api_begin(me);
    uint16_t *b = api_buffer(me, 128, 5), *in = api_buffer(me, 128, 0);
    uint32_t peer = 1 - me->rank;
    void *other = api_stream(me);
    EXPECT(me, sc_group_end(me->comm), SC_INVALID);
    SAYS(me, "no group of this handle is open");
    begin(me); // of nothing
    DO(me, sc_group_end(me->comm));
    begin(me); // of nothing that moves
    DO(me, send_to(me, b, 0, peer));
    DO(me, recv_from(me, in, 0, peer));
    DO(me, sc_group_end(me->comm));
    begin(me); // of one
    if (me->rank == 0)
        DO(me, send_to(me, b, 128, peer));
    else
        DO(me, recv_from(me, in, 128, peer));
    DO(me, sc_group_end(me->comm));
    synced(me);
    HOLDS(me, in, 64, me->rank == 0 ? 0 : 5);
    begin(me); // of two streams
    DO(me, send_to(me, b, 128, peer));
    EXPECT(me, sc_recv(me->comm, me->epoch, in, 128, peer, other), SC_INVALID);
    EXPECT(me, sc_group_end(me->comm), SC_INVALID);
    begin(me); // of as many as there may be
    for (uint32_t i = 0; i < 64; i++) {
        DO(me, send_to(me, b + i, 2, peer));
        DO(me, recv_from(me, in + 64 + i, 2, peer));
    }
    DO(me, sc_group_end(me->comm));
    synced(me);
    HOLDS(me, in + 64, 64, 5);
    begin(me); // and of one more
    for (uint32_t i = 0; i < 128; i++)
        DO(me, send_to(me, b + i % 64, 2, peer));
    EXPECT(me, recv_from(me, in, 2, peer), SC_TOO_LARGE);
    EXPECT(me, sc_group_end(me->comm), SC_TOO_LARGE);
    api_works(me);
    api_leave(me);
}

static void groups_have_0_to_128_ops_of_one_stream(void **state) {
    (void)state;
    api_play("ranks 2", uses_edges);
}

static void loses_an_open_group(struct api_rank *me) {
    api_begin(me);
    uint16_t *b = api_buffer(me, 64, 5), *in = api_buffer(me, 64, 0);
    uint32_t peer = 1 - me->rank;
    uint64_t first = me->epoch;
    DO(me, sc_barrier(me->comm, first, SECOND));
    begin(me);
    DO(me, send_to(me, b, 128, peer));
    if (me->rank == 1)
        DO(me, sc_reconnect(me->comm, first, 0));
    while (*sc_live_epoch(me->comm) == first)
        api_sleep(me, MS);
    if (me->rank == 0)
        EXPECT(me, recv_from(me, in, 128, peer), SC_EPOCH_LOST);
    api_ready(me);
    if (me->rank == 0) // a new epoch makes no old group good
        EXPECT(me, recv_from(me, in, 128, peer), SC_EPOCH_LOST);
    EXPECT(me, sc_group_end(me->comm), SC_EPOCH_LOST);
    EXPECT(me, sc_group_end(me->comm), SC_INVALID);
    begin(me);
    DO(me, send_to(me, b, 128, peer));
    DO(me, recv_from(me, in, 128, peer));
    DO(me, sc_group_end(me->comm));
    synced(me);
    HOLDS(me, in, 64, 5);
    api_leave(me);
}

static void group_of_a_lost_epoch_ends_epoch_lost(void **state) {
    (void)state;
    api_play("ranks 2", loses_an_open_group);
}

// A recv that the device refuses inside the group: that ends the epoch, and the group is closed.
static void device_refuses(struct api_rank *me) {
    api_begin(me);
    uint16_t *b = api_buffer(me, 64, 5), *in = api_buffer(me, 64, 0);
    uint32_t peer = 1 - me->rank;
    api_works(me);
    DO(me, sc_mark(me->comm, me->epoch, 1)); // from here rank 0's next recv fails
    begin(me);
    DO(me, send_to(me, b, 128, peer));
    DO(me, recv_from(me, in, 128, peer));
    if (me->rank == 0) {
        EXPECT(me, sc_group_end(me->comm), SC_SUBMIT_FAILED);
        EXPECT(me, sc_sync(me->comm, me->epoch, me->stream, SC_SYNC_LOCAL, SECOND), SC_EPOCH_LOST);
        SAYS(me, "SUBMIT_FAILED rank 0");
    } else {
        DO(me, sc_group_end(me->comm));
        EXPECT(me, sc_sync(me->comm, me->epoch, me->stream, SC_SYNC_LOCAL, SECOND), SC_EPOCH_LOST);
        SAYS(me, "SUBMIT_FAILED rank 0");
    }
    EXPECT(me, sc_group_end(me->comm), SC_INVALID);
    api_ready(me);
    EQUAL(me, me->recovery.cause.code, SC_SUBMIT_FAILED);
    api_works(me);
    api_leave(me);
}

static void group_that_the_device_refuses_ends_the_epoch_on_both_h2(void **state) {
    (void)state;
    api_play("ranks 2\nat rank 0 mark 1: verb_fails rank 0 recv nth 1 with SUBMIT_FAILED\n",
             device_refuses);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(group_exchanges_in_all_directions_at_once),
        cmocka_unit_test(group_with_an_error_ends_once_says_it_and_enqueues_nothing_h2),
        cmocka_unit_test(collectives_and_a_second_begin_are_refused_inside_a_group),
        cmocka_unit_test(groups_have_0_to_128_ops_of_one_stream),
        cmocka_unit_test(group_of_a_lost_epoch_ends_epoch_lost),
        cmocka_unit_test(group_that_the_device_refuses_ends_the_epoch_on_both_h2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
