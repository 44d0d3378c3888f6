// SPDX-License-Identifier: AGPL-3.0-only
//
// Interrupts through the public calls: every wait is ended by one, and nothing else is.
#include "tests/support/api_run.h"

// Rank 1 interrupts rank 0's handle, which is on the board, so much later.
static void interrupts_later(uint64_t duration_ns, struct api_rank *me) {
    while (board[0] == 0)
        api_sleep(me, MS);
    api_sleep(me, duration_ns);
    sc_interrupt(board[0]);
    board[0] = 0;
}

// Rank 0 waits, and is interrupted 500 ms later.
#define INTERRUPTED(me, call)                                                                      \
    do {                                                                                           \
        if (me->rank != 0) {                                                                       \
            interrupts_later(500 * MS, me);                                                        \
            break;                                                                                 \
        }                                                                                          \
        uint64_t begun_ns = api_now(me);                                                           \
        board[0] = me->comm;                                                                       \
        EXPECT(me, call, SC_INTERRUPTED);                                                          \
        SAYS(me, "INTERRUPTED");                                                                   \
        TRUE(me, api_now(me) - begun_ns >= 500 * MS && api_now(me) - begun_ns < 600 * MS);         \
    } while (0)

static void waits_for_everything(struct api_rank *me) {
    struct sc_config config = api_config(me);
    struct sc_recovery recovery = {.size = sizeof recovery};
    config.ledger_ops = 4;
    config.flags = SC_OPEN_HOLD;
    api_open(me, &config);
    INTERRUPTED(me, sc_wait_ready(me->comm, SC_FOREVER, &recovery));
    DO(me, sc_join(me->comm));
    api_ready(me);
    uint16_t *b = api_buffer(me, 64, 1);
    INTERRUPTED(me, sc_barrier(me->comm, me->epoch, SC_FOREVER));
    DO(me, sc_barrier(me->comm, me->epoch, SECOND));
    if (me->rank == 0)
        for (int i = 0; i < 4; i++)
            DO(me, sc_all_reduce(me->comm, me->epoch, b, 128, SC_BF16, me->stream));
    INTERRUPTED(me, sc_sync(me->comm, me->epoch, me->stream, SC_SYNC_LOCAL, SC_FOREVER));
    INTERRUPTED(me, sc_sync(me->comm, me->epoch, me->stream, SC_SYNC_AGREED, SC_FOREVER));
    INTERRUPTED(me, sc_all_reduce(me->comm, me->epoch, b, 128, SC_BF16, me->stream));
    if (me->rank == 1)
        for (int i = 0; i < 4; i++)
            DO(me, sc_all_reduce(me->comm, me->epoch, b, 128, SC_BF16, me->stream));
    DO(me, sc_sync(me->comm, me->epoch, me->stream, SC_SYNC_AGREED, SECOND));
    HOLDS(me, b, 64, 16); // the interrupted submit had no effect
    if (me->rank == 0)
        DO(me, sc_all_reduce(me->comm, me->epoch, b, 0, SC_BF16, me->stream));
    INTERRUPTED(me, sc_sync(me->comm, me->epoch, me->stream, SC_SYNC_AGREED, SC_FOREVER));
    if (me->rank == 1)
        DO(me, sc_all_reduce(me->comm, me->epoch, b, 0, SC_BF16, me->stream));
    DO(me, sc_sync(me->comm, me->epoch, me->stream, SC_SYNC_AGREED, SECOND));
    api_leave(me);
}

static void interrupt_ends_every_wait_and_changes_nothing(void **state) {
    (void)state;
    api_play("ranks 2", waits_for_everything);
}

static void waits_for_commands(struct api_rank *me) {
    static unsigned char data[60000];
    uint32_t count = 0, got;
    api_begin(me);
    while (me->rank == 0 && count < 1000 &&
           sc_command_send(me->comm, me->epoch, data, sizeof data, 0) == SC_OK)
        count++;
    INTERRUPTED(me, sc_command_send(me->comm, me->epoch, data, sizeof data, SC_FOREVER));
    board[1] += count;
    DO(me, sc_barrier(me->comm, me->epoch, SECOND));
    for (uint32_t i = 0; me->rank == 1 && i < board[1]; i++)
        DO(me, sc_command_recv(me->comm, me->epoch, data, sizeof data, &got, SECOND));
    if (me->rank == 1) { // from the other side
        board[2] = me->comm;
        EXPECT(me, sc_command_recv(me->comm, me->epoch, data, sizeof data, &got, SC_FOREVER),
               SC_INTERRUPTED);
        EXPECT(me, sc_command_recv(me->comm, me->epoch, data, sizeof data, &got, SECOND),
               SC_TIMEOUT);
    } else {
        while (board[2] == 0)
            api_sleep(me, MS);
        api_sleep(me, SECOND);
        sc_interrupt(board[2]);
    }
    api_leave(me);
}

static void interrupt_ends_waits_for_commands(void **state) {
    (void)state;
    api_play("ranks 2", waits_for_commands);
}

static void is_interrupted_early(struct api_rank *me) {
    struct sc_recovery recovery = {.size = sizeof recovery};
    uint16_t *b = api_buffer(me, 64, 1);
    api_begin(me);
    DO(me, sc_barrier(me->comm, me->epoch, SECOND));
    sc_interrupt(me->comm);
    sc_interrupt(me->comm);
    DO(me, sc_wait_ready(me->comm, SECOND, &recovery)); // does not have to wait
    DO(me, sc_all_reduce(me->comm, me->epoch, b, 128, SC_BF16, me->stream));
    EXPECT(me, sc_sync(me->comm, me->epoch, me->stream, SC_SYNC_LOCAL, SECOND), SC_INTERRUPTED);
    DO(me, sc_sync(me->comm, me->epoch, me->stream, SC_SYNC_LOCAL, SECOND)); // once, not twice
    api_leave(me);
    sc_interrupt(me->comm); // nobody is there
    sc_interrupt(0);
}

static void interrupt_without_a_wait_ends_the_next_one(void **state) {
    (void)state;
    api_play("ranks 2", is_interrupted_early);
}

static void closes_slowly(struct api_rank *me) {
    api_begin(me);
    sc_capture capture;
    DO(me, sc_capture_begin(me->comm, me->epoch, me->stream, &capture));
    DO(me, sc_capture_end(me->comm, capture));
    DO(me, sc_barrier(me->comm, me->epoch, SECOND));
    if (me->rank == 0) {
        sc_interrupt(me->comm); // before it waits: nothing to a close
        EXPECT(me, sc_close(me->comm, SC_CLOSE_FINAL, SECOND), SC_TIMEOUT);
    }
    INTERRUPTED(me, sc_close(me->comm, SC_CLOSE_FINAL, SC_FOREVER));
    DO(me, sc_capture_release(me->comm, capture));
    api_close(me, SC_CLOSE_FINAL);
}

static void interrupt_ends_a_close_only_if_it_waits_already(void **state) {
    (void)state;
    api_play("ranks 2", closes_slowly);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(interrupt_ends_every_wait_and_changes_nothing),
        cmocka_unit_test(interrupt_ends_waits_for_commands),
        cmocka_unit_test(interrupt_without_a_wait_ends_the_next_one),
        cmocka_unit_test(interrupt_ends_a_close_only_if_it_waits_already),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
