# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which records are a reason to drain a node, and the latches of physical hosts. No I/O."""

from __future__ import annotations

import collections
import re
import types
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, finite
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.request import Report
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import nodes as slurm_nodes
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.nodes import REASON_PREFIX

# Which records of a node are a reason to drain it, and their short text. No I/O.


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
    record: Json | None = None  # None for a fault that only a latch shows

    @property
    def reason(self) -> str:
        return f"{REASON_PREFIX}{self.check}:{self.cause}"


def faults(report: Report, stale: float, since: float = 0.0) -> list[DrainFault]:
    """Return the faults that a node's records show, the worst first."""
    failures = [
        DrainFault(
            report.node, record["check"], record["class"], cause(record), report.host, suite(record), dict(record)
        )
        for record in current(report, stale, since)
        if record["verdict"] == "fail" and record["class"] in _BLAMES and not monitored(record)
    ]
    return sorted(failures, key=_badness)


def current(report: Report, stale: float, since: float = 0.0) -> list[Json]:
    """Return the records that hold now; those from before ``since`` have been repaired.

    One of long ago (of the last boot, say) counts only if it is latched: else nobody knows whether it still holds.
    """
    records = []
    for record in report.records:
        age = max(0.0, report.time - record["time"])  # of one clock, however wrong it is
        latched = (record.get("context") or {}).get("latched") is True
        if (age <= stale or latched) and report.written - age > since:
            records.append(record)
    return records


def monitored(record: Json) -> bool:
    """Say whether a failure is only to be watched, and drains nobody."""
    return (record.get("context") or {}).get("action") == "monitor"


def _badness(fault: DrainFault) -> tuple[int, int, str, str]:
    action = ((fault.record or {}).get("context") or {}).get("action")
    rank = _ACTIONS.index(action) if action in _ACTIONS else len(_ACTIONS)
    return _BLAMES.index(fault.blame), rank, fault.check, fault.cause


def suite(record: Json) -> str:
    """Return the suite that made a record."""
    named = (record.get("context") or {}).get("suite") or record.get("run") or ""
    return str(named)


def cause(record: Json) -> str:
    """Return a few words without the numbers of one node, so that nodes with one fault share a reason and a call."""
    context = record.get("context") or {}
    code, action = context.get("code"), context.get("action")
    metrics = record.get("metrics")
    listed = metrics if isinstance(metrics, list) else []
    missed = [m for m in listed if isinstance(m, dict) and m.get("verdict") == "fail"]
    if isinstance(code, (str, int)) and not isinstance(code, bool) and code != "":
        text = f"code {code}" + (f", {action}" if action in _ACTIONS else "")
    elif missed:
        text = ", ".join(dict.fromkeys(_missed(m) for m in missed))
    else:
        text = re.split(r"[;\n]", record["reason"])[0]
    return words(text) or f"{record['class']} fault"


def _missed(metric: Json) -> str:
    """Return the limit that was missed; of the labels only the path, which is the same on all nodes."""
    where = f" of {metric['path']}" if isinstance(metric.get("path"), str) else ""
    return f"{metric.get('name')}{where} not {metric.get('expected')} {metric.get('unit') or ''}".rstrip()


def words(text: str) -> str:
    """Return the text as scontrol takes it in one line and gives it back unchanged."""
    plain = re.sub(r"[^ -~]", "?", re.sub(r"\s+", " ", text))
    plain = re.sub(r"[\"'`\\\[\]]", "", plain).strip()
    return plain if len(plain) <= _LONGEST else f"{plain[: _LONGEST - 4].rstrip()} ..."


def merge(faults: t.Iterable[DrainFault]) -> dict[str, DrainFault]:
    """Return one fault per node; a check with many different causes gets one reason, as each reason is a call."""
    picked = {fault.node: fault for fault in faults}
    causes: dict[str, set[str]] = {}
    for fault in picked.values():
        causes.setdefault(fault.check, set()).add(fault.cause)
    return {
        node: fault._replace(cause=f"{fault.blame} fault, see drains.jsonl")
        if len(causes[fault.check]) > _MANY
        else fault
        for node, fault in picked.items()
    }


# Latches, releases and holds: what is remembered of drained nodes, by physical host. No I/O.


_PHYSICAL = ("hardware", "fabric")  # a wrong key or a full disk is no property of a host
_DAY = 86400.0
# A node names its checks and its host by itself, so what is remembered of one has an end; the agent has 50 checks.
MOST = 64

Index = t.Dict[str, t.List[Json]]


class Memory(t.NamedTuple):
    """Latches by place and check, when nodes were last released, and the reasons of those in a repair."""

    latches: dict[str, Json]
    releases: dict[str, float]
    holds: t.Mapping[str, str] = types.MappingProxyType({})


def host_key(node: str, host: str) -> str:
    """Return the key of a physical host; a node that does not know its host has its own."""
    return f"host:{host}" if host else f"node:{node}"


def read(document: object) -> Memory:
    """Return the memory from a document that write() made; raises ValueError for anything else."""
    if not isinstance(document, dict) or document.get("schema") != 1:
        raise ValueError("it is not an object of schema 1")
    latches, releases = document.get("latches"), document.get("releases")
    if not isinstance(latches, dict) or not isinstance(releases, dict):
        raise ValueError("it lacks latches or releases")
    for key, latch in latches.items():
        words = [latch.get(name) if isinstance(latch, dict) else None for name in ("place", "node", "check", "cause")]
        if not all(isinstance(word, str) and word for word in words) or finite(latch.get("last")) is None:
            raise ValueError(f"latch {key!r} is incomplete")
        neighbours = latch.get("neighbours", [])
        if not isinstance(neighbours, list) or not all(isinstance(name, str) for name in neighbours):
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
    """Return the latches by place, and by the node that was there."""
    latches: Index = {}
    for dummy, latch in sorted(memory.latches.items()):
        for key in (latch["place"], f"last:{latch['node']}"):
            latches.setdefault(key, []).append(latch)
    return latches


def hits(known: Index, report: Report, others: t.Mapping[str, Report]) -> list[DrainFault]:
    """Return latched faults of a node; one that has lost the name of its host is taken to be where it was.

    A neighbour on the same host is not to blame while the machine that had the fault still reports from there, nor
    when it is gone: it had another part of the host.
    """
    here = [host_key(report.node, ""), host_key(report.node, report.host) if report.host else f"last:{report.node}"]
    items = {id(latch): latch for key in here for latch in known.get(key, [])}
    faults = []
    for latch in items.values():
        mine = latch["node"] == report.node
        if not mine and report.node in latch.get("neighbours", []):
            continue
        if mine or latch["node"] not in others or host_key("", others[latch["node"]].host) != latch["place"]:
            text = latch["cause"] if mine else f"{latch['cause']}, found on {latch['node']}"
            blame = latch["class"] if latch.get("class") in _PHYSICAL else "hardware"
            faults.append(DrainFault(report.node, latch["check"], blame, f"{text}, latched", report.host))
    return faults


def latched(memory: Memory, faults: t.Iterable[DrainFault], now: float, reports: t.Mapping[str, Report]) -> Memory:
    """Add latches for nodes that are being drained, or are drained and still fail, with their neighbours.

    Of a node that has ``MOST`` latches no further ones are kept.
    """
    latches, counts = dict(memory.latches), count(memory)
    hosts: dict[str, set[str]] = {}
    for report in reports.values():
        hosts.setdefault(host_key(report.node, report.host), set()).add(report.node)
    for fault in faults:
        if fault.blame not in _PHYSICAL or fault.record is None:
            continue
        where = host_key(fault.node, fault.host)
        key = f"{where}|{fault.check}"
        before = latches.get(key, {})
        if before.get("node") != fault.node and counts[fault.node] >= MOST:
            continue
        counts.update([fault.node] if before.get("node") != fault.node else [])
        first, known = before.get("first", now), before.get("neighbours", [])
        beside = [*known, *sorted(hosts.get(where, set()) - {*known})][: MOST + 1]
        same = {"place": where, "node": fault.node, "check": fault.check, "class": fault.blame, "cause": fault.cause}
        latches[key] = {**same, "neighbours": sorted({*beside} - {fault.node})[:MOST], "first": first, "last": now}
    return memory._replace(latches=latches)


def count(memory: Memory) -> collections.Counter[str]:
    """Return how many latches each node has."""
    return collections.Counter(latch["node"] for latch in memory.latches.values())


def expired(memory: Memory, now: float, days: float) -> Memory:
    """Remove latches and releases that are older than so many days, and what a node has beyond ``MOST``."""
    latches: dict[str, Json] = {}
    counts: collections.Counter[str] = collections.Counter()
    # Those of a node that has more than are kept now: the oldest are the least likely to have been made up.
    for key, latch in sorted(memory.latches.items(), key=lambda pair: finite(pair[1].get("first")) or 0.0):
        if now - latch["last"] <= days * _DAY and counts[latch["node"]] < MOST:
            latches[key] = latch
            counts[latch["node"]] += 1
    releases = {node: moment for node, moment in memory.releases.items() if now - moment <= days * _DAY}
    return memory._replace(latches=latches, releases=releases)


def held(memory: Memory, nodes: t.Iterable[Json]) -> Memory:
    """Add the reasons of drained nodes that a repair resumes; a node that lost its drain keeps the reason it had."""
    ours = {
        node["name"]: node["reason"]
        for node in nodes
        if node["drained"] and node["reason"].startswith(slurm_nodes.REASON_PREFIX)
    }
    return memory._replace(holds={**memory.holds, **ours})


def settled(memory: Memory, nodes: t.Iterable[Json]) -> Memory:
    """Remove the holds of nodes that are drained again and in no repair any more, or that are gone."""
    waiting = {node["name"] for node in nodes if not node["drained"] or "MAINTENANCE" in node["flags"]}
    return memory._replace(holds={name: reason for name, reason in memory.holds.items() if name in waiting})


def unproved(memory: Memory, node: str, host: str) -> list[DrainFault]:
    """Return the fault of a node that a repair resumed and did not prove."""
    check, dummy, cause = memory.holds.get(node, "")[len(slurm_nodes.REASON_PREFIX) :].partition(":")
    return [DrainFault(node, check, "hardware", cause, host)] if check else []


def released(memory: Memory, nodes: t.Iterable[str], reports: t.Mapping[str, Report], now: float) -> Memory:
    """Remove the latches of proved nodes where they are now; those of a host that one has left stay."""
    names = set(nodes)
    hosts = {name: reports[name].host if name in reports else "" for name in names}
    here = {host_key(name, host) for name, host in hosts.items()} | {host_key(name, "") for name in names}
    lost = {name for name, host in hosts.items() if not host}
    kept = {k: latch for k, latch in memory.latches.items() if latch["place"] not in here and latch["node"] not in lost}
    holds = {name: reason for name, reason in memory.holds.items() if name not in names}
    return Memory(kept, {**memory.releases, **dict.fromkeys(names, now)}, holds)
