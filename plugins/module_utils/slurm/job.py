# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One batch job: what to submit, the record that makes it happen once, its state, waiting for it, cancelling it."""

from __future__ import annotations

import hashlib
import json
import re
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _trusted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._files import last_lines
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

# The state of a job, from scontrol and sacct.


_ENDS = "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED REVOKED TIMEOUT"
FINAL = frozenset(_ENDS.split())
SACCT_FORMAT = "JobIDRaw,State,ExitCode,NodeList,ElapsedRaw,Submit,Start,End,Reason,JobName"
_JOB_HEAD = re.compile(r"JobId=(\d+) .*?JobName=(.*?) UserId=\S+\(\d+\) (GroupId=.*)", re.DOTALL)


class JobState(t.NamedTuple):
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


def from_scontrol(text: str) -> JobState:
    """Read ``scontrol show job -o <id>``."""
    match = _JOB_HEAD.search(text)
    if not match:
        raise SlurmError(f"scontrol did not print a job but {text.strip()[:200]!r}")
    values = fields(match.group(3))
    code, signal = exit_code(values.get("ExitCode", "0:0"))
    job_id, name = int(match.group(1)), match.group(2)
    nodes = _nodes(values.get("NodeList"))
    user = re.search(r" UserId=([^ (]+)\(", text)
    return JobState(
        job_id=job_id,
        name=name,
        state=_state(values.get("JobState", "")),
        reason=text_or_none(values.get("Reason", "").replace("_", " ")),
        exit_code=code,
        signal=signal,
        nodes=nodes,
        elapsed=seconds(values.get("RunTime", "")),
        submit=text_or_none(values.get("SubmitTime")),
        start=text_or_none(values.get("StartTime")),
        end=text_or_none(values.get("EndTime")),
        comment=text_or_none(values.get("Comment")),
        output=output_path(values.get("StdOut"), job_id, name, user.group(1) if user else "", nodes),
    )


def from_sacct(text: str, job_id: int) -> JobState | None:
    """Read ``sacct -X -n -P`` with SEPARATOR and SACCT_FORMAT; None when accounting does not know the job (yet)."""
    for line in reversed(text.splitlines()):
        row = line.split(SEPARATOR, SACCT_FORMAT.count(","))
        if len(row) <= SACCT_FORMAT.count(",") or row[0] != str(job_id):
            continue
        code, signal = exit_code(row[2])
        submit, start, end, reason = (text_or_none(column) for column in row[5:9])
        nodes = _nodes(row[3])
        return JobState(job_id, row[9], _state(row[1]), reason, code, signal, nodes, number(row[4]), submit, start, end)
    return None


def output_path(pattern: str | None, job_id: int, name: str, user: str, nodes: t.Sequence[str]) -> str | None:
    """Fill in the file name pattern, which some releases print expanded and others as it was given."""
    values = {"j": job_id, "A": job_id, "x": name, "u": user, "N": nodes[0] if nodes else "", "%": "%"}

    def value(match: t.Match[str]) -> str:
        text = str(values[match.group(2)])
        return text.zfill(int(match.group(1))) if match.group(1) and match.group(2) in "jA" else text

    pattern = text_or_none(pattern)
    return re.sub(r"%(\d*)([jAxuN%])", value, pattern) if pattern else None


def describe(job: JobState) -> str:
    """Return one line that says how a job stands or ended."""
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


# What to submit, and the record that makes it happen once.


# The module sets these itself, or they make more or other than one job of this cluster out of the script.
RESERVED = frozenset("array chdir clusters job-name output parsable quiet test-only wait wrap".split())
_ARRAY = re.compile(r"^#SBATCH\s.*?(?<!\S)(-a|--array)\b", re.MULTILINE)
_SCHEMA = 1


class JobSpec(t.NamedTuple):
    """What the user wants to run."""

    name: str
    script: str
    args: list[str]
    options: dict[str, t.Any]
    environment: dict[str, str]
    chdir: str | None
    output: str | None
    record: str | None


def digest(spec: JobSpec) -> str:
    """Name the requested job by its content: another script, option or record file is another job."""
    return hashlib.sha256(json.dumps(spec._asdict(), sort_keys=True, default=str).encode()).hexdigest()


def tag(spec: JobSpec) -> str:
    """The comment that lets a later run find a job whose record was never written."""
    return f"hpcai:{digest(spec)[:24]}"


def comment(spec: JobSpec) -> str:
    return str(spec.options.get("comment", tag(spec)))


def check(spec: JobSpec) -> None:
    """Refuse what sbatch would refuse late or misread."""
    if not spec.script.startswith("#!"):
        raise SlurmError("script must start with '#!' and an interpreter, for example '#!/bin/bash'")
    if _ARRAY.search(spec.script):
        raise SlurmError("script asks for a job array in an #SBATCH line; the module runs exactly one job")
    for key in spec.options:
        name = str(key).replace("_", "-")
        if not re.fullmatch(r"[a-z][a-z0-9-]+", name):
            raise SlurmError(f"options: {key!r} is not a long sbatch option such as 'ntasks_per_node'")
        if name in RESERVED:
            raise SlurmError(f"options: {key!r} cannot be set here; the module sets it or runs exactly one job")


def arguments(spec: JobSpec) -> list[str]:
    """Return the sbatch arguments that stand before the script."""
    argv = ["--parsable", f"--job-name={spec.name}"]
    argv += [f"--chdir={spec.chdir}"] if spec.chdir else []
    argv += [f"--output={spec.output}"] if spec.output else []
    argv += [] if "comment" in spec.options else [f"--comment={tag(spec)}"]
    for key, value in sorted(spec.options.items()):
        name = f"--{key.replace('_', '-')}"
        if value is True:
            argv.append(name)
        elif isinstance(value, (list, tuple)):
            argv.append(f"{name}={','.join(str(part) for part in value)}")
        elif value is not None and value is not False:
            argv.append(f"{name}={value}")
    return argv


def submitted_id(out: str) -> int:
    """Read what ``sbatch --parsable`` printed: ``id`` or ``id;cluster``."""
    match = re.search(r"^(\d+)(;\S+)?$", out.strip(), re.MULTILINE)
    if not match:
        raise SlurmError(f"sbatch did not print a job id but {out.strip()!r}")
    return int(match.group(1))


def dump_record(spec: JobSpec, job: JobState) -> str:
    record = {"schema": _SCHEMA, "digest": digest(spec), "job": job.as_dict()}
    return json.dumps(record, indent=2, sort_keys=True) + "\n"


def load_record(text: str, path: str) -> tuple[str, JobState]:
    """Return the digest and the job that a record holds; another digest means that another job ran here before."""
    try:
        record = json.loads(text)
        if record["schema"] != _SCHEMA:
            raise ValueError(f"schema {record['schema']!r}")
        return str(record["digest"]), JobState(**{**record["job"], "nodes": tuple(record["job"]["nodes"])})
    except (ValueError, KeyError, TypeError) as exc:
        raise SlurmError(f"{path} is not a job record ({exc!r}); move it away to submit again") from exc


# Slurm's commands for one job, through a given command runner.


# How long slurmctld and accounting may both deny a job that was submitted before it counts as lost.
GRACE = 60.0
_FIRST_PAUSE = 0.5

Run = t.Callable[[t.List[str]], t.Tuple[int, str, str]]


class UnreachableError(SlurmError):
    """slurmctld or slurmdbd does not answer; worth another try."""


class JobTimeoutError(SlurmError):
    """The job did not reach the requested state in time; it is left as it is."""

    def __init__(self, message: str, job: JobState | None) -> None:
        super().__init__(message)
        self.job = job


class JobLostError(SlurmError):
    """Neither slurmctld nor accounting knows the job any more."""


class JobClient:
    """The Slurm commands of one user."""

    def __init__(
        self,
        run: Run,
        clock: t.Callable[[], float] = time.monotonic,
        sleep: t.Callable[[float], None] = time.sleep,
    ) -> None:
        self._run, self._clock, self._sleep = run, clock, sleep

    def look(self, job_id: int) -> JobState | None:
        """Return the job as the controller knows it, or accounting if the controller has forgotten it, or None.

        Not the other way round: slurmdbd may lag behind, and then shows how an earlier try of a requeued job ended.
        """
        rc, out, err = self._run(["scontrol", "show", "job", "-o", str(job_id)])
        if rc and "Invalid job id" not in err + out:
            raise UnreachableError(f"scontrol show job {job_id} failed: {(err or out).strip()}")
        return self._accounted(job_id) if rc else from_scontrol(out)

    def _accounted(self, job_id: int) -> JobState | None:
        argv = ["sacct", "-X", "-n", "-P", f"--delimiter={SEPARATOR}", "-j", str(job_id), f"--format={SACCT_FORMAT}"]
        rc, out, err = self._run(argv)
        if rc and "accounting storage is disabled" not in err:
            raise UnreachableError(f"sacct -j {job_id} failed: {(err or out).strip()}")
        return None if rc else from_sacct(out, job_id)

    def wait(
        self,
        job_id: int,
        timeout: float,
        interval: float,
        until: t.Callable[[JobState], bool] = lambda job: job.final,
        grace: float = GRACE,
    ) -> JobState:
        """Poll until ``until`` holds for the job; a controller that does not answer is waited for."""
        start = known = self._clock()
        pause, job, trouble = min(_FIRST_PAUSE, interval), None, ""
        while True:
            try:
                observed, trouble = self.look(job_id), ""
                job = observed or job
                known = self._clock() if observed else known
                if observed and until(observed):
                    return observed
                if not observed and self._clock() - known >= grace:
                    raise JobLostError(f"Slurm no longer knows job {job_id}: neither slurmctld nor accounting has it")
            except UnreachableError as exc:
                trouble, known = str(exc), self._clock()
            if self._clock() - start + pause > timeout:
                hint = f" ({trouble})" if trouble else ""
                raise JobTimeoutError(f"not done after {timeout:g} s{hint}.", job)
            self._sleep(pause)
            pause = min(interval, pause * 1.5)

    def resume(self, spec: JobSpec, recorded: JobState | None, timeout: float, interval: float) -> JobState | None:
        """Return the job that an earlier run submitted, if it completed or still runs; else None."""
        if recorded and recorded.final:
            return recorded if recorded.state == "COMPLETED" else None
        jobs = [recorded.job_id] if recorded else self.active(spec, by_tag=True) if spec.record else []
        try:
            job = self.wait(jobs[-1], timeout, interval, until=lambda any_job: True, grace=0) if jobs else None
        except JobLostError:
            return None
        if job is None or (recorded and not same(job, recorded)):
            return None
        return job if not job.final or job.state == "COMPLETED" else None

    def submit(self, spec: JobSpec, script: str) -> int:
        argv = ["sbatch", *arguments(spec), script, *spec.args]
        rc, out, err = self._run(argv)
        if rc:
            raise SlurmError(f"Slurm refused the job: {(err or out).strip()} (tried: {' '.join(argv)})")
        return submitted_id(out)

    def active(self, spec: JobSpec, by_tag: bool) -> list[int]:
        """Return the caller's waiting or running jobs that carry the tag of this job, or else its name."""
        rc, out, err = self._run(["squeue", "-h", "--me", "-o", SEPARATOR.join(["%A", "%k", "%j"])])
        if rc:
            raise UnreachableError(f"squeue --me failed: {(err or out).strip()}")
        rows = [line.split(SEPARATOR, 2) for line in out.splitlines()]
        column, value = (1, tag(spec)) if by_tag else (2, spec.name)
        return sorted({int(row[0]) for row in rows if len(row) == 3 and row[column] == value})

    def older(self, spec: JobSpec, job_id: int, ended: int | None) -> int | None:
        """Return a job of the same tag that was there before this one: two runs may look before either submits, since a
        task whose connection was lost may still run when it is begun again."""
        try:
            jobs = self.active(spec, by_tag=True)
        except UnreachableError:
            return None
        return next((other for other in jobs if other < job_id and other != ended), None)

    def cancel(self, job_id: int) -> None:
        rc, out, err = self._run(["scancel", str(job_id)])
        if rc and not re.search("Invalid job id|already completing or completed", err + out):
            raise SlurmError(f"scancel {job_id} failed: {(err or out).strip()}")


def same(job: JobState, recorded: JobState) -> bool:
    """Whether the job is the recorded one: a rebuilt cluster counts its jobs from 1 again, so ids alone do not tell.

    The time of submission tells nothing: Slurm sets it anew when it requeues a job.
    """
    return job.name == recorded.name and (None in (job.comment, recorded.comment) or job.comment == recorded.comment)


def tail(path: str | None, lines: int = 40, size: int = 16384) -> str:
    """Return the last lines of the job's output; empty when it cannot be read on this host."""
    return "\n".join(last_lines(path or "", size)[-lines:])


# Bringing one job to the requested state, once.


# Writes a text whole or not at all, to a path or (None) to a temporary file, and returns where.
Write = t.Callable[[str, t.Optional[str]], str]


class JobRequest(t.NamedTuple):
    """How far the job is followed: the state to reach, seconds to wait and between polls; ``dry`` in check mode."""

    state: str
    timeout: float
    poll: float
    dry: bool


def ensure(client: JobClient, spec: JobSpec, request: JobRequest, write: Write) -> tuple[bool, JobState | None]:
    """Find or submit the job and follow it to the requested state; return whether one was submitted, and the job."""
    check(spec)
    known, recorded = _read(spec)
    recorded = recorded if known == digest(spec) else None
    job = client.resume(spec, recorded, request.timeout, request.poll)
    changed = job is None
    if request.dry or (job and job.final and job == recorded):
        return changed, job
    if job is None:
        job = JobState(client.submit(spec, write(spec.script, None)), spec.name, "PENDING", comment=comment(spec))
        _keep(spec, job, write)
        older = client.older(spec, job.job_id, recorded and recorded.job_id) if spec.record else None
        if older:
            client.cancel(job.job_id)
            changed, job = False, job._replace(job_id=older)
    until = _ended if request.state == "completed" else _seen
    job = client.wait(job.job_id, request.timeout, request.poll, until=until)
    job = job._replace(output=job.output or (recorded.output if recorded else None))
    _keep(spec, job, write)
    return changed, job


def remove(client: JobClient, spec: JobSpec, request: JobRequest) -> tuple[bool, list[int]]:
    """Cancel jobs that still run and remove the record; return whether there was either, and the cancelled jobs."""
    recorded = _read(spec)[1]
    if spec.record:
        job = client.resume(spec, recorded, request.timeout, request.poll) if recorded else None
        jobs = [job.job_id] if job and not job.final else []
    else:
        jobs = client.active(spec, by_tag=False)
    if request.dry:
        return bool(jobs or recorded), jobs
    for job_id in jobs:
        client.cancel(job_id)
        client.wait(job_id, request.timeout, request.poll)
    if spec.record and recorded:
        Path(spec.record).unlink()
    return bool(jobs or recorded), jobs


def report(job: JobState, ending: str) -> str:
    """Say how the job stands and what it printed last."""
    if not job.output:
        return f"{describe(job)}."
    output = (
        f"{job.output} ends with:\n{ending}" if ending else f"Its output {job.output} is empty or not readable here."
    )
    return f"{describe(job)}. {output}"


def _ended(job: JobState) -> bool:
    return job.final


def _seen(dummy: JobState) -> bool:
    return True


def _read(spec: JobSpec) -> tuple[str, JobState | None]:
    """Return what the record says; refuses one that others could have written, or could put there."""
    if not spec.record:
        return "", None
    path = str(Path(spec.record).absolute())
    trusted = _trusted.trusted_users()
    try:
        _trusted.check(str(Path(path).parent), trusted)
        text = _trusted.read(path, trusted).decode(errors="replace")
    except _trusted.TrustError as exc:
        raise SlurmError(f"the record {path} of a job is not believed, and nothing was submitted: {exc}") from exc
    except FileNotFoundError:
        return "", None
    return load_record(text, spec.record)


def _keep(spec: JobSpec, job: JobState, write: Write) -> None:
    if spec.record:
        write(dump_record(spec, job), spec.record)
