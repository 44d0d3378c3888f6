// SPDX-License-Identifier: AGPL-3.0-only
//
// How large a payload may be: no payload passes which is larger than the capacity, odd, misaligned
// or wrapped around memory. sc_payload_capacity, of the public header, says what a model needs.
#ifndef SC_CORE_CAPACITY_H
#define SC_CORE_CAPACITY_H

#include "core/status.h"

#include <stdint.h>

// May a payload of `bytes` at device address `address` be reduced under `capacity_bytes`?
// Zero bytes may, at any address: nothing is read. Otherwise, in this order:
//   SC_INVALID   bytes is odd, so its last element is half there
//   SC_ALIGN     the address is not that of a BF16 element
//   SC_CAPACITY  bytes is more than the capacity
//   SC_INVALID   address + bytes wraps around the address space
// Any thread; keeps no state, touches no memory.
SC_MUST_USE sc_status sc_payload_check(uint64_t address, uint64_t bytes, uint64_t capacity_bytes);

#endif
