# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Import the tarball as Galaxy does when it is published: galaxy-importer with its own settings, where nothing else is.

    galaxy_import.py TARBALL

Whatever the importer warns of is an error here. It gives ansible-lint 180 seconds. How long ansible-lint takes depends
on what else a machine does, so here it has all the time it wants, and 180 seconds are held against its processor time.
"""

from __future__ import annotations

import os
import re
import resource
import runpy
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parents[2] / ".build/galaxy/bin"


def processor_time() -> float:
    """Return the seconds of all processes that were started from here and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Counted(subprocess.Popen[str]):
    """A process whose limit counts what it does, and not how long it has to wait for a processor."""

    def communicate(self, input: str | None = None, timeout: float | None = None) -> tuple[str, str]:
        before = processor_time()
        said = super().communicate(input)
        if timeout:
            took = processor_time() - before
            word = "ERROR" if took > timeout else "INFO"
            print(f"{word}: ansible-lint took {took:.0f} s of processor time; it has {timeout:.0f} s", flush=True)
        return said


def inside(tarball: str) -> None:
    """Run the importer, by the Python that has it."""
    from galaxy_importer.loaders import collection

    collection.Popen = Counted
    sys.argv[1:] = [tarball]
    runpy.run_module("galaxy_importer.main", run_name="__main__")


def main(tarball: Path) -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hpcai-import-") as place:
        # Nobody's settings, and no other collections.
        environment = {"PATH": f"{PROGRAMS}:{os.defpath}", "HOME": place, "LC_ALL": "C.UTF-8"}
        words = [str(PROGRAMS / "python"), __file__, "inside", str(tarball.resolve())]
        done = subprocess.run(
            words, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
    wrong = [line for line in done.stdout.splitlines() if not line.startswith("Loading ")]
    print("\n".join(wrong))
    print(f"{processor_time():.0f} s of processor time, {time.monotonic() - began:.0f} s")
    return int(bool(done.returncode or re.search(r"^(WARNING|ERROR|CRITICAL): ", done.stdout, re.MULTILINE)))


if __name__ == "__main__":
    if sys.argv[1] == "inside":
        inside(sys.argv[2])
    else:
        sys.exit(main(Path(sys.argv[1])))
