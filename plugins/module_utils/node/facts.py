# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What node checks read, as numbers: parsers of files and command output. Pure, private."""

from __future__ import annotations

import re

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
