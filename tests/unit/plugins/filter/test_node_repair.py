# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node comes back by proof only, and a person's drain is the person's."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.filter.node_repair import (
    node_repair_claims,
    node_repair_refusals,
    node_repair_settle,
)


def node(name: str, reason: str = "hpcai:nhc:no chronyd", state: str = "IDLE", **more: t.Any) -> dict[str, t.Any]:
    flags = more.get("flags", ["DRAIN"])
    drained = "DRAIN" in flags
    found = {"name": name, "state": state, "flags": flags, "drained": drained, "available": not flags}
    return {**found, "reason": reason, "reason_user": "root"}


INSIDE = {"flags": ["MAINTENANCE", "RESERVED"], "reason": ""}


def test_our_own_drain_is_ours_to_lift_and_so_is_a_repair_that_was_cut_short() -> None:
    assert node_repair_refusals([node("c1"), node("c2", **INSIDE)]) == []


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (node("c1", "ops: cable swap"), "drained by root, who alone gives it back: ops: cable swap"),
        (node("c1", ""), "no reason"),
        (node("c1", state="DOWN"), "slurmd has to run"),
        (node("c1", flags=["DRAIN", "NOT_RESPONDING"]), "slurmd has to run"),
        (node("c1", "", flags=[]), "not drained"),
        (node("c1", "hpcai:joining:not certified beside proven nodes yet"), "join_nodes.yml certifies it"),
        (node("c1", "hpcai:certification:fabric fault, run 7"), "name healthy idle nodes as partners"),
    ],
)
def test_what_is_refused(given: dict[str, t.Any], says: str) -> None:
    (line,) = node_repair_refusals([given])
    assert line.startswith("c1: ") and says in line


def test_a_node_that_failed_beside_others_is_proved_beside_others() -> None:
    case = node("c1", "hpcai:certification:fabric fault, run 7")
    assert node_repair_refusals([case, node("c2", "", flags=[])], "c2") == []
    (line,) = node_repair_refusals([case, node("c2", "ops: mine")], "c2")
    assert "no partner" in line


def certificate(**status: str) -> dict[str, t.Any]:
    return {"nodes": {name: {"status": one, "reason": f"why {name}"} for name, one in status.items()}}


def test_only_what_is_cleared_comes_back() -> None:
    before = [node(name) for name in ("c1", "c2", "c3", "c4")]
    now = [node(name, **INSIDE) for name in ("c1", "c2", "c3", "c4")]
    found = node_repair_settle(before, now, certificate(c1="cleared", c2="watched", c3="drained"))
    assert found["proved"] == "c1"
    assert found["drains"] == [{"name": "c[2-4]", "reason": "hpcai:nhc:no chronyd"}]
    assert found["refusals"] == [
        "c2 is watched: why c2",
        "c3 is drained: why c3",
        "c4 is untested: no certificate came of it",
    ]


def test_without_a_certificate_all_are_drained_again() -> None:
    before = [node("c1"), node("c2", **INSIDE)]
    now = [node("c1", **INSIDE), node("c2", **INSIDE)]
    found = node_repair_settle(before, now)
    reasons = {one["name"]: one["reason"] for one in found["drains"]}
    assert reasons == {"c1": "hpcai:nhc:no chronyd", "c2": "hpcai:repair:was not certified"}
    found = node_repair_settle(before, now, held={"c2": "hpcai:certification:fabric fault, run 7"})
    reasons = {one["name"]: one["reason"] for one in found["drains"]}
    assert reasons == {"c1": "hpcai:nhc:no chronyd", "c2": "hpcai:certification:fabric fault, run 7"}


def test_what_is_drained_still_is_left_so_and_partners_are_nobody_s_case() -> None:
    found = node_repair_settle([node("c1"), node("c2", "", flags=[])], [node("c1")], certificate(c2="drained"), "c2")
    assert found["drains"] == [] and found["proved"] == ""
    assert found["refusals"] == ["c1 is untested: no certificate came of it"]


def test_what_somebody_drained_while_it_was_proved_is_said() -> None:
    found = node_repair_settle([node("c1")], [node("c1", "ops: cable swap")], certificate(c1="cleared"))
    assert (found["proved"], found["drains"]) == ("c1", [])
    assert found["refusals"] == ["c1 is cleared, and was drained meanwhile: ops: cable swap"]


def test_what_slurm_drained_by_itself_is_taken_over_first() -> None:
    full = "SlurmdSpoolDir is full"
    cases = [
        node("c1", full),
        node("c2", "Prolog error"),
        node("c3", full),
        node("c4", f"{full}, ops"),
        node("c5", full, flags=[]),
    ]
    assert node_repair_refusals(cases[:3]) == []
    assert [(one["name"], one["replace"], one["reason"]) for one in node_repair_claims(cases)] == [
        ("c2", "Prolog error", "hpcai:slurm:Prolog error"),
        ("c[1,3]", full, f"hpcai:slurm:{full}"),
    ]
    found = node_repair_settle(cases[:1], [node("c1", **INSIDE)])
    assert found["drains"] == [{"name": "c1", "reason": f"hpcai:slurm:{full}"}]


@pytest.mark.parametrize("given", [3, [3], [{}]])
def test_other_things_are_refused(given: t.Any) -> None:
    with pytest.raises(AnsibleFilterError, match="wants nodes"):
        node_repair_refusals(given)
