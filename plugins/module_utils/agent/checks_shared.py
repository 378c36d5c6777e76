# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent's checks of what nodes share: munge, clocks, directories; and the mailbox that tells them."""

from __future__ import annotations

import json
import os
import re
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _trusted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, finite, metric
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import node_access
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Context
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.limits import LimitFinding, report
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.node_access import ProbeResult, acting_as
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node.read import BrokenError, munge_status

# Checks of what a node shares with its cluster: the directory, the munge key, the time. Private, stdlib only.


# The key was right: it is looked at before the receiver, the time, and whether the credential was seen before.
_PROVED = ("Success", "Replayed", "Unauthorized")
_ENCODED = re.compile(r"^ENCODE_TIME:.*\((\d{1,12})\)\s*$", re.MULTILINE)
_KEY = "its munge key is not the controller's: run configure.yml, or copy /etc/munge/munge.key"


def shared_directory(context: Context) -> list[Json]:
    """Write, read and compare a file where all nodes write; without a mailbox only look at the directory."""
    config = context.config
    if not config.shared_dir and not config.mailbox:
        return [report(context, "shared_directory", LimitFinding(verdict="skipped", reason="no shared directory"))]
    if config.shared_dir:
        os.listdir(config.shared_dir)  # noqa: PTH208 - the answer does not matter, only that there is one
    if not config.mailbox:
        reason = f"{config.shared_dir} answers; nothing is written without a mailbox"
        return [report(context, "shared_directory", LimitFinding(verdict="pass", reason=reason))]
    done = share(context).probe
    metrics = [metric("seconds", done.seconds, "s")]
    verdict = "fail" if done.problem else "pass"
    # Whatever its server did wrong, no node's hardware is to blame for that.
    return [report(context, "shared_directory", LimitFinding(metrics, verdict, done.problem, "config"))]


def munge(context: Context) -> list[Json]:
    """Decode a credential of this node and one of the controller: only the cluster's key opens that."""
    return [report(context, "munge", _munge(context))]


def _munge(context: Context) -> LimitFinding:
    """Decode a credential of the node's own, and the controller's, which proves that both have one key."""
    ask = node_access.node_commands(context).ask
    made = ask(["munge", "-n"])
    if made.problem:
        return LimitFinding(verdict="fail", reason=f"munge: {made.problem}", blame="config")
    own = ask(["unmunge"], made.out)
    metrics = [metric("round_trip", made.seconds + own.seconds, "s")]
    status = _status(own)
    if not status.startswith("Success"):
        return LimitFinding(metrics, "fail", f"unmunge: {status}", "config")
    if not context.config.mailbox:
        return LimitFinding(metrics, None, "no mailbox is configured: only the node's own credential was decoded")
    letter = _letter(context)
    if isinstance(letter, str):
        return LimitFinding(metrics, "error", letter)
    foreign = ask(["unmunge"], letter.credential)
    status = _status(foreign)
    if status.startswith(_PROVED):
        return LimitFinding(metrics, "pass", evidence=f"controller's credential: {status}")
    if status.startswith("Expired") and letter.age > STALE / 3:
        return LimitFinding(metrics, "error", f"unmunge: {status}: the controller made it {letter.age:.0f} s ago")
    if status.startswith(("Expired", "Rewound")):
        return LimitFinding(metrics, "fail", f"unmunge: {status}: the clocks of node and controller differ", "config")
    invalid = status.startswith("Invalid")
    reason = f"unmunge: {status}; {_KEY}" if invalid else f"unmunge: {status}"
    return LimitFinding(metrics, "fail" if invalid else "error", reason, "config")


def _status(outcome: Outcome) -> str:
    """Return the status that unmunge gives a credential; of one that it does not open only standard error has it."""
    if outcome.out.strip():
        return munge_status(outcome.out)
    return outcome.problem.rpartition("unmunge: Error: ")[2]


def _letter(context: Context) -> Letter | str:
    """Return the controller's letter, or why it proves nothing."""
    try:
        shared = share(context)
    except (BrokenError, OSError) as exc:
        return str(exc)
    if shared.letter is None:
        return shared.problem
    if shared.letter.age > STALE:
        name = Path(context.config.mailbox, NAME)
        return f"{name} is {shared.letter.age:.0f} s old: the controller's reconciler does not run"
    return shared.letter


def clock_skew(context: Context) -> list[Json]:
    """Compare the clocks of node and controller by way of the file server's, which saw both of them write.

    What is not known is how fresh a time in the letter is; so the distance of the controller to the file server is
    taken from the moment in which the letter was written, that of this node from a directory that it just made.
    """
    if not context.config.mailbox:
        return [report(context, "clock_skew", LimitFinding(verdict="skipped", reason="no mailbox is configured"))]
    letter, done = _letter(context), share(context).probe
    if isinstance(letter, str) or done.skew is None:
        reason = letter if isinstance(letter, str) else done.problem or "the file server told no time"
        return [report(context, "clock_skew", LimitFinding(verdict="error", reason=reason))]
    skew = done.skew - (encoded(context, letter) - letter.written)
    evidence = f"node minus controller: {skew:.2f} s (node minus file server: {done.skew:.2f} s)"
    finding = LimitFinding([metric("skew", abs(skew), "s")], blame="config", evidence=evidence)
    return [report(context, "clock_skew", finding)]


def encoded(context: Context, letter: Letter) -> float:
    """Return when the controller made the letter: munge's own time cannot be forged, the other one is finer."""
    try:
        outcome = node_access.node_commands(context).ask(["unmunge"], letter.credential)
    except BrokenError:
        return letter.time
    match = _ENCODED.search(outcome.out)
    munge_time = float(match.group(1)) if match else letter.time
    return letter.time if abs(munge_time - letter.time) < 2 else munge_time


# What the controller left in the mailbox for the nodes: its time and a munge credential. Private, stdlib only.


NAME = "controller.json"
STALE = 900.0
_PROBE = 4096


class Letter(t.NamedTuple):
    """The file. ``time`` is the controller's clock, ``written`` the file server's at the same moment.

    ``age`` is told by the file server alone, so a wrong clock of this node does not make it wrong.
    """

    time: float
    credential: str
    written: float
    age: float


class Share(t.NamedTuple):
    """The probe of the shared directory, and the letter or why there is none."""

    probe: ProbeResult
    letter: Letter | None
    problem: str


def share(context: Context) -> Share:
    """Write a probe and read the letter, once for all checks of a suite."""
    return t.cast(Share, context.once("share", lambda: _share(context)))


def _share(context: Context) -> Share:
    config = context.config
    folder = Path(config.mailbox)
    with acting_as(config.mailbox_user):
        if not folder.is_dir():
            raise BrokenError(f"{folder} is not there: is {config.shared_dir or 'the shared directory'} mounted?")
        # Others could have every node fail, with a letter of another key or another time.
        if foreign := _trusted.distrust(str(folder), _trusted.trusted_users()):
            raise BrokenError(f"{folder} is not believed, as not only the controller could write there: {foreign}")
        done = node_access.probe(folder, _PROBE)
        try:
            return Share(done, _read_letter(folder / NAME, context.now() if done.served is None else done.served), "")
        except (OSError, ValueError) as exc:
            return Share(done, None, f"{folder / NAME}: {getattr(exc, 'strerror', None) or exc}")


def _read_letter(path: Path, now: float) -> Letter:
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if foreign := _trusted.foreign(status, _trusted.trusted_users()):
            raise ValueError(f"{foreign}, and is not the controller's")
        raw = json.loads(file.read(65536).decode())
    written = status.st_mtime
    time, credential = (raw.get("time"), raw.get("credential")) if isinstance(raw, dict) else (None, None)
    moment = finite(time)
    if moment is None or not isinstance(credential, str) or not credential.startswith("MUNGE:"):
        raise ValueError("a mapping with time and credential is needed")
    return Letter(moment, credential.strip(), written, now - written)
