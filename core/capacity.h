// SPDX-License-Identifier: AGPL-3.0-only
//
// How large a payload may be: the capacity that a model and a batch need, and the rule that
// no payload passes which is larger than it, odd, misaligned or wrapped around memory.
#ifndef SC_CORE_CAPACITY_H
#define SC_CORE_CAPACITY_H

#include "core/status.h"

#include <stdint.h>

// The bytes of a full batch's BF16 activations: tokens x hidden size x 2.
//   max_batch_tokens  the most tokens that one step can hold
//   hidden_size       elements of one token's activation
//   out_bytes         set only on success
// Returns SC_OK, SC_INVALID (either factor is zero, or out_bytes is NULL) or SC_TOO_LARGE
// (the product does not fit 64 bits). Any thread; keeps no state.
SC_MUST_USE sc_status sc_payload_capacity(uint64_t max_batch_tokens, uint64_t hidden_size,
                                          uint64_t *out_bytes);

// May a payload of `bytes` at device address `address` be reduced under `capacity_bytes`?
// Zero bytes may, at any address: nothing is read. Otherwise, in this order:
//   SC_INVALID   bytes is odd, so its last element is half there
//   SC_ALIGN     the address is not that of a BF16 element
//   SC_CAPACITY  bytes is more than the capacity
//   SC_INVALID   address + bytes wraps around the address space
// Any thread; keeps no state, touches no memory.
SC_MUST_USE sc_status sc_payload_check(uint64_t address, uint64_t bytes, uint64_t capacity_bytes);

#endif
