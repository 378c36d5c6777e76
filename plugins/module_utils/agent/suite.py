# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""hpcai-agent suite NAME: run checks, each of which may hang, within a time that does not depend on them. Private."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import check, registry, runner
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import SUITES, Context
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.runner import SuiteResult, SuiteRun, perform

# Part of what the runner keeps of the budget.
SAVING = 0.35
# How long a disk may take to write the state if there is time: while a job waits, and else.
PATIENCE, LONGEST = 1.0, 5.0
FAILED, BROKEN, HELD = 1, 2, 3
# How long a node with a fault waits for the permit to drain itself.
WAIT = 1.0
LOCK = "permit.lock"
# Where a fault takes the node from its jobs.
DRAINING = ("boot", *check.AROUND_JOBS)


def main(argv: t.Sequence[str]) -> int:
    """Run a suite and return the exit status for Slurm.

    1 is a fault that jobs would suffer from, 2 a broken agent, 3 a fault of a node that must not drain itself now.
    """
    parser = argparse.ArgumentParser(prog="hpcai-agent suite")
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--config", default=check.PATH)
    parser.add_argument("--json", action="store_true", help="print every record as a line of JSON")
    parser.add_argument("--check", action="append", default=[], help="run this check instead of the suite's own")
    parser.add_argument("--budget", type=float, help="seconds after which the suite has ended")
    parser.add_argument("--run", help="the name of the run, for the records")
    options = parser.parse_args(argv)
    try:
        results = records(options.config, options.suite, options.budget, options.run, options.check)
    except check.ConfigError as exc:
        return _broken(options, str(exc))
    except Exception as exc:  # no process left, no memory: the agent's trouble, not the node's
        return _broken(options, f"{type(exc).__name__}: {exc}")
    code = status(options.suite, results)
    refusal = refused(check.load(options.config)) if code == FAILED and options.suite in check.AROUND_JOBS else ""
    if refusal:
        reason = f"this node has a fault and does not drain itself, which is left to the reconciler: {refusal}"
        node = results[0]["node"]
        results.append(record("self_drain", node, time=time.time(), verdict="error", reason=reason, run=options.run))
        code = HELD
    show(results, options.json)
    return code


def refused(config: check.AgentConfig) -> str:
    """Return why this node must not drain itself, empty where it may; without a mailbox nobody counts, and it may.

    The share may hang: a child waits for it, not for long, and no second one beside it.
    """
    if not config.mailbox:
        return ""
    import fcntl
    from pathlib import Path

    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import commands
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import state as agent_state
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain import permits

    def work(say: runner.Say) -> None:
        commands.become(config.mailbox_user)
        permits.take(config.mailbox, config.node)

    try:
        path = Path(config.home, LOCK)
        agent_state.private(path)
        with path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            problem = runner.bounded(work, WAIT)
    except BlockingIOError:
        return f"an earlier one still waits for {config.mailbox}"
    except OSError as exc:
        return f"{config.home}: {exc.strerror or exc}"
    return problem.replace("DrainError: ", "", 1)


def records(path: str, suite: str, budget: float | None, run: str | None, only: t.Sequence[str] = ()) -> list[Json]:
    """Run a suite and return its records; raises ConfigError, or OSError where no process can be started."""
    begin, config = time.monotonic(), check.load(path)
    return _all(SuiteRun(config, suite, registry.plan(config, suite, only, budget), begin, run))


def _all(run: SuiteRun) -> list[Json]:
    """Run, save and return the records."""
    result = perform(run)
    problem = _save(run, result)
    if not problem:
        return result.records
    about = Context(run.config, run.suite, host=result.host, run=run.name)
    return [*result.records, about.record("spool", verdict="error", reason=problem)]


def _broken(options: argparse.Namespace, reason: str) -> int:
    """Print an error record; around jobs the exit status is 0, as a broken agent must not drain the whole fleet."""
    error = record("agent", None, time=time.time(), verdict="error", reason=reason, run=options.run)
    show([error], options.json)
    return 0 if options.suite in check.AROUND_JOBS else BROKEN


def _save(run: SuiteRun, result: SuiteResult) -> str:
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import state as agent_state

    def work(say: runner.Say) -> None:
        folders = agent_state.StateFolders(run.config.home, run.config.spool)
        agent_state.save(folders, run.config.node, result.host, run.suite, result.records, result.kept)

    left = min(run.deadline + SAVING - time.monotonic(), PATIENCE if run.suite in check.AROUND_JOBS else LONGEST)
    return runner.bounded(work, max(SAVING, left))


def status(suite: str, records: t.Sequence[Json]) -> int:
    """Return the exit status: a fault of the node itself takes it from its jobs, nothing else does.

    Around jobs a fault of the fabric does not: one dead subnet manager would drain node after node, past the guard
    of the reconciler, which sees how many say the same.
    """
    to_blame = ("hardware", "fabric") if suite == "boot" else ("hardware",)
    faults = [record for record in records if record["verdict"] == "fail" and record["class"] in to_blame]
    return FAILED if faults and suite in DRAINING else 0


def show(records: t.Sequence[Json], as_json: bool) -> None:
    """Print all records as JSON, or for people those that are neither pass nor skipped."""
    if as_json:
        lines = [json.dumps(record) for record in records]
    else:
        notable = [record for record in records if record["verdict"] not in ("pass", "skipped")]
        lines = [f"{record['verdict']} {record['check']} ({record['class']}): {record['reason']}" for record in notable]
        lines.append(f"{len(records)} records, {len(notable)} of them neither pass nor skipped")
    text = "".join(f"{line}\n" for line in lines).encode("ascii", "backslashreplace").decode()
    with contextlib.suppress(OSError):
        sys.stdout.write(text)
