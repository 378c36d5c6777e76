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
    options = parser.parse_args(argv)
    try:
        config = check.load(options.config)
        if options.clear:
            return clear(config, options.clear)
        state, problem = agent_state.load(config.home, config.node, host(config.proc))
    except (check.ConfigError, OSError) as exc:
        sys.stderr.write(f"hpcai-agent latch: {exc}\n")
        return 1
    if problem:
        sys.stderr.write(f"hpcai-agent latch: {agent_state.state_path(config.home)}: {problem}\n")
    for key, fault in sorted(state["latched"].items()):
        sys.stdout.write(f"{json.dumps({'key': key, 'time': fault['time'], 'reason': fault['reason']})}\n")
    return 1 if problem else 0


def clear(config: check.AgentConfig, key: str) -> int:
    """Remove one latched fault or all of them from the state; return 1 where it is not latched."""
    with agent_state.locked(config.home):
        state, dummy = agent_state.load(config.home, config.node, host(config.proc))
        if key not in (ALL, *state["latched"]):
            sys.stderr.write(f"hpcai-agent latch: {key!r} is not latched\n")
            return 1
        gone = state["latched"] if key == ALL else {key: state["latched"][key]}
        left = {name: entry for name, entry in state["latched"].items() if name not in gone}
        kept = agent_state.forgiven(state["kept"], gone, time.time())
        # Else letters to the controller would have it until every suite has run again.
        suites = {
            name: {**entry, "records": _without(entry["records"], key)} for name, entry in state["suites"].items()
        }
        agent_state.store(config.home, {**state, "latched": left, "suites": suites, "kept": kept})
    return 0


def _without(records: list[Json], key: str) -> list[Json]:
    return [
        entry for entry in records if not (entry["context"].get("latched") and key in (ALL, agent_state.key(entry)))
    ]


# hpcai-agent publish: write this node's letter into the shared mailbox, for the reconciler. Private, stdlib only.


SCHEMA = 1
LIMIT = 20.0
# Seconds after which a letter is written again although nothing in it is new.
OLD = 420.0
LOCK = "publish.lock"


def publish_command(argv: t.Sequence[str]) -> int:
    """Publish and return 0, or print why not and return 1."""
    parser = argparse.ArgumentParser(prog="hpcai-agent publish")
    parser.add_argument("--config", default=check.PATH)
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds after which it has ended")
    options = parser.parse_args(argv)
    try:
        config = check.load(options.config)
    except check.ConfigError as exc:
        return _failed(str(exc))
    if not config.mailbox:
        return _failed("mailbox is not set")
    with contextlib.suppress(OSError):  # only root can have it, and only root needs it
        agent_state.private(Path(config.home, LOCK))
        file = Path(config.home, LOCK).open("a")  # noqa: SIM115 - the child holds it as long as it hangs
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return _failed(f"an earlier one still waits for {config.mailbox}")
    problem = runner.bounded(lambda say: publish(config), options.limit)
    return _failed(f"{config.mailbox}: {problem}") if problem else 0


def _failed(problem: str) -> int:
    sys.stderr.write(f"hpcai-agent publish: {problem}\n")
    return 1


def publish(config: check.AgentConfig) -> None:
    """Read the state, become the mailbox's owner, and write the letter; runs in a child."""
    state, problem = agent_state.load(config.home, config.node, host(config.proc))
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _trusted

    letter = compose(state, time.time(), problem)
    become(config.mailbox_user)
    _trusted.check(config.mailbox, _trusted.trusted_users())
    path = Path(config.mailbox, f"{config.node}.json")
    with contextlib.suppress(OSError, ValueError):
        if not due(json.loads(path.read_bytes()), letter):
            return
    for left in path.parent.glob(f".{path.name}.*"):  # of one that was killed; with the lock nobody else writes it
        left.unlink()
    agent_state.write(path, json.dumps(letter))


def become(user: str) -> None:
    """Become the owner of the mailbox, as a file server does not trust this node's root."""
    if user and os.geteuid() == 0:
        import pwd

        entry = pwd.getpwnam(user)
        os.initgroups(user, entry.pw_gid)
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)


def compose(state: Json, moment: float, problem: str = "") -> Json:
    """Return the letter: records of the latest run of each suite that did not pass, and latched ones."""
    runs = state["suites"].values()
    latched = list(state["latched"].values())
    seen = [record for run in runs for record in run["records"]]
    news = [record for record in seen if record["verdict"] not in ("pass", "skipped") and record not in latched]
    about = {name: state[name] for name in ("node", "boot_id", "physical_host")}
    return {
        "schema": SCHEMA,
        **about,
        "time": moment,
        "suites": {name: run["time"] for name, run in state["suites"].items()},
        "records": [*latched, *news],
        "counts": dict(collections.Counter(record["verdict"] for record in seen)),
        "problem": problem,
    }


def due(before: t.Any, letter: Json) -> bool:
    """Return whether the letter has news, or the one in the mailbox is old."""
    moment = finite(before.get("time")) if isinstance(before, dict) else None
    if moment is None:
        return True
    return not 0 <= letter["time"] - moment < OLD or _news(before) != _news(letter)


def _news(letter: Json) -> t.Any:
    """Return the parts of a letter that make it new; times and numbers differ each time, and are left out."""
    records = letter.get("records")
    known = [record for record in records if isinstance(record, dict)] if isinstance(records, list) else []
    findings = sorted(str([record.get(name) for name in ("check", "verdict", "class", "scope")]) for record in known)
    return [letter.get(name) for name in ("boot_id", "physical_host", "problem")], findings
