# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The faults of a fleet of real slurmd: drawn from a seed, and shown only to those whom they concern."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).resolve().parents[1] / "fleet/faults.py"
_SPEC = importlib.util.spec_from_file_location("fleet_faults", PATH)
assert _SPEC is not None and _SPEC.loader is not None
faults = importlib.util.module_from_spec(_SPEC)
sys.modules["fleet_faults"] = faults
_SPEC.loader.exec_module(faults)

NODES = [f"n{number:03d}" for number in range(1, 65)]
RAILS = ["ib0", "ib1"]


def shown(kind: str, nodes: list[str], host: str, *others: str, run: str = "1/0") -> dict[str, object]:
    fault = {"kind": kind, "nodes": nodes, "seed": 1}
    return dict(faults.effects([fault], host, [host, *others], run, RAILS))


@pytest.mark.parametrize("seed", range(20))
def test_every_fault_has_nodes_of_its_own(seed: int) -> None:
    found = faults.draw(seed, faults.KINDS, NODES, 16)
    assert {one["kind"] for one in found} == set(faults.KINDS)
    taken = [node for one in found for node in one["nodes"]]
    assert len(taken) == len(set(taken))
    assert found == faults.draw(seed, faults.KINDS, NODES, 16)


@pytest.mark.parametrize("seed", range(20))
def test_bad_partners_are_neighbours(seed: int) -> None:
    (found,) = faults.draw(seed, [faults.PARTNERS], NODES, 16)
    assert any(set(found["nodes"]) < set(members) for members in faults.leaves(NODES, 16).values())


@pytest.mark.parametrize("kind", [faults.SLOW_GPU, faults.SLOW_RAIL, faults.WRONG, faults.HANG, faults.PARTNERS])
def test_a_constant_fault_shows_always_and_on_its_node_only(kind: str) -> None:
    assert shown(kind, ["n001"], "n001")
    assert shown(kind, ["n001"], "n001", "n002")
    assert not shown(kind, ["n001"], "n002")


def test_a_slow_rail_leaves_the_others_alone() -> None:
    assert shown(faults.SLOW_RAIL, ["n001"], "n001") == {"ib_slow": {"ib0": faults.FACTOR}}


def test_a_rank_that_hangs_hangs_all() -> None:
    assert shown(faults.HANG, ["n001"], "n002", "n001") == {"hung": ["all_reduce_perf"]}


def test_a_bad_link_shows_between_its_ends_only() -> None:
    ends = ["n001", "n002"]
    assert shown(faults.LINK, ends, "n001", "n002")
    assert not shown(faults.LINK, ends, "n001", "n003")
    assert not shown(faults.LINK, ends, "n001")


def test_a_slow_leaf_is_slow_only_towards_others() -> None:
    leaf = NODES[:16]
    assert shown(faults.LEAF, leaf, "n001", "n020")
    assert not shown(faults.LEAF, leaf, "n001", "n002")
    assert not shown(faults.LEAF, leaf, "n020", "n021")


def test_a_flaky_node_shows_in_a_third_of_its_runs_the_same_each_time() -> None:
    seen = [bool(shown(faults.FLAKY, ["n001"], "n001", "n002", run=f"{number}/0")) for number in range(3000)]
    assert 900 < sum(seen) < 1100
    assert seen[:9] == [bool(shown(faults.FLAKY, ["n001"], "n001", "n002", run=f"{number}/0")) for number in range(9)]


def test_culprits_are_nodes_that_are_at_fault_themselves() -> None:
    found = faults.draw(3, faults.KINDS, NODES, 16)
    named = faults.culprits(found)
    assert not {node for one in found if one["kind"] in (faults.LINK, faults.LEAF) for node in one["nodes"]} & set(
        named
    )
    assert {kind for kinds in named.values() for kind in kinds} == set(faults.KINDS) - {faults.LINK, faults.LEAF}
