// SPDX-License-Identifier: AGPL-3.0-only
//
// The simulated network: connections, bytes, and their ends.
#include "tests/unit/test_sim_fixture.h"

static sc_status dial(struct life *life, uint64_t *link) {
    return life->link->dial(life->link->ctx, "zero", PORT, 0, link);
}

static sc_status send_bytes(struct life *life, uint64_t link, const char *text) {
    size_t sent = 0;
    sc_status status = life->link->send(life->link->ctx, link, text, strlen(text), &sent);

    if (status == SC_OK)
        assert_int_equal(sent, strlen(text));
    return status;
}

// What there is to read, as text; the status when there is nothing.
static sc_status recv_text(struct life *life, uint64_t link, char text[512]) {
    size_t received = 0;
    sc_status status = life->link->recv(life->link->ctx, link, text, 511, &received);

    text[status == SC_OK ? received : 0] = '\0';
    return status;
}

static void expect_text(struct life *life, uint64_t link, const char *expected) {
    char text[512];

    assert_int_equal(recv_text(life, link, text), SC_OK);
    assert_string_equal(text, expected);
}

static sc_status recv_status(struct life *life, uint64_t link) {
    char text[512];

    return recv_text(life, link, text);
}

static void port_has_one_listener(void **state) {
    struct fixture f;
    uint64_t first = 0, second = 0;

    (void)state;
    start(&f, 1, 2);
    const struct sc_link *zero = f.lives[0].link;
    const struct sc_link *one = f.lives[1].link;
    assert_int_equal(zero->listen(zero->ctx, "zero", 0, &first), SC_INVALID);
    assert_int_equal(zero->listen(zero->ctx, "zero", PORT, &first), SC_OK);
    assert_int_equal(one->listen(one->ctx, "one", PORT, &second), SC_BIND);
    assert_int_equal(one->listen(one->ctx, "one", PORT + 1, &second), SC_OK);
    zero->close(zero->ctx, first);
    assert_int_equal(zero->listen(zero->ctx, "zero", PORT, &first), SC_OK);
    sc_sim_kill(f.lives[0].process); // its port is free again
    assert_int_equal(one->listen(one->ctx, "one", PORT, &second), SC_OK);
    finish(&f);
}

static void dial_to_nobody_is_refused_after_the_latency(void **state) {
    struct fixture f;
    struct life *one = &f.lives[1];
    uint64_t link = 0;

    (void)state;
    start(&f, 1, 2);
    assert_int_equal(dial(one, &link), SC_OK);
    assert_int_equal(one->link->connected(one->link->ctx, link), SC_INPROGRESS);
    assert_int_equal(send_bytes(one, link, "x"), SC_INPROGRESS);
    run_for(&f, MS);
    assert_int_equal(one->wakes, 1);
    assert_int_equal(one->link->connected(one->link->ctx, link), SC_REFUSED);
    one->link->close(one->link->ctx, link);
    finish(&f);
}

static void connections_are_accepted_in_order_of_arrival(void **state) {
    struct fixture f;
    struct life *zero = &f.lives[0];
    uint64_t listener = 0, first = 0, second = 0, link = 0;

    (void)state;
    start(&f, 1, 3);
    assert_int_equal(zero->link->listen(zero->link->ctx, "zero", PORT, &listener), SC_OK);
    assert_int_equal(zero->link->accept(zero->link->ctx, listener, &link), SC_INPROGRESS);
    assert_int_equal(dial(&f.lives[1], &first), SC_OK);
    run_for(&f, MS);
    assert_int_equal(dial(&f.lives[2], &second), SC_OK);
    run_for(&f, MS);
    assert_int_equal(zero->wakes, 2);
    assert_int_equal(send_bytes(&f.lives[2], second, "second"), SC_OK);
    assert_int_equal(send_bytes(&f.lives[1], first, "first"), SC_OK);
    run_for(&f, MS);
    assert_int_equal(zero->link->accept(zero->link->ctx, listener, &link), SC_OK);
    expect_text(zero, link, "first");
    assert_int_equal(zero->link->accept(zero->link->ctx, listener, &link), SC_OK);
    expect_text(zero, link, "second");
    assert_int_equal(zero->link->accept(zero->link->ctx, listener, &link), SC_INPROGRESS);
    finish(&f);
}

static void bytes_arrive_in_order_after_the_latency(void **state) {
    struct fixture f;
    uint64_t listener = 0, near = 0, far = 0;
    struct life *zero = &f.lives[0];
    struct life *one = &f.lives[1];

    (void)state;
    start(&f, 1, 2);
    connect_pair(&f, &listener, &near, &far);
    unsigned wakes = zero->wakes;
    assert_int_equal(send_bytes(one, near, "abc"), SC_OK);
    assert_int_equal(send_bytes(one, near, "def"), SC_OK);
    run_for(&f, f.config.link_latency.min_ns - 1);
    assert_int_equal(recv_status(zero, far), SC_INPROGRESS);
    run_for(&f, f.config.link_latency.max_ns);
    assert_true(zero->wakes > wakes);
    expect_text(zero, far, "abcdef");
    assert_int_equal(recv_status(zero, far), SC_INPROGRESS);
    finish(&f);
}

static void close_lets_the_peer_read_the_rest_and_then_eof(void **state) {
    struct fixture f;
    uint64_t listener = 0, near = 0, far = 0;
    struct life *zero = &f.lives[0];
    struct life *one = &f.lives[1];

    (void)state;
    start(&f, 1, 2);
    connect_pair(&f, &listener, &near, &far);
    assert_int_equal(send_bytes(one, near, "last words"), SC_OK);
    one->link->close(one->link->ctx, near);
    one->link->close(one->link->ctx, 0);
    assert_int_equal(send_bytes(zero, far, "not heard"), SC_OK);
    run_for(&f, MS);
    expect_text(zero, far, "last words");
    assert_int_equal(recv_status(zero, far), SC_LINK_EOF);
    assert_int_equal(recv_status(zero, far), SC_LINK_EOF);
    assert_int_equal(send_bytes(zero, far, "x"), SC_LINK_EOF);
    assert_int_equal(recv_status(one, near), SC_INVALID);
    expect_violation(&f, "unknown link");
    finish(&f);
}

static void killed_process_leaves_eof_behind(void **state) {
    struct fixture f;
    uint64_t listener = 0, near = 0, far = 0, late = 0;
    struct life *zero = &f.lives[0];
    struct life *one = &f.lives[1];

    (void)state;
    start(&f, 1, 2);
    connect_pair(&f, &listener, &near, &far);
    assert_int_equal(dial(one, &late), SC_OK);
    run_for(&f, MS); // this one is never accepted
    assert_int_equal(send_bytes(zero, far, "bye"), SC_OK);
    sc_sim_kill(zero->process);
    run_for(&f, MS);
    expect_text(one, near, "bye");
    assert_int_equal(recv_status(one, near), SC_LINK_EOF);
    assert_int_equal(recv_status(one, late), SC_LINK_EOF);
    finish(&f);
}

static void full_link_takes_no_more_until_it_is_read(void **state) {
    static char block[65536];
    struct fixture f;
    uint64_t listener = 0, near = 0, far = 0;
    struct life *zero = &f.lives[0];
    struct life *one = &f.lives[1];
    size_t total = 0, moved = 0;

    (void)state;
    start(&f, 1, 2);
    connect_pair(&f, &listener, &near, &far);
    sc_sim_pause(zero->process); // its kernel still takes bytes in
    for (size_t at = 0; at < sizeof block; at++)
        block[at] = (char)(at % 251);
    while (one->link->send(one->link->ctx, near, block, 60000, &moved) == SC_OK)
        total += moved;
    assert_int_equal(total, 256 * 1024);
    run_for(&f, MS);
    sc_sim_resume(zero->process);
    run_for(&f, MS);
    unsigned wakes = one->wakes;
    size_t at = 0;
    while (at < total) {
        char got[5000];
        assert_int_equal(zero->link->recv(zero->link->ctx, far, got, sizeof got, &moved), SC_OK);
        for (size_t byte = 0; byte < moved; byte++, at++)
            assert_int_equal(got[byte], (char)(at % 60000 % 251));
    }
    run_for(&f, MS);
    assert_int_equal(one->wakes, wakes + 1);
    assert_int_equal(one->link->send(one->link->ctx, near, block, 1, &moved), SC_OK);
    finish(&f);
}

static void held_links_are_counted_and_all_returned(void **state) {
    struct fixture f;
    uint64_t listener = 0, near = 0, far = 0;
    struct sc_sim_held held;

    (void)state;
    start(&f, 1, 2);
    connect_pair(&f, &listener, &near, &far);
    sc_sim_held(f.lives[0].process, &held);
    assert_int_equal(held.links, 1);
    assert_int_equal(held.listeners, 1);
    f.lives[0].link->close(f.lives[0].link->ctx, far);
    f.lives[0].link->close(f.lives[0].link->ctx, listener);
    f.lives[1].link->close(f.lives[1].link->ctx, near);
    for (int rank = 0; rank < 2; rank++) {
        sc_sim_held(f.lives[rank].process, &held);
        assert_int_equal(held.links + held.listeners, 0);
    }
    finish(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(port_has_one_listener),
        cmocka_unit_test(dial_to_nobody_is_refused_after_the_latency),
        cmocka_unit_test(connections_are_accepted_in_order_of_arrival),
        cmocka_unit_test(bytes_arrive_in_order_after_the_latency),
        cmocka_unit_test(close_lets_the_peer_read_the_rest_and_then_eof),
        cmocka_unit_test(killed_process_leaves_eof_behind),
        cmocka_unit_test(full_link_takes_no_more_until_it_is_read),
        cmocka_unit_test(held_links_are_counted_and_all_returned),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
