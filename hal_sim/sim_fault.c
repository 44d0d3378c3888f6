// SPDX-License-Identifier: AGPL-3.0-only
//
// Faults: which of the world's rooms each of them belongs to. A fault either changes something at
// once, or is armed and waits for its rank to come to the place.
#include "hal_sim/sim_gpu.h"
#include "hal_sim/sim_net.h"

const char *sc_sim_fault_name(enum sc_sim_fault_kind kind) {
    static const char *const names[SC_SIM_FAULT_COUNT] = {
#define FAULT_NAME(name) [SC_SIM_##name] = #name,
        SC_SIM_FAULTS(FAULT_NAME)
#undef FAULT_NAME
    };

    return (unsigned)kind < SC_SIM_FAULT_COUNT ? names[kind] : "unknown";
}

static bool arm_verb(struct sc_sim_armed *armed, const struct sc_sim_fault *fault) {
    if ((unsigned)fault->verb >= SC_DEVICE_VERB_COUNT || fault->status == SC_OK)
        return false;
    struct sc_sim_verb_fault *verb = &armed->verbs[fault->verb];
    if (verb->countdown == 0)
        armed->verbs_count++;
    verb->countdown = fault->nth > 0 ? fault->nth : 1;
    verb->lasting = fault->duration_ns > 0;
    verb->status = fault->status;
    return true;
}

// The newest communicator of the process that is ready, or NULL.
static struct sc_sim_comm *ready_comm(struct sc_sim_process *process) {
    struct sc_sim_comm *newest = NULL;

    for (uint32_t at = 0; at < sc_sim_pool_count(process->sim, SC_SIM_COMM); at++) {
        struct sc_sim_comm *comm = sc_sim_pool_at(process->sim, SC_SIM_COMM, at);
        if (comm != NULL && comm->object.owner == process && comm->state == SC_COMM_READY &&
            !comm->aborting && (newest == NULL || comm->formed_ns >= newest->formed_ns))
            newest = comm;
    }
    return newest;
}

static bool arm_duration(uint64_t *armed_ns, uint64_t duration_ns) {
    if (duration_ns > 0)
        *armed_ns = duration_ns;
    return duration_ns > 0;
}

static bool inject_device(struct sc_sim *sim, const struct sc_sim_fault *fault) {
    struct sc_sim_process *process = sc_sim_youngest(sim, fault->a);
    struct sc_sim_comm *comm;

    if (process == NULL || process->context_lost)
        return false;
    struct sc_sim_armed *armed = &process->armed;
    switch (fault->kind) {
    case SC_SIM_init_hang: armed->init_hang = true; return true;
    case SC_SIM_init_error: armed->init_error = true; return true;
    case SC_SIM_init_null: armed->init_null = true; return true;
    case SC_SIM_register_null: armed->register_null = fault->nth > 0 ? fault->nth : 1; return true;
    case SC_SIM_op_slow: return arm_duration(&armed->op_slow_ns, fault->duration_ns);
    case SC_SIM_op_stuck: armed->op_stuck = true; return true;
    case SC_SIM_op_late: return arm_duration(&armed->op_late_ns, fault->duration_ns);
    case SC_SIM_abort_slow: return arm_duration(&armed->abort_slow_ns, fault->duration_ns);
    case SC_SIM_abort_stuck: armed->abort_stuck = true; return true;
    case SC_SIM_verb_fails: return arm_verb(armed, fault);
    case SC_SIM_context_lost: sc_sim_gpu_lose_context(process); return true;
    case SC_SIM_async_error:
        comm = ready_comm(process);
        if (comm != NULL)
            sc_sim_comm_fail(comm, SC_ASYNC_ERROR);
        return comm != NULL;
    default: return false;
    }
}

bool sc_sim_inject(struct sc_sim *sim, const struct sc_sim_fault *fault) {
    switch (fault->kind) {
    case SC_SIM_link_reset:
    case SC_SIM_link_blackhole:
    case SC_SIM_link_oneway:
    case SC_SIM_link_delay:
    case SC_SIM_link_fragment: return sc_sim_inject_path(sim, fault);
    case SC_SIM_name_unresolved:
        if (sc_sim_youngest(sim, fault->a) == NULL)
            return false;
        sim->unresolved_until_ns[fault->a] = sc_sim_later(sim->now_ns, fault->duration_ns);
        return true;
    case SC_SIM_port_squatted:
    case SC_SIM_stranger_silent:
    case SC_SIM_stranger_garbage:
    case SC_SIM_stranger_http:
    case SC_SIM_stranger_banner:
    case SC_SIM_stranger_replay: return sc_sim_inject_stranger(sim, fault);
    default: return inject_device(sim, fault);
    }
}

void sc_sim_heal(struct sc_sim *sim) {
    for (uint32_t at = 0; at < sc_sim_pool_count(sim, SC_SIM_PROCESS); at++) {
        struct sc_sim_process *process = sc_sim_pool_at(sim, SC_SIM_PROCESS, at);
        if (process != NULL)
            memset(&process->armed, 0, sizeof process->armed);
    }
    sc_sim_heal_paths(sim);
    sc_sim_heal_strangers(sim);
}
