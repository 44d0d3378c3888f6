// SPDX-License-Identifier: AGPL-3.0-only
//
// Listening and accepting, also where descriptors or handles run out.
#include "core/assert.h"
#include "tests/support/sockets_rig.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static sc_status listen_at(struct sockets_pair *p, const char *host, uint16_t port,
                           uint64_t *listener) {
    return p->link->listen(p->link->ctx, host, port, listener);
}

static sc_status accept_one(struct sockets_pair *p, uint64_t *link) {
    return p->link->accept(p->link->ctx, p->listener, link);
}

static void expect_said(struct sockets_pair *p, const char *host, const char *rest) {
    char text[512], wanted[512];
    snprintf(wanted, sizeof wanted, "%s port %u, %s", host, (unsigned)p->port, rest);
    assert_string_equal(p->link->explain(p->link->ctx, text, sizeof text), wanted);
}

// Whether the stranger's connection was ended, or will be in time.
static bool is_turned_away(int stranger) {
    struct pollfd end = {.fd = stranger, .events = POLLIN};
    char byte;
    bool ended = false;
    (void)poll(&end, 1, (int)(SOCKETS_LIMIT_NS / SOCKETS_MS));
    return sockets_read(stranger, &byte, 1, &ended) == 0 && ended;
}

static void address_that_is_taken_or_not_ours_cannot_be_bound_b9(void **state) {
    struct sockets_pair p;
    uint64_t listener = 77;
    (void)state;
    uint32_t before = sockets_descriptors();
    sockets_pair_listen(&p, V4);
    uint32_t with_listener = sockets_descriptors();
    assert_int_equal(listen_at(&p, V4, p.port, &listener), SC_BIND);
    expect_said(&p, V4, "address 127.0.0.1: Address already in use");
    assert_int_equal(listen_at(&p, "192.0.2.1", p.port, &listener), SC_BIND); // of documentation
    expect_said(&p, "192.0.2.1", "address 192.0.2.1: Cannot assign requested address");
    assert_int_equal(listen_at(&p, "2001:db8::1", p.port, &listener), SC_BIND);
    assert_int_equal(listener, 77);
    assert_int_equal(sockets_descriptors(), with_listener);
    sockets_pair_close(&p);
    assert_int_equal(sockets_descriptors(), before);
}

static void unknown_name_is_unreachable_and_no_name_invalid(void **state) {
    struct sockets_pair p;
    char text[512];
    uint64_t listener = 77;
    (void)state;
    sockets_pair_listen(&p, V4);
    assert_int_equal(listen_at(&p, "nobody.invalid", p.port, &listener), SC_UNREACHABLE);
    assert_non_null(strstr(p.link->explain(p.link->ctx, text, sizeof text), "name service: "));
    assert_int_equal(listen_at(&p, "", p.port, &listener), SC_INVALID);
    assert_int_equal(listen_at(&p, NULL, p.port, &listener), SC_INVALID);
    assert_int_equal(listen_at(&p, V4, 0, &listener), SC_INVALID);
    assert_int_equal(listener, 77);
    sockets_pair_close(&p);
}

static void nothing_is_said_before_anything_is_asked(void **state) {
    struct sc_posix *posix = NULL;
    char text[8] = "before";
    (void)state;
    assert_int_equal(sc_posix_create(&posix), SC_OK);
    const struct sc_link *link = sc_posix_link(posix);
    assert_string_equal(link->explain(link->ctx, text, sizeof text), "");
    sc_posix_destroy(posix);
}

static void what_is_said_is_cut_to_its_room(void **state) {
    struct sockets_pair p;
    char text[8];
    (void)state;
    sockets_pair_listen(&p, V4);
    assert_string_equal(p.link->explain(p.link->ctx, text, sizeof text), "127.0.0");
    assert_string_equal(p.link->explain(p.link->ctx, text, 1), "");
    sockets_pair_close(&p);
}

static void closed_listener_leaves_its_port_to_the_next_b9(void **state) {
    struct sockets_pair p;
    (void)state;
    sockets_pair_listen(&p, V4);
    for (uint32_t i = 0; i < 20; i++) {
        uint64_t near;
        assert_int_equal(sockets_dial(&p, V4, 0, &near), SC_OK);
        uint64_t far = sockets_accept(&p);
        p.link->close(p.link->ctx, far); // the listening side ends first: its port lingers
        p.link->close(p.link->ctx, near);
        p.link->close(p.link->ctx, p.listener);
        assert_int_equal(listen_at(&p, V4, p.port, &p.listener), SC_OK);
    }
    sockets_pair_close(&p);
}

static void newcomers_are_accepted_until_there_is_none(void **state) {
    struct sockets_pair p;
    uint64_t link = 77;
    (void)state;
    sockets_pair_listen(&p, V4);
    assert_int_equal(accept_one(&p, &link), SC_INPROGRESS);
    assert_int_equal(link, 77);
    int first = sockets_stranger(p.port), second = sockets_stranger(p.port);
    sockets_reset(first); // gone before it was accepted: the next one is not kept waiting
    const uint64_t until_ns = sockets_now() + SOCKETS_LIMIT_NS;
    assert_int_equal(send(second, "x", 1, MSG_NOSIGNAL), 1);
    bool heard = false;
    while (!heard) {
        char byte = 0;
        size_t got;
        uint64_t newcomer = sockets_accept(&p);
        sc_status status;
        while ((status = p.link->recv(p.link->ctx, newcomer, &byte, 1, &got)) == SC_INPROGRESS)
            assert_int_equal(p.host->wait(p.host->ctx, until_ns), SC_OK);
        heard = status == SC_OK && byte == 'x';
    }
    assert_int_equal(accept_one(&p, &link), SC_INPROGRESS);
    close(second);
    sockets_pair_close(&p);
}

// ---- exhaustion ----

static void accept_without_descriptors(const void *arg) {
    struct sockets_pair p;
    struct rlimit before;
    int strangers[3];
    uint64_t link = 0;
    (void)arg;
    SC_ASSERT(getrlimit(RLIMIT_NOFILE, &before) == 0);
    sockets_pair_listen(&p, V4);
    uint32_t open_ones = sockets_descriptors();
    for (uint32_t i = 0; i < 3; i++)
        strangers[i] = sockets_stranger(p.port);
    sockets_limit_descriptors(0);
    const uint64_t since_ns = sockets_now();
    SC_ASSERT(accept_one(&p, &link) == SC_INPROGRESS && link == 0);
    for (uint32_t i = 0; i < 3; i++) {
        SC_ASSERT(is_turned_away(strangers[i]));
        close(strangers[i]);
    }
    // The next newcomer is there, and yet the wait lets the listener rest.
    int late = sockets_stranger(p.port);
    SC_ASSERT(p.host->wait(p.host->ctx, sockets_now() + SOCKETS_LIMIT_NS) == SC_OK);
    SC_ASSERT(sockets_now() - since_ns >= 100 * SOCKETS_MS);
    SC_ASSERT(setrlimit(RLIMIT_NOFILE, &before) == 0);
    SC_ASSERT(accept_one(&p, &link) == SC_OK && link != 0);
    p.link->close(p.link->ctx, link);
    close(late);
    SC_ASSERT(sockets_descriptors() == open_ones); // the spare one is back
    // It serves again.
    strangers[0] = sockets_stranger(p.port);
    sockets_limit_descriptors(0);
    SC_ASSERT(accept_one(&p, &link) == SC_INPROGRESS);
    SC_ASSERT(is_turned_away(strangers[0]));
    close(strangers[0]);
    SC_ASSERT(setrlimit(RLIMIT_NOFILE, &before) == 0);
    sockets_pair_close(&p);
}

static void newcomer_without_a_descriptor_is_turned_away(void **state) {
    (void)state;
    assert_true(sockets_child(accept_without_descriptors));
}

static void dial_and_listen_without_descriptors(const void *arg) {
    struct sockets_pair p;
    uint64_t link = 0, listener = 0;
    char text[256];
    (void)arg;
    sockets_pair_listen(&p, V4);
    sockets_limit_descriptors(0);
    SC_ASSERT(sockets_dial(&p, V4, 0, &link) == SC_NO_MEMORY);
    p.link->explain(p.link->ctx, text, sizeof text);
    SC_ASSERT(strstr(text, strerror(EMFILE)) != NULL);
    p.link->close(p.link->ctx, p.listener);
    int taken = dup(STDERR_FILENO); // of the listener, which has just freed one
    SC_ASSERT(taken >= 0);
    SC_ASSERT(listen_at(&p, V4, p.port, &listener) == SC_NO_MEMORY && listener == 0);
    close(taken);
    SC_ASSERT(listen_at(&p, V4, p.port, &listener) == SC_OK);
    sockets_pair_close(&p);
}

static void dial_and_listen_without_a_descriptor_are_refused(void **state) {
    (void)state;
    assert_true(sockets_child(dial_and_listen_without_descriptors));
}

static void handles_are_bounded(void **state) {
    struct sockets_pair p;
    uint64_t links[SC_POSIX_HANDLES_MAX];
    uint32_t count = 1; // the listener
    (void)state;
    sockets_pair_listen(&p, V4);
    while (count < SC_POSIX_HANDLES_MAX) {
        assert_int_equal(sockets_dial(&p, V4, 0, &links[count++]), SC_OK);
        if (count < SC_POSIX_HANDLES_MAX)
            links[count++] = sockets_accept(&p);
    }
    uint64_t link = 77;
    uint32_t full = sockets_descriptors();
    // The last one dialled was not accepted: there is no handle for it.
    assert_int_equal(accept_one(&p, &link), SC_INPROGRESS);
    assert_int_equal(p.link->dial(p.link->ctx, V4, p.port, 0, &link), SC_NO_MEMORY);
    assert_int_equal(link, 77);
    assert_int_equal(sockets_descriptors(), full);
    int stranger = sockets_stranger(p.port);
    assert_int_equal(accept_one(&p, &link), SC_INPROGRESS);
    assert_true(is_turned_away(stranger));
    close(stranger);
    p.link->close(p.link->ctx, links[1]);
    stranger = sockets_stranger(p.port);
    assert_int_equal(accept_one(&p, &link), SC_OK);
    close(stranger);
    sockets_pair_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(address_that_is_taken_or_not_ours_cannot_be_bound_b9),
        cmocka_unit_test(unknown_name_is_unreachable_and_no_name_invalid),
        cmocka_unit_test(nothing_is_said_before_anything_is_asked),
        cmocka_unit_test(what_is_said_is_cut_to_its_room),
        cmocka_unit_test(closed_listener_leaves_its_port_to_the_next_b9),
        cmocka_unit_test(newcomers_are_accepted_until_there_is_none),
        cmocka_unit_test(newcomer_without_a_descriptor_is_turned_away),
        cmocka_unit_test(dial_and_listen_without_a_descriptor_are_refused),
        cmocka_unit_test(handles_are_bounded),
    };
    setenv("RES_OPTIONS", "timeout:1 attempts:1", 1); // where a name service is told but not there
    return cmocka_run_group_tests(tests, NULL, NULL);
}
