// SPDX-License-Identifier: AGPL-3.0-only
//
// What the library is measured against: the sums that a program would make of NCCL's own calls, on the
// same driver and NCCL, without any of what the library does around them.
#ifndef SC_RAW_H
#define SC_RAW_H

#include "core/spark_comm.h"

#include <stdbool.h>

struct sc_raw;

enum sc_raw_way {
    SC_RAW_ALL_REDUCE, // ncclAllReduce in place
    SC_RAW_PAIR,       // a group of ncclSend and ncclRecv, then the library's add; in a world of 2
    SC_RAW_WINDOW,     // ncclAllReduce in place, in a symmetric window
    SC_RAW_WAYS
};

#define SC_RAW_ID_BYTES 128u

// One rank draws the id, and all are given it. On an error `why` says what failed.
SC_MUST_USE sc_status sc_raw_id(unsigned char id[SC_RAW_ID_BYTES], char *why, size_t why_bytes);

// Waits for all ranks. In the thread and the context that all else is called in; memory for payloads of
// max_bytes is taken here. On an error nothing is held.
SC_MUST_USE sc_status sc_raw_open(int32_t device, uint32_t rank, uint32_t world,
                                  const unsigned char id[SC_RAW_ID_BYTES], uint64_t max_bytes,
                                  struct sc_raw **out, char *why, size_t why_bytes);
// All ranks have finished with it.
void sc_raw_close(struct sc_raw *raw);

// Whether there is this way here: on all ranks or on none.
bool sc_raw_has(const struct sc_raw *raw, enum sc_raw_way way);
// What it sums in place.
void *sc_raw_buffer(const struct sc_raw *raw, enum sc_raw_way way);

SC_MUST_USE sc_status sc_raw_sum(struct sc_raw *raw, enum sc_raw_way way, uint64_t bytes,
                                 void *stream);
// With all the calls of CUDA and NCCL that the library makes for one: records of events around it, and
// what it asks the driver and NCCL.
SC_MUST_USE sc_status sc_raw_sum_alike(struct sc_raw *raw, enum sc_raw_way way, uint64_t bytes,
                                       void *stream);

const char *sc_raw_error(const struct sc_raw *raw); // of the last call that failed

#endif
