// SPDX-License-Identifier: AGPL-3.0-only
//
// One rank through some tests: a handle that is open and READY before each, everything that a test
// left given back after it; and what tests do with epochs and with each other.
#include "tests/conformance/conf.h"

#include "hal/hal_check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool conf_wrong(struct bench *b, const char *file, int line, const char *format, ...) {
    char text[CONF_WHY_BYTES - 80];
    va_list args;
    if (b->dead || b->why[0] != '\0') // what comes after the first is its consequence
        return false;
    const char *name = strrchr(file, '/');
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(b->why, sizeof b->why, "rank %u, %s:%d: %s", b->rank, name != NULL ? name + 1 : file,
             line, text);
    return false;
}

bool conf_answered(struct bench *b, sc_status answer, sc_status wanted, const char *call,
                   const char *file, int line) {
    if (answer == wanted)
        return true;
    if (answer == SC_SIM_KILLED) {
        b->dead = true;
        return false;
    }
    return conf_wrong(b, file, line, "%s answers %s, expected %s%s%s", call, sc_status_name(answer),
                      sc_status_name(wanted), answer != SC_OK ? ": " : "",
                      answer != SC_OK ? sc_last_error() : "");
}

// ---- handles and epochs ------------------------------------------------------------------------

// A rank that says nothing is found out while one that only comes late on a busy machine is not.
void conf_config(struct bench *b, struct sc_config *config) {
    sc_config_init(config, sizeof *config);
    b->w->config(b, config);
    config->capacity_bytes = CONF_CAPACITY;
    config->timing.heartbeat_ns = conf_ms(b, 25);
    config->timing.silence_ns = conf_ms(b, 600);
    config->timing.op_ns = conf_ms(b, 1000);
    config->timing.abort_ns = conf_ms(b, 10000);
}

bool conf_open(struct bench *b, uint32_t flags) {
    struct sc_config config;
    conf_config(b, &config);
    config.flags = flags;
    OK(b, sc_open(&config, &b->comm));
    return true;
}

bool conf_close(struct bench *b, enum sc_close_how how) {
    sc_comm comm = b->comm;
    b->comm = 0;
    b->epoch = 0;
    OK(b, sc_close(comm, how, conf_limit(b)));
    return true;
}

bool conf_renew(struct bench *b) {
    uint64_t before = b->epoch;
    do {
        b->recovery.size = sizeof b->recovery;
        OK(b, sc_wait_ready(b->comm, conf_limit(b), &b->recovery));
    } while (b->recovery.epoch == before);
    b->epoch = b->recovery.epoch;
    return true;
}

bool conf_lost(struct bench *b) {
    IS(b, sc_sync(b->comm, b->epoch, b->stream, SC_SYNC_AGREED, conf_limit(b)), SC_EPOCH_LOST);
    return true;
}

bool conf_mark(struct bench *b, uint64_t mark) {
    OK(b, sc_mark(b->comm, b->epoch, mark));
    OK(b, b->w->marked(b, mark));
    return true;
}

bool conf_health(struct bench *b, struct sc_health_report *out) {
    *out = (struct sc_health_report){.size = sizeof *out};
    OK(b, sc_health(b->comm, out));
    return true;
}

bool conf_await_state(struct bench *b, enum sc_state state) {
    struct sc_health_report health;
    uint64_t end_ns = b->w->now_ns(b) + conf_limit(b);
    for (;;) {
        DO(conf_health(b, &health));
        if (health.state == (uint32_t)state)
            return true;
        if (b->w->now_ns(b) > end_ns)
            WRONG(b, "is %s, expected %s", sc_state_name((enum sc_state)health.state),
                  sc_state_name(state));
        OK(b, b->w->pause(b, CONF_MS));
    }
}

bool conf_sync(struct bench *b) {
    OK(b, sc_sync(b->comm, b->epoch, b->stream, SC_SYNC_AGREED, conf_limit(b)));
    return true;
}

// ---- between ranks -----------------------------------------------------------------------------

static bool gather(struct bench *b, const uint64_t mine[CONF_WORDS],
                   uint64_t all[CONF_RANKS_MAX][CONF_WORDS]) {
    sc_status status = b->w->gather(b, mine, all);
    if (status == SC_STATE)
        WRONG(b, "another rank's test has failed");
    OK(b, status);
    return true;
}

bool conf_meet(struct bench *b) {
    return conf_tell(b, NULL, 0);
}

bool conf_tell(struct bench *b, uint64_t *words, uint32_t count) {
    uint64_t mine[CONF_WORDS] = {0}, all[CONF_RANKS_MAX][CONF_WORDS];
    if (count != 0)
        memcpy(mine, words, count * sizeof *words);
    DO(gather(b, mine, all));
    if (count != 0)
        memcpy(words, all[0], count * sizeof *words);
    return true;
}

bool conf_alike(struct bench *b, uint64_t word) {
    uint64_t mine[CONF_WORDS] = {word}, all[CONF_RANKS_MAX][CONF_WORDS];
    DO(gather(b, mine, all));
    for (uint32_t r = 0; r < b->ranks; r++)
        if (all[r][0] != word)
            WRONG(b, "%#" PRIx64 " here is %#" PRIx64 " on rank %u", word, all[r][0], r);
    return true;
}

// ---- what a test has taken ---------------------------------------------------------------------

bool conf_buffer(struct bench *b, uint64_t count, uint16_t **buffer) {
    void *made = NULL;
    TRUE(b, b->buffers_count < CONF_TAKEN_MAX);
    OK(b, b->w->alloc(b, count * SC_BF16_BYTES, &made));
    b->buffers[b->buffers_count++] = made;
    *buffer = made;
    return true;
}

bool conf_stream(struct bench *b, void **stream) {
    TRUE(b, b->streams_count < CONF_TAKEN_MAX);
    OK(b, b->w->stream_create(b, stream));
    b->streams[b->streams_count++] = *stream;
    return true;
}

// Streams first: what they still run may touch the memory.
static bool give_back(struct bench *b) {
    for (; b->streams_count > 0; b->streams_count--) {
        OK(b, b->w->stream_wait(b, b->streams[b->streams_count - 1], conf_limit(b)));
        OK(b, b->w->stream_destroy(b, b->streams[b->streams_count - 1]));
    }
    for (; b->buffers_count > 0; b->buffers_count--)
        OK(b, b->w->free(b, b->buffers[b->buffers_count - 1]));
    return true;
}

// ---- the session -------------------------------------------------------------------------------

static void on_breach(void *arg, const char *text) {
    struct bench *b = arg;
    (void)conf_wrong(b, "hal_check", 0, "%s", text);
}

static bool run_seam(struct bench *b, const struct conf_test *test) {
    const struct sc_hal_check_config checked = {.on_breach = on_breach, .arg = b};
    struct sc_hal_check *check = NULL;
    char leaks[200];
    OK(b, b->w->tables(b, &b->tables));
    b->raw = b->tables.device;
    OK(b, sc_hal_check_create(b->raw, &checked, &check));
    b->d = sc_hal_check_device(check);
    bool well = test->run(b) && give_back(b);
    if (well && sc_hal_check_leaks(check, leaks, sizeof leaks) != 0)
        well = conf_wrong(b, __FILE__, __LINE__, "still held: %s", leaks);
    well = well && sc_hal_check_breaches(check) == 0;
    sc_hal_check_destroy(check);
    sc_world_release(&b->tables);
    return well;
}

static bool run_public(struct bench *b, const struct conf_test *test) {
    if ((test->flags & CONF_OWN) == 0 && b->comm == 0) {
        DO(conf_open(b, 0));
        DO(conf_renew(b));
    }
    b->streams_count = b->buffers_count = 0;
    DO(conf_stream(b, &b->stream));
    return test->run(b) && give_back(b);
}

void conf_live(struct bench *b, const struct conf_test *const *tests, uint32_t count) {
    bool well = true;
    for (uint32_t i = 0; i < count && well && !b->dead; i++) {
        b->why[0] = '\0';
        well = (tests[i]->flags & CONF_SEAM) != 0 ? run_seam(b, tests[i]) : run_public(b, tests[i]);
        if (!b->dead)
            well = b->w->verdict(b, well) == SC_OK;
    }
    // Whoever closes for good ends the others, too: they close for themselves, whatever that answers.
    if (b->comm != 0)
        (void)!sc_close(b->comm, SC_CLOSE_FINAL, conf_limit(b));
    b->comm = 0;
    if (well)
        (void)give_back(b);
}
