# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Awaits the jobs of one attempt at a batch, and says of every test that is left why it has no result. Private.

A node that hangs must not cost the others more than its own absence: who has not even begun when all others are done is
waited for a little longer and then left. Nothing here judges a node; what did not run is infra.
"""

from __future__ import annotations

import contextlib
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.batch import Job
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.journal import Journal
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.local import OPEN
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.slurm_fleet import state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.slurm_jobs import Row, Slurm
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SlurmError

SETTLE = 3.0  # seconds without a new task before an array that still waits is taken to have started all it can
LOOK = 5.0  # seconds that a job may wait before its nodes are looked at
_ENDED = 5.0  # seconds after the end of a job in which its last files may still arrive
_AWAY = 3600.0  # seconds that a controller may be away while jobs run
# Whoever has had its patience is still given a part of the time that the others took to begin.
_SHARE = 0.25


class Clock(t.NamedTuple):
    """Time as the coordinator has it; tests have their own."""

    now: t.Callable[[], float] = time.monotonic
    wall: t.Callable[[], float] = time.time
    sleep: t.Callable[[float], None] = time.sleep


class Watch:
    """One attempt: jobs that were submitted, the tests that they are to do, and how the last look at them was.

    ``lively``: earlier attempts have shown that jobs of this batch do begin.
    """

    def __init__(
        self, journal: Journal, slurm: Slurm, how: Json, batch: str, clock: Clock, lively: bool = False
    ) -> None:
        self.journal, self.slurm, self.how, self.batch, self.clock = journal, slurm, how, batch, clock
        self.begun = self.moved = self.grown = self.alive = self.ran = clock.now()
        self.looked, self.lively = 0.0, lively
        self.progress = (0, 0)
        self.opened: set[str] = set()
        self.given: dict[tuple[str, str], float] = {}  # when Slurm first said that a job runs on a node

    def follow(self, jobs: t.Sequence[Job], take: t.Callable[[set[str]], None]) -> dict[str, str]:
        """Return why each test that is left has no result; an empty reason is worth another attempt."""
        tests = {test["id"]: test for job in jobs for test in job.tests}
        pause = 0.1
        while True:
            answered = self.journal.answered() & set(tests)
            take(answered)
            left = {name: tests[name] for name in tests if name not in answered}
            if not left:
                self._open(jobs)
                return {}
            rows = self._queue({job.name for job in jobs})
            over = self._over(jobs, left, rows) if rows is not None else None
            if over is not None:
                self._end(jobs, rows or [])
                return over
            self.clock.sleep(pause)
            pause = min(pause * 1.15, float(self.how["poll"]))

    def _queue(self, names: t.Container[str]) -> list[Row] | None:
        """A controller that is away is waited for: the jobs go on without it."""
        try:
            return self.slurm.queue(names)
        except SlurmError:
            if self.clock.now() - self.alive > _AWAY:
                raise
        return None

    def _over(self, jobs: t.Sequence[Job], left: t.Mapping[str, Json], rows: t.Sequence[Row]) -> dict[str, str] | None:
        """Return None as long as something may still come."""
        now, started = self.clock.now(), self._started(jobs)
        self._note(now, (len(started), len(left)), rows)
        for job in jobs:
            self._gate(job, rows, left, now)
        if not rows:
            return None if now - self.alive < min(_ENDED, float(self.how["poll"]) * 2) else dict.fromkeys(left, "")
        silent = self._silent(left, started, jobs, rows)
        if silent:
            return {**dict.fromkeys(left, ""), **silent}
        if any(row.waits for row in rows) and now - self.begun > LOOK and now - self.looked > LOOK:
            self.looked = now
            return self._taken(left, rows, now)
        return None

    def _note(self, now: float, progress: tuple[int, int], rows: t.Sequence[Row]) -> None:
        """Remember when each kind of movement was last seen."""
        if progress[0] > self.progress[0]:
            self.grown = now
        if progress != self.progress:
            self.progress, self.moved = progress, now
        if rows:
            self.alive = now
        for row in rows:
            if not row.waits:
                self.ran = now
                self.given.setdefault((row.name, row.host), now)

    def _started(self, jobs: t.Sequence[Job]) -> set[str]:
        return self.journal.started() & {
            name for job in jobs for name in [job.name, *(f"{self.batch}.{node}" for node in job.nodes)]
        }

    def _silent(
        self, left: t.Mapping[str, Json], started: set[str], jobs: t.Sequence[Job], rows: t.Sequence[Row]
    ) -> dict[str, str]:
        """Return why tests whose node Slurm says to run them have not begun, unless something still goes on."""
        found = {}
        for job in jobs:
            hosts = {row.host for row in rows if row.name == job.name and not row.waits}
            mine = [test for test in job.tests if test["id"] in left]
            signs = {job.name} if job.kind == "round" else {f"{self.batch}.{test['nodes'][0]}" for test in mine}
            if mine and hosts and signs & started:
                return {}
            if mine and hosts and self.clock.now() > self._patience(job, started, self._given(job, hosts, mine), rows):
                heads = {test["id"]: hosts & set(test["nodes"]) for test in mine}
                found.update({name: _dead(min(head)) if head else "" for name, head in heads.items()})
        return found

    def _given(self, job: Job, hosts: set[str], mine: t.Sequence[Json]) -> float:
        """Return when the last of those that are silent was given what it has not begun."""
        silent = hosts & {name for test in mine for name in test["nodes"]}
        return max(self.given[job.name, name] for name in silent or hosts)

    def _patience(self, job: Job, started: set[str], given: float, rows: t.Sequence[Row]) -> float:
        """Return until when to wait for nodes that were given something and have not begun.

        As long as none of a job has begun, it may be Slurm that is slow, or its prologs: silence says nothing. A node's
        patience runs while the others work, so that in a long stage it costs nothing.
        """
        if not self.lively and not any(f"{self.batch}.{node}" in started for node in job.nodes):
            return self.moved + float(self.how["wait"])
        patience = float(self.how["patience"])
        quiet = patience if any(row.waits for row in rows) else min(SETTLE, patience)
        return max(given + patience, self.grown + max(quiet, _SHARE * (self.grown - self.begun)))

    def _gate(self, job: Job, rows: t.Sequence[Row], left: t.Mapping[str, Json], now: float) -> None:
        """Let nodes go when every task has one, or when no more will start as long as the others keep theirs."""
        if job.kind != "array" or job.name in self.opened:
            return
        waiting = [row for row in rows if row.name == job.name and row.waits]
        some = set(job.nodes) - {node for test in job.tests if test["id"] in left for node in test["nodes"]}
        if not waiting or (some and now - self.moved > SETTLE):
            self._open([job])
            for row in waiting:
                self.slurm.cancel(row.job_id, waiting=True)

    def _open(self, jobs: t.Sequence[Job]) -> None:
        for job in jobs:
            if job.kind != "round" and job.name not in self.opened:
                self.opened.add(job.name)
                # In place: who opens a file sees what was written to it, not that there is another one of this name.
                self.journal.path("jobs", job.name, ".gate").write_text(OPEN)

    def _taken(self, left: t.Mapping[str, Json], rows: t.Sequence[Row], now: float) -> dict[str, str] | None:
        """Jobs wait: leave out the nodes that others have, or all of them when they had time enough."""
        if any(not row.waits for row in rows):
            return None
        with contextlib.suppress(SlurmError):
            known = {node["name"]: state(node, bool(self.how["reservation"])) for node in self.slurm.nodes()}
            why = {name: _away(test, known) for name, test in left.items()}
            if any(why.values()):
                return why
        late = f"its job did not begin within {float(self.how['wait']):g} s"
        return dict.fromkeys(left, late) if now - self.ran > float(self.how["wait"]) else None

    def _end(self, jobs: t.Sequence[Job], rows: t.Sequence[Row]) -> None:
        self._open(jobs)
        for job_id in dict.fromkeys(row.job_id for row in rows):
            self.slurm.cancel(job_id)


def _away(test: Json, known: t.Mapping[str, str]) -> str:
    found = [f"{name} is {known.get(name, 'unknown to Slurm')}" for name in test["nodes"] if known.get(name) != "idle"]
    return ", ".join(found)


def _dead(node: str) -> str:
    return f"Slurm started it on {node}, and nothing came: its slurmd does not answer, or has another munge key"
