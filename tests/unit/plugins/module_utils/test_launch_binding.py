# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import BindMethod, bind, bind_method

NUMACTL, TASKSET, OWN = (
    BindMethod("numactl", "/numactl"),
    BindMethod("taskset", "/taskset"),
    BindMethod("own", sys.executable),
)


@pytest.mark.parametrize(
    ("have", "works", "want"),
    [
        ({"numactl", "taskset"}, True, NUMACTL),
        ({"numactl", "taskset"}, False, TASKSET),
        ({"taskset"}, True, TASKSET),
        ({"numactl"}, False, OWN),
        (set(), True, OWN),
    ],
)
def test_method(have: set[str], works: bool, want: BindMethod) -> None:
    got = bind_method(lambda name: f"/{name}" if name in have else None, lambda dummy: works)
    assert got == want


@pytest.mark.parametrize(
    ("how", "cpus", "node", "want"),
    [
        (NUMACTL, "0-23,48", 1, "/numactl --physcpubind=0-23,48 --membind=1 prog x"),
        (NUMACTL, "", 1, "/numactl --cpunodebind=1 --membind=1 prog x"),
        (NUMACTL, "0-23", None, "/numactl --physcpubind=0-23 prog x"),
        (NUMACTL, "0-23", -1, "/numactl --physcpubind=0-23 prog x"),
        (NUMACTL, "", None, "prog x"),
        (TASKSET, "0-23", 1, "/taskset --cpu-list 0-23 prog x"),
        (TASKSET, "", 1, "prog x"),
        (OWN, "", 1, "prog x"),
    ],
)
def test_bind(how: BindMethod, cpus: str, node: int | None, want: str) -> None:
    assert " ".join(bind(["prog", "x"], how, cpus, node)) == want


def _ways() -> list[BindMethod]:
    """Every way to bind that works on this machine."""
    found = [bind_method(), bind_method(works=lambda dummy: False), bind_method(lambda dummy: None)]
    return list(dict.fromkeys(found))


@pytest.mark.skipif(not shutil.which("taskset"), reason="util-linux is not installed")
@pytest.mark.parametrize("how", _ways(), ids=lambda how: how.name)
def test_the_program_is_really_bound(how: BindMethod) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    cpus = f"{allowed[0]},{allowed[-1]}"
    show = "import os; print(sorted(os.sched_getaffinity(0)))"
    out = subprocess.run(bind([sys.executable, "-c", show], how, cpus), capture_output=True, text=True, check=True)
    assert out.stdout.strip() == str(sorted({allowed[0], allowed[-1]}))
