# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""enroot in jobs: ordinary users run containers, have directories of their own, and leave nothing behind."""

from __future__ import annotations

import typing as t

import pytest
from conftest import CLOSED_IMAGE, IMAGE, MEMORY, SQUASHED, Lab, changed, eventually
from patience import patience

BASE = "/scratch/enroot"
MINE = "/scratch/enroot/2001"


def left(lab: Lab, node: str) -> list[str]:
    """What a user's directory holds, and what is still to be deleted."""
    return lab.root(f"ls -A {MINE} {BASE}/.trash 2>/dev/null | grep -v : | xargs", node).split()


def clean(lab: Lab, node: str) -> None:
    eventually(lambda: set(left(lab, node)) <= {"cache"}, 60, f"{node} is cleaned up: {left(lab, node)}")


def started(lab: Lab) -> dict[str, str]:
    return {node: lab.root("systemctl show --value --property=MainPID slurmd", node) for node in lab.compute}


@pytest.mark.parametrize("options", [[], ["--check"]], ids=["second run", "check mode"])
def test_a_run_after_the_first_builds_nothing_and_changes_nothing(healthy: Lab, options: list[str]) -> None:
    """All that containers have a part in; the scenario default does the same with the whole of configure.yml."""
    before = started(healthy)
    assert changed(healthy.apply("configure.yml", "--tags=containers,slurm", *options)) == 0
    assert started(healthy) == before


def test_an_ordinary_user_runs_a_container_on_two_nodes(healthy: Lab) -> None:
    started = "enroot start app sh -c 'id -un; . /etc/os-release; echo $ID'"
    result = healthy.srun(f"enroot create -n app {SQUASHED} >/dev/null 2>&1 && {started}", "-N2")
    assert result.rc == 0, result.stderr
    assert sorted(result.stdout.split()) == ["debian", "debian", "trainer", "trainer"]
    for node in healthy.compute:
        clean(healthy, node)


def test_directories_are_a_users_own(healthy: Lab) -> None:
    job = healthy.submit("sleep 3600", f"-N2 {MEMORY}")
    eventually(lambda: healthy.account(job, "State") == "RUNNING", 60, f"job {job} RUNNING")
    try:
        node = healthy.compute[0]
        eventually(lambda: healthy.root(f"ls {BASE}", node).split() == ["2001"], 30)
        assert healthy.root(f"stat -c '%a %U' {BASE} {MINE} {MINE}/*", node).split("\n") == [
            "755 root",
            *["700 trainer"] * 5,
        ]
        assert healthy.run(f"ls {MINE}", "guest", node).rc != 0
        assert healthy.run(f"mkdir {BASE}/x", "guest", node).rc != 0
    finally:
        healthy.run(f"scancel {job}")


def test_images_come_from_a_registry(healthy: Lab) -> None:
    result = healthy.srun(f"enroot import -o $PWD/app.sqsh docker://{IMAGE} && stat -c %s app.sqsh; rm -f app.sqsh")
    assert result.rc == 0, result.stderr
    assert "[INFO] Permission granted" in result.stderr
    assert int(result.stdout) > 1 << 20


def test_a_password_for_a_registry_is_its_users_alone(healthy: Lab) -> None:
    command = f"enroot import -o $PWD/app.sqsh docker://{CLOSED_IMAGE}; status=$?; rm -f app.sqsh; exit $status"
    result = healthy.srun(command)
    assert result.rc == 0, result.stderr
    assert "Authenticating with user: robot" in result.stderr
    for node in healthy.compute:
        assert healthy.root("stat -c '%a %U' ~trainer/.config/enroot/.credentials", node) == "600 trainer"
        assert healthy.run("cat ~trainer/.config/enroot/.credentials", "guest", node).rc != 0
    healthy.root("mv ~trainer/.config/enroot/.credentials /root/", healthy.compute[0])
    try:
        result = healthy.srun(command, f"-w {healthy.compute[0]}")
        assert result.rc != 0
        # All that enroot says then (docs/containers.md has it); srun's own line may come before it or after it.
        said = [line for line in result.stderr.splitlines() if not line.startswith("srun: ")]
        assert said[-1].endswith("Authenticating with user: <anonymous>"), result.stderr
    finally:
        healthy.root("mv /root/.credentials ~trainer/.config/enroot/", healthy.compute[0])


def test_no_process_outlives_the_job(healthy: Lab) -> None:
    node = healthy.compute[0]
    # No command line but that of the sleep itself has its number.
    started = "enroot start app sh -c 'n=42; setsid sleep $n$n >/dev/null 2>&1 &'"
    until = "until pgrep -f '[s]leep 4242'; do sleep 0.2; done"
    command = f"enroot create -n app {SQUASHED} >/dev/null 2>&1; {started}; {until}"
    assert healthy.srun(command, f"-w {node}").rc == 0
    eventually(lambda: healthy.host(node).run("pgrep -f 'sleep 424[2]'").rc == 1, 30, "no process of the job is left")
    clean(healthy, node)


def test_containers_stay_while_their_user_has_a_job(healthy: Lab) -> None:
    node = healthy.compute[0]
    job = healthy.submit("sleep 3600", f"-w {node} -n1 --mem=100")
    eventually(lambda: healthy.account(job, "State") == "RUNNING", 60, f"job {job} RUNNING")
    try:
        command = f"enroot create -n kept {SQUASHED}"
        result = healthy.srun(command, f"-w {node} -n1")
        assert result.rc == 0, result.stderr
        result = healthy.srun("enroot start kept true", f"-w {node} -n1")
        assert result.rc == 0, result.stderr
    finally:
        healthy.run(f"scancel {job}")
    clean(healthy, node)


def test_links_in_a_users_directory_lead_nowhere(healthy: Lab) -> None:
    node = healthy.compute[0]
    before = healthy.root("ls -A /etc/enroot; stat -c '%a %U' /etc/enroot /root", node)
    command = f"rm -rf {MINE}/data {MINE}/tmp && ln -s /etc/enroot {MINE}/data && ln -s /root {MINE}/tmp"
    for dummy in range(2):
        assert healthy.srun(command, f"-w {node}").rc == 0
        clean(healthy, node)
    assert healthy.root("ls -A /etc/enroot; stat -c '%a %U' /etc/enroot /root", node) == before


def test_what_took_the_place_of_the_directory_is_moved_away(healthy: Lab) -> None:
    node = healthy.compute[0]
    healthy.root(f"rm -rf {BASE} && runuser -u guest -- ln -s /home/guest {BASE}", node)
    result = healthy.srun(f"stat -c '%F %U' {BASE} {MINE}", f"-w {node}")
    assert result.stdout.split("\n")[:2] == ["directory root", "directory trainer"]
    assert "2001" not in healthy.root("ls -A /home/guest", node)
    healthy.root("rm -f /scratch/.enroot.stray-*", node)


# A command of a job, where something is broken before, how, how it is mended, and what the job says.
FAULTS: dict[str, tuple[str, str, str, str, str]] = {
    "registry down": (
        f"enroot import -o $PWD/x.sqsh docker://{IMAGE}",
        "ctl",
        "systemctl stop registry-open",
        "systemctl start registry-open",
        "Failed to connect to ctl port 5000",
    ),
    "truncated image": (
        "enroot create -n cut /shared/images/cut.sqsh",
        "ctl",
        f"head -c 30000000 {SQUASHED} > /shared/images/cut.sqsh",
        "rm /shared/images/cut.sqsh",
        "Invalid image format|FATAL ERROR",
    ),
    "full scratch": (
        f"enroot create -n big {SQUASHED}",
        "node",
        "mount -t tmpfs -o size=20m,mode=1777 tmpfs /scratch",
        "umount -l /scratch",
        "No space left on device",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_said_and_leaves_nothing(healthy: Lab, fault: str) -> None:
    command, where, breaks, mends, said = FAULTS[fault]
    node = healthy.compute[0]
    host = node if where == "node" else where
    healthy.root(breaks, host)
    try:
        result = healthy.srun(command, f"-w {node}")
        assert result.rc != 0
        assert any(text in result.stdout + result.stderr for text in said.split("|")), result.stderr
        clean(healthy, node)
    finally:
        healthy.root(mends, host)
    again = command.replace("/shared/images/cut.sqsh", SQUASHED) + "; status=$?; rm -f $PWD/x.sqsh; exit $status"
    assert healthy.srun(again, f"-w {node}").rc == 0


def test_an_unpacking_that_ran_out_of_memory_is_gone_with_the_job(healthy: Lab) -> None:
    """A half of a container would make every later job with its name fail."""
    node = healthy.compute[0]
    result = healthy.run(f"srun --quiet --mem=20 -w {node} enroot create -n half {SQUASHED} </dev/null")
    assert result.rc != 0
    clean(healthy, node)
    result = healthy.srun(f"enroot create -n half {SQUASHED} >/dev/null 2>&1 && enroot start half true", f"-w {node}")
    assert result.rc == 0, result.stderr


def test_prolog_and_epilog_cost_a_job_little(healthy: Lab) -> None:
    node = healthy.compute[0]
    environment = "SLURM_JOB_ID=4000000 SLURM_JOB_UID=2001 SLURM_JOB_GID=2001"
    script = (
        f"for n in 1 2 3 4 5; do for w in prolog epilog; do {environment} /etc/slurm/$w.d/50-hpcai-enroot; done; done"
    )
    seconds: t.Any = healthy.root(f"bash -c 'TIMEFORMAT=%R; time {{ {script}; }} 2>/dev/null' 2>&1 | tail -n1", node)
    assert float(seconds) / 10 < patience(1)
