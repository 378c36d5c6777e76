# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who uses environments, as far as this host and Slurm can tell. Reads only, private."""

from __future__ import annotations

import contextlib
import os
import re
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import Outcome, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.python_env_plan import Use

_STATES = "RUNNING,SUSPENDED,COMPLETING,CONFIGURING"
_ARGV = ["squeue", "--all", "--noheader", f"--states={_STATES}", "--format=%S"]


def read(envs: str, names: t.Collection[str], proc: str = "/proc") -> Use:
    oldest, unknown = jobs(run(_ARGV, 60.0))
    return Use(processes(envs, names, proc), oldest, unknown)


def processes(envs: str, names: t.Collection[str], proc: str) -> dict[str, list[int]]:
    """Return processes of this host that run or mention an environment; the owner may not see all of another user's."""
    found: dict[str, list[int]] = {}
    # The kernel names mapped files by their real path, a command line may name the link.
    places = sorted({envs, os.path.realpath(envs)})
    pattern = re.compile(rf"(?:{'|'.join(map(re.escape, places))})/([^/\s\0:]+)")
    for folder in Path(proc).iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        for name in set(pattern.findall(_said(folder))) & set(names):
            found.setdefault(name, []).append(int(folder.name))
    return found


def _said(folder: Path) -> str:
    said = []
    for link in ("exe", "cwd"):
        with contextlib.suppress(OSError):
            said.append(os.readlink(folder / link))
    for file in ("cmdline", "maps", "environ"):
        with contextlib.suppress(OSError):
            said.append((folder / file).read_bytes().decode(errors="replace"))
    return "\n".join(said)


def jobs(outcome: Outcome) -> tuple[float | None, str]:
    """Return when the oldest running job started, or why nobody knows."""
    if outcome.rc != 0:
        return None, f"squeue says: {outcome.problem or outcome.err.strip()}"
    times = []
    for line in outcome.out.split():
        try:
            times.append(time.mktime(time.strptime(line, "%Y-%m-%dT%H:%M:%S")))
        except ValueError:
            return None, f"squeue gives the start of a job as {line}"
    return min(times, default=None), ""
