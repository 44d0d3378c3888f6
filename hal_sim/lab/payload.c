// SPDX-License-Identifier: AGPL-3.0-only
//
// Inputs are drawn per (epoch, step, layer, rank, index), mostly of ordinary size, some of them
// infinities, NaNs and subnormals; expectations are computed element by element from the same draws.
#include "hal_sim/lab/payload.h"

#include "kernels/bf16.h"

#include <stdio.h>

static uint64_t mix(uint64_t h, uint64_t x) {
    h = (h ^ x) * 0x9e3779b97f4a7c15u;
    return h ^ (h >> 29);
}

static uint64_t op_draw(const struct sc_payload *p) {
    uint64_t h = mix(p->seed, p->fixed ? 0 : p->step);
    return mix(mix(h, p->layer), 0x6f70u) >> 8;
}

struct shape {
    enum sc_op_kind kind;
    uint32_t root, from, to; // from, to: the pair of a send and recv
    uint32_t count;          // elements of desc.bytes
};

static struct shape shape_of(const struct sc_payload *p) {
    struct shape s = {.kind = SC_OP_ALL_REDUCE, .count = p->elements};
    if (!p->mixed)
        return s;
    uint64_t draw = op_draw(p);
    uint32_t kind = (uint32_t)(draw % 32);
    s.count = 1 + (uint32_t)(draw >> 8) % p->elements;
    if (kind < 3) {
        s.kind = SC_OP_BROADCAST;
        s.root = (uint32_t)(draw >> 40) % p->world;
    } else if (kind < 6) {
        s.kind = SC_OP_ALL_GATHER;
    } else if (kind < 9) {
        s.kind = SC_OP_REDUCE_SCATTER;
    } else if (kind == 9 && p->world > 1 && !(p->fixed && p->layer == 0)) { // no graph is empty
        s.kind = SC_OP_SEND;
        s.from = (uint32_t)(draw >> 40) % p->world;
        s.to = (s.from + 1) % p->world;
    } else if (kind == 10) {
        s.count = 0;
    }
    return s;
}

bool sc_payload_op(const struct sc_payload *p, uint64_t base, struct sc_op_desc *desc,
                   struct sc_op_place *place) {
    struct shape s = shape_of(p);
    uint64_t share = (uint64_t)s.count * SC_BF16_BYTES;
    *desc = (struct sc_op_desc){.kind = s.kind, .root = s.root, .bytes = share};
    *place = (struct sc_op_place){.src = base, .dst = base};
    if (s.kind == SC_OP_ALL_GATHER)
        place->src = base + p->rank * share;
    else if (s.kind == SC_OP_REDUCE_SCATTER)
        place->dst = base + p->rank * share;
    if (s.kind != SC_OP_SEND)
        return true;
    if (p->rank == s.to) {
        desc->kind = SC_OP_RECV;
        desc->root = s.from;
    } else {
        desc->root = s.to;
    }
    return p->rank == s.from || p->rank == s.to;
}

uint64_t sc_payload_tag(const struct sc_payload *p) {
    return mix(mix(mix(p->seed, p->step), p->layer), 0x746167u);
}

static uint64_t value_base(const struct sc_payload *p, uint32_t rank) {
    return mix(mix(mix(mix(p->seed, p->epoch), p->step), p->layer), rank);
}

static uint16_t value(uint64_t base, uint32_t index) {
    uint64_t h = mix(base, index);
    if ((h >> 40 & 63) == 0)
        return (uint16_t)h; // anything at all
    // sign, exponent within 8 of one another, mantissa: sums that round in every way
    return (uint16_t)((h & 0x8000u) | (120u + (h >> 16 & 7u)) << 7 | (h >> 24 & 0x7fu));
}

void sc_payload_fill(const struct sc_payload *p, uint16_t *buffer) {
    uint64_t base = value_base(p, p->rank);
    for (uint32_t i = 0; i < p->world * p->elements; i++)
        buffer[i] = value(base, i);
}

struct expectation {
    struct shape shape;
    uint64_t bases[SC_WORLD_MAX];
};

// The documented order: ranks ascending, in single precision, rounded once.
static uint16_t sum(const struct sc_payload *p, const uint64_t *bases, uint32_t index) {
    if (p->world == 2)
        return sc_bf16_add(value(bases[0], index), value(bases[1], index));
    if (p->world == 1)
        return value(bases[0], index);
    float total = sc_bf16_to_float(value(bases[0], index));
    for (uint32_t r = 1; r < p->world; r++)
        total += sc_bf16_to_float(value(bases[r], index));
    return sc_bf16_from_float(total);
}

static uint16_t expected(const struct sc_payload *p, const struct expectation *e, uint32_t i) {
    const struct shape *s = &e->shape;
    uint16_t untouched = value(e->bases[p->rank], i);
    switch (s->kind) {
    case SC_OP_ALL_REDUCE: return i < s->count ? sum(p, e->bases, i) : untouched;
    case SC_OP_BROADCAST: return i < s->count ? value(e->bases[s->root], i) : untouched;
    case SC_OP_ALL_GATHER: // rank r contributed what lay at its share of its own buffer
        return i < s->count * p->world ? value(e->bases[i / s->count], i) : untouched;
    case SC_OP_REDUCE_SCATTER:
        return i / (s->count != 0 ? s->count : 1) == p->rank && i < s->count * p->world
                   ? sum(p, e->bases, i)
                   : untouched;
    case SC_OP_SEND:
    case SC_OP_RECV:
        return p->rank == s->to && i < s->count ? value(e->bases[s->from], i) : untouched;
    case SC_OP_KIND_COUNT: break;
    }
    return untouched;
}

bool sc_payload_check_result(const struct sc_payload *p, const uint16_t *buffer, uint64_t *digest,
                             char *why, size_t why_bytes) {
    struct expectation e = {.shape = shape_of(p)};
    for (uint32_t r = 0; r < p->world; r++)
        e.bases[r] = value_base(p, r);
    *digest = 0;
    for (uint32_t i = 0; i < p->world * p->elements; i++) {
        uint16_t want = expected(p, &e, i);
        *digest = mix(*digest, buffer[i]);
        if (buffer[i] == want)
            continue;
        snprintf(why, why_bytes, "%s of %u elements: element %u is %04x, must be %04x",
                 sc_op_kind_name(e.shape.kind), e.shape.count, i, buffer[i], want);
        return false;
    }
    return true;
}
