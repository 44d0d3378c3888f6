// SPDX-License-Identifier: AGPL-3.0-only
//
// Notes: told on a thread that keeps nobody waiting, complete as long as they are listened to, and
// counted when they are not.
#include "tests/support/real_world.h"
#include "tests/support/sockets_rig.h"

#include <semaphore.h>
#include <string.h>

static const uint8_t job_key[SC_KEY_BYTES] = "thirty-two bytes that both hold!";
static const uint8_t other_key[SC_KEY_BYTES] = "some other key of 32 bytes, too!";

static sc_comm open_noting(const struct real_job *job, uint32_t rank, struct real_notes *notes) {
    struct sc_config config;
    real_notes_begin(notes);
    real_config(job, rank, &config);
    config.on_note = real_on_note;
    config.arg = notes;
    return real_open_with(&config);
}

// ---- what is told ----

static void each_change_of_state_is_told_in_order(void **state) {
    static struct real_notes notes;
    struct real_job job;
    sc_comm comms[2];
    uint32_t at = SC_STATE_IDLE, changes = 0;
    (void)state;
    real_job_begin(&job, 2);
    comms[1] = open_noting(&job, 1, &notes);
    comms[0] = real_open(&job, 0);
    const uint64_t epoch = real_ready_after(comms[1], 0);
    real_ok(sc_reconnect(comms[0], epoch, 9));
    const uint64_t next = real_ready_after(comms[1], epoch);
    real_close(comms[1]); // returns when all is told
    for (uint32_t i = 0; i < notes.count; i++) {
        const struct sc_note *note = &notes.list[i].note;
        assert_int_equal(note->size, sizeof *note);
        assert_int_equal(note->dropped, 0);
        assert_true(i == 0 || note->at_ns >= notes.list[i - 1].note.at_ns);
        assert_null(strchr(notes.list[i].text, '\n'));
        if (note->kind != SC_NOTE_STATE)
            continue;
        assert_int_equal(note->from, at);
        at = note->to;
        changes++;
        if (at == SC_STATE_READY)
            assert_true(note->epoch == epoch || note->epoch == next);
    }
    assert_int_equal(at, SC_STATE_CLOSED);
    assert_true(changes >= 8);
    assert_true(real_notes_say(&notes, SC_NOTE_STATE, "RECONNECT"));
    assert_int_equal(real_notes_of(&notes, SC_NOTE_GREETED), 1);
    real_close(comms[0]);
    real_job_end(&job);
}

static void notes_come_on_one_thread_that_is_nobody_elses(void **state) {
    static struct real_notes notes;
    struct real_job job;
    sc_comm comms[2];
    (void)state;
    real_job_begin(&job, 2);
    comms[0] = open_noting(&job, 0, &notes);
    comms[1] = real_open(&job, 1);
    (void)real_ready_after(comms[0], 0);
    real_close(comms[0]);
    assert_true(notes.count > 0);
    for (uint32_t i = 0; i < notes.count; i++) {
        assert_false(pthread_equal(notes.list[i].thread, pthread_self()));
        assert_true(pthread_equal(notes.list[i].thread, notes.list[0].thread));
        assert_string_equal(notes.list[i].thread_name, "spark-notify");
    }
    real_close(comms[1]);
    real_job_end(&job);
}

static void links_without_a_key_are_told_of_once(void **state) {
    static struct real_notes notes;
    struct real_job job;
    sc_comm comms[2];
    (void)state;
    real_job_begin(&job, 2);
    for (uint32_t keyed = 0; keyed < 2; keyed++) {
        job.key = keyed ? job_key : NULL;
        comms[0] = open_noting(&job, 0, &notes);
        comms[1] = real_open(&job, 1);
        const uint64_t epoch = real_ready_after(comms[0], 0);
        real_ok(sc_reconnect(comms[0], epoch, 0));
        (void)real_ready_after(comms[0], epoch);
        real_close_all(comms, 2);
        assert_int_equal(real_notes_of(&notes, SC_NOTE_UNKEYED), keyed ? 0 : 1);
    }
    real_job_end(&job);
    real_job_begin(&job, 1); // who has no links need not hear of them
    sc_comm alone = open_noting(&job, 0, &notes);
    real_close(alone);
    assert_int_equal(real_notes_of(&notes, SC_NOTE_UNKEYED), 0);
    real_job_end(&job);
}

static const char long_remark[] =
    "0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 "
    "0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 "
    "0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 ";

static void make_remarks(void *owner, sc_remark *remark, void *arg) {
    assert_non_null(owner);
    remark(arg, SC_NOTE_ENVIRONMENT, "SOME_SETTING=7 % of all");
    remark(arg, SC_NOTE_WARNING, "two lines\nand \x1b[31m red");
    remark(arg, SC_NOTE_ENVIRONMENT, long_remark);
}

static void remarks_of_the_world_are_told_once_each_on_one_line(void **state) {
    static const struct {
        enum sc_note_kind kind;
        const char *text; // how it begins
    } told[] = {
        {SC_NOTE_ENVIRONMENT, "SOME_SETTING=7 % of all"},
        {SC_NOTE_WARNING, "two lines?and ?[31m red"},
        {SC_NOTE_ENVIRONMENT, "0123456789 0123456789 "},
    };
    enum { TOLD = sizeof told / sizeof told[0] };
    static struct real_notes notes;
    struct real_job job;
    const char *last = "";
    uint32_t seen = 0;
    (void)state;
    real_job_begin(&job, 1);
    real_birth.remarks = make_remarks;
    sc_comm comm = open_noting(&job, 0, &notes);
    const uint64_t epoch = real_ready_after(comm, 0);
    real_ok(sc_reconnect(comm, epoch, 0));
    (void)real_ready_after(comm, epoch);
    real_close(comm);
    for (uint32_t i = 0; i < notes.count; i++) {
        const enum sc_note_kind kind = notes.list[i].note.kind;
        if (kind != SC_NOTE_ENVIRONMENT && kind != SC_NOTE_WARNING)
            continue;
        assert_true(seen < TOLD);
        assert_int_equal(kind, told[seen].kind);
        assert_memory_equal(notes.list[i].text, told[seen].text, strlen(told[seen].text));
        last = notes.list[i].text;
        seen++;
    }
    assert_int_equal(seen, TOLD);
    assert_string_equal(last + strlen(last) - 3, "...");
    real_job_end(&job);
}

static void missing_ranks_are_told_and_answered_once_each_time(void **state) {
    static struct real_notes notes;
    struct real_job job;
    struct sc_config config;
    struct sc_recovery recovery = {.size = sizeof recovery};
    sc_comm comms[3];
    (void)state;
    real_job_begin(&job, 3);
    real_notes_begin(&notes);
    real_config(&job, 0, &config);
    config.join_ns = 200 * REAL_MS;
    config.on_note = real_on_note;
    config.arg = &notes;
    comms[0] = real_open_with(&config);
    comms[1] = real_open(&job, 1);
    assert_int_equal(sc_wait_ready(comms[0], REAL_LIMIT_NS, &recovery), SC_JOIN_TIMEOUT);
    assert_non_null(strstr(sc_last_error(), "rank 2 is missing"));
    assert_int_equal(sc_wait_ready(comms[0], 1, &recovery), SC_TIMEOUT);
    real_until(real_notes_of(&notes, SC_NOTE_MISSING) == 1);
    assert_true(real_notes_say(&notes, SC_NOTE_MISSING, "rank 2"));
    comms[2] = real_open(&job, 2);
    const uint64_t epoch = real_ready_after(comms[0], 0);
    // It comes again while nobody waits, and is over when somebody does.
    real_kill(comms[1]);
    real_until(real_notes_of(&notes, SC_NOTE_MISSING) == 2);
    comms[1] = real_open(&job, 1);
    const uint64_t next = real_ready_after(comms[1], epoch);
    real_until(real_live(comms[0]) == next);
    real_ok(sc_wait_ready(comms[0], REAL_LIMIT_NS, &recovery));
    real_ok(sc_reconnect(comms[0], next, 0));
    while (sc_wait_ready(comms[0], REAL_LIMIT_NS, &recovery) == SC_JOIN_TIMEOUT)
        real_until(real_notes_of(&notes, SC_NOTE_MISSING) > 2); // it came anew
    assert_true(recovery.epoch > next);
    real_close_all(comms, 3);
    real_job_end(&job);
}

static void refused_rank_is_told_of_on_both_sides(void **state) {
    static struct real_notes notes[2];
    struct real_job job;
    struct sc_config config;
    struct sc_recovery recovery = {.size = sizeof recovery};
    sc_comm comms[2];
    (void)state;
    real_job_begin(&job, 2);
    comms[0] = open_noting(&job, 0, &notes[0]);
    real_notes_begin(&notes[1]);
    real_config(&job, 1, &config);
    config.capacity_bytes *= 2;
    config.on_note = real_on_note;
    config.arg = &notes[1];
    comms[1] = real_open_with(&config);
    assert_int_equal(sc_wait_ready(comms[1], REAL_LIMIT_NS, &recovery), SC_CONFIG);
    assert_non_null(strstr(sc_last_error(), "capacity is 65536 on rank 0 and 131072"));
    for (uint32_t i = 0; i < 2; i++) {
        real_until(real_notes_of(&notes[i], SC_NOTE_REFUSED) > 0);
        assert_true(real_notes_say(&notes[i], SC_NOTE_REFUSED, "capacity is 65536"));
    }
    real_close_all(comms, 2);
    real_job_end(&job);
}

static void rank_with_another_key_hears_what_is_wrong(void **state) {
    struct real_job job;
    sc_comm comms[2];
    (void)state;
    real_job_begin(&job, 2);
    job.key = job_key;
    comms[0] = real_open(&job, 0);
    job.key = other_key;
    comms[1] = real_open(&job, 1);
    bool said = false;
    while (!said) {
        struct sc_recovery recovery = {.size = sizeof recovery};
        assert_int_equal(sc_wait_ready(comms[1], REAL_MS, &recovery), SC_TIMEOUT);
        said = strstr(sc_last_error(), "holds another key") != NULL;
    }
    real_close_all(comms, 2);
    real_job_end(&job);
}

// ---- who listens slowly ----

struct slow {
    sem_t entered, go; // on_note waits for `go` each time
    _Atomic uint64_t dropped;
    _Atomic uint32_t told;
};

static void on_slow_note(void *arg, const struct sc_note *note) {
    struct slow *slow = arg;
    SC_ASSERT(sem_post(&slow->entered) == 0);
    while (sem_wait(&slow->go) != 0)
        continue;
    slow->dropped = note->dropped;
    slow->told++;
}

static void let_all_go(struct slow *slow) {
    for (uint32_t i = 0; i < 1000; i++)
        SC_ASSERT(sem_post(&slow->go) == 0);
}

static sc_comm open_slow(const struct real_job *job, uint32_t notes_max, struct slow *slow) {
    struct sc_config config;
    memset(slow, 0, sizeof *slow);
    SC_ASSERT(sem_init(&slow->entered, 0, 0) == 0 && sem_init(&slow->go, 0, 0) == 0);
    real_config(job, 0, &config);
    config.timing.heartbeat_ns = 50 * REAL_MS;
    config.timing.silence_ns = 500 * REAL_MS;
    config.notes_max = notes_max;
    config.on_note = on_slow_note;
    config.arg = slow;
    return real_open_with(&config);
}

static void slow_listener_stops_no_heartbeat(void **state) {
    struct real_job job;
    struct slow slow;
    sc_comm comms[2];
    (void)state;
    real_job_begin(&job, 2);
    comms[0] = open_slow(&job, 256, &slow);
    assert_int_equal(sem_wait(&slow.entered), 0); // from here on the notifier stands still
    comms[1] = real_open(&job, 1);
    const uint64_t epoch = real_ready_after(comms[0], 0), since_ns = real_now();
    (void)real_ready_after(comms[1], 0);
    real_until(real_now() - since_ns >= 3 * 500 * REAL_MS); // three times the silence limit
    for (uint32_t rank = 0; rank < 2; rank++) {
        real_ok(real_submit(comms[rank], epoch));
        assert_int_equal(real_live(comms[rank]), epoch);
    }
    real_ok(sc_sync(comms[0], epoch, real_stream(0), SC_SYNC_AGREED, REAL_LIMIT_NS));
    assert_int_equal(slow.told, 0);
    let_all_go(&slow);
    real_close_all(comms, 2);
    real_job_end(&job);
}

static void queue_that_is_full_drops_notes_and_counts_them(void **state) {
    enum { NOTES_MAX = 2 };
    struct real_job job;
    struct slow slow;
    sc_comm comms[2];
    (void)state;
    real_job_begin(&job, 2);
    comms[0] = open_slow(&job, NOTES_MAX, &slow);
    assert_int_equal(sem_wait(&slow.entered), 0);
    comms[1] = real_open(&job, 1);
    const uint64_t epoch = real_ready_after(comms[0], 0);
    real_ok(sc_reconnect(comms[0], epoch, 0));
    (void)real_ready_after(comms[0], epoch);
    const uint64_t dropped = real_health(comms[0]).notes_dropped;
    assert_true(dropped >= 4); // the states of one recovery, at least
    assert_int_equal(sem_post(&slow.go), 0);
    real_until(slow.told == 1);
    assert_int_equal(slow.dropped, 0); // as it was when it was taken from the queue
    assert_int_equal(sem_post(&slow.go), 0);
    real_until(slow.told == 2);
    assert_true(slow.dropped >= dropped);
    let_all_go(&slow);
    real_close_all(comms, 2);
    real_job_end(&job);
}

static void close_waits_until_all_is_told(void **state) {
    struct real_job job;
    struct slow slow;
    (void)state;
    real_job_begin(&job, 2);
    sc_comm comm = open_slow(&job, 256, &slow);
    assert_int_equal(sem_wait(&slow.entered), 0);
    assert_int_equal(sc_close(comm, SC_CLOSE_FINAL, REAL_MS), SC_TIMEOUT);
    let_all_go(&slow);
    real_close(comm);
    assert_true(slow.told >= 3); // unkeyed, rendezvous, closed
    real_job_end(&job);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_change_of_state_is_told_in_order),
        cmocka_unit_test(notes_come_on_one_thread_that_is_nobody_elses),
        cmocka_unit_test(links_without_a_key_are_told_of_once),
        cmocka_unit_test(remarks_of_the_world_are_told_once_each_on_one_line),
        cmocka_unit_test(missing_ranks_are_told_and_answered_once_each_time),
        cmocka_unit_test(refused_rank_is_told_of_on_both_sides),
        cmocka_unit_test(rank_with_another_key_hears_what_is_wrong),
        cmocka_unit_test(slow_listener_stops_no_heartbeat),
        cmocka_unit_test(queue_that_is_full_drops_notes_and_counts_them),
        cmocka_unit_test(close_waits_until_all_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
