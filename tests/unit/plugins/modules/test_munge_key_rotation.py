# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A key is exchanged as a whole or not at all, and what a cut left is told apart."""

from __future__ import annotations

import getpass
import stat
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._munge_rotation import Keys, recover
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.modules import munge_key_rotation as module

OLD, NEW = b"o" * 128, b"n" * 128


class Munged:
    """A munged that does not start with some keys."""

    def __init__(self, key: Path) -> None:
        self.key, self.refused, self.restarts = key, t.cast("set[bytes]", set()), 0

    def __call__(self, argv: list[str], timeout: float, data: str | None = None) -> Outcome:
        if argv[:2] == ["systemctl", "restart"]:
            self.restarts += 1
            if self.key.read_bytes() in self.refused:
                return Outcome(1, "", "Job for munge.service failed.", 0.0)
        return Outcome(0, "MUNGE:AwQD:", "", 0.0)


@pytest.fixture
def munged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Munged:
    key = tmp_path / "munge.key"
    key.write_bytes(OLD)
    key.chmod(0o400)
    daemon = Munged(key)
    monkeypatch.setattr(module, "run", daemon)
    return daemon


def rotation(munged: Munged) -> module.Rotation:
    return module.Rotation(munged.key, getpass.getuser(), "munge")


def test_a_key_is_staged_exchanged_and_settled(munged: Munged) -> None:
    host = rotation(munged)
    assert host.staged(NEW, write=False) and not host.next.exists()
    assert host.staged(NEW, write=True) and not host.staged(NEW, write=True)
    assert stat.S_IMODE(host.next.stat().st_mode) == 0o400 and munged.key.read_bytes() == OLD
    assert host.exchanged(write=False) and munged.key.read_bytes() == OLD
    assert host.exchanged(write=True) and not host.exchanged(write=True)
    assert (munged.key.read_bytes(), host.previous.read_bytes(), munged.restarts) == (NEW, OLD, 1)
    with pytest.raises(module.RotationError, match="a rotation was cut short"):
        host.staged(OLD, write=True)
    assert host.settled(write=True) and not host.settled(write=True)
    assert [path.name for path in munged.key.parent.iterdir()] == ["munge.key"]


def test_a_key_with_which_munged_does_not_run_is_not_kept(munged: Munged) -> None:
    host = rotation(munged)
    host.staged(NEW, write=True)
    munged.refused = {NEW}
    with pytest.raises(module.RotationError, match=r"failed\.; the former key is back"):
        host.exchanged(write=True)
    assert munged.key.read_bytes() == OLD and munged.restarts == 2
    assert not host.returned(write=True)


def test_the_former_key_comes_back(munged: Munged) -> None:
    host = rotation(munged)
    host.staged(NEW, write=True)
    host.exchanged(write=True)
    assert host.returned(write=True) and munged.key.read_bytes() == OLD
    assert not host.previous.exists() and not host.returned(write=True)


def test_a_short_key_and_a_link_are_refused(munged: Munged, tmp_path: Path) -> None:
    host = rotation(munged)
    with pytest.raises(module.RotationError, match="has 3 bytes"):
        host.staged(b"abc", write=True)
    host.next.symlink_to(munged.key)
    with pytest.raises((module._trusted.TrustError, OSError)):
        host.marks("salt")


def test_marks_are_equal_for_equal_keys_of_one_run_alone(munged: Munged) -> None:
    host = rotation(munged)
    host.staged(OLD, write=True)
    marks = host.marks("1")
    assert marks.key == marks.next and marks.previous == "" and marks.key not in host.marks("2")


@pytest.mark.parametrize(
    ("hosts", "back", "settle", "problem"),
    [
        ({"a": Keys("o"), "b": Keys("o")}, [], [], ""),
        ({"a": Keys("o", "n"), "b": Keys("o")}, [], ["a"], ""),  # while it was staged
        ({"a": Keys("n", "", "o"), "b": Keys("o", "n")}, ["a"], ["a", "b"], ""),  # in its middle
        ({"a": Keys("n", "", "o"), "b": Keys("n")}, [], ["a"], ""),  # while it was settled
        ({"a": Keys("n", "", "o"), "b": Keys("x")}, [], [], "those that share one: a; b"),
    ],
)
def test_what_a_cut_left(hosts: dict[str, Keys], back: list[str], settle: list[str], problem: str) -> None:
    plan = recover(hosts)
    assert (plan.back, plan.settle) == (back, settle)
    assert problem in plan.problem and bool(problem) == bool(plan.problem)
