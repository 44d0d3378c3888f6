// SPDX-License-Identifier: AGPL-3.0-only
//
// The ops in flight of one epoch, and what each seq was, for comparison between ranks.
//
// Two numbers name an op. Its *number* counts the submits of this rank: it names a ledger entry. Its
// *seq* counts collectives, alike on all ranks: a replay takes one entry and many seqs; send and
// recv take an entry and no seq, because ranks outside the pair know nothing of them.
//
// Entries leave in order of number; within a stream ops complete in order, so that only the oldest
// of each stream need be polled. All sizes are fixed at init; positions are indices, so that the
// whole is copyable.
#ifndef SC_CORE_LEDGER_H
#define SC_CORE_LEDGER_H

#include "core/op.h"
#include "core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SC_STREAMS_MAX 16u        // streams with ops in flight at a time
#define SC_STREAM_NONE UINT64_MAX // an op that enqueues nothing

struct sc_ledger_entry {
    uint64_t number;
    uint64_t first_seq;  // 0: takes no seq
    uint64_t next;       // number of the next entry on its stream; 0: none
    uint64_t pair_count; // send, recv: counted for each peer and direction
    uint32_t peer;
    uint32_t kind;   // of its (first) op
    uint32_t seqs;   // how many seqs it takes
    uint16_t stream; // index into streams
    uint8_t started;
    uint8_t done;
};

struct sc_ledger_stream {
    uint64_t stream; // the caller's handle
    uint64_t oldest; // number; 0: the slot is free
    uint64_t newest;
};

struct sc_ledger_seq {
    struct sc_op_desc desc;
    uint64_t digest; // of this and every earlier seq
};

struct sc_ledger {
    uint32_t capacity; // entries, and seqs remembered
    uint32_t seqs_in_flight;
    uint32_t streams_used;   // slots that were ever taken in this epoch
    uint32_t stream_newest;  // slot of the newest entry with a stream
    uint64_t next_number;    // of the next entry; numbers start at 1
    uint64_t oldest_number;  // oldest entry still held; == next_number when empty
    uint64_t started_number; // every entry up to here has started
    uint64_t submitted_seq;
    uint64_t started_seq;
    uint64_t completed_seq;
    uint64_t digest;              // D(submitted_seq)
    uint64_t sends[SC_WORLD_MAX]; // to each peer
    uint64_t recvs[SC_WORLD_MAX]; // from each peer
    struct sc_ledger_stream streams[SC_STREAMS_MAX];
    // followed by entries[capacity], then seqs[capacity]
};

size_t sc_ledger_bytes(uint32_t capacity);
// `ledger` is zeroed memory of sc_ledger_bytes(capacity).
void sc_ledger_init(struct sc_ledger *ledger, uint32_t capacity);
// Empties it for a new epoch.
void sc_ledger_reset(struct sc_ledger *ledger);

// Room for one more entry of `seqs` seqs on `stream`: SC_OK or SC_BUSY; SC_TOO_LARGE when it could
// never fit.
SC_MUST_USE sc_status sc_ledger_room(const struct sc_ledger *ledger, uint64_t stream,
                                     uint32_t seqs);
// Takes an entry; room was asked for. The descriptions of collectives enter the digest in order.
struct sc_ledger_entry *sc_ledger_push(struct sc_ledger *ledger, uint64_t stream,
                                       const struct sc_op_desc *list, uint32_t count);
// The entry of that number, or NULL when it has left or never was.
struct sc_ledger_entry *sc_ledger_find(struct sc_ledger *ledger, uint64_t number);
// The same, for one that is known to be there.
const struct sc_ledger_entry *sc_ledger_at(const struct sc_ledger *ledger, uint64_t number);
void sc_ledger_start(struct sc_ledger *ledger, struct sc_ledger_entry *entry);
// Marks it done (and started) and lets finished entries leave.
void sc_ledger_finish(struct sc_ledger *ledger, struct sc_ledger_entry *entry);

static inline bool sc_ledger_empty(const struct sc_ledger *ledger) {
    return ledger->oldest_number == ledger->next_number;
}

// The last seq an entry takes; 0 when it takes none.
static inline uint64_t sc_ledger_last_seq(const struct sc_ledger_entry *entry) {
    return entry->seqs != 0 ? entry->first_seq + entry->seqs - 1 : 0;
}

// The oldest seq in flight; 0 when none is.
static inline uint64_t sc_ledger_oldest_seq(const struct sc_ledger *ledger) {
    return ledger->completed_seq < ledger->submitted_seq ? ledger->completed_seq + 1 : 0;
}

// Whether the oldest op has not started: it waits behind the application's own work. The others say
// nothing of that: they may wait for the oldest, also from another stream, for a communicator runs
// its ops one after another.
bool sc_ledger_waits(const struct sc_ledger *ledger);
// The entry that has been in flight longest, or NULL.
const struct sc_ledger_entry *sc_ledger_oldest(const struct sc_ledger *ledger);

// The pair that the oldest entry is one half of, if it has started; count 0 otherwise.
struct sc_pair sc_ledger_pair(const struct sc_ledger *ledger, uint32_t own_rank);

// What a seq was; NULL when it lies outside the last `capacity` ones.
const struct sc_ledger_seq *sc_ledger_seq(const struct sc_ledger *ledger, uint64_t seq);

// D(k) = H(D(k-1), kind, root, bytes); k is implied by the chain.
uint64_t sc_digest_next(uint64_t digest, const struct sc_op_desc *desc);

// Whether a kind takes a seq.
static inline bool sc_op_is_collective(uint32_t kind) {
    return kind != SC_OP_SEND && kind != SC_OP_RECV;
}

#endif
