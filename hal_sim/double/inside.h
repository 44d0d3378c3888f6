// SPDX-License-Identifier: AGPL-3.0-only
//
// Inside the test double. A run is one simulated world that engines open ranks in; a seat is a rank,
// which outlives its processes; a struct sc_sim_rank is one life of it: a simulated process, and the
// thread that runs the engine's main function; a handle is what one sc_open of that process uses.
//
//   double_run.c      a run, from its options to its report
//   double_record.c   its trace, its violations, its hash
//   double_plan.c     what entries do, and the supervisor
//   double_life.c     a life, from its birth to the judgement at its end
//   double_open.c     the world that a handle is opened in
//   double_rank.c     what an engine may ask of its rank
//   double_baton.c    the virtual clock: whose turn it is
//   double_steps.c    … and its host table
//   double_real.c     the real clock: the thread that keeps the world at the present time
//   double_threads.c  … and its host table
//   double_forward.c  … and its device and link tables
#ifndef SC_DOUBLE_INSIDE_H
#define SC_DOUBLE_INSIDE_H

#include "hal/choose.h"
#include "hal/hal_check.h"
#include "hal_sim/lab/player.h"
#include "hal_sim/lab/trace.h"
#include "hal_sim/sim.h"
#include "hal_sim/spark_comm_sim.h"

#include <pthread.h>
#include <stdatomic.h>

struct sc_double;

// ---- handles ----------------------------------------------------------------------------------

struct sc_double_handle {
    struct sc_sim_rank *rank;
    struct sc_double_handle *next;
    struct sc_host host;
    struct sc_link link;
    struct sc_device device;
    sc_comm comm; // 0 until it is open
    uint64_t (*step[SC_HOST_THREADS])(void *arg);
    void *step_arg[SC_HOST_THREADS];

    // Under the virtual clock:
    bool inside;   // a thread is in its monitor
    bool notified; // since the last await began
    bool told;     // notified since its last step began
    atomic_bool roused;

    // Under the real clock:
    struct sc_posix *posix;
    bool hung_up; // the sockets of a dead process are closed
};

// ---- lives ------------------------------------------------------------------------------------

// What a rank's thread waits for: the time, or *done.
struct sc_double_wait {
    uint64_t deadline_ns;
    const bool *done;  // NULL: the time alone
    const char *where; // for people
};

// Somebody waits, or waited, for a stream to come this far.
struct sc_double_drain {
    struct sc_double_drain *next;
    struct sc_sim_rank *rank;
    bool done;
};

struct sc_sim_rank {
    struct sc_double *run;
    struct sc_double_seat *seat;
    struct sc_sim_rank *next; // in the order of their births
    uint32_t life;            // from 1
    struct sc_sim_process *process;
    struct sc_hal_check *check;
    struct sc_double_handle *handles;
    struct sc_double_drain *drains;
    pthread_t thread;
    uint32_t attached; // threads of the engine's own, besides
    bool ended;        // its thread has nothing more to do than to end
    bool paused;
    bool broken; // one of its device's verbs was made to fail: it may be unable to clean up
    uint64_t stalled_until_ns;
    uint64_t mark;                 // the last one that this process set
    uint64_t ops;                  // submitted since
    uint32_t allocations, streams; // the engine's own

    // Under the virtual clock:
    pthread_cond_t turn;
    struct sc_double_wait wait;
    uint64_t called_ns; // when it last called
    uint32_t calls;     // at that moment
};

struct sc_double_seat {
    struct sc_double *run;
    uint32_t rank;
    struct sc_sim_rank *life; // the present one, NULL between processes
    uint64_t respawn_at_ns;
    bool wanted; // a process is to start here
    uint64_t paused_until_ns;
};

// ---- clocks -----------------------------------------------------------------------------------

// How a run's threads wait for each other and for time. What is not said to be otherwise is called
// between enter and leave.
struct sc_double_clock {
    sc_status (*start)(struct sc_double *run);
    void (*stop)(struct sc_double *run); // all lives have ended
    // The run is this thread's alone from enter to leave. They nest. After enter the world is at the
    // present time.
    void (*enter)(struct sc_double *run);
    void (*leave)(struct sc_double *run);
    // Waits until something has happened to a thread, or sc_double_over.
    void (*news)(struct sc_double *run);
    // Both in the thread of the life: first of all, and last of all, outside.
    void (*born)(struct sc_sim_rank *rank);
    void (*gone)(struct sc_sim_rank *rank);
    // SC_OK once *done, SC_TIMEOUT, SC_SIM_KILLED. Not while the process is paused or stalled.
    sc_status (*wait)(struct sc_sim_rank *rank, const struct sc_double_wait *wait);
    // Every call of the engine's begins so: waits while the process is paused or its thread stalled.
    // SC_OK or SC_SIM_KILLED.
    sc_status (*gate)(struct sc_sim_rank *rank);
    // It was killed, paused, resumed or stalled, or something may be done that it waits for.
    void (*stir)(struct sc_sim_rank *rank);
    // The world's on_wake.
    void (*woken)(void *rank);
    // Fills in the handle's three tables, and gives back what open took.
    sc_status (*open)(struct sc_double_handle *handle);
    void (*close)(struct sc_double_handle *handle);
};

extern const struct sc_double_clock sc_double_virtual, sc_double_real;

// ---- the run ----------------------------------------------------------------------------------

struct sc_double {
    const struct sc_double_clock *clock;
    struct sc_sim_options options;
    struct sc_sim_report report;
    sc_sim_main *main;
    void *arg;
    struct sc_plan plan;
    struct sc_sim *sim;
    struct sc_player player;
    uint64_t base_ns; // the run's clock begins here
    struct sc_double_seat seats[SC_SIM_RANKS_MAX];
    struct sc_sim_rank *lives;
    uint32_t running;  // lives that have not ended
    bool unjoined;     // a thread has ended and was not joined
    bool stuck;        // nobody will ever run again
    bool ending;       // no more births
    sc_status failure; // what ended the run early
    atomic_bool intruded;

    bool stepping; // the world is being stepped: nobody may wait

    pthread_mutex_t lock; // virtual clock: of holder; real clock: of everything
    // Under the virtual clock:
    pthread_cond_t turn;        // of the run's own thread
    struct sc_sim_rank *holder; // NULL: the run's own thread
    // Under the real clock:
    uint32_t depth;         // of enter
    pthread_cond_t changed; // somebody was stirred, or has ended
    pthread_cond_t earlier; // the world has an event before ticks_ns
    uint64_t ticks_ns;      // when the clock's thread looks again
    pthread_t ticker;
    bool ticker_stops;
};

// double_run.c
static inline uint64_t sc_double_now(const struct sc_double *run) {
    return sc_sim_now_ns(run->sim);
}
static inline uint64_t sc_double_end_ns(const struct sc_double *run) {
    return run->base_ns + run->plan.duration_ns;
}
// Nobody runs and nobody is to start; or nobody ever will, the time is over, or something failed.
bool sc_double_over(const struct sc_double *run);

// double_record.c
void sc_double_trace(struct sc_double *run, struct sc_trace_entry entry);
void sc_double_violation(struct sc_double *run, uint32_t rank, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// double_plan.c
void sc_double_plan_start(struct sc_double *run);
// A supervisor starts a killed rank again, if the plan has one.
void sc_double_supervise(struct sc_double_seat *seat);

// double_life.c
static inline bool sc_double_dead(const struct sc_sim_rank *rank) {
    return !sc_sim_alive(rank->process);
}
// When a thread of the engine's that waits so can go on, as far as is known now. One of a dead process
// can always: it is told.
uint64_t sc_double_due_ns(const struct sc_sim_rank *rank, const struct sc_double_wait *wait);
// Nobody waits while the world is being stepped: a violation, SC_SIM_KILLED.
sc_status sc_double_refuse_wait(struct sc_sim_rank *rank, const struct sc_double_wait *wait);
// The rank that the calling thread belongs to, or NULL.
struct sc_sim_rank *sc_double_here(void);
// SC_OK or SC_NO_MEMORY.
sc_status sc_double_here_set(struct sc_sim_rank *rank);
sc_status sc_double_spawn(struct sc_double_seat *seat);
// SIGKILL. The thread learns of it from its next call.
void sc_double_kill(struct sc_sim_rank *rank, const char *why);
// Joins and frees those that have ended.
void sc_double_bury(struct sc_double *run);

// double_open.c
void sc_double_handle_free(struct sc_double_handle *handle);

// double_steps.c
sc_status sc_double_steps_open(struct sc_double_handle *handle);
void sc_double_steps_run(void *rank);
// Hands on what host.wake was asked for since the last time.
void sc_double_steps_rouse(struct sc_double *run);

// double_real.c
// Waits while the process is paused: SC_OK or SC_SIM_KILLED.
sc_status sc_double_stand(struct sc_sim_rank *rank);

// double_threads.c
sc_status sc_double_threads_open(struct sc_double_handle *handle);
void sc_double_threads_close(struct sc_double_handle *handle);
void sc_double_threads_wake(void *rank);

// double_forward.c
extern const struct sc_device sc_double_device; // without ctx and poll_ns; ctx is a rank
extern const struct sc_link sc_double_link;     // without ctx, which is a rank

#endif
