#!/usr/bin/env python3
# SPDX-License-Identifier: AGPL-3.0-only
"""Uses spark-comm as a newcomer would, mistakes included: tests/cli.py PATH/spark-comm

Every mistake must end with status 2, one sentence on stderr that names what is wrong, nothing on
stdout and no file left behind. Prints a line a case; the last says how many passed and failed.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile

LIMIT_S = 60
MOE = '"num_experts": 8, "num_experts_per_tok": 2'
GOOD = '{"hidden_size": 2048, "num_hidden_layers": 4, %s}' % MOE

# What the working directory holds when a case begins.
FILES = {
    'good.json': GOOD,
    'no-hidden.json': '{"num_hidden_layers": 4, %s}' % MOE,
    'no-layers.json': '{"hidden_size": 2048, %s}' % MOE,
    'dense.json': '{"hidden_size": 2048, "num_hidden_layers": 4}',
    'negative.json': GOOD.replace('2048', '-5'),
    'quoted.json': GOOD.replace('2048', '"2048"'),
    'fraction.json': GOOD.replace('2048', '2048.5'),
    'broken.json': '{\n  "hidden_size": 2048,\n  "num_hidden_layers" 4\n}\n',
    'list.json': '[]',
    'empty.json': '',
    'typo.faults': 'ranks 2\nat op 17 of mark 5: rank 1 kil\n',
    'a-folder/': None,
}

PLAN = ('--max-batch-tokens', '8192')
RANK = ('--rank', '0', '--world', '2')
MASTER = ('--master', '127.0.0.1:29500')

# name, arguments, what the sentence must hold
MISTAKES = [
    ('nothing at all', [], ['bench', 'demo', 'plan', 'run', 'sim']),
    ('unknown subcommand', ['paln'], ['paln']),
    ('unknown flag before a subcommand', ['--frobnicate'], ['--frobnicate']),

    ('plan: no model', ['plan', *PLAN], ['CONFIG.json']),
    ('plan: missing model file', ['plan', 'none.json', *PLAN], ['none.json']),
    ('plan: missing folder', ['plan', 'none/config.json', *PLAN],
     ['none/config.json', 'No such file']),
    ('plan: misspelt name lists those carried', ['plan', 'deepseek-v4', *PLAN],
     ['deepseek-v4', 'deepseek-v3', 'minimax-m2', 'qwen3-30b-a3b']),
    ('plan: directory', ['plan', 'a-folder', *PLAN], ['a-folder', 'directory']),
    ('plan: device', ['plan', '/dev/null', *PLAN], ['/dev/null', 'regular file']),
    ('plan: empty file', ['plan', 'empty.json', *PLAN], ['empty.json', 'empty']),
    ('plan: broken JSON', ['plan', 'broken.json', *PLAN],
     ['broken.json', 'line 3', 'column 23']),
    ('plan: JSON that is no object', ['plan', 'list.json', *PLAN], ['list.json', 'object']),
    ('plan: no hidden size', ['plan', 'no-hidden.json', *PLAN],
     ['no-hidden.json', 'hidden_size', 'n_embd', 'd_model', 'dim']),
    ('plan: no layers', ['plan', 'no-layers.json', *PLAN],
     ['no-layers.json', 'num_hidden_layers', 'n_layer']),
    ('plan: dense model', ['plan', 'dense.json', *PLAN], ['dense.json', 'num_experts']),
    ('plan: negative hidden size', ['plan', 'negative.json', *PLAN],
     ['negative.json: hidden_size is -5, expected a whole number from 1 to 1048576']),
    ('plan: number as text', ['plan', 'quoted.json', *PLAN], ['hidden_size', '"2048"']),
    ('plan: fraction', ['plan', 'fraction.json', *PLAN], ['hidden_size is 2048.5']),
    ('plan: two models', ['plan', 'good.json', 'list.json', *PLAN], ['good.json', 'list.json']),
    ('plan: no tokens given', ['plan', 'good.json'], ['--max-batch-tokens']),
    ('plan: option without its value', ['plan', 'good.json', '--max-batch-tokens'],
     ['--max-batch-tokens']),
    ('plan: negative tokens', ['plan', 'good.json', '--max-batch-tokens', '-3'],
     ['--max-batch-tokens -3: expected a whole number from 1 to ']),
    ('plan: zero tokens', ['plan', 'good.json', '--max-batch-tokens=0'],
     ['--max-batch-tokens 0']),
    ('plan: tokens beyond 64 bits', ['plan', 'good.json', '--max-batch-tokens', '9' * 30],
     ['--max-batch-tokens 999']),
    ('plan: tokens with a unit', ['plan', 'good.json', '--max-batch-tokens', '8k'],
     ['--max-batch-tokens 8k']),
    ('plan: empty tokens', ['plan', 'good.json', '--max-batch-tokens', ''],
     ['--max-batch-tokens', 'expected a whole number']),
    ('plan: world of none', ['plan', 'good.json', *PLAN, '--world', '0'], ['--world 0']),
    ('plan: world of 65', ['plan', 'good.json', *PLAN, '--world', '65'], ['--world 65']),
    ('plan: unknown flag', ['plan', 'good.json', *PLAN, '--frobnicate'], ['--frobnicate']),

    ('demo: unknown flag', ['demo', '--frobnicate'], ['--frobnicate']),
    ('demo: stray argument', ['demo', 'stray'], ['stray']),
    ('demo: missing model file', ['demo', '--model', 'none.json'], ['none.json']),
    ('demo: broken JSON', ['demo', '--model', 'broken.json'], ['broken.json', 'line 3']),
    ('demo: no hidden size', ['demo', '--model', 'no-hidden.json'],
     ['no-hidden.json', 'hidden_size']),
    ('demo: negative tokens', ['demo', '--tokens', '-3'], ['--tokens -3']),
    ('demo: zero tokens', ['demo', '--tokens', '0'], ['--tokens 0']),
    ('demo: tokens that are no number', ['demo', '--tokens', 'many'], ['--tokens many']),
    ('demo: negative kill time', ['demo', '--kill-at', '-1'], ['--kill-at -1']),
    ('demo: kill time that is none', ['demo', '--kill-at', 'soon'], ['--kill-at soon']),

    ('sim: unknown flag', ['sim', '--frobnicate'], ['--frobnicate']),
    ('sim: stray argument', ['sim', 'stray'], ['stray']),
    ('sim: missing fault file', ['sim', '--faults', 'none.faults'], ['none.faults']),
    ('sim: folder as fault file', ['sim', '--faults', 'a-folder'], ['a-folder']),
    ('sim: typo in a fault file', ['sim', '--faults', 'typo.faults'], ['typo.faults:2']),
    ('sim: no ranks', ['sim', '--ranks', '0'], ['--ranks 0']),
    ('sim: too many ranks', ['sim', '--ranks', '99'], ['--ranks 99']),
    ('sim: negative runs', ['sim', '--runs', '-1'], ['--runs -1']),
    ('sim: negative seconds', ['sim', '--seconds', '-1'], ['--seconds -1']),
    ('sim: seed that is no number', ['sim', '--seed', 'lucky'], ['--seed lucky']),
    ('sim: trace into a missing folder', ['sim', '--trace', 'none/t.json'], ['none/t.json']),

    ('run: no rank', ['run', '--world', '2', *MASTER], ['--rank R is missing']),
    ('run: no world', ['run', '--rank', '0', *MASTER], ['--world W is missing']),
    ('run: no master', ['run', '--rank', '0', '--world', '2'], ['--master HOST:PORT is missing']),
    ('run: rank beyond the world', ['run', '--rank', '2', '--world', '2', *MASTER],
     ['--rank 2: expected less than the world of 2']),
    ('run: negative rank', ['run', '--rank', '-1', '--world', '2', *MASTER], ['--rank -1']),
    ('run: world of none', ['run', '--rank', '0', '--world', '0', *MASTER], ['--world 0']),
    ('run: world of 65', ['run', '--rank', '0', '--world', '65', *MASTER], ['--world 65']),
    ('run: master without a port', ['run', *RANK, '--master', 'spark-1'],
     ['--master spark-1: expected HOST:PORT']),
    ('run: master without a host', ['run', *RANK, '--master', ':29500'], ['--master :29500']),
    ('run: port 0', ['run', *RANK, '--master', 'spark-1:0'], ['--master spark-1:0']),
    ('run: port beyond 16 bits', ['run', *RANK, '--master', 'spark-1:65536'],
     ['--master spark-1:65536']),
    ('run: port that is no number', ['run', *RANK, '--master', 'spark-1:http'],
     ['--master spark-1:http']),
    ('run: IPv6 address without brackets', ['run', *RANK, '--master', 'fe80::1:29500'],
     ['--master fe80::1:29500', '[fe80::1]:29500']),
    ('run: negative device', ['run', *RANK, *MASTER, '--device', '-1'], ['--device -1']),
    ('run: no tokens', ['run', *RANK, *MASTER, '--tokens', '0'], ['--tokens 0']),
    ('run: missing model file', ['run', *RANK, *MASTER, '--model', 'none.json'], ['none.json']),
    ('run: stray argument', ['run', *RANK, *MASTER, 'stray'], ['stray']),
    ('run: unknown flag', ['run', *RANK, *MASTER, '--frobnicate'], ['--frobnicate']),

    ('bench: smaller than an element', ['bench', '-b', '1'], ['-b 1: expected a size']),
    ('bench: half an element', ['bench', '-b', '257'], ['-b 257', 'even']),
    ('bench: sizes the wrong way round', ['bench', '-b', '1M', '-e', '1K'], ['-b 1048576', '1024']),
    ('bench: unknown unit', ['bench', '-e', '64X'], ['-e 64X']),
    ('bench: size beyond 64 bits', ['bench', '-e', '99999999999999999999G'], ['-e 9999']),
    ('bench: size that wraps', ['bench', '-e', '17179869185G'], ['-e 17179869185G']),
    ('bench: sizes that never grow', ['bench', '-f', '1'], ['-f 1']),
    ('bench: no ops', ['bench', '-n', '0'], ['-n 0']),
    ('bench: no op before a sample', ['bench', '-w', '0'], ['-w 0']),
    ('bench: no samples', ['bench', '-N', '0'], ['-N 0']),
    ('bench: one GPU', ['bench', '-g', '1'], ['-g 1']),
    ('bench: nine GPUs', ['bench', '-g', '9'], ['-g 9']),
    ('bench: unknown word', ['bench', 'recovr'], ['recovr', 'recover']),
    ('bench: unknown flag', ['bench', '--frobnicate'], ['--frobnicate']),
    ('bench recover: no cycles', ['bench', 'recover', '--cycles', '0'], ['--cycles 0']),
    ('bench recover: unknown way', ['bench', 'recover', '--how', 'maim'],
     ['--how maim', 'kill, stop, reset or async']),
    ('bench recover: victim that is not there', ['bench', 'recover', '--victim', '2'],
     ['--victim 2', '-g']),
    ('bench recover: load of words', ['bench', 'recover', '--load', 'long'], ['--load long']),
    ('bench recover: load beyond ten minutes', ['bench', 'recover', '--load', '600001'],
     ['--load 600001']),
    ('bench recover: load of nobody', ['bench', 'recover', '--how', 'reset', '--load', '100'],
     ['--load 100', 'reset']),
    ('bench recover: rest of none', ['bench', 'recover', '--rest', '0'], ['--rest 0']),
    ('bench recover: rest beyond ten minutes', ['bench', 'recover', '--rest', '600001'],
     ['--rest 600001']),
    ('bench recover: one GPU', ['bench', 'recover', '-g', '1'], ['-g 1']),
    ('bench recover: missing model file', ['bench', 'recover', '--model', 'none.json'],
     ['none.json']),
    ('bench recover: stray argument', ['bench', 'recover', 'stray'], ['stray']),
]

# What there is to do with a GPU, where there is none.
WITH_GPUS = [
    ('run', ['run', *RANK, *MASTER]),
    ('bench', ['bench']),
    ('bench recover', ['bench', 'recover']),
]

# name, hidden size, layers with an all-reduce, layers
CARRIED = [
    ('qwen3-30b-a3b', 2048, 48, 48),
    ('minimax-m2', 3072, 62, 62),
    ('deepseek-v3', 7168, 58, 61),
]

# subcommand, its flags
HELP = [
    ('plan', ['--max-batch-tokens', '--world', '--json', '--help']),
    ('demo', ['--model', '--tokens', '--kill-at', '--help']),
    ('sim', ['--seed', '--ranks', '--faults', '--seconds', '--runs', '--trace', '--json',
             '--help']),
    ('run', ['--rank', '--world', '--master', '--device', '--model', '--tokens', '--verify',
             '--graph', '--key-file', '--final', '--help']),
    ('bench', ['--minbytes', '--maxbytes', '--stepfactor', '--iters', '--warmup_iters', '--rounds',
               '--device', '--ngpus', '--output_file', '--help']),
    ('bench recover', ['--cycles', '--how', '--victim', '--model', '--load', '--rest',
                       '--graph', '--leak-host-kib', '--leak-gpu-kib', '--sockets', '--device',
                       '--ngpus', '--output_file', '--help']),
]


def check(condition, complaint):
    if not condition:
        raise AssertionError(complaint)


@contextlib.contextmanager
def folder_of_files():
    """A fresh working directory that must look the same afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in FILES.items():
            path = os.path.join(folder, name)
            if text is None:
                os.mkdir(path)
            else:
                with open(path, 'w', encoding='utf-8') as out:
                    out.write(text)
        before = listing(folder)
        yield folder
        left = sorted(set(listing(folder)) ^ set(before))
        check(not left, 'changed in the working directory: %s' % left)


def listing(folder):
    return [os.path.relpath(os.path.join(at, name), folder)
            for at, folders, files in os.walk(folder) for name in folders + files]


def run(program, arguments, folder):
    # Help and hints must not depend on the terminal or the language of whoever runs this; nor must
    # a mistake that slips through wake a GPU.
    environment = dict(os.environ, LC_ALL='C', ARGP_HELP_FMT='rmargin=79',
                       SPARK_COMM_CUDA_LIBRARY='no-driver-here.so')
    done = subprocess.run([program, *arguments], cwd=folder, env=environment, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S,
                          check=False)
    # A rank's process that is killed while a sanitizer looks for its leaks: the sanitizer says so.
    done.stderr = re.sub(r'^==\d+==Unable to get registers from thread \d+\.\n', '', done.stderr,
                         flags=re.M)
    return done


def mistake(program, arguments, parts):
    with folder_of_files() as folder:
        done = run(program, arguments, folder)
        check(done.returncode == 2, 'status %d, expected 2; stderr: %s'
              % (done.returncode, done.stderr.strip()))
        check(done.stdout == '', 'stdout is not empty: %r' % done.stdout[:200])
        # argp may add where to find help, on a line that it wraps.
        said = re.sub(r"^Try [`'].*?information\.\n", '', done.stderr, flags=re.M | re.S)
        check(said.endswith('\n'), 'stderr does not end a line: %r' % said)
        check(len(said.splitlines()) == 1 and len(said) > 20,
              'expected one sentence on stderr, not: %r' % said)
        for part in parts:
            check(part in said, 'the sentence lacks %r: %s' % (part, said.strip()))


def without_gpu(program, arguments):
    """It says what it lacks: the driver, or in some builds all that would use one."""
    with folder_of_files() as folder:
        done = run(program, arguments, folder)
        check(done.returncode == 2, 'status %d, expected 2' % done.returncode)
        check(done.stdout == '', 'stdout is not empty: %r' % done.stdout[:200])
        check(len(done.stderr.splitlines()) == 1, 'expected one sentence: %r' % done.stderr)
        check('no-driver-here.so' in done.stderr or 'no GPU world' in done.stderr,
              'the sentence does not say what is missing: %s' % done.stderr)


def carried_model(program, name, hidden, moe_layers, layers):
    tokens, world = 8192, 2
    with folder_of_files() as folder:
        table = run(program, ['plan', name, *PLAN], folder)
        answer = run(program, ['plan', name, *PLAN, '--json'], folder)
        for done in (table, answer):
            check(done.returncode == 0, 'status %d: %s' % (done.returncode, done.stderr.strip()))
            check(done.stderr == '', 'stderr is not empty: %r' % done.stderr)
        figures = json.loads(answer.stdout)
        expected = {
            'hidden_size': hidden,
            'layers': layers,
            'moe_layers': moe_layers,
            'world': world,
            'max_batch_tokens': tokens,
            'capacity_bytes': tokens * hidden * 2,
            'batch_payload_bytes': tokens * hidden * 2,
            'token_payload_bytes': hidden * 2,
            'all_reduce_calls_per_token': moe_layers,
            'wire_bytes_each_way_per_token': moe_layers * hidden * 2,
        }
        for key, value in expected.items():
            check(figures.get(key) == value, '%s is %r, expected %d'
                  % (key, figures.get(key), value))
        for value in (hidden, moe_layers, layers, tokens * hidden * 2, hidden * 2,
                      moe_layers * hidden * 2):
            check(re.search(r'\b%d\b' % value, table.stdout), 'the table lacks %d' % value)
        for line in table.stdout.splitlines():
            check(len(line) < 80, 'wider than a terminal: %r' % line)


def model_file(program):
    with folder_of_files() as folder:
        done = run(program, ['plan', 'good.json', *PLAN, '--world', '4', '--json'], folder)
        check(done.returncode == 0, 'status %d: %s' % (done.returncode, done.stderr.strip()))
        figures = json.loads(done.stdout)
        # A ring of 4 moves 2 x 3 / 4 of the payload each way, in each of 4 layers.
        check(figures['wire_bytes_each_way_per_token'] == 4 * 4096 * 6 // 4, figures)
        check(figures['model'] == 'good.json', figures)


def world_of_one(program):
    with folder_of_files() as folder:
        done = run(program, ['plan', 'good.json', *PLAN, '--world', '1', '--json'], folder)
        check(done.returncode == 0, 'status %d: %s' % (done.returncode, done.stderr.strip()))
        check(json.loads(done.stdout)['wire_bytes_each_way_per_token'] == 0, done.stdout)


def full_disk(program):
    with folder_of_files() as folder, open('/dev/full', 'w', encoding='utf-8') as full:
        done = subprocess.run([program, 'plan', 'good.json', *PLAN], cwd=folder, text=True,
                              stdout=full, stderr=subprocess.PIPE, timeout=LIMIT_S, check=False)
        check(done.returncode == 1, 'status %d, expected 1' % done.returncode)
        check(len(done.stderr.splitlines()) == 1, 'expected one sentence: %r' % done.stderr)


def help_of(program, command, flags):
    with folder_of_files() as folder:
        done = run(program, [*command.split(), '--help'], folder)
        check(done.returncode == 0, 'status %d: %s' % (done.returncode, done.stderr.strip()))
        check(done.stderr == '', 'stderr is not empty: %r' % done.stderr)
        lines = done.stdout.splitlines()
        for flag in flags:
            rows = [number for number, line in enumerate(lines)
                    if re.match(r'\s+(-.,\s)?%s(\[?=\S+)?\s{2,}\S' % re.escape(flag), line)]
            check(len(rows) == 1, '%s has %d lines of help, expected 1' % (flag, len(rows)))
            following = lines[rows[0] + 1] if rows[0] + 1 < len(lines) else ''
            check(following.strip() == '' or following.lstrip().startswith('-'),
                  'the help of %s runs on: %r' % (flag, following))


def top_help(program):
    with folder_of_files() as folder:
        done = run(program, ['--help'], folder)
        check(done.returncode == 0, 'status %d: %s' % (done.returncode, done.stderr.strip()))
        check(done.stderr == '', 'stderr is not empty: %r' % done.stderr)
        for command, _ in HELP:
            command = command.split()[0]
            check(re.search(r'\b%s\b' % command, done.stdout), 'the help lacks %s' % command)


def needs_no_gpu_library(program):
    needed = subprocess.run(['ldd', program], capture_output=True, text=True, check=True).stdout
    found = [name for name in ('cuda', 'nccl', 'nvidia') if name in needed.lower()]
    assert 'libc.so' in needed and not found, needed


def cases(program):
    """Yields (name, function, arguments)."""
    for name, arguments, parts in MISTAKES:
        yield name, mistake, (program, arguments, parts)
    for command, arguments in WITH_GPUS:
        yield '%s: without a GPU' % command, without_gpu, (program, arguments)
    for row in CARRIED:
        yield 'plan: figures of %s' % row[0], carried_model, (program, *row)
    yield 'plan: a file in a world of 4', model_file, (program,)
    yield 'plan: nothing on the wire of one rank', world_of_one, (program,)
    yield 'plan: full disk', full_disk, (program,)
    yield 'help: spark-comm', top_help, (program,)
    for command, flags in HELP:
        yield 'help: %s' % command, help_of, (program, command, flags)
    yield 'no GPU library is needed to start', needs_no_gpu_library, (program,)


def main():
    if len(sys.argv) != 2 or not os.access(sys.argv[1], os.X_OK):
        print('usage: tests/cli.py PATH/spark-comm, a program that has been built',
              file=sys.stderr)
        return 2
    program = os.path.abspath(sys.argv[1])
    passed = failed = 0
    for name, function, arguments in cases(program):
        try:
            function(*arguments)
        except (AssertionError, OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
            failed += 1
            print('FAIL  %s: %s' % (name, error))
        else:
            passed += 1
            print('ok    %s' % name)
    print('%d passed, %d failed' % (passed, failed))
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
