// SPDX-License-Identifier: AGPL-3.0-only
//
// The checker's tables. Handles lie without gaps in one array, found through a hash of (kind,
// handle) with linear probing; the table is never more than half full. Allocations lie in the order
// of their addresses, so that an address inside one can be found.
#include "hal/hal_check_state.h"

#include <inttypes.h>

const char *sc_held_kind_name(enum sc_held_kind kind) {
    static const char *const names[] = {
        [SC_HELD_COMM] = "communicator", [SC_HELD_REGISTRATION] = "registration",
        [SC_HELD_STREAM] = "stream",     [SC_HELD_OP] = "op",
        [SC_HELD_CAPTURE] = "capture",
    };
    return names[kind];
}

// ---- handles --------------------------------------------------------------------------------

static uint32_t home_slot(enum sc_held_kind kind, uint64_t handle) {
    uint64_t mixed = (handle + ((uint64_t)kind << 56)) * UINT64_C(0x9E3779B97F4A7C15);

    return (uint32_t)(mixed >> 40) % SC_CHECK_SLOTS;
}

// The slot of a handle, or the free slot where the search for it ended.
static uint32_t find_slot(const struct sc_hal_check *check, enum sc_held_kind kind,
                          uint64_t handle) {
    uint32_t slot = home_slot(kind, handle);

    for (; check->slots[slot] != 0; slot = (slot + 1) % SC_CHECK_SLOTS) {
        const struct sc_held *held = &check->held[check->slots[slot] - 1];

        if (held->handle == handle && held->kind == kind)
            break;
    }
    return slot;
}

struct sc_held *sc_check_find(struct sc_hal_check *check, enum sc_held_kind kind, uint64_t handle) {
    uint16_t place = check->slots[find_slot(check, kind, handle)];

    return place == 0 ? NULL : &check->held[place - 1];
}

struct sc_held *sc_check_demand(struct sc_hal_check *check, enum sc_device_verb verb,
                                enum sc_held_kind kind, uint64_t handle) {
    struct sc_held *held = sc_check_find(check, kind, handle);

    if (held == NULL)
        sc_check_breach(check, verb, "%s %#" PRIx64 " was never handed out, or has ended",
                        sc_held_kind_name(kind), handle);
    return held;
}

struct sc_held *sc_check_add(struct sc_hal_check *check, enum sc_device_verb verb,
                             enum sc_held_kind kind, uint64_t handle) {
    uint32_t slot = find_slot(check, kind, handle);

    if (handle == 0) {
        sc_check_device_breach(check, verb, SC_OK, "handed out handle 0");
        return NULL;
    }
    if (check->slots[slot] != 0) {
        sc_check_device_breach(check, verb, SC_OK, "handed out a handle that is still held");
        return NULL;
    }
    if (check->held_count == SC_HAL_CHECK_HANDLES_MAX) {
        sc_check_breach(check, verb, "more than %u handles are held at a time",
                        SC_HAL_CHECK_HANDLES_MAX);
        return NULL;
    }
    struct sc_held *held = &check->held[check->held_count++];
    *held = (struct sc_held){.handle = handle, .kind = (uint8_t)kind};
    check->slots[slot] = (uint16_t)check->held_count;
    return held;
}

// Frees a slot, and moves into it whatever further on would no longer be found.
static void free_slot(struct sc_hal_check *check, uint32_t slot) {
    check->slots[slot] = 0;
    for (uint32_t next = (slot + 1) % SC_CHECK_SLOTS; check->slots[next] != 0;
         next = (next + 1) % SC_CHECK_SLOTS) {
        const struct sc_held *held = &check->held[check->slots[next] - 1];
        uint32_t home = home_slot(held->kind, held->handle);

        // Its search starts at `home`: does it pass the free slot on its way here?
        if ((next - home) % SC_CHECK_SLOTS >= (next - slot) % SC_CHECK_SLOTS) {
            check->slots[slot] = check->slots[next];
            check->slots[next] = 0;
            slot = next;
        }
    }
}

void sc_check_remove(struct sc_hal_check *check, struct sc_held *held) {
    struct sc_held *last = &check->held[check->held_count - 1];

    free_slot(check, find_slot(check, held->kind, held->handle));
    if (held != last) {
        check->slots[find_slot(check, last->kind, last->handle)] =
            (uint16_t)(held - check->held + 1);
        *held = *last;
    }
    check->held_count--;
}

// ---- what several verbs ask -----------------------------------------------------------------

const void *sc_check_thread(void) {
    static _Thread_local char here;

    return &here;
}

bool sc_check_outside_group(struct sc_hal_check *check, enum sc_device_verb verb) {
    bool inside = check->group_depth > 0 && check->group_thread == sc_check_thread();

    if (inside)
        sc_check_breach(check, verb, "a group is open, %u deep", check->group_depth);
    return !inside;
}

bool sc_check_is_capturing(const struct sc_hal_check *check, uint64_t stream) {
    if (check->capturing == 0)
        return false;
    for (uint32_t i = 0; i < check->held_count; i++) {
        const struct sc_held *held = &check->held[i];

        if (held->kind == SC_HELD_CAPTURE && held->owner == stream && !held->ended)
            return true;
    }
    return false;
}

struct sc_held *sc_check_usable_comm(struct sc_hal_check *check, enum sc_device_verb verb,
                                     uint64_t comm) {
    struct sc_held *held = sc_check_demand(check, verb, SC_HELD_COMM, comm);

    if (held == NULL)
        return NULL;
    if (held->aborted) { // in the middle of an op, where another thread has done so
        if (held->aborted_by == sc_check_thread())
            sc_check_breach(check, verb, "communicator %#" PRIx64 " was aborted", comm);
        return NULL;
    }
    if (!held->ready) {
        sc_check_breach(check, verb, "communicator %#" PRIx64 " was not reported ready yet", comm);
        return NULL;
    }
    return held;
}

static bool accept_unless(struct sc_hal_check *check, enum sc_device_verb verb, const char *wrong,
                          uint64_t address, uint64_t bytes) {
    if (wrong != NULL)
        sc_check_breach(check, verb, "%s (address %#" PRIx64 ", %" PRIu64 " bytes)", wrong, address,
                        bytes);
    return wrong == NULL;
}

static const char *buffer_objection(uint64_t address, uint64_t bytes) {
    if (bytes == 0)
        return "zero bytes never reach a device";
    if (address == 0)
        return "address 0";
    return address + bytes < address ? "the buffer wraps around the address space" : NULL;
}

bool sc_check_buffer(struct sc_hal_check *check, enum sc_device_verb verb, uint64_t address,
                     uint64_t bytes) {
    return accept_unless(check, verb, buffer_objection(address, bytes), address, bytes);
}

bool sc_check_payload(struct sc_hal_check *check, enum sc_device_verb verb, uint64_t address,
                      uint64_t bytes) {
    const char *wrong = buffer_objection(address, bytes);

    if (wrong == NULL && bytes % SC_BF16_BYTES != 0)
        wrong = "odd byte count";
    if (wrong == NULL && address % SC_BF16_BYTES != 0)
        wrong = "misaligned address";
    return accept_unless(check, verb, wrong, address, bytes);
}

uint32_t sc_check_allocation_upto(const struct sc_hal_check *check, uint64_t address) {
    uint32_t low = 0, high = check->allocation_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (check->allocations[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void sc_check_note_use(struct sc_hal_check *check, const struct sc_held *comm, uint64_t address) {
    uint32_t upto = sc_check_allocation_upto(check, address);

    if (upto == 0)
        return;
    struct sc_check_allocation *allocation = &check->allocations[upto - 1];
    if (address - allocation->address < allocation->bytes)
        allocation->users |= UINT64_C(1) << comm->user;
}
