// SPDX-License-Identifier: AGPL-3.0-only
//
// Two ranks over real loopback sockets: they work together, whoever else comes to the port.
#include "tests/support/sockets_rig.h"

#include "core/assert.h"
#include "core/frame.h"
#include "tests/support/frames.h"
#include "tests/support/strangers.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define OPS 1000u
#define BYTES 4096u

static uint64_t live_epoch(const struct sockets_rig *rig, uint32_t place) {
    struct sc_core_view view;
    sc_pump_view(rig->ranks[place].pump, &view);
    return view.epoch;
}

static void submit(struct sockets_rig *rig, uint32_t place, uint64_t buffer, uint64_t stream) {
    const struct sc_op_desc desc = {.kind = SC_OP_ALL_REDUCE, .bytes = BYTES};
    const struct sc_op_place where = {.src = buffer, .dst = buffer, .stream = stream};
    uint64_t number, seq;
    assert_int_equal(sc_pump_submit(rig->ranks[place].pump, live_epoch(rig, place), &desc, &where,
                                    &number, &seq),
                     SC_OK);
}

static void two_ranks_agree_on_a_thousand_ops(void **state) {
    struct sockets_rig rig;
    uint64_t buffer[SOCKETS_RANKS], stream[SOCKETS_RANKS];
    (void)state;
    sockets_rig_open(&rig);
    for (uint32_t r = 0; r < SOCKETS_RANKS; r++) {
        assert_int_equal(sockets_rank_open(&rig, r, r), SC_OK);
        const struct sc_device *device = &rig.ranks[r].device;
        assert_int_equal(device->mem_alloc(device->ctx, BYTES, &buffer[r]), SC_OK);
        assert_int_equal(device->stream_create(device->ctx, &stream[r]), SC_OK);
    }
    sockets_until(&rig, sockets_are_ready(&rig));
    for (uint32_t i = 1; i <= OPS; i++) {
        for (uint32_t r = 0; r < SOCKETS_RANKS; r++) {
            submit(&rig, r, buffer[r], stream[r]);
            sc_pump_poll(rig.ranks[r].pump);
            assert_int_equal(rig.ranks[r].completed, i);
        }
        if (i % 100 == 0)
            sockets_step(&rig);
    }
    for (uint32_t r = 0; r < SOCKETS_RANKS; r++)
        assert_true(sc_status_class(sc_pump_sync(rig.ranks[r].pump, live_epoch(&rig, r), OPS)) <=
                    SC_CLASS_WAIT);
    sockets_until(&rig, rig.ranks[0].agreed >= OPS && rig.ranks[1].agreed >= OPS);
    assert_true(sockets_are_ready(&rig));
    sockets_rig_close(&rig);
}

// ---- strangers ----

struct silence {
    uint8_t data[4096];
    size_t bytes;
    bool ended;
};

static bool has_ended(int stranger, struct silence *heard) {
    if (!heard->ended)
        heard->bytes += sockets_read(stranger, heard->data + heard->bytes,
                                     sizeof heard->data - heard->bytes, &heard->ended);
    return heard->ended;
}

static void say(int stranger, const void *data, size_t bytes) {
    assert_int_equal(send(stranger, data, bytes, MSG_NOSIGNAL), bytes);
}

static void coordinator_opens(struct sockets_rig *rig) {
    sockets_rig_open(rig);
    assert_int_equal(sockets_rank_open(rig, 0, 0), SC_OK);
}

// Well before the deadline of any stranger's handshake.
static void worker_joins_under_a_second(struct sockets_rig *rig) {
    const uint64_t since_ns = sockets_now();
    assert_int_equal(sockets_rank_open(rig, 1, 1), SC_OK);
    sockets_until(rig, sockets_are_ready(rig));
    assert_true(sockets_now() - since_ns < SOCKETS_SECOND);
}

static void http_stranger_learns_nothing_and_takes_no_place_b1(void **state) {
    static const char request[] = "GET / HTTP/1.1\r\nHost: rank0\r\n\r\n";
    struct sockets_rig rig;
    struct silence heard = {.bytes = 0};
    (void)state;
    coordinator_opens(&rig);
    const uint64_t since_ns = sockets_now();
    int stranger = sockets_stranger(rig.port);
    say(stranger, request, sizeof request - 1);
    worker_joins_under_a_second(&rig);
    sockets_until(&rig, has_ended(stranger, &heard));
    assert_true(sockets_now() - since_ns < 2 * SOCKETS_SECOND);
    strangers_expect_public(heard.data, heard.bytes, false);
    assert_true(sockets_are_ready(&rig));
    close(stranger);
    sockets_rig_close(&rig);
}

static void strangers_that_reset_cost_nothing_b2(void **state) {
    struct sockets_rig rig;
    struct sc_frame frame;
    uint8_t hello[SC_GREETING_MAX_BYTES];
    (void)state;
    frame_at_bounds(&frame, SC_FRAME_HELLO);
    const size_t hello_bytes = sc_frame_encode(&frame, hello, sizeof hello);
    const size_t cuts[] = {0, 7, hello_bytes - 1};
    coordinator_opens(&rig);
    const uint32_t base = sockets_descriptors();
    for (uint32_t accepted = 0; accepted < 2; accepted++) { // reset before it is accepted, or after
        for (uint32_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
            int stranger = sockets_stranger(rig.port);
            if (accepted)
                sockets_until(&rig, sockets_descriptors() == base + 2);
            if (cuts[i] != 0)
                say(stranger, hello, cuts[i]);
            if (accepted)
                sockets_step(&rig);
            sockets_reset(stranger);
            sockets_step(&rig);
        }
        sockets_until(&rig, sockets_descriptors() == base);
    }
    worker_joins_under_a_second(&rig);
    sockets_rig_close(&rig);
}

static void silent_connections_keep_nobody_out_b3(void **state) {
    enum { SILENT = 50 };
    static struct silence heard[SILENT];
    struct sockets_rig rig;
    int strangers[SILENT];
    (void)state;
    memset(heard, 0, sizeof heard);
    coordinator_opens(&rig);
    for (uint32_t i = 0; i < SILENT; i++)
        strangers[i] = sockets_stranger(rig.port);
    worker_joins_under_a_second(&rig);
    for (uint32_t i = 0; i < SILENT; i++) { // each is dropped at its deadline, at the latest
        sockets_until(&rig, has_ended(strangers[i], &heard[i]));
        strangers_expect_public(heard[i].data, heard[i].bytes, false);
        close(strangers[i]);
    }
    assert_true(sockets_are_ready(&rig));
    sockets_rig_close(&rig);
}

// From a process of their own.
static void thousand_bad_handshakes_exhaust_nothing(void **state) {
    struct sockets_rig rig;
    struct rlimit before;
    bool well = false;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    coordinator_opens(&rig);
    const uint32_t base = sockets_descriptors();
    pid_t child = sockets_child_begin(strangers_flood, &rig.port);
    sockets_limit_descriptors(6); // fewer than come at once
    sockets_until(&rig, sockets_child_has_ended(child, &well));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_true(well);
    worker_joins_under_a_second(&rig);
    sockets_rank_kill(&rig, 1);
    sockets_until(&rig, sockets_descriptors() == base);
    sockets_rig_close(&rig);
}

// ---- the coordinator's address ----

static int squat(uint16_t port, int backlog) {
    const struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, backlog), 0);
    return fd;
}

static int dial_without_waiting(uint16_t port) {
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    (void)connect(fd, (const struct sockaddr *)&to, sizeof to);
    return fd;
}

static void listener_that_never_accepts_is_told_of_at_join_ns_b4(void **state) {
    enum { FILLERS = 4 };
    struct sockets_rig rig;
    int fillers[FILLERS];
    char text[512];
    (void)state;
    sockets_rig_open(&rig);
    rig.core.join_ns = 300 * SOCKETS_MS;
    rig.core.greeting_ns = 50 * SOCKETS_MS;
    int squatter = squat(rig.port, 0);
    for (uint32_t i = 0; i < FILLERS; i++)
        fillers[i] = dial_without_waiting(rig.port);
    const uint64_t since_ns = sockets_now();
    assert_int_equal(sockets_rank_open(&rig, 1, 1), SC_OK);
    sockets_until(&rig, rig.ranks[1].missing_at_ns != 0);
    assert_int_equal(rig.ranks[1].missing, 1);
    assert_true(rig.ranks[1].missing_at_ns - since_ns >= rig.core.join_ns);
    assert_int_equal(sockets_state(&rig, 1), SC_STATE_RENDEZVOUS);
    sc_pump_explain(rig.ranks[1].pump, text, sizeof text);
    assert_non_null(strstr(text, "given up without an answer"));
    for (uint32_t i = 0; i < FILLERS; i++)
        close(fillers[i]);
    close(squatter);
    sockets_rig_close(&rig);
}

static void expect_open_fails_with_bind(struct sockets_rig *rig, uint32_t place) {
    char address[128];
    const uint64_t since_ns = sockets_now();
    assert_int_equal(sockets_rank_open(rig, place, 0), SC_BIND);
    assert_true(sockets_now() - since_ns < SOCKETS_SECOND);
    snprintf(address, sizeof address, "listen on %s port %u, address %s: %s", V4,
             (unsigned)rig->port, V4, strerror(EADDRINUSE));
    assert_non_null(strstr(rig->why, address));
    assert_non_null(strstr(rig->why, sc_status_sentence(SC_BIND)));
}

static bool is_refused(int squatter, int *caller) {
    static const char banner[200] = "220 some other service";
    if (*caller < 0 && (*caller = accept4(squatter, NULL, NULL, SOCK_NONBLOCK)) >= 0)
        say(*caller, banner, sizeof banner);
    struct silence heard = {.bytes = 0};
    return *caller >= 0 && has_ended(*caller, &heard);
}

static void taken_port_fails_the_open_and_its_banner_is_refused_b9(void **state) {
    struct sockets_rig rig;
    int caller = -1;
    (void)state;
    sockets_rig_open(&rig);
    int squatter = squat(rig.port, 8);
    expect_open_fails_with_bind(&rig, 0);
    assert_int_equal(sockets_rank_open(&rig, 1, 1), SC_OK);
    sockets_until(&rig, is_refused(squatter, &caller));
    close(caller);
    close(squatter);
    assert_int_equal(sockets_rank_open(&rig, 0, 0), SC_OK);
    sockets_until(&rig, sockets_are_ready(&rig));
    sockets_rig_close(&rig);
}

static void second_live_coordinator_fails_b9(void **state) {
    struct sockets_rig rig;
    (void)state;
    coordinator_opens(&rig);
    expect_open_fails_with_bind(&rig, 2);
    worker_joins_under_a_second(&rig);
    expect_open_fails_with_bind(&rig, 2);
    assert_true(sockets_are_ready(&rig));
    sockets_rig_close(&rig);
}

static void restarted_coordinator_binds_each_time_b9(void **state) {
    struct sockets_rig rig;
    uint8_t data[4096];
    bool ended = false;
    (void)state;
    sockets_rig_open(&rig);
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(sockets_rank_open(&rig, 0, 0), SC_OK);
        int stranger = sockets_stranger(rig.port);
        sockets_until(&rig, sockets_read(stranger, data, sizeof data, &ended) > 0);
        sockets_rank_kill(&rig, 0); // it ends the connection first, whose port then lingers
        close(stranger);
    }
    assert_int_equal(sockets_rank_open(&rig, 0, 0), SC_OK);
    worker_joins_under_a_second(&rig);
    sockets_rig_close(&rig);
}

static void restarted_coordinator_is_found_again(void **state) {
    struct sockets_rig rig;
    (void)state;
    coordinator_opens(&rig);
    worker_joins_under_a_second(&rig);
    for (uint32_t i = 0; i < 3; i++) {
        const uint64_t epoch = live_epoch(&rig, 1);
        sockets_rank_kill(&rig, 0);
        assert_int_equal(sockets_rank_open(&rig, 0, 0), SC_OK);
        sockets_until(&rig, sockets_are_ready(&rig) && live_epoch(&rig, 1) > epoch);
    }
    sockets_rig_close(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks_agree_on_a_thousand_ops),
        cmocka_unit_test(http_stranger_learns_nothing_and_takes_no_place_b1),
        cmocka_unit_test(strangers_that_reset_cost_nothing_b2),
        cmocka_unit_test(silent_connections_keep_nobody_out_b3),
        cmocka_unit_test(thousand_bad_handshakes_exhaust_nothing),
        cmocka_unit_test(listener_that_never_accepts_is_told_of_at_join_ns_b4),
        cmocka_unit_test(taken_port_fails_the_open_and_its_banner_is_refused_b9),
        cmocka_unit_test(second_live_coordinator_fails_b9),
        cmocka_unit_test(restarted_coordinator_binds_each_time_b9),
        cmocka_unit_test(restarted_coordinator_is_found_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
