# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which bundles go, and which a node may still ask for."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node import bundle as node_bundle

DAY = 86400.0
NOW = 1000 * DAY


def bundle(letter: str) -> str:
    return f"hpcai-node-{letter * 12}.tar.gz"


def days(**ages: float) -> dict[str, float]:
    """Bundles by letter, each as old as that in days."""
    return {bundle(letter): NOW - age * DAY for letter, age in ages.items()}


@pytest.mark.parametrize(
    "ages, current, keep, named, gone",
    [
        ({"a": 5, "b": 4, "c": 3, "d": 2}, "d", 1, "", "ba"),
        ({"a": 5, "b": 4, "c": 3, "d": 2}, "d", 1, "a", "b"),  # a group of nodes has user-data of its own
        ({"a": 5, "b": 4, "c": 3, "d": 2}, "d", 5, "", ""),
        ({"a": 5, "b": 4, "c": 0.1, "d": 0}, "d", 0, "", "a"),  # b was the current one until a moment ago
        ({"a": 90, "b": 0.1}, "b", 0, "", ""),  # so was a, though it is old
        ({"a": 90, "b": 1.1}, "b", 0, "", "a"),
        ({"a": 5, "b": 4, "c": 3}, "a", 0, "", "b"),  # a again: c was replaced now, b long ago
        ({"a": 5, "b": 4}, "x", 0, "", ""),  # the current one is not there: nothing is known
        ({}, "x", 0, "", ""),
    ],
)
def test_what_may_go(ages: dict[str, float], current: str, keep: int, named: str, gone: str) -> None:
    request = node_bundle.PruneRequest(bundle(current), keep, DAY, {bundle(letter) for letter in named})
    assert node_bundle.plan(days(**ages), request, NOW) == [bundle(letter) for letter in gone]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for letter, age in {"a": 9, "b": 8, "c": 7}.items():
        file = tmp_path / bundle(letter)
        file.write_bytes(b"x")
        os.utime(file, (0, NOW - age * DAY))
    for name in ("notes.txt", "hpcai-node-mine.tar.gz", f"{bundle('a')}.part"):
        (tmp_path / name).write_text("theirs")
        os.utime(tmp_path / name, (0, 0))
    (tmp_path / bundle("e")).mkdir()
    return tmp_path


def bring(folder: Path, current: str, check: bool = False, **more: t.Any) -> tuple[bool, list[str]]:
    changed, gone, dummy = node_bundle.prune(
        folder, node_bundle.PruneRequest(bundle(current), 0, DAY, **more), NOW, check
    )
    return changed, gone


def test_old_ones_go_once_and_nothing_else(folder: Path) -> None:
    before = sorted(folder.iterdir())
    assert bring(folder, "c", check=True) == (True, [bundle("b"), bundle("a")])
    assert sorted(folder.iterdir()) == before
    assert bring(folder, "c") == (True, [bundle("b"), bundle("a")])
    left = [path for path in before if path.name not in (bundle("a"), bundle("b"))]
    assert sorted(folder.iterdir()) == left
    assert bring(folder, "c") == (False, [])


def test_an_old_one_that_is_used_again_is_the_newest(folder: Path) -> None:
    assert bring(folder, "a") == (True, [bundle("b")])
    assert bring(folder, "a") == (False, [])  # c was replaced this moment
    assert node_bundle.existing(folder)[bundle("a")] == NOW


def test_what_user_data_names_stays(folder: Path) -> None:
    script = folder / "user-data-1"
    script.write_text(f'cp /shared/{bundle("a")} "$work"/{bundle("a")}\n')
    told = node_bundle.named([script, folder / "user-data-2"])
    assert told == {bundle("a")}
    assert bring(folder, "c", named=told) == (True, [bundle("b")])


def test_a_directory_that_is_not_there_has_nothing(tmp_path: Path) -> None:
    assert bring(tmp_path / "none", "a") == (False, [])
