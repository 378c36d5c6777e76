# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import nodes
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.state import nodes_from_text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SlurmError

CAPTURED = Path(__file__).parents[3] / "fixtures" / "slurm" / "scontrol-nodes-24.11.txt"
FREE, FOREIGN, OURS, SILENT = nodes_from_text(CAPTURED.read_text(encoding="utf-8"))
OUR_REASON = OURS["reason"]
NEW_REASON = "hpcai:nccl:slow"
NOTED = {**FREE, "reason": "watch the fan"}
HELD = {**FREE, "flags": ["DRAIN"], "drained": True}
FAILED = {**FREE, "flags": ["FAIL"]}
DOWN = {**FREE, "state": "DOWN", "reason": "Not responding"}
OURS_DOWN = {**OURS, "state": "DOWN"}
OURS_NOT_DRAINED = {**FREE, "reason": OUR_REASON}

Node = t.Dict[str, t.Any]


@pytest.mark.parametrize(
    ("node", "state", "reason", "target", "left"),
    [
        (FREE, "drained", NEW_REASON, "drain", False),
        (SILENT, "drained", NEW_REASON, "drain", False),
        (OURS, "drained", NEW_REASON, "drain", False),
        (OURS, "drained", OUR_REASON, None, False),
        (OURS_NOT_DRAINED, "drained", OUR_REASON, "drain", False),
        (FOREIGN, "drained", NEW_REASON, None, True),
        (NOTED, "drained", NEW_REASON, None, True),
        (HELD, "drained", NEW_REASON, None, True),
        (FAILED, "drained", NEW_REASON, None, True),
        (DOWN, "drained", NEW_REASON, None, True),
        (FREE, "resumed", "", None, False),
        (NOTED, "resumed", "", None, False),
        (OURS, "resumed", "", "undrain", False),
        (OURS, "resumed", "hpcai:munge:", "undrain", False),
        (OURS, "resumed", "hpcai:nccl:", None, False),
        (OURS_DOWN, "resumed", "", "undrain", False),
        (FOREIGN, "resumed", "", None, True),
        (FOREIGN, "resumed", "ops:", None, True),
        (HELD, "resumed", "", None, True),
        (DOWN, "resumed", "", None, True),
    ],
)
def test_plan_touches_only_our_own_reasons(node: Node, state: str, reason: str, target: str | None, left: bool) -> None:
    found = nodes.plan([node], state, reason)
    assert [change.state for change in found.changes] == ([target] if target else [])
    assert bool(found.left_alone) is left
    after = nodes.after([node], found.changes)
    assert nodes.plan(after, state, reason).changes == []  # a second run changes nothing
    if node["reason"] and not node["reason"].startswith("hpcai:"):
        assert after == [node]


def test_after_tells_what_will_be() -> None:
    wanted = nodes.after([FREE, OURS, OURS_DOWN], nodes.plan([FREE], "drained", NEW_REASON).changes)
    assert (wanted[0]["flags"], wanted[0]["reason"], wanted[0]["available"]) == (["DRAIN"], NEW_REASON, False)
    assert wanted[1:] == [OURS, OURS_DOWN]
    lifted = nodes.after([OURS_DOWN], nodes.plan([OURS_DOWN], "resumed", "").changes)
    assert nodes.short(lifted) == {
        "c3": {"drained": False, "reason": OUR_REASON}
    }  # Slurm keeps it until the node is up


def test_one_command_for_all_nodes_with_the_same_target() -> None:
    fleet = [{**FREE, "name": f"c{number}"} for number in (10, 8, 9, 1)] + [{**OURS, "name": "c2"}]
    drain = nodes.plan(fleet, "drained", NEW_REASON).changes
    assert nodes.commands(drain) == [
        ["scontrol", "update", "nodename=c[1-2,8-10]", "state=drain", f"reason={NEW_REASON}"]
    ]
    assert nodes.commands(nodes.plan(fleet, "resumed", "").changes) == [
        ["scontrol", "update", "nodename=c2", "state=undrain"]
    ]


@pytest.mark.parametrize("reason", ["hpcai:munge:x", "hpcai:gpu_clocks:GPU 3 at 1.2 GHz, not 1.4 (a=b)"])
def test_reasons(reason: str) -> None:
    nodes.check_reason(reason)


@pytest.mark.parametrize("reason", ["", "broken", "ops:munge:x", "hpcai:", "hpcai:munge", "hpcai:munge:", "hpcai:Mu:x"])
def test_reasons_that_slurm_or_others_would_misread_are_refused(reason: str) -> None:
    with pytest.raises(SlurmError, match="hpcai:<check>"):
        nodes.check_reason(reason)


def test_pick_keeps_the_order_and_names_what_is_missing() -> None:
    assert [node["name"] for node in nodes.pick([FREE, FOREIGN, OURS], ["c3", "c1", "c3"])] == ["c3", "c1"]
    with pytest.raises(SlurmError, match=r"does not know c\[8-9\]; it knows c\[1-2\]"):
        nodes.pick([FREE, FOREIGN], ["c1", "c8", "c9"])


@pytest.mark.parametrize("ending", [" ", '"', "\nmore", "x" * 200])
def test_endings_that_slurm_would_change_are_refused(ending: str) -> None:
    with pytest.raises(SlurmError, match="hpcai:<check>"):
        nodes.check_reason(f"hpcai:munge:key differs{ending}")


def test_a_drain_may_replace_what_slurm_itself_said() -> None:
    full = {"name": "c1", "state": "IDLE", "flags": ["DRAIN"], "drained": True, "reason": "SlurmdSpoolDir is full"}
    node = {**full, "reason_user": "root", "available": False}
    reason = "hpcai:slurm:SlurmdSpoolDir is full"
    assert not nodes.plan([node], "drained", reason).changes
    assert nodes.plan([node], "drained", reason, ["SlurmdSpoolDir is full"]).changes == [("c1", "drain", reason)]
    assert not nodes.plan([node], "resumed", "", ["SlurmdSpoolDir is full"]).changes
    assert not nodes.plan([{**node, "reason": "ops: disk"}], "drained", reason, ["SlurmdSpoolDir is full"]).changes
