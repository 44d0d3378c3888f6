// SPDX-License-Identifier: AGPL-3.0-only
//
// spark-comm demo: two simulated ranks decode with a model's shape; one is killed and comes back.
#ifndef SC_CLI_DEMO_H
#define SC_CLI_DEMO_H

// Runs "spark-comm demo"; argv[0] is that name. Tells the run on stdout. Returns the exit status: 0
// only if every result was exact and the recovery happened; 1 if not, or when stdout cannot be
// written; 2 for wrong input, after one sentence on stderr.
int sc_cli_demo(int argc, char **argv);

#endif
