// SPDX-License-Identifier: AGPL-3.0-only
//
// Inside the simulated network: listeners, endpoints, and strangers.
//
// A connection is two endpoints, each with the bytes that go to it. Sending writes them into the
// other end's ring at once and asks for an event, by which they become visible there.
#ifndef SC_SIM_NET_H
#define SC_SIM_NET_H

#include "hal_sim/sim.h"

#define SC_SIM_LINK_BYTES (UINT64_C(256) * 1024) // under way and unread together, each way

enum sc_sim_link_state {
    SC_SIM_LINK_DIALLING, // nobody at the other end yet
    SC_SIM_LINK_ANSWERED, // accepted, or refused, and the answer is under way
    SC_SIM_LINK_OPEN,
    SC_SIM_LINK_REFUSED,
};

enum sc_sim_stranger_kind {
    SC_SIM_NO_STRANGER,
    SC_SIM_SILENT,
    SC_SIM_GARBAGE,
    SC_SIM_HTTP,
    SC_SIM_BANNER,
    SC_SIM_REPLAY,
    SC_SIM_SQUATTER,
};

struct sc_sim_listener {
    struct sc_sim_object object;
    uint16_t port;
    uint64_t *backlog; // endpoints in order of arrival
    uint32_t backlog_count;
    uint32_t backlog_capacity;
};

struct sc_sim_endpoint {
    struct sc_sim_object object; // no owner: a stranger's
    enum sc_sim_link_state state;
    bool accepted; // its process knows it
    bool refused;  // the answer under way is a refusal
    uint64_t peer; // 0: none yet
    uint32_t here; // the ranks at both ends, or SC_SIM_STRANGER
    uint32_t there;
    uint16_t port;

    unsigned char *ring;  // what comes in; offsets count from the first byte ever
    uint32_t ring_bytes;  // a power of two
    uint64_t head;        // read up to here
    uint64_t visible;     // arrived up to here
    uint64_t tail;        // sent up to here
    uint64_t last_due_ns; // nothing sent later arrives earlier
    bool writer_blocked;
    bool eof;
    bool reset;

    bool held; // a black hole keeps arrivals back:
    bool held_eof;
    bool held_dial;
    uint64_t held_visible;

    enum sc_sim_stranger_kind stranger;
    uint32_t imitated; // the rank whose hello it repeats
    uint64_t stay_ns;
    uint64_t taken_bytes; // what a stranger was sent
};

static inline struct sc_sim_endpoint *sc_sim_endpoint_find(struct sc_sim *sim, uint64_t handle) {
    return sc_sim_pool_find(sim, SC_SIM_LINK, handle);
}

static inline void sc_sim_endpoint_wake(struct sc_sim_endpoint *endpoint) {
    if (endpoint->object.owner != NULL)
        sc_sim_wake(endpoint->object.owner);
}

// ---- sim_link.c -------------------------------------------------------------------------------

extern const struct sc_link sc_sim_link_table;

// ---- sim_net.c --------------------------------------------------------------------------------

// The listener of a port, and one of any port; NULL where there is none.
struct sc_sim_listener *sc_sim_net_listener(struct sc_sim *sim, uint16_t port);
struct sc_sim_listener *sc_sim_net_any_listener(struct sc_sim *sim);
void sc_sim_net_unlisten(struct sc_sim *sim, struct sc_sim_listener *listener);
// Makes one end; the owner is NULL for a stranger.
struct sc_sim_endpoint *sc_sim_endpoint_create(struct sc_sim *sim, struct sc_sim_process *owner);
// Makes `other` the far end of what `dialler` began.
void sc_sim_net_join(struct sc_sim_endpoint *dialler, struct sc_sim_endpoint *other);
void sc_sim_net_dial(struct sc_sim *sim, struct sc_sim_endpoint *endpoint, uint16_t port);
// The dial that a black hole held back arrives now.
void sc_sim_net_redial(struct sc_sim *sim, struct sc_sim_endpoint *dialler);
void sc_sim_net_close(struct sc_sim *sim, struct sc_sim_endpoint *endpoint);
void sc_sim_net_kill(struct sc_sim_process *process);
void sc_sim_net_free(struct sc_sim *sim);

// ---- sim_bytes.c ------------------------------------------------------------------------------

// Takes what fits and returns how much.
size_t sc_sim_net_send(struct sc_sim *sim, struct sc_sim_endpoint *from, const void *data,
                       size_t bytes);
// Takes bytes that have arrived; a writer that waits for room is woken.
void sc_sim_net_read(struct sc_sim *sim, struct sc_sim_endpoint *from, unsigned char *out,
                     size_t bytes);
// `to` reads EOF after what was sent before …
void sc_sim_net_send_eof(struct sc_sim *sim, struct sc_sim_endpoint *to);
// … or after the latency, ahead of any byte that it has not read by then.
void sc_sim_net_reset(struct sc_sim *sim, struct sc_sim_endpoint *endpoint);
// Lets arrive what black holes held back that are no more.
void sc_sim_net_release(struct sc_sim *sim);

// ---- sim_path.c: what the network does between two ranks ---------------------------------------

// When bytes sent now arrive at `to`; never ahead of earlier ones.
uint64_t sc_sim_path_due(struct sc_sim *sim, struct sc_sim_endpoint *to);
bool sc_sim_path_is_hole(const struct sc_sim *sim, uint32_t from, uint32_t to);
bool sc_sim_path_fragments(const struct sc_sim *sim, uint32_t from, uint32_t to);
bool sc_sim_inject_path(struct sc_sim *sim, const struct sc_sim_fault *fault);
void sc_sim_heal_paths(struct sc_sim *sim);

// ---- sim_stranger.c ---------------------------------------------------------------------------

bool sc_sim_inject_stranger(struct sc_sim *sim, const struct sc_sim_fault *fault);
// A stranger's dial was answered: it does what it came for.
void sc_sim_stranger_connected(struct sc_sim *sim, struct sc_sim_endpoint *endpoint);
// A dial met the process that squats on the port: makes the other end, which sends its banner.
void sc_sim_squatter_answers(struct sc_sim *sim, struct sc_sim_endpoint *dialler);
void sc_sim_heal_strangers(struct sc_sim *sim);
// Keeps the first bytes of a rank's last connection, for a stranger to repeat.
void sc_sim_hello_note(struct sc_sim *sim, struct sc_sim_endpoint *from, const void *data,
                       size_t bytes);

#endif
