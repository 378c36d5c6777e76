# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Look at, await, submit and cancel one Slurm job through a given command runner; private to this collection."""

from __future__ import annotations

import re
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.job import Spec, arguments, submitted_id, tag
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.job_state import (
    SACCT_FORMAT,
    Job,
    from_sacct,
    from_scontrol,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SEPARATOR, SlurmError

# How long slurmctld and accounting may both deny a job that was submitted before it counts as lost.
GRACE = 60.0
_FIRST_PAUSE = 0.5

Run = t.Callable[[t.List[str]], t.Tuple[int, str, str]]


class UnreachableError(SlurmError):
    """slurmctld or slurmdbd does not answer; worth another try."""


class JobTimeoutError(SlurmError):
    """The job did not get there in time; it is left as it is."""

    def __init__(self, message: str, job: Job | None) -> None:
        super().__init__(message)
        self.job = job


class JobLostError(SlurmError):
    """Neither slurmctld nor accounting knows the job any more."""


class Client:
    """The Slurm commands of one user."""

    def __init__(
        self,
        run: Run,
        clock: t.Callable[[], float] = time.monotonic,
        sleep: t.Callable[[float], None] = time.sleep,
    ) -> None:
        self._run, self._clock, self._sleep = run, clock, sleep

    def look(self, job_id: int) -> Job | None:
        """Ask the controller, and accounting about what it has forgotten; None when both deny the job.

        Not the other way round: slurmdbd may lag behind, and then shows how an earlier try of a requeued job ended.
        """
        rc, out, err = self._run(["scontrol", "show", "job", "-o", str(job_id)])
        if rc and "Invalid job id" not in err + out:
            raise UnreachableError(f"scontrol show job {job_id} failed: {(err or out).strip()}")
        return self._accounted(job_id) if rc else from_scontrol(out)

    def _accounted(self, job_id: int) -> Job | None:
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
        until: t.Callable[[Job], bool] = lambda job: job.final,
        grace: float = GRACE,
    ) -> Job:
        """Poll until the job is where it should be; a controller that is away is waited for."""
        start = known = self._clock()
        pause, job, trouble = min(_FIRST_PAUSE, interval), None, ""
        while True:
            try:
                found, trouble = self.look(job_id), ""
                job = found or job
                known = self._clock() if found else known
                if found and until(found):
                    return found
                if not found and self._clock() - known >= grace:
                    raise JobLostError(f"Slurm no longer knows job {job_id}: neither slurmctld nor accounting has it")
            except UnreachableError as exc:
                trouble, known = str(exc), self._clock()
            if self._clock() - start + pause > timeout:
                hint = f" ({trouble})" if trouble else ""
                raise JobTimeoutError(f"not done after {timeout:g} s{hint}.", job)
            self._sleep(pause)
            pause = min(interval, pause * 1.5)

    def resume(self, spec: Spec, recorded: Job | None, timeout: float, interval: float) -> Job | None:
        """The job that an earlier run left, if it completed or is still going; None when one must be submitted."""
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

    def submit(self, spec: Spec, script: str) -> int:
        argv = ["sbatch", *arguments(spec), script, *spec.args]
        rc, out, err = self._run(argv)
        if rc:
            raise SlurmError(f"Slurm refused the job: {(err or out).strip()} (tried: {' '.join(argv)})")
        return submitted_id(out)

    def active(self, spec: Spec, by_tag: bool) -> list[int]:
        """The caller's waiting or running jobs that carry the tag of this job, or else its name."""
        rc, out, err = self._run(["squeue", "-h", "--me", "-o", SEPARATOR.join(["%A", "%k", "%j"])])
        if rc:
            raise UnreachableError(f"squeue --me failed: {(err or out).strip()}")
        rows = [line.split(SEPARATOR, 2) for line in out.splitlines()]
        column, value = (1, tag(spec)) if by_tag else (2, spec.name)
        return sorted({int(row[0]) for row in rows if len(row) == 3 and row[column] == value})

    def cancel(self, job_id: int) -> None:
        rc, out, err = self._run(["scancel", str(job_id)])
        if rc and not re.search("Invalid job id|already completing or completed", err + out):
            raise SlurmError(f"scancel {job_id} failed: {(err or out).strip()}")


def same(job: Job, recorded: Job) -> bool:
    """A rebuilt cluster counts its jobs from 1 again, and then a recorded id is somebody else's job.

    The time of submission tells nothing: Slurm sets it anew when it requeues a job.
    """
    return job.name == recorded.name and (None in (job.comment, recorded.comment) or job.comment == recorded.comment)


def tail(path: str | None, lines: int = 40, size: int = 16384) -> str:
    """The end of the job's output; empty when there is none to read here."""
    try:
        with open(path or "", "rb") as handle:  # noqa: PTH123 (an empty path is no file, Path("") is a folder)
            handle.seek(0, 2)
            handle.seek(max(0, handle.tell() - size))
            text = handle.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
