// SPDX-License-Identifier: AGPL-3.0-only
//
// The device table, what every verb of it does first, and the end of a process's GPU work.
#include "hal_sim/sim_gpu.h"

#include <stdlib.h>

sc_status sc_sim_enter(struct sc_sim_process *process, enum sc_device_verb verb) {
    struct sc_sim_armed *armed = &process->armed;

    if (!process->alive)
        return SC_CLOSED;
    if (process->context_lost)
        return SC_CONTEXT_LOST;
    if (armed->verbs_count == 0 || armed->verbs[verb].countdown == 0)
        return SC_OK;
    struct sc_sim_verb_fault *fault = &armed->verbs[verb];
    if (fault->countdown > 1) {
        fault->countdown--;
        return SC_OK;
    }
    if (!fault->lasting) {
        fault->countdown = 0;
        armed->verbs_count--;
    }
    return fault->status;
}

const char *sc_sim_verb_name(enum sc_device_verb verb) {
    static const char *const names[SC_DEVICE_VERB_COUNT] = {
#define VERB_NAME(name) [SC_VERB_##name] = #name,
        SC_DEVICE_VERBS(VERB_NAME)
#undef VERB_NAME
    };

    return names[verb];
}

// ---- ends -------------------------------------------------------------------------------------

static void exchanges_vanish(struct sc_sim_process *process) {
    for (uint32_t at = 0; at < sc_sim_pool_count(process->sim, SC_SIM_EXCHANGE); at++) {
        struct sc_sim_exchange *exchange = sc_sim_pool_at(process->sim, SC_SIM_EXCHANGE, at);
        if (exchange != NULL && exchange->object.owner == process)
            sc_sim_exchange_vanish(exchange);
    }
    for (uint32_t at = 0; at < sc_sim_pool_count(process->sim, SC_SIM_STREAM); at++) {
        struct sc_sim_stream *stream = sc_sim_pool_at(process->sim, SC_SIM_STREAM, at);
        if (stream != NULL && stream->object.owner == process) {
            stream->count = 0;
            stream->begun = false;
        }
    }
}

static void comms_lost(struct sc_sim_process *process, bool put) {
    for (uint32_t at = 0; at < sc_sim_pool_count(process->sim, SC_SIM_COMM); at++) {
        struct sc_sim_comm *comm = sc_sim_pool_at(process->sim, SC_SIM_COMM, at);
        if (comm == NULL || comm->object.owner != process)
            continue;
        sc_sim_comm_lost(comm);
        if (put)
            sc_sim_comm_put(comm);
    }
}

static void put_all(struct sc_sim_process *process, enum sc_sim_kind kind) {
    for (uint32_t at = 0; at < sc_sim_pool_count(process->sim, kind); at++) {
        struct sc_sim_object *object = sc_sim_pool_at(process->sim, kind, at);
        if (object != NULL && object->owner == process)
            sc_sim_pool_put(process->sim, kind, object);
    }
}

void sc_sim_gpu_kill(struct sc_sim_process *process) {
    exchanges_vanish(process);
    comms_lost(process, true);
    put_all(process, SC_SIM_CAPTURE);
    put_all(process, SC_SIM_OP);
    put_all(process, SC_SIM_STREAM);
    put_all(process, SC_SIM_REGISTRATION);
    sc_sim_memory_kill(process);
    process->group_count = 0;
    process->group_depth = 0;
}

void sc_sim_gpu_lose_context(struct sc_sim_process *process) {
    process->context_lost = true;
    exchanges_vanish(process);
    comms_lost(process, false);
    sc_sim_wake(process);
}

void sc_sim_gpu_resume(struct sc_sim_process *process) {
    for (uint32_t at = 0; at < sc_sim_pool_count(process->sim, SC_SIM_COMM); at++) {
        struct sc_sim_comm *comm = sc_sim_pool_at(process->sim, SC_SIM_COMM, at);
        if (comm == NULL || comm->object.owner != process)
            continue;
        sc_sim_clique_thawed(process->sim, comm->clique);
        sc_sim_abort_settle_peers(comm);
    }
}

void sc_sim_gpu_free(struct sc_sim *sim) {
    for (uint32_t at = 0; at < sc_sim_pool_count(sim, SC_SIM_STREAM); at++) {
        struct sc_sim_stream *stream = sc_sim_pool_any(sim, SC_SIM_STREAM, at);
        free(stream->items);
    }
    for (uint32_t at = 0; at < sc_sim_pool_count(sim, SC_SIM_EXCHANGE); at++) {
        struct sc_sim_exchange *exchange = sc_sim_pool_any(sim, SC_SIM_EXCHANGE, at);
        free(exchange->parts);
        free(exchange->streams);
    }
    for (uint32_t at = 0; at < sc_sim_pool_count(sim, SC_SIM_CAPTURE); at++) {
        struct sc_sim_capture *capture = sc_sim_pool_any(sim, SC_SIM_CAPTURE, at);
        free(capture->items);
        free(capture->parts);
        free(capture->comms);
    }
}

// ---- the table --------------------------------------------------------------------------------

const struct sc_device sc_sim_device_table = {.size = sizeof sc_sim_device_table,
                                              .name = "sim",
#define VERB_ENTRY(verb) .verb = sc_sim_verb_##verb,
                                              SC_DEVICE_VERBS(VERB_ENTRY)
#undef VERB_ENTRY
};
