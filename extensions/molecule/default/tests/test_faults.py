# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is promised when things break. Each test leaves the lab as it found it, and that is checked too."""

from __future__ import annotations

import os
import signal
import time

from conftest import Lab, eventually


def test_controller_killed_in_the_middle_of_a_job(healthy: Lab) -> None:
    job = healthy.submit("sleep 20")
    eventually(lambda: healthy.account(job, "State") == "RUNNING", 60, f"job {job} RUNNING")
    healthy.root("systemctl kill --signal=KILL slurmctld")
    eventually(lambda: healthy.run("scontrol ping").rc == 0, 60, "slurmctld back by itself")
    eventually(lambda: healthy.account(job, "State,ExitCode") == "COMPLETED|0:0", 90, f"job {job} COMPLETED")


def test_database_down_while_jobs_run(healthy: Lab) -> None:
    healthy.root("systemctl stop mariadb")
    try:
        jobs = [healthy.submit("sleep 1") for dummy in range(5)]
        time.sleep(60)
    finally:
        healthy.root("systemctl start mariadb")
    for job in jobs:
        eventually(lambda job=job: healthy.account(job, "State") == "COMPLETED", 180, f"job {job} in sacct")


def test_compute_node_stopped_under_a_job(healthy: Lab) -> None:
    name = healthy.compute[-1]
    job = healthy.submit("sleep 15", f"--nodelist={name} --requeue")
    eventually(lambda: healthy.account(job, "State") == "RUNNING", 60, f"job {job} RUNNING")
    healthy.podman("kill", name)
    eventually(lambda: "down" in healthy.run(f"sinfo -h -n {name} -o %T").stdout, 180, f"{name} down")
    state = healthy.run(f"squeue -h -j {job} -o '%T %r'").stdout
    assert state.startswith("PENDING"), state
    healthy.podman("start", name)
    eventually(lambda: healthy.account(job, "State") == "COMPLETED", 240, f"job {job} COMPLETED after a requeue")
    assert int(healthy.run(f"sacct -n -X -D -P -j {job} -o JobID | wc -l").stdout) > 1


def test_wrong_munge_key_on_one_node(healthy: Lab) -> None:
    bad, good = healthy.compute[-1], healthy.compute[0]
    key = "/etc/munge/munge.key"
    before = healthy.root(f"stat -c %Y {key}", good)
    healthy.root(f"dd if=/dev/urandom of={key} bs=1024 count=1 status=none && systemctl restart munge", bad)
    certify = healthy.playbook("certify.yml")
    output = certify.communicate(timeout=300)[0]
    assert certify.returncode != 0
    assert f"{bad}" in output
    assert "munge" in output
    repair = healthy.playbook("configure.yml")
    output = repair.communicate(timeout=300)[0]
    assert repair.returncode == 0, output[-3000:]
    assert healthy.root(f"stat -c %Y {key}", good) == before, "another node's key was touched"


def test_playbook_killed_half_way_and_run_again(healthy: Lab) -> None:
    name = healthy.compute[0]
    healthy.root("rm /etc/slurm/slurm.conf")
    healthy.root("truncate --size=0 /etc/munge/munge.key", name)
    first = healthy.playbook("configure.yml")
    time.sleep(12)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    again = healthy.playbook("configure.yml")
    output = again.communicate(timeout=300)[0]
    assert again.returncode == 0, output[-3000:]
    assert healthy.run(f"srun -N{len(healthy.compute)} hostname").rc == 0
