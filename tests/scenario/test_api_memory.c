// SPDX-License-Identifier: AGPL-3.0-only
//
// Device memory and registered buffers through the public calls, and what is left when it cannot be
// had: nothing.
#include "tests/support/api_run.h"

#define HEARTBEATS (SECOND / 5) // the picture is a heartbeat old at most

static uint64_t device_bytes(struct api_rank *me) {
    api_sleep(me, HEARTBEATS);
    return api_health(me).device_bytes;
}

static void *alloc(struct api_rank *me, uint64_t bytes) {
    void *buffer = NULL;
    DO(me, sc_mem_alloc(me->comm, bytes, &buffer));
    TRUE(me, buffer != NULL && (uintptr_t)buffer % 16 == 0);
    return buffer;
}

static void give_up(struct api_rank *me) {
    DO(me, sc_barrier(me->comm, me->epoch, 10 * SECOND));
    DO(me, sc_reconnect(me->comm, me->epoch, 0));
    api_ready(me);
}

static bool is_there(struct api_rank *me, const void *buffer, uint64_t bytes) {
    return sc_sim_rank_memory(me->sim, buffer, bytes) != NULL;
}

// ---- memory ------------------------------------------------------------------------------------

static void allocates(struct api_rank *me) {
    struct sc_config config = api_config(me);
    config.flags = SC_OPEN_HOLD;
    api_open(me, &config);
    uint64_t own = device_bytes(me);
    EQUAL(me, own, me->world == 2 ? API_CAPACITY : 0); // the receive buffer of a pair
    void *a = alloc(me, 128), *b = alloc(me, 1000);
    EQUAL(me, device_bytes(me), own + 1128);
    DO(me, sc_mem_free(me->comm, b)); // no communicator knows it
    EQUAL(me, device_bytes(me), own + 128);
    TRUE(me, !is_there(me, b, 1000));
    DO(me, sc_join(me->comm));
    api_ready(me);
    b = alloc(me, 256);
    api_fill(me, a, 64, 3);
    DO(me, sc_all_reduce(me->comm, me->epoch, a, 128, SC_BF16, me->stream));
    DO(me, sc_sync(me->comm, me->epoch, me->stream, SC_SYNC_AGREED, SECOND));
    HOLDS(me, a, 64, 3 * me->world);
    DO(me, sc_mem_free(me->comm, a));
    EXPECT(me, sc_mem_free(me->comm, a), SC_INVALID);
    EQUAL(me, device_bytes(me), own + 128 + 256);
    TRUE(me, is_there(me, a, 128)); // while the epoch's communicator lives
    give_up(me);
    EQUAL(me, device_bytes(me), own + 256);
    TRUE(me, !is_there(me, a, 128));
    TRUE(me, is_there(me, b, 256));
    EXPECT(me, sc_mem_free(me->comm, a), SC_INVALID);
    api_leave(me);
    TRUE(me, !is_there(me, b, 256)); // left to the close
}

static void memory_goes_back_when_no_communicator_can_touch_it(void **state) {
    (void)state;
    api_play("ranks 1", allocates);
    api_play("ranks 2", allocates);
    api_play("ranks 3", allocates);
}

static void frees_behind_a_kernel(struct api_rank *me) {
    api_begin(me);
    void *a = alloc(me, 128);
    uint64_t first = me->epoch;
    DO(me, sc_sim_rank_launch(me->sim, me->stream, 5 * SECOND, NULL, NULL));
    DO(me, sc_all_reduce(me->comm, first, a, 128, SC_BF16, me->stream));
    DO(me, sc_barrier(me->comm, first, SECOND));
    DO(me, sc_reconnect(me->comm, first, 0));
    api_sleep(me, 2 * SECOND);
    EQUAL(me, api_health(me).state, SC_STATE_ABORTING);
    EQUAL(me, api_health(me).draining, 1);
    DO(me, sc_mem_free(me->comm, a));
    EQUAL(me, device_bytes(me), API_CAPACITY + 128);
    TRUE(me, is_there(me, a, 128)); // the op is still on its stream
    api_ready(me);
    EQUAL(me, api_health(me).draining, 0);
    EQUAL(me, device_bytes(me), API_CAPACITY);
    TRUE(me, !is_there(me, a, 128));
    api_leave(me);
}

static void memory_stays_while_an_op_of_a_lost_epoch_stands_behind_compute_r13(void **state) {
    (void)state;
    api_play("ranks 2", frees_behind_a_kernel);
}

static void allocates_wrongly(struct api_rank *me) {
    void *buffer = &buffer, *own = api_buffer(me, 64, 1);
    api_sleep(me, SECOND);
    api_begin(me);
    EXPECT(me, sc_mem_alloc(me->comm, 0, &buffer), SC_INVALID);
    SAYS(me, "sc_mem_alloc: INVALID");
    EXPECT(me, sc_mem_alloc(me->comm, 128, NULL), SC_INVALID);
    EXPECT(me, sc_mem_alloc(me->comm, UINT64_MAX, &buffer), SC_NO_MEMORY);
    SAYS(me, "18446744073709551615 bytes");
    TRUE(me, buffer == &buffer);
    EXPECT(me, sc_mem_free(me->comm, NULL), SC_INVALID);
    EXPECT(me, sc_mem_free(me->comm, own), SC_INVALID);
    SAYS(me, "did not come from sc_mem_alloc");
    EQUAL(me, device_bytes(me), API_CAPACITY);
    for (int i = 0; i < 100; i++) // grows as it must
        api_fill(me, alloc(me, 128), 64, 1);
    EQUAL(me, device_bytes(me), API_CAPACITY + 12800);
    api_leave(me);
}

static void wrong_requests_for_memory_are_refused(void **state) {
    (void)state;
    api_play("ranks 2", allocates_wrongly);
}

static void device_is_full(struct api_rank *me) {
    void *buffer = NULL;
    api_begin(me);
    DO(me, sc_mark(me->comm, me->epoch, 1));
    if (me->rank == 0) {
        EXPECT(me, sc_mem_alloc(me->comm, 128, &buffer), SC_NO_MEMORY);
        SAYS(me, "128 bytes");
        TRUE(me, buffer == NULL);
    }
    EQUAL(me, device_bytes(me), API_CAPACITY);
    buffer = alloc(me, 128);
    EQUAL(me, me->recoveries, 0);
    api_works(me);
    api_leave(me);
}

static void memory_that_cannot_be_had_ends_nothing_r6(void **state) {
    (void)state;
    api_play("ranks 2\nat rank 0 mark 1: verb_fails rank 0 mem_alloc nth 1 with NO_MEMORY",
             device_is_full);
}

// ---- registered buffers ------------------------------------------------------------------------

static void recovers_often(struct api_rank *me) {
    api_open(me, NULL);
    uint16_t *b[3];
    uint64_t flat = 0;
    for (int i = 0; i < 3; i++) {
        b[i] = i == 2 ? alloc(me, 128) : api_buffer(me, 64, 1);
        DO(me, sc_buffer_register(me->comm, b[i], 128));
    }
    api_ready(me);
    for (uint32_t round = 0; round < 50; round++) {
        for (int i = 0; i < 3; i++) {
            api_fill(me, b[i], 64, (uint32_t)i + 1);
            DO(me, sc_all_reduce(me->comm, me->epoch, b[i], 128, SC_BF16, me->stream));
        }
        DO(me, sc_sync(me->comm, me->epoch, me->stream, SC_SYNC_AGREED, SECOND));
        for (int i = 0; i < 3; i++)
            HOLDS(me, b[i], 64, 2 * ((uint32_t)i + 1));
        give_up(me);
        if (round == 2)
            flat = api_health(me).device_bytes;
    }
    EQUAL(me, api_health(me).device_bytes, flat);
    EQUAL(me, api_health(me).recoveries, 50);
    EQUAL(me, me->recoveries, 50);
    for (int i = 0; i < 2; i++) {
        DO(me, sc_buffer_deregister(me->comm, b[i]));
        DO(me, sc_sim_rank_free(me->sim, b[i])); // no communicator knows it any more
    }
    DO(me, sc_mem_free(me->comm, b[2])); // … nor this
    EXPECT(me, sc_buffer_deregister(me->comm, b[2]), SC_INVALID);
    api_leave(me);
}

static void registered_buffers_work_in_every_epoch_and_nothing_grows_r5(void **state) {
    (void)state;
    api_play("ranks 2\nseconds 400", recovers_often);
}

static void registers_wrongly(struct api_rank *me) {
    api_begin(me);
    uint16_t *b = api_buffer(me, 1024, 1);
    EXPECT(me, sc_buffer_register(me->comm, b, 0), SC_INVALID);
    SAYS(me, "sc_buffer_register: INVALID: 0 bytes");
    EXPECT(me, sc_buffer_register(me->comm, NULL, 128), SC_INVALID);
    EXPECT(me, sc_buffer_register(me->comm, b, UINT64_MAX), SC_INVALID);
    EXPECT(me, sc_buffer_deregister(me->comm, b), SC_INVALID);
    SAYS(me, "no registered buffer begins at");
    for (int i = 0; i < 256; i++)
        DO(me, sc_buffer_register(me->comm, b + 4 * i, 8));
    EXPECT(me, sc_buffer_register(me->comm, b, 8), SC_INVALID);
    EXPECT(me, sc_buffer_register(me->comm, b + 1, 2), SC_NO_MEMORY);
    SAYS(me, "256 buffers");
    DO(me, sc_buffer_deregister(me->comm, b));
    EXPECT(me, sc_buffer_deregister(me->comm, b), SC_INVALID);
    DO(me, sc_buffer_register(me->comm, b, 8));
    for (int i = 0; i < 256; i++)
        DO(me, sc_buffer_deregister(me->comm, b + 4 * i));
    DO(me, sc_sim_rank_free(me->sim, b));
    api_leave(me);
}

static void wrong_registrations_are_refused(void **state) {
    (void)state;
    api_play("ranks 2", registers_wrongly);
}

// ---- opens that fail ---------------------------------------------------------------------------

// Rank 1's first open fails as the plan says; its second works. Rank 0 hears of the second only.
static void fails_to_open(struct api_rank *me) {
    sc_comm comm = 77;
    api_sleep(me, SECOND); // the plan has struck
    struct sc_config config = api_config(me);
    if (me->rank == 1) {
        api_sleep(me, SECOND);
        EXPECT(me, sc_open(&config, &comm), SC_NO_MEMORY);
        SAYS(me, "sc_open: NO_MEMORY");
        EQUAL(me, comm, 77);
        api_sleep(me, 2 * SECOND);
    } else {
        api_open(me, NULL);
        struct sc_recovery recovery = {.size = sizeof recovery};
        EXPECT(me, sc_wait_ready(me->comm, 2 * SECOND, &recovery), SC_TIMEOUT);
        EQUAL(me, api_notes(me, SC_NOTE_GREETED), 0);
    }
    if (me->rank == 1)
        api_open(me, NULL);
    api_ready(me);
    api_works(me);
    api_leave(me);
}

static void rank_0_fails_to_open(struct api_rank *me) {
    sc_comm comm = 77;
    api_sleep(me, SECOND);
    struct sc_config config = api_config(me);
    if (me->rank == 0)
        EXPECT(me, sc_open(&config, &comm), SC_NO_MEMORY);
    api_begin(me); // the address is free again
    api_works(me);
    api_leave(me);
}

static void open_that_fails_leaves_nothing_and_contacts_nobody_r6(void **state) {
    (void)state;
    api_play("ranks 2\nat 500ms: verb_fails rank 1 mem_alloc nth 1 with NO_MEMORY", fails_to_open);
    api_play("ranks 2\nat 500ms: verb_fails rank 1 stream_create nth 1 with NO_MEMORY",
             fails_to_open);
    api_play("ranks 2\nat 500ms: verb_fails rank 0 mem_alloc nth 1 with NO_MEMORY",
             rank_0_fails_to_open);
    api_play("ranks 2\nat 500ms: verb_fails rank 0 stream_create nth 1 with NO_MEMORY",
             rank_0_fails_to_open);
}

static void fails_to_form(struct api_rank *me) {
    api_sleep(me, SECOND);
    api_open(me, NULL);
    api_ready(me);
    const struct api_note *begun = NULL, *ended = NULL; // of the first attempt
    for (uint32_t i = 0; i < me->notes_count && ended == NULL; i++) {
        const struct api_note *note = &me->notes[i];
        if (note->note.kind == SC_NOTE_STATE && note->note.to == SC_STATE_JOINING)
            begun = note;
        if (note->note.kind == SC_NOTE_STATE && note->note.to == SC_STATE_ABORTING)
            ended = note;
    }
    TRUE(me, begun != NULL && ended != NULL && begun < ended);
    TRUE(me, ended->note.at_ns - begun->note.at_ns < SECOND);
    EQUAL(me, ended->note.from, SC_STATE_JOINING);
    EQUAL(me, ended->note.status, SC_COMM_FAILED);
    EQUAL(me, ended->note.rank, 1);
    HAS_WORDS(me, ended->text, "joining -> aborting: COMM_FAILED rank 1");
    EQUAL(me, api_health(me).recoveries, 0); // no epoch was lived in before
    api_works(me);
    api_leave(me);
}

static void communicator_that_cannot_be_made_is_told_and_tried_again_r6(void **state) {
    (void)state;
    api_play("ranks 2\nat 500ms: init_null rank 1", fails_to_form);
    api_play("ranks 2\nat 500ms: init_error rank 1", fails_to_form);
    api_play("ranks 3\nat 500ms: verb_fails rank 1 comm_create nth 1 with COMM_FAILED",
             fails_to_form);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_goes_back_when_no_communicator_can_touch_it),
        cmocka_unit_test(memory_stays_while_an_op_of_a_lost_epoch_stands_behind_compute_r13),
        cmocka_unit_test(wrong_requests_for_memory_are_refused),
        cmocka_unit_test(memory_that_cannot_be_had_ends_nothing_r6),
        cmocka_unit_test(registered_buffers_work_in_every_epoch_and_nothing_grows_r5),
        cmocka_unit_test(wrong_registrations_are_refused),
        cmocka_unit_test(open_that_fails_leaves_nothing_and_contacts_nobody_r6),
        cmocka_unit_test(communicator_that_cannot_be_made_is_told_and_tried_again_r6),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
