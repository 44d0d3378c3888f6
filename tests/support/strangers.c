// SPDX-License-Identifier: AGPL-3.0-only
//
// Strangers, a flood of them, and the one who listens in.
#include "tests/support/strangers.h"

#include "core/assert.h"
#include "core/seal.h"
#include "tests/support/instant_device.h"
#include "tests/support/sockets_rig.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

// ---- one ----

void stranger_come(struct stranger *stranger, uint16_t port) {
    *stranger = (struct stranger){.fd = sockets_stranger(port)};
}

// It may be turned away meanwhile.
void stranger_say(struct stranger *stranger, const void *data, size_t bytes) {
    ssize_t taken = send(stranger->fd, data, bytes, MSG_NOSIGNAL);
    assert_true(taken == (ssize_t)bytes || (taken < 0 && (errno == EPIPE || errno == ECONNRESET)));
}

bool stranger_has_ended(struct stranger *stranger) {
    if (!stranger->ended)
        stranger->bytes += sockets_read(stranger->fd, stranger->data + stranger->bytes,
                                        sizeof stranger->data - stranger->bytes, &stranger->ended);
    return stranger->ended;
}

void stranger_go(struct stranger *stranger) {
    close(stranger->fd);
}

bool strangers_find_id(const void *data, size_t bytes) {
    static const char mark[] = SC_INSTANT_ID_MARK;
    return bytes != 0 && memmem(data, bytes, mark, sizeof mark - 1) != NULL;
}

static void expect_one_challenge(const void *data, size_t bytes) {
    struct sc_frame frame;
    size_t used = 0;
    const char *why = NULL;
    assert_int_equal(sc_frame_decode(data, bytes, SC_GREETING_MAX_BYTES, &frame, &used, &why),
                     SC_OK);
    assert_int_equal(frame.kind, SC_FRAME_CHALLENGE);
    assert_int_equal(used, bytes);
}

void strangers_expect_public(const void *data, size_t bytes, bool keyed) {
    assert_false(strangers_find_id(data, bytes));
    if (bytes == 0)
        return;
    if (keyed)
        assert_int_equal(bytes, SC_SEAL_HELLO_BYTES);
    else
        expect_one_challenge(data, bytes);
}

// ---- a thousand ----

void strangers_flood(const void *port) {
    enum { ROUNDS = 25, AT_ONCE = 40 };
    static const char garbage[64] = "GET / HTTP/1.1\r\n\r\n";
    int strangers[AT_ONCE];
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < AT_ONCE; i++)
            strangers[i] = sockets_stranger(*(const uint16_t *)port);
        for (uint32_t i = 0; i < AT_ONCE; i++) { // it is challenged, or turned away
            struct pollfd answer = {.fd = strangers[i], .events = POLLIN};
            SC_ASSERT(poll(&answer, 1, -1) == 1);
            (void)!send(strangers[i], garbage, i % 4 * 16 + 1, MSG_NOSIGNAL);
            if (i % 2 == 0)
                sockets_reset(strangers[i]);
            else
                close(strangers[i]);
        }
    }
}

// ---- one in the middle ----

static void accept_next(struct relay *relay) {
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(relay->to),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int near = accept4(relay->listener, NULL, NULL, SOCK_CLOEXEC);
    SC_ASSERT(near >= 0 && relay->links < RELAY_LINKS_MAX);
    int far = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    SC_ASSERT(far >= 0);
    if (connect(far, (const struct sockaddr *)&to, sizeof to) != 0) { // nobody listens
        close(far);
        close(near);
        return;
    }
    relay->link[relay->links].fd[RELAY_UP] = near; // read here, written to the other
    relay->link[relay->links].fd[RELAY_DOWN] = far;
    relay->links++;
}

static void end_link(struct relay *relay, uint32_t i) {
    for (uint32_t way = 0; way < RELAY_WAYS; way++) {
        close(relay->link[i].fd[way]);
        relay->link[i].fd[way] = -1;
    }
}

static void pass_on(struct relay *relay, uint32_t i, enum relay_way way) {
    uint8_t data[4096];
    ssize_t got = recv(relay->link[i].fd[way], data, sizeof data, 0);
    if (got <= 0 || send(relay->link[i].fd[1 - way], data, (size_t)got, MSG_NOSIGNAL) != got) {
        end_link(relay, i);
        return;
    }
    size_t *bytes = &relay->link[i].bytes[way];
    size_t kept = (size_t)got < RELAY_BYTES_MAX - *bytes ? (size_t)got : RELAY_BYTES_MAX - *bytes;
    memcpy(relay->link[i].data[way] + *bytes, data, kept);
    *bytes += kept;
}

static void *pass_all(void *arg) {
    struct relay *relay = arg;
    for (;;) {
        struct pollfd set[2 + 2 * RELAY_LINKS_MAX] = {{.fd = relay->stopped, .events = POLLIN},
                                                      {.fd = relay->listener, .events = POLLIN}};
        for (uint32_t i = 0; i < 2 * relay->links; i++)
            set[2 + i] = (struct pollfd){.fd = relay->link[i / 2].fd[i % 2], .events = POLLIN};
        uint32_t links = relay->links;
        SC_ASSERT(poll(set, 2 + 2 * links, -1) > 0);
        if (set[0].revents != 0)
            return NULL;
        for (uint32_t i = 0; i < 2 * links; i++)
            if (set[2 + i].revents != 0 && relay->link[i / 2].fd[i % 2] >= 0)
                pass_on(relay, i / 2, (enum relay_way)(i % 2));
        if (set[1].revents != 0)
            accept_next(relay);
    }
}

void relay_begin(struct relay *relay, uint16_t to) {
    int ends[2];
    memset(relay, 0, sizeof *relay);
    relay->to = to;
    relay->port = sockets_reserve(V4, &relay->listener);
    SC_ASSERT(relay->port != 0 && listen(relay->listener, 16) == 0 && pipe(ends) == 0);
    relay->stopped = ends[0];
    relay->stop = ends[1];
    SC_ASSERT(pthread_create(&relay->thread, NULL, pass_all, relay) == 0);
}

void relay_end(struct relay *relay) {
    close(relay->stop); // its other end becomes readable
    SC_ASSERT(pthread_join(relay->thread, NULL) == 0);
    close(relay->stopped);
    close(relay->listener);
    for (uint32_t i = 0; i < relay->links; i++)
        if (relay->link[i].fd[RELAY_UP] >= 0)
            end_link(relay, i);
}
