// SPDX-License-Identifier: AGPL-3.0-only
//
// Real sockets for tests: strangers, pairs, and a world of two ranks.
#include "tests/support/sockets_rig.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SLICE_NS SOCKETS_MS

// ---- the operating system ----

uint64_t sockets_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SOCKETS_SECOND + (uint64_t)now.tv_nsec;
}

uint16_t sockets_reserve(const char *address, int *fd) {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } to;
    const int on = 1;
    memset(&to, 0, sizeof to);
    bool is_v4 = inet_pton(AF_INET, address, &to.v4.sin_addr) == 1;
    if (!is_v4)
        SC_ASSERT(inet_pton(AF_INET6, address, &to.v6.sin6_addr) == 1);
    to.any.sa_family = is_v4 ? AF_INET : AF_INET6;
    socklen_t bytes = is_v4 ? sizeof to.v4 : sizeof to.v6;
    *fd = socket(to.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd < 0)
        return 0;
    SC_ASSERT(setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    if (bind(*fd, &to.any, bytes) != 0) {
        close(*fd);
        return 0;
    }
    SC_ASSERT(getsockname(*fd, &to.any, &bytes) == 0);
    return ntohs(is_v4 ? to.v4.sin_port : to.v6.sin6_port);
}

// Without the descriptor that it takes to count them.
static uint32_t entries(const char *path) {
    uint32_t count = 0;
    DIR *folder = opendir(path);
    SC_ASSERT(folder != NULL);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
        count += entry->d_name[0] != '.' && strtol(entry->d_name, NULL, 10) != dirfd(folder);
    closedir(folder);
    return count;
}

uint32_t sockets_descriptors(void) {
    return entries("/proc/self/fd");
}

uint32_t sockets_threads(void) {
    return entries("/proc/self/task");
}

void sockets_limit_descriptors(int room) {
    struct rlimit limit;
    int fd = 0;
    for (int free_ones = 0; free_ones < room || fcntl(fd, F_GETFD) >= 0; fd++)
        free_ones += fcntl(fd, F_GETFD) < 0;
    SC_ASSERT(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = (rlim_t)fd;
    SC_ASSERT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

int sockets_stranger(uint16_t port) {
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    SC_ASSERT(fd >= 0);
    SC_ASSERT(connect(fd, (const struct sockaddr *)&to, sizeof to) == 0);
    SC_ASSERT(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    return fd;
}

void sockets_reset(int stranger) {
    const struct linger none = {.l_onoff = 1, .l_linger = 0};
    SC_ASSERT(setsockopt(stranger, SOL_SOCKET, SO_LINGER, &none, sizeof none) == 0);
    close(stranger);
}

size_t sockets_read(int stranger, void *data, size_t bytes, bool *ended) {
    size_t total = 0;
    ssize_t got = 1;
    while (total < bytes && (got = recv(stranger, (char *)data + total, bytes - total, 0)) > 0)
        total += (size_t)got;
    *ended = got == 0 || (got < 0 && errno != EAGAIN);
    return total;
}

// A child whose body came to its end stops, and is killed so: at an exit of its own a leak checker
// would complain of all that the parent holds.
pid_t sockets_child_begin(void (*body)(const void *arg), const void *arg) {
    pid_t child = fork();
    SC_ASSERT(child >= 0);
    if (child == 0) {
        alarm(30); // longer than any test waits for it
        body(arg);
        raise(SIGSTOP);
    }
    return child;
}

static bool reap(pid_t child, int options, bool *well) {
    int status;
    if (waitpid(child, &status, options | WUNTRACED) != child)
        return false;
    *well = WIFSTOPPED(status);
    if (*well) {
        SC_ASSERT(kill(child, SIGKILL) == 0);
        SC_ASSERT(waitpid(child, &status, 0) == child);
    }
    return true;
}

bool sockets_child_has_ended(pid_t child, bool *well) {
    return reap(child, WNOHANG, well);
}

bool sockets_child(void (*body)(const void *arg)) {
    bool well = false;
    return reap(sockets_child_begin(body, NULL), 0, &well) && well;
}

// ---- one object, both ends of a connection ----

void sockets_pair_listen(struct sockets_pair *pair, const char *address) {
    memset(pair, 0, sizeof *pair);
    pair->port = sockets_reserve(address, &pair->reserved_fd);
    if (pair->port == 0)
        skip();
    SC_ASSERT(sc_posix_create(&pair->posix) == SC_OK);
    pair->host = sc_posix_host(pair->posix);
    pair->link = sc_posix_link(pair->posix);
    SC_ASSERT(pair->link->listen(pair->link->ctx, address, pair->port, &pair->listener) == SC_OK);
}

sc_status sockets_follow(struct sockets_pair *pair, uint64_t link) {
    const uint64_t until_ns = sockets_now() + SOCKETS_LIMIT_NS;
    sc_status status;
    while ((status = pair->link->connected(pair->link->ctx, link)) == SC_INPROGRESS)
        SC_ASSERT(pair->host->wait(pair->host->ctx, until_ns) == SC_OK);
    return status;
}

sc_status sockets_dial(struct sockets_pair *pair, const char *host, uint32_t attempt,
                       uint64_t *link) {
    SC_ASSERT(pair->link->dial(pair->link->ctx, host, pair->port, attempt, link) == SC_OK);
    return sockets_follow(pair, *link);
}

uint64_t sockets_accept(struct sockets_pair *pair) {
    const uint64_t until_ns = sockets_now() + SOCKETS_LIMIT_NS;
    uint64_t link = 0;
    while (pair->link->accept(pair->link->ctx, pair->listener, &link) == SC_INPROGRESS)
        SC_ASSERT(pair->host->wait(pair->host->ctx, until_ns) == SC_OK);
    SC_ASSERT(link != 0);
    return link;
}

void sockets_pair_open(struct sockets_pair *pair, const char *address) {
    sockets_pair_listen(pair, address);
    SC_ASSERT(sockets_dial(pair, address, 0, &pair->near) == SC_OK);
    pair->far = sockets_accept(pair);
}

void sockets_pair_close(struct sockets_pair *pair) {
    sc_posix_destroy(pair->posix);
    close(pair->reserved_fd);
}

// ---- the world ----

static void on_notice(void *arg, const struct sc_action *notice) {
    struct sockets_rank *rank = arg;
    if (notice->kind == SC_NOTICE_MISSING) {
        rank->missing = notice->mask;
        rank->missing_at_ns = sockets_now();
    } else if (notice->kind == SC_NOTICE_AGREED) {
        rank->agreed = notice->a;
    } else if (notice->kind == SC_NOTICE_GREETED) {
        rank->greeted++;
    } else if (notice->kind == SC_NOTICE_REFUSED) {
        rank->refused++;
    }
}

static void on_complete(void *arg, uint64_t epoch, uint64_t number, uint64_t seq) {
    (void)epoch, (void)number;
    ((struct sockets_rank *)arg)->completed = seq;
}

static void on_command(void *arg, uint32_t rank, uint64_t epoch, const void *data, uint32_t bytes) {
    struct sockets_rank *to = arg;
    (void)rank, (void)epoch;
    memcpy(to->command, data, bytes);
    to->command_bytes = bytes;
}

void sockets_rig_open(struct sockets_rig *rig) {
    memset(rig, 0, sizeof *rig);
    rig->descriptors = sockets_descriptors();
    rig->port = sockets_reserve(V4, &rig->reserved_fd);
    SC_ASSERT(rig->port != 0);
    sc_core_config_init(&rig->core);
    rig->core.world = SOCKETS_RANKS;
    rig->core.capacity_bytes = 65536;
}

sc_status sockets_rank_open(struct sockets_rig *rig, uint32_t place, uint32_t number) {
    struct sockets_rank *rank = &rig->ranks[place];
    struct sc_pump_config config;
    SC_ASSERT(rank->posix == NULL);
    memset(rank, 0, sizeof *rank);
    SC_ASSERT(sc_posix_create(&rank->posix) == SC_OK);
    SC_ASSERT(sc_instant_device_create(&rank->instant) == SC_OK);
    rank->device = *sc_instant_device_table(rank->instant);
    rank->device.poll_ns = SOCKETS_MS;
    sc_pump_config_init(&config);
    config.core = rig->core;
    config.core.rank = number;
    config.master_host = V4;
    config.master_port = rig->port;
    config.host = sc_posix_host(rank->posix);
    config.link = sc_posix_link(rank->posix);
    if (rig->keys[place] != NULL) {
        SC_ASSERT(sc_sealed_create(config.link, config.host, rig->keys[place], &rank->sealed) ==
                  SC_OK);
        config.link = sc_sealed_link(rank->sealed);
    }
    config.device = &rank->device;
    config.on_notice = on_notice;
    config.on_complete = on_complete;
    config.on_command = on_command;
    config.arg = rank;
    sc_status status = sc_pump_open(&config, &rank->pump, rig->why, sizeof rig->why);
    if (status != SC_OK)
        sockets_rank_kill(rig, place);
    return status;
}

void sockets_rank_kill(struct sockets_rig *rig, uint32_t place) {
    struct sockets_rank *rank = &rig->ranks[place];
    sc_pump_destroy(rank->pump);
    sc_sealed_destroy(rank->sealed);
    sc_posix_destroy(rank->posix);
    sc_instant_device_destroy(rank->instant);
    rank->pump = NULL;
    rank->sealed = NULL;
    rank->posix = NULL;
    rank->instant = NULL;
}

void sockets_rig_close(struct sockets_rig *rig) {
    for (uint32_t place = 0; place < SOCKETS_PLACES; place++)
        sockets_rank_kill(rig, place);
    close(rig->reserved_fd);
    assert_int_equal(sockets_descriptors(), rig->descriptors);
}

enum sc_state sockets_state(const struct sockets_rig *rig, uint32_t place) {
    struct sc_core_view view;
    sc_pump_view(rig->ranks[place].pump, &view);
    return view.state;
}

bool sockets_are_ready(const struct sockets_rig *rig) {
    struct sc_core_view views[SOCKETS_RANKS];
    for (uint32_t place = 0; place < SOCKETS_RANKS; place++)
        sc_pump_view(rig->ranks[place].pump, &views[place]);
    return views[0].state == SC_STATE_READY && views[1].state == SC_STATE_READY &&
           views[0].epoch == views[1].epoch;
}

void sockets_step(struct sockets_rig *rig) {
    uint64_t due_ns = SC_NEVER_NS;
    for (uint32_t place = 0; place < SOCKETS_PLACES; place++) {
        if (rig->ranks[place].pump == NULL)
            continue;
        uint64_t next_ns = sc_pump_run(rig->ranks[place].pump);
        due_ns = next_ns < due_ns ? next_ns : due_ns;
    }
    // Each has its own wait, and there is one thread: it looks at one after the other.
    for (uint32_t place = 0; place < SOCKETS_PLACES; place++) {
        if (rig->ranks[place].pump == NULL)
            continue;
        const struct sc_host *host = sc_posix_host(rig->ranks[place].posix);
        uint64_t slice_ns = sockets_now() + SLICE_NS;
        sc_status status = host->wait(host->ctx, due_ns < slice_ns ? due_ns : slice_ns);
        assert_true(status == SC_OK || status == SC_TIMEOUT);
    }
}

void sockets_miss(const struct sockets_rig *rig, const char *condition, const char *file,
                  int line) {
    char text[512];
    for (uint32_t place = 0; place < SOCKETS_PLACES; place++)
        if (rig->ranks[place].pump != NULL)
            print_error("place %u is %s; links: %s\n", place,
                        sc_state_name(sockets_state(rig, place)),
                        sc_pump_explain(rig->ranks[place].pump, text, sizeof text));
    print_error("not within %.0f s: %s\n", (double)SOCKETS_LIMIT_NS / 1e9, condition);
    _fail(file, line);
}
