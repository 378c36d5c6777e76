# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import image_staging as plan
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_node import MARK, UNPROVED
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.state import nodes_from_text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SlurmError

CAPTURED = Path(__file__).parents[3] / "fixtures/slurm/scontrol-nodes-24.11.txt"
NODE = {**nodes_from_text(CAPTURED.read_text(encoding="utf-8"))[0], "partitions": ["batch"]}
BATCH = {"name": "batch", "state": "UP", "default": True, "nodes": [], "max_time": 3600}
LONG = {**BATCH, "name": "aaa", "default": False, "max_time": None}


def node(name: str, **more: t.Any) -> dict[str, t.Any]:
    return {**NODE, "name": name, **more}


def answer(problem: str = "", absent: t.Sequence[str] = (), **images: str) -> dict[str, t.Any]:
    return {"node": "c1", "images": images, "absent": list(absent), "problem": problem}


def test_nodes_are_reached_through_a_partition_that_is_open() -> None:
    nodes = [node("c1"), node("c2", partitions=["aaa", "batch"]), node("c3", partitions=["aaa"]), node("c4")]
    planned, groups, missing = plan.choose(nodes, [LONG, BATCH], [], None)
    assert planned == ["c1", "c2", "c3", "c4"]
    assert groups == [
        plan.Group("aaa", ["c3"], ["c2"], None),
        plan.Group("batch", ["c1", "c2", "c4"], [], 3600),
    ]
    assert missing == []


def test_nodes_out_of_service_stay_planned() -> None:
    down = {"available": False, "state": "DOWN", "flags": ["NOT_RESPONDING"], "reason": "gone"}
    nodes = [node("c1"), node("c2", **down), node("c3", partitions=[]), node("f", state="FUTURE")]
    planned, groups, missing = plan.choose(nodes, [BATCH], [], None)
    assert planned == ["c1", "c2", "c3"]
    assert [group.nodes for group in groups] == [["c1"]]
    assert missing == [
        plan.MissingImage("c2", "is down+not_responding: gone"),
        plan.MissingImage("c3", "is in no open partition"),
    ]


def test_a_partition_and_nodes_that_are_asked_for() -> None:
    nodes = [node("c1"), node("c2"), node("c3", partitions=["aaa"])]
    planned, groups, missing = plan.choose(nodes, [LONG, BATCH], ["c1", "c3"], "batch")
    assert planned == ["c1", "c3"]
    assert groups == [plan.Group("batch", ["c1"], ["c2"], 3600)]
    assert missing == [plan.MissingImage("c3", "is in no open partition batch")]
    assert plan.choose(nodes, [{**BATCH, "state": "DOWN"}], ["c1"], None)[2][0].reason == "is in no open partition"
    with pytest.raises(SlurmError, match="c9"):
        plan.choose(nodes, [BATCH], ["c9"], None)


def test_nodes_without_a_free_cpu_are_occupied() -> None:
    nodes = [
        node("c1", cpus=4, allocated_cpus=3),
        node("c2", cpus=4, allocated_cpus=4),
        node("c3", cpus=4, allocated_cpus=4, flags=["COMPLETING"]),
        node("c4", cpus=None, allocated_cpus=None),
    ]
    assert plan.occupied(nodes) == {"c2"}


def test_answers_are_read_between_other_lines() -> None:
    said = (
        f"motd\n{MARK}{json.dumps(answer())}\n0: {MARK}{json.dumps({**answer(), 'node': 'c2'})}\n{MARK}"
        + '{"node": "c3'
    )
    assert sorted(plan.answers(said)) == ["c1", "c2"]
    assert plan.answers(f"{MARK}[]\n{MARK}\n") == {}


def test_nodes_that_did_not_do_it_are_named() -> None:
    said = {"c1": answer(app="copied"), "c2": answer(app="disk full", other="kept"), "c3": answer("no scratch")}
    good, missing = plan.sort_out(["c1", "c2", "c3", "c4"], said, "srun: error: Node failure on c4")
    assert good == ["c1"]
    assert missing == [
        plan.MissingImage("c2", "app: disk full", fault=True),
        plan.MissingImage("c3", "no scratch", fault=True),
        plan.MissingImage("c4", "gave no answer: srun: error: Node failure on c4", fault=True),
    ]


@pytest.mark.parametrize(
    ("found", "lacks", "changes", "told"),
    [
        (answer(app="current"), False, False, ""),
        (answer(app="is not there"), True, True, "app is not there"),
        (answer(app=UNPROVED), True, False, f"app {UNPROVED}"),
        (answer(absent=["old"], app="current"), True, True, "old is to be removed"),
    ],
)
def test_what_a_node_needs(found: dict[str, t.Any], lacks: bool, changes: bool, told: str) -> None:
    assert (plan.lacking(found), plan.changing(found), plan.needs(found)) == (lacks, changes, told)


@pytest.mark.parametrize(("size", "found"), [(2, [2, 2, 1]), (64, [5]), (0, [5]), (1, [1] * 5)])
def test_waves(size: int, found: list[int]) -> None:
    nodes = [f"c{number}" for number in range(5)]
    assert [len(wave) for wave in plan.waves(nodes, size)] == found
    assert [name for wave in plan.waves(nodes, size) for name in wave] == nodes
    assert plan.waves([], size) == []


def test_planned_is_staged_and_missing() -> None:
    found = plan.report(["c1", "c2", "c3"], ["c1", "c2"], [plan.MissingImage("c2", "broke later", True)])
    assert found["staged"] == ["c1"]
    assert [one["node"] for one in found["missing"]] == ["c2", "c3"]
    assert plan.sentence(found) == "1 of 3 nodes have the images. Missing: c2 broke later; c3 was not reached"
    assert plan.sentence(plan.report(["c1"], ["c1"], [])) == "1 of 1 nodes have the images"


LAUNCH = "srun: error: Task launch for StepId=9.0 failed on node {}: refused; srun: error: c1: task 0: Killed"


@pytest.mark.parametrize(
    ("silent", "trouble", "parts"),
    [
        (["c1", "c2", "c3"], LAUNCH.format("c2"), [["c1", "c3"]]),
        (["c1", "c2", "c3"], LAUNCH.format("c[2-3]"), [["c1"]]),
        (["c1", "c2", "c3"], "srun: error: Node failure on c2", [["c1", "c3"]]),
        (["c1", "c2", "c3"], "srun: error: something else", [["c1"], ["c2", "c3"]]),
        (["c1", "c2"], LAUNCH.format("c[1-2]"), [["c1"], ["c2"]]),
        (["c1", "c2", "c3"], "srun did not end within 5 s", []),
        (["c1", "c2", "c3"], "", []),
        (["c2"], LAUNCH.format("c2"), []),
        ([], LAUNCH.format("c2"), []),
    ],
)
def test_who_is_asked_again(silent: list[str], trouble: str, parts: list[list[str]]) -> None:
    assert plan.again([*silent, "c9"], {"c9": answer()}, trouble) == parts
