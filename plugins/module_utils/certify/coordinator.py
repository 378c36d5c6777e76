# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a campaign: submit rounds, watch them, learn from others how long silence may last, end what hangs."""

from __future__ import annotations

import contextlib
import json
import math
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, finite, judge, metric, record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._files import lock, replace
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.limits import BUILT_IN
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import slurm as certify_slurm
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.evidence import SILENT, stamp
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.journal import HOLD, OPEN, Journal
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.slurm import (
    CampaignSlurm,
    JobRow,
    RefusedError,
    RoundJob,
    mute,
    state,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SlurmError

# How long a node may be silent, learnt from the nodes that were not. Pure.


_CHANCE = 1e-4  # that a sound node takes longer
_LEAST = 1.5  # times the slowest of the others, however many they are
MORE = 3.0  # times as long for a test that is tried again


def enough(least: float, others: t.Sequence[float]) -> float:
    """Return after how many seconds a node is silent that others, given the same, took so long to answer."""
    if not others:
        return least
    slowest = sum(1.0 / n for n in range(1, len(others) + 1))
    return max(least, max(others) * max(_LEAST, math.log(1.0 / _CHANCE) / slowest))


# Awaits the jobs of one attempt at a batch, and returns why each test that is left has no result.


# Seconds without a new task before an array that still waits is taken to have started all it can, or twice as long as
# it once was before.
SETTLE = 3.0
LOOK = 5.0  # seconds that a job may wait before its nodes are looked at, and between looks
_ENDED = 5.0  # seconds after the end of a job without a sign of a start in which its first files may still arrive
_AWAY_WATCHING = 3600.0  # seconds that a controller may be away while jobs run
# The part of the time that others took to begin which a node gets even after its patience.
_SHARE = 0.25


class Clock(t.NamedTuple):
    """Time as the coordinator has it; tests have their own."""

    now: t.Callable[[], float] = time.monotonic
    wall: t.Callable[[], float] = time.time
    sleep: t.Callable[[float], None] = time.sleep


class EarlierAttempts(t.NamedTuple):
    """What is known before an attempt: how long others took to begin, that jobs of this batch do, who was silent."""

    took: t.Sequence[float] = ()
    lively: bool = False
    silent: t.Container[str] = ()


class Watch:
    """One attempt: jobs that were submitted, the tests that they are to do, and how the last look at them was.

    ``earlier`` is what attempts and batches before this one have shown.
    """

    def __init__(
        self,
        journal: Journal,
        slurm: CampaignSlurm,
        how: Json,
        batch: str,
        clock: Clock,
        earlier: EarlierAttempts | None = None,
    ) -> None:
        self.journal, self.slurm, self.how, self.batch, self.clock = journal, slurm, how, batch, clock
        self.earlier = earlier or EarlierAttempts()
        self.begun = self.moved = self.grown = self.alive = self.ran = self.last = clock.now()
        self.looked = self.listened = self.gap = 0.0
        self.progress = (0, 0)
        self.opened: set[str] = set()
        self.unheard: set[str] = set()  # nodes that Slurm itself hears nothing of
        self.off: dict[str, float] = {}  # since when
        self.given: dict[tuple[str, str], float] = {}  # when Slurm first listed a job as running on a node
        self.took: dict[str, float] = {}  # how long nodes, or jobs of several, needed to begin
        self.silent: set[str] = set()  # tests that were silent for longer than their patience

    def follow(self, jobs: t.Sequence[RoundJob], take: t.Callable[[set[str]], None]) -> dict[str, str]:
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
            over = self._reasons(jobs, left, rows) if rows is not None else None
            if over is not None:
                self._end(jobs, rows or [])
                return over
            self.clock.sleep(pause)
            pause = min(pause * 1.15, float(self.how["poll"]))

    def _queue(self, names: t.Container[str]) -> list[JobRow] | None:
        """Return the jobs in the queue, None while slurmctld does not answer: the jobs go on without it."""
        try:
            return self.slurm.queue(names)
        except SlurmError:
            if self.clock.now() - self.alive > _AWAY_WATCHING:
                raise
        return None

    def _reasons(
        self, jobs: t.Sequence[RoundJob], left: t.Mapping[str, Json], rows: t.Sequence[JobRow]
    ) -> dict[str, str] | None:
        """Return why each test left has no result, None as long as one may still come."""
        now, started = self.clock.now(), self._started(jobs)
        self._note_progress(now, (len(started), len(left)), rows)
        self._learn_delays(now, started, jobs)
        for job in jobs:
            self._gate(job, rows, left, now)
        if not rows:
            return None if now - self.alive < self._grace(left, started, jobs) else dict.fromkeys(left, "")
        silent = self._silent(left, started, jobs, rows)
        if silent:
            return {**dict.fromkeys(left, ""), **silent}
        if any(row.waits for row in rows) and now - self.begun > LOOK and now - self.looked > LOOK:
            self.looked = now
            return self._unavailable(left, rows, jobs)
        return None

    def _note_progress(self, now: float, progress: tuple[int, int], rows: t.Sequence[JobRow]) -> None:
        """Record when progress of each kind was last seen."""
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

    def _learn_delays(self, now: float, started: t.Container[str], jobs: t.Sequence[RoundJob]) -> None:
        """Record how long each node took at most from its allocation to its sign of a start."""
        for job in jobs:
            for name in job.nodes:
                sign = self._sign(job, name)
                if sign in started and sign not in self.took:
                    self.took[sign] = now - min(self.given.get((job.name, name), now), self.last)
        self.last = now

    def _sign(self, job: RoundJob, node: str) -> str:
        return job.name if job.kind == "round" else f"{self.batch}.{node}"

    def _started(self, jobs: t.Sequence[RoundJob]) -> set[str]:
        return self.journal.started() & {self._sign(job, node) for job in jobs for node in job.nodes}

    def _grace(self, left: t.Mapping[str, Json], started: t.Container[str], jobs: t.Sequence[RoundJob]) -> float:
        """Return how long files may still arrive when no job is left: longer where a test has begun."""
        begun = any(
            test["id"] in left and self._sign(job, test["nodes"][0]) in started for job in jobs for test in job.tests
        )
        return self._enough() if begun else min(_ENDED, float(self.how["poll"]) * 2)

    def _enough(self) -> float:
        """Return for how long an allocated node may be silent."""
        return enough(float(self.how["patience"]), [*self.earlier.took, *self.took.values()])

    def _silent(
        self, left: t.Mapping[str, Json], started: set[str], jobs: t.Sequence[RoundJob], rows: t.Sequence[JobRow]
    ) -> dict[str, str]:
        """Return the reasons of tests that Slurm runs and that have not begun; none as long as something goes on."""
        reasons: dict[str, str] = {}
        now = self.clock.now()
        for job in jobs:
            hosts = {row.host for row in rows if row.name == job.name and not row.waits}
            mine = [test for test in job.tests if test["id"] in left]
            if not mine or not hosts:
                continue
            if any(self._sign(job, test["nodes"][0]) in started for test in mine):
                return {}
            soon, late = self._patience(job, started, self._given_at(job, hosts, mine), rows, mine)
            unheard = self._listen(now) if now > soon else set()
            for test in mine:
                head = min(hosts & set(test["nodes"]), default="")
                if head and head not in unheard and now <= late:
                    return {}
                reasons[test["id"]] = self._why_silent(test["id"], head, unheard)
        return reasons

    def _why_silent(self, test: str, head: str, unheard: t.Container[str]) -> str:
        """Return why a test is silent: an empty reason the first time, unless Slurm hears nothing of its node."""
        if not head:
            return ""
        self.silent.add(test)
        return _dead(head) if head in unheard or test in self.earlier.silent else ""

    def _listen(self, now: float) -> set[str]:
        """Return the nodes that do not answer Slurm, which polls them by itself."""
        if now - self.listened > LOOK:
            with contextlib.suppress(SlurmError):
                self.unheard = {node["name"] for node in self.slurm.nodes() if mute(node)}
                self.listened = now
        return self.unheard

    def _given_at(self, job: RoundJob, hosts: set[str], mine: t.Sequence[Json]) -> float:
        """Return when the last of the silent nodes was allocated."""
        silent = hosts & {name for test in mine for name in test["nodes"]}
        return max(self.given[job.name, name] for name in silent or hosts)

    def _patience(
        self, job: RoundJob, started: set[str], given: float, rows: t.Sequence[JobRow], mine: t.Sequence[Json]
    ) -> tuple[float, float]:
        """Return until when to wait for nodes that do not answer Slurm either, and for those silent to us alone.

        As long as no node of a job has begun, Slurm or its prologs may be slow: silence means nothing. A node's
        patience runs while the others work, so that in a long stage it costs nothing.
        """
        patience = self._enough()
        if not self.earlier.lively and not any(self._sign(job, node) in started for node in job.nodes):
            return given + patience, self.moved + max(float(self.how["wait"]), MORE * patience)
        quiet = patience if any(row.waits for row in rows) else min(SETTLE, patience)
        soon = max(given + patience, self.grown + max(quiet, _SHARE * (self.grown - self.begun)))
        repeated = any(test["id"] in self.earlier.silent for test in mine)
        return soon, given + MORE * MORE * patience if repeated else soon + MORE * patience

    def _gate(self, job: RoundJob, rows: t.Sequence[JobRow], left: t.Mapping[str, Json], now: float) -> None:
        """Open the gate of an array when each task has a node, or when no more start while others keep theirs."""
        if job.kind != "array" or job.name in self.opened:
            return
        waiting = [row for row in rows if row.name == job.name and row.waits]
        some = set(job.nodes) - {node for test in job.tests if test["id"] in left for node in test["nodes"]}
        if not waiting or (some and now - self.moved > max(SETTLE, 2 * self.gap)):
            self._open([job])
            for row in waiting:
                self.slurm.cancel(row.job_id, waiting=True)

    def _open(self, jobs: t.Sequence[RoundJob]) -> None:
        for job in jobs:
            if job.kind != "round" and job.name not in self.opened:
                self.opened.add(job.name)
                # In place: a node that has the file open would not see that another one has replaced it.
                self.journal.path("jobs", job.name, ".gate").write_text(OPEN)

    def _unavailable(
        self, left: t.Mapping[str, Json], rows: t.Sequence[JobRow], jobs: t.Sequence[RoundJob]
    ) -> dict[str, str] | None:
        """Return why tests get no nodes where all jobs wait: others have them, or it took too long; None to go on."""
        if any(not row.waits for row in rows):
            return None
        now, run = self.clock.now(), jobs[0].name.partition(f"{self.batch}-")[0]
        with contextlib.suppress(SlurmError):
            # It may be our own last job that Slurm has not tidied away yet.
            if not self.slurm.held(run, {job.name for job in jobs}):
                known = {node["name"]: node for node in self.slurm.nodes()}
                why = {name: self._away(test, known, now) for name, test in left.items()}
                # It may have begun just now: then it is our own job that has these nodes.
                if any(why.values()) and all(row.waits for row in self.slurm.queue({job.name for job in jobs})):
                    return why
        if now - self.ran <= float(self.how["wait"]):
            return None
        self.silent.update(left)
        late = f"its job did not begin within {float(self.how['wait']):g} s, twice"
        return {name: late if name in self.earlier.silent else "" for name in left}

    def _away(self, test: Json, known: t.Mapping[str, Json], now: float) -> str:
        """Return why nodes of a test are not free; one that does not answer Slurm may just need longer."""
        reasons = []
        for name in test["nodes"]:
            node = known.get(name)
            word = state(node, bool(self.how["reservation"])) if node else "unknown to Slurm"
            since = self.off.setdefault(name, now)
            if word == "idle":
                del self.off[name]
            elif node and mute(node) and test["id"] in self.earlier.silent:
                reasons.append(_dead(name))
            elif not node or not mute(node) or node["state"] == "DOWN" or now - since > self._enough():
                reasons.append(f"{name} is {word}")
        return ", ".join(reasons)

    def _end(self, jobs: t.Sequence[RoundJob], rows: t.Sequence[JobRow]) -> None:
        self._open(jobs)
        for job_id in dict.fromkeys(row.job_id for row in rows):
            self.slurm.cancel(job_id)


def _dead(node: str) -> str:
    return f"Slurm started it on {node}, and nothing came: its slurmd does not answer, or has another munge key"


# Has a campaign's tests done by Slurm, batch after batch. Private, stdlib only.


FRUITLESS = 2  # attempts in a row that gave no result
STRAGGLERS = 16  # so many nodes without a result are tried one by one
_AWAY_SUBMITTING = 300.0  # seconds that a controller may be away when something has to be submitted


class Campaign(t.Protocol):
    """What the planner offers."""

    def next(self) -> Json | None: ...

    def take(self, test_id: str, records: list[Json], reason: str = "") -> None: ...


class WholeCampaign(Campaign, t.Protocol):
    """The planner from its beginning to its certificate."""

    def plan(self) -> Json: ...

    def certificate(self, **digests: str) -> Json: ...


class Coordinator:
    """Leads one run from where its journal says that it is to its end."""

    def __init__(self, journal: Journal, request: Json, slurm: CampaignSlurm, clock: Clock | None = None) -> None:
        self.journal, self.request, self.slurm, self.clock = journal, request, slurm, clock or Clock()
        self.how: Json = request["how"]
        self.known = [*(node["name"] for node in request["fleet"]["nodes"]), *request.get("others", [])]
        self.records: list[Json] = []
        self.took: list[float] = []  # how long nodes needed to begin, so far

    def run(self, campaign: Campaign) -> None:
        """Run batches until the campaign has no next one."""
        while True:
            batch = campaign.next()
            if batch is None:
                return
            self._batch(campaign, batch)

    def _batch(self, campaign: Campaign, batch: Json) -> None:
        """Have the tests of a batch done, attempt after attempt, until each has results or was given up."""
        if self.journal.read("batches", batch["id"]) is None:
            self.journal.write("batches", batch["id"], batch)
            self.journal.say(f"{batch['id']}: {batch['stage']}, {len(batch['tests'])} tests")
        state = self.journal.read("journal", batch["id"]) or {"attempt": 0, "jobs": [], "seen": {}, "given_up": {}}
        begin = self.clock.now()
        while True:
            left = self._left(campaign, batch, state)
            if not left:
                break
            self._attempt(campaign, batch, state, left)
        bad = state["given_up"]
        self.journal.say(
            f"{batch['id']}: done in {self.clock.now() - begin:.1f} s{f', {len(bad)} without result' if bad else ''}"
        )

    def _left(self, campaign: Campaign, batch: Json, state: Json) -> list[Json]:
        """Hand the results that are there to the campaign, and return the tests that need a job."""
        answered = self.journal.answered()
        self._take(campaign, batch, state, answered)
        self._give_up(campaign, batch, state)
        return [test for test in batch["tests"] if test["id"] not in answered and test["id"] not in state["given_up"]]

    def _take(self, campaign: Campaign, batch: Json, state: Json, answered: t.Container[str]) -> None:
        """Hand each result to the campaign once; when it was first seen is kept, as a node's clock is judged by it."""
        # Results of a test that was given up come too late: a resumed run would take another course with them.
        tests = [test for test in batch["tests"] if test["id"] in answered and test["id"] not in state["given_up"]]
        fresh = [test["id"] for test in tests if test["id"] not in state["seen"]]
        if fresh:
            state["seen"].update(dict.fromkeys(fresh, self.clock.wall()))
            self._save(batch, state)
        taken = state.setdefault("taken", set())
        for test in tests:
            if test["id"] not in taken:
                taken.add(test["id"])
                records = self.journal.results(test["id"]) or []
                self._hand_on(campaign, test, [*records, *self._clocks(test, records, state)])

    def _give_up(self, campaign: Campaign, batch: Json, state: Json) -> None:
        """Record each test that has no result, so that the certificate can be made from the records alone."""
        for test in batch["tests"]:
            reason = state["given_up"].get(test["id"])
            if reason and test["id"] not in state.setdefault("taken", set()):
                state["taken"].add(test["id"])
                node = test["nodes"][0] if len(test["nodes"]) == 1 else None
                more: Json = {"run": self.request["run"], "scope": {} if node else {"group": list(test["nodes"])}}
                more["context"] = {SILENT: True}
                missing = record(test["stage"], node, time=state["submitted"], verdict="error", reason=reason, **more)
                self._hand_on(campaign, test, [missing], reason)

    def _hand_on(self, campaign: Campaign, test: Json, records: list[Json], reason: str = "") -> None:
        stamped = stamp(test["id"], records)
        self.records += stamped
        campaign.take(test["id"], stamped, reason)

    def _save(self, batch: Json, state: Json) -> None:
        self.journal.write("journal", batch["id"], {key: value for key, value in state.items() if key != "taken"})

    def _attempt(self, campaign: Campaign, batch: Json, state: Json, left: list[Json]) -> None:
        """Run the jobs of one attempt to their end; one that was cut short goes on with the jobs that it had."""
        ids = {test["id"] for test in left}
        jobs = [RoundJob(*job) for job in state["jobs"]] if state.get("open") else []
        if not ids & {test["id"] for job in jobs for test in job.tests}:
            state["attempt"] += 1
            sizes = {name: self.how[name] for name in ("array", "allocation")}
            sizes["stragglers"] = STRAGGLERS
            jobs = certify_slurm.jobs(self.request["run"], batch, left, state["attempt"], sizes)
            # The first time stays: what an earlier attempt did may come late, and is no sign of a clock that is slow.
            state.update(open=True, jobs=jobs, submitted=state.get("submitted", self.clock.wall()))
            self._save(batch, state)
        self._submit(batch, jobs)
        silent = state.setdefault("silent", [])
        earlier = EarlierAttempts(self.took, state["attempt"] > 1 and len(silent) < len(batch["tests"]), silent)
        watch = Watch(self.journal, self.slurm, self.how, batch["id"], self.clock, earlier)
        over = watch.follow(jobs, lambda answered: self._take(campaign, batch, state, answered))
        self.took += watch.took.values()
        state.update(open=False, silent=sorted({*silent, *watch.silent}))
        empty = len(over) == len(left) and not any(over.values()) and not watch.silent
        state["fruitless"] = state.get("fruitless", 0) + 1 if empty else 0
        lost = "its job ended without a result" if state["fruitless"] >= FRUITLESS else ""
        late = self.journal.answered()
        state["given_up"].update(
            {name: why or lost for name, why in over.items() if (why or lost) and name not in late}
        )
        self._save(batch, state)

    def _submit(self, batch: Json, jobs: t.Sequence[RoundJob]) -> None:
        """Submit the jobs that Slurm does not have; one that was killed after sbatch left jobs of these names."""
        begin = self.clock.now()
        while True:
            try:
                begun = self.journal.read("jobs", jobs[0].name) is not None
                names = {job.name for job in jobs}
                queued = {row.name: row.job_id for row in self.slurm.queue(names)} if begun else {}
                done = self.journal.answered() if begun else set()
                last: int | None = None
                for job in jobs:
                    if {test["id"] for test in job.tests} <= done:
                        continue  # Slurm has it no more: it ended while no coordinator ran
                    sent = self.journal.read("jobs", f"{job.name}.sent") or queued.get(job.name)
                    last = sent or self._send(batch, job, last)
                return
            except SlurmError as exc:
                if isinstance(exc, RefusedError) or self.clock.now() - begin > _AWAY_SUBMITTING:
                    raise
                self.clock.sleep(5.0)

    def _send(self, batch: Json, job: RoundJob, after: int | None) -> int:
        """Write a job's file, gate and script, submit it and keep its number; it may have to wait for another."""
        agent = self.how["agent_path"]
        file = self.journal.write(
            "jobs", job.name, certify_slurm.job_content(job, batch, self.request, str(self.journal.folder))
        )
        replace(file.with_suffix(".gate"), HOLD if job.kind == "array" else OPEN)
        script = file.with_suffix(".sh")
        replace(script, certify_slurm.job_script(job, self.how, agent, str(file)))
        mine = set(job.nodes)
        others = [name for name in self.known if name not in mine] if job.kind == "array" else []
        log = str(self.journal.folder / "logs" / f"{job.name}-%{'A_%a' if job.kind == 'array' else 'j'}.log")
        limit = certify_slurm.job_seconds(job, batch, self.how)
        number = self.slurm.submit(certify_slurm.sbatch_arguments(job, self.how, others, limit, log, after), script)
        self.journal.write("jobs", f"{job.name}.sent", number)
        return number

    def _clocks(self, test: Json, records: t.Sequence[Json], state: Json) -> list[Json]:
        """Judge a node's clock by ours: what it did lies between the job's submission and the first sight of it."""
        reach = next((entry for entry in records if entry["check"] == "reach"), None)
        moment = finite(reach.get("time")) if reach else None
        if reach is None or moment is None or test["stage"] != "reach":
            return []
        off = max(0.0, state["submitted"] - moment, moment - state["seen"][test["id"]])
        given = self.request["fleet"]["profile"].get("expect") or []
        of_clocks = [expectation for expectation in given if expectation["check"] == "clock_skew"]
        expect = of_clocks or [expectation for expectation in BUILT_IN if expectation["check"] == "clock_skew"]
        metrics = judge("clock_skew", [metric("skew", off, "s")], expect)
        about = {"tool": "certification", "how": "outside of the time from the job's submission to its result"}
        context = {**about, "physical_host": (reach.get("context") or {}).get("physical_host", "")}
        rest: Json = {"metrics": metrics, "blame": "config", "run": self.request["run"], "context": context}
        return [record("clock_skew", test["nodes"][0], time=moment, **rest)]


def lead(
    journal: Journal, run: Json, slurm: CampaignSlurm, campaign: WholeCampaign
) -> tuple[Json, Json, t.Sequence[Json]]:
    """Run the rest of a campaign and return its plan, its certificate and the records of that.

    Under a lock, as two coordinators would submit the same jobs.
    """
    with lock(journal.folder / "lock"):
        coordinator = Coordinator(journal, run, slurm)
        plan = campaign.plan()
        replace(journal.folder / "plan.json", json.dumps(plan, sort_keys=True))
        coordinator.run(campaign)
        certificate, records = journal.end(
            coordinator.records, lambda digest: campaign.certificate(**run["digests"], records_sha256=digest)
        )
    return plan, certificate, records
