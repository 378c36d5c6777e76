# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ldd: the libraries that the emulated programs would be linked with; of all others the real one speaks."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

from emulation.machine import Machine
from emulation.tools import TOOLS

REAL = "/usr/bin/ldd"
LIBRARIES = {
    "nccl": ("libcudart.so.12", "libnccl.so.2"),
    "hpl": ("libcudart.so.12", "libcublas.so.12"),
    "nvbandwidth": ("libcuda.so.1", "libnvidia-ml.so.1"),
}
WITH_MPI = ("nccl", "hpl")


def main(machine: Machine, name: str, arguments: t.Sequence[str]) -> int:
    module = TOOLS.get(Path(arguments[-1]).name) if arguments else None
    if module is None or Path(arguments[-1]).resolve().name != "emulate":
        os.execv(REAL, [REAL, *arguments])
    libraries = [*LIBRARIES.get(module, ()), "libc.so.6"]
    if module in WITH_MPI and not machine.faults.get("no_mpi"):
        libraries.insert(0, "libmpi.so.40")
    print("\tlinux-vdso.so.1 (0x00007ffd2b5f2000)")
    for number, library in enumerate(libraries):
        print(f"\t{library} => /lib/x86_64-linux-gnu/{library} (0x00007f{number + 1:04x}00000000)")
    return 0
