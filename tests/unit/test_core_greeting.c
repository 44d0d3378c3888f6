// SPDX-License-Identifier: AGPL-3.0-only
//
// The coordinator's side of a link: who gets a rank's slot, and what strangers get.
#include "tests/support/core_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void open_coordinator(uint32_t world) {
    core_rig_open(0, world);
    core_rig_rendezvous();
}

static const struct sc_cause *refused(const struct sc_frame *hello, sc_status code) {
    assert_int_equal(core_rig_from(hello->u.hello.rank, hello), SC_OK);
    const struct sc_cause *cause = &expect_frame(SC_FRAME_REFUSE)->u.cause;
    assert_int_equal(cause->code, code);
    assert_int_equal(expect_notice(SC_NOTICE_REFUSED)->status, code);
    assert_true(core_rig_index_of_frame(SC_FRAME_REFUSE) < core_rig_index(SC_ACTION_DROP));
    expect_no_frame(SC_FRAME_WELCOME);
    return cause;
}

static void breach_drops(uint64_t link) {
    assert_int_equal(rig.verdict, SC_PROTOCOL);
    assert_int_equal(expect_action(SC_ACTION_DROP)->link, link);
    expect_no_frame(SC_FRAME_WELCOME);
    expect_no_frame(SC_FRAME_REFUSE);
}

static void the_coordinator_listens_once_and_challenges_first(void **state) {
    (void)state;
    core_rig_open(0, 2);
    core_rig_start();
    assert_int_equal(core_rig_count(SC_ACTION_LISTEN), 1);
    core_rig_connect(1);
    assert_int_equal(rig.last.count, 1);
    assert_int_equal(core_rig_send_of(SC_FRAME_CHALLENGE)->link, rig.ranks[1].link);
    core_rig_wait(RIG_SECOND);
    expect_no_action(SC_ACTION_LISTEN);
}

static void a_lone_coordinator_listens_for_nobody(void **state) {
    (void)state;
    core_rig_open(0, 1);
    core_rig_start();
    expect_no_action(SC_ACTION_LISTEN);
    (void)expect_action(SC_ACTION_GET_ID);
    core_rig_wait(RIG_SECOND);
    expect_no_action(SC_ACTION_LISTEN);
}

static void a_hello_that_echoes_the_nonce_is_welcomed(void **state) {
    (void)state;
    open_coordinator(3);
    core_rig_greet(2);
    const struct sc_frame *welcome = expect_frame(SC_FRAME_WELCOME);
    assert_int_equal(welcome->u.welcome.incarnation, core_rig_view().incarnation);
    assert_memory_equal(&welcome->u.welcome.timing, &rig.config.timing, sizeof rig.config.timing);
    assert_int_equal(expect_notice(SC_NOTICE_GREETED)->rank, 2);
    assert_int_equal(sc_core_link_of(rig.core, 2), rig.ranks[2].link);
}

static void a_hello_with_the_nonce_of_another_link_gets_nothing(void **state) {
    (void)state;
    open_coordinator(2);
    core_rig_connect(1);
    const struct sc_frame recorded = core_rig_hello(1);
    core_rig_connect(1);
    core_rig_from(1, &recorded);
    breach_drops(rig.ranks[1].link);
    assert_int_equal(sc_core_link_of(rig.core, 1), 0);
}

static void whatever_but_a_hello_from_a_stranger_drops_it(void **state) {
    (void)state;
    open_coordinator(2);
    for (uint32_t kind = 0; kind < SC_FRAME_KIND_COUNT; kind++) {
        if (kind == SC_FRAME_HELLO)
            continue;
        const uint64_t link = core_rig_accept();
        const struct sc_frame frame = {.kind = kind, .u.cause = {.code = SC_PEER_LEFT}};
        core_rig_frame(link, &frame);
        breach_drops(link);
        expect_state(SC_STATE_RENDEZVOUS);
    }
}

static void a_hello_that_contradicts_itself_is_a_breach(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        open_coordinator(2);
        core_rig_connect(1);
        struct sc_frame hello = core_rig_hello(1);
        hello.u.hello.ready_epoch = i == 0;
        hello.u.hello.completed = i == 1;
        hello.u.hello.seen_epoch = i == 2 ? UINT64_MAX : 0;
        core_rig_from(1, &hello);
        breach_drops(rig.ranks[1].link);
    }
}

static void a_silent_stranger_is_dropped_at_the_handshake_deadline(void **state) {
    (void)state;
    open_coordinator(2);
    const uint64_t link = core_rig_accept();
    const uint64_t end = rig.now_ns + rig.config.handshake_ns;
    assert_int_equal(sc_core_deadline(rig.core), end);
    core_rig_wait(rig.config.handshake_ns - 1);
    expect_no_action(SC_ACTION_DROP);
    core_rig_wait(1);
    assert_int_equal(expect_action(SC_ACTION_DROP)->link, link);
    assert_int_equal(sc_core_deadline(rig.core), SC_CORE_NEVER_NS);
}

static void the_seventeenth_pending_stranger_evicts_the_oldest(void **state) {
    uint64_t links[SC_PENDING_MAX + 1];
    (void)state;
    open_coordinator(2);
    for (uint32_t i = 0; i < SC_PENDING_MAX; i++) {
        links[i] = core_rig_accept();
        expect_no_action(SC_ACTION_DROP);
    }
    core_rig_link_down(links[5]); // a place is free again
    links[5] = core_rig_accept();
    expect_no_action(SC_ACTION_DROP);
    core_rig_accept();
    assert_int_equal(expect_action(SC_ACTION_DROP)->link, links[0]);
    core_rig_accept();
    assert_int_equal(expect_action(SC_ACTION_DROP)->link, links[1]);
}

static void sixteen_strangers_keep_nobody_out(void **state) {
    (void)state;
    open_coordinator(2);
    for (uint32_t i = 0; i < 3 * SC_PENDING_MAX; i++)
        core_rig_accept();
    core_rig_greet(1);
    (void)expect_action(SC_ACTION_GET_ID);
}

static void all_expired_strangers_are_dropped_though_they_fill_a_step(void **state) {
    uint32_t dropped = 0;
    (void)state;
    open_coordinator(2);
    for (uint32_t i = 0; i < SC_PENDING_MAX; i++)
        core_rig_accept();
    rig.now_ns += rig.config.handshake_ns;
    while (sc_core_deadline(rig.core) <= rig.now_ns) {
        core_rig_tick();
        dropped += core_rig_count(SC_ACTION_DROP);
    }
    assert_int_equal(dropped, SC_PENDING_MAX);
}

// ---- slots ----

static void an_old_number_of_the_same_incarnation_is_stale(void **state) {
    (void)state;
    open_coordinator(2);
    core_rig_greet(1);
    core_rig_connect(1);
    struct sc_frame hello = core_rig_hello(1);
    hello.u.hello.number = 1;
    (void)refused(&hello, SC_STALE);
    expect_state(SC_STATE_RENDEZVOUS);
    assert_int_not_equal(sc_core_link_of(rig.core, 1), 0);
}

static void who_saw_less_than_was_ready_since_is_fenced(void **state) {
    (void)state;
    core_rig_open(0, 2);
    core_rig_ready();
    const uint64_t ready = rig.epoch;
    core_rig_link_down(rig.ranks[1].link);
    rig.ranks[1].incarnation++; // frozen since an earlier epoch, and thawed
    rig.ranks[1].seen_epoch = ready - 1;
    rig.ranks[1].ready_epoch = 0;
    core_rig_connect(1);
    const struct sc_frame hello = core_rig_hello(1);
    const struct sc_cause *cause = refused(&hello, SC_FENCED);
    assert_int_equal(cause->value[0], ready);
    assert_int_equal(cause->value[1], ready - 1);
}

static void who_saw_nothing_yet_is_not_fenced(void **state) {
    (void)state;
    core_rig_open(0, 2);
    core_rig_ready();
    core_rig_link_down(rig.ranks[1].link);
    rig.ranks[1] = (struct core_rig_rank){.incarnation = 9};
    core_rig_greet(1);
}

static void the_highest_ready_of_anybody_fences(void **state) {
    (void)state;
    open_coordinator(3); // restarted: it was READY in nothing itself
    rig.ranks[2].seen_epoch = rig.ranks[2].ready_epoch = UINT64_C(7) << 24;
    core_rig_greet(2);
    rig.ranks[1].seen_epoch = UINT64_C(6) << 24;
    core_rig_connect(1);
    const struct sc_frame hello = core_rig_hello(1);
    (void)refused(&hello, SC_FENCED);
}

static void an_epoch_of_the_same_count_by_another_life_of_rank_0_fences(void **state) {
    (void)state;
    open_coordinator(3);
    rig.ranks[2].seen_epoch = rig.ranks[2].ready_epoch = UINT64_C(7) << 24 | 5;
    core_rig_greet(2);
    rig.ranks[1].seen_epoch = UINT64_C(7) << 24 | 9; // though it is the higher number
    core_rig_connect(1);
    const struct sc_frame hello = core_rig_hello(1);
    (void)refused(&hello, SC_FENCED);
}

static void the_same_incarnation_on_a_new_link_replaces_the_old_one(void **state) {
    (void)state;
    open_coordinator(3);
    core_rig_greet(1);
    const uint64_t old = rig.ranks[1].link;
    core_rig_greet(1);
    assert_int_equal(expect_action(SC_ACTION_DROP)->link, old);
    assert_int_equal(sc_core_link_of(rig.core, 1), rig.ranks[1].link);
    expect_state(SC_STATE_RENDEZVOUS);
}

static void a_replaced_link_ends_a_live_epoch(void **state) {
    (void)state;
    core_rig_open(0, 3);
    core_rig_ready();
    core_rig_greet(1);
    expect_state(SC_STATE_ABORTING);
    assert_int_equal(core_rig_view().cause.code, SC_LINK_LOST);
    assert_int_equal(core_rig_view().cause.suspect, 1);
    assert_int_equal(core_rig_send_of(SC_FRAME_ABORT)->mask, 1u << 2);
}

static void another_incarnation_waits_for_the_end_of_the_old_link(void **state) {
    (void)state;
    core_rig_open(0, 2);
    core_rig_ready();
    const uint64_t old = rig.ranks[1].link;
    rig.ranks[1].incarnation += 7;
    core_rig_connect(1);
    struct sc_frame hello = core_rig_hello(1);
    (void)refused(&hello, SC_DUP_RANK);
    expect_state(SC_STATE_READY); // the live one is undisturbed
    core_rig_link_down(old);
    expect_state(SC_STATE_ABORTING);
    core_rig_greet(1);
    assert_int_equal(sc_core_link_of(rig.core, 1), rig.ranks[1].link);
}

static void a_dead_ranks_hello_read_late_disturbs_nobody(void **state) {
    (void)state;
    core_rig_open(0, 2);
    core_rig_start();
    core_rig_connect(1);
    const struct sc_frame late = core_rig_hello(1);
    const uint64_t old = rig.ranks[1].link;
    rig.ranks[1] = (struct core_rig_rank){.incarnation = 99};
    core_rig_greet(1);
    core_rig_frame(old, &late);
    assert_int_equal(expect_frame(SC_FRAME_REFUSE)->u.cause.code, SC_DUP_RANK);
    assert_int_equal(sc_core_link_of(rig.core, 1), rig.ranks[1].link);
}

static void a_hello_for_another_rank_on_a_greeted_link_is_a_breach(void **state) {
    (void)state;
    open_coordinator(3);
    core_rig_greet(1);
    struct sc_frame hello = core_rig_hello(1);
    hello.u.hello.rank = 2;
    core_rig_from(1, &hello);
    breach_drops(rig.ranks[1].link);
    assert_int_equal(expect_notice(SC_NOTICE_BREACH)->rank, 1);
    assert_int_equal(sc_core_link_of(rig.core, 1), 0);
}

// ---- configuration ----

static void config_refused(const struct sc_frame *hello, enum sc_config_field field, uint64_t mine,
                           uint64_t theirs) {
    assert_int_equal(core_rig_from(1, hello), SC_OK);
    const struct sc_cause *cause = &expect_frame(SC_FRAME_REFUSE)->u.cause;
    assert_int_equal(cause->code, SC_CONFIG);
    assert_int_equal(cause->field, field);
    assert_int_equal(cause->value[0], mine);
    assert_int_equal(cause->value[1], theirs);
    const struct sc_action *notice = expect_notice(SC_NOTICE_REFUSED);
    assert_int_equal(notice->a, mine);
    assert_int_equal(notice->b, theirs);
    (void)expect_action(SC_ACTION_DROP);
    expect_state(SC_STATE_RENDEZVOUS);
}

static struct sc_frame newcomer(void) {
    open_coordinator(2);
    core_rig_connect(1);
    return core_rig_hello(1);
}

static void each_differing_field_is_told_with_both_values(void **state) {
    struct sc_frame hello = newcomer();
    (void)state;
    hello.u.hello.protocol = SC_PROTOCOL_VERSION + 1;
    config_refused(&hello, SC_FIELD_PROTOCOL, SC_PROTOCOL_VERSION, SC_PROTOCOL_VERSION + 1);
    hello = newcomer();
    hello.u.hello.job = 78;
    config_refused(&hello, SC_FIELD_JOB, RIG_JOB, 78);
    hello = newcomer();
    hello.u.hello.world = 4;
    config_refused(&hello, SC_FIELD_WORLD, 2, 4);
    hello = newcomer();
    hello.u.hello.rank = 2;
    config_refused(&hello, SC_FIELD_RANK, 2, 2);
    hello = newcomer();
    hello.u.hello.rank = 0;
    config_refused(&hello, SC_FIELD_RANK, 2, 0);
    hello = newcomer();
    hello.u.hello.rank = UINT32_MAX;
    config_refused(&hello, SC_FIELD_RANK, 2, UINT32_MAX);
    hello = newcomer();
    hello.u.hello.capacity_bytes++;
    config_refused(&hello, SC_FIELD_CAPACITY, RIG_CAPACITY_BYTES, RIG_CAPACITY_BYTES + 1);
    hello = newcomer();
    hello.u.hello.library = 22800;
    config_refused(&hello, SC_FIELD_LIBRARY, 0, 22800);
    hello = newcomer();
    hello.u.hello.lanes = 2;
    config_refused(&hello, SC_FIELD_LANES, SC_LANE_NCCL, 2);
}

static void one_lane_in_common_is_enough(void **state) {
    struct sc_frame hello = newcomer();
    (void)state;
    hello.u.hello.lanes = SC_LANE_NCCL | 2u;
    core_rig_from(1, &hello);
    (void)expect_frame(SC_FRAME_WELCOME);
}

static void the_first_differing_field_is_told(void **state) {
    struct sc_frame hello = newcomer();
    (void)state;
    hello.u.hello.capacity_bytes = 2;
    hello.u.hello.world = 3;
    config_refused(&hello, SC_FIELD_WORLD, 2, 3);
}

static void a_failed_coordinator_refuses_with_its_cause(void **state) {
    (void)state;
    core_rig_open(0, 3);
    core_rig_ready();
    core_rig_comm_failed(SC_CONTEXT_LOST);
    expect_state(SC_STATE_FAILED);
    rig.ranks[2].incarnation++;
    core_rig_connect(2);
    const struct sc_frame hello = core_rig_hello(2);
    assert_int_equal(refused(&hello, SC_CONTEXT_LOST)->suspect, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_coordinator_listens_once_and_challenges_first),
        cmocka_unit_test(a_lone_coordinator_listens_for_nobody),
        cmocka_unit_test(a_hello_that_echoes_the_nonce_is_welcomed),
        cmocka_unit_test(a_hello_with_the_nonce_of_another_link_gets_nothing),
        cmocka_unit_test(whatever_but_a_hello_from_a_stranger_drops_it),
        cmocka_unit_test(a_hello_that_contradicts_itself_is_a_breach),
        cmocka_unit_test(a_silent_stranger_is_dropped_at_the_handshake_deadline),
        cmocka_unit_test(the_seventeenth_pending_stranger_evicts_the_oldest),
        cmocka_unit_test(sixteen_strangers_keep_nobody_out),
        cmocka_unit_test(all_expired_strangers_are_dropped_though_they_fill_a_step),
        cmocka_unit_test(an_old_number_of_the_same_incarnation_is_stale),
        cmocka_unit_test(who_saw_less_than_was_ready_since_is_fenced),
        cmocka_unit_test(who_saw_nothing_yet_is_not_fenced),
        cmocka_unit_test(the_highest_ready_of_anybody_fences),
        cmocka_unit_test(an_epoch_of_the_same_count_by_another_life_of_rank_0_fences),
        cmocka_unit_test(the_same_incarnation_on_a_new_link_replaces_the_old_one),
        cmocka_unit_test(a_replaced_link_ends_a_live_epoch),
        cmocka_unit_test(another_incarnation_waits_for_the_end_of_the_old_link),
        cmocka_unit_test(a_dead_ranks_hello_read_late_disturbs_nobody),
        cmocka_unit_test(a_hello_for_another_rank_on_a_greeted_link_is_a_breach),
        cmocka_unit_test(each_differing_field_is_told_with_both_values),
        cmocka_unit_test(one_lane_in_common_is_enough),
        cmocka_unit_test(the_first_differing_field_is_told),
        cmocka_unit_test(a_failed_coordinator_refuses_with_its_cause),
    };
    return cmocka_run_group_tests(tests, NULL, core_rig_close);
}
