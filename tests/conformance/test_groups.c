// SPDX-License-Identifier: AGPL-3.0-only
//
// Groups of sends and recvs: one launch, in all directions at once.
#include "tests/conformance/conf.h"

static bool send_recv(struct bench *b, const uint16_t *src, uint16_t *dst, uint64_t count,
                      uint32_t to, uint32_t from) {
    OK(b, sc_send(b->comm, b->epoch, src, count * SC_BF16_BYTES, to, b->stream));
    OK(b, sc_recv(b->comm, b->epoch, dst, count * SC_BF16_BYTES, from, b->stream));
    return true;
}

static bool everybody_to_everybody(struct bench *b) {
    static const uint64_t counts[] = {1, 17, 4099, 300001};
    uint16_t *src, *dst[CONF_RANKS_MAX];
    DO(conf_buffer(b, 300001, &src));
    DO(conf_fill(b, src, 300001, conf_whole(20 + b->rank)));
    for (uint32_t r = 0; r < b->ranks; r++)
        DO(conf_buffer(b, 300001 + 1, &dst[r]));
    for (uint32_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        for (uint32_t r = 0; r < b->ranks; r++)
            DO(conf_fill(b, dst[r], counts[i] + 1, 0x1234));
        OK(b, sc_group_begin(b->comm, b->epoch));
        for (uint32_t r = 0; r < b->ranks; r++)
            if (r != b->rank)
                DO(send_recv(b, src, dst[r], counts[i], r, r));
        OK(b, sc_group_end(b->comm));
        DO(conf_sync(b));
        for (uint32_t r = 0; r < b->ranks; r++) {
            if (r == b->rank)
                continue;
            DO(conf_holds(b, dst[r], counts[i], conf_whole(20 + r)));
            DO(conf_holds(b, dst[r] + counts[i], 1, 0x1234));
        }
    }
    return true;
}

static bool one_by_one(struct bench *b) {
    uint16_t *buffer;
    DO(conf_buffer(b, 5000, &buffer));
    DO(conf_fill(b, buffer, 5000, conf_whole(30 + b->rank)));
    if (b->rank == 0)
        OK(b, sc_send(b->comm, b->epoch, buffer, 10000, 1, b->stream));
    if (b->rank == 1)
        OK(b, sc_recv(b->comm, b->epoch, buffer, 10000, 0, b->stream));
    DO(conf_sync(b));
    return conf_holds(b, buffer, 5000, conf_whole(30 + (b->rank == 1 ? 0 : b->rank)));
}

// Whatever went wrong in a group, the next op finds no trace of it.
static bool errors(struct bench *b) {
    uint16_t *buffer;
    sc_comm c = b->comm;
    uint64_t e = b->epoch;
    uint32_t peer = (b->rank + 1) % b->ranks;
    DO(conf_buffer(b, 64, &buffer));
    DO(conf_fill(b, buffer, 64, 0x1234));
    IS(b, sc_group_end(c), SC_INVALID);
    OK(b, sc_group_begin(c, e));
    IS(b, sc_group_begin(c, e), SC_INVALID);
    IS(b, sc_all_reduce(c, e, buffer, 4, SC_BF16, b->stream), SC_INVALID);
    OK(b, sc_send(c, e, buffer, 64, peer, b->stream));
    IS(b, sc_recv(c, e, (char *)buffer + 1, 64, peer, b->stream), SC_ALIGN);
    IS(b, sc_group_end(c), SC_ALIGN);
    OK(b, sc_group_begin(c, e)); // with nothing in it
    OK(b, sc_group_end(c));
    IS(b, sc_group_begin(c, e + 1), SC_EPOCH_LOST);
    DO(conf_works(b));
    return conf_holds(b, buffer, 64, 0x1234);
}

const struct conf_test conf_groups[] = {
    {.name = "group_exchanges_in_every_direction", .run = everybody_to_everybody, .ranks_min = 2},
    {.name = "send_meets_recv", .run = one_by_one, .ranks_min = 2},
    {.name = "failed_group_enqueues_nothing_and_leaves_no_trace", .run = errors, .ranks_min = 2},
    {0},
};
