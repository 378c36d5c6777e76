# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is promised when things break. Each test leaves the lab as it found it, and that is checked too."""

from __future__ import annotations

import os
import signal

from cluster_lab import Lab, eventually, recap

STATE = "/var/lib/slurm/slurmctld/job_state"
# Tasks that no node needs which runs these services with their files.
SETTLED = ("Run scratch's boot unit now", "Run the health check now, and at every boot", "Order slurmd after the gates")


def saved(lab: Lab, *jobs: str) -> None:
    """Wait until slurmctld's file has these jobs as they are now.

    It writes a change up to 5 s later (SAVE_MAX_WAIT in its state_save.h). Killed before that, it starts a job a second
    time, and the node drains itself with "Duplicate jobid"; killed while a job's index is on its way from slurmdbd, it
    never takes a change to that job again. Both are Slurm's own gaps, and none of ours.
    """
    for job in jobs:  # a change that is taken is one to a job that has its index
        change = f"scontrol update jobid={job} comment=known"
        eventually(lambda change=change: lab.host("ctl").run(change).rc == 0, 120, f"job {job} known to slurmdbd")
    moment = float(lab.root("date +%s.%N"))
    lab.root(f"scontrol update jobid={jobs[-1]} comment=saved")  # so there is something to write
    eventually(lambda: float(lab.root(f"stat -c %.9Y {STATE}")) > moment, 120, "slurmctld's state written")


def test_controller_killed_in_the_middle_of_a_job(healthy: Lab) -> None:
    over = "/shared/killed_controller.over"
    job, held = healthy.submit(f"until [ -e {over} ]; do sleep 1; done"), healthy.submit("true", "--hold")
    try:
        healthy.runs(job)
        saved(healthy, job, held)
        rows = healthy.run("sacct -X -n -P -o JobID").stdout.split()
        healthy.root("systemctl kill --signal=KILL slurmctld")
        eventually(lambda: "UP" in healthy.run("scontrol ping").stdout, 60, "slurmctld back by itself")
        queue = dict(line.split() for line in healthy.run("squeue -h -o '%i %T'").stdout.splitlines())
        assert queue == {job: "RUNNING", held: "PENDING"}
        assert set(rows) <= set(healthy.run("sacct -X -n -P -o JobID").stdout.split())
        eventually(lambda: healthy.run(f"scontrol release {held}").rc == 0, 60, f"job {held} released")
        healthy.done(held)
        healthy.root(f"touch {over}")
        eventually(lambda: healthy.account(job, "State,ExitCode") == "COMPLETED|0:0", 90, f"job {job} COMPLETED")
    finally:
        healthy.run(f"scancel {job} {held}")
        healthy.root(f"rm -f {over}")


def test_database_down_while_jobs_run(healthy: Lab) -> None:
    """MariaDB first: slurmdbd holds on to what it hears. Then slurmdbd too: slurmctld does."""
    jobs = []
    try:
        for service in ("mariadb", "slurmdbd"):
            healthy.root(f"systemctl stop {service}")
            jobs += [healthy.submit("sleep 1") for dummy in range(3)]
            eventually(lambda: not healthy.run("squeue -h -o %A").stdout.strip(), 60, "jobs over without a database")
    finally:
        healthy.root("systemctl start mariadb slurmdbd")
    for job in jobs:
        healthy.done(job, 180)


def test_compute_node_stopped_under_a_job(healthy: Lab) -> None:
    name, over = healthy.compute[-1], "/shared/stopped_node.over"
    # Until it is told: a busy machine takes minutes to kill a container.
    job = healthy.submit(f"until [ -e {over} ]; do sleep 1; done", f"--nodelist={name} --requeue")
    try:
        healthy.runs(job)
        healthy.podman("kill", name)
        eventually(lambda: "down" in healthy.run(f"sinfo -h -n {name} -o %T").stdout, 180, f"{name} down")
        state = f"squeue -h -j {job} -o %T"
        eventually(lambda: healthy.run(state).stdout.strip() == "PENDING", 120, f"job {job} back in the queue")
        healthy.podman("start", name)
        healthy.root(f"touch {over} && scontrol update JobId={job} StartTime=now")  # not after Slurm's two minutes
        healthy.done(job, 240)
    finally:
        healthy.run(f"scancel {job}")
        healthy.root(f"rm -f {over}")
    assert int(healthy.run(f"sacct -n -X -D -P -j {job} -o JobID | wc -l").stdout) > 1


def test_wrong_munge_key_on_one_node(healthy: Lab) -> None:
    bad, good = healthy.compute[-1], healthy.compute[0]
    key = "/etc/munge/munge.key"
    before = healthy.root(f"stat -c %Y {key}", good)
    healthy.root(f"dd if=/dev/urandom of={key} bs=1024 count=1 status=none && systemctl restart munge", bad)
    status, output = healthy.play("certify.yml", certification_stages=["reach", "local"])
    assert status != 0
    assert f"{bad} is not certified: untested: " in output
    assert "is not certified: to be drained" not in output
    # What is not looked at again on a node where node_info finds it in order.
    healthy.root("echo >> /usr/local/sbin/hpcai-node-ready && systemctl disable --now hpcai-scratch", bad)
    healthy.root("systemctl stop hpcai-node-health; chmod 0600 /etc/hpcai/nvme_scratch.json", good)
    output = healthy.apply("configure.yml")
    assert all(task in output for task in SETTLED)
    assert healthy.root(f"stat -c %Y {key}", good) == before, "another node's key was touched"
    healthy.root("tail -n 1 /usr/local/sbin/hpcai-node-ready | grep -qx 'exit 1'", bad)
    healthy.root("systemctl is-active hpcai-scratch && systemctl is-enabled hpcai-scratch", bad)
    healthy.root("systemctl is-active hpcai-node-health && test $(stat -c %a /etc/hpcai/nvme_scratch.json) = 644", good)
    output = healthy.apply("configure.yml")
    assert not [task for task in SETTLED if task in output], "a service is looked at again in each run"


def test_playbook_killed_half_way_and_run_again(healthy: Lab) -> None:
    name, point = healthy.compute[0], "Run slurmctld"
    healthy.root("rm /etc/slurm/slurm.conf && systemctl stop slurmctld")
    healthy.root("truncate --size=0 /etc/munge/munge.key && rm /etc/default/slurmd", name)
    first = healthy.start("configure.yml")
    assert first.stdout is not None
    assert any(point in line for line in first.stdout), f"{point!r} was never reached"
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    for word in ("failed", "changed"):
        hosts = recap(healthy.apply("configure.yml"))
        assert {hosts[name][word] for name in healthy.addresses} == {0}, hosts
    assert healthy.run(f"srun -N{len(healthy.compute)} hostname").rc == 0
