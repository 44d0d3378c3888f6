// SPDX-License-Identifier: AGPL-3.0-only
//
// core/config.h: defaults that pass, and the bounds of each field, told by the field's name.
#include "core/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)
#define WEEK (7 * 24 * 3600 * SECOND)

static struct sc_core_config sound(void) {
    struct sc_core_config config;
    memset(&config, 0xa5, sizeof config);
    sc_core_config_init(&config);
    config.job = 1;
    config.capacity_bytes = 8192;
    return config;
}

static void refused_for(const struct sc_core_config *config, const char *name) {
    struct sc_config_fault fault = {0};
    assert_int_equal(sc_core_config_check(config, &fault), SC_INVALID);
    assert_string_equal(fault.field, name);
    assert_true(fault.value < fault.min || fault.value > fault.max);
}

static void accepted(const struct sc_core_config *config) {
    struct sc_config_fault fault = {0};
    assert_int_equal(sc_core_config_check(config, &fault), SC_OK);
    assert_null(fault.field);
}

static void defaults_pass_once_identity_is_given(void **state) {
    const struct sc_core_config config = sound();
    (void)state;
    accepted(&config);
    assert_int_equal(config.timing.heartbeat_ns, 100 * MS);
    assert_int_equal(config.timing.silence_ns, 2 * SECOND);
    assert_int_equal(config.timing.op_ns, 30 * SECOND);
    assert_int_equal(config.timing.behind_ns, 0);
    assert_int_equal(config.handshake_ns, 2 * SECOND);
    assert_int_equal(config.greeting_ns, 10 * SECOND);
    assert_int_equal(config.stable_ns, 10 * SECOND);
    assert_int_equal(config.ledger_ops, 1024);
}

static void defaults_leave_the_capacity_to_the_caller(void **state) {
    struct sc_core_config config;
    (void)state;
    sc_core_config_init(&config);
    refused_for(&config, "capacity_bytes");
}

// Two bounds of a field: the values at them pass, those beyond do not.
#define BOUNDS(name, member, low, high)                                                            \
    static void name##_is_bounded(void **state) {                                                  \
        struct sc_core_config config = sound();                                                    \
        (void)state;                                                                               \
        config.member = (low);                                                                     \
        accepted(&config);                                                                         \
        config.member = (high);                                                                    \
        accepted(&config);                                                                         \
        if ((low) > 0) {                                                                           \
            config.member = (low)-1;                                                               \
            refused_for(&config, #member);                                                         \
        }                                                                                          \
        config.member = (high) + 1;                                                                \
        refused_for(&config, #member);                                                             \
    }

BOUNDS(capacity, capacity_bytes, 2u, UINT64_MAX / 64)
BOUNDS(lanes, lanes, 1u, 1u)
BOUNDS(ledger, ledger_ops, 4u, 65536u)
BOUNDS(hold, hold, 0u, 1u)
BOUNDS(op_limit, timing.op_ns, MS, WEEK)
BOUNDS(behind_limit, timing.behind_ns, 0u, WEEK)
BOUNDS(init_limit, timing.init_ns, MS, WEEK)
BOUNDS(abort_limit, timing.abort_ns, 2200 * MS, WEEK) // silence and two heartbeats
BOUNDS(handshake, handshake_ns, MS, WEEK)
BOUNDS(greeting, greeting_ns, MS, WEEK)
BOUNDS(backoff_max, backoff_max_ns, 50 * MS, WEEK)
BOUNDS(stable, stable_ns, 0u, WEEK)
BOUNDS(join_budget, join_ns, 0u, WEEK)

static void world_is_from_1_to_64(void **state) {
    struct sc_core_config config = sound();
    (void)state;
    config.world = 1;
    accepted(&config);
    config.world = 64;
    accepted(&config);
    config.world = 0;
    refused_for(&config, "world");
    config.world = 65;
    refused_for(&config, "world");
    config.world = UINT32_MAX;
    refused_for(&config, "world");
}

static void rank_lies_within_the_world(void **state) {
    struct sc_core_config config = sound();
    (void)state;
    config.world = 64;
    config.rank = 63;
    accepted(&config);
    config.rank = 64;
    refused_for(&config, "rank");
    config.world = 1;
    config.rank = 1;
    refused_for(&config, "rank");
    config.rank = UINT32_MAX;
    refused_for(&config, "rank");
}

static void heartbeat_is_from_a_millisecond_to_a_minute(void **state) {
    struct sc_core_config config = sound();
    (void)state;
    config.timing.silence_ns = 200 * SECOND;
    config.timing.abort_ns = 400 * SECOND;
    config.timing.heartbeat_ns = 60 * SECOND;
    accepted(&config);
    config.timing.heartbeat_ns++;
    refused_for(&config, "timing.heartbeat_ns");
    config.timing.heartbeat_ns = MS;
    accepted(&config);
    config.timing.heartbeat_ns--;
    refused_for(&config, "timing.heartbeat_ns");
}

static void silence_is_at_least_two_heartbeats(void **state) {
    struct sc_core_config config = sound();
    (void)state;
    config.timing.abort_ns = WEEK;
    config.timing.heartbeat_ns = 7 * SECOND;
    config.timing.silence_ns = 14 * SECOND;
    accepted(&config);
    config.timing.silence_ns--;
    refused_for(&config, "timing.silence_ns");
}

static void silence_leaves_the_abort_two_heartbeats(void **state) {
    struct sc_core_config config = sound();
    (void)state;
    config.timing.abort_ns = WEEK;
    config.timing.silence_ns = WEEK - 200 * MS;
    accepted(&config);
    config.timing.silence_ns++;
    refused_for(&config, "timing.abort_ns");
    config.timing.silence_ns = WEEK + 1;
    refused_for(&config, "timing.silence_ns");
}

static void backoff_starts_above_zero(void **state) {
    struct sc_core_config config = sound();
    (void)state;
    config.backoff_min_ns = 1;
    accepted(&config);
    config.backoff_min_ns = 0;
    refused_for(&config, "backoff_min_ns");
}

static void backoff_rises_from_its_minimum_to_its_maximum(void **state) {
    struct sc_core_config config = sound();
    (void)state;
    config.backoff_min_ns = config.backoff_max_ns = 3 * SECOND;
    accepted(&config);
    config.backoff_min_ns++;
    refused_for(&config, "backoff_max_ns");
}

static void a_refusal_names_the_first_field_only(void **state) {
    struct sc_core_config config = sound();
    (void)state;
    config.world = 0;
    config.lanes = 0;
    config.join_ns = UINT64_MAX;
    refused_for(&config, "world");
}

static void every_compared_field_has_a_name_of_its_own(void **state) {
    (void)state;
    for (unsigned i = 0; i < SC_FIELD_COUNT; i++) {
        const char *name = sc_config_field_name((enum sc_config_field)i);
        assert_string_not_equal(name, "unknown");
        for (unsigned j = 0; j < i; j++)
            assert_string_not_equal(name, sc_config_field_name((enum sc_config_field)j));
    }
    assert_string_equal(sc_config_field_name(SC_FIELD_COUNT), "unknown");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_pass_once_identity_is_given),
        cmocka_unit_test(defaults_leave_the_capacity_to_the_caller),
        cmocka_unit_test(world_is_from_1_to_64),
        cmocka_unit_test(rank_lies_within_the_world),
        cmocka_unit_test(capacity_is_bounded),
        cmocka_unit_test(lanes_is_bounded),
        cmocka_unit_test(ledger_is_bounded),
        cmocka_unit_test(hold_is_bounded),
        cmocka_unit_test(heartbeat_is_from_a_millisecond_to_a_minute),
        cmocka_unit_test(silence_is_at_least_two_heartbeats),
        cmocka_unit_test(silence_leaves_the_abort_two_heartbeats),
        cmocka_unit_test(op_limit_is_bounded),
        cmocka_unit_test(behind_limit_is_bounded),
        cmocka_unit_test(init_limit_is_bounded),
        cmocka_unit_test(abort_limit_is_bounded),
        cmocka_unit_test(handshake_is_bounded),
        cmocka_unit_test(greeting_is_bounded),
        cmocka_unit_test(backoff_starts_above_zero),
        cmocka_unit_test(backoff_max_is_bounded),
        cmocka_unit_test(backoff_rises_from_its_minimum_to_its_maximum),
        cmocka_unit_test(stable_is_bounded),
        cmocka_unit_test(join_budget_is_bounded),
        cmocka_unit_test(a_refusal_names_the_first_field_only),
        cmocka_unit_test(every_compared_field_has_a_name_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
