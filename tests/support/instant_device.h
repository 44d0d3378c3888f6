// SPDX-License-Identifier: AGPL-3.0-only
//
// A device on which everything completes at once, for counting what the layers above spend: a
// communicator is ready when first polled, an op is done as soon as its end is marked, an abort has
// returned when next polled (unless captures hold the communicator). Worlds of any size, without any
// peer. It keeps hal.h's contract on handles and states, and moves no data: send, recv,
// the collectives and add_bf16 leave all memory as it is, so a call costs the same at any size.
#ifndef SC_INSTANT_DEVICE_H
#define SC_INSTANT_DEVICE_H

#include "hal/hal.h"

#include <stdatomic.h>

#define SC_INSTANT_HANDLES_MAX 4096u // of all kinds but memory; SC_NO_MEMORY beyond
#define SC_INSTANT_ALLOCATIONS_MAX 256u
// Every id begins with these bytes, and with no others that anybody would say by chance.
#define SC_INSTANT_ID_MARK "\xd1\x5c\xe3\x97\xb2\x0f\xa6\x84 instant"

struct sc_instant_device;

// SC_OK or SC_NO_MEMORY.
SC_MUST_USE sc_status sc_instant_device_create(struct sc_instant_device **out);
// Frees it with all memory it handed out. NULL is allowed.
void sc_instant_device_destroy(struct sc_instant_device *instant);

// The table; lives as long as the device. One thread at a time.
const struct sc_device *sc_instant_device_table(const struct sc_instant_device *instant);

// What goes wrong from now on, and what was asked for; any thread.
struct sc_instant_switches {
    _Atomic bool ops_hang; // an op that is over is told as started, until a communicator is aborted
    _Atomic bool aborts_hang;                 // an aborted communicator does not go
    _Atomic bool creates_fail;                // SC_DEVICE_ERROR
    _Atomic bool creates_null;                // SC_OK without a communicator
    _Atomic bool allocs_fail;                 // SC_NO_MEMORY
    _Atomic uint32_t creates, aborts, allocs; // those that were done
};
struct sc_instant_switches *sc_instant_device_switches(struct sc_instant_device *instant);

// What the fence holds.
uint64_t sc_instant_device_fence(const struct sc_instant_device *instant);

#endif
