// SPDX-License-Identifier: AGPL-3.0-only
//
// 3000 all-reduces through core and pump, over a device that completes at once: what one op costs
// between the application's call and the word that it is done. tests/instructions.py counts the
// instructions of measured_pair(), ops 1001 to 2000, each submitted and polled for, and of
// measured_run(), ops 2001 to 3000, each followed by a whole run of the pump, links and all.
#include "core/assert.h"
#include "core/pump.h"
#include "hal_sim/sc_sim.h"
#include "tests/support/instant_device.h"

#include <stdio.h>

#define RANKS 2u
#define OPS 1000u
#define BYTES 4096u

struct rank {
    struct sc_sim_process *process;
    struct sc_instant_device *device;
    struct sc_pump *pump;
    uint64_t completed;
};

static void on_wake(void *arg) {
    struct rank *rank = arg;
    sc_sim_timer(rank->process, sc_pump_run(rank->pump));
}

static void on_complete(void *arg, uint64_t epoch, uint64_t number, uint64_t seq) {
    (void)epoch, (void)number;
    ((struct rank *)arg)->completed = seq;
}

static void open_rank(struct sc_sim *sim, struct rank *rank, uint32_t number) {
    struct sc_pump_config config;
    char why[256];
    SC_ASSERT(sc_sim_spawn(sim, number, on_wake, rank, &rank->process) == SC_OK);
    SC_ASSERT(sc_instant_device_create(&rank->device) == SC_OK);
    sc_pump_config_init(&config);
    config.core.rank = number;
    config.core.capacity_bytes = BYTES;
    config.master_host = "rank0.sim";
    config.master_port = 29500;
    config.host = sc_sim_host(rank->process);
    config.link = sc_sim_link(rank->process);
    config.device = sc_instant_device_table(rank->device);
    config.on_complete = on_complete;
    config.arg = rank;
    SC_ASSERT(sc_pump_open(&config, &rank->pump, why, sizeof why) == SC_OK);
    sc_sim_timer(rank->process, 0);
}

static bool ready(const struct rank *ranks) {
    struct sc_core_view view[RANKS];
    for (uint32_t r = 0; r < RANKS; r++)
        sc_pump_view(ranks[r].pump, &view[r]);
    return view[0].state == SC_STATE_READY && view[1].state == SC_STATE_READY;
}

struct work {
    struct rank *rank;
    uint64_t epoch;
    uint64_t buffer;
    uint64_t stream;
};

static inline void submit_and_complete(const struct work *work, bool whole_run) {
    const struct sc_op_desc desc = {.kind = SC_OP_ALL_REDUCE, .bytes = BYTES};
    const struct sc_op_place place = {
        .src = work->buffer, .dst = work->buffer, .stream = work->stream};
    for (uint32_t i = 0; i < OPS; i++) {
        uint64_t number, seq;
        SC_ASSERT(sc_pump_submit(work->rank->pump, work->epoch, &desc, &place, &number, &seq) ==
                  SC_OK);
        if (whole_run)
            (void)sc_pump_run(work->rank->pump);
        else
            sc_pump_poll(work->rank->pump);
        SC_ASSERT(work->rank->completed == seq);
    }
}

__attribute__((noinline)) static void measured_pair(const struct work *work) {
    submit_and_complete(work, false);
}

__attribute__((noinline)) static void measured_run(const struct work *work) {
    submit_and_complete(work, true);
}

int main(void) {
    struct rank ranks[RANKS] = {0};
    struct sc_sim_config config;
    struct sc_sim *sim;
    sc_sim_config_init(&config, 1, RANKS);
    SC_ASSERT(sc_sim_create(&config, &sim) == SC_OK);
    for (uint32_t r = 0; r < RANKS; r++)
        open_rank(sim, &ranks[r], r);
    while (!ready(ranks))
        SC_ASSERT(sc_sim_step(sim, 1000000000u));
    struct sc_core_view view;
    sc_pump_view(ranks[0].pump, &view);
    const struct sc_device *device = sc_instant_device_table(ranks[0].device);
    struct work work = {.rank = &ranks[0], .epoch = view.epoch};
    SC_ASSERT(device->mem_alloc(device->ctx, BYTES, &work.buffer) == SC_OK);
    SC_ASSERT(device->stream_create(device->ctx, &work.stream) == SC_OK);
    submit_and_complete(&work, false); // the first thousand warm tables up
    measured_pair(&work);
    measured_run(&work);
    printf("%llu ops complete\n", (unsigned long long)ranks[0].completed);
    for (uint32_t r = 0; r < RANKS; r++) {
        sc_pump_destroy(ranks[r].pump);
        sc_instant_device_destroy(ranks[r].device);
    }
    sc_sim_destroy(sim);
    return 0;
}
