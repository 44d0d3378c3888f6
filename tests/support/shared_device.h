// SPDX-License-Identifier: AGPL-3.0-only
//
// A device of one thread for several, as hal.h wants it: each verb is that of another table, inside a lock.
// And it can keep whoever enqueues a group, as a driver does while memory is being freed.
#ifndef SC_SHARED_DEVICE_H
#define SC_SHARED_DEVICE_H

#include "hal/hal.h"

struct sc_shared_device;

// SC_OK or SC_NO_MEMORY. `inner` outlives it.
SC_MUST_USE sc_status sc_shared_device_create(const struct sc_device *inner,
                                              struct sc_shared_device **out);
void sc_shared_device_destroy(struct sc_shared_device *shared); // NULL is allowed
const struct sc_device *sc_shared_device_table(const struct sc_shared_device *shared);

// From now on, or no longer: group_end does not return. Any thread.
void sc_shared_device_keep(struct sc_shared_device *shared, bool keep);
// How many threads are being kept.
uint32_t sc_shared_device_kept(struct sc_shared_device *shared);

#endif
