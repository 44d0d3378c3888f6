// SPDX-License-Identifier: AGPL-3.0-only
//
// The buffers that the application registered, remembered across communicators: registrations die
// with theirs, and every new communicator gets the same buffers again, in the order given.
#ifndef SC_CORE_REGISTRY_H
#define SC_CORE_REGISTRY_H

#include "core/status.h"

#include <stdint.h>

#define SC_REGISTRY_MAX 256u

struct sc_registry_entry {
    uint64_t address;      // names the buffer: no two begin at the same address
    uint64_t bytes;        // above 0
    uint64_t registration; // handle in the communicator of `epoch`; 0 for none
    uint64_t epoch;        // of that registration; 0 before the first
};

// All zero is an empty one. Whoever holds it keeps threads apart.
struct sc_registry {
    uint32_t count;
    struct sc_registry_entry entries[SC_REGISTRY_MAX]; // the first `count`, oldest first
};

// Remembers a buffer, with no registration yet. Buffers may overlap. Without effect:
//   SC_INVALID    address or bytes is 0, address + bytes wraps around the address space, or another
//                 buffer begins at `address`
//   SC_NO_MEMORY  SC_REGISTRY_MAX buffers are remembered already
SC_MUST_USE sc_status sc_registry_add(struct sc_registry *registry, uint64_t address,
                                      uint64_t bytes);

// Forgets the buffer that begins at `address`; *entry (may be NULL) gets what was known of it, so
// that its registration can be undone. SC_INVALID, without effect, when there is none.
SC_MUST_USE sc_status sc_registry_remove(struct sc_registry *registry, uint64_t address,
                                         struct sc_registry_entry *entry);

// The buffer that begins at `address`, or NULL. Good until the next remove.
struct sc_registry_entry *sc_registry_find(struct sc_registry *registry, uint64_t address);

#endif
