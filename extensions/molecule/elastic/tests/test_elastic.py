# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that Slurm creates come and work; what fails costs no job and says so.

In this order, so that one waits while the others work. test_off.py is the end of it.
"""

from __future__ import annotations

import re

import cluster_lab
from cluster_lab import eventually
from conftest import WAIT, ElasticLab


def finished(lab: ElasticLab, node: str, job: str) -> bool:
    """Whether a job is done; Slurm would have a requeued one wait two minutes."""
    if lab.account(job, "State") == "PENDING":
        lab.retry(job)
    return lab.account(job, "State,NodeList") == f"COMPLETED|{node}"


def waits(lab: ElasticLab, job: str) -> bool:
    """Whether a job is in the queue once more; after two minutes Slurm tries it again."""
    return lab.job(job, "JobState") in ("PENDING", "CONFIGURING") and int(lab.job(job, "Restarts")) >= 1


def test_nothing_was_there_before(lab: ElasticLab) -> None:
    assert not any(lab.exists(name) for name in ("e1", "e2", "e3", "e4"))
    assert "POWERED_DOWN" in lab.node("e1")[0]


def test_a_node_that_the_cloud_refuses_says_so_and_its_job_waits(lab: ElasticLab, jobs: dict[str, str]) -> None:
    what = "the reason that the cloud gave"
    eventually(lambda: lab.told("e2", "hpcai:power:not created: Quota CPUS exceeded"), WAIT, what)
    eventually(lambda: waits(lab, jobs["e2"]), WAIT, "its job back in the queue")
    assert not lab.exists("e2")
    lab.faults(never_boot=["e3"])


def test_a_node_configures_itself_without_a_route_out_and_runs_the_job(lab: ElasticLab, jobs: dict[str, str]) -> None:
    eventually(lambda: lab.account(jobs["e1"], "State,NodeList") == "COMPLETED|e1", WAIT, "the job done on e1")
    assert lab.result("e1")["status"] == "ok"
    routes = lab.instance("e1", "ip", "route")
    assert routes and "default" not in routes


def test_the_bundle_once_more_changes_nothing_and_leaves_the_job(lab: ElasticLab, jobs: dict[str, str]) -> None:
    bootstrap = ("sh", "/var/lib/hpcai/node/current/bootstrap.sh")
    known = lab.result("e1")
    assert "is applied" in lab.instance("e1", *bootstrap)
    assert lab.result("e1") == known
    lab.instance("e1", *bootstrap, "--force")
    again = lab.result("e1")
    assert (again["status"], again["changed"]) == ("ok", 0)
    assert again["started"] != known["started"]
    assert lab.instance("e1", "systemctl", "is-active", "slurmd").strip() == "active"
    assert (lab.job(jobs["long"], "JobState"), lab.job(jobs["long"], "Restarts")) == ("RUNNING", "0")


def test_a_drained_node_is_its_administrator_s(lab: ElasticLab, jobs: dict[str, str]) -> None:
    eventually(lambda: lab.job(jobs["e4"], "JobState") == "RUNNING", WAIT, "the job on e4")
    lab.root("scontrol update nodename=e4 state=drain reason='ops: cable swap'")
    lab.root(f"scancel {jobs['e4']}")
    assert ("DRAIN" in lab.node("e4")[0], lab.node("e4")[1]) == (True, "ops: cable swap")


def test_a_node_that_never_boots_says_so_and_its_job_waits(lab: ElasticLab, jobs: dict[str, str]) -> None:
    reason = "hpcai:power:not ready within ResumeTimeout, its instance was running"
    eventually(lambda: lab.told("e3", reason), WAIT, "ResumeTimeout, and our reason")
    eventually(lambda: not lab.exists("e3"), WAIT, "its instance removed")
    eventually(lambda: waits(lab, jobs["e3"]), WAIT, "its job back in the queue")
    lab.root(f"scancel {jobs['e3']}")
    lab.faults()
    eventually(lambda: re.search(r"sweep: tries .*\be3\b", lab.log()), WAIT, "e3 given back to the scheduler")


def test_an_instance_that_is_taken_away_is_noticed(lab: ElasticLab, jobs: dict[str, str]) -> None:
    again = lab.converge()  # meanwhile: nothing of this is a change to the roles
    assert lab.job(jobs["long"], "JobState") == "RUNNING"
    lab.take("e1")
    eventually(lambda: lab.told("e1", "hpcai:power:its instance is gone"), WAIT, "e1 down, and why")
    eventually(lambda: waits(lab, jobs["long"]), WAIT, "its job back in the queue")
    lab.root(f"scancel {jobs['long']}")
    status, said = cluster_lab.finished(again)
    assert status == 0, said[-4000:]
    assert not [line for line in said.splitlines() if re.search(r"changed=[1-9]|failed=[1-9]", line)], said[-4000:]


def test_a_node_that_was_refused_is_tried_again_and_its_job_runs(lab: ElasticLab, jobs: dict[str, str]) -> None:
    eventually(lambda: finished(lab, "e2", jobs["e2"]), WAIT, "the job done on e2")


def test_the_secrets_are_slurm_s_or_root_s_alone(lab: ElasticLab) -> None:
    assert lab.root("stat -c %a:%U /etc/hpcai/power/token") == "400:slurm"
    assert lab.root("stat -c %a:%U /shared/hpcai/secret/munge.key") == "400:root"
