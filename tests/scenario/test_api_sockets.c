// SPDX-License-Identifier: AGPL-3.0-only
//
// The public calls over real loopback sockets: finding rank 0, whoever else comes to its port and
// whoever else holds it.
#include "core/seal.h"
#include "tests/support/frames.h"
#include "tests/support/name_service.h"
#include "tests/support/real_world.h"
#include "tests/support/sockets_rig.h"
#include "tests/support/strangers.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const uint8_t job_key[SC_KEY_BYTES] = "thirty-two bytes that both hold!";

static void job_begin(struct real_job *job, uint32_t world, bool keyed) {
    real_job_begin(job, world);
    job->key = keyed ? job_key : NULL;
    name_service_reset();
}

// Opens all ranks but the first, which is there.
static void workers_join_within(const struct real_job *job, sc_comm *comms, uint64_t limit_ns) {
    const uint64_t since_ns = real_now();
    for (uint32_t rank = 1; rank < job->world; rank++)
        comms[rank] = real_open(job, rank);
    for (uint32_t rank = 0; rank < job->world; rank++)
        (void)real_ready_after(comms[rank], 0);
    assert_true(real_now() - since_ns < limit_ns);
}

static void all_are_ready(const struct real_job *job, const sc_comm *comms) {
    for (uint32_t rank = 0; rank < job->world; rank++)
        assert_int_equal(real_health(comms[rank]).state, SC_STATE_READY);
}

static void expect_error_says(const char *words) {
    if (strstr(sc_last_error(), words) == NULL)
        print_error("it says: %s\n", sc_last_error());
    assert_non_null(strstr(sc_last_error(), words));
}

static void expect_error_says_port(const struct real_job *job) {
    char words[32];
    snprintf(words, sizeof words, "port %u", (unsigned)job->port);
    expect_error_says(words);
}

static void expect_not_ready(sc_comm comm, uint64_t timeout_ns) {
    struct sc_recovery recovery = {.size = sizeof recovery};
    assert_int_equal(sc_wait_ready(comm, timeout_ns, &recovery), SC_TIMEOUT);
}

// ---- strangers ----

static void http_stranger_stays(bool keyed) {
    static const char request[] = "GET / HTTP/1.1\r\nHost: rank0\r\n\r\n";
    struct real_job job;
    struct stranger stranger;
    sc_comm comms[2];
    job_begin(&job, 2, keyed);
    comms[0] = real_open(&job, 0);
    const uint64_t since_ns = real_now();
    stranger_come(&stranger, job.port);
    stranger_say(&stranger, request, sizeof request - 1);
    workers_join_within(&job, comms, REAL_SECOND);
    real_until(stranger_has_ended(&stranger));
    assert_true(real_now() - since_ns < 2 * REAL_SECOND);
    strangers_expect_public(stranger.data, stranger.bytes, keyed);
    all_are_ready(&job, comms);
    stranger_go(&stranger);
    real_close_all(comms, 2);
    real_job_end(&job);
}

static void http_stranger_learns_nothing_and_takes_no_place_b1(void **state) {
    (void)state;
    http_stranger_stays(false);
}

static void http_stranger_learns_nothing_of_keyed_ranks_b1(void **state) {
    (void)state;
    http_stranger_stays(true);
}

// What a rank says first, up to its last byte but one.
static size_t compose_hello(uint8_t *hello, size_t bytes, bool keyed, uint16_t port) {
    struct sc_frame frame;
    struct stranger other;
    if (!keyed) {
        frame_at_bounds(&frame, SC_FRAME_HELLO);
        return sc_frame_encode(&frame, hello, bytes);
    }
    stranger_come(&other, port); // a coordinator's own words are of the right shape
    real_until(stranger_has_ended(&other) || other.bytes == SC_SEAL_HELLO_BYTES);
    memset(hello, 0, SC_SEAL_SPEECH_MAX_BYTES);
    memcpy(hello, other.data, SC_SEAL_HELLO_BYTES);
    stranger_go(&other);
    return SC_SEAL_SPEECH_MAX_BYTES;
}

static void strangers_reset(bool keyed) {
    struct real_job job;
    sc_comm comms[2];
    uint8_t hello[SC_GREETING_MAX_BYTES];
    job_begin(&job, 2, keyed);
    comms[0] = real_open(&job, 0);
    const uint32_t base = sockets_descriptors();
    const size_t hello_bytes = compose_hello(hello, sizeof hello, keyed, job.port);
    const size_t cuts[] = {0, 7, hello_bytes - 1};
    for (uint32_t i = 0; i < 6; i++) { // reset before it is accepted, perhaps, or after
        real_until(sockets_descriptors() == base);
        int stranger = sockets_stranger(job.port);
        if (i % 2 == 1)
            real_until(sockets_descriptors() == base + 2);
        if (cuts[i / 2] != 0)
            (void)!send(stranger, hello, cuts[i / 2], MSG_NOSIGNAL);
        sockets_reset(stranger);
    }
    real_until(sockets_descriptors() == base);
    workers_join_within(&job, comms, REAL_SECOND);
    real_close_all(comms, 2);
    real_job_end(&job);
}

static void strangers_that_reset_cost_nothing_b2(void **state) {
    (void)state;
    strangers_reset(false);
    strangers_reset(true);
}

static void silent_connections_keep_nobody_out_b3(void **state) {
    enum { SILENT = 50, WORLD = 3 };
    static struct stranger strangers[SILENT];
    struct real_job job;
    sc_comm comms[WORLD];
    (void)state;
    job_begin(&job, WORLD, false);
    comms[0] = real_open(&job, 0);
    for (uint32_t i = 0; i < SILENT; i++)
        stranger_come(&strangers[i], job.port);
    workers_join_within(&job, comms, 2 * REAL_SECOND);
    for (uint32_t i = 0; i < SILENT; i++) { // each is dropped at its deadline, at the latest
        real_until(stranger_has_ended(&strangers[i]));
        strangers_expect_public(strangers[i].data, strangers[i].bytes, false);
        stranger_go(&strangers[i]);
    }
    all_are_ready(&job, comms);
    real_close_all(comms, WORLD);
    real_job_end(&job);
}

// ---- finding rank 0 ----

static void squat(const struct real_job *job, int backlog, int *fd) {
    const struct sockaddr_in at = {.sin_family = AF_INET,
                                   .sin_port = htons(job->port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int on = 1;
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_true(*fd >= 0);
    assert_int_equal(setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    assert_int_equal(bind(*fd, (const struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(*fd, backlog), 0);
}

static int dial_without_waiting(const struct real_job *job) {
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons(job->port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    (void)connect(fd, (const struct sockaddr *)&to, sizeof to);
    return fd;
}

struct sleeper {
    uint64_t until_ns, late_ns;
    pthread_t thread;
};

static void *sleep_until(void *arg) {
    struct sleeper *sleeper = arg;
    const struct timespec until = {.tv_sec = (time_t)(sleeper->until_ns / REAL_SECOND),
                                   .tv_nsec = (long)(sleeper->until_ns % REAL_SECOND)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0)
        continue;
    sleeper->late_ns = real_now() - sleeper->until_ns;
    return NULL;
}

// At most 0.3 s late, and by as much more as this machine lets anybody sleep too long.
static void expect_timeout_after(sc_comm comm, uint64_t timeout_ns) {
    const uint64_t since_ns = real_now();
    struct sleeper sleeper = {.until_ns = since_ns + timeout_ns};
    assert_int_equal(pthread_create(&sleeper.thread, NULL, sleep_until, &sleeper), 0);
    expect_not_ready(comm, timeout_ns);
    const uint64_t took_ns = real_now() - since_ns;
    assert_int_equal(pthread_join(sleeper.thread, NULL), 0);
    assert_in_range(took_ns, timeout_ns, timeout_ns + 300 * REAL_MS + 2 * sleeper.late_ns);
}

static void listener_that_never_accepts_is_told_of_at_the_timeout_b4(void **state) {
    enum { FILLERS = 4 };
    struct real_job job;
    int squatter, fillers[FILLERS];
    (void)state;
    job_begin(&job, 2, false);
    squat(&job, 0, &squatter);
    for (uint32_t i = 0; i < FILLERS; i++)
        fillers[i] = dial_without_waiting(&job);
    sc_comm worker = real_open(&job, 1);
    expect_timeout_after(worker, 3 * REAL_SECOND);
    expect_error_says("rendezvous"); // the phase
    expect_error_says("no answer yet");
    expect_error_says(REAL_HOST);
    expect_error_says_port(&job);
    for (uint32_t i = 0; i < FILLERS; i++)
        close(fillers[i]);
    close(squatter);
    real_close(worker);
    real_job_end(&job);
}

static sc_comm open_worker_at(const struct real_job *job, const char *host) {
    struct sc_config config;
    real_config(job, 1, &config);
    config.master_host = host;
    return real_open_with(&config);
}

static void name_that_resolves_late_is_found_b5(void **state) {
    static const int errors[] = {EAI_AGAIN, EAI_AGAIN, EAI_AGAIN, EAI_NONAME, EAI_NONAME};
    struct real_job job;
    sc_comm comms[2];
    (void)state;
    job_begin(&job, 2, false);
    name_service_errors(errors, 5);
    comms[0] = real_open(&job, 0);
    comms[1] = open_worker_at(&job, "late.test");
    assert_true(real_ready_after(comms[0], 0) == real_ready_after(comms[1], 0));
    assert_int_equal(name_service_asked(), 6); // anew for each attempt
    real_close_all(comms, 2);
    real_job_end(&job);
}

static void name_that_does_not_resolve_is_told_with_the_resolvers_word_b5(void **state) {
    static const int errors[] = {EAI_AGAIN,  EAI_NONAME, EAI_NONAME, EAI_NONAME,
                                 EAI_NONAME, EAI_NONAME, EAI_NONAME, EAI_NONAME};
    struct real_job job;
    struct sc_config config;
    sc_comm comm;
    (void)state;
    job_begin(&job, 2, false);
    name_service_errors(errors, 8);
    sc_comm worker = open_worker_at(&job, "late.test");
    name_service_wait_until_asked(3); // so the second answer was taken
    expect_not_ready(worker, 1);
    expect_error_says("late.test");
    expect_error_says(gai_strerror(EAI_NONAME));
    real_close(worker);
    // Rank 0 needs its own address to open at all.
    real_config(&job, 0, &config);
    config.master_host = "late.test";
    assert_int_equal(sc_open(&config, &comm), SC_UNREACHABLE);
    expect_error_says("late.test");
    expect_error_says(gai_strerror(EAI_NONAME));
    real_job_end(&job);
}

static void loopback_address_is_said_to_be_one_b6(void **state) {
    static const char *const address[] = {"127.0.1.1"};
    struct real_job job;
    (void)state;
    job_begin(&job, 2, false);
    name_service_addresses(address, 1);
    sc_comm worker = open_worker_at(&job, "master.test");
    name_service_wait_until_asked(2); // so the first dial has ended
    expect_not_ready(worker, 1);
    expect_error_says("master.test");
    expect_error_says("127.0.1.1");
    expect_error_says("loopback");
    real_close(worker);
    real_job_end(&job);
}

// ---- the port ----

static void expect_coordinator_cannot_bind(const struct real_job *job) {
    struct sc_config config;
    sc_comm comm = 0;
    real_config(job, 0, &config);
    const uint64_t since_ns = real_now();
    assert_int_equal(sc_open(&config, &comm), SC_BIND);
    assert_true(real_now() - since_ns < REAL_SECOND);
    assert_int_equal(comm, 0);
    expect_error_says(REAL_HOST);
    expect_error_says_port(job);
    expect_error_says(strerror(EADDRINUSE));
}

static bool has_called(int squatter, struct stranger *caller) {
    *caller = (struct stranger){.fd = accept4(squatter, NULL, NULL, SOCK_NONBLOCK)};
    return caller->fd >= 0;
}

static void taken_port_fails_the_open_and_its_banner_is_refused_b9(void **state) {
    static const char banner[200] = "220 some other service";
    struct real_job job;
    struct stranger caller;
    sc_comm comms[2];
    int squatter;
    (void)state;
    job_begin(&job, 2, false);
    squat(&job, 8, &squatter);
    expect_coordinator_cannot_bind(&job);
    comms[1] = real_open(&job, 1);
    real_until(has_called(squatter, &caller));
    stranger_say(&caller, banner, sizeof banner);
    real_until(stranger_has_ended(&caller));
    assert_int_equal(caller.bytes, 0);
    stranger_go(&caller);
    close(squatter);
    comms[0] = real_open(&job, 0);
    assert_true(real_ready_after(comms[0], 0) == real_ready_after(comms[1], 0));
    real_close_all(comms, 2);
    real_job_end(&job);
}

static void second_live_coordinator_fails_b9(void **state) {
    struct real_job job;
    sc_comm comms[2];
    (void)state;
    job_begin(&job, 2, false);
    comms[0] = real_open(&job, 0);
    expect_coordinator_cannot_bind(&job);
    workers_join_within(&job, comms, REAL_SECOND);
    expect_coordinator_cannot_bind(&job);
    all_are_ready(&job, comms);
    real_close_all(comms, 2);
    real_job_end(&job);
}

static void restarted_coordinator_binds_each_time_b9(void **state) {
    struct real_job job;
    sc_comm comms[2];
    uint64_t epoch;
    (void)state;
    job_begin(&job, 2, false);
    epoch = real_open_all(&job, comms);
    for (uint32_t i = 0; i < 20; i++) { // it ends the link first, whose port then lingers
        if (i % 2 == 0)
            real_kill(comms[0]);
        else
            real_ok(sc_close(comms[0], SC_CLOSE_RETURNING, REAL_LIMIT_NS));
        comms[0] = real_open(&job, 0);
        epoch = real_ready_after(comms[1], epoch);
        assert_true(real_ready_after(comms[0], 0) == epoch);
    }
    real_close_all(comms, 2);
    real_job_end(&job);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(http_stranger_learns_nothing_and_takes_no_place_b1),
        cmocka_unit_test(http_stranger_learns_nothing_of_keyed_ranks_b1),
        cmocka_unit_test(strangers_that_reset_cost_nothing_b2),
        cmocka_unit_test(silent_connections_keep_nobody_out_b3),
        cmocka_unit_test(listener_that_never_accepts_is_told_of_at_the_timeout_b4),
        cmocka_unit_test(name_that_resolves_late_is_found_b5),
        cmocka_unit_test(name_that_does_not_resolve_is_told_with_the_resolvers_word_b5),
        cmocka_unit_test(loopback_address_is_said_to_be_one_b6),
        cmocka_unit_test(taken_port_fails_the_open_and_its_banner_is_refused_b9),
        cmocka_unit_test(second_live_coordinator_fails_b9),
        cmocka_unit_test(restarted_coordinator_binds_each_time_b9),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
