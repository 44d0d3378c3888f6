// SPDX-License-Identifier: AGPL-3.0-only
//
// What the hosts tell each other: barriers, commands, marks, health.
#include "tests/conformance/conf.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CALL(b) (b)->comm, (b)->epoch

static bool barriers(struct bench *b) {
    DO(conf_meet(b));
    if (b->rank == 0 && b->ranks > 1)
        IS(b, sc_barrier(CALL(b), conf_ms(b, 30)), SC_TIMEOUT); // its arrival stands
    DO(conf_meet(b));
    for (uint32_t i = 0; i < 20; i++)
        OK(b, sc_barrier(CALL(b), conf_limit(b)));
    IS(b, sc_barrier(b->comm, b->epoch + 1, conf_limit(b)), SC_EPOCH_LOST);
    return true;
}

static const uint32_t sizes[] = {0, 1, 4096, SC_COMMAND_MAX_BYTES, 77, SC_COMMAND_MAX_BYTES};
#define SIZES (sizeof sizes / sizeof sizes[0])

static bool send_all(struct bench *b, uint8_t *data) {
    uint32_t bytes;
    IS(b, sc_command_recv(CALL(b), data, 8, &bytes, conf_limit(b)), SC_INVALID);
    IS(b, sc_command_send(CALL(b), data, SC_COMMAND_MAX_BYTES + 1, conf_limit(b)), SC_INVALID);
    for (uint32_t i = 0; i < SIZES; i++) {
        memset(data, (int)(i + 1), sizes[i]);
        OK(b, sc_command_send(CALL(b), data, sizes[i], conf_limit(b)));
    }
    return true;
}

static bool receive_all(struct bench *b, uint8_t *data) {
    uint32_t bytes = 0;
    IS(b, sc_command_send(CALL(b), data, 8, conf_limit(b)), SC_INVALID);
    for (uint32_t i = 0; i < SIZES; i++) {
        if (sizes[i] > 1) { // it stays until there is room for it
            IS(b, sc_command_recv(CALL(b), data, 1, &bytes, conf_limit(b)), SC_TOO_LARGE);
            EQUAL(b, bytes, sizes[i]);
        }
        OK(b, sc_command_recv(CALL(b), data, SC_COMMAND_MAX_BYTES, &bytes, conf_limit(b)));
        EQUAL(b, bytes, sizes[i]);
        for (uint32_t at = 0; at < bytes; at++)
            EQUAL(b, data[at], i + 1);
    }
    IS(b, sc_command_recv(CALL(b), data, 8, &bytes, CONF_MS), SC_TIMEOUT);
    return true;
}

static bool commands(struct bench *b) {
    uint8_t *data = calloc(1, SC_COMMAND_MAX_BYTES + 1);
    TRUE(b, data != NULL);
    bool well = b->rank == 0 ? send_all(b, data) : receive_all(b, data);
    free(data);
    DO(well);
    OK(b, sc_barrier(CALL(b), conf_limit(b)));
    return true;
}

// Every rank reads the same record, and all agree which step to go on with.
static bool marks(struct bench *b) {
    OK(b, sc_mark(CALL(b), 1000 + b->rank));
    IS(b, sc_mark(b->comm, b->epoch + 1, 5), SC_EPOCH_LOST);
    OK(b, sc_barrier(CALL(b), conf_limit(b)));
    if (b->rank == 0)
        OK(b, sc_reconnect(CALL(b), 77));
    DO(conf_renew(b));
    EQUAL(b, b->recovery.world, b->ranks);
    EQUAL(b, b->recovery.cause.code, SC_RECONNECT);
    EQUAL(b, b->recovery.cause.value[0], 77);
    for (uint32_t r = 0; r < b->ranks; r++)
        EQUAL(b, b->recovery.ranks[r].mark, 1000 + r);
    return conf_works(b);
}

static bool health(struct bench *b) {
    struct sc_health_report report;
    OK(b, b->w->pause(b, conf_ms(b, 100)));
    DO(conf_health(b, &report));
    EQUAL(b, report.state, SC_STATE_READY);
    EQUAL(b, report.epoch, b->epoch);
    EQUAL(b, report.world, b->ranks);
    EQUAL(b, report.submitted, report.completed);
    TRUE(b, report.incarnation != 0);
    for (uint32_t r = 0; r < b->ranks; r++) {
        bool known = r != b->rank && (b->rank == 0 || r == 0);
        EQUAL(b, report.peers[r].heard_ns != 0, known);
        if (known)
            EQUAL(b, report.peers[r].state, SC_STATE_READY);
    }
    EQUAL(b, *sc_live_epoch(b->comm), b->epoch);
    IS(b, sc_health(b->comm, NULL), SC_INVALID);
    return true;
}

static bool descriptor(struct bench *b) {
    int fd = -1;
    uint64_t changes;
    OK(b, sc_event_fd(b->comm, &fd));
    struct pollfd watched = {.fd = fd, .events = POLLIN};
    while (poll(&watched, 1, 0) == 1)
        TRUE(b, read(fd, &changes, sizeof changes) == sizeof changes);
    DO(conf_meet(b));
    OK(b, sc_reconnect(CALL(b), 1));
    EQUAL(b, poll(&watched, 1, (int)(conf_limit(b) / CONF_MS)), 1);
    TRUE(b, read(fd, &changes, sizeof changes) == sizeof changes);
    return conf_renew(b);
}

const struct conf_test conf_hosts[] = {
    {.name = "barrier_waits_for_every_rank", .run = barriers},
    {.name = "commands_arrive_whole_and_in_order", .run = commands, .ranks_min = 2},
    {.name = "marks_are_in_every_ranks_record", .run = marks},
    {.name = "health_tells_of_the_epoch_and_of_the_peers", .run = health},
    {.name = "descriptor_tells_of_a_change_of_state", .run = descriptor, .flags = CONF_THREADS},
    {0},
};
