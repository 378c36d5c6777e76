# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the tool whose name is the first argument."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from emulation import machine
from emulation.tools import TOOLS


def main() -> int:
    """Return the exit status of the tool; one that is told to hang never returns."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    name = sys.argv[1].removesuffix("_mpi")  # as role gpu_test_tools links the programs that were built with MPI
    here = machine.load()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    module = importlib.import_module(f"emulation.{TOOLS[name]}")
    if here.hangs(name) and not getattr(module, "HANGS_ITSELF", False):
        signal.pause()
    status = int(module.main(here, name, sys.argv[2:]))
    sys.stdout.flush()
    return status


# No interpreter shutdown: a tool that lost its reader ends as a compiled one does.
if __name__ == "__main__":
    os._exit(main())
