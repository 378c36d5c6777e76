# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a changed setting does to a cluster that works: no more than it has to, and nothing to its jobs."""

from __future__ import annotations

import json
import typing as t

from conftest import Lab, eventually

LONGER = {"slurm_partitions": [{"name": "batch", "nodes": "ALL", "default": True, "max_time": "2:00:00"}]}
OTHER_PLUGIN = {"slurm_extra_settings": {"SlurmdTimeout": 30, "PriorityType": "priority/basic"}}
DAEMONS = (("ctl", "slurmctld"), ("c1", "slurmd"), ("ctl", "slurmdbd"), ("c1", "munge"))


def configure(lab: Lab, **variables: t.Any) -> None:
    run = lab.playbook("configure.yml", "--tags", "slurm", "--extra-vars", json.dumps(variables))
    output = run.communicate(timeout=300)[0]
    assert run.returncode == 0, output[-3000:]


def processes(lab: Lab) -> dict[str, str]:
    return {unit: lab.root(f"systemctl show --value --property=MainPID {unit}", host) for host, unit in DAEMONS}


def test_settings_change_under_a_running_job(healthy: Lab) -> None:
    job = healthy.submit("sleep 300")
    eventually(lambda: healthy.account(job, "State") == "RUNNING", 60, f"job {job} RUNNING")
    try:
        before = processes(healthy)
        configure(healthy, **LONGER)
        assert "MaxTime=02:00:00" in healthy.run("scontrol show partition batch").stdout
        assert processes(healthy) == before, "a partition's limit needs no restart"
        configure(healthy, **OTHER_PLUGIN)
        after = processes(healthy)
        assert "priority/basic" in healthy.run("scontrol show config").stdout
        assert {unit for unit in after if after[unit] != before[unit]} == {"slurmctld", "slurmd"}
        assert healthy.run(f"squeue -h -j {job} -o %T").stdout.strip() == "RUNNING"
    finally:
        configure(healthy)
        healthy.run(f"scancel {job}")
