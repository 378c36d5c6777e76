# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The workflow of AWX from fresh nodes to the report: five jobs in the image, over SSH, on a lab of their own.

What one job leaves for the next is on the cluster and in its artifacts. Nothing of this machine is in a job but what
AWX would put there: the project, the collection, an inventory, the credential's key, a volume for what is fetched.
The inventory names no cloud, so provision finds nothing to make.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_playbook import OUR_FAULT
from execution_environment import trusted
from patience import patience
from stage_jobs import IMAGE, Json, in_image, install, private_directory, run_job

ROOT = Path(__file__).resolve().parents[3]
STATE = ROOT / ".build/stages"
LAB = {"lab_name": "stages", "lab_subnet": "10.213.61.0/24", "lab_state_dir": str(STATE), "lab_compute_nodes": 2}
RESULTS = "/var/lib/hpcai/results"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hpcai.gpu_cluster"
pytestmark = pytest.mark.skipif(
    not IMAGE, reason="jobs on nodes run in the execution environment: make execution-environment"
)


def lab(playbook: str) -> None:
    """Start or remove the nodes, as make lab-up does."""
    words = ["-m", "ansible.cli.playbook", "-e", json.dumps(LAB), f"lab/{playbook}.yml"]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "HPCAI_REPORT_DIR": str(STATE / "report")}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=patience(900),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def on_controller(*words: str) -> str:
    command = ["podman", "exec", "hpcai-stages-ctl", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class Workflow:
    """The jobs of one workflow on the lab's nodes."""

    def __init__(self, folder: Path, collections: Path) -> None:
        self.folder, self.collections = folder, collections
        self.artifacts: Json = {}
        self.said: dict[str, str] = {}

    def inventory(self, directory: Path) -> None:
        """Write what a site would: the lab's groups, variables, profiles and addresses, and nothing of this machine."""
        tree = yaml.safe_load((STATE / "hosts.yml").read_text())
        tree["all"]["children"]["lab_nodes"]["vars"] = {
            "ansible_user": "root",
            "ansible_python_interpreter": "/usr/bin/python3",
        }
        (directory / "hosts.json").write_text(json.dumps(tree))
        for name in ("group_vars", "profiles"):
            shutil.copytree(ROOT / "lab/inventory" / name, directory / name)

    def isolation(self) -> list[str]:
        CACHE.mkdir(parents=True, exist_ok=True)
        # Of pip, what this machine needs to reach an index, and its directories of wheels.
        wheels = [directory for directory in os.environ.get("PIP_FIND_LINKS", "").split() if Path(directory).is_dir()]
        mounts = [f"{directory}:{directory}:ro" for directory in (self.collections, *wheels)] + [f"{CACHE}:/cache:rw"]
        pip = [
            f"--env={name}={value}"
            for name, value in os.environ.items()
            if name.startswith("PIP_") and name != "PIP_CERT"
        ]
        return in_image("--network=host", *(f"--volume={mount}" for mount in mounts), *trusted(), *pip)

    def job(self, number: int, stage: str) -> tuple[int, str]:
        directory = self.folder / stage
        private_directory(directory, self.collections)
        self.inventory(directory / "inventory")
        # As AWX gives a Machine credential, and what it sets in every job.
        (directory / "env/ssh_key").write_text((STATE / "ssh_key").read_text())
        settings = {"ANSIBLE_HOST_KEY_CHECKING": "False", "HPCAI_CACHE_DIR": "/cache"}
        (directory / "env/envvars").write_text(json.dumps(settings))
        meta = {"awx_workflow_job_id": 41, "awx_job_id": 41 + number}
        job = run_job(directory, stage, {**meta, **self.artifacts}, self.isolation())
        self.artifacts |= job.artifacts()
        self.said[stage] = job.text
        return job.rc, job.text


@pytest.fixture(scope="module")
def workflow(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Workflow]:
    lab("down")
    try:
        lab("up")
        yield Workflow(tmp_path_factory.mktemp("workflow"), install(tmp_path_factory.mktemp("installed")))
    finally:
        lab("down")


def test_five_jobs_bring_fresh_nodes_to_a_report(workflow: Workflow) -> None:
    for number, stage in enumerate(("provision", "configure", "certify", "train", "report"), 1):
        rc, text = workflow.job(number, stage)
        assert rc == 0, f"{stage}: {text}"

    record = json.loads(on_controller("cat", f"{RESULTS}/run.json"))
    stages = {stage["stage"]: stage for stage in record["stages"]}
    assert {stage["run"] for stage in record["stages"]} == {"awx-41"}
    assert {stages[name]["state"] for name in ("configure", "certify", "stack", "train")} == {"done"}
    assert {check["node"] for check in record["checks"]} >= {"c1", "c2"}
    (training,) = record["training"]
    accounted = on_controller("sacct", "-X", "-n", "-P", "-o", "State,NNodes", "-j", str(training["job_id"]))
    assert training["run"] == "awx-41" and accounted.strip() == "COMPLETED|2"
    assert workflow.artifacts["hpcai_certify"]["verdict"] in ("pass", "warn", "unjudged")
    page = on_controller("cat", f"{RESULTS}/report.html")
    assert "awx-41" in page and re.search(r"\bc1\b", page) and re.search(r"\bc2\b", page)


def test_the_newest_ansible_core_warns_of_nothing_of_ours(workflow: Workflow) -> None:
    said = " ".join(" ".join(workflow.said.values()).split())
    assert "TASK [" in said
    # What nothing here imports, and modules of community.mysql do.
    assert [warning for warning in OUR_FAULT.findall(said) if "ansible.module_utils._text" not in warning] == []
