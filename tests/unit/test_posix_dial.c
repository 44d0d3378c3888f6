// SPDX-License-Identifier: AGPL-3.0-only
//
// From a name to a connection. This program can make a dial meet itself.
#include "core/assert.h"
#include "tests/support/name_service.h"
#include "tests/support/sockets_rig.h"

#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

// ---- a dial that meets itself ----

static bool meets_itself;

// Given the very port it calls as its own, as the kernel's choice may happen to be.
int connect(int fd, __CONST_SOCKADDR_ARG to, socklen_t bytes) {
    union {
        void *symbol;
        int (*call)(int, const struct sockaddr *, socklen_t);
    } next = {.symbol = dlsym(RTLD_NEXT, "connect")};
    if (meets_itself) {
        const int on = 1; // the port is reserved
        SC_ASSERT(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
        SC_ASSERT(bind(fd, to.__sockaddr__, bytes) == 0);
    }
    return next.call(fd, to.__sockaddr__, bytes);
}

// ---- the tests' common ground ----

static void *nothing(void *arg) {
    return arg;
}

static uint32_t threads_before, descriptors_before;

static int begin(void **state) {
    pthread_t thread;
    (void)state;
    // A sanitizer may start a thread of its own with the first one.
    if (pthread_create(&thread, NULL, nothing, NULL) != 0 || pthread_join(thread, NULL) != 0)
        return -1;
    name_service_reset();
    meets_itself = false;
    threads_before = sockets_threads();
    descriptors_before = sockets_descriptors();
    return 0;
}

// Whatever a test did: no thread and no descriptor stays.
static int end(void **state) {
    const uint64_t until_ns = sockets_now() + SOCKETS_LIMIT_NS;
    (void)state;
    while (sockets_threads() > threads_before && sockets_now() < until_ns)
        sched_yield();
    return sockets_threads() <= threads_before && sockets_descriptors() == descriptors_before ? 0
                                                                                              : -1;
}

static void dial_named(struct sockets_pair *p, const char *host, uint64_t *link) {
    assert_int_equal(p->link->dial(p->link->ctx, host, p->port, 0, link), SC_OK);
}

static sc_status standing(struct sockets_pair *p, uint64_t link) {
    return p->link->connected(p->link->ctx, link);
}

static void expect_said(struct sockets_pair *p, const char *host, const char *word) {
    char text[512];
    assert_string_equal(p->link->explain(p->link->ctx, text, sizeof text), text);
    if (strstr(text, host) == NULL || strstr(text, word) == NULL)
        print_error("it says: %s\n", text);
    assert_non_null(strstr(text, host));
    assert_non_null(strstr(text, word));
}

static void stop_listening(struct sockets_pair *p) {
    p->link->close(p->link->ctx, p->listener);
}

// ---- addresses ----

static void nobody_there_is_refused(const char *address) {
    struct sockets_pair p;
    uint64_t link;
    char byte = 0;
    size_t moved;
    sockets_pair_listen(&p, address);
    expect_said(&p, address, "listening");
    stop_listening(&p);
    assert_int_equal(sockets_dial(&p, address, 0, &link), SC_REFUSED);
    expect_said(&p, address, "Connection refused");
    assert_int_equal(standing(&p, link), SC_REFUSED);
    assert_int_equal(p.link->send(p.link->ctx, link, &byte, 1, &moved), SC_REFUSED);
    assert_int_equal(p.link->recv(p.link->ctx, link, &byte, 1, &moved), SC_REFUSED);
    p.link->close(p.link->ctx, link);
    assert_int_equal(standing(&p, link), SC_INVALID);
    sockets_pair_close(&p);
}

static void nobody_at_an_ipv4_address_is_refused(void **state) {
    (void)state;
    nobody_there_is_refused(V4);
}

static void nobody_at_an_ipv6_address_is_refused(void **state) {
    (void)state;
    nobody_there_is_refused(V6);
}

// Over loopback the refusal may come within the dial itself: the wait that follows must tell of it.
static void refusal_within_the_dial_ends_the_next_wait(void **state) {
    struct sockets_pair pair;
    (void)state;
    sockets_pair_listen(&pair, V4);
    stop_listening(&pair);
    for (uint32_t i = 0; i < 20; i++) {
        uint64_t link;
        dial_named(&pair, V4, &link);
        assert_int_equal(pair.host->wait(pair.host->ctx, sockets_now() + SOCKETS_LIMIT_NS), SC_OK);
        while (standing(&pair, link) == SC_INPROGRESS)
            assert_int_equal(pair.host->wait(pair.host->ctx, sockets_now() + SOCKETS_LIMIT_NS),
                             SC_OK);
        pair.link->close(pair.link->ctx, link);
    }
    sockets_pair_close(&pair);
}

static void address_without_a_route_is_unreachable(void **state) {
    struct sockets_pair p;
    uint64_t link;
    (void)state;
    sockets_pair_listen(&p, V4);
    assert_int_equal(sockets_dial(&p, "224.0.0.1", 0, &link), SC_UNREACHABLE); // a group's
    expect_said(&p, "224.0.0.1", "unreachable");
    sockets_pair_close(&p);
}

static void dial_of_nothing_is_invalid(void **state) {
    struct sockets_pair p;
    uint64_t link = 77;
    (void)state;
    sockets_pair_listen(&p, V4);
    assert_int_equal(p.link->dial(p.link->ctx, NULL, p.port, 0, &link), SC_INVALID);
    assert_int_equal(p.link->dial(p.link->ctx, "", p.port, 0, &link), SC_INVALID);
    assert_int_equal(p.link->dial(p.link->ctx, V4, 0, 0, &link), SC_INVALID);
    assert_int_equal(link, 77);
    sockets_pair_close(&p);
}

static void meeting_itself_is_refused(const char *address) {
    struct sockets_pair p;
    uint64_t link;
    sockets_pair_listen(&p, address);
    stop_listening(&p);
    meets_itself = true;
    assert_int_equal(sockets_dial(&p, address, 0, &link), SC_REFUSED);
    expect_said(&p, address, "met itself");
    // It has let go of the port, though it is not closed.
    assert_int_equal(p.link->listen(p.link->ctx, address, p.port, &p.listener), SC_OK);
    p.link->close(p.link->ctx, link);
    sockets_pair_close(&p);
}

static void dial_that_meets_itself_over_ipv4_is_refused(void **state) {
    (void)state;
    meeting_itself_is_refused(V4);
}

static void dial_that_meets_itself_over_ipv6_is_refused(void **state) {
    (void)state;
    meeting_itself_is_refused(V6);
}

static void attempts_take_the_addresses_in_turn(void **state) {
    static const char *const addresses[] = {V6, "127.0.0.2", V4};
    static const char *const said[] = {"address ::1 ", "address 127.0.0.2 ", "address 127.0.0.1 "};
    struct sockets_pair p;
    (void)state;
    sockets_pair_listen(&p, V4);
    name_service_addresses(addresses, 3);
    for (uint32_t attempt = 0; attempt < 7; attempt++) {
        uint64_t link;
        sc_status status = sockets_dial(&p, "many.test", attempt, &link);
        assert_true((status == SC_OK) == (attempt % 3 == 2)); // only one of them has a listener
        expect_said(&p, "many.test", said[attempt % 3]);
        p.link->close(p.link->ctx, link);
    }
    sockets_pair_close(&p);
}

static void loopback_address_is_said_to_be_one_b6(void **state) {
    static const char *const loopbacks[] = {V4, "127.0.1.1", "::ffff:127.0.0.1"};
    struct sockets_pair p;
    (void)state;
    sockets_pair_listen(&p, V4);
    stop_listening(&p);
    for (uint32_t i = 0; i < sizeof loopbacks / sizeof loopbacks[0]; i++) {
        uint64_t link;
        name_service_addresses(&loopbacks[i], 1);
        assert_true(sockets_dial(&p, "master.test", 0, &link) != SC_OK);
        expect_said(&p, "master.test", "loopback");
        expect_said(&p, "master.test", loopbacks[i]);
        p.link->close(p.link->ctx, link);
    }
    sockets_pair_close(&p);
}

// ---- names ----

static void name_is_resolved_anew_each_time_b5(void **state) {
    static const int errors[] = {EAI_AGAIN, EAI_AGAIN, EAI_AGAIN, EAI_NONAME, EAI_NONAME};
    struct sockets_pair p;
    uint64_t link;
    (void)state;
    sockets_pair_listen(&p, V4);
    name_service_errors(errors, 5);
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(sockets_dial(&p, "late.test", i, &link), SC_UNREACHABLE);
        expect_said(&p, "late.test", gai_strerror(errors[i]));
        p.link->close(p.link->ctx, link);
    }
    assert_int_equal(sockets_dial(&p, "late.test", 5, &link), SC_OK);
    expect_said(&p, "late.test", "connected");
    assert_int_equal(name_service_asked(), 6);
    sockets_pair_close(&p);
}

static void name_that_does_not_exist_is_unreachable(void **state) {
    struct sockets_pair p;
    uint64_t link;
    (void)state;
    sockets_pair_listen(&p, V4);
    assert_int_equal(sockets_dial(&p, "nobody.invalid", 0, &link), SC_UNREACHABLE);
    expect_said(&p, "nobody.invalid", "name service: ");
    sockets_pair_close(&p);
}

static void slow_name_service_blocks_nobody(void **state) {
    struct sockets_pair p;
    uint64_t link;
    char byte = 0;
    size_t moved;
    (void)state;
    sockets_pair_listen(&p, V4);
    name_service_hold(true);
    dial_named(&p, "slow.test", &link);
    name_service_wait_until_asked(1);
    assert_int_equal(standing(&p, link), SC_INPROGRESS);
    assert_int_equal(p.link->send(p.link->ctx, link, &byte, 1, &moved), SC_INPROGRESS);
    assert_int_equal(p.link->recv(p.link->ctx, link, &byte, 1, &moved), SC_INPROGRESS);
    assert_int_equal(p.host->wait(p.host->ctx, 0), SC_TIMEOUT);
    expect_said(&p, "slow.test", "no answer yet");
    name_service_hold(false);
    assert_int_equal(p.host->wait(p.host->ctx, sockets_now() + SOCKETS_LIMIT_NS), SC_OK);
    assert_int_equal(sockets_follow(&p, link), SC_OK);
    sockets_pair_close(&p);
}

static void dial_closed_while_resolving_is_forgotten(void **state) {
    struct sockets_pair p;
    uint64_t link, second;
    (void)state;
    sockets_pair_listen(&p, V4);
    name_service_hold(true);
    dial_named(&p, "slow.test", &link);
    name_service_wait_until_asked(1);
    p.link->close(p.link->ctx, link);
    expect_said(&p, "slow.test", "given up without an answer");
    assert_int_equal(standing(&p, link), SC_INVALID);
    name_service_hold(false);
    assert_int_equal(p.host->wait(p.host->ctx, sockets_now() + SOCKETS_LIMIT_NS), SC_OK);
    // Its answer came too early for the next dial, which asks anew.
    assert_int_equal(sockets_dial(&p, "slow.test", 0, &second), SC_OK);
    assert_int_equal(name_service_asked(), 2);
    sockets_pair_close(&p);
}

static void object_may_end_while_resolving(void **state) {
    struct sockets_pair p;
    uint64_t link;
    (void)state;
    sockets_pair_listen(&p, V4);
    name_service_hold(true);
    dial_named(&p, "slow.test", &link);
    name_service_wait_until_asked(1);
    sockets_pair_close(&p);
    assert_int_equal(sockets_descriptors(), descriptors_before);
    name_service_hold(false); // the thread ends by itself, as the teardown demands
}

static void one_name_is_resolved_at_a_time(void **state) {
    struct sockets_pair p;
    uint64_t links[3];
    (void)state;
    sockets_pair_listen(&p, V4);
    name_service_hold(true);
    dial_named(&p, "one.test", &links[0]);
    dial_named(&p, "one.test", &links[1]); // shares the answer
    dial_named(&p, "two.test", &links[2]); // waits for its turn
    name_service_wait_until_asked(1);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(standing(&p, links[i]), SC_INPROGRESS);
    assert_int_equal(sockets_threads(), threads_before + 1);
    name_service_hold(false);
    for (uint32_t i = 3; i-- > 0;)
        assert_int_equal(sockets_follow(&p, links[i]), SC_OK);
    assert_int_equal(name_service_asked(), 2);
    sockets_pair_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nobody_at_an_ipv4_address_is_refused, begin, end),
        cmocka_unit_test_setup_teardown(nobody_at_an_ipv6_address_is_refused, begin, end),
        cmocka_unit_test_setup_teardown(refusal_within_the_dial_ends_the_next_wait, begin, end),
        cmocka_unit_test_setup_teardown(address_without_a_route_is_unreachable, begin, end),
        cmocka_unit_test_setup_teardown(dial_of_nothing_is_invalid, begin, end),
        cmocka_unit_test_setup_teardown(dial_that_meets_itself_over_ipv4_is_refused, begin, end),
        cmocka_unit_test_setup_teardown(dial_that_meets_itself_over_ipv6_is_refused, begin, end),
        cmocka_unit_test_setup_teardown(attempts_take_the_addresses_in_turn, begin, end),
        cmocka_unit_test_setup_teardown(loopback_address_is_said_to_be_one_b6, begin, end),
        cmocka_unit_test_setup_teardown(name_is_resolved_anew_each_time_b5, begin, end),
        cmocka_unit_test_setup_teardown(name_that_does_not_exist_is_unreachable, begin, end),
        cmocka_unit_test_setup_teardown(slow_name_service_blocks_nobody, begin, end),
        cmocka_unit_test_setup_teardown(dial_closed_while_resolving_is_forgotten, begin, end),
        cmocka_unit_test_setup_teardown(object_may_end_while_resolving, begin, end),
        cmocka_unit_test_setup_teardown(one_name_is_resolved_at_a_time, begin, end),
    };
    setenv("RES_OPTIONS", "timeout:1 attempts:1", 1); // where a name service is told but not there
    return cmocka_run_group_tests(tests, NULL, NULL);
}
