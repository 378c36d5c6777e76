# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Package lists of any age, packages among other people's holds."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _packages as packages


def age(path: Path, seconds: float) -> None:
    moment = time.time() - seconds
    os.utime(path, (moment, moment))


@pytest.mark.parametrize("place", ["sources.list", "sources.list.d/new.list", "sources.list.d/new.sources"])
def test_lists_are_fetched_again_when_a_repository_was_added_after_them(tmp_path: Path, place: str) -> None:
    lists, source = tmp_path / "var/lib/apt/lists", tmp_path / "etc/apt" / place
    assert not packages.lists_are_young(3600, tmp_path)
    lists.mkdir(parents=True)
    source.parent.mkdir(parents=True)
    source.touch()
    age(source, 900)
    age(lists, 600)
    assert packages.lists_are_young(3600, tmp_path)
    assert not packages.lists_are_young(300, tmp_path)
    assert not packages.lists_are_young(0, tmp_path)
    age(source, 60)
    assert not packages.lists_are_young(3600, tmp_path)


DPKG = """\
gdrdrv-dkms install not-installed
libnvidia-compute-535:amd64 install installed
libnvidia-compute-535:i386 install installed
linux-image-6.8.0-1015-azure install installed
linux-image-6.5.0-1025-azure deinstall config-files
nvidia-driver-535 hold installed
nvidia-removed hold config-files
openssh-server install installed
"""
PATTERNS = ["linux-image-*", "nvidia-*", "libnvidia-*", "gdrdrv-dkms"]


def test_only_what_is_really_installed_is_held() -> None:
    plan = packages.plan(packages.installed(DPKG), PATTERNS, [])
    held = ["libnvidia-compute-535:amd64", "libnvidia-compute-535:i386", "linux-image-6.8.0-1015-azure"]
    assert plan == packages.HoldPlan(held, [], held)


def test_a_name_fits_with_and_without_its_architecture() -> None:
    now = packages.installed(DPKG)
    assert len(packages.matching(now, ["libnvidia-compute-535"])) == 2
    assert packages.matching(now, ["libnvidia-compute-535:i386"]) == ["libnvidia-compute-535:i386"]


def held(now: dict[str, bool], plan: packages.HoldPlan) -> dict[str, bool]:
    return {**now, **dict.fromkeys(plan.hold, True), **dict.fromkeys(plan.release, False)}


def test_holding_twice_changes_nothing_and_only_ours_are_released() -> None:
    before = packages.installed(DPKG)
    first = packages.plan(before, PATTERNS, [])
    now = held(before, first)
    second = packages.plan(now, PATTERNS, first.held)
    assert (second.hold, second.release, second.held) == ([], [], first.held)
    back = packages.plan(now, [], second.held)
    assert held(now, back) == before, "the administrator's hold of nvidia-driver-535 is still there"
    assert back.held == []


@pytest.mark.parametrize(
    ("now", "patterns", "earlier", "plan"),
    [
        ({"a": False}, ["a"], ["a"], packages.HoldPlan(["a"], [], ["a"])),
        ({"a": False}, [], ["a"], packages.HoldPlan([], [], [])),
        ({}, ["a"], ["a"], packages.HoldPlan([], [], [])),
        ({"a": True, "b": True}, ["b"], ["a", "b"], packages.HoldPlan([], ["a"], ["b"])),
    ],
    ids=["released by hand", "released by hand, not wanted", "removed", "one pattern less"],
)
def test_what_happened_in_the_meantime(
    now: dict[str, bool], patterns: list[str], earlier: list[str], plan: packages.HoldPlan
) -> None:
    assert packages.plan(now, patterns, earlier) == plan
