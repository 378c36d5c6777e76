# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Outliers and guards: who is slow beside the others, and when nobody may be judged."""

from __future__ import annotations

import random

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import evidence, standing
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.evidence import TestOutcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.ledger import CampaignOptions, FleetNode

KEY = "nccl_tests busbw [GB/s]"
PROFILE = {
    "reference": [
        {"check": "nccl_tests", "metric": "busbw", "nodes": 1, "value": 480, "unit": "GB/s", "source": "a log"}
    ],
    "expect": [{"check": "nccl_tests", "metric": "busbw", "op": ">=", "value": 460, "unit": "GB/s", "source": "s"}],
}


def _values(count: int, slow: int, factor: float, dice: random.Random) -> dict[str, float]:
    return {f"n{n}": dice.gauss(1.0, 0.01) * (factor if n < slow else 1.0) for n in range(count)}


@pytest.mark.parametrize("count", [64, 1000, 4000])
def test_healthy_nodes_are_not_flagged_in_proportion_to_the_fleet(count):
    flagged = sum(len(evidence.below(_values(count, 0, 1, random.Random(seed)), 0.03)) for seed in range(20))
    assert flagged <= 4  # z < -2 flags 2.3 %: 20 x 91 of 4,000


@pytest.mark.parametrize("count", [64, 1000, 4000])
def test_a_tenth_less_is_found_at_any_size(count):
    more = 0
    for seed in range(10):
        found = set(evidence.below(_values(count, count // 32, 0.9, random.Random(seed)), 0.03))
        slow = {f"n{n}" for n in range(count // 32)}
        assert slow <= found
        more += len(found - slow)
    assert more <= 2


def test_without_spread_a_material_share_decides():
    values = {f"n{n}": 100.0 for n in range(20)}
    assert set(evidence.below({**values, "x": 97.5, "y": 96.5}, 0.03)) == {"y"}


def test_too_few_values_flag_nobody():
    assert evidence.below({"a": 1.0, "b": 100.0, "c": 100.0, "d": 100.0}, 0.03) == {}


def _fleet(values: list[float], floor: float = 460) -> list[standing.Result]:
    kinds = [TestOutcome(kind="ok" if value >= floor else "bad", numbers={KEY: value}) for value in values]
    return [((f"n{n}",), outcome) for n, outcome in enumerate(kinds)]


def _pairs(*results: tuple[str, str]) -> list[standing.Result]:
    return [(tuple(names), TestOutcome(kind=kind)) for names, kind in results]


def test_a_fleet_that_is_off_its_reference_is_one_finding():
    (found,) = standing.population(_fleet([464.0] * 10), {"reference": PROFILE["reference"]}, 1, 0.03)
    assert found["kind"] == "population"
    assert (found["value"], found["expected"]) == (464.0, 480.0)


def test_a_fleet_whose_middle_misses_a_floor_is_one_finding():
    found = standing.population(_fleet([480.0] * 4 + [430.0] * 6), {"expect": PROFILE["expect"]}, 1, 0.03)
    assert [one["kind"] for one in found] == ["population"]


def test_a_fleet_at_its_reference_with_bad_nodes_is_no_finding():
    assert standing.population(_fleet([480.0] * 8 + [300.0] * 3), PROFILE, 1, 0.03) == []


def test_limits_for_more_nodes_are_not_for_one():
    wide = {"expect": [{**PROFILE["expect"][0], "value": 600, "min_nodes": 2}]}
    assert standing.population(_fleet([480.0] * 5), wide, 1, 0.03) == []


def test_most_tests_below_their_floor_are_one_finding_without_any_number():
    slow = _pairs(("ab", "bad"), ("cd", "bad"), ("ef", "bad"), ("gh", "ok"))
    assert len(standing.population(slow, {}, 2, 0.03)) == 1


def test_one_bad_node_of_three_is_no_slow_fleet():
    assert standing.population(_pairs(("ab", "ok"), ("ac", "bad"), ("bc", "bad")), {}, 2, 0.03) == []
    assert standing.population(_pairs(("ab", "bad")), {}, 2, 0.03) == []


def test_wrong_values_are_nobody_elses_fault():
    assert standing.population([(("a", "b", "c"), TestOutcome(kind="bad", hard=True))] * 6, {}, 2, 0.03) == []


CASES = [
    ("few", ["", "", ""], 100, 3, 0),
    ("six percent", [""] * 6, 100, 0, 1),
    ("three of a leaf", ["a", "a", "a", "b"], 1000, 1, 1),
    ("one of a small cluster", ["a"], 2, 1, 0),
]


@pytest.mark.parametrize(("name", "leaves", "planned", "allowed", "found"), CASES, ids=[case[0] for case in CASES])
def test_too_much_at_once_has_a_common_cause(name, leaves, planned, allowed, found):
    judged = [FleetNode(f"n{n}", leaf=leaf) for n, leaf in enumerate(leaves)]
    drains, findings = standing.drains(judged, planned, CampaignOptions())
    assert (len(drains), [one["kind"] for one in findings]) == (allowed, ["common_cause"] * found)
