# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many nodes at once: what they share is told, what is one node's is drained, and in few orders."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import metric
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain import mailbox, reconcile
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.reconcile import leaves_from_text
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils.drain.drain_world import (
    NOW,
    Node,
    World,
    fault,
)


@pytest.fixture(autouse=True)
def munge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox, "run", lambda argv, limit: Outcome(0, "MUNGE:abc:\n", "", 0.0))


def cluster(folder: Path, count: int, leaf: int = 0) -> World:
    world = World(folder, count, leaf)
    world.everybody_is_well()
    return world


def causes(outcome: reconcile.PassOutcome) -> list[str]:
    return [item["text"] for item in outcome.findings if item["kind"] == "common_cause"]


@pytest.mark.parametrize(("bad", "drained"), [(5, 5), (6, 0), (60, 0)])
def test_a_share_of_the_cluster(tmp_path: Path, bad: int, drained: int) -> None:
    world = cluster(tmp_path, 100)
    for number in range(1, bad + 1):
        world.say(f"n{number}", fault())
    told = world.reconcile()
    assert len(told.drained) == drained
    assert len(causes(told)) == (0 if drained else 1)
    if not drained:
        assert f"xid: {bad} of 100 nodes in one go, at most 5 are drained: suspect what they share" in causes(told)[0]
        assert (told.findings[0]["nodes"], world.updates) == (f"n[1-{bad}]", [])


def test_five_per_cent_a_minute_is_no_way_round_the_guard(tmp_path: Path) -> None:
    world = cluster(tmp_path, 100)
    for minute in range(60):
        world.now = NOW + 60 * minute
        for number in range(1, 100):
            record = fault("xid" if number % 2 else "ecc")
            world.say(f"n{number}", *[{**record, "time": world.now}] if number <= 3 * (minute + 1) else [])
        world.reconcile()
    assert len(world.reasons()) == 3
    world.now = NOW + 3700
    world.say("n1")
    for number in range(4, 100):
        world.say(f"n{number}", *[fault(time=world.now)] if number < 8 else [])
    assert set(world.reconcile().drained) == {"n4", "n5", "n6", "n7"}


def test_a_broken_node_need_not_wait_for_a_broken_driver(tmp_path: Path) -> None:
    world = cluster(tmp_path, 100)
    for number in range(1, 61):
        world.say(f"n{number}", fault("driver", "software"))
    world.say("n77", fault("xid"))
    told = world.reconcile()
    assert (set(told.drained), len(causes(told))) == ({"n77"}, 1)


def test_many_different_faults_at_once_are_no_coincidence(tmp_path: Path) -> None:
    world = cluster(tmp_path, 100)
    for number in range(1, 9):
        world.say(f"n{number}", fault(f"check_{number}"))
    told = world.reconcile()
    assert (told.drained, len(causes(told))) == ({}, 1)
    assert "different checks: 8 of 100 nodes" in causes(told)[0]


@pytest.mark.parametrize(("bad", "drained"), [(3, 4), (4, 1)])
def test_a_leaf_has_one_cause(tmp_path: Path, bad: int, drained: int) -> None:
    """n100 is on another leaf and goes either way."""
    world = cluster(tmp_path, 100, leaf=10)
    for number in [*range(11, 11 + bad), 100]:
        world.say(f"n{number}", fault(f"check_{number}", "fabric"))
    told = world.reconcile()
    assert ("n100" in told.drained, len(told.drained)) == (True, drained)
    held = [item for item in told.findings if item["kind"] == "common_cause"]
    assert [item["suspects"] for item in held] == ([] if bad == 3 else [["leaf1"]])


def test_a_leaf_loses_its_fourth_node_within_the_hour(tmp_path: Path) -> None:
    world = cluster(tmp_path, 100, leaf=10)
    for number in range(1, 4):
        world.say(f"n{number}", fault())
    assert len(world.reconcile().drained) == 3
    world.say("n4", fault("ecc"))
    told = world.reconcile()
    assert (told.drained, "4 nodes of leaf0 in one go, at most 3" in causes(told)[0]) == ({}, True)


@pytest.mark.parametrize(("count", "bad", "drained"), [(1, 1, 1), (2, 1, 1), (2, 2, 0), (39, 2, 0), (40, 2, 2)])
def test_a_small_cluster_may_lose_one(tmp_path: Path, count: int, bad: int, drained: int) -> None:
    world = cluster(tmp_path, count)
    for number in range(1, bad + 1):
        world.say(f"n{number}", fault())
    assert len(world.reconcile().drained) == drained


def test_a_thousand_nodes_in_three_orders(tmp_path: Path) -> None:
    """Each with numbers of its own; a hostlist, and no order per node."""
    world = cluster(tmp_path, 1000, leaf=20)
    for number in range(1, 1001):
        low = {**metric("h2d", 20 + number / 1000, "GB/s", gpu=number % 8), "verdict": "fail", "expected": ">= 48"}
        bad = [
            fault("gpu_bandwidth", metrics=[low], verdict=None),
            fault("disk", "config", reason=f"/var/spool is {90 + number / 110:.2f} % full"),
            fault("xid", context={"code": 79, "action": "isolate"}),
        ]
        world.say(f"n{number}", bad[number % 3])
    told = world.reconcile(max_share=1.0, max_leaf=1000)
    assert (len(told.drained), len(world.updates)) == (1000, 3)
    assert sorted(set(told.drained.values())) == [
        "hpcai:disk:config fault, see drains.jsonl",
        "hpcai:gpu_bandwidth:h2d not >= 48 GB/s",
        "hpcai:xid:code 79, isolate",
    ]
    assert all(len(" ".join(argv)) < 100_000 for argv in world.updates)


def test_checks_that_could_not_be_made_drain_nobody(tmp_path: Path) -> None:
    world = cluster(tmp_path, 10)
    for name in world.nodes:
        world.say(name, fault("gpu_count", verdict="error", reason="nvidia-smi cannot be started"))
    world.say("n1", fault("gpu_count", "infra", reason="nvidia-smi cannot be started"))
    world.say("n2", fault("temperature", verdict="warn", reason="93 C"), fault("xid", context={"action": "monitor"}))
    told = world.reconcile()
    assert (told.drained, world.updates) == ({}, [])
    assert {(item["kind"], item["check"], item["nodes"]) for item in told.findings} == {
        ("infra", "gpu_count", "n[1,3-10]"),
        ("watch", "temperature", "n2"),
        ("watch", "xid", "n2"),
    }


def test_silence_is_not_health(tmp_path: Path) -> None:
    world = cluster(tmp_path, 10)
    (world.mailbox / "n1.json").unlink()
    world.say("n2", fault(), age=1000)
    world.put("n3", "{")
    world.say("n4", node="n5")
    world.say("n5", problem="state.json is damaged")
    world.nodes["n6"] = Node("DOWN*", "Not responding", "slurm")
    world.say("n6", age=5000)
    world.nodes["n7"] = Node("IDLE+POWERED_DOWN")
    (world.mailbox / "n7.json").unlink()
    world.say("gone", fault())
    told = world.reconcile()
    assert (told.drained, {item["kind"] for item in told.findings}) == ({}, {"silent"})
    assert {item["nodes"] for item in told.findings} == {"n1", "n2", "n3", "n4", "n5"}


def test_a_clock_that_is_wrong_does_not_hide_a_fault(tmp_path: Path) -> None:
    """The file server's clock says when a letter came, whatever its writer believes."""
    world = cluster(tmp_path, 10)
    for skew in (-7200.0, 7200.0):
        world.say("n3", {**fault("clock", "config"), "time": NOW + skew - 5}, time=NOW + skew)
        assert world.reconcile(dry_run=True).drained == {"n3": "hpcai:clock:clock is bad"}


def test_what_was_found_long_ago_counts_if_it_is_latched(tmp_path: Path) -> None:
    world = cluster(tmp_path, 40)
    world.say("n3", {**fault("swap", "config", context={"suite": "boot"}), "time": NOW - 86400})
    world.say("n4", {**fault("xid", context={"latched": True}), "time": NOW - 86400})
    world.say("n5", {**fault("shared", verdict="error"), "time": NOW - 86400})
    told = world.reconcile()
    assert (set(told.drained), told.findings) == ({"n4"}, [])


def test_the_worst_fault_gives_the_reason(tmp_path: Path) -> None:
    world = cluster(tmp_path, 10)
    reset, isolate = ({"code": code, "action": action} for code, action in ((31, "reset"), (79, "isolate")))
    world.say("n1", fault("swap", "config"), fault("xid", context=reset), fault("xid", context=isolate))
    assert world.reconcile().drained == {"n1": "hpcai:xid:code 79, isolate"}


@pytest.mark.parametrize(
    "reason",
    ['two\nlines [x@y] "quoted"', "a" * 500, "ümlaut \u2713", "; ; ", "", "\x1b[31mred", "a'b`c$(reboot)\\"],
)
def test_any_text_becomes_a_reason_that_slurm_gives_back(tmp_path: Path, reason: str) -> None:
    world = cluster(tmp_path, 10)
    world.say("n1", fault("disk", "config", reason=reason or None, metrics=[]))
    told = world.reconcile()
    assert re.fullmatch(r"hpcai:disk:[ -~]*[!-~]", told.drained["n1"])
    assert (len(told.drained["n1"]) <= 200, world.reconcile().commands) == (True, [])


TREE = """\
SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=c[1-2]
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=c[3-4],far1
SwitchName=spine Level=1 LinkSpeed=1 Nodes=c[1-4],far1 Switches=leaf[1-2]
"""
BLOCK = "BlockName=b1 BlockIndex=0 Nodes=c[1-2] BlockSize=2\nBlockName=b2 BlockIndex=1 Nodes=c[3-4] BlockSize=2\n"


def test_leaves_are_read_from_what_slurm_prints() -> None:
    leaves = {"c1": "leaf1", "c2": "leaf1", "c3": "leaf2", "c4": "leaf2", "far1": "leaf2"}
    assert leaves_from_text(TREE) == leaves
    assert leaves_from_text(BLOCK) == {"c1": "b1", "c2": "b1", "c3": "b2", "c4": "b2"}
    assert leaves_from_text("SwitchName=x Level=0 Nodes=c[1-\n\nslurm_load_topo error: x\n") == {}
