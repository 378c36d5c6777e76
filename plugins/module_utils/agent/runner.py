# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the checks of a suite in child processes: one that hangs is left behind and the next goes on."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import check, registry
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import state as agent_state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import BootedHost, Context

# Work in child processes that may hang for ever.


Say = t.Callable[[Json], None]
_LARGEST = 16 << 20


class Child:
    """A child process that runs a function and sends JSON values, one a line."""

    def __init__(self, work: t.Callable[[Say], None]) -> None:
        reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reader)
            _live(work, writer)
        os.close(writer)
        self._reader, self._rest, self._size = reader, b"", 0
        os.set_blocking(reader, False)

    def listen(self, deadline: float) -> list[Json] | None:
        """Return the next values from the child, None when it has ended, an empty list when the time is over."""
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._reader], [], [], left)[0]:
                return []
            data = os.read(self._reader, 65536)
            self._size += len(data)
            if not data or self._size > _LARGEST:
                return None
            *lines, self._rest = (self._rest + data).split(b"\n")
            if lines:
                return [value for value in map(_value, lines) if value is not None]

    def end(self) -> None:
        """Kill the child and all that it started, and wait for it only as long as a process needs to die."""
        os.close(self._reader)
        if self._ended(0.02):
            return
        for pid in (self.pid, *descendants(self.pid)):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self._ended(0.1)

    def _ended(self, patience: float) -> bool:
        deadline = time.monotonic() + patience
        while True:
            try:
                if os.waitpid(self.pid, os.WNOHANG)[0]:
                    return True
            except ChildProcessError:
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.002)


def _value(line: bytes) -> Json | None:
    """Read a line; Infinity and NaN are none of JSON's numbers, and nobody else could read them."""
    try:
        value = json.loads(line, parse_constant=lambda dummy: None)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _live(work: t.Callable[[Say], None], writer: int) -> t.NoReturn:
    """Be the child, without our standard files: whoever reads our output must not wait for a child that hangs."""
    status = 1
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        work(lambda value: _write(writer, value))
        status = 0
    except BaseException as exc:  # whatever it is ends here and nowhere else
        with contextlib.suppress(OSError):
            _write(writer, {"died": f"{type(exc).__name__}: {exc}"})
    os._exit(status)


def _write(writer: int, value: Json) -> None:
    data = f"{json.dumps(value, default=str)}\n".encode()
    while data:
        data = data[os.write(writer, data) :]


def descendants(pid: int) -> list[int]:
    """Return the processes that a process started, and those that they did, in sessions of their own as well."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - without pathlib this module is imported in no time
        if name.isdigit():
            children.setdefault(_parent(name), []).append(int(name))
    started, ahead = [], [pid]
    while ahead:
        below = children.get(ahead.pop(), [])
        started += below
        ahead += below
    return started


def _parent(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return -1


def bounded(work: t.Callable[[Say], None], seconds: float) -> str:
    """Run a function in a child and return what went wrong, or that it is not finished in time."""
    deadline = time.monotonic() + seconds
    child, problem = Child(work), ""
    try:
        while True:
            values = child.listen(deadline)
            if values is None:
                return problem
            if not values:
                return f"not finished within {seconds:.3g} s"
            problem = next((str(value["died"]) for value in values if "died" in value), problem)
    finally:
        child.end()


# The checks of a suite, one after the other in a child; where one hangs another child goes on.


# What is kept of the budget: starting Python before it, killing what hangs and writing the state after it.
MARGIN = 0.7
# Reading the state takes milliseconds; a disk that takes longer must not cost all checks their time, but a busy machine
# may take longer where there is time: this, or its share of the budget.
SETUP, SHARE = 0.4, 0.02


class SuiteRun(t.NamedTuple):
    """The request to run a suite; ``begin`` is on the monotonic clock."""

    config: check.AgentConfig
    suite: str
    plan: registry.SuitePlan
    begin: float
    name: str | None = None

    @property
    def deadline(self) -> float:
        return self.begin + self.plan.budget - MARGIN


class SuiteResult(t.NamedTuple):
    """The records of a suite, what its checks keep for the next run, and the host that it ran on."""

    records: list[Json]
    kept: Json
    host: BootedHost


def perform(run: SuiteRun) -> SuiteResult:
    """Run all checks; each leaves its records, or errors in their place."""
    result, ahead, blind = SuiteResult([], {}, BootedHost()), list(run.plan.checks), ""
    while ahead:
        if time.monotonic() >= run.deadline:
            for name in ahead:
                result.records.extend(errors(run, name, f"not finished within {run.plan.budget:g} s", result.host))
            break
        child_pass = _ChildPass(run, result, ahead, blind)
        result = child_pass.go()
        if ahead and not child_pass.ready and not blind:
            blind = f"reading it: {child_pass.reason}"
        elif ahead:
            result.records.extend(errors(run, ahead.pop(0), child_pass.reason, result.host))
    return result._replace(records=once(result.records))


def crowd() -> float:
    """Return how many processes want to run for each CPU, 1 at least: everything takes so much longer on such a node.

    A limit is for a node that has a CPU for the check: one that boots, or runs more than it should, is slow and does
    not hang. Around jobs, where somebody waits, the limits stay.
    """
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


class _ChildPass:
    """One child and the checks that are left; those that it has done are removed from the list."""

    def __init__(self, run: SuiteRun, result: SuiteResult, ahead: list[str], blind: str) -> None:
        self.ready, self.reason = False, "ended unexpectedly"
        self._run, self._result, self._ahead, self._blind = run, result, ahead, blind

    def go(self) -> SuiteResult:
        """Perform the checks in order, each within its limit, and return what came of them."""
        child = Child(lambda say: _work(self._run, list(self._ahead), self._blind, say))
        began = time.monotonic()
        try:
            while self._ahead:
                limit = self._limit()
                values = child.listen(began + limit)
                if not values:
                    self.reason = self.reason if values is None else f"not finished within {limit:.3g} s"
                    break
                ends = [self._receive(value) for value in values]
                if True in ends:
                    began = time.monotonic()
        finally:
            child.end()
        return self._result

    def _limit(self) -> float:
        own = registry.CHECKS[self._ahead[0]].limit if self.ready else max(SETUP, SHARE * self._run.plan.budget)
        own *= 1 if self._run.suite in check.AROUND_JOBS else crowd()
        return max(0.0, min(own, self._run.deadline - time.monotonic()))

    def _receive(self, value: Json) -> bool:
        """Take in one value from the child; return whether a step has ended with it."""
        if "died" in value:
            self.reason = str(value["died"])
        elif "host" in value:
            self._result = self._result._replace(host=BootedHost(*value["host"]))
        elif "ready" in value:
            self.ready = True
            return True
        elif self._ahead and value.get("end") == self._ahead[0]:
            self._result.records.extend(trusted(self._run, self._ahead.pop(0), value.get("records"), self._result.host))
            self._result.kept.update(value.get("keep") or {})
            return True
        return False


def _work(run: SuiteRun, names: t.Sequence[str], blind: str, say: Say) -> None:
    """Be the child: find out the host, read the state, and run check after check."""
    here = agent_state.host(run.config.proc)
    say({"host": list(here)})
    node = run.config.node
    state, problem = (agent_state.fresh(node, here), blind) if blind else agent_state.load(run.config.home, node, here)
    say({"ready": True})
    context = Context(run.config, run.suite, host=here, state=state, run=run.name, problem=problem)
    for name in names:
        records = registry.perform(name, context)
        say({"end": name, "records": records, "keep": context.keeping})
        context.state["kept"] = {**context.state["kept"], **context.keeping}
        context.keeping = {}


def trusted(run: SuiteRun, name: str, records: t.Any, host: BootedHost) -> list[Json]:
    """Return the records of a check, or errors where it returned something else."""
    if isinstance(records, list) and records and all(agent_state.sound(record) for record in records):
        return records
    return errors(run, name, "the check returned no records", host)


def errors(run: SuiteRun, name: str, reason: str, host: BootedHost) -> list[Json]:
    return registry.errors(name, Context(run.config, run.suite, host=host, run=run.name), reason)


def once(records: t.Sequence[Json]) -> list[Json]:
    """Return every latched fault once, however many checks reported it; the first record is the one of the latch."""
    seen: dict[str, Json] = {}
    for number, record in enumerate(records):
        seen.setdefault(agent_state.key(record) if record["context"].get("latched") else str(number), record)
    return list(seen.values())
