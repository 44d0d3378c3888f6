#!/usr/bin/env python3
# SPDX-License-Identifier: AGPL-3.0-only
"""Checks the rules that hold the house up: who may include whom, and that files stay small.

    tests/rules.py              checks this tree, and the release libraries where they are built;
                                prints file:line: what is wrong
    tests/rules.py --self-test  breaks each rule once in a copy and wants to see it caught
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUFFIXES = {'.c', '.h', '.cu', '.cuh'}
SPDX = '// SPDX-License-Identifier: AGPL-3.0-only'
FILE_LINES_MAX = 450
FUNCTION_LINES_MAX = 80
WHOLE = {'core/spark_comm.h'}  # the contract is one page, however long

# Only the pump and the api see the seam, threads and the heap; the rest of core decides.
CORE_DOOR = re.compile(r'core/(pump|api)[^/]*$')
CORE_HEADERS = {'stdint.h', 'stddef.h', 'stdbool.h', 'string.h', 'limits.h', 'inttypes.h',
                'stdio.h', 'stdarg.h', 'stdalign.h'}
CORE_DOOR_HEADERS = CORE_HEADERS | {'errno.h', 'stdlib.h', 'pthread.h', 'stdatomic.h'}
SEALER = ('core/seal.c', 'sodium.h')  # nobody else knows by what links are sealed
CORE_FOREIGN = ('hal_sim/', 'hal_cuda/', 'cli/', 'tests/', 'fuzz/')
# Core takes snprintf from stdio.h and nothing that reads or writes.
CORE_PRINTS = re.compile(
    r'\b((v?f?printf|f?puts|putchar|perror|fopen|fread|fwrite|f?scanf)\s*\(|(stdout|stderr)\b)')

WORLDS = {'hal_sim': 'hal_sim/sc_sim.h', 'hal_cuda': 'hal_cuda/sc_cuda.h'}
# The examples are what an engine's author would write: the public headers, and files beside them.
EXAMPLE_SIM = re.compile(r'examples/[^/]*_sim\.[ch]$')  # these alone know the test double
RAW = 'hal_cuda/bench/sc_raw.h'  # what the command measures the library against
PRETEND = 'tests/pretend/'  # CUDA and NCCL as programs know them: by their names, from a library
PRETEND_KNOWS = (PRETEND, 'kernels/bf16.h')
INSIDERS = ('tests/', 'cli/', 'fuzz/')  # these may open the simulator and its lab

INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')


def source_files(root):
    for path in sorted(root.rglob('*')):
        name = path.relative_to(root).as_posix()
        if path.suffix in SUFFIXES and not name.startswith(('build/', '.')):
            yield name, path


def resolved(root, name, quoted):
    """An include as a path from the root, whether it was written from there or from beside."""
    beside = (root / name).parent / quoted
    if not (root / quoted).exists() and beside.exists():
        return beside.resolve().relative_to(root.resolve()).as_posix()
    return quoted


def core_objection(name, system, header):
    door = CORE_DOOR.match(name) is not None
    if (name, header) == SEALER:
        return None
    if system:
        if header not in CORE_DOOR_HEADERS:
            return 'core includes no OS, CUDA or NCCL header'
        if not door and header not in CORE_HEADERS:
            return 'only core/pump* and core/api* may include it'
    elif header.startswith(CORE_FOREIGN):
        return 'core knows nothing of the world it runs in'
    elif header == 'hal/hal.h' and not door:
        return 'only core/pump* and core/api* see the seam'
    return None


def world_objection(name, header):
    world = header.split('/')[0]
    if world not in WORLDS or name.startswith(world + '/'):
        return None
    if name.split('/')[0] in WORLDS:
        return 'the two worlds never include each other'
    if header.startswith('hal_sim/') and name.startswith(INSIDERS):
        return None
    if header == RAW and name.startswith('cli/'):
        return None
    if header != WORLDS[world]:
        return 'of this world, others see only ' + WORLDS[world]
    return None


def example_objection(root, name, system, header):
    if system and header == 'spark_comm_sim.h' and not EXAMPLE_SIM.match(name):
        return 'only *_sim files know the test double'
    if system and header not in ('spark_comm.h', 'spark_comm_sim.h') \
            and any((root / folder / header).exists() for folder in ('', 'core', 'hal_sim')):
        return 'examples see the public headers only'
    if not system and not header.startswith('examples/'):
        return 'examples see the public headers, as <...>, and files beside them'
    return None


def pretend_objection(root, name, system, header):
    if not name.startswith(PRETEND):
        return 'what is pretended is nobody\'s to include' if header.startswith(PRETEND) else None
    if header.startswith(PRETEND_KNOWS) or system and not (root / 'core' / header).exists():
        return None
    return 'what is pretended knows CUDA, NCCL and kernels/bf16.h alone'


def include_violations(root, name, lines):
    for number, line in enumerate(lines, 1):
        found = INCLUDE.match(line)
        if not found:
            if name.startswith('core/') and CORE_PRINTS.search(line.split('//')[0]):
                yield number, 'core neither prints nor reads files: ' + line.strip()
            continue
        system, header = found[1] == '<', found[2]
        if not system:
            header = resolved(root, name, header)
        objection = core_objection(name, system, header) if name.startswith('core/') else None
        if name.startswith('examples/'):
            objection = example_objection(root, name, system, header)
        objection = objection or (None if system else world_objection(name, header))
        objection = objection or pretend_objection(root, name, system, header)
        if header.startswith('sodium') and (name, header) != SEALER:
            objection = 'only %s may include libsodium, as %s' % SEALER
        if objection:
            yield number, '#include %s: %s' % (found[2], objection)


def size_violations(name, lines):
    if len(lines) > FILE_LINES_MAX and name not in WHOLE:
        yield len(lines), 'file has more than %d lines' % FILE_LINES_MAX
    start = 1
    for number, line in enumerate(lines, 1):
        if line == '}':
            if number - start + 1 > FUNCTION_LINES_MAX:
                yield start, 'function has more than %d lines' % FUNCTION_LINES_MAX
        elif re.match(r'[A-Za-z_]', line) and not re.match(r'\w+:$', line):
            start = number  # a declaration begins here; labels stand in column 0 too


def violations(root):
    """Every breach in the tree, as 'file:line: what'."""
    found = []
    for name, path in source_files(root):
        lines = path.read_text(encoding='utf-8').splitlines()
        breaches = list(include_violations(root, name, lines)) + list(size_violations(name, lines))
        if not lines or lines[0] != SPDX:
            breaches.append((1, 'the first line must be ' + SPDX))
        found += ['%s:%d: %s' % (name, number, what) for number, what in breaches]
    return found


# What breaks a rule: file to plant, its text below the SPDX line, the line to be named, and a
# word of the complaint. A complaint of None is text that must be accepted.
PLANTED = [
    ('core/planted.c', '#include "hal/hal.h"', 2, 'see the seam'),
    ('core/pump_planted.c', '#include "hal/hal.h"', 2, None),
    ('core/api_planted.c', '#include <pthread.h>', 2, None),
    ('core/planted.c', '#include <pthread.h>', 2, 'only core/pump*'),
    ('core/planted.c', '#include <stdlib.h>', 2, 'only core/pump*'),
    ('core/planted.c', '\n#  include <sys/socket.h>', 3, 'no OS, CUDA or NCCL'),
    ('core/pump_planted.c', '#include <cuda.h>', 2, 'no OS, CUDA or NCCL'),
    ('core/planted.h', '#include <nccl.h>', 2, 'no OS, CUDA or NCCL'),
    ('core/planted.c', '#include <sodium.h>', 2, 'only core/seal.c'),
    ('hal/planted.c', '#include <sodium.h>', 2, 'only core/seal.c'),
    ('tests/unit/planted.c', '#include <sodium/utils.h>', 2, 'only core/seal.c'),
    ('core/seal_planted.h', '#include <sodium.h>', 2, 'only core/seal.c'),
    ('core/seal.c', '#include <sodium.h>', 2, None),
    ('core/seal.c', '#include <sodium/utils.h>', 2, 'only core/seal.c'),
    ('core/planted.c', 'int f(void) { return printf("x"); }', 2, 'neither prints'),
    ('core/planted.c', '#include "hal_sim/sc_sim.h"', 2, 'knows nothing of the world'),
    ('core/planted.c', '#include "cli/embedded.h"', 2, 'knows nothing of the world'),
    ('hal_sim/planted.c', '#include "hal_cuda/sc_cuda.h"', 2, 'never include each other'),
    ('hal_cuda/planted.c', '#include "hal_sim/sc_sim.h"', 2, 'never include each other'),
    ('hal/planted.c', '#include "hal_sim/sc_sim.h"', 2, None),
    ('hal/planted.c', '#include "hal_sim/world.h"', 2, 'others see only hal_sim/sc_sim.h'),
    ('hal/planted.c', '#include "../hal_sim/planted_beside.h"', 2, 'others see only'),
    ('kernels/planted.h', '#include "hal_sim/lab/plan.h"', 2, 'others see only'),
    ('cli/planted.c', '#include "hal_sim/lab/plan.h"', 2, None),
    ('tests/unit/planted.c', '#include "hal_sim/lab/plan.h"', 2, None),
    ('examples/planted.c', '#include <spark_comm.h>', 2, None),
    ('examples/planted.c', '#include "gpu.h"', 2, None),
    ('examples/planted_sim.c', '#include <spark_comm_sim.h>', 2, None),
    ('examples/planted.c', '#include <spark_comm_sim.h>', 2, 'only *_sim'),
    ('examples/planted.c', '#include <frame.h>', 2, 'public headers only'),
    ('examples/planted_sim.c', '#include "core/pump.h"', 2, 'files beside them'),
    ('examples/planted_sim.c', '#include "hal_sim/sc_sim.h"', 2, 'files beside them'),
    ('cli/planted.c', '#include "hal_cuda/bench/sc_raw.h"', 2, None),
    ('cli/planted.c', '#include "hal_cuda/inside.h"', 2, 'others see only hal_cuda/sc_cuda.h'),
    ('hal/planted.c', '#include "hal_cuda/bench/sc_raw.h"', 2, 'others see only'),
    ('tests/pretend/planted.c', '#include <cuda.h>', 2, None),
    ('tests/pretend/planted.c', '#include "tests/pretend/pretend.h"', 2, None),
    ('tests/pretend/planted.c', '#include "hal/posix.h"', 2, 'what is pretended knows'),
    ('tests/pretend/planted.c', '#include <spark_comm.h>', 2, 'what is pretended knows'),
    ('tests/unit/planted.c', '#include "tests/pretend/pretend.h"', 2, 'nobody\'s to include'),
    ('hal/planted.c', '\n' * FILE_LINES_MAX, FILE_LINES_MAX + 2, 'file has more than'),
    ('hal/planted.c', 'int f(void) {' + '\n' * FUNCTION_LINES_MAX + '}', 2, 'function has more'),
    ('hal/planted.c', 'int f(void) {' + '\n' * (FUNCTION_LINES_MAX - 1) + '}', 2, None),
]


def self_test():
    failures = []
    with tempfile.TemporaryDirectory() as temporary:
        copy = pathlib.Path(temporary) / 'tree'
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns('build', '.*'))
        (copy / 'hal_sim').mkdir(exist_ok=True)
        (copy / 'hal_sim/planted_beside.h').write_text(SPDX + '\n')
        before = violations(copy)
        rows = [(name, SPDX + '\n' + text + '\n', line, word) for name, text, line, word in PLANTED]
        rows.append(('hal/planted.c', '// no licence\n', 1, 'first line must be'))
        for name, text, line, word in rows:
            planted = copy / name
            planted.parent.mkdir(parents=True, exist_ok=True)
            planted.write_text(text)
            new = [row for row in violations(copy) if row not in before]
            planted.unlink()
            expected = len(new) == 1 and new[0].startswith('%s:%d: ' % (name, line)) \
                and word in new[0] if word else not new
            if not expected:
                failures.append('%s with %r: wanted %s, got %s' % (name, text[:80], word, new))
    return failures, len(PLANTED) + 1


def foreign_symbols(library):
    """Global names without the prefix: in somebody's program they could be somebody else's."""
    listed = subprocess.run(['nm', '-g', '--defined-only', library], capture_output=True,
                            text=True, check=True).stdout
    names = [line.split()[2] for line in listed.splitlines() if len(line.split()) == 3]
    if not names:
        return ['%s: no symbols were found' % library.name]
    return ['%s: %s lacks the prefix sc_' % (library.name, name)
            for name in names if not name.startswith('sc_')]


def main():
    options = argparse.ArgumentParser(description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument('--self-test', action='store_true')
    if options.parse_args().self_test:
        failures, count = self_test()
        print('\n'.join(failures) or 'rules: %d planted files judged rightly' % count)
    else:
        failures = violations(ROOT)
        for library in sorted((ROOT / 'build/release').glob('lib*.a')):
            if 'test' not in library.name:
                failures += foreign_symbols(library)
        print('\n'.join(failures) or 'rules: kept')
    sys.exit(1 if failures else 0)


if __name__ == '__main__':
    main()
