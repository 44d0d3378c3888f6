// SPDX-License-Identifier: AGPL-3.0-only
//
// What hosts say to each other through the public calls: barriers, commands, marks.
#include "tests/support/api_run.h"

static sc_status barrier(struct api_rank *me, uint64_t timeout_ns) {
    return sc_barrier(me->comm, me->epoch, timeout_ns);
}

// ---- barriers ----------------------------------------------------------------------------------

static const uint32_t orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                      {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

static void arrives_in_every_order(struct api_rank *me) {
    api_begin(me);
    for (uint32_t i = 0; i < 6; i++) {
        DO(me, barrier(me, SECOND));
        api_sleep(me, orders[i][me->rank] * 300 * MS);
        board[i]++;
        DO(me, barrier(me, SECOND));
        EQUAL(me, board[i], 3); // nobody passes before all have come
    }
    EQUAL(me, api_health(me).submitted, 0);
    api_leave(me);
}

static void barrier_passes_when_all_have_come_in_whatever_order(void **state) {
    (void)state;
    api_play("ranks 3", arrives_in_every_order);
}

static void arrives_late(struct api_rank *me) {
    api_begin(me);
    DO(me, barrier(me, SECOND));
    if (me->rank == 1) {
        api_sleep(me, 3 * SECOND);
        board[0] = 1;
    } else {
        uint64_t begun_ns = api_now(me);
        EXPECT(me, barrier(me, SECOND), SC_TIMEOUT);
        EQUAL(me, api_now(me) - begun_ns, SECOND);
        SAYS(me, "sc_barrier: TIMEOUT");
        EXPECT(me, barrier(me, 0), SC_TIMEOUT);
        EQUAL(me, board[0], 0);
    }
    DO(me, barrier(me, 10 * SECOND)); // the same one
    EQUAL(me, board[0], 1);
    api_leave(me);
}

static void barrier_that_timed_out_is_taken_up_by_the_next_call(void **state) {
    (void)state;
    api_play("ranks 3", arrives_late);
}

static void passes_unseen(struct api_rank *me) {
    api_begin(me);
    DO(me, barrier(me, SECOND));
    if (me->rank == 0) {
        EXPECT(me, barrier(me, 10 * MS), SC_TIMEOUT);
        api_sleep(me, SECOND); // it passes meanwhile
        uint64_t begun_ns = api_now(me);
        DO(me, barrier(me, 0));
        EQUAL(me, api_now(me), begun_ns);
        EXPECT(me, barrier(me, 10 * MS), SC_TIMEOUT); // the next is another
    } else {
        api_sleep(me, 100 * MS);
        DO(me, barrier(me, SECOND));
        api_sleep(me, 2 * SECOND);
    }
    DO(me, barrier(me, 10 * SECOND));
    api_leave(me);
}

static void barrier_that_passed_meanwhile_is_passed_at_once(void **state) {
    (void)state;
    api_play("ranks 2", passes_unseen);
}

static void is_lost_at_a_barrier(struct api_rank *me) {
    api_begin(me);
    uint64_t first = me->epoch;
    DO(me, barrier(me, SECOND));
    if (me->rank == 0) {
        EXPECT(me, barrier(me, 10 * MS), SC_TIMEOUT);
        EXPECT(me, barrier(me, SC_FOREVER), SC_EPOCH_LOST);
    } else {
        api_sleep(me, SECOND);
        DO(me, sc_reconnect(me->comm, first, 0));
    }
    api_ready(me);
    EXPECT(me, sc_barrier(me->comm, first, SECOND), SC_EPOCH_LOST);
    if (me->rank == 1)
        api_sleep(me, SECOND);
    board[2 + me->rank] = api_now(me);
    DO(me, barrier(me, 10 * SECOND)); // arrivals of the lost epoch count for nothing
    TRUE(me, board[2] != 0 && board[3] != 0);
    api_leave(me);
}

static void barrier_ends_with_its_epoch_and_counts_anew_in_the_next(void **state) {
    (void)state;
    api_play("ranks 2", is_lost_at_a_barrier);
}

// Rank 1 thaws when its place is long taken, and arrives before it has looked at its link.
static void thaws_at_a_barrier(struct api_rank *me) {
    api_begin(me);
    if (me->rank == 1 && me->life == 1) {
        DO(me, barrier(me, SECOND));
        DO(me, sc_mark(me->comm, me->epoch, 1)); // frozen here
        EXPECT(me, barrier(me, SC_FOREVER), SC_EPOCH_LOST);
        DO(me, sc_close(me->comm, SC_CLOSE_FINAL, 10 * SECOND));
        return;
    }
    if (me->rank == 0) {
        DO(me, barrier(me, SECOND));
        EXPECT(me, barrier(me, SC_FOREVER), SC_EPOCH_LOST);
        api_ready(me);
    }
    DO(me, barrier(me, SECOND));
    sc_status status = sc_close(me->comm, SC_CLOSE_FINAL, 30 * SECOND);
    TRUE(me, status == (me->rank == 0 ? SC_ABORT_STUCK : SC_OK));
}

static void barrier_that_is_lost_as_it_is_called_is_not_passed_r4(void **state) {
    (void)state;
    api_play("ranks 2\nat rank 1 mark 1: rank 1 replace 20s", thaws_at_a_barrier);
}

// ---- commands ----------------------------------------------------------------------------------

// Of each rank, for a send that waits still needs its bytes.
static unsigned char of_rank[SC_SIM_RANKS_MAX][SC_COMMAND_MAX_BYTES + 1];
static unsigned char taken[SC_COMMAND_MAX_BYTES];

static void paint(unsigned char *to, uint32_t bytes, uint32_t number) {
    for (uint32_t i = 0; i < bytes; i++)
        to[i] = (unsigned char)(number * 31 + i % 251);
}

static sc_status send(struct api_rank *me, uint32_t bytes, uint32_t number, uint64_t timeout_ns) {
    unsigned char *data = of_rank[me->rank];
    paint(data, bytes, number);
    return sc_command_send(me->comm, me->epoch, data, bytes, timeout_ns);
}

// The next command is that one.
static void receives(struct api_rank *me, uint32_t bytes, uint32_t number) {
    uint32_t got = 77;
    DO(me, sc_command_recv(me->comm, me->epoch, taken, sizeof taken, &got, 10 * SECOND));
    EQUAL(me, got, bytes);
    paint(of_rank[me->rank], bytes, number);
    TRUE(me, memcmp(of_rank[me->rank], taken, bytes) == 0);
}

static const uint32_t lengths[] = {0, 1, 7, 8, 9, 4096, 0, 65535, 65536, 3, 65536, 0};
#define LENGTHS (sizeof lengths / sizeof lengths[0])

static void commands(struct api_rank *me) {
    api_begin(me);
    for (uint32_t round = 0; round < 2; round++) // to one that waits, and to one that comes later
        for (uint32_t i = 0; i < LENGTHS; i++) {
            if (me->rank == round)
                api_sleep(me, 20 * MS);
            if (me->rank == 0)
                DO(me, send(me, lengths[i], i, 10 * SECOND));
            else
                receives(me, lengths[i], i);
        }
    api_leave(me);
}

static void commands_of_every_size_come_to_every_member_in_order(void **state) {
    (void)state;
    api_play("ranks 2", commands);
    api_play("ranks 4", commands);
}

static void commands_nobody(struct api_rank *me) {
    api_begin(me);
    for (int i = 0; i < 100; i++)
        DO(me, send(me, 65536, 1, 0));
    api_leave(me);
}

static void in_a_world_of_one_commands_go_to_nobody(void **state) {
    (void)state;
    api_play("ranks 1", commands_nobody);
}

static void takes_none(struct api_rank *me) {
    api_begin(me);
    if (me->rank == 0) {
        uint32_t count = 0;
        while (count < 1000 && send(me, 60000, count, 0) == SC_OK)
            count++;
        TRUE(me, count > 0 && count < 1000);
        uint64_t begun_ns = api_now(me);
        EXPECT(me, send(me, 60000, 99, SECOND), SC_TIMEOUT);
        EQUAL(me, api_now(me) - begun_ns, SECOND);
        SAYS(me, "sc_command_send: TIMEOUT");
        board[0] = count;
        DO(me, send(me, 60000, count, 10 * SECOND)); // as soon as rank 1 takes some
        TRUE(me, api_now(me) - begun_ns >= SECOND);
    } else {
        while (board[0] == 0)
            api_sleep(me, 10 * MS);
        api_sleep(me, SECOND);
        for (uint32_t i = 0; i <= board[0]; i++) // 99 is not among them
            receives(me, 60000, i);
    }
    DO(me, barrier(me, 10 * SECOND));
    EQUAL(me, me->recoveries, 0);
    api_leave(me);
}

static void command_that_timed_out_was_not_sent(void **state) {
    (void)state;
    api_play("ranks 2", takes_none);
}

static void has_little_room(struct api_rank *me) {
    api_begin(me);
    if (me->rank == 0) {
        DO(me, send(me, 100, 1, SECOND));
        DO(me, send(me, 8, 2, SECOND));
    } else {
        uint32_t got = 0;
        sc_status status;
        memset(taken, 0xee, sizeof taken);
        do
            status = sc_command_recv(me->comm, me->epoch, taken, 99, &got, SECOND);
        while (status == SC_TIMEOUT);
        EXPECT(me, status, SC_TOO_LARGE);
        SAYS(me, "the next command has 100 bytes, the buffer 99");
        EQUAL(me, got, 100);
        EQUAL(me, taken[0], 0xee);
        got = 0;
        EXPECT(me, sc_command_recv(me->comm, me->epoch, NULL, 0, &got, 0), SC_TOO_LARGE);
        EQUAL(me, got, 100);
        receives(me, 100, 1);
        receives(me, 8, 2);
        EXPECT(me, sc_command_recv(me->comm, me->epoch, taken, 8, &got, SECOND / 2), SC_TIMEOUT);
    }
    api_leave(me);
}

static void command_that_does_not_fit_tells_its_length_and_stays(void **state) {
    (void)state;
    api_play("ranks 2", has_little_room);
}

static void loses_commands(struct api_rank *me) {
    api_begin(me);
    uint32_t got;
    if (me->rank == 0)
        for (uint32_t i = 0; i < 3; i++)
            DO(me, send(me, 1000, i, SECOND));
    else
        receives(me, 1000, 0);
    DO(me, barrier(me, SECOND));
    if (me->rank == 1)
        DO(me, sc_reconnect(me->comm, me->epoch, 0));
    api_sleep(me, 100 * MS);
    api_ready(me);
    if (me->rank == 0) {
        api_sleep(me, SECOND);
        DO(me, send(me, 500, 7, SECOND));
    } else {
        EXPECT(me, sc_command_recv(me->comm, me->epoch, taken, 2000, &got, SECOND / 2), SC_TIMEOUT);
        receives(me, 500, 7);
    }
    DO(me, barrier(me, 10 * SECOND));
    if (me->rank == 0) {
        api_sleep(me, SECOND);
        DO(me, sc_reconnect(me->comm, me->epoch, 0));
    } else {
        EXPECT(me, sc_command_recv(me->comm, me->epoch, taken, 2000, &got, SC_FOREVER),
               SC_EPOCH_LOST);
    }
    api_ready(me);
    api_leave(me);
}

static void commands_that_were_not_taken_end_with_the_epoch(void **state) {
    (void)state;
    api_play("ranks 2", loses_commands);
}

static void waits_for_long(struct api_rank *me) {
    api_begin(me);
    if (me->rank == 0) {
        api_sleep(me, 600 * SECOND);
        DO(me, send(me, 8, 3, SECOND));
    } else {
        uint32_t got;
        DO(me, sc_command_recv(me->comm, me->epoch, taken, 8, &got, SC_FOREVER));
        EQUAL(me, got, 8);
        TRUE(me, api_now(me) > 600 * SECOND);
    }
    EQUAL(me, me->recoveries, 0);
    api_works(me);
    api_leave(me);
}

static void command_may_be_waited_for_for_ten_minutes_h9(void **state) {
    (void)state;
    api_play("ranks 2\nseconds 700", waits_for_long);
}

static void commands_wrongly(struct api_rank *me) {
    api_begin(me);
    uint32_t got;
    if (me->rank == 0) {
        EXPECT(me, sc_command_recv(me->comm, me->epoch, taken, 8, &got, SECOND), SC_INVALID);
        SAYS(me, "this is rank 0");
        EXPECT(me, sc_command_send(me->comm, me->epoch, of_rank[0], 65537, SECOND), SC_INVALID);
        SAYS(me, "65537 bytes");
        EXPECT(me, sc_command_send(me->comm, me->epoch, NULL, 1, SECOND), SC_INVALID);
    } else {
        EXPECT(me, send(me, 1, 1, SECOND), SC_INVALID);
        SAYS(me, "this is rank 1");
        EXPECT(me, sc_command_recv(me->comm, me->epoch, taken, 8, NULL, SECOND), SC_INVALID);
        EXPECT(me, sc_command_recv(me->comm, me->epoch, NULL, 8, &got, SECOND), SC_INVALID);
        EXPECT(me, sc_command_recv(me->comm, me->epoch, taken, 8, &got, 0), SC_TIMEOUT);
    }
    api_leave(me);
}

static void wrong_commands_and_sides_are_refused(void **state) {
    (void)state;
    api_play("ranks 2", commands_wrongly);
}

// ---- marks -------------------------------------------------------------------------------------

static void marks(struct api_rank *me) {
    api_begin(me);
    uint64_t first = me->epoch;
    EQUAL(me, api_health(me).mark, 0);
    DO(me, sc_mark(me->comm, first, UINT64_MAX));
    DO(me, sc_mark(me->comm, first, 50 + me->rank)); // the last one counts, also a lower one
    api_sleep(me, 3 * SECOND / 10);
    EQUAL(me, api_health(me).mark, 50 + me->rank);
    for (uint32_t r = 0; r < me->world; r++)
        if (r != me->rank && (me->rank == 0 || r == 0))
            EQUAL(me, api_health(me).peers[r].mark, 50 + r);
    DO(me, barrier(me, SECOND));
    if (me->rank == 2)
        DO(me, sc_reconnect(me->comm, first, 0));
    while (*sc_live_epoch(me->comm) == first)
        api_sleep(me, MS);
    EXPECT(me, sc_mark(me->comm, first, 99), SC_EPOCH_LOST);
    api_ready(me);
    for (uint32_t r = 0; r < me->world; r++)
        EQUAL(me, me->recovery.ranks[r].mark, 50 + r);
    EQUAL(me, api_health(me).mark, 50 + me->rank); // it outlives its epoch
    DO(me, sc_mark(me->comm, me->epoch, 60));
    DO(me, barrier(me, SECOND));
    DO(me, sc_reconnect(me->comm, me->epoch, 0));
    api_ready(me);
    for (uint32_t r = 0; r < me->world; r++)
        EQUAL(me, me->recovery.ranks[r].mark, 60);
    api_leave(me);
}

static void mark_is_told_in_health_and_in_the_record(void **state) {
    (void)state;
    api_play("ranks 3", marks);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(barrier_passes_when_all_have_come_in_whatever_order),
        cmocka_unit_test(barrier_that_timed_out_is_taken_up_by_the_next_call),
        cmocka_unit_test(barrier_that_passed_meanwhile_is_passed_at_once),
        cmocka_unit_test(barrier_ends_with_its_epoch_and_counts_anew_in_the_next),
        cmocka_unit_test(barrier_that_is_lost_as_it_is_called_is_not_passed_r4),
        cmocka_unit_test(commands_of_every_size_come_to_every_member_in_order),
        cmocka_unit_test(in_a_world_of_one_commands_go_to_nobody),
        cmocka_unit_test(command_that_timed_out_was_not_sent),
        cmocka_unit_test(command_that_does_not_fit_tells_its_length_and_stays),
        cmocka_unit_test(commands_that_were_not_taken_end_with_the_epoch),
        cmocka_unit_test(command_may_be_waited_for_for_ten_minutes_h9),
        cmocka_unit_test(wrong_commands_and_sides_are_refused),
        cmocka_unit_test(mark_is_told_in_health_and_in_the_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
