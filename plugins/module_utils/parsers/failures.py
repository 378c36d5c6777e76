# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Failures that any program can show, the line that is the cause, and the log that parsers return."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field

# The words of the failures that `failures` knows.


class FailureRule(t.NamedTuple):
    """The literal is looked for first: most lines are done with then, at a tenth of the pattern's cost."""

    kind: str
    literal: str
    pattern: t.Pattern[str] | None


def _rules(*rows: tuple[str, ...]) -> list[FailureRule]:
    return [FailureRule(row[0], row[1], re.compile(row[2]) if len(row) > 2 else None) for row in rows]


# What the words inside a message of CUDA or NCCL stand for, in lower case; kind "?" below asks this table.
MEANING: t.Sequence[tuple[str, t.Sequence[str]]] = (
    ("hardware", ("uncorrectable", "hardware stack", "gpu is lost", "fallen off the bus", "nvlink error")),
    ("config", ("out of memory", "busy or unavailable", "invalid device", "no cuda-capable", "duplicate gpu")),
    ("config", ("invalid usage", "invalid argument", "shared memory", "dev/shm", "no space left", "cannot allocate")),
    ("fabric", ("unhandled system error", "network error", "net/", "ibv_", " ib ", "socket", "connect", "completion")),
)

# Peers of a broken rank say that a remote process exited: a consequence, whichever prefix it has.
_NOT_A_PEER = r"(?!.*remote process exited)"

FAILURES = _rules(
    ("?", "Test CUDA failure"),
    ("?", "Test NCCL failure", r"Test NCCL failure" + _NOT_A_PEER),
    ("?", " failure ", r"^(?!.*NCCL WARN).*\b(?:NCCL|Cuda|CUDA) failure " + _NOT_A_PEER),
    ("?", "CUDA error", r"\bCUDA error(?: at \S+ code=|: )"),
    ("?", "cuda", r"\bcuda[A-Z]\w+ returned \d+"),
    ("?", "CUDA_ERROR_"),
    ("hardware", "uncorrectable ECC error"),
    ("fabric", "NCCL WARN", r"[Gg]ot completion .*(?:error|status=)"),
    (
        "fabric",
        "NCCL WARN",
        r"async fatal event(?! on SRQ)|[Gg]ot async event ?: (?:CQ error|(?:invalid request )?local )",
    ),
    ("fabric", "communicator encountered a fatal error"),
    ("fabric", "NET/IB: ", r"NET/IB: (?:The error is fatal|Fatal error\. Detected)"),
    ("config", "NCCL WARN", r"Duplicate GPU detected|Error while creating shared memory|No space left"),
    ("infra", "Test timeout (", r"Test timeout \(\d+s\)"),
    ("infra", " did not end within "),
    ("hardware", "NVRM: Xid"),
    ("hardware", "fallen off the bus"),
    ("hardware", "GPU is lost"),
    ("software", "Driver/library version mismatch"),
    ("software", "NVIDIA-SMI has failed"),
    ("software", "error while loading shared libraries"),
    ("software", "symbol lookup error"),
    ("software", "' not found (required by"),
    ("software", "Exec format error"),
    ("infra", "unable to find the specified executable"),
    ("infra", "unable to launch the specified application"),
    ("infra", "execve(): ", r"No such file or directory"),
    ("infra", "execve(): ", r"Permission denied"),
    ("config", "invalid option"),
    ("config", "unrecognized option"),
    ("config", "requires an argument"),
    ("config", "not enough slots available"),
    ("config", "attempt to run as root"),
    ("config", "Invalid generic resource"),
    ("config", "srun: error: ", r"[Ii]nvalid (?:partition|account|qos)"),
    ("config", "Requested node configuration is not available"),
    ("config", "More processors requested than permitted"),
    ("infra", "ssh: connect to host"),
    ("infra", "ssh: Could not resolve"),
    ("infra", "Permission denied (", r"Permission denied \((?:publickey|password|keyboard|gssapi)"),
    ("infra", "Host key verification failed"),
    ("infra", "unable to reliably start"),
    ("infra", "has lost communication with"),
    ("infra", "srun: error: ", r"Unable to|Task launch for|[Ll]aunch failed|timed out"),
    ("config", "pyxis: ", r"pyxis: .*(?:failed|couldn't|error|No such)"),
    ("config", "[ERROR]", r"enroot\S*: \[ERROR\]"),
    ("infra", "DUE TO TIME LIMIT"),
    ("infra", "DUE TO PREEMPTION"),
    ("hardware", "DUE TO NODE FAILURE"),
    ("config", "kill", r"oom[-_]kill"),
    ("config", "emory: Kill", r"Out of [Mm]emory: Kill"),
    ("config", "Out Of Memory", r"tasks? [-\d,]+: Out Of Memory"),
    ("config", "Killed process ", r"Killed process \d+"),
    ("config", "Cannot allocate memory"),
    ("config", "No space left on device"),
    ("config", "Too many open files"),
    ("config", "Bus error"),
    ("software", "Segmentation fault"),
    ("software", "Illegal instruction"),
    ("software", "terminate called after throwing"),
    ("software", "stack smashing detected"),
    ("software", "double free or corruption"),
    ("software", "Floating point exception"),
    ("fabric", "Fatal error in ", r"Fatal error in (?:internal_|P)?MPI_"),
    ("fabric", "ransport retry count exceeded"),
    ("fabric", "RETRY EXCEEDED ERROR"),
)

CONSEQUENCES = _rules(
    # Or noise: profiles of remote shells name commands that not every host has.
    ("infra", "command not found"),
    ("infra", ": not found", r": \d+: \S+: not found$"),
    ("infra", "No such file or directory", r"^\S*(?:sh|env|timeout|numactl|taskset): "),
    ("fabric", "remote process exited"),
    ("software", "MPI_ABORT was invoked"),
    ("software", "xited with exit code ", r"xited with exit code [1-9]"),
    ("software", "exited with non-zero status"),
    ("software", "exited on signal "),
    ("software", "BAD TERMINATION OF ONE"),
    ("software", "TERMINATED WITH THE EXIT STRING"),
    ("software", "one or more processes exited"),
    ("software", "Test failure ", r"Test failure \S+:\d+"),
    ("software", "*** Process received signal"),
    ("software", "srun: error: ", r"tasks? [-\d,\[\]]+: (?:Killed|Terminated|Aborted)"),
    ("software", "Job step aborted"),
    ("software", "CANCELLED AT"),
    ("software", "Aborted", r"\bAborted(?: \(core dumped\))?$"),
    ("software", "Abort(", r"^Abort\(\d+\) on node"),
    ("software", "Killed", r"(?:^|[\d:] +)Killed\b"),
)

# What adapters report to NCCL by themselves (ibv_get_async_event) and NCCL goes on after, each with the device from
# NCCL 2.20 on. Up to 2.22 all events but "communication established" have the same words; 2.23 to 2.27 call those that
# are not fatal "async error event", 2.28 and later "non-fatal async event". NCCL has no shared receive queues (SRQ).
EVENTS = re.compile(
    r"NCCL WARN NET/IB ?: (?:.*[Gg]ot (?:async event ?:|async error event:|non-fatal async event:)"
    r"|.*async fatal event on SRQ|.*GID table changed|.*unknown event type \()"
)
# The link went down. NCCL listens to every adapter, also to those it does not use, and rides over a short break:
# in a run that ends well this is a note. Before a failure of the fabric, or if the run does not end, it is the cause.
_PORT_ERROR = re.compile(r"event ?: port error")
_NOT_ENDED = re.compile(r"Test timeout \(\d+s\)| did not end within |DUE TO TIME LIMIT")

HINTS = _rules(
    ("?", "NCCL WARN "),
    ("infra", "slurmstepd: error: "),
    ("infra", "srun: error: "),
    ("infra", "srun: fatal: "),
    ("fabric", "UCX ", r"UCX +ERROR "),
)

# Every literal above holds one of these. They begin with letters that are rare in logs, which lets one search of all
# of them pass over a line five times faster than to look for the literals one by one.
SUSPECT = re.compile(
    r"Test |fail|CUDA|cuda|ECC e|WARN|within|NVRM|GPU is|Driver/|NVIDIA-SMI|while loading|bol look|quired by|Exec|xecut"
    r"|found|No s|xecve|vailable|pt to run|Invalid|invalid op|ized option|quires an|: error|: fatal|More p|: connect"
    r"|: Could|Permission|Host key|y start|communication w|yxis|ERROR|DUE TO|kill|Kill|Out Of|Cannot|Too many|Bus e"
    r"|Segm|Illeg|called after|k smash|ble free|fallen|Floating|Fatal|y count|xited|MPI_ABORT|to launch|TERMIN"
    r"|Process r|Job step|CANCELLED|Abort|UCX |NET/IB|ed a fatal"
)


# Failures that any program can show: what the line means, and which of several lines is the cause.


# A line is looked at so far, which bounds the cost of every search.
_REACH = 2000
_TEXT = 400
_MOST_NOTES = 20


@dataclass(frozen=True)
class Cause:
    """Why a run cannot be trusted, in the program's own words; ``kind`` is the class of a check record."""

    text: str
    kind: str


def find(line: str) -> Cause | None:
    """Return what a line says about a failure or its consequences."""
    line = line[:_REACH]
    return _search(line, FAILURES) or _search(line, CONSEQUENCES)


def cause(line: str, kind: str) -> Cause:
    """Return a cause of that kind; ``?`` is replaced by what the words of the line stand for."""
    text = line[:_REACH].strip()[:_TEXT]
    return Cause(text, _meaning(text) if kind == "?" else kind)


class FirstCause:
    """Look at every line of a run; `cause` is the first failure, or what comes nearest to one.

    ``notes`` are what NCCL's adapters reported that is no failure in itself.
    """

    def __init__(self, extra: t.Sequence[tuple[t.Pattern[str] | str, str]] = ()) -> None:
        self._extra = [(re.compile(pattern), kind) for pattern, kind in extra]
        self._failure: Cause | None = None
        self._consequence: Cause | None = None
        self._hint: Cause | None = None
        self._port_error: Cause | None = None
        self.notes: list[str] = []

    @property
    def port_error(self) -> Cause | None:
        """Return the first port of NCCL's that went down, which is the cause if the run did not come to its end."""
        return self._port_error

    @property
    def failure(self) -> Cause | None:
        """Return a failure that leaves no doubt."""
        return self._failure

    @property
    def cause(self) -> Cause | None:
        if self._failure is None:
            return self._consequence and (self._port_error or self._hint or self._consequence)
        follows = self._failure.kind == "fabric" or _NOT_ENDED.search(self._failure.text)
        return self._port_error if self._port_error and follows else self._failure

    def add(self, cause: Cause, instead_of: Cause | None = None) -> None:
        """Take a failure that the caller found by other means, unless there was another one before."""
        if self._failure is None or self._failure is instead_of:
            self._failure = cause

    def see(self, line: str) -> None:
        # NCCL tells of what it tries and then retries: thousands of lines, none of them a failure.
        if self._failure or " NCCL INFO " in line:
            return
        line = line[:_REACH]
        self._failure = self._own(line)
        if self._failure or not SUSPECT.search(line):
            return
        self._failure = _search(line, FAILURES)
        if self._failure or self._event(line):
            return
        self._consequence = self._consequence or _search(line, CONSEQUENCES)
        self._hint = self._hint or (None if self._consequence else _search(line, HINTS))

    def _event(self, line: str) -> bool:
        """Take what is no failure in itself; what comes after a consequence does not explain it."""
        if "NCCL WARN" not in line or not EVENTS.search(line):
            return False
        if self._port_error is None and self._consequence is None and _PORT_ERROR.search(line):
            self._port_error = cause(line, "fabric")
        text = line.strip()[:_TEXT]
        if len(self.notes) < _MOST_NOTES and text not in self.notes:
            self.notes.append(text)
        return True

    def _own(self, line: str) -> Cause | None:
        return next((cause(line, kind) for pattern, kind in self._extra if pattern.search(line)), None)


def _search(line: str, rules: t.Sequence[FailureRule]) -> Cause | None:
    for rule in rules:
        if rule.literal in line and (rule.pattern is None or rule.pattern.search(line)):
            return cause(line, rule.kind)
    return None


def _meaning(text: str) -> str:
    low = text.lower()
    return next((kind for kind, words in MEANING if any(word in low for word in words)), "software")


# What parsers return: the runs of a program that a text tells of.


class AnyRun(t.Protocol):
    """One run: ``ok`` when it is complete, says what it is run for, and nothing was complained about."""

    @property
    def cause(self) -> Cause | None: ...

    @property
    def ok(self) -> bool: ...


RunT = t.TypeVar("RunT", bound=AnyRun)


@dataclass(frozen=True)
class Log(t.Generic[RunT]):
    """All runs of a text in their order; ``cause`` also tells of failures outside of them, and where there is none.

    ``ok``: there is at least one, and neither one of them nor what stands around them leaves a doubt.
    """

    runs: list[RunT]
    cause: Cause | None
    ok: bool = field(init=False)

    def __post_init__(self) -> None:
        ok = bool(self.runs) and self.cause is None and all(run.ok for run in self.runs)
        object.__setattr__(self, "ok", ok)


def mixed(hosts: str, copies: str = "") -> Cause | None:
    """Return the cause of a log in which the lines of several hosts' programs, or of several copies, alternate."""
    if copies:
        text = (
            f"several copies of the program ran beside each other, and each printed its own output (ranks {copies}):"
            " it was built without MPI, or its launcher and its MPI do not fit (srun --mpi)"
        )
        return Cause(text, "config")
    text = f"the lines of several hosts alternate ({hosts}): each needs a log of its own"
    return Cause(text, "config") if hosts else None


def log_of(runs: list[RunT], early: t.Sequence[Cause] = ()) -> Log[RunT]:
    """Make a log, with the first complaint as its cause; ``early`` ones belong to no run."""
    causes = [run.cause for run in runs if run.cause]
    return Log(runs, next(iter([*early, *causes]), None))
