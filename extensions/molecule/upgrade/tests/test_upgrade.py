# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One cluster's way from 24.11 to the Slurm of the next Debian release; each test goes on where the last one ended."""

from __future__ import annotations

import typing as t

import pytest
from cluster_lab import eventually, recap
from conftest import STATE, UpgradeLab

OLD = "24.11.5"
COPIES = "/var/backups/slurm"
# Debian's next release builds Slurm without PMIx.
ACCEPTED = {"slurm_upgrade_accept_lost_plugins": ["mpi_pmix", "mpi_pmix_v5"]}


def offered() -> str:
    """The version in the repository that prepare.yml made."""
    text = (STATE / "shared/slurm-upgrade/Packages").read_text()
    return (
        next(entry for entry in text.split("\n\n") if "Package: slurmd\n" in entry).partition("Version: ")[2].split()[0]
    )


NEW = offered().partition("-")[0]
RELEASE = NEW.rpartition(".")[0]


class Jobs(t.NamedTuple):
    """What goes on while Slurm is exchanged."""

    done: str
    runs: str
    waits: str


@pytest.fixture(scope="module")
def jobs(lab: UpgradeLab) -> Jobs:
    """One job that ended, one that runs until it is told to stop, and one that waits for that."""
    lab.root("rm -f /shared/stop")
    done = lab.submit("true")
    lab.done(done)
    script = "while [ ! -e /shared/stop ]; do sleep 1; done; srun -l true"
    runs = lab.submit(script, "--nodes=2 --exclusive --comment=through")
    lab.runs(runs)
    return Jobs(done, runs, lab.submit("srun true", "--nodes=2 --exclusive"))


def versions(lab: UpgradeLab) -> dict[str, str]:
    """Which slurmd runs where, as slurmctld knows it."""
    text = lab.run("scontrol show node -o").stdout
    rows = [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in text.splitlines()]
    return {row["NodeName"]: row["Version"] for row in rows}


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"slurm_version": ""}, "slurm_version is empty"),
        ({"slurm_version": "23.02"}, "cannot go back once a daemon has started"),
        ({"slurm_version": "27.11"}, "27.11 takes over from 27.05, 26.11, 26.05 and not from 24.11.5"),
        ({"slurm_version": RELEASE}, "its packages lack mpi_pmix"),
    ],
)
def test_what_cannot_work_is_refused_and_nothing_changed(
    lab: UpgradeLab, jobs: Jobs, variables: dict[str, str], words: str
) -> None:
    before = lab.running()
    status, output = lab.play("upgrade_slurm.yml", **variables)
    assert status != 0 and words in output and "Nothing was changed" in output, output[-3000:]
    assert lab.running() == before
    assert {counts["changed"] for counts in recap(output).values()} == {0}


def test_configure_does_not_exchange_a_running_slurmd(lab: UpgradeLab) -> None:
    before = lab.running()
    status, output = lab.play("configure.yml", "--tags=slurm_compute", slurm_version=RELEASE)
    assert status != 0 and "is upgraded by playbook upgrade_slurm.yml" in output, output[-3000:]
    assert lab.running() == before


def test_check_mode_shows_the_plan(lab: UpgradeLab, jobs: Jobs) -> None:
    before = lab.running()
    status, output = lab.play("upgrade_slurm.yml", "--check", slurm_version=RELEASE, **ACCEPTED)
    assert status == 0, output[-3000:]
    assert f"c1 (compute): installed {OLD}" in output and f"slurmd {OLD}: to {NEW}" in output
    assert lab.running() == before and lab.root(f"ls {COPIES} 2>/dev/null || true") == ""


def test_an_upgrade_that_was_killed_goes_on(lab: UpgradeLab, jobs: Jobs) -> None:
    """Killed while dpkg works on the controller. The next run goes on, until a node's packages cannot be exchanged."""
    lab.cut_off("ctl", slurm_version=RELEASE, **ACCEPTED)
    lab.root("mount --bind /usr/sbin/slurmd-wlm /usr/sbin/slurmd-wlm", "c1")  # dpkg cannot put another file there
    status, output = lab.play("upgrade_slurm.yml", slurm_version=RELEASE, **ACCEPTED)
    lab.root("umount /usr/sbin/slurmd-wlm", "c1")
    assert status != 0 and "slurmd-wlm" in output, output[-3000:]
    assert recap(output)["c2"]["changed"] == 0, "the next batch was begun"
    assert lab.root("slurmd -V", "c2").strip().endswith(OLD)
    assert lab.root("slurmctld -V").strip().endswith(NEW)


def test_a_node_that_does_not_answer_is_left(lab: UpgradeLab, jobs: Jobs) -> None:
    lab.unreachable("c2", True)
    status, output = lab.play("upgrade_slurm.yml", slurm_version=RELEASE, **ACCEPTED)
    lab.unreachable("c2", False)
    assert status == 4, output[-3000:]  # somebody has to look after c2
    assert "c2 (compute): does not answer and is left as it is" in output
    assert "Did not answer and are as they were: c2" in output
    assert versions(lab) == {"c1": NEW, "c2": OLD}
    assert lab.account(jobs.runs, "State") == "RUNNING"


def test_a_node_that_was_left_follows_and_is_killed_too(lab: UpgradeLab, jobs: Jobs) -> None:
    lab.cut_off("c2", slurm_version=RELEASE, **ACCEPTED)
    status, output = lab.play("upgrade_slurm.yml", slurm_version=RELEASE, **ACCEPTED)
    assert status == 0, output[-3000:]
    assert versions(lab) == {"c1": NEW, "c2": NEW}
    for host in ("ctl", "c1", "c2"):
        assert lab.root("test -e /usr/sbin/policy-rc.d && echo left || true", host) == ""
        assert lab.root("dpkg --audit", host) == ""


def test_nothing_is_left_to_do(lab: UpgradeLab) -> None:
    status, output = lab.play("upgrade_slurm.yml", slurm_version=RELEASE, **ACCEPTED)
    assert status == 0 and {counts["changed"] for counts in recap(output).values()} == {0}, output[-3000:]
    status, output = lab.play("configure.yml", slurm_version=RELEASE)
    assert status == 0 and {counts["changed"] for counts in recap(output).values()} == {0}, output[-3000:]
    assert "SlurmdTimeout=30\n" in lab.root("cat /etc/slurm/slurm.conf")


def test_no_job_was_lost(lab: UpgradeLab, jobs: Jobs) -> None:
    assert lab.account(jobs.done, "State") == "COMPLETED"
    story = f"grep -E 'JobId={jobs.runs}|not resp|slurmctld version' /var/log/slurm/slurmctld.log | tail -40"
    assert lab.account(jobs.runs, "State,Restarts") == "RUNNING|0", lab.root(story)
    lab.root("touch /shared/stop")
    for job in (jobs.runs, jobs.waits):
        eventually(lambda job=job: lab.account(job, "State,ExitCode") == "COMPLETED|0:0", 120, f"job {job} COMPLETED")
    assert "through" in lab.run(f"sacct -X -n -P -j {jobs.runs} -o Comment").stdout
    assert lab.run("srun -N2 hostname").stdout.split() != []


def test_there_is_a_way_back(lab: UpgradeLab) -> None:
    """One whole copy of the database, made before the new slurmdbd touched it; none was made of what that left."""
    dumps = lab.root(f"ls {COPIES}/*.sql").split()
    assert len(dumps) == 1 and f"{OLD}" in dumps[0]
    assert lab.root(f"tail -n 1 {dumps[0]}").startswith("-- Dump completed")
    assert lab.root(f"stat -c '%a %U' {COPIES} {COPIES}/*.sql {COPIES}/*.conf") == "700 root\n600 root\n600 root"
    assert "job_state" in lab.root(f"ls {COPIES}/state-*/state")
    lab.root("mariadb -e 'CREATE DATABASE proof'")
    lab.root(f"sed -e 's/`slurm_acct_db`/`proof`/' {dumps[0]} | mariadb")
    assert int(lab.root("mariadb -BNe 'SELECT COUNT(*) FROM proof.`lab_job_table`'")) >= 2
