// SPDX-License-Identifier: AGPL-3.0-only
//
// Those who come to a coordinator's port and are no rank of its job; and what they must never hear.
#ifndef SC_TESTS_SUPPORT_STRANGERS_H
#define SC_TESTS_SUPPORT_STRANGERS_H

#include "core/frame.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// ---- one ----

struct stranger {
    int fd;
    size_t bytes; // heard so far
    bool ended;
    uint8_t data[4096];
};

void stranger_come(struct stranger *stranger, uint16_t port);
void stranger_say(struct stranger *stranger, const void *data, size_t bytes);
// Hears what is there; whether its connection has ended.
bool stranger_has_ended(struct stranger *stranger);
void stranger_go(struct stranger *stranger);

// What everybody may hear: one CHALLENGE where links are not keyed, one hello of the sealed handshake
// where they are, or nothing. Fails the test otherwise.
void strangers_expect_public(const void *data, size_t bytes, bool keyed);
// Whether these bytes hold a communicator id of the instant device.
bool strangers_find_id(const void *data, size_t bytes);

// ---- a thousand ----

// For sockets_child_begin: a thousand bad handshakes, forty at a time; `port` is a const uint16_t *.
void strangers_flood(const void *port);

// ---- one in the middle ----

#define RELAY_LINKS_MAX 64u
#define RELAY_BYTES_MAX 8192u // of one connection, each way; no more is recorded

enum relay_way { RELAY_UP, RELAY_DOWN, RELAY_WAYS }; // up: to the coordinator

// Passes connections on to the coordinator's port, and records them.
struct relay {
    uint16_t port, to;
    int listener, stop; // `stop`: the writing end of a pipe
    int stopped;        // its other end
    pthread_t thread;
    _Atomic uint32_t links; // that there were; what they said is read when it has stopped
    struct {
        int fd[RELAY_WAYS];
        size_t bytes[RELAY_WAYS];
        uint8_t data[RELAY_WAYS][RELAY_BYTES_MAX];
    } link[RELAY_LINKS_MAX];
};

void relay_begin(struct relay *relay, uint16_t to);
void relay_end(struct relay *relay);

#endif
