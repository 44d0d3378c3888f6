// SPDX-License-Identifier: AGPL-3.0-only
//
// From a config to a handle, in steps of which each undoes what came before if it fails.
#include "core/api_inside.h"
#include "core/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHY_BYTES 384u
#define CAPTURES_MAX 4096u

// The caller's config as this library knows it; what an older caller lacks keeps its default.
static sc_status read_config(const struct sc_config *from, struct sc_config *config, char *why) {
    sc_config_init(config, sizeof *config);
    if (from == NULL || from->size < offsetof(struct sc_config, timing) ||
        from->size > sizeof *config) {
        snprintf(why, WHY_BYTES,
                 "config is NULL, or its size is %u; sc_config_init sets it, at most to %zu",
                 from != NULL ? from->size : 0u, sizeof *config);
        return SC_INVALID;
    }
    memcpy(config, from, from->size);
    if ((config->flags & ~(SC_OPEN_HOLD | SC_OPEN_BUSY)) != 0)
        snprintf(why, WHY_BYTES, "config: flags are %#x; SC_OPEN_HOLD and SC_OPEN_BUSY are known",
                 config->flags);
    else if (config->master_port > 65535)
        snprintf(why, WHY_BYTES, "config: master_port is %u, must be from 1 to 65535",
                 config->master_port);
    else if (config->key != NULL && config->key_file != NULL)
        snprintf(why, WHY_BYTES, "config: both key and key_file are given; give one of them");
    else if (config->notes_max == 0 || config->notes_max > 65536)
        snprintf(why, WHY_BYTES, "config: notes_max is %u, must be from 1 to 65536",
                 config->notes_max);
    else if (config->captures_max > CAPTURES_MAX)
        snprintf(why, WHY_BYTES, "config: captures_max is %u, must be at most %u",
                 config->captures_max, CAPTURES_MAX);
    else
        return SC_OK;
    return SC_INVALID;
}

static void *zeroed(size_t count, size_t bytes) {
    return calloc(count, bytes);
}

static sc_status allocate(struct sc_api *api, const struct sc_config *config) {
    api->tickets_count = config->ledger_ops;
    api->notes_max = config->notes_max;
    api->tickets = zeroed(api->tickets_count, sizeof *api->tickets);
    api->notes = config->on_note != NULL ? zeroed(api->notes_max, sizeof *api->notes) : NULL;
    api->commands = config->rank != 0 ? zeroed(1, SC_COMMAND_WINDOW_BYTES) : NULL;
    bool whole = api->tickets != NULL && (config->on_note == NULL || api->notes != NULL) &&
                 (config->rank == 0 || api->commands != NULL);
    return whole ? SC_OK : SC_NO_MEMORY;
}

static sc_status open_pump(struct sc_api *api, const struct sc_config *config, char *why) {
    struct sc_pump_config pump;
    sc_pump_config_init(&pump);
    pump.core.rank = config->rank;
    pump.core.world = config->world;
    pump.core.job = config->job;
    pump.core.capacity_bytes = config->capacity_bytes;
    pump.core.library = api->world.library;
    pump.core.ledger_ops = config->ledger_ops;
    pump.core.hold = (config->flags & SC_OPEN_HOLD) != 0;
    pump.core.timing = config->timing;
    pump.core.join_ns = config->join_ns;
    pump.master_host = config->master_host;
    pump.master_port = (uint16_t)config->master_port;
    pump.captures_max = config->captures_max;
    pump.host = api->world.host;
    pump.link = api->world.link;
    pump.device = api->world.device;
    sc_api_hooks(api, &pump);
    sc_status status = sc_pump_open(&pump, &api->pump, why, WHY_BYTES);
    if (status != SC_OK)
        return status;
    const struct sc_device *device = api->world.device;
    status = device->stream_create(device->ctx, &api->own_stream);
    if (status != SC_OK)
        snprintf(why, WHY_BYTES, "the stream of started ops: %s", sc_status_sentence(status));
    return status;
}

static sc_status start_threads(struct sc_api *api, char *why) {
    const struct sc_host *host = api->host;
    sc_status status = host->thread_start(host->ctx, SC_HOST_PROGRESS, sc_api_progress, api);
    if (status == SC_OK && api->on_note != NULL)
        status = host->thread_start(host->ctx, SC_HOST_NOTIFIER, sc_api_notify_step, api);
    if (status != SC_OK)
        snprintf(why, WHY_BYTES, "threads: %s", sc_status_sentence(status));
    return status;
}

static void remark(void *api, enum sc_note_kind kind, const char *line) {
    char clean[SC_NOTE_TEXT_BYTES];
    sc_text_clean(line, clean, sizeof clean);
    sc_note_push(api, (struct sc_note){.kind = kind}, "%s", clean);
}

static void say_once(struct sc_api *api, const struct sc_config *config) {
    if (config->world > 1 && config->key == NULL && config->key_file == NULL)
        sc_note_push(api, (struct sc_note){.kind = SC_NOTE_UNKEYED, .rank = config->rank},
                     "links are not keyed: whoever reaches %s port %u can claim a rank and read "
                     "what ranks tell each other; give all ranks a key",
                     config->master_host, config->master_port);
    if (api->world.remarks != NULL)
        api->world.remarks(api->world.owner, remark, api);
}

static sc_status build(struct sc_api *api, struct sc_config *config, char *why) {
    why[0] = '\0';
    api->rank = config->rank;
    api->world_size = config->world;
    api->flags = config->flags;
    api->capacity_bytes = config->capacity_bytes;
    api->on_note = config->on_note;
    api->note_arg = config->arg;
    api->host = api->world.host;
    sc_status status = allocate(api, config);
    if (status == SC_OK && api->world.environment)
        status = sc_config_override(config, api, why, WHY_BYTES);
    if (status == SC_OK)
        status = open_pump(api, config, why);
    if (status == SC_INVALID && api->world.environment)
        sc_config_blame(why, WHY_BYTES);
    if (status != SC_OK)
        return status;
    api->heartbeat_ns = config->timing.heartbeat_ns;
    say_once(api, config);
    sc_picture_publish(api);
    return start_threads(api, why);
}

void sc_api_free(struct sc_api *api) {
    const struct sc_device *device = api->world.device;
    sc_memory_free(api);
    if (api->own_stream != 0)
        (void)device->stream_destroy(device->ctx, api->own_stream);
    sc_pump_destroy(api->pump);
    sc_world_release(&api->world);
    free(api->memory);
    free(api->commands);
    free(api->notes);
    free(api->tickets);
    free(api);
}

static void stop_threads(struct sc_api *api) {
    api->host->thread_stop(api->host->ctx, SC_HOST_PROGRESS);
    api->host->thread_stop(api->host->ctx, SC_HOST_NOTIFIER);
}

static sc_status refuse(sc_status status, const char *why) {
    sc_api_error("open", status, "%s", why[0] != '\0' ? why : sc_status_sentence(status));
    return status;
}

sc_status sc_open(const struct sc_config *config, sc_comm *comm) {
    struct sc_config own;
    struct sc_world world;
    char why[WHY_BYTES] = "";
    uint32_t slot;
    _Atomic uint64_t *live_epoch;
    sc_comm handle;
    sc_status status = read_config(config, &own, why);
    if (status == SC_OK && comm == NULL) {
        snprintf(why, sizeof why, "comm is NULL: the handle could not be closed");
        status = SC_INVALID;
    }
    if (status == SC_OK)
        status = sc_choose(&own, &world, why, sizeof why);
    if (status != SC_OK)
        return refuse(status, why);
    struct sc_api *api = aligned_alloc(64, (sizeof *api + 63) / 64 * 64);
    if (api == NULL || (status = sc_table_take(&slot, &handle, &live_epoch)) != SC_OK) {
        sc_world_release(&world);
        free(api);
        snprintf(why, sizeof why, "%u handles are open; close one", SC_API_HANDLES_MAX);
        return refuse(status != SC_OK ? status : SC_NO_MEMORY, api == NULL ? "" : why);
    }
    memset(api, 0, sizeof *api);
    api->comm = handle;
    api->live_epoch = live_epoch;
    api->world = world;
    status = build(api, &own, why);
    if (status != SC_OK) {
        stop_threads(api);
        sc_api_free(api);
        sc_table_give_back(slot);
        return refuse(status, why);
    }
    sc_table_publish(slot, api);
    *comm = handle;
    if (world.opened != NULL)
        world.opened(world.owner, handle);
    return SC_OK;
}

// ---- closing ----

static bool is_over(const struct sc_api *api) {
    return api->state == SC_STATE_CLOSED && api->callers == 1 && api->notes_count == 0 &&
           !api->note_delivering;
}

static void end(struct sc_call *call) {
    struct sc_api *api = call->api;
    uint32_t slot = call->slot;
    api->ended = true;
    api->host->leave(api->host->ctx);
    sc_table_withdraw(slot, 1);
    stop_threads(api);
    sc_api_free(api);
    sc_table_give_back(slot);
    sc_table_release(slot);
}

sc_status sc_close(sc_comm comm, enum sc_close_how how, uint64_t timeout_ns) {
    struct sc_call call;
    sc_status status = sc_call_begin(&call, comm, "close", SC_WORD_NONE);
    if (status != SC_OK)
        return status;
    struct sc_api *api = call.api;
    uint64_t deadline_ns = sc_call_deadline(&call, timeout_ns);
    call.interrupts = api->interrupts_served = atomic_load(&api->interrupts);
    if (how != SC_CLOSE_FINAL && how != SC_CLOSE_RETURNING) {
        sc_error_detail("how is %d; SC_CLOSE_FINAL and SC_CLOSE_RETURNING are known", (int)how);
        return sc_call_end(&call, SC_INVALID);
    }
    if (api->closer) {
        sc_error_detail("another thread is closing this handle");
        return sc_call_end(&call, SC_CLOSED);
    }
    api->closer = true;
    if (!api->closing) {
        status = sc_pump_close(api->pump, how == SC_CLOSE_FINAL);
        SC_ASSERT(status == SC_OK); // the only other answer is for a second close
        api->closing = true;
        api->changed = true;
    }
    while (!is_over(api)) {
        status = sc_call_await(&call, deadline_ns);
        if (status == SC_TIMEOUT) {
            char text[300];
            sc_api_explain(api, text, sizeof text);
            sc_error_detail("%s; %u other calls are under way", text, api->callers - 1);
        }
        if (status == SC_OK)
            continue;
        api->closer = false;
        return sc_call_end(&call, status);
    }
    struct sc_core_view view;
    sc_pump_view(api->pump, &view);
    status = view.cause.code == SC_ABORT_STUCK ? SC_ABORT_STUCK : SC_OK;
    end(&call);
    if (status != SC_OK)
        sc_error_set("close", status);
    return status;
}

void sc_api_abandon(sc_comm comm) {
    uint32_t slot;
    sc_status status;
    struct sc_api *api = sc_table_hold(comm, &slot, &status);
    if (api == NULL)
        return;
    sc_table_withdraw(slot, 1);
    stop_threads(api);
    sc_api_free(api);
    sc_table_give_back(slot);
    sc_table_release(slot);
}
