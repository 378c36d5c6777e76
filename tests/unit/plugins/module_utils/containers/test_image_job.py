# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes held by scripts in the place of Slurm's programs: what they are asked, and that nothing outlives us."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest
from stand_in import stand_in

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import image_staging as job
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_node import ImageError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_staging import (
    BusyError,
    Group,
    RevokedError,
)
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils.containers.images_made import image, task

GROUP = Group("batch", ["c1", "c2", "c3"], ["c4", "d1"], 1800)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tmp_path.chmod(0o755)
    monkeypatch.setenv("FAKE", str(tmp_path))
    (tmp_path / "bin").mkdir()
    for name, source in (("salloc", "salloc_two_nodes.sh"), ("srun", "srun_two_nodes.sh"), ("sbcast", "sbcast.sh")):
        stand_in(tmp_path / "bin" / name, source)
    return tmp_path


def tools(home: Path, **options: t.Any) -> job.Tools:
    paths = {name: str(home / "bin" / name) for name in ("salloc", "srun", "sbcast")}
    return job.Tools(paths, sys.executable, options, time.monotonic() + 600)


def released(home: Path) -> bool:
    end = time.monotonic() + 10
    while not (home / "released").exists() and time.monotonic() < end:
        time.sleep(0.05)
    return (home / "released").exists()


def test_as_many_nodes_as_are_free_are_held_while_it_lasts(home: Path) -> None:
    with job.allocation(tools(home, mem="2G", account="lab"), GROUP, 30) as held:
        assert (held.number, held.nodes) == (7, ["c1", "c2"])
        assert not (home / "released").exists()
    assert released(home)
    asked = (home / "salloc").read_text().split()
    assert {"--nodes=1-3", "--exclude=c4,d1", "--partition=batch", "--immediate=30", "--mem=2G"} <= set(asked)
    assert {"--time=10", "--account=lab", "--ntasks-per-node=1", "--no-kill"} <= set(asked)


def test_no_more_time_is_asked_for_than_the_partition_gives(home: Path) -> None:
    assert "--time=2" in job.argv(tools(home), GROUP._replace(max_time=90), 30)
    assert "--time=10" in job.argv(tools(home), GROUP._replace(max_time=None), 30)
    assert not [word for word in job.argv(tools(home), GROUP._replace(others=[]), 0.2) if "exclude" in word]


def test_nodes_do_what_they_are_told(home: Path) -> None:
    made = image(home / "shared")
    given = task(home / "shared", home / "images", [made], action="look")
    with job.allocation(tools(home), GROUP, 30) as held:
        said, trouble = held.step(["c1", "c2"], given)
        assert held.broadcast("/a", "/b", 8) == ""
    assert trouble == ""
    assert sorted(said) == ["c1", "c2"]
    assert all(answer["images"] == {"app": "is not there"} for answer in said.values())
    assert {"--jobid=7", "--nodelist=c[1-2]", "--ntasks=2", "--overlap"} <= set((home / "srun").read_text().split())
    assert (home / "sbcast").read_text().split() == ["--jobid=7", "--force", "--fanout=8", "/a", "/b"]


def test_what_was_said_before_a_node_died_counts(home: Path) -> None:
    (home / "dies").touch()
    given = task(home / "shared", home / "images", [], action="look")
    with job.allocation(tools(home), GROUP, 30) as held:
        said, trouble = held.step(["c1", "c2", "c3"], given)
        assert held.broadcast("/a", "/b", 0) == "sbcast: error: REQUEST_FILE_BCAST(c1)"
    assert sorted(said) == ["c1", "c2"]
    assert "Node failure on c3" in trouble
    assert "fanout" not in (home / "sbcast").read_text()


@pytest.mark.parametrize(
    "said",
    [
        "salloc: error: Unable to allocate resources: Connection timed out",
        "salloc: error: Unable to allocate resources: Requested nodes are busy",
        "salloc: error: Unable to allocate resources: Immediate execution impossible, insufficient priority",
    ],
)
def test_nodes_that_are_busy(home: Path, said: str) -> None:
    (home / "refuse").write_text(said)
    with pytest.raises(BusyError), job.allocation(tools(home), GROUP, 1):
        pass


@pytest.mark.parametrize(
    "said",
    [
        "salloc: error: Job allocation 125 has been revoked",
        # The line that tells need not be the one that is called an error.
        "salloc: error: Node failure on c2\nsalloc: Job allocation 125 has been revoked.",
    ],
)
def test_nodes_that_slurm_takes_back(home: Path, said: str) -> None:
    (home / "refuse").write_text(said)
    with pytest.raises(RevokedError, match="125 has been revoked"), job.allocation(tools(home), GROUP, 1):
        pass


def test_any_other_refusal_is_told(home: Path) -> None:
    (home / "refuse").write_text("salloc: error: Unable to allocate resources: Invalid account or account/partition")
    with pytest.raises(ImageError, match=r"Invalid account .*\(tried: .*salloc --"), job.allocation(
        tools(home), GROUP, 1
    ):
        pass


def test_nodes_are_given_back_when_something_breaks(home: Path) -> None:
    with pytest.raises(ZeroDivisionError), job.allocation(tools(home), GROUP, 30):
        raise ZeroDivisionError
    assert released(home)


HOLD = """
import time
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import image_staging as job
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils.containers.test_image_job import GROUP, tools
from pathlib import Path
with job.allocation(tools(Path({home!r})), GROUP, 30) as held:
    print(held.nodes, flush=True)
    time.sleep(600)
"""


def test_nodes_are_given_back_when_we_are_killed(home: Path) -> None:
    argv = [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}\n{HOLD.format(home=str(home))}"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout
        assert run.stdout.readline() == "['c1', 'c2']\n"
        run.kill()
    assert released(home)


def test_the_program_needs_nothing_but_python(home: Path) -> None:
    text = job.program()
    assert "ansible_collections" not in text
    assert text.count("from __future__") == 1
    names = [node.name for node in ast.parse(text).body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    assert len(names) == len(set(names)), "two of the joined files give the same name to different things"
    (home / "stage.py").write_text(text)
    done = subprocess.run([sys.executable, "-IS", str(home / "stage.py"), "--help"], capture_output=True, check=False)
    assert done.returncode == 0


def test_the_program_is_kept_beside_the_images(home: Path) -> None:
    assert job.publish(home, dry=True)
    assert not (home / "stage.py").exists()
    assert job.publish(home, dry=False)
    assert (home / "stage.py").read_text() == job.program()
    assert not job.publish(home, dry=False)
    (home / "stage.py").write_text("older")
    assert job.publish(home, dry=False)
