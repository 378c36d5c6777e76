# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""storage_bandwidth: what fio printed, and the check record of it. Pure but for the facts of file systems, private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import (
    Json,
    explain,
    judge,
    metric,
    overall,
    record,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import fio

CHECK = "storage_bandwidth"
_TAIL = 2000
_PERCENTILES = ("50", "99", "99.9")


class Measured(t.NamedTuple):
    """One run of fio; ``problem`` says why there is no number, ``kind`` whose fault that is."""

    path: str
    operation: str
    argv: t.Sequence[str]
    run: fio.Run | None
    problem: str
    kind: str = "infra"
    evidence: str = ""

    @property
    def direction(self) -> str:
        return self.operation.replace("rand", "")

    @property
    def gbs(self) -> float | None:
        """Return GB/s (decimal) of all jobs together, nothing of a run with an error."""
        speed = self.run.bandwidth(self.direction) if self.run and not self.problem else None
        return None if speed is None else speed / 1e9


def measure(path: str, operation: str, argv: t.Sequence[str], outcome: Outcome) -> Measured:
    """Hold what fio printed against its exit status: either can hide a failure."""
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
    return Measured(path, operation, argv, last, problem, kind, evidence)


def _hint(text: str) -> str:
    low = text.lower()
    if "direct=1" in low or "o_direct" in low:
        return "; the file system cannot bypass the page cache, direct=false measures with it"
    if "engine" in low or "io_setup" in low or "io_queue" in low:
        return "; another ioengine, such as psync, works everywhere but keeps one operation in flight per job"
    return ""


def sample(one: Measured) -> Json:
    """Return a row of the report; latencies are those of the slowest job."""
    items = [job.direction(one.direction) for job in one.run.jobs] if one.run and not one.problem else []
    moved = [item for item in items if item is not None]
    known = [key for key in _PERCENTILES if all(key in item.percentiles_us for item in moved)]
    return {
        "path": one.path,
        "operation": one.operation,
        "bandwidth": one.gbs,
        "iops": one.run.iops(one.direction) if moved and one.run else None,
        "bytes": sum(item.bytes or 0 for item in moved),
        "seconds": max((item.seconds or 0 for item in moved), default=None),
        "latency_us": max((item.latency_us or 0 for item in moved), default=None),
        "percentiles_us": {key: max(item.percentiles_us[key] for item in moved) for key in (known if moved else ())},
        "jobs": len(moved),
        "notes": one.run.notes if one.run else [],
        "problem": one.problem or None,
    }


def result(
    measured: t.Sequence[Measured],
    places: t.Mapping[str, Json],
    expectations: t.Sequence[Json],
    context: Json,
    common: t.Mapping[str, t.Any],
) -> Json:
    """Return what the module returns."""
    metrics = [metric(one.operation, one.gbs, "GB/s", path=one.path) for one in measured]
    judged = judge(CHECK, metrics, expectations)
    problems = [one for one in measured if one.problem]
    broken = any(one.kind == "hardware" for one in problems) or overall(judged) == "fail"
    verdict = "fail" if broken else "error" if problems else None
    version = next((one.run.version for one in measured if one.run), None)
    arguments = [{"path": one.path, "operation": one.operation, "argv": list(one.argv)} for one in measured]
    one = record(
        CHECK,
        metrics=judged,
        verdict=verdict,
        reason=_reason(problems, judged, places),
        scope=_scope(problems, judged),
        samples=[sample(one) for one in measured],
        evidence="\n".join(one.evidence for one in problems if one.evidence)[-_TAIL:],
        context={**context, "version": version, "argv": arguments, "file_systems": places},
        **common,
    )
    return {"checks": [one], "results": one["samples"], "argv": arguments, "environment": {}}


def _reason(problems: t.Sequence[Measured], judged: t.Sequence[Json], places: t.Mapping[str, Json]) -> str:
    """Name what failed before what was slow; a degraded array explains both."""
    arrays = [
        f"{path}: {where['device']} is {', '.join(where['problems'])}"
        for path, where in places.items()
        if where.get("problems")
    ]
    slow = explain([one for one in judged if one["verdict"] in ("fail", "warn")])
    found = [*dict.fromkeys(one.problem for one in problems), slow]
    return "; ".join(text for text in [*found, *(arrays if any(found) else [])] if text)


def _scope(problems: t.Sequence[Measured], judged: t.Sequence[Json]) -> Json:
    paths = [one.path for one in problems] + [one["path"] for one in judged if one["verdict"] in ("fail", "warn")]
    return {"path": list(dict.fromkeys(paths))} if paths else {}
