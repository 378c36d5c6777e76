# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an administrator does to a cluster that works."""

from __future__ import annotations

from pathlib import Path

import yaml
from cluster_lab import ROOT, Lab, eventually, recap

BACKUPS = "/var/backups/slurm_backup"


class Smaller(Lab):
    """The lab with an inventory from which somebody has taken a node."""

    hosts: Path

    def inventories(self) -> list[str]:
        return [f"{ROOT}/lab/inventory", str(self.hosts)]


def without(lab: Lab, node: str, directory: Path) -> Smaller:
    tree = yaml.safe_load((lab.state / "hosts.yml").read_text())
    for group in tree["all"]["children"].values():
        group["hosts"].pop(node, None)
    smaller = Smaller(lab.scenario, lab.state)
    smaller.hosts = directory / "hosts.yml"
    smaller.hosts.write_text(yaml.safe_dump(tree))
    return smaller


def as_it_is(lab: Lab, name: str) -> set[str]:
    """Return what a stranger's node is to be left as: its state, its settings and the processes of its daemons.

    A job that has ended is still completing for a while, longer on a busy machine.
    """
    eventually(lambda: lab.root(f"sinfo -h -n {name} -o %t") in ("idle", "drain"), 120, f"{name} without a job")
    state = lab.root(f"sinfo -h -n {name} -o 'is %T %E %f %G'")
    files = "find /etc/slurm /etc/munge /etc/hpcai -type f -printf '%p %T@\\n'"
    return {state, *lab.root(f"systemctl show --property=Id,MainPID slurmd munge; {files}", name).splitlines()}


def left_as_they_were(lab: Lab, before: dict[str, set[str]]) -> None:
    for name, known in before.items():
        now = as_it_is(lab, name)
        assert now == known, f"{name}: {sorted(known - now)} has become {sorted(now - known)}"


def next_job(lab: Lab) -> int:
    return int(lab.root("scontrol show config | awk '/^NEXT_JOB_ID/ {print $3}'"))


def saved(lab: Lab, job: str) -> None:
    """Wait until slurmctld has written what it knows now of its jobs: it does so some seconds after a change."""
    lab.root(f"scontrol update jobid={job} comment=written-{job}")
    seen = f"grep -c written-{job} /var/lib/slurm/slurmctld/job_state || true"
    eventually(lambda: lab.root(seen).strip() not in ("", "0"), 60, "slurmctld writes its state")


def test_a_restored_cluster_has_its_jobs_and_no_number_twice(healthy: Lab) -> None:
    running, held = healthy.submit("sleep 3600"), healthy.submit("true", "--hold")
    healthy.runs(running)
    saved(healthy, held)
    try:
        healthy.apply("backup.yml")
        later = healthy.submit("true")
        healthy.done(later)
        healthy.root(f"scancel {held}")
        status, output = healthy.play("restore.yml", restore_confirm="another")
        assert status != 0 and "confirm it with -e restore_confirm=lab" in output
        status, output = healthy.play("restore.yml", restore_confirm="lab")
        assert status != 0 and "slurmctld runs; stop it" in output
        assert next_job(healthy) == int(later) + 1
        healthy.apply("restore.yml", restore_confirm="lab", restore_stop=True)
        eventually(lambda: healthy.account(later, "State") == "", 30, f"job {later} unknown to the restored accounting")
        queue = dict(line.split() for line in healthy.run("squeue -h -o '%i %T'").stdout.splitlines())
        assert queue == {running: "RUNNING", held: "PENDING"}
        assert next_job(healthy) == int(later) + 1
        assert int(healthy.submit("true")) == int(later) + 1
        beside = healthy.root(f"ls -d /var/lib/slurm/slurmctld.replaced-*; ls {BACKUPS}; mariadb -Ne 'show databases'")
        assert "slurm_acct_db_replaced_" in beside and "slurmctld.replaced-" in beside
    finally:
        healthy.root(f"scancel {running} {held}")
        healthy.root(f"rm -rf {BACKUPS} /var/lib/slurm/slurmctld.replaced-*")
        healthy.root("mariadb -Ne 'show databases' | grep _replaced_ | xargs -r -I{} mariadb -e 'drop database `{}`'")


def test_the_timer_backs_up_without_ansible(healthy: Lab) -> None:
    try:
        healthy.apply("backup.yml", slurm_backup_on_calendar="*-*-* 02:30:00", slurm_backup_keep=1)
        healthy.root("systemctl is-active hpcai-slurm-backup.timer && systemctl start hpcai-slurm-backup")
        kept = healthy.root(f"ls {BACKUPS}").split()
        assert sorted(name.partition("-")[0] for name in kept) == ["accounting", "controller"]
        assert healthy.root(f"find {BACKUPS} -perm /077 -type d; find {BACKUPS}/*/ -perm /077") == ""
        healthy.apply("backup.yml")
        assert healthy.root("systemctl list-unit-files 'hpcai-slurm-backup*' --no-legend || true") == ""
    finally:
        healthy.root(f"rm -rf {BACKUPS}")


def test_a_node_leaves_between_its_jobs_and_another_comes(healthy: Lab, tmp_path: Path) -> None:
    stays, leaves = healthy.compute[0], healthy.compute[-1]
    smaller = without(healthy, leaves, tmp_path)
    job, other = (healthy.submit("sleep 3600", f"--nodelist={name}") for name in (leaves, stays))
    healthy.runs(job)
    healthy.runs(other)
    try:
        status, output = smaller.play("configure.yml", "--tags=slurm_controller")
        assert status != 0 and f"{leaves} would be dropped, and Slurm would end 1 jobs there: {job} trainer" in output
        status, output = healthy.play("remove_node.yml", remove_node_hosts=leaves, node_removal_jobs_timeout=1)
        assert status != 0 and f"jobs still run on {leaves}" in output
        assert "hpcai:removed:" in healthy.root(f"sinfo -h -n {leaves} -o %E")
        assert healthy.run(f"squeue -h -j {job},{other} -o %T").stdout.split() == ["RUNNING", "RUNNING"]
        healthy.run(f"scancel {job}")
        output = healthy.apply("remove_node.yml", remove_node_hosts=leaves)
        assert "Take it out of the inventory and run configure.yml" in output
        places = "/etc/munge /usr/local/sbin /etc/slurm/prolog.d"
        left = healthy.root(f"ls {places}; systemctl is-enabled slurmd munge || true", leaves)
        assert "munge.key" not in left and "hpcai-agent" not in left and "hpcai-health" not in left
        assert left.split()[-2:] == ["disabled", "disabled"]
        smaller.apply("configure.yml", "--tags=slurm")
        assert sorted(healthy.run("sinfo -h -N -o %N").stdout.split()) == healthy.compute[:-1]
    finally:
        healthy.apply("configure.yml")
    assert healthy.run(f"squeue -h -j {other} -o %T").stdout.strip() == "RUNNING"
    healthy.run(f"scancel {other}")


def test_a_node_that_comes_back_serves_once_it_is_certified_beside_the_others(healthy: Lab) -> None:
    *others, comes = healthy.compute
    bystander = others[-1]
    try:
        healthy.root(f"scontrol update nodename={bystander} state=drain reason='rack is moved'")
        before = {name: as_it_is(healthy, name) for name in others}
        status, output = healthy.play("join_nodes.yml", node_join_hosts=f"{bystander},{comes}")
        assert status != 0 and "2 proven nodes have to be idle, and 1 are" in output
        assert f"{bystander}: left as it is, its reason is of root: rack is moved" in output
        assert "hpcai:joining:" in healthy.root(f"sinfo -h -n {comes} -o %E")
        left_as_they_were(healthy, before)
    finally:
        healthy.root(f"scontrol update nodename={bystander} state=resume")
    job = healthy.submit("true", f"--nodelist={comes}")
    before = {name: as_it_is(healthy, name) for name in others}
    output = healthy.apply("join_nodes.yml", node_join_hosts=comes)
    left_as_they_were(healthy, before)
    assert {recap(output)[name]["changed"] for name in healthy.compute} == {0}
    healthy.done(job)


def test_a_new_user_runs_jobs_within_a_limit_and_later_none(healthy: Lab) -> None:
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1 anna"
    anna = {"name": "anna", "uid": 2345, "account": "research", "settings": {"MaxSubmitJobs": 1}, "ssh_keys": [key]}
    try:
        status, output = healthy.play("users.yml", cluster_users=[{**anna, "uid": 0}])
        assert status != 0 and "anna: uid is 0" in output
        healthy.apply("users.yml", cluster_users=[anna])
        assert {healthy.root("id -u anna", name) for name in healthy.addresses} == {"2345"}
        assert healthy.root(f"runuser -u anna -- grep -c '{key}' /home/anna/.ssh/authorized_keys", "c1") == "1"
        assert "changed=0" in healthy.apply("users.yml", cluster_users=[anna])
        assert healthy.run("sbatch --hold --wrap true", "anna").rc == 0
        assert "AssocMaxSubmitJobLimit" in healthy.run("sbatch --wrap true", "anna").stderr
        healthy.root("scancel -u anna")
        healthy.apply("users.yml", cluster_users=[{**anna, "state": "locked"}])
        assert "AssocMaxSubmitJobLimit" in healthy.run("sbatch --wrap true", "anna").stderr
        assert healthy.root("chage -l anna | awk -F': ' '/Account expires/ {print $2}'") == "Jan 01, 1970"
        assert healthy.root("test -d /home/anna && echo kept") == "kept"
    finally:
        healthy.root("scancel -u anna; sacctmgr -i delete user anna; true")
        for name in healthy.addresses:
            healthy.root("userdel --remove anna; true", name)


def test_the_cluster_gets_another_key_below_its_jobs(healthy: Lab) -> None:
    def keys() -> set[str]:
        return {healthy.root("sha256sum < /etc/munge/munge.key", name) for name in healthy.addresses}

    bad, key, directory = healthy.compute[-1], "/etc/munge/munge.key", "/run/systemd/system/munge.service.d"
    job = healthy.submit("sleep 3600", f"--nodes={len(healthy.compute)} --exclusive=user")
    healthy.runs(job)
    (before,) = keys()
    try:
        # Nothing is kept of a key that one host cannot have.
        drop_in = f"[Service]\\nExecStartPre=/usr/bin/test ! -e {key}.previous\\n"
        healthy.root(f"mkdir {directory} && printf '{drop_in}' > {directory}/test.conf && systemctl daemon-reload", bad)
        status, output = healthy.play("rotate_munge_key.yml")
        assert status != 0 and "The cluster has its former key again" in output and f"not usable on {bad}" in output
        assert keys() == {before}
    finally:
        healthy.root(f"rm -r {directory}; systemctl daemon-reload; systemctl restart munge", bad)
    healthy.apply("rotate_munge_key.yml")
    (after,) = keys()
    assert after != before
    assert healthy.root("ls /etc/munge", bad) == "munge.key"
    assert healthy.run(f"squeue -h -j {job} -o '%T %M'").stdout.split()[0] == "RUNNING"
    healthy.run(f"scancel {job}")
    assert healthy.run(f"srun -N{len(healthy.compute)} hostname").rc == 0
