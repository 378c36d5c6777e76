# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is remembered of drained nodes, per physical host. No I/O; private.

A machine that comes back from a reboot, or another one that moves to the same host, is not healthy for that. Only proof
(the repair that certifies the node) or time releases it.
"""

from __future__ import annotations

import types
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import Json, finite
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.faults import Fault
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.report import Report
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import nodes as slurm_nodes

_PHYSICAL = ("hardware", "fabric")  # a wrong key or a full disk is no property of a host
_DAY = 86400.0

Index = t.Dict[str, t.List[Json]]


class Memory(t.NamedTuple):
    """Latches by place and check, when nodes were last released, and the reasons of those in a repair."""

    latches: dict[str, Json]
    releases: dict[str, float]
    holds: t.Mapping[str, str] = types.MappingProxyType({})


def place(node: str, host: str) -> str:
    """The physical host; a node that does not know its own stands for itself."""
    return f"host:{host}" if host else f"node:{node}"


def read(document: object) -> Memory:
    """Read what ``write`` made; raises ValueError for anything else."""
    if not isinstance(document, dict) or document.get("schema") != 1:
        raise ValueError("it is not an object of schema 1")
    latches, releases = document.get("latches"), document.get("releases")
    if not isinstance(latches, dict) or not isinstance(releases, dict):
        raise ValueError("it lacks latches or releases")
    for key, item in latches.items():
        words = [item.get(name) if isinstance(item, dict) else None for name in ("place", "node", "check", "cause")]
        if not all(isinstance(word, str) and word for word in words) or finite(item.get("last")) is None:
            raise ValueError(f"latch {key!r} is incomplete")
        beside = item.get("neighbours", [])
        if not isinstance(beside, list) or not all(isinstance(name, str) for name in beside):
            raise ValueError(f"latch {key!r} has neighbours that are no names")
    if any(finite(value) is None for value in releases.values()):
        raise ValueError("a release is not a time")
    holds = document.get("holds", {})
    if not isinstance(holds, dict) or not all(isinstance(reason, str) for reason in holds.values()):
        raise ValueError("a hold is not a reason")
    return Memory(latches, releases, holds)


def write(memory: Memory) -> Json:
    return {"schema": 1, "latches": memory.latches, "releases": memory.releases, "holds": dict(memory.holds)}


def index(memory: Memory) -> Index:
    """The latches of every place, and of every node that was there."""
    found: Index = {}
    for dummy, item in sorted(memory.latches.items()):
        for key in (item["place"], f"last:{item['node']}"):
            found.setdefault(key, []).append(item)
    return found


def hits(known: Index, report: Report, others: t.Mapping[str, Report]) -> list[Fault]:
    """Faults that nothing shows now; a node that has lost the name of its host is taken to be where it was.

    A neighbour on the same host is not to blame while the machine that had the fault still reports from there, nor
    when it is gone: it had another part of the host.
    """
    here = [place(report.node, ""), place(report.node, report.host) if report.host else f"last:{report.node}"]
    items = {id(item): item for key in here for item in known.get(key, [])}
    found = []
    for item in items.values():
        mine = item["node"] == report.node
        if not mine and report.node in item.get("neighbours", []):
            continue
        if mine or item["node"] not in others or place("", others[item["node"]].host) != item["place"]:
            text = item["cause"] if mine else f"{item['cause']}, found on {item['node']}"
            blame = item["class"] if item.get("class") in _PHYSICAL else "hardware"
            found.append(Fault(report.node, item["check"], blame, f"{text}, latched", report.host))
    return found


def latched(memory: Memory, found: t.Iterable[Fault], now: float, reports: t.Mapping[str, Report]) -> Memory:
    """Remember faults of nodes that are being drained, or are drained and show them still; and who was there, too."""
    latches = dict(memory.latches)
    there: dict[str, set[str]] = {}
    for one in reports.values():
        there.setdefault(place(one.node, one.host), set()).add(one.node)
    for fault in found:
        if fault.blame not in _PHYSICAL or fault.record is None:
            continue
        where = place(fault.node, fault.host)
        key = f"{where}|{fault.check}"
        first = latches.get(key, {}).get("first", now)
        beside = {*latches.get(key, {}).get("neighbours", []), *there.get(where, set())} - {fault.node}
        same = {"place": where, "node": fault.node, "check": fault.check, "class": fault.blame, "cause": fault.cause}
        latches[key] = {**same, "neighbours": sorted(beside), "first": first, "last": now}
    return memory._replace(latches=latches)


def expired(memory: Memory, now: float, days: float) -> Memory:
    """Forget what was not seen for so many days."""
    latches = {key: item for key, item in memory.latches.items() if now - item["last"] <= days * _DAY}
    releases = {node: moment for node, moment in memory.releases.items() if now - moment <= days * _DAY}
    return memory._replace(latches=latches, releases=releases)


def held(memory: Memory, nodes: t.Iterable[Json]) -> Memory:
    """Remember what nodes are drained for that a repair resumes; of one that was cut short the first word stands."""
    ours = {
        node["name"]: node["reason"]
        for node in nodes
        if node["drained"] and node["reason"].startswith(slurm_nodes.OWNED)
    }
    return memory._replace(holds={**memory.holds, **ours})


def settled(memory: Memory, nodes: t.Iterable[Json]) -> Memory:
    """Forget the holds of nodes that are drained again and in no repair any more, or that are gone."""
    waiting = {node["name"] for node in nodes if not node["drained"] or "MAINTENANCE" in node["flags"]}
    return memory._replace(holds={name: reason for name, reason in memory.holds.items() if name in waiting})


def unproved(memory: Memory, node: str, host: str) -> list[Fault]:
    """What a node was drained for that a repair resumed and did not prove."""
    check, dummy, cause = memory.holds.get(node, "")[len(slurm_nodes.OWNED) :].partition(":")
    return [Fault(node, check, "hardware", cause, host)] if check else []


def released(memory: Memory, nodes: t.Iterable[str], reports: t.Mapping[str, Report], now: float) -> Memory:
    """Forget what was remembered of proved nodes, where they are now; a host that one has left stays bad."""
    names = set(nodes)
    hosts = {name: reports[name].host if name in reports else "" for name in names}
    here = {place(name, host) for name, host in hosts.items()} | {place(name, "") for name in names}
    lost = {name for name, host in hosts.items() if not host}
    kept = {k: item for k, item in memory.latches.items() if item["place"] not in here and item["node"] not in lost}
    holds = {name: reason for name, reason in memory.holds.items() if name not in names}
    return Memory(kept, {**memory.releases, **dict.fromkeys(names, now)}, holds)
