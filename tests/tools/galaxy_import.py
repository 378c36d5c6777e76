# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Import the tarball as Galaxy does when it is published: galaxy-importer with its own settings, where nothing else is.

    galaxy_import.py TARBALL

Whatever the importer warns of is an error here. It gives ansible-lint 180 seconds, all of whose processes are counted:
on a busy machine, or with few cores, the time that Galaxy takes is better read from the processor time.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parents[2] / ".build/galaxy/bin"


def main(tarball: Path) -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hpcai-import-") as place:
        # Nobody's settings, and no other collections.
        environment = {"PATH": f"{PROGRAMS}:{os.defpath}", "HOME": place, "LC_ALL": "C.UTF-8"}
        words = [str(PROGRAMS / "python"), "-m", "galaxy_importer.main", str(tarball.resolve())]
        done = subprocess.run(
            words, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    wrong = [line for line in done.stdout.splitlines() if not line.startswith("Loading ")]
    print("\n".join(wrong))
    print(f"{usage.ru_utime + usage.ru_stime:.0f} s of processor time, {time.monotonic() - began:.0f} s")
    return int(bool(done.returncode or re.search(r"^(WARNING|ERROR|CRITICAL): ", done.stdout, re.MULTILINE)))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
