// SPDX-License-Identifier: AGPL-3.0-only
//
// core/core.h: the block. What a core does depends on its block, the event and nothing else; and no
// event that a pump could feed, nor frame that a peer could send, breaks an invariant of it.
#include "tests/support/core_storm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define EVENTS 100000u
#define MS UINT64_C(1000000)

static struct storm storm; // large, and its counts live on

static struct sc_core_config config_of(uint32_t rank, uint32_t world, bool hold) {
    struct sc_core_config config;
    sc_core_config_init(&config);
    config.rank = rank;
    config.world = world;
    config.job = 5;
    config.capacity_bytes = 1024;
    config.ledger_ops = 8;
    config.hold = hold;
    config.join_ns = 700 * MS;
    config.timing.heartbeat_ns = 50 * MS;
    config.timing.silence_ns = 1000 * MS;
    config.timing.op_ns = 600 * MS;
    config.timing.behind_ns = rank % 2 == 0 ? 900 * MS : 0;
    config.timing.init_ns = 2000 * MS;
    config.timing.abort_ns = 1100 * MS;
    return config;
}

// Two blocks of one config, filled with different bytes before, and different bytes on the stack.
struct twins {
    size_t bytes;
    struct sc_core *core[2];
};

static void poison_stack(int byte) {
    volatile uint8_t room[8192];
    for (size_t i = 0; i < sizeof room; i++)
        room[i] = (uint8_t)byte;
}

static void twins_open(struct twins *t, const struct sc_core_config *config, uint64_t seed) {
    t->bytes = sc_core_bytes(config);
    for (int i = 0; i < 2; i++) {
        void *block = malloc(t->bytes);
        assert_non_null(block);
        memset(block, i == 0 ? 0x00 : 0xff, t->bytes);
        poison_stack(i == 0 ? 0x33 : 0xcc);
        t->core[i] = sc_core_init(block, config, seed);
    }
    assert_memory_equal(t->core[0], t->core[1], t->bytes);
}

static void twins_close(struct twins *t) {
    free(t->core[0]);
    free(t->core[1]);
}

static void actions_are_equal(const struct sc_actions *a, const struct sc_actions *b) {
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->list, b->list, a->count * sizeof a->list[0]);
}

static void twins_step(struct twins *t, const struct sc_event *event, struct sc_actions *out) {
    static struct sc_actions other;
    memset(out, 0x11, sizeof *out);
    memset(&other, 0xee, sizeof other);
    poison_stack(0x33);
    sc_status verdict = sc_core_step(t->core[0], event, out);
    poison_stack(0xcc);
    assert_int_equal(sc_core_step(t->core[1], event, &other), verdict);
    actions_are_equal(out, &other);
    if (memcmp(t->core[0], t->core[1], t->bytes) != 0)
        fail_msg("the blocks differ after %s", sc_event_name(event->type));
}

// TICKs at one time must come to an end: what was due is done, and the next is due later.
static void deadline_moves_on(struct twins *t) {
    static struct sc_actions out;
    const struct sc_event tick = {.type = SC_EVENT_TICK, .now_ns = storm.now_ns};
    for (int i = 0; i < 80; i++) {
        twins_step(t, &tick, &out);
        storm_perform(&storm, &out);
        if (sc_core_deadline(t->core[0]) > storm.now_ns)
            return;
    }
    fail_msg("80 TICKs left the deadline in the past");
}

// One life: until the core is CLOSED, or has been FAILED for a while, or the events are used up.
static uint32_t live(const struct sc_core_config *config, uint64_t seed, uint32_t events) {
    static struct sc_actions out;
    struct twins twins;
    uint32_t fed = 0, over = 0;
    twins_open(&twins, config, seed);
    storm_begin(&storm, config, seed * 77 + 1);
    storm.core = twins.core[0];
    while (fed < events && over < 60) {
        struct sc_core_view view;
        const struct sc_event event = storm_event(&storm);
        twins_step(&twins, &event, &out);
        storm_perform(&storm, &out);
        if (event.type == SC_EVENT_TICK)
            deadline_moves_on(&twins);
        sc_core_view(twins.core[0], &view);
        over += view.state >= SC_STATE_FAILED;
        fed++;
    }
    twins_close(&twins);
    return fed;
}

static void storm_around(uint32_t rank, uint32_t world) {
    uint64_t seed = 1000 * world + rank;
    memset(&storm, 0, sizeof storm);
    for (uint32_t fed = 0; fed < EVENTS / 7; seed++) {
        const struct sc_core_config config = config_of(rank, world, seed % 3 == 0);
        fed += live(&config, seed, EVENTS / 7 - fed);
    }
    // The storm was one: every state was lived in, and most of the time not a terminal one.
    uint64_t in[SC_STATE_COUNT] = {0};
    for (int e = 0; e < SC_EVENT_COUNT; e++)
        for (int s = 0; s < SC_STATE_COUNT; s++)
            in[s] += storm.reached[e][s];
    for (int s = 0; s < SC_STATE_COUNT; s++)
        assert_true(in[s] > 20);
    assert_true(in[SC_STATE_READY] > 1000);
    assert_true(storm.reached[SC_EVENT_OP_DONE][SC_STATE_READY] > 20);
    assert_true(storm.reached[SC_EVENT_BARRIER][SC_STATE_READY] > 20);
    assert_true(storm.reached[SC_EVENT_COMMAND][SC_STATE_READY] > 20);
    assert_true(storm.reached[SC_EVENT_COMMAND_TAKEN][SC_STATE_READY] > 20);
    assert_true(storm.reached[SC_EVENT_OP_DONE][SC_STATE_ABORTING] > 2);
}

#define STORM(name, rank, world)                                                                   \
    static void name(void **state) {                                                               \
        (void)state;                                                                               \
        storm_around(rank, world);                                                                 \
    }

STORM(a_storm_breaks_no_lone_rank, 0, 1)
STORM(a_storm_breaks_no_coordinator_of_two, 0, 2)
STORM(a_storm_breaks_no_coordinator_of_three, 0, 3)
STORM(a_storm_breaks_no_coordinator_of_five, 0, 5)
STORM(a_storm_breaks_no_member_of_two, 1, 2)
STORM(a_storm_breaks_no_member_of_three, 2, 3)
STORM(a_storm_breaks_no_member_of_five, 1, 5)

static void a_copy_of_the_block_goes_on_alike(void **state) {
    static struct sc_actions out, copied;
    const struct sc_core_config config = config_of(0, 3, false);
    struct twins twins;
    uint8_t *copy;
    (void)state;
    twins_open(&twins, &config, 9);
    storm_begin(&storm, &config, 9);
    storm.core = twins.core[0];
    copy = malloc(twins.bytes);
    assert_non_null(copy);
    for (uint32_t i = 0; i < 3000; i++) {
        const struct sc_event event = storm_event(&storm);
        if (i % 50 == 0) // elsewhere in memory
            memcpy(copy, twins.core[0], twins.bytes);
        twins_step(&twins, &event, &out);
        sc_status verdict = sc_core_step((struct sc_core *)(void *)copy, &event, &copied);
        actions_are_equal(&out, &copied);
        assert_true(verdict <= SC_STATUS_COUNT);
        assert_memory_equal(copy, twins.core[0], twins.bytes);
        storm_perform(&storm, &out);
    }
    free(copy);
    twins_close(&twins);
}

static void seeds_make_incarnations_that_differ(void **state) {
    struct sc_core_view view[2];
    const struct sc_core_config config = config_of(0, 2, false);
    (void)state;
    for (uint64_t seed = 0; seed < 2; seed++) {
        struct twins twins;
        twins_open(&twins, &config, seed);
        sc_core_view(twins.core[0], &view[seed]);
        twins_close(&twins);
    }
    assert_int_not_equal(view[0].incarnation, 0);
    assert_int_not_equal(view[1].incarnation, 0);
    assert_int_not_equal(view[0].incarnation, view[1].incarnation);
}

static void states_events_and_actions_have_names(void **state) {
    (void)state;
    for (int i = 0; i < SC_STATE_COUNT; i++)
        assert_string_not_equal(sc_state_name((enum sc_state)i), "unknown");
    for (int i = 0; i < SC_EVENT_COUNT; i++)
        assert_string_not_equal(sc_event_name((enum sc_event_type)i), "UNKNOWN");
    for (int i = 0; i < SC_ACTION_COUNT; i++)
        assert_string_not_equal(sc_action_name((enum sc_action_type)i), "UNKNOWN");
    assert_string_equal(sc_state_name(SC_STATE_COUNT), "unknown");
    assert_string_equal(sc_event_name(SC_EVENT_COUNT), "UNKNOWN");
    assert_string_equal(sc_action_name(SC_ACTION_COUNT), "UNKNOWN");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_storm_breaks_no_lone_rank),
        cmocka_unit_test(a_storm_breaks_no_coordinator_of_two),
        cmocka_unit_test(a_storm_breaks_no_coordinator_of_three),
        cmocka_unit_test(a_storm_breaks_no_coordinator_of_five),
        cmocka_unit_test(a_storm_breaks_no_member_of_two),
        cmocka_unit_test(a_storm_breaks_no_member_of_three),
        cmocka_unit_test(a_storm_breaks_no_member_of_five),
        cmocka_unit_test(a_copy_of_the_block_goes_on_alike),
        cmocka_unit_test(seeds_make_incarnations_that_differ),
        cmocka_unit_test(states_events_and_actions_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
