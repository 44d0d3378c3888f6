// SPDX-License-Identifier: AGPL-3.0-only
//
// The progress step, and what the pump tells in the course of it, or of any other call.
#include "core/api_inside.h"

static void state_changes(struct sc_api *api, const struct sc_action *a) {
    api->state = (enum sc_state)a->b;
    api->state_changed = true;
    api->epoch = api->state == SC_STATE_READY ? a->epoch : 0;
    // Ahead of the abort that follows it: no kernel of the epoch is released before this word is 0.
    atomic_store(api->live_epoch, api->epoch);
    if (a->b == SC_STATE_READY) {
        api->barriers[1] = api->barriers[0];
        api->barriers[0] = (struct sc_api_barriers){.epoch = a->epoch};
        api->join_timeouts_served = api->join_timeouts; // of a wait that is over
    }
    if (a->a == SC_STATE_READY || a->b == SC_STATE_READY) { // nothing of one epoch is in another
        api->agreed = 0;
        api->barriers_arrived = api->barriers_called = 0;
        api->commands_head = api->commands_tail = 0;
        sc_tickets_reset(api);
    }
}

static void on_notice(void *arg, const struct sc_action *a) {
    struct sc_api *api = arg;
    switch ((enum sc_notice)a->kind) {
    case SC_NOTICE_STATE: state_changes(api, a); break;
    case SC_NOTICE_MISSING: api->join_timeouts++; break;
    case SC_NOTICE_REFUSED:
        if (a->rank < SC_WORLD_MAX) // a stranger may claim any
            api->refusals[a->rank] = *a;
        break;
    case SC_NOTICE_GREETED:
        api->refusals[api->rank == 0 ? a->rank : api->rank].status = SC_OK;
        break;
    case SC_NOTICE_AGREED: api->agreed = a->a; break;
    case SC_NOTICE_BARRIER: api->barriers[0].passed = a->a; break;
    default: break;
    }
    api->changed = true;
    sc_note_notice(api, a);
    if (api->world.on_notice == NULL)
        return;
    struct sc_core_view view;
    bool caused = sc_notice_has_cause(a) && api->pump != NULL;
    if (caused)
        sc_pump_view(api->pump, &view);
    api->world.on_notice(api->world.owner, a, caused ? &view.cause : NULL);
}

static void on_complete(void *arg, uint64_t epoch, uint64_t number, uint64_t seq) {
    (void)epoch, (void)number, (void)seq;
    ((struct sc_api *)arg)->changed = true;
}

static void on_command(void *arg, uint32_t rank, uint64_t epoch, const void *data, uint32_t bytes) {
    struct sc_api *api = arg;
    (void)rank, (void)epoch; // rank 0's, and of the live epoch: the core takes no other
    sc_command_received(api, data, bytes);
    api->changed = true;
}

static void on_leave(void *arg) {
    sc_call_leave(((struct sc_api *)arg)->turn);
}

static sc_status on_enter(void *arg) {
    return sc_call_enter(((struct sc_api *)arg)->turn); // which is its own, outside too
}

void sc_api_hooks(struct sc_api *api, struct sc_pump_config *config) {
    config->on_notice = on_notice;
    config->on_complete = on_complete;
    config->on_command = on_command;
    config->leave = on_leave;
    config->enter = on_enter;
    config->arg = api;
}

void sc_api_settle(struct sc_api *api) {
    api->memory_due |= api->state_changed;
    if (api->memory_due)
        sc_memory_sweep(api);
    if (api->state_changed) {
        api->state_changed = false;
        sc_picture_publish(api);
        api->host->event_signal(api->host->ctx);
    }
    if (!api->changed)
        return;
    api->changed = false;
    api->host->notify(api->host->ctx);
}

uint64_t sc_api_progress(void *arg) {
    struct sc_api *api = arg;
    if (api->host->enter(api->host->ctx) != SC_OK)
        return SC_NEVER_NS;
    uint64_t at = sc_pump_run(api->pump);
    uint64_t interrupts = atomic_load(&api->interrupts);
    if (interrupts != api->interrupts_told) {
        api->interrupts_told = interrupts;
        api->changed = true;
    }
    sc_api_settle(api);
    sc_picture_publish(api);
    uint64_t renewed_ns = api->host->now_ns(api->host->ctx) + api->heartbeat_ns;
    api->host->leave(api->host->ctx);
    return at < renewed_ns ? at : renewed_ns;
}
