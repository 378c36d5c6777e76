# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""InfiniBand over time: flaps that stay a fault, errors of a day, and what was kept damaged."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import state
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils.agent.node_world import World

COUNTERS = ("link_downed", "link_error_recovery", "symbol_error", "port_rcv_errors", "port_xmit_discards")


def port(world: World, nic: str, rate: str = "200 Gb/sec (4X HDR)", **counters: int | None) -> None:
    place = f"sys/class/infiniband/{nic}/ports/1"
    told = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": rate, "link_layer": "InfiniBand"}
    for name, text in told.items():
        world.file(f"{place}/{name}", f"{text}\n")
    for name, value in {**dict.fromkeys(COUNTERS, 0), **counters}.items():
        path = world.file(f"{place}/counters/{name}", f"{value}\n")
        if value is None:
            path.unlink()


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    for number in range(8):
        port(made, f"mlx5_ib{number}")
    return made


def flap(world: World, downs: int, minutes: float = 5) -> dict[str, t.Any]:
    world.now += minutes * 60
    port(world, "mlx5_ib3", link_downed=downs)
    return world.one("infiniband_flaps")


def test_counts_from_before_the_first_look_are_history(world: World) -> None:
    assert flap(world, 7)["verdict"] == "pass"
    assert flap(world, 7)["verdict"] == "pass"


def test_three_downs_within_three_hours_are_a_fault_until_reboot(world: World) -> None:
    assert [flap(world, downs)["verdict"] for downs in (1, 2, 3)] == ["pass"] * 3
    found = flap(world, 4)
    assert (found["verdict"], found["class"], found["scope"]) == ("fail", "fabric", {"nic": ["mlx5_ib3"]})
    assert found["context"]["latched"] is True
    assert flap(world, 4, minutes=600)["verdict"] == "pass"
    assert [one["verdict"] for one in world.run("latches")] == ["fail"]


def test_the_same_downs_over_a_longer_time_are_not(world: World) -> None:
    assert [flap(world, downs, minutes=100)["verdict"] for downs in range(1, 9)] == ["pass"] * 8


def test_a_counter_that_was_reset_goes_on_counting(world: World) -> None:
    flap(world, 100)
    assert flap(world, 1)["verdict"] == "pass"
    assert flap(world, 3)["verdict"] == "fail"


def test_a_counter_at_its_end_says_nothing_any_more(world: World) -> None:
    found = flap(world, 255)
    assert (found["verdict"], found["scope"]) == ("warn", {"nic": ["mlx5_ib3"]})
    assert "stopped counting" in found["reason"]
    assert "latched" not in found["context"]


def test_a_site_may_allow_more(world: World) -> None:
    more = {"check": "infiniband_flaps", "metric": "link_downs", "op": "<=", "value": 5, "unit": "events"}
    world.profile["expect"].append({**more, "source": "this site"})
    assert [flap(world, downs)["verdict"] for downs in (0, 5, 6)] == ["pass", "pass", "fail"]


def test_a_port_without_its_counter_is_no_pass_and_hides_no_other(world: World) -> None:
    port(world, "mlx5_ib0", link_downed=None)
    assert flap(world, 0)["verdict"] == "error"
    assert flap(world, 3)["verdict"] == "fail"


def test_no_port_where_there_should_be_some_is_an_error(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert [world.one(name)["verdict"] for name in ("infiniband_flaps", "infiniband_errors")] == ["error", "error"]


def test_no_port_where_none_is_planned_is_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, "Standard_NC80adis_H100_v5")
    assert [world.one(name)["verdict"] for name in ("infiniband_flaps", "infiniband_errors")] == ["skipped"] * 2


@pytest.mark.parametrize(
    ("counters", "verdict"),
    [
        ({}, "pass"),
        ({"symbol_error": 1}, "warn"),
        ({"link_error_recovery": 1}, "warn"),
        ({"port_rcv_errors": 100}, "pass"),
        ({"port_rcv_errors": 101}, "warn"),
        ({"port_xmit_discards": 1000}, "pass"),
        ({"port_xmit_discards": 1001}, "warn"),
    ],
)
def test_errors_of_a_day_are_to_be_looked_into(world: World, counters: dict[str, int], verdict: str) -> None:
    assert world.one("infiniband_errors")["verdict"] == "pass"
    world.now += 3600
    port(world, "mlx5_ib6", **counters)
    found = world.one("infiniband_errors")
    assert found["verdict"] == verdict
    assert found["scope"] == ({"nic": ["mlx5_ib6"]} if verdict == "warn" else {})
    world.now += 25 * 3600
    assert world.one("infiniband_errors")["verdict"] == "pass"


@pytest.mark.parametrize(
    "kept",
    [None, 5, [], {"mlx5_ib3": None}, {"mlx5_ib3": [[1], [None, 2], "x", [1, "2"], [True, 1]]}, {"": [[1e308, 1e308]]}],
)
def test_what_was_kept_may_be_damaged(world: World, kept: t.Any) -> None:
    world.state["kept"]["infiniband_flaps"] = kept
    assert flap(world, 2)["verdict"] == "pass"
    assert flap(world, 5)["verdict"] == "fail"


def test_growth_survives_thinning_and_is_bounded(world: World) -> None:
    for number in range(1500):
        context = world.context()
        found = state.grown(context, "x", {"a": float(number)}, 1e6)
        world.state["kept"].update(context.keeping)
        world.now += 60
    assert found == {"a": 1499.0}
    assert len(world.state["kept"]["x"]["a"]) < 450


def test_a_clock_that_was_set_back_forgets_the_future(world: World) -> None:
    flap(world, 1)
    world.now -= 86400
    assert flap(world, 9)["verdict"] == "pass"
