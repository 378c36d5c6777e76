# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shared libraries made by hand, in all four layouts, so that the tests need no compiler."""

from __future__ import annotations

import struct


def library(constants: dict[str, int | str], wide: bool = True, little: bool = True, kind: int = 3) -> bytes:
    """Make a library with these constants: numbers as unsigned int, texts as arrays of characters.

    One segment maps the file to address 0x1000, so that a reader that takes addresses for places in the file fails.
    """
    order, word, base = "<" if little else ">", "Q" if wide else "I", 0x1000
    head, program = (64, 56) if wide else (52, 32)
    names, values, places = b"\0", b"", []
    start = head + 2 * program
    for name, value in constants.items():
        data = struct.pack(f"{order}I", value) if isinstance(value, int) else value.encode() + b"\0"
        places.append((len(names), base + start + len(values), len(data)))
        names += name.encode() + b"\0"
        values += data + b"\0" * (-len(data) % 4)
    table_at = start + len(values)
    table = b"\0" * (24 if wide else 16)
    for name_at, address, size in places:
        if wide:
            table += struct.pack(f"{order}IBBHQQ", name_at, 0x11, 0, 1, address, size)
        else:
            table += struct.pack(f"{order}IIIBBH", name_at, address, size, 0x11, 0, 1)
    names_at = table_at + len(table)
    names += b"\0" * (-len(names) % 8)
    hash_at = names_at + len(names)
    count = len(constants) + 1
    hashes = struct.pack(f"{order}II{1 + count}I", 1, count, 0, *([0] * count))
    hashes += b"\0" * (-len(hashes) % 8)
    dynamic_at = hash_at + len(hashes)
    pairs = [(4, base + hash_at), (5, base + names_at), (6, base + table_at), (0, 0)]
    dynamic = b"".join(struct.pack(f"{order}{word}{word}", *pair) for pair in pairs)
    end = dynamic_at + len(dynamic)
    ident = b"\x7fELF" + bytes([2 if wide else 1, 1 if little else 2, 1]) + b"\0" * 9
    rest = (kind, 62, 1, 0, head, 0, 0, head, program, 2, 0, 0, 0)
    header = ident + struct.pack(f"{order}HHI{word}{word}{word}IHHHHHH", *rest)
    segments = b""
    for what, at, size in ((1, 0, end), (2, dynamic_at, len(dynamic))):
        if wide:
            segments += struct.pack(f"{order}IIQQQQQQ", what, 4, at, base + at, 0, size, size, 8)
        else:
            segments += struct.pack(f"{order}IIIIIIII", what, at, base + at, 0, size, size, 4, 8)
    return header + segments + values + table + names + hashes + dynamic


def spank(number: int, name: str = "pyxis", kind: str = "spank") -> bytes:
    return library({"plugin_name": name, "plugin_type": kind, "plugin_version": number})
