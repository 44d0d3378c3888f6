// SPDX-License-Identifier: AGPL-3.0-only
//
// A world in one thread: virtual clock, network, device memory, streams, and communicators that
// keep NCCL's contract, with faults on demand. Everything follows from the seed and from the calls
// made; nothing from real time, addresses or threads.
//
// A process is one life of a rank: it has the three tables of hal/hal.h and dies as a whole. The
// caller steps the world; the world calls a process's `on_wake` when its host would have been
// woken: a link became ready, the device changed, wake was called, or its timer came. A woken
// process runs at most once for any number of causes pending, and never while paused.
#ifndef SC_SIM_H
#define SC_SIM_H

#include "hal/hal.h"

struct sc_sim;
struct sc_sim_process;

// Typical durations, each drawn anew from [min, max] for each use.
struct sc_sim_span {
    uint64_t min_ns;
    uint64_t max_ns;
};

struct sc_sim_config {
    uint64_t seed;
    uint32_t world; // 1..8
    struct sc_sim_span link_latency;
    struct sc_sim_span comm_init;   // all ranks present -> created
    struct sc_sim_span comm_warmup; // created -> ready
    struct sc_sim_span comm_abort;
    struct sc_sim_span op_latency; // last rank's arrival -> the exchange completes
    // A rank whose peer vanished sees an asynchronous error (as over sockets) with this chance in
    // 256, else its ops spin for ever (as over NVLink).
    uint32_t peer_loss_error_chance;
    // Told of every breach of contract seen below the seam (red zone overwritten, id used twice,
    // address outside any allocation, memory freed in use, …). `text` lives for the call, during
    // which the world must not be called. The verb in question answers SC_INVALID, without effect.
    void (*on_violation)(void *arg, uint32_t rank, const char *text);
    void *arg;
};

// Figures measured on a pair of NVLink GPUs, rounded; a good default.
void sc_sim_config_init(struct sc_sim_config *config, uint64_t seed, uint32_t world);

SC_MUST_USE sc_status sc_sim_create(const struct sc_sim_config *config, struct sc_sim **out);
// Ends every process and frees everything. NULL is allowed.
void sc_sim_destroy(struct sc_sim *sim);

uint64_t sc_sim_now_ns(const struct sc_sim *sim);
// Runs the next event if it is due at or before `until_ns`; otherwise sets the clock to `until_ns`
// (SC_NEVER_NS leaves it as it is) and returns false.
bool sc_sim_step(struct sc_sim *sim, uint64_t until_ns);
// When the next event comes; SC_NEVER_NS: there is none.
uint64_t sc_sim_next_ns(const struct sc_sim *sim);
// Calls `fn` at a virtual time (as soon as can be when it has passed; SC_NEVER_NS: never).
void sc_sim_at(struct sc_sim *sim, uint64_t at_ns, void (*fn)(void *arg), void *arg);

// ---- processes ------------------------------------------------------------------------------

// Starts a life of `rank`, in [0, world). Several lives of one rank may exist at a time, as a frozen
// process and its replacement do. The process stays valid, as a corpse after a kill, until
// sc_sim_reap or sc_sim_destroy.
SC_MUST_USE sc_status sc_sim_spawn(struct sc_sim *sim, uint32_t rank, void (*on_wake)(void *arg),
                                   void *arg, struct sc_sim_process **out);
const struct sc_host *sc_sim_host(struct sc_sim_process *process);
const struct sc_link *sc_sim_link(struct sc_sim_process *process);
const struct sc_device *sc_sim_device(struct sc_sim_process *process);
// The next on_wake comes at `at_ns` at the latest; SC_NEVER_NS clears it. One timer a process.
void sc_sim_timer(struct sc_sim_process *process, uint64_t at_ns);

// SIGKILL: no on_wake any more, links end (peers read EOF after the latency), device work vanishes
// and its memory with it, after a look at its red zones. Every call on its tables from then on
// answers SC_CLOSED, and it holds nothing.
void sc_sim_kill(struct sc_sim_process *process);
bool sc_sim_alive(const struct sc_sim_process *process);
// SIGSTOP and SIGCONT: the host stands still, the kernel's sockets and the GPU's enqueued work do
// not. While paused, an abort or an init of a peer that needs this process may hang (comm_init never
// finishes without it; a peer's comm_abort takes until it is thawed or dead).
void sc_sim_pause(struct sc_sim_process *process);
void sc_sim_resume(struct sc_sim_process *process);
// Frees a dead process; a living one it leaves alone. Never from inside its own host.wait.
void sc_sim_reap(struct sc_sim_process *process);

// What a process still holds; all zero after an orderly end.
struct sc_sim_held {
    uint32_t allocations, streams, communicators, quarantined, ops, captures, registrations;
    uint32_t links, listeners;
    uint64_t device_bytes;
};
void sc_sim_held(const struct sc_sim_process *process, struct sc_sim_held *out);
// How deep the group of its (one) thread stands; 0 outside any call into the pump.
uint32_t sc_sim_group_depth(const struct sc_sim_process *process);

// ---- what an application does with its own GPU -----------------------------------------------

// Device memory is ordinary memory here: sc_sim_memory gives the bytes behind an address, or NULL
// when [address, address + bytes) is not inside one live allocation of this process.
void *sc_sim_memory(struct sc_sim_process *process, uint64_t address, uint64_t bytes);
// Gives memory back as an application may: no op in flight touches it, and it is not registered. What
// comes of breaking that is SC_INVALID, and a violation.
SC_MUST_USE sc_status sc_sim_free(struct sc_sim_process *process, uint64_t address);
// Enqueues a kernel: `fn` (may be NULL) runs when it has finished, `duration_ns` after it began.
// Recorded, not run, while the stream captures.
SC_MUST_USE sc_status sc_sim_compute(struct sc_sim_process *process, uint64_t stream,
                                     uint64_t duration_ns, void (*fn)(void *arg), void *arg);
// Launches the captured graph on a stream, between replay_begin and replay_end.
SC_MUST_USE sc_status sc_sim_graph_launch(struct sc_sim_process *process, uint64_t capture,
                                          uint64_t stream);

// ---- faults, named for the behaviour they cause ----------------------------------------------

// Kinds and their fields:
// clang-format off
#define SC_SIM_FAULTS(X)                                                                           \
    X(link_reset)        /* a–b: both read EOF after the latency; unread bytes are lost */         \
    X(link_blackhole)    /* a–b: nothing arrives for duration, then all of it; EOFs neither */     \
    X(link_oneway)       /* the same for what a sends to b only */                                 \
    X(link_delay)        /* a–b: latency raised by duration, for duration × 8 */                   \
    X(link_fragment)     /* a–b: bytes arrive a few at a time, for duration */                     \
    X(name_unresolved)   /* dials of a answer SC_UNREACHABLE for duration */                       \
    X(port_squatted)     /* only while nobody listens: for duration, listen answers SC_BIND on     \
                            every port, and dials meet a process that sends a banner of 200 bytes \
                            and takes what it is sent */                                           \
    X(stranger_silent)   /* a connection to a listener that says nothing for duration */           \
    X(stranger_garbage)  /* … that sends 64 random bytes */                                        \
    X(stranger_http)     /* … that sends an HTTP GET and stays for duration */                     \
    X(stranger_banner)   /* … that sends a text banner and resets */                               \
    X(stranger_replay)   /* … that sends again the bytes which the last connection of rank a       \
                            to the listener sent first (its hello) */                              \
    X(init_hang)         /* a's next communicator never forms, nor for its peers */                \
    X(init_error)        /* a's next communicator fails; its peers' then hangs */                  \
    X(init_null)         /* a's next comm_create answers SC_OK with handle 0 */                    \
    X(register_null)     /* a's next nth registrations answer SC_OK with registration 0 */         \
    X(async_error)       /* a's communicator reports SC_ASYNC_ERROR from now on */                 \
    X(op_slow)           /* a reaches its next op's start or exchange late by duration */          \
    X(op_stuck)          /* a's next exchange starts on every rank and never completes */          \
    X(op_late)           /* a's host learns of its next completion late by duration */             \
    X(abort_slow)        /* a's next abort takes duration */                                       \
    X(abort_stuck)       /* a's next abort never returns */                                        \
    X(verb_fails)        /* the nth call from now of `verb` on a answers `status`, without effect  \
                            but that group_end still closes its group and enqueues nothing, and    \
                            op_end still ends its op, as SC_OP_FAILED;                             \
                            duration 0: once, else every later call too */                         \
    X(context_lost)      /* every device call of a answers SC_CONTEXT_LOST from now on, except     \
                            that comm_poll reports it as the communicator's error */
// clang-format on

enum sc_sim_fault_kind {
#define SC_SIM_FAULT_ENUM(name) SC_SIM_##name,
    SC_SIM_FAULTS(SC_SIM_FAULT_ENUM)
#undef SC_SIM_FAULT_ENUM
        SC_SIM_FAULT_COUNT
};

struct sc_sim_fault {
    enum sc_sim_fault_kind kind;
    uint32_t a; // a rank: its youngest living process is meant
    uint32_t b;
    enum sc_device_verb verb;
    uint32_t nth; // from 1
    uint64_t duration_ns;
    sc_status status;
};

const char *sc_sim_fault_name(enum sc_sim_fault_kind kind);
// False when it could not bite (no such link, process or listener at present): nothing changed.
bool sc_sim_inject(struct sc_sim *sim, const struct sc_sim_fault *fault);
// Lifts every fault that is still waiting or lasting; what has already failed stays failed.
void sc_sim_heal(struct sc_sim *sim);

// The most bytes that any one stranger was sent so far.
uint64_t sc_sim_stranger_bytes(const struct sc_sim *sim);

// The generator behind every draw, for callers that need randomness of the same world.
uint64_t sc_sim_random(struct sc_sim *sim);

// ---- the world of the calling thread (hal_sim/double) ----------------------------------------

struct sc_config;
struct sc_world; // hal/choose.h

// Whether the calling thread belongs to a simulated rank.
bool sc_sim_here(void);
// The tables of that rank's process, on behalf of sc_choose: SC_OK, SC_INVALID (`why` says what of
// the config does not fit this rank), SC_NO_MEMORY, SC_SIM_KILLED.
SC_MUST_USE sc_status sc_sim_choose(const struct sc_config *config, struct sc_world *out, char *why,
                                    size_t why_bytes);

#endif
