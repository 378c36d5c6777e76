# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prologs and epilogs drain nodes by way of Slurm, which asks nobody: the limit holds for them as well."""

from __future__ import annotations

import concurrent.futures
import json
import os
import time
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain import mailbox, permits
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.request import DrainError
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils.drain.drain_world import (
    HUNG,
    NOW,
    Node,
    World,
    fault,
)


@pytest.fixture(autouse=True)
def munge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox, "run", lambda argv, limit: Outcome(0, "MUNGE:abc:\n", "", 0.0))


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path, 100)
    made.everybody_is_well()
    return made


def may(world: World, name: str) -> bool:
    """Let the prolog of a node with a fault ask whether it may fail; if so, Slurm drains the node."""
    try:
        permits.take(str(world.mailbox), name)
    except DrainError:
        return False
    world.drain(name, "Prolog error", "slurm")
    return True


def later(world: World, seconds: float) -> None:
    """Let time go by, also for what lies in the mailbox; all nodes report again."""
    world.now += seconds
    for path in world.mailbox.glob(".permit-*"):
        moment = path.stat().st_mtime - seconds
        os.utime(path, (moment, moment))
    world.everybody_is_well()


def offered(world: World) -> tuple[int, int]:
    given = json.loads((world.mailbox / "controller.json").read_text())[permits.KEY]
    return given["left"], given["most"]


def test_prologs_that_fail_on_node_after_node_drain_no_more_than_the_limit(world: World) -> None:
    """An hour of it, with passes between and nodes whose faults the reconciler has not heard of."""
    world.now = time.time()
    world.reconcile()
    for minute in range(50):
        for number in range(minute * 2 + 1, minute * 2 + 3):
            may(world, f"n{number}")
        if minute % 3 == 0:
            later(world, 180)
            world.reconcile()
    assert len(world.reasons()) == 5


def test_a_thousand_prologs_at_once_get_no_more_than_there_are(world: World) -> None:
    world.reconcile()
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda number: may(world, f"n{number}"), range(1, 101)))
    assert answers.count(True) == 5


def test_what_slurm_drained_counts_for_what_the_reconciler_drains(world: World) -> None:
    """These nodes do not report, so the cause is not known: the reconciler had not seen them at all."""
    for number in range(1, 6):
        world.nodes[f"n{number}"] = Node("IDLE+DRAIN", ("Prolog error", "Epilog error")[number % 2], "slurm", NOW - 60)
        (world.mailbox / f"n{number}.json").unlink()
    world.say("n50", fault())
    told = world.reconcile()
    assert (told.drained, offered(world)) == ({}, (0, 5))
    assert "6 of 100 nodes in one go, at most 5 are drained" in told.findings[0]["text"]
    (own,) = [item for item in told.findings if item["kind"] == "own_drains"]
    assert own["nodes"] == "n[1-5]" and "no other node drains itself" in own["text"]
    later(world, 3600)
    world.say("n50", fault(time=world.now))
    assert set(world.reconcile().drained) == {"n50"}


def test_what_the_reconciler_drained_counts_for_prologs(world: World) -> None:
    for number in range(1, 5):
        world.say(f"n{number}", fault())
    world.reconcile()
    assert offered(world) == (1, 5)
    assert [may(world, "n7"), may(world, "n8")] == [True, False]


def test_a_person_who_drains_nodes_takes_no_permit_away(world: World) -> None:
    for number in range(1, 30):
        world.drain(f"n{number}", "maintenance")
    world.reconcile()
    assert offered(world) == (5, 5)


def test_nodes_that_share_a_cause_do_not_drain_themselves_either(world: World) -> None:
    for number in range(1, 31):
        world.say(f"n{number}", fault())
    assert world.reconcile().drained == {}
    assert [may(world, f"n{number}") for number in range(1, 31)] == [False] * 30


def test_a_permit_counts_until_slurm_shows_the_drain_and_no_longer(world: World) -> None:
    world.now = time.time()
    world.reconcile()
    permits.take(str(world.mailbox), "n7")
    world.reconcile()
    assert offered(world)[0] == 4
    later(world, permits.COUNTED + 60)
    world.reconcile()
    assert (offered(world)[0], list(world.mailbox.glob(".permit-*"))) == (5, [])


def test_a_node_has_one_permit_however_often_it_asks(world: World) -> None:
    world.reconcile()
    for dummy in range(10):
        permits.take(str(world.mailbox), "n7")
    assert len(list(world.mailbox.glob(".permit-*"))) == 1


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"permits": 1}', '{"permits": {"pass": "../../x", "left": 3, "most": 5}}', None]
)
def test_without_an_offer_nobody_drains_itself(world: World, text: str | None) -> None:
    if text is not None:
        (world.mailbox / "controller.json").write_text(text)
    with pytest.raises(DrainError, match=r"controller\.json"):
        permits.take(str(world.mailbox), "n7")


def test_an_offer_of_a_reconciler_that_does_not_run_any_more_is_none(world: World) -> None:
    world.reconcile()
    old = time.time() - permits.STALE - 60
    os.utime(world.mailbox / "controller.json", (old, old))
    with pytest.raises(DrainError, match="the reconciler does not run"):
        permits.take(str(world.mailbox), "n7")
    assert not list(world.mailbox.glob(".permit-*"))


def test_while_the_controller_cannot_ask_slurm_there_is_no_offer(world: World) -> None:
    world.reconcile()
    world.answer = lambda argv: HUNG
    with pytest.raises(DrainError):
        world.reconcile()
    assert offered(world) == (0, 0)
    with pytest.raises(DrainError, match="counts just now, or cannot ask Slurm"):
        permits.take(str(world.mailbox), "n7")


def test_a_permit_that_was_taken_while_the_controller_began_to_count_is_given_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be of no pass, and nobody would have counted it."""
    world.reconcile()
    real = permits._take

    def slow(*given: object) -> object:
        taken = real(*given)  # type: ignore[arg-type]
        mailbox.sign(str(world.mailbox), 0, 0)
        return taken

    monkeypatch.setattr(permits, "_take", slow)
    assert not may(world, "n7")
    assert not list(world.mailbox.glob(".permit-*"))


def test_links_and_junk_in_place_of_permits_hold_nobody(world: World) -> None:
    (world.mailbox.parent / "secret").write_text("n3\n")
    (world.mailbox / ".permit-0000000000000000-0").symlink_to(world.mailbox.parent / "secret")
    os.mkfifo(world.mailbox / ".permit-0000000000000000-1")
    (world.mailbox / ".permit-0000000000000000-2").write_text("../../elsewhere")
    (world.mailbox / ".permit-0000000000000000-3").write_text("not-of-this-cluster")
    world.now = time.time()
    world.everybody_is_well()
    world.reconcile()
    assert offered(world) == (5, 5)
