# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What gpu_clocks set is what the agent expects: a lower lock is no fault, and a lock that is gone is one."""

from __future__ import annotations

import json
import os
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.clocks import ClockEntry, Setting
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.clocks_apply import Record
from ansible_collections.hpcai.gpu_cluster.tests.unit.fixtures.nvidia_smi import machines
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils.agent.node_world import World, smi

CHECK = "gpu_clock_lock"
CARD = machines.A100_R470
EVERY = range(8)
IDLE = "0x0000000000000001"
LOW = {"applications_clocks": "<graphics_clock>1095 MHz</graphics_clock><mem_clock>1215 MHz</mem_clock>"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    machines.ndv4_sysfs(tmp_path / "sys")
    places = {"settings": str(tmp_path / "settings.json"), "record": str(tmp_path / "record.json")}
    made.settings["checks"] = {CHECK: places}
    return made


def site(world: World, state: str = "locked", graphics: int = 1200, when: str = "boot") -> None:
    told = {"state": state, "graphics": graphics, "memory": 0, "when": when}
    world.file("settings.json", json.dumps(told))


def locked(world: World, graphics: int, gpus: t.Iterable[int] = EVERY, **more: t.Any) -> None:
    setting = Setting("locked", graphics, **{"seen": graphics, **more})
    entries = {f"GPU-00000000-0000-4000-8000-{index:012d}": ClockEntry(setting) for index in gpus}
    Record(str(world.folder / "record.json")).save(CARD.driver, entries)


def now(world: World, graphics: int, others: t.Mapping[int, t.Mapping[str, str]] | None = None) -> None:
    every = {index: {**LOW, "graphics_clock": f"{graphics} MHz"} for index in EVERY}
    smi(world, CARD, {index: {**every[index], **(others or {}).get(index, {})} for index in EVERY})


def test_a_lower_lock_is_what_is_expected_from_then_on(world: World) -> None:
    site(world)
    locked(world, 1200)
    now(world, 1200)
    found = world.one(CHECK)
    assert (found["verdict"], [one["value"] for one in found["metrics"]]) == ("pass", [1200] * 8)
    # With the site's wish the expectation changes: these are now too slow, and too fast.
    for other in (1410, 1095):
        site(world, graphics=other)
        again = world.one(CHECK)
        assert (again["verdict"], again["class"], len(again["scope"]["gpu"])) == ("warn", "config", 8)


def test_a_user_who_may_not_read_the_settings_skips_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certification's tasks are a user's: what is no fault of the node must not leave it untested."""
    site(world)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert world.one(CHECK)["verdict"] == "skipped"


@pytest.mark.parametrize("clock", [210, 1410])
def test_a_lock_that_is_gone_is_named(world: World, clock: int) -> None:
    site(world)
    locked(world, 1200)
    now(world, 1200, {3: {"graphics_clock": f"{clock} MHz"}})
    found = world.one(CHECK)
    assert (found["verdict"], found["class"], found["scope"]) == ("warn", "config", {"gpu": [3]})
    assert f"graphics (gpu=3): {clock} MHz, expected" in found["reason"]


def test_the_highest_clocks_are_expected_where_the_site_wants_them(world: World) -> None:
    site(world, "maximum", 0)
    now(world, 210)  # nobody set anything since the boot: idle, and 1095 MHz for applications
    found = world.one(CHECK)
    assert (found["verdict"], len(found["scope"]["gpu"])) == ("warn", 8)
    locked(world, 1410)
    now(world, 1410)
    assert world.one(CHECK)["verdict"] == "pass"


def test_application_clocks_serve_as_well(world: World) -> None:
    site(world, graphics=1095)
    now(world, 210)
    assert world.one(CHECK)["verdict"] == "pass"


def test_an_idle_gpu_that_never_showed_its_lock_tells_nothing(world: World) -> None:
    site(world)
    locked(world, 1200, seen=210, parked=True)
    now(world, 210, {index: {"clocks_throttle_reason_gpu_idle": "Active"} for index in EVERY})
    assert world.one(CHECK)["verdict"] == "skipped"


def test_heat_is_not_blamed_on_the_lock(world: World) -> None:
    site(world)
    locked(world, 1200)
    hot = {"clocks_throttle_reason_hw_thermal_slowdown": "Active", "graphics_clock": "900 MHz"}
    now(world, 1200, {5: hot})
    found = world.one(CHECK)
    assert (found["verdict"], len(found["metrics"])) == ("pass", 7)


def test_clocks_of_jobs_are_expected_of_the_gpus_that_have_them(world: World) -> None:
    site(world, when="job")
    now(world, 210)
    assert world.one(CHECK)["verdict"] == "skipped"
    locked(world, 1200, [2])
    now(world, 210, {2: {"graphics_clock": "1200 MHz"}})
    found = world.one(CHECK)
    assert (found["verdict"], [one["gpu"] for one in found["metrics"]]) == ("pass", [2])


def test_without_the_role_what_the_module_set_counts(world: World) -> None:
    now(world, 1200)
    assert world.one(CHECK)["verdict"] == "skipped"
    locked(world, 1200)
    assert world.one(CHECK)["verdict"] == "pass"
    now(world, 210)
    assert world.one(CHECK)["verdict"] == "warn"


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_settings_that_cannot_be_read_are_no_pass(world: World, text: str) -> None:
    world.file("settings.json", text)
    now(world, 1200)
    found = world.one(CHECK)
    assert (found["verdict"], found["class"]) == ("error", "infra")


def test_a_lock_leaves_what_the_gpu_offers(world: World) -> None:
    locked(world, 1200)
    now(world, 1200)
    assert world.one("gpu_clock_limits")["verdict"] == "pass"
