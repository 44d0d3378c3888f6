// SPDX-License-Identifier: AGPL-3.0-only
//
/// @file
/// The test double of spark_comm: the same calls over a simulated world, for an engine's own tests on
/// a CPU. Link libspark_comm_sim instead of libspark_comm, and let sc_sim_run() call the engine's main
/// function once for each life of each rank. In there sc_open() opens the simulated rank, and all the
/// rest of spark_comm.h is as it is on a GPU.
///
/// Under the virtual clock a run is a function of its options and of what the engine does, to the last
/// bit: each rank has one thread, one runs at a time, and time passes only while all of them wait (and,
/// for those that poll, a little after every thousand calls). on_note is called from whichever thread
/// is awake, and no call may wait in it. Under the real clock ranks may have any number of threads, and
/// nothing is repeatable. Only waits and calls that enter the library let time pass: a loop that just looks
/// at sc_health() or sc_live_epoch() must sleep in between.
#ifndef SPARK_COMM_SIM_H
#define SPARK_COMM_SIM_H

#include "spark_comm.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SC_SIM_RANKS_MAX 8u ///< ranks in a simulated world

struct sc_sim_rank; ///< one life of a rank: one simulated process

/// The engine, as it runs in one process. What it returns is its exit code, and ends the process: its
/// handle must be closed by then, and what is left of its threads is told SC_SIM_KILLED. When a call
/// says SC_SIM_KILLED the process is dead: return, whatever is returned then counts for nothing.
typedef int sc_sim_main(struct sc_sim_rank *rank, void *arg);

/// Which clock a run goes by.
enum sc_sim_clock {
    SC_SIM_VIRTUAL = 0, ///< simulated; a run of an hour takes moments
    SC_SIM_REAL = 1,    ///< the machine's own
};

/// What links the ranks.
enum sc_sim_links {
    SC_SIM_NETWORK = 0, ///< the simulated network, with its faults
    SC_SIM_SOCKETS = 1, ///< real loopback sockets; under the real clock only
};

/// A run. sc_sim_options_init() fills in defaults.
struct sc_sim_options {
    uint32_t size;    ///< set by sc_sim_options_init()
    uint32_t clock;   ///< enum sc_sim_clock
    uint32_t links;   ///< enum sc_sim_links
    uint32_t port;    ///< of rank 0 with SC_SIM_SOCKETS; default 29500
    uint64_t seed;    ///< of everything that is drawn; default 1
    const char *plan; ///< what goes wrong and when, as text; NULL: two ranks, nothing goes wrong
    const char *plan_name; ///< what messages call the plan; default "plan"
    void (*on_trace)(void *arg,
                     const char *line); ///< each event in words; may be NULL; calls nothing
    void *trace_arg;                    ///< handed to on_trace
};

/// How a run went.
struct sc_sim_report {
    uint32_t size;       ///< in: sizeof(struct sc_sim_report)
    uint32_t ranks;      ///< entries of the arrays that count
    uint32_t violations; ///< breaches of contract by library or engine; calls that never returned
    uint32_t lives[SC_SIM_RANKS_MAX];    ///< processes that each rank had
    int32_t exit_code[SC_SIM_RANKS_MAX]; ///< of its last life; -1: it was killed
    uint64_t ended_ns;                   ///< on the run's clock, which begins near 0
    uint64_t hash;       ///< of the run's events; virtual clock: equal runs, equal hash
    char violation[512]; ///< the first one, in words
};

/// Writes defaults into the first `size` bytes; size is sizeof(struct sc_sim_options).
SC_API void sc_sim_options_init(struct sc_sim_options *options, size_t size);

/// Plays the plan: starts every rank, strikes as the plan says, restarts ranks where it says so, and
/// returns when every rank's main has returned and no restart is due, or when the plan's time is over,
/// which is a violation for each that still runs. A rank that waits for what can never come is found
/// out at once under the virtual clock. INVALID (sc_last_error() names the option or the plan's line),
/// NO_MEMORY. What went wrong inside is in the report.
SC_API SC_MUST_USE sc_status sc_sim_run(const struct sc_sim_options *options, sc_sim_main *main,
                                        void *arg, struct sc_sim_report *report);

/// Sets what the run knows: rank, world, master_host, master_port and the plan's timing. Call it after
/// sc_config_init().
SC_API void sc_sim_rank_config(const struct sc_sim_rank *rank, struct sc_config *config);
SC_API uint32_t sc_sim_rank_number(const struct sc_sim_rank *rank); ///< [0, world)
SC_API uint32_t sc_sim_rank_life(const struct sc_sim_rank *rank);   ///< 1 for its first process
SC_API uint64_t sc_sim_rank_now_ns(const struct sc_sim_rank *rank); ///< on the run's clock
/// Lets time pass for this thread alone. SC_OK or SC_SIM_KILLED.
SC_API SC_MUST_USE sc_status sc_sim_rank_sleep(struct sc_sim_rank *rank, uint64_t duration_ns);
/// Makes another thread of the engine's one of this rank's, which stalls with it and may call
/// sc_open(); under the real clock only, otherwise SC_STATE. It lasts until the thread ends, and the
/// process's end waits for that. SC_SIM_KILLED, SC_NO_MEMORY.
SC_API SC_MUST_USE sc_status sc_sim_rank_attach(struct sc_sim_rank *rank);

// ---- the rank's GPU ----------------------------------------------------------------------------

/// Device memory, at least 16-byte aligned; the engine's own, as from cuMemAlloc.
SC_API SC_MUST_USE sc_status sc_sim_rank_alloc(struct sc_sim_rank *rank, uint64_t bytes,
                                               void **buffer);
/// Gives it back, once no op in flight touches it. A process that ends leaves nothing behind.
SC_API SC_MUST_USE sc_status sc_sim_rank_free(struct sc_sim_rank *rank, void *buffer);
/// The bytes behind a device address, for kernels and for looking at results; NULL when
/// [buffer, buffer + bytes) is not inside one live allocation of this rank.
SC_API void *sc_sim_rank_memory(struct sc_sim_rank *rank, const void *buffer, uint64_t bytes);

/// An in-order stream. Only such streams are known to the simulated device; NULL is none.
SC_API SC_MUST_USE sc_status sc_sim_rank_stream_create(struct sc_sim_rank *rank, void **stream);
SC_API SC_MUST_USE sc_status sc_sim_rank_stream_destroy(struct sc_sim_rank *rank,
                                                        void *stream); ///< see stream_create
/// Waits until everything enqueued on the stream has run. SC_OK, SC_TIMEOUT, SC_SIM_KILLED; SC_CAPTURE
/// (the stream is being captured), SC_CONTEXT_LOST (nothing will ever run on it), SC_NO_MEMORY.
SC_API SC_MUST_USE sc_status sc_sim_rank_stream_wait(struct sc_sim_rank *rank, void *stream,
                                                     uint64_t timeout_ns);
/// Enqueues a kernel that takes `duration_ns` and then has done what `fn` (may be NULL) does. fn runs
/// on a thread of the run's and must call nothing but sc_sim_rank_memory(). Recorded, not run, while
/// the stream is between sc_capture_begin() and sc_capture_end().
SC_API SC_MUST_USE sc_status sc_sim_rank_launch(struct sc_sim_rank *rank, void *stream,
                                                uint64_t duration_ns, void (*fn)(void *arg),
                                                void *arg);
/// Launches what was captured, between sc_replay_begin() and sc_replay_end().
SC_API SC_MUST_USE sc_status sc_sim_rank_graph_launch(struct sc_sim_rank *rank, sc_capture capture,
                                                      void *stream);

#ifdef __cplusplus
}
#endif

#endif
