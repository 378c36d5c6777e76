# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which records are a reason to drain a node, and what is remembered of drained hosts. No I/O."""

from __future__ import annotations

import re
import types
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, finite
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.request import Report
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import nodes as slurm_nodes
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.nodes import REASON_PREFIX

# Which records of a node are a reason to drain it, and the short words for it. No I/O; private.


# The worst first; an error of the infrastructure is a finding and says nothing about the node.
_BLAMES = ("hardware", "fabric", "software", "config")
_ACTIONS = ("isolate", "reboot", "reset")
_LONGEST = 120  # of the 200 characters that slurm.nodes.check_reason allows
_MANY = 3


class DrainFault(t.NamedTuple):
    """Why one node should be drained."""

    node: str
    check: str
    blame: str
    cause: str
    host: str = ""
    suite: str = ""
    record: Json | None = None  # None: nothing shows now, but a latch remembers

    @property
    def reason(self) -> str:
        return f"{REASON_PREFIX}{self.check}:{self.cause}"


def faults(report: Report, stale: float, since: float = 0.0) -> list[DrainFault]:
    """Return what a node fails in, the worst first."""
    found = [
        DrainFault(report.node, item["check"], item["class"], cause(item), report.host, suite(item), dict(item))
        for item in current(report, stale, since)
        if item["verdict"] == "fail" and item["class"] in _BLAMES and not monitored(item)
    ]
    return sorted(found, key=_badness)


def current(report: Report, stale: float, since: float = 0.0) -> list[Json]:
    """Return the records that tell of now; what was found before ``since`` has been repaired.

    One of long ago (of the last boot, say) counts only if it is latched: else nobody knows whether it still holds.
    """
    found = []
    for item in report.records:
        age = max(0.0, report.time - item["time"])  # of one clock, however wrong it is
        latched = (item.get("context") or {}).get("latched") is True
        if (age <= stale or latched) and report.written - age > since:
            found.append(item)
    return found


def monitored(item: Json) -> bool:
    """Some failures are watched and take no node from its jobs."""
    return (item.get("context") or {}).get("action") == "monitor"


def _badness(fault: DrainFault) -> tuple[int, int, str, str]:
    action = ((fault.record or {}).get("context") or {}).get("action")
    rank = _ACTIONS.index(action) if action in _ACTIONS else len(_ACTIONS)
    return _BLAMES.index(fault.blame), rank, fault.check, fault.cause


def suite(item: Json) -> str:
    """The suite that made a record."""
    named = (item.get("context") or {}).get("suite") or item.get("run") or ""
    return str(named)


def cause(item: Json) -> str:
    """A few words without the numbers of one node, so that nodes with one fault share one reason, and one call."""
    context = item.get("context") or {}
    code, action = context.get("code"), context.get("action")
    metrics = item.get("metrics")
    listed = metrics if isinstance(metrics, list) else []
    missed = [m for m in listed if isinstance(m, dict) and m.get("verdict") == "fail"]
    if isinstance(code, (str, int)) and not isinstance(code, bool) and code != "":
        text = f"code {code}" + (f", {action}" if action in _ACTIONS else "")
    elif missed:
        text = ", ".join(dict.fromkeys(_missed(m) for m in missed))
    else:
        text = re.split(r"[;\n]", item["reason"])[0]
    return words(text) or f"{item['class']} fault"


def _missed(item: Json) -> str:
    """Of the labels only the path says the same on all nodes."""
    where = f" of {item['path']}" if isinstance(item.get("path"), str) else ""
    return f"{item.get('name')}{where} not {item.get('expected')} {item.get('unit') or ''}".rstrip()


def words(text: str) -> str:
    """What scontrol takes in one line and gives back unchanged."""
    plain = re.sub(r"[^ -~]", "?", re.sub(r"\s+", " ", text))
    plain = re.sub(r"[\"'`\\\[\]]", "", plain).strip()
    return plain if len(plain) <= _LONGEST else f"{plain[: _LONGEST - 4].rstrip()} ..."


def merge(found: t.Iterable[DrainFault]) -> dict[str, DrainFault]:
    """One fault per node; a check with many different causes gets one reason, for each reason is a call."""
    picked = {fault.node: fault for fault in found}
    causes: dict[str, set[str]] = {}
    for fault in picked.values():
        causes.setdefault(fault.check, set()).add(fault.cause)
    return {
        node: fault._replace(cause=f"{fault.blame} fault, see drains.jsonl")
        if len(causes[fault.check]) > _MANY
        else fault
        for node, fault in picked.items()
    }


# What is remembered of drained nodes, per physical host. No I/O; private.


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


def hits(known: Index, report: Report, others: t.Mapping[str, Report]) -> list[DrainFault]:
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
            found.append(DrainFault(report.node, item["check"], blame, f"{text}, latched", report.host))
    return found


def latched(memory: Memory, found: t.Iterable[DrainFault], now: float, reports: t.Mapping[str, Report]) -> Memory:
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
        if node["drained"] and node["reason"].startswith(slurm_nodes.REASON_PREFIX)
    }
    return memory._replace(holds={**memory.holds, **ours})


def settled(memory: Memory, nodes: t.Iterable[Json]) -> Memory:
    """Forget the holds of nodes that are drained again and in no repair any more, or that are gone."""
    waiting = {node["name"] for node in nodes if not node["drained"] or "MAINTENANCE" in node["flags"]}
    return memory._replace(holds={name: reason for name, reason in memory.holds.items() if name in waiting})


def unproved(memory: Memory, node: str, host: str) -> list[DrainFault]:
    """What a node was drained for that a repair resumed and did not prove."""
    check, dummy, cause = memory.holds.get(node, "")[len(slurm_nodes.REASON_PREFIX) :].partition(":")
    return [DrainFault(node, check, "hardware", cause, host)] if check else []


def released(memory: Memory, nodes: t.Iterable[str], reports: t.Mapping[str, Report], now: float) -> Memory:
    """Forget what was remembered of proved nodes, where they are now; a host that one has left stays bad."""
    names = set(nodes)
    hosts = {name: reports[name].host if name in reports else "" for name in names}
    here = {place(name, host) for name, host in hosts.items()} | {place(name, "") for name in names}
    lost = {name for name, host in hosts.items() if not host}
    kept = {k: item for k, item in memory.latches.items() if item["place"] not in here and item["node"] not in lost}
    holds = {name: reason for name, reason in memory.holds.items() if name not in names}
    return Memory(kept, {**memory.releases, **dict.fromkeys(names, now)}, holds)
