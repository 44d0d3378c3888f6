// SPDX-License-Identifier: AGPL-3.0-only
//
// Device memory, and its registrations with communicators. An address is given out once and never
// again, so that one used after its end is always noticed.
#include "hal_sim/sim_gpu.h"

#include <stdlib.h>

#define DEVICE_BYTES (UINT64_C(4) << 30)
#define ALIGN_BYTES UINT64_C(256)
#define RED_ZONE_BYTES UINT64_C(64)
#define RED_ZONE 0xD7
#define UNDEFINED 0xFF // BF16 reads it as a NaN
#define GARBLED_BYTES UINT64_C(64)

// ---- ranges -----------------------------------------------------------------------------------

// The allocation that holds the range, or NULL.
static struct sc_sim_memory *memory_of(const struct sc_sim_process *process, uint64_t address,
                                       uint64_t bytes) {
    uint32_t low = 0;
    uint32_t high = process->memory_count;

    while (low < high) { // the first one that begins above the address
        uint32_t middle = low + (high - low) / 2;
        if (process->memory[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return NULL;
    struct sc_sim_memory *memory = &process->memory[low - 1];
    uint64_t offset = address - memory->address;
    return offset <= memory->bytes && bytes <= memory->bytes - offset ? memory : NULL;
}

static unsigned char *bytes_at(const struct sc_sim_memory *memory, uint64_t address) {
    return memory->block + RED_ZONE_BYTES + (address - memory->address);
}

void *sc_sim_memory(struct sc_sim_process *process, uint64_t address, uint64_t bytes) {
    struct sc_sim_memory *memory = memory_of(process, address, bytes);

    return memory == NULL ? NULL : bytes_at(memory, address);
}

static void note_user(struct sc_sim *sim, struct sc_sim_memory *memory, uint64_t comm) {
    uint32_t kept = 0;

    if (memory->users_count > 0 && memory->users[memory->users_count - 1] == comm)
        return;
    for (uint32_t at = 0; at < memory->users_count; at++) {
        uint64_t user = memory->users[at];
        if (user != comm && sc_sim_pool_find(sim, SC_SIM_COMM, user) != NULL)
            memory->users[kept++] = user;
    }
    memory->users =
        sc_sim_grow(memory->users, sizeof *memory->users, kept + 1, &memory->users_capacity);
    memory->users[kept] = comm;
    memory->users_count = kept + 1;
}

sc_status sc_sim_memory_use(struct sc_sim_process *process, const char *verb, uint64_t address,
                            uint64_t bytes, uint64_t comm) {
    struct sc_sim_memory *memory = memory_of(process, address, bytes);

    if (memory == NULL)
        return sc_sim_breach(process, "%s: %#llx + %llu bytes is outside any live allocation", verb,
                             (unsigned long long)address, (unsigned long long)bytes);
    if (comm != 0)
        note_user(process->sim, memory, comm);
    return SC_OK;
}

unsigned char *sc_sim_memory_touch(struct sc_sim_process *process, uint64_t address,
                                   uint64_t bytes) {
    unsigned char *found = sc_sim_memory(process, address, bytes);

    if (found == NULL)
        sc_sim_breach(process, "work on a stream touches %#llx + %llu bytes after they were freed",
                      (unsigned long long)address, (unsigned long long)bytes);
    return found;
}

void sc_sim_memory_garble(struct sc_sim_process *process, uint64_t address, uint64_t bytes) {
    unsigned char *found = sc_sim_memory_touch(process, address, bytes);

    if (found == NULL || bytes == 0)
        return;
    uint64_t some = bytes < GARBLED_BYTES ? bytes : GARBLED_BYTES;
    uint64_t offset = sc_sim_below(process->sim, bytes - some + 1);
    sc_sim_fill(process->sim, found + offset, (size_t)some);
}

// ---- allocations ------------------------------------------------------------------------------

sc_status sc_sim_verb_mem_alloc(void *ctx, uint64_t bytes, uint64_t *address) {
    struct sc_sim_process *process = ctx;
    sc_status status = sc_sim_enter(process, SC_VERB_mem_alloc);

    if (status != SC_OK)
        return status;
    if (bytes == 0)
        return SC_INVALID;
    if (bytes > DEVICE_BYTES - process->held.device_bytes)
        return SC_NO_MEMORY;
    unsigned char *block = malloc((size_t)(bytes + 2 * RED_ZONE_BYTES));
    if (block == NULL)
        return SC_NO_MEMORY;
    memset(block, RED_ZONE, RED_ZONE_BYTES);
    memset(block + RED_ZONE_BYTES, UNDEFINED, (size_t)bytes);
    memset(block + RED_ZONE_BYTES + bytes, RED_ZONE, RED_ZONE_BYTES);
    process->memory = sc_sim_grow(process->memory, sizeof *process->memory,
                                  process->memory_count + 1, &process->memory_capacity);
    process->memory[process->memory_count++] = (struct sc_sim_memory){
        .address = process->next_address,
        .bytes = bytes,
        .block = block,
    };
    *address = process->next_address;
    process->next_address += (bytes + 2 * ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    process->held.allocations++;
    process->held.device_bytes += bytes;
    return SC_OK;
}

static bool is_red(const unsigned char *zone) {
    for (uint64_t at = 0; at < RED_ZONE_BYTES; at++) {
        if (zone[at] != RED_ZONE)
            return false;
    }
    return true;
}

static void check_zones(struct sc_sim_process *process, const struct sc_sim_memory *memory) {
    if (!is_red(memory->block))
        sc_sim_breach(process, "bytes before the allocation at %#llx were overwritten",
                      (unsigned long long)memory->address);
    if (!is_red(memory->block + RED_ZONE_BYTES + memory->bytes))
        sc_sim_breach(process, "bytes behind the allocation at %#llx, %llu bytes, were overwritten",
                      (unsigned long long)memory->address, (unsigned long long)memory->bytes);
}

static void discard(const struct sc_sim_memory *memory) {
    free(memory->block);
    free(memory->users);
}

// A comm that was given up to quarantine is no hindrance once its exchanges have passed.
static bool in_use(struct sc_sim *sim, const struct sc_sim_memory *memory) {
    for (uint32_t at = 0; at < memory->users_count; at++) {
        const struct sc_sim_comm *comm = sc_sim_pool_find(sim, SC_SIM_COMM, memory->users[at]);
        if (comm != NULL && comm->state != SC_COMM_GONE &&
            !(comm->abandoned && comm->draining && comm->exchanges == 0))
            return true;
    }
    return false;
}

static sc_status release(struct sc_sim_process *process, uint64_t address, const char *who,
                         const char *(*objection)(struct sc_sim *, const struct sc_sim_memory *)) {
    struct sc_sim_memory *memory = memory_of(process, address, 0);
    if (memory == NULL || memory->address != address)
        return sc_sim_breach(process, "%s: %#llx is no live allocation", who,
                             (unsigned long long)address);
    const char *why = objection(process->sim, memory);
    if (why != NULL)
        return sc_sim_breach(process, "%s: %#llx %s", who, (unsigned long long)address, why);
    check_zones(process, memory);
    discard(memory);
    process->held.allocations--;
    process->held.device_bytes -= memory->bytes;
    size_t behind = (size_t)(process->memory + process->memory_count - memory - 1);
    memmove(memory, memory + 1, behind * sizeof *memory);
    process->memory_count--;
    return SC_OK;
}

static const char *library_objection(struct sc_sim *sim, const struct sc_sim_memory *memory) {
    return in_use(sim, memory) ? "while a communicator that used it lives" : NULL;
}

sc_status sc_sim_verb_mem_free(void *ctx, uint64_t address) {
    struct sc_sim_process *process = ctx;
    sc_status status = sc_sim_enter(process, SC_VERB_mem_free);

    return status != SC_OK ? status : release(process, address, "mem_free", library_objection);
}

// An application knows when its ops are over: an idle, healthy communicator is no hindrance.
static const char *application_objection(struct sc_sim *sim, const struct sc_sim_memory *memory) {
    for (uint32_t at = 0; at < sc_sim_pool_count(sim, SC_SIM_REGISTRATION); at++) {
        const struct sc_sim_registration *made = sc_sim_pool_at(sim, SC_SIM_REGISTRATION, at);
        if (made != NULL && made->address - memory->address < memory->bytes)
            return "while it is registered";
    }
    for (uint32_t at = 0; at < memory->users_count; at++) {
        const struct sc_sim_comm *comm = sc_sim_pool_find(sim, SC_SIM_COMM, memory->users[at]);
        if (comm != NULL && comm->exchanges != 0)
            return "while an op that may use it is in flight";
    }
    return NULL;
}

sc_status sc_sim_free(struct sc_sim_process *process, uint64_t address) {
    if (!process->alive)
        return SC_CLOSED;
    return release(process, address, "free", application_objection);
}

void sc_sim_memory_kill(struct sc_sim_process *process) {
    for (uint32_t at = 0; at < process->memory_count; at++)
        check_zones(process, &process->memory[at]);
    process->memory_dead = process->memory_count;
    process->memory_count = 0;
}

void sc_sim_memory_reap(struct sc_sim_process *process) {
    for (uint32_t at = 0; at < process->memory_dead; at++)
        discard(&process->memory[at]);
    free(process->memory);
}

// ---- registrations ----------------------------------------------------------------------------

sc_status sc_sim_verb_buf_register(void *ctx, uint64_t comm, uint64_t address, uint64_t bytes,
                                   uint64_t *registration) {
    struct sc_sim_process *process = ctx;
    sc_status status = sc_sim_enter(process, SC_VERB_buf_register);

    if (status != SC_OK)
        return status;
    if (sc_sim_comm_ready(process, "buf_register", comm) == NULL)
        return SC_INVALID;
    status = sc_sim_memory_use(process, "buf_register", address, bytes, comm);
    if (status != SC_OK)
        return status;
    if (process->armed.register_null > 0) {
        process->armed.register_null--;
        *registration = 0;
        return SC_OK;
    }
    struct sc_sim_registration *made = sc_sim_pool_take(process->sim, SC_SIM_REGISTRATION, process);
    made->comm = comm;
    made->address = address;
    process->held.registrations++;
    *registration = made->object.handle;
    return SC_OK;
}

sc_status sc_sim_verb_buf_deregister(void *ctx, uint64_t comm, uint64_t handle) {
    struct sc_sim_process *process = ctx;
    sc_status status = sc_sim_enter(process, SC_VERB_buf_deregister);

    if (status != SC_OK)
        return status;
    struct sc_sim_registration *registration =
        sc_sim_pool_find(process->sim, SC_SIM_REGISTRATION, handle);
    if (registration == NULL || registration->object.owner != process || registration->comm != comm)
        return sc_sim_breach(process,
                             "buf_deregister: registration %#llx is not one of communicator %#llx",
                             (unsigned long long)handle, (unsigned long long)comm);
    process->held.registrations--;
    sc_sim_pool_put(process->sim, SC_SIM_REGISTRATION, &registration->object);
    return SC_OK;
}

void sc_sim_registrations_end(struct sc_sim *sim, uint64_t comm) {
    for (uint32_t at = 0; at < sc_sim_pool_count(sim, SC_SIM_REGISTRATION); at++) {
        struct sc_sim_registration *registration = sc_sim_pool_at(sim, SC_SIM_REGISTRATION, at);
        if (registration == NULL || registration->comm != comm)
            continue;
        registration->object.owner->held.registrations--;
        sc_sim_pool_put(sim, SC_SIM_REGISTRATION, &registration->object);
    }
}
