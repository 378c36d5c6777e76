# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""stack.yml and launch_ddp.yml on two plain hosts: real PyTorch, gloo between the hosts, no scheduler, the record."""

from __future__ import annotations

import json
import re
import typing as t
from pathlib import Path

import pytest
from patience import patience
from plain_hosts import NAMES, PlainHosts, Unable

STEPS = 60


@pytest.fixture
def hosts(tmp_path: Path) -> t.Iterator[PlainHosts]:
    try:
        made = PlainHosts(tmp_path / "hosts")
    except Unable as exc:
        pytest.skip(str(exc))
    yield made
    made.close()


@pytest.fixture
def stack(hosts: PlainHosts) -> PlainHosts:
    """The hosts, with PyTorch on their shared directory."""
    done = hosts.stack()
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
