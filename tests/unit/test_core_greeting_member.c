// SPDX-License-Identifier: AGPL-3.0-only
//
// A member's side of a link: dialling, greeting, being refused, dialling again.
#include "tests/support/core_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void open_member(void) {
    core_rig_open(1, 2);
    core_rig_start();
}

static void refuse(sc_status code) {
    const struct sc_frame frame = {.kind = SC_FRAME_REFUSE,
                                   .u.cause = {.code = code, .suspect = SC_RANK_NONE}};
    assert_int_equal(core_rig_from(0, &frame), SC_OK);
}

// Lets time pass up to the next DIAL; returns how long it took.
static uint64_t wait_for_dial(void) {
    const uint64_t before = rig.now_ns;
    for (int i = 0; i < 8; i++) {
        const uint64_t at = sc_core_deadline(rig.core);
        assert_true(at != SC_CORE_NEVER_NS);
        rig.now_ns = at > rig.now_ns ? at : rig.now_ns;
        core_rig_tick();
        if (core_rig_index(SC_ACTION_DIAL) >= 0)
            return rig.now_ns - before;
    }
    fail_msg("no DIAL within eight deadlines");
    return 0;
}

static void a_member_dials_at_once_and_does_not_listen(void **state) {
    (void)state;
    open_member();
    assert_int_equal(expect_action(SC_ACTION_DIAL)->a, 0);
    expect_no_action(SC_ACTION_LISTEN);
    expect_state(SC_STATE_RENDEZVOUS);
}

static void a_hello_says_who_we_are(void **state) {
    (void)state;
    open_member();
    core_rig_dialled();
    const struct sc_hello *hello = &expect_frame(SC_FRAME_HELLO)->u.hello;
    assert_int_equal(hello->rank, 1);
    assert_int_equal(hello->world, 2);
    assert_int_equal(hello->job, RIG_JOB);
    assert_int_equal(hello->capacity_bytes, RIG_CAPACITY_BYTES);
    assert_int_equal(hello->protocol, SC_PROTOCOL_VERSION);
    assert_int_equal(hello->incarnation, core_rig_view().incarnation);
    assert_int_equal(hello->number, 1);
    assert_int_equal(hello->seen_epoch, 0);
    assert_int_equal(hello->able, 1);
}

static void the_first_retry_is_at_once_and_the_others_back_off_within_bounds(void **state) {
    uint64_t base;
    (void)state;
    open_member();
    core_rig_link_down(0); // the dial failed
    assert_int_equal(wait_for_dial(), 0);
    assert_int_equal(expect_action(SC_ACTION_DIAL)->a, 1);
    base = rig.config.backoff_min_ns;
    for (uint64_t attempt = 2; attempt < 12; attempt++) {
        core_rig_link_down(0);
        const uint64_t waited = wait_for_dial();
        assert_in_range(waited, base / 2, base);
        assert_int_equal(expect_action(SC_ACTION_DIAL)->a, attempt);
        base = 2 * base < rig.config.backoff_max_ns ? 2 * base : rig.config.backoff_max_ns;
    }
}

static void backoffs_of_two_members_are_spread_by_jitter(void **state) {
    uint64_t waited[2];
    const struct sc_core_config config = core_rig_config(1, 2);
    (void)state;
    for (uint64_t seed = 0; seed < 2; seed++) {
        core_rig_open_config(&config, seed);
        core_rig_start();
        core_rig_link_down(0);
        (void)wait_for_dial();
        core_rig_link_down(0);
        waited[seed] = wait_for_dial();
    }
    assert_int_not_equal(waited[0], waited[1]);
}

static void a_dial_without_an_answer_is_left_for_the_next_address(void **state) {
    (void)state;
    open_member();
    core_rig_wait(rig.config.greeting_ns - 1);
    expect_no_action(SC_ACTION_DROP);
    core_rig_wait(1);
    assert_int_equal(expect_action(SC_ACTION_DROP)->link, 0); // the dial under way
    (void)wait_for_dial();
    assert_int_equal(expect_action(SC_ACTION_DIAL)->a, 1);
}

static void an_address_that_accepts_and_says_nothing_is_left(void **state) {
    (void)state;
    open_member();
    core_rig_feed((struct sc_event){.type = SC_EVENT_LINK_UP, .u.link_up = {.link = 55}});
    core_rig_wait(rig.config.greeting_ns);
    assert_int_equal(expect_action(SC_ACTION_DROP)->link, 55);
    (void)wait_for_dial();
    assert_int_equal(expect_action(SC_ACTION_DIAL)->a, 1);
}

static void an_address_that_challenges_and_never_welcomes_is_left(void **state) {
    (void)state;
    open_member();
    core_rig_dialled();
    core_rig_wait(rig.config.greeting_ns);
    assert_int_equal(expect_action(SC_ACTION_DROP)->link, rig.ranks[0].link);
}

static void a_connection_that_nobody_waits_for_any_more_is_dropped(void **state) {
    (void)state;
    open_member();
    core_rig_link_down(0);
    core_rig_feed((struct sc_event){.type = SC_EVENT_LINK_UP, .u.link_up = {.link = 55}});
    assert_int_equal(expect_action(SC_ACTION_DROP)->link, 55);
}

static void the_coordinators_timing_is_adopted(void **state) {
    struct sc_frame welcome = {.kind = SC_FRAME_WELCOME};
    (void)state;
    open_member();
    core_rig_dialled();
    welcome.u.welcome.timing = rig.config.timing;
    welcome.u.welcome.timing.heartbeat_ns = 7 * RIG_MS;
    core_rig_from(0, &welcome);
    core_rig_tick();
    (void)expect_frame(SC_FRAME_PING);
    assert_int_equal(sc_core_deadline(rig.core), rig.now_ns + 7 * RIG_MS);
}

static void timing_out_of_range_is_a_breach(void **state) {
    struct sc_frame welcome = {.kind = SC_FRAME_WELCOME};
    (void)state;
    open_member();
    core_rig_dialled();
    welcome.u.welcome.timing = rig.config.timing;
    welcome.u.welcome.timing.silence_ns = 2 * welcome.u.welcome.timing.heartbeat_ns - 1;
    assert_int_equal(core_rig_from(0, &welcome), SC_PROTOCOL);
    assert_int_equal(expect_action(SC_ACTION_DROP)->link, rig.ranks[0].link);
    assert_int_equal(sc_core_link_of(rig.core, 0), 0);
    (void)wait_for_dial();
}

static void a_second_challenge_or_welcome_is_a_breach(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct sc_frame frame = {.kind = i == 0 ? SC_FRAME_CHALLENGE : SC_FRAME_WELCOME};
        frame.u.welcome.timing = rig.config.timing;
        core_rig_open(1, 2);
        core_rig_rendezvous();
        assert_int_equal(core_rig_from(0, &frame), SC_PROTOCOL);
        (void)expect_action(SC_ACTION_DROP);
    }
}

static void config_fenced_and_peer_left_are_terminal(void **state) {
    static const sc_status codes[] = {SC_CONFIG, SC_FENCED, SC_PEER_LEFT};
    (void)state;
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        open_member();
        core_rig_dialled();
        refuse(codes[i]);
        expect_state(SC_STATE_FAILED);
        assert_int_equal(core_rig_view().cause.code, codes[i]);
        assert_int_equal(expect_notice(SC_NOTICE_REFUSED)->status, codes[i]);
        (void)expect_action(SC_ACTION_DROP);
        core_rig_wait(60 * RIG_SECOND);
        expect_no_action(SC_ACTION_DIAL);
    }
}

static void every_other_refusal_is_retried(void **state) {
    static const sc_status codes[] = {SC_STALE, SC_DUP_RANK, SC_ABORT_STUCK, SC_CONTEXT_LOST,
                                      SC_CLOSED};
    (void)state;
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        open_member();
        core_rig_dialled();
        refuse(codes[i]);
        expect_state(SC_STATE_RENDEZVOUS);
        (void)wait_for_dial();
        core_rig_dialled();
        assert_int_equal(expect_frame(SC_FRAME_HELLO)->u.hello.number, 2);
    }
}

static void a_fenced_rank_fails_only_once_it_is_clean(void **state) {
    (void)state;
    core_rig_open(1, 2);
    core_rig_ready();
    core_rig_link_down(rig.ranks[0].link);
    expect_state(SC_STATE_ABORTING);
    (void)wait_for_dial();
    core_rig_dialled();
    refuse(SC_FENCED);
    expect_state(SC_STATE_ABORTING);
    core_rig_clean();
    expect_state(SC_STATE_FAILED);
    assert_int_equal(core_rig_view().cause.code, SC_FENCED);
}

static void a_lost_link_is_dialled_anew_at_once(void **state) {
    (void)state;
    core_rig_open(1, 2);
    core_rig_rendezvous();
    core_rig_link_down(rig.ranks[0].link);
    expect_state(SC_STATE_RENDEZVOUS);
    assert_int_equal(wait_for_dial(), 0);
    core_rig_dialled();
    core_rig_welcome();
    assert_int_equal(sc_core_link_of(rig.core, 0), rig.ranks[0].link);
}

static void a_rank_on_hold_says_so_and_says_hello_again_when_it_joins(void **state) {
    struct sc_core_config config = core_rig_config(1, 2);
    (void)state;
    config.hold = 1;
    core_rig_open_config(&config, 3);
    core_rig_start();
    expect_state(SC_STATE_IDLE);
    core_rig_dialled();
    assert_int_equal(expect_frame(SC_FRAME_HELLO)->u.hello.able, 0);
    core_rig_welcome();
    core_rig_tick();
    assert_int_equal(expect_frame(SC_FRAME_PING)->u.ping.loading, 1);
    core_rig_simple(SC_EVENT_JOIN, 0);
    expect_state(SC_STATE_RENDEZVOUS);
    assert_int_equal(expect_frame(SC_FRAME_HELLO)->u.hello.able, 1);
    assert_int_equal(expect_frame(SC_FRAME_HELLO)->u.hello.number, 2);
}

static void who_becomes_able_between_hello_and_welcome_says_so(void **state) {
    struct sc_core_config config = core_rig_config(1, 2);
    (void)state;
    config.hold = 1;
    core_rig_open_config(&config, 3);
    core_rig_start();
    core_rig_dialled();
    core_rig_simple(SC_EVENT_JOIN, 0);
    assert_int_equal(expect_frame(SC_FRAME_HELLO)->u.hello.able, 1);
    core_rig_welcome();
}

static void who_becomes_clean_between_hello_and_welcome_says_so(void **state) {
    (void)state;
    core_rig_open(1, 2);
    core_rig_ready();
    core_rig_link_down(rig.ranks[0].link);
    (void)wait_for_dial();
    core_rig_dialled();
    assert_int_equal(expect_frame(SC_FRAME_HELLO)->u.hello.able, 0);
    core_rig_clean();
    assert_int_equal(expect_frame(SC_FRAME_HELLO)->u.hello.able, 1);
}

static void a_greeting_forgets_the_failures_before_it(void **state) {
    (void)state;
    open_member();
    for (int i = 0; i < 6; i++) {
        core_rig_link_down(0);
        (void)wait_for_dial();
    }
    core_rig_dialled();
    core_rig_welcome();
    core_rig_link_down(rig.ranks[0].link);
    assert_int_equal(wait_for_dial(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_member_dials_at_once_and_does_not_listen),
        cmocka_unit_test(a_hello_says_who_we_are),
        cmocka_unit_test(the_first_retry_is_at_once_and_the_others_back_off_within_bounds),
        cmocka_unit_test(backoffs_of_two_members_are_spread_by_jitter),
        cmocka_unit_test(a_dial_without_an_answer_is_left_for_the_next_address),
        cmocka_unit_test(an_address_that_accepts_and_says_nothing_is_left),
        cmocka_unit_test(an_address_that_challenges_and_never_welcomes_is_left),
        cmocka_unit_test(a_connection_that_nobody_waits_for_any_more_is_dropped),
        cmocka_unit_test(the_coordinators_timing_is_adopted),
        cmocka_unit_test(timing_out_of_range_is_a_breach),
        cmocka_unit_test(a_second_challenge_or_welcome_is_a_breach),
        cmocka_unit_test(config_fenced_and_peer_left_are_terminal),
        cmocka_unit_test(every_other_refusal_is_retried),
        cmocka_unit_test(a_fenced_rank_fails_only_once_it_is_clean),
        cmocka_unit_test(a_lost_link_is_dialled_anew_at_once),
        cmocka_unit_test(a_rank_on_hold_says_so_and_says_hello_again_when_it_joins),
        cmocka_unit_test(who_becomes_able_between_hello_and_welcome_says_so),
        cmocka_unit_test(who_becomes_clean_between_hello_and_welcome_says_so),
        cmocka_unit_test(a_greeting_forgets_the_failures_before_it),
    };
    return cmocka_run_group_tests(tests, NULL, core_rig_close);
}
