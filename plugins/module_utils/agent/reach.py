# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the agent's own checks touch the node: its files, its programs, and its users' rights. Private, stdlib only."""

from __future__ import annotations

import contextlib
import os
import pwd
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import Outcome, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Context
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node.access import BrokenError, Node

TIMEOUT = 5.0
# A kernel log or a file of sysfs that is larger than this is none.
LARGEST = 16 << 20


class Reach:
    """The node below the roots that the configuration names; tests give another way to run programs."""

    def __init__(self, sysfs: str, proc: str, runner: t.Callable[..., Outcome] = run) -> None:
        self.sysfs, self.proc, self._runner = Path(sysfs), Path(proc), runner

    def ask(self, argv: t.Sequence[str], data: str | None = None, seconds: float = TIMEOUT) -> Outcome:
        """Run a program whose exit status is an answer; one that is absent or hangs raises BrokenError."""
        return Node(seconds, self._runner).ask(argv, data)

    def get(self, argv: t.Sequence[str], seconds: float = TIMEOUT) -> str:
        """Run a program that has to succeed and to say something."""
        outcome = self.ask(argv, None, seconds)
        if outcome.problem or not outcome.out.strip():
            raise BrokenError(f"{' '.join(argv)}: {outcome.problem or 'no output'}")
        return outcome.out


def reach(context: Context) -> Reach:
    """Return the way to the node that all checks of a suite share."""
    config = context.config
    return t.cast(Reach, context.once("reach", lambda: Reach(config.sysfs, config.proc)))


def text(path: str | Path) -> str | None:
    """Return what a small file holds, None where it is not there; parts of sysfs refuse to be read."""
    try:
        with Path(path).open("rb") as file:
            return file.read(LARGEST).decode(errors="replace").strip()
    except OSError:
        return None


def needed(path: str | Path) -> str:
    """Return what a file holds that every system has."""
    found = text(path)
    if not found:
        raise BrokenError(f"{path} cannot be read or is empty")
    return found


def number(path: str | Path) -> int | None:
    """Return the whole number in a file, None for everything else."""
    found = text(path) or ""
    return int(found) if found.isascii() and found.isdigit() and len(found) < 20 else None


def listed(folder: str | Path, pattern: str = "*") -> list[Path]:
    """Return what is in a directory, nothing where there is none."""
    try:
        return sorted(Path(folder).glob(pattern))
    except OSError:
        return []


@contextlib.contextmanager
def acting_as(user: str) -> t.Iterator[None]:
    """Do as another user: file servers take root for nobody. Without being root this changes nothing."""
    if not user or os.geteuid() != 0:
        yield
        return
    try:
        entry = pwd.getpwnam(user)
    except KeyError as exc:
        raise BrokenError(f"there is no user {user}") from exc
    groups = os.getgroups()
    try:
        os.initgroups(user, entry.pw_gid)
        os.setegid(entry.pw_gid)
        os.seteuid(entry.pw_uid)
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)
