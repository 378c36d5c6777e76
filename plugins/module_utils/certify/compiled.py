# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent with its modules compiled: hundreds of nodes that start it at once need not each do that. Private.

Another version of Python than this one passes over what is compiled and reads the sources, which are there as before.
"""

from __future__ import annotations

import importlib.util
import io
import marshal
import typing as t
import zipfile

# A digest of the source instead of its time, and nobody compares it: both are in one file.
_UNCHECKED = (1).to_bytes(4, "little")


def compiled(data: bytes) -> bytes:
    """Return a zipapp with bytecode beside its sources; what is no zipapp comes back as it is."""
    out = io.BytesIO()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as given, zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as made:
            for entry in given.infolist():
                _add(made, entry, given.read(entry))
    except (zipfile.BadZipFile, SyntaxError):
        return data
    return out.getvalue()


def _add(made: zipfile.ZipFile, entry: zipfile.ZipInfo, text: bytes) -> None:
    made.writestr(entry, text)
    if not entry.filename.endswith(".py"):
        return
    code: t.Any = compile(text, entry.filename, "exec", dont_inherit=True)
    beside = zipfile.ZipInfo(f"{entry.filename}c", entry.date_time)
    beside.create_system, beside.external_attr = entry.create_system, entry.external_attr
    header = importlib.util.MAGIC_NUMBER + _UNCHECKED + importlib.util.source_hash(text)
    made.writestr(beside, header + marshal.dumps(code))
