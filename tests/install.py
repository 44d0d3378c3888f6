#!/usr/bin/env python3
# SPDX-License-Identifier: AGPL-3.0-only
"""Installs the release into a temporary folder and uses it as a stranger would.

The installed headers compile by themselves as C and C++; programs are built with what pkg-config
says and nothing else, against the shared libraries and the static ones, and run; the manual names
every option; uninstalling leaves nothing. Prints a line a case; the last says how many passed.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import contract

LIMIT_S = 120
PREFIX = '/opt/spark'
VERSION = re.search(r"^VERSION = '([\d.]+)'", (contract.ROOT / 'SConstruct').read_text(), re.M)[1]
MAJOR = VERSION.split('.')[0]
STRICT = ['-Wall', '-Wextra', '-Wpedantic', '-Werror', '-fsyntax-only']
LIBRARIES = ('spark_comm', 'spark_comm_sim')
INSTALLED = sorted(
    ['bin/spark-comm', 'include/spark_comm.h', 'include/spark_comm_sim.h',
     'share/man/man1/spark-comm.1']
    + ['lib/pkgconfig/%s.pc' % name for name in LIBRARIES]
    + ['lib/lib%s%s' % (name, end) for name in LIBRARIES
       for end in ('.a', '.so', '.so.' + MAJOR, '.so.' + VERSION)])


def check(condition, complaint):
    if not condition:
        raise AssertionError(complaint)


def run(*command, folder=contract.ROOT, **environment):
    """What the command prints; it must end well."""
    done = subprocess.run([str(word) for word in command], cwd=folder, text=True, check=False,
                          env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S)
    check(done.returncode == 0, '%s: status %d\n%s'
          % (' '.join(str(word) for word in command), done.returncode, done.stdout))
    return done.stdout


def files(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob('*')
                  if path.is_symlink() or not path.is_dir())


def scons(stage, *options):
    return run('scons', '-Q', '-s', *options, 'install', 'DESTDIR=%s' % stage, 'PREFIX=' + PREFIX)


def all_files_are_there(tree):
    check(files(tree) == INSTALLED, 'installed are %s, expected %s' % (files(tree), INSTALLED))
    for name in LIBRARIES:
        real = tree / 'lib' / ('lib%s.so.%s' % (name, VERSION))
        for end in ('', '.' + MAJOR):
            link = tree / 'lib' / ('lib%s.so%s' % (name, end))
            check(link.resolve() == real.resolve(), '%s leads to %s' % (link, link.resolve()))


def header_stands_alone(tree, compiler, language, header):
    source = tree / 'twice.c'
    source.write_text('#include <%s>\n' % header * 2)
    try:
        run(compiler, '-x', 'c++' if '++' in language else 'c', '-std=' + language, *STRICT,
            '-I', tree / 'include', source)
    finally:
        source.unlink()


def pkg_config(tree, *options):
    return run('pkg-config', *options, PKG_CONFIG_PATH=str(tree / 'lib/pkgconfig')).split()


def consumer_runs(tree, library, source, static):
    """It is built in a folder of its own, with what pkg-config says and nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(contract.ROOT / 'tests/consumer' / source, folder)
        flags = pkg_config(tree, '--cflags', '--libs', *(['--static'] if static else []), library)
        run('cc', *(['-static'] if static else []), source, *flags, folder=folder)
        needed = re.findall(r'\(NEEDED\).*\[(lib.*)\]', run('readelf', '-d', 'a.out',
                                                            folder=folder))
        soname = 'lib%s.so.%s' % (library, MAJOR)
        check(needed == [] if static else soname in needed, 'it needs %s' % needed)
        said = run('./a.out', VERSION, folder=folder, LD_LIBRARY_PATH=str(tree / 'lib'))
        check(len(said.splitlines()) == 1, 'expected one line, not: %r' % said)


def example_is_built_as_the_guide_says(tree):
    guide = (contract.ROOT / 'docs/GUIDE.md').read_text()
    line = re.search(r'^cc examples/.*$', guide, re.M)[0]
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(contract.ROOT / 'examples', pathlib.Path(folder) / 'examples')
        run('sh', '-c', line, folder=folder, PKG_CONFIG_PATH=str(tree / 'lib/pkgconfig'))
        said = run('./engine', '--story', 'death', folder=folder,
                   LD_LIBRARY_PATH=str(tree / 'lib'))
        check('right on both ranks' in said, said)


def versions_agree(tree):
    check(run(tree / 'bin/spark-comm', '--version') == 'spark-comm %s\n' % VERSION, 'spark-comm')
    for name in LIBRARIES:
        told = pkg_config(tree, '--modversion', name)
        check(told == [VERSION], '%s.pc says %s' % (name, told))


def manual_names_every_option(tree):
    manual = (tree / 'share/man/man1/spark-comm.1').read_text()
    for command in ('bench', 'bench recover', 'demo', 'plan', 'run', 'sim'):
        section = re.search(r'^\.Ss spark-comm %s\n(.*?)^\.S[sh]' % command, manual, re.M | re.S)
        check(section, 'spark-comm %s has no section' % command)
        told = set(re.findall(r'^\.It (?:Fl \w Ar \w+ , )?Fl -(\S+)', section[1], re.M))
        helped = run(tree / 'bin/spark-comm', *command.split(), '--help')
        taken = set(re.findall(r'^\s+(?:-.,\s)?--([\w-]+)', helped, re.M)) - {'help', 'usage',
                                                                              'version'}
        check(told == taken, 'spark-comm %s: the manual has %s, --help has %s'
              % (command, sorted(told), sorted(taken)))


def uninstalling_leaves_nothing(tree, stage):
    (tree / 'lib/somebody.txt').write_text('else\n')
    build = contract.ROOT / 'build/release'
    built = os.listdir(build)
    scons(stage, '-c')
    check(files(tree) == ['lib/somebody.txt'], 'there are %s' % files(tree))
    gone = set(built) - set(os.listdir(build))
    check(not gone, 'what was built has gone too: %s' % sorted(gone))


def cases(stage, tree):
    """Yields (name, function, arguments)."""
    yield 'all files are there', all_files_are_there, (tree,)
    compilers = [('gcc', 'c11'), ('gcc', 'c17'), ('clang', 'c11'), ('clang', 'c17'),
                 ('clang++', 'c++17')]
    if shutil.which('g++'):
        compilers.append(('g++', 'c++17'))
    for compiler, language in compilers:
        for header in ('spark_comm.h', 'spark_comm_sim.h'):
            yield ('%s alone, %s -std=%s' % (header, compiler, language), header_stands_alone,
                   (tree, compiler, language, header))
    for static in (False, True):
        for library, source in zip(LIBRARIES, ('consumer.c', 'consumer_sim.c')):
            yield ('a program of lib%s%s' % (library, '.a' if static else '.so'), consumer_runs,
                   (tree, library, source, static))
    yield 'the example engine', example_is_built_as_the_guide_says, (tree,)
    yield 'versions agree', versions_agree, (tree,)
    yield 'the manual names every option', manual_names_every_option, (tree,)
    yield 'uninstalling leaves nothing', uninstalling_leaves_nothing, (tree, stage)


def main():
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        stage = pathlib.Path(folder)
        tree = stage / PREFIX.lstrip('/')
        try:
            scons(stage)
        except AssertionError as error:
            print('FAIL  it installs: %s' % error)
            return 1
        for name, function, arguments in cases(stage, tree):
            try:
                function(*arguments)
            except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
                failed += 1
                print('FAIL  %s: %s' % (name, error))
            else:
                passed += 1
                print('ok    %s' % name)
    print('%d passed, %d failed' % (passed, failed))
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
