// SPDX-License-Identifier: AGPL-3.0-only
//
// The checked verbs that move and add data, and the groups around them.
#include "hal/hal_check_state.h"

#include <inttypes.h>

// ---- groups ---------------------------------------------------------------------------------

static bool is_foreign_group(struct sc_hal_check *check, enum sc_device_verb verb) {
    bool foreign = check->group_depth > 0 && check->group_thread != sc_check_thread();

    if (foreign)
        sc_check_breach(check, verb, "the open group belongs to another thread");
    return foreign;
}

static sc_status group_begin(void *ctx) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_group_begin);

    if (is_foreign_group(check, SC_VERB_group_begin))
        return SC_STATE;
    sc_status answer = check->inner->group_begin(check->inner->ctx);
    if (answer == SC_OK) {
        check->group_depth++;
        check->group_thread = sc_check_thread();
    }
    return answer;
}

static sc_status group_end(void *ctx) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_group_end);

    if (check->group_depth == 0)
        return sc_check_breach(check, SC_VERB_group_end, "no group is open");
    if (is_foreign_group(check, SC_VERB_group_end))
        return SC_STATE;
    check->group_depth--;
    return check->inner->group_end(check->inner->ctx);
}

// ---- payloads -------------------------------------------------------------------------------

// A communicator that may use [address, address + shares × bytes), noted as its user. NULL after a
// report. shares is 1, or 0 for one share a rank.
static struct sc_held *admit(struct sc_hal_check *check, enum sc_device_verb verb, uint64_t comm,
                             uint64_t address, uint64_t bytes, uint32_t shares) {
    struct sc_held *held = sc_check_usable_comm(check, verb, comm);
    uint64_t all_bytes = 0;

    if (held == NULL)
        return NULL;
    if (__builtin_mul_overflow(bytes, shares == 0 ? held->world : shares, &all_bytes)) {
        sc_check_breach(check, verb, "%" PRIu64 " bytes a rank do not fit 64 bits", bytes);
        return NULL;
    }
    if (!sc_check_payload(check, verb, address, all_bytes))
        return NULL;
    sc_check_note_use(check, held, address);
    return held;
}

static bool is_member(struct sc_hal_check *check, enum sc_device_verb verb,
                      const struct sc_held *comm, uint32_t rank) {
    if (rank >= comm->world)
        sc_check_breach(check, verb, "rank %" PRIu32 " is not in a world of %" PRIu32, rank,
                        comm->world);
    return rank < comm->world;
}

static bool fits(struct sc_hal_check *check, enum sc_device_verb verb, uint64_t bytes) {
    uint64_t capacity_bytes = check->config.capacity_bytes;
    bool too_large = capacity_bytes != 0 && bytes > capacity_bytes;

    if (too_large)
        sc_check_breach(check, verb, "%" PRIu64 " bytes exceed the capacity of %" PRIu64, bytes,
                        capacity_bytes);
    return !too_large;
}

static sc_status send(void *ctx, uint64_t comm, uint64_t src, uint64_t bytes, uint32_t peer,
                      uint64_t stream) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_send);
    const struct sc_held *held = admit(check, SC_VERB_send, comm, src, bytes, 1);

    if (held == NULL || !is_member(check, SC_VERB_send, held, peer))
        return SC_STATE;
    return check->inner->send(check->inner->ctx, comm, src, bytes, peer, stream);
}

static sc_status recv(void *ctx, uint64_t comm, uint64_t dst, uint64_t bytes, uint32_t peer,
                      uint64_t stream) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_recv);
    const struct sc_held *held = admit(check, SC_VERB_recv, comm, dst, bytes, 1);

    if (held == NULL || !is_member(check, SC_VERB_recv, held, peer) ||
        !fits(check, SC_VERB_recv, bytes))
        return SC_STATE;
    return check->inner->recv(check->inner->ctx, comm, dst, bytes, peer, stream);
}

static sc_status all_reduce(void *ctx, uint64_t comm, uint64_t buf, uint64_t bytes,
                            uint64_t stream) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_all_reduce);

    if (admit(check, SC_VERB_all_reduce, comm, buf, bytes, 1) == NULL)
        return SC_STATE;
    return check->inner->all_reduce(check->inner->ctx, comm, buf, bytes, stream);
}

static sc_status broadcast(void *ctx, uint64_t comm, uint64_t buf, uint64_t bytes, uint32_t root,
                           uint64_t stream) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_broadcast);
    const struct sc_held *held = admit(check, SC_VERB_broadcast, comm, buf, bytes, 1);

    if (held == NULL || !is_member(check, SC_VERB_broadcast, held, root))
        return SC_STATE;
    return check->inner->broadcast(check->inner->ctx, comm, buf, bytes, root, stream);
}

static sc_status all_gather(void *ctx, uint64_t comm, uint64_t src, uint64_t dst, uint64_t bytes,
                            uint64_t stream) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_all_gather);

    if (admit(check, SC_VERB_all_gather, comm, src, bytes, 1) == NULL ||
        admit(check, SC_VERB_all_gather, comm, dst, bytes, 0) == NULL)
        return SC_STATE;
    return check->inner->all_gather(check->inner->ctx, comm, src, dst, bytes, stream);
}

static sc_status reduce_scatter(void *ctx, uint64_t comm, uint64_t src, uint64_t dst,
                                uint64_t bytes, uint64_t stream) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_reduce_scatter);

    if (admit(check, SC_VERB_reduce_scatter, comm, src, bytes, 0) == NULL ||
        admit(check, SC_VERB_reduce_scatter, comm, dst, bytes, 1) == NULL)
        return SC_STATE;
    return check->inner->reduce_scatter(check->inner->ctx, comm, src, dst, bytes, stream);
}

// In a capture the epoch says nothing: each replay brings its own. And another thread may have lowered the
// fence in the middle of the op.
static bool is_fenced(struct sc_hal_check *check, uint64_t epoch, uint64_t stream) {
    bool lowered =
        check->fence == 0 && epoch == check->lowered_from && check->lowered_by != sc_check_thread();
    bool fenced =
        (epoch != 0 && (epoch == check->fence || lowered)) || sc_check_is_capturing(check, stream);

    if (!fenced)
        sc_check_breach(check, SC_VERB_add_bf16,
                        "epoch %#" PRIx64 " is not the one the fence holds, %#" PRIx64, epoch,
                        check->fence);
    return fenced;
}

static sc_status add_bf16(void *ctx, uint64_t dst, uint64_t src, uint64_t bytes, uint64_t epoch,
                          uint64_t stream) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_add_bf16);

    if (!sc_check_payload(check, SC_VERB_add_bf16, dst, bytes) ||
        !sc_check_payload(check, SC_VERB_add_bf16, src, bytes) ||
        !fits(check, SC_VERB_add_bf16, bytes) || !is_fenced(check, epoch, stream))
        return SC_STATE;
    // In a group it would run ahead of what the group receives.
    if (!sc_check_outside_group(check, SC_VERB_add_bf16))
        return SC_STATE;
    return check->inner->add_bf16(check->inner->ctx, dst, src, bytes, epoch, stream);
}

void sc_check_enter_collective_verbs(struct sc_device *device) {
    device->group_begin = group_begin;
    device->group_end = group_end;
    device->send = send;
    device->recv = recv;
    device->all_reduce = all_reduce;
    device->broadcast = broadcast;
    device->all_gather = all_gather;
    device->reduce_scatter = reduce_scatter;
    device->add_bf16 = add_bf16;
}
