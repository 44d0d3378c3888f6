// SPDX-License-Identifier: AGPL-3.0-only
//
// Every device verb, failing at any of its calls, once or for ever: never a breach of contract, never
// a wrong result told as complete, and once the fault is lifted both ranks are READY again, after a
// restart where the end was terminal.
//
// Two applications play the same script round by round: memory and streams, eager ops of every kind
// on two streams, a graph of two ops replayed twice; a recovery and a restart in between. An op that either of
// them could not submit is lost with its epoch; every op told as complete is compared bit for bit.
#include "tests/support/rig.h"

#include <stdio.h>

#define MS RIG_MS
#define SECOND RIG_SECOND
#define SLOTS 7u // ops of a round: five eager ones, then the graph's
#define EAGER 5u
#define SLOT_BYTES 128u // of one rank's share
#define SLOT_ELEMENTS (SLOT_BYTES / 2)
#define SLOT_STRIDE 512u // holds every rank's share
#define UNTOUCHED 0x1234u

struct app {
    uint64_t buffer;
    uint64_t streams[2];
    bool registered;
    uint64_t capture; // 0: none
    bool captured;    // it is whole, and may be replayed
    struct rig_op ops[SLOTS];
};

struct script {
    struct rig *rig;
    const struct sc_sim_fault *fault;
    uint32_t world;
    struct app apps[3];
    uint64_t verified;
    bool bitten; // the fault has been met
};

static const char *const verb_names[SC_DEVICE_VERB_COUNT] = {
#define VERB_NAME(name) [SC_VERB_##name] = #name,
    SC_DEVICE_VERBS(VERB_NAME)
#undef VERB_NAME
};

static bool is_ready(const struct rig *rig, uint32_t rank) {
    return rig->ranks[rank].pump != NULL && rig_state(rig, rank) == SC_STATE_READY;
}

static const struct sc_device *device(struct script *s, uint32_t rank) {
    return sc_hal_check_device(s->rig->ranks[rank].check);
}

// ---- what an op holds before and after ----

static uint16_t value_of(uint32_t rank, uint32_t slot) {
    static const uint16_t values[] = {0x3F80, 0x4000, 0x4080}; // 1, 2, 4
    return values[(rank + slot) % 3];
}

// The sum over all ranks of what they put into a slot.
static uint16_t sum_of(uint32_t world, uint32_t slot) {
    static const uint16_t sums[] = {0x4040, 0x40C0, 0x40A0}; // 1 + 2, 2 + 4, 4 + 1
    return world == 3 ? 0x40E0 : sums[slot % 3];
}

static struct sc_op_desc desc_of(uint32_t rank, uint32_t slot) {
    static const uint32_t kinds[SLOTS] = {SC_OP_ALL_REDUCE,     SC_OP_BROADCAST, SC_OP_ALL_GATHER,
                                          SC_OP_REDUCE_SCATTER, SC_OP_SEND,      SC_OP_ALL_REDUCE,
                                          SC_OP_ALL_REDUCE};
    struct sc_op_desc desc = {.kind = kinds[slot], .bytes = SLOT_BYTES};
    if (desc.kind == SC_OP_SEND) { // rank 0 to rank 1
        desc.kind = rank == 0 ? SC_OP_SEND : SC_OP_RECV;
        desc.root = rank == 0 ? 1 : 0;
    }
    return desc;
}

static bool takes_part(uint32_t rank, uint32_t slot) {
    return slot != 4 || rank < 2;
}

static uint64_t address_of(const struct script *s, uint32_t rank, uint32_t slot) {
    return s->apps[rank].buffer + slot * SLOT_STRIDE;
}

// An op's source at the slot's beginning; all_gather and reduce_scatter write to where `dst` says.
static struct sc_op_place place_of(const struct script *s, uint32_t rank, uint32_t slot) {
    uint64_t address = address_of(s, rank, slot);
    struct sc_op_place place = {address, address, s->apps[rank].streams[slot < EAGER && slot % 2]};
    if (slot == 2)
        place.dst = address + SLOT_BYTES; // shares of all ranks, up to three
    if (slot == 3)
        place.dst = address + 3 * SLOT_BYTES;
    return place;
}

static void fill(struct script *s, uint32_t rank, uint32_t slot) {
    uint64_t address = address_of(s, rank, slot);
    rig_fill(s->rig, rank, address, SLOT_STRIDE / 2, UNTOUCHED);
    rig_fill(s->rig, rank, address, (slot == 3 ? s->world : 1) * SLOT_ELEMENTS,
             value_of(rank, slot));
}

// What a completed op must have left behind.
static void verify(struct script *s, uint32_t rank, uint32_t slot) {
    uint64_t address = address_of(s, rank, slot);
    s->verified++;
    switch (slot) {
    case 1: rig_expect_all(s->rig, rank, address, SLOT_ELEMENTS, value_of(0, slot)); return;
    case 2:
        for (uint32_t r = 0; r < s->world; r++)
            rig_expect_all(s->rig, rank, address + (1 + r) * SLOT_BYTES, SLOT_ELEMENTS,
                           value_of(r, slot));
        return;
    case 3:
        rig_expect_all(s->rig, rank, address + 3 * SLOT_BYTES, SLOT_ELEMENTS,
                       sum_of(s->world, slot));
        return;
    case 4: rig_expect_all(s->rig, rank, address, SLOT_ELEMENTS, value_of(0, slot)); return;
    default:
        rig_expect_all(s->rig, rank, address, SLOT_ELEMENTS, sum_of(s->world, slot));
        rig_expect_all(s->rig, rank, address + SLOT_BYTES, SLOT_ELEMENTS, UNTOUCHED);
        return;
    }
}

// ---- the script ----

// What an application needs before it can take part; tried again each round.
static bool equip(struct script *s, uint32_t rank) {
    struct app *app = &s->apps[rank];
    const struct sc_device *d = device(s, rank);
    if (app->buffer == 0 && d->mem_alloc(d->ctx, SLOTS * SLOT_STRIDE, &app->buffer) != SC_OK)
        return false;
    for (uint32_t i = 0; i < 2; i++)
        if (app->streams[i] == 0 && d->stream_create(d->ctx, &app->streams[i]) != SC_OK)
            return false;
    if (!app->registered)
        app->registered =
            sc_pump_register(s->rig->ranks[rank].pump, app->buffer, SLOTS * SLOT_STRIDE) == SC_OK;
    return app->registered;
}

// Gives back what equip will ask for anew, so that those verbs are called again and again, too.
static void unequip(struct script *s, uint32_t rank) {
    struct app *app = &s->apps[rank];
    const struct sc_device *d = device(s, rank);
    if (app->registered && sc_pump_deregister(s->rig->ranks[rank].pump, app->buffer) == SC_OK)
        app->registered = false;
    if (app->streams[1] != 0 && d->stream_destroy(d->ctx, app->streams[1]) == SC_OK)
        app->streams[1] = 0;
}

static bool release(struct script *s, uint32_t rank) {
    struct app *app = &s->apps[rank];
    if (app->capture != 0 &&
        sc_pump_capture_release(s->rig->ranks[rank].pump, app->capture) == SC_OK)
        app->capture = 0;
    app->captured = false;
    rig_touch(s->rig, rank);
    return app->capture == 0;
}

static bool is_settled(const struct script *s) {
    for (uint32_t r = 0; r < s->world; r++)
        for (uint32_t i = 0; i < SLOTS; i++) {
            const struct rig_op *op = &s->apps[r].ops[i];
            if (op->number != 0 && is_ready(s->rig, r) && rig_epoch(s->rig, r) == op->epoch &&
                !rig_is_done(s->rig, r, op))
                return false;
        }
    return true;
}

static void judge_ops(struct script *s, uint32_t first, uint32_t end) {
    rig_until(s->rig, 40 * SECOND, is_settled(s));
    for (uint32_t r = 0; r < s->world; r++)
        for (uint32_t i = first; i < end; i++) {
            const struct rig_op *op = &s->apps[r].ops[i];
            if (op->number == 0 || !rig_is_done(s->rig, r, op))
                continue;
            assert_int_equal(op->status, SC_OK); // what was told to have failed is never complete
            verify(s, r, i);
        }
    for (uint32_t r = 0; r < s->world; r++)
        memset(s->apps[r].ops, 0, sizeof s->apps[r].ops);
}

static void run_eager(struct script *s) {
    for (uint32_t slot = 0; slot < EAGER; slot++)
        for (uint32_t r = 0; r < s->world; r++) {
            fill(s, r, slot);
            if (is_ready(s->rig, r) && takes_part(r, slot))
                s->apps[r].ops[slot] =
                    rig_submit(s->rig, r, desc_of(r, slot), place_of(s, r, slot));
        }
    judge_ops(s, 0, EAGER);
}

static void capture(struct script *s, uint32_t rank) {
    struct app *app = &s->apps[rank];
    struct rig_rank *of = &s->rig->ranks[rank];
    uint64_t epoch = rig_epoch(s->rig, rank), opened = 0;
    if (sc_pump_capture_begin(of->pump, epoch, app->streams[0], &opened) != SC_OK)
        return;
    app->capture = opened;
    app->captured = true;
    for (uint32_t slot = EAGER; slot < SLOTS; slot++) {
        struct rig_op op = rig_submit(s->rig, rank, desc_of(rank, slot), place_of(s, rank, slot));
        app->captured = app->captured && op.status == SC_OK;
    }
    bool ended = sc_pump_capture_end(of->pump, app->capture) == SC_OK;
    app->captured = app->captured && ended;
}

static void replay(struct script *s, uint32_t rank) {
    struct app *app = &s->apps[rank];
    struct rig_rank *of = &s->rig->ranks[rank];
    struct rig_op op = {.epoch = rig_epoch(s->rig, rank)};
    op.status = sc_pump_replay_begin(of->pump, op.epoch, app->capture, app->streams[0], &op.number,
                                     &op.seq);
    rig_touch(s->rig, rank);
    if (op.status != SC_OK)
        return;
    sc_status launched = sc_sim_graph_launch(of->process, app->capture, app->streams[0]);
    op.status = sc_pump_replay_end(of->pump, op.number);
    if (launched != SC_OK)
        op.status = launched;
    for (uint32_t slot = EAGER; slot < SLOTS; slot++)
        app->ops[slot] = op;
}

// A capture that fails anywhere ends no epoch; the graph is replayed only where all have it.
static void run_graph(struct script *s) {
    bool all = true;
    for (uint32_t r = 0; r < s->world; r++) {
        if (is_ready(s->rig, r) && s->apps[r].capture == 0)
            capture(s, r);
        all = all && s->apps[r].captured && is_ready(s->rig, r);
    }
    for (uint32_t i = 0; i < 2 && all; i++) {
        for (uint32_t r = 0; r < s->world; r++) {
            for (uint32_t slot = EAGER; slot < SLOTS; slot++)
                fill(s, r, slot);
            if (is_ready(s->rig, r))
                replay(s, r);
        }
        judge_ops(s, EAGER, SLOTS);
    }
    for (uint32_t r = 0; r < s->world; r++)
        (void)release(s, r);
}

static bool is_equipped_and_ready(struct script *s) {
    bool all = rig_is_ready(s->rig);
    for (uint32_t r = 0; r < s->world && all; r++)
        all = equip(s, r);
    return all && rig_is_ready(s->rig);
}

static void run_round(struct script *s) {
    uint64_t until_ns = rig_now(s->rig) + 3 * SECOND;
    while (!rig_is_ready(s->rig) && rig_step(s->rig, until_ns)) {
    }
    for (uint32_t r = 0; r < s->world; r++)
        if (s->apps[r].capture != 0)
            (void)release(s, r);
    if (!is_equipped_and_ready(s))
        return;
    run_eager(s);
    run_graph(s);
    for (uint32_t r = 0; r < s->world; r++)
        unequip(s, r);
}

static void note_bite(struct script *s) {
    const struct sc_sim_fault *f = s->fault;
    s->bitten = s->bitten || rig_calls(s->rig, f->a, f->verb) >= f->nth;
}

// ---- what goes wrong besides ----

// A recovery: by the application's word, or because rank 1 froze and its abort held ours up.
static void disturb(struct script *s) {
    struct rig *rig = s->rig;
    if (s->fault->verb == SC_VERB_comm_abandon) {
        sc_sim_pause(rig->ranks[1].process);
        rig_run(rig, 8 * SECOND);
        sc_sim_resume(rig->ranks[1].process);
    } else if (is_ready(rig, 0)) {
        rig_reconnect(rig, 0);
    }
}

// Rank 1 leaves in order, and comes back as a new process.
static void restart(struct script *s) {
    struct rig *rig = s->rig;
    struct rig_rank *rank = &rig->ranks[1];
    if (rank->pump != NULL && sc_pump_close(rank->pump, false) == SC_OK) {
        (void)release(s, 1);
        uint64_t until_ns = rig_now(rig) + 12 * SECOND;
        while (rig_state(rig, 1) < SC_STATE_FAILED && rig_step(rig, until_ns)) {
        }
    }
    sc_pump_destroy(rank->pump);
    rank->pump = NULL;
    note_bite(s);
    rig_kill(rig, 1);
    memset(&s->apps[1], 0, sizeof s->apps[1]);
    assert_int_equal(rig_spawn(rig, 1, NULL), SC_OK);
}

static void expect_typed(const struct rig *rig, uint32_t rank) {
    struct sc_core_view view = rig_view(rig, rank);
    if (view.state == SC_STATE_FAILED && !sc_status_is_terminal((sc_status)view.cause.code))
        fail_msg("rank %u FAILED with %s, which is not terminal", rank,
                 sc_status_name((sc_status)view.cause.code));
}

static void respawn_ended(struct script *s) {
    for (uint32_t r = 0; r < s->world; r++) {
        if (s->rig->ranks[r].pump != NULL) {
            expect_typed(s->rig, r);
            if (rig_state(s->rig, r) != SC_STATE_FAILED)
                continue;
        }
        rig_kill(s->rig, r);
        memset(&s->apps[r], 0, sizeof s->apps[r]);
        assert_int_equal(rig_spawn(s->rig, r, NULL), SC_OK);
    }
}

// READY, and one flawless round.
static void expect_recovery(struct script *s) {
    uint64_t until_ns = rig_now(s->rig) + 60 * SECOND;
    do {
        for (uint32_t r = 0; r < s->world; r++)
            if (s->rig->ranks[r].pump != NULL && s->apps[r].capture != 0)
                (void)release(s, r);
        respawn_ended(s);
    } while (!rig_is_ready(s->rig) && rig_step(s->rig, until_ns));
    if (!is_equipped_and_ready(s))
        fail_msg("%s", "not all READY within 60 s of the fault's end");
    uint64_t epoch = rig_epoch(s->rig, 0), verified = s->verified;
    run_eager(s);
    run_graph(s);
    assert_true(rig_is_ready(s->rig));
    assert_int_equal(rig_epoch(s->rig, 0), epoch);
    assert_int_equal(s->verified, verified + s->world * 4 + 2 + s->world * 4);
}

// Returns whether the fault was met at all.
static bool run_case(uint32_t world, const struct sc_sim_fault *fault) {
    struct rig_config config = rig_config(world);
    config.core.capacity_bytes = 4096;
    config.core.ledger_ops = 16;
    config.core.timing.op_ns = 5 * SECOND;
    config.core.timing.behind_ns =
        5 * SECOND; // a rank that cannot submit any more must be found out
    config.core.timing.init_ns = 5 * SECOND;
    static char label[128]; // outlives a failure
    snprintf(label, sizeof label, "verb %s nth %u %s: %s on rank %u of %u", verb_names[fault->verb],
             fault->nth, fault->duration_ns != 0 ? "for ever" : "once",
             sc_status_name(fault->status), fault->a, world);
    struct script script = {.rig = rig_create(&config), .fault = fault, .world = world};
    script.rig->label = label;
    for (uint32_t r = 0; r < world; r++)
        (void)rig_spawn(script.rig, r, r == fault->a ? fault : NULL);
    run_round(&script);
    disturb(&script);
    run_round(&script);
    restart(&script);
    run_round(&script);
    note_bite(&script);
    sc_sim_heal(script.rig->sim);
    expect_recovery(&script);
    rig_finish(script.rig);
    return script.bitten;
}

// ---- the cases ----

// Whether a verb that runs out of memory is to be expected.
static bool takes_memory(enum sc_device_verb verb) {
    switch (verb) {
    case SC_VERB_comm_create:
    case SC_VERB_mem_alloc:
    case SC_VERB_buf_register:
    case SC_VERB_op_begin:
    case SC_VERB_stream_create:
    case SC_VERB_capture_begin:
    case SC_VERB_capture_end:
    case SC_VERB_replay_begin: return true;
    default: return false;
    }
}

static void run_verb(void **state) {
    static const sc_status statuses[] = {SC_DEVICE_ERROR, SC_CONTEXT_LOST, SC_NO_MEMORY};
    struct sc_sim_fault fault = {.kind = SC_SIM_verb_fails,
                                 .verb = *(const enum sc_device_verb *)*state};
    uint32_t bites = 0;
    // A world of two sums by itself; only a larger one asks the device to.
    uint32_t world = fault.verb == SC_VERB_all_reduce ? 3 : 2;
    for (uint32_t i = 0; i < 3; i++) {
        fault.status = statuses[i];
        if (fault.status == SC_NO_MEMORY && !takes_memory(fault.verb))
            continue;
        for (fault.nth = 1; fault.nth <= 12; fault.nth++)
            for (fault.duration_ns = 0; fault.duration_ns < 2; fault.duration_ns++)
                for (fault.a = 0; fault.a < 2; fault.a++)
                    bites += run_case(world, &fault);
    }
    assert_true(bites != 0); // every verb of the seam has its user
}

#define VERB_OF(name) SC_VERB_##name,
static enum sc_device_verb verbs[] = {SC_DEVICE_VERBS(VERB_OF)};

#define VERB_TEST(name)                                                                            \
    {"a_failing_" #name "_is_survived", run_verb, NULL, rig_teardown, &verbs[SC_VERB_##name]},

int main(void) {
    const struct CMUnitTest tests[] = {SC_DEVICE_VERBS(VERB_TEST)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
