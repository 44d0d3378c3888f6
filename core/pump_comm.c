// SPDX-License-Identifier: AGPL-3.0-only
//
// The communicator of the epoch: created, polled, aborted once; registrations and the fence.
#include "core/pump_inside.h"

#include <string.h>

static void *ctx(const struct sc_pump *p) {
    return p->device->ctx;
}

sc_status sc_pump_comm_open(struct sc_pump *p) {
    // Recovery needs no memory that was not there at open; only a quarantine does, see abandon.
    if (p->config.core.world != 2 || p->receive != 0)
        return SC_OK;
    return p->device->mem_alloc(ctx(p), p->config.core.capacity_bytes, &p->receive);
}

bool sc_pump_touches_memory(const struct sc_pump *p) {
    return p->comm != 0 || p->comm_lives;
}

uint32_t sc_pump_abandoned(const struct sc_pump *p) {
    return p->abandoned;
}

uint64_t sc_pump_device_bytes(const struct sc_pump *p) {
    return p->receive != 0 ? p->config.core.capacity_bytes : 0;
}

void sc_pump_comm_close(struct sc_pump *p) {
    if (p->comm != 0 && !p->comm_aborted)
        (void)p->device->comm_abort(ctx(p), p->comm);
    // Memory that a communicator may still write to outlives us.
    if (p->receive != 0 && !p->comm_lives)
        (void)p->device->mem_free(ctx(p), p->receive);
}

static void queue_comm(struct sc_pump *p, enum sc_event_type type, uint64_t epoch,
                       sc_status status) {
    struct sc_event event = {.type = type, .epoch = epoch};
    if (type == SC_EVENT_COMM_FAILED)
        event.u.comm_failed.status = status;
    sc_pump_queue(p, &event);
}

void sc_pump_comm_get_id(struct sc_pump *p) {
    struct sc_event event = {.type = SC_EVENT_COMM_ID};
    event.u.comm_id.status = p->device->comm_id(ctx(p), &p->id);
    event.u.comm_id.id = p->id.bytes;
    sc_pump_queue(p, &event);
}

void sc_pump_comm_create(struct sc_pump *p, uint64_t epoch) {
    struct sc_comm_spec spec = {
        .epoch = epoch, .rank = p->config.core.rank, .world = p->config.core.world};
    memcpy(spec.id.bytes, sc_core_comm_id(p->core), sizeof spec.id.bytes);
    SC_ASSERT(p->comm == 0);
    p->comm_epoch = epoch;
    p->comm_told = p->comm_failed = p->comm_aborted = false;
    p->newest_number = 0;
    sc_status status = sc_pump_comm_open(p);
    if (status == SC_OK)
        status = p->device->comm_create(ctx(p), &spec, &p->comm);
    if (status == SC_OK && p->comm != 0) {
        p->comm_lives = true;
        return;
    }
    // Success without a communicator is how a leaked group shows; it is a failure all the same.
    p->comm = 0;
    p->comm_failed = true;
    queue_comm(p, SC_EVENT_COMM_FAILED, epoch, status == SC_OK ? SC_COMM_FAILED : status);
}

static void comm_ended(struct sc_pump *p) {
    p->comm = 0;
    for (uint32_t i = 0; i < p->registry.count; i++)
        p->registry.entries[i].registration = 0;
}

void sc_pump_comm_abort(struct sc_pump *p, uint64_t epoch) {
    if (p->comm == 0) {
        queue_comm(p, SC_EVENT_COMM_GONE, epoch, SC_OK);
        return;
    }
    p->comm_aborted = true;
    // If even this fails, nothing more is called on the handle: the abort's clock decides.
    (void)p->device->comm_abort(ctx(p), p->comm);
}

void sc_pump_comm_abandon(struct sc_pump *p) {
    if (p->comm != 0)
        (void)p->device->comm_abandon(ctx(p), p->comm);
    p->abandoned += p->comm != 0;
    // The process that holds the abort up may thaw and write to the buffer it knew: that one is left
    // alone from now on, and the next communicator gets another.
    p->receive = 0;
    comm_ended(p);
    p->comm_lives = false;
}

void sc_pump_comm_run(struct sc_pump *p) {
    if (p->fence_due)
        sc_pump_fence(p, p->fence_wanted);
    if (p->comm == 0 || !sc_pump_is_watching(p) || (p->comm_aborted && p->outside))
        return;
    struct sc_comm_report report;
    sc_status status = p->device->comm_poll(ctx(p), p->comm, &report);
    if (status == SC_INPROGRESS)
        return;
    if (status != SC_OK)
        report = (struct sc_comm_report){.state = SC_COMM_ERROR, .error = status};
    if (report.state == SC_COMM_FORMING || (report.state == SC_COMM_READY && p->comm_told))
        return;
    struct sc_event event = {.epoch = p->comm_epoch};
    switch (report.state) {
    case SC_COMM_FORMING: break;
    case SC_COMM_READY:
        p->comm_told = true;
        p->pair_from_bytes = report.pair_from_bytes;
        p->pair_to_bytes = report.pair_to_bytes;
        event.type = SC_EVENT_COMM_READY;
        event.u.comm_ready.formed_ns = report.formed_ns;
        break;
    case SC_COMM_ERROR:
        if (p->comm_failed && (p->context_told || report.error != SC_CONTEXT_LOST))
            return;
        p->comm_failed = true;
        p->context_told = report.error == SC_CONTEXT_LOST;
        event.type = SC_EVENT_COMM_FAILED;
        event.u.comm_failed.status = report.error;
        break;
    case SC_COMM_GONE:
        comm_ended(p);
        p->comm_lives = false;
        event.type = SC_EVENT_COMM_GONE;
        break;
    }
    (void)sc_pump_feed(p, &event);
}

// ---- registrations ----

// A buffer that cannot be registered still works, only slower; so this never fails an epoch.
static void register_with(const struct sc_pump *p, uint64_t comm, uint64_t epoch,
                          struct sc_registry_entry *entry) {
    uint64_t registration = 0;
    entry->registration = 0;
    entry->epoch = epoch;
    if (p->device->buf_register(ctx(p), comm, entry->address, entry->bytes, &registration) == SC_OK)
        entry->registration = registration;
}

void sc_pump_register_all(struct sc_pump *p) {
    if (p->receive != 0) {
        struct sc_registry_entry own = {.address = p->receive,
                                        .bytes = p->config.core.capacity_bytes};
        register_with(p, p->comm, p->comm_epoch, &own);
    }
    for (uint32_t i = 0; i < p->registry.count; i++)
        if (!SC_MUTANT(9) || p->registry.entries[i].epoch == 0)
            register_with(p, p->comm, p->comm_epoch, &p->registry.entries[i]);
}

// Whether the communicator is one that verbs may be called on.
static bool usable(const struct sc_pump *p) {
    return p->comm != 0 && sc_core_state(p->core) == SC_STATE_READY;
}

sc_status sc_pump_register(struct sc_pump *p, uint64_t address, uint64_t bytes) {
    sc_status status = sc_registry_add(&p->registry, address, bytes);
    if (status != SC_OK || !usable(p))
        return status;
    struct sc_registry_entry made = *sc_registry_find(&p->registry, address);
    uint64_t comm = p->comm, epoch = p->comm_epoch;
    sc_pump_leave(p);
    register_with(p, comm, epoch, &made);
    if (!sc_pump_enter(p))
        return SC_SIM_KILLED;
    struct sc_registry_entry *entry = sc_registry_find(&p->registry, address);
    if (entry != NULL && p->comm == comm) // else that one is gone, and its registrations with it
        *entry = made;
    return SC_OK;
}

sc_status sc_pump_deregister(struct sc_pump *p, uint64_t address) {
    struct sc_registry_entry entry;
    sc_status status = sc_registry_remove(&p->registry, address, &entry);
    if (status != SC_OK || !usable(p) || entry.registration == 0)
        return status;
    uint64_t comm = p->comm;
    sc_pump_leave(p);
    (void)p->device->buf_deregister(ctx(p), comm, entry.registration);
    return sc_pump_enter(p) ? SC_OK : SC_SIM_KILLED;
}

// ---- fence ----

void sc_pump_fence(struct sc_pump *p, uint64_t epoch) {
    p->fence_wanted = epoch;
    sc_status status = p->device->fence_set(ctx(p), epoch);
    p->fence_due = status != SC_OK && status != SC_CONTEXT_LOST && status != SC_CLOSED;
    // An epoch whose fence is not up would skip its own kernels: it cannot be lived in.
    if (status != SC_OK && epoch != 0 && !p->comm_failed) {
        p->comm_failed = true;
        queue_comm(p, SC_EVENT_COMM_FAILED, epoch, status);
    }
}
