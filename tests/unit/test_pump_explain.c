// SPDX-License-Identifier: AGPL-3.0-only
//
// What a pump says of its links, with link tables that can explain and such that cannot.
#include "core/assert.h"
#include "tests/support/sockets_rig.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct sc_posix *posix;
static struct sc_instant_device *instant;
static struct sc_link link_table; // posix's, to be altered
static struct sc_pump_config config;
static int reserved_fd;

static int create(void **state) {
    (void)state;
    SC_ASSERT(sc_posix_create(&posix) == SC_OK);
    SC_ASSERT(sc_instant_device_create(&instant) == SC_OK);
    link_table = *sc_posix_link(posix);
    sc_pump_config_init(&config);
    config.core.world = 2;
    config.core.capacity_bytes = 65536;
    config.master_host = V4;
    config.master_port = sockets_reserve(V4, &reserved_fd);
    config.host = sc_posix_host(posix);
    config.link = &link_table;
    config.device = sc_instant_device_table(instant);
    return config.master_port != 0 ? 0 : -1;
}

static int destroy(void **state) {
    (void)state;
    sc_posix_destroy(posix);
    sc_instant_device_destroy(instant);
    return close(reserved_fd);
}

static void cut_before_explain(void) {
    link_table.size = offsetof(struct sc_link, explain);
}

static void leave_explain_out(void) {
    link_table.explain = NULL;
}

static const char *explain_nothing(void *ctx, char *text, size_t bytes) {
    (void)ctx, (void)bytes;
    text[0] = '\0';
    return text;
}

static void have_nothing_to_say(void) {
    link_table.explain = explain_nothing;
}

static void (*const alterations[])(void) = {cut_before_explain, leave_explain_out,
                                            have_nothing_to_say};
enum { ALTERATIONS = sizeof alterations / sizeof alterations[0] };

static void expect_open_fails_saying(const char *rest) {
    struct sc_pump *pump = NULL;
    char why[256], wanted[256];
    assert_int_equal(sc_pump_open(&config, &pump, why, sizeof why), SC_BIND);
    snprintf(wanted, sizeof wanted, "open: listen on %s port %u%s: %s", V4,
             (unsigned)config.master_port, rest, sc_status_sentence(SC_BIND));
    assert_string_equal(why, wanted);
}

static void failed_open_names_address_and_reason(void **state) {
    uint64_t listener;
    (void)state;
    assert_int_equal(link_table.listen(link_table.ctx, V4, config.master_port, &listener), SC_OK);
    expect_open_fails_saying(", address 127.0.0.1: Address already in use");
    for (uint32_t i = 0; i < ALTERATIONS; i++) {
        link_table = *sc_posix_link(posix);
        alterations[i]();
        expect_open_fails_saying("");
    }
}

static void pump_explains_its_links_or_says_nothing(void **state) {
    struct sc_pump *pump = NULL;
    char why[256], text[256], wanted[256];
    (void)state;
    assert_int_equal(sc_pump_open(&config, &pump, why, sizeof why), SC_OK);
    snprintf(wanted, sizeof wanted, "%s port %u, address %s", V4, (unsigned)config.master_port, V4);
    assert_ptr_equal(sc_pump_explain(pump, text, sizeof text), text);
    assert_memory_equal(text, wanted, strlen(wanted));
    assert_non_null(strstr(text, ": listening"));
    for (uint32_t i = 0; i < ALTERATIONS; i++) {
        link_table = *sc_posix_link(posix);
        alterations[i]();
        memset(text, 'x', sizeof text);
        assert_string_equal(sc_pump_explain(pump, text, sizeof text), "");
    }
    sc_pump_destroy(pump);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(failed_open_names_address_and_reason, create, destroy),
        cmocka_unit_test_setup_teardown(pump_explains_its_links_or_says_nothing, create, destroy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
