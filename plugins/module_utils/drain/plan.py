# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes to drain, and what to say of the others. No I/O; private.

A person's reason is never replaced, nothing is ever resumed, and what hides a fault of the checks themselves drains
nobody.
"""

from __future__ import annotations

import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain import faults, findings, latches
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.faults import Fault
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.guards import Finding, Limits, guard
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.report import Report
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.request import Settings
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import nodes as slurm_nodes
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import TIME_FORMAT

Node = t.Dict[str, t.Any]
# Off or on the way there: the next report tells, and the machine behind the name may be another one by then.
_AWAY = frozenset("POWERED_DOWN POWERING_DOWN POWER_DOWN POWERING_UP REBOOT_ISSUED".split())
_REPAIR = frozenset(["MAINTENANCE"])  # inside a reservation, where nodes are proved; no user's job gets there
_SLURMS_OWN = {"Prolog error": "prolog", "Epilog error": "epilog"}


class View(t.NamedTuple):
    """What is known at one moment."""

    nodes: t.Sequence[Node]
    reports: t.Mapping[str, Report]
    leaves: t.Mapping[str, str]
    memory: latches.Memory
    now: float


class Decision(t.NamedTuple):
    """What to do and to say; ``drained`` are the faults of nodes that were drained by us before."""

    wanted: dict[str, Fault]
    changes: list[slurm_nodes.Change]
    left_alone: list[Node]
    findings: list[Finding]
    drained: list[Fault]


def decide(view: View, settings: Settings) -> Decision:
    """Return the same for the same view, whoever asks and however often."""
    nodes = [node for node in view.nodes if node["state"] != "FUTURE"]
    fresh = view._replace(reports={k: r for k, r in view.reports.items() if view.now - r.written <= settings.stale})
    known = latches.index(view.memory)
    seen = {node["name"]: _faults(node["name"], fresh, known, settings) for node in nodes if present(node)}
    wanted, left, drained = _sort(nodes, seen)
    limits = Limits(len(nodes), settings.max_share, settings.max_leaf, view.leaves, _recent(nodes, view.now, settings))
    # They were out of service before a repair that was cut short, so they are no news of a common cause.
    back = {name: fault for name, fault in wanted.items() if name in view.memory.holds}
    go, held = guard({name: fault for name, fault in wanted.items() if name not in back}, limits)
    go = {**faults.merge(go.values()), **back}
    changes = [slurm_nodes.Change(name, "drain", go[name].reason) for name in sorted(go)]
    return Decision(go, changes, left, [*held, *findings.all_of(nodes, seen, left, view, settings)], drained)


def present(node: Node) -> bool:
    return not _AWAY & set(node["flags"])


def _faults(name: str, view: View, known: latches.Index, settings: Settings) -> list[Fault]:
    """Only a fresh report tells where the node is and what it has; what a repair owes needs none."""
    report = view.reports.get(name)
    unproved = latches.unproved(view.memory, name, report.host if report else "")
    if report is None:
        return unproved
    shown = faults.faults(report, settings.stale, view.memory.releases.get(name, 0.0))
    return unproved + shown + latches.hits(known, report, view.reports)


def _sort(
    nodes: t.Sequence[Node], seen: t.Mapping[str, list[Fault]]
) -> tuple[dict[str, Fault], list[Node], list[Fault]]:
    """Tell the nodes to drain from those that somebody else holds and those that we do."""
    wanted: dict[str, Fault] = {}
    left, drained = [], []
    for node in nodes:
        found = seen.get(node["name"], [])
        if not found or _REPAIR & set(node["flags"]):
            continue
        if node["drained"] and node["reason"].startswith(slurm_nodes.OWNED):
            drained += found
            continue
        own = [fault for fault in found if fault.suite == _SLURMS_OWN.get(node["reason"])]
        foreign = slurm_nodes.plan([node], "drained", found[0].reason).left_alone
        if own or not foreign:
            wanted[node["name"]] = (own or found)[0]
        else:
            left += foreign
    return wanted, left, drained


def _recent(nodes: t.Sequence[Node], now: float, settings: Settings) -> dict[str, str]:
    """What we have drained so lately that it belongs to the same go."""
    found = {}
    for node in nodes:
        if node["drained"] and node["reason"].startswith(slurm_nodes.OWNED):
            moment = _moment(node["reason_time"])
            if moment is not None and now - moment <= settings.window:
                found[node["name"]] = node["reason"].split(":")[1]
    return found


def _moment(text: str | None) -> float | None:
    try:
        return time.mktime(time.strptime(text or "", TIME_FORMAT))
    except (ValueError, OverflowError):
        return None
