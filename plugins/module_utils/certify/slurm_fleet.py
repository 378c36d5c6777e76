# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fleet that is certified, as Slurm describes it. Pure, private, stdlib only."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import HostlistError, compress, expand
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SlurmError, fields

# Ours inside its own reservation; anybody else's node in one is not free.
_RESERVED = {"RESERVED", "MAINTENANCE", "MAINT"}
_FREE = {"CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE", "COMPLETING", "PLANNED"}
_STATES = (
    ({"DRAIN", "FAIL", "INVALID_REG", "BLOCKED"}, "drained"),
    ({"NOT_RESPONDING"}, "down"),
    ({"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "POWERING_UP", "POWER_UP"}, "powered_down"),
    ({"REBOOT_ISSUED", "REBOOT_REQUESTED", "REBOOT"}, "rebooting"),
)


def state(node: Json, reservation: bool = False) -> str:
    """Return idle, or why a node takes part in nothing."""
    flags = set(node["flags"]) - _FREE - (_RESERVED if reservation else set())
    for among, word in _STATES:
        if flags & among:
            return word
    if node["state"] in ("ALLOCATED", "MIXED"):
        return "busy"
    if node["state"] != "IDLE":
        return str(node["state"]).lower()
    return "reserved" if flags & _RESERVED else "idle" if not flags else "_".join(sorted(flags)).lower()


def mute(node: Json) -> bool:
    """Say whether Slurm itself has asked a node in vain."""
    return "NOT_RESPONDING" in node["flags"]


def wanted(nodes: t.Sequence[Json], hosts: str, partition: Json | None) -> list[Json]:
    """Return the named nodes, or those of the partition; each once."""
    known = {node["name"]: node for node in nodes}
    try:
        names = expand(hosts) if hosts else partition["nodes"] if partition else list(known)
    except HostlistError as exc:
        raise SlurmError(str(exc)) from exc
    missing = [name for name in dict.fromkeys(names) if name not in known]
    if missing:
        raise SlurmError(f"Slurm does not know {compress(missing)}; it knows {compress(list(known), sort=True)}")
    if not names:
        raise SlurmError("there is no node to certify")
    there = set(partition["nodes"] if partition else names)
    outside = [name for name in dict.fromkeys(names) if name not in there]
    if outside:
        raise SlurmError(f"partition {(partition or {}).get('name')} does not have {compress(outside, sort=True)}")
    return [known[name] for name in dict.fromkeys(names)]


def partition_of(partitions: t.Sequence[Json], name: str) -> Json | None:
    """Return the partition that jobs go to, None where Slurm has no default."""
    found = [one for one in partitions if (one["name"] == name if name else one["default"])]
    if name and not found:
        raise SlurmError(f"Slurm has no partition {name}; it has {', '.join(one['name'] for one in partitions)}")
    return found[0] if found else None


def places(text: str) -> dict[str, dict[str, str]]:
    """Return leaf and pod per node from what scontrol show topology prints; nothing where there is no tree."""
    switches = []
    for line in text.splitlines():
        found = fields(line)
        if line.startswith("SwitchName=") and found.get("Level", "").isdigit():
            switches.append((int(found["Level"]), found["SwitchName"], expand(found.get("Nodes", ""))))
    leaf = {name: switch for level, switch, names in switches if level == 0 for name in names}
    pod = {name: switch for level, switch, names in switches if level == 1 for name in names}
    return {name: {"leaf": leaf[name], "pod": pod.get(name, "")} for name in leaf}


def fleet(
    nodes: t.Sequence[Json],
    where: t.Mapping[str, t.Mapping[str, str]],
    suspicion: t.Mapping[str, float],
    reservation: bool = False,
) -> list[Json]:
    """Return the nodes as the planner takes them."""
    blank = {"leaf": "", "pod": "", "physical_host": ""}
    return [
        {
            **blank,
            **where.get(node["name"], {}),
            "name": node["name"],
            "state": state(node, reservation),
            "reason": node.get("reason") or _silence(node),
            "suspicion": suspicion.get(node["name"], 0.0),
        }
        for node in nodes
    ]


def _silence(node: Json) -> str:
    if node["state"] == "UNKNOWN":
        return "its slurmd never registered"
    return "its slurmd does not answer, or has another munge key" if mute(node) else ""


def history(certificates: t.Sequence[t.Any]) -> dict[str, float]:
    """Return how far earlier certificates, the newest last, suspect a node that none has cleared since."""
    found: dict[str, float] = {}
    for one in certificates:
        nodes = one.get("nodes") if isinstance(one, dict) else None
        for name, verdict in (nodes or {}).items() if isinstance(nodes, dict) else []:
            status = verdict.get("status") if isinstance(verdict, dict) else None
            if status == "cleared":
                found.pop(name, None)
            elif status in ("watched", "drained"):
                posterior = verdict.get("posterior")
                number = isinstance(posterior, (int, float)) and not isinstance(posterior, bool)
                found[name] = min(1.0, max(0.0, float(posterior))) if number else 0.5
    return found
