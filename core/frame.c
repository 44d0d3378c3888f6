// SPDX-License-Identifier: AGPL-3.0-only
//
// The frame codec: one walk over the fields of a kind serves both directions.
#include "core/frame.h"

#include "core/assert.h"
#include "core/crc32c.h"

#include <stdbool.h>
#include <string.h>

#define MAGIC 0x4d4f4353u // "SCOM" on the wire

const char *sc_frame_kind_name(enum sc_frame_kind kind) {
    static const char *const names[SC_FRAME_KIND_COUNT] = {
#define SC_FRAME_NAME(name) #name,
        SC_FRAME_KINDS(SC_FRAME_NAME)
#undef SC_FRAME_NAME
    };
    return (unsigned)kind < SC_FRAME_KIND_COUNT ? names[kind] : "UNKNOWN";
}

// Reads or writes at `at`; a step past `end` or out of bounds sets `why` and stops all later ones.
struct cursor {
    uint8_t *at;
    uint8_t *end;
    const char *why;
    bool writing;
};

static bool step(struct cursor *c, size_t bytes) {
    if (c->why == NULL && (size_t)(c->end - c->at) < bytes)
        c->why = "payload too short";
    return c->why == NULL;
}

static void raw(struct cursor *c, uint8_t *field, size_t bytes) {
    if (!step(c, bytes))
        return;
    if (c->writing)
        memcpy(c->at, field, bytes);
    else
        memcpy(field, c->at, bytes);
    c->at += bytes;
}

static void number(struct cursor *c, uint64_t *field, size_t bytes) {
    if (!step(c, bytes))
        return;
    if (c->writing) {
        for (size_t i = 0; i < bytes; i++)
            c->at[i] = (uint8_t)(*field >> (8 * i));
    } else {
        *field = 0;
        for (size_t i = 0; i < bytes; i++)
            *field |= (uint64_t)c->at[i] << (8 * i);
    }
    c->at += bytes;
}

static void u64(struct cursor *c, uint64_t *field) {
    number(c, field, 8);
}

static void u32(struct cursor *c, uint32_t *field, uint32_t max, const char *why) {
    uint64_t wide = *field;
    number(c, &wide, 4);
    if (c->why == NULL && wide > max)
        c->why = why;
    if (!c->writing)
        *field = (uint32_t)wide;
}

// Fields that do not travel.
static void absent(struct cursor *c, uint32_t *field) {
    if (!c->writing)
        *field = 0;
}

static void rank_or_none(struct cursor *c, uint32_t *rank) {
    u32(c, rank, UINT32_MAX, "");
    if (c->why == NULL && *rank >= SC_WORLD_MAX && *rank != SC_RANK_NONE)
        c->why = "rank out of range";
}

static void desc(struct cursor *c, struct sc_op_desc *op) {
    u32(c, &op->kind, SC_OP_KIND_COUNT - 1, "op kind out of range");
    u32(c, &op->root, SC_WORLD_MAX - 1, "root out of range");
    u64(c, &op->bytes);
}

static void cause(struct cursor *c, struct sc_cause *cause_) {
    u32(c, &cause_->code, SC_STATUS_COUNT - 1, "cause code out of range");
    rank_or_none(c, &cause_->suspect);
    u64(c, &cause_->seq);
    u64(c, &cause_->value[0]);
    u64(c, &cause_->value[1]);
    desc(c, &cause_->op[0]);
    desc(c, &cause_->op[1]);
    u32(c, &cause_->field, SC_FIELD_COUNT - 1, "config field out of range");
    absent(c, &cause_->reserved);
}

static void hello(struct cursor *c, struct sc_hello *h) {
    raw(c, h->nonce, sizeof h->nonce);
    u32(c, &h->protocol, UINT32_MAX, "");
    u64(c, &h->job);
    u64(c, &h->incarnation);
    u64(c, &h->number);
    u64(c, &h->seen_epoch);
    u64(c, &h->ready_epoch);
    u64(c, &h->submitted);
    u64(c, &h->completed);
    u64(c, &h->mark);
    u64(c, &h->capacity_bytes);
    u32(c, &h->rank, UINT32_MAX, "");
    u32(c, &h->world, UINT32_MAX, "");
    u32(c, &h->library, UINT32_MAX, "");
    u32(c, &h->lanes, UINT32_MAX, "");
    u32(c, &h->able, 1, "able is neither 0 nor 1");
}

static void timing(struct cursor *c, struct sc_timing *t) {
    u64(c, &t->heartbeat_ns);
    u64(c, &t->silence_ns);
    u64(c, &t->op_ns);
    u64(c, &t->behind_ns);
    u64(c, &t->init_ns);
    u64(c, &t->abort_ns);
}

static void rank_record(struct cursor *c, struct sc_rank_record *r) {
    u64(c, &r->incarnation);
    u64(c, &r->ready_epoch);
    u64(c, &r->submitted);
    u64(c, &r->completed);
    u64(c, &r->mark);
    absent(c, &r->fresh); // each reader's own judgement
    absent(c, &r->reserved);
}

static void offer(struct cursor *c, struct sc_offer *o) {
    cause(c, &o->cause);
    u64(c, &o->phases.detect_ns);
    u64(c, &o->phases.agree_ns);
    u64(c, &o->phases.abort_ns);
    u64(c, &o->phases.wait_ns);
    if (!c->writing)
        o->phases.form_ns = o->phases.warmup_ns = 0;
    u32(c, &o->lane, UINT32_MAX, "");
    u32(c, &o->world, SC_WORLD_MAX, "world out of range");
    raw(c, o->id, sizeof o->id);
    for (uint32_t i = 0; c->why == NULL && i < o->world; i++)
        rank_record(c, &o->ranks[i]);
}

static void ping(struct cursor *c, struct sc_ping *p) {
    u64(c, &p->submitted);
    u64(c, &p->started);
    u64(c, &p->completed);
    u64(c, &p->digest);
    u64(c, &p->want);
    u64(c, &p->agreed);
    u64(c, &p->all_started);
    u64(c, &p->mark);
    u64(c, &p->barrier);
    u64(c, &p->taken);
    u32(c, &p->pair.from, SC_WORLD_MAX - 1, "rank out of range");
    u32(c, &p->pair.to, SC_WORLD_MAX - 1, "rank out of range");
    u64(c, &p->pair.count);
    rank_or_none(c, &p->laggard);
    u32(c, &p->state, SC_STATE_COUNT - 1, "state out of range");
    u32(c, &p->loading, 1, "loading is neither 0 nor 1");
    if (c->why == NULL && (p->started > p->submitted || p->completed > p->started))
        c->why = "counters out of order";
}

static void describe(struct cursor *c, struct sc_describe *d) {
    u64(c, &d->first);
    u32(c, &d->count, SC_DESCRIBE_MAX, "too many descriptions");
    absent(c, &d->reserved);
    for (uint32_t i = 0; c->why == NULL && i < d->count; i++)
        desc(c, &d->op[i]);
}

static void command(struct cursor *c, struct sc_frame *f) {
    u32(c, &f->u.command.bytes, SC_COMMAND_MAX_BYTES, "command too long");
    absent(c, &f->u.command.reserved);
    if (!step(c, f->u.command.bytes))
        return;
    if (c->writing)
        memcpy(c->at, f->u.command.data, f->u.command.bytes);
    else
        f->u.command.data = c->at;
    c->at += f->u.command.bytes;
}

static void payload(struct cursor *c, struct sc_frame *f) {
    u64(c, &f->epoch);
    switch ((enum sc_frame_kind)f->kind) {
    case SC_FRAME_CHALLENGE: raw(c, f->u.nonce, sizeof f->u.nonce); break;
    case SC_FRAME_HELLO: hello(c, &f->u.hello); break;
    case SC_FRAME_WELCOME:
        u64(c, &f->u.welcome.incarnation);
        timing(c, &f->u.welcome.timing);
        break;
    case SC_FRAME_REFUSE:
    case SC_FRAME_ABORT:
    case SC_FRAME_BYE:
        cause(c, &f->u.cause);
        if (c->why == NULL && f->u.cause.code == SC_OK)
            c->why = "no cause given";
        break;
    case SC_FRAME_OFFER: offer(c, &f->u.offer); break;
    case SC_FRAME_PING: ping(c, &f->u.ping); break;
    case SC_FRAME_QUERY: u64(c, &f->u.first); break;
    case SC_FRAME_DESCRIBE: describe(c, &f->u.describe); break;
    case SC_FRAME_COMMAND: command(c, f); break;
    case SC_FRAME_JOINED:
    case SC_FRAME_GO:
    case SC_FRAME_KIND_COUNT: break;
    }
}

static void put32(uint8_t *at, uint32_t value) {
    for (size_t i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

static uint32_t get32(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint32_t checksum(const uint8_t *data, size_t bytes) {
    uint32_t crc = sc_crc32c(0, data, 12);
    return sc_crc32c(crc, data + SC_FRAME_HEADER_BYTES, bytes - SC_FRAME_HEADER_BYTES);
}

size_t sc_frame_encode(const struct sc_frame *frame, uint8_t *out, size_t capacity) {
    SC_ASSERT(capacity >= SC_FRAME_HEADER_BYTES && frame->kind < SC_FRAME_KIND_COUNT);
    struct cursor c = {out + SC_FRAME_HEADER_BYTES, out + capacity, NULL, true};
    // Writing only reads the fields; the cast spares a copy of a frame of several KiB.
    payload(&c, (struct sc_frame *)(uintptr_t)frame);
    SC_ASSERT(c.why == NULL);
    size_t bytes = (size_t)(c.at - out);
    put32(out, MAGIC);
    out[4] = SC_FRAME_FORMAT;
    out[5] = (uint8_t)frame->kind;
    out[6] = out[7] = 0;
    put32(out + 8, (uint32_t)(bytes - SC_FRAME_HEADER_BYTES));
    put32(out + 12, checksum(out, bytes));
    return bytes;
}

// A wrong first byte is told at once, without waiting for a whole header from a stranger.
static const char *header_fault(const uint8_t *data, size_t bytes) {
    uint8_t magic[4];
    put32(magic, MAGIC);
    if (memcmp(data, magic, bytes < 4 ? bytes : 4) != 0)
        return "not this protocol";
    if (bytes > 4 && data[4] != SC_FRAME_FORMAT)
        return "another frame format";
    if (bytes > 5 && data[5] >= SC_FRAME_KIND_COUNT)
        return "unknown kind of frame";
    if (bytes > 7 && (data[6] | data[7]) != 0)
        return "reserved bytes are not zero";
    return NULL;
}

sc_status sc_frame_decode(const uint8_t *data, size_t bytes, size_t limit, struct sc_frame *frame,
                          size_t *used, const char **why) {
    *why = header_fault(data, bytes);
    if (*why != NULL)
        return SC_PROTOCOL;
    if (bytes < SC_FRAME_HEADER_BYTES)
        return SC_INPROGRESS;
    size_t total = SC_FRAME_HEADER_BYTES + (size_t)get32(data + 8);
    if (total > limit) {
        *why = "frame too long";
        return SC_PROTOCOL;
    }
    if (bytes < total)
        return SC_INPROGRESS;
    if (get32(data + 12) != checksum(data, total)) {
        *why = "checksum differs";
        return SC_PROTOCOL;
    }
    frame->kind = data[5];
    // Reading only writes the frame; the cursor's type serves both directions.
    uint8_t *from = (uint8_t *)(uintptr_t)data;
    struct cursor c = {from + SC_FRAME_HEADER_BYTES, from + total, NULL, false};
    payload(&c, frame);
    if (c.why == NULL && c.at != c.end)
        c.why = "payload too long";
    *why = c.why;
    *used = total;
    return c.why == NULL ? SC_OK : SC_PROTOCOL;
}
