// SPDX-License-Identifier: AGPL-3.0-only
//
// spark-comm: finds the command and hands it the rest of the line.
#include "cli/bench.h"
#include "cli/demo.h"
#include "cli/options.h"
#include "cli/plan.h"
#include "cli/report.h"
#include "cli/run.h"
#include "cli/sim.h"
#include "core/text.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION "spark-comm " SC_VERSION_TEXT

const char *argp_program_version = VERSION; // argp answers --version of every command with it

static const struct command {
    const char *name;
    char *full_name; // what its own messages begin with
    int (*run)(int argc, char **argv);
    const char *what;
} commands[] = {
    {"bench", (char[]){"spark-comm bench"}, sc_cli_bench,
     "measure all-reduces, or with `recover' recoveries"},
    {"demo", (char[]){"spark-comm demo"}, sc_cli_demo,
     "watch two simulated ranks lose one of them and decode on"},
    {"plan", (char[]){"spark-comm plan"}, sc_cli_plan,
     "see what a model asks of its ranks: capacity and traffic"},
    {"run", (char[]){"spark-comm run"}, sc_cli_run,
     "run one rank on a GPU; see it go on after a loss"},
    {"sim", (char[]){"spark-comm sim"}, sc_cli_sim,
     "play simulated runs, with faults drawn from a seed or from a file"},
    // Roles in which bench starts this program; they are not listed.
    {"bench-rank", (char[]){"spark-comm bench-rank"}, sc_bench_rank, NULL},
    {"recover-rank", (char[]){"spark-comm recover-rank"}, sc_recover_rank, NULL},
};
#define COMMANDS (sizeof commands / sizeof commands[0])

static int print_help(void) {
    puts("Usage: spark-comm COMMAND [OPTION...]\n\nCommands:");
    for (size_t i = 0; i < COMMANDS; i++)
        if (commands[i].what != NULL)
            printf("  %-24s %s\n", commands[i].name, commands[i].what);
    puts("\nOptions:\n  --help                   print this help\n"
         "  --version                print the version\n\n"
         "spark-comm COMMAND --help lists what a command takes.");
    return EXIT_SUCCESS;
}

static int refuse(const char *what, const char *word) {
    char shown[64];

    sc_text_clean(word, shown, sizeof shown);
    fprintf(stderr, "spark-comm: %s%s: expected bench, demo, plan, run or sim, or --help\n", what,
            shown);
    return SC_EXIT_USAGE;
}

int main(int argc, char **argv) {
    if (argc < 2)
        return refuse("the command is missing", "");
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strcmp(argv[1], commands[i].name) == 0) {
            argv[1] = commands[i].full_name;
            return commands[i].run(argc - 1, argv + 1);
        }
    }
    if (strcmp(argv[1], "--help") == 0)
        return sc_report_end(print_help());
    if (strcmp(argv[1], "--version") == 0) {
        puts(VERSION);
        return sc_report_end(EXIT_SUCCESS);
    }
    return refuse(argv[1][0] == '-' ? "unknown option " : "unknown command ", argv[1]);
}
