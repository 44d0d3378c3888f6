// SPDX-License-Identifier: AGPL-3.0-only
//
// The lab's own state. A `life` is one process of a rank; a `seat` is the rank itself, which outlives
// its processes and is what supervisor and oracles think in.
#ifndef SC_LAB_INSIDE_H
#define SC_LAB_INSIDE_H

#include "core/pump.h"
#include "hal/hal_check.h"
#include "hal_sim/lab/lab.h"
#include "hal_sim/lab/player.h"

#define LAB_RANKS_MAX 8u
#define LAB_LAYERS_MAX 128u
#define LAB_STREAMS_MAX 2u
#define LAB_TAGS 2048u // (epoch, seq) pairs remembered, across all ranks

struct lab;
struct seat;

enum app_phase {
    APP_AWAY,     // no epoch, or it is over
    APP_RESTING,  // between steps, until app.at_ns
    APP_RUNNING,  // ops of the step are in flight
    APP_AGREEING, // results are in; waits for all ranks' digests to agree
    APP_CLOSED,
};

struct app_op {
    uint64_t number; // 0: not submitted
    uint64_t seq;
    bool done;
};

// The application of one process.
struct app {
    enum app_phase phase;
    uint64_t epoch;
    uint64_t at_ns;
    uint64_t step;             // being worked on: mark + 1
    uint32_t layer;            // next to submit
    uint32_t done;             // layers whose ops completed
    uint64_t first_seq;        // of the step
    uint64_t newest_completed; // number
    uint32_t submitting;       // seqs at stake in the submit under way: if it fails, they are spent
    uint64_t slow_kernel_ns;
    uint64_t stalled_until_ns; // its thread is busy elsewhere; it looks at nothing meanwhile
    uint64_t streams[LAB_STREAMS_MAX];
    uint64_t capture;       // the step as a graph, for app.epoch; 0: none
    uint64_t release_at_ns; // when it lets go of a capture that a loss has made useless
    uint64_t memory;        // one payload buffer a layer, world times the payload each
    struct app_op ops[LAB_LAYERS_MAX];
};

struct life {
    struct seat *seat;
    struct sc_sim_process *process;
    struct sc_hal_check *check;
    struct sc_pump *pump;
    struct app app;
    uint64_t incarnation;
    bool paused;
    bool broken;       // one of its device's verbs was made to fail: it may be unable to clean up
    bool unregistered; // a registration of its was made to yield nothing
    bool dirty;        // notices arrived that the application has not looked at
    uint32_t state;
    uint64_t submitted;  // highest seq of app.epoch
    uint64_t last_epoch; // that was READY here
    uint64_t agreed;
    struct sc_sim_held base; // at the first READY, to see that recoveries leak nothing
    bool has_base;
};

// A frozen process and its replacement may exist side by side.
#define LAB_LIVES 2u

struct seat {
    struct lab *lab;
    uint32_t rank;
    struct life *life;  // the present one, NULL between processes
    struct life *ghost; // paused and replaced
    uint64_t respawn_at_ns;
    bool wanted; // the supervisor wants a process here
    bool left;   // closed for good
    uint64_t mark;
    uint64_t commits, commits_at_quiet;
    // What the record of the next epoch must say of this rank.
    uint64_t left_incarnation, left_epoch, left_completed, left_submitted;
    uint64_t paused_until_ns;
};

struct tag {
    uint64_t epoch, seq, tag;
};

struct epoch_seen {
    uint64_t epoch;
    uint64_t first_ready_ns;
    uint64_t left_ns; // first rank out of READY; 0: none yet
    uint64_t incarnation[LAB_RANKS_MAX];
    bool out[LAB_RANKS_MAX];
};

#define LAB_EPOCHS 16u // young epochs that oracles still look at

struct lab {
    const struct sc_plan *plan;
    const struct sc_lab_options *options;
    struct sc_lab_result *result;
    struct sc_sim *sim;
    struct seat seats[LAB_RANKS_MAX];
    uint64_t random;
    struct sc_player player;
    uint32_t expect_met;
    bool ending;
    // oracles
    struct tag tags[LAB_TAGS];
    struct epoch_seen epochs[LAB_EPOCHS];
    uint32_t epochs_count;
    uint64_t last_fault_ns;    // of any kind
    uint64_t trouble_until_ns; // links or hosts may be slow until then
    uint64_t watch_until_ns;   // an epoch is being left until then at the latest
    bool any_fault;
    bool vacant;       // a process has ended; the supervisor has not looked yet
    bool struck;       // something was killed, paused or broken, and no rank has left READY since
    bool recovering;   // the phases of the result are being measured
    uint64_t ready_ns; // of the newest epoch
    bool first_op_due;
};

// lab.c
void sc_lab_trace(struct lab *lab, struct sc_trace_entry entry);
void sc_lab_violation(struct lab *lab, uint32_t rank, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
uint64_t sc_lab_now(const struct lab *lab);
uint64_t sc_lab_draw(struct lab *lab, uint64_t min, uint64_t max);
// Fires what is due for a submit or a mark of `rank`; true when its process is gone afterwards.
bool sc_lab_fire_at_op(struct lab *lab, uint32_t rank, uint64_t mark, uint64_t op);
bool sc_lab_fire_at_mark(struct lab *lab, uint32_t rank, uint64_t mark);

// life.c
struct life *sc_life_spawn(struct seat *seat);
void sc_life_kill(struct life *life, const char *why);
// An orderly end: what is left behind is judged.
void sc_life_exit(struct life *life, const char *why);
void sc_life_run(struct life *life);

// step.c
void sc_step_begin(struct life *life);
bool sc_step_run(struct life *life); // false: the process may have ended, or its epoch
void sc_step_finish(struct life *life);
void sc_step_commit(struct life *life);

// app.c
#define LAB_RELEASE_NS 20000000ull   // an application lets go of a useless capture within 20 ms
void sc_app_lose(struct life *life); // its epoch is over
void sc_app_refused(struct life *life, sc_status status); // … or it made a wrong call
void sc_app_release_capture(struct life *life);
sc_status sc_app_open(struct life *life);
void sc_app_close(struct life *life); // frees what is the application's
// Looks at what has happened and goes on; returns when it next has something to do.
uint64_t sc_app_run(struct life *life);
void sc_app_completed(struct life *life, uint64_t epoch, uint64_t number, uint64_t seq);
// Highest seq of the epoch up to which every op is known to have completed.
uint64_t sc_app_completed_seq(const struct life *life);
void sc_app_lost(struct life *life, uint64_t epoch, uint64_t first, uint64_t last);

// oracle.c
void sc_oracle_state(struct life *life, const struct sc_action *notice);
void sc_oracle_ready(struct life *life, const struct sc_recovery *record);
void sc_oracle_submitted(struct life *life, uint64_t seq, uint64_t tag);
void sc_oracle_fault(struct lab *lab, uint64_t disturbs_links_ns); // 0: it does not
void sc_oracle_time(struct lab *lab);
void sc_oracle_end(struct lab *lab);
void sc_oracle_exit(struct life *life);

#endif
