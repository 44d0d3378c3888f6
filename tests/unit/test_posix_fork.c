// SPDX-License-Identifier: AGPL-3.0-only
//
// A forked child holds no link of its parent's, at whatever moment the fork came.
#include "core/assert.h"
#include "tests/support/sockets_rig.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define DESCRIPTORS_MAX 256

// One by one: a tool that watches this program may hold some, out of sight, in /proc.
static uint32_t count_descriptors(void) {
    uint32_t count = 0;
    for (int fd = 0; fd < DESCRIPTORS_MAX; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

// ---- a fork in the middle of a creation ----

static bool forks_at_eventfd, went_well;

static void standard_input_is_open(const void *arg) {
    (void)arg;
    SC_ASSERT(fcntl(0, F_GETFD) >= 0);
}

// In the place of the C library's: before an object has its first descriptor, this process forks.
int eventfd(unsigned count, int flags) {
    union {
        void *symbol;
        int (*call)(unsigned, int);
    } next = {.symbol = dlsym(RTLD_NEXT, "eventfd")};
    if (forks_at_eventfd)
        went_well &= sockets_child(standard_input_is_open);
    return next.call(count, flags);
}

static void fork_while_an_object_is_created_closes_nothing_else(void **state) {
    struct sc_posix *posix;
    (void)state;
    forks_at_eventfd = went_well = true;
    assert_int_equal(sc_posix_create(&posix), SC_OK);
    forks_at_eventfd = false;
    assert_true(went_well);
    sc_posix_destroy(posix);
}

// ---- a fork between two calls ----

static void has_so_many_descriptors(const void *arg) {
    SC_ASSERT(count_descriptors() == *(const uint32_t *)arg);
}

static bool child_has(uint32_t descriptors) {
    bool well = false;
    pid_t child = sockets_child_begin(has_so_many_descriptors, &descriptors);
    while (!sockets_child_has_ended(child, &well))
        sched_yield();
    return well;
}

static void send_and_receive(struct sockets_pair *pair) {
    char byte = 7;
    size_t moved = 0;
    assert_int_equal(pair->link->send(pair->link->ctx, pair->near, &byte, 1, &moved), SC_OK);
    byte = 0;
    while (pair->link->recv(pair->link->ctx, pair->far, &byte, 1, &moved) == SC_INPROGRESS)
        assert_int_equal(pair->host->wait(pair->host->ctx, sockets_now() + SOCKETS_LIMIT_NS),
                         SC_OK);
    assert_int_equal(byte, 7);
}

static void child_closes_its_copies_and_the_parent_works_on(void **state) {
    struct sockets_pair pair;
    (void)state;
    const uint32_t base = count_descriptors() + 1; // and the port's reservation
    sockets_pair_open(&pair, V4);
    const uint32_t open = count_descriptors();
    assert_true(child_has(base));
    assert_int_equal(count_descriptors(), open);
    send_and_receive(&pair);
    sockets_pair_close(&pair);
}

static void child_closes_what_all_objects_hold_that_there_are(void **state) {
    enum { PAIRS = 3 };
    struct sockets_pair pairs[PAIRS];
    (void)state;
    const uint32_t base = count_descriptors();
    for (uint32_t i = 0; i < PAIRS; i++)
        sockets_pair_open(&pairs[i], V4);
    assert_true(child_has(base + PAIRS));
    sockets_pair_close(&pairs[1]);
    assert_true(child_has(base + PAIRS - 1));
    send_and_receive(&pairs[0]);
    send_and_receive(&pairs[2]);
    sockets_pair_close(&pairs[2]);
    sockets_pair_close(&pairs[0]);
    assert_true(child_has(base));
}

static void child_of_a_child_closes_nothing_of_its_own(const void *arg) {
    (void)arg;
    const uint32_t before = count_descriptors();
    int fd = eventfd(0, EFD_CLOEXEC); // may be given a number that was a link's
    SC_ASSERT(sockets_child(standard_input_is_open) && fcntl(fd, F_GETFD) >= 0);
    SC_ASSERT(child_has(before + 1));
}

static void descriptors_of_a_child_are_its_own_from_then_on(void **state) {
    struct sockets_pair pair;
    (void)state;
    sockets_pair_open(&pair, V4);
    assert_true(sockets_child(child_of_a_child_closes_nothing_of_its_own));
    sockets_pair_close(&pair);
}

// ---- a fork at any moment ----

static void holds_no_socket(const void *arg) {
    struct stat found;
    for (int fd = 0; fd < DESCRIPTORS_MAX; fd++)
        SC_ASSERT(fd == *(const int *)arg || fstat(fd, &found) != 0 || !S_ISSOCK(found.st_mode));
}

static _Atomic bool stop;

// Objects with links come and go, as those of a library whose handles are opened and closed.
static void *come_and_go(void *arg) {
    const uint16_t port = *(const uint16_t *)arg;
    while (!stop) {
        struct sc_posix *posix;
        uint64_t handle, links[8];
        SC_ASSERT(sc_posix_create(&posix) == SC_OK);
        const struct sc_host *host = sc_posix_host(posix);
        const struct sc_link *link = sc_posix_link(posix);
        SC_ASSERT(host->enter(host->ctx) == SC_OK);
        // A child that has only just begun may hold the last one's listener for a moment.
        while (link->listen(link->ctx, V4, port, &handle) != SC_OK)
            sched_yield();
        for (uint32_t i = 0; i < 8; i++)
            SC_ASSERT(link->dial(link->ctx, V4, port, 0, &links[i]) == SC_OK);
        host->leave(host->ctx);
        sc_posix_destroy(posix);
    }
    return NULL;
}

static void child_of_any_moment_holds_no_link(void **state) {
    enum { FORKS = 60 };
    pthread_t thread;
    int reserved;
    (void)state;
    uint16_t port = sockets_reserve(V4, &reserved);
    assert_int_not_equal(port, 0);
    stop = false;
    assert_int_equal(pthread_create(&thread, NULL, come_and_go, &port), 0);
    for (uint32_t i = 0; i < FORKS; i++) {
        bool well = false;
        pid_t child = sockets_child_begin(holds_no_socket, &reserved);
        while (!sockets_child_has_ended(child, &well))
            sched_yield();
        assert_true(well);
    }
    stop = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    close(reserved);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fork_while_an_object_is_created_closes_nothing_else),
        cmocka_unit_test(child_closes_its_copies_and_the_parent_works_on),
        cmocka_unit_test(child_closes_what_all_objects_hold_that_there_are),
        cmocka_unit_test(descriptors_of_a_child_are_its_own_from_then_on),
        cmocka_unit_test(child_of_any_moment_holds_no_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
