// SPDX-License-Identifier: AGPL-3.0-only
//
// Two rings behind one header: entries by number, descriptions by seq.
#include "core/ledger.h"

#include "core/assert.h"

#include <string.h>

#define NO_STREAM SC_STREAMS_MAX

static struct sc_ledger_entry *entries(const struct sc_ledger *l) {
    return (struct sc_ledger_entry *)(uintptr_t)(l + 1);
}

static struct sc_ledger_seq *seqs(const struct sc_ledger *l) {
    return (struct sc_ledger_seq *)(entries(l) + l->capacity);
}

static struct sc_ledger_entry *entry_at(const struct sc_ledger *l, uint64_t number) {
    return &entries(l)[number % l->capacity];
}

size_t sc_ledger_bytes(uint32_t capacity) {
    return sizeof(struct sc_ledger) +
           capacity * (sizeof(struct sc_ledger_entry) + sizeof(struct sc_ledger_seq));
}

void sc_ledger_init(struct sc_ledger *l, uint32_t capacity) {
    l->capacity = capacity;
    sc_ledger_reset(l);
}

void sc_ledger_reset(struct sc_ledger *l) {
    uint32_t capacity = l->capacity;
    memset(l, 0, sizeof *l);
    l->capacity = capacity;
    l->next_number = l->oldest_number = 1;
}

// The slot of a stream, or a vacant one for it, or NO_STREAM when all are taken.
static uint32_t stream_slot(const struct sc_ledger *l, uint64_t stream) {
    if (l->streams_used != 0 && l->streams[l->stream_newest].stream == stream)
        return l->stream_newest; // nearly always; no other slot can be this stream's
    uint32_t vacant = l->streams_used < SC_STREAMS_MAX ? l->streams_used : NO_STREAM;
    for (uint32_t i = 0; i < l->streams_used; i++) {
        if (l->streams[i].oldest == 0)
            vacant = vacant >= l->streams_used ? i : vacant;
        else if (l->streams[i].stream == stream)
            return i;
    }
    return vacant;
}

sc_status sc_ledger_room(const struct sc_ledger *l, uint64_t stream, uint32_t count) {
    if (count > l->capacity)
        return SC_TOO_LARGE;
    if (l->next_number - l->oldest_number >= l->capacity || l->seqs_in_flight + count > l->capacity)
        return SC_BUSY;
    if (stream != SC_STREAM_NONE && stream_slot(l, stream) == NO_STREAM)
        return SC_BUSY;
    return SC_OK;
}

struct sc_ledger_entry *sc_ledger_push(struct sc_ledger *l, uint64_t stream,
                                       const struct sc_op_desc *list, uint32_t count) {
    uint64_t number = l->next_number++;
    struct sc_ledger_entry *entry = entry_at(l, number);
    uint32_t slot = stream == SC_STREAM_NONE ? NO_STREAM : stream_slot(l, stream);
    *entry = (struct sc_ledger_entry){.number = number, .stream = (uint16_t)slot};
    entry->kind = list[0].kind;
    entry->peer = list[0].root;
    for (uint32_t i = 0; i < count; i++) {
        if (!sc_op_is_collective(list[i].kind)) {
            bool sends = list[i].kind == SC_OP_SEND;
            uint64_t pairs = ++(sends ? l->sends : l->recvs)[list[i].root];
            entry->pair_count = i == 0 ? pairs : entry->pair_count;
            continue;
        }
        l->digest = sc_digest_next(l->digest, &list[i]);
        uint64_t seq = ++l->submitted_seq;
        seqs(l)[seq % l->capacity] = (struct sc_ledger_seq){list[i], l->digest};
        if (entry->seqs++ == 0)
            entry->first_seq = seq;
    }
    l->seqs_in_flight += entry->seqs;
    if (stream == SC_STREAM_NONE)
        return entry;
    SC_ASSERT(slot != NO_STREAM);
    l->stream_newest = slot;
    l->streams_used += slot == l->streams_used;
    struct sc_ledger_stream *s = &l->streams[slot];
    if (s->oldest == 0)
        *s = (struct sc_ledger_stream){stream, number, number};
    else
        s->newest = entry_at(l, s->newest)->next = number;
    return entry;
}

struct sc_ledger_entry *sc_ledger_find(struct sc_ledger *l, uint64_t number) {
    if (number < l->oldest_number || number >= l->next_number)
        return NULL;
    return entry_at(l, number);
}

const struct sc_ledger_entry *sc_ledger_at(const struct sc_ledger *l, uint64_t number) {
    SC_ASSERT(number >= l->oldest_number && number < l->next_number);
    return entry_at(l, number);
}

void sc_ledger_start(struct sc_ledger *l, struct sc_ledger_entry *entry) {
    entry->started = 1;
    // Whatever has left the ring had started, so that started_number >= oldest_number - 1.
    while (l->started_number + 1 < l->next_number) {
        const struct sc_ledger_entry *next = entry_at(l, l->started_number + 1);
        if (!next->started)
            return;
        l->started_number++;
        l->started_seq += next->seqs;
    }
}

// Usually the oldest leaves. One that could not be launched leaves from behind the others.
static void leave_stream(struct sc_ledger *l, const struct sc_ledger_entry *entry) {
    if (entry->stream == NO_STREAM)
        return;
    struct sc_ledger_stream *s = &l->streams[entry->stream];
    uint64_t *link = &s->oldest;
    uint64_t before = 0;
    while (*link != entry->number) {
        SC_ASSERT(*link != 0);
        before = *link;
        link = &entry_at(l, before)->next;
    }
    *link = entry->next;
    if (s->newest == entry->number)
        s->newest = before;
}

void sc_ledger_finish(struct sc_ledger *l, struct sc_ledger_entry *entry) {
    SC_ASSERT(!entry->done);
    sc_ledger_start(l, entry);
    entry->done = 1;
    leave_stream(l, entry);
    while (!sc_ledger_empty(l) && entry_at(l, l->oldest_number)->done) {
        const struct sc_ledger_entry *oldest = entry_at(l, l->oldest_number);
        l->completed_seq += oldest->seqs;
        l->seqs_in_flight -= oldest->seqs;
        l->oldest_number++;
    }
}

bool sc_ledger_waits(const struct sc_ledger *l) {
    return !sc_ledger_empty(l) && !entry_at(l, l->oldest_number)->started;
}

const struct sc_ledger_entry *sc_ledger_oldest(const struct sc_ledger *l) {
    return sc_ledger_empty(l) ? NULL : entry_at(l, l->oldest_number);
}

struct sc_pair sc_ledger_pair(const struct sc_ledger *l, uint32_t own_rank) {
    const struct sc_ledger_entry *oldest = sc_ledger_oldest(l);
    if (oldest == NULL || !oldest->started || oldest->seqs != 0)
        return (struct sc_pair){0};
    bool sends = oldest->kind == SC_OP_SEND;
    return (struct sc_pair){.from = sends ? own_rank : oldest->peer,
                            .to = sends ? oldest->peer : own_rank,
                            .count = oldest->pair_count};
}

const struct sc_ledger_seq *sc_ledger_seq(const struct sc_ledger *l, uint64_t seq) {
    if (seq == 0 || seq > l->submitted_seq || seq + l->capacity <= l->submitted_seq)
        return NULL;
    return &seqs(l)[seq % l->capacity];
}

uint64_t sc_digest_next(uint64_t digest, const struct sc_op_desc *desc) {
    // Odd multipliers and shifts of splitmix64: every input bit reaches every output bit.
    uint64_t h = digest + 0x9e3779b97f4a7c15u;
    h = (h ^ ((uint64_t)desc->kind << 32 | desc->root)) * 0xbf58476d1ce4e5b9u;
    h = (h ^ (h >> 29) ^ desc->bytes) * 0x94d049bb133111ebu;
    return h ^ (h >> 31);
}
