# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_bandwidth: the check record of what was measured. Pure, private."""

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
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.bandwidth import CHECK, UNIT, Gpu
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.bandwidth_read import Reading

_TAIL = 2000


class Measured(t.NamedTuple):
    """One GPU, what was run for it and what came of it."""

    gpu: Gpu
    reading: Reading
    outcome: Outcome = Outcome(None, "", "", 0.0)
    argv: t.Sequence[str] = ()
    environment: t.Mapping[str, str] = {}
    binding: str = "none"

    def row(self, directions: t.Sequence[str]) -> Json:
        """Return what the module returns of the GPU."""
        gpu, reading = self.gpu, self.reading
        values = {name: reading.values.get(name) for name in directions}
        where = {"numa_node": gpu.numa_node, "cpus": gpu.cpus, "binding": self.binding}
        what = {"argv": list(self.argv), "environment": dict(self.environment), "seconds": self.outcome.seconds}
        about = {"gpu": gpu.index, "uuid": gpu.uuid, "bus_id": gpu.bus_id, "name": reading.name}
        return {**about, **values, **where, **what, "problem": reading.problem or None}


def judged(
    measured: t.Sequence[Measured], directions: t.Sequence[str], expectations: t.Sequence[Json], common: Json
) -> Json:
    """Return the record: every planned GPU has its metrics, and one without a value is an error, expected or not."""
    known = [name for name in directions if not all(name in one.reading.lacks for one in measured)]
    metrics = [
        metric(name, one.reading.values.get(name), UNIT, gpu=one.gpu.index) for one in measured for name in known
    ]
    found = [_needed(item) for item in judge(CHECK, metrics, expectations)]
    verdict, blame = overall(found), "hardware"
    broken = [one for one in measured if one.reading.problem]
    if any(one.reading.kind == "hardware" for one in broken):
        verdict = "fail"
    elif broken and verdict != "fail":
        verdict = "error"
    return record(
        CHECK,
        verdict=verdict,
        blame=blame,
        metrics=found,
        reason=_reason(found, broken),
        scope=_scope(found, broken),
        samples=[_sample(one, directions) for one in measured],
        evidence="\n".join(_evidence(one) for one in broken)[:_TAIL],
        **common,
    )


def _needed(item: Json) -> Json:
    if item["value"] is not None or item["verdict"] != "unjudged":
        return item
    return {**item, "verdict": "error", "expected": "a value"}


def _reason(metrics: t.Sequence[Json], broken: t.Sequence[Measured]) -> str:
    """GPUs that could not be measured are named once with their cause, not once for each missing number."""
    causes: dict[str, list[int]] = {}
    for one in broken:
        causes.setdefault(one.reading.problem, []).append(one.gpu.index)
    explained = {one.gpu.index for one in broken}
    rest = [item for item in metrics if item["value"] is not None or item.get("gpu") not in explained]
    parts = [f"GPU {', '.join(map(str, gpus))}: {problem}" for problem, gpus in causes.items()]
    return "; ".join([*parts, *([explain(rest)] if explain(rest) else [])])


def _scope(metrics: t.Sequence[Json], broken: t.Sequence[Measured]) -> Json:
    at_fault = {one.gpu.index for one in broken}
    at_fault |= {item["gpu"] for item in metrics if "gpu" in item and item["verdict"] in ("fail", "error", "warn")}
    at_fault -= {one.gpu.index for one in broken if one.gpu.surplus}
    return {"gpu": sorted(at_fault)} if at_fault else {}


def _sample(one: Measured, directions: t.Sequence[str]) -> Json:
    row = one.row(directions)
    return {key: row[key] for key in ("gpu", *directions, "numa_node", "binding", "problem")}


def _evidence(one: Measured) -> str:
    text = f"{one.outcome.out.strip()}\n{one.outcome.err.strip()}".strip()
    return f"GPU {one.gpu.index}:\n{text[-_TAIL // 4 :]}" if text else ""
