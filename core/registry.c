// SPDX-License-Identifier: AGPL-3.0-only
//
// A short list, searched from its beginning: it changes when models load, not when tokens flow.
#include "core/registry.h"

#include "core/assert.h"

#include <stddef.h>
#include <string.h>

sc_status sc_registry_add(struct sc_registry *registry, uint64_t address, uint64_t bytes) {
    SC_ASSERT(registry->count <= SC_REGISTRY_MAX);
    if (address == 0 || bytes == 0 || address + bytes < address ||
        sc_registry_find(registry, address) != NULL)
        return SC_INVALID;
    if (registry->count == SC_REGISTRY_MAX)
        return SC_NO_MEMORY;
    registry->entries[registry->count++] = (struct sc_registry_entry){
        .address = address,
        .bytes = bytes,
    };
    return SC_OK;
}

sc_status sc_registry_remove(struct sc_registry *registry, uint64_t address,
                             struct sc_registry_entry *entry) {
    struct sc_registry_entry *found = sc_registry_find(registry, address);

    if (found == NULL)
        return SC_INVALID;
    if (entry != NULL)
        *entry = *found;
    size_t later = (size_t)(&registry->entries[registry->count] - (found + 1));
    memmove(found, found + 1, later * sizeof *found);
    registry->count--;
    return SC_OK;
}

struct sc_registry_entry *sc_registry_find(struct sc_registry *registry, uint64_t address) {
    for (uint32_t i = 0; i < registry->count; i++)
        if (registry->entries[i].address == address)
            return &registry->entries[i];
    return NULL;
}
