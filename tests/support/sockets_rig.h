// SPDX-License-Identifier: AGPL-3.0-only
//
// For tests over real sockets: a world of two ranks, each a pump over sc_posix and the instant
// device, driven by one thread; and what such tests need of the operating system.
//
// A port is found by binding port 0, and stays bound, without listening, as long as it is reserved:
// so nobody else is given it. Nothing here sleeps to be right: what is waited for has a limit.
#ifndef SC_TESTS_SUPPORT_SOCKETS_RIG_H
#define SC_TESTS_SUPPORT_SOCKETS_RIG_H

#include "core/pump.h"
#include "hal/posix.h"
#include "hal/sealed.h"
#include "tests/support/instant_device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>

#define SOCKETS_MS UINT64_C(1000000)
#define SOCKETS_SECOND (1000 * SOCKETS_MS)
#define SOCKETS_LIMIT_NS (8 * SOCKETS_SECOND) // for what must come, on however slow a machine
#define SOCKETS_RANKS 2u
#define SOCKETS_PLACES 3u // a second process of a rank may live beside the first

#define V4 "127.0.0.1"
#define V6 "::1"

// ---- the operating system ----

// A free port of that loopback address, reserved until *fd is closed; 0 when the machine has no
// such address.
uint16_t sockets_reserve(const char *address, int *fd);
uint32_t sockets_descriptors(void); // how many this process has open
uint32_t sockets_threads(void);     // how many it has; one that was joined may count for a moment
// From now on this process can open `room` more.
void sockets_limit_descriptors(int room);
// A connected, non-blocking socket that is nobody's rank.
int sockets_stranger(uint16_t port);
void sockets_reset(int stranger); // closes it with a reset
// Reads until the end of the stranger's connection or until nothing is there: bytes read, and
// whether the end was seen.
size_t sockets_read(int stranger, void *data, size_t bytes, bool *ended);
// A child process that runs `body`, which asserts with SC_ASSERT.
pid_t sockets_child_begin(void (*body)(const void *arg), const void *arg);
// Whether the child has ended; *well tells whether its body came to its end.
bool sockets_child_has_ended(pid_t child, bool *well);
// Both at once: true when the body came to its end.
bool sockets_child(void (*body)(const void *arg));

// ---- one object, both ends of a connection ----

struct sockets_pair {
    struct sc_posix *posix;
    const struct sc_host *host;
    const struct sc_link *link;
    int reserved_fd;
    uint16_t port;
    uint64_t listener;
    uint64_t near, far; // dialled, accepted
};

// A listener alone, or with a connection to it. Skips the test when there is no such address.
void sockets_pair_listen(struct sockets_pair *pair, const char *address);
void sockets_pair_open(struct sockets_pair *pair, const char *address);
void sockets_pair_close(struct sockets_pair *pair);
// A dial that is followed to its end.
sc_status sockets_dial(struct sockets_pair *pair, const char *host, uint32_t attempt,
                       uint64_t *link);
sc_status sockets_follow(struct sockets_pair *pair, uint64_t link);
// Waits for the next newcomer.
uint64_t sockets_accept(struct sockets_pair *pair);

// ---- the world ----

struct sockets_rank {
    struct sc_posix *posix;   // NULL: the place is empty
    struct sc_sealed *sealed; // NULL: its links are not
    struct sc_instant_device *instant;
    struct sc_device device; // instant's, polled every millisecond
    struct sc_pump *pump;
    uint64_t completed; // seq
    uint64_t agreed;    // seq
    uint64_t missing;   // the newest notice of missing ranks, …
    uint64_t missing_at_ns;
    uint64_t greeted; // how many times
    uint64_t refused;
    uint32_t command_bytes; // of the newest command
    uint8_t command[SC_COMMAND_MAX_BYTES];
};

struct sockets_rig {
    struct sc_core_config core; // rank is filled in
    int reserved_fd;
    uint16_t port;
    uint32_t descriptors; // before the first rank
    struct sockets_rank ranks[SOCKETS_PLACES];
    const uint8_t *keys[SOCKETS_PLACES]; // for the next process at that place; NULL: none
    char why[256];                       // how the last rank failed to open
};

// Production timing on 127.0.0.1, no ranks yet.
void sockets_rig_open(struct sockets_rig *rig);
// Opens a process of rank `number` at a place. When it does not open, the place stays empty.
sc_status sockets_rank_open(struct sockets_rig *rig, uint32_t place, uint32_t number);
// Ends the process as it stands; its kernel closes its sockets.
void sockets_rank_kill(struct sockets_rig *rig, uint32_t place);
// Kills all that are left, and demands that no descriptor is.
void sockets_rig_close(struct sockets_rig *rig);

enum sc_state sockets_state(const struct sockets_rig *rig, uint32_t place);
bool sockets_are_ready(const struct sockets_rig *rig); // places 0 and 1, in one epoch

uint64_t sockets_now(void);
// Runs every pump and waits for what comes next, a few milliseconds at most.
void sockets_step(struct sockets_rig *rig);
void sockets_miss(const struct sockets_rig *rig, const char *condition, const char *file, int line);

// Runs until the condition holds; fails the test when it does not within SOCKETS_LIMIT_NS. The
// condition may do what it asks for: it is not looked at again once it holds.
#define sockets_until(rig, condition)                                                              \
    for (const uint64_t sockets_until_ns = sockets_now() + SOCKETS_LIMIT_NS; !(condition);         \
         sockets_step(rig)) {                                                                      \
        if (sockets_now() >= sockets_until_ns)                                                     \
            sockets_miss(rig, #condition, __FILE__, __LINE__);                                     \
    }

#endif
