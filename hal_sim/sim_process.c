// SPDX-License-Identifier: AGPL-3.0-only
//
// Processes: their lives, their wake-ups, and the host table.
#include "hal_sim/sim.h"
#include "hal_sim/sim_gpu.h"
#include "hal_sim/sim_net.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

sc_status sc_sim_breach(struct sc_sim_process *process, const char *format, ...) {
    const struct sc_sim_config *config = &process->sim->config;
    char text[256];
    va_list args;

    if (config->on_violation == NULL)
        return SC_INVALID;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    config->on_violation(config->arg, process->rank, text);
    return SC_INVALID;
}

struct sc_sim_process *sc_sim_youngest(struct sc_sim *sim, uint32_t rank) {
    struct sc_sim_process *youngest = NULL;

    for (uint32_t at = 0; at < sc_sim_pool_count(sim, SC_SIM_PROCESS); at++) {
        struct sc_sim_process *process = sc_sim_pool_at(sim, SC_SIM_PROCESS, at);
        if (process != NULL && process->alive && process->rank == rank &&
            (youngest == NULL || process->life > youngest->life))
            youngest = process;
    }
    return youngest;
}

// ---- wake-ups ---------------------------------------------------------------------------------

static void wake_due(struct sc_sim *sim, uint64_t handle, uint64_t unused) {
    struct sc_sim_process *process = sc_sim_pool_find(sim, SC_SIM_PROCESS, handle);

    (void)unused;
    if (process == NULL || !process->alive || process->paused || process->waiting ||
        !process->wake_pending)
        return;
    process->wake_pending = false;
    process->on_wake(process->arg);
}

void sc_sim_wake(struct sc_sim_process *process) {
    if (!process->alive || process->wake_pending)
        return;
    process->wake_pending = true;
    if (!process->paused && !process->waiting)
        sc_sim_push(process->sim, process->sim->now_ns, wake_due, process->object.handle, 0);
}

static void timer_due(struct sc_sim *sim, uint64_t handle, uint64_t unused) {
    struct sc_sim_process *process = sc_sim_pool_find(sim, SC_SIM_PROCESS, handle);

    (void)unused;
    if (process == NULL || process->timer_event_ns != sim->now_ns)
        return;
    process->timer_event_ns = SC_NEVER_NS;
    if (process->timer_ns <= sim->now_ns) {
        process->timer_ns = SC_NEVER_NS;
        sc_sim_wake(process);
    } else if (process->timer_ns != SC_NEVER_NS) {
        process->timer_event_ns = process->timer_ns;
        sc_sim_push(sim, process->timer_ns, timer_due, handle, 0);
    }
}

// A timer set to later than the event already in the heap needs none of its own: that event, when
// it comes, sees that it is early and goes on to the right time.
void sc_sim_timer(struct sc_sim_process *process, uint64_t at_ns) {
    struct sc_sim *sim = process->sim;

    process->timer_ns = at_ns;
    if (!process->alive || at_ns >= process->timer_event_ns)
        return;
    process->timer_event_ns = at_ns < sim->now_ns ? sim->now_ns : at_ns;
    sc_sim_push(sim, process->timer_event_ns, timer_due, process->object.handle, 0);
}

// ---- the host table ---------------------------------------------------------------------------

static uint64_t host_now_ns(void *ctx) {
    const struct sc_sim_process *process = ctx;

    return process->sim->now_ns;
}

static sc_status host_entropy(void *ctx, void *out, size_t bytes) {
    struct sc_sim_process *process = ctx;

    if (!process->alive)
        return SC_CLOSED;
    sc_sim_fill(process->sim, out, bytes);
    return SC_OK;
}

static sc_status wait_end(struct sc_sim_process *process, uint64_t deadline_ns) {
    struct sc_sim *sim = process->sim;

    for (;;) {
        if (!process->alive)
            return SC_CLOSED;
        if (!process->paused && process->wake_pending) {
            process->wake_pending = false;
            return SC_OK;
        }
        if (!process->paused && sim->now_ns >= deadline_ns)
            return SC_TIMEOUT;
        // A stopped process does not notice its deadline; it takes somebody else to resume it.
        uint64_t until_ns = process->paused ? SC_NEVER_NS : deadline_ns;
        if (!sc_sim_step(sim, until_ns) && until_ns == SC_NEVER_NS)
            return SC_TIMEOUT;
    }
}

static sc_status host_wait(void *ctx, uint64_t deadline_ns) {
    struct sc_sim_process *process = ctx;

    if (process->waiting)
        return SC_STATE;
    process->waiting = true;
    sc_status status = wait_end(process, deadline_ns);
    process->waiting = false;
    return status;
}

static void host_wake(void *ctx) {
    sc_sim_wake(ctx);
}

static const struct sc_host host_table = {
    .size = sizeof host_table,
    .name = "sim",
    .now_ns = host_now_ns,
    .entropy = host_entropy,
    .wait = host_wait,
    .wake = host_wake,
};

// ---- lives ------------------------------------------------------------------------------------

sc_status sc_sim_spawn(struct sc_sim *sim, uint32_t rank, void (*on_wake)(void *arg), void *arg,
                       struct sc_sim_process **out) {
    if (rank >= sim->config.world || on_wake == NULL || out == NULL)
        return SC_INVALID;
    struct sc_sim_process *process = sc_sim_pool_take(sim, SC_SIM_PROCESS, NULL);
    uint64_t life = ++sim->spawned;

    *process = (struct sc_sim_process){
        .object = process->object,
        .sim = sim,
        .rank = rank,
        .life = life,
        .alive = true,
        .on_wake = on_wake,
        .arg = arg,
        .timer_ns = SC_NEVER_NS,
        .timer_event_ns = SC_NEVER_NS,
        .host = host_table,
        .link = sc_sim_link_table,
        .device = sc_sim_device_table,
        .next_address = life << 40, // no process knows an address of another
    };
    process->host.ctx = process;
    process->link.ctx = process;
    process->device.ctx = process;
    *out = process;
    return SC_OK;
}

const struct sc_host *sc_sim_host(struct sc_sim_process *process) {
    return &process->host;
}

const struct sc_link *sc_sim_link(struct sc_sim_process *process) {
    return &process->link;
}

const struct sc_device *sc_sim_device(struct sc_sim_process *process) {
    return &process->device;
}

bool sc_sim_alive(const struct sc_sim_process *process) {
    return process->alive;
}

void sc_sim_kill(struct sc_sim_process *process) {
    if (!process->alive)
        return;
    process->alive = false;
    process->wake_pending = false;
    sc_sim_net_kill(process);
    sc_sim_gpu_kill(process);
    process->held = (struct sc_sim_held){0};
}

void sc_sim_pause(struct sc_sim_process *process) {
    process->paused = true;
}

void sc_sim_resume(struct sc_sim_process *process) {
    if (!process->paused)
        return;
    process->paused = false;
    if (!process->alive)
        return;
    sc_sim_gpu_resume(process);
    // What came in the meantime was noted without an event.
    if (process->wake_pending) {
        process->wake_pending = false;
        sc_sim_wake(process);
    }
}

void sc_sim_reap(struct sc_sim_process *process) {
    SC_ASSERT(!process->waiting);
    if (process->alive)
        return;
    free(process->group_parts);
    sc_sim_memory_reap(process);
    sc_sim_pool_put(process->sim, SC_SIM_PROCESS, &process->object);
}

void sc_sim_held(const struct sc_sim_process *process, struct sc_sim_held *out) {
    *out = process->held;
}

uint32_t sc_sim_group_depth(const struct sc_sim_process *process) {
    return process->group_depth;
}
