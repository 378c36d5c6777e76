# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Every Python on a machine imports this, and pathlib would be most of what it costs.
# ruff: noqa: PTH104, PTH112, PTH123
"""Keep what Python compiles of modules in archives.

Ansible sends the module of each task as an archive of sources, which Python compiles anew every time: 0.09 s of the
0.24 s that a task costs, more than half where the processor is emulated. What is kept is found by a digest of the
source, and used when it is whole.
"""

from __future__ import annotations

import _frozen_importlib_external as importlib_external
import _imp
import marshal
import os
import zipimport
import zlib

PLACE = "/var/cache/lab_bytecode"
_KEY = int.from_bytes(importlib_external.MAGIC_NUMBER, "little")
_compile = zipimport._compile_source
# What this process has read already: Python asks twice for each module.
_known: dict[str, object] = {}


def compile_once(path: str, source: bytes) -> object:
    """Return the code of a module, as it was compiled now or before."""
    name = f"{PLACE}/{_imp.source_hash(_KEY, source).hex()}-{len(source)}"
    code = _known.get(name) or _kept(name)
    if code is None:
        code = _compile(path, source)
        _keep(name, marshal.dumps(code))
    else:
        _imp._fix_co_filename(code, path)
    _known[name] = code
    return code


def _kept(name: str) -> object:
    """Nothing where there is nothing, or where a power cut left a part of it."""
    try:
        with open(name, "rb") as file:
            data = file.read()
    except OSError:
        return None
    whole = len(data) > 4 and int.from_bytes(data[:4], "little") == zlib.crc32(data[4:])
    return marshal.loads(data[4:]) if whole else None


def _keep(name: str, data: bytes) -> None:
    new = f"{name}.{os.getpid()}"
    try:
        with open(new, "wb") as file:
            file.write(zlib.crc32(data).to_bytes(4, "little") + data)
        os.rename(new, name)
    except OSError:  # no room: then it is compiled again
        pass


# What root runs comes from root alone.
if os.geteuid() == 0 and os.path.isdir(PLACE):
    zipimport._compile_source = compile_once
