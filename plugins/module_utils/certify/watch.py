# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Awaits the jobs of one attempt at a batch, and says of every test that is left why it has no result. Private.

A node that hangs must not cost the others more than its own absence, and a slow one must not be taken for it. Who has
not begun when all others are done is waited for, as long as they let expect. Then, if Slurm hears nothing of it either,
it is left; else it gets more time, and is asked by another job before it is left. Nothing here judges a node; what did
not run is infra.
"""

from __future__ import annotations

import contextlib
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.batch import Job
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.journal import Journal
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.local import OPEN
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.patience import MORE, enough
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.slurm_fleet import mute, state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.slurm_jobs import Row, Slurm
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SlurmError

# Seconds without a new task before an array that still waits is taken to have started all it can, or twice as long as
# it once was before.
SETTLE = 3.0
LOOK = 5.0  # seconds that a job may wait before its nodes are looked at, and between looks
_ENDED = 5.0  # seconds after the end of a job that nobody began in which its first files may still arrive
_AWAY = 3600.0  # seconds that a controller may be away while jobs run
# Whoever has had its patience is still given a part of the time that the others took to begin.
_SHARE = 0.25


class Clock(t.NamedTuple):
    """Time as the coordinator has it; tests have their own."""

    now: t.Callable[[], float] = time.monotonic
    wall: t.Callable[[], float] = time.time
    sleep: t.Callable[[float], None] = time.sleep


class Earlier(t.NamedTuple):
    """What is known before an attempt: how long others took to begin, that jobs of this batch do, who was silent."""

    took: t.Sequence[float] = ()
    lively: bool = False
    silent: t.Container[str] = ()


class Watch:
    """One attempt: jobs that were submitted, the tests that they are to do, and how the last look at them was.

    ``earlier`` is what attempts and batches before this one have shown.
    """

    def __init__(
        self, journal: Journal, slurm: Slurm, how: Json, batch: str, clock: Clock, earlier: Earlier | None = None
    ) -> None:
        self.journal, self.slurm, self.how, self.batch, self.clock = journal, slurm, how, batch, clock
        self.earlier = earlier or Earlier()
        self.begun = self.moved = self.grown = self.alive = self.ran = self.last = clock.now()
        self.looked = self.listened = self.gap = 0.0
        self.progress = (0, 0)
        self.opened: set[str] = set()
        self.unheard: set[str] = set()  # nodes that Slurm itself hears nothing of
        self.off: dict[str, float] = {}  # since when
        self.given: dict[tuple[str, str], float] = {}  # when Slurm first said that a job runs on a node
        self.took: dict[str, float] = {}  # how long nodes, or jobs of several, needed to begin
        self.silent: set[str] = set()  # tests that have been asked for long enough

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
        self._learn(now, started, jobs)
        for job in jobs:
            self._gate(job, rows, left, now)
        if not rows:
            return None if now - self.alive < self._late(left, started, jobs) else dict.fromkeys(left, "")
        silent = self._silent(left, started, jobs, rows)
        if silent:
            return {**dict.fromkeys(left, ""), **silent}
        if any(row.waits for row in rows) and now - self.begun > LOOK and now - self.looked > LOOK:
            self.looked = now
            return self._taken(left, rows, jobs)
        return None

    def _note(self, now: float, progress: tuple[int, int], rows: t.Sequence[Row]) -> None:
        """Remember when each kind of movement was last seen."""
        if progress[0] > self.progress[0]:
            self.grown = now
        if progress != self.progress:
            self.gap = max(self.gap, now - self.moved)
            self.progress, self.moved = progress, now
        if rows:
            self.alive = now
        for row in rows:
            if not row.waits:
                self.ran = now
                self.given.setdefault((row.name, row.host), now)

    def _learn(self, now: float, started: t.Container[str], jobs: t.Sequence[Job]) -> None:
        """Remember how long it took at most until a node that was given something was seen to have begun."""
        for job in jobs:
            for name in job.nodes:
                sign = self._sign(job, name)
                if sign in started and sign not in self.took:
                    self.took[sign] = now - min(self.given.get((job.name, name), now), self.last)
        self.last = now

    def _sign(self, job: Job, node: str) -> str:
        return job.name if job.kind == "round" else f"{self.batch}.{node}"

    def _started(self, jobs: t.Sequence[Job]) -> set[str]:
        return self.journal.started() & {self._sign(job, node) for job in jobs for node in job.nodes}

    def _late(self, left: t.Mapping[str, Json], started: t.Container[str], jobs: t.Sequence[Job]) -> float:
        """Return how long files may still arrive when no job is left: of who has begun, as long as anything takes."""
        begun = any(
            test["id"] in left and self._sign(job, test["nodes"][0]) in started for job in jobs for test in job.tests
        )
        return self._enough() if begun else min(_ENDED, float(self.how["poll"]) * 2)

    def _enough(self) -> float:
        """Return for how long who was given something may be silent."""
        return enough(float(self.how["patience"]), [*self.earlier.took, *self.took.values()])

    def _silent(
        self, left: t.Mapping[str, Json], started: set[str], jobs: t.Sequence[Job], rows: t.Sequence[Row]
    ) -> dict[str, str]:
        """Return why tests whose node Slurm says to run them have not begun, unless something still goes on."""
        found: dict[str, str] = {}
        now = self.clock.now()
        for job in jobs:
            hosts = {row.host for row in rows if row.name == job.name and not row.waits}
            mine = [test for test in job.tests if test["id"] in left]
            if not mine or not hosts:
                continue
            if any(self._sign(job, test["nodes"][0]) in started for test in mine):
                return {}
            soon, late = self._patience(job, started, self._given(job, hosts, mine), rows, mine)
            unheard = self._listen(now) if now > soon else set()
            for test in mine:
                head = min(hosts & set(test["nodes"]), default="")
                if head and head not in unheard and now <= late:
                    return {}
                found[test["id"]] = self._called(test["id"], head, unheard)
        return found

    def _called(self, test: str, head: str, unheard: t.Container[str]) -> str:
        """Return what a silent test is called: nothing the first time, unless Slurm hears nothing of its node."""
        if not head:
            return ""
        self.silent.add(test)
        return _dead(head) if head in unheard or test in self.earlier.silent else ""

    def _listen(self, now: float) -> set[str]:
        """Return the nodes that Slurm hears nothing of; it asks them, too, and waits for them in its own way."""
        if now - self.listened > LOOK:
            with contextlib.suppress(SlurmError):
                self.unheard = {node["name"] for node in self.slurm.nodes() if mute(node)}
                self.listened = now
        return self.unheard

    def _given(self, job: Job, hosts: set[str], mine: t.Sequence[Json]) -> float:
        """Return when the last of those that are silent was given what it has not begun."""
        silent = hosts & {name for test in mine for name in test["nodes"]}
        return max(self.given[job.name, name] for name in silent or hosts)

    def _patience(
        self, job: Job, started: set[str], given: float, rows: t.Sequence[Row], mine: t.Sequence[Json]
    ) -> tuple[float, float]:
        """Return until when to wait for who is silent to Slurm as well, and for who is silent to us alone.

        As long as none of a job has begun, it may be Slurm that is slow, or its prologs: silence says nothing. A node's
        patience runs while the others work, so that in a long stage it costs nothing.
        """
        patience = self._enough()
        if not self.earlier.lively and not any(self._sign(job, node) in started for node in job.nodes):
            return given + patience, self.moved + max(float(self.how["wait"]), MORE * patience)
        quiet = patience if any(row.waits for row in rows) else min(SETTLE, patience)
        soon = max(given + patience, self.grown + max(quiet, _SHARE * (self.grown - self.begun)))
        asked = any(test["id"] in self.earlier.silent for test in mine)
        return soon, given + MORE * MORE * patience if asked else soon + MORE * patience

    def _gate(self, job: Job, rows: t.Sequence[Row], left: t.Mapping[str, Json], now: float) -> None:
        """Let nodes go when every task has one, or when no more will start as long as the others keep theirs."""
        if job.kind != "array" or job.name in self.opened:
            return
        waiting = [row for row in rows if row.name == job.name and row.waits]
        some = set(job.nodes) - {node for test in job.tests if test["id"] in left for node in test["nodes"]}
        if not waiting or (some and now - self.moved > max(SETTLE, 2 * self.gap)):
            self._open([job])
            for row in waiting:
                self.slurm.cancel(row.job_id, waiting=True)

    def _open(self, jobs: t.Sequence[Job]) -> None:
        for job in jobs:
            if job.kind != "round" and job.name not in self.opened:
                self.opened.add(job.name)
                # In place: who opens a file sees what was written to it, not that there is another one of this name.
                self.journal.path("jobs", job.name, ".gate").write_text(OPEN)

    def _taken(self, left: t.Mapping[str, Json], rows: t.Sequence[Row], jobs: t.Sequence[Job]) -> dict[str, str] | None:
        """Jobs wait: leave out the nodes that others have, or all of them when they had time enough."""
        if any(not row.waits for row in rows):
            return None
        now, run = self.clock.now(), jobs[0].name.partition(f"{self.batch}-")[0]
        with contextlib.suppress(SlurmError):
            # It may be our own last job that Slurm has not tidied away yet.
            if not self.slurm.held(run, {job.name for job in jobs}):
                known = {node["name"]: node for node in self.slurm.nodes()}
                why = {name: self._away(test, known, now) for name, test in left.items()}
                if any(why.values()):
                    return why
        if now - self.ran <= float(self.how["wait"]):
            return None
        self.silent.update(left)
        late = f"its job did not begin within {float(self.how['wait']):g} s, twice"
        return {name: late if name in self.earlier.silent else "" for name in left}

    def _away(self, test: Json, known: t.Mapping[str, Json], now: float) -> str:
        """Return why nodes are not free. Of who does not answer Slurm it may be that it just has not yet."""
        found = []
        for name in test["nodes"]:
            node = known.get(name)
            word = state(node, bool(self.how["reservation"])) if node else "unknown to Slurm"
            since = self.off.setdefault(name, now)
            if word == "idle":
                del self.off[name]
            elif node and mute(node) and test["id"] in self.earlier.silent:
                found.append(_dead(name))
            elif not node or not mute(node) or node["state"] == "DOWN" or now - since > self._enough():
                found.append(f"{name} is {word}")
        return ", ".join(found)

    def _end(self, jobs: t.Sequence[Job], rows: t.Sequence[Row]) -> None:
        self._open(jobs)
        for job_id in dict.fromkeys(row.job_id for row in rows):
            self.slurm.cancel(job_id)


def _dead(node: str) -> str:
    return f"Slurm started it on {node}, and nothing came: its slurmd does not answer, or has another munge key"
