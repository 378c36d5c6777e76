# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each test counts as, beside the others of its kind and the fleet as a whole. Pure, private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import guards, outliers
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.evidence import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.ledger import Ledger, Test

Pair = t.Tuple[Test, Outcome]


def kinds_of(ledger: Ledger) -> tuple[dict[str, str], dict[str, float], list[Json], dict[str, str]]:
    """Return ok, bad or infra of every test, how fast it was beside its like, what is off as a whole, what is weak."""
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
        limits = _limits(reference, ledger.options.material)
        for test, outcome in [*reference, *others]:
            below = _below(test, outcome, limits)
            bad = outcome.kind == "bad" and (outcome.hard or not found)
            kinds[test.id] = "infra" if outcome.kind == "infra" else "bad" if bad or below else "ok"
            if below:
                weak[test.id] = below
            ratio = _ratio(test, outcome, limits)
            if ratio is not None:
                ratios[test.id] = ratio
    return kinds, ratios, findings, weak


def _below(test: Test, outcome: Outcome, limits: t.Mapping[str, outliers.Limit]) -> str:
    """Return which of its numbers lie outside those of the others."""
    found = [
        f"{name} at {value / limits[name].median:.1%} of the fleet's median"
        for name, value in sorted(_compared(test, outcome).items())
        if name in limits and value < limits[name].low
    ]
    return ", ".join(found[:4])


def _compared(test: Test, outcome: Outcome) -> dict[str, float]:
    """Return what is compared between tests of a kind: of one node all its rates, of a collective its main one."""
    if len(test.nodes) == 1:
        return dict(outcome.numbers)
    key = f"{test.collective} of {len(test.nodes)}"
    rails = {f"{key}, rail {rail}": value for rail, value in outcome.rails.items()}
    return rails if outcome.value is None else {key: outcome.value, **rails}


def _limits(reference: t.Iterable[Pair], material: float) -> dict[str, outliers.Limit]:
    columns: dict[str, list[float]] = {}
    for test, outcome in reference:
        for name, value in _compared(test, outcome).items():
            columns.setdefault(name, []).append(value)
    found = {name: outliers.limit(values, material) for name, values in columns.items()}
    return {name: limit for name, limit in found.items() if limit}


def _ratio(test: Test, outcome: Outcome, limits: t.Mapping[str, outliers.Limit]) -> float | None:
    """Return the worst of its numbers beside the fleet's median."""
    found = [
        value / limits[name].median
        for name, value in _compared(test, outcome).items()
        if name in limits and limits[name].median
    ]
    return min(found, default=None)
