// SPDX-License-Identifier: AGPL-3.0-only
//
// The registry remembers buffers in order, each address once, up to its bound.
#include "core/registry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct sc_registry registry;

static int empty_registry(void **state) {
    (void)state;
    memset(&registry, 0, sizeof registry);
    return 0;
}

static void an_added_buffer_is_found_without_a_registration(void **state) {
    (void)state;
    assert_int_equal(sc_registry_add(&registry, 4096, 64), SC_OK);

    struct sc_registry_entry *entry = sc_registry_find(&registry, 4096);
    assert_non_null(entry);
    assert_int_equal(entry->address, 4096);
    assert_int_equal(entry->bytes, 64);
    assert_int_equal(entry->registration, 0);
    assert_int_equal(entry->epoch, 0);
    assert_null(sc_registry_find(&registry, 4098)); // inside is not its beginning
}

static void an_address_is_taken_once(void **state) {
    (void)state;
    assert_int_equal(sc_registry_add(&registry, 4096, 64), SC_OK);
    assert_int_equal(sc_registry_add(&registry, 4096, 128), SC_INVALID);
    assert_int_equal(registry.count, 1);
    assert_int_equal(sc_registry_find(&registry, 4096)->bytes, 64);
}

static void buffers_may_overlap(void **state) {
    (void)state;
    assert_int_equal(sc_registry_add(&registry, 4096, 64), SC_OK);
    assert_int_equal(sc_registry_add(&registry, 4098, 64), SC_OK);
    assert_int_equal(registry.count, 2);
}

static void an_impossible_buffer_is_refused(void **state) {
    (void)state;
    assert_int_equal(sc_registry_add(&registry, 4096, 0), SC_INVALID);
    assert_int_equal(sc_registry_add(&registry, 0, 64), SC_INVALID);
    assert_int_equal(sc_registry_add(&registry, UINT64_MAX - 63, 64), SC_INVALID);
    assert_int_equal(sc_registry_add(&registry, UINT64_MAX - 64, 64), SC_OK);
    assert_int_equal(registry.count, 1);
}

static void a_full_registry_refuses_until_one_is_removed(void **state) {
    (void)state;
    for (uint64_t i = 1; i <= SC_REGISTRY_MAX; i++)
        assert_int_equal(sc_registry_add(&registry, i * 4096, 64), SC_OK);
    assert_int_equal(sc_registry_add(&registry, 64, 64), SC_NO_MEMORY);
    assert_int_equal(registry.count, SC_REGISTRY_MAX);
    assert_int_equal(sc_registry_remove(&registry, 4096, NULL), SC_OK);
    assert_int_equal(sc_registry_add(&registry, 64, 64), SC_OK);
    assert_int_equal(registry.entries[SC_REGISTRY_MAX - 1].address, 64);
}

static void removal_tells_the_registration_and_keeps_the_order(void **state) {
    struct sc_registry_entry entry;

    (void)state;
    for (uint64_t i = 1; i <= 4; i++)
        assert_int_equal(sc_registry_add(&registry, i * 4096, i), SC_OK);
    sc_registry_find(&registry, 2 * 4096)->registration = 77;
    sc_registry_find(&registry, 2 * 4096)->epoch = 9;

    assert_int_equal(sc_registry_remove(&registry, 2 * 4096, &entry), SC_OK);
    assert_int_equal(entry.bytes, 2);
    assert_int_equal(entry.registration, 77);
    assert_int_equal(entry.epoch, 9);
    assert_int_equal(registry.count, 3);
    assert_int_equal(registry.entries[0].bytes, 1);
    assert_int_equal(registry.entries[1].bytes, 3);
    assert_int_equal(registry.entries[2].bytes, 4);
}

static void removal_of_an_unknown_buffer_is_refused(void **state) {
    struct sc_registry_entry entry = {.bytes = 5};

    (void)state;
    assert_int_equal(sc_registry_add(&registry, 4096, 64), SC_OK);
    assert_int_equal(sc_registry_remove(&registry, 4098, &entry), SC_INVALID);
    assert_int_equal(entry.bytes, 5);
    assert_int_equal(registry.count, 1);
    assert_int_equal(sc_registry_remove(&registry, 4096, NULL), SC_OK);
    assert_int_equal(sc_registry_remove(&registry, 4096, NULL), SC_INVALID);
}

#define TEST(name) cmocka_unit_test_setup(name, empty_registry)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(an_added_buffer_is_found_without_a_registration),
        TEST(an_address_is_taken_once),
        TEST(buffers_may_overlap),
        TEST(an_impossible_buffer_is_refused),
        TEST(a_full_registry_refuses_until_one_is_removed),
        TEST(removal_tells_the_registration_and_keeps_the_order),
        TEST(removal_of_an_unknown_buffer_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
