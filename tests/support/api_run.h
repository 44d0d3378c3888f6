// SPDX-License-Identifier: AGPL-3.0-only
//
// A run of applications through the public calls alone, in virtual time: a plan says what goes wrong,
// and a script is what each rank's process does. A script whose expectation fails ends at once, and
// with it the test, which tells seed, plan and trace. Each run is played twice and must be the same.
#ifndef SC_TEST_API_RUN_H
#define SC_TEST_API_RUN_H

#include "core/spark_comm.h"
#include "hal_sim/spark_comm_sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)

#define API_CAPACITY 65536u
#define API_NOTES 128u

struct api_note {
    struct sc_note note; // text is the one below
    char text[256];
};

// One life of a rank, as its script sees it.
struct api_rank {
    struct sc_sim_rank *sim;
    uint32_t rank, world, life;
    sc_comm comm;                // of the newest open
    uint64_t epoch;              // that the newest api_ready told
    uint32_t recoveries;         // epochs told after the first
    struct sc_recovery recovery; // what came with it
    void *stream;                // one that api_open made
    struct api_note notes[API_NOTES];
    uint32_t notes_count;
    jmp_buf out;
};

typedef void api_script(struct api_rank *me);

// What ranks of one run leave for each other, and for the test to look at afterwards; 0 before.
extern uint64_t board[32];

// ---- runs -------------------------------------------------------------------------------------

struct api_run {
    const char *plan;
    uint64_t seed;                               // 0: 1
    api_script *script;                          // of each rank …
    api_script *scripts[SC_SIM_RANKS_MAX];       // … that has none here
    bool killed[SC_SIM_RANKS_MAX];               // its last life does not end by itself
    void (*configure)(struct sc_config *config); // NULL: as api_config says
};

// Fails the test unless every script comes to its end and nothing was violated. Answers how it went.
struct sc_sim_report api_play_run(const struct api_run *run);
// The same for one script.
struct sc_sim_report api_play(const char *plan, api_script *script);

// ---- expectations of scripts ------------------------------------------------------------------

// The call answers so. In a killed process the script ends here, and that is no failure.
#define EXPECT(me, call, wanted) api_expect(me, call, wanted, #call, __FILE__, __LINE__)
#define DO(me, call) EXPECT(me, call, SC_OK)
#define TRUE(me, condition) api_true(me, condition, #condition, __FILE__, __LINE__)
#define EQUAL(me, value, wanted)                                                                   \
    api_equal(me, (uint64_t)(value), (uint64_t)(wanted), #value, __FILE__, __LINE__)
// sc_last_error() has these words in it.
#define SAYS(me, words) api_says(me, sc_last_error(), words, __FILE__, __LINE__)
#define HAS_WORDS(me, text, words) api_says(me, text, words, __FILE__, __LINE__)

void api_expect(struct api_rank *me, sc_status status, sc_status wanted, const char *call,
                const char *file, int line);
void api_true(struct api_rank *me, bool holds, const char *what, const char *file, int line);
void api_equal(struct api_rank *me, uint64_t value, uint64_t wanted, const char *what,
               const char *file, int line);
void api_says(struct api_rank *me, const char *text, const char *words, const char *file, int line);

// ---- what scripts do --------------------------------------------------------------------------

struct sc_config api_config(struct api_rank *me); // capacity API_CAPACITY, notes are kept
void api_open(struct api_rank *me, const struct sc_config *config); // NULL: api_config
void api_ready(struct api_rank *me);                                // waits a minute at most
void api_begin(struct api_rank *me);                                // api_open and api_ready
void api_leave(struct api_rank *me); // a barrier, so that nobody leaves too early, and final close
void api_close(struct api_rank *me, enum sc_close_how how);
void api_sleep(struct api_rank *me, uint64_t duration_ns);
uint64_t api_now(const struct api_rank *me);
struct sc_health_report api_health(struct api_rank *me);
void *api_stream(struct api_rank *me);
// Notes of a kind, and the newest of them; NULL: none.
uint32_t api_notes(const struct api_rank *me, enum sc_note_kind kind);
const struct api_note *api_note(const struct api_rank *me, enum sc_note_kind kind);

// ---- payloads ---------------------------------------------------------------------------------

uint16_t api_bf16(uint32_t value); // exact up to 256
// Device memory of so many elements, each of them `value`.
uint16_t *api_buffer(struct api_rank *me, uint32_t elements, uint32_t value);
uint16_t *api_memory(struct api_rank *me, const void *buffer, uint64_t bytes); // behind it
void api_fill(struct api_rank *me, void *buffer, uint32_t elements, uint32_t value);
#define HOLDS(me, buffer, elements, value)                                                         \
    api_holds(me, buffer, elements, value, #buffer, __FILE__, __LINE__)
void api_holds(struct api_rank *me, const void *buffer, uint32_t elements, uint32_t value,
               const char *what, const char *file, int line);

// An all_reduce of ones, synchronized and looked at: the epoch works.
void api_works(struct api_rank *me);

#endif
