// SPDX-License-Identifier: AGPL-3.0-only
//
// Captures, and the announcement of their replays.
#include "core/api_inside.h"

#include <inttypes.h>

static uint64_t handle_of(const void *stream) {
    return (uint64_t)(uintptr_t)stream;
}

static sc_status explained(sc_status status, sc_capture capture) {
    if (status == SC_INVALID)
        sc_error_detail("capture %#" PRIx64
                        " is none, was released, or is in the wrong state: begin, "
                        "end, then replays, then release",
                        capture);
    return status;
}

sc_status sc_capture_begin(sc_comm comm, uint64_t epoch, void *stream, sc_capture *capture) {
    struct sc_call call;
    sc_status status = sc_call_begin(&call, comm, "capture_begin", SC_WORD_NONE);
    if (status != SC_OK)
        return status;
    if (capture == NULL) {
        sc_error_detail("capture is NULL: it could not be ended");
        return sc_call_end(&call, SC_INVALID);
    }
    uint64_t handle;
    status = sc_pump_capture_begin(call.api->pump, epoch, handle_of(stream), &handle);
    if (status == SC_OK)
        *capture = handle;
    return sc_call_end(&call, status);
}

sc_status sc_capture_end(sc_comm comm, sc_capture capture) {
    struct sc_call call;
    sc_status status = sc_call_begin(&call, comm, "capture_end", SC_WORD_NONE);
    if (status != SC_OK)
        return status;
    return sc_call_end(&call, explained(sc_pump_capture_end(call.api->pump, capture), capture));
}

sc_status sc_capture_release(sc_comm comm, sc_capture capture) {
    struct sc_call call;
    sc_status status = sc_call_begin(&call, comm, "capture_release", SC_WORD_NONE);
    if (status != SC_OK)
        return status;
    return sc_call_end(&call, explained(sc_pump_capture_release(call.api->pump, capture), capture));
}

sc_status sc_replay_begin(sc_comm comm, uint64_t epoch, sc_capture capture, void *stream) {
    struct sc_call call;
    sc_status status = sc_call_begin(&call, comm, "replay_begin", SC_WORD_SUBMIT);
    if (status != SC_OK)
        return status;
    struct sc_api *api = call.api;
    uint64_t number, seq;
    if (api->replayer == sc_error_thread()) {
        sc_error_detail("this thread has begun a replay already; end it first");
        return sc_call_end(&call, SC_INVALID);
    }
    for (;;) {
        status = sc_turn_take(&call, epoch);
        if (status != SC_OK)
            return sc_call_end(&call, status);
        status = sc_api_epoch_status(api, epoch);
        if (status == SC_OK)
            status =
                sc_pump_replay_begin(api->pump, epoch, capture, handle_of(stream), &number, &seq);
        sc_turn_give(&call);
        if (status != SC_BUSY)
            break;
        status = sc_submit_wait(&call);
        if (status != SC_OK)
            return sc_call_end(&call, status);
    }
    if (status == SC_OK) {
        api->replayer = sc_error_thread();
        api->replay_number = number;
    }
    return sc_call_end(&call, explained(status, capture));
}

sc_status sc_replay_end(sc_comm comm) {
    struct sc_call call;
    sc_status status = sc_call_begin(&call, comm, "replay_end", SC_WORD_NONE);
    if (status != SC_OK)
        return status;
    struct sc_api *api = call.api;
    if (api->replayer != sc_error_thread()) {
        sc_error_detail("this thread has begun no replay");
        return sc_call_end(&call, SC_INVALID);
    }
    api->replayer = NULL;
    api->changed = true; // whoever waits to submit may
    return sc_call_end(&call, sc_pump_replay_end(api->pump, api->replay_number));
}
