// SPDX-License-Identifier: AGPL-3.0-only
//
// A run of the test double, and instead of the library a small one that uses the host table as the
// library does: it has a monitor, a progress step that counts itself, and a notifier.
#ifndef SC_TEST_DOUBLE_RIG_H
#define SC_TEST_DOUBLE_RIG_H

#include "hal/choose.h"
#include "hal_sim/sc_sim.h"
#include "hal_sim/spark_comm_sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)

// ---- the small library ------------------------------------------------------------------------

struct small {
    bool in_use;
    struct sc_world world;
    uint64_t steps, notes; // told so far
    uint64_t period_ns;    // between steps; 0: only when it is woken
    uint64_t notify_at;    // this step notifies; 0: none
    bool noted;            // the notifier has something to tell
};

sc_status small_open(struct sc_sim_rank *rank, uint64_t period_ns, struct small **out);
void small_close(struct small *small);
uint64_t small_now(const struct small *small);
sc_status small_enter(struct small *small);
void small_leave(struct small *small);
void small_notify(struct small *small); // gives the notifier something to tell
// Waits for a notify: SC_OK, SC_TIMEOUT or SC_SIM_KILLED, outside.
sc_status small_await(struct small *small, uint64_t deadline_ns);
sc_status small_submit(struct small *small); // SC_OK or SC_SIM_KILLED
void small_mark(struct small *small, uint64_t mark);

// ---- the run ----------------------------------------------------------------------------------

struct double_played {
    struct sc_sim_report report;
    char trace[16384]; // lines
    size_t trace_used;
    unsigned abandoned; // handles
    // What the mains of a test found. It is asserted after the run: a failure ends its own thread.
    uint64_t at_ns[8], value[8];
    sc_status status[8];
    bool seen[8];
    unsigned count;
};

extern struct double_played played;

int double_rig_reset(void **state);
#define DOUBLE_TEST(name) cmocka_unit_test_setup(name, double_rig_reset)

void double_play_options(const struct sc_sim_options *options, sc_sim_main *run);
void double_play_seed(uint64_t seed, const char *plan, sc_sim_main *run);
void double_play(const char *plan, sc_sim_main *run); // seed 1
void double_expect_well(void);                        // no violation
void double_expect_violation(const char *words);      // the first one says so
void double_expect_line(const char *words);           // the trace does
void double_nap(struct sc_sim_rank *rank, uint64_t duration_ns);

#endif
