// SPDX-License-Identifier: AGPL-3.0-only
//
// One frame of each kind at its bounds, and the seal on a payload.
#include "tests/support/frames.h"

#include "core/crc32c.h"

#include <string.h>

const uint8_t frame_command_bytes[SC_COMMAND_MAX_BYTES] = {1, 2, 3};

static struct sc_cause some_cause(void) {
    return (struct sc_cause){
        .code = SC_STATUS_COUNT - 1,
        .suspect = SC_WORLD_MAX - 1,
        .seq = UINT64_MAX,
        .value = {UINT64_MAX - 1, UINT64_MAX - 2},
        .op = {{SC_OP_KIND_COUNT - 1, SC_WORLD_MAX - 1, UINT64_MAX}, {SC_OP_BROADCAST, 0, 1}},
        .field = SC_FIELD_COUNT - 1};
}

void frame_at_bounds(struct sc_frame *frame, enum sc_frame_kind kind) {
    memset(frame, 0xff, sizeof *frame);
    frame->kind = kind;
    switch (kind) {
    case SC_FRAME_HELLO: frame->u.hello.able = 1; break;
    case SC_FRAME_REFUSE:
    case SC_FRAME_ABORT:
    case SC_FRAME_BYE: frame->u.cause = some_cause(); break;
    case SC_FRAME_OFFER:
        frame->u.offer.cause = some_cause();
        frame->u.offer.phases.form_ns = frame->u.offer.phases.warmup_ns = 0;
        frame->u.offer.world = SC_WORLD_MAX;
        for (uint32_t r = 0; r < SC_WORLD_MAX; r++) {
            frame->u.offer.ranks[r].mark = r;
            frame->u.offer.ranks[r].fresh = frame->u.offer.ranks[r].reserved = 0;
        }
        break;
    case SC_FRAME_PING:
        frame->u.ping.state = SC_STATE_COUNT - 1;
        frame->u.ping.laggard = SC_WORLD_MAX - 1;
        frame->u.ping.loading = 1;
        frame->u.ping.pair =
            (struct sc_pair){.from = SC_WORLD_MAX - 1, .to = SC_WORLD_MAX - 1, .count = UINT64_MAX};
        break;
    case SC_FRAME_DESCRIBE:
        frame->u.describe.count = SC_DESCRIBE_MAX;
        frame->u.describe.reserved = 0;
        for (uint32_t i = 0; i < SC_DESCRIBE_MAX; i++)
            frame->u.describe.op[i] = (struct sc_op_desc){i % SC_OP_KIND_COUNT, i, UINT64_MAX - i};
        break;
    case SC_FRAME_COMMAND:
        frame->u.command.bytes = SC_COMMAND_MAX_BYTES;
        frame->u.command.reserved = 0;
        frame->u.command.data = frame_command_bytes;
        break;
    default: break;
    }
}

size_t frame_seal(uint8_t *wire, size_t payload) {
    for (size_t i = 0; i < 4; i++)
        wire[8 + i] = (uint8_t)(payload >> (8 * i));
    uint32_t crc = sc_crc32c(0, wire, 12);
    crc = sc_crc32c(crc, wire + SC_FRAME_HEADER_BYTES, payload);
    for (size_t i = 0; i < 4; i++)
        wire[12 + i] = (uint8_t)(crc >> (8 * i));
    return SC_FRAME_HEADER_BYTES + payload;
}
