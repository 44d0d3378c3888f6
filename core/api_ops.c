// SPDX-License-Identifier: AGPL-3.0-only
//
// Ops: checked, submitted through the pump, waited for only where the ledger is full. Started ops are
// known by tickets; the sends and recvs of a group are collected on their thread.
#include "core/api_inside.h"

#include <inttypes.h>
#include <stdlib.h>

#define GROUP_MAX 128u

static _Thread_local struct {
    sc_comm comm; // 0: no group is open
    uint64_t epoch;
    sc_status error;
    uint32_t count;
    struct sc_op_desc descs[GROUP_MAX];
    struct sc_op_place places[GROUP_MAX];
} group;

static uint64_t address(const void *pointer) {
    return (uint64_t)(uintptr_t)pointer;
}

static void explain_refusal(const struct sc_api *api, sc_status status,
                            const struct sc_op_desc *desc, const struct sc_op_place *place) {
    if (sc_status_class(status) == SC_CLASS_CALLER)
        sc_error_detail("%s: %" PRIu64 " bytes from %#" PRIx64 " to %#" PRIx64
                        ", root or peer %u; this is rank %u of %u, capacity %" PRIu64 " bytes",
                        sc_status_sentence(status), desc->bytes, place->src, place->dst, desc->root,
                        api->rank, api->world_size, api->capacity_bytes);
}

sc_status sc_submit_wait(struct sc_call *call) {
    struct sc_api *api = call->api;
    if ((api->flags & SC_OPEN_BUSY) != 0)
        return SC_BUSY;
    sc_pump_poll(api->pump);
    if (!api->changed)
        return sc_call_await_op(call, SC_NEVER_NS);
    sc_api_settle(api);
    return SC_OK;
}

// `from`: the stream that a started op forks from, or the op's own. `joins`: which then waits for it, in
// the same turn, so that nothing comes between the two.
static sc_status submit(struct sc_call *call, uint64_t epoch, const struct sc_op_desc *desc,
                        const struct sc_op_place *place, uint64_t from, bool joins,
                        uint64_t *number) {
    struct sc_api *api = call->api;
    uint64_t seq;
    for (;;) {
        sc_status status = sc_turn_take(call, epoch);
        if (status != SC_OK)
            return status;
        if (from == place->stream)
            status = sc_pump_submit(api->pump, epoch, desc, place, number, &seq);
        else
            status = sc_pump_start(api->pump, epoch, desc, place, from, number, &seq);
        if (status == SC_OK && joins && *number != 0)
            status = sc_pump_join_op(api->pump, epoch, *number, from);
        sc_turn_give(call);
        if (status != SC_BUSY) {
            if (status != SC_OK && call->inside)
                explain_refusal(api, status, desc, place);
            return status;
        }
        status = sc_submit_wait(call);
        if (status != SC_OK)
            return status;
    }
}

// SC_OK outside a group of this thread's.
static sc_status outside_group(sc_comm comm) {
    if (group.comm != comm)
        return SC_OK;
    sc_error_detail("a group is open on this thread: it takes sends and recvs only");
    return SC_INVALID;
}

static sc_status collective(sc_comm comm, const char *name, uint64_t epoch,
                            const struct sc_op_desc *desc, const struct sc_op_place *place) {
    struct sc_call call;
    uint64_t number;
    sc_status status = sc_call_begin(&call, comm, name, SC_WORD_SUBMIT);
    if (status != SC_OK)
        return status;
    status = outside_group(comm);
    if (status == SC_OK)
        status = submit(&call, epoch, desc, place, place->stream, false, &number);
    return sc_call_end(&call, status);
}

static sc_status refuse_dtype(const char *name, enum sc_dtype dtype) {
    sc_api_error(name, SC_INVALID, "dtype %d: SC_BF16 (%d) is the only one there is", (int)dtype,
                 (int)SC_BF16);
    return SC_INVALID;
}

static struct sc_op_place in_place(void *buffer, void *stream) {
    return (struct sc_op_place){address(buffer), address(buffer), address(stream)};
}

sc_status sc_all_reduce(sc_comm comm, uint64_t epoch, void *buffer, uint64_t bytes,
                        enum sc_dtype dtype, void *stream) {
    const struct sc_op_desc desc = {.kind = SC_OP_ALL_REDUCE, .bytes = bytes};
    const struct sc_op_place place = in_place(buffer, stream);
    if (dtype != SC_BF16)
        return refuse_dtype("all_reduce", dtype);
    return collective(comm, "all_reduce", epoch, &desc, &place);
}

sc_status sc_broadcast(sc_comm comm, uint64_t epoch, void *buffer, uint64_t bytes, uint32_t root,
                       void *stream) {
    const struct sc_op_desc desc = {.kind = SC_OP_BROADCAST, .root = root, .bytes = bytes};
    const struct sc_op_place place = in_place(buffer, stream);
    return collective(comm, "broadcast", epoch, &desc, &place);
}

sc_status sc_all_gather(sc_comm comm, uint64_t epoch, const void *src, void *dst, uint64_t bytes,
                        void *stream) {
    const struct sc_op_desc desc = {.kind = SC_OP_ALL_GATHER, .bytes = bytes};
    const struct sc_op_place place = {address(src), address(dst), address(stream)};
    return collective(comm, "all_gather", epoch, &desc, &place);
}

sc_status sc_reduce_scatter(sc_comm comm, uint64_t epoch, const void *src, void *dst,
                            uint64_t bytes, enum sc_dtype dtype, void *stream) {
    const struct sc_op_desc desc = {.kind = SC_OP_REDUCE_SCATTER, .bytes = bytes};
    const struct sc_op_place place = {address(src), address(dst), address(stream)};
    if (dtype != SC_BF16)
        return refuse_dtype("reduce_scatter", dtype);
    return collective(comm, "reduce_scatter", epoch, &desc, &place);
}

// ---- sends, recvs, groups ----

static sc_status add_to_group(struct sc_api *api, uint64_t epoch, const struct sc_op_desc *desc,
                              const struct sc_op_place *place) {
    sc_status status = epoch == group.epoch ? sc_api_epoch_status(api, epoch) : SC_EPOCH_LOST;
    if (status == SC_OK)
        status = sc_core_check_op(sc_pump_core(api->pump), desc, place);
    if (status == SC_OK && group.count != 0 && place->stream != group.places[0].stream)
        status = SC_INVALID;
    if (status == SC_OK && group.count == GROUP_MAX)
        status = SC_TOO_LARGE;
    if (status != SC_OK) {
        explain_refusal(api, status, desc, place);
        group.error = group.error == SC_OK ? status : group.error;
        return status;
    }
    if (desc->bytes == 0)
        return SC_OK;
    group.descs[group.count] = *desc;
    group.places[group.count++] = *place;
    return SC_OK;
}

static sc_status point_to_point(sc_comm comm, const char *name, uint64_t epoch,
                                const struct sc_op_desc *desc, const struct sc_op_place *place) {
    struct sc_call call;
    uint64_t number;
    bool grouped = group.comm == comm;
    sc_status status = sc_call_begin(&call, comm, name, grouped ? SC_WORD_NONE : SC_WORD_SUBMIT);
    if (status != SC_OK)
        return status;
    if (grouped)
        return sc_call_end(&call, add_to_group(call.api, epoch, desc, place));
    return sc_call_end(&call, submit(&call, epoch, desc, place, place->stream, false, &number));
}

sc_status sc_send(sc_comm comm, uint64_t epoch, const void *src, uint64_t bytes, uint32_t peer,
                  void *stream) {
    const struct sc_op_desc desc = {.kind = SC_OP_SEND, .root = peer, .bytes = bytes};
    const struct sc_op_place place = {address(src), address(src), address(stream)};
    return point_to_point(comm, "send", epoch, &desc, &place);
}

sc_status sc_recv(sc_comm comm, uint64_t epoch, void *dst, uint64_t bytes, uint32_t peer,
                  void *stream) {
    const struct sc_op_desc desc = {.kind = SC_OP_RECV, .root = peer, .bytes = bytes};
    const struct sc_op_place place = in_place(dst, stream);
    return point_to_point(comm, "recv", epoch, &desc, &place);
}

sc_status sc_group_begin(sc_comm comm, uint64_t epoch) {
    struct sc_call call;
    sc_status status = sc_call_begin(&call, comm, "group_begin", SC_WORD_NONE);
    if (status != SC_OK)
        return status;
    status = sc_api_epoch_status(call.api, epoch);
    if (group.comm != 0) {
        sc_error_detail("a group is open on this thread already; end it first");
        status = SC_INVALID;
    }
    if (status == SC_OK) {
        group.comm = comm;
        group.epoch = epoch;
        group.error = SC_OK;
        group.count = 0;
    }
    return sc_call_end(&call, status);
}

sc_status sc_group_end(sc_comm comm) {
    struct sc_call call;
    bool open = comm != 0 && group.comm == comm;
    if (open)
        group.comm = 0;
    sc_status status =
        sc_call_begin(&call, comm, "group_end", open ? SC_WORD_SUBMIT : SC_WORD_NONE);
    if (status != SC_OK)
        return status;
    struct sc_api *api = call.api;
    if (!open)
        sc_error_detail("no group of this handle is open on this thread");
    status = open ? group.error : SC_INVALID;
    while (status == SC_OK && (status = sc_turn_take(&call, group.epoch)) == SC_OK) {
        uint64_t number;
        status = sc_pump_submit_group(api->pump, group.epoch, group.descs, group.places,
                                      group.count, &number);
        sc_turn_give(&call);
        if (status != SC_BUSY)
            break;
        status = sc_submit_wait(&call);
    }
    return sc_call_end(&call, status);
}

// ---- tickets ----

void sc_tickets_reset(struct sc_api *api) {
    for (uint32_t i = 0; i < api->tickets_used; i++) {
        api->tickets[i].epoch = 0;
        api->tickets[i].generation++;
        api->tickets[i].next_free = i; // 1 + the index before
    }
    api->tickets_free = api->tickets_used;
}

static struct sc_api_ticket *take_ticket(struct sc_api *api) {
    if (api->tickets_free == 0 && api->tickets_used < api->tickets_count) {
        api->tickets[api->tickets_used].next_free = 0;
        api->tickets_free = ++api->tickets_used;
    }
    if (api->tickets_free == 0)
        return NULL;
    struct sc_api_ticket *ticket = &api->tickets[api->tickets_free - 1];
    api->tickets_free = ticket->next_free;
    return ticket;
}

static void free_ticket(struct sc_api *api, struct sc_api_ticket *ticket) {
    ticket->epoch = 0;
    ticket->generation++;
    ticket->next_free = api->tickets_free;
    api->tickets_free = (uint32_t)(ticket - api->tickets) + 1;
}

static sc_status start(struct sc_call *call, uint64_t epoch, void *buffer, uint64_t bytes,
                       void *stream, bool joins, uint64_t *number) {
    const struct sc_op_desc desc = {.kind = SC_OP_ALL_REDUCE, .bytes = bytes};
    struct sc_op_place place = in_place(buffer, stream);
    place.stream = call->api->own_stream;
    return submit(call, epoch, &desc, &place, address(stream), joins, number);
}

sc_status sc_all_reduce_start(sc_comm comm, uint64_t epoch, void *buffer, uint64_t bytes,
                              enum sc_dtype dtype, void *stream, sc_ticket *ticket) {
    struct sc_call call;
    if (dtype != SC_BF16)
        return refuse_dtype("all_reduce_start", dtype);
    sc_status status = sc_call_begin(&call, comm, "all_reduce_start", SC_WORD_SUBMIT);
    if (status != SC_OK)
        return status;
    struct sc_api *api = call.api;
    uint64_t number = 0;
    status = outside_group(comm);
    if (status == SC_OK && ticket == NULL) {
        sc_error_detail("ticket is NULL: the op could not be joined");
        status = SC_INVALID;
    }
    if (status == SC_OK)
        status = sc_api_epoch_status(api, epoch);
    struct sc_api_ticket *taken = status == SC_OK ? take_ticket(api) : NULL;
    if (status == SC_OK && taken == NULL) {
        sc_error_detail("%u started ops are not joined yet; join one first", api->tickets_count);
        status = SC_BUSY;
    }
    if (status != SC_OK)
        return sc_call_end(&call, status);
    taken->epoch = epoch; // held, whatever other threads start meanwhile
    sc_ticket name = (uint64_t)taken->generation << 32 | ((uint64_t)(taken - api->tickets) + 1);
    status = start(&call, epoch, buffer, bytes, stream, false, &number);
    if (status != SC_OK) {
        if (call.inside && taken->epoch == epoch)
            free_ticket(api, taken);
        return sc_call_end(&call, status);
    }
    if (taken->epoch == epoch) // else lost in the call, and its ticket with it
        taken->number = number;
    *ticket = name;
    return sc_call_end(&call, SC_OK);
}

// Takes the op out of its ticket, which is good for nothing from then on; false: it was not.
static bool consume(struct sc_api *api, sc_ticket ticket, uint64_t *number) {
    uint32_t index = (uint32_t)ticket - 1;
    struct sc_api_ticket *known = index < api->tickets_used ? &api->tickets[index] : NULL;
    if (known == NULL || known->epoch == 0 || known->generation != ticket >> 32)
        return false;
    *number = known->number;
    free_ticket(api, known);
    return true;
}

// With the turn taken.
static sc_status join(struct sc_api *api, uint64_t epoch, sc_ticket ticket, void *stream) {
    uint64_t number = 0;
    bool known = consume(api, ticket, &number);
    sc_status status = sc_api_epoch_status(api, epoch); // an epoch's end consumed all its tickets
    if (status != SC_OK)
        return status;
    if (known)
        return sc_pump_join_op(api->pump, epoch, number, address(stream));
    sc_error_detail("ticket %#" PRIx64 " is none of this epoch's, or was joined already", ticket);
    return SC_INVALID;
}

sc_status sc_all_reduce_join(sc_comm comm, uint64_t epoch, sc_ticket ticket, void *stream) {
    struct sc_call call;
    uint64_t number;
    sc_status status = sc_call_begin(&call, comm, "all_reduce_join", SC_WORD_NONE);
    if (status != SC_OK)
        return status;
    status = sc_turn_take(&call, epoch);
    if (status == SC_EPOCH_LOST)
        (void)consume(call.api, ticket, &number);
    if (status != SC_OK)
        return sc_call_end(&call, status);
    status = join(call.api, epoch, ticket, stream);
    sc_turn_give(&call);
    return sc_call_end(&call, status);
}

sc_status sc_all_reduce_async(sc_comm comm, uint64_t epoch, void *buffer, uint64_t bytes,
                              enum sc_dtype dtype, void *stream) {
    struct sc_call call;
    uint64_t number = 0;
    if (dtype != SC_BF16)
        return refuse_dtype("all_reduce_async", dtype);
    sc_status status = sc_call_begin(&call, comm, "all_reduce_async", SC_WORD_SUBMIT);
    if (status != SC_OK)
        return status;
    status = outside_group(comm);
    if (status == SC_OK)
        status = start(&call, epoch, buffer, bytes, stream, true, &number);
    return sc_call_end(&call, status);
}
