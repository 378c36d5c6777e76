# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent's modules as files, of which Python keeps what it has compiled: of an archive it keeps nothing.

To compile some forty modules was half of what a prolog cost, and a prolog is waited for. The files are in memory (/run)
and root's: no power cut leaves a part of them, and a boot begins anew.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
import zipfile
from pathlib import Path

_OLD = 3600.0  # seconds without a start; nothing that the agent does takes so long, so nobody reads them any more


def unpack(program: str, place: str) -> None:
    """Write the program's modules to a directory, which is there whole or not at all; without room there is none."""
    folder = Path(place).parent
    with contextlib.suppress(OSError, zipfile.BadZipFile):
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(dir=folder, prefix="."))
        try:
            with zipfile.ZipFile(program) as archive:
                archive.extractall(aside)
            aside.chmod(0o755)
            aside.rename(place)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        for other in folder.iterdir():
            if other != Path(place) and time.time() - other.stat().st_mtime > _OLD:
                shutil.rmtree(other, ignore_errors=True)
