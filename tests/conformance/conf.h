// SPDX-License-Identifier: AGPL-3.0-only
//
// What tests are written with: checks that end a test, and the lists of tests.
//
// A test is a function that returns whether all was well; so does whatever it is made of. The checks
// return false from the function that they stand in.
#ifndef SC_CONFORMANCE_CONF_H
#define SC_CONFORMANCE_CONF_H

#include "tests/conformance/world.h"

#include "kernels/bf16.h"

#include <inttypes.h>

// Noted: what is wrong, and where. Always false. A killed process has nothing to say.
bool conf_wrong(struct bench *b, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
// Whether a call answered as it should.
bool conf_answered(struct bench *b, sc_status answer, sc_status wanted, const char *call,
                   const char *file, int line);

#define WRONG(b, ...) return conf_wrong((b), __FILE__, __LINE__, __VA_ARGS__)
#define IS(b, call, wanted)                                                                        \
    do {                                                                                           \
        if (!conf_answered((b), (call), (wanted), #call, __FILE__, __LINE__))                      \
            return false;                                                                          \
    } while (0)
#define OK(b, call) IS(b, call, SC_OK)
#define TRUE(b, condition)                                                                         \
    do {                                                                                           \
        if (!(condition))                                                                          \
            WRONG((b), "not so: %s", #condition);                                                  \
    } while (0)
#define EQUAL(b, one, other)                                                                       \
    do {                                                                                           \
        uint64_t one_ = (uint64_t)(one), other_ = (uint64_t)(other);                               \
        if (one_ != other_)                                                                        \
            WRONG((b), "%s is %" PRIu64 ", expected %s, %" PRIu64, #one, one_, #other, other_);    \
    } while (0)
#define DO(call)                                                                                   \
    do {                                                                                           \
        if (!(call))                                                                               \
            return false;                                                                          \
    } while (0)

#define CONF_CAPACITY (UINT64_C(4) << 20)

// Longer where everything takes longer.
static inline uint64_t conf_ms(const struct bench *b, uint64_t ms) {
    return ms * CONF_MS * b->scale;
}
// How long a call may take that ends by itself.
static inline uint64_t conf_limit(const struct bench *b) {
    return 20 * CONF_SECOND * b->scale;
}

// ---- what many tests do: session.c, and bytes.c ------------------------------------------------

void conf_config(struct bench *b, struct sc_config *config); // as every handle is opened
bool conf_open(struct bench *b, uint32_t flags);
bool conf_close(struct bench *b, enum sc_close_how how);
// Waits for an epoch later than b->epoch, and makes it that.
bool conf_renew(struct bench *b);
// Waits until the epoch is lost, by an AGREED sync.
bool conf_lost(struct bench *b);
bool conf_mark(struct bench *b, uint64_t mark);
bool conf_meet(struct bench *b);
// The word that rank 0 brings, and whether all bring the same one.
bool conf_tell(struct bench *b, uint64_t *words, uint32_t count);
bool conf_alike(struct bench *b, uint64_t word);
bool conf_health(struct bench *b, struct sc_health_report *out);
// Waits until health says so of this rank's state.
bool conf_await_state(struct bench *b, enum sc_state state);

bool conf_buffer(struct bench *b, uint64_t count, uint16_t **buffer);
bool conf_stream(struct bench *b, void **stream);
// Elements of BF16 that are `value`, or that are small whole numbers which depend on rank and index.
bool conf_fill(struct bench *b, uint16_t *device, uint64_t count, uint16_t value);
bool conf_count_up(struct bench *b, uint16_t *device, uint64_t count);
// What conf_count_up puts there on one rank, and what all ranks' add up to: whole numbers below 256.
uint16_t conf_counted(uint32_t rank, uint64_t index);
uint16_t conf_counted_sum(uint32_t ranks, uint64_t index);
uint16_t conf_whole(uint32_t number); // up to 256, as BF16
// Whether [device, device + count) holds `value`.
bool conf_holds(struct bench *b, const uint16_t *device, uint64_t count, uint16_t value);
uint16_t conf_peek(struct bench *b, const uint16_t *device);
// An all_reduce in this epoch that gives the right sums, on the usual stream.
bool conf_works(struct bench *b);
bool conf_sync(struct bench *b);

extern const struct conf_test conf_ops[], conf_values[], conf_overlap[], conf_groups[],
    conf_captures[], conf_sync_tests[], conf_hosts[], conf_memory[], conf_streams[],
    conf_recovery[], conf_loss[], conf_closing[], conf_quiet[], conf_words[], conf_contexts[],
    conf_seam[], conf_seam_ops[];

#endif
