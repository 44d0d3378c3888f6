// SPDX-License-Identifier: AGPL-3.0-only
//
// Memory of the library's, and buffers that communicators are told of.
#include "tests/conformance/conf.h"

#define ELEMENTS 40000u

static bool sums(struct bench *b, uint16_t *buffer) {
    DO(conf_fill(b, buffer, ELEMENTS, conf_whole(2)));
    OK(b, sc_all_reduce(b->comm, b->epoch, buffer, ELEMENTS * SC_BF16_BYTES, SC_BF16, b->stream));
    DO(conf_sync(b));
    return conf_holds(b, buffer, ELEMENTS, conf_whole(2 * b->ranks));
}

static bool own_memory(struct bench *b) {
    void *memory[4], *none;
    uint16_t *foreign;
    for (uint32_t i = 0; i < 4; i++) {
        OK(b, sc_mem_alloc(b->comm, ELEMENTS * SC_BF16_BYTES, &memory[i]));
        EQUAL(b, (uintptr_t)memory[i] % 16, 0);
        DO(sums(b, memory[i]));
    }
    OK(b, sc_mem_free(b->comm, memory[0]));
    IS(b, sc_mem_free(b->comm, memory[0]), SC_INVALID);
    IS(b, sc_mem_free(b->comm, NULL), SC_INVALID);
    IS(b, sc_mem_alloc(b->comm, 0, &none), SC_INVALID);
    IS(b, sc_mem_alloc(b->comm, 64, NULL), SC_INVALID);
    DO(conf_buffer(b, 64, &foreign));
    IS(b, sc_mem_free(b->comm, foreign), SC_INVALID);
    DO(sums(b, memory[1]));
    for (uint32_t i = 1; i < 3; i++) // the last one is left to sc_close
        OK(b, sc_mem_free(b->comm, memory[i]));
    return sums(b, memory[3]);
}

static bool more_than_there_is(struct bench *b) {
    void *memory;
    IS(b, sc_mem_alloc(b->comm, UINT64_C(1) << 50, &memory), SC_NO_MEMORY);
    return conf_works(b);
}

// In this epoch and, registered anew, in the next.
static bool registered(struct bench *b) {
    uint16_t *first, *second;
    void *own;
    DO(conf_buffer(b, ELEMENTS, &first));
    DO(conf_buffer(b, ELEMENTS, &second));
    OK(b, sc_mem_alloc(b->comm, ELEMENTS * SC_BF16_BYTES, &own));
    OK(b, sc_buffer_register(b->comm, first, ELEMENTS * SC_BF16_BYTES));
    OK(b, sc_buffer_register(b->comm, second, ELEMENTS * SC_BF16_BYTES));
    OK(b, sc_buffer_register(b->comm, own, ELEMENTS * SC_BF16_BYTES));
    DO(sums(b, first) && sums(b, second) && sums(b, own));
    OK(b, sc_buffer_deregister(b->comm, second));
    IS(b, sc_buffer_deregister(b->comm, second), SC_INVALID);
    DO(sums(b, second));
    DO(conf_meet(b));
    OK(b, sc_reconnect(b->comm, b->epoch, 3));
    DO(conf_renew(b));
    DO(sums(b, first) && sums(b, second) && sums(b, own));
    OK(b, sc_buffer_deregister(b->comm, first));
    OK(b, sc_buffer_deregister(b->comm, own));
    IS(b, sc_buffer_register(b->comm, NULL, 64), SC_INVALID);
    IS(b, sc_buffer_register(b->comm, first, 0), SC_INVALID);
    OK(b, sc_mem_free(b->comm, own));
    return sums(b, first);
}

const struct conf_test conf_memory[] = {
    {.name = "memory_of_the_library_serves_ops_until_it_is_freed", .run = own_memory},
    {.name = "memory_that_is_not_there_is_refused", .run = more_than_there_is, .flags = CONF_CUDA},
    {.name = "registered_buffers_outlive_their_epoch", .run = registered},
    {0},
};
