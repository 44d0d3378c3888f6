// SPDX-License-Identifier: AGPL-3.0-only
//
// hal/sealed.h, the handshake: nobody who has not proved the key is told anything, and it is said
// what went wrong.
#include "tests/unit/test_sealed_fixture.h"

static void link_is_connected_once_both_have_proved_the_key(void **state) {
    struct world w;
    (void)state;
    open_world(&w, key_of_job);
    w.net.connects = false;
    dial(&w);
    assert_int_equal(w.d->connected(w.d->ctx, w.near), SC_INPROGRESS);
    w.net.connects = true;
    assert_int_equal(w.d->connected(w.d->ctx, w.near), SC_INPROGRESS); // it heard a hello
    assert_int_equal(w.a->connected(w.a->ctx, w.far), SC_OK);          // and proved itself
    assert_int_equal(w.d->connected(w.d->ctx, w.near), SC_OK);
    send_text(w.d, w.near, "hello");
    expect_text(w.a, w.far, "hello");
    assert_int_equal(receive(w.a, w.far), SC_INPROGRESS);
    expect_explained(w.d, "in memory");
    hang_up(&w);
    close_world(&w);
}

static void what_was_sent_early_waits_for_the_proof(void **state) {
    struct world w;
    (void)state;
    open_world(&w, key_of_job);
    dial(&w);
    send_text(w.a, w.far, "challenge, ");
    send_text(w.a, w.far, "and more");
    assert_int_equal(fake_end_of(&w.net, w.near)->wire_bytes, SC_SEAL_HELLO_BYTES);
    assert_int_equal(follow(&w), SC_OK);
    expect_text(w.d, w.near, "challenge, and more");
    assert_int_equal(w.net.wakes, 0); // everything had been taken
    hang_up(&w);
    close_world(&w);
}

static void too_much_for_an_unproved_peer_is_told_when_there_is_room(void **state) {
    static uint8_t data[SC_SEALED_EARLY_BYTES + 1];
    struct world w;
    size_t sent = 0;
    (void)state;
    open_world(&w, key_of_job);
    dial(&w);
    assert_int_equal(w.a->send(w.a->ctx, w.far, data, sizeof data, &sent), SC_OK);
    assert_int_equal(sent, SC_SEALED_EARLY_BYTES);
    assert_int_equal(w.a->send(w.a->ctx, w.far, data, 1, &sent), SC_INPROGRESS);
    assert_int_equal(sent, SC_SEALED_EARLY_BYTES);
    assert_int_equal(follow(&w), SC_OK);
    assert_int_equal(w.net.wakes, 1);
    assert_int_equal(w.a->send(w.a->ctx, w.far, data, 1, &sent), SC_OK);
    hang_up(&w);
    close_world(&w);
}

static void wrong_key_is_told_to_both(void **state) {
    struct world w;
    (void)state;
    open_world(&w, key_of_other);
    dial(&w);
    const uint64_t far = w.far;
    send_text(w.a, w.far, "challenge");
    assert_int_equal(follow(&w), SC_KEY);
    assert_int_equal(w.far, 0); // refused on the other side, too
    assert_int_equal(fake_end_of(&w.net, w.near)->wire_bytes, SC_SEAL_HELLO_BYTES);
    expect_explained(w.a, "the peer holds another key");
    expect_explained(w.d, "hung up at our proof: it holds another key; in memory");
    assert_int_equal(w.d->connected(w.d->ctx, w.near), SC_KEY);
    assert_int_equal(receive(w.d, w.near), SC_KEY);
    assert_int_equal(fake_end_of(&w.net, far)->wire_bytes, SC_SEAL_SPEECH_MAX_BYTES);
    w.d->close(w.d->ctx, w.near);
    close_world(&w);
}

static void refusal_is_forgotten_when_another_handshake_does_well(void **state) {
    struct world w;
    char text[256];
    (void)state;
    open_world(&w, key_of_job);
    dial(&w);
    w.d->close(w.d->ctx, w.near);
    assert_int_equal(receive(w.a, w.far), SC_KEY);
    expect_explained(w.a, "a caller hung up without proving the key");
    w.a->close(w.a->ctx, w.far);
    join(&w);
    assert_string_equal(w.a->explain(w.a->ctx, text, sizeof text), "in memory");
    hang_up(&w);
    close_world(&w);
}

static void explanation_is_cut_to_the_room_there_is(void **state) {
    struct world w;
    (void)state;
    open_world(&w, key_of_other);
    dial(&w);
    assert_int_equal(follow(&w), SC_KEY);
    for (size_t bytes = 1; bytes < 100; bytes++) {
        char text[101];
        memset(text, '#', sizeof text);
        assert_true(strlen(w.d->explain(w.d->ctx, text, bytes)) < bytes);
        assert_int_equal(text[bytes], '#');
    }
    w.d->close(w.d->ctx, w.near);
    close_world(&w);
}

// A stranger on the table below: what it hears, whatever it says.
static void stranger_hears_one_hello_and_nothing_else(void **state) {
    static uint8_t noise[4096];
    static const char http[] = "GET / HTTP/1.1\r\nHost: rank0\r\n\r\n";
    struct world w;
    const struct {
        const void *data;
        size_t bytes;
        sc_status answer;
    } says[] = {
        {http, sizeof http - 1, SC_KEY}, {noise, sizeof noise, SC_KEY},
        {"KEYSCOM", 7, SC_INPROGRESS},   {"KEYSCOM\1", 8, SC_INPROGRESS},
        {"KEYSCOM\2", 8, SC_KEY},
    };
    (void)state;
    open_world(&w, key_of_job);
    for (size_t i = 0; i < sizeof says / sizeof says[0]; i++) {
        const struct sc_link *raw = &w.net.link;
        uint64_t stranger;
        assert_int_equal(raw->dial(raw->ctx, "here", 1, 0, &stranger), SC_OK);
        assert_int_equal(w.a->accept(w.a->ctx, w.listener, &w.far), SC_OK);
        send_text(w.a, w.far, "challenge");
        fake_inject(&w.net, w.far, says[i].data, says[i].bytes);
        assert_int_equal(receive(w.a, w.far), says[i].answer);
        assert_int_equal(receive(w.a, w.far), says[i].answer);
        w.a->close(w.a->ctx, w.far);
        assert_int_equal(fake_end_of(&w.net, stranger)->wire_bytes, SC_SEAL_HELLO_BYTES);
        raw->close(raw->ctx, stranger);
    }
    close_world(&w);
}

static void handshake_that_ends_early_is_told_in_each_phase(void **state) {
    struct world w;
    (void)state;
    open_world(&w, key_of_job);
    dial(&w); // the accepting side goes before its hello is read: nothing is wrong with the key
    w.a->close(w.a->ctx, w.far);
    fake_end_of(&w.net, w.near)->read_bytes = SC_SEAL_HELLO_BYTES;
    assert_int_equal(w.d->connected(w.d->ctx, w.near), SC_LINK_EOF);
    w.d->close(w.d->ctx, w.near);
    for (uint32_t proved = 0; proved < 2;
         proved++) { // the dialling side goes, without or with proof
        dial(&w);
        if (proved)
            assert_int_equal(w.d->connected(w.d->ctx, w.near), SC_INPROGRESS);
        w.d->close(w.d->ctx, w.near);
        assert_int_equal(receive(w.a, w.far), proved ? SC_LINK_EOF : SC_KEY);
        w.a->close(w.a->ctx, w.far);
    }
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(link_is_connected_once_both_have_proved_the_key),
        cmocka_unit_test(what_was_sent_early_waits_for_the_proof),
        cmocka_unit_test(too_much_for_an_unproved_peer_is_told_when_there_is_room),
        cmocka_unit_test(wrong_key_is_told_to_both),
        cmocka_unit_test(refusal_is_forgotten_when_another_handshake_does_well),
        cmocka_unit_test(explanation_is_cut_to_the_room_there_is),
        cmocka_unit_test(stranger_hears_one_hello_and_nothing_else),
        cmocka_unit_test(handshake_that_ends_early_is_told_in_each_phase),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
