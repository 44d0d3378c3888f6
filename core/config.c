// SPDX-License-Identifier: AGPL-3.0-only
//
// Defaults and bounds of a core's configuration.
#include "core/config.h"

#include <stddef.h>

#define MS 1000000ull
#define SECOND (1000ull * MS)
#define LONGEST (7ull * 24 * 3600 * SECOND)

void sc_core_config_init(struct sc_core_config *config) {
    *config = (struct sc_core_config){
        .world = 2,
        .library = 0,
        .lanes = SC_LANE_NCCL,
        .ledger_ops = 1024,
        .timing =
            {
                .heartbeat_ns = 100 * MS,
                .silence_ns = 2 * SECOND,
                .op_ns = 30 * SECOND,
                .behind_ns = 0,
                .init_ns = 60 * SECOND,
                .abort_ns = 5 * SECOND,
            },
        .handshake_ns = 2 * SECOND,
        .greeting_ns = 10 * SECOND,
        .backoff_min_ns = 50 * MS,
        .backoff_max_ns = SECOND,
        .stable_ns = 10 * SECOND,
        .join_ns = 0,
    };
}

sc_status sc_core_config_check(const struct sc_core_config *config, struct sc_config_fault *fault) {
    const struct sc_timing *t = &config->timing;
    const struct sc_config_fault bounds[] = {
        {"world", config->world, 1, SC_WORLD_MAX},
        {"rank", config->rank, 0, config->world ? config->world - 1u : 0},
        {"capacity_bytes", config->capacity_bytes, SC_BF16_BYTES, UINT64_MAX / SC_WORLD_MAX},
        {"lanes", config->lanes, 1, SC_LANE_NCCL},
        {"ledger_ops", config->ledger_ops, 4, 65536},
        {"hold", config->hold, 0, 1},
        {"timing.heartbeat_ns", t->heartbeat_ns, MS, 60 * SECOND},
        {"timing.silence_ns", t->silence_ns, 2 * t->heartbeat_ns, LONGEST},
        {"timing.op_ns", t->op_ns, MS, LONGEST},
        {"timing.behind_ns", t->behind_ns, 0, LONGEST},
        {"timing.init_ns", t->init_ns, MS, LONGEST},
        // A frozen peer must be known as such before those whose abort it holds up are judged.
        {"timing.abort_ns", t->abort_ns, t->silence_ns + 2 * t->heartbeat_ns, LONGEST},
        {"handshake_ns", config->handshake_ns, MS, LONGEST},
        {"greeting_ns", config->greeting_ns, MS, LONGEST},
        {"backoff_min_ns", config->backoff_min_ns, 1, LONGEST},
        {"backoff_max_ns", config->backoff_max_ns, config->backoff_min_ns, LONGEST},
        {"stable_ns", config->stable_ns, 0, LONGEST},
        {"join_ns", config->join_ns, 0, LONGEST},
    };
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        if (bounds[i].value < bounds[i].min || bounds[i].value > bounds[i].max) {
            *fault = bounds[i];
            return SC_INVALID;
        }
    }
    return SC_OK;
}

const char *sc_config_field_name(enum sc_config_field field) {
    static const char *const names[SC_FIELD_COUNT] = {
        [SC_FIELD_PROTOCOL] = "protocol", [SC_FIELD_JOB] = "job",
        [SC_FIELD_WORLD] = "world",       [SC_FIELD_RANK] = "rank",
        [SC_FIELD_CAPACITY] = "capacity", [SC_FIELD_LIBRARY] = "library version",
        [SC_FIELD_LANES] = "lanes",
    };
    return (unsigned)field < SC_FIELD_COUNT ? names[field] : "unknown";
}
