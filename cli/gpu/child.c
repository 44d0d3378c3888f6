// SPDX-License-Identifier: AGPL-3.0-only
//
// Starting this program in another role.
#include "cli/gpu/child.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void become(const char *role, int channel, pid_t parent) {
    char name[32];
    char *const arguments[] = {"spark-comm", name, NULL};

    snprintf(name, sizeof name, "%s", role);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1); // it ended before that
    if (channel == SC_CHILD_CHANNEL ? fcntl(channel, F_SETFD, 0) == 0
                                    : dup2(channel, SC_CHILD_CHANNEL) >= 0)
        (void)execv("/proc/self/exe", arguments);
    fprintf(stderr, "spark-comm: /proc/self/exe cannot be started: %s\n", strerror(errno));
    _exit(1);
}

bool sc_child_start(struct sc_child *child, const char *role) {
    int ends[2];
    pid_t parent = getpid();

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        fprintf(stderr, "spark-comm: no channel to another process: %s\n", strerror(errno));
        return false;
    }
    (void)fflush(NULL); // once, not once a process
    pid_t pid = fork();
    if (pid == 0)
        become(role, ends[1], parent);
    (void)close(ends[1]);
    if (pid < 0) {
        fprintf(stderr, "spark-comm: no process can be started: %s\n", strerror(errno));
        (void)close(ends[0]);
        return false;
    }
    *child = (struct sc_child){.pid = pid, .channel = ends[0]};
    return true;
}

// NCCL reads these as it is loaded.
void sc_child_keep_to_sockets(void) {
    (void)setenv("NCCL_P2P_DISABLE", "1", 1);
    (void)setenv("NCCL_SHM_DISABLE", "1", 1);
    (void)setenv("NCCL_NET", "Socket", 1);
    (void)setenv("NCCL_SOCKET_IFNAME", "lo", 0);
}

void sc_child_keep_ras_off(void) {
    (void)setenv("NCCL_RAS_ENABLE", "0", 0);
}

void sc_child_share_gpu(uint32_t rank) {
    char host[16];
    snprintf(host, sizeof host, "rank-%u", rank);
    (void)setenv("NCCL_HOSTID", host, 1);
}

bool sc_child_await(struct sc_child *child) {
    int status = 0;
    pid_t ended;

    if (child->pid == 0)
        return true;
    do {
        ended = waitpid(child->pid, &status, 0);
    } while (ended < 0 && errno == EINTR);
    (void)close(child->channel);
    child->pid = 0;
    return ended > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void sc_child_end(struct sc_child *child) {
    if (child->pid == 0)
        return;
    (void)kill(child->pid, SIGKILL);
    (void)sc_child_await(child);
}

bool sc_child_say(int channel, const void *message, size_t bytes) {
    ssize_t sent;
    do {
        sent = send(channel, message, bytes, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)bytes;
}

bool sc_child_hear(int channel, void *message, size_t bytes) {
    ssize_t got;
    do {
        got = recv(channel, message, bytes, 0);
    } while (got < 0 && errno == EINTR);
    return got == (ssize_t)bytes;
}

uint32_t sc_child_free_port(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool found = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
                 getsockname(fd, (struct sockaddr *)&address, &bytes) == 0;
    if (fd >= 0)
        (void)close(fd);
    if (!found)
        perror("spark-comm: no free port on 127.0.0.1");
    return found ? ntohs(address.sin_port) : 0;
}
