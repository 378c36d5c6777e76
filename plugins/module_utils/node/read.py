# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How checks read the node that they run on, and what they read as numbers. Private, stdlib only, in the agent too."""

from __future__ import annotations

import re
import shutil
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, run

# Files and programs of the node.


Runner = t.Callable[..., Outcome]


class BrokenError(Exception):
    """The check could not measure."""


class NodeAccess:
    """How checks read files and run programs of the node; tests put another one in its place."""

    def __init__(self, timeout: float, runner: Runner = run) -> None:
        self.timeout, self._run = timeout, runner

    def read(self, path: str) -> str:
        return Path(path).read_text()

    def exists(self, path: str) -> bool:
        return not self.ask(["test", "-e", path]).rc

    def now(self) -> float:
        return time.time()

    def ask(self, argv: t.Sequence[str], data: str | None = None) -> Outcome:
        """Run a program whose exit status is an answer; one that gives none is broken."""
        path = shutil.which(argv[0], path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        if path is None:
            raise BrokenError(f"{argv[0]} is not installed")
        outcome = self._run([path, *argv[1:]], self.timeout, data)
        if outcome.rc is None:
            raise BrokenError(outcome.problem)
        return outcome

    def get(self, argv: t.Sequence[str], data: str | None = None) -> str:
        """Run a program that has to succeed."""
        outcome = self.ask(argv, data)
        if outcome.problem:
            raise BrokenError(f"{' '.join(argv)}: {outcome.problem}")
        return outcome.out


# What files and programs print, as numbers. Pure.


# States in which Slurm gives a node no new work. "*" (not responding) is a suffix of its own.
_DOWN = {"DOWN", "FAIL", "FAILING", "ERROR", "INVAL", "UNKNOWN", "NOT_RESPONDING", "NO_RESPOND", "FUTURE"}
_HELD = {"DRAIN", "DRAINED", "DRAINING", "MAINT", "REBOOT", "REBOOT_ISSUED", "REBOOT_REQUESTED", "RESERVED", "PLANNED"}


class FactError(ValueError):
    """The text is not what the tool prints; fit for the user."""


def cpus(text: str) -> int:
    """Count the processors in a kernel CPU list such as ``0-3,8``."""
    total = 0
    for part in text.strip().split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if not match:
            raise FactError(f"{text.strip()!r} is no CPU list")
        first, last = match.groups()
        total += int(last or first) - int(first) + 1
    return total


def disk(text: str) -> dict[str, int]:
    """Read size and free bytes from ``df -P --block-size=1``."""
    lines = text.strip().splitlines()
    match = re.search(r"\s(\d+)\s+\d+\s+(\d+)\s+(?:\d+%|-)\s", f"{lines[-1]} ") if len(lines) == 2 else None
    if not match:
        raise FactError(f"df printed {text.strip()[-200:]!r}")
    return {"size": int(match.group(1)), "free": int(match.group(2))}


def node_state(text: str) -> dict[str, str]:
    """Read state and reason of one node from ``scontrol show node --oneliner``."""
    state = re.search(r"(?:^|\s)State=(\S+)", text)
    if not state:
        raise FactError(f"scontrol printed {text.strip()[-200:]!r}")
    reason = re.search(r"\sReason=(.*?)(?:\s\[[^\]]*\])?(?:\s\w+=|\s*$)", text)
    return {"state": state.group(1), "reason": reason.group(1).strip() if reason else ""}


def usable(state: str) -> str:
    """Judge a node state: pass, warn when it is held back on purpose, fail when Slurm cannot use it."""
    parts = set(re.sub(r"[*~#!%$@^-]+$", "", state).upper().split("+"))
    if state.endswith("*") or parts & _DOWN:
        return "fail"
    return "warn" if parts & _HELD else "pass"


def munge_status(text: str) -> str:
    """Return the status that unmunge printed, such as ``Success (0)``."""
    match = re.search(r"^STATUS:\s+(.*?)\s*$", text, re.MULTILINE)
    if not match:
        raise FactError(f"unmunge printed {text.strip()[-200:]!r}")
    return match.group(1)


def meminfo(text: str) -> dict[str, int]:
    """Read total and available bytes from /proc/meminfo."""
    sizes = {key: int(value) * 1024 for key, value in re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)}
    try:
        return {"total": sizes["MemTotal"], "available": sizes["MemAvailable"]}
    except KeyError as exc:
        raise FactError(f"meminfo has no {exc.args[0]}") from exc
