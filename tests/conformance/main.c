// SPDX-License-Identifier: AGPL-3.0-only
//
// One set of tests of the public calls and of the seam's contract, for every world there is:
//
//     conformance --world sim|cuda [--clock virtual|real] [--ranks N] [--device D] [--only TEXT,...]
//                 [--scale N] [--long]
//
// A line a test, then a summary. Exits with 0 when all is well, 1 when a test failed, 2 for a wrong
// command line, 77 when this machine cannot run that world.
#include "tests/conformance/conf.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TESTS_MAX 256u
#define SKIPPED 77

static const struct conf_test *const lists[] = {
    conf_words, conf_ops,     conf_values,   conf_overlap, conf_groups,   conf_sync_tests,
    conf_hosts, conf_memory,  conf_captures, conf_streams, conf_recovery, conf_contexts,
    conf_loss,  conf_closing, conf_quiet,    conf_seam,    conf_seam_ops,
};

struct chosen {
    bool cuda, list;
    bool long_too;    // also tests that take minutes
    const char *only; // texts with commas between them
    const char *live; // in the process of a rank; see ranks.h
    struct conf_options options;
};

static const char help[] =
    "usage: conformance --world sim|cuda [options]\n"
    "  --clock virtual|real  of the simulated world; default virtual\n"
    "  --ranks N             1 to 8; default 2\n"
    "  --device D            real GPUs: all ranks on this one, and NCCL on sockets\n"
    "  --only TEXT[,TEXT]    the tests whose names hold one of these\n"
    "  --scale N             everything may take N times as long; default 1\n"
    "  --long                also the tests that take minutes by a real clock\n"
    "  --list                names the tests\n";

static _Noreturn void refuse(const char *what, const char *value) {
    fprintf(stderr, "conformance: %s %s\n%s", what, value, help);
    exit(2);
}

static uint32_t number(const char *text, uint32_t least, uint32_t most) {
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*text == '\0' || *end != '\0' || value < least || value > most)
        refuse("not a number in range:", text);
    return (uint32_t)value;
}

static struct chosen read_options(int argc, char **argv) {
    static const struct option known[] = {
        {"world", required_argument, NULL, 'w'},
        {"clock", required_argument, NULL, 'c'},
        {"ranks", required_argument, NULL, 'r'},
        {"device", required_argument, NULL, 'd'},
        {"only", required_argument, NULL, 'o'},
        {"scale", required_argument, NULL, 's'},
        {"list", no_argument, NULL, 'l'},
        {"help", no_argument, NULL, 'h'},
        {"live", required_argument, NULL, 'L'},
        {"long", no_argument, NULL, 'm'},
        {NULL, 0, NULL, 0},
    };
    struct chosen chosen = {.options = {.ranks = 2, .scale = 1, .device = -1}};
    const char *world = "";
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (option) {
        case 'w': world = optarg; break;
        case 'c': chosen.options.real_clock = strcmp(optarg, "real") == 0; break;
        case 'r': chosen.options.ranks = number(optarg, 1, CONF_RANKS_MAX); break;
        case 'd': chosen.options.device = (int32_t)number(optarg, 0, 1000); break;
        case 's': chosen.options.scale = number(optarg, 1, 1000); break;
        case 'o': chosen.only = optarg; break;
        case 'l': chosen.list = true; break;
        case 'm': chosen.long_too = true; break;
        case 'L': chosen.live = optarg; break;
        case 'h': printf("%s", help); exit(0);
        default: exit(2);
        }
    }
    chosen.cuda = strcmp(world, "cuda") == 0;
    if (!chosen.list && !chosen.cuda && strcmp(world, "sim") != 0)
        refuse("no such world:", world);
    return chosen;
}

// Why the test cannot be run as chosen, or NULL.
static const char *obstacle(const struct conf_test *test, const struct chosen *chosen) {
    uint32_t ranks = chosen->options.ranks;
    if (ranks < test->ranks_min)
        return "it needs more ranks";
    if (test->ranks_max != 0 && ranks > test->ranks_max)
        return "it is for fewer ranks";
    bool real_clock = chosen->cuda || chosen->options.real_clock;
    if ((test->flags & CONF_LONG) != 0 && real_clock && !chosen->long_too)
        return "it is a long one, for --long";
    if (chosen->cuda)
        return NULL;
    if ((test->flags & CONF_CUDA) != 0)
        return "it is about real GPUs";
    bool threads = chosen->options.real_clock && (test->flags & CONF_SEAM) == 0;
    return (test->flags & CONF_THREADS) != 0 && !threads ? "here a rank has one thread" : NULL;
}

static uint32_t run_some(const struct chosen *chosen, const struct conf_test *const *tests,
                         uint32_t count, struct conf_result *results) {
#if SC_CHOOSE_CUDA
    if (chosen->cuda)
        return conf_cuda_run(&chosen->options, tests, count, results);
#endif
    if ((tests[0]->flags & CONF_SEAM) != 0)
        return conf_seam_run(&chosen->options, tests, count, results);
    return conf_sim_run(&chosen->options, tests, count, results);
}

// Prints a line for each test, and says how many failed.
static uint32_t run_all(const struct chosen *chosen, const struct conf_test *const *tests,
                        uint32_t count) {
    static struct conf_result results[TESTS_MAX];
    uint32_t failed = 0;
    for (uint32_t done = 0; done < count;) {
        uint32_t ran = run_some(chosen, tests + done, count - done, results + done);
        for (uint32_t end = done + ran; done < end; done++) {
            failed += !results[done].well;
            if (results[done].well)
                printf("pass  %s\n", tests[done]->name);
            else
                printf("FAIL  %s: %s\n", tests[done]->name, results[done].why);
        }
        fflush(stdout);
    }
    return failed;
}

static void skip_unless_it_can_run(const struct chosen *chosen) {
    if (!chosen->cuda)
        return;
#if SC_CHOOSE_CUDA
    uint32_t gpus = conf_cuda_count();
    uint32_t needed =
        chosen->options.device >= 0 ? (uint32_t)chosen->options.device + 1 : chosen->options.ranks;
    if (gpus >= needed)
        return;
    if (gpus == 0)
        printf("skipped: no GPU\n");
    else
        printf("skipped: %u GPUs where %u are needed\n", gpus, needed);
#else
    printf("skipped: this build has no GPU world\n");
#endif
    exit(SKIPPED);
}

// ---- which tests -------------------------------------------------------------------------------

static bool is_wanted(const struct conf_test *test, const char *only) {
    while (only != NULL && *only != '\0') {
        char text[80];
        size_t length = strcspn(only, ",");
        snprintf(text, sizeof text, "%.*s", (int)length, only);
        if (strstr(test->name, text) != NULL)
            return true;
        only += length + (only[length] == ',');
    }
    return only == NULL;
}

static void name_all(void) {
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        for (const struct conf_test *test = lists[i]; test->name != NULL; test++)
            printf("%s\n", test->name);
}

// Those to run; the others are told, and counted.
static uint32_t choose(const struct chosen *chosen, const struct conf_test **tests,
                       uint32_t *skipped) {
    uint32_t count = 0;
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        for (const struct conf_test *test = lists[i]; test->name != NULL; test++) {
            if (!is_wanted(test, chosen->only))
                continue;
            const char *why = obstacle(test, chosen);
            if (why != NULL) {
                printf("skip  %s: %s\n", test->name, why);
                ++*skipped;
            } else if (count < TESTS_MAX) {
                tests[count++] = test;
            }
        }
    }
    return count;
}

#if SC_CHOOSE_CUDA
static const struct conf_test *named(const char *name) {
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        for (const struct conf_test *test = lists[i]; test->name != NULL; test++)
            if (strcmp(test->name, name) == 0)
                return test;
    refuse("no such test:", name);
}

static _Noreturn void live(const struct chosen *chosen, char **names, int count) {
    static const struct conf_test *tests[TESTS_MAX];
    uint32_t found = 0;
    while (found < (uint32_t)count && found < TESTS_MAX) {
        tests[found] = named(names[found]);
        found++;
    }
    conf_cuda_live(&chosen->options, chosen->live, tests, found);
}
#endif

int main(int argc, char **argv) {
    static const struct conf_test *tests[TESTS_MAX];
    struct chosen chosen = read_options(argc, argv);
    uint32_t skipped = 0;
    if (chosen.list) {
        name_all();
        return 0;
    }
#if SC_CHOOSE_CUDA
    if (chosen.live != NULL)
        live(&chosen, argv + optind, argc - optind);
#endif
    skip_unless_it_can_run(&chosen);
    uint32_t count = choose(&chosen, tests, &skipped);
    if (count == 0)
        refuse("there is no such test to run:", chosen.only != NULL ? chosen.only : "");
    uint32_t failed = run_all(&chosen, tests, count);
    printf("conformance, world %s, %u ranks: %u passed, %u failed, %u skipped\n",
           chosen.cuda                 ? "cuda"
           : chosen.options.real_clock ? "sim, real clock"
                                       : "sim, virtual clock",
           chosen.options.ranks, count - failed, failed, skipped);
    return failed != 0;
}
