// SPDX-License-Identifier: AGPL-3.0-only
//
// Epochs through the public calls: waiting for one, being refused in any other, and the word that tells
// which one lives.
#include "tests/support/api_run.h"

static sc_status wait_ready(struct api_rank *me, uint64_t timeout_ns) {
    me->recovery = (struct sc_recovery){.size = sizeof me->recovery};
    sc_status status = sc_wait_ready(me->comm, timeout_ns, &me->recovery);
    if (status == SC_OK)
        me->epoch = me->recovery.epoch;
    return status;
}

// ---- waiting for an epoch ----------------------------------------------------------------------

static void late_rank_1(struct api_rank *me) {
    api_sleep(me, me->rank == 1 ? 3 * SECOND : SECOND / 10);
    api_open(me, NULL);
    if (me->rank != 1) {
        uint64_t begun_ns = api_now(me);
        EXPECT(me, wait_ready(me, SECOND), SC_TIMEOUT);
        EQUAL(me, api_now(me) - begun_ns, SECOND);
        SAYS(me, "sc_wait_ready: TIMEOUT");
        SAYS(me, me->rank == 0 ? "rank 0 is rendezvous" : "rank 2 is rendezvous");
        SAYS(me, me->rank == 0 ? "rank 1 is missing" : "rank 0 is rendezvous");
    }
    api_ready(me);
    EQUAL(me, me->recovery.cause.code, SC_OK);
    EQUAL(me, me->recovery.world, 3);
    api_works(me);
    api_leave(me);
}

static void wait_ready_timeout_names_the_missing_rank(void **state) {
    (void)state;
    api_play("ranks 3", late_rank_1);
}

static void late_rank_0(struct api_rank *me) {
    api_sleep(me, me->rank == 0 ? 3 * SECOND : 0);
    api_open(me, NULL);
    if (me->rank == 1) {
        EXPECT(me, wait_ready(me, SECOND), SC_TIMEOUT);
        SAYS(me, "rank 0 is not reached");
        EXPECT(me, wait_ready(me, 0), SC_TIMEOUT);
    }
    api_ready(me);
    api_leave(me);
}

static void wait_ready_timeout_of_a_member_says_that_rank_0_is_not_reached(void **state) {
    (void)state;
    api_play("ranks 2", late_rank_0);
}

static void dies_once_and_is_absent_r1(struct api_rank *me) {
    api_begin(me);
    if (me->life == 1) {
        uint64_t first = me->epoch;
        api_works(me);
        DO(me, sc_mark(me->comm, first, 7)); // here rank 1 dies
        api_sleep(me, SECOND);
        TRUE(me, *sc_live_epoch(me->comm) == 0);
        uint64_t begun_ns = api_now(me);
        EXPECT(me, wait_ready(me, 60 * SECOND), SC_JOIN_TIMEOUT);
        TRUE(me, api_now(me) - begun_ns < 2 * SECOND);
        SAYS(me, "rank 1 is missing");
        api_ready(me);
        TRUE(me, me->epoch > first);
        EQUAL(me, me->recovery.cause.code, SC_PEER_DEAD);
        EQUAL(me, api_notes(me, SC_NOTE_MISSING), 1);
        EQUAL(me, api_note(me, SC_NOTE_MISSING)->note.value, 1u << 1);
    }
    api_works(me);
    api_leave(me);
}

static void join_timeout_comes_once_and_a_later_wait_succeeds_r1(void **state) {
    (void)state;
    struct sc_sim_report report =
        api_play("ranks 2\njoin limit 2s\nat rank 1 mark 7: rank 1 kill\nafter 5s: rank 1 restart",
                 dies_once_and_is_absent_r1);
    assert_int_equal(report.lives[1], 2);
}

static void comes_late_and_gives_up_once(struct api_rank *me) {
    if (me->rank == 1)
        api_sleep(me, 3 * SECOND);
    api_open(me, NULL);
    if (me->rank == 0)
        api_sleep(me, 5 * SECOND); // not looking while the join limit comes and goes
    api_ready(me);
    DO(me, sc_barrier(me->comm, me->epoch, 10 * SECOND));
    if (me->rank == 0)
        DO(me, sc_reconnect(me->comm, me->epoch, 1));
    else
        EXPECT(me, sc_barrier(me->comm, me->epoch, 10 * SECOND), SC_EPOCH_LOST);
    api_ready(me);
    EQUAL(me, me->recoveries, 1);
    api_leave(me);
}

static void join_timeout_of_an_earlier_wait_is_not_told_in_a_later_one(void **state) {
    (void)state;
    api_play("ranks 2\njoin limit 2s", comes_late_and_gives_up_once);
}

static void holds(struct api_rank *me) {
    struct sc_config config = api_config(me);
    config.flags = SC_OPEN_HOLD;
    api_open(me, &config);
    EQUAL(me, api_health(me).state, SC_STATE_IDLE);
    api_sleep(me, SECOND);
    EXPECT(me, wait_ready(me, 0), SC_TIMEOUT);
    SAYS(me, "has not called sc_join");
    if (me->rank == 0)
        SAYS(me, "rank 1 is still loading");
    api_sleep(me, (1 + me->rank) * SECOND);
    board[me->rank] = api_now(me);
    DO(me, sc_join(me->comm));
    DO(me, sc_join(me->comm));
    if (me->rank == 0) {
        EXPECT(me, wait_ready(me, SECOND / 2), SC_TIMEOUT);
        SAYS(me, "rank 1 is still loading");
        EQUAL(me, api_health(me).peers[1].loading, 1);
    }
    api_ready(me);
    TRUE(me, board[0] != 0 && board[1] != 0 && api_now(me) > board[1]);
    api_leave(me);
}

static void no_epoch_is_formed_before_every_holder_has_joined(void **state) {
    (void)state;
    api_play("ranks 2", holds);
}

static void no_words(struct api_rank *me) {
    struct sc_recovery small = {.size = 16};
    api_open(me, NULL);
    EXPECT(me, sc_wait_ready(me->comm, 0, NULL), SC_INVALID);
    EXPECT(me, sc_wait_ready(me->comm, 0, &small), SC_INVALID);
    SAYS(me, "sizeof(struct sc_recovery)");
    api_ready(me);
    uint64_t first = me->epoch;
    api_ready(me); // again: the same epoch, and no news
    EQUAL(me, me->epoch, first);
    EQUAL(me, me->recovery.ranks[0].fresh, 0);
    api_leave(me);
}

static void wait_ready_needs_a_record_of_known_size(void **state) {
    (void)state;
    api_play("ranks 2", no_words);
}

// ---- in any other epoch ------------------------------------------------------------------------

#define REFUSED(me, call)                                                                          \
    do {                                                                                           \
        EXPECT(me, call, SC_EPOCH_LOST);                                                           \
        EQUAL(me, api_health(me).submitted, submitted);                                            \
    } while (0)

// Every call that names an epoch, in one that is not the live one.
static void all_are_refused(struct api_rank *me, uint64_t epoch, uint64_t submitted) {
    uint16_t *b = api_buffer(me, 64, 9), *whole = api_buffer(me, 256, 9);
    sc_comm c = me->comm;
    sc_ticket ticket;
    sc_capture capture;
    uint32_t got;
    char data[8] = "";
    REFUSED(me, sc_all_reduce(c, epoch, b, 128, SC_BF16, me->stream));
    REFUSED(me, sc_all_reduce(c, epoch, b, 0, SC_BF16, me->stream));
    REFUSED(me, sc_all_reduce(c, epoch, b, 3, SC_BF16, me->stream));
    REFUSED(me, sc_all_reduce_async(c, epoch, b, 128, SC_BF16, me->stream));
    REFUSED(me, sc_all_reduce_start(c, epoch, b, 128, SC_BF16, me->stream, &ticket));
    REFUSED(me, sc_all_reduce_join(c, epoch, 1, me->stream));
    REFUSED(me, sc_broadcast(c, epoch, b, 128, 0, me->stream));
    REFUSED(me, sc_all_gather(c, epoch, b, whole, 128, me->stream));
    REFUSED(me, sc_reduce_scatter(c, epoch, whole, b, 128, SC_BF16, me->stream));
    REFUSED(me, sc_send(c, epoch, b, 128, 1 - me->rank, me->stream));
    REFUSED(me, sc_recv(c, epoch, b, 128, 1 - me->rank, me->stream));
    REFUSED(me, sc_group_begin(c, epoch));
    REFUSED(me, sc_sync(c, epoch, me->stream, SC_SYNC_LOCAL, SECOND));
    REFUSED(me, sc_sync(c, epoch, me->stream, SC_SYNC_AGREED, SECOND));
    REFUSED(me, sc_test(c, epoch, me->stream));
    REFUSED(me, sc_capture_begin(c, epoch, me->stream, &capture));
    REFUSED(me, sc_barrier(c, epoch, SECOND));
    REFUSED(me, sc_mark(c, epoch, 5));
    if (me->rank == 0)
        REFUSED(me, sc_command_send(c, epoch, data, 1, SECOND));
    else
        REFUSED(me, sc_command_recv(c, epoch, data, sizeof data, &got, SECOND));
    DO(me, sc_sim_rank_stream_wait(me->sim, me->stream, SECOND));
    HOLDS(me, b, 64, 9);
    HOLDS(me, whole, 256, 9);
}

static void names_wrong_epochs(struct api_rank *me) {
    api_open(me, NULL);
    all_are_refused(me, 0, 0);
    all_are_refused(me, 1u << 24, 0);
    api_ready(me);
    uint64_t first = me->epoch;
    api_works(me);
    DO(me, sc_mark(me->comm, first, 3));
    all_are_refused(me, 0, 1);
    all_are_refused(me, first + (1u << 24), 1);
    DO(me, sc_barrier(me->comm, first, SECOND));
    if (me->rank == 0)
        DO(me, sc_reconnect(me->comm, first, 0));
    while (*sc_live_epoch(me->comm) != 0)
        api_sleep(me, MS);
    all_are_refused(me, first, 1);
    api_ready(me);
    all_are_refused(me, first, 0);
    EQUAL(me, me->recovery.ranks[me->rank].mark, 3);
    api_works(me);
    api_leave(me);
}

static void every_call_in_another_epoch_is_refused_without_effect(void **state) {
    (void)state;
    api_play("ranks 2", names_wrong_epochs);
}

static void fails_for_good(struct api_rank *me) {
    api_begin(me);
    DO(me, sc_barrier(me->comm, me->epoch, SECOND));
    if (me->rank == 1) {
        api_close(me, SC_CLOSE_FINAL);
        return;
    }
    EXPECT(me, wait_ready(me, 0), SC_OK);
    while (api_health(me).state != SC_STATE_FAILED)
        api_sleep(me, MS);
    all_are_refused(me, me->epoch, 0);
    all_are_refused(me, 0, 0);
    EXPECT(me, wait_ready(me, SECOND), SC_PEER_LEFT);
    DO(me, sc_reconnect(me->comm, me->epoch, 0));
    api_close(me, SC_CLOSE_FINAL);
}

static void in_a_failed_rank_no_epoch_lives(void **state) {
    (void)state;
    api_play("ranks 2", fails_for_good);
}

// ---- the word of the live epoch ----------------------------------------------------------------

struct look {
    const volatile uint64_t *live;
    uint64_t seen;
    bool ran;
};

static void look(void *arg) {
    struct look *l = arg;
    l->seen = *l->live;
    l->ran = true;
}

static void looks_behind_a_stuck_op(struct api_rank *me) {
    struct look l = {.live = NULL};
    api_open(me, NULL);
    l.live = sc_live_epoch(me->comm);
    EQUAL(me, *l.live, 0);
    api_ready(me);
    EQUAL(me, *l.live, me->epoch);
    DO(me, sc_barrier(me->comm, me->epoch, SECOND));
    if (me->rank == 1) {
        api_sleep(me, SECOND);
        DO(me, sc_reconnect(me->comm, me->epoch, 0));
        EQUAL(me, *l.live, 0);
    } else {
        uint16_t *b = api_buffer(me, 64, 1);
        DO(me, sc_all_reduce(me->comm, me->epoch, b, 128, SC_BF16, me->stream));
        DO(me, sc_sim_rank_launch(me->sim, me->stream, US, look, &l));
        EXPECT(me, sc_sync(me->comm, me->epoch, me->stream, SC_SYNC_LOCAL, 10 * SECOND),
               SC_EPOCH_LOST);
        EQUAL(me, *l.live, 0);
        DO(me, sc_sim_rank_stream_wait(me->sim, me->stream, 10 * SECOND));
        TRUE(me, l.ran);
        EQUAL(me, l.seen, 0); // released by the abort, and it could tell
    }
    api_ready(me);
    EQUAL(me, *l.live, me->epoch);
    api_leave(me);
}

static void live_epoch_is_zeroed_before_the_lost_epochs_kernels_are_released(void **state) {
    (void)state;
    api_play("ranks 2", looks_behind_a_stuck_op);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wait_ready_timeout_names_the_missing_rank),
        cmocka_unit_test(wait_ready_timeout_of_a_member_says_that_rank_0_is_not_reached),
        cmocka_unit_test(join_timeout_comes_once_and_a_later_wait_succeeds_r1),
        cmocka_unit_test(join_timeout_of_an_earlier_wait_is_not_told_in_a_later_one),
        cmocka_unit_test(no_epoch_is_formed_before_every_holder_has_joined),
        cmocka_unit_test(wait_ready_needs_a_record_of_known_size),
        cmocka_unit_test(every_call_in_another_epoch_is_refused_without_effect),
        cmocka_unit_test(in_a_failed_rank_no_epoch_lives),
        cmocka_unit_test(live_epoch_is_zeroed_before_the_lost_epochs_kernels_are_released),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
