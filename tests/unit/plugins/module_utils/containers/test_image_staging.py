# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A whole run over nodes that tests make up: who is asked, who is served, and what is said of the others."""

from __future__ import annotations

import contextlib
import typing as t

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import image_staging as staging
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_node import ImageError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_staging import (
    BUSY,
    SPEC,
    Group,
    read,
)

Json = t.Dict[str, t.Any]
IMAGE = {"name": "app", "file": "app-aaaaaaaaaaaa.sqsh", "sha256": "a" * 64, "size": 10, "path": "/shared/x"}


class Job:
    def __init__(self, cluster: Cluster, nodes: list[str]) -> None:
        self.cluster, self.nodes = cluster, nodes

    def step(self, nodes: t.Sequence[str], task: Json) -> tuple[dict[str, Json], str]:
        self.cluster.log.append((task["action"], tuple(nodes)))
        unreachable = [node for node in nodes if self.cluster.fate.get(node) == "unreachable"]
        if unreachable:
            return {}, self.cluster.srun.format(unreachable[0])
        dead = [node for node in nodes if self.cluster.fate.get(node) == f"dies in {task['action']}"]
        said = {node: self.answer(node, task) for node in nodes if node not in dead}
        return said, f"srun: error: Node failure on {dead[0]}" if dead else ""

    def answer(self, node: str, task: Json) -> Json:
        has, fate = self.cluster.has, self.cluster.fate.get(node, "")
        if task["action"] == "look":
            found = {"app": "current" if node in has else "is not there"} if task["images"] else {}
            return {"node": node, "images": found, "absent": [], "problem": ""}
        if task["action"] == "prepare":
            return {"node": node, "images": {}, "problem": "no room" if fate == "full" else ""}
        if task["action"] == "place":
            came = not task.get("broadcast") or not self.cluster.sbcast
            return {"node": node, "images": {"app": "copied" if came else "nothing came"}}
        has.add(node)
        return {"node": node, "images": {"app": "current"}}

    def broadcast(self, source: str, target: str, fan_out: int) -> str:
        self.cluster.log.append(("sbcast", (source, target)))
        return self.cluster.sbcast


class Cluster:
    """Nodes, some of which have the image or something that happens to them."""

    def __init__(self, count: int) -> None:
        self.names = [f"c{number}" for number in range(1, count + 1)]
        self.has: set[str] = set()
        self.fate: dict[str, str] = {}
        self.busy: list[set[str]] = []  # one for each time that nodes are asked for
        self.sbcast = ""
        self.dying = self.dead = ""
        self.srun = "srun: error: Task launch for StepId=9.0 failed on node {}: Communication connection failure"
        self.log: list[tuple[str, tuple[str, ...]]] = []
        self.now = 0.0

    def nodes(self) -> list[Json]:
        more = {"flags": [], "reason": "fan", "partitions": ["batch"], "cpus": 4}
        return [
            {
                "name": name,
                "state": "IDLE",
                "available": self.fate.get(name) != "drained",
                "allocated_cpus": 4 if self.fate.get(name) == "occupied" else 0,
                **more,
            }
            for name in self.names
        ]

    def partitions(self) -> list[Json]:
        return [{"name": "batch", "state": "UP", "default": True, "max_time": 60}]

    @contextlib.contextmanager
    def hold(self, group: Group, wait: float) -> t.Iterator[Job]:
        self.now += 1
        taken = self.busy.pop(0) if self.busy else set()
        taken |= {name for name, fate in self.fate.items() if fate == "occupied"}
        nodes = [name for name in group.nodes if name not in taken]
        assert not set(nodes) & set(group.others)
        if self.dying and self.dying in nodes:
            self.fate[self.dying] = "occupied"
            self.dead, self.dying = self.dying, ""
            raise staging.RevokedError("taken back")
        if not nodes:
            raise ImageError("Requested node configuration is not available") if self.dead else staging.BusyError
        yield Job(self, nodes)

    def run(self, dry: bool = False, **more: t.Any) -> Json:
        given = {name: spec.get("default") for name, spec in SPEC.items()}
        given.update(images=[IMAGE], source="/shared", directory="/scratch/images", **more)
        return staging.Staging(read(given, more.pop("which", []), dry), self, lambda: self.now).run()

    @property
    def actions(self) -> list[str]:
        return [action for action, dummy in self.log]


@pytest.fixture(autouse=True)
def no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging.time, "sleep", lambda seconds: None)


def reasons(found: Json) -> dict[str, str]:
    return {one["node"]: one["reason"] for one in found["missing"]}


def test_only_nodes_that_lack_it_are_served_and_all_before_any_is_switched() -> None:
    cluster = Cluster(5)
    cluster.has = {"c2"}
    found = cluster.run(fan_out=2)
    assert cluster.log == [
        ("look", ("c1", "c2", "c3", "c4", "c5")),
        ("prepare", ("c1", "c3", "c4", "c5")),
        ("place", ("c1", "c3")),
        ("place", ("c4", "c5")),
        ("use", ("c1", "c3", "c4", "c5")),
    ]
    assert (found["planned"], found["staged"]) == (cluster.names, cluster.names)
    assert list(found["changes"]) == ["c1", "c3", "c4", "c5"]
    cluster.log.clear()
    assert cluster.run() == {"planned": cluster.names, "staged": cluster.names, "missing": [], "changes": {}}
    assert cluster.actions == ["look"]


def test_check_mode_only_looks() -> None:
    cluster = Cluster(2)
    cluster.has = {"c1"}
    found = cluster.run(dry=True)
    assert cluster.actions == ["look"]
    assert found["changes"] == {"c2": "app is not there"}
    assert found["staged"] == ["c1"]
    assert found["missing"] == [{"node": "c2", "reason": "app is not there", "fault": False}]


def test_sbcast_sends_once_for_all() -> None:
    cluster = Cluster(3)
    found = cluster.run(transport="sbcast")
    assert cluster.actions == ["look", "prepare", "sbcast", "place", "use"]
    assert cluster.log[2][1] == (
        "/shared/app-aaaaaaaaaaaa.sqsh",
        "/scratch/images/.app-aaaaaaaaaaaa.sqsh.broadcast",
    )
    assert found["missing"] == []


def test_sbcast_that_fails_is_told() -> None:
    cluster = Cluster(2)
    cluster.sbcast = "sbcast: error: REQUEST_FILE_BCAST(c1)"
    found = cluster.run(transport="sbcast")
    assert found["staged"] == []
    assert reasons(found)["c2"] == "app: nothing came (sbcast: error: REQUEST_FILE_BCAST(c1))"
    assert found["changes"] == {}


def test_nodes_without_room_or_out_of_service_hold_nobody_up() -> None:
    cluster = Cluster(4)
    cluster.fate = {"c1": "full", "c2": "drained"}
    found = cluster.run()
    assert found["staged"] == ["c3", "c4"]
    assert reasons(found) == {"c1": "no room", "c2": "is idle: fan"}
    assert [one["fault"] for one in found["missing"]] == [True, False]
    assert list(found["changes"]) == ["c3", "c4"]


@pytest.mark.parametrize("when", ["look", "prepare", "place", "use"])
def test_a_node_that_dies_in_the_middle(when: str) -> None:
    cluster = Cluster(3)
    cluster.fate = {"c2": f"dies in {when}"}
    found = cluster.run()
    assert found["staged"] == ["c1", "c3"]
    assert reasons(found) == {"c2": "gave no answer: srun: error: Node failure on c2"}
    assert found["missing"][0]["fault"]


@pytest.mark.parametrize("told", ["failed on node {}: refused", "srun: error: Application launch failed"])
def test_nodes_that_cannot_be_reached_end_the_step_of_the_others(told: str) -> None:
    cluster = Cluster(9)
    cluster.srun = told
    cluster.fate = {"c2": "unreachable", "c7": "unreachable"}
    found = cluster.run()
    assert found["staged"] == [name for name in cluster.names if name not in cluster.fate]
    assert sorted(reasons(found)) == ["c2", "c7"]
    assert cluster.actions.count("look") < 14


def test_nodes_whose_last_job_is_ending_are_waited_for() -> None:
    cluster = Cluster(3)
    cluster.busy = [{"c2"}, {"c3"}]
    found = cluster.run()
    assert found["missing"] == []
    assert cluster.actions.count("look") == 2


def test_nodes_that_jobs_have_all_of_are_not() -> None:
    cluster = Cluster(3)
    cluster.fate = {"c2": "occupied"}
    found = cluster.run()
    assert reasons(found) == {"c2": BUSY}
    assert not found["missing"][0]["fault"]
    assert cluster.now == 2
    cluster.fate = dict.fromkeys(cluster.names, "occupied")
    assert reasons(cluster.run()) == dict.fromkeys(cluster.names, BUSY)
    assert cluster.now == 2, "nobody waited"


def test_waiting_ends() -> None:
    cluster = Cluster(2)
    cluster.busy = [{"c2"}] * 100
    found = cluster.run(wait=10)
    assert reasons(found) == {"c2": BUSY}
    assert cluster.now < 20


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"images": [{**IMAGE, "name": "../app"}]}, "must be"),
        ({"images": [{}]}, "must be"),
        ({"absent": ["a/b"]}, "must be"),
        ({"absent": ["app"]}, "both in images and absent"),
        ({"images": [{**IMAGE, "file": ""}]}, "no file, sha256 and size"),
        ({"images": [{**IMAGE, "file": "../x.sqsh"}]}, "no file, sha256 and size"),
        ({"images": [{**IMAGE, "size": 0}]}, "no file, sha256 and size"),
    ],
)
def test_images_that_cannot_be_meant_are_refused(wrong: Json, told: str) -> None:
    given = {name: spec.get("default") for name, spec in SPEC.items()}
    with pytest.raises(ImageError, match=told):
        read({**given, "images": [IMAGE], **wrong}, [], dry=False)


def test_an_image_that_is_yet_to_be_imported_is_good_for_a_plan() -> None:
    given = {name: spec.get("default") for name, spec in SPEC.items()}
    for image in ({**IMAGE, "file": "", "size": 0, "sha256": ""}, {"name": "app"}):
        planned = read({**given, "images": [image]}, [], dry=True).task["images"][0]
        assert (planned["file"], planned["size"]) == ("", 0)


def test_a_node_whose_prolog_never_ends_holds_up_nobody_else() -> None:
    """Slurm takes the whole allocation back, and gives the others when they are asked for again."""
    cluster = Cluster(3)
    cluster.dying = "c2"
    found = cluster.run()
    assert found["staged"] == ["c1", "c3"]
    assert [(one["node"], one["reason"], one["fault"]) for one in found["missing"]] == [("c2", "taken back", True)]
