# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lock file of what an environment lacks, by a program that stands for uv."""

from __future__ import annotations

from pathlib import Path

import pytest
from module_process import Machine
from stand_in import stand_in

BASE = {"packages": {"torch": "2.13.0", "numpy": "2.3.4"}, "python": "3.11", "machine": "x86_64"}
WHEEL = {"name": "fairscale", "version": "0.4.13", "requires": ["torch>=1.8", "numpy>=1.22"], "relax": []}


class Lock(Machine):
    module = "python_lock"


@pytest.mark.parametrize(
    ("lock", "named"),
    [("torch==2.13.0\nnumpy==2.3.4\n", False), ("torch==2.13.0\nninja==1.13.0 --hash=sha256:0\n", True)],
)
def test_a_lock_of_nothing_but_what_the_environment_has_is_none_to_install(
    lock: str, named: bool, tmp_path: Path
) -> None:
    module = Lock(tmp_path)
    stand_in(module.bin / "uv", "uv_lock.sh", lock=lock)
    first, second = (module(base=BASE, wheels=[WHEEL], path=str(tmp_path / "locks")) for dummy in range(2))
    assert (first["changed"], second["changed"]) == (True, False)
    assert first["path"] == second["path"]
    assert bool(first["path"]) is named
    if named:
        assert Path(first["path"]).read_text() == "ninja==1.13.0 --hash=sha256:0\n"
