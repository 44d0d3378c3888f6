// SPDX-License-Identifier: AGPL-3.0-only
//
// Inside the pretended NCCL:
//
//   nccl_error.c       versions and words
//   nccl_area.c        ids, and the memory that the ranks of one share
//   nccl_comm.c        communicators: made, watched, aborted
//   nccl_memory.c      registrations, windows, memory
//   nccl_calls.c       the calls, and what they refuse
//   nccl_group.c       what is collected between a start and an end
//   nccl_launch.c      what a stream then runs
//   nccl_exchange.c    bytes from rank to rank
//   nccl_collective.c  which bytes those are
//   nccl_reduce.c      sums
//
// Ranks are processes, or threads of one. A communicator's kernels run one at a time, in whatever order
// the streams come to them: ranks that use several streams order them alike.
#ifndef SC_PRETEND_NCCL_INSIDE_H
#define SC_PRETEND_NCCL_INSIDE_H

#include "tests/pretend/pretend.h"

#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#define PRETEND_RANKS_MAX 64u
#define PRETEND_SLOTS 32u
#define PRETEND_SLOT_BYTES (UINT64_C(128) << 10)
#define PRETEND_PIECE_BYTES (UINT64_C(1) << 20) // of a sum, at a time

// ---- words: nccl_error.c -----------------------------------------------------------------------

// Keeps what ncclGetLastError then says on this thread; answers `result`.
__attribute__((format(printf, 2, 3))) ncclResult_t pretend_fail(ncclResult_t result,
                                                                const char *format, ...);

// ---- shared memory: nccl_area.c ----------------------------------------------------------------

// From one rank to another: a message goes in chunks, each into the lowest slot that is free. So 4 MiB
// are on the way at most, and memory is used only as far as the receiver is behind.
struct pretend_box {
    _Atomic uint64_t holds[PRETEND_SLOTS]; // 1 + the chunk's number; 0: the slot is free
    uint64_t bytes[PRETEND_SLOTS];         // of the whole message that the chunk is of
    _Alignas(64) unsigned char data[PRETEND_SLOTS][PRETEND_SLOT_BYTES];
};

struct pretend_area {
    unsigned char nonce[16];
    _Atomic uint32_t world; // as the first rank has it; 0: none has come
    _Atomic uint32_t present;
    _Atomic int32_t pids[PRETEND_RANKS_MAX]; // 0: has not come
    struct pretend_box boxes[];              // from * world + to
};

// Returns when all ranks have come: for ever, if one does not.
ncclResult_t pretend_area_join(const ncclUniqueId *of, uint32_t rank, uint32_t world,
                               struct pretend_area **out);
void pretend_area_leave(struct pretend_area *area);

// ---- communicators: nccl_comm.c ----------------------------------------------------------------

struct pretend_registration; // nccl_memory.c

struct ncclComm {
    struct ncclComm *next; // of this process's
    uint32_t rank, world;
    struct pretend_area *area;
    int watched[PRETEND_RANKS_MAX]; // a descriptor that tells of a peer's end; -1: none
    _Atomic bool lost;              // a watched peer has ended
    _Atomic bool aborted;           // its kernels end, whatever they wait for

    _Atomic bool busy; // a kernel of its own runs, to whom the following belongs
    struct {
        uint64_t sent, taken; // chunks
    } peers[PRETEND_RANKS_MAX];
    unsigned char *scratch; // a piece for each rank

    pthread_mutex_t lock;
    pthread_cond_t change;
    uint32_t launches; // that a stream or a graph still holds
    struct pretend_registration *registrations;
};

void pretend_context_disturb(void);
void pretend_comm_hold(struct ncclComm *comm);
void pretend_comm_let_go(struct ncclComm *comm);
// Waits for what holds it, and frees it. Its kernels end already.
void pretend_comm_abort(struct ncclComm *comm);
// Of an ended communicator.
void pretend_registrations_free(struct ncclComm *comm);

// ---- calls: nccl_group.c, nccl_launch.c --------------------------------------------------------

enum pretend_kind {
    PRETEND_SEND,
    PRETEND_RECV,
    PRETEND_ALL_REDUCE,
    PRETEND_REDUCE_SCATTER,
    PRETEND_ALL_GATHER,
    PRETEND_BROADCAST,
    PRETEND_ABORT,
};

struct pretend_call {
    enum pretend_kind kind;
    ncclDataType_t type;
    struct ncclComm *comm;
    const void *from;
    void *to;
    uint64_t bytes; // as counted in NCCL's call
    uint32_t peer;  // or root
    CUstream stream;
};

bool pretend_group_is_open(void);
// Launches it, or collects it where a group is open. Takes an error as the group's.
ncclResult_t pretend_group_add(const struct pretend_call *call);
ncclResult_t pretend_group_spoil(ncclResult_t error);

// Enqueues those of `calls` that are the communicator's, all of one stream, as one kernel.
ncclResult_t pretend_launch(struct ncclComm *comm, const struct pretend_call *calls,
                            uint32_t count);

// ---- in a kernel -------------------------------------------------------------------------------

// Lets others run, or sleeps for a moment once it has looked in vain for long.
void pretend_rest(uint32_t *looks);

struct pretend_transfer {
    const unsigned char *from; // of a send; NULL: a recv
    unsigned char *to;
    uint64_t bytes; // not 0
    uint32_t peer;
    // The exchange's own; 0 to begin with.
    uint64_t passed, message_bytes;
};

// All at once, those of one peer and direction in order. False: the communicator was aborted.
bool pretend_exchange(struct ncclComm *comm, struct pretend_transfer *transfers, uint32_t count);
// One that is neither send nor recv.
bool pretend_collective(struct ncclComm *comm, const struct pretend_call *call);

// nccl_reduce.c: which sums there are; `to` may be the rank's own input.
bool pretend_can_reduce(ncclDataType_t type, ncclRedOp_t op);
void pretend_reduce(ncclDataType_t type, void *to, const void *const *inputs, uint32_t rank,
                    uint32_t world, uint64_t bytes);

#endif
