#!/usr/bin/env python3
# SPDX-License-Identifier: AGPL-3.0-only
"""Plays the example engine's stories, and holds docs/GUIDE.md to its sources.

    tests/engine.py [PROGRAM] [--few]    default: build/release/examples/engine

Every story must end with all tokens right, decoded layer by layer and by graph, with one seed and
with many (--few: with a tenth of them); the same run must give the same trace, and under the real
clock the same tokens. What the guide shows as C must stand in examples/.
"""

import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
STORIES = ['clean', 'death', 'cut', 'double', 'both', 'leader', 'idle', 'restart', 'storm']
MANY = {'cut': 100, 'death': 47, 'leader': 47, 'double': 60, 'restart': 20, 'storm': 300}
MODES = [[], ['--captured']]
WRONG_LINES = [['--story', 'none'], ['--tokens', '1'], ['--tokens', '401'], ['--seed', '-1'],
               ['--runs', '0'], ['--runs', '1x'], ['--unheard-of'], ['clean']]

failures = []


def check(holds, what, output=''):
    if not holds:
        failures.append(what)
        print('not so: %s\n%s' % (what, output))


def play(program, *arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def trace_hash(output):
    found = re.search(r'trace ([0-9a-f]{16})', output)
    return found[1] if found else None


def check_stories(program):
    for story in STORIES:
        for mode in MODES:
            command = ['--story', story] + mode
            code, output = play(program, *command)
            check(code == 0 and 'all 24 right on both ranks' in output, ' '.join(command), output)
            check(trace_hash(output) == trace_hash(play(program, *command)[1]) is not None,
                  ' '.join(command) + ': the same run gives the same trace', output)
    one, other = (trace_hash(play(program, '--seed', seed)[1]) for seed in ('1', '2'))
    check(one != other, 'another seed gives another trace')


def check_many_seeds(program, share):
    for story, runs in MANY.items():
        for mode in MODES:
            command = ['--story', story, '--runs', str(runs // share)] + mode
            code, output = play(program, *command)
            check(code == 0 and output.endswith(', 0 runs wrong\n'), ' '.join(command), output)


def check_real_clock(program):
    code, output = play(program, '--story', 'death', '--real')
    check(code == 0 and 'all 24 right on both ranks' in output, '--story death --real', output)


def check_command_line(program):
    for arguments in WRONG_LINES:
        code, output = play(program, *arguments)
        listed = all(re.search(r'^    %s ' % story, output, re.MULTILINE) for story in STORIES)
        check(code == 2 and listed, '%s is refused, and the stories are listed' % arguments, output)
    code, output = play(program, '--story', 'death', '--trace', '--tokens', '16', '--seed', '3')
    check(code == 0 and re.search(r'fault .*rank 1 kill', output), '--trace tells events', output)


def words(text):
    return ' '.join(text.split())


def check_guide():
    sources = [words(path.read_text(encoding='utf-8')) for path in ROOT.glob('examples/*.[ch]')]
    guide = (ROOT / 'docs/GUIDE.md').read_text(encoding='utf-8')
    excerpts = re.findall(r'^```c\n(.*?)^```$', guide, re.MULTILINE | re.DOTALL)
    check(len(excerpts) > 5, 'the guide shows the engine')
    for excerpt in excerpts:
        check(any(words(excerpt) in source for source in sources),
              'what the guide shows stands in examples/', excerpt)
    for name in re.findall(r'\bexamples/\w+\.[ch]\b', guide):
        check((ROOT / name).exists(), 'the guide names %s, which there is' % name)


def main():
    options = argparse.ArgumentParser(description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument('program', nargs='?', default='build/release/examples/engine')
    options.add_argument('--few', action='store_true')
    chosen = options.parse_args()

    program = str(ROOT / chosen.program)
    check_guide()
    check_command_line(program)
    check_stories(program)
    check_many_seeds(program, 10 if chosen.few else 1)
    check_real_clock(program)
    print('engine: %d wrong' % len(failures))
    sys.exit(1 if failures else 0)


if __name__ == '__main__':
    main()
