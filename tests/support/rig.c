// SPDX-License-Identifier: AGPL-3.0-only
//
// The rig's world: processes born and killed, time, notices recorded, and the trace that a failure
// prints. What an application does stands in rig_work.c.
#include "tests/support/rig.h"

#include "core/crc32c.h"

#include <stdio.h>
#include <stdlib.h>

#define TRACE_LINES 256u
#define TRACE_LINE_BYTES 160u

static struct rig *open_rig;
static char trace[TRACE_LINES][TRACE_LINE_BYTES]; // the newest lines
static uint64_t trace_count;

// ---- the record ----

void rig_trace(struct rig *rig, uint32_t rank, const char *format, ...) {
    char *line = trace[trace_count++ % TRACE_LINES];
    int used =
        snprintf(line, TRACE_LINE_BYTES, "%12.6f s  rank %u  ", (double)rig_now(rig) / 1e9, rank);
    va_list args;
    va_start(args, format);
    if (used > 0 && used < (int)TRACE_LINE_BYTES)
        vsnprintf(line + used, TRACE_LINE_BYTES - (size_t)used, format, args);
    va_end(args);
}

static void print_trace(const struct rig *rig) {
    uint64_t first = trace_count > TRACE_LINES ? trace_count - TRACE_LINES : 0;
    print_error("seed %llu%s%s, at %.6f s; the last %llu lines of the trace:\n",
                (unsigned long long)rig->config.sim.seed, rig->label != NULL ? ", " : "",
                rig->label != NULL ? rig->label : "", (double)rig_now(rig) / 1e9,
                (unsigned long long)(trace_count - first));
    for (uint64_t i = first; i < trace_count; i++)
        print_error("%s\n", trace[i % TRACE_LINES]);
}

static void violated(struct rig *rig, uint32_t rank, const char *who, const char *text) {
    rig_trace(rig, rank, "%s: %s", who, text);
    if (rig->violations++ == 0)
        snprintf(rig->violation, sizeof rig->violation, "rank %u: %s: %.200s", rank, who, text);
}

static void on_violation(void *arg, uint32_t rank, const char *text) {
    violated(arg, rank, "simulator", text);
}

static void on_breach(void *arg, const char *text) {
    struct rig_rank *rank = arg;
    violated(rank->rig, rank->rank, "contract", text);
}

// Room for one more in a list that grows.
static void *grown(void *list, size_t bytes, uint32_t count, uint32_t *capacity) {
    if (count < *capacity)
        return list;
    *capacity = *capacity == 0 ? 64 : 2 * *capacity;
    void *larger = realloc(list, *capacity * bytes);
    assert_non_null(larger);
    return larger;
}

static void on_notice(void *arg, const struct sc_action *n) {
    struct rig_rank *rank = arg;
    rank->notices =
        grown(rank->notices, sizeof *rank->notices, rank->notices_count, &rank->notices_capacity);
    rank->notices[rank->notices_count++] = (struct rig_notice){rig_now(rank->rig), *n};
    const char *code = sc_status_name((sc_status)n->status);
    switch ((enum sc_notice)n->kind) {
    case SC_NOTICE_STATE:
        rig_trace(rank->rig, rank->rank, "%s -> %s epoch %llx %s suspect %d",
                  sc_state_name((enum sc_state)n->a), sc_state_name((enum sc_state)n->b),
                  (unsigned long long)n->epoch, code, (int)n->rank);
        return;
    case SC_NOTICE_AGREED:
        rank->agreed_epoch = n->epoch;
        rank->agreed = n->a;
        return;
    case SC_NOTICE_REFUSED:
        rig_trace(rank->rig, rank->rank, "hello of rank %u refused: %s, %llu and %llu", n->rank,
                  code, (unsigned long long)n->a, (unsigned long long)n->b);
        return;
    case SC_NOTICE_CAPTURES:
        rig_trace(rank->rig, rank->rank, "%llu captures to be released", (unsigned long long)n->a);
        return;
    default: rig_trace(rank->rig, rank->rank, "notice %u, rank %u", n->kind, n->rank); return;
    }
}

static void on_complete(void *arg, uint64_t epoch, uint64_t number, uint64_t seq) {
    struct rig_rank *rank = arg;
    rank->completions = grown(rank->completions, sizeof *rank->completions, rank->completions_count,
                              &rank->completions_capacity);
    rank->completions[rank->completions_count++] = (struct rig_completion){epoch, number, seq};
}

static void on_lost(void *arg, uint64_t epoch, uint64_t first, uint64_t last) {
    struct rig_rank *rank = arg;
    rank->losses =
        grown(rank->losses, sizeof *rank->losses, rank->losses_count, &rank->losses_capacity);
    rank->losses[rank->losses_count++] = (struct rig_loss){epoch, first, last};
    rig_trace(rank->rig, rank->rank, "ops %llu to %llu lost", (unsigned long long)first,
              (unsigned long long)last);
}

static void on_command(void *arg, uint32_t from, uint64_t epoch, const void *data, uint32_t bytes) {
    struct rig_rank *rank = arg;
    assert_int_equal(from, 0);
    rank->commands = grown(rank->commands, sizeof *rank->commands, rank->commands_count,
                           &rank->commands_capacity);
    rank->commands[rank->commands_count++] =
        (struct rig_command){epoch, bytes, sc_crc32c(0, data, bytes)};
}

// ---- lives ----

static void on_wake(void *arg) {
    struct rig_rank *rank = arg;
    if (rank->pump != NULL)
        sc_sim_timer(rank->process, sc_pump_run(rank->pump));
}

static sc_status open_pump(struct rig_rank *rank) {
    struct rig *rig = rank->rig;
    struct sc_pump_config config;
    sc_pump_config_init(&config);
    config.core = rig->config.core;
    config.core.rank = rank->rank;
    if (rig->config.core.world > 1) {
        config.master_host = "rank0.sim";
        config.master_port = 29500;
    }
    config.captures_max = rig->config.captures_max;
    config.link_buffer_bytes = rig->config.link_buffer_bytes;
    config.host = sc_sim_host(rank->process);
    config.link = sc_sim_link(rank->process);
    config.device = sc_hal_check_device(rank->check);
    config.on_notice = on_notice;
    config.on_complete = on_complete;
    config.on_lost = on_lost;
    config.on_command = on_command;
    config.arg = rank;
    return sc_pump_open(&config, &rank->pump, rig->why, sizeof rig->why);
}

sc_status rig_spawn(struct rig *rig, uint32_t number, const struct sc_sim_fault *fault) {
    struct rig_rank *rank = &rig->ranks[number];
    assert_null(rank->process);
    rank->rig = rig;
    rank->rank = number;
    const struct sc_hal_check_config checked = {
        .capacity_bytes = rig->config.core.capacity_bytes, .on_breach = on_breach, .arg = rank};
    assert_int_equal(sc_sim_spawn(rig->sim, number, on_wake, rank, &rank->process), SC_OK);
    rig_spy_make(rank);
    assert_int_equal(sc_hal_check_create(&rank->table, &checked, &rank->check), SC_OK);
    if (fault != NULL)
        rig_inject(rig, *fault);
    sc_status status = open_pump(rank);
    rig_trace(rig, number, "spawned: %s", status == SC_OK ? "open" : rig->why);
    const struct sc_device *d = sc_hal_check_device(rank->check);
    for (uint32_t i = 0; status == SC_OK && i < RIG_STREAMS; i++)
        (void)d->stream_create(d->ctx, &rank->streams[i]); // 0 where the test made it fail
    rig_touch(rig, number);
    return status;
}

void rig_kill(struct rig *rig, uint32_t number) {
    struct rig_rank *rank = &rig->ranks[number];
    if (rank->process == NULL)
        return;
    rig_trace(rig, number, "killed");
    sc_sim_kill(rank->process);
    sc_pump_destroy(rank->pump);
    sc_hal_check_destroy(rank->check);
    sc_sim_reap(rank->process);
    free(rank->notices);
    free(rank->completions);
    free(rank->losses);
    free(rank->commands);
    memset(rank, 0, sizeof *rank);
}

void rig_inject(struct rig *rig, struct sc_sim_fault fault) {
    rig_trace(rig, fault.a, "fault %s", sc_sim_fault_name(fault.kind));
    if (!sc_sim_inject(rig->sim, &fault))
        fail_msg("the fault %s found nothing to bite", sc_sim_fault_name(fault.kind));
}

// ---- worlds ----

struct rig_config rig_config(uint32_t world) {
    struct rig_config config = {.captures_max = 4, .link_buffer_bytes = 4096};
    sc_core_config_init(&config.core);
    config.core.world = world;
    config.core.job = 7;
    config.core.capacity_bytes = 65536;
    config.core.ledger_ops = 64;
    sc_sim_config_init(&config.sim, 1, world);
    return config;
}

struct rig *rig_create(const struct rig_config *config) {
    assert_null(open_rig);
    struct rig *rig = calloc(1, sizeof *rig);
    assert_non_null(rig);
    rig->config = *config;
    rig->config.sim.on_violation = on_violation;
    rig->config.sim.arg = rig;
    assert_int_equal(sc_sim_create(&rig->config.sim, &rig->sim), SC_OK);
    trace_count = 0;
    open_rig = rig;
    return rig;
}

struct rig *rig_start(const struct rig_config *config) {
    struct rig *rig = rig_create(config);
    for (uint32_t r = 0; r < config->core.world; r++)
        assert_int_equal(rig_spawn(rig, r, NULL), SC_OK);
    rig_until(rig, 5 * RIG_SECOND, rig_is_ready(rig));
    return rig;
}

struct rig *rig_start_world(uint32_t world) {
    const struct rig_config config = rig_config(world);
    return rig_start(&config);
}

static void destroy(struct rig *rig) {
    for (uint32_t r = 0; r < RIG_RANKS_MAX; r++)
        rig_kill(rig, r);
    sc_sim_destroy(rig->sim);
    open_rig = NULL;
}

static void judge(const struct rig *rig) {
    if (rig->violations != 0)
        fail_msg("%u breaches of contract, the first: %s", rig->violations, rig->violation);
    for (uint32_t r = 0; r < RIG_RANKS_MAX; r++)
        if (rig->ranks[r].process != NULL && sc_sim_group_depth(rig->ranks[r].process) != 0)
            fail_msg("rank %u left a group open", r);
}

void rig_finish(struct rig *rig) {
    judge(rig);
    // Memory ends with its process; only then are the red zones looked at.
    for (uint32_t r = 0; r < RIG_RANKS_MAX; r++)
        rig_kill(rig, r);
    judge(rig);
    destroy(rig);
    free(rig);
}

void rig_close(struct rig *rig) {
    for (uint32_t r = 0; r < rig->config.core.world; r++) {
        if (rig->ranks[r].pump == NULL)
            continue;
        sc_status status = sc_pump_close(rig->ranks[r].pump, true);
        assert_true(status == SC_OK || status == SC_CLOSED);
        rig_touch(rig, r);
    }
    for (uint32_t r = 0; r < rig->config.core.world; r++) {
        struct rig_rank *rank = &rig->ranks[r];
        if (rank->pump == NULL)
            continue;
        rig_until(rig, 2 * rig->config.core.timing.abort_ns + RIG_SECOND,
                  rig_state(rig, r) == SC_STATE_CLOSED);
        sc_pump_destroy(rank->pump);
        rank->pump = NULL;
        struct sc_sim_held held = rig_held(rig, r);
        assert_int_equal(held.communicators + held.quarantined, 0);
        assert_int_equal(held.ops + held.captures + held.registrations, 0);
        assert_int_equal(held.links + held.listeners, 0);
    }
    rig_finish(rig);
}

int rig_teardown(void **state) {
    (void)state;
    struct rig *rig = open_rig;
    if (rig == NULL)
        return 0;
    print_trace(rig); // the test did not come to its end
    destroy(rig);
    free(rig);
    return 0;
}

// ---- time ----

uint64_t rig_now(const struct rig *rig) {
    return sc_sim_now_ns(rig->sim);
}

bool rig_step(struct rig *rig, uint64_t until_ns) {
    bool more = sc_sim_step(rig->sim, until_ns);
    judge(rig);
    return more;
}

void rig_run(struct rig *rig, uint64_t ns) {
    uint64_t until_ns = rig_now(rig) + ns;
    while (rig_step(rig, until_ns)) {
    }
}

void rig_touch(struct rig *rig, uint32_t rank) {
    if (rig->ranks[rank].pump != NULL)
        sc_sim_timer(rig->ranks[rank].process, rig_now(rig));
}

void rig_miss(const struct rig *rig, const char *condition, uint64_t limit_ns, const char *file,
              int line) {
    for (uint32_t r = 0; r < rig->config.core.world; r++)
        if (rig->ranks[r].pump != NULL)
            print_error("rank %u is %s\n", r, sc_state_name(rig_state(rig, r)));
    print_error("not within %.3f s: %s\n", (double)limit_ns / 1e9, condition);
    _fail(file, line);
}
