// SPDX-License-Identifier: AGPL-3.0-only
//
// From a name to a connection, without ever waiting: RESOLVING, CONNECTING, then OPEN or FAILED.
// Each look at a dial moves it on; a dial that failed has given its descriptor back.
#include "hal/posix_inside.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>

bool sc_posix_is_shortage(int error) {
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

int sc_posix_socket(int family) {
    return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

void sc_posix_send_at_once(int fd) {
    const int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); // slower without, not wrong
}

socklen_t sc_posix_length(const union sc_posix_address *address) {
    return address->any.sa_family == AF_INET ? sizeof address->v4 : sizeof address->v6;
}

bool sc_posix_address_of(const struct addrinfo *found, uint16_t port, union sc_posix_address *out) {
    if (found->ai_family == AF_INET) {
        memcpy(&out->v4, found->ai_addr, sizeof out->v4);
        out->v4.sin_port = htons(port);
    } else if (found->ai_family == AF_INET6) {
        memcpy(&out->v6, found->ai_addr, sizeof out->v6);
        out->v6.sin6_port = htons(port);
    }
    return found->ai_family == AF_INET || found->ai_family == AF_INET6;
}

static sc_status status_of(int error) {
    if (sc_posix_is_shortage(error))
        return SC_NO_MEMORY;
    return error == ECONNREFUSED || error == ECONNRESET ? SC_REFUSED : SC_UNREACHABLE;
}

static void fail(struct sc_posix *posix, struct sc_posix_entry *entry, enum sc_posix_stage stage,
                 sc_status failure, int resolver_error, int system_error) {
    sc_posix_let_go(posix, entry);
    entry->state = SC_POSIX_FAILED;
    entry->failure = failure;
    sc_posix_note(posix, entry, stage, resolver_error, system_error);
}

static void fail_connect(struct sc_posix *posix, struct sc_posix_entry *entry, int error) {
    fail(posix, entry, SC_POSIX_NO_CONNECTION, status_of(error), 0, error);
}

// ---- connecting ----

static bool is_same(const union sc_posix_address *a, const union sc_posix_address *b) {
    if (a->any.sa_family != b->any.sa_family)
        return false;
    if (a->any.sa_family == AF_INET)
        return a->v4.sin_port == b->v4.sin_port && a->v4.sin_addr.s_addr == b->v4.sin_addr.s_addr;
    return a->v6.sin6_port == b->v6.sin6_port &&
           IN6_ARE_ADDR_EQUAL(&a->v6.sin6_addr, &b->v6.sin6_addr);
}

// A dial to a port of this machine where nobody listens may be given that very port as its own.
static bool met_itself(int fd) {
    union sc_posix_address here = {0}, there = {0};
    socklen_t here_bytes = sizeof here, there_bytes = sizeof there;
    return getsockname(fd, &here.any, &here_bytes) == 0 &&
           getpeername(fd, &there.any, &there_bytes) == 0 && is_same(&here, &there);
}

static void follow_connect(struct sc_posix *posix, struct sc_posix_entry *entry) {
    struct pollfd look = {.fd = entry->fd, .events = POLLOUT};
    int error = 0;
    socklen_t bytes = sizeof error;
    if (poll(&look, 1, 0) <= 0) {
        sc_posix_watch(posix, entry, POLLOUT);
        return;
    }
    if (getsockopt(entry->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
        error = errno;
    if (error != 0) {
        fail_connect(posix, entry, error);
    } else if (met_itself(entry->fd)) {
        fail(posix, entry, SC_POSIX_MET_ITSELF, SC_REFUSED, 0, 0);
    } else {
        entry->state = SC_POSIX_OPEN;
        entry->interest = 0;
        sc_posix_watch(posix, entry, POLLIN);
        sc_posix_note(posix, entry, SC_POSIX_CONNECTED, 0, 0);
    }
}

static const struct addrinfo *pick(const struct addrinfo *list, uint32_t attempt) {
    uint32_t count = 0;
    for (const struct addrinfo *a = list; a != NULL; a = a->ai_next)
        count++;
    for (attempt %= count; attempt > 0; attempt--)
        list = list->ai_next;
    return list;
}

static void connect_to(struct sc_posix *posix, struct sc_posix_entry *entry,
                       const struct sc_posix_answer *answer) {
    if (answer->found == NULL) {
        fail(posix, entry, SC_POSIX_NO_NAME, sc_posix_answer_status(answer), answer->resolver_error,
             answer->system_error);
        return;
    }
    const struct addrinfo *found = pick(answer->found, entry->attempt);
    if (!sc_posix_address_of(found, entry->port, &entry->address)) {
        fail_connect(posix, entry, EAFNOSUPPORT);
        return;
    }
    entry->fd = sc_posix_socket(found->ai_family);
    if (entry->fd < 0) {
        fail_connect(posix, entry, errno);
        return;
    }
    sc_posix_send_at_once(entry->fd);
    entry->state = SC_POSIX_CONNECTING;
    if (connect(entry->fd, &entry->address.any, sc_posix_length(&entry->address)) != 0 &&
        errno != EINPROGRESS && errno != EINTR) {
        fail_connect(posix, entry, errno);
        return;
    }
    sc_posix_note(posix, entry, SC_POSIX_BEGUN, 0, 0);
    follow_connect(posix, entry);
}

// ---- resolving ----

// Hands an answer that is there to all dials that wait for it. One that nobody waits for any more is
// forgotten: a name is resolved anew for each dial.
static void deliver(struct sc_posix *posix) {
    if (posix->query == NULL)
        return;
    const struct sc_posix_answer *answer = sc_posix_query_answer(posix->query);
    if (answer == NULL)
        return;
    for (uint32_t i = 0; i < posix->used; i++) {
        struct sc_posix_entry *entry = &posix->entries[i];
        if (entry->state == SC_POSIX_RESOLVING &&
            strcmp(entry->host, sc_posix_query_host(posix->query)) == 0)
            connect_to(posix, entry, answer);
    }
    sc_posix_query_end(posix->query);
    posix->query = NULL;
}

static void follow_resolution(struct sc_posix *posix, struct sc_posix_entry *entry) {
    deliver(posix);
    if (entry->state != SC_POSIX_RESOLVING || posix->query != NULL)
        return;
    posix->query = sc_posix_query_begin(entry->host, posix->wake_fd);
    if (posix->query == NULL)
        fail(posix, entry, SC_POSIX_NO_NAME, SC_NO_MEMORY, EAI_SYSTEM, errno);
}

sc_status sc_posix_standing(struct sc_posix *posix, struct sc_posix_entry *entry) {
    if (entry->state == SC_POSIX_RESOLVING)
        follow_resolution(posix, entry);
    else if (entry->state == SC_POSIX_CONNECTING)
        follow_connect(posix, entry);
    switch (entry->state) {
    case SC_POSIX_OPEN: return SC_OK;
    case SC_POSIX_FAILED: return entry->failure;
    case SC_POSIX_RESOLVING:
    case SC_POSIX_CONNECTING: return SC_INPROGRESS;
    case SC_POSIX_FREE:
    case SC_POSIX_LISTENING: break;
    }
    return SC_INVALID;
}

void sc_posix_give_up(struct sc_posix *posix, const struct sc_posix_entry *entry) {
    if (entry->state == SC_POSIX_RESOLVING || entry->state == SC_POSIX_CONNECTING)
        sc_posix_note(posix, entry, SC_POSIX_GIVEN_UP, 0, 0);
}

sc_status sc_posix_dial(void *ctx, const char *host, uint16_t port, uint32_t attempt,
                        uint64_t *link) {
    struct sc_posix *posix = ctx;
    if (host == NULL || host[0] == '\0' || port == 0)
        return SC_INVALID;
    deliver(posix); // what was answered before this dial is not for it
    struct sc_posix_entry *entry = sc_posix_take_for(posix, SC_POSIX_RESOLVING, host, port);
    if (entry == NULL)
        return SC_NO_MEMORY;
    entry->attempt = attempt;
    struct sc_posix_answer literal = sc_posix_lookup(host, AI_NUMERICHOST);
    if (literal.found != NULL) {
        connect_to(posix, entry, &literal);
        freeaddrinfo(literal.found);
    } else {
        sc_posix_note(posix, entry, SC_POSIX_BEGUN, 0, 0);
        follow_resolution(posix, entry);
    }
    // Nobody has asked it yet, so what is decided already is there to be told of.
    entry->untold = entry->state != SC_POSIX_RESOLVING && entry->state != SC_POSIX_CONNECTING;
    if (entry->untold)
        sc_posix_rouse(posix);
    *link = entry->handle;
    return SC_OK;
}

sc_status sc_posix_connected(void *ctx, uint64_t link) {
    struct sc_posix *posix = ctx;
    struct sc_posix_entry *entry = sc_posix_find(posix, link);
    if (entry == NULL)
        return SC_INVALID;
    entry->untold = false;
    return sc_posix_standing(posix, entry);
}
