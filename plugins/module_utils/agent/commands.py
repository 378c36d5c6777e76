# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The subcommands latch and publish of hpcai-agent. Standard library only."""

from __future__ import annotations

import argparse
import collections
import contextlib
import fcntl
import json
import os
import sys
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, finite
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import check, runner
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import state as agent_state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.state import host

# hpcai-agent latch: show what is latched in this boot, or clear what a repair without a boot has proven.


ALL = "all"


def latch_command(argv: t.Sequence[str]) -> int:
    """Show or clear; 1 if what is to be cleared is not latched."""
    parser = argparse.ArgumentParser(prog="hpcai-agent latch")
    parser.add_argument("--config", default=check.PATH)
    parser.add_argument("--clear", metavar="KEY", help=f"a key as shown, or {ALL}")
    asked = parser.parse_args(argv)
    try:
        found = check.load(asked.config)
        if asked.clear:
            return clear(found, asked.clear)
        state, problem = agent_state.load(found.home, found.node, host(found.proc))
    except (check.ConfigError, OSError) as exc:
        sys.stderr.write(f"hpcai-agent latch: {exc}\n")
        return 1
    if problem:
        sys.stderr.write(f"hpcai-agent latch: {agent_state.state_path(found.home)}: {problem}\n")
    for key, one in sorted(state["latched"].items()):
        sys.stdout.write(f"{json.dumps({'key': key, 'time': one['time'], 'reason': one['reason']})}\n")
    return 1 if problem else 0


def clear(found: check.AgentConfig, key: str) -> int:
    """Forget one latched fault or all of them."""
    with agent_state.locked(found.home):
        state, dummy = agent_state.load(found.home, found.node, host(found.proc))
        if key not in (ALL, *state["latched"]):
            sys.stderr.write(f"hpcai-agent latch: {key!r} is not latched\n")
            return 1
        gone = state["latched"] if key == ALL else {key: state["latched"][key]}
        left = {name: one for name, one in state["latched"].items() if name not in gone}
        kept = agent_state.forgiven(state["kept"], gone, time.time())
        # Else the controller would be told of it until every suite has run again.
        suites = {name: {**one, "records": _without(one["records"], key)} for name, one in state["suites"].items()}
        agent_state.write(
            agent_state.state_path(found.home), json.dumps({**state, "latched": left, "suites": suites, "kept": kept})
        )
    return 0


def _without(records: list[Json], key: str) -> list[Json]:
    return [one for one in records if not (one["context"].get("latched") and key in (ALL, agent_state.key(one)))]


# hpcai-agent publish: put what this node found into the shared mailbox, for the reconciler. Private, stdlib only.


SCHEMA = 1
LIMIT = 20.0
# A node that says nothing new says so this often, in seconds.
OLD = 420.0
LOCK = "publish.lock"


def publish_command(argv: t.Sequence[str]) -> int:
    """Publish and return 0, or say what kept it."""
    parser = argparse.ArgumentParser(prog="hpcai-agent publish")
    parser.add_argument("--config", default=check.PATH)
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds after which it has ended")
    asked = parser.parse_args(argv)
    try:
        found = check.load(asked.config)
    except check.ConfigError as exc:
        return _told(str(exc))
    if not found.mailbox:
        return _told("mailbox is not set")
    with contextlib.suppress(OSError):  # only root can have it, and only root is asked to
        agent_state.private(Path(found.home, LOCK))
        file = Path(found.home, LOCK).open("a")  # noqa: SIM115 - the child holds it as long as it hangs
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return _told(f"an earlier one still waits for {found.mailbox}")
    problem = runner.bounded(lambda say: publish(found), asked.limit)
    return _told(f"{found.mailbox}: {problem}") if problem else 0


def _told(problem: str) -> int:
    sys.stderr.write(f"hpcai-agent publish: {problem}\n")
    return 1


def publish(found: check.AgentConfig) -> None:
    """Be the child: read the state, become the mailbox's owner, write."""
    state, problem = agent_state.load(found.home, found.node, host(found.proc))
    letter = compose(state, time.time(), problem)
    _become(found.mailbox_user)
    path = Path(found.mailbox, f"{found.node}.json")
    with contextlib.suppress(OSError, ValueError):
        if not due(json.loads(path.read_bytes()), letter):
            return
    for left in path.parent.glob(f".{path.name}.*"):  # of one that was killed; with the lock nobody else writes it
        left.unlink()
    agent_state.write(path, json.dumps(letter), 0o600)


def _become(user: str) -> None:
    """A server of files does not know this node's root."""
    if user and os.geteuid() == 0:
        import pwd

        entry = pwd.getpwnam(user)
        os.initgroups(user, entry.pw_gid)
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)


def compose(state: Json, moment: float, problem: str = "") -> Json:
    """Return the letter: what did not pass in the latest run of each suite, and what is latched."""
    runs = state["suites"].values()
    latched = list(state["latched"].values())
    seen = [one for run in runs for one in run["records"]]
    told = [one for one in seen if one["verdict"] not in ("pass", "skipped") and one not in latched]
    about = {name: state[name] for name in ("node", "boot_id", "physical_host")}
    return {
        "schema": SCHEMA,
        **about,
        "time": moment,
        "suites": {name: run["time"] for name, run in state["suites"].items()},
        "records": [*latched, *told],
        "counts": dict(collections.Counter(one["verdict"] for one in seen)),
        "problem": problem,
    }


def due(before: t.Any, letter: Json) -> bool:
    """Return whether the letter says something new, or the one that lies there is old."""
    moment = finite(before.get("time")) if isinstance(before, dict) else None
    if moment is None:
        return True
    return not 0 <= letter["time"] - moment < OLD or _news(before) != _news(letter)


def _news(letter: Json) -> t.Any:
    """Leave out what differs every time: a finding is the same one a minute later."""
    records = letter.get("records")
    told = [one for one in records if isinstance(one, dict)] if isinstance(records, list) else []
    findings = sorted(str([one.get(name) for name in ("check", "verdict", "class", "scope")]) for one in told)
    return [letter.get(name) for name in ("boot_id", "physical_host", "problem")], findings
