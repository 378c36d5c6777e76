# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Slurm in memory with nodes that answer, hang or are busy, under a clock that tests own; no tests in here."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import journal as journals
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.coordinator import Clock
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.node import marked
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.slurm import JobRow
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import expand
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SlurmError

Json = t.Dict[str, t.Any]
START = 1_700_000_000.0


class Killed(BaseException):
    """The coordinator was killed here."""


class Task:
    """One job, or one task of an array."""

    def __init__(self, job: int, name: str, node: str, tests: list[Json], after: str) -> None:
        self.job, self.name, self.node, self.tests, self.after = job, name, node, tests, after
        self.state, self.began, self.done = "PENDING", 0.0, 0.0


class World:
    """Slurm, its nodes and the time.

    Every node has a mood: well, hung (slurmd), deaf (hung, and Slurm takes no notice), tardy (begins late), busy, down,
    slow (its tests).
    """

    def __init__(self, nodes: t.Sequence[str], **moods: str) -> None:
        self.now, self.names = START, list(nodes)
        self.moods = {name: moods.get(name, "well") for name in nodes}
        self.tasks: list[Task] = []
        self.submitted: list[str] = []
        self.kill_at: int | None = None
        self.events = self.measured = 0
        self.away = self.most = 0
        self.seconds = {"reach": 1.0}
        self.late = 0.0  # seconds of a prolog
        self.tardy = 0.0  # seconds until a node that is tardy begins
        self.heed = 3.0  # seconds after which Slurm notices that a node it has given something is hung
        self.tidy = 0.0  # seconds that a node is kept after its job has ended
        self.skew: dict[str, float] = {}
        self.folder = Path()

    def clock(self) -> Clock:
        return Clock(lambda: self.now, lambda: self.now, self.sleep)

    def sleep(self, seconds: float) -> None:
        self.event()
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 0.5)
            self.step()

    def event(self) -> None:
        self.events += 1
        if self.kill_at is not None and self.events == self.kill_at:
            raise Killed

    def step(self) -> None:
        """Start what can start, and end what is over."""
        held = {node for task in self.tasks if task.state == "RUNNING" for node in self.nodes_of(task)}
        for task in self.tasks:
            if task.state == "PENDING":
                self.place(task, held)
            elif task.state == "RUNNING":
                self.work(task)
        self.tasks = [task for task in self.tasks if task.state != "GONE"]

    def nodes_of(self, task: Task) -> list[str]:
        return [task.node] if task.node else sorted({name for test in task.tests for name in test["nodes"]})

    def place(self, task: Task, held: set[str]) -> None:
        wanted = self.nodes_of(task)
        if task.after and any(f"afterany:{other.job}" == task.after for other in self.tasks):
            return
        if held & set(wanted) or any(self.moods[name] in ("busy", "down") for name in wanted):
            return
        task.state, task.began = "RUNNING", self.now
        held.update(wanted)
        self.most = max(self.most, len(held))

    def work(self, task: Task) -> None:
        head = self.nodes_of(task)[0]
        if task.done:
            task.state = "GONE" if self.now - task.done >= self.tidy else task.state
            return
        late = self.late + (self.tardy if self.moods[head] == "tardy" else 0.0)
        if self.moods[head] in ("hung", "deaf") or self.now - task.began < late:
            return
        job = journals.load(self.folder / "jobs" / f"{task.name}.json")
        book = journals.Journal(self.folder)
        alone = all(len(test["nodes"]) == 1 for test in task.tests)
        for name in [f"{job['batch']}.{test['nodes'][0]}" for test in task.tests] if alone else [task.name]:
            book.start(name)
        for test in task.tests:
            if (
                self.now - task.began - late >= self.seconds.get(test["stage"], 2.0)
                and book.results(test["id"]) is None
            ):
                self.measured += 1
                book.answer(test["id"], self.answer(test))
        gate = (self.folder / "jobs" / f"{task.name}.gate").read_text()
        if all(book.results(test["id"]) is not None for test in task.tests) and (not task.node or gate != "hold"):
            task.done = self.now
            task.state = task.state if self.tidy else "GONE"

    def answer(self, test: Json) -> list[Json]:
        node = test["nodes"][0] if len(test["nodes"]) == 1 else None
        moment = self.now + self.skew.get(node or "", 0.0)
        if test["stage"] == "reach":
            return [marked(record("reach", node, time=moment, verdict="pass"), test, "r")]
        slow = any(self.moods[name] == "slow" for name in test["nodes"])
        bad: Json = {"verdict": "fail", "reason": "slow", "blame": "hardware"} if slow else {"verdict": "pass"}
        return [marked(record("gpu_bandwidth" if node else "nccl_pair", node, time=moment, **bad), test, "r")]


class FakeSlurm:
    """What the coordinator sees of the world."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        world.folder = folder

    def submit(self, options: t.Sequence[str], script: Path) -> int:
        self.world.event()
        given = dict(option.lstrip("-").partition("=")[::2] for option in options)
        job = json.loads(script.with_suffix(".json").read_text())
        number = len(self.world.submitted) + 1
        self.world.submitted.append(given["job-name"])
        by_node: dict[str, list[Json]] = {}
        for test in job["tests"]:
            by_node.setdefault(test["nodes"][0], []).append(test)
        many = list(by_node.items()) if "array" in given else None
        single = len(expand(given["nodelist"])) == 1 if "nodelist" in given else False
        for node, tests in many or [(job["tests"][0]["nodes"][0] if single else "", job["tests"])]:
            self.world.tasks.append(Task(number, given["job-name"], node, tests, given.get("dependency", "")))
        self.world.event()
        return number

    def queue(self, names: t.Container[str]) -> list[JobRow]:
        if self.world.away > 0:
            self.world.away -= 1
            raise SlurmError("squeue failed: Unable to contact slurm controller")
        return [
            JobRow(task.job, task.name, task.state, self.world.nodes_of(task)[0] if task.state == "RUNNING" else "")
            for task in self.world.tasks
            if task.name in names
        ]

    def held(self, run: str, names: t.Container[str]) -> bool:
        return any(
            task.name.startswith(run) and task.name not in names and task.state == "RUNNING"
            for task in self.world.tasks
        )

    def unheard(self, name: str) -> bool:
        given = [task.began for task in self.world.tasks if task.state == "RUNNING" and task.node == name]
        given += [
            task.began for task in self.world.tasks if task.state == "RUNNING" and self.world.nodes_of(task)[0] == name
        ]
        return (
            self.world.moods[name] == "hung" and self.world.now - min(given, default=self.world.now) > self.world.heed
        )

    def nodes(self) -> list[Json]:
        held = {node for task in self.world.tasks if task.state == "RUNNING" for node in self.world.nodes_of(task)}
        states = {"busy": "ALLOCATED", "down": "DOWN"}
        return [
            {
                "name": name,
                "state": "ALLOCATED" if name in held else states.get(mood, "IDLE"),
                "flags": ["NOT_RESPONDING"] if self.unheard(name) else [],
                "reason": "",
            }
            for name, mood in self.world.moods.items()
        ]

    def cancel(self, job_id: int, waiting: bool = False) -> None:
        for task in self.world.tasks:
            if task.job == job_id and (not waiting or task.state == "PENDING"):
                task.state = "GONE"
        self.world.tasks = [task for task in self.world.tasks if task.state != "GONE"]

    def partition(self, name: str) -> Json:
        assert name in ("", "batch")
        return {"name": "batch", "default": True, "nodes": self.world.names, "state": "UP", "max_time": 3600}

    def topology(self) -> str:
        return ""

    def array_size(self) -> int:
        return 1000
