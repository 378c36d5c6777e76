# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a changed setting does to a cluster that works: no more than it has to, and nothing to its jobs."""

from __future__ import annotations

import typing as t

from cluster_lab import Lab

LONGER = {"slurm_partitions": [{"name": "batch", "nodes": "ALL", "default": True, "max_time": "2:00:00"}]}
OTHER_PLUGIN = {"slurm_extra_settings": {"SlurmdTimeout": 30, "PriorityType": "priority/basic"}}
DAEMONS = (("ctl", "slurmctld"), ("c1", "slurmd"), ("ctl", "slurmdbd"), ("c1", "munge"))


def configure(lab: Lab, **variables: t.Any) -> None:
    lab.apply("configure.yml", "--tags=slurm", **variables)


def processes(lab: Lab) -> dict[str, str]:
    return {unit: lab.root(f"systemctl show --value --property=MainPID {unit}", host) for host, unit in DAEMONS}


def test_settings_change_under_a_running_job(healthy: Lab) -> None:
    job = healthy.submit("sleep 3600")
    healthy.runs(job)
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
