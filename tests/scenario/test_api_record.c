// SPDX-License-Identifier: AGPL-3.0-only
//
// The recovery record through the public calls: what it says after an epoch was given up, and after one
// loss hides behind another.
#include "tests/support/api_run.h"

// ---- giving an epoch up ------------------------------------------------------------------------

static void reconnects_often(struct api_rank *me) {
    api_open(me, NULL);
    DO(me, sc_reconnect(me->comm, 0, 9));
    api_ready(me);
    uint64_t first = me->epoch;
    DO(me, sc_reconnect(me->comm, 0, 9));
    DO(me, sc_reconnect(me->comm, first - 1, 9));
    DO(me, sc_reconnect(me->comm, first + (1u << 24), 9));
    DO(me, sc_barrier(me->comm, first, SECOND));
    for (int i = 0; i < 8; i++)
        DO(me, sc_reconnect(me->comm, first, 40 + me->rank));
    api_ready(me);
    for (int i = 0; i < 8; i++)
        DO(me, sc_reconnect(me->comm, first, 9));
    EQUAL(me, api_health(me).state, SC_STATE_READY);
    EQUAL(me, me->recoveries, 1);
    EQUAL(me, api_health(me).recoveries, 1);
    EQUAL(me, me->recovery.cause.code, SC_RECONNECT);
    TRUE(me, me->recovery.cause.value[0] == 40 + me->recovery.cause.suspect);
    api_works(me);
    api_leave(me);
}

static void eight_reconnects_on_each_rank_cause_one_recovery_r3(void **state) {
    (void)state;
    api_play("ranks 3", reconnects_often);
}

// ---- the record --------------------------------------------------------------------------------

static void does_a_step(struct api_rank *me, uint64_t mark) {
    api_works(me);
    DO(me, sc_mark(me->comm, me->epoch, mark));
}

// Rank 2 dies in epoch 1 with op 2 submitted by the others; in epoch 2 rank 1 dies before rank 0 has
// taken that epoch's record.
static void loses_two_in_a_row(struct api_rank *me) {
    api_begin(me);
    if (me->life == 1 && me->recoveries == 0)
        does_a_step(me, 11); // here rank 2 dies
    if (me->life == 2) {
        if (me->rank == 2) // it sees epoch 2 end
            while (*sc_live_epoch(me->comm) == me->epoch)
                api_sleep(me, MS);
    } else {
        while (*sc_live_epoch(me->comm) == me->epoch)
            api_sleep(me, MS);
        if (me->rank == 1) {
            api_ready(me);
            EQUAL(me, me->recovery.ranks[2].fresh, 1);
            EQUAL(me, me->recovery.ranks[2].ready_epoch, 0);
            EQUAL(me, me->recovery.ranks[0].fresh, 0);
            DO(me, sc_mark(me->comm, me->epoch, 12)); // here rank 1 dies
        }
        api_sleep(me, 3 * SECOND);
    }
    if (me->life == 1 || me->rank == 2)
        api_ready(me);
    const struct sc_recovery *r = &me->recovery;
    EQUAL(me, r->size, sizeof *r);
    EQUAL(me, r->world, 3);
    EQUAL(me, r->cause.code, SC_PEER_DEAD);
    EQUAL(me, r->cause.suspect, 1);
    EQUAL(me, r->ranks[0].mark, 11);
    EQUAL(me, r->ranks[0].fresh, me->life == 2 && me->rank == 1);
    EQUAL(me, r->ranks[1].ready_epoch, 0);
    EQUAL(me, r->ranks[1].mark, 0);
    if (me->rank == 0) {
        EQUAL(me, r->ranks[1].fresh, 1);
        EQUAL(me, r->ranks[2].fresh, 1); // not hidden by the second loss
        EQUAL(me, me->recoveries, 1);
        EQUAL(me, api_health(me).recoveries, 2);
        TRUE(me, r->phases.abort_ns != 0 && r->phases.wait_ns != 0 && r->phases.form_ns != 0);
        TRUE(me, r->phases.abort_ns + r->phases.wait_ns + r->phases.form_ns + r->phases.warmup_ns <
                     2 * SECOND);
    }
    api_works(me);
    api_leave(me);
}

static void double_fault_hides_no_new_process_from_the_record(void **state) {
    (void)state;
    api_play("ranks 3\n"
             "at rank 2 mark 11: rank 2 kill\nafter 100ms: rank 2 restart\n"
             "at rank 1 mark 12: rank 1 kill\nafter 1s: rank 1 restart\n",
             loses_two_in_a_row);
}

static void submits_unevenly(struct api_rank *me) {
    api_begin(me);
    uint16_t *b = api_buffer(me, 64, 1);
    for (int i = 0; i < 3; i++)
        api_works(me);
    DO(me, sc_mark(me->comm, me->epoch, 30 + me->rank));
    DO(me, sc_barrier(me->comm, me->epoch, SECOND));
    uint64_t first = me->epoch;
    if (me->rank == 0)
        for (int i = 0; i < 2; i++)
            DO(me, sc_all_reduce(me->comm, me->epoch, b, 128, SC_BF16, me->stream));
    api_sleep(me, 10 * MS);
    if (me->rank == 1)
        DO(me, sc_reconnect(me->comm, me->epoch, 77));
    while (*sc_live_epoch(me->comm) == first)
        api_sleep(me, MS);
    api_ready(me);
    const struct sc_rank_record *ranks = me->recovery.ranks;
    EQUAL(me, ranks[0].submitted, 5);
    EQUAL(me, ranks[1].submitted, 3);
    for (uint32_t r = 0; r < 2; r++) {
        EQUAL(me, ranks[r].completed, 3);
        EQUAL(me, ranks[r].mark, 30 + r);
        EQUAL(me, ranks[r].ready_epoch, first);
        EQUAL(me, ranks[r].fresh, 0);
    }
    EQUAL(me, me->recovery.cause.code, SC_RECONNECT);
    EQUAL(me, me->recovery.cause.suspect, 1);
    EQUAL(me, me->recovery.cause.value[0], 77);
    api_leave(me);
}

static void record_tells_on_all_ranks_what_each_had_done(void **state) {
    (void)state;
    api_play("ranks 2", submits_unevenly);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_reconnects_on_each_rank_cause_one_recovery_r3),
        cmocka_unit_test(double_fault_hides_no_new_process_from_the_record),
        cmocka_unit_test(record_tells_on_all_ranks_what_each_had_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
