// SPDX-License-Identifier: AGPL-3.0-only
//
// Submits and completions of the live epoch.
//
// Everything about an op is judged here before anything is enqueued: the epoch its caller believes
// in, its kind, its payload against the capacity, room in the ledger. A refused op took no seq.
#include "core/capacity.h"
#include "core/inside.h"

static sc_status check_desc(const struct sc_core *c, const struct sc_op_desc *desc) {
    if (desc->kind >= SC_OP_KIND_COUNT || desc->root >= c->config.world)
        return SC_INVALID;
    if (!sc_op_is_collective(desc->kind) && desc->root == c->config.rank)
        return SC_INVALID;
    return SC_OK;
}

// Both sides of the payload. The one that holds every rank's share is world times as large.
static sc_status check_place(const struct sc_core *c, const struct sc_op_desc *desc,
                             const struct sc_op_place *place) {
    uint64_t whole, src = desc->bytes, dst = desc->bytes;
    if (SC_MUTANT(5))
        return SC_OK;
    if (__builtin_mul_overflow(desc->bytes, (uint64_t)c->config.world, &whole))
        return SC_TOO_LARGE;
    if (desc->kind == SC_OP_ALL_GATHER)
        dst = whole;
    else if (desc->kind == SC_OP_REDUCE_SCATTER)
        src = whole;
    sc_status status = sc_payload_check(place->src, src, c->config.capacity_bytes);
    if (status == SC_OK)
        status = sc_payload_check(place->dst, dst, c->config.capacity_bytes);
    bool in_place = desc->kind == SC_OP_ALL_REDUCE || desc->kind == SC_OP_BROADCAST;
    return status == SC_OK && in_place && place->src != place->dst ? SC_INVALID : status;
}

bool sc_core_op_is_void(const struct sc_core *c, const struct sc_op_desc *desc) {
    return desc->bytes == 0 || (c->config.world == 1 &&
                                (desc->kind == SC_OP_ALL_REDUCE || desc->kind == SC_OP_BROADCAST));
}

static void complete(struct sc_core *c, struct sc_ledger_entry *entry, struct sc_actions *out) {
    sc_ledger_finish(ledger_of(c), entry);
    PUSH(out, .type = SC_ACTION_OP_COMPLETE, .epoch = c->epoch, .a = entry->number,
         .b = sc_ledger_last_seq(entry));
}

static sc_status epoch_verdict(const struct sc_core *c, const struct sc_event *in) {
    return in->epoch == c->epoch || SC_MUTANT(10) ? SC_OK : SC_EPOCH_LOST;
}

sc_status sc_core_check_op(const struct sc_core *c, const struct sc_op_desc *desc,
                           const struct sc_op_place *place) {
    sc_status verdict = check_desc(c, desc);
    return verdict != SC_OK ? verdict : check_place(c, desc, place);
}

sc_status sc_submit_launches(struct sc_core *c, const struct sc_event *in, struct sc_actions *out) {
    const struct sc_op_desc *desc = &in->u.submit.desc;
    bool nothing = sc_core_op_is_void(c, desc);
    uint64_t stream = nothing ? SC_STREAM_NONE : in->u.submit.place.stream;
    sc_status verdict = epoch_verdict(c, in);
    if (verdict == SC_OK)
        verdict = sc_core_check_op(c, desc, &in->u.submit.place);
    if (verdict == SC_OK)
        verdict = sc_ledger_room(ledger_of(c), stream, sc_op_is_collective(desc->kind));
    if (verdict != SC_OK)
        return verdict;
    struct sc_ledger_entry *entry = sc_ledger_push(ledger_of(c), stream, desc, 1);
    if (nothing)
        complete(c, entry, out);
    else
        PUSH(out, .type = SC_ACTION_LAUNCH, .epoch = c->epoch, .a = entry->number,
             .b = entry->first_seq);
    sc_agreement_after_submit(c, out);
    return SC_OK;
}

sc_status sc_replay_launches(struct sc_core *c, const struct sc_event *in, struct sc_actions *out) {
    uint32_t count = in->u.replay.count, seqs = 0;
    sc_status verdict = epoch_verdict(c, in);
    if (verdict == SC_OK && count == 0)
        verdict = SC_INVALID;
    for (uint32_t i = 0; i < count && verdict == SC_OK; i++) {
        verdict = check_desc(c, &in->u.replay.list[i]);
        seqs += sc_op_is_collective(in->u.replay.list[i].kind);
    }
    if (verdict == SC_OK)
        verdict = sc_ledger_room(ledger_of(c), in->u.replay.stream, seqs);
    if (verdict != SC_OK)
        return verdict;
    struct sc_ledger_entry *entry =
        sc_ledger_push(ledger_of(c), in->u.replay.stream, in->u.replay.list, count);
    PUSH(out, .type = SC_ACTION_LAUNCH, .epoch = c->epoch, .a = entry->number,
         .b = entry->first_seq);
    sc_agreement_after_submit(c, out);
    return SC_OK;
}

// Outside READY no epoch lives, whichever the caller believes in.
sc_status sc_submit_is_refused(struct sc_core *c, const struct sc_event *in,
                               struct sc_actions *out) {
    (void)in, (void)out;
    return c->state == SC_STATE_CLOSED ? SC_CLOSED : SC_EPOCH_LOST;
}

static struct sc_ledger_entry *entry_of(struct sc_core *c, const struct sc_event *in) {
    struct sc_ledger_entry *entry =
        in->epoch == c->epoch ? sc_ledger_find(ledger_of(c), in->u.op.number) : NULL;
    return entry != NULL && !entry->done ? entry : NULL;
}

sc_status sc_op_starts(struct sc_core *c, const struct sc_event *in, struct sc_actions *out) {
    (void)out;
    struct sc_ledger_entry *entry = entry_of(c, in);
    if (entry == NULL)
        return SC_OK;
    sc_ledger_start(ledger_of(c), entry);
    sc_op_clock_update(c);
    return SC_OK;
}

sc_status sc_op_completes(struct sc_core *c, const struct sc_event *in, struct sc_actions *out) {
    struct sc_ledger_entry *entry = entry_of(c, in);
    if (entry == NULL)
        return SC_OK;
    complete(c, entry, out);
    sc_op_clock_update(c);
    return SC_OK;
}

sc_status sc_op_fails(struct sc_core *c, const struct sc_event *in, struct sc_actions *out) {
    const struct sc_ledger_entry *entry = entry_of(c, in);
    if (entry == NULL)
        return SC_OK;
    // Polls that give no answer are a failure of the device like any other.
    const struct sc_cause cause = {
        .code = in->u.op.status == SC_INPROGRESS ? SC_DEVICE_ERROR : in->u.op.status,
        .suspect = c->config.rank,
        .seq = entry->first_seq,
    };
    if (sc_status_is_terminal(in->u.op.status))
        sc_fail(c, &cause, out);
    else
        sc_leave_epoch(c, &cause, out);
    return SC_OK;
}
