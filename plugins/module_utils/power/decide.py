# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong between the cloud and Slurm, and what to do about it. No I/O; private."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.power.provider import STOPPED, STOPPING

PREFIX = "hpcai:power:"
LATE = "ResumeTimeout reached"
# What Slurm itself says of a node that is not there; with the instance gone, a new one is worth a try.
_SLURM_SAYS = (LATE, "Not responding")
_LENGTH = 160
_OFF = {"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN"}
_ON_ITS_WAY = {"POWERING_UP", "POWER_UP", "RESUME", "REBOOT_ISSUED", "REBOOT_REQUESTED"}

Record = t.Mapping[str, t.Any]


class Decision(t.NamedTuple):
    """``stray``: instances to delete. ``gone``: nodes whose instance is no more, with what the cloud says of it.

    ``off``: nodes that failed and that Slurm still counts as switched on. ``back``: nodes to be tried again.
    """

    stray: list[str]
    gone: dict[str, str]
    off: list[str]
    back: list[str]


def worded(cause: str) -> str:
    """Say it as the reason of a node: marked as ours, one line, not too long, without what Slurm's text cannot hold."""
    text = " ".join(re.sub(r"[^\x20-\x7e]|[\[\]\"'`\\]", " ", cause).split())
    return f"{PREFIX}{text if len(text) <= _LENGTH else text[: _LENGTH - 3] + '...'}"


def ours(node: Record) -> bool:
    """Whether we set the node's reason; a person's reason, or a drain, is never touched."""
    return str(node["reason"] or "").startswith(PREFIX) and not node["drained"]


def _worth_a_try(node: Record, now: float) -> bool:
    """Whether a node that failed is switched off and has waited long enough."""
    nobody_s = ours(node) or (node["reason"] in _SLURM_SAYS and not node["drained"])
    return nobody_s and "POWERED_DOWN" in _flags(node) and node.get("retry", 0.0) <= now


def decide(nodes: t.Sequence[Record], instances: t.Mapping[str, str], mine: t.Container[str], now: float) -> Decision:
    """Compare; ``mine`` are the nodes that we may create, and ``retry`` of a node is when it may be tried again."""
    every = {node["name"]: node for node in nodes}
    known = {name: node for name, node in every.items() if name in mine}
    # A node that left the configuration may have a job still.
    stray = [name for name, state in instances.items() if state != STOPPING and _unwanted(every.get(name), now)]
    gone = {
        name: f"its instance is {instances.get(name, 'gone')}"
        for name, node in known.items()
        if _counted_on(node) and instances.get(name, STOPPED) in (STOPPED, STOPPING)
    }
    down = [node for node in known.values() if node["state"] == "DOWN"]
    off = [node["name"] for node in down if ours(node) and not _flags(node) & _OFF]
    back = [node["name"] for node in down if _worth_a_try(node, now)]
    return Decision(sorted(stray), gone, off, back)


def _flags(node: Record) -> set[str]:
    return set(node["flags"])


def _unwanted(node: Record | None, now: float) -> bool:
    """Whether no node of Slurm's stands for an instance; a failed one that Slurm does not count on is none."""
    if node is None:
        return True
    if node["reason"] == LATE and node.get("retry", 0.0) > now:
        return False  # ResumeFailProgram has it in hand, and looks at the instance first
    return bool(_flags(node) & {"POWERED_DOWN"}) and not _flags(node) & _ON_ITS_WAY


def _counted_on(node: Record) -> bool:
    """Whether Slurm believes that the node's instance runs; a drained one is its administrator's affair."""
    return not _flags(node) & (_OFF | _ON_ITS_WAY) and not ours(node) and not node["drained"]
