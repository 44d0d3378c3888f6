// SPDX-License-Identifier: AGPL-3.0-only
//
// Handles: the slot's index in the low byte, above it a generation that rises with each use, so that
// no number ever comes back. A call holds its slot while it runs; closing waits for the holders.
//
// A forked child has the parent's table and none of its threads: every slot remembers in which
// process it was taken, and the child finds it foreign.
#include "core/api_inside.h"

#include <pthread.h>

#define INDEX_BITS 8
_Static_assert(SC_API_HANDLES_MAX <= 1u << INDEX_BITS, "an index is one byte of a handle");

enum slot_state { SLOT_FREE, SLOT_TAKEN };

static struct slot {
    _Atomic uint32_t state;
    _Atomic uint32_t holders;
    _Atomic uint64_t handle; // 0: nobody may find it
    _Atomic uint64_t generation;
    _Atomic uint64_t forks; // in which process it was taken
    _Atomic uint64_t live_epoch;
    struct sc_api *_Atomic api;
} slots[SC_API_HANDLES_MAX];

static _Atomic uint64_t forks;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void in_child(void) {
    atomic_fetch_add(&forks, 1);
    for (uint32_t i = 0; i < SC_API_HANDLES_MAX; i++)
        atomic_store(&slots[i].live_epoch, 0);
}

static void watch_forks(void) {
    (void)pthread_atfork(NULL, NULL, in_child);
}

sc_status sc_table_take(uint32_t *slot, sc_comm *comm, _Atomic uint64_t **live_epoch) {
    (void)pthread_once(&once, watch_forks);
    for (uint32_t i = 0; i < SC_API_HANDLES_MAX; i++) {
        uint32_t expected = SLOT_FREE;
        if (!atomic_compare_exchange_strong(&slots[i].state, &expected, SLOT_TAKEN))
            continue;
        *slot = i;
        *comm = (atomic_fetch_add(&slots[i].generation, 1) + 1) << INDEX_BITS | i;
        *live_epoch = &slots[i].live_epoch;
        atomic_store(&slots[i].forks, atomic_load(&forks));
        return SC_OK;
    }
    return SC_BUSY;
}

void sc_table_publish(uint32_t slot, struct sc_api *api) {
    atomic_store(&slots[slot].api, api);
    atomic_store(&slots[slot].handle, api->comm);
}

void sc_table_withdraw(uint32_t slot, uint32_t holders) {
    atomic_store(&slots[slot].handle, 0);
    // Nobody is left in the monitor: whoever still holds the slot is about to find out and let go.
    while (atomic_load(&slots[slot].holders) != holders)
        sched_yield();
}

void sc_table_give_back(uint32_t slot) {
    atomic_store(&slots[slot].live_epoch, 0);
    atomic_store(&slots[slot].api, NULL);
    atomic_store(&slots[slot].state, SLOT_FREE);
}

struct sc_api *sc_table_hold(sc_comm comm, uint32_t *slot, sc_status *status) {
    uint32_t i = (uint32_t)(comm & ((1u << INDEX_BITS) - 1));
    *status = SC_CLOSED;
    if (i >= SC_API_HANDLES_MAX || comm == 0)
        return NULL;
    struct slot *s = &slots[i];
    atomic_fetch_add(&s->holders, 1);
    bool foreign = atomic_load(&s->forks) != atomic_load(&forks);
    if (atomic_load(&s->handle) == comm && !foreign) {
        *slot = i;
        *status = SC_OK;
        return atomic_load(&s->api);
    }
    if (atomic_load(&s->handle) == comm)
        *status = SC_FORKED;
    atomic_fetch_sub(&s->holders, 1);
    return NULL;
}

void sc_table_release(uint32_t slot) {
    atomic_fetch_sub(&slots[slot].holders, 1);
}

const volatile uint64_t *sc_live_epoch(sc_comm comm) {
    static const uint64_t none = 0;
    uint32_t i = (uint32_t)(comm & ((1u << INDEX_BITS) - 1));
    if (i >= SC_API_HANDLES_MAX || atomic_load(&slots[i].handle) != comm)
        return &none;
    return (const volatile uint64_t *)&slots[i].live_epoch;
}

// ---- calls ----

sc_status sc_call_begin(struct sc_call *call, sc_comm comm, const char *name, int word) {
    sc_status status;
    *call = (struct sc_call){.name = name};
    call->api = sc_table_hold(comm, &call->slot, &status);
    if (call->api == NULL) {
        sc_error_set(name, status);
        return status;
    }
    const struct sc_world *world = &call->api->world;
    if (word != SC_WORD_NONE && world->on_word != NULL)
        world->on_word(world->owner, (enum sc_word)word, 0);
    status = world->host->enter(world->host->ctx);
    if (status == SC_OK && call->api->ended) { // between its end and its withdrawal
        world->host->leave(world->host->ctx);
        status = SC_CLOSED;
    }
    if (status != SC_OK) {
        sc_table_release(call->slot);
        sc_error_set(name, status);
        return status;
    }
    call->inside = true;
    call->api->callers++;
    call->interrupts = call->api->interrupts_served;
    return SC_OK;
}

sc_status sc_call_end(struct sc_call *call, sc_status status) {
    struct sc_api *api = call->api;
    if (status != SC_OK)
        sc_error_set(call->name, status);
    if (call->inside) {
        api->callers--;
        api->changed |= api->closing; // the closer counts callers
        sc_api_settle(api);
        api->host->leave(api->host->ctx);
    }
    sc_table_release(call->slot);
    return status;
}

uint64_t sc_call_deadline(const struct sc_call *call, uint64_t timeout_ns) {
    uint64_t now = call->api->host->now_ns(call->api->host->ctx), deadline;
    return __builtin_add_overflow(now, timeout_ns, &deadline) ? SC_NEVER_NS : deadline;
}

sc_status sc_call_await(struct sc_call *call, uint64_t deadline_ns) {
    struct sc_api *api = call->api;
    const struct sc_host *host = api->host;
    sc_api_settle(api);
    uint64_t interrupts = atomic_load(&api->interrupts);
    if (interrupts != call->interrupts) {
        api->interrupts_served = call->interrupts = interrupts;
        return SC_INTERRUPTED;
    }
    sc_status status = SC_TIMEOUT;
    if (host->now_ns(host->ctx) < deadline_ns)
        status = host->await(host->ctx, deadline_ns);
    if (status == SC_SIM_KILLED)
        call->inside = false;
    if (status == SC_TIMEOUT && atomic_load(&api->interrupts) != call->interrupts)
        return SC_OK; // an interrupt that came just before the deadline is told
    return status;
}

sc_status sc_call_await_op(struct sc_call *call, uint64_t deadline_ns) {
    struct sc_api *api = call->api;
    if (api->hurried++ == 0) {
        sc_pump_hurry(api->pump, true);
        if (api->world.device->poll_ns != 0) // the progress thread may sleep for longer
            api->host->wake(api->host->ctx);
    }
    sc_status status = sc_call_await(call, deadline_ns);
    if (call->inside && --api->hurried == 0)
        sc_pump_hurry(api->pump, false);
    return status;
}

void sc_call_leave(struct sc_call *call) {
    const struct sc_host *host = call->api->host;
    sc_api_settle(call->api);
    host->leave(host->ctx);
}

sc_status sc_call_enter(struct sc_call *call) {
    const struct sc_host *host = call->api->host;
    sc_status status = host->enter(host->ctx);
    call->inside = status == SC_OK;
    return status;
}

sc_status sc_call_look(struct sc_call *call) {
    const struct sc_device *device = call->api->world.device;
    if (device->ops_look == NULL)
        return SC_OK;
    sc_call_leave(call);
    device->ops_look(device->ctx);
    return sc_call_enter(call);
}

// ---- turns ----

static bool must_wait(const struct sc_api *api, bool submits) {
    bool replays = api->replayer != NULL && api->replayer != sc_error_thread();
    return api->turn != NULL || (submits && replays);
}

sc_status sc_turn_take(struct sc_call *call, uint64_t epoch) {
    struct sc_api *api = call->api;
    while (must_wait(api, epoch != 0)) {
        sc_status status = epoch != 0 ? sc_api_epoch_status(api, epoch) : SC_OK;
        if (status != SC_OK)
            return status;
        api->turns_wanted++;
        status = sc_call_await(call, SC_NEVER_NS);
        if (call->inside)
            api->turns_wanted--;
        if (status != SC_OK)
            return status;
    }
    api->turn = call;
    return SC_OK;
}

void sc_turn_give(struct sc_call *call) {
    if (!call->inside) // of a dead process
        return;
    call->api->turn = NULL;
    call->api->changed |= call->api->turns_wanted != 0;
}

void sc_interrupt(sc_comm comm) {
    uint32_t slot;
    sc_status status;
    struct sc_api *api = sc_table_hold(comm, &slot, &status);
    if (api == NULL)
        return;
    atomic_fetch_add(&api->interrupts, 1);
    api->host->wake(api->host->ctx);
    sc_table_release(slot);
}
