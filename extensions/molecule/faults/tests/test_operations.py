# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an administrator does to a cluster that works."""

from __future__ import annotations

from cluster_lab import Lab, eventually

BACKUPS = "/var/backups/slurm_backup"


def next_job(lab: Lab) -> int:
    return int(lab.root("scontrol show config | awk '/^NEXT_JOB_ID/ {print $3}'"))


def test_a_restored_cluster_has_its_jobs_and_no_number_twice(healthy: Lab) -> None:
    running, held = healthy.submit("sleep 300"), healthy.submit("true", "--hold")
    healthy.runs(running)
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
