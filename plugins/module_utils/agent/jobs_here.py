# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which jobs run on this node, from its processes: no command of Slurm is asked. Private, stdlib only."""

from __future__ import annotations

import os
import re
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.reach import listed, text

# The daemon of each step calls itself so; "slurmstepd infinity" only keeps a cgroup.
_STEP = re.compile(r"slurmstepd: \[(\d{1,12})\b")
_CGROUP = re.compile(r"/job_(\d{1,12})(?:/|$)", re.MULTILINE)
_UID = re.compile(r"^Uid:\s+(\d+)", re.MULTILINE)
_STATE = re.compile(r"^State:\s+(\S)", re.MULTILINE)
# In uninterruptible sleep, and a child of init, for whoever started it has gone. Its command line could not be read.
_STAT = re.compile(r"(\d{1,12}) \((.{1,64})\) D 1 ")
_NOBODY = 4294967295


class Process(t.NamedTuple):
    """A process. ``login`` is the user who logged in to start it, ``job`` the job whose cgroup it is in."""

    pid: int
    uid: int
    login: int | None
    job: str
    state: str
    group: str
    command: str


def processes(proc: str | Path) -> list[Process]:
    """Return all processes; one that ends meanwhile is none."""
    found = (_process(path) for path in listed(proc, "[0-9]*") if path.name.isdigit())
    return [process for process in found if process]


def _process(path: Path) -> Process | None:
    status = text(path / "status")
    if not status:
        return None
    uid, state = _UID.search(status), _STATE.search(status)
    if uid is None:
        return None
    group = text(path / "cgroup") or ""
    job = _CGROUP.search(group)
    command = (text(path / "cmdline") or "").replace("\0", " ").strip()
    return Process(
        int(path.name),
        int(uid.group(1)),
        _login(text(path / "loginuid")),
        job.group(1) if job else "",
        state.group(1) if state else "",
        group,
        command,
    )


def _login(found: str | None) -> int | None:
    """Daemons have no login: the kernel writes the largest number for it."""
    number = int(found) if found and found.isascii() and found.isdigit() else _NOBODY
    return None if number >= _NOBODY else number


def hung(proc: str | Path, name: str) -> list[int]:
    """Return the programs that earlier checks left behind in the kernel, which no signal ends."""
    found = (_STAT.match(text(path / "stat") or "") for path in listed(proc, "[0-9]*"))
    return [int(one.group(1)) for one in found if one and one.group(2) == name]


def jobs(every: t.Iterable[Process]) -> set[str]:
    """Return the jobs that have a step here."""
    matches = (_STEP.match(process.command) for process in every if process.uid == 0)
    return {match.group(1) for match in matches if match}


def ended(suite: str, environment: t.Mapping[str, str] | None = None) -> set[str]:
    """Return the job whose epilog this is; its steps have ended, even where their daemons have not yet."""
    known = os.environ if environment is None else environment
    job = known.get("SLURM_JOB_ID", "") if suite == "epilog" else ""
    return {job} if job else set()
