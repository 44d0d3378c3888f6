// SPDX-License-Identifier: AGPL-3.0-only
//
// Frames to test the codec with: one of each kind with every field at its upper bound, and the
// checksum for a payload that was tampered with.
#ifndef SC_TESTS_SUPPORT_FRAMES_H
#define SC_TESTS_SUPPORT_FRAMES_H

#include "core/frame.h"

extern const uint8_t frame_command_bytes[SC_COMMAND_MAX_BYTES]; // a COMMAND's, in frame_at_bounds

void frame_at_bounds(struct sc_frame *frame, enum sc_frame_kind kind);

// Gives the frame in `wire` a payload of that length, and the checksum that goes with it; returns
// the length of the whole.
size_t frame_seal(uint8_t *wire, size_t payload);

#endif
