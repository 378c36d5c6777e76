# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults that only a machine of its own can have: found by the node, drained by the controller, given back by proof."""

from __future__ import annotations

import contextlib
import json
import typing as t

import pytest
from conftest import VmLab, eventually
from lab_health import Health

DISK, NODE = "disk2", "c1"
ARRAY = "hpcai:scratch_array:disks of /scratch not == {} disks"
CLOCK = "hpcai:clock_skew:skew not <= 10 s"
# A job that cannot write any more says why, and fails.
JOB = """
import errno, os, time
with open("/scratch/tmp/numbers", "wb", buffering=0) as out:
    open("/shared/told", "w").write("writes")
    try:
        while True:
            out.write(os.urandom(1 << 20))
            os.fsync(out.fileno())
            time.sleep(0.2)
    except OSError as exc:
        open("/shared/told", "w").write(errno.errorcode[exc.errno])
        raise
"""


class Faults(Health):
    """What is broken in this lab, and the way back."""

    lab: VmLab

    def kernel_name(self, disk: str) -> str:
        """What the node calls a disk of its machine."""
        return self.lab.node(NODE).devices()[disk].rpartition("/")[2]

    def drained(self, reason: str) -> None:
        """See it found and drained: by the next check, or by one after it, for an emulated machine may be late."""

        def now() -> bool:
            self.check()
            self.reconcile()
            return self.reason(NODE) == reason

        eventually(now, f"{NODE} to be drained: {reason}", 480)

    def evidence(self) -> dict[str, t.Any]:
        """The record for which the last node was drained."""
        text = self.lab.root("tail -n 1 /var/lib/hpcai/reconcile/drains.jsonl")
        return t.cast("dict[str, t.Any]", json.loads(text)["record"])

    def repair(self) -> None:
        """Have the node prove that it is well, and see it given back."""
        status, said = self.lab.ansible.playbook("repair_node.yml", f"--extra-vars=node_repair_hosts={NODE}")
        assert status == 0, said[-3000:]
        assert self.reason(NODE) == ""

    @contextlib.contextmanager
    def clock(self, ahead: int) -> t.Iterator[None]:
        """Set the node's clock ahead by seconds."""
        self.lab.root(f"date --set='{ahead} seconds'", NODE)
        try:
            yield
        finally:
            self.lab.root(f"date --set='{-ahead} seconds'", NODE)


@pytest.fixture(scope="module")
def health(lab: VmLab) -> Faults:
    """Nothing is drained before."""
    found = Faults(lab)
    assert found.reason(NODE) == ""
    return found


def test_a_disk_that_is_pulled_out_under_a_job(health: Faults) -> None:
    """The job learns it by its write, no other one starts, and what was on scratch comes back with the disk."""
    lab, node = health.lab, health.lab.node(NODE)
    lab.run(f"rm -f /shared/told; cat > /shared/job.py <<'END'\n{JOB}\nEND")
    device = health.kernel_name(DISK)
    job = lab.submit("python3 /shared/job.py")
    eventually(lambda: lab.run("cat /shared/told").stdout == "writes", "the job to write")
    node.pull(DISK)
    eventually(lambda: lab.account(job, "State,ExitCode") == "FAILED|1:0", f"job {job} to be FAILED in sacct")
    assert lab.run("cat /shared/told").stdout == "EIO"
    # The epilog may have drained it meanwhile, if it was in time: then the reconciler takes that over.
    health.drained(ARRAY.format(len(node.disks)))
    waiting = lab.submit("test -s /scratch/tmp/numbers")
    record = health.evidence()
    assert record["class"] == "hardware"
    assert f"{device} is gone" in record["reason"]
    eventually(lambda: lab.waits(waiting), f"the scheduler to leave job {waiting} in the queue")
    eventually(lambda: lab.account(waiting, "State") == "PENDING", f"job {waiting} to be PENDING in sacct")
    node.push(DISK)
    # A health check may be looking into it.
    eventually(
        lambda: lab.host(NODE).run("umount /scratch || ! mountpoint -q /scratch").rc == 0, "scratch to be unmounted"
    )
    lab.root("systemctl restart hpcai-scratch", NODE)
    health.check()
    health.repair()
    eventually(lambda: lab.account(waiting, "State") == "COMPLETED", f"job {waiting} to be COMPLETED in sacct")


def test_a_clock_that_is_off(health: Faults) -> None:
    """Drained while munge still takes what the node says."""
    with health.clock(120):
        health.drained(CLOCK)
        assert health.evidence()["class"] == "config"
    health.check()
    health.give_back(NODE)
    health.reconcile()
    assert health.reason(NODE) == ""
