// SPDX-License-Identifier: AGPL-3.0-only
//
// When results count.
#include "core/api_inside.h"

#include <inttypes.h>

#define LOOKS_NS 100000u

// What was submitted on `stream` so far, and what was started: those ops run on our own stream.
struct target {
    uint64_t number;
    uint64_t started;
};

static struct target target_of(const struct sc_api *api, const void *stream) {
    return (struct target){
        sc_pump_stream_newest(api->pump, (uint64_t)(uintptr_t)stream),
        sc_pump_stream_newest(api->pump, api->own_stream),
    };
}

static bool reached(const struct sc_api *api, struct target target) {
    return !sc_pump_op_pending(api->pump, target.number) &&
           !sc_pump_op_pending(api->pump, target.started);
}

static sc_status lost(const struct sc_api *api) {
    struct sc_core_view view;
    sc_pump_view(api->pump, &view);
    sc_error_cause(&view.cause);
    return SC_EPOCH_LOST;
}

static void explain_timeout(const struct sc_api *api) {
    struct sc_core_view view;
    sc_pump_view(api->pump, &view);
    sc_error_detail("of %" PRIu64 " collectives %" PRIu64 " have started and %" PRIu64
                    " are complete; the epoch lives",
                    view.submitted, view.started, view.completed);
}

// A wait begins by looking: to fall asleep and to be woken takes longer than many an op. Not where a
// poll says all, and the device tells of its changes by itself.
static uint64_t looks_until(const struct sc_api *api, uint64_t deadline_ns) {
    if (api->world.device->ops_look == NULL)
        return 0;
    uint64_t until_ns = api->host->now_ns(api->host->ctx) + LOOKS_NS;
    return until_ns < deadline_ns ? until_ns : deadline_ns;
}

// Waits until everything up to the target has completed in this epoch.
static sc_status wait_local(struct sc_call *call, uint64_t epoch, struct target target,
                            uint64_t deadline_ns) {
    struct sc_api *api = call->api;
    uint64_t asleep_ns = looks_until(api, deadline_ns);
    for (bool looks = asleep_ns != 0;; looks = api->host->now_ns(api->host->ctx) < asleep_ns) {
        sc_status status = looks ? sc_call_look(call) : SC_OK;
        if (status != SC_OK)
            return status;
        sc_pump_poll(api->pump);
        if (sc_api_epoch_status(api, epoch) != SC_OK)
            return SC_EPOCH_LOST;
        if (reached(api, target))
            return SC_OK;
        if (!looks)
            status = sc_call_await_op(call, deadline_ns);
        if (status == SC_TIMEOUT)
            explain_timeout(api);
        if (status != SC_OK)
            return status;
    }
}

// Names the first rank that is known to be behind; a member knows of rank 0 only.
static void explain_disagreement(const struct sc_api *api, uint64_t seq) {
    for (uint32_t r = 0; r < api->world_size; r++) {
        struct sc_peer_view peer;
        if (sc_core_peer_view(sc_pump_core(api->pump), r, &peer) != SC_OK || peer.submitted >= seq)
            continue;
        sc_error_detail("collective %" PRIu64 " is not agreed: rank %u has submitted %" PRIu64
                        ", as it last said; the epoch lives",
                        seq, r, peer.submitted);
        return;
    }
    sc_error_detail("collective %" PRIu64 " is not agreed yet; the epoch lives", seq);
}

static sc_status wait_agreed(struct sc_call *call, uint64_t epoch, uint64_t seq,
                             uint64_t deadline_ns) {
    struct sc_api *api = call->api;
    sc_status status = sc_pump_sync(api->pump, epoch, seq);
    while (status == SC_OK && sc_api_epoch_status(api, epoch) == SC_OK && api->agreed < seq)
        status = sc_call_await(call, deadline_ns);
    if (status == SC_TIMEOUT)
        explain_disagreement(api, seq);
    if (status == SC_OK)
        status = sc_api_epoch_status(api, epoch);
    return status;
}

sc_status sc_sync(sc_comm comm, uint64_t epoch, void *stream, enum sc_sync_how how,
                  uint64_t timeout_ns) {
    struct sc_call call;
    sc_status status = sc_call_begin(&call, comm, "sync", SC_WORD_NONE);
    if (status != SC_OK)
        return status;
    struct sc_api *api = call.api;
    struct sc_core_view view;
    if (how != SC_SYNC_LOCAL && how != SC_SYNC_AGREED) {
        sc_error_detail("how is %d; SC_SYNC_LOCAL and SC_SYNC_AGREED are known", (int)how);
        return sc_call_end(&call, SC_INVALID);
    }
    sc_pump_view(api->pump, &view);
    uint64_t deadline_ns = sc_call_deadline(&call, timeout_ns);
    status = wait_local(&call, epoch, target_of(api, stream), deadline_ns);
    if (status == SC_OK && how == SC_SYNC_AGREED)
        status = wait_agreed(&call, epoch, view.submitted, deadline_ns);
    return sc_call_end(&call, status == SC_EPOCH_LOST ? lost(api) : status);
}

sc_status sc_test(sc_comm comm, uint64_t epoch, void *stream) {
    struct sc_call call;
    sc_status status = sc_call_begin(&call, comm, "test", SC_WORD_NONE);
    if (status != SC_OK)
        return status;
    struct target target = target_of(call.api, stream);
    status = sc_call_look(&call);
    if (status == SC_OK)
        sc_pump_poll(call.api->pump);
    if (status == SC_OK)
        status = sc_api_epoch_status(call.api, epoch);
    if (status == SC_OK && !reached(call.api, target))
        status = SC_INPROGRESS;
    return sc_call_end(&call, status == SC_EPOCH_LOST ? lost(call.api) : status);
}
