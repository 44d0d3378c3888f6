#!/usr/bin/env python3
# SPDX-License-Identifier: AGPL-3.0-only
"""Runs what ./dev built and says what failed; a failure does not stop the run.

    tests/run.py                            everything that ./dev test promises
    tests/run.py --programs VARIANT...      only the test programs of build/VARIANT
    tests/run.py --swarm RUNS               only so many swarm runs; goes with --programs

Each check is one command; it fails if it exits with anything but 0 or is not back in time, and
was skipped if it exits with 77. The last line counts the checks. fuzz/mutants.py takes its programs and its swarm from here.
"""

import argparse
import concurrent.futures
import functools
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIMEOUT_S = 400
LONG_TIMEOUT_S = 3600  # for a check asked for by name
SKIPPED = 77
VALGRIND = ['valgrind', '-q', '--error-exitcode=9', '--leak-check=full', '--show-leak-kinds=all',
            '--errors-for-leak-kinds=all']
SANITIZER_OPTIONS = {'ASAN_OPTIONS': 'detect_stack_use_after_return=1',
                     'UBSAN_OPTIONS': 'print_stacktrace=1'}


def test_programs(variant, kinds=('unit', 'scenario')):
    """The variant's programs, one for each source: what was not built is a failure, not a gap."""
    sources = [path for kind in kinds for path in sorted(ROOT.glob('tests/%s/*.c' % kind))]
    return ['build/%s/%s' % (variant, path.relative_to(ROOT).with_suffix('')) for path in sources]


def swarm(runs, variant='release'):
    return ['build/%s/spark-comm' % variant, 'sim', '--runs', str(runs), '--faults', 'swarm',
            '--seed', '1']


def fixed_addresses():
    """Prefix for the thread sanitizer, which wants the address space unshuffled; if allowed."""
    prefix = ['setarch', '-R']
    try:
        allowed = subprocess.run(prefix + ['true'], capture_output=True, check=False).returncode
    except FileNotFoundError:
        return []
    return prefix if allowed == 0 else []


def conformance(variant):
    """The suite in every world; it says 77 for one that this machine cannot run."""
    program = 'build/%s/tests/conformance/conformance' % variant
    runs = ['--world sim', '--world sim --clock real --scale 2', '--world sim --ranks 1',
            '--world sim --ranks 3', '--world cuda']
    return [[program] + options.split() for options in runs]


def pretending(variant, command):
    """The command with CUDA and NCCL pretended on the CPU; skipped where no GPU world is built."""
    library = ROOT / ('build/%s/tests/pretend/libpretend_gpu.so' % variant)
    if not library.exists():
        return ['sh', '-c', 'echo "skipped: this build has no GPU world"; exit %d' % SKIPPED] + command
    return ['env', 'SPARK_COMM_CUDA_LIBRARY=%s' % library,
            'SPARK_COMM_NCCL_LIBRARY=%s' % library] + command


def pretended_world(variant):
    """The code of the GPU world. What the sanitizers slow down may take longer."""
    program = ['build/%s/tests/conformance/conformance' % variant, '--world', 'cuda']
    if variant.startswith(('asan', 'tsan')):
        return [pretending(variant, program + ['--scale', '2'])]
    return [pretending(variant, program + options.split())
            for options in ('', '--ranks 3', '--long --only captures_on_another_thread')]


def pretended_commands(variant):
    """What measures GPUs, and cycles on them: here, whether it works at all. There is no socket of
    NCCL's to cut, as --how async would. Descriptors are compared from the fourth cycle on; so is
    memory, of which a sanitizer keeps what is freed."""
    program = 'build/%s/spark-comm' % variant
    bench = ['-b 4K -e 64K -N 3', 'recover --cycles 4 --graph --leak-host-kib 65536']
    bench += ['recover --cycles 2 --how ' + how for how in ('kill', 'stop', 'reset')]
    commands = ['%s bench %s' % (program, options) for options in bench]
    commands += ['python3 tests/gpu/run_cycles.py --gpus 2 --cycles 2 --how %s --program %s'
                 % (how, program) for how in ('kill', 'return')]
    return [pretending(variant, command.split()) for command in commands]


def program_checks(variant):
    prefix = fixed_addresses() if variant.startswith('tsan') else []
    return [prefix + command
            for command in ([[program] for program in test_programs(variant)]
                            + conformance(variant) + pretended_world(variant))]


def all_checks():
    checks = program_checks('asan')
    checks += [VALGRIND + [program] for program in test_programs('debug', ['unit'])]
    checks += [['python3', 'tests/rules.py'], ['python3', 'tests/rules.py', '--self-test']]
    checks += [['python3', 'tests/cli.py', 'build/%s/spark-comm' % variant]
               for variant in ('release', 'asan')]
    checks += [['python3', 'tests/%s.py' % name] for name in ('abi', 'install', 'reference')]
    checks += pretended_world('release')
    checks += pretended_commands('release') + pretended_commands('asan')
    checks += [['python3', 'tests/engine.py'],
               ['python3', 'tests/engine.py', 'build/asan/examples/engine', '--few']]
    checks += [['python3', 'tests/determinism.py'], ['python3', 'tests/instructions.py']]
    return checks + [swarm(200, 'asan'), swarm(2000)]


def run(command, timeout_s):
    """What is wrong, None if nothing is, SKIPPED; and all that the command printed."""
    try:
        done = subprocess.run(command, cwd=ROOT, env={**SANITIZER_OPTIONS, **os.environ},
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired as late:
        return 'not back after %d s' % timeout_s, late.stdout or b''
    except OSError as error:
        return str(error), b''
    if done.returncode == SKIPPED:
        return SKIPPED, done.stdout
    if done.returncode < 0:
        return 'ended by signal %d' % -done.returncode, done.stdout
    return ('status %d' % done.returncode if done.returncode else None), done.stdout


def run_all(checks, timeout_s):
    """Runs the checks, as many at once as there are processors; prints them in order. Those that
    failed, with what is wrong, and how many were skipped."""
    failed, skipped = [], 0
    go = functools.partial(run, timeout_s=timeout_s)
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for command, (wrong, output) in zip(checks, pool.map(go, checks)):
            name = ' '.join(command)
            print('--- %s' % name)
            print(output.decode(errors='replace'), end='')
            if wrong == SKIPPED:
                skipped += 1
                print('skip  %s' % name, flush=True)
                continue
            print('%s  %s' % ('FAIL' if wrong else 'pass', name) + (': ' + wrong if wrong else ''),
                  flush=True)
            if wrong:
                failed.append('%s: %s' % (name, wrong))
    return failed, skipped


def main():
    options = argparse.ArgumentParser(description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument('--programs', nargs='+', metavar='VARIANT', default=[])
    options.add_argument('--swarm', type=int, metavar='RUNS')
    chosen = options.parse_args()

    checks = [check for variant in chosen.programs for check in program_checks(variant)]
    if chosen.swarm:
        checks.append(swarm(chosen.swarm))
    timeout_s = LONG_TIMEOUT_S if checks else TIMEOUT_S
    checks = checks or all_checks()

    failed, skipped = run_all(checks, timeout_s)
    print()
    for line in failed:
        print('FAILED  ' + line)
    print('%d passed, %d failed, %d skipped'
          % (len(checks) - len(failed) - skipped, len(failed), skipped))
    sys.exit(1 if failed else 0)


if __name__ == '__main__':
    main()
