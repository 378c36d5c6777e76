# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each test counts as, beside the others of its kind and the fleet as a whole. Pure, private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import guards, outliers, rails
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.evidence import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.ledger import Ledger, Test

Pair = t.Tuple[Test, Outcome]


def kinds_of(ledger: Ledger) -> tuple[dict[str, str], dict[str, float], list[Json], dict[str, str]]:
    """Return what every test came to, how fast it was beside its like, what is off as a whole, what is weak.

    A test is ok, bad or infra; or it is open: three nodes that are slower than pairs are, which may well be as it is.
    """
    kinds: dict[str, str] = {}
    ratios: dict[str, float] = {}
    weak: dict[str, str] = {}
    findings: list[Json] = []
    later = (ledger.own(), [*ledger.results("confirm"), *ledger.again()])
    for first, others, nodes in (("local", later[0], 1), ("pair", later[1], 2)):
        reference = list(ledger.results(first))
        found = guards.population(
            [(test.nodes, o) for test, o in reference], ledger.profile, nodes, ledger.options.material
        )
        findings += found
        beside = rails.beside(reference, ledger.options.material)
        # Of a few values the spread is known badly, and there are many rails to be wrong about.
        alike = [(test, o._replace(rails={})) for test, o in reference] if beside else reference
        limits = _limits(alike, ledger.options.material)
        for test, outcome in [*reference, *others]:
            below = ", ".join(text for text in (_below(test, outcome, limits), _inside(outcome, beside)) if text)
            bad = bool(below) or (outcome.kind == "bad" and (outcome.hard or not found))
            slow = "" if bad else _below(test, outcome, limits, nodes)
            kinds[test.id] = "infra" if outcome.kind == "infra" else "bad" if bad else "open" if slow else "ok"
            if below or slow:
                weak[test.id] = below or f"{slow}, which three may fall short of"
            ratio = _ratio(test, outcome, limits, nodes)
            if ratio is not None:
                ratios[test.id] = ratio
    return kinds, ratios, findings, weak


def _inside(outcome: Outcome, beside: rails.Beside | None) -> str:
    """Return which rails lie outside those of the same test."""
    found = sorted(rails.weak(outcome, beside).items())
    return ", ".join(f"rail {rail} at {share:.1%} of the others between these nodes" for rail, share in found[:4])


def _below(test: Test, outcome: Outcome, limits: t.Mapping[str, outliers.Limit], nodes: int = 0) -> str:
    """Return which of its numbers lie outside those of the others, or of others over so many nodes."""
    found = [
        f"{name} at {value / limits[name].median:.1%} of the fleet's median"
        for name, value in sorted(_compared(test, outcome, nodes).items())
        if name in limits and value < limits[name].low
    ]
    return ", ".join(found[:4])


def _compared(test: Test, outcome: Outcome, nodes: int = 0) -> dict[str, float]:
    """Return what is compared between tests of a kind: of one node all its rates, of a collective its main one."""
    if len(test.nodes) == 1:
        return dict(outcome.numbers)
    key = f"{test.collective} of {nodes or len(test.nodes)}"
    each = {f"{key}, rail {rail}": value for rail, value in outcome.rails.items()}
    return each if outcome.value is None else {key: outcome.value, **each}


def _limits(reference: t.Iterable[Pair], material: float) -> dict[str, outliers.Limit]:
    columns: dict[str, list[float]] = {}
    for test, outcome in reference:
        for name, value in _compared(test, outcome).items():
            columns.setdefault(name, []).append(value)
    found = {name: outliers.limit(values, material) for name, values in columns.items()}
    return {name: limit for name, limit in found.items() if limit}


def _ratio(test: Test, outcome: Outcome, limits: t.Mapping[str, outliers.Limit], nodes: int) -> float | None:
    """Return the worst of its numbers beside the fleet's median, of pairs where nothing else is like it."""
    for width in (0, nodes):
        found = [
            value / limits[name].median
            for name, value in _compared(test, outcome, width).items()
            if name in limits and limits[name].median
        ]
        if found:
            return min(found)
    return None
