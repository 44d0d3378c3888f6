// SPDX-License-Identifier: AGPL-3.0-only
//
// Opening through the public calls: what a config may say, and how a wrong one is refused; and the
// words that need no handle.
#include "tests/support/api_run.h"

// ---- configs -----------------------------------------------------------------------------------

#define REFUSED(me, set, status, words)                                                            \
    do {                                                                                           \
        sc_comm comm_ = 77;                                                                        \
        set;                                                                                       \
        EXPECT(me, sc_open(&c, &comm_), status);                                                   \
        EQUAL(me, comm_, 77);                                                                      \
        SAYS(me, "sc_open: ");                                                                     \
        SAYS(me, words);                                                                           \
        c = api_config(me);                                                                        \
    } while (0)

static void opens_wrongly(struct api_rank *me) {
    struct sc_config c = api_config(me);
    sc_comm comm;
    EXPECT(me, sc_open(NULL, &comm), SC_INVALID);
    SAYS(me, "config is NULL");
    EXPECT(me, sc_open(&c, NULL), SC_INVALID);
    SAYS(me, "comm is NULL");
    REFUSED(me, (c.size = 0), SC_INVALID, "size is 0");
    REFUSED(me, (c.size += 8), SC_INVALID, "sc_config_init");
    REFUSED(me, (c.flags = 4), SC_INVALID, "flags are 0x4");
    REFUSED(me, (c.rank = 1 - me->rank), SC_INVALID, "config.rank is");
    REFUSED(me, (c.world = 0), SC_INVALID, "world is 0");
    REFUSED(me, (c.world = 9), SC_INVALID, "world is 9");
    REFUSED(me, (c.capacity_bytes = 0), SC_INVALID, "capacity_bytes is 0");
    REFUSED(me, (c.master_host = NULL), SC_INVALID, "master_host");
    REFUSED(me, (c.master_host = ""), SC_INVALID, "master_host");
    REFUSED(me, (c.master_port = 0), SC_INVALID, "master_port is 0");
    REFUSED(me, (c.master_port = 65536), SC_INVALID, "master_port is 65536");
    REFUSED(me, (c.timing.heartbeat_ns = 0), SC_INVALID, "heartbeat_ns is 0");
    REFUSED(me, (c.timing.silence_ns = c.timing.heartbeat_ns), SC_INVALID, "silence_ns is");
    REFUSED(me, (c.timing.op_ns = 0), SC_INVALID, "op_ns is 0");
    REFUSED(me, (c.timing.init_ns = 0), SC_INVALID, "init_ns is 0");
    REFUSED(me, (c.timing.abort_ns = MS), SC_INVALID, "abort_ns is 1000000");
    REFUSED(me, (c.ledger_ops = 3), SC_INVALID, "ledger_ops is 3");
    REFUSED(me, (c.ledger_ops = 65537), SC_INVALID, "ledger_ops is 65537");
    REFUSED(me, (c.notes_max = 0), SC_INVALID, "notes_max is 0");
    REFUSED(me, (c.captures_max = UINT32_MAX), SC_INVALID, "captures_max is 4294967295");
    REFUSED(me, (c.key = "x", c.key_file = "y"), SC_INVALID, "both key and key_file");
    REFUSED(me, (c.key_file = "/nonexistent/key"), SC_KEY, "/nonexistent/key");
    api_begin(me);
    api_works(me);
    api_leave(me);
}

static void wrong_configs_are_refused_with_field_and_value(void **state) {
    (void)state;
    api_play("ranks 2", opens_wrongly);
}

static void opens_many(struct api_rank *me) {
    struct sc_config c = api_config(me);
    sc_comm open[64], one_more;
    c.on_note = NULL;
    for (int i = 0; i < 64; i++)
        DO(me, sc_open(&c, &open[i]));
    EXPECT(me, sc_open(&c, &one_more), SC_BUSY);
    SAYS(me, "64 handles are open");
    DO(me, sc_close(open[17], SC_CLOSE_FINAL, SECOND));
    DO(me, sc_open(&c, &open[17]));
    for (int i = 0; i < 64; i++) {
        struct sc_recovery recovery = {.size = sizeof recovery};
        DO(me, sc_wait_ready(open[i], 10 * SECOND, &recovery));
        EQUAL(me, *sc_live_epoch(open[i]), recovery.epoch);
        DO(me, sc_close(open[i], SC_CLOSE_FINAL, 10 * SECOND));
    }
}

static void sixty_four_handles_may_be_open(void **state) {
    (void)state;
    api_play("ranks 1", opens_many);
}

static void opens_a_taken_port(struct api_rank *me) {
    struct sc_config c = api_config(me);
    sc_comm second;
    if (me->rank == 0) {
        api_open(me, NULL);
        uint64_t begun_ns = api_now(me);
        EXPECT(me, sc_open(&c, &second), SC_BIND);
        SAYS(me, "port 29500");
        TRUE(me, api_now(me) - begun_ns <= SECOND);
    } else {
        api_open(me, NULL);
    }
    api_ready(me);
    api_works(me);
    api_leave(me);
}

static void second_rank_0_at_the_port_is_refused_bind_b9(void **state) {
    (void)state;
    api_play("ranks 2", opens_a_taken_port);
}

static void opens_as_of_old(struct api_rank *me) {
    struct sc_config c = api_config(me);
    c.size = offsetof(struct sc_config, timing); // of a caller who knows no more
    c.timing.heartbeat_ns = 0;
    c.notes_max = 0;
    api_open(me, &c);
    api_ready(me);
    api_works(me);
    api_leave(me);
}

static void what_an_older_caller_lacks_keeps_its_default(void **state) {
    (void)state;
    api_play("ranks 2", opens_as_of_old);
}

static void config_init_writes_defaults_and_no_more_than_its_size(void **state) {
    struct sc_config c;
    unsigned char bytes[sizeof c];
    (void)state;
    sc_config_init(&c, sizeof c);
    assert_int_equal(c.size, sizeof c);
    assert_int_equal(c.world, 2);
    assert_int_equal(c.timing.heartbeat_ns, 100 * MS);
    assert_int_equal(c.timing.silence_ns, 2 * SECOND);
    assert_int_equal(c.timing.op_ns, 30 * SECOND);
    assert_int_equal(c.timing.behind_ns, 0);
    assert_int_equal(c.timing.init_ns, 60 * SECOND);
    assert_int_equal(c.timing.abort_ns, 5 * SECOND);
    assert_int_equal(c.join_ns, 0);
    assert_int_equal(c.ledger_ops, 1024);
    assert_int_equal(c.captures_max, 64);
    assert_int_equal(c.notes_max, 256);
    memset(bytes, 0xee, sizeof bytes);
    sc_config_init((struct sc_config *)(void *)memset(&c, 0xee, sizeof c), 16);
    assert_int_equal(c.size, 16);
    memcpy(bytes, &c, sizeof bytes);
    assert_int_equal(bytes[16], 0xee);
}

// ---- words that need no handle -----------------------------------------------------------------

static void library_tells_its_version_and_sizes(void **state) {
    (void)state;
    assert_int_equal(sc_abi(), SC_ABI_VERSION);
    assert_non_null(strchr(sc_version(), '.'));
    assert_int_equal(sc_struct_bytes("sc_config"), sizeof(struct sc_config));
    assert_int_equal(sc_struct_bytes("sc_recovery"), sizeof(struct sc_recovery));
    assert_int_equal(sc_struct_bytes("sc_health_report"), sizeof(struct sc_health_report));
    assert_int_equal(sc_struct_bytes("sc_note"), sizeof(struct sc_note));
    assert_int_equal(sc_struct_bytes("sc_confi"), 0);
    assert_int_equal(sc_struct_bytes(NULL), 0);
}

static void every_status_has_name_sentence_and_class(void **state) {
    (void)state;
    for (int s = 0; s < SC_STATUS_COUNT; s++) {
        assert_string_not_equal(sc_status_name((sc_status)s), "UNKNOWN");
        assert_true(strlen(sc_status_sentence((sc_status)s)) >= 4);
        assert_in_range(sc_status_class((sc_status)s), SC_CLASS_DONE, SC_CLASS_TERMINAL);
        for (int other = 0; other < s; other++)
            assert_string_not_equal(sc_status_name((sc_status)s), sc_status_name((sc_status)other));
    }
    assert_string_equal(sc_status_name(SC_STATUS_COUNT), "UNKNOWN");
    assert_int_equal(sc_status_class((sc_status)-1), SC_CLASS_TERMINAL);
}

static void causes_are_told_in_words_and_cut_to_size(void **state) {
    char text[400];
    (void)state;
    for (uint32_t code = 1; code < SC_STATUS_COUNT; code++) {
        const struct sc_cause cause = {.code = code, .suspect = 3, .seq = 17, .value = {41, 42}};
        assert_ptr_equal(sc_cause_text(&cause, text, sizeof text), text);
        assert_non_null(strstr(text, sc_status_name((sc_status)code)));
        assert_non_null(strstr(text, "rank 3"));
        assert_non_null(strstr(text, "seq 17"));
        for (size_t bytes = 1; bytes < 40; bytes++) {
            memset(text, 'x', sizeof text);
            sc_cause_text(&cause, text, bytes);
            assert_true(strlen(text) < bytes);
            assert_int_equal(text[bytes], 'x');
        }
    }
    const struct sc_cause none = {.code = SC_OK}, unknown = {.code = 1000};
    assert_true(strlen(sc_cause_text(&none, text, sizeof text)) > 0);
    assert_non_null(strstr(sc_cause_text(&unknown, text, sizeof text), "UNKNOWN"));
    const struct sc_cause mismatch = {.code = SC_MISMATCH,
                                      .suspect = 1,
                                      .seq = 2,
                                      .op = {{SC_OP_BROADCAST, 1, 64}, {SC_OP_ALL_GATHER, 0, 32}}};
    assert_string_equal(
        sc_cause_text(&mismatch, text, sizeof text),
        "MISMATCH rank 1 seq 2: rank 0 submitted broadcast of 64 bytes root 1, it submitted "
        "all_gather of 32 bytes (ranks submitted different operations under the same number)");
}

static void states_and_kinds_have_names(void **state) {
    (void)state;
    for (int i = 0; i < SC_STATE_COUNT; i++)
        assert_true(strlen(sc_state_name((enum sc_state)i)) > 0);
    for (int i = 0; i < SC_OP_KIND_COUNT; i++)
        assert_true(strlen(sc_op_kind_name((enum sc_op_kind)i)) > 0);
    assert_string_equal(sc_state_name(SC_STATE_READY), "ready");
    assert_string_equal(sc_op_kind_name(SC_OP_ALL_REDUCE), "all_reduce");
    assert_non_null(sc_state_name((enum sc_state)99));
    assert_non_null(sc_op_kind_name((enum sc_op_kind)99));
    assert_non_null(sc_last_error());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_configs_are_refused_with_field_and_value),
        cmocka_unit_test(sixty_four_handles_may_be_open),
        cmocka_unit_test(second_rank_0_at_the_port_is_refused_bind_b9),
        cmocka_unit_test(what_an_older_caller_lacks_keeps_its_default),
        cmocka_unit_test(config_init_writes_defaults_and_no_more_than_its_size),
        cmocka_unit_test(library_tells_its_version_and_sizes),
        cmocka_unit_test(every_status_has_name_sentence_and_class),
        cmocka_unit_test(causes_are_told_in_words_and_cut_to_size),
        cmocka_unit_test(states_and_kinds_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
