// SPDX-License-Identifier: AGPL-3.0-only
//
// What each rank puts into each collective, and what must come out: both follow from the numbers
// below alone, so that every result can be checked anywhere, bit for bit.
#ifndef SC_LAB_PAYLOAD_H
#define SC_LAB_PAYLOAD_H

#include "core/op.h"

#include <stdbool.h>
#include <stddef.h>

struct sc_payload {
    uint64_t seed, epoch, step;
    uint32_t layer, rank, world, elements;
    bool mixed; // kinds and sizes vary; otherwise all_reduce of `elements`
    bool fixed; // … with the layer only, as a captured graph demands
};

// The op of this rank on the buffer at `base`, of world × elements BF16 values; false when this
// rank has no part in it (send and recv concern two). place->stream is left to the caller.
bool sc_payload_op(const struct sc_payload *payload, uint64_t base, struct sc_op_desc *desc,
                   struct sc_op_place *place);

// Names the op's meaning to the application: equal on all ranks, different for any other op.
uint64_t sc_payload_tag(const struct sc_payload *payload);

// Writes this rank's input over the whole buffer.
void sc_payload_fill(const struct sc_payload *payload, uint16_t *buffer);

// Compares the buffer after the op with what it must hold, every element of it. On a difference
// `why` says where, with both values. *digest is of the bits found.
bool sc_payload_check_result(const struct sc_payload *payload, const uint16_t *buffer,
                             uint64_t *digest, char *why, size_t why_bytes);

#endif
