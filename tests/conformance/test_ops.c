// SPDX-License-Identifier: AGPL-3.0-only
//
// Each op moves and sums exactly what it is told, and touches nothing beside it.
#include "tests/conformance/conf.h"

#include <stdlib.h>
#include <string.h>

#define MARGIN 24u // elements around what an op is given
#define UNTOUCHED 0x1234u

// Elements [at, at + count) of a buffer of `all` elements.
struct part {
    uint16_t *buffer;
    uint64_t all, at, count;
};

static uint16_t *start_of(const struct part *part) {
    return part->buffer + part->at;
}

static bool make(struct bench *b, const struct part *part) {
    DO(conf_fill(b, part->buffer, part->all, UNTOUCHED));
    return conf_count_up(b, start_of(part), part->count);
}

// What element i of the part must be; `arg` is the check's.
typedef uint16_t wanted_value(const struct bench *b, uint64_t i, uint64_t arg);

// That in the part, and around it what was there.
static bool check(struct bench *b, const struct part *part, wanted_value *value, uint64_t arg) {
    uint16_t *host = malloc(part->all * sizeof *host);
    uint64_t at = 0;
    TRUE(b, host != NULL);
    sc_status status = b->w->get(b, host, part->buffer, part->all * sizeof *host);
    uint16_t found = 0, wanted = 0;
    for (; status == SC_OK && at < part->all; at++) {
        bool inside = at >= part->at && at < part->at + part->count;
        wanted = inside ? value(b, at - part->at, arg) : UNTOUCHED;
        found = host[at];
        if (found != wanted)
            break;
    }
    free(host);
    OK(b, status);
    if (at < part->all)
        WRONG(b, "of %" PRIu64 " elements at %" PRIu64 ", number %" PRId64 " is %04X, not %04X",
              part->count, part->at, (int64_t)(at - part->at), found, wanted);
    return true;
}

static uint16_t the_sum(const struct bench *b, uint64_t i, uint64_t arg) {
    (void)arg;
    return conf_counted_sum(b->ranks, i);
}

static bool reduce_part(struct bench *b, const struct part *part) {
    DO(make(b, part));
    OK(b, sc_all_reduce(b->comm, b->epoch, start_of(part), part->count * SC_BF16_BYTES, SC_BF16,
                        b->stream));
    DO(conf_sync(b));
    return check(b, part, the_sum, 0);
}

static bool few_at_every_offset(struct bench *b) {
    struct part part = {.all = 8 + 17 + MARGIN};
    DO(conf_buffer(b, part.all, &part.buffer));
    for (part.at = 0; part.at <= 8; part.at++)
        for (part.count = 1; part.count <= 17; part.count++)
            DO(reduce_part(b, &part));
    return true;
}

static bool small_and_large(struct bench *b) {
    static const uint64_t bytes[] = {2,      256,    4096,           4098,     65536,
                                     262142, 262144, (1u << 20) + 2, 3u << 20, CONF_CAPACITY};
    struct part part = {.all = CONF_CAPACITY / SC_BF16_BYTES + MARGIN};
    DO(conf_buffer(b, part.all, &part.buffer));
    for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++) {
        part.count = bytes[i] / SC_BF16_BYTES;
        part.at = i % 9;
        part.all = part.count + MARGIN;
        DO(reduce_part(b, &part));
    }
    return true;
}

// On each other's heels, without a look at any in between.
static bool many_in_flight(struct bench *b) {
    struct part parts[20];
    for (uint32_t i = 0; i < 20; i++) {
        parts[i] = (struct part){.all = 3000 + MARGIN, .at = i % 9, .count = 1 + i * 157};
        DO(conf_buffer(b, parts[i].all, &parts[i].buffer));
        DO(make(b, &parts[i]));
    }
    for (uint32_t i = 0; i < 20; i++)
        OK(b, sc_all_reduce(b->comm, b->epoch, start_of(&parts[i]), parts[i].count * SC_BF16_BYTES,
                            SC_BF16, b->stream));
    DO(conf_sync(b));
    for (uint32_t i = 0; i < 20; i++)
        DO(check(b, &parts[i], the_sum, 0));
    return true;
}

// ---- the others --------------------------------------------------------------------------------

static uint16_t the_roots(const struct bench *b, uint64_t i, uint64_t root) {
    (void)b;
    return conf_counted((uint32_t)root, i);
}

static const uint64_t odd_counts[] = {1, 3, 8, 17, 2049, 100001};
#define ODD_COUNTS (sizeof odd_counts / sizeof odd_counts[0])

static bool broadcasts(struct bench *b) {
    struct part part = {.all = odd_counts[ODD_COUNTS - 1] + MARGIN};
    DO(conf_buffer(b, part.all, &part.buffer));
    for (uint32_t i = 0; i < ODD_COUNTS * b->ranks; i++) {
        uint32_t root = i % b->ranks;
        part.at = i % 9;
        part.count = odd_counts[i / b->ranks];
        part.all = part.count + MARGIN;
        DO(make(b, &part));
        OK(b, sc_broadcast(b->comm, b->epoch, start_of(&part), part.count * SC_BF16_BYTES, root,
                           b->stream));
        DO(conf_sync(b));
        DO(check(b, &part, the_roots, root));
    }
    return true;
}

static uint16_t every_share(const struct bench *b, uint64_t i, uint64_t share) {
    (void)b;
    return conf_counted((uint32_t)(i / share), i % share);
}

static bool gathers(struct bench *b) {
    uint64_t most = odd_counts[ODD_COUNTS - 1];
    struct part src = {.all = most + MARGIN}, dst = {.all = most * b->ranks + MARGIN};
    DO(conf_buffer(b, src.all, &src.buffer));
    DO(conf_buffer(b, dst.all, &dst.buffer));
    for (uint32_t i = 0; i < ODD_COUNTS; i++) {
        src.at = dst.at = i % 9;
        src.count = odd_counts[i];
        src.all = src.count + MARGIN;
        dst.count = src.count * b->ranks;
        dst.all = dst.count + MARGIN;
        DO(make(b, &src));
        DO(make(b, &dst));
        OK(b, sc_all_gather(b->comm, b->epoch, start_of(&src), start_of(&dst),
                            src.count * SC_BF16_BYTES, b->stream));
        DO(conf_sync(b));
        DO(check(b, &dst, every_share, src.count));
    }
    return true;
}

static uint16_t own_share(const struct bench *b, uint64_t i, uint64_t share) {
    return conf_counted_sum(b->ranks, b->rank * share + i);
}

static bool scatters(struct bench *b) {
    uint64_t most = odd_counts[ODD_COUNTS - 1];
    struct part src = {.all = most * b->ranks + MARGIN}, dst = {.all = most + MARGIN};
    DO(conf_buffer(b, src.all, &src.buffer));
    DO(conf_buffer(b, dst.all, &dst.buffer));
    for (uint32_t i = 0; i < ODD_COUNTS; i++) {
        src.at = dst.at = i % 9;
        dst.count = odd_counts[i];
        dst.all = dst.count + MARGIN;
        src.count = dst.count * b->ranks;
        src.all = src.count + MARGIN;
        DO(make(b, &src));
        DO(make(b, &dst));
        OK(b, sc_reduce_scatter(b->comm, b->epoch, start_of(&src), start_of(&dst),
                                dst.count * SC_BF16_BYTES, SC_BF16, b->stream));
        DO(conf_sync(b));
        DO(check(b, &dst, own_share, dst.count));
    }
    return true;
}

// ---- refusals, and nothing at all --------------------------------------------------------------

static bool submitted(struct bench *b, uint64_t *seqs) {
    struct sc_health_report health;
    OK(b, b->w->pause(b, conf_ms(b, 60))); // a picture may be a heartbeat old
    DO(conf_health(b, &health));
    *seqs = health.submitted;
    return true;
}

static bool refusals(struct bench *b) {
    uint16_t *buffer, *other;
    uint64_t before, after, over = CONF_CAPACITY + 2;
    sc_comm c = b->comm;
    uint64_t e = b->epoch;
    DO(conf_buffer(b, 64, &buffer));
    DO(conf_buffer(b, 64 * b->ranks, &other));
    DO(conf_fill(b, buffer, 64, UNTOUCHED));
    DO(submitted(b, &before));
    IS(b, sc_all_reduce(c, e, buffer, 3, SC_BF16, b->stream), SC_INVALID);
    IS(b, sc_all_reduce(c, e, (char *)buffer + 1, 4, SC_BF16, b->stream), SC_ALIGN);
    IS(b, sc_all_reduce(c, e, buffer, over, SC_BF16, b->stream), SC_CAPACITY);
    IS(b, sc_all_reduce(c, e, buffer, 4, (enum sc_dtype)77, b->stream), SC_INVALID);
    IS(b, sc_all_reduce(c, e + 1, buffer, 4, SC_BF16, b->stream), SC_EPOCH_LOST);
    IS(b, sc_all_reduce(c, 0, buffer, 4, SC_BF16, b->stream), SC_EPOCH_LOST);
    IS(b, sc_broadcast(c, e, buffer, 4, b->ranks, b->stream), SC_INVALID);
    IS(b, sc_all_gather(c, e, buffer, other, UINT64_MAX - 1, b->stream),
       b->ranks > 1 ? SC_TOO_LARGE : SC_CAPACITY);
    IS(b, sc_reduce_scatter(c, e, other, buffer, over, SC_BF16, b->stream), SC_CAPACITY);
    IS(b, sc_send(c, e, buffer, 4, b->rank, b->stream), SC_INVALID);
    IS(b, sc_recv(c, e, buffer, 4, b->ranks, b->stream), SC_INVALID);
    IS(b, sc_all_reduce(c ^ UINT64_C(1) << 63, e, buffer, 4, SC_BF16, b->stream), SC_CLOSED);
    DO(submitted(b, &after));
    EQUAL(b, after, before);
    DO(conf_holds(b, buffer, 64, UNTOUCHED));
    return conf_works(b);
}

static bool nothing(struct bench *b) {
    uint16_t *buffer;
    uint64_t before, after;
    DO(conf_buffer(b, 64, &buffer));
    DO(conf_fill(b, buffer, 64, UNTOUCHED));
    DO(submitted(b, &before));
    OK(b, sc_all_reduce(b->comm, b->epoch, buffer, 0, SC_BF16, b->stream));
    OK(b, sc_broadcast(b->comm, b->epoch, buffer, 0, 0, b->stream));
    OK(b, sc_all_gather(b->comm, b->epoch, buffer, buffer, 0, b->stream));
    OK(b, sc_reduce_scatter(b->comm, b->epoch, buffer, buffer, 0, SC_BF16, b->stream));
    OK(b, sc_all_reduce_async(b->comm, b->epoch, buffer, 0, SC_BF16, b->stream));
    DO(conf_sync(b));
    DO(submitted(b, &after));
    EQUAL(b, after - before, 5);
    return conf_holds(b, buffer, 64, UNTOUCHED);
}

const struct conf_test conf_ops[] = {
    {.name = "all_reduce_of_few_elements_at_every_offset", .run = few_at_every_offset},
    {.name = "all_reduce_from_one_element_to_the_capacity", .run = small_and_large},
    {.name = "all_reduces_on_each_others_heels", .run = many_in_flight},
    {.name = "broadcast_from_every_root", .run = broadcasts},
    {.name = "all_gather_in_order_of_rank", .run = gathers},
    {.name = "reduce_scatter_gives_each_rank_its_share", .run = scatters},
    {.name = "refused_op_has_no_effect_and_takes_no_seq", .run = refusals},
    {.name = "zero_bytes_take_a_seq_and_touch_nothing", .run = nothing},
    {0},
};
