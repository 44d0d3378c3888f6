// SPDX-License-Identifier: AGPL-3.0-only
//
// A keyed coordinator and somebody who dials it, over links in memory.
#ifndef SC_TEST_SEALED_FIXTURE_H
#define SC_TEST_SEALED_FIXTURE_H

#include "core/seal.h"
#include "hal/sealed.h"
#include "tests/support/fake_net.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define ROUNDS_MAX 200000u // of asking again, before a test gives up

static const uint8_t key_of_job[SC_KEY_BYTES] = "thirty-two bytes that both hold!";
static const uint8_t key_of_other[SC_KEY_BYTES] = "some other key of 32 bytes, too!";

// A keyed coordinator, `a`, and somebody who dials it, `d`, with a key of his own.
struct world {
    struct fake_net net;
    struct sc_sealed *sealed_a, *sealed_d;
    const struct sc_link *a, *d;
    uint64_t listener, near, far; // dialled, accepted
};

static inline void open_world(struct world *w, const uint8_t *key_of_dialler) {
    fake_net_open(&w->net);
    assert_int_equal(sc_sealed_create(&w->net.link, &w->net.host, key_of_job, &w->sealed_a), SC_OK);
    assert_int_equal(sc_sealed_create(&w->net.link, &w->net.host, key_of_dialler, &w->sealed_d),
                     SC_OK);
    w->a = sc_sealed_link(w->sealed_a);
    w->d = sc_sealed_link(w->sealed_d);
    assert_int_equal(w->a->listen(w->a->ctx, "here", 1, &w->listener), SC_OK);
    w->near = w->far = 0;
}

static inline void close_world(struct world *w) {
    w->a->close(w->a->ctx, w->listener);
    assert_int_equal(fake_net_open_ends(&w->net), 0);
    assert_int_equal(w->net.misused, 0);
    sc_sealed_destroy(w->sealed_a);
    sc_sealed_destroy(w->sealed_d);
    fake_net_close(&w->net);
}

static inline void dial(struct world *w) {
    assert_int_equal(w->d->dial(w->d->ctx, "here", 1, 0, &w->near), SC_OK);
    assert_int_equal(w->a->accept(w->a->ctx, w->listener, &w->far), SC_OK);
    assert_int_equal(w->far, fake_end_of(&w->net, w->near)->peer);
}

static inline void hang_up(struct world *w) {
    w->d->close(w->d->ctx, w->near);
    w->a->close(w->a->ctx, w->far);
}

static inline sc_status receive(const struct sc_link *link, uint64_t handle) {
    uint8_t data[64];
    size_t received = 0;
    sc_status status = link->recv(link->ctx, handle, data, sizeof data, &received);
    assert_true(status == SC_OK || received == 0);
    return status;
}

static inline void send_text(const struct sc_link *link, uint64_t handle, const char *text) {
    size_t sent = 0;
    assert_int_equal(link->send(link->ctx, handle, text, strlen(text), &sent), SC_OK);
    assert_int_equal(sent, strlen(text));
}

static inline void expect_text(const struct sc_link *link, uint64_t handle, const char *text) {
    char data[256] = "";
    size_t received = 0;
    assert_int_equal(link->recv(link->ctx, handle, data, sizeof data - 1, &received), SC_OK);
    assert_int_equal(received, strlen(text));
    assert_string_equal(data, text);
}

static inline void expect_explained(const struct sc_link *link, const char *words) {
    char text[256];
    if (strstr(link->explain(link->ctx, text, sizeof text), words) == NULL)
        fail_msg("'%s' does not say '%s'", text, words);
}

// Both sides ask, as a pump does, until the dialling one has its answer.
static inline sc_status follow(struct world *w) {
    for (uint32_t i = 0; i < ROUNDS_MAX; i++) {
        sc_status status = w->d->connected(w->d->ctx, w->near);
        if (status != SC_INPROGRESS)
            return status;
        sc_status heard = receive(w->a, w->far);
        if (heard != SC_INPROGRESS && w->far != 0) {
            assert_int_equal(heard, SC_KEY);
            w->a->close(w->a->ctx, w->far);
            w->far = 0;
        }
    }
    return SC_TIMEOUT;
}

static inline void join(struct world *w) {
    dial(w);
    assert_int_equal(follow(w), SC_OK);
}

#endif
