# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Has a campaign's tests done by Slurm, batch after batch. Private, stdlib only.

All that it knows is in the journal before it acts on it. Killed at any moment, the jobs go on; started again, it goes
the same way through the campaign, finds their results, awaits those that still run and submits only what is missing.
"""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import judge, metric, record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import Json, finite
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._replace import replace
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.limits import BUILT_IN
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import batch as batches
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.batch import Job
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.evidence import SILENT, stamp
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.journal import Journal
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.local import HOLD, OPEN
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.slurm_jobs import RefusedError, Slurm
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.watch import Clock, Earlier, Watch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SlurmError

FRUITLESS = 2  # attempts one after the other that came to nothing
STRAGGLERS = 16  # nodes that are asked for one by one
_AWAY = 300.0  # seconds that a controller may be away when something has to be submitted


class Campaign(t.Protocol):
    """What the planner offers."""

    def next(self) -> Json | None: ...

    def take(self, test_id: str, records: list[Json], reason: str = "") -> None: ...


class Coordinator:
    """Leads one run from where its journal says that it is to its end."""

    def __init__(self, journal: Journal, request: Json, slurm: Slurm, clock: Clock | None = None) -> None:
        self.journal, self.request, self.slurm, self.clock = journal, request, slurm, clock or Clock()
        self.how: Json = request["how"]
        self.names = [node["name"] for node in request["fleet"]["nodes"]]
        self.known = [*self.names, *request.get("others", [])]
        self.records: list[Json] = []
        self.took: list[float] = []  # how long nodes needed to begin, so far

    def run(self, campaign: Campaign) -> None:
        """Do whatever the campaign still asks for."""
        while True:
            batch = campaign.next()
            if batch is None:
                return
            self._batch(campaign, batch)

    def _batch(self, campaign: Campaign, batch: Json) -> None:
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
        """Hand on what there is, and return the tests that need a job."""
        answered = self.journal.answered()
        self._take(campaign, batch, state, answered)
        self._give_up(campaign, batch, state)
        return [test for test in batch["tests"] if test["id"] not in answered and test["id"] not in state["given_up"]]

    def _take(self, campaign: Campaign, batch: Json, state: Json, answered: t.Container[str]) -> None:
        """Hand results on, each once; when it was first seen is kept, or a second look would judge another clock."""
        # What comes after a test was given up comes too late: whoever goes on with the run would go another way.
        tests = [test for test in batch["tests"] if test["id"] in answered and test["id"] not in state["given_up"]]
        fresh = [test["id"] for test in tests if test["id"] not in state["seen"]]
        if fresh:
            state["seen"].update(dict.fromkeys(fresh, self.clock.wall()))
            self._save(batch, state)
        taken = state.setdefault("taken", set())
        for test in tests:
            if test["id"] not in taken:
                taken.add(test["id"])
                found = self.journal.results(test["id"]) or []
                self._tell(campaign, test, [*found, *self._clocks(test, found, state)])

    def _give_up(self, campaign: Campaign, batch: Json, state: Json) -> None:
        """A test without result leaves a record as well: the certificate can be made from the records alone."""
        for test in batch["tests"]:
            reason = state["given_up"].get(test["id"])
            if reason and test["id"] not in state.setdefault("taken", set()):
                state["taken"].add(test["id"])
                node = test["nodes"][0] if len(test["nodes"]) == 1 else None
                more: Json = {"run": self.request["run"], "scope": {} if node else {"group": list(test["nodes"])}}
                more["context"] = {SILENT: True}
                one = record(test["stage"], node, time=state["submitted"], verdict="error", reason=reason, **more)
                self._tell(campaign, test, [one], reason)

    def _tell(self, campaign: Campaign, test: Json, found: list[Json], reason: str = "") -> None:
        stamped = stamp(test["id"], found)
        self.records += stamped
        campaign.take(test["id"], stamped, reason)

    def _save(self, batch: Json, state: Json) -> None:
        self.journal.write("journal", batch["id"], {key: value for key, value in state.items() if key != "taken"})

    def _attempt(self, campaign: Campaign, batch: Json, state: Json, left: list[Json]) -> None:
        ids = {test["id"] for test in left}
        jobs = [Job(*job) for job in state["jobs"]] if state.get("open") else []
        if not ids & {test["id"] for job in jobs for test in job.tests}:
            state["attempt"] += 1
            sizes = {name: self.how[name] for name in ("array", "allocation")}
            sizes["stragglers"] = STRAGGLERS
            jobs = batches.jobs(self.request["run"], batch, left, state["attempt"], sizes)
            # The first time stays: what an earlier attempt did may come late, and is no sign of a clock that is slow.
            state.update(open=True, jobs=jobs, submitted=state.get("submitted", self.clock.wall()))
            self._save(batch, state)
        self._submit(batch, jobs)
        silent = state.setdefault("silent", [])
        earlier = Earlier(self.took, state["attempt"] > 1 and len(silent) < len(batch["tests"]), silent)
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

    def _submit(self, batch: Json, jobs: t.Sequence[Job]) -> None:
        """Submit what Slurm does not have; whoever was killed right after sbatch left jobs that have these names."""
        begin = self.clock.now()
        while True:
            try:
                begun = self.journal.read("jobs", jobs[0].name) is not None
                names = {job.name for job in jobs}
                there = {row.name: row.job_id for row in self.slurm.queue(names)} if begun else {}
                done = self.journal.answered() if begun else set()
                last: int | None = None
                for job in jobs:
                    if {test["id"] for test in job.tests} <= done:
                        continue  # Slurm has it no more: it ended while nobody led
                    sent = self.journal.read("jobs", f"{job.name}.sent") or there.get(job.name)
                    last = sent or self._send(batch, job, last)
                return
            except SlurmError as exc:
                if isinstance(exc, RefusedError) or self.clock.now() - begin > _AWAY:
                    raise
                self.clock.sleep(5.0)

    def _send(self, batch: Json, job: Job, after: int | None) -> int:
        agent = self.how["agent_path"]
        file = self.journal.write("jobs", job.name, batches.content(job, batch, self.request, str(self.journal.folder)))
        replace(file.with_suffix(".gate"), HOLD if job.kind == "array" else OPEN)
        script = file.with_suffix(".sh")
        replace(script, batches.script(job, self.how, agent, str(file)))
        mine = set(job.nodes)
        others = [name for name in self.known if name not in mine] if job.kind == "array" else []
        log = str(self.journal.folder / "logs" / f"{job.name}-%{'A_%a' if job.kind == 'array' else 'j'}.log")
        limit = batches.seconds(job, batch, self.how)
        number = self.slurm.submit(batches.arguments(job, self.how, others, limit, log, after), script)
        self.journal.write("jobs", f"{job.name}.sent", number)
        return number

    def _clocks(self, test: Json, found: t.Sequence[Json], state: Json) -> list[Json]:
        """Judge a node's clock by ours: what it did lies between the job's submission and the first sight of it."""
        one = next((item for item in found if item["check"] == "reach"), None)
        moment = finite(one.get("time")) if one else None
        if one is None or moment is None or test["stage"] != "reach":
            return []
        off = max(0.0, state["submitted"] - moment, moment - state["seen"][test["id"]])
        told = [one for one in self.request["fleet"]["profile"].get("expect") or [] if one["check"] == "clock_skew"]
        expect = told or [one for one in BUILT_IN if one["check"] == "clock_skew"]
        metrics = judge("clock_skew", [metric("skew", off, "s")], expect)
        about = {"tool": "certification", "how": "outside of the time from the job's submission to its result"}
        context = {**about, "physical_host": (one.get("context") or {}).get("physical_host", "")}
        rest: Json = {"metrics": metrics, "blame": "config", "run": self.request["run"], "context": context}
        return [record("clock_skew", test["nodes"][0], time=moment, **rest)]
