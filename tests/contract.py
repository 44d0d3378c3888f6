# SPDX-License-Identifier: AGPL-3.0-only
"""What the public headers declare, for the checks that hold libraries and reference to it.

The headers are written plainly enough to be read line by line: // comments only, one declarator a
member, no bit-fields, no nested types.
"""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
REAL = 'core/spark_comm.h'
SIM = 'hal_sim/spark_comm_sim.h'


def code(header):
    return re.sub(r'//.*', '', (ROOT / header).read_text(encoding='utf-8'))


def functions(header):
    return sorted(re.findall(r'^SC_API\b[^;(]*?(\w+)\(', code(header), re.M))


def structs(header):
    """Yields each struct with its members: ('sc_op_desc', ['kind', 'root', 'bytes'])."""
    for name, body in re.findall(r'^struct (\w+) \{(.*?)^\};', code(header), re.M | re.S):
        declarations = [text.strip() for text in body.split(';') if text.strip()]
        yield name, [re.search(r'\(\*(\w+)\)|(\w+)(\[\w+\])?$', text).expand(r'\1\2')
                     for text in declarations]


def constants(header):
    """Macros that stand for a value, and enumerators, in order."""
    text = code(header)
    names = re.findall(r'^#define (SC_\w+)[ \t]+(?!__attribute__)\S', text, re.M)
    for body in re.findall(r'\benum \w+ \{(.*?)\}', text, re.S):
        names += [piece.split('=')[0].strip() for piece in body.split(',') if piece.strip()]
    return names
