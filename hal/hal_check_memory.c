// SPDX-License-Identifier: AGPL-3.0-only
//
// The checked verbs of memory and of its registrations with communicators.
#include "hal/hal_check_state.h"

#include <inttypes.h>
#include <string.h>

#define ALIGNMENT 16u

static void add_allocation(struct sc_hal_check *check, uint64_t address, uint64_t bytes) {
    uint32_t at = sc_check_allocation_upto(check, address);
    struct sc_check_allocation *place = &check->allocations[at];
    uint32_t after = check->allocation_count - at;

    if (address == 0 || address % ALIGNMENT != 0) {
        sc_check_device_breach(check, SC_VERB_mem_alloc, SC_OK, "the address is 0 or misaligned");
        return;
    }
    bool overlaps = (at > 0 && address - place[-1].address < place[-1].bytes) ||
                    (after > 0 && place->address - address < bytes);
    if (overlaps) {
        sc_check_device_breach(check, SC_VERB_mem_alloc, SC_OK, "the memory is held already");
        return;
    }
    if (check->allocation_count == SC_HAL_CHECK_ALLOCATIONS_MAX) {
        sc_check_breach(check, SC_VERB_mem_alloc, "more than %u allocations are held at a time",
                        SC_HAL_CHECK_ALLOCATIONS_MAX);
        return;
    }
    memmove(place + 1, place, after * sizeof *place);
    *place = (struct sc_check_allocation){.address = address, .bytes = bytes};
    check->allocation_count++;
}

static sc_status mem_alloc(void *ctx, uint64_t bytes, uint64_t *address) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_mem_alloc);
    uint64_t fresh = SC_CHECK_UNSET;

    sc_status answer = check->inner->mem_alloc(check->inner->ctx, bytes, &fresh);
    answer = sc_check_output(check, SC_VERB_mem_alloc, answer, fresh, address);
    if (answer == SC_OK && fresh != SC_CHECK_UNSET)
        add_allocation(check, fresh, bytes);
    return answer;
}

static sc_status mem_free(void *ctx, uint64_t address) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_mem_free);
    uint32_t upto = sc_check_allocation_upto(check, address);
    struct sc_check_allocation *allocation = &check->allocations[upto - (upto > 0)];

    if (upto == 0 || allocation->address != address)
        return sc_check_breach(check, SC_VERB_mem_free,
                               "memory %#" PRIx64 " was never handed out, or was freed", address);
    if (allocation->users != 0)
        return sc_check_breach(check, SC_VERB_mem_free,
                               "%d live communicators know memory %#" PRIx64,
                               __builtin_popcountll(allocation->users), address);
    sc_status answer = check->inner->mem_free(check->inner->ctx, address);
    if (answer == SC_OK) {
        check->allocation_count--;
        memmove(allocation, allocation + 1,
                (check->allocation_count - (upto - 1)) * sizeof *allocation);
    }
    return answer;
}

static sc_status buf_register(void *ctx, uint64_t comm, uint64_t address, uint64_t bytes,
                              uint64_t *registration) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_buf_register);
    struct sc_held *user = sc_check_usable_comm(check, SC_VERB_buf_register, comm);
    uint64_t handle = SC_CHECK_UNSET;

    if (user == NULL || !sc_check_buffer(check, SC_VERB_buf_register, address, bytes))
        return SC_STATE;
    sc_status answer = check->inner->buf_register(check->inner->ctx, comm, address, bytes, &handle);
    answer = sc_check_output(check, SC_VERB_buf_register, answer, handle, registration);
    if (answer != SC_OK || handle == SC_CHECK_UNSET)
        return answer;
    sc_check_note_use(check, user, address);
    if (handle != 0) {
        struct sc_held *held =
            sc_check_add(check, SC_VERB_buf_register, SC_HELD_REGISTRATION, handle);
        if (held != NULL)
            held->owner = comm;
    }
    return answer;
}

static sc_status buf_deregister(void *ctx, uint64_t comm, uint64_t registration) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_buf_deregister);

    if (sc_check_usable_comm(check, SC_VERB_buf_deregister, comm) == NULL)
        return SC_STATE;
    struct sc_held *held =
        sc_check_demand(check, SC_VERB_buf_deregister, SC_HELD_REGISTRATION, registration);
    if (held == NULL)
        return SC_STATE;
    if (held->owner != comm)
        return sc_check_breach(check, SC_VERB_buf_deregister,
                               "registration %#" PRIx64 " belongs to communicator %#" PRIx64
                               ", not %#" PRIx64,
                               registration, held->owner, comm);
    sc_status answer = check->inner->buf_deregister(check->inner->ctx, comm, registration);
    if (answer == SC_OK)
        sc_check_remove(check, held);
    return answer;
}

void sc_check_enter_memory_verbs(struct sc_device *device) {
    device->mem_alloc = mem_alloc;
    device->mem_free = mem_free;
    device->buf_register = buf_register;
    device->buf_deregister = buf_deregister;
}
