// SPDX-License-Identifier: AGPL-3.0-only
//
// What /proc and the sockets tell of this process.
#include "cli/gpu/self.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <linux/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

// ---- counts ----

static uint64_t entries_of(const char *folder) {
    uint64_t count = 0;
    DIR *open = opendir(folder);
    while (open != NULL && readdir(open) != NULL)
        count++;
    if (open != NULL)
        (void)closedir(open);
    return count >= 2 ? count - 2 : 0; // "." and ".."
}

void sc_self_count(struct sc_self_counts *out) {
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file != NULL && fscanf(file, "%*u %llu", &pages) != 1)
        pages = 0;
    if (file != NULL)
        (void)fclose(file);
    out->resident_bytes = pages * (uint64_t)sysconf(_SC_PAGESIZE);
    out->threads = entries_of("/proc/self/task");
    out->descriptors = entries_of("/proc/self/fd") - 1; // less the folder's own
}

// ---- connections ----

static uint32_t port_of(const struct sockaddr_storage *address) {
    if (address->ss_family == AF_INET)
        return ntohs(((const struct sockaddr_in *)address)->sin_port);
    return ntohs(((const struct sockaddr_in6 *)address)->sin6_port);
}

struct connection {
    int fd;
    uint32_t ports[2]; // own, the other end's
    uint64_t bytes;    // that went either way
};

// False: it is no TCP connection.
static bool look(int fd, struct connection *out) {
    struct sockaddr_storage ends[2];
    socklen_t bytes[2] = {sizeof ends[0], sizeof ends[1]};
    struct tcp_info info = {0};
    socklen_t info_bytes = sizeof info;

    if (getsockname(fd, (struct sockaddr *)&ends[0], &bytes[0]) != 0 ||
        getpeername(fd, (struct sockaddr *)&ends[1], &bytes[1]) != 0 ||
        (ends[0].ss_family != AF_INET && ends[0].ss_family != AF_INET6) ||
        getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &info_bytes) != 0)
        return false;
    *out = (struct connection){.fd = fd,
                               .ports = {port_of(&ends[0]), port_of(&ends[1])},
                               .bytes = info.tcpi_bytes_acked + info.tcpi_bytes_received};
    return true;
}

static bool has_port(const struct connection *connection, uint32_t port) {
    return connection->ports[0] == port || connection->ports[1] == port;
}

// The next connection of this process, in the order of the folder.
static bool next(DIR *folder, struct connection *out) {
    struct dirent *entry;
    while ((entry = readdir(folder)) != NULL)
        if (entry->d_name[0] != '.' && look(atoi(entry->d_name), out))
            return true;
    return false;
}

uint32_t sc_self_cut_port(uint32_t port) {
    struct connection connection;
    uint32_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder != NULL && next(folder, &connection))
        if (has_port(&connection, port))
            count += shutdown(connection.fd, SHUT_RDWR) == 0;
    if (folder != NULL)
        (void)closedir(folder);
    return count;
}

uint32_t sc_self_cut_busiest(uint32_t but_port) {
    struct connection connection, busiest = {.fd = -1};
    DIR *folder = opendir("/proc/self/fd");
    while (folder != NULL && next(folder, &connection))
        if (!has_port(&connection, but_port) && connection.bytes > busiest.bytes)
            busiest = connection;
    if (folder != NULL)
        (void)closedir(folder);
    return busiest.fd >= 0 && shutdown(busiest.fd, SHUT_RDWR) == 0;
}
