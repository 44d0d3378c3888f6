// SPDX-License-Identifier: AGPL-3.0-only
//
// Closing through the public calls: what peers see of it, in which state it may come, how long it
// takes, and that a closed handle is closed.
#include "tests/support/api_run.h"

#include <sys/wait.h>
#include <unistd.h>

static void wait_for_state(struct api_rank *me, enum sc_state state) {
    while (api_health(me).state != state)
        api_sleep(me, MS);
}

static sc_status wait_ready(struct api_rank *me, uint64_t timeout_ns) {
    me->recovery = (struct sc_recovery){.size = sizeof me->recovery};
    return sc_wait_ready(me->comm, timeout_ns, &me->recovery);
}

// ---- what peers see ----------------------------------------------------------------------------

static uint32_t leaver;

static void leaves_for_good(struct api_rank *me) {
    api_begin(me);
    api_works(me);
    DO(me, sc_barrier(me->comm, me->epoch, SECOND));
    if (me->rank == leaver) {
        api_close(me, SC_CLOSE_FINAL);
        return;
    }
    EXPECT(me, sc_barrier(me->comm, me->epoch, SC_FOREVER), SC_EPOCH_LOST);
    EXPECT(me, wait_ready(me, 10 * SECOND), SC_PEER_LEFT);
    SAYS(me, "PEER_LEFT");
    EXPECT(me, wait_ready(me, 10 * SECOND), SC_PEER_LEFT); // and so it stays
    EQUAL(me, api_health(me).state, SC_STATE_FAILED);
    EQUAL(me, api_health(me).cause.code, SC_PEER_LEFT);
    if (me->rank == 0 || leaver == 0) {
        EQUAL(me, api_health(me).cause.suspect, leaver);
        EQUAL(me, api_note(me, SC_NOTE_BYE)->note.rank, leaver);
        EQUAL(me, api_note(me, SC_NOTE_BYE)->note.status, SC_PEER_LEFT);
    }
    api_close(me, SC_CLOSE_FINAL);
}

static void final_close_fails_every_peer_with_peer_left(void **state) {
    (void)state;
    for (leaver = 0; leaver < 3; leaver++)
        api_play("ranks 3", leaves_for_good);
}

static void returns(struct api_rank *me) {
    api_begin(me);
    api_works(me);
    DO(me, sc_mark(me->comm, me->epoch, 4));
    DO(me, sc_barrier(me->comm, me->epoch, SECOND));
    if (me->rank == leaver) {
        sc_comm former = me->comm;
        api_close(me, SC_CLOSE_RETURNING);
        api_sleep(me, 3 * SECOND);
        api_open(me, NULL);
        TRUE(me, me->comm != former);
        EXPECT(me, sc_join(former), SC_CLOSED);
    } else {
        EXPECT(me, sc_barrier(me->comm, me->epoch, SC_FOREVER), SC_EPOCH_LOST);
        EXPECT(me, wait_ready(me, 2 * SECOND), SC_TIMEOUT);
    }
    api_ready(me);
    for (uint32_t r = 0; r < me->world; r++) {
        EQUAL(me, me->recovery.ranks[r].mark, r == leaver ? 0 : 4);
        EQUAL(me, me->recovery.ranks[r].fresh, r == leaver || me->rank == leaver);
    }
    api_works(me);
    api_leave(me);
}

static void returning_close_is_waited_for(void **state) {
    (void)state;
    for (leaver = 0; leaver < 3; leaver++)
        api_play("ranks 3", returns);
}

// ---- in every state ----------------------------------------------------------------------------

static enum sc_state closed_in;

static void closes_in_a_state(struct api_rank *me) {
    struct sc_config config = api_config(me);
    uint64_t limit_ns = SECOND; // of an abort
    if (closed_in == SC_STATE_IDLE)
        config.flags = SC_OPEN_HOLD;
    if (closed_in == SC_STATE_FAILED && me->rank == 1)
        config.capacity_bytes *= 2; // rank 0 refuses it
    if (closed_in == SC_STATE_RENDEZVOUS && me->rank == 1)
        return;
    if (closed_in == SC_STATE_FAILED && me->rank == 0) {
        api_open(me, &config);
        while (board[0] == 0)
            api_sleep(me, MS);
        board[0]++;
        api_close(me, SC_CLOSE_FINAL);
        return;
    }
    api_open(me, &config);
    if (closed_in >= SC_STATE_READY && closed_in != SC_STATE_FAILED)
        api_ready(me);
    if (closed_in == SC_STATE_ABORTING) {
        void *b = api_buffer(me, 64, 1);
        DO(me, sc_sim_rank_launch(me->sim, me->stream, 4 * SECOND, NULL, NULL));
        DO(me, sc_all_reduce(me->comm, me->epoch, b, 128, SC_BF16, me->stream));
        DO(me, sc_reconnect(me->comm, me->epoch, 0));
        limit_ns = 6 * SECOND; // what stands ahead of the op is waited for
    }
    wait_for_state(me, closed_in);
    board[0]++;
    while (closed_in != SC_STATE_RENDEZVOUS && board[0] != 2) // not one ahead of the other
        api_sleep(me, MS);
    uint64_t begun_ns = api_now(me);
    api_close(me, SC_CLOSE_FINAL);
    TRUE(me, api_now(me) - begun_ns <= limit_ns);
    EXPECT(me, sc_close(me->comm, SC_CLOSE_FINAL, SECOND), SC_CLOSED);
    EQUAL(me, me->notes[me->notes_count - 1].note.to, SC_STATE_CLOSED); // the last note was told
}

static void handle_is_closed_within_bounds_in_every_state_h7(void **state) {
    (void)state;
    for (closed_in = SC_STATE_IDLE; closed_in <= SC_STATE_FAILED; closed_in++)
        api_play("ranks 2\ninit takes 500ms 500ms", closes_in_a_state);
}

static void closes_patiently(struct api_rank *me) {
    api_begin(me);
    void *b = api_buffer(me, 64, 1);
    DO(me, sc_sim_rank_launch(me->sim, me->stream, 20 * SECOND, NULL, NULL));
    DO(me, sc_all_reduce(me->comm, me->epoch, b, 128, SC_BF16, me->stream));
    DO(me, sc_barrier(me->comm, me->epoch, SECOND));
    uint64_t begun_ns = api_now(me);
    EXPECT(me, sc_close(me->comm, SC_CLOSE_FINAL, 0), SC_TIMEOUT);
    EQUAL(me, api_now(me), begun_ns);
    EQUAL(me, *sc_live_epoch(me->comm), 0);
    EXPECT(me, sc_close(me->comm, SC_CLOSE_FINAL, 5 * SECOND), SC_TIMEOUT);
    EQUAL(me, api_now(me) - begun_ns, 5 * SECOND);
    SAYS(me, "sc_close: TIMEOUT: rank ");
    SAYS(me, "is aborting");
    EXPECT(me, wait_ready(me, SECOND), SC_CLOSED);
    EXPECT(me, sc_sync(me->comm, me->epoch, me->stream, SC_SYNC_LOCAL, SECOND), SC_EPOCH_LOST);
    EXPECT(me, sc_close(me->comm, (enum sc_close_how)7, 0), SC_INVALID);
    SAYS(me, "how is 7");
    api_close(me, SC_CLOSE_FINAL);
    TRUE(me, api_now(me) - begun_ns >= 19 * SECOND);
}

static void close_that_timed_out_is_gone_on_with_by_the_next(void **state) {
    (void)state;
    api_play("ranks 2", closes_patiently);
}

static void keeps_captures(struct api_rank *me) {
    sc_capture capture;
    api_begin(me);
    DO(me, sc_capture_begin(me->comm, me->epoch, me->stream, &capture));
    DO(me, sc_capture_end(me->comm, capture));
    DO(me, sc_barrier(me->comm, me->epoch, SECOND));
    EXPECT(me, sc_close(me->comm, SC_CLOSE_FINAL, 10 * SECOND), SC_TIMEOUT);
    SAYS(me, "1 captures are not released");
    EQUAL(me, api_health(me).captures, 1);
    DO(me, sc_capture_release(me->comm, capture));
    api_close(me, SC_CLOSE_FINAL);
}

static void close_waits_for_captures_and_says_so(void **state) {
    (void)state;
    api_play("ranks 2", keeps_captures);
}

static void opens_again_and_again(struct api_rank *me) {
    sc_comm former[40];
    for (uint32_t i = 0; i < 40; i++) {
        api_begin(me);
        api_works(me);
        former[i] = me->comm;
        for (uint32_t j = 0; j < i; j++)
            TRUE(me, former[j] != me->comm);
        DO(me, sc_barrier(me->comm, me->epoch, SECOND));
        api_close(me, i == 39 ? SC_CLOSE_FINAL : SC_CLOSE_RETURNING);
        me->epoch = 0;
        me->notes_count = 0;
        DO(me, sc_sim_rank_stream_destroy(me->sim, me->stream));
        me->stream = NULL;
        api_sleep(me, SECOND);
    }
}

static void handles_never_come_back_and_leave_nothing_r5(void **state) {
    (void)state;
    api_play("ranks 2\nseconds 200", opens_again_and_again);
}

// ---- afterwards --------------------------------------------------------------------------------

// Every call of the handle answers so.
static bool all_answer(sc_comm c, sc_status wanted, void *b, void *s) {
    struct sc_recovery recovery = {.size = sizeof recovery};
    struct sc_health_report report = {.size = sizeof report};
    sc_ticket ticket;
    sc_capture capture;
    uint32_t got;
    int fd;
    const sc_status answers[] = {
        sc_join(c),
        sc_wait_ready(c, SC_FOREVER, &recovery),
        sc_reconnect(c, 1, 0),
        sc_close(c, SC_CLOSE_FINAL, SC_FOREVER),
        sc_buffer_register(c, b, 128),
        sc_buffer_deregister(c, b),
        sc_mem_alloc(c, 128, &b),
        sc_mem_free(c, b),
        sc_all_reduce(c, 1, b, 128, SC_BF16, s),
        sc_all_reduce_start(c, 1, b, 128, SC_BF16, s, &ticket),
        sc_all_reduce_join(c, 1, 1, s),
        sc_all_reduce_async(c, 1, b, 128, SC_BF16, s),
        sc_broadcast(c, 1, b, 128, 0, s),
        sc_all_gather(c, 1, b, b, 128, s),
        sc_reduce_scatter(c, 1, b, b, 128, SC_BF16, s),
        sc_send(c, 1, b, 128, 0, s),
        sc_recv(c, 1, b, 128, 0, s),
        sc_group_begin(c, 1),
        sc_group_end(c),
        sc_sync(c, 1, s, SC_SYNC_LOCAL, SC_FOREVER),
        sc_test(c, 1, s),
        sc_capture_begin(c, 1, s, &capture),
        sc_capture_end(c, 1),
        sc_capture_release(c, 1),
        sc_replay_begin(c, 1, 1, s),
        sc_replay_end(c),
        sc_barrier(c, 1, SC_FOREVER),
        sc_command_send(c, 1, b, 0, SC_FOREVER),
        sc_command_recv(c, 1, b, 8, &got, SC_FOREVER),
        sc_mark(c, 1, 1),
        sc_health(c, &report),
        sc_event_fd(c, &fd),
    };
    bool all = true;
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++)
        all &= answers[i] == wanted;
    sc_interrupt(c);
    return all && *sc_live_epoch(c) == 0 && strstr(sc_last_error(), sc_status_name(wanted)) != NULL;
}

static void calls_late(struct api_rank *me) {
    void *b = api_buffer(me, 64, 1);
    const volatile uint64_t *live;
    api_begin(me);
    live = sc_live_epoch(me->comm);
    api_leave(me);
    EQUAL(me, *live, 0); // may be read for ever
    TRUE(me, all_answer(me->comm, SC_CLOSED, b, me->stream));
    TRUE(me, all_answer(0, SC_CLOSED, b, me->stream));
    TRUE(me, all_answer(me->comm + 1, SC_CLOSED, b, me->stream));
    TRUE(me, all_answer(UINT64_MAX, SC_CLOSED, b, me->stream));
    HOLDS(me, b, 64, 1);
}

static void every_late_call_is_answered_closed_h7(void **state) {
    (void)state;
    api_play("ranks 2", calls_late);
}

static void forks(struct api_rank *me) {
    void *b = api_buffer(me, 64, 1);
    int how = 0;
    api_begin(me);
    pid_t child = fork();
    if (child == 0)
        _exit(all_answer(me->comm, SC_FORKED, b, me->stream) ? 0 : 1);
    TRUE(me, child > 0 && waitpid(child, &how, 0) == child);
    TRUE(me, WIFEXITED(how) && WEXITSTATUS(how) == 0);
    api_works(me);
    api_leave(me);
}

static void every_call_of_a_forked_child_is_answered_forked(void **state) {
    (void)state;
    api_play("ranks 2", forks);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(final_close_fails_every_peer_with_peer_left),
        cmocka_unit_test(returning_close_is_waited_for),
        cmocka_unit_test(handle_is_closed_within_bounds_in_every_state_h7),
        cmocka_unit_test(close_that_timed_out_is_gone_on_with_by_the_next),
        cmocka_unit_test(close_waits_for_captures_and_says_so),
        cmocka_unit_test(handles_never_come_back_and_leave_nothing_r5),
        cmocka_unit_test(every_late_call_is_answered_closed_h7),
        cmocka_unit_test(every_call_of_a_forked_child_is_answered_forked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
