# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the role pytorch learns which drivers its environment has to fit: by login, by a job, or from its inputs."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_playbook import ROOT, play_here
from stand_in import answer, stand_in


def asked(folder: Path, **inputs: t.Any) -> tuple[list[dict[str, str]], list[str]]:
    """Return the drivers that the role goes by, and the jobs that it started."""
    (folder / "bin").mkdir()
    stand_in(folder / "bin/srun", "step.sh", calls=folder / "jobs", gone="--nodelist=gone")
    answer(folder / "bin/nvidia-smi", "580.95.05, 9.0\n")
    given = {"cluster_shared_dir": str(folder), "ansible_become": False, **inputs}
    ask = {
        "name": "hpcai.gpu_cluster.pytorch",
        "tasks_from": "ask",
        "public": True,
        "apply": {"environment": {"PATH": f"{folder}/bin:/usr/bin:/bin"}},
    }
    tell = {"dest": f"{folder}/told", "content": "{{ __pytorch_drivers | to_json }}"}
    play_here(folder, [{"ansible.builtin.include_role": ask}, {"ansible.builtin.copy": tell}], given)
    jobs = folder / "jobs"
    return json.loads((folder / "told").read_text()), jobs.read_text().splitlines() if jobs.exists() else []


def test_a_node_that_slurm_has_just_created_is_asked_by_a_job(tmp_path: Path) -> None:
    drivers, jobs = asked(tmp_path, pytorch_driver_nodes=["gpu-1"], pytorch_proof_options={"partition": "gpu"})
    assert drivers == [{"host": "gpu-1", "text": "580.95.05, 9.0"}]
    (job,) = jobs
    words = job.split()
    # Little memory, beside the job that keeps the node; and a GPU, as it would see none otherwise.
    assert {"--nodelist=gpu-1", "--gres=gpu:1", "--mem=1G", "--partition=gpu", "--time=5"} <= set(words)


def test_what_slurm_says_of_a_job_that_does_not_start_is_told(tmp_path: Path) -> None:
    drivers, dummy = asked(tmp_path, pytorch_driver_nodes=["gone-1"])
    assert drivers[0]["host"] == "gone-1" and "Unable to create step" in drivers[0]["text"]


def test_nobody_is_asked_for_a_build_that_needs_no_driver(tmp_path: Path) -> None:
    inputs = {"pytorch_build": "cpu", "pytorch_driver_nodes": ["gpu-1"], "pytorch_driver_hosts": ["localhost"]}
    assert asked(tmp_path, **inputs) == ([], [])


def test_hosts_and_nodes_are_both_heard(tmp_path: Path) -> None:
    drivers, jobs = asked(tmp_path, pytorch_driver_nodes=["gpu-2"], pytorch_driver_hosts=["localhost"])
    assert [one["host"] for one in drivers] == ["localhost", "gpu-2"]
    assert len(jobs) == 1


@pytest.mark.parametrize("playbook", ["certify", "stack"])
@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({}, {"hosts": ["old-1"], "nodes": []}),
        ({"elastic_nodes_result": {"up": ["new-1", "new-2"]}}, {"hosts": [], "nodes": ["new-1"]}),
        # Nodes without GPUs are in no group gpu.
        ({"elastic_nodes_result": {"up": ["cpu-1"]}}, {"hosts": ["old-1"], "nodes": []}),
        ({"elastic_nodes_result": {"up": ["new-1"]}, "cluster_driver_hosts": []}, {"hosts": [], "nodes": []}),
    ],
)
def test_playbooks_log_in_to_no_node_that_slurm_created(
    tmp_path: Path, playbook: str, known: t.Any, expected: t.Any
) -> None:
    plays = yaml.safe_load((ROOT / f"playbooks/{playbook}.yml").read_text())
    (file,) = (name for play in plays for name in play.get("vars_files", []) if "driver" in name)
    variables = yaml.safe_load((ROOT / "playbooks" / file).read_text())
    told = {"hosts": "{{ pytorch_driver_hosts }}", "nodes": "{{ pytorch_driver_nodes }}"}
    hosts = {"ansible.builtin.add_host": {"name": "{{ item }}", "groups": "gpu"}, "loop": ["old-1", "new-1", "new-2"]}
    write = {"ansible.builtin.copy": {"dest": f"{tmp_path}/told", "content": "{{ told | to_json }}"}}
    play_here(tmp_path, [hosts, {**write, "vars": {**variables, "told": told}}], known)
    assert json.loads((tmp_path / "told").read_text()) == expected
