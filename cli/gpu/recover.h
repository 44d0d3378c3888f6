// SPDX-License-Identifier: AGPL-3.0-only
//
// Inside "bench recover":
//
//   recover.c         the cycles: strike, wait, count
//   recover_world.c   the ranks' processes, and what they say
//   recover_rank.c    one rank's process
//   recover_report.c  the table, and the JSON
//
// All processes are of one machine and read one monotonic clock, so that a time taken in one can be
// compared with a time taken in another.
#ifndef SC_CLI_GPU_RECOVER_H
#define SC_CLI_GPU_RECOVER_H

#include "cli/bench.h"
#include "cli/gpu/child.h"
#include "cli/gpu/self.h"
#include "core/spark_comm.h"

#define SC_RECOVER_ROLE "recover-rank"

// ---- what is said over the channel ----

// The first message to a rank.
struct sc_recover_start {
    uint32_t rank, world, port;
    int32_t device; // of the world's: the one of all ranks, or -1
    uint64_t layers, hidden_size;
    uint32_t graph;
};

// The others.
enum sc_recover_order {
    SC_ORDER_JOIN,     // it was opened on hold
    SC_ORDER_CUT_LINK, // its control link
    SC_ORDER_CUT_DATA, // a data socket of its communicator
    SC_ORDER_COUNT,    // say COUNTED
    SC_ORDER_LEAVE,
};

// What a rank says, and what its supervisor waits for.
enum sc_recover_word_kind {
    SC_SAID_OPENED,  // GPU, handle and memory are there: text, driver, nccl
    SC_SAID_LEFT,    // out of READY: at_ns by the library's clock, code, suspect
    SC_SAID_READY,   // epoch, phases; code, suspect: why the last one ended
    SC_SAID_FIRST,   // the first step of the epoch is done and right
    SC_SAID_COUNTED, // counts, device_bytes
    SC_SAID_FAILED,  // text
};

struct sc_recover_word {
    uint32_t kind;
    uint32_t code, suspect;
    uint32_t driver, nccl;
    uint64_t at_ns;
    uint64_t epoch;
    struct sc_phases phases;
    struct sc_self_counts counts;
    uint64_t device_bytes; // of its GPU that are in use, by whomever
    char text[256];
};

// ---- the ranks, as their supervisor knows them ----

struct sc_recover_member {
    struct sc_child child;
    struct sc_child former;       // the process before it, frozen or dying
    uint32_t said;                // mask of kinds, since they were last forgotten
    struct sc_recover_word of[6]; // the last of each kind
    uint64_t left_heard_ns;       // when LEFT came here
};

struct sc_recover_world {
    struct sc_recover_start start; // of rank 0; the others differ in rank and device
    struct sc_recover_member members[SC_BENCH_GPUS_MAX];
    char why[320]; // what went wrong
};

#define SC_ALL_RANKS UINT32_MAX

// Starts one rank's process, in the place of any before it.
bool sc_recover_world_start(struct sc_recover_world *w, uint32_t rank);
bool sc_recover_world_order(struct sc_recover_world *w, uint32_t rank, enum sc_recover_order order);
// Forgets what was said, but for OPENED.
void sc_recover_world_forget(struct sc_recover_world *w);
// Until each rank of the mask has said it; for FIRST, all in the same epoch. False: `why` says what
// came instead.
bool sc_recover_world_await(struct sc_recover_world *w, enum sc_recover_word_kind kind,
                            uint32_t ranks, uint64_t limit_ns);
// Lets them work or wait so long. False if one fails.
bool sc_recover_world_hear(struct sc_recover_world *w, uint64_t ns);
// The same, while all work: false also if one leaves its epoch.
bool sc_recover_world_rest(struct sc_recover_world *w, uint64_t ns);
// Ends all processes, with a word if they are well.
void sc_recover_world_end(struct sc_recover_world *w, bool well);

// ---- what came of it ----

// Of one cycle; times in ns. Where there is no newcomer its own are 0.
enum sc_recover_time {
    SC_TIME_DETECT, // strike to the survivor's being out of READY
    SC_TIME_AGREE,
    SC_TIME_ABORT,
    SC_TIME_WAIT,
    SC_TIME_FORM,
    SC_TIME_WARM_UP,
    SC_TIME_FIRST, // READY to the first good step, on the survivor
    SC_TIME_OPEN,  // the newcomer's start to its GPU, handle and memory
    SC_TIME_JOIN,  // the newcomer's join to the first good step on all ranks
    SC_TIME_WHOLE, // strike to the first good step on all ranks
    SC_TIMES
};

struct sc_recover_cycle {
    uint64_t times[SC_TIMES];
    uint64_t heard_ns; // strike to the supervisor's hearing of it
    uint32_t code, suspect;
    bool right;                   // the cause in the record is the one it must be
    struct sc_self_counts counts; // of the survivor, after it
    uint64_t device_bytes;
};

struct sc_recover_result {
    const struct sc_recover_request *request;
    uint32_t survivor;
    struct sc_recover_word opened; // by the survivor
    struct sc_recover_cycle *cycles;
    uint64_t done;   // cycles that ended
    const char *why; // "" if all did
};

// Counts are compared with those after this cycle, by when everything has been used once.
#define SC_RECOVER_BASE_CYCLE 3u

void sc_recover_tell_cycle(const struct sc_recover_result *result, uint64_t index);
// False where something grew beyond its limit.
bool sc_recover_is_level(const struct sc_recover_result *result);
void sc_recover_tell(const struct sc_recover_result *result);
bool sc_recover_write(const struct sc_recover_result *result, bool well);

#endif
