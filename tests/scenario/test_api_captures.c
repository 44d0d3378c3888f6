// SPDX-License-Identifier: AGPL-3.0-only
//
// Captures and replays through the public calls: what they count, how they are refused, and how a
// recovery waits for them.
#include "tests/support/api_run.h"

static sc_capture begin(struct api_rank *me) {
    sc_capture capture = 0;
    DO(me, sc_capture_begin(me->comm, me->epoch, me->stream, &capture));
    TRUE(me, capture != 0);
    return capture;
}

static void replay(struct api_rank *me, sc_capture capture) {
    DO(me, sc_replay_begin(me->comm, me->epoch, capture, me->stream));
    DO(me, sc_sim_rank_graph_launch(me->sim, capture, me->stream));
    DO(me, sc_replay_end(me->comm));
}

static void synced(struct api_rank *me) {
    DO(me, sc_sync(me->comm, me->epoch, me->stream, SC_SYNC_AGREED, 10 * SECOND));
}

static void reduce(struct api_rank *me, void *b) {
    DO(me, sc_all_reduce(me->comm, me->epoch, b, 128, SC_BF16, me->stream));
}

// A capture of so many all_reduces of b.
static sc_capture captured(struct api_rank *me, void *b, int count) {
    sc_capture capture = begin(me);
    for (int i = 0; i < count; i++)
        reduce(me, b);
    DO(me, sc_capture_end(me->comm, capture));
    return capture;
}

// ---- replays -----------------------------------------------------------------------------------

static void replays(struct api_rank *me) {
    api_begin(me);
    uint16_t *b = api_buffer(me, 64, 1), *c = api_buffer(me, 64, 1);
    sc_capture capture = begin(me);
    reduce(me, b);
    reduce(me, c);
    DO(me, sc_broadcast(me->comm, me->epoch, c, 128, 1, me->stream));
    DO(me, sc_capture_end(me->comm, capture));
    api_sleep(me, SECOND / 5);
    EQUAL(me, api_health(me).submitted, 0); // recorded, and no seq
    HOLDS(me, b, 64, 1);
    for (uint32_t i = 1, value = 1; i <= 5; i++) {
        replay(me, capture);
        synced(me);
        HOLDS(me, b, 64, value *= me->world);
    }
    for (int i = 0; i < 3; i++) { // on each other's heels, between others
        reduce(me, b);
        replay(me, capture);
    }
    synced(me);
    api_sleep(me, SECOND / 5);
    EQUAL(me, api_health(me).submitted, 8 * 3 + 3);
    EQUAL(me, api_health(me).completed, 8 * 3 + 3);
    DO(me, sc_capture_release(me->comm, capture));
    api_leave(me);
}

static void each_replay_runs_the_captured_ops_and_takes_their_seqs(void **state) {
    (void)state;
    api_play("ranks 2", replays);
    api_play("ranks 3", replays);
}

static void captures_all_sorts(struct api_rank *me) {
    api_begin(me);
    uint16_t *b = api_buffer(me, 64, 1), *out = api_buffer(me, 64, 3 + me->rank),
             *in = api_buffer(me, 64, 0);
    uint32_t peer = 1 - me->rank;
    sc_ticket ticket;
    sc_capture capture = begin(me);
    DO(me, sc_all_reduce_start(me->comm, me->epoch, b, 128, SC_BF16, me->stream, &ticket));
    DO(me, sc_all_reduce_join(me->comm, me->epoch, ticket, me->stream));
    EXPECT(me, sc_all_reduce_join(me->comm, me->epoch, ticket, me->stream), SC_INVALID);
    DO(me, sc_all_reduce_async(me->comm, me->epoch, b, 128, SC_BF16, me->stream));
    DO(me, sc_all_reduce(me->comm, me->epoch, b, 0, SC_BF16, me->stream));
    DO(me, sc_group_begin(me->comm, me->epoch));
    DO(me, sc_send(me->comm, me->epoch, out, 128, peer, me->stream));
    DO(me, sc_recv(me->comm, me->epoch, in, 128, peer, me->stream));
    DO(me, sc_group_end(me->comm));
    if (me->rank == 0)
        DO(me, sc_send(me->comm, me->epoch, b, 64, 1, me->stream));
    else
        DO(me, sc_recv(me->comm, me->epoch, out, 64, 0, me->stream));
    DO(me, sc_capture_end(me->comm, capture));
    HOLDS(me, in, 64, 0);
    replay(me, capture);
    synced(me);
    HOLDS(me, b, 64, 4);
    HOLDS(me, in, 64, 3 + peer);
    HOLDS(me, out, 32, me->rank == 0 ? 3 : 4);
    replay(me, capture);
    synced(me);
    HOLDS(me, b, 64, 16);
    api_sleep(me, SECOND / 5);
    EQUAL(me, api_health(me).submitted, 2 * 3);
    DO(me, sc_capture_release(me->comm, capture));
    api_leave(me);
}

static void sends_recvs_groups_and_started_ops_are_captured(void **state) {
    (void)state;
    api_play("ranks 2", captures_all_sorts);
}

static void differs(struct api_rank *me) {
    api_begin(me);
    uint16_t *b = api_buffer(me, 64, 1);
    sc_capture capture = begin(me);
    reduce(me, b);
    if (me->rank == 0)
        reduce(me, b);
    else
        DO(me, sc_broadcast(me->comm, me->epoch, b, 128, 0, me->stream));
    DO(me, sc_capture_end(me->comm, capture));
    replay(me, capture);
    EXPECT(me, sc_sync(me->comm, me->epoch, me->stream, SC_SYNC_AGREED, 10 * SECOND),
           SC_EPOCH_LOST);
    SAYS(me, "MISMATCH rank 1 seq 2: rank 0 submitted all_reduce of 128 bytes");
    DO(me, sc_capture_release(me->comm, capture));
    api_ready(me);
    api_works(me);
    api_leave(me);
}

static void replays_of_other_lists_are_ok_on_neither_rank_c3(void **state) {
    (void)state;
    api_play("ranks 2", differs);
}

// ---- refusals ----------------------------------------------------------------------------------

static void captures_wrongly(struct api_rank *me) {
    struct sc_config config = api_config(me);
    config.captures_max = 2;
    api_open(me, &config);
    api_ready(me);
    sc_comm c = me->comm;
    uint64_t e = me->epoch;
    uint16_t *b = api_buffer(me, 64, 1);
    sc_capture other, third, first = 0;
    EXPECT(me, sc_replay_end(c), SC_INVALID);
    SAYS(me, "this thread has begun no replay");
    EXPECT(me, sc_capture_begin(c, e, me->stream, NULL), SC_INVALID);
    first = begin(me);
    EXPECT(me, sc_capture_begin(c, e, me->stream, &other), SC_CAPTURE);
    EXPECT(me, sc_capture_release(c, first), SC_INVALID); // it is open
    SAYS(me, "sc_capture_release: INVALID: capture 0x");
    EXPECT(me, sc_replay_begin(c, e, first, me->stream), SC_INVALID);
    EXPECT(me, sc_all_reduce(c, e, b, 3, SC_BF16, me->stream), SC_INVALID);
    EXPECT(me, sc_all_reduce(c, 0, b, 128, SC_BF16, me->stream), SC_EPOCH_LOST);
    reduce(me, b);
    DO(me, sc_capture_end(c, first));
    EXPECT(me, sc_capture_end(c, first), SC_INVALID);
    EXPECT(me, sc_capture_end(c, first + 77), SC_INVALID);
    EXPECT(me, sc_capture_release(c, 0), SC_INVALID);
    other = captured(me, b, 1);
    EXPECT(me, sc_capture_begin(c, e, me->stream, &third), SC_BUSY); // captures_max
    EXPECT(me, sc_replay_begin(c, 0, first, me->stream), SC_EPOCH_LOST);
    EXPECT(me, sc_replay_begin(c, e, first + 77, me->stream), SC_INVALID);
    DO(me, sc_replay_begin(c, e, first, me->stream));
    EXPECT(me, sc_replay_begin(c, e, other, me->stream), SC_INVALID);
    SAYS(me, "this thread has begun a replay already");
    DO(me, sc_sim_rank_graph_launch(me->sim, first, me->stream));
    DO(me, sc_replay_end(c));
    EXPECT(me, sc_replay_end(c), SC_INVALID);
    synced(me);
    HOLDS(me, b, 64, 2);
    DO(me, sc_capture_release(c, first));
    EXPECT(me, sc_capture_release(c, first), SC_INVALID);
    EXPECT(me, sc_replay_begin(c, e, first, me->stream), SC_INVALID);
    third = begin(me);
    DO(me, sc_capture_end(c, third));
    DO(me, sc_capture_release(c, third));
    DO(me, sc_capture_release(c, other));
    api_sleep(me, SECOND / 5);
    EQUAL(me, api_health(me).submitted, 1);
    api_leave(me);
}

static void wrong_captures_and_replays_are_refused(void **state) {
    (void)state;
    api_play("ranks 2", captures_wrongly);
}

static void fails_to_capture(struct api_rank *me) {
    api_begin(me);
    uint16_t *b = api_buffer(me, 64, 1);
    DO(me, sc_mark(me->comm, me->epoch, 1));
    sc_capture capture = begin(me);
    if (me->rank == 0)
        EXPECT(me, sc_all_reduce(me->comm, me->epoch, b, 128, SC_BF16, me->stream),
               SC_DEVICE_ERROR);
    else
        reduce(me, b);
    DO(me, sc_capture_end(me->comm, capture));
    DO(me, sc_capture_release(me->comm, capture));
    EQUAL(me, *sc_live_epoch(me->comm), me->epoch);
    api_works(me);
    EQUAL(me, me->recoveries, 0);
    api_leave(me);
}

static void capture_that_fails_ends_no_epoch(void **state) {
    (void)state;
    api_play("ranks 2\nat rank 0 mark 1: verb_fails rank 0 send nth 1 with DEVICE_ERROR\n",
             fails_to_capture);
}

// ---- losses ------------------------------------------------------------------------------------

static void keeps_a_capture(struct api_rank *me) {
    api_begin(me);
    uint16_t *b = api_buffer(me, 64, 1);
    uint64_t first = me->epoch;
    sc_capture capture = captured(me, b, 1);
    replay(me, capture);
    synced(me);
    if (me->rank == 0)
        DO(me, sc_reconnect(me->comm, first, 0));
    while (*sc_live_epoch(me->comm) == first)
        api_sleep(me, MS);
    EXPECT(me, sc_replay_begin(me->comm, first, capture, me->stream), SC_EPOCH_LOST);
    EXPECT(me, sc_replay_end(me->comm), SC_INVALID);
    if (me->rank == 0) {
        struct sc_recovery recovery = {.size = sizeof recovery};
        EXPECT(me, sc_wait_ready(me->comm, 40 * SECOND, &recovery), SC_TIMEOUT); // untimed …
        SAYS(me, "rank 0 is aborting");
        SAYS(me, "1 captures are not released");
        EQUAL(me, api_health(me).captures, 1); // … and visibly
        EQUAL(me, api_health(me).state, SC_STATE_ABORTING);
        EQUAL(me, api_notes(me, SC_NOTE_CAPTURES), 1);
        EQUAL(me, api_note(me, SC_NOTE_CAPTURES)->note.value, 1);
        HAS_WORDS(me, api_note(me, SC_NOTE_CAPTURES)->text, "1 captures to be released");
    }
    DO(me, sc_capture_release(me->comm, capture));
    api_ready(me);
    EQUAL(me, api_health(me).captures, 0);
    EXPECT(me, sc_replay_begin(me->comm, me->epoch, capture, me->stream), SC_INVALID);
    EXPECT(me, sc_replay_begin(me->comm, first, capture, me->stream), SC_EPOCH_LOST);
    api_fill(me, b, 64, 1);
    capture = captured(me, b, 1);
    replay(me, capture);
    synced(me);
    HOLDS(me, b, 64, 2);
    DO(me, sc_capture_release(me->comm, capture));
    api_leave(me);
}

static void recovery_waits_for_captures_untimed_and_visibly_r13(void **state) {
    (void)state;
    api_play("ranks 2\nseconds 200", keeps_a_capture);
}

static void is_lost_in_the_middle(struct api_rank *me) {
    api_begin(me);
    uint16_t *b = api_buffer(me, 64, 1);
    uint64_t first = me->epoch;
    sc_capture replayed = captured(me, b, 1), open = begin(me);
    void *other = api_stream(me);
    reduce(me, b);
    DO(me, sc_barrier(me->comm, first, SECOND));
    if (me->rank == 0) {
        DO(me, sc_replay_begin(me->comm, first, replayed, other));
        DO(me, sc_reconnect(me->comm, first, 0));
        DO(me, sc_sim_rank_graph_launch(me->sim, replayed, other));
        DO(me, sc_replay_end(me->comm)); // whatever became of the launch
        EXPECT(me, sc_replay_end(me->comm), SC_INVALID);
    }
    while (*sc_live_epoch(me->comm) == first)
        api_sleep(me, MS);
    EXPECT(me, sc_all_reduce(me->comm, first, b, 128, SC_BF16, me->stream), SC_EPOCH_LOST);
    DO(me, sc_capture_end(me->comm, open));
    DO(me, sc_capture_release(me->comm, open));
    DO(me, sc_capture_release(me->comm, replayed));
    api_ready(me);
    api_works(me);
    api_leave(me);
}

static void open_captures_and_replays_are_ended_after_a_loss(void **state) {
    (void)state;
    api_play("ranks 2", is_lost_in_the_middle);
}

// ---- beside others -----------------------------------------------------------------------------

static void captures_for_long(struct api_rank *me) {
    api_begin(me);
    uint16_t *a = api_buffer(me, 64, 1), *b = api_buffer(me, 64, 1);
    void *eager = api_stream(me);
    DO(me, sc_barrier(me->comm, me->epoch, SECOND));
    DO(me, sc_sim_rank_launch(me->sim, eager, 500 * MS, NULL, NULL));
    DO(me, sc_all_reduce(me->comm, me->epoch, a, 128, SC_BF16, eager)); // pending …
    sc_capture capture = begin(me);                                     // … as the capture begins
    for (int i = 0; i < 30; i++) { // three times as long as an op may take
        reduce(me, b);
        api_sleep(me, 100 * MS);
        sc_status status = sc_test(me->comm, me->epoch, eager);
        TRUE(me, status == SC_OK || status == SC_INPROGRESS);
    }
    DO(me, sc_sync(me->comm, me->epoch, eager, SC_SYNC_AGREED, 10 * SECOND));
    HOLDS(me, a, 64, 2);
    HOLDS(me, b, 64, 1);
    DO(me, sc_all_reduce(me->comm, me->epoch, a, 128, SC_BF16, eager)); // goes on beside it
    DO(me, sc_sync(me->comm, me->epoch, eager, SC_SYNC_AGREED, 10 * SECOND));
    HOLDS(me, a, 64, 4);
    DO(me, sc_capture_end(me->comm, capture));
    EQUAL(me, me->recoveries, 0);
    EQUAL(me, *sc_live_epoch(me->comm), me->epoch);
    api_fill(me, b, 64, 0);
    replay(me, capture);
    synced(me);
    HOLDS(me, b, 64, 0);
    api_sleep(me, SECOND / 5);
    EQUAL(me, api_health(me).submitted, 32);
    DO(me, sc_capture_release(me->comm, capture));
    api_leave(me);
}

static void capture_disturbs_no_other_stream_and_is_disturbed_by_no_poll_c10(void **state) {
    (void)state;
    api_play("ranks 2\nop limit 1s", captures_for_long);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_replay_runs_the_captured_ops_and_takes_their_seqs),
        cmocka_unit_test(sends_recvs_groups_and_started_ops_are_captured),
        cmocka_unit_test(replays_of_other_lists_are_ok_on_neither_rank_c3),
        cmocka_unit_test(wrong_captures_and_replays_are_refused),
        cmocka_unit_test(capture_that_fails_ends_no_epoch),
        cmocka_unit_test(recovery_waits_for_captures_untimed_and_visibly_r13),
        cmocka_unit_test(open_captures_and_replays_are_ended_after_a_loss),
        cmocka_unit_test(capture_disturbs_no_other_stream_and_is_disturbed_by_no_poll_c10),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
