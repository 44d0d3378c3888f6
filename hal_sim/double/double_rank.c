// SPDX-License-Identifier: AGPL-3.0-only
//
// What an engine may ask of its rank: who it is, the time, and its GPU.
#include "hal_sim/double/inside.h"
#include "hal_sim/sim_gpu.h"

#include "core/api.h"

#include <stdlib.h>

// Every call begins and ends with these two.
static sc_status enter(struct sc_sim_rank *rank) {
    rank->run->clock->enter(rank->run);
    return rank->run->clock->gate(rank);
}

static sc_status leave(struct sc_sim_rank *rank, const char *call, sc_status status) {
    rank->run->clock->leave(rank->run);
    if (status == SC_CLOSED)
        status = SC_SIM_KILLED; // a dead process's device is closed
    if (status != SC_OK)
        sc_api_error(call, status, "rank %u: %s", rank->seat->rank, sc_status_sentence(status));
    return status;
}

static sc_status refuse_null(const char *call, const char *what) {
    sc_api_error(call, SC_INVALID, "%s is NULL", what);
    return SC_INVALID;
}

static uint64_t number_of(const void *pointer) {
    return (uint64_t)(uintptr_t)pointer;
}

static void *pointer_of(uint64_t number) {
    return (void *)(uintptr_t)number;
}

// ---- who and when -----------------------------------------------------------------------------

void sc_sim_rank_config(const struct sc_sim_rank *rank, struct sc_config *config) {
    const struct sc_double *run = rank->run;
    bool sockets = run->options.links == SC_SIM_SOCKETS;

    config->rank = rank->seat->rank;
    config->world = run->plan.core.world;
    config->master_host = sockets ? "127.0.0.1" : "rank0.sim";
    config->master_port = run->options.port;
    config->timing = run->plan.core.timing;
    config->join_ns = run->plan.core.join_ns;
}

uint32_t sc_sim_rank_number(const struct sc_sim_rank *rank) {
    return rank->seat->rank;
}

uint32_t sc_sim_rank_life(const struct sc_sim_rank *rank) {
    return rank->life;
}

uint64_t sc_sim_rank_now_ns(const struct sc_sim_rank *rank) {
    struct sc_double *run = rank->run;

    run->clock->enter(run);
    uint64_t now_ns = sc_double_now(run) - run->base_ns;
    run->clock->leave(run);
    return now_ns;
}

sc_status sc_sim_rank_sleep(struct sc_sim_rank *rank, uint64_t duration_ns) {
    sc_status status = enter(rank);

    if (status == SC_OK) {
        // However short a sleep is, time passes: others may be waiting for it.
        uint64_t until_ns = sc_sim_later(sc_double_now(rank->run), duration_ns + !duration_ns);
        const struct sc_double_wait wait = {until_ns, NULL, "sc_sim_rank_sleep()"};
        status = rank->run->clock->wait(rank, &wait);
    }
    return leave(rank, "sim_rank_sleep", status == SC_TIMEOUT ? SC_OK : status);
}

static sc_status attach(struct sc_sim_rank *rank) {
    struct sc_sim_rank *here = sc_double_here();

    if (rank->run->clock == &sc_double_virtual || (here != NULL && here != rank))
        return SC_STATE;
    sc_status status = here == rank ? SC_OK : sc_double_here_set(rank);
    if (status == SC_OK && here == NULL)
        rank->attached++;
    return status;
}

sc_status sc_sim_rank_attach(struct sc_sim_rank *rank) {
    rank->run->clock->enter(rank->run);
    sc_status status = sc_double_dead(rank) ? SC_SIM_KILLED : attach(rank);
    return leave(rank, "sim_rank_attach", status);
}

// ---- memory -----------------------------------------------------------------------------------

sc_status sc_sim_rank_alloc(struct sc_sim_rank *rank, uint64_t bytes, void **buffer) {
    const struct sc_device *device = sc_sim_device(rank->process);
    uint64_t address = 0;

    if (buffer == NULL)
        return refuse_null("sim_rank_alloc", "buffer");
    sc_status status = enter(rank);
    if (status == SC_OK)
        status = device->mem_alloc(device->ctx, bytes, &address);
    if (status == SC_OK) {
        rank->allocations++;
        *buffer = pointer_of(address);
    }
    return leave(rank, "sim_rank_alloc", status);
}

sc_status sc_sim_rank_free(struct sc_sim_rank *rank, void *buffer) {
    sc_status status = enter(rank);

    if (status == SC_OK)
        status = sc_sim_free(rank->process, number_of(buffer));
    if (status == SC_OK)
        rank->allocations--;
    return leave(rank, "sim_rank_free", status);
}

void *sc_sim_rank_memory(struct sc_sim_rank *rank, const void *buffer, uint64_t bytes) {
    rank->run->clock->enter(rank->run);
    void *memory = sc_sim_memory(rank->process, number_of(buffer), bytes);
    rank->run->clock->leave(rank->run);
    return memory;
}

// ---- streams ----------------------------------------------------------------------------------

sc_status sc_sim_rank_stream_create(struct sc_sim_rank *rank, void **stream) {
    const struct sc_device *device = sc_hal_check_device(rank->check);
    uint64_t handle = 0;

    if (stream == NULL)
        return refuse_null("sim_rank_stream_create", "stream");
    sc_status status = enter(rank);
    if (status == SC_OK)
        status = device->stream_create(device->ctx, &handle);
    if (status == SC_OK) {
        rank->streams++;
        *stream = pointer_of(handle);
    }
    return leave(rank, "sim_rank_stream_create", status);
}

sc_status sc_sim_rank_stream_destroy(struct sc_sim_rank *rank, void *stream) {
    const struct sc_device *device = sc_hal_check_device(rank->check);
    sc_status status = enter(rank);

    if (status == SC_OK)
        status = device->stream_destroy(device->ctx, number_of(stream));
    if (status == SC_OK)
        rank->streams--;
    return leave(rank, "sim_rank_stream_destroy", status);
}

// ---- waiting for a stream ---------------------------------------------------------------------

static void on_drained(void *arg) {
    struct sc_double_drain *drain = arg;

    drain->done = true;
    drain->rank->run->clock->stir(drain->rank);
}

static void forget(struct sc_double_drain *drain) {
    struct sc_double_drain **link = &drain->rank->drains;

    while (*link != drain)
        link = &(*link)->next;
    *link = drain->next;
    free(drain);
}

// Behind everything on the stream goes an empty kernel. What nobody waits for any more stays in the
// list, for the stream still knows it.
static sc_status drain_stream(struct sc_sim_rank *rank, uint64_t stream, uint64_t timeout_ns) {
    const struct sc_sim_stream *found =
        sc_sim_stream_of(rank->process, "sc_sim_rank_stream_wait", stream);
    struct sc_double_wait wait = {.where = "sc_sim_rank_stream_wait()"};

    if (found == NULL)
        return SC_INVALID;
    if (found->capture != 0)
        return SC_CAPTURE;
    struct sc_double_drain *drain = calloc(1, sizeof *drain);
    if (drain == NULL)
        return SC_NO_MEMORY;
    *drain = (struct sc_double_drain){.next = rank->drains, .rank = rank};
    rank->drains = drain;
    sc_status status = sc_sim_compute(rank->process, stream, 0, on_drained, drain);
    if (status == SC_OK) {
        wait.deadline_ns = sc_sim_later(sc_double_now(rank->run), timeout_ns);
        wait.done = &drain->done;
        status = rank->run->clock->wait(rank, &wait);
    }
    if (status == SC_OK && rank->process->context_lost)
        return SC_CONTEXT_LOST;
    if (status == SC_OK)
        forget(drain);
    return status;
}

sc_status sc_sim_rank_stream_wait(struct sc_sim_rank *rank, void *stream, uint64_t timeout_ns) {
    sc_status status = enter(rank);

    if (status == SC_OK)
        status = drain_stream(rank, number_of(stream), timeout_ns);
    return leave(rank, "sim_rank_stream_wait", status);
}

// ---- kernels ----------------------------------------------------------------------------------

sc_status sc_sim_rank_launch(struct sc_sim_rank *rank, void *stream, uint64_t duration_ns,
                             void (*fn)(void *arg), void *arg) {
    sc_status status = enter(rank);

    if (status == SC_OK)
        status = sc_sim_compute(rank->process, number_of(stream), duration_ns, fn, arg);
    return leave(rank, "sim_rank_launch", status);
}

sc_status sc_sim_rank_graph_launch(struct sc_sim_rank *rank, sc_capture capture, void *stream) {
    sc_status status = enter(rank);

    if (status == SC_OK)
        status = sc_sim_graph_launch(rank->process, capture, number_of(stream));
    return leave(rank, "sim_rank_graph_launch", status);
}
