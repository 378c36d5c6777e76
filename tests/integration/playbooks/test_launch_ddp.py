# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""stack.yml and launch_ddp.yml on two plain hosts: real PyTorch, gloo between the hosts, no scheduler, the record."""

from __future__ import annotations

import json
import os
import re
import sys
import typing as t
from pathlib import Path

import pytest
from ansible_playbook import Ended, ansible_playbook, few_settings
from plain_hosts import NAMES, PlainHosts, Unable

ROOT = Path(__file__).resolve().parents[3]
# Stays, as on a cluster: the second run of the tests finds it there and proves it, which takes seconds.
SHARED = ROOT / ".build/training"
STEPS = 60


@pytest.fixture
def hosts(tmp_path: Path) -> t.Iterator[PlainHosts]:
    try:
        made = PlainHosts(tmp_path / "hosts")
    except Unable as exc:
        pytest.skip(str(exc))
    yield made
    made.close()


def run(hosts: PlainHosts, playbook: str, **inputs: t.Any) -> Ended:
    inventory = hosts.place / "hosts.json"
    inventory.write_text(json.dumps(hosts.inventory(slurm_compute=NAMES)))
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "HPCAI_"))}
    environment.update(ANSIBLE_CONFIG=str(few_settings()), ANSIBLE_NOCOLOR="1")
    environment.update(
        ANSIBLE_CALLBACKS_ENABLED="hpcai.gpu_cluster.run_record", HPCAI_REPORT_DIR=str(hosts.place / "report")
    )
    inputs = {"cluster_shared_dir": str(SHARED), "cluster_user": "root", **inputs}
    words = ("-i", inventory, "-e", json.dumps(inputs), f"hpcai.gpu_cluster.{playbook}")
    return ansible_playbook(*words, cwd=hosts.place, env=environment)


@pytest.fixture
def stack(hosts: PlainHosts) -> PlainHosts:
    """The hosts, with PyTorch on their shared directory."""
    SHARED.mkdir(mode=0o755, parents=True, exist_ok=True)
    inputs = {"stack_host": NAMES[0], "pytorch_proof": "local", "pytorch_staging_dir": str(SHARED / "staging")}
    done = run(hosts, "stack", pytorch_python=sys.executable, **inputs)
    text = done.stdout + done.stderr
    lacking = re.search(r"brought no packages for CPython.*", text)
    if lacking:
        pytest.skip(f"no PyTorch to train with: {lacking.group()[:300]}")
    assert done.returncode == 0, text
    return hosts


def trainings(hosts: PlainHosts) -> list[dict[str, t.Any]]:
    checks = json.loads((hosts.place / "report/run.json").read_text())["checks"]
    return [one for one in checks if one["check"] == "training"]


def test_two_hosts_train_without_a_scheduler_and_the_record_says_so(stack: PlainHosts, tmp_path: Path) -> None:
    inputs = {
        "ddp_launch_dir": str(tmp_path / "shared/first"),
        "ddp_launch_arguments": ["--steps", str(STEPS)],
        "ddp_launch_timeout": 300,
    }
    done = run(stack, "launch_ddp", **inputs)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "shared/first/run-1/result.json").read_text())
    assert [rank["host"] for rank in result["ranks"]] == list(NAMES)
    assert (result["backend"], len(result["loss"])) == ("gloo", STEPS)
    assert sum(result["loss"][-6:]) < 0.5 * sum(result["loss"][:6])
    (record,) = trainings(stack)
    metrics = {metric["name"]: metric["value"] for metric in record["metrics"]}
    assert (record["verdict"], metrics["nodes"], metrics["silent_nodes"]) == ("pass", 2, 0)
    assert not stack.units()

    # The same training is not started again.
    again = run(stack, "launch_ddp", **inputs)
    assert again.returncode == 0, again.stdout + again.stderr
    assert [path.name for path in (tmp_path / "shared/first").glob("run-*")] == ["run-1"]
