// SPDX-License-Identifier: AGPL-3.0-only
//
// The picture that sc_health reads: words behind a version, which is odd while they are written. The
// monitor keeps writers apart; readers take no lock and look again when the version moved.
#include "core/api_inside.h"

#include <string.h>

_Static_assert(sizeof(struct sc_health_report) % sizeof(uint64_t) == 0, "whole words");

// Words that count in a world of that size.
static size_t words_used(uint32_t world) {
    return (offsetof(struct sc_health_report, peers) + world * sizeof(struct sc_peer_health)) /
           sizeof(uint64_t);
}

static void draw(struct sc_api *api, struct sc_health_report *out) {
    struct sc_core_view view;
    sc_pump_view(api->pump, &view);
    *out = (struct sc_health_report){
        .size = sizeof *out,
        .state = view.state,
        .now_ns = api->host->now_ns(api->host->ctx),
        .epoch = view.epoch,
        .recoveries = view.recoveries,
        .incarnation = view.incarnation,
        .submitted = view.submitted,
        .completed = view.completed,
        .mark = view.mark,
        .device_bytes = sc_pump_device_bytes(api->pump) + api->memory_bytes,
        .notes_dropped = api->notes_dropped,
        .captures = view.state == SC_STATE_ABORTING ? view.captures : 0,
        .draining = view.draining,
        .world = api->world_size,
        .cause = view.cause,
        .phases = view.phases,
    };
    for (uint32_t r = 0; r < api->world_size; r++) {
        struct sc_peer_view peer;
        if (sc_core_peer_view(sc_pump_core(api->pump), r, &peer) != SC_OK)
            continue;
        out->peers[r] = (struct sc_peer_health){
            .heard_ns = peer.heard_ns,
            .incarnation = peer.incarnation,
            .submitted = peer.submitted,
            .completed = peer.completed,
            .mark = peer.mark,
            .state = peer.state,
            .loading = peer.loading,
        };
    }
}

void sc_picture_publish(struct sc_api *api) {
    struct sc_health_report report;
    uint64_t words[SC_PICTURE_WORDS];
    size_t used = words_used(api->world_size);
    draw(api, &report);
    memcpy(words, &report, used * sizeof words[0]);
    uint64_t version = atomic_load_explicit(&api->picture_version, memory_order_relaxed);
    atomic_store_explicit(&api->picture_version, version + 1, memory_order_relaxed);
    for (size_t i = 0; i < used; i++) // a reader that sees one of these sees the odd version, too
        atomic_store_explicit(&api->picture[i], words[i], memory_order_release);
    atomic_store_explicit(&api->picture_version, version + 2, memory_order_release);
}

void sc_picture_read(struct sc_api *api, struct sc_health_report *out) {
    uint64_t words[SC_PICTURE_WORDS], before, after;
    size_t used = words_used(api->world_size);
    do {
        before = atomic_load_explicit(&api->picture_version, memory_order_acquire);
        for (size_t i = 0; i < used; i++)
            words[i] = atomic_load_explicit(&api->picture[i], memory_order_acquire);
        after = atomic_load_explicit(&api->picture_version, memory_order_relaxed);
    } while (before != after || before % 2 != 0);
    uint32_t size = out->size;
    size_t bytes = used * sizeof words[0] < size ? used * sizeof words[0] : size;
    memset(out, 0, size < sizeof *out ? size : sizeof *out);
    memcpy(out, words, bytes);
    out->size = size;
}

sc_status sc_health(sc_comm comm, struct sc_health_report *out) {
    uint32_t slot;
    sc_status status;
    struct sc_api *api = sc_table_hold(comm, &slot, &status);
    if (api != NULL) {
        bool fits = out != NULL && out->size >= offsetof(struct sc_health_report, now_ns);
        status = fits ? SC_OK : SC_INVALID;
        if (fits)
            sc_picture_read(api, out);
        sc_table_release(slot);
    }
    if (status == SC_INVALID)
        sc_error_detail("out is NULL, or its size is not set to sizeof(struct sc_health_report)");
    if (status != SC_OK)
        sc_error_set("health", status);
    return status;
}

sc_status sc_event_fd(sc_comm comm, int *fd) {
    struct sc_call call;
    sc_status status = sc_call_begin(&call, comm, "event_fd", SC_WORD_NONE);
    if (status != SC_OK)
        return status;
    const struct sc_host *host = call.api->host;
    int descriptor = host->event_fd(host->ctx);
    if (fd == NULL) {
        sc_error_detail("fd is NULL");
        return sc_call_end(&call, SC_INVALID);
    }
    if (descriptor < 0) {
        sc_error_detail("this world has no descriptors; its time is virtual");
        return sc_call_end(&call, SC_UNAVAILABLE);
    }
    *fd = descriptor;
    return sc_call_end(&call, SC_OK);
}
