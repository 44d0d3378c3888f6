// SPDX-License-Identifier: AGPL-3.0-only
//
// One rank's process in "bench recover": it makes verified steps and says what becomes of them. A
// thread of its own takes orders, so that one reaches it whatever the steps wait for.
#include "cli/gpu/recover.h"
#include "cli/gpu/steps.h"
#include "cli/report.h"
#include "core/op.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CLOSE_NS UINT64_C(10000000000)

struct rank {
    struct sc_recover_start start;
    struct sc_gpu *gpu;
    sc_comm comm;
    struct sc_steps steps;
    _Atomic bool count, leave;
};

static void say(struct sc_recover_word *word) {
    if (!sc_child_say(SC_CHILD_CHANNEL, word, sizeof *word))
        _exit(EXIT_FAILURE); // nobody is left to be measured for
}

static void say_failed(const struct rank *r, const char *what, const char *why) {
    struct sc_recover_word word = {.kind = SC_SAID_FAILED};
    if (atomic_load(&r->leave))
        return;
    snprintf(word.text, sizeof word.text, "%s: %s", what, why);
    say(&word);
}

static void on_note(void *arg, const struct sc_note *note) {
    (void)arg;
    if (note->kind != SC_NOTE_STATE || note->from != SC_STATE_READY)
        return;
    struct sc_recover_word word = {.kind = SC_SAID_LEFT,
                                   .code = note->status,
                                   .suspect = note->rank,
                                   .at_ns = note->at_ns,
                                   .epoch = note->epoch};
    say(&word);
}

// ---- orders ----

static void cut(const struct rank *r, bool link) {
    uint32_t count = link ? sc_self_cut_port(r->start.port) : sc_self_cut_busiest(r->start.port);
    if (count == 0)
        say_failed(r, "cut",
                   link ? "it has no control link"
                        : "no socket of its communicator has carried anything");
}

static void *take_orders(void *arg) {
    struct rank *r = arg;
    enum sc_recover_order order;

    while (sc_child_hear(SC_CHILD_CHANNEL, &order, sizeof order)) {
        switch (order) {
        case SC_ORDER_JOIN:
            if (sc_join(r->comm) != SC_OK)
                say_failed(r, "join", sc_last_error());
            break;
        case SC_ORDER_CUT_LINK: cut(r, true); break;
        case SC_ORDER_CUT_DATA: cut(r, false); break;
        case SC_ORDER_COUNT: atomic_store(&r->count, true); break;
        case SC_ORDER_LEAVE:
            atomic_store(&r->leave, true);
            sc_interrupt(r->comm);
            return NULL;
        }
    }
    _exit(EXIT_FAILURE);
}

// ---- opening ----

static bool open_gpu(struct rank *r, char *why, size_t why_bytes) {
    return sc_gpu_open(r->start.device, &r->gpu, why, why_bytes) == SC_OK;
}

static bool open_comm(struct rank *r) {
    struct sc_config config;
    sc_config_init(&config, sizeof config);
    config.flags = SC_OPEN_HOLD;
    config.rank = r->start.rank;
    config.world = r->start.world;
    config.master_host = "127.0.0.1";
    config.master_port = r->start.port;
    config.device = r->start.device;
    config.capacity_bytes = r->start.hidden_size * SC_BF16_BYTES;
    if (r->start.layers > config.ledger_ops)
        config.ledger_ops = (uint32_t)r->start.layers;
    config.on_note = on_note;
    return sc_open(&config, &r->comm) == SC_OK;
}

static bool open_all(struct rank *r) {
    const struct sc_steps_spec spec = {.rank = r->start.rank,
                                       .world = r->start.world,
                                       .layers = r->start.layers,
                                       .hidden_size = r->start.hidden_size,
                                       .verify = true,
                                       .graph = r->start.graph != 0};
    struct sc_recover_word word = {.kind = SC_SAID_OPENED};
    pthread_t orders;

    if (!open_gpu(r, word.text, sizeof word.text)) {
        say_failed(r, "GPU", word.text);
        return false;
    }
    if (!open_comm(r)) {
        say_failed(r, "open", sc_last_error());
        return false;
    }
    if (sc_steps_open(&r->steps, &spec, r->comm, r->gpu) != SC_OK) {
        say_failed(r, "memory", r->steps.why);
        return false;
    }
    if (pthread_create(&orders, NULL, take_orders, r) != 0) {
        say_failed(r, "thread", "it cannot be created");
        return false;
    }
    (void)pthread_detach(orders);
    snprintf(word.text, sizeof word.text, "%s", sc_gpu_name(r->gpu));
    word.driver = sc_gpu_driver(r->gpu);
    word.nccl = sc_gpu_nccl(r->gpu);
    word.at_ns = sc_report_now_ns();
    say(&word);
    return true;
}

// ---- living ----

static bool say_counts(struct rank *r) {
    struct sc_recover_word word = {.kind = SC_SAID_COUNTED};
    uint64_t available = 0, total = 0;
    if (sc_gpu_memory(r->gpu, &available, &total) != SC_OK) {
        say_failed(r, "GPU memory", sc_gpu_error(r->gpu));
        return false;
    }
    sc_self_count(&word.counts);
    word.device_bytes = total - available;
    say(&word);
    return true;
}

static void say_at(enum sc_recover_word_kind kind, const struct sc_recovery *recovery) {
    struct sc_recover_word word = {.kind = (uint32_t)kind,
                                   .at_ns = sc_report_now_ns(),
                                   .epoch = recovery->epoch,
                                   .code = recovery->cause.code,
                                   .suspect = recovery->cause.suspect,
                                   .phases = recovery->phases};
    say(&word);
}

// Steps until the epoch is lost or the order to leave has come. False when a result is wrong.
static bool work(struct rank *r, const struct sc_recovery *recovery) {
    bool first = true;
    sc_status status = sc_steps_enter(&r->steps, recovery);

    while (status == SC_OK && !atomic_load(&r->leave)) {
        status = sc_steps_one(&r->steps);
        if (r->steps.wrong != 0) {
            say_failed(r, "a step", "its results are wrong");
            return false;
        }
        if (status == SC_OK && first)
            say_at(SC_SAID_FIRST, recovery);
        first = false;
        if (atomic_exchange(&r->count, false) && !say_counts(r))
            return false;
    }
    if (sc_status_class(status) == SC_CLASS_CALLER) {
        say_failed(r, "a step", r->steps.why);
        return false;
    }
    sc_steps_leave(&r->steps);
    return true;
}

static bool live(struct rank *r) {
    struct sc_recovery recovery = {.size = sizeof recovery};

    while (!atomic_load(&r->leave)) {
        sc_status status = sc_wait_ready(r->comm, SC_FOREVER, &recovery);
        if (status == SC_INTERRUPTED)
            continue;
        if (status != SC_OK) {
            say_failed(r, "recovery", sc_last_error());
            return false;
        }
        say_at(SC_SAID_READY, &recovery);
        if (!work(r, &recovery))
            return false;
    }
    return true;
}

int sc_recover_rank(int argc, char **argv) {
    static struct rank rank;
    struct rank *r = &rank;
    (void)argc, (void)argv;

    if (!sc_child_hear(SC_CHILD_CHANNEL, &r->start, sizeof r->start) || !open_all(r))
        return EXIT_FAILURE;
    bool lived = live(r);
    sc_steps_close(&r->steps);
    sc_status closed = sc_close(r->comm, SC_CLOSE_FINAL, CLOSE_NS);
    return lived && closed == SC_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
