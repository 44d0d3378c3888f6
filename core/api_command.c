// SPDX-License-Identifier: AGPL-3.0-only
//
// Commands: from rank 0 to all others. What has been received and not yet taken lies in one buffer as
// large as the window that the core lets rank 0 fill, so that there is always room for the next.
#include "core/api_inside.h"

#include <inttypes.h>
#include <string.h>

void sc_command_received(struct sc_api *api, const void *data, uint32_t bytes) {
    uint64_t length = bytes;
    uint32_t cost = (uint32_t)sc_command_cost(bytes); // at most the window
    if (cost > SC_COMMAND_WINDOW_BYTES - api->commands_tail) {
        memmove(api->commands, api->commands + api->commands_head,
                api->commands_tail - api->commands_head);
        api->commands_tail -= api->commands_head;
        api->commands_head = 0;
    }
    SC_ASSERT(cost <= SC_COMMAND_WINDOW_BYTES - api->commands_tail);
    memcpy(api->commands + api->commands_tail, &length, sizeof length);
    if (bytes != 0)
        memcpy(api->commands + api->commands_tail + sizeof length, data, bytes);
    api->commands_tail += cost;
}

static sc_status wrong_side(const struct sc_api *api) {
    sc_error_detail("this is rank %u; rank 0 sends commands and every other rank receives them",
                    api->rank);
    return SC_INVALID;
}

sc_status sc_command_send(sc_comm comm, uint64_t epoch, const void *data, uint32_t bytes,
                          uint64_t timeout_ns) {
    struct sc_call call;
    sc_status status = sc_call_begin(&call, comm, "command_send", SC_WORD_NONE);
    if (status != SC_OK)
        return status;
    struct sc_api *api = call.api;
    uint64_t deadline_ns = sc_call_deadline(&call, timeout_ns);
    if (api->rank != 0)
        return sc_call_end(&call, wrong_side(api));
    if (bytes > SC_COMMAND_MAX_BYTES || (data == NULL && bytes != 0)) {
        sc_error_detail("%u bytes at %p; a command has 0 to %u bytes", bytes, data,
                        SC_COMMAND_MAX_BYTES);
        return sc_call_end(&call, SC_INVALID);
    }
    while ((status = sc_pump_command(api->pump, epoch, data, bytes)) == SC_BUSY) {
        status = sc_call_await(&call, deadline_ns);
        if (status != SC_OK)
            break;
    }
    return sc_call_end(&call, status);
}

sc_status sc_command_recv(sc_comm comm, uint64_t epoch, void *data, uint32_t capacity,
                          uint32_t *bytes, uint64_t timeout_ns) {
    struct sc_call call;
    sc_status status = sc_call_begin(&call, comm, "command_recv", SC_WORD_NONE);
    if (status != SC_OK)
        return status;
    struct sc_api *api = call.api;
    uint64_t deadline_ns = sc_call_deadline(&call, timeout_ns), length;
    if (api->rank == 0)
        return sc_call_end(&call, wrong_side(api));
    if (bytes == NULL || (data == NULL && capacity != 0)) {
        sc_error_detail("bytes is NULL, or data is, for a capacity of %u bytes", capacity);
        return sc_call_end(&call, SC_INVALID);
    }
    while ((status = sc_api_epoch_status(api, epoch)) == SC_OK &&
           api->commands_head == api->commands_tail) {
        status = sc_call_await(&call, deadline_ns);
        if (status != SC_OK)
            break;
    }
    if (status != SC_OK)
        return sc_call_end(&call, status);
    memcpy(&length, api->commands + api->commands_head, sizeof length);
    *bytes = (uint32_t)length;
    if (length > capacity) {
        sc_error_detail("the next command has %" PRIu64 " bytes, the buffer %u", length, capacity);
        return sc_call_end(&call, SC_TOO_LARGE);
    }
    if (length != 0)
        memcpy(data, api->commands + api->commands_head + sizeof length, length);
    uint32_t cost = (uint32_t)sc_command_cost((uint32_t)length);
    api->commands_head += cost;
    return sc_call_end(&call, sc_pump_command_taken(api->pump, epoch, cost));
}
