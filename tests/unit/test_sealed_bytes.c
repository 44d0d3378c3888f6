// SPDX-License-Identifier: AGPL-3.0-only
//
// hal/sealed.h, bytes and ends: a sealed link is a link, whatever the table below does.
#include "tests/unit/test_sealed_fixture.h"

static uint8_t pattern(size_t at) {
    return (uint8_t)(at * 7 + at / 251);
}

// Sends `bytes` one way as a pump would, reading on the other side; both must come to an end.
static void stream(struct world *w, const struct sc_link *from, uint64_t by,
                   const struct sc_link *to, uint64_t at, size_t bytes) {
    static uint8_t data[100000], heard[100000];
    size_t sent = 0, received = 0;
    (void)w;
    for (size_t i = 0; i < bytes; i++)
        data[i] = pattern(i);
    for (uint32_t round = 0; received < bytes && round < ROUNDS_MAX; round++) {
        size_t part = 0;
        if (sent < bytes && from->send(from->ctx, by, data + sent, bytes - sent, &part) == SC_OK)
            sent += part;
        (void)receive(from, by); // a pump reads each link at each run
        part = 0;
        sc_status status = to->recv(to->ctx, at, heard + received, 1 + round % 777, &part);
        assert_true(status == SC_OK || status == SC_INPROGRESS);
        received += part;
        assert_true(received <= bytes);
    }
    assert_int_equal(received, bytes);
    assert_memory_equal(heard, data, bytes);
}

static void bytes_arrive_whatever_fits_below(void **state) {
    static const size_t rooms[] = {1, 19, 100, 4116, FAKE_WIRE_MAX};
    static const size_t steps[] = {1, 7, FAKE_WIRE_MAX};
    (void)state;
    for (size_t i = 0; i < sizeof rooms / sizeof rooms[0]; i++) {
        for (size_t k = 0; k < sizeof steps / sizeof steps[0]; k++) {
            struct world w;
            open_world(&w, key_of_job);
            w.net.room = rooms[i];
            w.net.step = steps[k];
            join(&w);
            stream(&w, w.a, w.far, w.d, w.near, 20000);
            stream(&w, w.d, w.near, w.a, w.far, 9000);
            hang_up(&w);
            close_world(&w);
        }
    }
}

static void one_send_takes_all_that_fits_below(void **state) {
    static uint8_t data[65536];
    struct world w;
    size_t sent = 0;
    (void)state;
    open_world(&w, key_of_job);
    join(&w);
    assert_int_equal(w.d->send(w.d->ctx, w.near, data, sizeof data, &sent), SC_OK);
    assert_int_equal(sent, sizeof data);
    hang_up(&w);
    close_world(&w);
}

static void full_buffer_takes_no_more_and_empties_by_itself(void **state) {
    static uint8_t data[3 * SC_SEAL_PLAIN_MAX_BYTES];
    struct world w;
    size_t sent = 0, more = 0;
    (void)state;
    open_world(&w, key_of_job);
    join(&w);
    w.net.room = 100;
    assert_int_equal(w.d->send(w.d->ctx, w.near, data, sizeof data, &sent), SC_OK);
    assert_int_equal(sent, SC_SEAL_PLAIN_MAX_BYTES); // one record, of which 100 bytes have left
    assert_int_equal(w.d->send(w.d->ctx, w.near, data, 1, &more), SC_INPROGRESS);
    assert_int_equal(more, 0);
    w.net.room = FAKE_WIRE_MAX;
    assert_int_equal(receive(w.d, w.near), SC_INPROGRESS); // no send: a recv is enough
    struct fake_end *far = fake_end_of(&w.net, w.far);
    assert_int_equal(far->wire_bytes, SC_SEAL_SPEECH_MAX_BYTES + SC_SEAL_RECORD_MAX_BYTES);
    hang_up(&w);
    close_world(&w);
}

static void nothing_readable_is_on_the_wire(void **state) {
    static const char secret[] = "the communicator id of this epoch";
    struct world w;
    (void)state;
    open_world(&w, key_of_job);
    join(&w);
    send_text(w.a, w.far, secret);
    expect_text(w.d, w.near, secret);
    const struct fake_end *near = fake_end_of(&w.net, w.near);
    assert_null(memmem(near->wire, near->wire_bytes, secret, 8));
    hang_up(&w);
    close_world(&w);
}

static void changed_bytes_end_the_link_as_a_breach(void **state) {
    struct world w;
    (void)state;
    open_world(&w, key_of_job);
    join(&w);
    send_text(w.a, w.far, "offer");
    struct fake_end *near = fake_end_of(&w.net, w.near);
    near->wire[near->wire_bytes - 1] ^= 1;
    assert_int_equal(receive(w.d, w.near), SC_PROTOCOL);
    size_t sent = 0;
    assert_int_equal(w.d->send(w.d->ctx, w.near, "x", 1, &sent), SC_PROTOCOL);
    assert_int_equal(receive(w.d, w.near), SC_PROTOCOL);
    hang_up(&w);
    close_world(&w);
}

// ---- ends ----

static void bytes_before_an_end_are_read_first(void **state) {
    struct world w;
    (void)state;
    for (uint32_t killed = 0; killed < 2; killed++) {
        open_world(&w, key_of_job);
        join(&w);
        w.net.room = 10; // some bytes the other way are stuck
        send_text(w.d, w.near, "too late");
        w.net.room = FAKE_WIRE_MAX;
        send_text(w.a, w.far, "bye");
        if (killed) // the kernel ends the link, nobody says so
            fake_end_of(&w.net, w.near)->eof = true;
        else
            w.a->close(w.a->ctx, w.far);
        expect_text(w.d, w.near, "bye");
        assert_int_equal(receive(w.d, w.near), SC_LINK_EOF);
        assert_int_equal(receive(w.d, w.near), SC_LINK_EOF);
        if (killed)
            w.a->close(w.a->ctx, w.far);
        w.d->close(w.d->ctx, w.near);
        close_world(&w);
    }
}

static void closed_handle_is_invalid_for_ever(void **state) {
    struct world w;
    size_t count = 0;
    (void)state;
    open_world(&w, key_of_job);
    join(&w);
    const uint64_t near = w.near;
    hang_up(&w);
    join(&w); // its place is taken by another link
    assert_int_equal(receive(w.d, near), SC_INVALID);
    assert_int_equal(w.d->send(w.d->ctx, near, "x", 1, &count), SC_INVALID);
    assert_int_equal(w.d->connected(w.d->ctx, near), SC_INVALID);
    assert_int_equal(receive(w.d, w.far), SC_INVALID); // a link of the other object's
    assert_int_equal(receive(w.d, 0), SC_INVALID);
    assert_int_equal(w.d->send(w.d->ctx, w.near, "x", 0, &count), SC_INVALID);
    assert_int_equal(w.d->recv(w.d->ctx, w.near, &count, 0, &count), SC_INVALID);
    assert_int_equal(count, 0);
    w.d->close(w.d->ctx, 0);
    hang_up(&w);
    close_world(&w);
}

static void newcomers_beyond_the_last_place_are_closed(void **state) {
    uint64_t links[SC_SEALED_LINKS_MAX], stranger[SC_SEALED_LINKS_MAX + 2], more = 0;
    struct world w;
    (void)state;
    open_world(&w, key_of_job);
    const struct sc_link *raw = &w.net.link;
    for (uint32_t i = 0; i < SC_SEALED_LINKS_MAX + 2; i++)
        assert_int_equal(raw->dial(raw->ctx, "here", 1, 0, &stranger[i]), SC_OK);
    for (uint32_t i = 0; i < SC_SEALED_LINKS_MAX; i++)
        assert_int_equal(w.a->accept(w.a->ctx, w.listener, &links[i]), SC_OK);
    assert_int_equal(w.a->accept(w.a->ctx, w.listener, &more), SC_INPROGRESS);
    assert_int_equal(more, 0);
    assert_true(fake_end_of(&w.net, stranger[SC_SEALED_LINKS_MAX])->eof);
    assert_true(fake_end_of(&w.net, stranger[SC_SEALED_LINKS_MAX + 1])->eof);
    assert_int_equal(w.a->dial(w.a->ctx, "here", 1, 0, &more), SC_NO_MEMORY);
    for (uint32_t i = 0; i < SC_SEALED_LINKS_MAX; i++)
        w.a->close(w.a->ctx, links[i]);
    for (uint32_t i = 0; i < SC_SEALED_LINKS_MAX + 2; i++)
        raw->close(raw->ctx, stranger[i]);
    join(&w);
    hang_up(&w);
    close_world(&w);
}

static void without_random_bytes_there_is_no_link(void **state) {
    struct world w;
    uint64_t stranger, link = 0;
    (void)state;
    open_world(&w, key_of_job);
    const struct sc_link *raw = &w.net.link;
    assert_int_equal(raw->dial(raw->ctx, "here", 1, 0, &stranger), SC_OK);
    w.net.entropy_fails = true;
    assert_int_equal(w.a->accept(w.a->ctx, w.listener, &link), SC_INPROGRESS);
    assert_true(fake_end_of(&w.net, stranger)->eof);
    assert_int_equal(w.d->dial(w.d->ctx, "here", 1, 0, &link), SC_DEVICE_ERROR);
    assert_int_equal(link, 0);
    raw->close(raw->ctx, stranger);
    close_world(&w);
}

static void answers_of_the_table_below_are_handed_on(void **state) {
    struct world w;
    uint64_t link = 0;
    (void)state;
    open_world(&w, key_of_job);
    assert_int_equal(w.a->accept(w.a->ctx, w.listener, &link), SC_INPROGRESS);
    assert_int_equal(w.a->accept(w.a->ctx, w.listener + 1, &link), SC_INVALID);
    w.net.dial_answer = SC_UNREACHABLE;
    for (uint32_t i = 0; i < 2 * SC_SEALED_LINKS_MAX; i++) // and none takes a place
        assert_int_equal(w.d->dial(w.d->ctx, "here", 1, 0, &link), SC_UNREACHABLE);
    w.net.dial_answer = SC_OK;
    assert_int_equal(link, 0);
    join(&w);
    hang_up(&w);
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_arrive_whatever_fits_below),
        cmocka_unit_test(one_send_takes_all_that_fits_below),
        cmocka_unit_test(full_buffer_takes_no_more_and_empties_by_itself),
        cmocka_unit_test(nothing_readable_is_on_the_wire),
        cmocka_unit_test(changed_bytes_end_the_link_as_a_breach),
        cmocka_unit_test(bytes_before_an_end_are_read_first),
        cmocka_unit_test(closed_handle_is_invalid_for_ever),
        cmocka_unit_test(newcomers_beyond_the_last_place_are_closed),
        cmocka_unit_test(without_random_bytes_there_is_no_link),
        cmocka_unit_test(answers_of_the_table_below_are_handed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
