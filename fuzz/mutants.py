#!/usr/bin/env python3
# SPDX-License-Identifier: AGPL-3.0-only
"""Plants ten bugs, one a build, and wants each to be caught by a test or by the swarm.

    fuzz/mutants.py             all ten, one line each; status 0 only if all are killed
    fuzz/mutants.py --only N    one of them

A bug is code under SC_MUTANT(N). It is killed by the first test program that fails, or else by a
failing swarm run. The same tests must pass without it first: where they do not, a kill says
nothing. A mutant that does not compile is an error and no kill.
"""

import argparse
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / 'tests'))
sys.dont_write_bytecode = True
import run as tests  # noqa: E402

BUGS = {
    1: 'stale completion accepted',
    2: 'double abort',
    3: 'lost ABORT fan-out',
    4: 'epoch reused after rank 0 restarts',
    5: 'capacity checked after launch',
    6: 'group end skipped',
    7: 'async error ignored',
    8: 'a HELLO surviving its OFFER',
    9: 'registration lost',
    10: 'op accepted in a newer epoch than its caller named',
}
SWARM_RUNS = 5000
TEST_TIMEOUT_S = 120
SWARM_TIMEOUT_S = 600


def build(mutant):
    command = ['scons', '-Q', '-s', '-j%d' % os.cpu_count(), 'mutant=%d' % mutant, '.']
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False)
    if done.returncode != 0:
        print(done.stdout.decode(errors='replace'), end='')
        sys.exit('mutants: mutant %d does not build; that is no kill' % mutant)


def replay_line(output):
    """The line by which the simulator tells how to see its failure again."""
    lines = output.decode(errors='replace').splitlines()
    told = [line.strip() for line in lines if 'replay' in line.lower()]
    return told[-1] if told else (lines or ['(it printed nothing)'])[-1].strip()


def killer(variant):
    """What fails in this build, None if nothing does."""
    programs = tests.test_programs(variant)
    if not programs:
        sys.exit('mutants: there are no test programs')
    for program in programs:
        wrong, _ = tests.run([program], TEST_TIMEOUT_S)
        if wrong:
            return '%s (%s)' % (program.removeprefix('build/%s/' % variant), wrong)
    wrong, output = tests.run(tests.swarm(SWARM_RUNS, variant), SWARM_TIMEOUT_S)
    if wrong:
        return 'swarm: %s (%s)' % (replay_line(output), wrong)
    return None


def main():
    options = argparse.ArgumentParser(description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument('--only', type=int, choices=list(BUGS), metavar='N')
    only = options.parse_args().only
    chosen = [only] if only else list(BUGS)

    build(0)
    broken = killer('release')
    if broken:
        sys.exit('mutants: without any bug this fails already: ' + broken)

    killed = 0
    for mutant in chosen:
        build(mutant)
        by = killer('mutant-%d' % mutant)
        killed += by is not None
        print('mutant %-2d  %s  (%s)' % (mutant, 'killed by ' + by if by else 'SURVIVED',
                                         BUGS[mutant]), flush=True)
    print('killed %d/%d' % (killed, len(chosen)))
    sys.exit(0 if killed == len(chosen) else 1)


if __name__ == '__main__':
    main()
