# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wider and wider collectives on the nodes that came through, and the switches that a slow one points at. Private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import outliers
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.fleet import Node
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.ledger import Ledger, Test

_STEP = 4  # without a topology each rung is so many times as wide
_RUNGS = 5


class Rung(t.NamedTuple):
    """Groups of one width that run at the same time."""

    name: str
    groups: list[list[str]]


def rungs(nodes: t.Sequence[Node]) -> list[Rung]:
    """Return leaf, pod and whole fleet, as far as they differ; without a topology powers of a step."""
    everybody = [node.name for node in nodes]
    if len(everybody) < 3:
        return []
    leaves = _by(nodes, "leaf")
    found = []
    if len(leaves) > 1:
        pods = _by(nodes, "pod")
        found = [Rung("leaf", list(leaves.values())), Rung("pod", list(pods.values()) if len(pods) > 1 else [])]
    else:
        widths = [len(everybody) // _STEP**n for n in range(_RUNGS - 1, 0, -1)]
        found = [Rung(f"{n} nodes", _chunks(everybody, n)) for n in widths if n > 2]
    found.append(Rung("all", [everybody]))
    kept = [Rung(rung.name, [group for group in rung.groups if len(group) > 2]) for rung in found]
    return [rung for rung in kept if rung.groups]


def _by(nodes: t.Sequence[Node], field: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for node in nodes:
        found.setdefault(getattr(node, field), []).append(node.name)
    return dict(sorted(found.items()))


def _chunks(names: t.Sequence[str], size: int) -> list[list[str]]:
    """Return groups of at least this size that cover everybody."""
    count = max(1, len(names) // size)
    return [list(names[len(names) * n // count : len(names) * (n + 1) // count]) for n in range(count)]


def slow(ledger: Ledger, tests: t.Sequence[Test]) -> dict[str, str]:
    """Return the tests of one rung that miss their floor, or lie outside the others of it, with the reason."""
    found: dict[str, str] = {}
    values: dict[str, float] = {}
    for test in tests:
        outcome = ledger.outcome(test)
        if outcome and outcome.kind == "bad":
            found[test.id] = outcome.reason
        elif outcome and outcome.kind == "ok" and outcome.value is not None:
            values[test.id] = outcome.value
    for name, limit in outliers.below(values, ledger.options.material).items():
        found[name] = f"{values[name]:g}, while the median of its rung is {limit.median:g}"
    return found


def halves(ledger: Ledger, nodes: t.Sequence[str]) -> list[list[str]]:
    """Return the group's leaves in two halves, nothing for a single leaf: switches are bisected, not nodes."""
    leaves = list(_by([ledger.nodes[name] for name in nodes], "leaf").values())
    if len(leaves) < 2:
        return []
    middle = len(leaves) // 2
    parts = [[name for leaf in part for name in leaf] for part in (leaves[:middle], leaves[middle:])]
    return [sorted(part) for part in parts if len(part) > 1]


def leaves(ledger: Ledger, nodes: t.Sequence[str]) -> list[str]:
    """Return the leaves that a group spans."""
    return sorted({ledger.nodes[name].leaf for name in nodes} - {""})
