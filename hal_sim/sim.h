// SPDX-License-Identifier: AGPL-3.0-only
//
// Inside the simulator: the clock and its events, handles, processes, and the random draws. The
// network is in sim_net.h, the GPU in sim_gpu.h.
//
// Everything that outlives a call is an object of a pool. An event names its object by handle, not
// by pointer, so that one which comes after its object's end finds nothing and does nothing.
#ifndef SC_SIM_INSIDE_H
#define SC_SIM_INSIDE_H

#include "core/assert.h"
#include "hal_sim/sc_sim.h"

#include <string.h>

#define SC_SIM_RANKS_MAX 8u
#define SC_SIM_STRANGER UINT32_MAX // the rank of an endpoint that belongs to no process
#define SC_SIM_HELLO_BYTES 1024u

// ---- objects ----------------------------------------------------------------------------------

enum sc_sim_kind {
    SC_SIM_PROCESS,
    SC_SIM_CALL,
    SC_SIM_LISTENER,
    SC_SIM_LINK,
    SC_SIM_STREAM,
    SC_SIM_OP,
    SC_SIM_EXCHANGE,
    SC_SIM_CAPTURE,
    SC_SIM_CLIQUE,
    SC_SIM_COMM,
    SC_SIM_REGISTRATION,
    SC_SIM_KIND_COUNT,
};

// The first member of every object.
struct sc_sim_object {
    uint64_t handle; // kind, generation, index; 0 once the handle has ended
    uint32_t generation;
    uint32_t index;
    uint32_t next_free; // 1 + index
    bool in_use;
    struct sc_sim_process *owner; // NULL: the world's own
};

#define SC_SIM_CHUNK_OBJECTS 16u

struct sc_sim_pool {
    unsigned char **chunks; // objects never move
    uint32_t count;
    uint32_t first_free; // 1 + index
};

// ---- the world --------------------------------------------------------------------------------

// A call that the caller asked for with sc_sim_at.
struct sc_sim_call {
    struct sc_sim_object object;
    void (*fn)(void *arg);
    void *arg;
};

typedef void (*sc_sim_event_fn)(struct sc_sim *sim, uint64_t a, uint64_t b);

struct sc_sim_event {
    uint64_t at_ns;
    uint64_t sequence; // equal times run in the order in which they were asked for
    sc_sim_event_fn fn;
    uint64_t a;
    uint64_t b;
};

// What the network does to the bytes that go from one rank to another.
struct sc_sim_path {
    uint64_t hole_until_ns;
    uint64_t delay_until_ns;
    uint64_t delay_ns;
    uint64_t fragment_until_ns;
};

// The bytes that a rank's last connection to a listener sent first.
struct sc_sim_hello {
    uint64_t link;
    uint64_t sent_ns;
    uint32_t bytes;
    unsigned char data[SC_SIM_HELLO_BYTES];
};

struct sc_sim {
    struct sc_sim_config config;
    uint64_t now_ns;
    uint64_t random[4];

    struct sc_sim_event *events; // a binary heap
    size_t event_count;
    size_t event_capacity;
    uint64_t event_sequence;

    struct sc_sim_pool pools[SC_SIM_KIND_COUNT];
    uint64_t spawned;

    struct sc_sim_path paths[SC_SIM_RANKS_MAX][SC_SIM_RANKS_MAX]; // [from][to]
    struct sc_sim_hello hellos[SC_SIM_RANKS_MAX];
    uint64_t unresolved_until_ns[SC_SIM_RANKS_MAX];
    uint64_t squatted_until_ns;
    uint64_t stranger_bytes_max;
};

// ---- a process --------------------------------------------------------------------------------

// One call of a device verb that is to fail, and perhaps all after it.
struct sc_sim_verb_fault {
    uint32_t countdown; // 0: none
    bool lasting;
    sc_status status;
};

// Faults that wait for their occasion.
struct sc_sim_armed {
    bool init_hang;
    bool init_error;
    bool init_null;
    bool op_stuck;
    bool abort_stuck;
    uint32_t register_null;
    uint64_t op_slow_ns;
    uint64_t op_late_ns;
    uint64_t abort_slow_ns;
    uint32_t verbs_count;
    struct sc_sim_verb_fault verbs[SC_DEVICE_VERB_COUNT];
};

// Device memory: `bytes` between two red zones.
struct sc_sim_memory {
    uint64_t address;
    uint64_t bytes;
    unsigned char *block;
    uint64_t *users; // handles of the communicators that may touch it
    uint32_t users_count;
    uint32_t users_capacity;
};

struct sc_sim_process {
    struct sc_sim_object object;
    struct sc_sim *sim;
    uint32_t rank;
    uint64_t life; // from 1, in the order of spawning
    bool alive;
    bool paused;
    bool waiting; // inside host.wait, which takes the wake-ups instead of on_wake
    bool wake_pending;
    void (*on_wake)(void *arg);
    void *arg;
    uint64_t timer_ns;
    uint64_t timer_event_ns; // when the earliest timer event still in the heap comes

    struct sc_host host;
    struct sc_link link;
    struct sc_device device;
    struct sc_sim_held held;
    struct sc_sim_armed armed;

    bool context_lost;
    uint64_t fence;

    struct sc_sim_memory *memory; // by rising address
    uint32_t memory_count;
    uint32_t memory_dead; // allocations of a process that was killed
    uint32_t memory_capacity;
    uint64_t next_address;

    uint32_t aborts_queued;
    uint32_t group_depth;
    sc_status group_error;
    struct sc_sim_part *group_parts;
    uint32_t group_count;
    uint32_t group_capacity;
};

// ---- sim_pool.c -------------------------------------------------------------------------------

// A free object of that kind with a fresh handle; the rest of it is as its last use left it, all
// zero the first time.
void *sc_sim_pool_take(struct sc_sim *sim, enum sc_sim_kind kind, struct sc_sim_process *owner);
// Ends the handle; the object stays until it is put back.
static inline void sc_sim_pool_retire(struct sc_sim_object *object) {
    object->handle = 0;
}
void sc_sim_pool_put(struct sc_sim *sim, enum sc_sim_kind kind, struct sc_sim_object *object);
// NULL unless the handle is a live one of that kind.
void *sc_sim_pool_find(struct sc_sim *sim, enum sc_sim_kind kind, uint64_t handle);
// For walks over [0, count), in an order that addresses do not change: the object, or NULL where
// none is in use. `any` shows those too.
void *sc_sim_pool_at(struct sc_sim *sim, enum sc_sim_kind kind, uint32_t index);
void *sc_sim_pool_any(struct sc_sim *sim, enum sc_sim_kind kind, uint32_t index);
static inline uint32_t sc_sim_pool_count(const struct sc_sim *sim, enum sc_sim_kind kind) {
    return sim->pools[kind].count;
}
void sc_sim_pool_free(struct sc_sim *sim, enum sc_sim_kind kind);
// Makes room for `count` elements in an array that keeps its capacity. A run that went on without
// memory would no longer follow from its seed, so that ends the program.
void *sc_sim_grow(void *array, size_t element_bytes, size_t count, uint32_t *capacity);

// ---- sim_world.c ------------------------------------------------------------------------------

// What is due at SC_NEVER_NS does not come.
void sc_sim_push(struct sc_sim *sim, uint64_t at_ns, sc_sim_event_fn fn, uint64_t a, uint64_t b);
// a + b, or the last moment of all.
uint64_t sc_sim_later(uint64_t a_ns, uint64_t b_ns);

// ---- sim_random.c -----------------------------------------------------------------------------

void sc_sim_random_seed(struct sc_sim *sim, uint64_t seed);
uint64_t sc_sim_below(struct sc_sim *sim, uint64_t bound); // in [0, bound); bound is not 0
uint64_t sc_sim_draw(struct sc_sim *sim, struct sc_sim_span span);
void sc_sim_fill(struct sc_sim *sim, void *out, size_t bytes);

// ---- sim_process.c ----------------------------------------------------------------------------

// on_wake soon, or the end of its wait; once for any number of calls.
void sc_sim_wake(struct sc_sim_process *process);
// The youngest living process of a rank, or NULL.
struct sc_sim_process *sc_sim_youngest(struct sc_sim *sim, uint32_t rank);
// Reports a breach of contract; the answer to the call that made it is SC_INVALID.
sc_status sc_sim_breach(struct sc_sim_process *process, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
