# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring images to the nodes: look everywhere, copy where something is missing, then let jobs use them. Private."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_files import ImageError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_folder import BROADCAST
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_plan import (
    BUSY,
    Group,
    Missing,
    Record,
    again,
    changing,
    choose,
    lacking,
    needs,
    occupied,
    report,
    sort_out,
    waves,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_request import Request

_PAUSE = 2.0


class BusyError(Exception):
    """Jobs have all of the nodes."""


class RevokedError(BusyError):
    """Slurm gave nodes and took them back: one of them died, and its prolog never ended."""


class Held(t.Protocol):
    """Nodes that are ours for a while."""

    nodes: list[str]

    def step(self, nodes: t.Sequence[str], task: Record) -> tuple[dict[str, Record], str]: ...

    def broadcast(self, source: str, target: str, fan_out: int) -> str: ...


class Slurm(t.Protocol):
    """Who knows the nodes and lends them."""

    def nodes(self) -> list[Record]: ...

    def partitions(self) -> list[Record]: ...

    def hold(self, group: Group, wait: float) -> t.ContextManager[Held]: ...


class Staging:
    """One run over the whole cluster."""

    def __init__(self, request: Request, slurm: Slurm, clock: t.Callable[[], float] = time.monotonic) -> None:
        self.request, self.slurm, self.clock = request, slurm, clock
        self.staged: list[str] = []
        self.missing: list[Missing] = []
        self.changes: dict[str, str] = {}
        self.revoked = ""

    def run(self) -> Record:
        """Return planned, staged, missing, and what changed on which node."""
        asked = self.request
        nodes = self.slurm.nodes()
        planned, groups, self.missing = choose(nodes, self.slurm.partitions(), asked.nodes, asked.partition)
        for group in groups:
            self.serve(group, nodes)
        found = report(planned, self.staged, self.missing)
        done = {node: text for node, text in self.changes.items() if asked.dry or node in found["staged"]}
        return {**found, "changes": dict(sorted(done.items()))}

    def serve(self, group: Group, nodes: list[Record]) -> None:
        """Serve those nodes that can be had, and again those whose last job was only ending."""
        end, left = self.clock() + self.request.wait, list(group.nodes)
        while True:
            # Nodes without a free CPU are not waited for.
            free = [node for node in left if node not in occupied(nodes)]
            others = group.others + [node for node in group.nodes if node not in left]
            served = self.once(group._replace(nodes=left, others=others), end - self.clock()) if free else []
            left = [node for node in left if node not in served]
            if not left or not free or self.clock() >= end:
                break
            time.sleep(min(_PAUSE, max(0.0, end - self.clock())))
            nodes = self.slurm.nodes()
        self.missing += [Missing(node, self.revoked or BUSY, bool(self.revoked)) for node in left]

    def once(self, group: Group, wait: float) -> list[str]:
        """Look at what can be had now and bring what is missing; return the nodes that are done with."""
        try:
            with self.slurm.hold(group, wait) as job:
                given, short = list(job.nodes), self.look(job)
        except (BusyError, ImageError) as exc:
            self.refused(exc)
            return []
        if not short or self.request.dry:
            return given
        rest = [node for node in group.nodes if node not in short]
        try:
            with self.slurm.hold(group._replace(nodes=short, others=group.others + rest), max(wait, 5)) as job:
                self.fill(job)
                return [node for node in given if node not in short or node in job.nodes]
        except (BusyError, ImageError) as exc:
            self.refused(exc)
            return [node for node in given if node not in short]

    def refused(self, exc: Exception) -> None:
        """Have nodes asked again that jobs have, or that Slurm took back; of those it may say anything then."""
        if isinstance(exc, RevokedError):
            self.revoked = str(exc)
        elif not isinstance(exc, BusyError) and not self.revoked:
            raise exc

    def look(self, job: Held) -> list[str]:
        """Return the nodes that need something and can have it."""
        said, trouble = self.step(job, job.nodes, "look")
        seen = {node: {**answer, "images": {}} for node, answer in said.items()}
        good = self.sort(job.nodes, seen, trouble)
        short = [node for node in good if lacking(said[node])]
        self.staged += [node for node in good if node not in short]
        self.changes.update({node: needs(said[node]) for node in short if changing(said[node])})
        if self.request.dry or not short:
            self.missing += [Missing(node, needs(said[node])) for node in short]
            return short
        prepared, trouble = self.step(job, short, "prepare")
        return self.sort(short, prepared, trouble)

    def fill(self, job: Held) -> None:
        """Bring what is missing to all nodes, and only then lead jobs to it."""
        said, trouble = self.place(job)
        placed, trouble_of_use = self.step(job, sorted(said), "use") if said else ({}, "")
        good = self.sort(job.nodes, said, trouble)
        self.staged += self.sort(good, placed, trouble_of_use)

    def place(self, job: Held) -> tuple[dict[str, Record], str]:
        asked = self.request
        if asked.transport == "shared":
            everywhere: dict[str, Record] = {}
            troubles = []
            for wave in waves(job.nodes, asked.fan_out):
                more, trouble = self.step(job, wave, "place")
                everywhere.update(more)
                troubles.append(trouble)
            return everywhere, "; ".join(filter(None, troubles))
        trouble = ""
        for image in asked.task["images"]:
            target = f"{asked.task['directory']}/.{image['file']}{BROADCAST}"
            trouble = trouble or job.broadcast(f"{asked.task['source']}/{image['file']}", target, asked.fan_out)
        said, last = self.step(job, job.nodes, "place", broadcast=True)
        if trouble:
            said = {node: with_cause(answer, trouble) for node, answer in said.items()}
        return said, "; ".join(filter(None, [trouble, last]))

    def step(self, job: Held, nodes: t.Sequence[str], action: str, **more: t.Any) -> tuple[dict[str, Record], str]:
        """Have nodes do something; srun ends a step that one dead node keeps from starting, so it starts again."""
        said, trouble = job.step(nodes, {**self.request.task, "action": action, **more})
        for part in again(nodes, said, trouble):
            later, told = self.step(job, part, action, **more)
            said, trouble = {**said, **later}, "; ".join(filter(None, [trouble, told]))
        return said, trouble

    def sort(self, nodes: t.Sequence[str], said: t.Mapping[str, Record], trouble: str) -> list[str]:
        good, missing = sort_out(nodes, said, trouble)
        self.missing += missing
        return good


def with_cause(answer: Record, cause: str) -> Record:
    """Say why sbcast brought nothing; what a node has all the same stays."""
    images = {
        name: f"{state} ({cause})" if state not in ("copied", "kept") else state
        for name, state in answer["images"].items()
    }
    return {**answer, "images": images}
