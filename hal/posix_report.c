// SPDX-License-Identifier: AGPL-3.0-only
//
// What is told of the last listen or dial. A status has no room for the name, the address and the system's own
// word, and these three are what a wrong name service or a wrong /etc/hosts is found by.
#include "hal/posix_inside.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

void sc_posix_note(struct sc_posix *posix, const struct sc_posix_entry *entry,
                   enum sc_posix_stage stage, int resolver_error, int system_error) {
    struct sc_posix_report *report = &posix->report;
    if (stage == SC_POSIX_BEGUN && report->stage > SC_POSIX_BEGUN)
        return;
    *report = (struct sc_posix_report){
        .stage = stage,
        .port = entry->port,
        .address = entry->address,
        .resolver_error = resolver_error,
        .system_error = system_error,
    };
    snprintf(report->host, sizeof report->host, "%s", entry->host);
}

static bool is_loopback(const union sc_posix_address *address) {
    if (address->any.sa_family == AF_INET)
        return ntohl(address->v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    const struct in6_addr *v6 = &address->v6.sin6_addr;
    return address->any.sa_family == AF_INET6 &&
           (IN6_IS_ADDR_LOOPBACK(v6) ||
            (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == IN_LOOPBACKNET));
}

static const char *word(const struct sc_posix_report *report) {
    switch (report->stage) {
    case SC_POSIX_NOTHING: break;
    case SC_POSIX_LISTENS: return "listening";
    case SC_POSIX_BEGUN: return "no answer yet";
    case SC_POSIX_GIVEN_UP: return "given up without an answer";
    case SC_POSIX_NO_NAME:
        if (report->system_error == 0)
            return gai_strerror(report->resolver_error);
        return strerror(report->system_error);
    case SC_POSIX_NO_LISTENER:
    case SC_POSIX_NO_CONNECTION: return strerror(report->system_error);
    case SC_POSIX_MET_ITSELF: return "nobody listens there, the connection met itself";
    case SC_POSIX_CONNECTED: return "connected";
    }
    return "";
}

// Which is no news to those who cannot even listen there.
static const char *remark(const struct sc_posix_report *report) {
    bool said = is_loopback(&report->address) && report->stage != SC_POSIX_NO_LISTENER;
    return said ? " (loopback: it leads to no other machine than this)" : "";
}

const char *sc_posix_explain(void *ctx, char *text, size_t bytes) {
    const struct sc_posix *posix = ctx;
    const struct sc_posix_report *report = &posix->report;
    const union sc_posix_address *address = &report->address;
    char name[INET6_ADDRSTRLEN] = "";
    if (address->any.sa_family == AF_INET)
        inet_ntop(AF_INET, &address->v4.sin_addr, name, sizeof name);
    else if (address->any.sa_family == AF_INET6)
        inet_ntop(AF_INET6, &address->v6.sin6_addr, name, sizeof name);

    if (report->stage == SC_POSIX_NOTHING)
        text[0] = '\0';
    else if (name[0] == '\0')
        snprintf(text, bytes, "%s port %u, name service: %s", report->host, (unsigned)report->port,
                 word(report));
    else
        snprintf(text, bytes, "%s port %u, address %s%s: %s", report->host, (unsigned)report->port,
                 name, remark(report), word(report));
    return text;
}
