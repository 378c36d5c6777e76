# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""stack.yml and launch_ddp.yml on two plain hosts: real PyTorch, gloo between the hosts, no scheduler, the record."""

from __future__ import annotations

import json
import re
import subprocess
import typing as t
from pathlib import Path

import pytest
from patience import patience
from plain_hosts import NAMES, SHARED, PlainHosts, Unable

STEPS = 60
PYTHON = SHARED / "pytorch/current/bin/python"
OWN = """
import os, sys, torch
torch.distributed.init_process_group("gloo")
total = torch.ones(1)
torch.distributed.all_reduce(total)
assert total.item() == 2
print(os.uname().nodename, sys.prefix, torch.__file__, flush=True)
torch.distributed.barrier()  # gloo would abort where somebody still uses a connection that is torn down
torch.distributed.destroy_process_group()
"""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[PlainHosts]:
    try:
        made = PlainHosts(tmp_path_factory.mktemp("two") / "hosts")
    except Unable as exc:
        pytest.skip(str(exc))
    yield made
    made.close()


@pytest.fixture(scope="module")
def stack(hosts: PlainHosts) -> PlainHosts:
    """The hosts, with PyTorch on their shared directory."""
    done = hosts.stack(pytorch_archive=True)
    text = done.stdout + done.stderr
    lacking = re.search(r"brought no packages for CPython.*", text)
    if lacking:
        pytest.skip(f"no PyTorch to train with: {lacking.group()[:300]}")
    assert done.returncode == 0, text
    return hosts


def test_two_hosts_train_without_a_scheduler_and_the_record_says_so(stack: PlainHosts, tmp_path: Path) -> None:
    inputs = {
        "ddp_launch_dir": str(tmp_path / "shared/first"),
        "ddp_launch_arguments": ["--steps", str(STEPS)],
        "ddp_launch_timeout": round(patience(300)),
    }
    done = stack.play("launch_ddp", **inputs)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "shared/first/run-1/result.json").read_text())
    assert [rank["host"] for rank in result["ranks"]] == list(NAMES)
    assert (result["backend"], len(result["loss"])) == ("gloo", STEPS)
    assert sum(result["loss"][-6:]) < 0.5 * sum(result["loss"][:6])
    (record,) = stack.trainings().values()
    metrics = {metric["name"]: metric["value"] for metric in record["metrics"]}
    assert (record["verdict"], metrics["nodes"], metrics["silent_nodes"]) == ("pass", 2, 0)
    assert stack.trained_by() == []

    # The same training is not started again.
    again = stack.play("launch_ddp", **inputs)
    assert again.returncode == 0, again.stdout + again.stderr
    assert [path.name for path in (tmp_path / "shared/first").glob("run-*")] == ["run-1"]


def test_hosts_run_the_environment_on_their_scratch_and_the_shared_one_where_it_has_no_room(
    stack: PlainHosts, tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    for name, room in zip(NAMES, ("size=4g", "size=1m")):
        mount = ["mount", "-t", "tmpfs", "-o", f"{room},mode=755", "none", str(scratch)]
        subprocess.run([*stack.enter(name), *mount], check=True)
    script = tmp_path / "own.py"
    script.write_text(OWN)
    inputs = {
        "ddp_launch_dir": str(tmp_path / "shared/staged"),
        "ddp_launch_script": str(script),
        "ddp_launch_timeout": round(patience(300)),
        "cluster_scratch_dir": str(scratch),
    }
    done = stack.play("launch_ddp", **inputs)
    assert done.returncode == 0, done.stdout + done.stderr
    run = tmp_path / "shared/staged/run-1"
    said = {line.split()[0]: line.split()[1:] for path in run.glob("ranks/*.txt") for line in path.open()}
    shared = str(PYTHON.parents[1])
    staged = said["node1"][0]
    assert staged.startswith(f"{scratch}/hpcai-staged-0/")
    assert said["node2"][0] == shared
    # All of it, and each host sees its own scratch.
    assert said["node1"][1].startswith(f"{staged}/lib")
    assert said["node2"][1].startswith(f"{shared}/lib")
    assert re.search(
        r"node2 starts \S+ itself: \d+ MiB are needed in .*, and 0 MiB are free", (run / "nodes/node2.txt").read_text()
    )
    assert "itself" not in (run / "nodes/node1.txt").read_text()

    # What is there is not copied again.
    seen = ["stat", "--format=%i", f"{staged}/pyvenv.cfg"]
    before = subprocess.run([*stack.enter("node1"), *seen], capture_output=True, text=True, check=True).stdout
    again = stack.play("launch_ddp", **inputs, ddp_launch_again=True)
    assert again.returncode == 0, again.stdout + again.stderr
    assert (tmp_path / "shared/staged/run-2").exists()
    assert subprocess.run([*stack.enter("node1"), *seen], capture_output=True, text=True, check=True).stdout == before


def test_a_package_that_no_pytorch_of_today_runs_is_refused_before_anything_is_built(stack: PlainHosts) -> None:
    done = stack.stack(training_extras_list=["torch-ort"])
    assert done.returncode != 0
    said = " ".join(done.stdout.split())
    assert re.search(r"Nothing was built\. torch-ort 1\.19\.2 needs PyTorch <2\.9, the environment has 2\.\d+", said), (
        said
    )
    assert "The nearest build that has is cu126, with 2.7.1 (pytorch_build). torch.compile is what" in said


def test_a_compiler_that_no_package_has_is_refused_with_the_builds_that_have_one(stack: PlainHosts) -> None:
    done = stack.stack(pytorch_cuda_compiler=True)
    assert done.returncode != 0
    said = " ".join(done.stdout.split())
    assert "pytorch_cuda_compiler goes with the builds cu130 and cu132 (pytorch_build), and this is cpu:" in said
