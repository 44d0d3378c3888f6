// SPDX-License-Identifier: AGPL-3.0-only
//
// Faults of the simulated network: what they do to bytes on their way, and strangers.
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

static void fault(struct fixture *f, enum sc_sim_fault_kind kind, uint64_t duration_ns) {
    assert_true(
        inject(f, (struct sc_sim_fault){.kind = kind, .a = 1, .b = 0, .duration_ns = duration_ns}));
}

// ---- faults on the way ------------------------------------------------------------------------

static void reset_loses_what_was_not_read(void **state) {
    struct fixture f;
    uint64_t listener = 0, near = 0, far = 0;

    (void)state;
    start(&f, 1, 2);
    connect_pair(&f, &listener, &near, &far);
    assert_int_equal(send_bytes(&f.lives[1], near, "lost"), SC_OK);
    run_for(&f, MS);
    fault(&f, SC_SIM_link_reset, 0);
    assert_int_equal(recv_status(&f.lives[1], near), SC_INPROGRESS);
    run_for(&f, MS);
    assert_int_equal(recv_status(&f.lives[0], far), SC_LINK_EOF);
    assert_int_equal(recv_status(&f.lives[1], near), SC_LINK_EOF);
    assert_int_equal(send_bytes(&f.lives[1], near, "x"), SC_LINK_EOF);
    finish(&f);
}

static void black_hole_holds_bytes_and_ends_until_it_is_over(void **state) {
    struct fixture f;
    uint64_t listener = 0, near = 0, far = 0;
    struct life *zero = &f.lives[0];
    struct life *one = &f.lives[1];

    (void)state;
    start(&f, 1, 2);
    connect_pair(&f, &listener, &near, &far);
    fault(&f, SC_SIM_link_blackhole, 100 * MS);
    assert_int_equal(send_bytes(one, near, "held"), SC_OK);
    assert_int_equal(send_bytes(zero, far, "too"), SC_OK);
    run_for(&f, 50 * MS);
    one->link->close(one->link->ctx, near);
    run_for(&f, 49 * MS);
    assert_int_equal(recv_status(zero, far), SC_INPROGRESS);
    unsigned wakes = zero->wakes;
    run_for(&f, 2 * MS);
    assert_int_equal(zero->wakes, wakes + 1);
    expect_text(zero, far, "held");
    assert_int_equal(recv_status(zero, far), SC_LINK_EOF);
    finish(&f);
}

static void one_way_hole_lets_the_other_way_pass(void **state) {
    struct fixture f;
    uint64_t listener = 0, near = 0, far = 0, link = 0;
    struct life *zero = &f.lives[0];
    struct life *one = &f.lives[1];

    (void)state;
    start(&f, 1, 2);
    connect_pair(&f, &listener, &near, &far);
    fault(&f, SC_SIM_link_oneway, SECOND);
    assert_int_equal(send_bytes(one, near, "up"), SC_OK);
    assert_int_equal(send_bytes(zero, far, "down"), SC_OK);
    assert_int_equal(dial(one, &link), SC_OK);
    run_for(&f, 10 * MS);
    assert_int_equal(recv_status(zero, far), SC_INPROGRESS);
    expect_text(one, near, "down");
    assert_int_equal(one->link->connected(one->link->ctx, link), SC_INPROGRESS);
    sc_sim_heal(f.sim); // long before its end
    expect_text(zero, far, "up");
    run_for(&f, MS);
    assert_int_equal(one->link->connected(one->link->ctx, link), SC_OK);
    finish(&f);
}

static void delay_raises_the_latency_for_a_while(void **state) {
    struct fixture f;
    uint64_t listener = 0, near = 0, far = 0;

    (void)state;
    start(&f, 1, 2);
    connect_pair(&f, &listener, &near, &far);
    fault(&f, SC_SIM_link_delay, 10 * MS);
    assert_int_equal(send_bytes(&f.lives[1], near, "slow"), SC_OK);
    run_for(&f, 10 * MS);
    assert_int_equal(recv_status(&f.lives[0], far), SC_INPROGRESS);
    run_for(&f, MS);
    expect_text(&f.lives[0], far, "slow");
    run_for(&f, 70 * MS);
    assert_int_equal(send_bytes(&f.lives[1], near, "fast"), SC_OK);
    run_for(&f, MS);
    expect_text(&f.lives[0], far, "fast");
    finish(&f);
}

static void fragments_come_a_few_at_a_time_and_whole(void **state) {
    struct fixture f;
    uint64_t listener = 0, near = 0, far = 0;
    char all[256] = "", text[512];
    const char *sent = "abcdefghijklmnopqrstuvwxyz0123456789";
    unsigned pieces = 0;

    (void)state;
    start(&f, 1, 2);
    connect_pair(&f, &listener, &near, &far);
    fault(&f, SC_SIM_link_fragment, SECOND);
    assert_int_equal(send_bytes(&f.lives[1], near, sent), SC_OK);
    for (int at = 0; at < 200; at++) {
        run_for(&f, 10 * US);
        if (recv_text(&f.lives[0], far, text) == SC_OK) {
            strcat(all, text);
            pieces++;
        }
    }
    assert_string_equal(all, sent);
    assert_true(pieces >= 3);
    finish(&f);
}

static void path_fault_needs_a_link(void **state) {
    struct fixture f;

    (void)state;
    start(&f, 1, 2);
    assert_false(inject(&f, (struct sc_sim_fault){.kind = SC_SIM_link_reset, .a = 0, .b = 1}));
    assert_false(inject(&f, (struct sc_sim_fault){.kind = SC_SIM_link_reset, .a = 0, .b = 99}));
    finish(&f);
}

static void name_is_unresolved_for_a_while(void **state) {
    struct fixture f;
    uint64_t link = 0;

    (void)state;
    start(&f, 1, 2);
    fault(&f, SC_SIM_name_unresolved, MS);
    assert_int_equal(dial(&f.lives[1], &link), SC_UNREACHABLE);
    assert_int_equal(link, 0);
    assert_int_equal(dial(&f.lives[0], &link), SC_OK); // another rank's names resolve
    run_for(&f, MS);
    assert_int_equal(dial(&f.lives[1], &link), SC_OK);
    finish(&f);
}

// ---- strangers --------------------------------------------------------------------------------

// Lets a stranger in and returns its link.
static uint64_t let_in(struct fixture *f, uint64_t listener) {
    struct life *zero = &f->lives[0];
    uint64_t link = 0;

    run_for(f, MS);
    assert_int_equal(zero->link->accept(zero->link->ctx, listener, &link), SC_OK);
    return link;
}

static void squatter_takes_the_port_and_answers_with_a_banner(void **state) {
    struct fixture f;
    uint64_t listener = 0, link = 0;
    char text[512];
    struct life *zero = &f.lives[0];
    struct life *one = &f.lives[1];

    (void)state;
    start(&f, 1, 2);
    fault(&f, SC_SIM_port_squatted, 50 * MS);
    assert_int_equal(zero->link->listen(zero->link->ctx, "zero", PORT, &listener), SC_BIND);
    assert_int_equal(dial(one, &link), SC_OK);
    run_for(&f, MS);
    assert_int_equal(one->link->connected(one->link->ctx, link), SC_OK);
    assert_int_equal(recv_text(one, link, text), SC_OK);
    assert_int_equal(strlen(text), 200);
    assert_int_equal(send_bytes(one, link, "anybody"), SC_OK);
    run_for(&f, 50 * MS);
    assert_int_equal(recv_status(one, link), SC_LINK_EOF);
    assert_int_equal(sc_sim_stranger_bytes(f.sim), 7);
    assert_int_equal(zero->link->listen(zero->link->ctx, "zero", PORT, &listener), SC_OK);
    assert_false(inject(&f, (struct sc_sim_fault){.kind = SC_SIM_port_squatted, .duration_ns = 1}));
    finish(&f);
}

static void strangers_say_what_they_are_named_for(void **state) {
    struct fixture f;
    uint64_t listener = 0;
    char text[512];
    struct life *zero = &f.lives[0];

    (void)state;
    start(&f, 1, 2);
    assert_false(inject(&f, (struct sc_sim_fault){.kind = SC_SIM_stranger_silent}));
    assert_int_equal(zero->link->listen(zero->link->ctx, "zero", PORT, &listener), SC_OK);

    fault(&f, SC_SIM_stranger_silent, 10 * MS);
    uint64_t silent = let_in(&f, listener);
    assert_int_equal(recv_status(zero, silent), SC_INPROGRESS);
    run_for(&f, 10 * MS);
    assert_int_equal(recv_status(zero, silent), SC_LINK_EOF);

    fault(&f, SC_SIM_stranger_garbage, 10 * MS);
    uint64_t garbage = let_in(&f, listener);
    size_t received = 0;
    assert_int_equal(zero->link->recv(zero->link->ctx, garbage, text, 512, &received), SC_OK);
    assert_int_equal(received, 64);

    fault(&f, SC_SIM_stranger_http, 10 * MS);
    uint64_t http = let_in(&f, listener);
    assert_int_equal(recv_text(zero, http, text), SC_OK);
    assert_memory_equal(text, "GET / HTTP/1.1\r\n", 16);
    assert_int_equal(recv_status(zero, http), SC_INPROGRESS); // it stays

    fault(&f, SC_SIM_stranger_banner, 0);
    uint64_t banner = let_in(&f, listener);
    assert_int_equal(recv_status(zero, banner), SC_LINK_EOF); // reset by now
    finish(&f);
}

static void stranger_repeats_the_hello_of_a_rank(void **state) {
    struct fixture f;
    uint64_t listener = 0, near = 0, far = 0;

    (void)state;
    start(&f, 1, 2);
    connect_pair(&f, &listener, &near, &far);
    struct sc_sim_fault replay = {.kind = SC_SIM_stranger_replay, .a = 1, .duration_ns = SECOND};
    assert_false(sc_sim_inject(f.sim, &replay)); // nothing said yet
    assert_int_equal(send_bytes(&f.lives[1], near, "hello, "), SC_OK);
    assert_int_equal(send_bytes(&f.lives[1], near, "rank 1"), SC_OK);
    run_for(&f, MS);
    assert_int_equal(send_bytes(&f.lives[1], near, "later"), SC_OK);
    assert_true(sc_sim_inject(f.sim, &replay));
    uint64_t stranger = let_in(&f, listener);
    expect_text(&f.lives[0], stranger, "hello, rank 1");
    assert_int_equal(send_bytes(&f.lives[0], stranger, "secret"), SC_OK);
    assert_int_equal(sc_sim_stranger_bytes(f.sim), 6);
    sc_sim_heal(f.sim); // sends strangers away
    run_for(&f, MS);
    assert_int_equal(recv_status(&f.lives[0], stranger), SC_LINK_EOF);
    finish(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reset_loses_what_was_not_read),
        cmocka_unit_test(black_hole_holds_bytes_and_ends_until_it_is_over),
        cmocka_unit_test(one_way_hole_lets_the_other_way_pass),
        cmocka_unit_test(delay_raises_the_latency_for_a_while),
        cmocka_unit_test(fragments_come_a_few_at_a_time_and_whole),
        cmocka_unit_test(path_fault_needs_a_link),
        cmocka_unit_test(name_is_unresolved_for_a_while),
        cmocka_unit_test(squatter_takes_the_port_and_answers_with_a_banner),
        cmocka_unit_test(strangers_say_what_they_are_named_for),
        cmocka_unit_test(stranger_repeats_the_hello_of_a_rank),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
