#!/usr/bin/env python3
# SPDX-License-Identifier: AGPL-3.0-only
"""Holds the release libraries to the contract that programs were compiled against.

    tests/abi.py            compares what the libraries export, the layout of the public structs and
                            the values of the public constants with the lists in tests/abi/
    tests/abi.py --renew    writes those lists anew; whoever changes the contract does so on purpose

The lists are alike on x86-64 and aarch64. Of the archives it wants to know also that the library
leaves alone what belongs to the program around it: streams, signals, exit.
"""

import argparse
import difflib
import pathlib
import re
import subprocess
import sys
import tempfile

import contract

LISTS = contract.ROOT / 'tests/abi'
BUILT = contract.ROOT / 'build/release'
LIBRARIES = {'libspark_comm': [contract.REAL], 'libspark_comm_sim': [contract.REAL, contract.SIM]}

# What only the program may do: print, take signals or its end into its own hands, change what the
# whole process shares. A failed assertion prints one line and aborts.
PROGRAMS_OWN = re.compile(
    r'v?d?w?printf|puts|putw?char|perror|psignal|stdout|stderr|'
    r'signal|sigaction|sigset|sigprocmask|raise|'
    r'abort|_?exit|_Exit|quick_exit|at_quick_exit|atexit|on_exit|__assert_fail|'
    r'setenv|putenv|unsetenv|clearenv|setlocale|chdir|umask|v?fork|exec\w+|system|popen')
ASSERTION = {'stderr', 'abort'}


def output(*command):
    if not (BUILT / 'libspark_comm_sim.so').exists():
        sys.exit('abi: build/release holds no shared libraries; run scons first')
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def layout():
    """A program tells where each member lies, and the value of each constant."""
    lines = []
    for header in (contract.REAL, contract.SIM):
        for struct, members in contract.structs(header):
            lines.append('printf("%s %%zu\\n", sizeof(struct %s));' % (struct, struct))
            lines += ['printf("    %s %%zu %%zu\\n", offsetof(struct %s, %s), '
                      'sizeof(((struct %s *)0)->%s));' % (member, struct, member, struct, member)
                      for member in members]
    structs = len(lines)
    for header in (contract.REAL, contract.SIM):
        lines += ['printf("%s %%llu\\n", (unsigned long long)%s);' % (name, name)
                  for name in contract.constants(header)]
    source = ('#include <stdio.h>\n#include "%s"\n#include "%s"\nint main(void) {\n%s\n}\n'
              % (contract.REAL, contract.SIM, '\n'.join(lines)))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, 'layout.c')
        path.write_text(source, encoding='utf-8')
        program = str(path.with_suffix(''))
        subprocess.run(['gcc', '-I', contract.ROOT, '-I', contract.ROOT / 'core', path,
                        '-o', program], check=True)
        told = output(program).splitlines()
    return told[:structs], told[structs:]


def exported(library):
    """Functions and data that a program can bind to, versions of the C library's left out."""
    listed = output('nm', '-D', '--defined-only', '--format=posix', BUILT / (library + '.so'))
    return sorted(line.split()[0] for line in listed.splitlines())


def meddling(library):
    """Members of the archive that ask for what is the program's."""
    for line in output('nm', '-A', '-u', BUILT / (library + '.a')).splitlines():
        member, name = re.search(r':([^:]+): +[Uwv] (\S+)$', line).groups()
        plain = re.sub(r'^__(\w+)_chk$', r'\1', name)
        if PROGRAMS_OWN.fullmatch(plain) and not (member == 'assert.o' and plain in ASSERTION):
            yield '%s.a: %s uses %s, which is for the program to do' % (library, member, name)


def difference(name, expected, found, how):
    rows = list(difflib.unified_diff(expected, found, 'tests/abi/' + name, how, n=1, lineterm=''))
    return rows and ['\n'.join(rows)]


def main():
    options = argparse.ArgumentParser(description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument('--renew', action='store_true', help='write the lists anew')
    renew = options.parse_args().renew

    structs, constants = layout()
    lists = {'structs.txt': structs, 'constants.txt': constants,
             'symbols.txt': contract.functions(contract.REAL),
             'symbols_sim.txt': contract.functions(contract.SIM)}
    if renew:
        for name, lines in lists.items():
            (LISTS / name).write_text('\n'.join(lines) + '\n', encoding='utf-8')

    wrong = []
    for name, lines in lists.items():
        kept = (LISTS / name).read_text(encoding='utf-8').splitlines()
        wrong += difference(name, kept, lines, 'the headers')
    if wrong:
        wrong.append('If this is meant, raise SC_ABI_VERSION where a program compiled before would '
                     'notice, and run tests/abi.py --renew.')
    for library, headers in LIBRARIES.items():
        declared = sorted(name for header in headers for name in contract.functions(header))
        names = exported(library)
        wrong += ['%s.so: %s is declared and not exported' % (library, name)
                  for name in declared if name not in names]
        wrong += ['%s.so: %s is exported and not declared' % (library, name)
                  for name in names if name not in declared]
        wrong += meddling(library)
    print('\n'.join(wrong) or 'abi: %d struct and member lines, %d constants, %d functions'
          % tuple(len(part) for part in (structs, constants, names)))
    sys.exit(1 if wrong else 0)


if __name__ == '__main__':
    main()
