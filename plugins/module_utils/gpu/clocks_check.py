# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of a change of clocks, and the check record that says whether the GPUs took it. Pure, private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json, judge, metric, record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import clocks
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.clocks_one import One
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nvidia_smi_values as values

CHECK = "gpu_clocks"
_FINDINGS = ("fail", "error", "warn")


def result(one: One, dry: bool) -> Json:
    """Return what a GPU was, was asked for and became."""
    gpu = one.gpu
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "bus_id": gpu.bus_id,
        "name": gpu.name,
        "before": one.before,
        "after": one.predicted() if dry else one.snapshot(),
        "requested": one.target._asdict(),
        "reached": {} if dry else {d: clocks.reached(gpu, d, one.entry.of(d)) for d in gpu.current._fields},
        "supported": gpu.maximum._asdict(),
        "method": {d: one.method(d) for d in gpu.current._fields},
        "reasons": values.throttle_names(gpu.reasons or 0),
        "problems": list(one.problems),
    }


def expectations(every: t.Sequence[One], expect: t.Sequence[Json]) -> list[Json]:
    """What was asked for is expected, and so is what the profile says of every GPU, unless another clock was given."""
    asked: list[Json] = []
    given: set[str] = set()
    for one in every:
        about = {"check": CHECK, "gpu": one.gpu.index, "source": "this is what was asked for"}
        for domain, value in one.target._asdict().items():
            if value is not None:
                given.update({domain} if one.request.state == "locked" else ())
                item = {**about, "metric": domain, "unit": "MHz"}
                asked.append({**item, "op": "<=", "value": value + clocks.TOLERANCE})
                asked.append({**item, "op": ">=", "value": value - clocks.TOLERANCE})
        if one.request.persistence is not False and one.gpu.persistence is not None:
            asked.append({**about, "metric": "persistence", "unit": "flags", "op": "==", "value": 1})
    return [*asked, *(item for item in expect if item["check"] != CHECK or item["metric"] not in given)]


def measured(every: t.Sequence[One]) -> list[Json]:
    found: list[Json] = []
    for one in every:
        for domain in one.gpu.current._fields:
            value = clocks.reached(one.gpu, domain, one.entry.of(domain))
            found.append(metric(domain, value, "MHz", gpu=one.gpu.index))
        mode = None if one.gpu.persistence is None else int(one.gpu.persistence)
        found.append(metric("persistence", mode, "flags", gpu=one.gpu.index))
    return found


def difference(one: One) -> str:
    """Say how a GPU's clocks differ from what was asked for."""
    parts = list(one.problems)
    for domain, value in one.target._asdict().items():
        got = clocks.reached(one.gpu, domain, one.entry.of(domain))
        if value is None or clocks.near(got, value):
            continue
        limits = values.throttle_names((one.gpu.reasons or 0) & clocks.LIMITS)
        why = f", limited by {', '.join(limits)}" if limits else ""
        idle = f"cannot be told while it idles at {one.gpu.current.of(domain)} MHz" if got is None else f"is {got} MHz"
        parts.append(f"{domain} clock {idle} instead of {value} MHz{why}")
    if one.request.persistence is not False and one.request.state != "reset" and one.gpu.persistence is False:
        parts.append("persistence mode is off")
    return f"GPU {one.gpu.index}: {', '.join(parts)}" if parts else ""


def broken(every: t.Sequence[One], problem: str) -> bool:
    """Return whether something could not be done or seen, which is no fault of a GPU."""
    return bool(problem) or any(one.kinds & {"denied", "failed"} for one in every)


def judged(every: t.Sequence[One], expect: t.Sequence[Json], problem: str, about: Json) -> Json:
    """Return the check record; what could not be changed or seen is an error, never a fault of the GPU."""
    metrics = judge(CHECK, measured(every), expectations(every, expect))
    differences = [text for text in map(difference, every) if text]
    hardware = any((one.gpu.reasons or 0) & values.THROTTLE_FAULTS for one in every)
    affected = sorted({m["gpu"] for m in metrics if m["verdict"] in _FINDINGS and m.get("gpu") is not None})
    return record(
        CHECK,
        metrics=metrics,
        verdict="error" if broken(every, problem) else None,
        blame="hardware" if hardware else "config",
        reason="; ".join([*([problem] if problem else []), *differences]),
        scope={"gpu": affected} if affected else {},
        samples=[result(one, dry=False) for one in every],
        **about,
    )
