# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks of a suite, one after the other in a child; where one hangs another child goes on. Private."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import checks, config, latch, watchdog
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Context, Host

# What is kept of the budget: starting Python before it, killing what hangs and writing the state after it.
MARGIN = 0.7
# Reading the state takes milliseconds; a disk that takes longer must not cost all checks their time, but a busy machine
# may take longer where there is time: this, or its share of the budget.
SETUP, SHARE = 0.4, 0.02


class Run(t.NamedTuple):
    """A suite as it is asked for; ``begin`` is on the monotonic clock."""

    config: config.Config
    suite: str
    plan: checks.Plan
    begin: float
    name: str | None = None

    @property
    def deadline(self) -> float:
        return self.begin + self.plan.budget - MARGIN


class Result(t.NamedTuple):
    """What a suite found, what its checks want to keep, and where."""

    records: list[Json]
    kept: Json
    host: Host


def perform(run: Run) -> Result:
    """Run all checks; each leaves its records, or errors in their place."""
    result, ahead, blind = Result([], {}, Host()), list(run.plan.checks), ""
    while ahead:
        if time.monotonic() >= run.deadline:
            for name in ahead:
                result.records.extend(errors(run, name, f"not finished within {run.plan.budget:g} s", result.host))
            break
        turn = _Turn(run, result, ahead, blind)
        result = turn.go()
        if ahead and not turn.ready and not blind:
            blind = f"reading it: {turn.reason}"
        elif ahead:
            result.records.extend(errors(run, ahead.pop(0), turn.reason, result.host))
    return result._replace(records=once(result.records))


class _Turn:
    """What one child does of what is ahead; it takes away what it has done."""

    def __init__(self, run: Run, result: Result, ahead: list[str], blind: str) -> None:
        self.ready, self.reason = False, "ended unexpectedly"
        self._run, self._result, self._ahead, self._blind = run, result, ahead, blind

    def go(self) -> Result:
        child = watchdog.Child(lambda say: _work(self._run, list(self._ahead), self._blind, say))
        began = time.monotonic()
        try:
            while self._ahead:
                limit = self._limit()
                said = child.listen(began + limit)
                if not said:
                    self.reason = self.reason if said is None else f"not finished within {limit:.3g} s"
                    break
                ends = [self._hear(one) for one in said]
                if True in ends:
                    began = time.monotonic()
        finally:
            child.end()
        return self._result

    def _limit(self) -> float:
        own = checks.CHECKS[self._ahead[0]].limit if self.ready else max(SETUP, SHARE * self._run.plan.budget)
        return max(0.0, min(own, self._run.deadline - time.monotonic()))

    def _hear(self, one: Json) -> bool:
        """Take in what the child says and return whether something has come to its end."""
        if "died" in one:
            self.reason = str(one["died"])
        elif "host" in one:
            self._result = self._result._replace(host=Host(*one["host"]))
        elif "ready" in one:
            self.ready = True
            return True
        elif self._ahead and one.get("end") == self._ahead[0]:
            self._result.records.extend(trusted(self._run, self._ahead.pop(0), one.get("records"), self._result.host))
            self._result.kept.update(one.get("keep") or {})
            return True
        return False


def _work(run: Run, names: t.Sequence[str], blind: str, say: watchdog.Say) -> None:
    """Be the child: look where we are, and run check after check."""
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import host, spool

    here = host.host(run.config.proc)
    say({"host": list(here)})
    node = run.config.node
    state, problem = (latch.fresh(node, here), blind) if blind else spool.load(run.config.home, node, here)
    say({"ready": True})
    context = Context(run.config, run.suite, host=here, state=state, run=run.name, problem=problem)
    for name in names:
        found = checks.perform(name, context)
        say({"end": name, "records": found, "keep": context.keeping})
        context.state["kept"] = {**context.state["kept"], **context.keeping}
        context.keeping = {}


def trusted(run: Run, name: str, records: t.Any, host: Host) -> list[Json]:
    """A check that returns something else than records has not passed."""
    if isinstance(records, list) and records and all(latch.sound(one) for one in records):
        return records
    return errors(run, name, "the check returned no records", host)


def errors(run: Run, name: str, reason: str, host: Host) -> list[Json]:
    return checks.errors(name, Context(run.config, run.suite, host=host, run=run.name), reason)


def once(records: t.Sequence[Json]) -> list[Json]:
    """Return every latched fault once, however many checks told of it; the first report is the one of the latch."""
    seen: dict[str, Json] = {}
    for number, one in enumerate(records):
        seen.setdefault(latch.key(one) if one["context"].get("latched") else str(number), one)
    return list(seen.values())
