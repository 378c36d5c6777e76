# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How well the planner does on 1,000 nodes: a few of the fleets that benchmarks/isolation.py tries by the hundred."""

from __future__ import annotations

import random
import time
from pathlib import Path

import anchors
import isolation
import pytest
from simulated import Fault, Fleet, certify, strewn

ROOT = Path(__file__).resolve().parents[5]


def _results(number: int, seeds: range) -> list[dict[str, isolation.Result]]:
    return [isolation.fleet_of((number, 1000, seed, 16)) for seed in seeds]


@pytest.mark.parametrize("number", range(len(isolation.CASES)))
def test_the_targets_are_met(number):
    case = isolation.CASES[number]
    found = _results(number, range(1000, 1002))
    bad = round(case.share * 1000) * len(found)
    ours = [one[isolation.OURS] for one in found]
    assert max(one.rounds for one in ours) <= case.rounds
    assert sum(one.accused for one in ours) <= (1 if case.noise > 0.005 else 0)
    missed = sum(one.missed for one in ours) / bad
    if case.of_two_pass:
        assert missed <= case.of_two_pass * sum(one[isolation.TWO_PASS].missed for one in found) / bad
    else:
        assert missed <= case.missed


@pytest.mark.parametrize("seed", range(8))
def test_with_a_third_of_the_fleet_at_fault_nobody_else_is_accused_and_a_slow_uplink_is_named(seed):
    assert not {"accused", "slow_leaf", "a bad link that was seen twice"} & isolation.mixed(seed)


@pytest.mark.parametrize("name", anchors.METHODS)
def test_the_other_methods_find_constant_faults_without_noise(name):
    names = [f"n{n}" for n in range(101)]
    faults = dict.fromkeys(["n5", "n50"], 1.0)
    world = anchors.World(names, faults, 0.0, "1")
    accused, rounds = anchors.METHODS[name](world)
    seen = {name for name in faults if name in accused}
    assert seen == set(faults) or name in ("two-pass swap", "drain both")  # these leave one of an odd number out
    assert accused <= set(faults) or name == "drain both"
    assert rounds >= 1 <= world.tests


def test_4000_nodes_do_not_keep_anybody_waiting():
    fleet = Fleet(4000, 1, leaf=32, pod=512, noise=0.005)
    fleet.faults = strewn(fleet.names, 0.02, Fault("slow"), random.Random(2))
    begin = time.process_time()
    found = certify(fleet).certificate()
    assert {name for name, node in found["nodes"].items() if node["status"] == "drained"} == set(fleet.faults)
    assert time.process_time() - begin < 60  # a few seconds on an idle machine
