#!/usr/bin/env python3
# SPDX-License-Identifier: AGPL-3.0-only
"""Counts the instructions of one op through core and pump, and fails above the budget.

    tests/instructions.py [PROGRAM]     default: build/release/tests/proofs/submit_complete

Callgrind counts instructions, not time: the same on every machine, however busy. The device
completes at once and hal_check is off, so that what is counted is ours; the device's own
instructions and the simulated network's are in it all the same.
"""

import re
import subprocess
import sys
import tempfile

OPS = 1000
BUDGETS = [
    ('measured_pair', 1500, 'submit + poll to completion'),
    ('measured_run', 2000, 'submit + a whole run of the pump'),
]


def instructions(program, function):
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(
            ['valgrind', '--tool=callgrind', '--toggle-collect=' + function,
             '--callgrind-out-file=' + folder + '/out', program],
            capture_output=True, text=True, check=True)
    return int(re.search(r'Collected : (\d+)', run.stderr).group(1)) / OPS


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else 'build/release/tests/proofs/submit_complete'
    failed = 0
    for function, budget, what in BUDGETS:
        count = instructions(program, function)
        verdict = 'ok' if 0 < count < budget else 'TOO MANY'
        failed += verdict != 'ok'
        print('%-34s %7.1f instructions an op, budget %d: %s' % (what, count, budget, verdict))
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
