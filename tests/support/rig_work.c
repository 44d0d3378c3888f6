// SPDX-License-Identifier: AGPL-3.0-only
//
// What a test does as a rank's application, and what it asks of the rig.
#include "tests/support/rig.h"

static const struct rig_rank *living(const struct rig *rig, uint32_t rank) {
    if (rank >= RIG_RANKS_MAX || rig->ranks[rank].pump == NULL)
        fail_msg("rank %u has no open pump", rank);
    return &rig->ranks[rank];
}

// ---- what is so ----

struct sc_core_view rig_view(const struct rig *rig, uint32_t rank) {
    struct sc_core_view view;
    sc_pump_view(living(rig, rank)->pump, &view);
    return view;
}

enum sc_state rig_state(const struct rig *rig, uint32_t rank) {
    return rig_view(rig, rank).state;
}

uint64_t rig_epoch(const struct rig *rig, uint32_t rank) {
    return rig_view(rig, rank).epoch;
}

bool rig_is_ready_after(const struct rig *rig, uint64_t epoch) {
    for (uint32_t r = 0; r < rig->config.core.world; r++) {
        if (rig->ranks[r].pump == NULL || rig_state(rig, r) != SC_STATE_READY ||
            rig_epoch(rig, r) <= epoch || rig_epoch(rig, r) != rig_epoch(rig, 0))
            return false;
    }
    return true;
}

bool rig_is_ready(const struct rig *rig) {
    return rig_is_ready_after(rig, 0);
}

struct sc_sim_held rig_held(const struct rig *rig, uint32_t rank) {
    struct sc_sim_held held;
    assert_non_null(rig->ranks[rank].process);
    sc_sim_held(rig->ranks[rank].process, &held);
    return held;
}

uint64_t rig_calls(const struct rig *rig, uint32_t rank, enum sc_device_verb verb) {
    return sc_hal_check_calls(rig->ranks[rank].check, verb);
}

uint64_t rig_calls_of_all_verbs(const struct rig *rig, uint32_t rank) {
    uint64_t calls = 0;
    for (int verb = 0; verb < SC_DEVICE_VERB_COUNT; verb++)
        calls += verb != SC_VERB_stream_check ? rig_calls(rig, rank, (enum sc_device_verb)verb) : 0;
    return calls;
}

uint32_t rig_notices(const struct rig *rig, uint32_t rank, enum sc_notice kind) {
    const struct rig_rank *of = &rig->ranks[rank];
    uint32_t count = 0;
    for (uint32_t i = 0; i < of->notices_count; i++)
        count += of->notices[i].notice.kind == (uint32_t)kind;
    return count;
}

const struct rig_notice *rig_change(const struct rig *rig, uint32_t rank, enum sc_state to) {
    const struct rig_rank *of = &rig->ranks[rank];
    for (uint32_t i = of->notices_count; i-- > 0;)
        if (of->notices[i].notice.kind == SC_NOTICE_STATE && of->notices[i].notice.b == to)
            return &of->notices[i];
    return NULL;
}

void rig_expect_cause(const struct rig *rig, uint32_t rank, sc_status code, uint32_t suspect) {
    const struct rig_notice *left = rig_change(rig, rank, SC_STATE_ABORTING);
    if (left == NULL)
        fail_msg("rank %u never left an epoch", rank);
    if (left->notice.status != (uint32_t)code || left->notice.rank != suspect)
        fail_msg("rank %u left with %s, suspect %d, and not with %s, suspect %d", rank,
                 sc_status_name((sc_status)left->notice.status), (int)left->notice.rank,
                 sc_status_name(code), (int)suspect);
}

// ---- memory ----

uint64_t rig_alloc(struct rig *rig, uint32_t rank, uint64_t bytes) {
    const struct sc_device *d = sc_hal_check_device(living(rig, rank)->check);
    uint64_t address = 0;
    assert_int_equal(d->mem_alloc(d->ctx, bytes, &address), SC_OK);
    return address;
}

uint16_t *rig_memory(struct rig *rig, uint32_t rank, uint64_t address, uint64_t elements) {
    void *bytes = sc_sim_memory(rig->ranks[rank].process, address, elements * SC_BF16_BYTES);
    assert_non_null(bytes);
    return bytes;
}

void rig_fill(struct rig *rig, uint32_t rank, uint64_t address, uint64_t elements, uint16_t value) {
    uint16_t *memory = rig_memory(rig, rank, address, elements);
    for (uint64_t i = 0; i < elements; i++)
        memory[i] = value;
}

void rig_expect_all(struct rig *rig, uint32_t rank, uint64_t address, uint64_t elements,
                    uint16_t value) {
    const uint16_t *memory = rig_memory(rig, rank, address, elements);
    for (uint64_t i = 0; i < elements; i++)
        if (memory[i] != value)
            fail_msg("rank %u, element %llu of %llu: %04x, not %04x", rank, (unsigned long long)i,
                     (unsigned long long)elements, memory[i], value);
}

// ---- ops ----

struct rig_op rig_submit(struct rig *rig, uint32_t rank, struct sc_op_desc desc,
                         struct sc_op_place place) {
    struct rig_op op = {.epoch = rig_epoch(rig, rank)};
    op.status = sc_pump_submit(rig->ranks[rank].pump, op.epoch, &desc, &place, &op.number, &op.seq);
    rig_touch(rig, rank);
    return op;
}

struct rig_op rig_all_reduce(struct rig *rig, uint32_t rank, uint64_t address, uint64_t bytes,
                             uint32_t stream) {
    return rig_submit(rig, rank, (struct sc_op_desc){.kind = SC_OP_ALL_REDUCE, .bytes = bytes},
                      (struct sc_op_place){address, address, rig->ranks[rank].streams[stream]});
}

bool rig_is_done(const struct rig *rig, uint32_t rank, const struct rig_op *op) {
    const struct rig_rank *of = &rig->ranks[rank];
    // An op is in flight with at most a ledger of others.
    uint32_t first = of->completions_count > 4 * rig->config.core.ledger_ops
                         ? of->completions_count - 4 * rig->config.core.ledger_ops
                         : 0;
    for (uint32_t i = of->completions_count; i-- > first;)
        if (of->completions[i].epoch == op->epoch && of->completions[i].number == op->number)
            return true;
    return false;
}

bool rig_is_lost(const struct rig *rig, uint32_t rank, const struct rig_op *op) {
    const struct rig_rank *of = &rig->ranks[rank];
    for (uint32_t i = of->losses_count; i-- > 0;)
        if (of->losses[i].epoch == op->epoch && of->losses[i].first <= op->number &&
            op->number <= of->losses[i].last)
            return true;
    return false;
}

sc_status rig_sync(struct rig *rig, uint32_t rank, uint64_t seq) {
    sc_status status = sc_pump_sync(living(rig, rank)->pump, rig_epoch(rig, rank), seq);
    rig_touch(rig, rank);
    return status;
}

bool rig_has_agreed(const struct rig *rig, uint32_t rank, uint64_t epoch, uint64_t seq) {
    return rig->ranks[rank].agreed_epoch == epoch && rig->ranks[rank].agreed >= seq;
}

void rig_reconnect(struct rig *rig, uint32_t rank) {
    assert_int_equal(sc_pump_reconnect(living(rig, rank)->pump, rig_epoch(rig, rank), 1), SC_OK);
    rig_touch(rig, rank);
}

void rig_compute(struct rig *rig, uint32_t rank, uint32_t stream, uint64_t duration_ns) {
    assert_int_equal(sc_sim_compute(living(rig, rank)->process, rig->ranks[rank].streams[stream],
                                    duration_ns, NULL, NULL),
                     SC_OK);
}
