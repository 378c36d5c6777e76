# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""storage_bandwidth: write and read files with fio in a folder that is removed whatever happens, and judge it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import stat
import tempfile
import time
import types
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _checks
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import (
    Json,
    explain,
    judge,
    metric,
    overall,
    record,
    validate_expectation,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import NotFound, find
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import fio, mdadm

# From the output of fio to a check record. Pure.


CHECK = "storage_bandwidth"
_TAIL = 2000
_PERCENTILES = ("50", "99", "99.9")


class MeasuredStorage(t.NamedTuple):
    """One run of fio; ``problem`` says why there is no number, ``kind`` whose fault that is."""

    path: str
    operation: str
    argv: t.Sequence[str]
    run: fio.FioRun | None
    problem: str
    kind: str = "infra"
    evidence: str = ""

    @property
    def direction(self) -> str:
        return self.operation.replace("rand", "")

    @property
    def gbs(self) -> float | None:
        """Return GB/s (decimal) of all jobs together, None for a run with an error."""
        speed = self.run.bandwidth(self.direction) if self.run and not self.problem else None
        return None if speed is None else speed / 1e9


def measure(path: str, operation: str, argv: t.Sequence[str], outcome: Outcome) -> MeasuredStorage:
    """Read what fio printed and its exit status: either can show a failure that the other hides."""
    log = fio.parse(f"{outcome.err}\n{outcome.out}")
    last = log.runs[-1] if log.runs else None
    evidence = outcome.err.strip()[-_TAIL:]
    if log.cause:
        problem, kind = f"{path}: {operation}: {log.cause.text}{_hint(log.cause.text)}", log.cause.kind
    elif outcome.rc != 0:
        problem, kind = f"{path}: {operation}: {outcome.problem}", "infra"
    elif last is None or not last.ok or last.bandwidth(operation.replace("rand", "")) is None:
        problem, kind = f"{path}: {operation}: fio printed no complete result", "infra"
    else:
        problem, kind = "", "hardware"
    return MeasuredStorage(path, operation, argv, last, problem, kind, evidence)


def _hint(text: str) -> str:
    low = text.lower()
    if "direct=1" in low or "o_direct" in low:
        return "; the file system cannot bypass the page cache, direct=false measures with it"
    if "engine" in low or "io_setup" in low or "io_queue" in low:
        return "; another ioengine, such as psync, works everywhere but keeps one operation in flight per job"
    return ""


def sample(measured: MeasuredStorage) -> Json:
    """Return a row of the report; latencies are those of the slowest job."""
    directions = (
        [job.direction(measured.direction) for job in measured.run.jobs]
        if measured.run and not measured.problem
        else []
    )
    moved = [direction for direction in directions if direction is not None]
    percentiles = [key for key in _PERCENTILES if all(key in direction.percentiles_us for direction in moved)]
    return {
        "path": measured.path,
        "operation": measured.operation,
        "bandwidth": measured.gbs,
        "iops": measured.run.iops(measured.direction) if moved and measured.run else None,
        "bytes": sum(direction.bytes or 0 for direction in moved),
        "seconds": max((direction.seconds or 0 for direction in moved), default=None),
        "latency_us": max((direction.latency_us or 0 for direction in moved), default=None),
        "percentiles_us": {
            key: max(direction.percentiles_us[key] for direction in moved) for key in (percentiles if moved else ())
        },
        "jobs": len(moved),
        "notes": measured.run.notes if measured.run else [],
        "problem": measured.problem or None,
    }


def result(
    measured: t.Sequence[MeasuredStorage],
    places: t.Mapping[str, Json],
    expectations: t.Sequence[Json],
    context: Json,
    common: t.Mapping[str, t.Any],
) -> Json:
    """Return the module's result."""
    metrics = [
        metric(measurement.operation, measurement.gbs, "GB/s", path=measurement.path) for measurement in measured
    ]
    judged = judge(CHECK, metrics, expectations)
    problems = [measurement for measurement in measured if measurement.problem]
    broken = any(measurement.kind == "hardware" for measurement in problems) or overall(judged) == "fail"
    verdict = "fail" if broken else "error" if problems else None
    version = next((measurement.run.version for measurement in measured if measurement.run), None)
    arguments = [
        {"path": measurement.path, "operation": measurement.operation, "argv": list(measurement.argv)}
        for measurement in measured
    ]
    check = record(
        CHECK,
        metrics=judged,
        verdict=verdict,
        reason=_reason(problems, judged, places),
        scope=_scope(problems, judged),
        samples=[sample(measurement) for measurement in measured],
        evidence="\n".join(measurement.evidence for measurement in problems if measurement.evidence)[-_TAIL:],
        context={**context, "version": version, "argv": arguments, "file_systems": places},
        **common,
    )
    return {"checks": [check], "results": check["samples"], "argv": arguments, "environment": {}}


def _reason(problems: t.Sequence[MeasuredStorage], judged: t.Sequence[Json], places: t.Mapping[str, Json]) -> str:
    """Return failures, then slow paths, then the degraded arrays that may explain both."""
    arrays = [
        f"{path}: {file_system['device']} is {', '.join(file_system['problems'])}"
        for path, file_system in places.items()
        if file_system.get("problems")
    ]
    slow = explain([entry for entry in judged if entry["verdict"] in ("fail", "warn")])
    texts = [*dict.fromkeys(measurement.problem for measurement in problems), slow]
    return "; ".join(text for text in [*texts, *(arrays if any(texts) else [])] if text)


def _scope(problems: t.Sequence[MeasuredStorage], judged: t.Sequence[Json]) -> Json:
    paths = [measurement.path for measurement in problems] + [
        entry["path"] for entry in judged if entry["verdict"] in ("fail", "warn")
    ]
    return {"path": list(dict.fromkeys(paths))} if paths else {}


# The request, and the fio command line for it. Pure.


OPERATIONS = ("write", "read", "randwrite", "randread")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

SPEC: Json = {
    "paths": {"type": "list", "elements": "path", "required": True},
    "operations": {"type": "list", "elements": "str", "choices": list(OPERATIONS), "default": ["write", "read"]},
    "block_size": {"type": "str", "default": "1M"},
    "size": {"type": "str", "default": "4G"},
    "jobs": {"type": "int", "default": 4},
    "iodepth": {"type": "int", "default": 255},
    "runtime": {"type": "int", "default": 30},
    "direct": {"type": "bool", "default": True},
    "ioengine": {"type": "str", "default": "libaio"},
    "fio": {"type": "path"},
    "timeout": {"type": "float", "default": 600},
    **_checks.SPEC,
    **_checks.NODE,
}


class StorageError(ValueError):
    """The request makes no sense; the text is fit for the user."""


class FioRequest(t.NamedTuple):
    """The request; sizes in bytes, ``size`` is that of each job's file."""

    paths: t.Sequence[str]
    operations: t.Sequence[str]
    block_size: int
    size: int
    jobs: int
    iodepth: int
    runtime: int
    direct: bool
    ioengine: str

    @property
    def space(self) -> int:
        """Return the bytes that all files need."""
        return self.size * self.jobs

    @property
    def runs(self) -> list[str]:
        """Return the operations in their order, with a write before the others, which need written files."""
        order = [name for name in OPERATIONS if name in self.operations]
        return order if order[0] == "write" else ["write", *order]


def read(params: t.Mapping[str, t.Any]) -> FioRequest:
    """Make a request of the options, or refuse it before anything starts."""
    for expectation in params["expect"]:
        validate_expectation(expectation)
    sizes = {name: size(name, params[name]) for name in ("block_size", "size")}
    request = FioRequest(**{**{name: params[name] for name in FioRequest._fields}, **sizes})
    for name in ("jobs", "iodepth", "runtime"):
        if params[name] < 1:
            raise StorageError(f"{name} is {params[name]}, at least 1 is needed")
    if request.size < request.block_size or request.size % request.block_size or request.block_size % 512:
        raise StorageError(
            f"size {params['size']} must be a multiple of block_size {params['block_size']}, and that of 512 bytes"
        )
    if params["timeout"] <= request.runtime:
        raise StorageError(f"timeout {params['timeout']:g} s leaves fio no time beyond runtime {request.runtime} s")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", request.ioengine):
        raise StorageError(f"ioengine is {request.ioengine!r}, a name such as libaio, io_uring or psync is needed")
    if not request.paths or not request.operations:
        raise StorageError("paths and operations must not be empty")
    relative = [path for path in request.paths if not path.startswith("/")]
    if relative or len(set(request.paths)) != len(request.paths):
        raise StorageError(f"paths must be absolute and differ, not {', '.join(relative or request.paths)}")
    return request


def size(name: str, text: str) -> int:
    """Return bytes from ``4G``, ``512k`` or ``4096``; units are powers of 1024 as in fio."""
    match = re.fullmatch(r"(\d{1,15})([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not match or int(match.group(1)) == 0:
        raise StorageError(f"{name} is {text!r}, a number of bytes such as 4G or 1M is needed")
    return int(match.group(1)) * _UNITS[match.group(2).upper()]


def fio_argv(fio: str, request: FioRequest, operation: str, folder: str, length: int) -> list[str]:
    """Return the command line; the same name in the same folder means the same files in every run.

    Without preallocation no block can be read that nobody wrote, and a buffered write ends when the data is on disk.
    """
    buffered = [] if request.direct else ["--end_fsync=1"]
    return [
        fio,
        "--name=hpcai",
        f"--directory={folder}",
        f"--rw={operation}",
        f"--bs={request.block_size}",
        f"--size={length}",
        f"--numjobs={request.jobs}",
        f"--iodepth={request.iodepth}",
        f"--direct={int(request.direct)}",
        f"--ioengine={request.ioengine}",
        f"--runtime={request.runtime}",
        "--time_based=1",
        "--fallocate=none",
        *(buffered if operation.endswith("write") else []),
        "--eta=never",
        "--output-format=json",
    ]


# Where files may be written, and the folder that is removed whatever happens.


PREFIX = ".hpcai-storage-"
# A file system that is nearly full is slow, and what else writes to it must not fail because of a measurement.
KEEP = 0.10


class Space(t.NamedTuple):
    """Bytes of a file system: in all, and those that this user can have."""

    total: int
    available: int


def check_kind(path: str) -> None:
    """Refuse everything but a directory: writing to a device would destroy what is on it."""
    with contextlib.suppress(OSError):
        mode = Path(path).stat().st_mode
        if not stat.S_ISDIR(mode):
            kind = "a block device" if stat.S_ISBLK(mode) else "no directory"
            raise StorageError(f"{path} is {kind}; give a directory, the files are made in a new one below it")


def space(path: str) -> Space:
    """Return the space of the file system that holds a path."""
    status = os.statvfs(path)
    return Space(status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)


def refusal(path: str, needed: int, space: Space) -> str:
    """Return why files of that size must not be written; empty when they may.

    A file system of petabytes is seldom a tenth free, and a test of a few GiB is nothing to it.
    """
    enough = space.available - needed >= KEEP * space.total or needed <= KEEP * space.available
    if space.total > 0 and enough:
        return ""
    return (
        f"{path}: {gib(needed)} of {gib(space.available)} available are more than {KEEP:.0%} of that and would leave"
        f" less than {KEEP:.0%} of {gib(space.total)} free; reduce size or jobs"
    )


def gib(number: int) -> str:
    """Write bytes as the user gave them."""
    return f"{number / (1 << 30):.1f} GiB"


@contextlib.contextmanager
def test_folder(path: str) -> t.Iterator[str]:
    """Make a directory of our own, and remove it also when the module is told to end."""

    def leave(number: int, dummy: types.FrameType | None) -> None:
        raise SystemExit(128 + number)

    signals = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    before = {number: signal.signal(number, leave) for number in signals}
    folder = tempfile.mkdtemp(prefix=PREFIX, dir=path)
    try:
        yield folder
    finally:
        for number in signals:
            signal.signal(number, signal.SIG_IGN)
        shutil.rmtree(folder, ignore_errors=True)
        for number, handler in before.items():
            signal.signal(number, handler)


def mount(path: str, mounts: str) -> Json:
    """Return type and device of the file system of a path from the text of /proc/self/mounts."""
    best: Json = {"type": None, "device": None}
    length = 0
    for line in mounts.splitlines():
        device, mount_point, kind = ([*line.split(" "), "", "", ""])[:3]
        mount_point = re.sub(r"\\(\d{3})", lambda match: chr(int(match.group(1), 8)), mount_point)
        inside = path == mount_point or path.startswith(mount_point.rstrip("/") + "/")
        if inside and len(mount_point) >= length:
            best, length = {"type": kind, "device": device}, len(mount_point)
    return best


def about(path: str) -> Json:
    """Return type and device of a path's file system, and the problems of its RAID array."""
    facts: Json = {**mount(os.path.realpath(path), _text("/proc/self/mounts"))}
    device = os.path.realpath(facts["device"] or "")
    for array in mdadm.parse_mdstat(_text("/proc/mdstat")):
        if array.path == device:
            facts.update(array=array.level, members=len(array.members), problems=array.problems)
    return facts


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


# Write and read files with fio.


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> Json:
    """Measure and return the module's result; raises ValueError for options that make no sense."""
    request = read(params)
    for path in request.paths:
        check_kind(path)
    begin = time.time()
    node = params["name"] or socket.gethostname().partition(".")[0]
    common: Json = {"node": node, "time": begin, "run": params["run"]}
    context: Json = {"tool": "fio", "version": None, "profile": params["profile"], "argv": []}
    if check_mode:
        return _without(record(CHECK, verdict="skipped", reason="check mode", context=context, **common))
    try:
        program = find("fio", params["fio"], role=None)
    except NotFound as exc:
        context.update({"missing": exc.missing} if exc.missing else {})
        return _without(record(CHECK, verdict="error", reason=str(exc), context=context, **common))
    measured = [
        measurement for path in request.paths for measurement in _path(program, request, path, params["timeout"])
    ]
    common["seconds"] = time.time() - begin
    places = {path: about(path) for path in request.paths}
    return result(measured, places, params["expect"], context, common)


def _path(program: str, request: FioRequest, path: str, timeout: float) -> list[MeasuredStorage]:
    """Write, then read what was written; nothing is written where too little space would be left."""
    try:
        refused = refusal(path, request.space, space(path))
        if refused:
            return [MeasuredStorage(path, name, [], None, refused) for name in request.operations]
        with test_folder(path) as folder:
            return _runs(program, request, path, folder, timeout)
    except OSError as exc:
        problem = f"{path}: no files can be made there: {exc.strerror or exc}"
        return [MeasuredStorage(path, name, [], None, problem) for name in request.operations]


def _runs(program: str, request: FioRequest, path: str, folder: str, timeout: float) -> list[MeasuredStorage]:
    every: list[MeasuredStorage] = []
    length = request.size
    for operation in request.runs:
        argv = fio_argv(program, request, operation, folder, length)
        measured = measure(path, operation, argv, run(argv, timeout))
        every.append(measured)
        if operation == "write":
            length = written(measured, request)
            if not length:
                problem = measured.problem or f"{path}: too little was written in {request.runtime} s to read it back"
                remaining = [name for name in request.runs if name != "write"]
                every += [MeasuredStorage(path, name, [], None, problem, measured.kind) for name in remaining]
                break
    return [measured for measured in every if measured.operation in request.operations]


def written(measured: MeasuredStorage, request: FioRequest) -> int:
    """Return how many bytes at the beginning of every file hold data; beyond them a read would not touch the disk."""
    if measured.problem or measured.run is None:
        return 0
    moved = [job.direction("write") for job in measured.run.jobs]
    if len(moved) != request.jobs or None in moved:
        return 0
    least = min((direction.bytes or 0) for direction in moved if direction is not None)
    # Up to iodepth blocks can have been in flight, and completed in another order, when the time was over.
    complete = least if least >= request.size else least - request.iodepth * request.block_size
    return max(0, min(request.size, complete) // request.block_size * request.block_size)


def _without(check: Json) -> Json:
    return {"checks": [check], "results": [], "argv": [], "environment": {}}
