# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring one Slurm job to the wanted state, once; private to this collection."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.job import (
    Spec,
    check,
    comment,
    digest,
    dump_record,
    load_record,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.job_client import Client
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.job_state import Job, describe

# Writes a text whole or not at all, to a path or (None) to a temporary file, and returns where.
Write = t.Callable[[str, t.Optional[str]], str]


class Wish(t.NamedTuple):
    """How far to go."""

    state: str
    timeout: float
    poll: float
    dry: bool


def ensure(client: Client, spec: Spec, wish: Wish, write: Write) -> tuple[bool, Job | None]:
    """Find or submit the job, follow it as far as the wish says; tell whether a job was submitted."""
    check(spec)
    known, recorded = _read(spec)
    recorded = recorded if known == digest(spec) else None
    job = client.resume(spec, recorded, wish.timeout, wish.poll)
    changed = job is None
    if wish.dry or (job and job.final and job == recorded):
        return changed, job
    if job is None:
        job = Job(client.submit(spec, write(spec.script, None)), spec.name, "PENDING", comment=comment(spec))
        _keep(spec, job, write)
    until = _ended if wish.state == "completed" else _seen
    job = client.wait(job.job_id, wish.timeout, wish.poll, until=until)
    job = job._replace(output=job.output or (recorded.output if recorded else None))
    _keep(spec, job, write)
    return changed, job


def remove(client: Client, spec: Spec, wish: Wish) -> tuple[bool, list[int]]:
    """Cancel what is still going and forget it; tell whether there was anything, and the cancelled jobs."""
    recorded = _read(spec)[1]
    if spec.record:
        job = client.resume(spec, recorded, wish.timeout, wish.poll) if recorded else None
        jobs = [job.job_id] if job and not job.final else []
    else:
        jobs = client.active(spec, by_tag=False)
    if wish.dry:
        return bool(jobs or recorded), jobs
    for job_id in jobs:
        client.cancel(job_id)
        client.wait(job_id, wish.timeout, wish.poll)
    if spec.record and recorded:
        Path(spec.record).unlink()
    return bool(jobs or recorded), jobs


def report(job: Job, ending: str) -> str:
    """Say how the job stands and what it printed last."""
    if not job.output:
        return f"{describe(job)}."
    output = (
        f"{job.output} ends with:\n{ending}" if ending else f"Its output {job.output} is empty or not readable here."
    )
    return f"{describe(job)}. {output}"


def _ended(job: Job) -> bool:
    return job.final


def _seen(dummy: Job) -> bool:
    return True


def _read(spec: Spec) -> tuple[str, Job | None]:
    if not spec.record or not Path(spec.record).exists():
        return "", None
    return load_record(Path(spec.record).read_text(encoding="utf-8", errors="replace"), spec.record)


def _keep(spec: Spec, job: Job, write: Write) -> None:
    if spec.record:
        write(dump_record(spec, job), spec.record)
