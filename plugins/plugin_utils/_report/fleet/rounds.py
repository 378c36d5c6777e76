# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the certificate tells of rounds and tests, tolerant of what is missing. Private."""

from __future__ import annotations

import dataclasses

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.model import Row, mapping, rows, strings
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.text import number

# Who plans says ok, bad and infra; records say pass, fail and error.
_OUTCOMES = {"ok": "pass", "pass": "pass", "bad": "fail", "fail": "fail", "warn": "warn", "unjudged": "pass"}


@dataclasses.dataclass(frozen=True)
class Test:
    """One test of a round."""

    nodes: list[str]
    outcome: str
    ratio: float | None
    value: float | None
    unit: str


@dataclasses.dataclass(frozen=True)
class Round:
    """Tests that ran at the same time, and who was under suspicion after them."""

    name: str
    stage: str
    number: int
    tests: list[Test]
    suspects: dict[str, float]

    @property
    def outcomes(self) -> dict[str, int]:
        """Return how many tests came to each outcome."""
        counts = {"pass": 0, "warn": 0, "fail": 0, "error": 0}
        for test in self.tests:
            counts[test.outcome] += 1
        return counts

    def named(self, outcome: str) -> list[str]:
        """Return the nodes of tests that ended so."""
        return [name for test in self.tests if test.outcome == outcome for name in test.nodes]


def read_rounds(certificate: Row) -> list[Round]:
    """Return the rounds in the order in which they ran, counted in their stage; the ladder is one."""
    known: list[Round] = []
    counts: dict[str, int] = {}
    for round_ in (_round(row) for row in rows(certificate.get("rounds"))):
        counts[round_.stage] = counts.get(round_.stage, 0) + 1
        if round_.stage == "ladder" and known and known[-1].stage == "ladder":
            known[-1].tests.extend(round_.tests)
        else:
            known.append(dataclasses.replace(round_, number=counts[round_.stage]))
    return known


def _round(row: Row) -> Round:
    shares = {str(name): number(value) for name, value in mapping(row.get("suspects")).items()}
    suspects = {name: min(1.0, max(0.0, value)) for name, value in shares.items() if value is not None}
    tests = [_test(test) for test in rows(row.get("tests"))]
    return Round(str(row.get("id") or ""), str(row.get("stage") or ""), 0, tests, suspects)


def _test(row: Row) -> Test:
    outcome = _OUTCOMES.get(str(row.get("verdict")), "error")
    return Test(
        strings(row.get("nodes")),
        outcome,
        number(row.get("ratio")),
        number(row.get("value")),
        str(row.get("unit") or ""),
    )
