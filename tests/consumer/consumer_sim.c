// SPDX-License-Identifier: AGPL-3.0-only
//
// An engine's own test over the installed double: two ranks reduce a buffer together and look at the
// sum. Prints what is wrong, or how the run went.
#include <spark_comm_sim.h>
#include <stdio.h>

#define ELEMENTS 8u
#define ONE 0x3F80u // as BF16
#define TWO 0x4000u

// Returns the step that failed, 0 when none did.
static int reduce(struct sc_sim_rank *rank, sc_comm comm) {
    struct sc_recovery recovery = {.size = sizeof recovery};
    void *buffer, *stream;
    uint16_t *elements;
    sc_status met;

    if (sc_wait_ready(comm, SC_FOREVER, &recovery) != SC_OK)
        return 2;
    if (sc_sim_rank_alloc(rank, ELEMENTS * sizeof *elements, &buffer) != SC_OK ||
        sc_sim_rank_stream_create(rank, &stream) != SC_OK)
        return 3;
    elements = sc_sim_rank_memory(rank, buffer, ELEMENTS * sizeof *elements);
    if (elements == NULL)
        return 4;
    for (size_t i = 0; i < ELEMENTS; i++)
        elements[i] = ONE;
    if (sc_all_reduce(comm, recovery.epoch, buffer, ELEMENTS * sizeof *elements, SC_BF16, stream) !=
        SC_OK)
        return 5;
    if (sc_sync(comm, recovery.epoch, stream, SC_SYNC_AGREED, SC_FOREVER) != SC_OK)
        return 6;
    for (size_t i = 0; i < ELEMENTS; i++)
        if (elements[i] != TWO)
            return 7;
    // Who leaves ends the epoch, so nobody does before all have looked. A rank that hears of the end
    // while it is still in the barrier has looked too.
    met = sc_barrier(comm, recovery.epoch, SC_FOREVER);
    if (met != SC_OK && met != SC_EPOCH_LOST)
        return 8;
    return sc_sim_rank_stream_destroy(rank, stream) == SC_OK &&
                   sc_sim_rank_free(rank, buffer) == SC_OK
               ? 0
               : 9;
}

static int engine(struct sc_sim_rank *rank, void *arg) {
    struct sc_config config;
    sc_comm comm;
    int failed;

    (void)arg;
    sc_config_init(&config, sizeof config);
    sc_sim_rank_config(rank, &config);
    config.capacity_bytes = 4096;
    failed = sc_open(&config, &comm) == SC_OK ? 0 : 1;
    if (failed == 0) {
        failed = reduce(rank, comm);
        if (sc_close(comm, SC_CLOSE_FINAL, SC_FOREVER) != SC_OK && failed == 0)
            failed = 10;
    }
    if (failed != 0)
        printf("consumer_sim: rank %u failed in step %d; last error: %s\n",
               (unsigned)sc_sim_rank_number(rank), failed, sc_last_error());
    return failed;
}

int main(void) {
    struct sc_sim_options options;
    struct sc_sim_report report = {.size = sizeof report};

    sc_sim_options_init(&options, sizeof options);
    if (sc_sim_run(&options, engine, NULL, &report) != SC_OK) {
        printf("consumer_sim: no run: %s\n", sc_last_error());
        return 1;
    }
    if (report.ranks != 2 || report.violations != 0 || report.exit_code[0] != 0 ||
        report.exit_code[1] != 0) {
        printf("consumer_sim: %u ranks, %u violations, the first: %s\n", (unsigned)report.ranks,
               (unsigned)report.violations, report.violation);
        return 1;
    }
    printf("two ranks reduced together in %.3f s of virtual time\n", (double)report.ended_ns / 1e9);
    return 0;
}
