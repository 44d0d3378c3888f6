// SPDX-License-Identifier: AGPL-3.0-only
//
// Bytes from rank to rank. Each chunk says how long its message is: a recv that is shorter takes the
// whole message and keeps what it has room for; a longer one waits for ever for what nobody sends.
// Whatever the ranks do, nobody writes where it was not told to.
#include "tests/pretend/nccl_inside.h"

#include <sched.h>
#include <string.h>
#include <time.h>

#define LOOKS 64u // in vain, before it sleeps between them

void pretend_rest(uint32_t *looks) {
    const struct timespec moment = {.tv_nsec = 10000};
    if (++*looks <= LOOKS)
        (void)sched_yield();
    else
        (void)nanosleep(&moment, NULL);
}

static uint64_t smaller(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static bool is_done(const struct pretend_transfer *t) {
    if (t->from != NULL)
        return t->passed == t->bytes;
    return t->message_bytes >= t->bytes && t->passed == t->message_bytes;
}

static struct pretend_box *box_of(const struct ncclComm *comm, uint32_t from, uint32_t to) {
    return &comm->area->boxes[from * comm->world + to];
}

static uint32_t slot_with(struct pretend_box *box, uint64_t holds) {
    uint32_t slot = 0;
    while (slot < PRETEND_SLOTS &&
           atomic_load_explicit(&box->holds[slot], memory_order_acquire) != holds)
        slot++;
    return slot;
}

static bool push(struct ncclComm *comm, struct pretend_transfer *t) {
    struct pretend_box *box = box_of(comm, comm->rank, t->peer);
    uint32_t slot = slot_with(box, 0);
    if (slot == PRETEND_SLOTS)
        return false;
    uint64_t bytes = smaller(t->bytes - t->passed, PRETEND_SLOT_BYTES);
    memcpy(box->data[slot], t->from + t->passed, bytes);
    box->bytes[slot] = t->bytes;
    t->passed += bytes;
    atomic_store_explicit(&box->holds[slot], ++comm->peers[t->peer].sent, memory_order_release);
    return true;
}

static bool pull(struct ncclComm *comm, struct pretend_transfer *t) {
    struct pretend_box *box = box_of(comm, t->peer, comm->rank);
    if (t->message_bytes != 0 && t->passed == t->message_bytes)
        return false; // the message was too short
    uint32_t slot = slot_with(box, comm->peers[t->peer].taken + 1);
    if (slot == PRETEND_SLOTS)
        return false;
    t->message_bytes = box->bytes[slot];
    uint64_t bytes = smaller(t->message_bytes - t->passed, PRETEND_SLOT_BYTES);
    if (t->passed < t->bytes)
        memcpy(t->to + t->passed, box->data[slot], smaller(bytes, t->bytes - t->passed));
    t->passed += bytes;
    comm->peers[t->peer].taken++;
    atomic_store_explicit(&box->holds[slot], 0, memory_order_release);
    return true;
}

// Whether another one, of the same peer and direction, comes first.
static bool waits(const struct pretend_transfer *transfers, uint32_t index) {
    const struct pretend_transfer *t = &transfers[index];
    for (uint32_t i = 0; i < index; i++)
        if (transfers[i].peer == t->peer && (transfers[i].from != NULL) == (t->from != NULL) &&
            !is_done(&transfers[i]))
            return true;
    return false;
}

bool pretend_exchange(struct ncclComm *comm, struct pretend_transfer *transfers, uint32_t count) {
    uint32_t looks = 0;
    for (;;) {
        bool left = false, moved = false;
        if (atomic_load(&comm->aborted))
            return false;
        for (uint32_t i = 0; i < count; i++) {
            struct pretend_transfer *t = &transfers[i];
            if (is_done(t))
                continue;
            left = true;
            if (!waits(transfers, i))
                moved |= t->from != NULL ? push(comm, t) : pull(comm, t);
        }
        if (!left)
            return true;
        if (moved)
            looks = 0;
        else
            pretend_rest(&looks);
    }
}
