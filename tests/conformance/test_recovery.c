// SPDX-License-Identifier: AGPL-3.0-only
//
// Epochs that end while everybody lives: by the application's wish, and by ranks that differ.
#include "tests/conformance/conf.h"

static bool wished_for(struct bench *b) {
    uint16_t *buffer;
    uint64_t before = b->epoch;
    DO(conf_buffer(b, 64, &buffer));
    DO(conf_meet(b));
    if (b->rank == b->ranks - 1)
        OK(b, sc_reconnect(b->comm, b->epoch, 42));
    DO(conf_renew(b));
    TRUE(b, b->epoch > before);
    EQUAL(b, b->recovery.cause.code, SC_RECONNECT);
    EQUAL(b, b->recovery.cause.value[0], 42);
    EQUAL(b, *sc_live_epoch(b->comm), b->epoch);
    IS(b, sc_all_reduce(b->comm, before, buffer, 64, SC_BF16, b->stream), SC_EPOCH_LOST);
    IS(b, sc_test(b->comm, before, b->stream), SC_EPOCH_LOST);
    OK(b, sc_reconnect(b->comm, before, 43)); // of an epoch that is over: nothing
    DO(conf_works(b));
    return conf_alike(b, b->epoch);
}

// The new epoch's ops come behind whatever the old one left on the streams.
static bool behind_compute(struct bench *b) {
    uint16_t *buffer, *word;
    DO(conf_buffer(b, 1000, &buffer));
    DO(conf_buffer(b, 1, &word));
    DO(conf_fill(b, word, 1, 0));
    DO(conf_meet(b));
    OK(b, b->w->compute(b, b->stream, conf_ms(b, 300), word, 1));
    OK(b, sc_all_reduce(b->comm, b->epoch, buffer, 2000, SC_BF16, b->stream));
    DO(conf_meet(b));
    OK(b, sc_reconnect(b->comm, b->epoch, 1));
    EQUAL(b, *sc_live_epoch(b->comm), 0);
    DO(conf_renew(b));
    DO(conf_holds(b, word, 1, 1)); // its kernels are over, so this one ahead of them is
    return conf_works(b);
}

static bool many_times(struct bench *b) {
    for (uint32_t i = 0; i < 3; i++) {
        DO(conf_meet(b));
        OK(b, sc_reconnect(b->comm, b->epoch, i));
        DO(conf_renew(b));
        DO(conf_works(b));
    }
    return true;
}

static bool told_of_mismatch(struct bench *b, uint32_t kind) {
    DO(conf_lost(b));
    DO(conf_renew(b));
    EQUAL(b, b->recovery.cause.code, SC_MISMATCH);
    EQUAL(b, b->recovery.cause.suspect, 1);
    EQUAL(b, b->recovery.cause.op[0].kind, SC_OP_ALL_REDUCE);
    EQUAL(b, b->recovery.cause.op[1].kind, kind);
    return conf_works(b);
}

static bool other_size(struct bench *b) {
    uint16_t *buffer;
    DO(conf_buffer(b, 4096, &buffer));
    DO(conf_meet(b));
    OK(b, sc_all_reduce(b->comm, b->epoch, buffer, b->rank == 1 ? 8192 : 4096, SC_BF16, b->stream));
    return told_of_mismatch(b, SC_OP_ALL_REDUCE);
}

static bool other_kind(struct bench *b) {
    uint16_t *buffer;
    DO(conf_buffer(b, 4096, &buffer));
    DO(conf_meet(b));
    if (b->rank == 1)
        OK(b, sc_broadcast(b->comm, b->epoch, buffer, 4096, 0, b->stream));
    else
        OK(b, sc_all_reduce(b->comm, b->epoch, buffer, 4096, SC_BF16, b->stream));
    return told_of_mismatch(b, SC_OP_BROADCAST);
}

const struct conf_test conf_recovery[] = {
    {.name = "reconnect_gives_every_rank_a_new_epoch", .run = wished_for},
    {.name = "new_epoch_comes_when_the_old_ones_kernels_are_over",
     .run = behind_compute,
     .ranks_min = 2},
    {.name = "epochs_follow_each_other", .run = many_times, .ranks_min = 2},
    {.name = "other_size_on_one_rank_is_a_mismatch", .run = other_size, .ranks_min = 2},
    {.name = "other_kind_on_one_rank_is_a_mismatch", .run = other_kind, .ranks_min = 2},
    {0},
};
