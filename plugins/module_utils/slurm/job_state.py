# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Slurm says of one batch job. No I/O; private to this collection.

Text, not JSON: ``sacct --json`` of Slurm 22.05 reports exit code 0 for a job that ended with 3, and its
``squeue --json`` leaves the output file empty. The formats used here are the same from 22.05 to 25.11.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import HostlistError, expand
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import (
    SEPARATOR,
    SlurmError,
    exit_code,
    fields,
    number,
    seconds,
    text_or_none,
)

_ENDS = "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED REVOKED TIMEOUT"
FINAL = frozenset(_ENDS.split())
SACCT_FORMAT = "JobIDRaw,State,ExitCode,NodeList,ElapsedRaw,Submit,Start,End,Reason,JobName"
_JOB_HEAD = re.compile(r"JobId=(\d+) .*?JobName=(.*?) UserId=\S+\(\d+\) (GroupId=.*)", re.DOTALL)


class Job(t.NamedTuple):
    """One job as Slurm knows it."""

    job_id: int
    name: str
    state: str
    reason: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    nodes: tuple[str, ...] = ()
    elapsed: int | None = None
    submit: str | None = None
    start: str | None = None
    end: str | None = None
    output: str | None = None
    comment: str | None = None

    @property
    def final(self) -> bool:
        return self.state in FINAL

    def as_dict(self) -> dict[str, t.Any]:
        return {**self._asdict(), "nodes": list(self.nodes)}


def from_scontrol(text: str) -> Job:
    """Read ``scontrol show job -o <id>``."""
    match = _JOB_HEAD.search(text)
    if not match:
        raise SlurmError(f"scontrol did not print a job but {text.strip()[:200]!r}")
    found = fields(match.group(3))
    code, signal = exit_code(found.get("ExitCode", "0:0"))
    job_id, name = int(match.group(1)), match.group(2)
    nodes = _nodes(found.get("NodeList"))
    user = re.search(r" UserId=([^ (]+)\(", text)
    return Job(
        job_id=job_id,
        name=name,
        state=_state(found.get("JobState", "")),
        reason=text_or_none(found.get("Reason", "").replace("_", " ")),
        exit_code=code,
        signal=signal,
        nodes=nodes,
        elapsed=seconds(found.get("RunTime", "")),
        submit=text_or_none(found.get("SubmitTime")),
        start=text_or_none(found.get("StartTime")),
        end=text_or_none(found.get("EndTime")),
        comment=text_or_none(found.get("Comment")),
        output=output_path(found.get("StdOut"), job_id, name, user.group(1) if user else "", nodes),
    )


def from_sacct(text: str, job_id: int) -> Job | None:
    """Read ``sacct -X -n -P`` with SEPARATOR and SACCT_FORMAT; None when accounting does not know the job (yet)."""
    for line in reversed(text.splitlines()):
        row = line.split(SEPARATOR, SACCT_FORMAT.count(","))
        if len(row) <= SACCT_FORMAT.count(",") or row[0] != str(job_id):
            continue
        code, signal = exit_code(row[2])
        submit, start, end, reason = (text_or_none(item) for item in row[5:9])
        nodes = _nodes(row[3])
        return Job(job_id, row[9], _state(row[1]), reason, code, signal, nodes, number(row[4]), submit, start, end)
    return None


def output_path(pattern: str | None, job_id: int, name: str, user: str, nodes: t.Sequence[str]) -> str | None:
    """Fill in the file name pattern, which some releases print expanded and others as it was given."""
    values = {"j": job_id, "A": job_id, "x": name, "u": user, "N": nodes[0] if nodes else "", "%": "%"}

    def value(match: t.Match[str]) -> str:
        text = str(values[match.group(2)])
        return text.zfill(int(match.group(1))) if match.group(1) and match.group(2) in "jA" else text

    pattern = text_or_none(pattern)
    return re.sub(r"%(\d*)([jAxuN%])", value, pattern) if pattern else None


def describe(job: Job) -> str:
    """One line on how a job stands or ended."""
    where = f" on {','.join(job.nodes[:4])}{' and more' if len(job.nodes) > 4 else ''}" if job.nodes else ""
    why = f" ({job.reason})" if job.reason else ""
    code = f", exit code {job.exit_code}, signal {job.signal}" if job.final else ""
    return f"job {job.job_id} ({job.name}) is {job.state}{why}{where}{code}, {job.elapsed or 0} s run time"


def _state(text: str) -> str:
    """``CANCELLED by 1000`` and ``CANCELLED+`` are CANCELLED."""
    match = re.match(r"[A-Z_]+", text)
    if not match:
        raise SlurmError(f"{text!r} is not a job state")
    return match.group(0)


def _nodes(text: str | None) -> tuple[str, ...]:
    try:
        return tuple(expand(text_or_none(text) or ""))
    except HostlistError as exc:
        raise SlurmError(str(exc)) from exc
