# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Change nodes and wait until they are as wanted. Private to this collection."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import facts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.nodes import ONCE, Plan, plan, progress
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.rest import (
    Client,
    CycleCloudError,
    Json,
    quoted,
)

GRACE = 60.0  # seconds within which a node that restarts stops being Ready


class Task:
    """One run of the module."""

    def __init__(self, client: Client, params: Json, clock: t.Callable[[], float] = time.monotonic) -> None:
        self.client, self.params, self.clock = client, params, clock
        self.cluster = params["cluster"]
        self.path = f"/clusters/{quoted(self.cluster)}"
        self.request: str | None = None
        self.added: int | None = None
        self.messages: list[str] = []

    def run(self, check_mode: bool) -> Json:
        before = self.client.status(self.cluster)
        wanted = plan(before, self.params)
        if wanted.route and self._done_before():
            wanted = wanted._replace(route="")
        watched, problems = list(wanted.watched), []
        after = before
        if wanted.route and not check_mode:
            watched += self._ask(wanted, before)
            problems = self._short(wanted)
            after = self.client.status(self.cluster)
        if self.params["wait"] and not check_mode and watched:
            after, more = self._wait(watched, wanted)
            problems += more
        result = self._result(wanted, before, after, check_mode)
        return {**result, "problems": problems}

    def _done_before(self) -> bool:
        """A restart is done once for each ID that the caller gives."""
        ident = self.params.get("request_id")
        return self.client.known(ident) if ident else False

    def _ask(self, wanted: Plan, before: Json) -> list[str]:
        """Ask once; return the nodes to watch."""
        if wanted.route == "scale":
            return self._scale({one["name"] for one in facts.nodes(before)})
        body: Json = {"sets": wanted.sets} if wanted.sets else {"names": wanted.names}
        answer = self.client.post_once(f"{self.path}/nodes/{wanted.route}", body, self.params.get("request_id"))
        self.request = answer["requestId"]
        refused = [
            f"{one.get('name')}: {one.get('error')}"
            for one in answer.get("nodes") or []
            if one.get("status") == "Error"
        ]
        if refused:
            raise CycleCloudError(f"CycleCloud did not {wanted.route} {'; '.join(refused)}")
        if wanted.route != "create":
            return []
        return self._made(answer)

    def _scale(self, known: set[str]) -> list[str]:
        """A total may be asked for twice, so what it made is judged by the nodes that there are."""
        array = self.params["nodearray"]
        answer = self.client.post_total(f"{self.path}/scale/{quoted(array)}", totalCoreCount=str(self.params["cores"]))
        self.messages = [one["message"] for one in answer.get("sets") or [] if one.get("message")]
        nodes = facts.nodes(self.client.status(self.cluster))
        made = [one["name"] for one in nodes if one["nodearray"] == array and one["name"] not in known]
        self.added = len(made)
        return made

    def _made(self, answer: Json) -> list[str]:
        """The nodes that a request created."""
        made = self.client.get(f"{self.path}/nodes", request_id=answer["requestId"])["nodes"]
        if "sets" in answer:
            self.added = sum(one.get("added") or 0 for one in answer["sets"])
            self.messages = [one["message"] for one in answer["sets"] if one.get("message")]
        else:
            self.added = len(made)
        return [one["Name"] for one in made]

    def _short(self, wanted: Plan) -> list[str]:
        asked = sum(one["count"] for one in wanted.sets)
        if self.added is None or self.added >= asked or self.params["partial"]:
            return []
        said = "; ".join(self.messages) or "it does not say why; see its quota and limits"
        return [f"CycleCloud added {self.added} of {asked} nodes: {said}"]

    def _wait(self, watched: list[str], wanted: Plan) -> tuple[Json, list[str]]:
        started = self.clock()
        left = set() if wanted.route and self.params["state"] in ONCE else set(watched)
        while True:
            status = self.client.status(self.cluster)
            nodes = facts.nodes(status)
            left |= {one["name"] for one in nodes if one["state"] != "Ready"}
            waiting, failed = progress(nodes, watched, wanted.goal)
            spent = self.clock() - started
            settling = (
                [name for name in watched if name not in left] if spent < min(GRACE, self.params["settle"]) else []
            )
            if not waiting and not settling:
                return status, failed
            if spent >= self.params["wait_timeout"]:
                return status, [*failed, self._late(nodes, waiting or settling)]
            self.client.sleep(self.params["poll"])

    def _late(self, nodes: list[Json], waiting: list[str]) -> str:
        states = {one["name"]: f"{one['state']} {one['message']}".strip() for one in nodes}
        told = "; ".join(f"{name} is {states.get(name)}" for name in waiting[:10])
        return f"not as wanted after {self.params['wait_timeout']:g} seconds: {told}"

    def _result(self, wanted: Plan, before: Json, after: Json, check_mode: bool) -> Json:
        old = {one["name"]: one["state"] for one in facts.nodes(before)}
        nodes = facts.nodes(after)
        new = {one["name"]: one["state"] for one in nodes}
        if check_mode and wanted.route:
            new = {**old, **_foreseen(wanted)}
        touched = set(wanted.names) | {name for name in {**old, **new} if old.get(name) != new.get(name)}
        diff = {
            side: {name: states[name] for name in sorted(touched & set(states))}
            for side, states in (("before", old), ("after", new))
        }
        return {
            "changed": bool(wanted.route),
            "nodes": nodes,
            "request_id": self.request,
            "added": self.added,
            "diff": diff,
        }


def _foreseen(wanted: Plan) -> dict[str, str]:
    goal = sorted(wanted.goal)[0]
    if not wanted.sets or wanted.names:
        return dict.fromkeys(wanted.names, goal)
    return {f"{one['nodearray']} ({one['count']} more)": goal for one in wanted.sets}
