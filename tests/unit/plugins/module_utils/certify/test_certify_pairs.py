# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who meets whom, for any fleet."""

from __future__ import annotations

import random
import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import ledger
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.ledger import FleetNode

ROUNDS = (ledger.inside, ledger.across, ledger.anyhow, ledger.anyhow)


def _fleet(leaves: t.Sequence[int]) -> list[FleetNode]:
    """Return one node for each number, in the leaf of that number."""
    return [FleetNode(f"n{n:04d}", leaf=f"leaf{leaf}") for n, leaf in enumerate(leaves)]


@settings(deadline=None, max_examples=150)
@given(leaves=st.lists(st.integers(0, 9), min_size=2, max_size=300), seed=st.integers(0, 9999))
def test_every_round_covers_everybody_once_with_one_trio_at_most(leaves: list[int], seed: int) -> None:
    nodes, met, dice = _fleet(leaves), {}, random.Random(seed)
    for arrange in ROUNDS:
        groups = arrange(nodes, met, dice)
        assert sorted(name for group in groups for name in group) == [node.name for node in nodes]
        assert sorted(len(group) for group in groups)[:-1] == [2] * (len(groups) - 1)
        assert len(groups[-1]) in (2, 3) or len(nodes) < 2
        for group in groups:
            ledger.meet(met, group)


@settings(deadline=None, max_examples=150)
@given(leaves=st.lists(st.integers(0, 9), min_size=17, max_size=300), seed=st.integers(0, 9999))
def test_above_the_round_robin_nobody_meets_anybody_twice(leaves: list[int], seed: int) -> None:
    nodes, met, dice = _fleet(leaves), {}, random.Random(seed)
    for arrange in ROUNDS:
        for group in arrange(nodes, met, dice):
            for name in group:
                assert not met.get(name, set()).intersection(group)
            ledger.meet(met, group)


def test_first_round_stays_inside_leaves_and_the_second_crosses_them():
    nodes = _fleet([n // 16 for n in range(256)])
    leaf = {node.name: node.leaf for node in nodes}
    met: dict[str, set[str]] = {}
    first = ledger.inside(nodes, met, random.Random(1))
    assert all(leaf[a] == leaf[b] for a, b in first)
    for group in first:
        ledger.meet(met, group)
    assert all(leaf[a] != leaf[b] for a, b in ledger.across(nodes, met, random.Random(1)))


@pytest.mark.parametrize("count", range(2, 18))
def test_in_a_round_robin_everybody_meets_everybody_once(count):
    names = [f"n{n}" for n in range(count)]
    rounds = ledger.round_robin(names)
    assert len(rounds) == count - 1 + count % 2
    seen = [frozenset(group) for groups in rounds for group in groups]
    assert len(seen) == len(set(seen)) == count * (count - 1) // 2
    for groups in rounds:
        assert len({name for group in groups for name in group}) == 2 * len(groups)


def test_16000_nodes_are_paired_in_no_time():
    nodes, met, dice = _fleet([n // 32 for n in range(16_000)]), {}, random.Random(0)
    for arrange in ROUNDS:
        for group in arrange(nodes, met, dice):
            assert not met.get(group[0], set()).intersection(group)
            ledger.meet(met, group)
