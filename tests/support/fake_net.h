// SPDX-License-Identifier: AGPL-3.0-only
//
// A link table in memory, for tests of what stands on one: every byte that was ever sent stays to be
// looked at, and a test says how much fits and how finely it is cut.
#ifndef SC_TESTS_SUPPORT_FAKE_NET_H
#define SC_TESTS_SUPPORT_FAKE_NET_H

#include "hal/hal.h"

#define FAKE_ENDS_MAX 256u
#define FAKE_WIRE_MAX 131072u

struct fake_end {
    uint64_t handle; // 0: closed
    uint64_t peer;
    bool connecting, eof; // eof: the peer has closed
    uint8_t *wire;        // all that was ever sent to this end
    size_t wire_bytes, read_bytes;
};

struct fake_net {
    struct sc_link link;
    struct sc_host host;
    uint64_t next; // handle
    uint64_t listener;
    struct fake_end ends[FAKE_ENDS_MAX]; // by handle, for ever: none is used twice
    uint64_t backlog[FAKE_ENDS_MAX];
    uint32_t backlog_count;
    size_t step;    // bytes that one send or recv moves, at most
    size_t room;    // unread bytes that an end holds, at most
    bool connects;  // dials are answered
    uint8_t random; // the next byte of entropy
    bool entropy_fails;
    uint32_t wakes;
    sc_status dial_answer;
    uint32_t misused; // calls with a handle that is not open
};

void fake_net_open(struct fake_net *net);
void fake_net_close(struct fake_net *net);
// The end behind a handle, open or closed.
struct fake_end *fake_end_of(struct fake_net *net, uint64_t handle);
uint32_t fake_net_open_ends(const struct fake_net *net);
// Puts bytes before an end as if its peer had sent them.
void fake_inject(struct fake_net *net, uint64_t handle, const void *data, size_t bytes);

#endif
