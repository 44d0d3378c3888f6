// SPDX-License-Identifier: AGPL-3.0-only
//
// A checked device to be misused. The device behind is the instant one; a second checker between the
// two counts what arrives.
#ifndef SC_TEST_HAL_CHECK_FIXTURE_H
#define SC_TEST_HAL_CHECK_FIXTURE_H

#include "hal/hal_check.h"
#include "tests/support/instant_device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CAPACITY_BYTES 4096u
#define EPOCH 7u
#define STREAM 0x57u // the application's own

struct fixture {
    struct sc_instant_device *instant;
    struct sc_hal_check *spy;
    struct sc_device fake; // the spy's table, for single verbs to be replaced
    struct sc_hal_check *check;
    const struct sc_device *device; // what is tested
    void *ctx;
    char text[256]; // the last report
    uint64_t comm;  // ready, of EPOCH, which the fence holds
    uint64_t memory;
    uint8_t ids;
};

static inline void note_breach(void *arg, const char *text) {
    struct fixture *f = arg;

    snprintf(f->text, sizeof f->text, "%s", text);
}

static inline uint64_t calls_behind(const struct fixture *f) {
    uint64_t calls = 0;

    for (int verb = 0; verb < SC_DEVICE_VERB_COUNT; verb++)
        calls += sc_hal_check_calls(f->spy, (enum sc_device_verb)verb);
    return calls;
}

// The call is answered SC_STATE, reported with these words, and not passed on.
#define assert_breach(f, words, call)                                                              \
    do {                                                                                           \
        uint64_t breaches_ = sc_hal_check_breaches((f)->check), calls_ = calls_behind(f);          \
        assert_int_equal(call, SC_STATE);                                                          \
        assert_int_equal(sc_hal_check_breaches((f)->check), breaches_ + 1);                        \
        if (strstr((f)->text, words) == NULL)                                                      \
            fail_msg("\"%s\" is not in the report \"%s\"", words, (f)->text);                      \
        assert_int_equal(calls_behind(f), calls_);                                                 \
    } while (0)

// The device is at fault: its answer comes through, and these words are reported.
#define assert_device_breach(f, words, answer, call)                                               \
    do {                                                                                           \
        uint64_t breaches_ = sc_hal_check_breaches((f)->check);                                    \
        assert_int_equal(call, answer);                                                            \
        assert_int_equal(sc_hal_check_breaches((f)->check), breaches_ + 1);                        \
        if (strstr((f)->text, words) == NULL)                                                      \
            fail_msg("\"%s\" is not in the report \"%s\"", words, (f)->text);                      \
    } while (0)

#define assert_ok(call) assert_int_equal(call, SC_OK)

static inline uint64_t create_comm(struct fixture *f, uint64_t epoch) {
    struct sc_comm_spec spec = {.epoch = epoch, .rank = 0, .world = 2};
    uint64_t comm = 0;

    spec.id.bytes[0] = ++f->ids;
    assert_ok(f->device->comm_create(f->ctx, &spec, &comm));
    return comm;
}

static inline enum sc_comm_state poll_comm(struct fixture *f, uint64_t comm) {
    struct sc_comm_report report;

    assert_ok(f->device->comm_poll(f->ctx, comm, &report));
    return report.state;
}

static inline uint64_t begin_op(struct fixture *f) {
    uint64_t op = 0;

    assert_ok(f->device->op_begin(f->ctx, STREAM, &op));
    return op;
}

static inline int set_up(void **state) {
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    assert_ok(sc_instant_device_create(&f->instant));
    assert_ok(sc_hal_check_create(sc_instant_device_table(f->instant), NULL, &f->spy));
    f->fake = *sc_hal_check_device(f->spy);
    struct sc_hal_check_config config = {CAPACITY_BYTES, note_breach, f};
    assert_ok(sc_hal_check_create(&f->fake, &config, &f->check));
    f->device = sc_hal_check_device(f->check);
    f->ctx = f->device->ctx;
    f->comm = create_comm(f, EPOCH);
    assert_int_equal(poll_comm(f, f->comm), SC_COMM_READY);
    assert_ok(f->device->fence_set(f->ctx, EPOCH));
    assert_ok(f->device->mem_alloc(f->ctx, CAPACITY_BYTES, &f->memory));
    *state = f;
    return 0;
}

static inline int tear_down(void **state) {
    struct fixture *f = *state;

    sc_hal_check_destroy(f->check);
    sc_hal_check_destroy(f->spy);
    sc_instant_device_destroy(f->instant);
    free(f);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
