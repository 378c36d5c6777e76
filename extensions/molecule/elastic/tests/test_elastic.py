# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that Slurm creates come, work and go; what fails costs no job and says so. In this order, to save time."""

from __future__ import annotations

import json
import re

from conftest import LAB, ElasticLab, eventually

SUSPEND = LAB["slurm_elastic_suspend_time"] + LAB["slurm_elastic_suspend_timeout"]


def release(lab: ElasticLab) -> tuple[int, int]:
    found = re.search(r"(\d+)\.(\d+)", lab.root("sinfo -V"))
    assert found
    return int(found[1]), int(found[2])


def reasoned(lab: ElasticLab, node: str, start: str) -> bool:
    states, reason = lab.node(node)
    return "DOWN" in states and reason.startswith(start)


def finished(lab: ElasticLab, node: str, job: str) -> bool:
    """Whether a job is done; on a busy machine a node may come too late, and its job is in the queue once more."""
    if lab.account(job, "State") == "PENDING":
        lab.retry(job)
    return lab.account(job, "State,NodeList") == f"COMPLETED|{node}"


def test_nothing_was_there_before(lab: ElasticLab) -> None:
    assert not any(lab.exists(name) for name in ("e1", "e2", "e3", "e4"))
    assert "POWERED_DOWN" in lab.node("e1")[0]


def test_a_node_that_the_cloud_refuses_says_so_and_its_job_waits(lab: ElasticLab, jobs: dict[str, str]) -> None:
    what = "the reason that the cloud gave"
    eventually(lambda: reasoned(lab, "e2", "hpcai:power:not created: Quota CPUS exceeded"), 60, what)
    assert (lab.job(jobs["e2"], "JobState"), lab.job(jobs["e2"], "Restarts")) == ("PENDING", "1")
    assert not lab.exists("e2")


def test_a_node_configures_itself_without_a_route_out_and_runs_the_job(lab: ElasticLab, jobs: dict[str, str]) -> None:
    eventually(lambda: lab.account(jobs["e1"], "State,NodeList") == "COMPLETED|e1", 180, "the job done on e1")
    result = json.loads(lab.instance("e1", "cat", "/var/lib/hpcai/node/result.json"))
    assert result["status"] == "ok"
    routes = lab.instance("e1", "ip", "route")
    assert routes and "default" not in routes
    assert lab.instance("e1", "systemctl", "is-active", "slurmd").strip() == "active"


def test_an_instance_that_is_taken_away_is_noticed(lab: ElasticLab, jobs: dict[str, str]) -> None:
    assert lab.account(jobs["e1"], "State") == "COMPLETED"
    job = lab.start("e1", "sleep 600")
    eventually(lambda: lab.job(job, "JobState") == "RUNNING", 60, "the job on e1")
    lab.take("e1")
    eventually(lambda: lab.told("e1", "hpcai:power:its instance is gone"), 90, "e1 down, and why")
    assert lab.job(job, "JobState") == "PENDING"
    lab.root(f"scancel {job}")


def test_a_drained_node_is_its_administrator_s(lab: ElasticLab, jobs: dict[str, str]) -> None:
    eventually(lambda: lab.account(jobs["e4"], "State,NodeList") == "COMPLETED|e4", 180, "the job done on e4")
    lab.root("scontrol update nodename=e4 state=drain reason='ops: cable swap'")
    assert ("DRAIN" in lab.node("e4")[0], lab.node("e4")[1]) == (True, "ops: cable swap")


def test_a_node_that_never_boots_says_so_and_its_job_waits(lab: ElasticLab, jobs: dict[str, str]) -> None:
    again = lab.converge()  # meanwhile: nothing of this is a change to the roles
    said, dummy = again.communicate(timeout=400)
    assert not [line for line in said.splitlines() if re.search(r"changed=[1-9]|failed=[1-9]", line)], said[-4000:]
    what = "ResumeTimeout, and our reason"
    reason = "hpcai:power:not ready within ResumeTimeout, its instance was running"
    eventually(lambda: lab.told("e3", reason), 240, what)
    eventually(lambda: not lab.exists("e3"), 20, "its instance removed")
    assert lab.job(jobs["e3"], "JobState") == "PENDING"


def test_both_are_tried_again_and_the_jobs_run(lab: ElasticLab, jobs: dict[str, str]) -> None:
    lab.faults()
    for name in ("e2", "e3"):
        eventually(lambda: finished(lab, name, jobs[name]), 300, f"the job done on {name}")  # noqa: B023


def test_the_drain_survives(lab: ElasticLab, jobs: dict[str, str]) -> None:
    states, reason = lab.node("e4")
    assert ("DRAIN" in states, reason) == (True, "ops: cable swap")
    keeps = release(lab) >= (23, 2)
    assert ("SuspendExcStates" in lab.root("cat /etc/slurm/slurm.conf")) == keeps
    if not keeps:
        eventually(lambda: not lab.exists("e4"), SUSPEND + 60, "switched off, for this Slurm cannot leave it running")
    assert lab.exists("e4") == keeps


def test_idle_nodes_are_gone(lab: ElasticLab, jobs: dict[str, str]) -> None:
    for name in ("e1", "e2", "e3"):
        eventually(lambda: not lab.exists(name), SUSPEND + 60, f"{name} removed")  # noqa: B023
        eventually(lambda: "POWERED_DOWN" in lab.node(name)[0], SUSPEND + 30, f"{name} off")  # noqa: B023
    assert "removed e2" in lab.root("cat /var/log/slurm/hpcai-power.log")
    assert lab.node("c1")[0] == {"IDLE"}


def test_a_stray_instance_is_removed_and_a_foreign_one_is_not(lab: ElasticLab) -> None:
    cluster = "lab"  # cluster_name of the lab's inventory
    eventually(lambda: lab.node("e2")[0] >= {"IDLE", "POWERED_DOWN"}, 60, "e2 off")
    lab.cloud("POST", "e2", "other")
    lab.cloud("POST", "e3", cluster)
    eventually(lambda: not lab.exists("e3"), 40, "the stray instance removed")
    assert lab.exists("e2")
    lab.cloud("DELETE", "e2", "other")


def test_the_token_is_slurm_s_alone(lab: ElasticLab) -> None:
    assert lab.root("stat -c %a:%U /etc/hpcai/power/token") == "400:slurm"
    assert lab.root("stat -c %a:%U /shared/hpcai/secret/munge.key") == "400:root"
