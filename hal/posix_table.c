// SPDX-License-Identifier: AGPL-3.0-only
//
// Handles: the entry's index in the low byte, above it a generation that rises with each use, so
// that no number ever comes back.
#include "hal/posix_inside.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(SC_POSIX_HANDLES_MAX == 256, "an index is one byte of a handle");

void sc_posix_table_open(struct sc_posix *posix) {
    for (uint32_t i = 0; i < SC_POSIX_HANDLES_MAX; i++) {
        posix->entries[i].handle = i;
        posix->entries[i].fd = -1;
    }
}

struct sc_posix_entry *sc_posix_take(struct sc_posix *posix, enum sc_posix_state state) {
    uint32_t i = 0;
    while (i < SC_POSIX_HANDLES_MAX && posix->entries[i].state != SC_POSIX_FREE)
        i++;
    if (i == SC_POSIX_HANDLES_MAX)
        return NULL;
    posix->used = i >= posix->used ? i + 1 : posix->used;
    struct sc_posix_entry *entry = &posix->entries[i];
    *entry = (struct sc_posix_entry){
        .handle = entry->handle + SC_POSIX_HANDLES_MAX, .state = state, .fd = -1};
    return entry;
}

struct sc_posix_entry *sc_posix_take_for(struct sc_posix *posix, enum sc_posix_state state,
                                         const char *host, uint16_t port) {
    struct sc_posix_entry *entry = sc_posix_take(posix, state);
    if (entry == NULL)
        return NULL;
    entry->port = port;
    entry->host = strdup(host);
    if (entry->host != NULL)
        return entry;
    sc_posix_release(posix, entry);
    return NULL;
}

struct sc_posix_entry *sc_posix_find(struct sc_posix *posix, uint64_t handle) {
    struct sc_posix_entry *entry = &posix->entries[handle % SC_POSIX_HANDLES_MAX];
    return entry->state != SC_POSIX_FREE && entry->handle == handle ? entry : NULL;
}

void sc_posix_watch(struct sc_posix *posix, struct sc_posix_entry *entry, short events) {
    if ((entry->interest & events) == events)
        return;
    entry->interest |= events;
    sc_posix_rouse(posix);
}

void sc_posix_let_go(struct sc_posix *posix, struct sc_posix_entry *entry) {
    entry->interest = 0;
    if (entry->fd < 0)
        return;
    close(entry->fd);
    entry->fd = -1;
    // A poll under way holds the socket open, and would go on to watch whatever gets this number.
    sc_posix_rouse(posix);
}

void sc_posix_release(struct sc_posix *posix, struct sc_posix_entry *entry) {
    sc_posix_let_go(posix, entry);
    free(entry->host);
    entry->host = NULL;
    entry->state = SC_POSIX_FREE;
    while (posix->used > 0 && posix->entries[posix->used - 1].state == SC_POSIX_FREE)
        posix->used--;
}
