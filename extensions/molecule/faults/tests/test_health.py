# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults that are made for real: found by the node, drained by the controller with the right word, cleared by proof.

Nothing waits for timers: the tests start what slurmd and the timer of the controller start.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import typing as t

import lab_health
import pytest
from cluster_lab import Lab

SPOOL, AGENT = "/var/lib/slurm", "/usr/local/lib/hpcai/hpcai-agent.pyz"
FULL = "free of /var/lib/slurm not >="


class Health(lab_health.Health):
    """What is broken in this lab."""

    lab: Lab

    @contextlib.contextmanager
    def later(self) -> t.Iterator[None]:
        """Let the time pass after which a node that says nothing is missed."""
        self.lab.root(f"touch -d '20 minutes ago' {lab_health.MAILBOX}/{self.bad}.json")
        try:
            yield
        finally:
            self.lab.root(f"rm {lab_health.MAILBOX}/{self.bad}.json")

    @contextlib.contextmanager
    def full(self, *nodes: str) -> t.Iterator[None]:
        """A spool without room: the same files on a small file system, and a large one beside them."""
        for node in nodes:
            self.lab.root(
                f"rm -rf /run/keep && cp -a {SPOOL} /run/keep && mount -t tmpfs -o size=8m tmpfs {SPOOL}"
                f" && cp -a /run/keep/. {SPOOL} && ! dd if=/dev/zero of={SPOOL}/filler bs=1M status=none 2>/dev/null",
                node,
            )
        try:
            yield
        finally:
            for node in nodes:
                self.lab.root(f"rm {SPOOL}/filler && umount --lazy {SPOOL} && rm -rf /run/keep", node)

    @contextlib.contextmanager
    def without(self, path: str) -> t.Iterator[None]:
        self.lab.root(f"mv {path} {path}.away", self.bad)
        try:
            yield
        finally:
            self.lab.root(f"mv {path}.away {path}", self.bad)


@pytest.fixture(scope="module")
def booted(lab: Lab) -> None:
    Health(lab).begin()


@pytest.fixture
def health(healthy: Lab, booted: None) -> t.Iterator[Health]:
    """No fault before, none left."""
    found = Health(healthy)
    yield found
    found.well()


def test_full_spool(health: Health) -> None:
    """Drained by the first pass, kept by the second, and still out of service when there is room again."""
    with health.full(health.bad):
        health.check()
        health.reconcile()
        reason = health.reason(health.bad)
        assert reason.startswith("hpcai:")
        assert FULL in reason
        assert health.reason(health.good) == ""
        health.reconcile()
        assert health.reason(health.bad) == reason
    health.check()
    assert health.found("provable", "no fault")
    assert health.reason(health.bad) == reason
    evidence = health.lab.root("tail -n 1 /var/lib/hpcai/reconcile/drains.jsonl")
    assert json.loads(evidence)["record"]["class"] == "config"
    health.give_back(health.bad)
    health.reconcile()
    assert health.reason(health.bad) == ""


def test_a_drained_node_comes_back_by_proof(health: Health) -> None:
    """repair_node.yml: a reservation, the certification in it, and the node serves again."""
    with health.full(health.bad):
        health.check()
        health.reconcile()
        assert FULL in health.reason(health.bad)
    health.check()
    health.lab.apply("repair_node.yml", node_repair_hosts=health.bad)
    assert health.reason(health.bad) == ""
    assert "ReservationName" not in health.lab.root("scontrol show reservation")
    assert health.lab.run(f"srun -w {health.bad} true").rc == 0


def test_what_a_person_has_drained(health: Health) -> None:
    mine = "ops: cable swap"
    health.lab.root(f"scontrol update nodename={health.bad} state=drain reason={shlex.quote(mine)}")
    try:
        with health.full(health.bad):
            health.check()
            assert health.found("left_alone", FULL)
            assert health.reason(health.bad) == mine
    finally:
        health.lab.root(f"scontrol update nodename={health.bad} state=undrain")


def test_the_same_on_every_node(health: Health) -> None:
    """More than the share of a cluster that may go at once has one cause, and no node is to blame."""
    nodes = health.lab.compute
    with health.full(*nodes):
        health.check(*nodes)
        assert health.found("common_cause", f"{len(nodes)} of {len(nodes)} nodes")
        assert [health.reason(node) for node in nodes] == [""] * len(nodes)


def test_another_munge_key(health: Health) -> None:
    key = "/etc/munge/munge.key"
    health.lab.root(f"cp -a {key} {key}.kept && dd if=/dev/urandom of={key} bs=1024 count=1 status=none", health.bad)
    try:
        health.lab.root("systemctl restart munge", health.bad)
        health.check()
        health.reconcile()
        reason = health.reason(health.bad)
        assert reason.startswith("hpcai:munge:")
        assert "Invalid credential" in reason
    finally:
        health.lab.root(f"mv {key}.kept {key} && systemctl restart munge", health.bad)


def test_slurmd_that_hangs(health: Health) -> None:
    """slurmd runs the checks: without it there are none, and nobody claims to know."""
    health.lab.root("systemctl kill --signal=STOP slurmd", health.bad)
    try:
        with health.later():
            assert health.found("silent", "no report")
        assert health.reason(health.bad) == ""
    finally:
        health.lab.root("systemctl kill --signal=CONT slurmd", health.bad)


def test_checker_that_is_gone(health: Health) -> None:
    """It is missed, drains nobody, and holds no job up."""
    with health.without(AGENT):
        run = health.lab.host(health.bad).run("/usr/local/sbin/hpcai-node-health periodic")
        assert run.rc == 2, run.stdout
        assert health.lab.run(f"srun -w {health.bad} true").rc == 0
        with health.later():
            assert health.found("silent", "no report")
    assert health.reason(health.bad) == ""


def test_tool_that_is_gone(health: Health) -> None:
    with health.without("/usr/bin/unmunge"):
        health.check()
        assert health.found("infra", "munge")
        assert health.reason(health.bad) == ""


def test_throttled_network(health: Health) -> None:
    """Nothing but measured all_reduce tells which node it is, and its partners are not blamed."""
    lab = health.lab
    if len(lab.compute) < 3:
        pytest.skip("of two nodes nobody can tell which one is slow")
    run = "throttled"
    lab.root(f"rm -rf /shared/certification/{run}")
    lab.root("tc qdisc add dev eth0 root tbf rate 130mbit burst 256kb latency 100ms", health.bad)
    try:
        stages = ["reach", "pair", "confirm"]
        lab.apply("certify.yml", certification_run=run, certification_stages=stages, certification_fail_on=[])
    finally:
        lab.root("tc qdisc del dev eth0 root", health.bad)
    found = json.loads(lab.root(f"cat /shared/certification/{run}/certificate.json"))["nodes"]
    assert [name for name, node in found.items() if node["status"] == "drained"] == [health.bad]
    assert "busbw" in found[health.bad]["reason"]
    assert health.reason(health.bad) == ""  # certification_drain is off
