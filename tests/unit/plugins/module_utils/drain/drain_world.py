# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A controller and the mailbox of its nodes, with people who act at the worst moment; no tests in here."""

from __future__ import annotations

import dataclasses
import json
import os
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain import reconcile
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.request import DrainSettings
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import compress, expand
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import TIME_FORMAT

NOW = 1.8e9
HUNG = Outcome(None, "", "scontrol did not end within 30 s", 30.0)
Json = t.Dict[str, t.Any]


@dataclasses.dataclass
class Node:
    """What slurmctld knows of a node."""

    state: str = "IDLE"
    reason: str = ""
    user: str = "root"
    since: float = NOW - 86400

    def line(self, name: str) -> str:
        moment = time.strftime(TIME_FORMAT, time.localtime(self.since))
        reason = f" Reason={self.reason} [{self.user}@{moment}]" if self.reason else ""
        return f"NodeName={name} CPUTot=4 NodeAddr={name} State={self.state} Partitions=main{reason}"


class World:
    """Emulates scontrol; ``meanwhile[n]`` happens right after the n-th look at the nodes was answered."""

    def __init__(self, folder: Path, count: int = 20, leaf: int = 0) -> None:
        self.folder, self.now = folder, NOW
        self.mailbox, self.state = folder / "mailbox", folder / "state"
        for path in (self.mailbox, self.state):
            path.mkdir()
        self.nodes = {f"n{number}": Node() for number in range(1, count + 1)}
        self.leaf, self.looks = leaf, 0
        self.updates: list[list[str]] = []
        self.meanwhile: dict[int, t.Callable[[], None]] = {}
        self.answer: t.Callable[[t.Sequence[str]], Outcome | None] = lambda argv: None

    def __call__(self, argv: t.Sequence[str]) -> Outcome:
        given = self.answer(argv)
        if given is not None:
            return given
        if argv[1] == "update":
            return self._update(list(argv))
        if argv[2] == "topology":
            return self._topology()
        self.looks += 1
        text = "".join(f"{node.line(name)}\n" for name, node in self.nodes.items())
        self.meanwhile.pop(self.looks, lambda: None)()
        return Outcome(0, text, "", 0.0)

    def _update(self, argv: list[str]) -> Outcome:
        self.updates.append(argv)
        values = dict(word.split("=", 1) for word in argv[2:])
        assert values["state"] == "drain", "nothing is ever resumed"
        for name in expand(values["nodename"]):
            self.drain(name, values["reason"], "slurm")
        return Outcome(0, "", "", 0.0)

    def _topology(self) -> Outcome:
        names = list(self.nodes)
        if not self.leaf:
            return Outcome(0, "", "", 0.0)
        groups = [names[at : at + self.leaf] for at in range(0, len(names), self.leaf)]
        lines = [f"SwitchName=leaf{i} Level=0 LinkSpeed=1 Nodes={compress(g)} " for i, g in enumerate(groups)]
        return Outcome(0, "\n".join(["SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-9999] ", *lines]), "", 0.0)

    def drain(self, name: str, reason: str, user: str = "root") -> None:
        node = self.nodes[name]
        self.nodes[name] = Node(node.state.split("+")[0] + "+DRAIN", reason, user, self.now)

    def resume(self, name: str) -> None:
        self.nodes[name] = Node()

    def say(self, name: str, *records: Json, host: str = "", age: float = 0.0, **change: t.Any) -> None:
        """Let a node publish, so many seconds ago."""
        letter = {"schema": 1, "node": name, "boot_id": "b", "physical_host": host, "time": self.now - age}
        self.put(name, json.dumps({**letter, "suites": {}, "records": list(records), "counts": {}, **change}), age)

    def put(self, name: str, text: str, age: float = 0.0) -> None:
        path = self.mailbox / f"{name}.json"
        path.write_text(text, encoding="utf-8")
        os.utime(path, (self.now - age, self.now - age))

    def everybody_is_well(self) -> None:
        for name in self.nodes:
            self.say(name)

    def settings(self, **change: t.Any) -> DrainSettings:
        return DrainSettings(str(self.mailbox), str(self.state))._replace(**change)

    def reconcile(self, dry_run: bool = False, **change: t.Any) -> reconcile.PassOutcome:
        return reconcile.perform(self.settings(**change), dry_run, self, self.now)

    def reasons(self) -> dict[str, str]:
        return {name: node.reason for name, node in self.nodes.items() if node.reason}


def fault(check: str = "xid", blame: str = "hardware", **rest: t.Any) -> Json:
    """A failed check of the periodic suite, made now."""
    context = {"suite": "periodic", **rest.pop("context", {})}
    given = {"time": NOW, "verdict": "fail", "reason": f"{check} is bad", "context": context, **rest}
    return record(check, "n1", blame=blame, **given)
