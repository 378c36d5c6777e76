# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reconciler beside people, a Slurm that hangs, faults that come and go, and machines that move."""

from __future__ import annotations

import json
import os
import threading
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain import mailbox, reconcile, state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.request import DrainError
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils.drain.drain_world import (
    HUNG,
    NOW,
    Node,
    World,
    fault,
)

OURS = "hpcai:xid:code 79, isolate"
XID = fault(context={"code": 79, "action": "isolate", "latched": True})
DAY = 86400.0


@pytest.fixture(autouse=True)
def munge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox, "run", lambda argv, limit: Outcome(0, "MUNGE:abc:\n", "", 0.0))


@pytest.fixture
def world(tmp_path: Path) -> World:
    found = World(tmp_path)
    found.everybody_is_well()
    return found


def kinds(outcome: reconcile.PassOutcome) -> list[str]:
    return [item["kind"] for item in outcome.findings]


def test_a_fault_is_drained_once_with_its_evidence(world: World) -> None:
    world.say("n3", XID, host="H3")
    first = world.reconcile()
    assert (first.drained, world.reasons()) == ({"n3": OURS}, {"n3": OURS})
    assert world.updates == [["scontrol", "update", "nodename=n3", "state=drain", f"reason={OURS}"]]
    line = json.loads((world.state / "drains.jsonl").read_text())
    assert (line["node"], line["host"], line["record"]["context"]["code"]) == ("n3", "H3", 79)
    again = world.reconcile()
    assert (again.drained, again.commands, len(world.updates)) == ({}, [], 1)


def test_nothing_to_do_is_one_look_and_no_order(world: World) -> None:
    assert world.reconcile().findings == []
    assert (world.looks, world.updates) == (1, [])


def test_slurm_that_falls_silent_after_an_order_is_told_and_what_was_done_is_kept(world: World) -> None:
    world.say("n3", XID)
    world.answer = lambda argv: HUNG if world.updates and argv[2] == "node" else None
    told = world.reconcile()
    assert (len(told.commands), "did not end" in told.problem) == (1, True)
    assert "node:n3|xid" in (world.state / "latches.json").read_text()


def test_a_dry_run_changes_nothing_and_says_the_same(world: World) -> None:
    world.say("n3", XID)
    before = sorted(str(path) for path in world.folder.rglob("*"))
    told = world.reconcile(dry_run=True)
    assert told.drained == {"n3": OURS}
    assert (world.updates, sorted(str(path) for path in world.folder.rglob("*"))) == ([], before)
    assert world.reconcile().commands == told.commands


def test_a_controller_that_is_to_drain_nothing_gives_its_sign_of_life_and_tells_what_stands(world: World) -> None:
    """Else every node would report that nobody is there."""
    world.say("n3", XID)
    world.say("n4", fault("clock", "infra"))
    told = world.reconcile(dry_run=False)
    world.resume("n3")
    (world.mailbox / "controller.json").unlink()
    (world.state / "findings.json").unlink()
    dry = reconcile.perform(world.settings(dry_run=True), False, world, NOW)
    assert (dry.drained, len(world.updates), world.nodes["n3"].reason) == (told.drained, 1, "")
    assert (world.mailbox / "controller.json").exists()
    assert [item["kind"] for item in json.loads((world.state / "findings.json").read_text())["findings"]] == ["infra"]
    again = reconcile.perform(world.settings(dry_run=True), False, world, NOW)
    assert (dry.new, again.new) == (dry.findings, [])


def test_a_drained_node_that_fell_silent_is_not_said_to_be_well(world: World) -> None:
    world.say("n3", XID)
    world.reconcile()
    world.say("n3", age=901)
    assert kinds(world.reconcile()) == ["silent"]
    world.say("n3")
    assert kinds(world.reconcile()) == ["provable"]


def test_a_node_that_joins_is_not_said_to_be_for_repair(world: World) -> None:
    world.say("n3")
    world.drain("n3", "hpcai:joining:not certified beside proven nodes yet")
    assert kinds(world.reconcile()) == ["joining"]


class Repair:
    """A repair of nodes that certification had convicted; nothing shows on the nodes themselves."""

    why = "hpcai:certification:fabric fault, run 7"

    def __init__(self, world: World, *names: str) -> None:
        self.world, self.names, self.held = world, names, dict.fromkeys(names, self.why)
        self.drain()

    def drain(self) -> None:
        self.world.nodes.update({name: Node("IDLE+MAINTENANCE+DRAIN", self.why) for name in self.names})

    def hold(self, dry_run: bool = False) -> tuple[dict[str, str], bool]:
        return reconcile.hold(self.world.settings(), [*self.names, "n9"], dry_run, self.world)

    def resume(self) -> None:
        self.world.nodes.update({name: Node("IDLE+MAINTENANCE") for name in self.names})

    def end(self) -> None:
        """The reservation ends by itself."""
        for name in self.names:
            node = self.world.nodes[name]
            self.world.nodes[name] = Node(node.state.replace("+MAINTENANCE", ""), node.reason)


def test_a_repair_that_was_killed_returns_no_node_unproved(world: World) -> None:
    """Also if more of them were in it than may go at once: they were out of service before."""
    repair = Repair(world, "n3", "n4", "n5")
    assert repair.hold(dry_run=True) == repair.hold() == (repair.held, True)
    assert repair.hold() == (repair.held, False)
    assert world.reconcile().drained == {}
    repair.resume()
    assert repair.hold() == (repair.held, False)  # the repair goes on where it was cut short
    world.say("n3", fault("ib_flap", "fabric"))
    assert world.reconcile().drained == {}
    repair.end()
    (world.mailbox / "n5.json").unlink()
    assert world.reconcile(dry_run=True).drained == world.reconcile().drained == repair.held
    assert [argv[2] for argv in world.updates] == ["nodename=n[3-5]"]
    world.resume("n4")
    assert world.reconcile().drained == {}  # once: what a person does then is a person's


def test_a_person_s_word_stands_over_a_repair_that_was_killed(world: World) -> None:
    repair = Repair(world, "n3")
    repair.hold()
    repair.resume()
    repair.end()
    world.drain("n3", "ops: cable swap")
    assert world.reconcile().drained == {}
    assert world.nodes["n3"].reason == "ops: cable swap"


@pytest.mark.parametrize("proved", [True, False])
def test_a_repair_that_ended_well_or_not_is_over(world: World, proved: bool) -> None:
    repair = Repair(world, "n3")
    repair.hold()
    repair.resume()
    if proved:
        reconcile.release(world.settings(), ["n3"], False, NOW)
    else:
        repair.drain()
    repair.end()
    assert world.reconcile().drained == {}
    world.resume("n3")
    assert world.reconcile().drained == {}


def test_a_person_drains_between_the_look_and_the_order(world: World) -> None:
    """The first look plans, the last look before an order decides."""
    world.say("n3", XID)
    world.say("n4", XID)
    world.meanwhile[1] = lambda: world.drain("n3", "ops: cable swap")
    world.nodes = {**world.nodes, **{f"m{i}": Node() for i in range(20)}}
    world.say("n5", fault("munge", "config"))
    world.reconcile(max_share=1.0)
    assert world.reasons() == {"n3": "ops: cable swap", "n4": OURS, "n5": "hpcai:munge:munge is bad"}


def test_a_person_acts_while_several_reasons_are_given(world: World) -> None:
    """Every order has a look of its own right before it."""
    for name, check in (("n3", "aaa"), ("n4", "bbb"), ("n5", "ccc")):
        world.say(name, fault(check))
    world.meanwhile[3] = lambda: world.drain("n5", "ops: mine")
    told = world.reconcile(max_share=1.0)
    assert world.looks == 5
    assert world.reasons() == {"n3": "hpcai:aaa:aaa is bad", "n4": "hpcai:bbb:bbb is bad", "n5": "ops: mine"}
    assert [node["name"] for node in told.left_alone] == ["n5"]


@pytest.mark.parametrize(
    "node",
    [
        Node("IDLE+DRAIN", "ops: cable swap"),
        Node("MIXED", "watch the fan"),
        Node("DOWN", "Not responding", "slurm"),
        Node("IDLE+DRAIN", "Duplicate jobid", "slurm"),
        Node("IDLE+DRAIN", "Kill task failed", "root"),
        Node("IDLE+DRAIN", "Low RealMemory (reported:1 < 100.00% of configured:2)", "slurm"),
        Node("IDLE+DRAIN", "Prolog error", "root"),
        Node("IDLE+DRAIN", "hpcaiX: not ours"),
        Node("IDLE+DRAIN", ""),
    ],
    ids=lambda node: node.reason or "no reason",
)
def test_a_reason_that_is_not_ours_is_never_replaced(world: World, node: Node) -> None:
    world.nodes["n3"] = node
    world.say("n3", XID)
    told = world.reconcile()
    assert (world.updates, world.nodes["n3"]) == ([], node)
    assert (kinds(told), [left["name"] for left in told.left_alone]) == (["left_alone"], ["n3"])
    assert ("still takes jobs" in told.findings[0]["text"]) is (node.state == "MIXED")


@pytest.mark.parametrize(("word", "suite"), [("Prolog error", "prolog"), ("Epilog error", "epilog")])
def test_slurms_word_for_a_failed_hook_gives_way_to_what_the_hook_found(world: World, word: str, suite: str) -> None:
    world.nodes["n3"] = Node("IDLE+DRAIN", word, "root")
    world.say("n3", fault("aaa"), fault("nvme", context={"suite": suite}))
    world.nodes["n4"] = Node("IDLE+DRAIN", "Prolog error" if suite == "epilog" else "Epilog error", "root")
    world.say("n4", fault("nvme", context={"suite": suite}))
    world.reconcile()
    assert world.reasons() == {"n3": "hpcai:nvme:nvme is bad", "n4": world.nodes["n4"].reason}
    assert not world.nodes["n4"].reason.startswith("hpcai:")


def test_a_scontrol_that_hangs_drains_nothing_and_says_so(world: World) -> None:
    world.say("n3", XID)
    world.answer = lambda argv: HUNG
    with pytest.raises(DrainError, match="did not end within 30 s"):
        world.reconcile()
    assert (world.updates, (world.state / "drains.jsonl").exists()) == ([], False)


def test_a_scontrol_that_hangs_with_the_order_ends_the_pass_and_the_next_one_goes_on(world: World) -> None:
    for name, check in (("n3", "aaa"), ("n4", "bbb")):
        world.say(name, fault(check))
    world.answer = lambda argv: HUNG if argv[1] == "update" else None
    told = world.reconcile(max_share=1.0)
    assert (told.drained, len(told.commands)) == ({}, 1)
    assert "nodename=n3 state=drain" in told.problem
    world.answer = lambda argv: None
    assert set(world.reconcile(max_share=1.0).drained) == {"n3", "n4"}


def test_an_order_that_was_carried_out_although_its_sender_hung_is_not_given_again(world: World) -> None:
    world.say("n3", XID)

    def late(argv: t.Sequence[str]) -> Outcome | None:
        return world._update(list(argv)) and HUNG if argv[1] == "update" else None

    world.answer = late
    assert world.reconcile().drained == {"n3": OURS}
    assert (world.reconcile().commands, len(world.updates)) == ([], 1)


@pytest.mark.parametrize("text", ["", "slurm_load_node error: Unable to contact slurm controller", "NodeName", "x\n"])
def test_an_answer_that_is_none_drains_nothing(world: World, text: str) -> None:
    world.say("n3", XID)
    world.answer = lambda argv: Outcome(0, text, "", 0.0)
    with pytest.raises(DrainError, match="scontrol show node"):
        world.reconcile()


def test_a_fault_that_comes_and_goes_is_one_drain(world: World) -> None:
    """Resumed by hand while it did not show: an intermittent fault of the machine is latched, and told to be."""
    world.say("n3", fault("ib_flap", "fabric"), host="H3")
    world.reconcile()
    for dummy in range(3):
        world.say("n3", host="H3")
        assert kinds(world.reconcile()) == ["provable"]
        world.say("n3", fault("ib_flap", "fabric"), host="H3")
        world.reconcile()
    assert len(world.updates) == 1
    world.say("n3", host="H3")
    world.resume("n3")
    assert world.reconcile().drained == {"n3": "hpcai:ib_flap:ib_flap is bad, latched"}


def test_a_mistake_of_configuration_is_over_when_it_is_over(world: World) -> None:
    world.say("n3", fault("munge", "config"))
    world.reconcile()
    world.say("n3")
    world.resume("n3")
    assert world.reconcile().drained == {}


def test_another_machine_does_not_wash_a_bad_host_clean(world: World) -> None:
    """n3 moves from H3 to H9; n7 gets H3. n3 stays drained until it is proved, n7 is drained for the host."""
    world.say("n3", XID, host="H3")
    world.reconcile()
    world.say("n3", host="H9")
    world.say("n7", host="H3")
    told = world.reconcile(max_share=1.0)
    assert told.drained == {"n7": f"{OURS}, found on n3, latched"}
    assert world.reasons()["n3"] == OURS
    assert reconcile.release(world.settings(), ["n3"], False, NOW) == []
    world.resume("n3")
    assert world.reconcile().drained == {}
    assert reconcile.release(world.settings(), ["n7"], False, NOW) == ["host:H3|xid"]


def test_a_neighbour_on_the_host_is_not_to_blame(world: World) -> None:
    world.say("n3", XID, host="H3")
    world.say("n4", host="H3")
    world.reconcile()
    world.reconcile()
    assert set(world.reasons()) == {"n3"}


def test_a_neighbour_is_not_to_blame_when_the_bad_machine_is_gone(world: World) -> None:
    """n4 has always had another part of H3; n7 is made on H3 after n3 was deleted."""
    world.say("n3", XID, host="H3")
    world.say("n4", host="H3")
    world.reconcile()
    world.say("n3", host="H9")
    world.say("n4", host="H3")
    world.say("n7", host="H3")
    assert set(world.reconcile(max_share=1.0).drained) == {"n7"}


def test_a_node_that_lost_the_name_of_its_host_is_where_it_was(world: World) -> None:
    world.say("n3", XID, host="H3")
    world.reconcile()
    world.say("n3")
    world.resume("n3")
    assert set(world.reconcile().drained) == {"n3"}


def test_a_latch_ends_after_its_days_or_with_the_proof(world: World) -> None:
    world.say("n3", XID)
    world.reconcile()
    world.resume("n3")
    assert reconcile.release(world.settings(), ["n3"], True, NOW + 1) == ["node:n3|xid"]
    world.say("n3")
    assert set(world.reconcile(dry_run=True).drained) == {"n3"}
    world.now = NOW + 31 * DAY
    world.say("n3")
    assert world.reconcile(dry_run=True).drained == {}
    world.now = NOW + 1
    assert reconcile.release(world.settings(), ["n3"], False, NOW + 1) == ["node:n3|xid"]
    world.say("n3", XID)  # the old letter, published again
    assert world.reconcile().drained == {}
    world.now = NOW + 60
    world.say("n3", {**XID, "time": world.now})
    assert set(world.reconcile().drained) == {"n3"}


def test_a_node_that_is_being_repaired_is_left_to_the_repair(world: World) -> None:
    world.nodes["n3"] = Node("IDLE+MAINTENANCE")
    for name in ("POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "REBOOT_ISSUED"):
        world.nodes[name] = Node(f"IDLE+{name}")
        world.say(name, XID)
    world.say("n3", XID)
    told = world.reconcile(max_share=1.0)
    assert (told.drained, told.findings) == ({}, [])


def test_two_passes_do_not_run_at_once(world: World) -> None:
    """The second waits for the first, within reason."""
    world.say("n3", XID)
    held = world.folder / "held"
    child = os.fork()
    if not child:
        with state.alone(str(world.state)):
            held.touch()
            time.sleep(1)
        os._exit(0)
    while not held.exists():
        time.sleep(0.01)
    with pytest.raises(DrainError, match="another pass holds"), state.alone(str(world.state), 0.2):
        pass
    assert world.reconcile().drained == {"n3": OURS}
    os.waitpid(child, 0)


def test_killed_after_the_latch_and_before_the_order_it_drains_next_time(world: World) -> None:
    world.say("n3", XID, host="H3")

    def killed(argv: t.Sequence[str]) -> Outcome | None:
        if argv[1] == "update":
            raise KeyboardInterrupt
        return None

    world.answer = killed
    with pytest.raises(KeyboardInterrupt):
        world.reconcile()
    world.answer = lambda argv: None
    assert world.reconcile().drained == {"n3": OURS}


def test_what_cannot_be_remembered_is_said_and_kept_aside(world: World) -> None:
    (world.state / "latches.json").write_text("{")
    told = world.reconcile()
    assert "what it remembered does not count" in told.findings[0]["text"]
    assert (world.state / "latches.json.unreadable").read_text() == "{"
    assert kinds(world.reconcile()) == []


def test_a_mailbox_that_hangs_costs_a_pass(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(mailbox.os, "scandir", lambda folder: release.wait(5) and [])
    with pytest.raises(DrainError, match="does its file server answer"):
        mailbox.reports(str(world.mailbox), 0.05)
    release.set()


def test_the_controller_leaves_a_sign_of_life(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.reconcile()
    path = world.mailbox / "controller.json"
    found = json.loads(path.read_text())
    assert (found["schema"], found["credential"]) == (1, "MUNGE:abc:")
    assert abs(path.stat().st_mtime - found["time"]) < 1
    assert path.stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(mailbox, "run", lambda argv, limit: Outcome(None, "", "munge cannot be started", 0.0))
    assert "munge made no credential" in world.reconcile().findings[0]["text"]


def test_root_acts_as_the_user_of_the_timer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next pass of the timer could not write what root wrote, and a file server would not know root."""
    did: list[tuple[str, int]] = []
    for name in ("seteuid", "setegid"):
        monkeypatch.setattr(state.os, name, lambda number, name=name: did.append((name, number)))
    monkeypatch.setattr(state.os, "geteuid", lambda: 0)
    monkeypatch.setattr(state.os, "getegid", lambda: 0)
    owner = type("Stat", (), {"st_uid": 64030, "st_gid": 64031})()
    monkeypatch.setattr(state.Path, "stat", lambda path: owner)
    with state.acting(str(world.state)):
        assert did == [("setegid", 64031), ("seteuid", 64030)]
    assert did[2:] == [("seteuid", 0), ("setegid", 0)]
    monkeypatch.undo()
    with pytest.raises(DrainError, match="cannot be used: No such file"):
        reconcile.perform(world.settings(state_dir=str(world.folder / "none")), True, world, NOW)
