# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose letters drain nodes: root's, and those of the user who owns the mailbox; an ordinary user's never."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain import mailbox, request
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils import test_trusted
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils.agent.node_world import World as AgentWorld
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils.agent.test_agent_publish import (
    Node as Publisher,
)
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils.agent.test_agent_publish import one
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils.drain.drain_world import World, fault
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils.test_trusted import as_mallory

pytestmark = test_trusted.pytestmark
shared = test_trusted.shared


def test_a_users_letter_drains_no_node(shared: Path) -> None:
    world = World(shared)
    world.everybody_is_well()
    world.mailbox.chmod(0o1777)
    (world.mailbox / "n3.json").unlink()
    world.nodes["n2000"] = world.nodes["n4"]
    as_mallory(lambda: world.say("n3", fault(), host="h3"))
    as_mallory(lambda: world.say("n2000", fault(), host="h4"))
    world.say("n5", fault(), host="h5")
    world.mailbox.joinpath("n5.json").chmod(0o666)
    told = world.reconcile(max_share=1.0)
    assert told.drained == {}
    broken = [entry["text"] for entry in told.findings if "the report" in entry["text"]]
    assert [re.search(r"belongs to \w+ \(uid 65534\)|can be written by everybody", text) for text in broken], broken
    assert len(broken) == 2


def test_a_mailbox_below_a_users_directory_is_no_mailbox(shared: Path) -> None:
    world = World(shared)
    world.everybody_is_well()
    world.say("n1", fault())
    os.chown(shared, 65534, 65534)
    with pytest.raises(request.DrainError, match=rf"not only nodes could write there: {shared} belongs to .* \("):
        world.reconcile()
    assert "not only the controller could write" in mailbox.sign(str(world.mailbox), 0, 0)
    assert not (world.mailbox / "controller.json").exists()


def test_letters_that_nodes_wrote_as_the_mailboxs_owner_count(shared: Path) -> None:
    """As on a share that turns root into nobody: state, mailbox and letters belong to Slurm's user."""
    world = World(shared)
    world.everybody_is_well()
    world.say("n1", fault())
    time.strptime("2026", "%Y")  # imports what another user may not be able to read here
    for path in (world.state, world.mailbox, *world.mailbox.iterdir()):
        os.chown(path, 1, 1)
    assert list(world.reconcile().drained) == ["n1"]


def test_no_node_writes_into_a_users_mailbox_or_believes_the_letter_there(
    shared: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("node", "world"):
        (shared / name).mkdir()
    node = Publisher(shared / "node")
    node.save("periodic", one("disk", "error"))
    node.mailbox.rmdir()
    (shared / "node").chmod(0o1777)
    letter = {"time": 0.0, "credential": "MUNGE:forged:"}
    as_mallory(node.mailbox.mkdir)
    as_mallory(lambda: (node.mailbox / "controller.json").write_text(json.dumps(letter)))
    assert node.publish() == 1
    assert re.search(r"mailbox belongs to \w+ \(uid 65534\)", capfd.readouterr().err)
    assert not (node.mailbox / "n1.json").exists()

    world = AgentWorld(shared / "world")
    world.settings.update(mailbox=str(node.mailbox), shared_dir=str(shared))
    world.answers.update(munge="MUNGE:own:\n", unmunge="STATUS: Success (0)\n")
    for name in ("munge", "clock_skew", "shared_directory"):
        found = world.one(name)
        assert found["verdict"] == "error" and found["class"] == "infra", found
        assert re.search(r"belongs to \w+ \(uid 65534\)", found["reason"]), found
    # The mailbox was given back; what was put into it stays the user's.
    os.chown(node.mailbox, 0, 0)
    assert re.search(r"belongs to \w+ \(uid 65534\), and is not the controller's", world.one("munge")["reason"])
