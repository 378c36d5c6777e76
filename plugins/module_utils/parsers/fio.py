# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fio with ``--output-format=json`` (or json+), 2.x and 3.x, several jobs and groups, with messages around it.

Bandwidths are bytes/s and latencies microseconds, whatever the version printed. Jobs of one group run side by side,
so `Run.bandwidth` adds them up; groups run one after the other, so it never adds those.
"""

from __future__ import annotations

import os
import typing as t
from dataclasses import dataclass

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import _fio_document as document
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause, FirstCause
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.log import Log
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.text import Source


@dataclass(frozen=True)
class Direction:
    """Reads, writes or trims of a job; ``percentiles_us`` are of completion (clat) or of the whole (lat)."""

    name: str
    bytes: int | None
    bandwidth: float | None
    iops: float | None
    seconds: float | None
    latency_us: float | None
    percentiles_us: dict[str, float]
    percentiles_of: str | None


@dataclass(frozen=True)
class Job:
    """One job, or a group of clones that fio reported as one. ``error`` is an errno, 0 when all went well."""

    name: str
    group: int | None
    error: int | None
    options: dict[str, str]
    directions: list[Direction]

    def direction(self, name: str) -> Direction | None:
        """Return what the job did in a direction ("read", "write", "trim"), None if it moved nothing."""
        return next((item for item in self.directions if item.name == name and item.bytes), None)


@dataclass(frozen=True)
class Run:
    """One document; ``status`` reports in between (--status-interval) are documents, too, and the last one counts."""

    version: str | None
    jobs: list[Job]
    notes: list[str]
    complete: bool
    ok: bool
    cause: Cause | None

    def bandwidth(self, direction: str, group: int | None = None) -> float | None:
        """Return bytes/s of all jobs side by side; None if nothing moved, or in several groups and none is named."""
        return self._sum("bandwidth", direction, group)

    def iops(self, direction: str, group: int | None = None) -> float | None:
        """Return operations/s of all jobs side by side, like `bandwidth`."""
        return self._sum("iops", direction, group)

    def _sum(self, what: str, direction: str, group: int | None) -> float | None:
        moved = [(job.group, job.direction(direction)) for job in self.jobs if group in (None, job.group)]
        pairs = [(number, item) for number, item in moved if item is not None]
        if len({number for number, _item in pairs}) != 1:
            return None
        values = [getattr(item, what) for _number, item in pairs]
        return None if None in values else sum(values)


def parse(source: Source) -> Log[Run]:
    """Read a file of ``--output``, or stdout and stderr together; never raises."""
    first = FirstCause(document.FAILURES)
    notes: list[str] = []
    runs: list[Run] = []
    for found in document.read(source, first, notes):
        jobs = [_job(item) for item in document.jobs(found.data)]
        version = found.data.get("fio version") if isinstance(found.data, dict) else None
        runs.append(Run(version and str(version), jobs, notes, found.whole and bool(jobs), False, None))
    runs = [_judged(run, first.cause) for run in runs]
    cause = first.cause or next((run.cause for run in runs if run.cause), None)
    return Log(runs, cause)


def _judged(run: Run, said: Cause | None) -> Run:
    """What fio said stands before or behind its documents, so it is held against each of them."""
    cause = said or next((_error(job) for job in run.jobs if job.error), None)
    numeric = any(item.bytes and item.bandwidth is not None for job in run.jobs for item in job.directions)
    known = all(job.error is not None for job in run.jobs)
    return Run(run.version, run.jobs, run.notes, run.complete, run.complete and known and not cause and numeric, cause)


def _error(job: Job) -> Cause:
    number = job.error or 0
    # strerror knows no number beyond a C int.
    text = os.strerror(number) if 0 < number < 4096 else "unknown"
    return Cause(f"job {job.name}: error {number} ({text})", document.kind(number))


def _job(item: t.Mapping[str, t.Any]) -> Job:
    found = [_direction(name, item[name]) for name in ("read", "write", "trim", "mixed") if name in item]
    options = item.get("job options")
    return Job(
        name=str(item.get("jobname", "")),
        group=document.whole(item.get("groupid")),
        error=document.whole(item.get("error")),
        options={str(key): str(value) for key, value in options.items()} if isinstance(options, dict) else {},
        directions=[one for one in found if one is not None],
    )


def _direction(name: str, data: t.Any) -> Direction | None:
    if not isinstance(data, dict):
        return None
    moved, speed = document.whole(data.get("io_bytes")), document.finite(data.get("bw_bytes"))
    if moved is not None and "io_kbytes" not in data:
        moved *= 1024  # before 2.21 it was called bytes and counted KiB
    if speed is None and document.finite(data.get("bw")) is not None:
        speed = float(data["bw"]) * 1024
    milliseconds = document.finite(data.get("runtime"))
    percentiles, kind = document.percentiles(data)
    return Direction(
        name=name,
        bytes=moved,
        bandwidth=speed,
        iops=document.finite(data.get("iops")),
        seconds=None if milliseconds is None else milliseconds / 1000,
        latency_us=document.latency(data),
        percentiles_us=percentiles,
        percentiles_of=kind,
    )
