// SPDX-License-Identifier: AGPL-3.0-only
//
// Ranks that were configured differently: both sides are told within a second, with the field and both
// values, before any id was drawn. The lab gives all ranks one configuration, so here are pumps over a
// simulated world, without any application.
#include "core/pump.h"
#include "hal/hal_check.h"
#include "hal_sim/sc_sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)
#define PROCESSES_MAX 4u
#define SIM_WORLD 4u // wide enough for ranks that do not belong
#define CAPACITY_BYTES 8192u
#define LIBRARY 22809u
#define LIBRARY_OTHER 22703u

struct process {
    struct sc_sim *sim;
    struct sc_sim_process *process;
    struct sc_hal_check *check;
    struct sc_pump *pump;
    struct sc_action refusal; // the first one; type 0: none
    uint64_t refused_ns;
    uint64_t failed_ns;
    uint64_t state;
};

struct world {
    struct sc_sim *sim;
    const char *host; // rank 0's address, as every rank is told it
    uint16_t port;
    struct process list[PROCESSES_MAX];
    uint32_t count;
};

static void on_breach(void *arg, const char *text) {
    (void)arg;
    fail_msg("contract: %s", text);
}

static void on_violation(void *arg, uint32_t rank, const char *text) {
    (void)arg;
    fail_msg("rank %u: %s", rank, text);
}

static void on_notice(void *arg, const struct sc_action *notice) {
    struct process *p = arg;

    if (notice->kind == SC_NOTICE_REFUSED && p->refused_ns == 0) {
        p->refusal = *notice;
        p->refused_ns = sc_sim_now_ns(p->sim);
    }
    if (notice->kind != SC_NOTICE_STATE)
        return;
    p->state = notice->b;
    if (notice->b == SC_STATE_FAILED)
        p->failed_ns = sc_sim_now_ns(p->sim);
}

static void on_wake(void *arg) {
    struct process *p = arg;

    sc_sim_timer(p->process, sc_pump_run(p->pump));
}

static void begin(struct world *w) {
    struct sc_sim_config config;

    memset(w, 0, sizeof *w);
    w->host = "rank0.sim";
    w->port = 29500;
    sc_sim_config_init(&config, 1, SIM_WORLD);
    config.on_violation = on_violation;
    assert_int_equal(sc_sim_create(&config, &w->sim), SC_OK);
}

static struct sc_core_config config_of(uint32_t rank) {
    struct sc_core_config config;

    sc_core_config_init(&config);
    config.rank = rank;
    config.world = 2;
    config.job = 7;
    config.capacity_bytes = CAPACITY_BYTES;
    config.library = LIBRARY;
    return config;
}

// A process of the rank that the configuration names. NULL when it could not open: `status` and `why`
// say why.
static struct process *open_process(struct world *w, const struct sc_core_config *core,
                                    sc_status *status, char *why, size_t why_bytes) {
    const struct sc_hal_check_config checked = {.on_breach = on_breach};
    struct process *p = &w->list[w->count++];
    struct sc_pump_config config;

    assert_true(w->count <= PROCESSES_MAX);
    p->sim = w->sim;
    assert_int_equal(sc_sim_spawn(w->sim, core->rank, on_wake, p, &p->process), SC_OK);
    assert_int_equal(sc_hal_check_create(sc_sim_device(p->process), &checked, &p->check), SC_OK);
    sc_pump_config_init(&config);
    config.core = *core;
    config.master_host = w->host;
    config.master_port = w->port;
    config.host = sc_sim_host(p->process);
    config.link = sc_sim_link(p->process);
    config.device = sc_hal_check_device(p->check);
    config.on_notice = on_notice;
    config.arg = p;
    *status = sc_pump_open(&config, &p->pump, why, why_bytes);
    if (*status != SC_OK)
        return NULL;
    sc_sim_timer(p->process, sc_sim_now_ns(w->sim));
    return p;
}

static struct process *start(struct world *w, const struct sc_core_config *core) {
    char why[256];
    sc_status status;
    struct process *p = open_process(w, core, &status, why, sizeof why);

    if (p == NULL)
        fail_msg("%s", why);
    return p;
}

static void run_for(struct world *w, uint64_t duration_ns) {
    uint64_t until_ns = sc_sim_now_ns(w->sim) + duration_ns;

    while (sc_sim_step(w->sim, until_ns)) {
    }
}

static void end(struct world *w) {
    for (uint32_t i = 0; i < w->count; i++) {
        sc_pump_destroy(w->list[i].pump);
        sc_hal_check_destroy(w->list[i].check);
    }
    sc_sim_destroy(w->sim);
}

static void both_are_ready(const struct process *a, const struct process *b) {
    assert_int_equal(a->state, SC_STATE_READY);
    assert_int_equal(b->state, SC_STATE_READY);
}

// ---- what the two sides were told ---------------------------------------------------------------

struct difference {
    enum sc_config_field field;
    uint64_t mine, theirs; // the coordinator's value and the member's
};

static void refused_with(const struct process *p, const struct difference *wanted) {
    assert_int_equal(p->refusal.status, SC_CONFIG);
    assert_int_equal(p->refusal.mask, wanted->field);
    assert_int_equal(p->refusal.a, wanted->mine);
    assert_int_equal(p->refusal.b, wanted->theirs);
    assert_in_range(p->refused_ns, 1, SECOND);
}

static void nobody_drew_an_id(const struct world *w) {
    for (uint32_t i = 0; i < w->count; i++) {
        assert_int_equal(sc_hal_check_calls(w->list[i].check, SC_VERB_comm_id), 0);
        assert_int_equal(sc_hal_check_calls(w->list[i].check, SC_VERB_comm_create), 0);
    }
}

// A member with another configuration meets the coordinator; then one with the right one takes the
// place that it did not get.
static void differs(const struct sc_core_config *other, const struct difference *wanted) {
    const struct sc_core_config zero = config_of(0), one = config_of(1);
    struct world w;
    struct sc_core_view view;

    begin(&w);
    struct process *coordinator = start(&w, &zero);
    struct process *member = start(&w, other);
    run_for(&w, SECOND);
    refused_with(coordinator, wanted);
    assert_int_equal(coordinator->refusal.rank, other->rank);
    refused_with(member, wanted);
    nobody_drew_an_id(&w);

    // The member's configuration is wrong for good; the coordinator waits for a better one.
    sc_pump_view(member->pump, &view);
    assert_int_equal(view.state, SC_STATE_FAILED);
    assert_in_range(member->failed_ns, 1, SECOND);
    assert_int_equal(view.cause.code, SC_CONFIG);
    assert_int_equal(view.cause.field, wanted->field);
    assert_int_equal(view.cause.value[0], wanted->mine);
    assert_int_equal(view.cause.value[1], wanted->theirs);
    assert_int_equal(coordinator->state, SC_STATE_RENDEZVOUS);
    struct process *right = start(&w, &one);
    run_for(&w, 2 * SECOND);
    both_are_ready(coordinator, right);
    end(&w);
}

static void another_world_is_told_to_both(void **state) {
    struct sc_core_config other = config_of(1);

    (void)state;
    other.world = 4;
    differs(&other, &(struct difference){SC_FIELD_WORLD, 2, 4});
}

static void a_rank_of_a_larger_world_is_told_to_both(void **state) {
    struct sc_core_config other = config_of(2);

    (void)state;
    other.world = 3;
    differs(&other, &(struct difference){SC_FIELD_WORLD, 2, 3});
}

static void another_capacity_is_told_to_both(void **state) {
    struct sc_core_config other = config_of(1);

    (void)state;
    other.capacity_bytes = 2 * CAPACITY_BYTES;
    differs(&other, &(struct difference){SC_FIELD_CAPACITY, CAPACITY_BYTES, 2 * CAPACITY_BYTES});
}

static void another_library_version_is_told_to_both(void **state) {
    struct sc_core_config other = config_of(1);

    (void)state;
    other.library = LIBRARY_OTHER;
    differs(&other, &(struct difference){SC_FIELD_LIBRARY, LIBRARY, LIBRARY_OTHER});
}

static void another_job_is_told_to_both(void **state) {
    struct sc_core_config other = config_of(1);

    (void)state;
    other.job = 8;
    differs(&other, &(struct difference){SC_FIELD_JOB, 7, 8});
}

// What is different first in the order of enum sc_config_field is told; the rest would follow from it
// or come next time.
static void the_first_of_several_differences_is_told(void **state) {
    struct sc_core_config other = config_of(1);

    (void)state;
    other.library = LIBRARY_OTHER;
    other.capacity_bytes = 2 * CAPACITY_BYTES;
    differs(&other, &(struct difference){SC_FIELD_CAPACITY, CAPACITY_BYTES, 2 * CAPACITY_BYTES});
}

// A mistake in the configuration of one rank does not harm those that are at work.
static void a_wrong_latecomer_disturbs_no_epoch(void **state) {
    const struct sc_core_config zero = config_of(0), one = config_of(1);
    struct sc_core_config other = config_of(1);
    struct sc_core_view before, after;
    struct world w;

    (void)state;
    other.capacity_bytes = 2 * CAPACITY_BYTES;
    begin(&w);
    struct process *coordinator = start(&w, &zero);
    struct process *member = start(&w, &one);
    run_for(&w, 2 * SECOND);
    both_are_ready(coordinator, member);
    sc_pump_view(coordinator->pump, &before);
    struct process *latecomer = start(&w, &other);
    run_for(&w, SECOND);
    assert_int_equal(latecomer->state, SC_STATE_FAILED);
    assert_int_equal(coordinator->refusal.status, SC_CONFIG);
    both_are_ready(coordinator, member);
    sc_pump_view(coordinator->pump, &after);
    assert_true(before.epoch == after.epoch && after.recoveries == 0);
    end(&w);
}

// ---- what no peer is needed for -----------------------------------------------------------------

static void a_rank_out_of_range_cannot_open(void **state) {
    struct sc_core_config other = config_of(2);
    char why[256];
    sc_status status;
    struct world w;

    (void)state;
    begin(&w);
    assert_null(open_process(&w, &other, &status, why, sizeof why));
    assert_int_equal(status, SC_INVALID);
    assert_non_null(strstr(why, "rank"));
    end(&w);
}

static void no_rank_opens_without_rank_0s_address(void **state) {
    static const struct {
        const char *host;
        uint16_t port;
        const char *said;
    } rows[] = {{NULL, 29500, "master_host"}, {"", 29500, "master_host"}, {"x", 0, "master_port"}};
    char why[256];
    sc_status status;
    struct world w;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (uint32_t rank = 0; rank < 2; rank++) {
            const struct sc_core_config core = config_of(rank);
            begin(&w);
            w.host = rows[i].host;
            w.port = rows[i].port;
            assert_null(open_process(&w, &core, &status, why, sizeof why));
            assert_int_equal(status, SC_INVALID);
            assert_non_null(strstr(why, rows[i].said));
            end(&w);
        }
    }
}

static void a_lone_rank_needs_no_address_and_listens_to_nobody(void **state) {
    static const char *const hosts[] = {NULL, "", "no.such.host"};
    struct sc_core_config alone = config_of(0);
    struct sc_sim_held held;
    struct world w;

    (void)state;
    alone.world = 1;
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        begin(&w);
        w.host = hosts[i];
        w.port = 0;
        struct process *p = start(&w, &alone);
        run_for(&w, 2 * SECOND);
        assert_int_equal(p->state, SC_STATE_READY);
        sc_sim_held(p->process, &held);
        assert_int_equal(held.listeners, 0);
        end(&w);
    }
}

static void a_second_coordinator_cannot_open_and_disturbs_nobody(void **state) {
    const struct sc_core_config zero = config_of(0), one = config_of(1);
    char why[256];
    sc_status status;
    struct world w;

    (void)state;
    begin(&w);
    struct process *coordinator = start(&w, &zero);
    assert_null(open_process(&w, &zero, &status, why, sizeof why));
    assert_int_equal(status, SC_BIND);
    assert_non_null(strstr(why, "rank0.sim port 29500"));
    struct process *member = start(&w, &one);
    run_for(&w, 2 * SECOND);
    both_are_ready(coordinator, member);
    end(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_world_is_told_to_both),
        cmocka_unit_test(a_rank_of_a_larger_world_is_told_to_both),
        cmocka_unit_test(another_capacity_is_told_to_both),
        cmocka_unit_test(another_library_version_is_told_to_both),
        cmocka_unit_test(another_job_is_told_to_both),
        cmocka_unit_test(the_first_of_several_differences_is_told),
        cmocka_unit_test(a_wrong_latecomer_disturbs_no_epoch),
        cmocka_unit_test(a_rank_out_of_range_cannot_open),
        cmocka_unit_test(no_rank_opens_without_rank_0s_address),
        cmocka_unit_test(a_lone_rank_needs_no_address_and_listens_to_nobody),
        cmocka_unit_test(a_second_coordinator_cannot_open_and_disturbs_nobody),
    };
    return cmocka_run_group_tests_name("lab_config", tests, NULL, NULL);
}
