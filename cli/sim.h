// SPDX-License-Identifier: AGPL-3.0-only
//
// spark-comm sim: simulated runs, with no faults, with those of a seed, or with those of a file.
#ifndef SC_CLI_SIM_H
#define SC_CLI_SIM_H

// Runs "spark-comm sim"; argv[0] is that name. Tells the runs on stdout. Returns the exit status: 0
// only if no run had a violation; 1 if one had, or when something cannot be written; 2 for wrong
// input, after one sentence on stderr.
int sc_cli_sim(int argc, char **argv);

#endif
