# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep what Python compiles of the modules that Ansible sends, while these tests run.

Ansible sends a module as a zip of source files, which Python compiles anew for each task: half of what a task costs,
and tests run thousands of tasks with the same files. Python reads this file as it starts, where conftest.py, or
suite.py for scenarios, put its directory on PYTHONPATH. The key is the source itself, so what runs is always what was
sent.
"""

from __future__ import annotations

# Each process that a test starts runs this: typing, contextlib and pathlib would be half of what it costs to start.
# ruff: noqa: PTH105, PTH112, PTH118, PTH120, PTH123
import marshal
import os
import sys
import zipimport
from _imp import source_hash

KEPT = f"{os.path.dirname(os.path.realpath(__file__))}/../../../.build/bytecode"
compile_source = getattr(zipimport, "_compile_source", None)


def kept_source(path: str, source: bytes) -> object:
    """Stand for zipimport's function of that name."""
    name = path.rpartition(".py/")[2].rpartition(".zip/")[2].replace("/", ".")
    key = source_hash(0, source.replace(b"\r\n", b"\n")).hex()
    place = os.path.join(KEPT, f"{name}.{key}.{sys.implementation.cache_tag}")
    try:
        with open(place, "rb") as file:
            return marshal.load(file)
    except (OSError, EOFError, ValueError, TypeError):  # nothing is kept, or not all of it
        pass
    code = compile_source(path, source)
    new = f"{place}.{os.getpid()}"
    try:
        with open(new, "wb") as file:
            marshal.dump(code, file)
        os.replace(new, place)
    except OSError:  # no room: then it is compiled again
        pass
    return code


if compile_source and os.path.isdir(KEPT):
    zipimport._compile_source = kept_source  # type: ignore[attr-defined]
