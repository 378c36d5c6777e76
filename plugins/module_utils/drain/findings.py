# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the reconciler tells people, without doing anything about it. No I/O; private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain import faults
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.faults import Fault, words
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.guards import Finding, finding
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.request import Settings
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import nodes as slurm_nodes

if t.TYPE_CHECKING:
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.plan import Node, View

Seen = t.Mapping[str, t.List[Fault]]
_UP = {"IDLE", "MIXED", "ALLOCATED"}


def all_of(
    nodes: t.Sequence[Node], seen: Seen, left: t.Sequence[Node], view: View, settings: Settings
) -> list[Finding]:
    found = [_left_alone(node, seen) for node in left]
    found += _silent(nodes, seen, view, settings)
    found += _checks(seen, view, settings)
    return found + _quiet(nodes, seen, view, settings)


def _left_alone(node: Node, seen: Seen) -> Finding:
    where = "drained" if slurm_nodes.out_of_service(node) else "still takes jobs"
    fault = seen[node["name"]][0]
    held = f"is left as it is ({where}): its reason {node['reason']!r} is not ours"
    return finding("left_alone", f"{fault.check}: {fault.cause}; {held}", [node["name"]], check=fault.check)


def _silent(nodes: t.Sequence[Node], seen: Seen, view: View, settings: Settings) -> list[Finding]:
    """A node that is said to work and does not report is not healthy: nobody knows."""
    up = [node["name"] for node in nodes if node["name"] in seen and node["state"] in _UP]
    never = [name for name in up if name not in view.reports]
    late = [name for name in up if name in view.reports and view.now - view.reports[name].written > settings.stale]
    broken: dict[str, list[str]] = {}
    for name in up:
        if name in view.reports and view.reports[name].broken:
            broken.setdefault(view.reports[name].broken, []).append(name)
    groups = [("no report in the mailbox", never), (f"no report for more than {settings.stale:g} s", late)]
    groups += [(f"the report {why}", names) for why, names in sorted(broken.items())]
    return [finding("silent", text, names) for text, names in groups if names]


def _checks(seen: Seen, view: View, settings: Settings) -> list[Finding]:
    """Checks that could not be made, and warnings: by what they say, for one broken checker is on many nodes."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for name in seen:
        report = view.reports.get(name)
        fresh = report is not None and view.now - report.written <= settings.stale
        since = view.memory.releases.get(name, 0.0)
        for item in faults.current(report, settings.stale, since) if report and fresh else ():
            kind = _kind(item)
            if kind:
                groups.setdefault((kind, item["check"], words(item["reason"])), []).append(name)
    return [
        finding(kind, f"{check}: {reason or 'no reason given'}", names, check=check)
        for (kind, check, reason), names in sorted(groups.items())
    ]


def _kind(item: Json) -> str:
    if item["verdict"] == "error" or (item["verdict"] == "fail" and item["class"] in (None, "infra")):
        return "infra"
    return "watch" if item["verdict"] == "warn" or (item["verdict"] == "fail" and faults.monitored(item)) else ""


def _quiet(nodes: t.Sequence[Node], seen: Seen, view: View, settings: Settings) -> list[Finding]:
    """Drained by us and showing nothing now: only proof gives it back. What a silent node shows nobody knows."""
    names = [
        node["name"]
        for node in nodes
        if node["drained"] and node["reason"].startswith(slurm_nodes.OWNED) and node["name"] in view.reports
        if view.now - view.reports[node["name"]].written <= settings.stale
        if not any(fault.record for fault in seen.get(node["name"], []))
    ]
    text = "drained, and shows no fault now: repair_node.yml certifies it and gives it back"
    return [finding("provable", text, names)] if names else []
