# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes to drain or resume, without touching what a person decided. No I/O; private to this collection."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import compress
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SlurmError

OWNED = "hpcai:"
_FORM = re.compile(r"hpcai:[a-z0-9][a-z0-9_-]*:(\S|\S.*[^\s\"])")  # scontrol takes away a quote at the end
_MAX_REASON = 200
# What Slurm says when it drains a node by itself: nobody's decision, so a repair may take it over.
SLURMS_OWN = (
    "Duplicate jobid",
    "Epilog error",
    "Kill task failed",
    "Prolog error",
    "SlurmdSpoolDir is full",
    "batch job complete failure",
)


class Change(t.NamedTuple):
    """One node's way to the wanted state."""

    name: str
    state: str
    reason: str


class Plan(t.NamedTuple):
    """What to do, and what to leave because somebody else decided it."""

    changes: list[Change]
    left_alone: list[dict[str, t.Any]]


def check_reason(reason: str) -> None:
    if not _FORM.fullmatch(reason) or len(reason) > _MAX_REASON:
        raise SlurmError(
            f"reason {reason!r} must be hpcai:<check>:<short cause> in one line of at most {_MAX_REASON} characters,"
            " for example 'hpcai:munge:key differs'"
        )


def pick(nodes: list[dict[str, t.Any]], names: list[str]) -> list[dict[str, t.Any]]:
    """Return the named nodes in the order of the names."""
    known = {node["name"]: node for node in nodes}
    missing = [name for name in names if name not in known]
    if missing:
        raise SlurmError(
            f"Slurm does not know {compress(missing)}; it knows {compress(list(known), sort=True) or 'no node'}"
        )
    return [known[name] for name in dict.fromkeys(names)]


def plan(nodes: list[dict[str, t.Any]], state: str, reason: str, replace: t.Sequence[str] = ()) -> Plan:
    """For ``resumed`` the reason, if any, limits which of our own drains are lifted.

    A drain may also ``replace`` reasons that are not ours.
    """
    decide = _drain if state == "drained" else _resume
    replaced = replace if state == "drained" else ()
    changes: list[Change] = []
    left: list[dict[str, t.Any]] = []
    for node in nodes:
        taken = node["reason"] in replaced
        found = Change(node["name"], "drain", reason) if taken else decide(node, reason)
        if found:
            changes.append(found)
        elif _foreign(node) and (state == "drained" or out_of_service(node)):
            left.append({key: node[key] for key in ("name", "state", "flags", "reason", "reason_user")})
    return Plan(changes, left)


def _foreign(node: dict[str, t.Any]) -> bool:
    """Somebody else gave the reason, even if only as a note on a working node, or drained it without one."""
    if node["reason"]:
        return not node["reason"].startswith(OWNED)
    return bool({"DRAIN", "FAIL"} & set(node["flags"]))


def out_of_service(node: dict[str, t.Any]) -> bool:
    """Somebody, or Slurm itself, keeps new jobs away from the node."""
    return node["state"] == "DOWN" or bool({"DRAIN", "FAIL"} & set(node["flags"]))


def _drain(node: dict[str, t.Any], reason: str) -> Change | None:
    if _foreign(node) or (node["drained"] and node["reason"] == reason):
        return None
    return Change(node["name"], "drain", reason)


def _resume(node: dict[str, t.Any], reason: str) -> Change | None:
    """Slurm's ``resume`` would also bring back a node that is down for another cause; ``undrain`` does not."""
    owned = node["drained"] and node["reason"].startswith(OWNED) and node["reason"].startswith(reason)
    return Change(node["name"], "undrain", "") if owned else None


def commands(changes: list[Change]) -> list[list[str]]:
    """One scontrol call per target state and reason, however many nodes."""
    groups: dict[tuple[str, str], list[str]] = {}
    for change in changes:
        groups.setdefault((change.state, change.reason), []).append(change.name)
    return [
        ["scontrol", "update", f"nodename={compress(names, sort=True)}", f"state={state}"]
        + ([f"reason={reason}"] if reason else [])
        for (state, reason), names in groups.items()
    ]


def after(nodes: list[dict[str, t.Any]], changes: list[Change]) -> list[dict[str, t.Any]]:
    """The nodes as they will be; what only Slurm can know (who, when) is left out."""
    wanted = {change.name: change for change in changes}
    return [_after(node, wanted.get(node["name"])) for node in nodes]


def _after(node: dict[str, t.Any], change: Change | None) -> dict[str, t.Any]:
    if change is None:
        return node
    drained = change.state == "drain"
    flags = set(node["flags"]) - {"DRAIN"} | ({"DRAIN"} if drained else set())
    unknown = {"reason_user": None, "reason_time": None, "available": False if drained else None}
    # Slurm keeps the reason of a node that is down until it is up again.
    reason = node["reason"] if node["state"] == "DOWN" and not drained else change.reason
    return {**node, **unknown, "flags": sorted(flags), "drained": drained, "reason": reason}


def short(nodes: list[dict[str, t.Any]]) -> dict[str, t.Any]:
    """What a diff shows."""
    return {node["name"]: {"drained": node["drained"], "reason": node["reason"]} for node in nodes}
