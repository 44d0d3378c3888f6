// SPDX-License-Identifier: AGPL-3.0-only
//
// Sealed links over a link table. Each has two buffers of one record: `in` is filled until a step is
// whole, `out` is emptied before another record is sealed.
#include "hal/sealed.h"

#include "core/seal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What the handshake has to say, and what was kept meanwhile, goes out at once.
_Static_assert(2 * SC_SEAL_SPEECH_MAX_BYTES + SC_SEAL_HEADER_BYTES + SC_SEALED_EARLY_BYTES +
                       SC_SEAL_TAG_BYTES <=
                   SC_SEAL_RECORD_MAX_BYTES,
               "the handshake and the bytes kept during it fit in one buffer");

struct sealed_link {
    struct sc_seal seal;
    bool refused_send; // some bytes were not taken before the peer had proved the key
    uint32_t early_bytes;
    uint32_t plain_at, plain_bytes; // opened, in `in`, and not yet read
    uint32_t in_at, in_bytes;       // arrived and not yet looked at: [in_at, in_bytes)
    uint32_t out_at, out_bytes;     // sealed and not yet sent: [out_at, out_bytes)
    uint8_t early[SC_SEALED_EARLY_BYTES];
    uint8_t in[SC_SEAL_RECORD_MAX_BYTES];
    uint8_t out[SC_SEAL_RECORD_MAX_BYTES];
};

struct sc_sealed {
    struct sc_link table;
    const struct sc_link *inner;
    const struct sc_host *host;
    uint8_t key[SC_KEY_BYTES];
    const char *why;                       // how the last handshake failed; "" when it did not
    uint64_t handles[SC_SEALED_LINKS_MAX]; // of the table below; 0: free
    struct sealed_link links[SC_SEALED_LINKS_MAX];
};

// ---- the table ----

static struct sealed_link *find(struct sc_sealed *sealed, uint64_t handle) {
    for (uint32_t i = 0; handle != 0 && i < SC_SEALED_LINKS_MAX; i++)
        if (sealed->handles[i] == handle)
            return &sealed->links[i];
    return NULL;
}

static uint64_t handle_of(const struct sc_sealed *sealed, const struct sealed_link *l) {
    return sealed->handles[l - sealed->links];
}

// A free link in its first state, which is not used before it has a handle. NULL: there is none, and
// *status says why.
static struct sealed_link *prepare(struct sc_sealed *sealed, enum sc_seal_role role,
                                   sc_status *status) {
    uint8_t random[SC_SEAL_RANDOM_BYTES];
    uint32_t i = 0;
    while (i < SC_SEALED_LINKS_MAX && sealed->handles[i] != 0)
        i++;
    *status = i < SC_SEALED_LINKS_MAX ? SC_OK : SC_NO_MEMORY;
    if (*status == SC_OK)
        *status = sealed->host->entropy(sealed->host->ctx, random, sizeof random);
    if (*status != SC_OK)
        return NULL;
    struct sealed_link *l = &sealed->links[i];
    l->refused_send = false;
    l->early_bytes = l->plain_bytes = 0;
    l->in_at = l->in_bytes = l->out_at = l->out_bytes = 0;
    sc_seal_init(&l->seal, role, sealed->key, random);
    explicit_bzero(random, sizeof random);
    return l;
}

static void adopt(struct sc_sealed *sealed, const struct sealed_link *l, uint64_t handle) {
    sealed->handles[l - sealed->links] = handle;
}

static void forget(struct sc_sealed *sealed, struct sealed_link *l) {
    adopt(sealed, l, 0);
    explicit_bzero(l, sizeof *l);
}

// ---- what leaves ----

// Sends what it can of what is sealed. SC_INPROGRESS: some is left.
static sc_status flush(struct sc_sealed *sealed, struct sealed_link *l) {
    while (l->out_at < l->out_bytes) {
        size_t sent = 0;
        sc_status status = sealed->inner->send(sealed->inner->ctx, handle_of(sealed, l),
                                               l->out + l->out_at, l->out_bytes - l->out_at, &sent);
        if (status != SC_OK)
            return status;
        l->out_at += (uint32_t)sent;
    }
    l->out_at = l->out_bytes = 0;
    return SC_OK;
}

// Seals one record into an `out` that has room for it.
static sc_status seal(struct sealed_link *l, const uint8_t *data, size_t bytes) {
    size_t written = 0;
    sc_status status = sc_seal_write(&l->seal, data, bytes, l->out + l->out_bytes, &written);
    if (status == SC_OK)
        l->out_bytes += (uint32_t)written;
    return status;
}

// What the handshake has to say, then what was kept for a peer that has now proved itself.
static void speak(struct sc_sealed *sealed, struct sealed_link *l) {
    l->out_bytes += (uint32_t)sc_seal_speak(&l->seal, l->out + l->out_bytes);
    if (l->early_bytes > 0 && seal(l, l->early, l->early_bytes) == SC_OK)
        l->early_bytes = 0;
    if (sc_seal_is_proved(&l->seal)) {
        sealed->why = "";
        if (l->refused_send)
            sealed->host->wake(sealed->host->ctx); // the link has become ready for more
    }
    (void)flush(sealed, l); // an error shows at the next send, or when nothing more arrives
}

static size_t keep(struct sealed_link *l, const uint8_t *data, size_t bytes) {
    const size_t room = sizeof l->early - l->early_bytes;
    const size_t taken = bytes < room ? bytes : room;
    memcpy(l->early + l->early_bytes, data, taken);
    l->early_bytes += (uint32_t)taken;
    l->refused_send |= taken < bytes;
    return taken;
}

static sc_status link_send(void *ctx, uint64_t link, const void *data, size_t bytes, size_t *sent) {
    struct sc_sealed *sealed = ctx;
    struct sealed_link *l = find(sealed, link);
    const uint8_t *from = data;
    size_t done = 0;
    if (l == NULL || bytes == 0)
        return SC_INVALID;
    if (sc_seal_verdict(&l->seal) != SC_OK)
        return sc_seal_verdict(&l->seal);
    if (!sc_seal_is_proved(&l->seal)) {
        done = keep(l, from, bytes);
    } else {
        sc_status status = flush(sealed, l);
        while (status == SC_OK && done < bytes) {
            const size_t left = bytes - done;
            const size_t part = left < SC_SEAL_PLAIN_MAX_BYTES ? left : SC_SEAL_PLAIN_MAX_BYTES;
            status = seal(l, from + done, part);
            if (status == SC_OK) {
                done += part;
                status = flush(sealed, l);
            }
        }
        if (status != SC_OK && status != SC_INPROGRESS)
            return status;
    }
    if (done == 0)
        return SC_INPROGRESS;
    *sent = done;
    return SC_OK;
}

// ---- what arrives ----

static sc_status fail(struct sc_sealed *sealed, const struct sealed_link *l) {
    if (!sc_seal_is_proved(&l->seal))
        sealed->why = sc_seal_why(&l->seal);
    return sc_seal_verdict(&l->seal);
}

// Moves the link on until opened bytes lie ready (SC_OK) or all that has arrived is used up.
static sc_status advance(struct sc_sealed *sealed, struct sealed_link *l) {
    while (l->plain_bytes == 0) {
        size_t used = 0, plain = 0, got = 0;
        sc_status status =
            sc_seal_read(&l->seal, l->in + l->in_at, l->in_bytes - l->in_at, &used, &plain);
        if (status == SC_OK) {
            l->plain_at = l->in_at + SC_SEAL_HEADER_BYTES;
            l->plain_bytes = (uint32_t)plain;
            l->in_at += (uint32_t)used;
            if (plain == 0) // a step of the handshake
                speak(sealed, l);
            continue;
        }
        if (status != SC_INPROGRESS)
            return fail(sealed, l);
        l->in_bytes -= l->in_at;
        memmove(l->in, l->in + l->in_at, l->in_bytes);
        l->in_at = 0;
        status = sealed->inner->recv(sealed->inner->ctx, handle_of(sealed, l), l->in + l->in_bytes,
                                     sizeof l->in - l->in_bytes, &got);
        if (status == SC_LINK_EOF) {
            (void)sc_seal_cut(&l->seal);
            return fail(sealed, l);
        }
        if (status != SC_OK)
            return status;
        l->in_bytes += (uint32_t)got;
    }
    return SC_OK;
}

static sc_status link_recv(void *ctx, uint64_t link, void *data, size_t bytes, size_t *received) {
    struct sc_sealed *sealed = ctx;
    struct sealed_link *l = find(sealed, link);
    if (l == NULL || bytes == 0)
        return SC_INVALID;
    (void)flush(sealed, l); // bytes may have arrived before the peer went away
    sc_status status = advance(sealed, l);
    if (status != SC_OK)
        return status;
    const uint32_t taken = bytes < l->plain_bytes ? (uint32_t)bytes : l->plain_bytes;
    memcpy(data, l->in + l->plain_at, taken);
    l->plain_at += taken;
    l->plain_bytes -= taken;
    *received = taken;
    return SC_OK;
}

// ---- links come and go ----

static sc_status link_listen(void *ctx, const char *host, uint16_t port, uint64_t *listener) {
    const struct sc_sealed *sealed = ctx;
    return sealed->inner->listen(sealed->inner->ctx, host, port, listener);
}

static sc_status link_accept(void *ctx, uint64_t listener, uint64_t *link) {
    struct sc_sealed *sealed = ctx;
    uint64_t handle = 0;
    for (;;) {
        sc_status status = sealed->inner->accept(sealed->inner->ctx, listener, &handle);
        if (status != SC_OK)
            return status;
        struct sealed_link *l = prepare(sealed, SC_SEAL_ACCEPTS, &status);
        if (l != NULL) {
            adopt(sealed, l, handle);
            speak(sealed, l);
            *link = handle;
            return SC_OK;
        }
        sealed->inner->close(sealed->inner->ctx, handle);
    }
}

static sc_status link_dial(void *ctx, const char *host, uint16_t port, uint32_t attempt,
                           uint64_t *link) {
    struct sc_sealed *sealed = ctx;
    uint64_t handle = 0;
    sc_status status = SC_OK;
    struct sealed_link *l = prepare(sealed, SC_SEAL_DIALS, &status);
    if (l == NULL)
        return status;
    status = sealed->inner->dial(sealed->inner->ctx, host, port, attempt, &handle);
    if (status != SC_OK) {
        forget(sealed, l);
        return status;
    }
    adopt(sealed, l, handle);
    *link = handle;
    return SC_OK;
}

static sc_status link_connected(void *ctx, uint64_t link) {
    struct sc_sealed *sealed = ctx;
    struct sealed_link *l = find(sealed, link);
    if (l == NULL)
        return SC_INVALID;
    sc_status status = sealed->inner->connected(sealed->inner->ctx, link);
    if (status != SC_OK) {
        if (status != SC_INPROGRESS)
            sealed->why = ""; // the table below says more
        return status;
    }
    (void)flush(sealed, l);
    status = advance(sealed, l);
    return sc_seal_is_proved(&l->seal) ? SC_OK : status;
}

static void link_close(void *ctx, uint64_t handle) {
    struct sc_sealed *sealed = ctx;
    struct sealed_link *l = find(sealed, handle);
    if (l != NULL) {
        size_t written = 0;
        if (flush(sealed, l) == SC_OK && sc_seal_finish(&l->seal, l->out, &written) == SC_OK) {
            l->out_bytes = (uint32_t)written;
            (void)flush(sealed, l);
        }
        forget(sealed, l);
    }
    sealed->inner->close(sealed->inner->ctx, handle);
}

static const char *link_explain(void *ctx, char *text, size_t bytes) {
    const struct sc_sealed *sealed = ctx;
    char below[512];
    (void)sealed->inner->explain(sealed->inner->ctx, below, sizeof below);
    const bool both = sealed->why[0] != '\0' && below[0] != '\0';
    snprintf(text, bytes, "%s%s%s", sealed->why, both ? "; " : "", below);
    return text;
}

// ---- the object ----

sc_status sc_sealed_create(const struct sc_link *inner, const struct sc_host *host,
                           const uint8_t key[SC_KEY_BYTES], struct sc_sealed **out) {
    sc_status status = sc_seal_start();
    if (status != SC_OK)
        return status;
    struct sc_sealed *sealed = calloc(1, sizeof *sealed);
    if (sealed == NULL)
        return SC_NO_MEMORY;
    sealed->table = (struct sc_link){
        .size = sizeof sealed->table,
        .name = "sealed",
        .ctx = sealed,
        .listen = link_listen,
        .accept = link_accept,
        .dial = link_dial,
        .connected = link_connected,
        .send = link_send,
        .recv = link_recv,
        .close = link_close,
        .explain = link_explain,
    };
    sealed->inner = inner;
    sealed->host = host;
    sealed->why = "";
    memcpy(sealed->key, key, sizeof sealed->key);
    *out = sealed;
    return SC_OK;
}

void sc_sealed_destroy(struct sc_sealed *sealed) {
    if (sealed == NULL)
        return;
    explicit_bzero(sealed, sizeof *sealed);
    free(sealed);
}

const struct sc_link *sc_sealed_link(struct sc_sealed *sealed) {
    return &sealed->table;
}
