# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade import plan


@pytest.mark.parametrize(
    ("target", "before"),
    [  # as the release notes of each say, "supports upgrading directly from"
        ((22, 5), [(21, 8), (20, 11)]),
        ((23, 2), [(22, 5), (21, 8)]),
        ((23, 11), [(23, 2), (22, 5)]),
        ((24, 5), [(23, 11), (23, 2)]),
        ((24, 11), [(24, 5), (23, 11), (23, 2)]),
        ((25, 5), [(24, 11), (24, 5), (23, 11)]),
        ((25, 11), [(25, 5), (24, 11), (24, 5)]),
        ((26, 5), [(25, 11), (25, 5), (24, 11)]),
        ((27, 5), [(26, 11), (26, 5), (25, 11)]),
    ],
)
def test_what_a_release_takes_over(target: plan.Release, before: list[plan.Release]) -> None:
    assert plan.accepted(target) == before


@pytest.mark.parametrize(
    ("have", "target", "words"),
    [
        ("24.11.5-4+deb13u1", "26.05.5-1", ""),
        ("26.05.5-1", "26.05.5-1", ""),
        ("26.05.3", "26.05.5-1", ""),
        ("24.11.5", "26.11.0", "26.11 takes over from 26.05, 25.11, 25.05 and not from 24.11.5"),
        ("22.05.8-4+deb12u3", "26.05.5-1", "go 22.05 -> 23.11 -> 25.05 -> 26.05"),
        ("26.05.5-1", "24.11.5-4", "26.05.5 is newer than 24.11.5"),
        ("26.05.5-1", "26.05.3-1", "26.05.5 is newer than 26.05.3"),
        ("17.11.2", "26.05.5", "26.05 takes over from 25.11, 25.05, 24.11 and not from 17.11.2"),
    ],
)
def test_which_upgrade_is_possible(have: str, target: str, words: str) -> None:
    said = plan.problem(have, target)
    assert words in said and bool(said) == bool(words)


@pytest.mark.parametrize("text", ["", "latest", "26", "slurm"])
def test_what_is_no_version(text: str) -> None:
    with pytest.raises(plan.VersionError, match="is not a version of Slurm"):
        plan.numbers(text)


def test_there_is_no_such_release() -> None:
    with pytest.raises(plan.VersionError, match=r"25\.07 is not a release of Slurm"):
        plan.accepted((25, 7))


@pytest.mark.parametrize(
    ("wanted", "version", "fits"),
    [
        ("26.05", "26.05.5-1", True),
        ("26.05.5", "26.05.5-1", True),
        ("26.05.5-1", "26.05.5-1", True),
        ("26.05", "1:26.05.5-1", True),
        ("26.05.5-1", "26.05.5-1+b1", False),
        ("26.0", "26.05.5-1", False),
        ("26.05.5", "26.05.50-1", False),
    ],
)
def test_a_version_is_named_as_exactly_as_one_likes(wanted: str, version: str, fits: bool) -> None:
    assert plan.fits(wanted, version) is fits
