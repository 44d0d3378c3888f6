// SPDX-License-Identifier: AGPL-3.0-only
//
// What the public calls tell of a rank: the picture of its health, and the notes.
#include "tests/support/api_run.h"

#define HEARTBEAT (SECOND / 10)

// ---- the picture -------------------------------------------------------------------------------

static void is_fresh(struct api_rank *me) {
    api_sleep(me, 5 * SECOND + 7 * MS); // nothing happens meanwhile
    TRUE(me, api_now(me) - api_health(me).now_ns <= HEARTBEAT + MS);
}

static void is_looked_at_in_every_state(struct api_rank *me) {
    struct sc_config config = api_config(me);
    if (me->rank == 0)
        config.flags = SC_OPEN_HOLD;
    if (me->rank == 1)
        api_sleep(me, 20 * SECOND);
    api_open(me, &config);
    if (me->rank == 0) {
        EQUAL(me, api_health(me).state, SC_STATE_IDLE);
        is_fresh(me);
        DO(me, sc_join(me->comm));
        EQUAL(me, api_health(me).state, SC_STATE_RENDEZVOUS); // renewed at every change of state
        is_fresh(me);
    }
    api_ready(me);
    EQUAL(me, api_health(me).state, SC_STATE_READY);
    is_fresh(me);
    DO(me, sc_barrier(me->comm, me->epoch, 10 * SECOND));
    if (me->rank == 1) {
        api_close(me, SC_CLOSE_FINAL);
        return;
    }
    while (api_health(me).state != SC_STATE_FAILED)
        api_sleep(me, MS);
    is_fresh(me);
    api_close(me, SC_CLOSE_FINAL);
}

static void is_alone(struct api_rank *me) {
    api_begin(me);
    is_fresh(me);
    api_leave(me);
}

static void picture_is_at_most_a_heartbeat_old_in_every_state(void **state) {
    (void)state;
    api_play("ranks 2", is_looked_at_in_every_state);
    api_play("ranks 1", is_alone);
}

static bool is_zero(const void *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (((const unsigned char *)bytes)[i] != 0)
            return false;
    return true;
}

static void has_values(struct api_rank *me) {
    api_begin(me);
    uint64_t first = me->epoch;
    for (int i = 0; i < 3; i++)
        api_works(me);
    DO(me, sc_mark(me->comm, first, 70 + me->rank));
    api_sleep(me, 5 * HEARTBEAT / 2);
    struct sc_health_report h = api_health(me);
    EQUAL(me, h.size, sizeof h);
    EQUAL(me, h.state, SC_STATE_READY);
    EQUAL(me, h.epoch, first);
    EQUAL(me, h.recoveries, 0);
    EQUAL(me, h.submitted, 3);
    EQUAL(me, h.completed, 3);
    EQUAL(me, h.mark, 70 + me->rank);
    EQUAL(me, h.notes_dropped, 0);
    EQUAL(me, h.captures + h.draining, 0);
    EQUAL(me, h.world, 3);
    EQUAL(me, h.cause.code, SC_OK);
    TRUE(me, h.incarnation != 0);
    board[me->rank] = h.incarnation;
    DO(me, sc_barrier(me->comm, first, SECOND));
    for (uint32_t r = 0; r < 3; r++) {
        const struct sc_peer_health *p = &h.peers[r];
        if (r == me->rank || (me->rank != 0 && r != 0)) {
            if (r == me->rank)
                TRUE(me, is_zero(p, sizeof *p));
            continue;
        }
        EQUAL(me, p->incarnation, board[r]);
        EQUAL(me, p->state, SC_STATE_READY);
        EQUAL(me, p->submitted, 3);
        EQUAL(me, p->completed, 3);
        EQUAL(me, p->mark, 70 + r);
        EQUAL(me, p->loading, 0);
        TRUE(me, h.now_ns - p->heard_ns <= HEARTBEAT + MS);
    }
    if (me->rank == 2)
        DO(me, sc_reconnect(me->comm, first, 9));
    while (*sc_live_epoch(me->comm) == first)
        api_sleep(me, MS);
    EQUAL(me, api_health(me).state, SC_STATE_ABORTING);
    EQUAL(me, api_health(me).epoch, first); // the one being left
    EQUAL(me, api_health(me).cause.code, SC_RECONNECT);
    EQUAL(me, api_health(me).cause.suspect, 2);
    EQUAL(me, api_health(me).cause.value[0], 9);
    api_ready(me);
    h = api_health(me);
    EQUAL(me, h.epoch, me->epoch);
    EQUAL(me, h.recoveries, 1);
    EQUAL(me, h.submitted + h.completed, 0);
    EQUAL(me, h.incarnation, board[me->rank]);
    TRUE(me, memcmp(&h.phases, &me->recovery.phases, sizeof h.phases) == 0);
    TRUE(me, h.phases.abort_ns != 0 && h.phases.form_ns != 0);
    api_leave(me);
}

static void picture_tells_what_this_rank_and_its_peers_have_done(void **state) {
    (void)state;
    api_play("ranks 3", has_values);
}

static void asks_wrongly(struct api_rank *me) {
    union {
        struct sc_health_report report;
        unsigned char bytes[sizeof(struct sc_health_report)];
    } out;
    int fd = 77;
    api_begin(me);
    EXPECT(me, sc_health(me->comm, NULL), SC_INVALID);
    SAYS(me, "sizeof(struct sc_health_report)");
    memset(&out, 0xee, sizeof out);
    out.report.size = 4;
    EXPECT(me, sc_health(me->comm, &out.report), SC_INVALID);
    out.report.size = 64; // an older caller's
    DO(me, sc_health(me->comm, &out.report));
    EQUAL(me, out.report.size, 64);
    EQUAL(me, out.report.state, SC_STATE_READY);
    EQUAL(me, out.bytes[64], 0xee);
    EXPECT(me, sc_event_fd(me->comm, &fd), SC_UNAVAILABLE);
    EQUAL(me, fd, 77);
    EXPECT(me, sc_event_fd(me->comm, NULL), SC_INVALID);
    api_leave(me);
}

static void picture_is_cut_to_the_size_that_the_caller_knows(void **state) {
    (void)state;
    api_play("ranks 1", asks_wrongly);
}

// ---- notes -------------------------------------------------------------------------------------

static void expects_state(struct api_rank *me, uint32_t *at, enum sc_state from, enum sc_state to,
                          const char *words) {
    while (*at < me->notes_count && me->notes[*at].note.kind != SC_NOTE_STATE)
        ++*at;
    TRUE(me, *at < me->notes_count);
    const struct api_note *note = &me->notes[(*at)++];
    EQUAL(me, note->note.from, from);
    EQUAL(me, note->note.to, to);
    EQUAL(me, note->note.size, sizeof note->note);
    EQUAL(me, note->note.dropped, 0);
    TRUE(me, note->note.at_ns != 0 && note->note.at_ns <= api_now(me) + SECOND);
    HAS_WORDS(me, note->text, sc_state_name(from));
    HAS_WORDS(me, note->text, sc_state_name(to));
    HAS_WORDS(me, note->text, words);
}

static void is_noted(struct api_rank *me) {
    uint32_t at = 0;
    api_begin(me);
    DO(me, sc_barrier(me->comm, me->epoch, SECOND));
    if (me->rank == 1)
        DO(me, sc_reconnect(me->comm, me->epoch, 33));
    uint64_t first = me->epoch;
    while (*sc_live_epoch(me->comm) == first)
        api_sleep(me, MS);
    api_ready(me);
    api_leave(me);
    char own[16];
    snprintf(own, sizeof own, "rank %u: ", me->rank);
    expects_state(me, &at, SC_STATE_IDLE, SC_STATE_RENDEZVOUS, own);
    expects_state(me, &at, SC_STATE_RENDEZVOUS, SC_STATE_JOINING, own);
    expects_state(me, &at, SC_STATE_JOINING, SC_STATE_READY, own);
    EQUAL(me, me->notes[at - 1].note.epoch, first);
    expects_state(me, &at, SC_STATE_READY, SC_STATE_ABORTING, "RECONNECT rank 1: reason 33");
    EQUAL(me, me->notes[at - 1].note.status, SC_RECONNECT);
    EQUAL(me, me->notes[at - 1].note.rank, 1);
    EQUAL(me, me->notes[at - 1].note.epoch, first);
    expects_state(me, &at, SC_STATE_ABORTING, SC_STATE_RENDEZVOUS, own);
    expects_state(me, &at, SC_STATE_RENDEZVOUS, SC_STATE_JOINING, own);
    expects_state(me, &at, SC_STATE_JOINING, SC_STATE_READY, own);
    EQUAL(me, me->notes[at - 1].note.epoch, me->epoch);
    EQUAL(me, api_notes(me, SC_NOTE_GREETED), 1);
    EQUAL(me, api_note(me, SC_NOTE_GREETED)->note.rank, 1 - me->rank);
    EQUAL(me, api_notes(me, SC_NOTE_UNKEYED), 1); // once
    HAS_WORDS(me, api_note(me, SC_NOTE_UNKEYED)->text, "links are not keyed");
    EQUAL(me, me->notes[me->notes_count - 1].note.to, SC_STATE_CLOSED);
    for (uint32_t i = 0; i < me->notes_count; i++)
        TRUE(me, strchr(me->notes[i].text, '\n') == NULL && me->notes[i].text[0] != '\0');
    for (uint32_t i = 1; i < me->notes_count; i++)
        TRUE(me, me->notes[i].note.at_ns >= me->notes[i - 1].note.at_ns);
}

static void every_change_of_state_is_noted_in_order_and_in_words(void **state) {
    (void)state;
    api_play("ranks 2", is_noted);
}

static void is_slow_to_listen(struct api_rank *me) {
    struct sc_config config = api_config(me);
    config.notes_max = 1;
    api_open(me, &config);
    api_ready(me);
    uint32_t told = me->notes_count;
    EQUAL(me, me->notes[0].note.to, SC_STATE_RENDEZVOUS); // the oldest is kept
    api_sleep(me, 2 * HEARTBEAT);
    uint64_t dropped = api_health(me).notes_dropped;
    TRUE(me, dropped != 0);
    DO(me, sc_barrier(me->comm, me->epoch, SECOND));
    DO(me, sc_reconnect(me->comm, me->epoch, 0));
    api_ready(me);
    TRUE(me, me->notes_count > told);
    TRUE(me, me->notes[me->notes_count - 1].note.dropped >= dropped);
    api_leave(me);
}

static void full_queue_of_notes_drops_the_newest_and_counts_it(void **state) {
    (void)state;
    api_play("ranks 2", is_slow_to_listen);
}

static void has_no_listener(struct api_rank *me) {
    struct sc_config config = api_config(me);
    config.on_note = NULL;
    api_open(me, &config);
    api_ready(me);
    api_sleep(me, 2 * HEARTBEAT);
    EQUAL(me, api_health(me).notes_dropped, 0);
    api_leave(me);
}

static void without_on_note_nothing_is_dropped(void **state) {
    (void)state;
    api_play("ranks 2", has_no_listener);
}

// ---- keys --------------------------------------------------------------------------------------

static void has_a_key(struct api_rank *me) {
    unsigned char key[SC_KEY_BYTES];
    struct sc_config config = api_config(me);
    memset(key, 7, sizeof key);
    config.key = key;
    api_open(me, &config);
    memset(key, 0, sizeof key); // it was copied
    api_ready(me);
    api_works(me);
    EQUAL(me, api_notes(me, SC_NOTE_UNKEYED), 0);
    api_leave(me);
}

static void has_another_key(struct api_rank *me) {
    unsigned char key[SC_KEY_BYTES];
    struct sc_config config = api_config(me);
    struct sc_recovery recovery = {.size = sizeof recovery};
    memset(key, 7 + (int)me->rank, sizeof key);
    config.key = key;
    api_open(me, &config);
    EXPECT(me, sc_wait_ready(me->comm, 5 * SECOND, &recovery), SC_TIMEOUT);
    EQUAL(me, api_notes(me, SC_NOTE_GREETED), 0);
    SAYS(me, me->rank == 0 ? "rank 1 is missing" : "rank 0 is not reached");
    api_close(me, SC_CLOSE_FINAL);
}

static void ranks_meet_with_the_same_key_only(void **state) {
    (void)state;
    api_play("ranks 2", has_a_key);
    api_play("ranks 2", has_another_key);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(picture_is_at_most_a_heartbeat_old_in_every_state),
        cmocka_unit_test(picture_tells_what_this_rank_and_its_peers_have_done),
        cmocka_unit_test(picture_is_cut_to_the_size_that_the_caller_knows),
        cmocka_unit_test(every_change_of_state_is_noted_in_order_and_in_words),
        cmocka_unit_test(full_queue_of_notes_drops_the_newest_and_counts_it),
        cmocka_unit_test(without_on_note_nothing_is_dropped),
        cmocka_unit_test(ranks_meet_with_the_same_key_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
