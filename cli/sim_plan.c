// SPDX-License-Identifier: AGPL-3.0-only
//
// Plans of "spark-comm sim": a quiet one, one of the swarm, or one that a file describes.
#include "cli/sim_plan.h"

#include "core/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SWARM_SECONDS 60u
#define SECOND UINT64_C(1000000000)
#define PLAN_BYTES_MAX (1u << 20)

bool sc_sim_is_swarm(const struct sc_sim_request *request) {
    return strcmp(request->faults, "swarm") == 0;
}

static bool is_file(const struct sc_sim_request *request) {
    return !sc_sim_is_swarm(request) && strcmp(request->faults, "none") != 0;
}
static bool refuse_file(const char *path, const char *why) {
    char shown[128];

    sc_text_clean(path, shown, sizeof shown);
    fprintf(stderr, "spark-comm: --faults %s: %s; expected none, swarm or a file with a plan\n",
            *shown != '\0' ? shown : "\"\"", why);
    return false;
}

// Reads the whole file into text, which has room for one byte more than the most.
static bool read_file(const char *path, char *text) {
    // A pipe that nobody writes to must not hold the program up before it is refused.
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat info;
    size_t have = 0;
    ssize_t got = 1;

    if (fd < 0)
        return refuse_file(path, strerror(errno));
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        return refuse_file(path, S_ISDIR(info.st_mode) ? "is a directory" : "is no regular file");
    }
    while (have <= PLAN_BYTES_MAX && got != 0) {
        got = read(fd, text + have, PLAN_BYTES_MAX + 1 - have);
        if (got < 0 && errno != EINTR)
            break;
        have += got > 0 ? (size_t)got : 0;
    }
    int error = errno;
    close(fd);
    if (got < 0)
        return refuse_file(path, strerror(error));
    if (have > PLAN_BYTES_MAX)
        return refuse_file(path, "has more than 1 MiB");
    text[have] = '\0';
    return strlen(text) == have || refuse_file(path, "holds a zero byte");
}

static bool parse_file(const struct sc_sim_request *request, struct sc_plan *plan) {
    char *text = malloc(PLAN_BYTES_MAX + 2);
    char why[512], name[128];
    bool ok = text != NULL && read_file(request->faults, text);

    if (text == NULL)
        fprintf(stderr, "spark-comm: --faults %s: no memory to read it\n", request->faults);
    sc_text_clean(request->faults, name, sizeof name);
    if (ok && sc_plan_parse(plan, name, text, why, sizeof why) != SC_OK) {
        fprintf(stderr, "spark-comm: %s\n", why);
        ok = false;
    }
    free(text);
    return ok;
}

// What the file says and what the options say must not differ, but for the seed.
static bool check_options(const struct sc_sim_request *request, const struct sc_plan *plan) {
    char name[128];

    sc_text_clean(request->faults, name, sizeof name);
    if (request->ranks != 0 && request->ranks != plan->core.world) {
        fprintf(stderr, "spark-comm: --ranks %" PRIu64 ": %s says ranks %" PRIu32 "\n",
                request->ranks, name, plan->core.world);
        return false;
    }
    if (request->seconds != 0 && request->seconds * SECOND != plan->duration_ns) {
        fprintf(stderr, "spark-comm: --seconds %" PRIu64 ": %s says seconds %" PRIu64 "\n",
                request->seconds, name, plan->duration_ns / SECOND);
        return false;
    }
    return true;
}

bool sc_sim_plan_make(struct sc_sim_request *request, struct sc_plan *plan) {
    if (sc_sim_is_swarm(request)) {
        if (request->seconds == 0)
            request->seconds = SWARM_SECONDS;
        sc_plan_swarm(plan, request->seed, (uint32_t)request->ranks, request->seconds * SECOND);
        return true;
    }
    sc_plan_init(plan, request->seed, request->ranks != 0 ? (uint32_t)request->ranks : 2);
    if (request->seconds != 0) {
        plan->duration_ns = request->seconds * SECOND;
        plan->quiet_ns = plan->duration_ns / 4 * 3;
    }
    if (!is_file(request))
        return true;
    if (!parse_file(request, plan) || !check_options(request, plan))
        return false;
    if (request->seed_given)
        plan->sim.seed = request->seed;
    request->seed = plan->sim.seed;
    return true;
}

const char *sc_sim_replay(const struct sc_sim_request *request, uint64_t seed, char *out,
                          size_t bytes) {
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
    const char *quote = request->faults[strspn(request->faults, plain)] == '\0' ? "" : "'";
    char ranks[32] = "", length[32] = "";

    if (request->ranks != 0)
        snprintf(ranks, sizeof ranks, " --ranks %" PRIu64, request->ranks);
    if (request->seconds != 0)
        snprintf(length, sizeof length, " --seconds %" PRIu64, request->seconds);
    snprintf(out, bytes, "spark-comm sim --seed %" PRIu64 "%s --faults %s%s%s%s", seed, ranks,
             quote, request->faults, quote, length);
    return out;
}
