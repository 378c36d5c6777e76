# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bundle by hand, on the node that stays: what a failure leaves, what a reboot repairs.

That it is applied, and that a second run changes nothing, is proved by test_elastic.py; what is refused, by unit tests.
"""

from __future__ import annotations

import subprocess
import typing as t

import pytest
from cluster_lab import eventually
from conftest import LAB, STATE, WAIT, ElasticLab

NODE = "c1"
KEY = LAB["cluster_munge_key_file"]


@pytest.fixture(scope="module")
def bundle(lab: ElasticLab) -> str:
    """Return where the bundle lies on the node."""
    (file,) = (STATE / "bundle/project/blobs").iterdir()
    lab.root(f"mkdir -p /shared/hpcai && rm -rf /root/{file.name[:-7]}")
    (STATE / "shared/hpcai" / file.name).write_bytes(file.read_bytes())
    lab.root(f"tar -xzf /shared/hpcai/{file.name} -C /root", NODE)
    return f"/root/{file.name[:-7]}"


def apply(lab: ElasticLab, bundle: str, *words: str) -> t.Any:
    return lab.host(NODE).run(" ".join(["sh", f"{bundle}/bootstrap.sh", *words]))


def open_for_jobs(lab: ElasticLab) -> tuple[bool, bool]:
    """Whether the gate is open, and whether slurmd runs."""
    host = lab.host(NODE)
    return host.run("test -e /run/hpcai/node-ready").rc == 0, host.run("systemctl is-active slurmd").rc == 0


def restart() -> None:
    argv = ["podman", "restart", "--time=5", f"hpcai-{LAB['lab_name']}-{NODE}"]
    subprocess.run(argv, check=True, capture_output=True)


def test_a_task_that_fails_is_named_and_no_job_is_taken(lab: ElasticLab, bundle: str) -> None:
    lab.root(f"chmod 0444 {KEY}")
    try:
        assert apply(lab, bundle, "--force").rc == 1
    finally:
        lab.root(f"chmod 0400 {KEY}")
    told = lab.result(NODE)
    assert told["status"] == "failed"
    assert told["failed_task"].endswith("Refuse a munge_key_file that others can have read or written")
    assert "mode 0444" in told["message"]
    assert open_for_jobs(lab) == (False, False)
    # Whoever starts it is told of no error: CycleCloud's converge does so at every boot, and would fail the node.
    assert lab.host(NODE).run("systemctl start slurmd").rc == 0
    assert open_for_jobs(lab) == (False, False)


def test_one_that_takes_too_long_is_ended(lab: ElasticLab, bundle: str) -> None:
    assert apply(lab, bundle, "--force", "--budget", "2").rc == 3
    assert lab.result(NODE)["status"] == "late"
    assert open_for_jobs(lab) == (False, False)
    assert not lab.host(NODE).run("pgrep -f ansible.cli.playbook").stdout


def test_a_reboot_repairs_it_and_the_next_one_is_quick(lab: ElasticLab, bundle: str) -> None:
    restart()
    eventually(lambda: open_for_jobs(lab) == (True, True), WAIT, "the node applies its bundle at boot")
    eventually(lambda: lab.result(NODE)["status"] == "ok", WAIT)
    known = lab.result(NODE)
    restart()
    eventually(lambda: open_for_jobs(lab) == (True, True), WAIT, "the node is open again")
    assert lab.result(NODE) == known  # it was not applied once more
    eventually(lambda: lab.run(f"sinfo -h -n {NODE} -o %t").stdout.strip() in ("idle", "mix"), WAIT)
