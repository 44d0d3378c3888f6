#!/usr/bin/env python3
# SPDX-License-Identifier: AGPL-3.0-only
"""The same seed gives the same trace: twice, with gcc and clang, debug and release.

    tests/determinism.py [COMMAND...]    default: the four that ./dev test builds
"""

import json
import subprocess
import sys

COMMANDS = ['build/%s/spark-comm' % name
            for name in ('release', 'debug', 'release-clang', 'debug-clang')]
RUNS = [['--seed', str(seed), '--faults', faults, '--seconds', '20']
        for faults in ('none', 'swarm') for seed in (1, 7, 4242)]
RUNS += [['--seed', '100', '--faults', 'swarm', '--runs', '60', '--seconds', '20']]


def trace_hash(command, arguments):
    run = subprocess.run([command, 'sim', '--json'] + arguments, capture_output=True, text=True,
                         check=True)
    return json.loads(run.stdout)['trace']


def main():
    commands = sys.argv[1:] or COMMANDS
    failed = 0
    for arguments in RUNS:
        hashes = {}
        for command in commands + commands[:1]:
            hashes.setdefault(trace_hash(command, arguments), []).append(command)
        same = len(hashes) == 1
        failed += not same
        print('%-60s %s' % (' '.join(arguments), ', '.join(hashes) if same else hashes))
    print('%d passed, %d failed' % (len(RUNS) - failed, failed))
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
