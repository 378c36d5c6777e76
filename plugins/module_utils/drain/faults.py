# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which records of a node are a reason to drain it, and the short words for it. No I/O; private."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.report import Report
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.nodes import OWNED

# The worst first; an error of the infrastructure is a finding and says nothing about the node.
_BLAMES = ("hardware", "fabric", "software", "config")
_ACTIONS = ("isolate", "reboot", "reset")
_LONGEST = 120  # of the 200 characters that slurm.nodes.check_reason allows
_MANY = 3


class Fault(t.NamedTuple):
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
        return f"{OWNED}{self.check}:{self.cause}"


def faults(report: Report, stale: float, since: float = 0.0) -> list[Fault]:
    """Return what a node fails in, the worst first."""
    found = [
        Fault(report.node, item["check"], item["class"], cause(item), report.host, suite(item), dict(item))
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


def _badness(fault: Fault) -> tuple[int, int, str, str]:
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


def merge(found: t.Iterable[Fault]) -> dict[str, Fault]:
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
