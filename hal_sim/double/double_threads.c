// SPDX-License-Identifier: AGPL-3.0-only
//
// The host table under the real clock: that of hal/posix.h, where the threads of a paused process
// stand still, and those of a dead one are told so.
#include "hal/posix.h"
#include "hal_sim/double/inside.h"

static const struct sc_host *posix_of(const struct sc_double_handle *handle) {
    return sc_posix_host(handle->posix);
}

// Stands still with its process.
static sc_status stand(struct sc_double_handle *handle) {
    struct sc_double *run = handle->rank->run;

    run->clock->enter(run);
    sc_status status = sc_double_stand(handle->rank);
    run->clock->leave(run);
    return status;
}

// ---- the steps --------------------------------------------------------------------------------

// The end of its process, as far as this handle is concerned. The progress thread sees to it.
static void hang_up(struct sc_double_handle *handle) {
    const struct sc_host *host = posix_of(handle);
    struct sc_double *run = handle->rank->run;

    (void)host->enter(host->ctx);
    sc_posix_hang_up(handle->posix);
    host->notify(host->ctx);
    host->leave(host->ctx);
    run->clock->enter(run);
    handle->hung_up = true;
    run->clock->leave(run);
}

static uint64_t on_progress(void *arg) {
    struct sc_double_handle *handle = arg;

    if (stand(handle) == SC_OK)
        return handle->step[SC_HOST_PROGRESS](handle->step_arg[SC_HOST_PROGRESS]);
    hang_up(handle);
    return SC_NEVER_NS;
}

static uint64_t on_notifier(void *arg) {
    struct sc_double_handle *handle = arg;

    if (stand(handle) == SC_OK)
        return handle->step[SC_HOST_NOTIFIER](handle->step_arg[SC_HOST_NOTIFIER]);
    return SC_NEVER_NS;
}

static sc_status host_thread_start(void *ctx, enum sc_host_thread thread,
                                   uint64_t (*step)(void *arg), void *arg) {
    struct sc_double_handle *handle = ctx;
    const struct sc_host *host = posix_of(handle);

    handle->step[thread] = step;
    handle->step_arg[thread] = arg;
    return host->thread_start(host->ctx, thread,
                              thread == SC_HOST_PROGRESS ? on_progress : on_notifier, handle);
}

static void host_thread_stop(void *ctx, enum sc_host_thread thread) {
    const struct sc_host *host = posix_of(ctx);

    host->thread_stop(host->ctx, thread);
}

// ---- the monitor ------------------------------------------------------------------------------

static sc_status host_enter(void *ctx) {
    struct sc_double_handle *handle = ctx;
    const struct sc_host *host = posix_of(handle);
    struct sc_double *run = handle->rank->run;

    run->clock->enter(run);
    sc_status status = run->clock->gate(handle->rank);
    run->clock->leave(run);
    return status == SC_OK ? host->enter(host->ctx) : status;
}

static void host_leave(void *ctx) {
    const struct sc_host *host = posix_of(ctx);

    host->leave(host->ctx);
}

// Whoever is dead before it waits is told at once; whoever dies meanwhile is notified by hang_up. A
// stall lasts outside the monitor only: it is not the library's.
static sc_status host_await(void *ctx, uint64_t deadline_ns) {
    const struct sc_host *host = posix_of(ctx);
    sc_status status = stand(ctx);

    if (status == SC_OK) {
        status = host->await(host->ctx, deadline_ns);
        if (stand(ctx) == SC_OK)
            return status;
    }
    host->leave(host->ctx);
    return SC_SIM_KILLED;
}

static void host_notify(void *ctx) {
    const struct sc_host *host = posix_of(ctx);

    host->notify(host->ctx);
}

// ---- the rest ---------------------------------------------------------------------------------

static uint64_t host_now_ns(void *ctx) {
    const struct sc_host *host = posix_of(ctx);

    return host->now_ns(host->ctx);
}

static sc_status host_entropy(void *ctx, void *out, size_t bytes) {
    const struct sc_host *host = posix_of(ctx);

    return host->entropy(host->ctx, out, bytes);
}

static sc_status host_wait(void *ctx, uint64_t deadline_ns) {
    const struct sc_host *host = posix_of(ctx);

    return host->wait(host->ctx, deadline_ns);
}

static void host_wake(void *ctx) {
    const struct sc_host *host = posix_of(ctx);

    host->wake(host->ctx);
}

static int host_event_fd(void *ctx) {
    const struct sc_host *host = posix_of(ctx);

    return host->event_fd(host->ctx);
}

static void host_event_signal(void *ctx) {
    const struct sc_host *host = posix_of(ctx);

    host->event_signal(host->ctx);
}

static const struct sc_host table = {
    .size = sizeof table,
    .name = "sim",
    .now_ns = host_now_ns,
    .entropy = host_entropy,
    .wait = host_wait,
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

// ---- the handle's part ------------------------------------------------------------------------

sc_status sc_double_threads_open(struct sc_double_handle *handle) {
    struct sc_sim_rank *rank = handle->rank;
    sc_status status = sc_posix_create(&handle->posix);

    if (status != SC_OK)
        return status;
    handle->host = table;
    handle->host.ctx = handle;
    handle->device = sc_double_device;
    handle->device.ctx = rank;
    handle->device.poll_ns = sc_hal_check_device(rank->check)->poll_ns;
    handle->link = sc_double_link;
    handle->link.ctx = rank;
    if (rank->run->options.links == SC_SIM_SOCKETS)
        handle->link = *sc_posix_link(handle->posix);
    return SC_OK;
}

void sc_double_threads_close(struct sc_double_handle *handle) {
    sc_posix_destroy(handle->posix);
}

void sc_double_threads_wake(void *arg) {
    struct sc_sim_rank *rank = arg;

    for (struct sc_double_handle *h = rank->handles; h != NULL; h = h->next)
        host_wake(h);
}
