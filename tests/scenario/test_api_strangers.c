// SPDX-License-Identifier: AGPL-3.0-only
//
// Whoever comes to rank 0's port, keyed or not: the true worker joins in under a second, strangers hear
// nothing but what everybody may, and no descriptor stays behind.
#include "core/seal.h"
#include "tests/support/real_world.h"
#include "tests/support/sockets_rig.h"
#include "tests/support/strangers.h"

#include <string.h>
#include <sys/resource.h>

static const uint8_t job_key[SC_KEY_BYTES] = "thirty-two bytes that both hold!";
static const uint8_t other_key[SC_KEY_BYTES] = "some other key of 32 bytes, too!";

#define STRANGERS_MAX 50u
#define WORKER_DESCRIPTORS 5 // wake, spare, events; its link, and the coordinator's end of it

struct scene {
    struct real_job job;
    bool keyed;
    sc_comm comms[2];
    uint32_t count;
    struct stranger strangers[STRANGERS_MAX];
    sc_comm impostor; // a rank with another key, or none; through the relay
    struct relay relay;
    bool limited; // … descriptors, from `limit`
    struct rlimit limit;
};

static struct stranger *add(struct scene *scene) {
    struct stranger *stranger = &scene->strangers[scene->count++];
    stranger_come(stranger, scene->job.port);
    return stranger;
}

// ---- who comes ----

static void silent_ones_come(struct scene *scene) {
    for (uint32_t i = 0; i < STRANGERS_MAX; i++)
        (void)add(scene);
}

static void browser_comes(struct scene *scene) {
    static const char request[] = "GET / HTTP/1.1\r\nHost: rank0\r\n\r\n";
    stranger_say(add(scene), request, sizeof request - 1);
}

// Of any length, and some of them cut within what could be a header.
static void babblers_come(struct scene *scene) {
    uint8_t noise[1024];
    uint32_t x = 1;
    for (uint32_t i = 0; i < STRANGERS_MAX; i++) {
        for (uint32_t k = 0; k < sizeof noise; k++) {
            x = x * 1664525u + 1013904223u;
            noise[k] = (uint8_t)(x >> 24);
        }
        stranger_say(add(scene), noise, 1 + i * i % sizeof noise);
    }
}

static sc_comm open_through_relay(struct scene *scene, const void *key) {
    struct sc_config config;
    relay_begin(&scene->relay, scene->job.port);
    real_config(&scene->job, 1, &config);
    config.master_port = scene->relay.port;
    config.key = key;
    return real_open_with(&config);
}

static void recorded_hello_is_said_again(struct scene *scene) {
    sc_comm worker = open_through_relay(scene, scene->job.key);
    (void)real_ready_after(worker, 0);
    real_ok(sc_close(worker, SC_CLOSE_RETURNING, REAL_LIMIT_NS));
    relay_end(&scene->relay);
    const size_t up = scene->relay.link[0].bytes[RELAY_UP];
    assert_true(up > SC_SEAL_SPEECH_MAX_BYTES);
    // Who listens in learns the id just where links are not keyed: so it would be found.
    assert_int_equal(strangers_find_id(scene->relay.link[0].data[RELAY_DOWN],
                                       scene->relay.link[0].bytes[RELAY_DOWN]),
                     !scene->keyed);
    for (uint32_t i = 0; i < 4; i++)
        stranger_say(add(scene), scene->relay.link[0].data[RELAY_UP], up);
}

static bool says(sc_comm comm, const char *words) {
    struct sc_recovery recovery = {.size = sizeof recovery};
    assert_int_equal(sc_wait_ready(comm, 1, &recovery), SC_TIMEOUT);
    return strstr(sc_last_error(), words) != NULL;
}

// Until it has been turned away once, and comes again.
static void impostor_comes(struct scene *scene, const void *key) {
    scene->impostor = open_through_relay(scene, key);
    real_until(scene->relay.links >= 2);
}

static void rank_with_another_key_comes(struct scene *scene) {
    impostor_comes(scene, other_key);
    real_until(
        says(scene->impostor, scene->keyed ? "it holds another key" : "it was given no key"));
}

static void rank_without_a_key_comes(struct scene *scene) {
    impostor_comes(scene, NULL);
    real_until(says(scene->impostor, "a key on one side only"));
}

// Fewer than strangers come at once, and as many as the worker, of this very process, will need.
static void thousand_come_where_few_descriptors_are_left(struct scene *scene) {
    bool well = false;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &scene->limit), 0);
    pid_t child = sockets_child_begin(strangers_flood, &scene->job.port);
    sockets_limit_descriptors(6 + WORKER_DESCRIPTORS);
    scene->limited = true;
    real_until(sockets_child_has_ended(child, &well));
    assert_true(well);
}

// ---- what becomes of them ----

static void strangers_learned_nothing(struct scene *scene) {
    for (uint32_t i = 0; i < scene->count; i++) {
        struct stranger *stranger = &scene->strangers[i];
        (void)stranger_has_ended(stranger);
        strangers_expect_public(stranger->data, stranger->bytes, scene->keyed);
        stranger_go(stranger);
    }
    if (scene->impostor == 0)
        return;
    assert_int_not_equal(real_health(scene->impostor).state, SC_STATE_READY);
    real_close(scene->impostor);
    relay_end(&scene->relay);
    for (uint32_t i = 0; i < scene->relay.links; i++)
        strangers_expect_public(scene->relay.link[i].data[RELAY_DOWN],
                                scene->relay.link[i].bytes[RELAY_DOWN], scene->keyed);
}

struct row {
    const char *rule;
    void (*come)(struct scene *scene);
    bool keyed;
};

static const struct row rows[] = {
    {"silent_strangers_keep_no_worker_out_b3", silent_ones_come, false},
    {"silent_strangers_keep_no_keyed_worker_out_b3", silent_ones_come, true},
    {"browser_is_turned_away_b1", browser_comes, false},
    {"browser_is_turned_away_from_keyed_ranks_b1", browser_comes, true},
    {"babble_is_no_hello_b2", babblers_come, false},
    {"babble_is_no_hello_to_keyed_ranks_b2", babblers_come, true},
    {"recorded_hello_is_worth_nothing_r2", recorded_hello_is_said_again, false},
    {"recorded_hello_is_worth_nothing_to_keyed_ranks_r2", recorded_hello_is_said_again, true},
    {"key_does_not_fit_where_there_is_none", rank_with_another_key_comes, false},
    {"another_key_does_not_fit", rank_with_another_key_comes, true},
    {"no_key_does_not_fit", rank_without_a_key_comes, true},
    {"thousand_bad_handshakes_exhaust_nothing_b2", thousand_come_where_few_descriptors_are_left,
     false},
    {"thousand_bad_handshakes_with_keyed_ranks_exhaust_nothing_b2",
     thousand_come_where_few_descriptors_are_left, true},
};

// In this process it shares the descriptors, of which some may still be in strangers' hands.
static void open_worker(struct scene *scene) {
    struct sc_config config;
    real_config(&scene->job, 1, &config);
    sc_status status = SC_NO_MEMORY;
    real_until((status = sc_open(&config, &scene->comms[1])) != SC_NO_MEMORY || !scene->limited);
    assert_int_equal(status, SC_OK);
}

static void play(void **state) {
    static struct scene scene;
    const struct row *row = *state;
    memset(&scene, 0, sizeof scene);
    real_job_begin(&scene.job, 2);
    scene.keyed = row->keyed;
    scene.job.key = row->keyed ? job_key : NULL;
    scene.comms[0] = real_open(&scene.job, 0);
    const uint32_t base = sockets_descriptors();
    row->come(&scene);
    const uint64_t since_ns = real_now();
    open_worker(&scene);
    (void)real_ready_after(scene.comms[1], 0);
    assert_true(real_now() - since_ns < REAL_SECOND);
    if (scene.limited)
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &scene.limit), 0);
    strangers_learned_nothing(&scene);
    assert_int_equal(real_health(scene.comms[1]).state, SC_STATE_READY);
    real_kill(scene.comms[1]);
    real_until(sockets_descriptors() == base);
    real_close(scene.comms[0]);
    real_job_end(&scene.job);
}

int main(void) {
    struct CMUnitTest tests[sizeof rows / sizeof rows[0]];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        tests[i] = (struct CMUnitTest){
            .name = rows[i].rule, .test_func = play, .initial_state = (void *)(uintptr_t)&rows[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
