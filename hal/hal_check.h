// SPDX-License-Identifier: AGPL-3.0-only
//
// A device that trusts nobody: it stands in front of any sc_device and traps every breach of the
// contract in hal/hal.h, by the caller and by the device behind it.
//
// A call in breach is reported, counted, not passed on, and answered SC_STATE. A device in breach
// is reported and counted, and its answer handed on unchanged; so is a comm_create that answers
// SC_OK with handle 0, which is a known defect of NCCL that callers have to cope with.
//
// Only what hal.h leaves open is settled here, always for the caller:
//   - an abort that answered an error may be tried again, and may be followed by comm_abandon;
//   - a failed group_begin has opened nothing; group_end closes one level whatever it answers;
//   - op_end, replay_end and capture_end count as called whatever they answer;
//   - captures_held is legal after comm_abort;
//   - a comm_id counts as used once comm_create was called with it, whatever that answered;
//   - an abandoned communicator is gone, as far as mem_free is concerned.
//
// It allocates nothing after create, looks handles up in constant time, and like the device it
// wraps is called from one thread at a time.
#ifndef SC_HAL_CHECK_H
#define SC_HAL_CHECK_H

#include "hal/hal.h"

#define SC_HAL_CHECK_HANDLES_MAX 2048u     // of all kinds but memory, held at a time
#define SC_HAL_CHECK_ALLOCATIONS_MAX 1024u // held at a time
#define SC_HAL_CHECK_COMMS_MAX 64u         // held at a time
#define SC_HAL_CHECK_IDS_MAX 64u           // communicator ids remembered

struct sc_hal_check;

struct sc_hal_check_config {
    uint64_t capacity_bytes; // no recv or add_bf16 may be larger; 0: any size may
    // Told of each breach, inside the call that made it. `text` lives for the call. NULL: only
    // counted. Must not call the device.
    void (*on_breach)(void *arg, const char *text);
    void *arg;
};

// Wraps `inner`, which is borrowed and must outlive the check. `config` may be NULL: any size, no
// report. Returns SC_OK, SC_INVALID (a NULL argument, or a table with a verb missing) or
// SC_NO_MEMORY.
SC_MUST_USE sc_status sc_hal_check_create(const struct sc_device *inner,
                                          const struct sc_hal_check_config *config,
                                          struct sc_hal_check **out);
// Frees the check, and nothing of the device behind it. NULL is allowed.
void sc_hal_check_destroy(struct sc_hal_check *check);

// The device to call instead of `inner`; lives as long as the check.
const struct sc_device *sc_hal_check_device(const struct sc_hal_check *check);

// Breaches so far, by the caller or by the device.
uint64_t sc_hal_check_breaches(const struct sc_hal_check *check);

// Calls of a verb so far, those in breach included. 0 for a verb that does not exist.
uint64_t sc_hal_check_calls(const struct sc_hal_check *check, enum sc_device_verb verb);

// How many handles, allocations and open groups are held now; `text` gets their names, cut to
// `size` (which may be 0), and is empty when there are none.
uint32_t sc_hal_check_leaks(const struct sc_hal_check *check, char *text, size_t size);

#endif
