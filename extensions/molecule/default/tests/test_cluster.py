# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user and an administrator may rely on after site.yml."""

from __future__ import annotations

import json

import pytest
from cluster_lab import Lab, eventually


def test_a_step_runs_on_every_compute_node(lab: Lab) -> None:
    result = lab.run(f"srun -N{len(lab.compute)} hostname")
    assert result.rc == 0, result.stderr
    assert sorted(result.stdout.split()) == lab.compute


def test_accounting_shows_the_job(lab: Lab) -> None:
    job = lab.submit("true")
    lab.done(job)
    assert lab.account(job, "User,Account,ExitCode").startswith("trainer|")


def test_exit_code_is_recorded(lab: Lab) -> None:
    job = lab.submit("exit 3")
    eventually(lambda: lab.account(job, "State,ExitCode") == "FAILED|3:0", 60, f"job {job} FAILED with 3:0")


def test_user_without_association_is_refused(lab: Lab) -> None:
    result = lab.run("srun hostname", user="guest")
    assert result.rc != 0
    assert "Invalid account" in result.stderr


def test_job_over_its_memory_limit_is_killed_and_recorded(lab: Lab) -> None:
    job = lab.submit("python3 -c 'x = bytearray(400 << 20); print(len(x))'", "--mem=100M")
    eventually(lambda: lab.account(job, "State") == "OUT_OF_MEMORY", 90, f"job {job} OUT_OF_MEMORY in sacct")


def test_munge_rejects_a_foreign_key(lab: Lab) -> None:
    host = lab.host(lab.compute[0])
    script = """set -eu
    d=$(mktemp -d); chown munge: $d; chmod 0711 $d; trap 'kill $(cat $d/pid); rm -rf $d' EXIT
    dd if=/dev/urandom of=$d/key bs=1024 count=1 status=none; chown munge: $d/key; chmod 0400 $d/key
    runuser -u munge -- munged --key-file=$d/key --socket=$d/s --pid-file=$d/pid --log-file=$d/log --seed-file=$d/seed
    munge -n --socket=$d/s | unmunge
    """
    result = host.run("bash -c %s", script)
    assert result.rc != 0
    assert "Invalid credential" in result.stdout + result.stderr


@pytest.mark.parametrize(
    ("path", "owner", "modes"),
    [("/etc/munge/munge.key", "munge", (0o400, 0o600)), ("/etc/slurm/slurmdbd.conf", "slurm", (0o600,))],
)
def test_secrets_are_their_owner_s_alone(lab: Lab, path: str, owner: str, modes: tuple[int, ...]) -> None:
    file = lab.host("ctl").file(path)
    assert (file.user, file.mode in modes) == (owner, True), oct(file.mode)


def test_every_node_has_the_same_munge_key_and_keeps_it_to_itself(lab: Lab) -> None:
    sums = {lab.root("sha256sum < /etc/munge/munge.key", name) for name in lab.addresses}
    assert len(sums) == 1
    for name in lab.addresses:
        file = lab.host(name).file("/etc/munge/munge.key")
        assert (file.user, file.mode in (0o400, 0o600)) == ("munge", True)


def test_report_tells_what_was_found(lab: Lab) -> None:
    report = lab.state / "report"
    run = json.loads((report / "run.json").read_text())
    assert {"configure", "certify", "train"} <= {stage["stage"] for stage in run["stages"]}
    assert "<html" in (report / "report.html").read_text()
