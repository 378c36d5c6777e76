# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fio: the JSON documents among its messages, and the spellings of its versions; private."""

from __future__ import annotations

import errno
import math
import os
import re
import typing as t
from dataclasses import dataclass

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause, FirstCause, Log, mixed
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.json_text import Read, split
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.json_text import read as read_json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.text import Source, Writers, program_lines

_NOTES = 20
_MARK = '"fio version"'
_FIRST = re.compile(r"\{\s*$")
FAILURES = (
    (r"fio: .*(?:does not support O_DIRECT|does not support direct=1)", "config"),
    (r"fio: (?:engine \S+ not loadable|failed to load engine|io engine \S+ init failed)", "software"),
    (r"fio: .*(?:Input/output error|Remote I/O error|Structure needs cleaning)", "hardware"),
    (r"fio: io_u error|fio: pid=\d+, err=|fio: .*, error=", "?"),
    (r"(?:fio: )?verify: bad|fio: verify type mismatch", "hardware"),
    (r"fio: (?:unrecognized option|Bad |unable to open|failed parsing|\S+ is not a directory|job \S* ?has)", "config"),
    (r"fio: terminating on signal", "infra"),
)
# fio gives EILSEQ to what is read back otherwise than it was written.
_HARDWARE = {errno.EIO, errno.EREMOTEIO, errno.ENODEV, errno.ENXIO, errno.EILSEQ}
_CONFIG = {errno.EINVAL, errno.ENOSPC, errno.EACCES, errno.EPERM, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENOMEM}


def read(source: Source, first: FirstCause, notes: list[str], writers: Writers) -> t.Iterator[Read]:
    """Yield each document, as far as it goes; messages go to ``first`` and ``notes``."""
    for line, document in split(program_lines(source, _FIRST, writers), _MARK):
        if document is not None:
            yield read_json(document)
            continue
        first.see(line)
        if line.startswith(("note: ", "WARNING: ")) and len(notes) < _NOTES and line not in notes:
            notes.append(line[:200])


def job_records(data: t.Any) -> list[dict[str, t.Any]]:
    """Return the jobs; of fio's client and server mode without the entry that sums them up."""
    if not isinstance(data, dict):
        return []
    records = data.get("jobs", data.get("client_stats"))
    if not isinstance(records, list):
        return []
    return [job for job in records if isinstance(job, dict) and job.get("jobname") != "All clients"]


def latency_percentiles(data: t.Mapping[str, t.Any]) -> tuple[dict[str, float], str | None]:
    """Return percentiles in microseconds by their percent ("99.9"), and which latency they are of."""
    for kind in ("clat", "lat"):
        for name, scale in ((f"{kind}_ns", 1000), (kind, 1)):
            table = data.get(name)
            table = table.get("percentile") if isinstance(table, dict) else None
            if isinstance(table, dict) and table:
                return _table(table, scale), kind
    return {}, None


def _table(table: t.Mapping[str, t.Any], scale: int) -> dict[str, float]:
    """2.x fills its list up with 0.00."""
    percentiles = {}
    for key, value in table.items():
        number = finite(value)
        if re.fullmatch(r"\d{1,3}\.\d{1,10}", key) and float(key) > 0 and number is not None:
            percentiles[f"{float(key):g}"] = number / scale
    return percentiles


def latency(data: t.Mapping[str, t.Any]) -> float | None:
    """Return the mean time from submission to completion in microseconds."""
    for name, scale in (("lat_ns", 1000), ("lat", 1)):
        table = data.get(name)
        mean = finite(table.get("mean")) if isinstance(table, dict) else None
        if mean is not None:
            return mean / scale
    return None


def kind(number: int) -> str:
    """Return the class of an errno."""
    return "hardware" if number in _HARDWARE else "config" if number in _CONFIG else "software"


def finite(value: t.Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    # A number of hundreds of digits is an int that no float can hold.
    if isinstance(value, int) and abs(value) > 1 << 63:
        return None
    return float(value) if math.isfinite(value) else None


def whole(value: t.Any) -> int | None:
    return None if isinstance(value, float) or finite(value) is None else int(value)


# fio with ``--output-format=json`` (or json+), 2.x and 3.x, several jobs and groups, with messages around it.


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
class FioJob:
    """One job, or a group of clones that fio reported as one. ``error`` is an errno, 0 when all went well.

    ``errors`` counts what continue_on_error passed over, None without that option; ``first_error`` is an errno. Of a
    group they are the sum and that of its last job, so that either can be 0 where the other is not.
    """

    name: str
    group: int | None
    error: int | None
    errors: int | None
    first_error: int | None
    options: dict[str, str]
    directions: list[Direction]

    def direction(self, name: str) -> Direction | None:
        """Return what the job did in a direction ("read", "write", "trim"), None if it moved nothing."""
        return next((item for item in self.directions if item.name == name and item.bytes), None)


@dataclass(frozen=True)
class FioRun:
    """One document; ``status`` reports in between (--status-interval) are documents, too, and the last one counts."""

    version: str | None
    jobs: list[FioJob]
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


def parse(source: Source) -> Log[FioRun]:
    """Read a file of ``--output``, or stdout and stderr together; never raises."""
    first = FirstCause(FAILURES)
    notes: list[str] = []
    runs: list[FioRun] = []
    writers = Writers()
    for document in read(source, first, notes, writers):
        jobs = [_job(item) for item in job_records(document.data)]
        version = document.data.get("fio version") if isinstance(document.data, dict) else None
        runs.append(FioRun(version and str(version), jobs, notes, document.whole and bool(jobs), False, None))
    runs = [_judged(run, first.cause) for run in runs]
    cause = first.cause or next((run.cause for run in runs if run.cause), None)
    cause = cause or mixed(writers.mixed)
    return Log(runs, cause)


def _judged(run: FioRun, message: Cause | None) -> FioRun:
    """What fio said stands before or behind its documents, so it is held against each of them."""
    cause = message or next((error for error in map(_error, run.jobs) if error), None)
    numeric = any(item.bytes and item.bandwidth is not None for job in run.jobs for item in job.directions)
    known = all(job.error is not None for job in run.jobs)
    return FioRun(
        run.version, run.jobs, run.notes, run.complete, run.complete and known and not cause and numeric, cause
    )


def _error(job: FioJob) -> Cause | None:
    """An error that was passed over is one all the same: less was moved than the job asked for."""
    if not (job.error or job.errors or job.first_error):
        return None
    number = job.error or job.first_error or 0
    # strerror knows no number beyond a C int.
    text = f"error {number} ({os.strerror(number) if 0 < number < 4096 else 'unknown'})"
    if job.errors:
        passed = f"{job.errors} errors that continue_on_error passed over"
        text = f"{passed}, {text}" if number else passed
    return Cause(f"job {job.name}: {text}", kind(number))


def _job(item: t.Mapping[str, t.Any]) -> FioJob:
    directions = [_direction(name, item[name]) for name in ("read", "write", "trim", "mixed") if name in item]
    options = item.get("job options")
    return FioJob(
        name=str(item.get("jobname", "")),
        group=whole(item.get("groupid")),
        error=whole(item.get("error")),
        errors=whole(item.get("total_err")),
        first_error=whole(item.get("first_error")),
        options={str(key): str(value) for key, value in options.items()} if isinstance(options, dict) else {},
        directions=[direction for direction in directions if direction is not None],
    )


def _direction(name: str, data: t.Any) -> Direction | None:
    if not isinstance(data, dict):
        return None
    moved, speed = whole(data.get("io_bytes")), finite(data.get("bw_bytes"))
    if moved is not None and "io_kbytes" not in data:
        moved *= 1024  # before 2.21 it was called bytes and counted KiB
    if speed is None and finite(data.get("bw")) is not None:
        speed = float(data["bw"]) * 1024
    milliseconds = finite(data.get("runtime"))
    percentiles, kind = latency_percentiles(data)
    return Direction(
        name=name,
        bytes=moved,
        bandwidth=speed,
        iops=finite(data.get("iops")),
        seconds=None if milliseconds is None else milliseconds / 1000,
        latency_us=latency(data),
        percentiles_us=percentiles,
        percentiles_of=kind,
    )
