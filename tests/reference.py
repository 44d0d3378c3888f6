#!/usr/bin/env python3
# SPDX-License-Identifier: AGPL-3.0-only
"""Checks that the public headers are documented, every member, enumerator and function of them.

Doxygen warns of what lacks words, but not of an enumerator; and it warns of nothing where it sees
nothing. So what it found is looked at too, and must hold every function that the headers declare.
"""

import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

import contract


def has_words(element):
    return any(''.join(part.itertext()).strip() for part in
               element.findall('briefdescription') + element.findall('detaileddescription'))


def main():
    with tempfile.TemporaryDirectory() as folder:
        settings = (contract.ROOT / 'docs/Doxyfile').read_text(encoding='utf-8')
        settings += 'OUTPUT_DIRECTORY = %s\nGENERATE_HTML = NO\nGENERATE_XML = YES\n' % folder
        done = subprocess.run(['doxygen', '-'], cwd=contract.ROOT, input=settings, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        wrong = done.stdout.splitlines()
        if done.returncode and not wrong:
            wrong.append('doxygen: status %d' % done.returncode)

        found = set()
        for path in sorted(pathlib.Path(folder, 'xml').glob('*.xml')):
            for element in xml.etree.ElementTree.parse(path).iter():
                if element.tag in ('memberdef', 'enumvalue'):
                    name = element.findtext('name')
                    found.add(name)
                    if not has_words(element):
                        wrong.append('%s is not documented' % name)

    declared = set(contract.functions(contract.REAL) + contract.functions(contract.SIM))
    wrong += ['%s is not in the reference' % name for name in sorted(declared - found)]

    print('\n'.join(wrong) or 'reference: %d names documented, %d functions among them'
          % (len(found), len(declared)))
    sys.exit(1 if wrong else 0)


if __name__ == '__main__':
    main()
