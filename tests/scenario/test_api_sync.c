// SPDX-License-Identifier: AGPL-3.0-only
//
// When results count, through the public calls: what sync and test wait for, what they say of ranks
// that did not submit the same, and that nothing lost is ever OK.
#include "tests/support/api_run.h"

static sc_status sync_now(struct api_rank *me, enum sc_sync_how how, uint64_t timeout_ns) {
    return sc_sync(me->comm, me->epoch, me->stream, how, timeout_ns);
}

static void reduce(struct api_rank *me, void *b, uint64_t bytes) {
    DO(me, sc_all_reduce(me->comm, me->epoch, b, bytes, SC_BF16, me->stream));
}

// ---- what is waited for ------------------------------------------------------------------------

static void waits_for_its_stream(struct api_rank *me) {
    api_begin(me);
    void *other = api_stream(me);
    uint16_t *a = api_buffer(me, 64, 1), *b = api_buffer(me, 64, 2);
    DO(me, sc_barrier(me->comm, me->epoch, SECOND));
    DO(me, sc_test(me->comm, me->epoch, me->stream));
    DO(me, sync_now(me, SC_SYNC_LOCAL, 0));
    reduce(me, a, 128);
    DO(me, sc_sim_rank_launch(me->sim, other, SECOND, NULL, NULL));
    DO(me, sc_all_reduce(me->comm, me->epoch, b, 128, SC_BF16, other));
    uint64_t begun_ns = api_now(me);
    EXPECT(me, sc_test(me->comm, me->epoch, other), SC_INPROGRESS);
    DO(me, sync_now(me, SC_SYNC_LOCAL, SECOND));
    DO(me, sync_now(me, SC_SYNC_AGREED, SECOND)); // of what was submitted, not of what has run
    TRUE(me, api_now(me) - begun_ns < SECOND / 10);
    HOLDS(me, a, 64, 2);
    HOLDS(me, b, 64, 2);
    EXPECT(me, sc_test(me->comm, me->epoch, other), SC_INPROGRESS);
    DO(me, sc_sync(me->comm, me->epoch, other, SC_SYNC_LOCAL, 10 * SECOND));
    TRUE(me, api_now(me) - begun_ns >= SECOND * 9 / 10);
    DO(me, sc_test(me->comm, me->epoch, other));
    HOLDS(me, b, 64, 4);
    api_leave(me);
}

static void local_sync_waits_for_its_own_stream_only(void **state) {
    (void)state;
    api_play("ranks 2", waits_for_its_stream);
}

static void runs_out_of_time(struct api_rank *me) {
    api_begin(me);
    uint16_t *b = api_buffer(me, 64, 1);
    DO(me, sc_barrier(me->comm, me->epoch, SECOND));
    if (me->rank == 0)
        DO(me, sc_sim_rank_launch(me->sim, me->stream, 3 * SECOND, NULL, NULL));
    reduce(me, b, 128);
    uint64_t begun_ns = api_now(me);
    EXPECT(me, sync_now(me, SC_SYNC_LOCAL, SECOND), SC_TIMEOUT);
    EQUAL(me, api_now(me) - begun_ns, SECOND);
    SAYS(me, "sc_sync: TIMEOUT");
    SAYS(me, me->rank == 0 ? "of 1 collectives 0 have started" : "of 1 collectives 1 have started");
    EXPECT(me, sync_now(me, SC_SYNC_AGREED, 0), SC_TIMEOUT);
    EXPECT(me, sc_test(me->comm, me->epoch, me->stream), SC_INPROGRESS);
    DO(me, sync_now(me, SC_SYNC_AGREED, 10 * SECOND));
    HOLDS(me, b, 64, 2);
    EQUAL(me, me->recoveries, 0);
    api_leave(me);
}

static void timeout_of_a_sync_changes_nothing(void **state) {
    (void)state;
    api_play("ranks 2", runs_out_of_time);
}

static void agrees_late(struct api_rank *me) {
    api_begin(me);
    DO(me, sc_barrier(me->comm, me->epoch, SECOND));
    if (me->rank == 1)
        api_sleep(me, 2 * SECOND);
    reduce(me, NULL, 0); // complete here, whatever the others do
    DO(me, sync_now(me, SC_SYNC_LOCAL, 0));
    if (me->rank != 1) {
        EXPECT(me, sync_now(me, SC_SYNC_AGREED, SECOND), SC_TIMEOUT);
        SAYS(me, "collective 1");
        if (me->rank == 0)
            SAYS(me, "rank 1 has submitted 0");
    }
    uint64_t begun_ns = api_now(me);
    DO(me, sync_now(me, SC_SYNC_AGREED, 5 * SECOND));
    if (me->rank == 1) // one round trip, not a heartbeat
        TRUE(me, api_now(me) - begun_ns < 20 * MS);
    api_leave(me);
}

static void agreed_sync_waits_until_every_rank_has_submitted(void **state) {
    (void)state;
    api_play("ranks 3", agrees_late);
}

static void waits_wrongly(struct api_rank *me) {
    api_begin(me);
    EXPECT(me, sc_sync(me->comm, me->epoch, me->stream, (enum sc_sync_how)2, 0), SC_INVALID);
    SAYS(me, "how is 2");
    api_leave(me);
}

static void sync_of_no_known_kind_is_refused(void **state) {
    (void)state;
    api_play("ranks 1", waits_wrongly);
}

// ---- ranks that submit other ops ---------------------------------------------------------------

static uint64_t sizes[2];

// LOCAL may say OK; AGREED says it on neither rank, and the cause names both.
static void ends_mismatched(struct api_rank *me, const char *ours, const char *theirs) {
    EXPECT(me, sync_now(me, SC_SYNC_AGREED, 10 * SECOND), SC_EPOCH_LOST);
    SAYS(me, "sc_sync: EPOCH_LOST");
    SAYS(me, "MISMATCH rank 1 seq 1");
    SAYS(me, ours);
    SAYS(me, theirs);
    api_ready(me);
    EQUAL(me, me->recovery.cause.code, SC_MISMATCH);
    EQUAL(me, me->recovery.cause.suspect, 1);
    EQUAL(me, me->recovery.cause.seq, 1);
    api_works(me);
    api_leave(me);
}

static void reduces_other_sizes(struct api_rank *me) {
    char ours[64], theirs[64];
    struct sc_config config = api_config(me);
    config.capacity_bytes = 1u << 20;
    api_open(me, &config);
    api_ready(me);
    reduce(me, api_buffer(me, 1u << 19, 1), sizes[me->rank]);
    snprintf(ours, sizeof ours, "rank 0 submitted all_reduce of %u bytes", (unsigned)sizes[0]);
    snprintf(theirs, sizeof theirs, "it submitted all_reduce of %u bytes", (unsigned)sizes[1]);
    ends_mismatched(me, ours, theirs);
}

static void unequal_sizes_are_ok_on_neither_rank_c1(void **state) {
    static const uint64_t cases[][2] = {{8192, 4096}, {4096, 8192}, {819200, 819196}, {0, 4096}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memcpy(sizes, cases[i], sizeof sizes);
        api_play("ranks 2", reduces_other_sizes);
    }
}

static void leaves_one_out(struct api_rank *me) {
    api_begin(me);
    uint16_t *b = api_buffer(me, 2048, 1);
    if (me->rank == 0)
        reduce(me, b, 0);
    reduce(me, b, 4096);
    ends_mismatched(me, "rank 0 submitted all_reduce of 0 bytes",
                    "it submitted all_reduce of 4096 bytes");
}

static void an_op_that_one_rank_left_out_pairs_with_no_other_c2(void **state) {
    (void)state;
    api_play("ranks 2", leaves_one_out);
}

static void mixes_kinds(struct api_rank *me) {
    api_begin(me);
    uint16_t *b = api_buffer(me, 64, 1);
    if (me->rank == 0)
        DO(me, sc_broadcast(me->comm, me->epoch, b, 128, 0, me->stream));
    else
        reduce(me, b, 128);
    ends_mismatched(me, "rank 0 submitted broadcast of 128 bytes root 0",
                    "it submitted all_reduce of 128 bytes");
}

static void mixes_roots(struct api_rank *me) {
    api_begin(me);
    uint16_t *b = api_buffer(me, 64, 1);
    DO(me, sc_broadcast(me->comm, me->epoch, b, 128, me->rank, me->stream));
    ends_mismatched(me, "broadcast of 128 bytes root 0", "broadcast of 128 bytes root 1");
}

static void unequal_kinds_and_roots_are_ok_on_neither_rank_c3(void **state) {
    (void)state;
    api_play("ranks 2", mixes_kinds);
    api_play("ranks 2", mixes_roots);
}

static void submits_one_more(struct api_rank *me) {
    api_begin(me);
    uint16_t *b = api_buffer(me, 64, 1);
    DO(me, sc_barrier(me->comm, me->epoch, SECOND));
    reduce(me, b, 128);
    if (me->rank == 0)
        reduce(me, b, 128);
    if (me->rank == 0) { // its second is behind, and no match for anything
        EXPECT(me, sync_now(me, SC_SYNC_AGREED, 5 * SECOND), SC_EPOCH_LOST);
        SAYS(me, "PEER_BEHIND rank 1 seq 2");
    } else {
        DO(me, sync_now(me, SC_SYNC_AGREED, SECOND)); // what it submitted is agreed
        HOLDS(me, b, 64, 2);
        while (*sc_live_epoch(me->comm) == me->epoch)
            api_sleep(me, MS);
    }
    api_ready(me);
    EQUAL(me, me->recovery.cause.code, SC_PEER_BEHIND);
    EQUAL(me, me->recovery.cause.suspect, 1);
    api_leave(me);
}

static void peer_that_never_starts_an_op_is_named(void **state) {
    (void)state;
    api_play("ranks 2\nbehind limit 2s", submits_one_more);
}

// ---- what is lost ------------------------------------------------------------------------------

static void loses_results(struct api_rank *me) {
    api_begin(me);
    uint16_t *b = api_buffer(me, 64, 1);
    uint64_t first = me->epoch;
    DO(me, sc_barrier(me->comm, first, SECOND));
    if (me->rank == 0)
        reduce(me, b, 128);
    else
        api_sleep(me, 100 * MS);
    if (me->rank == 1)
        DO(me, sc_reconnect(me->comm, first, 5));
    while (*sc_live_epoch(me->comm) == first)
        api_sleep(me, MS);
    DO(me, sc_sim_rank_stream_wait(me->sim, me->stream, 10 * SECOND)); // drains, as success
    EXPECT(me, sc_test(me->comm, first, me->stream), SC_EPOCH_LOST);
    SAYS(me, "RECONNECT rank 1");
    SAYS(me, "reason 5");
    EXPECT(me, sync_now(me, SC_SYNC_LOCAL, SECOND), SC_EPOCH_LOST);
    SAYS(me, "RECONNECT rank 1");
    api_ready(me);
    EXPECT(me, sc_test(me->comm, first, me->stream), SC_EPOCH_LOST);
    EXPECT(me, sc_sync(me->comm, first, me->stream, SC_SYNC_AGREED, SECOND), SC_EPOCH_LOST);
    api_leave(me);
}

static void lost_results_are_never_ok(void **state) {
    (void)state;
    api_play("ranks 2", loses_results);
}

static void waits_while_it_is_lost(struct api_rank *me) {
    api_begin(me);
    if (me->life == 1) {
        uint16_t *b = api_buffer(me, 64, 1);
        DO(me, sc_barrier(me->comm, me->epoch, SECOND));
        DO(me, sc_mark(me->comm, me->epoch, 1)); // 100 ms later rank 1 dies
        if (me->rank == 1)
            api_sleep(me, SECOND);
        reduce(me, b, 128);
        uint64_t begun_ns = api_now(me);
        EXPECT(me, sync_now(me, SC_SYNC_AGREED, SC_FOREVER), SC_EPOCH_LOST);
        SAYS(me, "PEER_DEAD rank 1 seq 1");
        TRUE(me, api_now(me) - begun_ns < 120 * MS);
        api_ready(me);
    }
    api_leave(me);
}

static void sync_ends_with_the_epoch_and_says_the_cause_h1(void **state) {
    (void)state;
    api_play("ranks 2\nat rank 0 mark 1: rank 0 stall 1ms\nafter 100ms: rank 1 kill\n"
             "after 1s: rank 1 restart",
             waits_while_it_is_lost);
}

static void hangs(struct api_rank *me) {
    api_begin(me);
    uint16_t *b = api_buffer(me, 64, 1);
    DO(me, sc_sim_rank_launch(me->sim, me->stream, 40 * SECOND, NULL, NULL));
    reduce(me, b, 128); // 40 s behind a kernel is no time at all
    DO(me, sync_now(me, SC_SYNC_AGREED, 60 * SECOND));
    HOLDS(me, b, 64, 2);
    DO(me, sc_mark(me->comm, me->epoch, 1)); // its next exchange never completes
    uint64_t begun_ns = api_now(me);
    reduce(me, b, 128);
    EXPECT(me, sync_now(me, SC_SYNC_LOCAL, 60 * SECOND), SC_EPOCH_LOST);
    SAYS(me, "FABRIC seq 2");
    TRUE(me, api_now(me) - begun_ns >= 30 * SECOND && api_now(me) - begun_ns < 31 * SECOND);
    api_ready(me);
    api_works(me);
    api_leave(me);
}

static void op_that_every_rank_started_ends_at_its_limit_and_slow_work_does_not_h3(void **state) {
    (void)state;
    api_play("ranks 2\nseconds 200\nat rank 0 mark 1: op_stuck rank 0", hangs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(local_sync_waits_for_its_own_stream_only),
        cmocka_unit_test(timeout_of_a_sync_changes_nothing),
        cmocka_unit_test(agreed_sync_waits_until_every_rank_has_submitted),
        cmocka_unit_test(sync_of_no_known_kind_is_refused),
        cmocka_unit_test(unequal_sizes_are_ok_on_neither_rank_c1),
        cmocka_unit_test(an_op_that_one_rank_left_out_pairs_with_no_other_c2),
        cmocka_unit_test(unequal_kinds_and_roots_are_ok_on_neither_rank_c3),
        cmocka_unit_test(peer_that_never_starts_an_op_is_named),
        cmocka_unit_test(lost_results_are_never_ok),
        cmocka_unit_test(sync_ends_with_the_epoch_and_says_the_cause_h1),
        cmocka_unit_test(op_that_every_rank_started_ends_at_its_limit_and_slow_work_does_not_h3),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
