# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When many nodes fail at once, what they share has failed: report that and drain none. No I/O; private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.faults import Fault
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import compress

Finding = t.Dict[str, t.Any]
Go = t.Tuple[t.Dict[str, Fault], t.List[Finding]]


class Limits(t.NamedTuple):
    """What may leave in one go, counting what has just left (``recent``: node to its check)."""

    nodes: int  # of the cluster
    share: float
    leaf: int
    leaves: t.Mapping[str, str]
    recent: t.Mapping[str, str]

    @property
    def most(self) -> int:
        """A small cluster may always lose one."""
        return max(1, int(self.share * self.nodes + 1e-9))


def finding(kind: str, text: str, nodes: t.Iterable[str], **rest: t.Any) -> Finding:
    return {"kind": kind, "text": text, "nodes": compress(nodes, sort=True, unique=True), **rest}


def guard(wanted: dict[str, Fault], limits: Limits) -> Go:
    """Return what may be drained, and a finding for every cause that is held back: by check, by leaf, by all."""
    go, findings = dict(wanted), []
    for step in (_checks, _leaves, _all):
        go, found = step(go, limits)
        findings += found
    return go, findings


def _checks(wanted: dict[str, Fault], limits: Limits) -> Go:
    """A check that too many nodes fail is held back alone: a broken GPU elsewhere need not wait for it."""
    groups: dict[str, set[str]] = {}
    for node, check in [*((n, fault.check) for n, fault in wanted.items()), *limits.recent.items()]:
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
        for new in [[node for node in names if node in wanted and wanted[node].check == check]]
        if new
    ]
    return {node: fault for node, fault in wanted.items() if fault.check not in held}, findings


def _leaves(wanted: dict[str, Fault], limits: Limits) -> Go:
    groups: dict[str, set[str]] = {}
    for node in [*wanted, *limits.recent]:
        groups.setdefault(limits.leaves.get(node, ""), set()).add(node)
    held = {leaf: names for leaf, names in groups.items() if leaf and len(names) > limits.leaf}
    findings = [
        finding(
            "common_cause",
            f"{len(names)} nodes of {leaf} in one go, at most {limits.leaf} are drained: suspect the switch {leaf}"
            " or what its nodes share",
            [node for node in names if node in wanted],
            leaf=leaf,
            suspects=[leaf],
        )
        for leaf, names in sorted(held.items())
        if any(node in wanted for node in names)
    ]
    return {node: fault for node, fault in wanted.items() if limits.leaves.get(node, "") not in held}, findings


def _all(wanted: dict[str, Fault], limits: Limits) -> Go:
    names = {*wanted, *limits.recent}
    if not wanted or len(names) <= limits.most:
        return wanted, []
    text = f"different checks: {_count(names, limits)}: suspect what they share, or drain by hand"
    return {}, [finding("common_cause", text, wanted)]


def _count(names: t.Collection[str], limits: Limits) -> str:
    return f"{len(names)} of {limits.nodes} nodes in one go, at most {limits.most} are drained"
