// SPDX-License-Identifier: AGPL-3.0-only
//
// spark-comm bench recover: reads what is to be done to whom.
#ifndef SC_CLI_BENCH_RECOVER_H
#define SC_CLI_BENCH_RECOVER_H

// Runs it; argv[0] is "recover". Returns what sc_cli_bench() does.
int sc_cli_bench_recover(int argc, char **argv);

#endif
