# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which Slurm a daemon really runs: after an upgrade of packages it is not the one on the disk. Private."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

NAMES = ("slurmdbd", "slurmctld", "slurmd")
SHOW = ["systemctl", "show", "--property", "Id,ActiveState,SubState,MainPID,LoadState"]  # the units' names follow
# SLURM_VERSION_STRING stands alone between zero bytes in every daemon's program, 22.05 to 26.05.
_CONSTANT = re.compile(rb"\0(\d\d\.\d\d\.\d[\w.-]{0,10})\0")


class Daemon(t.NamedTuple):
    """``runs`` is the version in memory, empty when it does not run or cannot be told."""

    there: bool
    active: bool
    runs: str


def units(text: str) -> dict[str, dict[str, str]]:
    """Read what ``systemctl show`` printed of several units."""
    blocks = (dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in text.split("\n\n"))
    return {block["Id"].partition(".")[0]: block for block in blocks if "Id" in block}


def constant(program: bytes) -> str:
    """The version that a daemon's program was built as; empty unless there is exactly one."""
    found = set(_CONSTANT.findall(program))
    return next(iter(found)).decode() if len(found) == 1 else ""


def seen(
    text: str, read: t.Callable[[str], bytes] = lambda pid: Path(f"/proc/{pid}/exe").read_bytes()
) -> dict[str, Daemon]:
    """Every daemon of this host. The program of a running process can be read even when its file was replaced."""
    found = {}
    for name, unit in units(text).items():
        pid, there = unit.get("MainPID", "0"), unit.get("LoadState") == "loaded"
        runs = ""
        if pid != "0":
            try:
                runs = constant(read(pid))
            except OSError:  # it has just ended
                pid = "0"
        found[name] = Daemon(
            there, pid != "0" and unit.get("ActiveState") in ("active", "activating", "reloading"), runs
        )
    return found
