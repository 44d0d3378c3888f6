// SPDX-License-Identifier: AGPL-3.0-only
//
// The spy: a copy of the simulated device's table with a few verbs replaced. The table keeps the
// simulator's ctx, which is the process, so that the untouched verbs need no thunks; the replaced
// ones find their rank by it.
#include "tests/support/rig.h"

#define FIRST_ADDRESS (UINT64_C(1) << 50)
#define ALIGNMENT UINT64_C(256)

static struct rig *spied;

static struct rig_rank *rank_of(const void *ctx) {
    for (uint32_t r = 0; r < RIG_RANKS_MAX; r++)
        if (spied->ranks[r].process == ctx)
            return &spied->ranks[r];
    fail_msg("%s", "a device verb was called for a process that is gone");
    return NULL;
}

static const struct sc_device *real(const struct rig_rank *rank) {
    return sc_sim_device(rank->process);
}

// ---- communicators ----

static sc_status comm_create(void *ctx, const struct sc_comm_spec *spec, uint64_t *comm) {
    struct rig_rank *rank = rank_of(ctx);
    sc_status status = real(rank)->comm_create(ctx, spec, comm);
    if (status == SC_OK && *comm != 0 && rank->spy.comms_count < RIG_COMMS_MAX)
        rank->spy.comms[rank->spy.comms_count++].handle = *comm;
    return status;
}

static sc_status comm_abort(void *ctx, uint64_t comm) {
    struct rig_rank *rank = rank_of(ctx);
    for (uint32_t i = 0; i < rank->spy.comms_count; i++)
        rank->spy.comms[i].aborts += rank->spy.comms[i].handle == comm;
    return real(rank)->comm_abort(ctx, comm);
}

static sc_status captures_held(void *ctx, uint64_t comm, uint32_t *held) {
    const struct rig_rank *rank = rank_of(ctx);
    sc_status status = real(rank)->captures_held(ctx, comm, held);
    if (status == SC_OK)
        *held += rank->spy.graphs;
    return status;
}

static sc_status group_end(void *ctx) {
    struct rig_rank *rank = rank_of(ctx);
    sc_status status = real(rank)->group_end(ctx);
    if (rank->spy.async_error_after_group) {
        rank->spy.async_error_after_group = false;
        rig_inject(spied, (struct sc_sim_fault){.kind = SC_SIM_async_error, .a = rank->rank});
    }
    return status;
}

// ---- memory ----

static sc_status mem_alloc(void *ctx, uint64_t bytes, uint64_t *address) {
    struct rig_rank *rank = rank_of(ctx);
    if (!rank->spy.sizes_only)
        return real(rank)->mem_alloc(ctx, bytes, address);
    *address = rank->spy.next_address;
    rank->spy.next_address += (bytes + 2 * ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return SC_OK;
}

static sc_status mem_free(void *ctx, uint64_t address) {
    struct rig_rank *rank = rank_of(ctx);
    return rank->spy.sizes_only ? SC_OK : real(rank)->mem_free(ctx, address);
}

static sc_status buf_register(void *ctx, uint64_t comm, uint64_t address, uint64_t bytes,
                              uint64_t *registration) {
    struct rig_rank *rank = rank_of(ctx);
    if (!rank->spy.sizes_only)
        return real(rank)->buf_register(ctx, comm, address, bytes, registration);
    *registration = 0;
    return SC_OK;
}

// ---- ops ----

static sc_status op_poll(void *ctx, uint64_t op, enum sc_op_state *state) {
    struct rig_rank *rank = rank_of(ctx);
    if (rank->spy.polls_unanswered == 0)
        return real(rank)->op_poll(ctx, op, state);
    if (rank->spy.polls_unanswered != UINT32_MAX)
        rank->spy.polls_unanswered--;
    return SC_INPROGRESS;
}

static sc_status send(void *ctx, uint64_t comm, uint64_t src, uint64_t bytes, uint32_t peer,
                      uint64_t stream) {
    struct rig_rank *rank = rank_of(ctx);
    rank->spy.sent_bytes = bytes;
    return rank->spy.sizes_only ? SC_OK : real(rank)->send(ctx, comm, src, bytes, peer, stream);
}

static sc_status recv(void *ctx, uint64_t comm, uint64_t dst, uint64_t bytes, uint32_t peer,
                      uint64_t stream) {
    struct rig_rank *rank = rank_of(ctx);
    rank->spy.received_bytes = bytes;
    return rank->spy.sizes_only ? SC_OK : real(rank)->recv(ctx, comm, dst, bytes, peer, stream);
}

static sc_status add_bf16(void *ctx, uint64_t dst, uint64_t src, uint64_t bytes, uint64_t epoch,
                          uint64_t stream) {
    struct rig_rank *rank = rank_of(ctx);
    struct rig_spy *spy = &rank->spy;
    spy->added_bytes = bytes;
    if (spy->sizes_only)
        return SC_OK;
    if (spy->add_late_ns != 0 && spy->add_late_stream == stream)
        assert_int_equal(sc_sim_compute(rank->process, stream, spy->add_late_ns, NULL, NULL),
                         SC_OK);
    return real(rank)->add_bf16(ctx, dst, src, bytes, epoch, stream);
}

void rig_spy_make(struct rig_rank *rank) {
    spied = rank->rig;
    rank->spy.sizes_only = rank->rig->config.sizes_only;
    rank->spy.next_address = FIRST_ADDRESS;
    rank->table = *real(rank);
    rank->table.poll_ns = rank->rig->config.poll_ns;
    rank->table.comm_create = comm_create;
    rank->table.comm_abort = comm_abort;
    rank->table.captures_held = captures_held;
    rank->table.group_end = group_end;
    rank->table.mem_alloc = mem_alloc;
    rank->table.mem_free = mem_free;
    rank->table.buf_register = buf_register;
    rank->table.op_poll = op_poll;
    rank->table.send = send;
    rank->table.recv = recv;
    rank->table.add_bf16 = add_bf16;
}
