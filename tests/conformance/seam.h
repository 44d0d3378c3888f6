// SPDX-License-Identifier: AGPL-3.0-only
//
// What the tests of the device's table share.
#ifndef SC_CONFORMANCE_SEAM_H
#define SC_CONFORMANCE_SEAM_H

#include "tests/conformance/conf.h"

#define SEAM_EPOCH 7u

// Begins a communicator of all ranks.
bool seam_create(struct bench *b, const struct sc_device *d, uint64_t epoch, uint64_t *comm);
// Polls until it is in that state.
bool seam_await(struct bench *b, const struct sc_device *d, uint64_t comm,
                enum sc_comm_state wanted, struct sc_comm_report *report);
// A communicator that is READY, the fence up, through b->d; and their end.
bool seam_begin(struct bench *b, uint64_t *comm);
bool seam_end(struct bench *b, uint64_t comm);

#endif
