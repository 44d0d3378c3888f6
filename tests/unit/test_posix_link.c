// SPDX-License-Identifier: AGPL-3.0-only
//
// Bytes over real sockets, their ends, and the handles they go by.
#include "core/assert.h"
#include "tests/support/sockets_rig.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static sc_status send_some(struct sockets_pair *p, uint64_t link, const void *data, size_t bytes,
                           size_t *sent) {
    return p->link->send(p->link->ctx, link, data, bytes, sent);
}

static sc_status send_text(struct sockets_pair *p, uint64_t link, const char *text) {
    size_t sent = 0;
    sc_status status = send_some(p, link, text, strlen(text), &sent);
    if (status == SC_OK)
        assert_int_equal(sent, strlen(text));
    return status;
}

static sc_status wait_until(struct sockets_pair *p, uint64_t deadline_ns) {
    return p->host->wait(p->host->ctx, deadline_ns);
}

// What comes next: bytes or an end.
static sc_status recv_next(struct sockets_pair *p, uint64_t link, void *data, size_t bytes,
                           size_t *received) {
    const uint64_t until_ns = sockets_now() + SOCKETS_LIMIT_NS;
    sc_status status;
    while ((status = p->link->recv(p->link->ctx, link, data, bytes, received)) == SC_INPROGRESS)
        assert_int_equal(wait_until(p, until_ns), SC_OK);
    return status;
}

static void expect_text(struct sockets_pair *p, uint64_t link, const char *text) {
    char data[64];
    size_t total = 0, got = 0;
    while (total < strlen(text)) {
        assert_int_equal(recv_next(p, link, data + total, strlen(text) - total, &got), SC_OK);
        total += got;
    }
    assert_memory_equal(data, text, total);
}

static void expect_end(struct sockets_pair *p, uint64_t link) {
    char byte;
    size_t got = 77;
    for (uint32_t i = 0; i < 3; i++) // and so for ever
        assert_int_equal(recv_next(p, link, &byte, 1, &got), SC_LINK_EOF);
    assert_int_equal(got, 77);
}

static void bytes_go_both_ways(const char *address) {
    struct sockets_pair p;
    char byte;
    size_t got;
    sockets_pair_open(&p, address);
    assert_int_equal(p.link->recv(p.link->ctx, p.near, &byte, 1, &got), SC_INPROGRESS);
    assert_int_equal(send_text(&p, p.near, "there"), SC_OK);
    expect_text(&p, p.far, "there");
    assert_int_equal(send_text(&p, p.far, "and back"), SC_OK);
    expect_text(&p, p.near, "and back");
    sockets_pair_close(&p);
}

static void bytes_go_both_ways_over_ipv4(void **state) {
    (void)state;
    bytes_go_both_ways(V4);
}

static void bytes_go_both_ways_over_ipv6(void **state) {
    (void)state;
    bytes_go_both_ways(V6);
}

// ---- backpressure ----

static uint8_t nth_byte(size_t n) {
    return (uint8_t)(n * 31 + n / 251);
}

struct stream {
    size_t sent, received;
};

// Sends up to `end` bytes of the stream, until no more fit.
static void fill(struct sockets_pair *p, struct stream *s, size_t end) {
    uint8_t data[4096];
    sc_status status = SC_OK;
    while (status == SC_OK && s->sent < end) {
        size_t bytes = end - s->sent < sizeof data ? end - s->sent : sizeof data, sent = 0;
        for (size_t i = 0; i < bytes; i++)
            data[i] = nth_byte(s->sent + i);
        status = send_some(p, p->near, data, bytes, &sent);
        s->sent += sent;
    }
    assert_true(status == SC_OK || status == SC_INPROGRESS);
}

static void drain(struct sockets_pair *p, struct stream *s) {
    uint8_t data[4096];
    size_t got;
    while (p->link->recv(p->link->ctx, p->far, data, sizeof data, &got) == SC_OK)
        for (size_t i = 0; i < got; i++)
            assert_int_equal(data[i], nth_byte(s->received++));
}

static void refused_bytes_are_sent_once_there_is_room(void **state) {
    struct sockets_pair p;
    struct stream s = {0, 0};
    (void)state;
    sockets_pair_open(&p, V4);
    fill(&p, &s, SIZE_MAX);
    const size_t end = s.sent + 100000;
    uint32_t told = 0; // the kernel may still make room on its own, but not for ever
    while (wait_until(&p, sockets_now() + SOCKETS_MS) == SC_OK) {
        assert_true(told++ < 1000);
        fill(&p, &s, SIZE_MAX);
    }
    const size_t full = s.sent;
    drain(&p, &s);
    const uint64_t until_ns = sockets_now() + SOCKETS_LIMIT_NS;
    while (s.received < (end > full ? end : full)) {
        assert_int_equal(wait_until(&p, until_ns), SC_OK);
        fill(&p, &s, end > full ? end : full);
        drain(&p, &s);
    }
    assert_int_equal(s.received, s.sent);
    sockets_pair_close(&p);
}

// ---- ends ----

static void end_comes_after_the_last_byte(void **state) {
    struct sockets_pair p;
    (void)state;
    sockets_pair_open(&p, V4);
    assert_int_equal(send_text(&p, p.near, "last words"), SC_OK);
    p.link->close(p.link->ctx, p.near);
    expect_text(&p, p.far, "last words");
    expect_end(&p, p.far);
    sockets_pair_close(&p);
}

static void reset_ends_both_directions_without_a_signal(void **state) {
    struct sockets_pair p;
    (void)state;
    sockets_pair_listen(&p, V4);
    int stranger = sockets_stranger(p.port);
    uint64_t link = sockets_accept(&p);
    sockets_reset(stranger);
    expect_end(&p, link);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(send_text(&p, link, "x"), SC_LINK_EOF);
    sockets_pair_close(&p);
}

static void send_to_a_closed_peer_ends(void **state) {
    struct sockets_pair p;
    (void)state;
    sockets_pair_open(&p, V4);
    p.link->close(p.link->ctx, p.far);
    expect_end(&p, p.near);
    const uint64_t until_ns = sockets_now() + SOCKETS_LIMIT_NS;
    while (send_text(&p, p.near, "is anybody there") != SC_LINK_EOF)
        assert_true(sockets_now() < until_ns);
    sockets_pair_close(&p);
}

// ---- waiting ----

static void wait_tells_of_a_link_once_until_it_is_asked(void **state) {
    struct sockets_pair p;
    const uint64_t until_ns = sockets_now() + SOCKETS_LIMIT_NS;
    (void)state;
    sockets_pair_open(&p, V4);
    assert_int_equal(wait_until(&p, 0), SC_TIMEOUT);
    assert_int_equal(send_text(&p, p.near, "abcdef"), SC_OK);
    assert_int_equal(wait_until(&p, until_ns), SC_OK);
    assert_int_equal(wait_until(&p, sockets_now() + SOCKETS_MS), SC_TIMEOUT);
    expect_text(&p, p.far, "abc");
    assert_int_equal(wait_until(&p, until_ns), SC_OK); // there is more
    expect_text(&p, p.far, "def");
    assert_int_equal(wait_until(&p, 0), SC_TIMEOUT);
    p.link->close(p.link->ctx, p.near);
    assert_int_equal(wait_until(&p, until_ns), SC_OK); // an end is told of too, …
    assert_int_equal(wait_until(&p, sockets_now() + SOCKETS_MS), SC_TIMEOUT);
    expect_end(&p, p.far);
    assert_int_equal(wait_until(&p, 0), SC_TIMEOUT); // … and known ones cost no more waits
    sockets_pair_close(&p);
}

// ---- handles ----

static void expect_invalid(struct sockets_pair *p, uint64_t handle) {
    char byte = 0;
    size_t moved;
    uint64_t link;
    assert_int_equal(p->link->send(p->link->ctx, handle, &byte, 1, &moved), SC_INVALID);
    assert_int_equal(p->link->recv(p->link->ctx, handle, &byte, 1, &moved), SC_INVALID);
    assert_int_equal(p->link->connected(p->link->ctx, handle), SC_INVALID);
    assert_int_equal(p->link->accept(p->link->ctx, handle, &link), SC_INVALID);
    p->link->close(p->link->ctx, handle);
}

static void handle_never_comes_back(void **state) {
    enum { TIMES = 300 };
    struct sockets_pair p;
    uint64_t handles[TIMES];
    (void)state;
    sockets_pair_open(&p, V4);
    expect_invalid(&p, 0);
    expect_invalid(&p, UINT64_MAX);
    for (uint32_t i = 0; i < TIMES; i++) {
        assert_int_equal(sockets_dial(&p, V4, 0, &handles[i]), SC_OK);
        uint64_t far = sockets_accept(&p);
        assert_true(handles[i] != 0 && (i == 0 || handles[i] != handles[i - 1]));
        p.link->close(p.link->ctx, handles[i]);
        p.link->close(p.link->ctx, far);
    }
    for (uint32_t i = 0; i < TIMES; i++)
        expect_invalid(&p, handles[i]);
    assert_int_equal(send_text(&p, p.near, "still here"), SC_OK);
    expect_text(&p, p.far, "still here");
    sockets_pair_close(&p);
}

static void handle_of_another_kind_and_no_bytes_are_invalid(void **state) {
    struct sockets_pair p;
    char byte = 0;
    size_t moved;
    uint64_t link;
    (void)state;
    sockets_pair_open(&p, V4);
    assert_int_equal(p.link->send(p.link->ctx, p.listener, &byte, 1, &moved), SC_INVALID);
    assert_int_equal(p.link->recv(p.link->ctx, p.listener, &byte, 1, &moved), SC_INVALID);
    assert_int_equal(p.link->connected(p.link->ctx, p.listener), SC_INVALID);
    assert_int_equal(p.link->accept(p.link->ctx, p.near, &link), SC_INVALID);
    assert_int_equal(p.link->send(p.link->ctx, p.near, &byte, 0, &moved), SC_INVALID);
    assert_int_equal(p.link->recv(p.link->ctx, p.near, &byte, 0, &moved), SC_INVALID);
    sockets_pair_close(&p);
}

static void every_descriptor_is_closed_on_exec_and_links_do_not_delay(void **state) {
    enum { DESCRIPTORS = 1024 };
    struct sockets_pair p;
    uint32_t streams = 0, ours = 0;
    bool others[DESCRIPTORS];
    (void)state;
    for (int fd = 0; fd < DESCRIPTORS; fd++)
        others[fd] = fcntl(fd, F_GETFD) >= 0;
    sockets_pair_open(&p, V4);
    for (int fd = 0; fd < DESCRIPTORS; fd++) {
        struct sockaddr_in6 peer;
        socklen_t bytes = sizeof peer;
        int on = 0;
        if (others[fd] || fcntl(fd, F_GETFD) < 0)
            continue;
        ours++;
        assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
        if (getpeername(fd, (struct sockaddr *)&peer, &bytes) != 0)
            continue;
        streams++;
        bytes = sizeof on;
        assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &bytes), 0);
        assert_true(on != 0);
        assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
    }
    assert_int_equal(ours, 7); // the test's reserved port, wake, spare, event, listener, two ends
    assert_int_equal(streams, 2);
    sockets_pair_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_go_both_ways_over_ipv4),
        cmocka_unit_test(bytes_go_both_ways_over_ipv6),
        cmocka_unit_test(refused_bytes_are_sent_once_there_is_room),
        cmocka_unit_test(end_comes_after_the_last_byte),
        cmocka_unit_test(reset_ends_both_directions_without_a_signal),
        cmocka_unit_test(send_to_a_closed_peer_ends),
        cmocka_unit_test(wait_tells_of_a_link_once_until_it_is_asked),
        cmocka_unit_test(handle_never_comes_back),
        cmocka_unit_test(handle_of_another_kind_and_no_bytes_are_invalid),
        cmocka_unit_test(every_descriptor_is_closed_on_exec_and_links_do_not_delay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
