// SPDX-License-Identifier: AGPL-3.0-only
//
// Handles that are opened, refused and closed, in every state.
#include "tests/conformance/conf.h"

static bool closed_now(struct bench *b) {
    sc_comm comm = b->comm;
    uint16_t *none = NULL;
    struct sc_health_report health = {.size = sizeof health};
    DO(conf_close(b, SC_CLOSE_FINAL));
    IS(b, sc_close(comm, SC_CLOSE_FINAL, conf_limit(b)), SC_CLOSED);
    IS(b, sc_health(comm, &health), SC_CLOSED);
    IS(b, sc_wait_ready(comm, 0, &b->recovery), SC_CLOSED);
    IS(b, sc_all_reduce(comm, 1, none, 0, SC_BF16, b->stream), SC_CLOSED);
    sc_interrupt(comm);
    return true;
}

// Alone: nobody else has opened yet.
static bool before_ready(struct bench *b) {
    DO(conf_open(b, SC_OPEN_HOLD));
    DO(conf_await_state(b, SC_STATE_IDLE));
    DO(closed_now(b));
    DO(conf_open(b, SC_OPEN_HOLD));
    OK(b, sc_join(b->comm));
    OK(b, sc_join(b->comm));
    if (b->ranks == 1)
        DO(conf_renew(b));
    return closed_now(b);
}

static bool every_rank_by_itself(struct bench *b) {
    for (uint32_t turn = 0; turn < b->ranks; turn++) {
        if (turn == b->rank)
            DO(before_ready(b));
        DO(conf_meet(b));
    }
    return true;
}

static bool while_ready(struct bench *b) {
    DO(conf_open(b, 0));
    DO(conf_renew(b));
    DO(conf_works(b));
    DO(conf_meet(b));
    return closed_now(b);
}

static bool in_mid_work(struct bench *b) {
    uint16_t *buffer;
    DO(conf_open(b, 0));
    DO(conf_renew(b));
    DO(conf_buffer(b, 5000, &buffer));
    OK(b, b->w->compute(b, b->stream, conf_ms(b, 150), NULL, 0));
    for (uint32_t i = 0; i < 10; i++)
        OK(b, sc_all_reduce(b->comm, b->epoch, buffer, 10000, SC_BF16, b->stream));
    DO(conf_meet(b));
    DO(closed_now(b));
    OK(b, b->w->stream_wait(b, b->stream, conf_limit(b)));
    return true;
}

static bool while_aborting(struct bench *b) {
    DO(conf_open(b, 0));
    DO(conf_renew(b));
    DO(conf_works(b));
    DO(conf_meet(b));
    OK(b, sc_reconnect(b->comm, b->epoch, 1));
    return closed_now(b);
}

static bool others_hear(struct bench *b) {
    DO(conf_open(b, 0));
    DO(conf_renew(b));
    DO(conf_meet(b));
    if (b->rank == 1)
        return closed_now(b);
    do
        b->recovery.size = sizeof b->recovery;
    while (sc_wait_ready(b->comm, conf_limit(b), &b->recovery) == SC_OK);
    DO(conf_await_state(b, SC_STATE_FAILED));
    IS(b, sc_wait_ready(b->comm, conf_limit(b), &b->recovery), SC_PEER_LEFT);
    return closed_now(b);
}

static bool comes_back(struct bench *b) {
    DO(conf_open(b, 0));
    DO(conf_renew(b));
    DO(conf_works(b));
    DO(conf_meet(b));
    if (b->rank == 1) {
        DO(conf_close(b, SC_CLOSE_RETURNING));
        DO(conf_open(b, 0));
    }
    DO(conf_renew(b));
    EQUAL(b, b->recovery.ranks[1].fresh, 1);
    DO(conf_works(b));
    DO(conf_meet(b));
    return closed_now(b);
}

static bool wrong_config(struct bench *b) {
    struct sc_config config;
    sc_comm comm = 0;
    conf_config(b, &config);
    IS(b, sc_open(NULL, &comm), SC_INVALID);
    IS(b, sc_open(&config, NULL), SC_INVALID);
    config.capacity_bytes = 0;
    IS(b, sc_open(&config, &comm), SC_INVALID);
    conf_config(b, &config);
    config.timing.silence_ns = config.timing.heartbeat_ns;
    IS(b, sc_open(&config, &comm), SC_INVALID);
    conf_config(b, &config);
    config.flags = 1u << 30;
    IS(b, sc_open(&config, &comm), SC_INVALID);
    conf_config(b, &config);
    config.key_file = "/nonexistent/key";
    IS(b, sc_open(&config, &comm), SC_KEY);
    EQUAL(b, comm, 0);
    return true;
}

static bool no_such_gpu(struct bench *b) {
    struct sc_config config;
    sc_comm comm = 0;
    conf_config(b, &config);
    config.device = 1000;
    IS(b, sc_open(&config, &comm), SC_UNAVAILABLE);
    config.device = -1;
    IS(b, sc_open(&config, &comm), SC_UNAVAILABLE);
    return true;
}

const struct conf_test conf_closing[] = {
    {.name = "handle_closes_before_it_is_ready", .run = every_rank_by_itself, .flags = CONF_OWN},
    {.name = "handle_closes_while_ready", .run = while_ready, .flags = CONF_OWN},
    {.name = "handle_closes_with_ops_in_flight", .run = in_mid_work, .flags = CONF_OWN},
    {.name = "handle_closes_while_it_recovers", .run = while_aborting, .flags = CONF_OWN},
    {.name = "peers_of_a_rank_that_left_for_good_fail",
     .run = others_hear,
     .flags = CONF_OWN,
     .ranks_min = 2},
    {.name = "rank_that_closes_to_return_is_waited_for",
     .run = comes_back,
     .flags = CONF_OWN,
     .ranks_min = 2},
    {.name = "wrong_config_is_refused", .run = wrong_config, .flags = CONF_OWN},
    {.name = "gpu_that_does_not_exist_is_refused",
     .run = no_such_gpu,
     .flags = CONF_OWN | CONF_CUDA},
    {0},
};
