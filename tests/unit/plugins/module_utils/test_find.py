# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import fnmatch
import os
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _launch

FILES = {
    "/opt/nccl-tests/build/all_reduce_perf",
    "/opt/tools/2.9/all_reduce_perf",
    "/opt/tools/2.18/all_reduce_perf",
    "/opt/tools/2.18/all_reduce_perf_mpi",
}
FOLDERS = sorted({path.rpartition("/")[0] for path in FILES})


def find(programs: t.Any, given: str | None = None, places: t.Sequence[str] = (), on_path: str = "") -> str:
    return _launch.find(
        programs,
        given,
        places,
        which=lambda name: f"/usr/bin/{name}" if name == on_path else None,
        exists=FILES.__contains__,
        expand=lambda pattern: fnmatch.filter(FOLDERS, pattern),
        path="/usr/bin:/bin",
    )


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (("all_reduce_perf", "/opt/tools/2.9/all_reduce_perf"), "/opt/tools/2.9/all_reduce_perf"),
        (("all_reduce_perf", "/opt/tools/2.9/"), "/opt/tools/2.9/all_reduce_perf"),
        (("all_reduce_perf", None, ["/opt/tools/*"], "all_reduce_perf"), "/usr/bin/all_reduce_perf"),
        (("all_reduce_perf", None, ["/opt/tools/*"]), "/opt/tools/2.18/all_reduce_perf"),
        ((["all_reduce_perf_mpi", "all_reduce_perf"], None, ["/opt/tools/*"]), "/opt/tools/2.18/all_reduce_perf_mpi"),
        (
            (["all_reduce_perf_mpi", "all_reduce_perf"], None, ["/opt/tools/*"], "all_reduce_perf"),
            "/opt/tools/2.18/all_reduce_perf_mpi",
        ),
        ((["x_mpi", "all_reduce_perf"], None, ["/none", "/opt/nccl*/build"]), "/opt/nccl-tests/build/all_reduce_perf"),
    ],
)
def test_found(arguments: tuple[t.Any, ...], want: str) -> None:
    assert find(*arguments) == want


def test_not_found_says_where_it_was_looked_for() -> None:
    with pytest.raises(_launch.NotFound) as caught:
        find(["a_mpi", "a"], None, ["/opt/x/*", "/opt/y"])
    assert str(caught.value) == (
        "a_mpi or a was not found in PATH (/usr/bin:/bin), /opt/x/*, /opt/y; the role gpu_test_tools builds it"
    )


def test_a_wrong_path_is_not_replaced_by_another_program() -> None:
    with pytest.raises(_launch.NotFound, match="no program at the given path: /bad, /bad/all_reduce_perf cannot"):
        find("all_reduce_perf", "/bad", ["/opt/tools/*"], "all_reduce_perf")


def test_real_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    program = tmp_path / "tool-1.0" / "bin" / "prog"
    program.parent.mkdir(parents=True)
    program.touch(0o644)
    places = [f"{tmp_path}/tool-*/bin"]
    if os.geteuid() != 0:
        with pytest.raises(_launch.NotFound):
            _launch.find("prog", places=places)
    program.chmod(0o755)
    assert _launch.find("prog", places=places) == str(program)
