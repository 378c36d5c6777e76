# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._apt import lists_are_young


def age(path: Path, seconds: float) -> None:
    moment = time.time() - seconds
    os.utime(path, (moment, moment))


@pytest.mark.parametrize("place", ["sources.list", "sources.list.d/new.list", "sources.list.d/new.sources"])
def test_lists_are_fetched_again_when_a_repository_was_added_after_them(tmp_path: Path, place: str) -> None:
    lists, source = tmp_path / "var/lib/apt/lists", tmp_path / "etc/apt" / place
    assert not lists_are_young(3600, tmp_path)
    lists.mkdir(parents=True)
    source.parent.mkdir(parents=True)
    source.touch()
    age(source, 900)
    age(lists, 600)
    assert lists_are_young(3600, tmp_path)
    assert not lists_are_young(300, tmp_path)
    assert not lists_are_young(0, tmp_path)
    age(source, 60)
    assert not lists_are_young(3600, tmp_path)
