// SPDX-License-Identifier: AGPL-3.0-only
//
// spark-comm plan: what a model and a batch ask of the library, before anything is started.
#ifndef SC_CLI_PLAN_H
#define SC_CLI_PLAN_H

// Runs "spark-comm plan"; argv[0] is that name. Prints the plan on stdout, or one sentence on
// stderr. Returns the exit status: 0, 1 when stdout cannot be written, 2 for wrong input (some
// of which argp answers by leaving the program with status 2 itself).
int sc_cli_plan(int argc, char **argv);

#endif
