// SPDX-License-Identifier: AGPL-3.0-only
//
// The host table under the virtual clock. There are no threads of the library's own: its steps run
// where the process's threads would have been woken, while the world is stepped, which is only done
// while every thread of the run waits.
#include "hal_sim/double/inside.h"

// ---- the steps --------------------------------------------------------------------------------

void sc_double_steps_rouse(struct sc_double *run) {
    for (struct sc_sim_rank *rank = run->lives; rank != NULL; rank = rank->next)
        for (struct sc_double_handle *h = rank->handles; h != NULL; h = h->next)
            if (atomic_exchange(&h->roused, false))
                sc_sim_wake(rank->process);
}

// The notifier comes last, so that it hears of what the progress step notified; of what it notifies
// itself it hears the next time.
static uint64_t run_steps(struct sc_double_handle *handle) {
    uint64_t next_ns = SC_NEVER_NS;

    SC_ASSERT(!handle->inside);
    for (int thread = 0; thread < SC_HOST_THREADS; thread++) {
        handle->told = false;
        if (handle->step[thread] == NULL)
            continue;
        uint64_t at_ns = handle->step[thread](handle->step_arg[thread]);
        if (at_ns < next_ns)
            next_ns = at_ns;
    }
    return handle->told ? 0 : next_ns;
}

void sc_double_steps_run(void *arg) {
    struct sc_sim_rank *rank = arg;
    uint64_t next_ns = SC_NEVER_NS;

    for (struct sc_double_handle *h = rank->handles; h != NULL; h = h->next) {
        uint64_t at_ns = run_steps(h);
        if (at_ns < next_ns)
            next_ns = at_ns;
    }
    sc_sim_timer(rank->process, next_ns);
}

static sc_status host_thread_start(void *ctx, enum sc_host_thread thread,
                                   uint64_t (*step)(void *arg), void *arg) {
    struct sc_double_handle *handle = ctx;

    handle->step[thread] = step;
    handle->step_arg[thread] = arg;
    sc_sim_timer(handle->rank->process, sc_double_now(handle->rank->run));
    return SC_OK;
}

static void host_thread_stop(void *ctx, enum sc_host_thread thread) {
    struct sc_double_handle *handle = ctx;

    handle->step[thread] = NULL;
}

// ---- the monitor ------------------------------------------------------------------------------

static sc_status host_enter(void *ctx) {
    struct sc_double_handle *handle = ctx;

    if (handle->rank->run->clock->gate(handle->rank) != SC_OK)
        return SC_SIM_KILLED;
    SC_ASSERT(!handle->inside);
    handle->inside = true;
    return SC_OK;
}

static void host_leave(void *ctx) {
    struct sc_double_handle *handle = ctx;

    handle->inside = false;
}

static sc_status host_await(void *ctx, uint64_t deadline_ns) {
    struct sc_double_handle *handle = ctx;
    const struct sc_double_wait wait = {deadline_ns, &handle->notified, "a call of the library"};

    handle->notified = false;
    handle->inside = false;
    sc_status status = handle->rank->run->clock->wait(handle->rank, &wait);
    handle->inside = status != SC_SIM_KILLED;
    return status;
}

static void host_notify(void *ctx) {
    struct sc_double_handle *handle = ctx;

    handle->notified = handle->told = true;
    if (!handle->rank->run->stepping && handle->step[SC_HOST_NOTIFIER] != NULL)
        sc_sim_wake(handle->rank->process);
}

// ---- the rest ---------------------------------------------------------------------------------

static uint64_t host_now_ns(void *ctx) {
    const struct sc_double_handle *handle = ctx;

    return sc_double_now(handle->rank->run);
}

static sc_status host_entropy(void *ctx, void *out, size_t bytes) {
    const struct sc_double_handle *handle = ctx;
    const struct sc_host *host = sc_sim_host(handle->rank->process);

    return host->entropy(host->ctx, out, bytes);
}

// From any thread and from signal handlers: the world is told before it goes on.
static void host_wake(void *ctx) {
    struct sc_double_handle *handle = ctx;

    atomic_store(&handle->roused, true);
}

static int host_event_fd(void *ctx) {
    (void)ctx;
    return -1;
}

static void host_event_signal(void *ctx) {
    (void)ctx;
}

// Nobody waits for a process here: it is woken.
static const struct sc_host table = {
    .size = sizeof table,
    .name = "sim",
    .now_ns = host_now_ns,
    .entropy = host_entropy,
    .wake = host_wake,
    .enter = host_enter,
    .leave = host_leave,
    .await = host_await,
    .notify = host_notify,
    .thread_start = host_thread_start,
    .thread_stop = host_thread_stop,
    .event_fd = host_event_fd,
    .event_signal = host_event_signal,
};

sc_status sc_double_steps_open(struct sc_double_handle *handle) {
    struct sc_sim_rank *rank = handle->rank;

    handle->host = table;
    handle->host.ctx = handle;
    handle->link = *sc_sim_link(rank->process);
    handle->device = *sc_hal_check_device(rank->check);
    return SC_OK;
}
