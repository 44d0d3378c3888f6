// SPDX-License-Identifier: AGPL-3.0-only
//
// Defaults, the environment's overrides, and what bindings check themselves against.
#include "core/api_inside.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS UINT64_C(1000000)
#define LONGEST_MS (UINT64_C(7) * 24 * 3600 * 1000)

void sc_config_init(struct sc_config *config, size_t size) {
    struct sc_core_config core;
    struct sc_pump_config pump;
    sc_core_config_init(&core);
    sc_pump_config_init(&pump);
    const struct sc_config defaults = {
        .size = (uint32_t)(size < sizeof defaults ? size : sizeof defaults),
        .world = 2,
        .timing = core.timing,
        .join_ns = core.join_ns,
        .ledger_ops = core.ledger_ops,
        .captures_max = pump.captures_max,
        .notes_max = 256,
    };
    memset(config, 0, size);
    memcpy(config, &defaults, defaults.size);
}

// ---- the environment ----

static const struct {
    const char *name;
    size_t offset; // of a uint64_t in sc_config, in nanoseconds
} tunables[] = {
    {"SPARK_COMM_HEARTBEAT_MS", offsetof(struct sc_config, timing.heartbeat_ns)},
    {"SPARK_COMM_SILENCE_MS", offsetof(struct sc_config, timing.silence_ns)},
    {"SPARK_COMM_OP_MS", offsetof(struct sc_config, timing.op_ns)},
    {"SPARK_COMM_BEHIND_MS", offsetof(struct sc_config, timing.behind_ns)},
    {"SPARK_COMM_INIT_MS", offsetof(struct sc_config, timing.init_ns)},
    {"SPARK_COMM_ABORT_MS", offsetof(struct sc_config, timing.abort_ns)},
    {"SPARK_COMM_JOIN_MS", offsetof(struct sc_config, join_ns)},
};

static bool read_ms(const char *text, uint64_t *ns) {
    char *end;
    errno = 0;
    unsigned long long ms = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0' || text[0] < '0' || text[0] > '9' || ms > LONGEST_MS)
        return false;
    *ns = ms * MS;
    return true;
}

sc_status sc_config_override(struct sc_config *config, struct sc_api *api, char *why,
                             size_t why_bytes) {
    for (size_t i = 0; i < sizeof tunables / sizeof tunables[0]; i++) {
        const char *name = tunables[i].name, *text = getenv(name);
        uint64_t ns, before;
        if (text == NULL)
            continue;
        if (!read_ms(text, &ns)) {
            snprintf(why, why_bytes,
                     "%s is \"%.40s\"; it must be a whole number of milliseconds, at most %llu",
                     name, text, (unsigned long long)LONGEST_MS);
            return SC_INVALID;
        }
        char *field = (char *)config + tunables[i].offset;
        memcpy(&before, field, sizeof before);
        memcpy(field, &ns, sizeof ns);
        sc_note_push(api, (struct sc_note){.kind = SC_NOTE_OVERRIDE, .value = ns},
                     "%s=%.40s replaces %llu ms", name, text, (unsigned long long)(before / MS));
    }
    return SC_OK;
}

void sc_config_blame(char *why, size_t why_bytes) {
    if (strstr(why, "_ns is ") == NULL)
        return; // it is no tunable
    for (size_t i = 0; i < sizeof tunables / sizeof tunables[0]; i++) {
        const char *name = tunables[i].name, *text = getenv(name);
        size_t used = strlen(why);
        if (text != NULL)
            snprintf(why + used, why_bytes - used, "; the environment says %s=%.40s", name, text);
    }
}

// ---- versions and sizes ----

uint32_t sc_abi(void) {
    return SC_ABI_VERSION;
}

const char *sc_version(void) {
    return SC_VERSION_TEXT;
}

size_t sc_struct_bytes(const char *name) {
#define ROW(name_)                                                                                 \
    { #name_, sizeof(struct name_) }
    static const struct {
        const char *name;
        size_t bytes;
    } rows[] = {
        ROW(sc_op_desc), ROW(sc_cause),  ROW(sc_phases), ROW(sc_rank_record), ROW(sc_recovery),
        ROW(sc_note),    ROW(sc_timing), ROW(sc_config), ROW(sc_peer_health), ROW(sc_health_report),
    };
#undef ROW
    for (size_t i = 0; name != NULL && i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(name, rows[i].name) == 0)
            return rows[i].bytes;
    return 0;
}
