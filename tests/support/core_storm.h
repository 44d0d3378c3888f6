// SPDX-License-Identifier: AGPL-3.0-only
//
// A storm around one core: random events that a correct pump could feed, random frames that any
// peer, sound or mad, could send, from a fixed seed. The storm is also a miniature pump: it keeps
// links, communicator and ops as the actions say, and fails the test where an action contradicts
// them (a second abort, a frame to a link that is gone, a launch outside READY …).
#ifndef SC_TESTS_SUPPORT_CORE_STORM_H
#define SC_TESTS_SUPPORT_CORE_STORM_H

#include "core/core.h"

#define STORM_LINKS 40u
#define STORM_OPS 32u

struct storm_link {
    uint64_t handle; // 0: free
    bool challenged;
    uint8_t nonce[SC_NONCE_BYTES];
};

struct storm_op {
    uint64_t number; // 0: free
    uint64_t epoch;
    bool started;
};

enum storm_comm { STORM_NONE, STORM_FORMING, STORM_LIVE, STORM_ABORTING };

struct storm {
    struct sc_core_config config;
    struct sc_core *core; // the one whose wishes are carried out; the test steps it
    uint64_t random;
    uint64_t now_ns;
    uint64_t next_link;
    uint64_t epoch; // of the last COMM_CREATE
    uint64_t fence;
    uint64_t passed;         // barriers of the epoch
    uint64_t commands_sent;  // in it, as what they cost
    uint64_t commands_taken; // … of which no member said that it took more
    uint32_t command_bytes;  // of the COMMAND being fed
    uint64_t hello_number;
    uint32_t generation[SC_WORLD_MAX]; // restarts of each rank
    struct storm_link links[STORM_LINKS];
    struct storm_op ops[STORM_OPS];
    enum storm_comm comm;
    bool comm_failed, started, dialling, id_pending, listening;
    struct sc_frame frame; // what the event points to
    uint8_t id[SC_COMM_ID_BYTES];
    struct sc_op_desc list[3];
    uint64_t reached[SC_EVENT_COUNT][SC_STATE_COUNT]; // events fed, by state
};

// A new world around a new core, which the test sets afterwards. The counts of `reached` stay.
void storm_begin(struct storm *storm, const struct sc_core_config *config, uint64_t seed);
// The next event.
struct sc_event storm_event(struct storm *storm);
// Carries out what the core's step wanted.
void storm_perform(struct storm *storm, const struct sc_actions *actions);
uint32_t storm_below(struct storm *storm, uint32_t limit);

#endif
