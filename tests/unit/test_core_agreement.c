// SPDX-License-Identifier: AGPL-3.0-only
//
// Agreement: whether all ranks submitted the same, asked and told in one round trip; and what is
// told where they did not.
#include "tests/support/core_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void ready(uint32_t rank, uint32_t world) {
    core_rig_open(rank, world);
    core_rig_ready();
}

static uint64_t own_digest(void) {
    return sc_core_ledger(rig.core)->digest;
}

static sc_status sync_up_to(uint64_t seq) {
    return core_rig_feed(
        (struct sc_event){.type = SC_EVENT_SYNC, .epoch = rig.epoch, .u.sync = {seq}});
}

static sc_status describe(uint32_t rank, uint64_t first, const struct sc_op_desc *list,
                          uint32_t count) {
    struct sc_frame frame = {.kind = SC_FRAME_DESCRIBE, .epoch = rig.epoch};
    frame.u.describe.first = first;
    frame.u.describe.count = count;
    for (uint32_t i = 0; i < count; i++)
        frame.u.describe.op[i] = list[i];
    return core_rig_from(rank, &frame);
}

static struct sc_op_desc reduce(uint64_t bytes) {
    return (struct sc_op_desc){SC_OP_ALL_REDUCE, 0, bytes};
}

static void mismatch(uint32_t suspect, uint64_t seq, uint64_t ours, uint64_t theirs) {
    expect_state(SC_STATE_ABORTING);
    const struct sc_cause *told = &expect_frame(SC_FRAME_ABORT)->u.cause;
    assert_int_equal(told->code, SC_MISMATCH);
    assert_int_equal(told->suspect, suspect);
    assert_int_equal(told->seq, seq);
    assert_int_equal(told->op[0].bytes, ours);
    assert_int_equal(told->op[1].bytes, theirs);
}

// ---- the coordinator ----

static void a_members_digest_that_equals_ours_is_agreed_upon(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_submit(SC_OP_ALL_REDUCE, 64);
    core_rig_submit(SC_OP_ALL_REDUCE, 32);
    core_rig_ping_from(1, 2, 2, own_digest(), 0);
    assert_int_equal(core_rig_view().agreed, 2);
    expect_no_frame(SC_FRAME_PING); // nobody waits for it
}

static void a_member_that_waits_is_answered_at_once(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_submit(SC_OP_ALL_REDUCE, 64);
    core_rig_ping_from(1, 1, 1, own_digest(), 1);
    assert_int_equal(core_rig_send_of(SC_FRAME_PING)->mask, 2);
    assert_int_equal(expect_frame(SC_FRAME_PING)->u.ping.agreed, 1);
}

static void a_member_that_waits_for_what_is_agreed_already_is_answered_at_once(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_submit(SC_OP_ALL_REDUCE, 64);
    core_rig_ping_from(1, 1, 1, own_digest(), 0);
    core_rig_ping_from(1, 1, 1, own_digest(), 1);
    assert_int_equal(expect_frame(SC_FRAME_PING)->u.ping.agreed, 1);
}

static void an_earlier_digest_is_compared_with_ours_of_that_seq(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_submit(SC_OP_ALL_REDUCE, 64);
    const uint64_t first = own_digest();
    core_rig_submit(SC_OP_ALL_REDUCE, 32);
    core_rig_ping_from(1, 1, 1, first, 0);
    assert_int_equal(core_rig_view().agreed, 1);
    expect_no_frame(SC_FRAME_QUERY);
}

static void a_member_that_is_ahead_is_compared_once_we_have_caught_up(void **state) {
    (void)state;
    ready(0, 2);
    const struct sc_op_desc op = {SC_OP_ALL_REDUCE, 0, 64};
    core_rig_ping_from(1, 1, 0, sc_digest_next(0, &op), 1);
    expect_quiet();
    core_rig_submit(SC_OP_ALL_REDUCE, 64);
    assert_int_equal(core_rig_view().agreed, 1);
    assert_int_equal(expect_frame(SC_FRAME_PING)->u.ping.agreed, 1);
}

static void the_lowest_of_all_members_is_what_is_agreed(void **state) {
    (void)state;
    ready(0, 3);
    core_rig_submit(SC_OP_ALL_REDUCE, 64);
    const uint64_t first = own_digest();
    core_rig_submit(SC_OP_ALL_REDUCE, 64);
    core_rig_ping_from(1, 2, 2, own_digest(), 2);
    assert_int_equal(core_rig_view().agreed, 0);
    core_rig_ping_from(2, 1, 1, first, 0);
    assert_int_equal(core_rig_view().agreed, 1);
    expect_no_frame(SC_FRAME_PING); // rank 1 waits for 2
    core_rig_ping_from(2, 2, 2, own_digest(), 0);
    assert_int_equal(core_rig_send_of(SC_FRAME_PING)->mask, 2);
    assert_int_equal(core_rig_view().agreed, 2);
}

static void what_one_member_waits_for_is_asked_of_the_others_at_once(void **state) {
    (void)state;
    ready(0, 3);
    core_rig_submit(SC_OP_ALL_REDUCE, 64);
    core_rig_ping_from(1, 1, 1, own_digest(), 1);
    assert_int_equal(core_rig_send_of(SC_FRAME_PING)->mask, 1u << 2);
    assert_int_equal(expect_frame(SC_FRAME_PING)->u.ping.want, 1);
    core_rig_ping_from(1, 1, 1, own_digest(), 1);
    expect_no_frame(SC_FRAME_PING); // once is enough
}

static void the_coordinators_own_sync_asks_all_and_is_told(void **state) {
    (void)state;
    ready(0, 3);
    core_rig_submit(SC_OP_ALL_REDUCE, 64);
    assert_int_equal(sync_up_to(1), SC_OK);
    assert_int_equal(core_rig_send_of(SC_FRAME_PING)->mask, 6);
    assert_int_equal(expect_frame(SC_FRAME_PING)->u.ping.want, 1);
    core_rig_ping_from(1, 1, 1, own_digest(), 0);
    assert_int_equal(core_rig_index(SC_ACTION_NOTIFY), -1);
    core_rig_ping_from(2, 1, 1, own_digest(), 0);
    assert_int_equal(expect_notice(SC_NOTICE_AGREED)->a, 1);
    assert_int_equal(sync_up_to(1), SC_OK); // known by now
    assert_int_equal(expect_notice(SC_NOTICE_AGREED)->a, 1);
    expect_no_frame(SC_FRAME_PING);
}

// ---- a member ----

static void a_members_sync_is_one_ping_up_and_one_down(void **state) {
    struct sc_frame answer = {.kind = SC_FRAME_PING};
    (void)state;
    ready(1, 2);
    core_rig_submit(SC_OP_ALL_REDUCE, 64);
    assert_int_equal(sync_up_to(1), SC_OK);
    const struct sc_ping *asked = &expect_frame(SC_FRAME_PING)->u.ping;
    assert_int_equal(asked->want, 1);
    assert_int_equal(asked->submitted, 1);
    assert_int_equal(asked->digest, own_digest());
    answer.epoch = rig.epoch;
    answer.u.ping = (struct sc_ping){
        .submitted = 1, .digest = own_digest(), .agreed = 1, .state = SC_STATE_READY};
    core_rig_from(0, &answer);
    assert_int_equal(expect_notice(SC_NOTICE_AGREED)->a, 1);
    expect_no_frame(SC_FRAME_PING);
    assert_int_equal(core_rig_view().agreed, 1);
}

static void a_member_that_is_asked_answers_once_it_has_got_there(void **state) {
    (void)state;
    ready(1, 2);
    core_rig_ping_from(0, 1, 1, 9, 1);
    expect_no_frame(SC_FRAME_PING);
    core_rig_submit(SC_OP_ALL_REDUCE, 64);
    assert_int_equal(expect_frame(SC_FRAME_PING)->u.ping.submitted, 1);
    core_rig_submit(SC_OP_ALL_REDUCE, 64);
    expect_no_frame(SC_FRAME_PING);
}

static void a_sync_beyond_what_was_submitted_is_invalid(void **state) {
    (void)state;
    ready(1, 2);
    assert_int_equal(sync_up_to(1), SC_INVALID);
    expect_quiet();
    core_rig_submit(SC_OP_ALL_REDUCE, 64);
    assert_int_equal(core_rig_feed((struct sc_event){
                         .type = SC_EVENT_SYNC, .epoch = rig.epoch - 1, .u.sync = {1}}),
                     SC_EPOCH_LOST);
    expect_quiet();
}

static void a_lone_rank_agrees_with_itself(void **state) {
    (void)state;
    ready(0, 1);
    core_rig_submit(SC_OP_ALL_REDUCE, 64);
    assert_int_equal(sync_up_to(1), SC_OK);
    assert_int_equal(expect_notice(SC_NOTICE_AGREED)->a, 1);
}

// ---- mismatch ----

static void digests_that_differ_ask_for_descriptions_once(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_submit(SC_OP_ALL_REDUCE, 64);
    core_rig_ping_from(1, 1, 1, own_digest(), 0);
    core_rig_submit(SC_OP_ALL_REDUCE, 8192);
    core_rig_ping_from(1, 2, 2, own_digest() ^ 1, 0);
    assert_int_equal(core_rig_send_of(SC_FRAME_QUERY)->mask, 2);
    assert_int_equal(expect_frame(SC_FRAME_QUERY)->u.first, 2);
    core_rig_ping_from(1, 2, 2, own_digest() ^ 1, 0);
    expect_no_frame(SC_FRAME_QUERY);
    expect_state(SC_STATE_READY); // evidence, no verdict yet
}

static void a_member_describes_what_it_submitted(void **state) {
    const struct sc_frame template = {.kind = SC_FRAME_QUERY};
    struct sc_frame query = template;
    (void)state;
    ready(1, 2);
    for (uint64_t i = 1; i <= 3; i++)
        core_rig_submit(SC_OP_ALL_REDUCE, 2 * i);
    query.epoch = rig.epoch;
    query.u.first = 2;
    assert_int_equal(core_rig_from(0, &query), SC_OK);
    const struct sc_describe *d = &expect_frame(SC_FRAME_DESCRIBE)->u.describe;
    assert_int_equal(d->first, 2);
    assert_int_equal(d->count, 2);
    assert_int_equal(d->op[0].bytes, 4);
    assert_int_equal(d->op[1].bytes, 6);
    query.epoch--;
    core_rig_from(0, &query);
    expect_quiet();
}

static void the_first_op_that_differs_is_the_verdict_with_both_descriptions(void **state) {
    const struct sc_op_desc theirs[] = {{SC_OP_ALL_REDUCE, 0, 64}, {SC_OP_ALL_REDUCE, 0, 4096}};
    (void)state;
    ready(0, 3);
    core_rig_submit(SC_OP_ALL_REDUCE, 64);
    core_rig_submit(SC_OP_ALL_REDUCE, 8192);
    core_rig_ping_from(2, 2, 2, 1, 0);
    assert_int_equal(describe(2, 1, theirs, 2), SC_OK);
    mismatch(2, 2, 8192, 4096);
    assert_int_equal(core_rig_send_of(SC_FRAME_ABORT)->mask, 6);
}

static void kinds_and_roots_that_differ_are_a_mismatch_too(void **state) {
    const struct sc_op_desc theirs[] = {{SC_OP_ALL_GATHER, 0, 64}, {SC_OP_ALL_REDUCE, 1, 64}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        ready(0, 2);
        core_rig_submit(SC_OP_ALL_REDUCE, 64);
        core_rig_ping_from(1, 1, 1, 1, 0);
        describe(1, 1, &theirs[i], 1);
        mismatch(1, 1, 64, 64);
    }
}

static void nothing_never_pairs_with_something(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_submit(SC_OP_ALL_REDUCE, 0);
    core_rig_submit(SC_OP_ALL_REDUCE, 4096);
    const struct sc_op_desc only = reduce(4096);
    core_rig_ping_from(1, 1, 1, sc_digest_next(0, &only), 0);
    describe(1, 1, &only, 1);
    mismatch(1, 1, 0, 4096);
}

static void a_mismatch_behind_many_alike_is_found_in_several_questions(void **state) {
    struct sc_core_config config = core_rig_config(0, 2);
    struct sc_op_desc alike[SC_DESCRIBE_MAX];
    (void)state;
    config.ledger_ops = 64;
    core_rig_open_config(&config, 1);
    core_rig_ready();
    for (uint64_t i = 1; i <= 40; i++)
        core_rig_submit(SC_OP_ALL_REDUCE, 2 * i);
    core_rig_ping_from(1, 40, 0, 1, 0);
    for (uint64_t i = 0; i < SC_DESCRIBE_MAX; i++)
        alike[i] = reduce(2 * i + 2);
    describe(1, 1, alike, SC_DESCRIBE_MAX);
    expect_state(SC_STATE_READY);
    assert_int_equal(expect_frame(SC_FRAME_QUERY)->u.first, SC_DESCRIBE_MAX + 1);
    const struct sc_op_desc other = reduce(6);
    describe(1, SC_DESCRIBE_MAX + 1, &other, 1);
    mismatch(1, 33, 66, 6);
}

static void a_mismatch_too_long_ago_to_be_described_is_one_all_the_same(void **state) {
    (void)state;
    ready(0, 2);
    for (uint64_t i = 0; i < 40; i++)
        core_rig_submit(SC_OP_ALL_REDUCE, 0); // complete at once, and leave the ledger's memory
    core_rig_ping_from(1, 40, 40, 1, 0);
    describe(1, 1, NULL, 0);
    mismatch(1, 1, 0, 0);
}

static void a_sync_agrees_with_a_member_that_is_ahead(void **state) {
    const struct sc_op_desc alike = reduce(64);
    (void)state;
    ready(0, 2);
    core_rig_submit(SC_OP_ALL_REDUCE, 64);
    assert_int_equal(sync_up_to(1), SC_OK);
    core_rig_ping_from(1, 5, 1, 12345, 0); // its digest is of seq 5, of which we know nothing
    assert_int_equal(expect_frame(SC_FRAME_QUERY)->u.first, 1);
    assert_int_equal(describe(1, 1, &alike, 1), SC_OK);
    assert_int_equal(core_rig_view().agreed, 1);
    assert_int_equal(expect_action(SC_ACTION_NOTIFY)->kind, SC_NOTICE_AGREED);
}

static void stuck_behind_a_member_its_descriptions_are_asked_for(void **state) {
    const struct sc_op_desc other = reduce(4096);
    (void)state;
    ready(0, 2);
    core_rig_submit(SC_OP_ALL_REDUCE, 8192);
    core_rig_ping_from(1, 2, 1, 12345, 0);
    expect_no_frame(SC_FRAME_QUERY); // it is ahead; so far that is all
    core_rig_ping_from(1, 2, 1, 12345, 0);
    assert_int_equal(expect_frame(SC_FRAME_QUERY)->u.first, 1);
    describe(1, 1, &other, 1);
    mismatch(1, 1, 8192, 4096);
}

static void a_suspicion_that_cannot_be_shown_is_no_verdict(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_submit(SC_OP_ALL_REDUCE, 64);
    core_rig_ping_from(1, 5000, 1, 12345, 0);
    core_rig_ping_from(1, 5000, 1, 12345, 0);
    assert_int_equal(expect_frame(SC_FRAME_QUERY)->u.first, 1);
    describe(1, 1, NULL, 0); // too long ago for it
    expect_state(SC_STATE_READY);
}

static void an_unasked_description_is_a_breach(void **state) {
    const struct sc_op_desc op = reduce(64);
    (void)state;
    ready(0, 2);
    core_rig_submit(SC_OP_ALL_REDUCE, 64);
    assert_int_equal(describe(1, 1, &op, 1), SC_PROTOCOL);
    ready(0, 2);
    core_rig_submit(SC_OP_ALL_REDUCE, 64);
    core_rig_ping_from(1, 1, 1, 1, 0);
    assert_int_equal(describe(1, 2, &op, 1), SC_PROTOCOL); // of other seqs
    expect_state(SC_STATE_ABORTING);
}

static void the_next_epoch_starts_without_memory_of_the_last(void **state) {
    (void)state;
    ready(0, 2);
    core_rig_submit(SC_OP_ALL_REDUCE, 64);
    core_rig_ping_from(1, 1, 1, own_digest(), 1);
    core_rig_comm_failed(SC_ASYNC_ERROR);
    core_rig_op(SC_EVENT_OP_DONE, 1);
    core_rig_clean();
    const struct sc_frame hello = core_rig_hello(1);
    core_rig_from(1, &hello);
    core_rig_comm_id(SC_OK);
    core_rig_simple(SC_EVENT_COMM_READY, rig.epoch);
    core_rig_plain(1, SC_FRAME_JOINED, rig.epoch);
    expect_state(SC_STATE_READY);
    assert_int_equal(core_rig_view().agreed, 0);
    assert_int_equal(core_rig_view().submitted, 0);
    assert_int_equal(own_digest(), 0);
}

static void a_digest_of_another_epoch_is_not_compared(void **state) {
    struct sc_frame ping = {.kind = SC_FRAME_PING};
    (void)state;
    ready(0, 2);
    core_rig_submit(SC_OP_ALL_REDUCE, 64);
    ping.epoch = rig.epoch - 1;
    ping.u.ping = (struct sc_ping){.submitted = 1, .digest = 1, .state = SC_STATE_READY};
    assert_int_equal(core_rig_from(1, &ping), SC_OK);
    expect_no_frame(SC_FRAME_QUERY);
    ping.u.ping.digest = own_digest();
    core_rig_from(1, &ping);
    assert_int_equal(core_rig_view().agreed, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_members_digest_that_equals_ours_is_agreed_upon),
        cmocka_unit_test(a_member_that_waits_is_answered_at_once),
        cmocka_unit_test(a_member_that_waits_for_what_is_agreed_already_is_answered_at_once),
        cmocka_unit_test(an_earlier_digest_is_compared_with_ours_of_that_seq),
        cmocka_unit_test(a_member_that_is_ahead_is_compared_once_we_have_caught_up),
        cmocka_unit_test(the_lowest_of_all_members_is_what_is_agreed),
        cmocka_unit_test(what_one_member_waits_for_is_asked_of_the_others_at_once),
        cmocka_unit_test(the_coordinators_own_sync_asks_all_and_is_told),
        cmocka_unit_test(a_members_sync_is_one_ping_up_and_one_down),
        cmocka_unit_test(a_member_that_is_asked_answers_once_it_has_got_there),
        cmocka_unit_test(a_sync_beyond_what_was_submitted_is_invalid),
        cmocka_unit_test(a_lone_rank_agrees_with_itself),
        cmocka_unit_test(digests_that_differ_ask_for_descriptions_once),
        cmocka_unit_test(a_member_describes_what_it_submitted),
        cmocka_unit_test(the_first_op_that_differs_is_the_verdict_with_both_descriptions),
        cmocka_unit_test(kinds_and_roots_that_differ_are_a_mismatch_too),
        cmocka_unit_test(nothing_never_pairs_with_something),
        cmocka_unit_test(a_mismatch_behind_many_alike_is_found_in_several_questions),
        cmocka_unit_test(a_mismatch_too_long_ago_to_be_described_is_one_all_the_same),
        cmocka_unit_test(a_sync_agrees_with_a_member_that_is_ahead),
        cmocka_unit_test(stuck_behind_a_member_its_descriptions_are_asked_for),
        cmocka_unit_test(a_suspicion_that_cannot_be_shown_is_no_verdict),
        cmocka_unit_test(an_unasked_description_is_a_breach),
        cmocka_unit_test(the_next_epoch_starts_without_memory_of_the_last),
        cmocka_unit_test(a_digest_of_another_epoch_is_not_compared),
    };
    return cmocka_run_group_tests(tests, NULL, core_rig_close);
}
