# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wider and wider collectives on the nodes that came through, and which of them are slow. Pure, private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import outliers, standing
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.fleet import Node
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.ledger import PAIRS, Ledger, Test

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
    leaves = by(nodes, "leaf")
    found = []
    if len(leaves) > 1:
        pods = by(nodes, "pod")
        found = [Rung("leaf", list(leaves.values())), Rung("pod", list(pods.values()) if len(pods) > 1 else [])]
    else:
        widths = [len(everybody) // _STEP**n for n in range(_RUNGS - 1, 0, -1)]
        found = [Rung(f"{n} nodes", _chunks(everybody, n)) for n in widths if n > 2]
    found.append(Rung("all", [everybody]))
    kept = [Rung(rung.name, [group for group in rung.groups if len(group) > 2]) for rung in found]
    return [rung for rung in kept if rung.groups]


def by(nodes: t.Sequence[Node], field: str) -> dict[str, list[str]]:
    """Return the names of nodes by what they hang on."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        found.setdefault(getattr(node, field), []).append(node.name)
    return dict(sorted(found.items()))


def _chunks(names: t.Sequence[str], size: int) -> list[list[str]]:
    """Return groups of at least this size that cover everybody."""
    count = max(1, len(names) // size)
    return [list(names[len(names) * n // count : len(names) * (n + 1) // count]) for n in range(count)]


def survivors(ledger: Ledger, now: standing.Standing) -> list[Node]:
    """Return the nodes that may be part of a wide step: none that is likely to spoil it, or has done so unexplained."""
    suspects = {name for name, p in now.posterior.items() if max(p, now.lost[name]) >= standing.SUSPECT} | now.unfit
    marred = {
        name
        for test, dummy in [*ledger.results(*PAIRS), *ledger.again()]
        if now.kinds[test.id] == "bad" and suspects.isdisjoint(test.nodes) and not excused(ledger, now, test.nodes)
        for name in test.nodes
        if now.posterior.get(name, 1.0) > ledger.options.clear_at
    }
    return [node for node in ledger.taking_part() if node.name not in suspects | marred]


def excused(ledger: Ledger, now: standing.Standing, nodes: t.Sequence[str]) -> bool:
    """Say whether something between these nodes is known to make what they do together slow."""
    links = standing.links(ledger, now)
    return standing.explained(ledger, now, nodes) or any(set(link) <= set(nodes) for link in links)


def slow(ledger: Ledger, tests: t.Sequence[Test]) -> dict[str, str]:
    """Return the tests that miss their floor, or lie outside the others of their rung, with the reason."""
    found: dict[str, str] = {}
    rungs_ = {(test.round, test.collective) for test in tests}
    limits = {rung: outliers.limit(_rung(ledger, *rung), ledger.options.material) for rung in rungs_}
    for test in tests:
        outcome, limit = ledger.outcome(test), limits[test.round, test.collective]
        if outcome and outcome.kind == "bad":
            found[test.id] = outcome.reason
        elif outcome and outcome.kind == "ok" and outcome.value is not None and limit and outcome.value < limit.low:
            found[test.id] = f"{outcome.value:g}, while the median of its rung is {limit.median:g}"
    return found


def _rung(ledger: Ledger, number: int, collective: str) -> list[float]:
    """Return what the groups of a rung reached when all of them ran, before anything was narrowed down."""
    for batch in ledger.batches:
        if batch.stage == "ladder" and (batch.round, batch.tests[0].collective) == (number, collective):
            found = [ledger.outcome(one) for one in batch.tests]
            return [one.value for one in found if one and one.kind == "ok" and one.value is not None]
    return []


def leaves(ledger: Ledger, nodes: t.Sequence[str]) -> list[str]:
    """Return the leaves that a group spans."""
    return sorted({ledger.nodes[name].leaf for name in nodes} - {""})
