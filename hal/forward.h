// SPDX-License-Identifier: AGPL-3.0-only
//
// The device verbs with their signatures, for tables that forward each to another table: X(name,
// parameters, arguments), where `to` is that table.
#ifndef SC_FORWARD_H
#define SC_FORWARD_H

#include "hal/hal.h"

// clang-format off
#define SC_DEVICE_SIGNATURES(X) \
    X(comm_id, (void *ctx, struct sc_comm_id *id), (to->ctx, id)) \
    X(comm_create, (void *ctx, const struct sc_comm_spec *spec, uint64_t *comm), (to->ctx, spec, comm)) \
    X(comm_poll, (void *ctx, uint64_t comm, struct sc_comm_report *report), (to->ctx, comm, report)) \
    X(comm_error, (void *ctx, uint64_t comm), (to->ctx, comm)) \
    X(comm_abort, (void *ctx, uint64_t comm), (to->ctx, comm)) \
    X(comm_abandon, (void *ctx, uint64_t comm), (to->ctx, comm)) \
    X(mem_alloc, (void *ctx, uint64_t bytes, uint64_t *address), (to->ctx, bytes, address)) \
    X(mem_free, (void *ctx, uint64_t address), (to->ctx, address)) \
    X(buf_register, (void *ctx, uint64_t comm, uint64_t address, uint64_t bytes, uint64_t *made), (to->ctx, comm, address, bytes, made)) \
    X(buf_deregister, (void *ctx, uint64_t comm, uint64_t made), (to->ctx, comm, made)) \
    X(stream_check, (void *ctx, uint64_t stream), (to->ctx, stream)) \
    X(op_begin, (void *ctx, uint64_t stream, uint64_t *op), (to->ctx, stream, op)) \
    X(op_end, (void *ctx, uint64_t op), (to->ctx, op)) \
    X(op_poll, (void *ctx, uint64_t op, enum sc_op_state *state), (to->ctx, op, state)) \
    X(op_release, (void *ctx, uint64_t op), (to->ctx, op)) \
    X(stream_wait, (void *ctx, uint64_t stream, uint64_t op), (to->ctx, stream, op)) \
    X(group_begin, (void *ctx), (to->ctx)) \
    X(group_end, (void *ctx), (to->ctx)) \
    X(send, (void *ctx, uint64_t comm, uint64_t src, uint64_t bytes, uint32_t peer, uint64_t stream), (to->ctx, comm, src, bytes, peer, stream)) \
    X(recv, (void *ctx, uint64_t comm, uint64_t dst, uint64_t bytes, uint32_t peer, uint64_t stream), (to->ctx, comm, dst, bytes, peer, stream)) \
    X(all_reduce, (void *ctx, uint64_t comm, uint64_t buf, uint64_t bytes, uint64_t stream), (to->ctx, comm, buf, bytes, stream)) \
    X(broadcast, (void *ctx, uint64_t comm, uint64_t buf, uint64_t bytes, uint32_t root, uint64_t stream), (to->ctx, comm, buf, bytes, root, stream)) \
    X(all_gather, (void *ctx, uint64_t comm, uint64_t src, uint64_t dst, uint64_t bytes, uint64_t stream), (to->ctx, comm, src, dst, bytes, stream)) \
    X(reduce_scatter, (void *ctx, uint64_t comm, uint64_t src, uint64_t dst, uint64_t bytes, uint64_t stream), (to->ctx, comm, src, dst, bytes, stream)) \
    X(add_bf16, (void *ctx, uint64_t dst, uint64_t src, uint64_t bytes, uint64_t epoch, uint64_t stream), (to->ctx, dst, src, bytes, epoch, stream)) \
    X(fence_set, (void *ctx, uint64_t epoch), (to->ctx, epoch)) \
    X(stream_create, (void *ctx, uint64_t *stream), (to->ctx, stream)) \
    X(stream_destroy, (void *ctx, uint64_t stream), (to->ctx, stream)) \
    X(capture_begin, (void *ctx, uint64_t stream, uint64_t *capture), (to->ctx, stream, capture)) \
    X(capture_end, (void *ctx, uint64_t capture), (to->ctx, capture)) \
    X(capture_release, (void *ctx, uint64_t capture), (to->ctx, capture)) \
    X(captures_held, (void *ctx, uint64_t comm, uint32_t *held), (to->ctx, comm, held)) \
    X(replay_begin, (void *ctx, uint64_t capture, uint64_t stream, uint64_t epoch, uint64_t *op), (to->ctx, capture, stream, epoch, op)) \
    X(replay_end, (void *ctx, uint64_t op), (to->ctx, op))
// clang-format on

#endif
