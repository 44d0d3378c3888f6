// SPDX-License-Identifier: AGPL-3.0-only
//
// Real GPUs, seen from the parent, which never touches one: it starts a process for each rank, lets
// them meet, kills, freezes and starts anew as the test's strike says, and hears how it went.
#include "tests/conformance/gpu.h"
#include "tests/conformance/ranks.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_NS (45 * CONF_SECOND) // of a test, unless it is a long one
#define GRACE_NS (10 * CONF_SECOND) // for the other ranks, once one has failed; and to exit
#define LOOK_MS 20

struct seat {
    pid_t pid; // 0: no process
    int socket;
    uint32_t life;
    uint64_t start_at_ns, resume_at_ns; // 0: never
    bool expected;                      // its end is of our making
    struct conf_message message;        // that waits for its answer
};

struct session {
    const struct conf_options *options;
    const struct conf_test *const *tests;
    uint32_t count;
    struct conf_result *results;
    uint32_t test; // the present one
    bool over;     // every test has its result, or one has failed
    bool failed;
    uint64_t deadline_ns;
    uint16_t port;
    struct seat seats[CONF_RANKS_MAX];
};

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * CONF_SECOND + (uint64_t)now.tv_nsec;
}

static uint64_t later(const struct session *s, uint64_t duration_ns) {
    return now_ns() + duration_ns * s->options->scale;
}

static uint64_t deadline_of_test(const struct session *s) {
    return later(s, LIMIT_NS) + conf_extra_s(s->tests[s->test]) * CONF_SECOND;
}

static uint16_t free_port(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool found = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
                 getsockname(fd, (struct sockaddr *)&address, &bytes) == 0;
    (void)close(fd);
    return found ? ntohs(address.sin_port) : 29500;
}

// ---- processes ---------------------------------------------------------------------------------

// NCCL has at most one rank of a host on a GPU. To it each is on a host of its own, then.
static void share_device(uint32_t r) {
    char host[16];
    snprintf(host, sizeof host, "rank-%u", r);
    (void)setenv("NCCL_HOSTID", host, 1);
    (void)setenv("NCCL_NET", "Socket", 1);
    (void)setenv("NCCL_SOCKET_IFNAME", "lo", 0);
}

// The program itself, anew: what watches GPU programs wants each to begin as one.
static _Noreturn void become_rank(const struct session *s, uint32_t r, int socket) {
    char live[80], ranks[16], scale[16], device[16];
    const char **args = calloc(s->count + 12, sizeof *args);
    uint32_t used = 0;
    if (args == NULL)
        _exit(2);
    snprintf(live, sizeof live, CONF_LIVE_FORMAT, r, s->seats[r].life, (unsigned)socket,
             (unsigned)s->port);
    snprintf(ranks, sizeof ranks, "%u", s->options->ranks);
    snprintf(scale, sizeof scale, "%u", s->options->scale);
    snprintf(device, sizeof device, "%d", s->options->device >= 0 ? s->options->device : (int)r);
    if (s->options->device >= 0)
        share_device(r);
    const char *const options[] = {"conformance", "--world",  "cuda", "--ranks", ranks, "--scale",
                                   scale,         "--device", device, "--live",  live};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        args[used++] = options[i];
    for (uint32_t i = 0; i < s->count; i++)
        args[used++] = s->tests[i]->name;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    execv("/proc/self/exe", (char *const *)args);
    _exit(2);
}

static void start(struct session *s, uint32_t r) {
    struct seat *seat = &s->seats[r];
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        perror("conformance: socketpair");
        exit(2);
    }
    fflush(stdout);
    *seat = (struct seat){.socket = ends[0], .life = seat->life + 1};
    seat->pid = fork();
    if (seat->pid < 0) {
        perror("conformance: fork");
        exit(2);
    }
    if (seat->pid > 0) {
        (void)close(ends[1]);
        return;
    }
    (void)fcntl(ends[1], F_SETFD, 0);
    become_rank(s, r, ends[1]);
}

static void fail(struct session *s, const char *why) {
    struct conf_result *result = &s->results[s->test];
    if (!s->failed)
        *result = (struct conf_result){.ran = true};
    if (!s->failed)
        snprintf(result->why, sizeof result->why, "%s", why);
    s->failed = true;
    if (s->deadline_ns > later(s, GRACE_NS))
        s->deadline_ns = later(s, GRACE_NS);
}

static void bury(struct session *s, uint32_t r) {
    struct seat *seat = &s->seats[r];
    char why[CONF_WHY_BYTES];
    int status = 0;
    (void)waitpid(seat->pid, &status, 0);
    (void)close(seat->socket);
    seat->pid = 0;
    seat->socket = 0;
    seat->message.word = CONF_SILENT;
    if (seat->expected || (s->over && status == 0))
        return;
    if (WIFSIGNALED(status))
        snprintf(why, sizeof why, "rank %u: its process was ended by signal %d", r,
                 WTERMSIG(status));
    else
        snprintf(why, sizeof why, "rank %u: its process exited with %d", r, WEXITSTATUS(status));
    fail(s, why);
}

static void kill_all(struct session *s) {
    for (uint32_t r = 0; r < s->options->ranks; r++) {
        if (s->seats[r].pid == 0)
            continue;
        s->seats[r].expected = true;
        (void)kill(s->seats[r].pid, SIGKILL);
        bury(s, r);
    }
}

// ---- words -------------------------------------------------------------------------------------

static void answer(struct seat *seat, const struct conf_answer *words) {
    seat->message.word = CONF_SILENT;
    (void)!send(seat->socket, words, sizeof *words, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// Whether every rank that is to come has said this word.
static bool all_say(const struct session *s, enum conf_word word) {
    for (uint32_t r = 0; r < s->options->ranks; r++) {
        bool absent = conf_leaves(s->tests[s->test], r) || (s->failed && s->seats[r].pid == 0);
        if (!absent && s->seats[r].message.word != (uint32_t)word)
            return false;
    }
    return true;
}

static void answer_all(struct session *s, enum conf_word word, sc_status status) {
    struct conf_answer words = {.status = (uint32_t)status};
    for (uint32_t r = 0; r < s->options->ranks; r++)
        memcpy(words.all[r], s->seats[r].message.words, sizeof words.all[r]);
    for (uint32_t r = 0; r < s->options->ranks; r++)
        if (s->seats[r].message.word == (uint32_t)word)
            answer(&s->seats[r], &words);
}

static void conclude(struct session *s) {
    if (!s->failed)
        s->results[s->test] = (struct conf_result){.ran = true, .well = true};
    s->over = s->failed || s->test + 1 == s->count;
    answer_all(s, CONF_VERDICT, s->failed ? SC_STATE : SC_OK);
    if (!s->over)
        s->test++;
    s->deadline_ns = s->over ? later(s, GRACE_NS) : deadline_of_test(s);
}

static void strike(struct session *s, uint32_t r, uint64_t mark) {
    const struct conf_strike *what = &s->tests[s->test]->strike;
    struct seat *victim = &s->seats[what->victim];
    if (what->act == CONF_NOTHING || what->at_rank != r || what->mark != mark || victim->life != 1)
        return;
    if (victim->pid == 0 || victim->expected || victim->resume_at_ns != 0)
        return;
    if (what->act == CONF_FREEZE) {
        victim->resume_at_ns = later(s, what->lasts_ns);
        (void)kill(victim->pid, SIGSTOP);
        return;
    }
    victim->expected = true;
    if (what->lasts_ns != 0)
        victim->start_at_ns = later(s, what->lasts_ns);
    (void)kill(victim->pid, SIGKILL);
}

static void hear(struct session *s, uint32_t r) {
    struct seat *seat = &s->seats[r];
    const struct conf_answer words = {.status = SC_OK};
    ssize_t got = recv(seat->socket, &seat->message, sizeof seat->message, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got != sizeof seat->message) {
        bury(s, r);
        return;
    }
    if (seat->message.word == CONF_MARKED) {
        strike(s, r, seat->message.value);
        answer(seat, &words); // a rank that was struck reads it when it can
    }
    seat->message.why[sizeof seat->message.why - 1] = '\0';
    if (seat->message.word == CONF_VERDICT && seat->message.value == 0)
        fail(s, seat->message.why);
}

static void decide(struct session *s) {
    if (all_say(s, CONF_VERDICT))
        conclude(s);
    else if (s->failed)
        answer_all(s, CONF_GATHER, SC_STATE);
    else if (all_say(s, CONF_GATHER))
        answer_all(s, CONF_GATHER, SC_OK);
}

// ---- the session -------------------------------------------------------------------------------

static void run_timers(struct session *s) {
    for (uint32_t r = 0; r < s->options->ranks; r++) {
        struct seat *seat = &s->seats[r];
        if (seat->resume_at_ns != 0 && now_ns() >= seat->resume_at_ns) {
            seat->resume_at_ns = 0;
            (void)kill(seat->pid, SIGCONT);
        }
        if (seat->pid == 0 && seat->start_at_ns != 0 && now_ns() >= seat->start_at_ns)
            start(s, r);
    }
}

static bool anybody_lives(const struct session *s) {
    for (uint32_t r = 0; r < s->options->ranks; r++)
        if (s->seats[r].pid != 0 || s->seats[r].start_at_ns != 0)
            return true;
    return false;
}

static void play(struct session *s) {
    while (anybody_lives(s)) {
        struct pollfd fds[CONF_RANKS_MAX];
        run_timers(s);
        for (uint32_t r = 0; r < s->options->ranks; r++)
            fds[r] = (struct pollfd){.fd = s->seats[r].pid != 0 ? s->seats[r].socket : -1,
                                     .events = POLLIN};
        (void)poll(fds, s->options->ranks, LOOK_MS);
        for (uint32_t r = 0; r < s->options->ranks; r++)
            if (fds[r].revents != 0)
                hear(s, r);
        if (!s->over)
            decide(s);
        if (now_ns() < s->deadline_ns)
            continue;
        fail(s, s->over ? "a rank's process does not exit" : "not done in time");
        kill_all(s);
        return;
    }
}

// Tests that share a handle, or processes, follow each other in one session.
static uint32_t session_length(const struct conf_test *const *tests, uint32_t count) {
    const uint32_t kind = CONF_OWN | CONF_SEAM;
    uint32_t length = 1;
    while (length < count && (tests[0]->flags & CONF_OWN) == 0 &&
           (tests[length]->flags & kind) == (tests[0]->flags & kind))
        length++;
    return length;
}

uint32_t conf_cuda_run(const struct conf_options *options, const struct conf_test *const *tests,
                       uint32_t count, struct conf_result *results) {
    struct session s = {.options = options,
                        .tests = tests,
                        .count = session_length(tests, count),
                        .results = results,
                        .port = free_port()};
    s.deadline_ns = deadline_of_test(&s);
    for (uint32_t r = 0; r < options->ranks; r++)
        start(&s, r);
    play(&s);
    return s.test + 1;
}

// Asked in a process of its own: this one must not touch a GPU before it forks.
uint32_t conf_cuda_count(void) {
    int status = 0;
    pid_t pid = fork();
    if (pid == 0)
        _exit((int)conf_gpu_count());
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return 0;
    return (uint32_t)WEXITSTATUS(status);
}
