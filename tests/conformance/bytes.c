// SPDX-License-Identifier: AGPL-3.0-only
//
// What buffers are filled with, and what they must hold.
#include "tests/conformance/conf.h"

#include <stdlib.h>
#include <string.h>

uint16_t conf_whole(uint32_t number) {
    return sc_bf16_from_float((float)number);
}

uint16_t conf_counted(uint32_t rank, uint64_t index) {
    return conf_whole((uint32_t)((index * 5 + rank * 3) % 29));
}

uint16_t conf_counted_sum(uint32_t ranks, uint64_t index) {
    uint32_t sum = 0;
    for (uint32_t rank = 0; rank < ranks; rank++)
        sum += (uint32_t)((index * 5 + rank * 3) % 29);
    return conf_whole(sum);
}

static bool put_all(struct bench *b, uint16_t *device, uint64_t count, uint16_t value, bool up) {
    uint16_t *host = malloc(count * sizeof *host);
    TRUE(b, host != NULL);
    for (uint64_t i = 0; i < count; i++)
        host[i] = up ? conf_counted(b->rank, i) : value;
    sc_status status = b->w->put(b, device, host, count * sizeof *host);
    free(host);
    OK(b, status);
    return true;
}

bool conf_fill(struct bench *b, uint16_t *device, uint64_t count, uint16_t value) {
    return put_all(b, device, count, value, false);
}

bool conf_count_up(struct bench *b, uint16_t *device, uint64_t count) {
    return put_all(b, device, count, 0, true);
}

bool conf_holds(struct bench *b, const uint16_t *device, uint64_t count, uint16_t value) {
    uint16_t *host = malloc(count * sizeof *host);
    uint64_t at = 0;
    TRUE(b, host != NULL);
    sc_status status = b->w->get(b, host, device, count * sizeof *host);
    while (status == SC_OK && at < count && host[at] == value)
        at++;
    uint16_t found = status == SC_OK && at < count ? host[at] : value;
    free(host);
    OK(b, status);
    if (at < count)
        WRONG(b, "element %" PRIu64 " of %" PRIu64 " is %04X, expected %04X", at, count, found,
              value);
    return true;
}

uint16_t conf_peek(struct bench *b, const uint16_t *device) {
    uint16_t value = 0;
    if (!conf_answered(b, b->w->get(b, &value, device, sizeof value), SC_OK, "peek", __FILE__,
                       __LINE__))
        return 0;
    return value;
}

bool conf_works(struct bench *b) {
    uint16_t *buffer;
    DO(conf_buffer(b, 100, &buffer));
    DO(conf_fill(b, buffer, 100, conf_whole(3)));
    OK(b, sc_all_reduce(b->comm, b->epoch, buffer, 100 * SC_BF16_BYTES, SC_BF16, b->stream));
    DO(conf_sync(b));
    return conf_holds(b, buffer, 100, conf_whole(3 * b->ranks));
}
