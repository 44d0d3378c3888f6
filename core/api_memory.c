// SPDX-License-Identifier: AGPL-3.0-only
//
// Buffers that the communicator is told of, and device memory. What the application frees goes back to
// the device when no communicator can touch it any more.
#include "core/api_inside.h"
#include "core/registry.h"

#include <inttypes.h>
#include <stdlib.h>

static uint64_t address_of(const void *buffer) {
    return (uint64_t)(uintptr_t)buffer;
}

sc_status sc_buffer_register(sc_comm comm, void *buffer, uint64_t bytes) {
    struct sc_call call;
    sc_status status = sc_call_begin(&call, comm, "buffer_register", SC_WORD_NONE);
    if (status != SC_OK)
        return status;
    status = sc_turn_take(&call, 0);
    if (status == SC_OK) {
        status = sc_pump_register(call.api->pump, address_of(buffer), bytes);
        sc_turn_give(&call);
    }
    if (status == SC_INVALID)
        sc_error_detail("%" PRIu64 " bytes at %p: empty, wrapped around memory, or a buffer that "
                        "begins here is registered already",
                        bytes, buffer);
    else if (status == SC_NO_MEMORY)
        sc_error_detail("%u buffers are registered; deregister one", SC_REGISTRY_MAX);
    return sc_call_end(&call, status);
}

sc_status sc_buffer_deregister(sc_comm comm, void *buffer) {
    struct sc_call call;
    sc_status status = sc_call_begin(&call, comm, "buffer_deregister", SC_WORD_NONE);
    if (status != SC_OK)
        return status;
    status = sc_turn_take(&call, 0);
    if (status == SC_OK) {
        status = sc_pump_deregister(call.api->pump, address_of(buffer));
        sc_turn_give(&call);
    }
    if (status == SC_INVALID)
        sc_error_detail("no registered buffer begins at %p", buffer);
    return sc_call_end(&call, status);
}

static struct sc_api_memory *room(struct sc_api *api) {
    if (api->memory_count == api->memory_capacity) {
        uint32_t capacity = api->memory_capacity != 0 ? 2 * api->memory_capacity : 16;
        struct sc_api_memory *grown = realloc(api->memory, capacity * sizeof *grown);
        if (grown == NULL)
            return NULL;
        api->memory = grown;
        api->memory_capacity = capacity;
    }
    return &api->memory[api->memory_count];
}

static sc_status allocate(struct sc_call *call, uint64_t bytes, uint64_t *address) {
    const struct sc_device *device = call->api->world.device;
    sc_call_leave(call);
    sc_status status = device->mem_alloc(device->ctx, bytes, address);
    sc_status back = sc_call_enter(call);
    return back != SC_OK ? back : status;
}

sc_status sc_mem_alloc(sc_comm comm, uint64_t bytes, void **buffer) {
    struct sc_call call;
    sc_status status = sc_call_begin(&call, comm, "mem_alloc", SC_WORD_NONE);
    if (status != SC_OK)
        return status;
    struct sc_api *api = call.api;
    uint64_t address = 0;
    status = bytes == 0 || buffer == NULL ? SC_INVALID : allocate(&call, bytes, &address);
    struct sc_api_memory *slot = call.inside && status == SC_OK ? room(api) : NULL;
    if (status == SC_OK && slot == NULL) {
        (void)api->world.device->mem_free(api->world.device->ctx, address);
        status = SC_NO_MEMORY;
    }
    if (status != SC_OK) {
        sc_error_detail("%s: %" PRIu64 " bytes", sc_status_sentence(status), bytes);
        return sc_call_end(&call, status);
    }
    *slot = (struct sc_api_memory){.address = address, .bytes = bytes};
    api->memory_count++;
    api->memory_bytes += bytes;
    *buffer = (void *)(uintptr_t)address;
    return sc_call_end(&call, SC_OK);
}

// The epoch whose communicator lives, or whose ops still stand on a stream; 0: none.
static uint64_t living(const struct sc_api *api) {
    struct sc_core_view view;
    sc_pump_view(api->pump, &view);
    bool any = sc_pump_touches_memory(api->pump) || sc_pump_ops_pending(api->pump);
    return any ? view.epoch : 0;
}

static void keep_what_is_known(struct sc_api *api) {
    if (api->abandoned == sc_pump_abandoned(api->pump))
        return;
    api->abandoned = sc_pump_abandoned(api->pump);
    for (uint32_t i = 0; i < api->memory_count; i++)
        api->memory[i].kept = true;
}

void sc_memory_sweep(struct sc_api *api) {
    const struct sc_device *device = api->world.device;
    api->memory_due = false;
    keep_what_is_known(api);
    uint64_t epoch = living(api);
    for (uint32_t i = api->memory_count; i-- > 0;) {
        struct sc_api_memory *m = &api->memory[i];
        if (!m->freed || m->kept || (epoch != 0 && m->freed_in == epoch))
            continue; // an epoch's end is a change of state
        if (device->mem_free(device->ctx, m->address) != SC_OK)
            continue;
        api->memory_bytes -= m->bytes;
        *m = api->memory[--api->memory_count];
    }
}

void sc_memory_free(struct sc_api *api) {
    const struct sc_device *device = api->world.device;
    if (api->pump != NULL && sc_pump_touches_memory(api->pump))
        return;
    if (api->pump != NULL)
        keep_what_is_known(api);
    for (uint32_t i = 0; i < api->memory_count; i++)
        if (!api->memory[i].kept)
            (void)device->mem_free(device->ctx, api->memory[i].address);
}

static struct sc_api_memory *find(struct sc_api *api, uint64_t address) {
    for (uint32_t i = 0; i < api->memory_count; i++)
        if (api->memory[i].address == address && !api->memory[i].freed)
            return &api->memory[i];
    return NULL;
}

sc_status sc_mem_free(sc_comm comm, void *buffer) {
    struct sc_call call;
    sc_status status = sc_call_begin(&call, comm, "mem_free", SC_WORD_NONE);
    if (status != SC_OK)
        return status;
    struct sc_api *api = call.api;
    uint64_t address = address_of(buffer);
    status = sc_turn_take(&call, 0);
    if (status != SC_OK)
        return sc_call_end(&call, status);
    if (find(api, address) == NULL) {
        sc_error_detail("%p did not come from sc_mem_alloc, or was freed", buffer);
        status = SC_INVALID;
    } else if (sc_pump_deregister(api->pump, address) == SC_SIM_KILLED) {
        status = SC_SIM_KILLED; // whatever else it said: the buffer may not have been registered
    } else {
        struct sc_api_memory *memory = find(api, address);
        memory->freed = true;
        memory->freed_in = living(api);
        api->memory_due = true;
    }
    sc_turn_give(&call);
    return sc_call_end(&call, status);
}
