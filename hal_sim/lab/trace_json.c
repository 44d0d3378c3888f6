// SPDX-License-Identifier: AGPL-3.0-only
//
// The trace as a file that Perfetto and chrome://tracing open: an array of events, one a line. Times
// are microseconds with the nanoseconds as a fraction.
#include "hal_sim/lab/trace.h"

#include <inttypes.h>
#include <stdarg.h>

#define NO_STATE SC_STATE_COUNT // between a rank's processes

__attribute__((format(printf, 2, 3))) static void put(struct sc_trace_json *json,
                                                      const char *format, ...) {
    va_list arguments;

    fputs(json->first ? "\n" : ",\n", json->file);
    json->first = false;
    va_start(arguments, format);
    vfprintf(json->file, format, arguments);
    va_end(arguments);
}

static void name_track(struct sc_trace_json *json, uint32_t track, const char *name) {
    put(json,
        "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":0,\"tid\":%" PRIu32
        ",\"args\":{\"name\":\"%s\"}}",
        track, name);
    put(json,
        "{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":0,\"tid\":%" PRIu32
        ",\"args\":{\"sort_index\":%" PRIu32 "}}",
        track, track);
}

bool sc_trace_json_open(struct sc_trace_json *json, const char *path, uint32_t ranks) {
    *json = (struct sc_trace_json){.first = true, .ranks = ranks};
    if (ranks > SC_WORLD_MAX || (json->file = fopen(path, "we")) == NULL)
        return false;
    fputs("[", json->file);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        char name[16];
        snprintf(name, sizeof name, "rank %" PRIu32, rank);
        name_track(json, rank, name);
        json->state[rank] = NO_STATE;
    }
    name_track(json, ranks, "world");
    return true;
}

// The slice of the state that ends here; what begins here is in the state from now on.
static void enter(struct sc_trace_json *json, uint32_t rank, uint64_t now_ns, uint32_t state) {
    uint64_t since_ns = json->state_since_ns[rank];
    uint64_t lasted_ns = now_ns - since_ns;

    if (json->state[rank] != NO_STATE && lasted_ns != 0) {
        put(json,
            "{\"ph\":\"X\",\"name\":\"%s\",\"pid\":0,\"tid\":%" PRIu32 ",\"ts\":%" PRIu64
            ".%03" PRIu64 ",\"dur\":%" PRIu64 ".%03" PRIu64 "}",
            sc_state_name((enum sc_state)json->state[rank]), rank, since_ns / 1000, since_ns % 1000,
            lasted_ns / 1000, lasted_ns % 1000);
    }
    json->state[rank] = state;
    json->state_since_ns[rank] = now_ns;
}

static void put_instant(struct sc_trace_json *json, const struct sc_trace_entry *entry,
                        const char *line) {
    bool world = entry->rank >= json->ranks;
    char escaped[1024];
    size_t used = 0;

    for (; *line != '\0' && used + 7 < sizeof escaped; line++) {
        unsigned char c = (unsigned char)*line;
        if (c == '"' || c == '\\')
            escaped[used++] = '\\';
        if (c < 0x20) {
            used += (size_t)snprintf(escaped + used, 7, "\\u%04x", (unsigned)c);
        } else {
            escaped[used++] = (char)c;
        }
    }
    escaped[used] = '\0';
    put(json,
        "{\"ph\":\"i\",\"s\":\"%s\",\"name\":\"%s\",\"pid\":0,\"tid\":%" PRIu32 ",\"ts\":%" PRIu64
        ".%03" PRIu64 "}",
        world ? "p" : "t", escaped, world ? json->ranks : entry->rank, entry->now_ns / 1000,
        entry->now_ns % 1000);
}

void sc_trace_json_add(struct sc_trace_json *json, const struct sc_trace_entry *entry) {
    char line[512];

    if (json->file == NULL)
        return;
    if (entry->rank < json->ranks && !entry->former) {
        if (entry->kind == SC_TRACE_NOTICE && entry->notice->kind == SC_NOTICE_STATE)
            enter(json, entry->rank, entry->now_ns, (uint32_t)entry->notice->b);
        bool opened = entry->text == NULL || entry->text[0] == '\0';
        if (entry->kind == SC_TRACE_SPAWN)
            enter(json, entry->rank, entry->now_ns, opened ? SC_STATE_IDLE : NO_STATE);
        if (entry->kind == SC_TRACE_END)
            enter(json, entry->rank, entry->now_ns, NO_STATE);
    }
    if (sc_trace_line(entry, line, sizeof line))
        put_instant(json, entry, line);
}

bool sc_trace_json_close(struct sc_trace_json *json, uint64_t now_ns) {
    if (json->file == NULL)
        return false;
    for (uint32_t rank = 0; rank < json->ranks; rank++)
        enter(json, rank, now_ns, NO_STATE);
    fputs("\n]\n", json->file);
    bool written = ferror(json->file) == 0;
    written = fclose(json->file) == 0 && written;
    json->file = NULL;
    return written;
}
