# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A prolog that fails has Slurm drain the node: it fails only where the controller has left room for that."""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import tempfile
import time
import typing as t
from pathlib import Path

import pytest
from patience import patience

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import suite
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain import permits
from ansible_collections.hpcai.gpu_cluster.tests.unit.fixtures.nvidia_smi import machines

FALLEN = "4,1,9000000,c;NVRM: Xid (PCI:0003:00:00): 79, pid=1, GPU has fallen off the bus.\n"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "WAIT", patience(1))


class Node:
    """A node of which a GPU has fallen off the bus, and the mailbox that it shares with its controller."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.mailbox, self.path = folder, folder / "mailbox", folder / "agent.json"
        self.mailbox.mkdir(mode=0o700)
        (folder / "proc").mkdir()
        (folder / "kmsg").write_text(FALLEN)
        machines.ndv4_sysfs(folder / "sys")
        self.write(mailbox=str(self.mailbox))

    def write(self, **more: t.Any) -> None:
        places = {name: str(self.folder / name) for name in ("sys", "proc", "kmsg", "spool")}
        given = {"sysfs": places["sys"], "kernel_log": places["kmsg"], "proc": places["proc"], "spool": places["spool"]}
        self.path.write_text(json.dumps({"schema": 1, "node": "n1", **given, **more}))

    def offer(self, left: int) -> None:
        offered = {permits.KEY: permits.offer(left, 5)}
        (self.mailbox / permits.CONTROLLER).write_text(json.dumps({"schema": 1, **offered}))

    def run(self, name: str = "prolog") -> int:
        asked = [name, "--config", str(self.path), "--check", "gpu_xid", "--check", "latches"]
        return suite.main(asked)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.mark.parametrize("name", ["prolog", "epilog"])
@pytest.mark.parametrize(("left", "status"), [(1, suite.FAILED), (0, suite.HELD), (None, suite.HELD)])
def test_a_node_drains_itself_only_with_a_permit(
    node: Node, capsys: pytest.CaptureFixture[str], name: str, left: int | None, status: int
) -> None:
    if left is not None:
        node.offer(left)
    assert node.run(name) == status
    told = capsys.readouterr().out
    assert "fail gpu_xid (hardware): Xid 79 on GPU 2" in told
    assert ("error self_drain (infra): this node has a fault and does not drain itself" in told) is (left != 1)


def test_a_boot_needs_no_permit_and_a_suite_of_slurm_drains_nobody(node: Node) -> None:
    assert (node.run("boot"), node.run("periodic")) == (suite.FAILED, 0)
    assert not list(node.mailbox.iterdir())


def test_a_healthy_node_asks_for_nothing(node: Node) -> None:
    (node.folder / "kmsg").write_text("5,0,0,-;Linux\n")
    node.offer(3)
    assert node.run() == 0
    assert [path.name for path in node.mailbox.iterdir()] == [permits.CONTROLLER]


def test_without_a_mailbox_nobody_counts_and_the_prolog_fails(node: Node) -> None:
    node.write(mailbox="")
    assert node.run() == suite.FAILED


def test_a_fault_that_was_held_is_told_and_stays_latched(node: Node) -> None:
    assert node.run() == suite.HELD
    (node.folder / "kmsg").write_text("5,0,0,-;Linux\n")
    node.offer(1)
    assert node.run() == suite.FAILED


def test_a_share_that_hangs_holds_no_prolog_and_drains_nobody(
    node: Node, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(permits, "take", lambda folder, name: time.sleep(600))
    begin = time.monotonic()
    assert node.run() == suite.HELD
    assert time.monotonic() - begin < patience(60)
    assert "not finished within" in capsys.readouterr().out
    with (node.folder / "spool" / suite.LOCK).open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert node.run() == suite.HELD
    assert "an earlier one still waits for" in capsys.readouterr().out


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_permit_is_the_mailbox_users() -> None:
    """A file server takes root of a node for nobody."""
    entry = pwd.getpwnam("daemon")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        node = Node(Path(folder))
        node.write(mailbox=str(node.mailbox), mailbox_user="daemon")
        node.offer(2)
        for path in (node.mailbox, node.mailbox / permits.CONTROLLER):
            os.chown(path, entry.pw_uid, entry.pw_gid)
        assert node.run() == suite.FAILED
        (permit,) = node.mailbox.glob(".permit-*")
        assert (permit.stat().st_uid, permit.read_text()) == (entry.pw_uid, "n1")
