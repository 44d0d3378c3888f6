// SPDX-License-Identifier: AGPL-3.0-only
//
// A world of ranks, each a pump over a simulated process with the contract checker in front of its
// device, driven by a test's script: the test is everybody's application and supervisor.
//
// Any breach of the seam's contract, any violation that the simulator sees and any group left open
// fails the test at the next step of time. One rig is open at a time. A test ends with rig_close or
// rig_finish; one that ends otherwise has failed, and rig_teardown, its teardown, prints the seed
// and the trace so far.
#ifndef SC_TESTS_SUPPORT_RIG_H
#define SC_TESTS_SUPPORT_RIG_H

#include "core/pump.h"
#include "hal/hal_check.h"
#include "hal_sim/sc_sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define RIG_MS UINT64_C(1000000)
#define RIG_SECOND (1000 * RIG_MS)
#define RIG_RANKS_MAX 8u
#define RIG_STREAMS 3u
#define RIG_COMMS_MAX 1024u

// Between the checker and the simulated device: what it does to calls, and what it saw of them.
struct rig_spy {
    bool sizes_only; // memory is addresses without bytes, and nothing that is enqueued moves any
    uint32_t polls_unanswered;    // so many op_polls answer INPROGRESS; UINT32_MAX: every one
    bool async_error_after_group; // the communicator breaks when the next group has ended
    uint64_t add_late_ns;         // a kernel this long goes ahead of every add …
    uint64_t add_late_stream;     // … on this stream
    uint32_t graphs;              // captures that were released, and whose graphs live all the same
    uint64_t sent_bytes, received_bytes, added_bytes; // of the last call
    uint64_t next_address;
    uint32_t comms_count;
    struct {
        uint64_t handle;
        uint32_t aborts;
    } comms[RIG_COMMS_MAX]; // every communicator that was created
};

struct rig_notice {
    uint64_t at_ns;
    struct sc_action notice;
};

struct rig_completion {
    uint64_t epoch, number, seq;
};

struct rig_loss {
    uint64_t epoch, first, last; // numbers
};

struct rig_command {
    uint64_t epoch;
    uint32_t bytes, crc;
};

struct rig;

// One life of a rank; everything recorded begins anew with each.
struct rig_rank {
    struct rig *rig;
    uint32_t rank;
    struct sc_sim_process *process; // NULL: there is none
    struct sc_hal_check *check;
    struct sc_pump *pump;
    struct sc_device table; // the spy's
    struct rig_spy spy;
    uint64_t streams[RIG_STREAMS];
    struct rig_notice *notices; // all, in order
    uint32_t notices_count, notices_capacity;
    struct rig_completion *completions; // all, in order
    uint32_t completions_count, completions_capacity;
    struct rig_loss *losses;
    uint32_t losses_count, losses_capacity;
    struct rig_command *commands; // received, in order
    uint32_t commands_count, commands_capacity;
    uint64_t agreed_epoch, agreed; // the last AGREED notice
};

struct rig_config {
    struct sc_core_config core; // rank is filled in
    struct sc_sim_config sim;
    uint32_t captures_max;
    uint32_t link_buffer_bytes; // 4096: too little for any command
    uint64_t poll_ns;           // of the device; 0: it wakes the host
    bool sizes_only;            // see rig_spy
};

struct rig {
    struct rig_config config;
    struct sc_sim *sim;
    struct rig_rank ranks[RIG_RANKS_MAX];
    const char *label;   // printed with a failure; may be NULL
    char why[256];       // how the last rig_spawn failed
    uint32_t violations; // breaches and violations so far
    char violation[256]; // the first one
};

struct rig_op {
    sc_status status; // of the submit
    uint64_t epoch, number, seq;
};

// ---- worlds ----

// Production timing, a capacity of 64 KiB, a ledger of 64, seed 1.
struct rig_config rig_config(uint32_t world);
// A world without processes.
struct rig *rig_create(const struct rig_config *config);
// The same, with every rank spawned and READY.
struct rig *rig_start(const struct rig_config *config);
struct rig *rig_start_world(uint32_t world);
// Closes every living rank for good, demands that each is CLOSED in time and holds nothing any more
// but what the test itself allocated, and ends the world.
void rig_close(struct rig *rig);
// Ends the world as it stands.
void rig_finish(struct rig *rig);
int rig_teardown(void **state);

// A new process of the rank. Without a pump (and rig->why says why) when it does not open: then
// the process stays, to be looked at and killed. `fault` (may be NULL) is injected before it opens.
sc_status rig_spawn(struct rig *rig, uint32_t rank, const struct sc_sim_fault *fault);
void rig_kill(struct rig *rig, uint32_t rank);
void rig_inject(struct rig *rig, struct sc_sim_fault fault);
__attribute__((format(printf, 3, 4))) void rig_trace(struct rig *rig, uint32_t rank,
                                                     const char *format, ...);

// ---- time ----

uint64_t rig_now(const struct rig *rig);
// One event at or before until_ns; false when there is none any more. Judges the contract.
bool rig_step(struct rig *rig, uint64_t until_ns);
void rig_run(struct rig *rig, uint64_t ns);
// Lets a rank's pump run at once: what follows every call that a test makes to it.
void rig_touch(struct rig *rig, uint32_t rank);
void rig_miss(const struct rig *rig, const char *condition, uint64_t limit_ns, const char *file,
              int line);

// Runs until the condition holds; fails the test when it does not within limit_ns.
#define rig_until(rig, limit_ns, condition)                                                        \
    do {                                                                                           \
        const uint64_t rig_until_ns = rig_now(rig) + (limit_ns);                                   \
        while (!(condition) && rig_step(rig, rig_until_ns)) {                                      \
        }                                                                                          \
        if (!(condition))                                                                          \
            rig_miss(rig, #condition, limit_ns, __FILE__, __LINE__);                               \
    } while (0)

// ---- what is so ----

struct sc_core_view rig_view(const struct rig *rig, uint32_t rank);
enum sc_state rig_state(const struct rig *rig, uint32_t rank);
uint64_t rig_epoch(const struct rig *rig, uint32_t rank);
bool rig_is_ready(const struct rig *rig); // every rank lives and is READY, all in one epoch
bool rig_is_ready_after(const struct rig *rig, uint64_t epoch); // … in a later one
struct sc_sim_held rig_held(const struct rig *rig, uint32_t rank);
uint64_t rig_calls(const struct rig *rig, uint32_t rank, enum sc_device_verb verb);
// Of all that do something; stream_check only asks.
uint64_t rig_calls_of_all_verbs(const struct rig *rig, uint32_t rank);
uint32_t rig_notices(const struct rig *rig, uint32_t rank, enum sc_notice kind);
// The newest notice of a change to that state; NULL: there was none.
const struct rig_notice *rig_change(const struct rig *rig, uint32_t rank, enum sc_state to);
// Fails unless the rank's newest departure from an epoch had this code and suspect.
void rig_expect_cause(const struct rig *rig, uint32_t rank, sc_status code, uint32_t suspect);

// ---- an application's work ----

uint64_t rig_alloc(struct rig *rig, uint32_t rank, uint64_t bytes);
uint16_t *rig_memory(struct rig *rig, uint32_t rank, uint64_t address, uint64_t elements);
void rig_fill(struct rig *rig, uint32_t rank, uint64_t address, uint64_t elements, uint16_t value);
// Fails unless all of the elements have this value.
void rig_expect_all(struct rig *rig, uint32_t rank, uint64_t address, uint64_t elements,
                    uint16_t value);

// In the rank's own epoch, READY or not.
struct rig_op rig_submit(struct rig *rig, uint32_t rank, struct sc_op_desc desc,
                         struct sc_op_place place);
struct rig_op rig_all_reduce(struct rig *rig, uint32_t rank, uint64_t address, uint64_t bytes,
                             uint32_t stream);
// Whether its result counts, or never will.
bool rig_is_done(const struct rig *rig, uint32_t rank, const struct rig_op *op);
bool rig_is_lost(const struct rig *rig, uint32_t rank, const struct rig_op *op);
sc_status rig_sync(struct rig *rig, uint32_t rank, uint64_t seq);
bool rig_has_agreed(const struct rig *rig, uint32_t rank, uint64_t epoch, uint64_t seq);
void rig_reconnect(struct rig *rig, uint32_t rank);
void rig_compute(struct rig *rig, uint32_t rank, uint32_t stream, uint64_t duration_ns);

// ---- the spy; rig_spy.c ----

// Makes rank->table, in front of the process's device.
void rig_spy_make(struct rig_rank *rank);

#endif
