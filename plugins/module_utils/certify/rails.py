# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Weak rails of fleets that are too small to compare a rail with the same one of other pairs. Pure, private.

There a rail is compared with the other rails of the same test. Rails of sound machines need not all be alike, so one
also has to lie under what the same rail reaches in another test, as far as there is one.
"""

from __future__ import annotations

import statistics
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import outliers
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.evidence import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.fleet import ROUND_ROBIN
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.ledger import Test

FEW = 2 * outliers.LEAST  # nodes; fewer are too few pairs in a round
_TRIES = 1000  # rails of few nodes that are looked at in a campaign, those of confirmations among them
_ROOM = 3.0  # times what is material: different rails differ more than one and the same


class Beside(t.NamedTuple):
    """The least share of its test's other rails that a rail reaches, and for each the most that it does."""

    low: float
    gap: float
    best: dict[str, float]


def rounds(nodes: int) -> int:
    """Return in how many rounds of pairs rails are measured: each node once, and of few nodes each pair."""
    if nodes < FEW:
        return nodes
    return 1 + (nodes % 2 if nodes <= ROUND_ROBIN else 0)


def beside(reference: t.Iterable[tuple[Test, Outcome]], material: float) -> Beside | None:
    """Return by what rails of few nodes are judged; nothing where they are not few, or no rails were measured."""
    known = [(test, shares(outcome)) for test, outcome in reference]
    if len({name for test, dummy in known for name in test.nodes}) >= FEW:
        return None
    found = outliers.limit([value for dummy, one in known for value in one.values()], _ROOM * material, _TRIES)
    if found is None:
        return None
    seen: dict[str, list[float]] = {}
    for dummy, one in known:
        for rail, value in one.items():
            seen.setdefault(rail, []).append(value)
    best = {rail: max(values) for rail, values in seen.items() if len(values) > 1}
    return Beside(found.low, found.median - found.low, best)


def weak(outcome: Outcome, limit: Beside | None) -> dict[str, float]:
    """Return the rails of a test that are too slow, with their share of the others."""
    found = shares(outcome) if limit else {}
    return {
        rail: value
        for rail, value in found.items()
        if limit and value < limit.low and value < limit.best.get(rail, 2.0) - limit.gap
    }


def shares(outcome: Outcome) -> dict[str, float]:
    """Return each rail's speed as a share of the middle of its test; half of them may be weak."""
    middle = statistics.median_high(outcome.rails.values()) if outcome.rails else 0.0
    return {rail: value / middle for rail, value in outcome.rails.items()} if middle > 0 else {}
