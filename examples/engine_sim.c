// SPDX-License-Identifier: AGPL-3.0-only
//
// The command line: which story, how often, with which seed. Ends with 0 when all was right, 1 when
// something was not, 2 when the command line was wrong.
#include "play_sim.h"
#include "script.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int usage(void) {
    fprintf(stderr,
            "engine [--story NAME] [--captured] [--tokens %u..%u] [--seed S] [--runs N] "
            "[--trace] [--real]\n",
            SCRIPT_ANSWERS_MIN, SCRIPT_ANSWERS_MAX);
    for (size_t i = 0; i < stories_count; i++)
        fprintf(stderr, "    %-8s %s\n", stories[i].name, stories[i].about);
    return 2;
}

static bool read_number(const char *text, uint64_t min, uint64_t max, uint64_t *number) {
    char *end;

    *number = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0' && *number >= min && *number <= max;
}

static bool read_settings(int argc, char **argv, struct settings *settings, uint64_t *runs) {
    static const struct option options[] = {
        {"story", required_argument, NULL, 's'},  {"captured", no_argument, NULL, 'c'},
        {"tokens", required_argument, NULL, 't'}, {"seed", required_argument, NULL, 'S'},
        {"runs", required_argument, NULL, 'r'},   {"trace", no_argument, NULL, 'T'},
        {"real", no_argument, NULL, 'R'},         {NULL, 0, NULL, 0},
    };
    uint64_t number = settings->answers;
    bool right = true;
    int option;

    while (right && (option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 's': right = (settings->story = story_named(optarg)) != NULL; break;
        case 'c': settings->captured = true; break;
        case 't':
            right = read_number(optarg, SCRIPT_ANSWERS_MIN, SCRIPT_ANSWERS_MAX, &number);
            settings->answers = (uint32_t)number;
            break;
        case 'S': right = read_number(optarg, 0, UINT64_MAX / 2, &settings->seed); break;
        case 'r': right = read_number(optarg, 1, 1000000, runs); break;
        case 'T': settings->trace = true; break;
        case 'R': settings->real = true; break;
        default: right = false; break;
        }
    }
    return right && optind == argc;
}

int main(int argc, char **argv) {
    struct settings settings = {.story = &stories[0], .answers = 24, .seed = 1};
    uint32_t recoveries = 0;
    uint64_t runs = 1, wrong = 0;

    if (!read_settings(argc, argv, &settings, &runs))
        return usage();
    for (uint64_t i = 0; i < runs; i++, settings.seed++)
        wrong += !play_story(&settings, runs == 1, &recoveries);
    if (runs > 1)
        printf("%s, %s: %" PRIu64 " runs, %u recoveries, %" PRIu64 " runs wrong\n",
               settings.story->name, settings.captured ? "captured" : "eager", runs, recoveries,
               wrong);
    return wrong == 0 ? 0 : 1;
}
