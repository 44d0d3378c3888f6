// SPDX-License-Identifier: AGPL-3.0-only
//
// Keyed ranks over real loopback sockets: those who hold the key work together, and nobody else gets
// in, learns anything, or keeps them waiting.
#include "core/frame.h"
#include "core/seal.h"
#include "tests/support/sockets_rig.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const uint8_t job_key[SC_KEY_BYTES] = "thirty-two bytes that both hold!";
static const uint8_t other_key[SC_KEY_BYTES] = "some other key of 32 bytes, too!";

#define CHALLENGE_BYTES (SC_FRAME_HEADER_BYTES + 8u + SC_NONCE_BYTES)

static void coordinator_opens(struct sockets_rig *rig, const uint8_t *key) {
    sockets_rig_open(rig);
    rig->keys[0] = key;
    assert_int_equal(sockets_rank_open(rig, 0, 0), SC_OK);
}

static void worker_joins_under_a_second(struct sockets_rig *rig) {
    const uint64_t since_ns = sockets_now();
    assert_int_equal(sockets_rank_open(rig, 1, 1), SC_OK);
    sockets_until(rig, sockets_are_ready(rig));
    assert_true(sockets_now() - since_ns < SOCKETS_SECOND);
}

static bool explains(const struct sockets_rig *rig, uint32_t place, const char *words) {
    const struct sc_link *link = sc_sealed_link(rig->ranks[place].sealed);
    char text[512];
    return strstr(link->explain(link->ctx, text, sizeof text), words) != NULL;
}

static void ranks_with_equal_keys_join_again_and_again(void **state) {
    struct sockets_rig rig;
    (void)state;
    coordinator_opens(&rig, job_key);
    rig.keys[1] = job_key;
    worker_joins_under_a_second(&rig);
    for (uint32_t i = 0; i < 4; i++) { // either of them is replaced
        sockets_rank_kill(&rig, i % 2);
        assert_int_equal(sockets_rank_open(&rig, i % 2, i % 2), SC_OK);
        sockets_until(&rig, sockets_are_ready(&rig));
    }
    sockets_rig_close(&rig);
}

static void commands_of_any_size_arrive(void **state) {
    static uint8_t command[SC_COMMAND_MAX_BYTES];
    struct sockets_rig rig;
    struct sc_core_view view;
    (void)state;
    coordinator_opens(&rig, job_key);
    rig.keys[1] = job_key;
    worker_joins_under_a_second(&rig);
    for (size_t i = 0; i < sizeof command; i++)
        command[i] = (uint8_t)(i * 7 + i / 251);
    sc_pump_view(rig.ranks[0].pump, &view);
    assert_int_equal(sc_pump_command(rig.ranks[0].pump, view.epoch, command, SC_COMMAND_MAX_BYTES),
                     SC_OK);
    sockets_until(&rig, rig.ranks[1].command_bytes == SC_COMMAND_MAX_BYTES);
    assert_memory_equal(rig.ranks[1].command, command, sizeof command);
    assert_true(sockets_are_ready(&rig));
    sockets_rig_close(&rig);
}

static void wrong_key_stays_out_and_keeps_nobody_out(void **state) {
    struct sockets_rig rig;
    (void)state;
    coordinator_opens(&rig, job_key);
    rig.keys[1] = job_key;
    rig.keys[2] = other_key;
    assert_int_equal(sockets_rank_open(&rig, 2, 1), SC_OK);
    sockets_until(&rig, explains(&rig, 2, "it holds another key"));
    assert_true(explains(&rig, 0, "the peer holds another key"));
    worker_joins_under_a_second(&rig);
    const uint64_t until_ns = sockets_now() + SOCKETS_SECOND / 2; // it goes on trying
    sockets_until(&rig, sockets_now() > until_ns);
    assert_true(sockets_are_ready(&rig));
    assert_int_equal(sockets_state(&rig, 2), SC_STATE_RENDEZVOUS);
    assert_int_equal(rig.ranks[2].greeted, 0);
    assert_int_equal(rig.ranks[0].greeted, 1);
    sockets_rig_close(&rig);
}

static void keyed_member_stays_away_from_an_unkeyed_coordinator(void **state) {
    struct sockets_rig rig;
    (void)state;
    coordinator_opens(&rig, NULL);
    rig.keys[1] = job_key;
    assert_int_equal(sockets_rank_open(&rig, 1, 1), SC_OK);
    sockets_until(&rig, explains(&rig, 1, "not sealed: it was given no key"));
    assert_int_equal(rig.ranks[0].greeted + rig.ranks[1].greeted, 0);
    sockets_rank_kill(&rig, 1);
    rig.keys[1] = NULL;
    worker_joins_under_a_second(&rig);
    sockets_rig_close(&rig);
}

static void unkeyed_member_is_kept_out_by_a_keyed_coordinator(void **state) {
    struct sockets_rig rig;
    (void)state;
    coordinator_opens(&rig, job_key);
    assert_int_equal(sockets_rank_open(&rig, 1, 1), SC_OK);
    sockets_until(&rig, explains(&rig, 0, "hung up without proving the key"));
    assert_int_equal(rig.ranks[0].greeted + rig.ranks[1].greeted, 0);
    sockets_rank_kill(&rig, 1);
    rig.keys[1] = job_key;
    worker_joins_under_a_second(&rig);
    sockets_rig_close(&rig);
}

// ---- strangers ----

struct heard {
    uint8_t data[4096];
    size_t bytes;
    bool ended;
};

static bool has_heard(int stranger, struct heard *heard, size_t bytes) {
    if (!heard->ended)
        heard->bytes += sockets_read(stranger, heard->data + heard->bytes,
                                     sizeof heard->data - heard->bytes, &heard->ended);
    return heard->ended || heard->bytes >= bytes;
}

static void say(int stranger, const void *data, size_t bytes) {
    assert_int_equal(send(stranger, data, bytes, MSG_NOSIGNAL), bytes);
}

static void recorded_handshake_is_refused(void **state) {
    struct sockets_rig rig;
    struct sc_seal seal;
    struct heard first = {.bytes = 0}, second = {.bytes = 0};
    uint8_t random[SC_SEAL_RANDOM_BYTES] = {7}, recording[SC_SEAL_SPEECH_MAX_BYTES];
    size_t used = 0, plain = 0;
    (void)state;
    coordinator_opens(&rig, job_key);
    int one = sockets_stranger(rig.port); // it holds the key: this is what is recorded
    sc_seal_init(&seal, SC_SEAL_DIALS, job_key, random);
    sockets_until(&rig, has_heard(one, &first, SC_SEAL_HELLO_BYTES));
    assert_int_equal(sc_seal_read(&seal, first.data, first.bytes, &used, &plain), SC_OK);
    assert_int_equal(sc_seal_speak(&seal, recording), sizeof recording);
    say(one, recording, sizeof recording);
    const size_t all =
        SC_SEAL_SPEECH_MAX_BYTES + SC_SEAL_HEADER_BYTES + CHALLENGE_BYTES + SC_SEAL_TAG_BYTES;
    sockets_until(&rig, has_heard(one, &first, all)); // proof and CHALLENGE
    assert_int_equal(first.bytes, all);
    int two = sockets_stranger(rig.port);
    say(two, recording, sizeof recording);
    sockets_until(&rig, has_heard(two, &second, sizeof second.data));
    assert_true(second.ended);
    assert_int_equal(second.bytes, SC_SEAL_HELLO_BYTES);
    assert_true(explains(&rig, 0, "the peer holds another key"));
    close(one);
    close(two);
    sc_seal_wipe(&seal);
    sockets_rig_close(&rig);
}

static void silent_connections_keep_nobody_out_and_hear_one_hello(void **state) {
    enum { SILENT = 50 };
    static struct heard heard[SILENT];
    struct sockets_rig rig;
    int strangers[SILENT];
    (void)state;
    memset(heard, 0, sizeof heard);
    coordinator_opens(&rig, job_key);
    rig.keys[1] = job_key;
    for (uint32_t i = 0; i < SILENT; i++)
        strangers[i] = sockets_stranger(rig.port);
    worker_joins_under_a_second(&rig);
    for (uint32_t i = 0; i < SILENT; i++) { // each is dropped at its deadline, at the latest
        sockets_until(&rig, has_heard(strangers[i], &heard[i], sizeof heard[i].data));
        assert_true(heard[i].bytes == 0 || heard[i].bytes == SC_SEAL_HELLO_BYTES);
        close(strangers[i]);
    }
    assert_true(sockets_are_ready(&rig));
    sockets_rig_close(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_with_equal_keys_join_again_and_again),
        cmocka_unit_test(commands_of_any_size_arrive),
        cmocka_unit_test(wrong_key_stays_out_and_keeps_nobody_out),
        cmocka_unit_test(keyed_member_stays_away_from_an_unkeyed_coordinator),
        cmocka_unit_test(unkeyed_member_is_kept_out_by_a_keyed_coordinator),
        cmocka_unit_test(recorded_handshake_is_refused),
        cmocka_unit_test(silent_connections_keep_nobody_out_and_hear_one_hello),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
