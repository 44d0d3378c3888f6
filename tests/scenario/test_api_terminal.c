// SPDX-License-Identifier: AGPL-3.0-only
//
// What a rank cannot get over, or only just, through the public calls: aborts that never return, a
// lost context, a lost place, another configuration.
#include "tests/support/api_run.h"

static sc_status wait_ready(struct api_rank *me, uint64_t timeout_ns) {
    me->recovery = (struct sc_recovery){.size = sizeof me->recovery};
    return sc_wait_ready(me->comm, timeout_ns, &me->recovery);
}

static void lost(struct api_rank *me) {
    while (*sc_live_epoch(me->comm) == me->epoch)
        api_sleep(me, MS);
}

// ---- aborts that never return ------------------------------------------------------------------

static bool freezes; // rank 1 does, instead of dying

static void outlives_an_abort(struct api_rank *me) {
    void *kept = NULL, *later = NULL;
    api_begin(me);
    if (me->life == 2) {
        api_works(me);
        api_leave(me);
        return;
    }
    DO(me, sc_mem_alloc(me->comm, 128, &kept));
    DO(me, sc_mark(me->comm, me->epoch, 1)); // rank 0's next abort never returns
    DO(me, sc_barrier(me->comm, me->epoch, SECOND));
    DO(me, sc_mark(me->comm, me->epoch, 2)); // and here rank 1 is gone
    lost(me);
    if (me->rank == 1) { // it was frozen, and another has its place
        EXPECT(me, wait_ready(me, 30 * SECOND), SC_FENCED);
        SAYS(me, "FENCED");
        api_close(me, SC_CLOSE_FINAL); // disturbs nobody
        board[0] = 1;
        return;
    }
    uint64_t begun_ns = api_now(me);
    EXPECT(me, wait_ready(me, SECOND), SC_TIMEOUT);
    EQUAL(me, api_health(me).state, SC_STATE_ABORTING);
    api_ready(me);
    TRUE(me, api_now(me) - begun_ns < 8 * SECOND); // the abort limit, and some
    api_works(me);
    DO(me, sc_mem_alloc(me->comm, 256, &later));
    DO(me, sc_mem_free(me->comm, kept));
    while (freezes && board[0] == 0)
        api_sleep(me, SECOND);
    EQUAL(me, *sc_live_epoch(me->comm), me->epoch);
    DO(me, sc_barrier(me->comm, me->epoch, SECOND));
    EXPECT(me, sc_close(me->comm, SC_CLOSE_FINAL, 30 * SECOND), SC_ABORT_STUCK);
    SAYS(me, "sc_close: ABORT_STUCK");
    EXPECT(me, sc_close(me->comm, SC_CLOSE_FINAL, SECOND), SC_CLOSED);
    TRUE(me, sc_sim_rank_memory(me->sim, kept, 128) != NULL); // may still be touched
    TRUE(me, sc_sim_rank_memory(me->sim, later, 256) == NULL);
}

static void abort_held_up_by_a_dead_peer_delays_the_next_epoch_only_h6(void **state) {
    (void)state;
    freezes = false;
    api_play("ranks 2\nat rank 0 mark 1: abort_stuck rank 0\n"
             "at rank 1 mark 2: rank 1 kill\nafter 500ms: rank 1 restart",
             outlives_an_abort);
}

static void abort_held_up_by_a_frozen_peer_delays_the_next_epoch_only_h6_r4(void **state) {
    (void)state;
    freezes = true;
    api_play("ranks 2\nat rank 0 mark 1: abort_stuck rank 0\n"
             "at rank 1 mark 2: rank 1 replace 20s",
             outlives_an_abort);
}

static void is_stuck(struct api_rank *me) {
    void *kept = NULL;
    api_begin(me);
    DO(me, sc_mem_alloc(me->comm, 128, &kept));
    DO(me, sc_mark(me->comm, me->epoch, 1));
    DO(me, sc_barrier(me->comm, me->epoch, SECOND));
    uint64_t begun_ns = api_now(me);
    if (me->rank == 1)
        DO(me, sc_reconnect(me->comm, me->epoch, 0));
    lost(me);
    if (me->rank == 0) {
        EXPECT(me, wait_ready(me, 30 * SECOND), SC_ABORT_STUCK);
        SAYS(me, "rank 0 is failed");
        SAYS(me, "ABORT_STUCK rank 0");
        uint64_t took_ns = api_now(me) - begun_ns;
        TRUE(me, took_ns >= 5 * SECOND && took_ns < 6 * SECOND);
        EQUAL(me, api_health(me).state, SC_STATE_FAILED);
        EXPECT(me, sc_close(me->comm, SC_CLOSE_FINAL, SECOND), SC_ABORT_STUCK);
        TRUE(me, sc_sim_rank_memory(me->sim, kept, 128) != NULL);
    } else {
        EXPECT(me, wait_ready(me, 20 * SECOND), SC_TIMEOUT); // for a new rank 0
        api_close(me, SC_CLOSE_FINAL);
    }
}

static void abort_that_is_stuck_beside_a_well_peer_is_terminal_h6(void **state) {
    (void)state;
    api_play("ranks 2\nat rank 0 mark 1: abort_stuck rank 0", is_stuck);
}

static void is_stuck_in_its_close(struct api_rank *me) {
    api_begin(me);
    DO(me, sc_mark(me->comm, me->epoch, 1));
    DO(me, sc_barrier(me->comm, me->epoch, SECOND));
    if (me->rank == 0) {
        EXPECT(me, sc_close(me->comm, SC_CLOSE_FINAL, SECOND), SC_TIMEOUT);
        EXPECT(me, sc_close(me->comm, SC_CLOSE_FINAL, 10 * SECOND), SC_ABORT_STUCK);
        EXPECT(me, sc_close(me->comm, SC_CLOSE_FINAL, SECOND), SC_CLOSED);
    } else {
        lost(me);
        EXPECT(me, wait_ready(me, 20 * SECOND), SC_PEER_LEFT);
        api_close(me, SC_CLOSE_FINAL);
    }
}

static void close_is_bounded_by_the_abort_limit_h6(void **state) {
    (void)state;
    api_play("ranks 2\nat rank 0 mark 1: abort_stuck rank 0", is_stuck_in_its_close);
}

// ---- a lost context ----------------------------------------------------------------------------

static void loses_its_context(struct api_rank *me) {
    api_begin(me);
    if (me->life == 2) {
        api_works(me);
        api_leave(me);
        return;
    }
    uint16_t *b = api_buffer(me, 64, 1);
    void *own = NULL;
    DO(me, sc_mem_alloc(me->comm, 128, &own));
    DO(me, sc_all_reduce(me->comm, me->epoch, b, 128, SC_BF16, me->stream));
    DO(me, sc_sync(me->comm, me->epoch, me->stream, SC_SYNC_AGREED, SECOND));
    DO(me, sc_barrier(me->comm, me->epoch, SECOND));
    DO(me, sc_mark(me->comm, me->epoch, 1));
    if (me->rank == 1) {
        lost(me);
        EXPECT(me, wait_ready(me, SECOND), SC_CONTEXT_LOST);
        SAYS(me, "CONTEXT_LOST rank 1");
        EXPECT(me, wait_ready(me, SECOND), SC_CONTEXT_LOST);
        EXPECT(me, sc_all_reduce(me->comm, me->epoch, b, 128, SC_BF16, me->stream), SC_EPOCH_LOST);
        EXPECT(me, sc_mem_alloc(me->comm, 128, &own), SC_CONTEXT_LOST);
        EQUAL(me, api_health(me).state, SC_STATE_FAILED);
        EQUAL(me, api_health(me).cause.code, SC_CONTEXT_LOST);
        api_close(me, SC_CLOSE_RETURNING);
        return;
    }
    lost(me);
    api_ready(me); // with rank 1's next process
    EQUAL(me, me->recovery.cause.code, SC_CONTEXT_LOST);
    EQUAL(me, me->recovery.cause.suspect, 1);
    EQUAL(me, me->recovery.ranks[1].fresh, 1);
    api_works(me);
    api_leave(me);
}

static void lost_context_is_terminal_for_its_process_only_h8(void **state) {
    (void)state;
    api_play("ranks 2\nat rank 1 mark 1: context_lost rank 1\nafter 3s: rank 1 restart",
             loses_its_context);
}

// ---- another configuration ----------------------------------------------------

static void differs(struct api_rank *me) {
    struct sc_config config = api_config(me);
    config.capacity_bytes = API_CAPACITY * (1 + me->rank);
    api_open(me, &config);
    uint64_t begun_ns = api_now(me);
    if (me->rank == 1) {
        EXPECT(me, wait_ready(me, 10 * SECOND), SC_CONFIG);
        TRUE(me, api_now(me) - begun_ns < SECOND);
        SAYS(me, "CONFIG");
        SAYS(me, "capacity is 65536 on rank 0 and 131072 on the other");
        struct sc_cause cause = api_health(me).cause;
        EQUAL(me, cause.code, SC_CONFIG);
        EQUAL(me, cause.value[0], API_CAPACITY);
        EQUAL(me, cause.value[1], API_CAPACITY * 2);
    } else { // waits on: whoever can reach its port must not be able to end it
        EXPECT(me, wait_ready(me, SECOND), SC_TIMEOUT);
        SAYS(me,
             "rank 1 is missing, its hello was refused: capacity is 65536 on rank 0 and 131072");
        const struct api_note *note = api_note(me, SC_NOTE_REFUSED);
        TRUE(me, note != NULL && note->note.rank == 1 && note->note.status == SC_CONFIG);
        HAS_WORDS(me, note->text, "capacity is 65536 on rank 0 and 131072 there");
    }
    api_close(me, SC_CLOSE_FINAL);
}

static void other_configuration_is_named_on_both_sides_b12(void **state) {
    (void)state;
    api_play("ranks 2", differs);
}

// ---- a submit that fails late ------------------------------------------------------------------

static void device_refuses(struct api_rank *me) {
    api_begin(me);
    uint16_t *b = api_buffer(me, 64, 1);
    DO(me, sc_barrier(me->comm, me->epoch, SECOND));
    if (me->rank == 0)
        DO(me, sc_mark(me->comm, me->epoch, 1));
    sc_status status = sc_all_reduce(me->comm, me->epoch, b, 128, SC_BF16, me->stream);
    if (me->rank == 0) {
        EXPECT(me, status, SC_DEVICE_ERROR);
        SAYS(me, "sc_all_reduce: DEVICE_ERROR");
        EQUAL(me, *sc_live_epoch(me->comm), 0); // before the call was over
    }
    EXPECT(me, sc_sync(me->comm, me->epoch, me->stream, SC_SYNC_AGREED, SECOND), SC_EPOCH_LOST);
    SAYS(me, "DEVICE_ERROR rank 0");
    api_ready(me);
    EQUAL(me, me->recovery.cause.code, SC_DEVICE_ERROR);
    EQUAL(me, me->recovery.ranks[0].submitted, 1);
    api_works(me);
    api_leave(me);
}

static void submit_that_fails_late_ends_the_epoch_h2(void **state) {
    (void)state;
    api_play("ranks 2\nat rank 0 mark 1: verb_fails rank 0 add_bf16 nth 1 with DEVICE_ERROR",
             device_refuses);
    api_play("ranks 2\nat rank 0 mark 1: verb_fails rank 0 op_end nth 1 with DEVICE_ERROR",
             device_refuses);
    api_play("ranks 3\nat rank 0 mark 1: verb_fails rank 0 all_reduce nth 1 with DEVICE_ERROR",
             device_refuses);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(abort_held_up_by_a_dead_peer_delays_the_next_epoch_only_h6),
        cmocka_unit_test(abort_held_up_by_a_frozen_peer_delays_the_next_epoch_only_h6_r4),
        cmocka_unit_test(abort_that_is_stuck_beside_a_well_peer_is_terminal_h6),
        cmocka_unit_test(close_is_bounded_by_the_abort_limit_h6),
        cmocka_unit_test(lost_context_is_terminal_for_its_process_only_h8),
        cmocka_unit_test(other_configuration_is_named_on_both_sides_b12),
        cmocka_unit_test(submit_that_fails_late_ends_the_epoch_h2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
