// SPDX-License-Identifier: AGPL-3.0-only
//
// What the checker remembers of a device: handles held, allocations, communicator ids used. Private
// to hal/hal_check*.c.
#ifndef SC_HAL_CHECK_STATE_H
#define SC_HAL_CHECK_STATE_H

#include "hal/hal_check.h"

enum sc_held_kind {
    SC_HELD_COMM,
    SC_HELD_REGISTRATION,
    SC_HELD_STREAM,
    SC_HELD_OP,
    SC_HELD_CAPTURE,
};

// One live handle. Which fields mean anything depends on its kind.
struct sc_held {
    uint64_t handle;
    uint64_t owner; // registration: its communicator; op, capture: its stream
    uint64_t epoch; // communicator
    uint32_t world; // communicator
    uint8_t kind;
    uint8_t user;           // communicator: its bit in sc_check_allocation.users
    bool ready;             // communicator: was reported SC_COMM_READY
    bool failed;            // communicator: was reported SC_COMM_ERROR
    bool abort_tried;       // communicator: comm_abort was called
    bool aborted;           // communicator: and has begun
    const void *aborted_by; // thread
    bool ended;             // op, capture: its end was called
    bool replay;            // op: begun by replay_begin
};

struct sc_check_allocation {
    uint64_t address;
    uint64_t bytes;
    uint64_t users; // one bit for each live communicator that it was registered with or used by
};

#define SC_CHECK_SLOTS (2u * SC_HAL_CHECK_HANDLES_MAX) // a power of two: open addressing

struct sc_hal_check {
    const struct sc_device *inner;
    struct sc_device device;
    struct sc_hal_check_config config;
    uint64_t breaches;
    uint64_t calls[SC_DEVICE_VERB_COUNT];

    uint64_t fence;
    uint64_t lowered_from;  // what it held before it was lowered …
    const void *lowered_by; // … by that thread
    uint32_t group_depth;
    const void *group_thread; // who opened the group: tells threads apart, points to nothing useful
    uint32_t capturing;       // captures begun and not ended

    uint32_t held_count;
    struct sc_held held[SC_HAL_CHECK_HANDLES_MAX]; // without gaps
    uint16_t slots[SC_CHECK_SLOTS];                // 1 + index into held; 0 is free

    uint32_t allocation_count;
    struct sc_check_allocation allocations[SC_HAL_CHECK_ALLOCATIONS_MAX]; // by rising address

    uint64_t users;   // bits taken by live communicators
    uint32_t id_next; // the ring's next place
    uint32_t id_count;
    struct sc_comm_id ids[SC_HAL_CHECK_IDS_MAX];
};

// Counts a call. Every verb begins with it.
static inline struct sc_hal_check *sc_check_enter(void *ctx, enum sc_device_verb verb) {
    struct sc_hal_check *check = ctx;

    check->calls[verb]++;
    return check;
}

// Reports a breach of `verb`. Returns SC_STATE.
__attribute__((format(printf, 3, 4))) sc_status
sc_check_breach(struct sc_hal_check *check, enum sc_device_verb verb, const char *format, ...);

// Reports that the device itself is in breach, and hands its answer on.
sc_status sc_check_device_breach(struct sc_hal_check *check, enum sc_device_verb verb,
                                 sc_status answer, const char *what);

// What an output holds before the device is called, to see whether it was written.
#define SC_CHECK_UNSET UINT64_C(0xA5C3A5C3A5C3A5C3)

// Judges the answer of a verb with one 64-bit output: written on SC_OK and only then. Hands the
// output to the caller on SC_OK.
sc_status sc_check_output(struct sc_hal_check *check, enum sc_device_verb verb, sc_status answer,
                          uint64_t value, uint64_t *out);

const char *sc_held_kind_name(enum sc_held_kind kind);

// An address that names the calling thread.
const void *sc_check_thread(void);

// NULL when no such handle is held. The pointer is good until the next add or remove.
struct sc_held *sc_check_find(struct sc_hal_check *check, enum sc_held_kind kind, uint64_t handle);

// As above; a handle that is not held is the caller's breach.
struct sc_held *sc_check_demand(struct sc_hal_check *check, enum sc_device_verb verb,
                                enum sc_held_kind kind, uint64_t handle);

// Remembers a handle that `verb` handed out. NULL, after a report, when it is 0 or held already or
// when there is no room.
struct sc_held *sc_check_add(struct sc_hal_check *check, enum sc_device_verb verb,
                             enum sc_held_kind kind, uint64_t handle);

// Forgets a handle. The last entry moves into its place: walk downwards while removing.
void sc_check_remove(struct sc_hal_check *check, struct sc_held *held);

// False after a report when a group of this thread's is open.
bool sc_check_outside_group(struct sc_hal_check *check, enum sc_device_verb verb);

bool sc_check_is_capturing(const struct sc_hal_check *check, uint64_t stream);

// The live communicator that may be used: ready and not aborted. NULL after a report.
struct sc_held *sc_check_usable_comm(struct sc_hal_check *check, enum sc_device_verb verb,
                                     uint64_t comm);

// False after a report when [address, address + bytes) is no memory at all.
bool sc_check_buffer(struct sc_hal_check *check, enum sc_device_verb verb, uint64_t address,
                     uint64_t bytes);

// False after a report when it is no place for BF16 elements.
bool sc_check_payload(struct sc_hal_check *check, enum sc_device_verb verb, uint64_t address,
                      uint64_t bytes);

// Notes that a communicator uses the allocation at `address`, if it is one of the device's.
void sc_check_note_use(struct sc_hal_check *check, const struct sc_held *comm, uint64_t address);

// Index of the last allocation that begins at or before `address`, plus one; 0 when there is none.
uint32_t sc_check_allocation_upto(const struct sc_hal_check *check, uint64_t address);

// Each file of verbs enters its own.
void sc_check_enter_comm_verbs(struct sc_device *device);
void sc_check_enter_memory_verbs(struct sc_device *device);
void sc_check_enter_op_verbs(struct sc_device *device);
void sc_check_enter_collective_verbs(struct sc_device *device);

#endif
