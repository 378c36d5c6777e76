# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fleets in which comparing is hard: groups of three among pairs, and rails of very few nodes."""

from __future__ import annotations

import random

import pytest
from simulated import Fault, Fleet, certify

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import evidence, standing

LADDERLESS = {"stages": ["reach", "local", "pair", "confirm"]}
RAILS = {**LADDERLESS, "rails": True}


def _status(certificate, status):
    return {name for name, node in certificate["nodes"].items() if node["status"] == status}


def _trios(certificate):
    return [test for part in certificate["rounds"] for test in part["tests"] if len(test["nodes"]) == 3]


@pytest.mark.parametrize("nodes", [17, 65])
def test_three_that_are_slow_together_are_no_good_test_of_anybody(nodes):
    first = _trios(certify(Fleet(nodes, 1, leaf=16), LADDERLESS).certificate())
    odd = first[0]["nodes"][-1]
    # At 88 % it meets the floor, so that it is found beside others or not at all.
    fleet = Fleet(nodes, 1, leaf=16, faults={odd: Fault("rail")})
    campaign = certify(fleet, LADDERLESS)
    found = campaign.certificate()
    assert _status(found, "drained") == {odd}
    assert _status(found, "cleared") == set(fleet.names) - {odd}
    mine = [test for test in _trios(found) if odd in test["nodes"]]
    assert {test["verdict"] for test in mine} == {"unjudged"}
    assert all(test["ratio"] < 0.95 for test in mine)
    assert any("of 2 at 8" in line and ": open" in line for line in campaign.explain(odd))


@pytest.mark.parametrize("nodes", [17, 65, 255])
def test_three_may_be_slower_than_two_and_are_measured_as_pairs_then(nodes):
    fleet = Fleet(nodes, 2, leaf=16, trio=0.8)
    found = certify(fleet, LADDERLESS).certificate()
    assert _status(found, "cleared") == set(fleet.names)
    assert found["miss_bound"]["tests"] >= 3  # good ones; an open one does not count
    inside = {name for test in _trios(found) for name in test["nodes"]}
    again = {
        name for part in found["rounds"] if part["stage"] == "confirm" for t in part["tests"] for name in t["nodes"]
    }
    assert inside <= again


def test_three_as_fast_as_pairs_take_no_more_rounds():
    found = certify(Fleet(65, 2, leaf=16), LADDERLESS).certificate()
    assert {test["verdict"] for test in _trios(found)} == {"pass"}
    assert not [part for part in found["rounds"] if part["stage"] == "confirm"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("bad", ["n00000", "n00002"])
@pytest.mark.parametrize("nodes", range(3, 10))
def test_a_weak_rail_of_very_few_nodes_is_named(nodes, bad, seed):
    fleet = Fleet(nodes, seed, faults={bad: Fault("rail")})
    found = certify(fleet, RAILS).certificate()
    assert _status(found, "drained") == {bad}
    assert _status(found, "watched") == set()
    assert "rail 3 at 3" in found["nodes"][bad]["reason"]


@pytest.mark.parametrize("nodes", [11, 13, 15])
def test_who_rests_in_the_first_round_has_its_rails_measured_in_the_second(nodes):
    fleet = Fleet(nodes, 1)
    tests = [test for part in certify(fleet, RAILS).ledger.batches for test in part.tests if test.rails]
    assert {name for test in tests for name in test.nodes} == set(fleet.names)


def test_of_two_nodes_with_a_weak_rail_none_is_accused_and_none_cleared():
    found = certify(Fleet(2, 1, faults={"n00001": Fault("rail")}), RAILS).certificate()
    assert _status(found, "watched") == {"n00000", "n00001"}
    assert all("rail 3 at 3" in node["reason"] for node in found["nodes"].values())


@pytest.mark.parametrize("nodes", range(2, 10))
def test_nobody_is_accused_in_a_sound_fleet_of_very_few(nodes):
    for seed in range(30):
        found = certify(Fleet(nodes, seed, spread=0.01), RAILS).certificate()
        assert _status(found, "cleared") == set(found["nodes"]), seed


@pytest.mark.parametrize("nodes", range(2, 10))
def test_noise_is_no_weak_rail(nodes):
    for seed in range(30):
        found = certify(Fleet(nodes, seed, spread=0.02), RAILS).certificate()
        assert not [node for node in found["nodes"].values() if "rail" in node["reason"]], seed


@pytest.mark.parametrize("count", [5, 6, 8, 12, 32, 128])
def test_of_sound_values_one_lies_outside_in_20_fleets_however_few_they_are(count):
    dice = random.Random(count)
    draws = [{str(n): dice.gauss(100.0, 2.0) for n in range(count)} for dummy in range(1000)]
    assert sum(bool(evidence.below(one, 0.0)) for one in draws) <= 80


@pytest.mark.parametrize("nodes", range(3, 10))
def test_a_rail_that_is_slower_in_every_node_is_nobodys_fault(nodes):
    for seed in range(20):
        found = certify(Fleet(nodes, seed, spread=0.01, rails={5: 0.8, 6: 0.9}), RAILS).certificate()
        assert _status(found, "cleared") == set(found["nodes"]), seed


def test_rails_of_many_nodes_are_compared_with_the_same_rail_alone():
    fleet = Fleet(64, 1, leaf=16)
    campaign = certify(fleet, RAILS)
    assert standing.rail_reference(list(campaign.ledger.results("pair")), 0.03) is None
