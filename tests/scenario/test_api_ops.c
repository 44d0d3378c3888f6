// SPDX-License-Identifier: AGPL-3.0-only
//
// Ops through the public calls: what each kind does to the bit, in worlds of 1 to 4, and how a wrong
// one is refused.
#include "tests/support/api_run.h"

#define ELEMENTS 96u
#define BYTES (ELEMENTS * 2u)

// Of rank `r` at element `i`: small enough that every sum of four is exact.
static uint32_t value_of(uint32_t r, uint32_t i) {
    return (r + 1) * (1 + i % 7);
}

static uint32_t sum_of(uint32_t world, uint32_t i) {
    uint32_t sum = 0;
    for (uint32_t r = 0; r < world; r++)
        sum += value_of(r, i);
    return sum;
}

static uint16_t *own_values(struct api_rank *me, uint32_t elements) {
    uint16_t *buffer = api_buffer(me, elements, 0), *m = api_memory(me, buffer, elements * 2);
    for (uint32_t i = 0; i < elements; i++)
        m[i] = api_bf16(value_of(me->rank, i));
    return buffer;
}

static void synced(struct api_rank *me) {
    DO(me, sc_sync(me->comm, me->epoch, me->stream, SC_SYNC_AGREED, 10 * SECOND));
}

// ---- what they do ------------------------------------------------------------------------------

static void reduces(struct api_rank *me) {
    uint16_t *b = own_values(me, ELEMENTS);
    DO(me, sc_all_reduce(me->comm, me->epoch, b, BYTES, SC_BF16, me->stream));
    synced(me);
    const uint16_t *m = api_memory(me, b, BYTES);
    for (uint32_t i = 0; i < ELEMENTS; i++)
        EQUAL(me, m[i], api_bf16(sum_of(me->world, i)));
}

static void broadcasts(struct api_rank *me) {
    for (uint32_t root = 0; root < me->world; root++) {
        uint16_t *b = own_values(me, ELEMENTS);
        DO(me, sc_broadcast(me->comm, me->epoch, b, BYTES, root, me->stream));
        synced(me);
        const uint16_t *m = api_memory(me, b, BYTES);
        for (uint32_t i = 0; i < ELEMENTS; i++)
            EQUAL(me, m[i], api_bf16(value_of(root, i)));
    }
}

static void gathers(struct api_rank *me) {
    uint16_t *src = own_values(me, ELEMENTS), *dst = api_buffer(me, ELEMENTS * me->world, 0);
    DO(me, sc_all_gather(me->comm, me->epoch, src, dst, BYTES, me->stream));
    synced(me);
    const uint16_t *m = api_memory(me, dst, BYTES * me->world);
    for (uint32_t i = 0; i < ELEMENTS * me->world; i++)
        EQUAL(me, m[i], api_bf16(value_of(i / ELEMENTS, i % ELEMENTS)));
}

static void scatters(struct api_rank *me) {
    uint16_t *src = own_values(me, ELEMENTS * me->world), *dst = api_buffer(me, ELEMENTS, 0);
    DO(me, sc_reduce_scatter(me->comm, me->epoch, src, dst, BYTES, SC_BF16, me->stream));
    synced(me);
    const uint16_t *m = api_memory(me, dst, BYTES);
    for (uint32_t i = 0; i < ELEMENTS; i++)
        EQUAL(me, m[i], api_bf16(sum_of(me->world, me->rank * ELEMENTS + i)));
}

// From each rank to the next, one pair after the other.
static void passes_on(struct api_rank *me) {
    uint64_t before = api_health(me).submitted;
    uint16_t *out = own_values(me, ELEMENTS), *in = api_buffer(me, ELEMENTS, 0);
    uint32_t next = (me->rank + 1) % me->world, last = (me->rank + me->world - 1) % me->world;
    for (uint32_t from = 0; me->world > 1 && from < me->world; from++) {
        if (from == me->rank)
            DO(me, sc_send(me->comm, me->epoch, out, BYTES, next, me->stream));
        if (from == last)
            DO(me, sc_recv(me->comm, me->epoch, in, BYTES, last, me->stream));
    }
    synced(me);
    const uint16_t *m = api_memory(me, in, BYTES);
    for (uint32_t i = 0; me->world > 1 && i < ELEMENTS; i++)
        EQUAL(me, m[i], api_bf16(value_of(last, i)));
    EQUAL(me, api_health(me).submitted, before);
}

static void does_every_kind(struct api_rank *me) {
    api_begin(me);
    reduces(me);
    broadcasts(me);
    gathers(me);
    scatters(me);
    passes_on(me);
    uint16_t *b = own_values(me, ELEMENTS);
    DO(me, sc_all_reduce_async(me->comm, me->epoch, b, BYTES, SC_BF16, me->stream));
    synced(me);
    EQUAL(me, api_memory(me, b, BYTES)[5], api_bf16(sum_of(me->world, 5)));
    api_sleep(me, SECOND / 5); // the picture is a heartbeat old at most
    EQUAL(me, api_health(me).submitted, 4 + me->world);
    EQUAL(me, api_health(me).completed, 4 + me->world);
    api_leave(me);
}

static void every_kind_is_exact_to_the_bit_in_worlds_of_1_to_4(void **state) {
    static const char *const plans[] = {"ranks 1", "ranks 2", "ranks 3", "ranks 4"};
    (void)state;
    for (uint32_t i = 0; i < 4; i++)
        api_play(plans[i], does_every_kind);
}

static const uint16_t sums[][3] = {
    {0x3f80, 0x3b80, 0x3f80}, {0x3f81, 0x3b80, 0x3f82}, {0x7f7f, 0x7b00, 0x7f80},
    {0x7f7f, 0x7aff, 0x7f7f}, {0x0001, 0x0001, 0x0002}, {0x8000, 0x8000, 0x8000},
    {0x7fc1, 0x7fd2, 0x7fff}, {0x7f80, 0xff80, 0x7fff}, {0x0000, 0x8000, 0x0000},
};
#define SUMS (sizeof sums / sizeof sums[0])

static void reduces_odd_values(struct api_rank *me) {
    api_begin(me);
    uint16_t *b = api_buffer(me, SUMS, 0), *m = api_memory(me, b, SUMS * 2);
    for (uint32_t i = 0; i < SUMS; i++)
        m[i] = sums[i][me->rank];
    DO(me, sc_all_reduce(me->comm, me->epoch, b, SUMS * 2, SC_BF16, me->stream));
    synced(me);
    for (uint32_t i = 0; i < SUMS; i++)
        EQUAL(me, m[i], sums[i][2]);
    api_leave(me);
}

static void sums_are_rounded_to_even_and_every_nan_is_7fff_c6(void **state) {
    (void)state;
    api_play("ranks 2", reduces_odd_values);
}

static void is_alone(struct api_rank *me) {
    struct sc_config config = api_config(me);
    config.master_host = NULL;
    config.master_port = 0;
    api_open(me, &config);
    api_ready(me);
    uint16_t *b = api_buffer(me, ELEMENTS, 3);
    DO(me, sc_all_reduce(me->comm, me->epoch, b, BYTES, SC_BF16, me->stream));
    DO(me, sc_broadcast(me->comm, me->epoch, b, BYTES, 0, me->stream));
    synced(me);
    HOLDS(me, b, ELEMENTS, 3);
    EXPECT(me, sc_send(me->comm, me->epoch, b, BYTES, 0, me->stream), SC_INVALID);
    DO(me, sc_reconnect(me->comm, me->epoch, 0));
    api_ready(me);
    EQUAL(me, me->recoveries, 1);
    EQUAL(me, api_notes(me, SC_NOTE_UNKEYED), 0);
    api_leave(me);
}

static void world_of_one_needs_no_address_and_touches_nothing(void **state) {
    (void)state;
    api_play("ranks 1", is_alone);
}

static void submits_nothing(struct api_rank *me) {
    api_begin(me);
    uint16_t *b = api_buffer(me, ELEMENTS, 3);
    sc_ticket ticket = 0;
    DO(me, sc_sim_rank_launch(me->sim, me->stream, SECOND, NULL, NULL));
    DO(me, sc_all_reduce(me->comm, me->epoch, b, 0, SC_BF16, me->stream));
    DO(me, sc_broadcast(me->comm, me->epoch, NULL, 0, 1, me->stream));
    DO(me, sc_all_gather(me->comm, me->epoch, NULL, NULL, 0, me->stream));
    DO(me, sc_reduce_scatter(me->comm, me->epoch, NULL, NULL, 0, SC_BF16, me->stream));
    DO(me, sc_all_reduce_async(me->comm, me->epoch, b, 0, SC_BF16, me->stream));
    DO(me, sc_all_reduce_start(me->comm, me->epoch, b, 0, SC_BF16, me->stream, &ticket));
    DO(me, sc_all_reduce_join(me->comm, me->epoch, ticket, me->stream));
    DO(me, sc_send(me->comm, me->epoch, NULL, 0, 1 - me->rank, me->stream));
    DO(me, sc_recv(me->comm, me->epoch, NULL, 0, 1 - me->rank, me->stream));
    uint64_t begun_ns = api_now(me);
    synced(me); // nothing of it stands behind the kernel
    TRUE(me, api_now(me) - begun_ns < SECOND / 2);
    api_sleep(me, SECOND / 5);
    EQUAL(me, api_health(me).submitted, 6);
    EQUAL(me, api_health(me).completed, 6);
    api_works(me);
    api_leave(me);
}

static void zero_bytes_take_a_seq_and_launch_nothing_c2(void **state) {
    (void)state;
    api_play("ranks 2", submits_nothing);
}

// ---- how they are refused ----------------------------------------------------------------------

#define REFUSED(me, status, words, call)                                                           \
    do {                                                                                           \
        EXPECT(me, call, status);                                                                  \
        SAYS(me, words);                                                                           \
        SAYS(me, sc_status_name(status));                                                          \
    } while (0)

static void submits_wrongly(struct api_rank *me) {
    api_begin(me);
    const uint32_t all = API_CAPACITY / 2 + 2;
    uint16_t *b = api_buffer(me, all, 5);
    sc_comm c = me->comm;
    uint64_t e = me->epoch;
    void *s = me->stream, *odd = (char *)b + 1, *high = (void *)(UINTPTR_MAX - 7);
    sc_ticket t = 0;
    REFUSED(me, SC_INVALID, "sc_all_reduce: ", sc_all_reduce(c, e, b, 3, SC_BF16, s));
    SAYS(me, "3 bytes");
    REFUSED(me, SC_INVALID, "4097 bytes", sc_all_reduce(c, e, b, 4097, SC_BF16, s));
    REFUSED(me, SC_ALIGN, "sc_all_reduce: ", sc_all_reduce(c, e, odd, 4, SC_BF16, s));
    REFUSED(me, SC_CAPACITY, "65538 bytes", sc_all_reduce(c, e, b, API_CAPACITY + 2, SC_BF16, s));
    SAYS(me, "capacity 65536");
    REFUSED(me, SC_INVALID, "16 bytes", sc_all_reduce(c, e, high, 16, SC_BF16, s));
    REFUSED(me, SC_INVALID, "dtype 2", sc_all_reduce(c, e, b, 4, (enum sc_dtype)2, s));
    REFUSED(me, SC_INVALID, "dtype 0", sc_all_reduce_start(c, e, b, 4, (enum sc_dtype)0, s, &t));
    REFUSED(me, SC_INVALID, "dtype 2", sc_all_reduce_async(c, e, b, 4, (enum sc_dtype)2, s));
    REFUSED(me, SC_INVALID, "dtype 2", sc_reduce_scatter(c, e, b, b, 4, (enum sc_dtype)2, s));
    REFUSED(me, SC_ALIGN,
            "sc_all_reduce_start: ", sc_all_reduce_start(c, e, odd, 4, SC_BF16, s, &t));
    REFUSED(me, SC_INVALID, "ticket", sc_all_reduce_start(c, e, b, 4, SC_BF16, s, NULL));
    REFUSED(me, SC_CAPACITY,
            "sc_all_reduce_async: ", sc_all_reduce_async(c, e, b, API_CAPACITY + 2, SC_BF16, s));
    REFUSED(me, SC_INVALID, "root or peer 2", sc_broadcast(c, e, b, 4, 2, s));
    REFUSED(me, SC_INVALID, "sc_send: ", sc_send(c, e, b, 4, me->rank, s));
    REFUSED(me, SC_INVALID, "root or peer 7", sc_recv(c, e, b, 4, 7, s));
    REFUSED(me, SC_ALIGN, "sc_recv: ", sc_recv(c, e, odd, 4, 1 - me->rank, s));
    REFUSED(me, SC_CAPACITY, "sc_all_gather: ", sc_all_gather(c, e, b, b, API_CAPACITY / 2 + 2, s));
    REFUSED(me, SC_TOO_LARGE, "sc_all_gather: ", sc_all_gather(c, e, b, b, UINT64_MAX - 1, s));
    REFUSED(me, SC_CAPACITY,
            "sc_reduce_scatter: ", sc_reduce_scatter(c, e, b, b, API_CAPACITY / 2 + 2, SC_BF16, s));
    REFUSED(me, SC_TOO_LARGE,
            "sc_reduce_scatter: ", sc_reduce_scatter(c, e, b, b, UINT64_MAX - 1, SC_BF16, s));
    api_sleep(me, SECOND / 5);
    EQUAL(me, api_health(me).submitted, 0);
    HOLDS(me, b, all, 5);
    DO(me, sc_all_reduce(c, e, b, API_CAPACITY, SC_BF16, s)); // all of it, and no more
    synced(me);
    HOLDS(me, b, all - 2, 10);
    HOLDS(me, b + all - 2, 2, 5);
    api_leave(me);
}

static void wrong_ops_are_refused_with_call_and_values_and_no_effect_c4(void **state) {
    (void)state;
    api_play("ranks 2", submits_wrongly);
}

static void payload_capacity_refuses_what_overflows_c4(void **state) {
    uint64_t bytes = 77;
    (void)state;
    assert_int_equal(sc_payload_capacity(8192, 4096, &bytes), SC_OK);
    assert_int_equal(bytes, 8192u * 4096u * 2u);
    assert_int_equal(sc_payload_capacity(UINT64_C(1) << 40, UINT64_C(1) << 40, &bytes),
                     SC_TOO_LARGE);
    assert_int_equal(sc_payload_capacity(0, 4096, &bytes), SC_INVALID);
    assert_int_equal(sc_payload_capacity(1, 0, &bytes), SC_INVALID);
    assert_int_equal(sc_payload_capacity(1, 1, NULL), SC_INVALID);
    assert_int_equal(bytes, 8192u * 4096u * 2u);
}

static void reduces_a_view(struct api_rank *me) {
    api_begin(me);
    uint16_t *b = api_buffer(me, 16, 1); // 2 × 8
    DO(me, sc_all_reduce(me->comm, me->epoch, b, 16, SC_BF16, me->stream));
    synced(me);
    HOLDS(me, b, 8, 2);
    HOLDS(me, b + 8, 8, 1);
    for (uint32_t i = 0; i < 17; i++) { // base + 2, and every count
        uint16_t *c = api_buffer(me, 20, 1);
        DO(me, sc_all_reduce(me->comm, me->epoch, c + 1, i * 2, SC_BF16, me->stream));
        synced(me);
        HOLDS(me, c, 1, 1);
        HOLDS(me, c + 1, i, 2);
        HOLDS(me, c + 1 + i, 19 - i, 1);
    }
    api_leave(me);
}

static void op_changes_the_bytes_it_was_given_and_no_others_c5_c8(void **state) {
    (void)state;
    api_play("ranks 2", reduces_a_view);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_is_exact_to_the_bit_in_worlds_of_1_to_4),
        cmocka_unit_test(sums_are_rounded_to_even_and_every_nan_is_7fff_c6),
        cmocka_unit_test(world_of_one_needs_no_address_and_touches_nothing),
        cmocka_unit_test(zero_bytes_take_a_seq_and_launch_nothing_c2),
        cmocka_unit_test(wrong_ops_are_refused_with_call_and_values_and_no_effect_c4),
        cmocka_unit_test(payload_capacity_refuses_what_overflows_c4),
        cmocka_unit_test(op_changes_the_bytes_it_was_given_and_no_others_c5_c8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
