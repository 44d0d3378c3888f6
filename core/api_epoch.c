// SPDX-License-Identifier: AGPL-3.0-only
//
// Epochs as an application sees them: waiting for one, giving one up, and what ranks tell each other
// within it.
#include "core/api_inside.h"
#include "core/text.h"

#include <string.h>

static void explain_absence(struct sc_api *api, uint32_t rank, struct sc_text *text) {
    const struct sc_action *refusal = &api->refusals[api->rank == 0 ? rank : api->rank];
    char why[400] = "";
    sc_text_add(text, "; rank %u is %s", rank, api->rank == 0 ? "missing" : "not reached");
    if (refusal->status != SC_OK)
        sc_text_add(text, ", its hello was refused: %s", sc_refusal_text(refusal, why, sizeof why));
    else if (api->rank != 0 && *sc_pump_explain(api->pump, why, sizeof why) != '\0')
        sc_text_add(text, ": %s", why);
}

// A member knows of rank 0 only.
static void explain_peer(struct sc_api *api, uint32_t rank, struct sc_text *text) {
    struct sc_peer_view peer;
    if (sc_core_peer_view(sc_pump_core(api->pump), rank, &peer) != SC_OK ||
        (api->rank != 0 && rank != 0))
        return;
    if (peer.heard_ns == 0)
        explain_absence(api, rank, text);
    else
        sc_text_add(text, "; rank %u is %s", rank,
                    peer.loading ? "still loading" : sc_state_name((enum sc_state)peer.state));
}

void sc_api_explain(struct sc_api *api, char *out, size_t bytes) {
    struct sc_text text = sc_text_begin(out, bytes);
    struct sc_core_view view;
    char cause[200];
    sc_pump_view(api->pump, &view);
    sc_text_add(&text, "rank %u is %s", api->rank, sc_state_name(view.state));
    if (view.state == SC_STATE_IDLE)
        sc_text_add(&text, ", and has not called sc_join");
    if (view.state == SC_STATE_ABORTING && view.captures != 0)
        sc_text_add(&text, ", %u captures are not released", view.captures);
    if (view.state == SC_STATE_ABORTING && api->replayer != NULL)
        sc_text_add(&text, ", a thread has begun a replay and not ended it");
    if (view.state == SC_STATE_ABORTING && api->turn != NULL)
        sc_text_add(&text, ", the driver keeps a thread that enqueues");
    for (uint32_t r = 0; r < api->world_size; r++)
        explain_peer(api, r, &text);
    if (view.cause.code != SC_OK)
        sc_text_add(&text, "; last cause: %s", sc_cause_text(&view.cause, cause, sizeof cause));
}

static sc_status not_ready(struct sc_call *call, sc_status status) {
    char text[600];
    sc_api_explain(call->api, text, sizeof text);
    sc_error_detail("%s", text);
    return status;
}

static void copy_recovery(const struct sc_recovery *from, struct sc_recovery *to) {
    uint32_t size = to->size;
    memcpy(to, from, size < sizeof *from ? size : sizeof *from);
    to->size = size;
}

sc_status sc_wait_ready(sc_comm comm, uint64_t timeout_ns, struct sc_recovery *recovery) {
    struct sc_call call;
    sc_status status = sc_call_begin(&call, comm, "wait_ready", SC_WORD_NONE);
    if (status != SC_OK)
        return status;
    struct sc_api *api = call.api;
    if (recovery == NULL || recovery->size < offsetof(struct sc_recovery, ranks)) {
        sc_error_detail("recovery is NULL, or its size is not set to sizeof(struct sc_recovery)");
        return sc_call_end(&call, SC_INVALID);
    }
    uint64_t deadline_ns = sc_call_deadline(&call, timeout_ns);
    for (;;) {
        struct sc_core_view view;
        struct sc_recovery record;
        sc_pump_view(api->pump, &view);
        if (sc_pump_take_recovery(api->pump, &record) == SC_OK) {
            copy_recovery(&record, recovery);
            if (api->world.on_recovery != NULL)
                api->world.on_recovery(api->world.owner, &record);
            return sc_call_end(&call, SC_OK);
        }
        if (api->closing)
            return sc_call_end(&call, SC_CLOSED);
        if (view.state == SC_STATE_FAILED)
            return sc_call_end(&call, not_ready(&call, (sc_status)view.cause.code));
        if (api->join_timeouts != api->join_timeouts_served) {
            api->join_timeouts_served = api->join_timeouts;
            return sc_call_end(&call, not_ready(&call, SC_JOIN_TIMEOUT));
        }
        status = sc_call_await(&call, deadline_ns);
        if (status == SC_TIMEOUT)
            status = not_ready(&call, SC_TIMEOUT);
        if (status != SC_OK)
            return sc_call_end(&call, status);
    }
}

sc_status sc_join(sc_comm comm) {
    struct sc_call call;
    sc_status status = sc_call_begin(&call, comm, "join", SC_WORD_NONE);
    if (status != SC_OK)
        return status;
    sc_pump_join(call.api->pump);
    return sc_call_end(&call, SC_OK);
}

sc_status sc_reconnect(sc_comm comm, uint64_t epoch, uint32_t reason) {
    struct sc_call call;
    sc_status status = sc_call_begin(&call, comm, "reconnect", SC_WORD_NONE);
    if (status != SC_OK)
        return status;
    if (call.api->epoch == epoch)
        status = sc_pump_reconnect(call.api->pump, epoch, reason);
    return sc_call_end(&call, status);
}

sc_status sc_mark(sc_comm comm, uint64_t epoch, uint64_t mark) {
    struct sc_call call;
    sc_status status = sc_call_begin(&call, comm, "mark", SC_WORD_NONE);
    if (status != SC_OK)
        return status;
    const struct sc_world world =
        call.api->world; // told after the call, when the handle may be gone
    status = sc_call_end(&call, sc_pump_mark(call.api->pump, epoch, mark));
    if (status == SC_OK && world.on_word != NULL)
        world.on_word(world.owner, SC_WORD_MARK, mark);
    return status;
}

static bool has_passed(const struct sc_api *api, uint64_t epoch, uint64_t number) {
    for (uint32_t i = 0; i < 2; i++)
        if (api->barriers[i].epoch == epoch)
            return api->barriers[i].passed >= number;
    return false;
}

// Arrivals and calls are counted apart: a call whose time ran out leaves its arrival behind, and the
// next one takes it up.
sc_status sc_barrier(sc_comm comm, uint64_t epoch, uint64_t timeout_ns) {
    struct sc_call call;
    sc_status status = sc_call_begin(&call, comm, "barrier", SC_WORD_NONE);
    if (status != SC_OK)
        return status;
    struct sc_api *api = call.api;
    uint64_t deadline_ns = sc_call_deadline(&call, timeout_ns);
    status = sc_api_epoch_status(api, epoch);
    if (status == SC_OK && api->barriers_called == api->barriers_arrived)
        status = sc_pump_barrier(api->pump, epoch, &api->barriers_arrived);
    if (status == SC_OK)
        status = sc_api_epoch_status(api, epoch); // lost as it arrived: the counts are anew
    if (status != SC_OK)
        return sc_call_end(&call, status);
    uint64_t number = ++api->barriers_called;
    for (;;) {
        if (has_passed(api, epoch, number))
            return sc_call_end(&call, SC_OK);
        if (sc_api_epoch_status(api, epoch) != SC_OK)
            return sc_call_end(&call, SC_EPOCH_LOST);
        status = sc_call_await(&call, deadline_ns);
        if (status == SC_OK)
            continue;
        if (call.inside && sc_api_epoch_status(api, epoch) == SC_OK)
            api->barriers_called--;
        return sc_call_end(&call, status);
    }
}
