# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes to drain, which to hold back as they share a cause, and the findings for people. No I/O."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain import latches
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.latches import DrainFault, words
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.request import DrainSettings, Report
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import nodes as slurm_nodes
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import compress
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import TIME_FORMAT

# When many nodes fail at once, what they share has failed: report that and drain none. No I/O.


Finding = t.Dict[str, t.Any]
Go = t.Tuple[t.Dict[str, DrainFault], t.List[Finding]]


class Limits(t.NamedTuple):
    """How many nodes may be drained in one go, which includes those just drained (``recent``: node to its check)."""

    nodes: int  # of the cluster
    share: float
    leaf: int
    leaves: t.Mapping[str, str]
    recent: t.Mapping[str, str]

    @property
    def most(self) -> int:
        """Return how many nodes may be drained in one go; one always may, however small the cluster."""
        return max(1, int(self.share * self.nodes + 1e-9))


def finding(kind: str, text: str, nodes: t.Iterable[str], **rest: t.Any) -> Finding:
    return {"kind": kind, "text": text, "nodes": compress(nodes, sort=True, unique=True), **rest}


def guard(proposed: dict[str, DrainFault], limits: Limits) -> Go:
    """Return what may be drained, and a finding for every cause that is held back: by check, by leaf, by all."""
    go, findings = dict(proposed), []
    for step in (_hold_checks, _leaves, _all):
        go, held = step(go, limits)
        findings += held
    return go, findings


def _hold_checks(proposed: dict[str, DrainFault], limits: Limits) -> Go:
    """Hold back a check that too many nodes fail, and that check alone: other faults are drained all the same."""
    groups: dict[str, set[str]] = {}
    for node, check in [*((n, fault.check) for n, fault in proposed.items()), *limits.recent.items()]:
        groups.setdefault(check, set()).add(node)
    held = {check: names for check, names in groups.items() if len(names) > limits.most}
    findings = [
        finding(
            "common_cause",
            f"{check}: {_count(names, limits)}: suspect what they share (driver, image, configuration, the check)",
            new,
            check=check,
        )
        for check, names in sorted(held.items())
        for new in [[node for node in names if node in proposed and proposed[node].check == check]]
        if new
    ]
    return {node: fault for node, fault in proposed.items() if fault.check not in held}, findings


def _leaves(proposed: dict[str, DrainFault], limits: Limits) -> Go:
    groups: dict[str, set[str]] = {}
    for node in [*proposed, *limits.recent]:
        groups.setdefault(limits.leaves.get(node, ""), set()).add(node)
    held = {leaf: names for leaf, names in groups.items() if leaf and len(names) > limits.leaf}
    findings = [
        finding(
            "common_cause",
            f"{len(names)} nodes of {leaf} in one go, at most {limits.leaf} are drained: suspect the switch {leaf}"
            " or what its nodes share",
            [node for node in names if node in proposed],
            leaf=leaf,
            suspects=[leaf],
        )
        for leaf, names in sorted(held.items())
        if any(node in proposed for node in names)
    ]
    return {node: fault for node, fault in proposed.items() if limits.leaves.get(node, "") not in held}, findings


def _all(proposed: dict[str, DrainFault], limits: Limits) -> Go:
    names = {*proposed, *limits.recent}
    if not proposed or len(names) <= limits.most:
        return proposed, []
    text = f"different checks: {_count(names, limits)}: suspect what they share, or drain by hand"
    return {}, [finding("common_cause", text, proposed)]


def _count(names: t.Collection[str], limits: Limits) -> str:
    return f"{len(names)} of {limits.nodes} nodes in one go, at most {limits.most} are drained"


# The findings that the reconciler reports and does nothing about. No I/O.


Seen = t.Mapping[str, t.List[DrainFault]]
_UP = {"IDLE", "MIXED", "ALLOCATED"}
_JOINS = f"{slurm_nodes.REASON_PREFIX}joining:"
_MOST_LISTED = 64  # records of one node's report


def all_findings(
    nodes: t.Sequence[Node], seen: Seen, left: t.Sequence[Node], view: View, settings: DrainSettings
) -> list[Finding]:
    findings = [_left_alone(node, seen) for node in left]
    findings += _silent(nodes, seen, view, settings)
    findings += _check_findings(seen, view, settings)
    findings += _full(nodes, view)
    return findings + _quiet(nodes, seen, view, settings)


def _left_alone(node: Node, seen: Seen) -> Finding:
    where = "drained" if slurm_nodes.out_of_service(node) else "still takes jobs"
    fault = seen[node["name"]][0]
    held = f"is left as it is ({where}): its reason {node['reason']!r} is not ours"
    return finding("left_alone", f"{fault.check}: {fault.cause}; {held}", [node["name"]], check=fault.check)


def _silent(nodes: t.Sequence[Node], seen: Seen, view: View, settings: DrainSettings) -> list[Finding]:
    """Return findings on nodes that Slurm says are up and that do not report: their health is unknown."""
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


def _full(nodes: t.Sequence[Node], view: View) -> list[Finding]:
    """Return a finding on nodes of which no further latches are kept: a node with so many faults makes them up."""
    counts = latches.count(view.memory)
    names = [node["name"] for node in nodes if counts[node["name"]] >= latches.MOST]
    text = f"has {latches.MOST} latched faults, further ones are not kept: look at the node, it may make them up"
    return [finding("infra", text, names)] if names else []


def _check_findings(seen: Seen, view: View, settings: DrainSettings) -> list[Finding]:
    """Return checks that could not be made, and warnings, by their text: one broken checker is on many nodes."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    more: list[str] = []
    for name in seen:
        listed = 0
        report = view.reports.get(name)
        fresh = report is not None and view.now - report.written <= settings.stale
        since = view.memory.releases.get(name, 0.0)
        for record in latches.current(report, settings.stale, since) if report and fresh else ():
            kind = _kind(record)
            listed += bool(kind)
            if kind and listed <= _MOST_LISTED:
                groups.setdefault((kind, record["check"], words(record["reason"])), []).append(name)
        more += [name] if listed > _MOST_LISTED else []
    text = f"the report has more than {_MOST_LISTED} errors and warnings, further ones are not listed"
    return [finding("infra", text, more)] * bool(more) + [
        finding(kind, f"{check}: {reason or 'no reason given'}", names, check=check)
        for (kind, check, reason), names in sorted(groups.items())
    ]


def _kind(record: Json) -> str:
    if record["verdict"] == "error" or (record["verdict"] == "fail" and record["class"] in (None, "infra")):
        return "infra"
    return "watch" if record["verdict"] == "warn" or (record["verdict"] == "fail" and latches.monitored(record)) else ""


def _quiet(nodes: t.Sequence[Node], seen: Seen, view: View, settings: DrainSettings) -> list[Finding]:
    """Return a finding on nodes that we drained and that report no fault now; they come back only once proved."""
    held = [node["name"] for node in nodes if node["drained"] and node["reason"].startswith(_JOINS)]
    names = [
        node["name"]
        for node in nodes
        if node["drained"] and node["reason"].startswith(slurm_nodes.REASON_PREFIX) and node["name"] in view.reports
        if node["name"] not in held
        if view.now - view.reports[node["name"]].written <= settings.stale
        if not any(fault.record for fault in seen.get(node["name"], []))
    ]
    text = "drained, and shows no fault now: repair_node.yml certifies it and gives it back"
    joins = "drained until it is certified beside proven nodes: join_nodes.yml does so"
    return [finding("provable", text, names)] * bool(names) + [finding("joining", joins, held)] * bool(held)


# Which nodes to drain, and the findings on the others. No I/O.


Node = t.Dict[str, t.Any]
# Off or on the way there: the machine behind the name may be another one with its next report.
_AWAY = frozenset("POWERED_DOWN POWERING_DOWN POWER_DOWN POWERING_UP REBOOT_ISSUED".split())
_REPAIR = frozenset(["MAINTENANCE"])  # inside a reservation, where nodes are proved; no user's job gets there
_SLURMS_OWN = {"Prolog error": "prolog", "Epilog error": "epilog"}


class View(t.NamedTuple):
    """What is known at one moment; ``permitted`` are nodes that may be about to drain themselves."""

    nodes: t.Sequence[Node]
    reports: t.Mapping[str, Report]
    leaves: t.Mapping[str, str]
    memory: latches.Memory
    now: float
    permitted: t.Collection[str] = ()


class DrainDecision(t.NamedTuple):
    """What one pass drains and reports; ``drained`` are the faults of nodes that were drained by us before.

    ``left`` of ``most`` nodes may drain themselves around jobs until the next pass.
    """

    to_drain: dict[str, DrainFault]
    changes: list[slurm_nodes.NodeChange]
    left_alone: list[Node]
    findings: list[Finding]
    drained: list[DrainFault]
    left: int
    most: int


def decide(view: View, settings: DrainSettings) -> DrainDecision:
    """Return the decision, which follows from the view alone."""
    nodes = [node for node in view.nodes if node["state"] != "FUTURE"]
    fresh = view._replace(reports={k: r for k, r in view.reports.items() if view.now - r.written <= settings.stale})
    known = latches.index(view.memory)
    seen = {node["name"]: _faults(node["name"], fresh, known, settings) for node in nodes if present(node)}
    proposed, left, drained = _sort(nodes, seen)
    recent = _recent(nodes, seen, view, settings)
    limits = Limits(len(nodes), settings.max_share, settings.max_leaf, view.leaves, recent)
    # They were out of service before a repair that was cut short, so they are no news of a common cause.
    back = {name: fault for name, fault in proposed.items() if name in view.memory.holds}
    go, held = guard({name: fault for name, fault in proposed.items() if name not in back}, limits)
    go = {**latches.merge(go.values()), **back}
    changes = [slurm_nodes.NodeChange(name, "drain", go[name].reason) for name in sorted(go)]
    # Nodes that share a cause would otherwise drain themselves, one prolog after the other.
    permits = 0 if held else max(0, limits.most - len({*limits.recent, *go}))
    findings = [*held, *_own_drains(nodes, limits, permits), *all_findings(nodes, seen, left, view, settings)]
    return DrainDecision(go, changes, left, findings, drained, permits, limits.most)


def _own_drains(nodes: t.Sequence[Node], limits: Limits, permits: int) -> list[Finding]:
    """Return a finding where Slurm drained so many nodes for their prologs and epilogs that no other may do so."""
    names = [node["name"] for node in nodes if node["reason"] in _SLURMS_OWN and node["name"] in limits.recent]
    if permits or not names:
        return []
    text = (
        f"drained by Slurm for a prolog or epilog that failed; {_count(limits.recent, limits)}: no other node drains"
        " itself around jobs until that is over: suspect what they share"
    )
    return [finding("own_drains", text, names)]


def present(node: Node) -> bool:
    return not _AWAY & set(node["flags"])


def _faults(name: str, view: View, known: latches.Index, settings: DrainSettings) -> list[DrainFault]:
    """Return a node's faults: of its fresh report, latched, and those that a repair has not proved gone."""
    report = view.reports.get(name)
    unproved = latches.unproved(view.memory, name, report.host if report else "")
    if report is None:
        return unproved
    shown = latches.faults(report, settings.stale, view.memory.releases.get(name, 0.0))
    return unproved + shown + latches.hits(known, report, view.reports)


def _sort(
    nodes: t.Sequence[Node], seen: t.Mapping[str, list[DrainFault]]
) -> tuple[dict[str, DrainFault], list[Node], list[DrainFault]]:
    """Part the nodes with faults into those to drain, those that somebody else holds, and those that we drained."""
    proposed: dict[str, DrainFault] = {}
    left, drained = [], []
    for node in nodes:
        faults = seen.get(node["name"], [])
        if not faults or _REPAIR & set(node["flags"]):
            continue
        if node["drained"] and node["reason"].startswith(slurm_nodes.REASON_PREFIX):
            drained += faults
            continue
        own = [fault for fault in faults if fault.suite == _SLURMS_OWN.get(node["reason"])]
        foreign = slurm_nodes.plan([node], "drained", faults[0].reason).left_alone
        if own or not foreign:
            proposed[node["name"]] = (own or faults)[0]
        else:
            left += foreign
    return proposed, left, drained


def _recent(nodes: t.Sequence[Node], seen: Seen, view: View, settings: DrainSettings) -> dict[str, str]:
    """Return the nodes drained so lately that they count as of the same go, with their check.

    Drained by us, by Slurm for a prolog or epilog that failed, or about to be, as they have the permit for it.
    """
    checks = {name: _first_check(seen.get(name, []), "prolog") for name in view.permitted if name in seen}
    for node in nodes:
        ours = node["reason"].startswith(slurm_nodes.REASON_PREFIX)
        if not node["drained"] or not (ours or node["reason"] in _SLURMS_OWN):
            continue
        moment = _moment(node["reason_time"])
        if moment is not None and view.now - moment <= settings.window:
            suite = _SLURMS_OWN.get(node["reason"], "")
            theirs = [fault for fault in seen.get(node["name"], []) if fault.suite == suite]
            checks[node["name"]] = node["reason"].split(":")[1] if ours else _first_check(theirs, suite)
    return checks


def _first_check(faults: t.Sequence[DrainFault], otherwise: str) -> str:
    return faults[0].check if faults else otherwise


def _moment(text: str | None) -> float | None:
    try:
        return time.mktime(time.strptime(text or "", TIME_FORMAT))
    except (ValueError, OverflowError):
        return None
