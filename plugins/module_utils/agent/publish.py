# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""hpcai-agent publish: put what this node found into the shared mailbox, for the reconciler. Private, stdlib only.

The share may hang, and nothing may hang with it: all that touches it is a child, and while one hangs no other begins.
"""

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

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import Json, finite
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import config, spool, watchdog
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.host import host

SCHEMA = 1
LIMIT = 20.0
# A node that says nothing new says so this often, in seconds.
OLD = 420.0
LOCK = "publish.lock"


def main(argv: t.Sequence[str]) -> int:
    """Publish and return 0, or say what kept it."""
    parser = argparse.ArgumentParser(prog="hpcai-agent publish")
    parser.add_argument("--config", default=config.PATH)
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds after which it has ended")
    asked = parser.parse_args(argv)
    try:
        found = config.load(asked.config)
    except config.ConfigError as exc:
        return _told(str(exc))
    if not found.mailbox:
        return _told("mailbox is not set")
    with contextlib.suppress(OSError):  # only root can have it, and only root is asked to
        spool.private(Path(found.home, LOCK))
        file = Path(found.home, LOCK).open("a")  # noqa: SIM115 - the child holds it as long as it hangs
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return _told(f"an earlier one still waits for {found.mailbox}")
    problem = watchdog.bounded(lambda say: publish(found), asked.limit)
    return _told(f"{found.mailbox}: {problem}") if problem else 0


def _told(problem: str) -> int:
    sys.stderr.write(f"hpcai-agent publish: {problem}\n")
    return 1


def publish(found: config.Config) -> None:
    """Be the child: read the state, become the mailbox's owner, write."""
    state, problem = spool.load(found.home, found.node, host(found.proc))
    letter = compose(state, time.time(), problem)
    _become(found.mailbox_user)
    path = Path(found.mailbox, f"{found.node}.json")
    with contextlib.suppress(OSError, ValueError):
        if not due(json.loads(path.read_bytes()), letter):
            return
    for left in path.parent.glob(f".{path.name}.*"):  # of one that was killed; with the lock nobody else writes it
        left.unlink()
    spool.write(path, json.dumps(letter), 0o600)


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
