# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The posterior, beside what counting all worlds gives."""

from __future__ import annotations

import itertools
import random

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.blame import (
    BlameKind,
    BlameSight,
    Causes,
    solve,
)

NODE = BlameKind("node", ((0.01, 0.5), (0.01, 0.98)))
NOISE = 0.01
FIRM = 1e9  # so heavy a prior learns nothing


def _exact(count: int, sights: list[BlameSight]) -> list[float]:
    """Return the posteriors by adding up every combination of faults."""
    states = [(0.98, 0.0), *NODE.faults]
    total, bad = 0.0, [0.0] * count
    for world in itertools.product(states, repeat=count):
        chance = 1.0
        for share, dummy in world:
            chance *= share
        for sight in sights:
            well = 1 - NOISE
            for cause in sight.causes:
                well *= 1 - world[cause][1]
            chance *= 1 - well if sight.bad else well
        total += chance
        for n, (dummy, shows) in enumerate(world):
            bad[n] += chance if shows else 0.0
    return [value / total for value in bad]


def _solve(count: int, sights: list[BlameSight], weight: float = FIRM):
    return solve(Causes([NODE] * count, [0.0] * count), sights, NOISE, weight)


CASES = {
    "nothing known": (2, []),
    "one bad pair": (2, [((0, 1), True)]),
    "one good pair": (2, [((0, 1), False)]),
    "the partner is cleared": (3, [((0, 1), True), ((1, 2), False), ((1, 2), False)]),
    "twice bad": (3, [((0, 1), True), ((0, 2), True)]),
    "a bad trio": (3, [((0, 1, 2), True)]),
    "two bad ones that met": (4, [((0, 1), True), ((0, 2), True), ((1, 3), True)]),
    "a chain": (4, [((0, 1), True), ((1, 2), True), ((2, 3), False), ((3, 0), False)]),
}


@pytest.mark.parametrize("name", CASES)
def test_the_posterior_is_that_of_all_worlds(name):
    count, tests = CASES[name]
    sights = [BlameSight(causes, bad) for causes, bad in tests]
    assert _solve(count, sights).posterior == pytest.approx(_exact(count, sights), abs=0.02)


@pytest.mark.parametrize("seed", range(30))
def test_the_posterior_ranks_causes_as_all_worlds_do(seed):
    dice = random.Random(seed)
    sights = [BlameSight(tuple(dice.sample(range(7), 2)), dice.random() < 0.3) for dummy in range(10)]
    found, exact = _solve(7, sights).posterior, _exact(7, sights)
    for n, m in itertools.permutations(range(7), 2):
        if exact[n] > exact[m] + 0.2:
            assert found[n] > found[m]


def test_how_common_faults_are_is_learnt():
    dice = random.Random(3)
    bad = set(dice.sample(range(400), 80))
    sights = []
    for dummy in range(4):
        order = dice.sample(range(400), 400)
        sights += [BlameSight((a, b), bool({a, b} & bad)) for a, b in zip(order[::2], order[1::2])]
    found = _solve(400, sights, weight=100.0)
    assert sum(found.shares["node"]) == pytest.approx(0.2, abs=0.05)
    assert {n for n, p in enumerate(found.posterior) if p > 0.5} == bad
    assert found.noise < 0.01


def test_a_node_with_a_history_is_believed_less():
    found = solve(Causes([NODE] * 2, [0.0, 0.3]), [BlameSight((0, 1), True)], NOISE, FIRM).posterior
    assert found[1] > 0.9 > 0.2 > found[0]


def test_what_is_above_explains_what_many_nodes_show():
    leaf = BlameKind("leaf", ((0.001, 0.9),))
    causes = Causes([NODE] * 8 + [leaf], [0.0] * 9)
    sights = [BlameSight((n, n + 1, 8), True) for n in range(0, 8, 2)] + [
        BlameSight((0, 2, 8), True),
        BlameSight((1, 3, 8), True),
    ]
    found = solve(causes, sights, NOISE, FIRM).posterior
    assert found[8] > 0.9
    assert max(found[:8]) < 0.3


def test_a_switch_that_hundreds_of_tests_speak_against_has_the_fault_that_shows_most() -> None:
    """Its odds are beyond what a float holds, with each of its faults."""
    leaf = BlameKind("leaf", ((0.01, 0.3), (0.01, 0.9)))
    sights = [BlameSight((0,), bad=True) for dummy in range(400)]
    found = solve(Causes([leaf], [0.0]), sights, 0.01, 20.0)
    rare, usual = found.shares["leaf"]
    assert found.posterior == [pytest.approx(1)] and usual > 5 * rare
