# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nccl_tests: from what was measured to facts and check records. Pure, private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json, judge, metric, overall, record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl.request import CHECK, UNITS, Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl.trust import (
    Measured,
    culprits,
    distrust,
    groups,
    wrong_rows,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nccl_tests import Run, Timing

_ROUNDING = 16  # bytes per rank that nccl-tests may take off a size


def table(runs: t.Sequence[Run], collective: str) -> list[Json]:
    """Return the rows as facts, in GB/s and microseconds; tables of ranks that ran alone are none."""
    return [
        {
            "collective": collective,
            **{name: getattr(row, name) for name in ("size", "count", "type", "redop", "root")},
            **_timing(row.out_of_place),
            "in_place": _timing(row.in_place),
        }
        for row in (runs[0].rows if len(runs) == 1 else [])
    ]


def _timing(timing: Timing | None) -> Json:
    return {name: getattr(timing, name, None) for name in ("time_us", "algbw", "busbw", "wrong")}


def summary(measured: Measured, collective: str) -> Json:
    """Return one run without its rows and ranks."""
    runs = measured.log.runs
    found: Json = {"collective": collective, "tables": len(runs), "rc": measured.rc}
    run = runs[0] if runs else None
    names = ("program", "version", "nccl_version", "layout", "ranks", "nodes", "complete", "ok", "correct", "validated")
    more = ("out_of_bounds", "average_busbw", "peak_busbw", "notes")
    found.update({name: getattr(run, name, None) for name in (*names, *more)})
    cause = measured.log.cause
    return {**found, "cause": cause and cause.text, **measured.network.facts()}


def metrics(run: Run, request: Request, collective: str) -> list[Json]:
    """Return what is judged; the mean over all sizes has a name and a unit of its own, so that no limit meets it."""
    found = []
    for size in dict.fromkeys(row.size for row in run.rows if row.size):
        nominal = next((s for s in request.sizes if 0 <= s - size < _ROUNDING * request.gpus), size)
        for name, column in (("busbw", "out_of_place"), ("busbw_in_place", "in_place")):
            values = [getattr(row, column) for row in run.rows if row.size == size]
            speeds = [timing.busbw for timing in values if timing and timing.busbw is not None]
            if speeds:
                found.append(metric(name, min(speeds), UNITS[name], collective=collective, size=nominal))
    wrong = max(run.out_of_bounds or 0, wrong_rows(run)) if run.validated else None
    facts = {"busbw_peak": run.peak_busbw, "sweep_mean": run.average_busbw, "wrong": wrong, "ranks": run.ranks}
    found += [metric(name, value, UNITS[name], collective=collective) for name, value in facts.items()]
    return found


def check(measured: Measured, request: Request, collective: str, expect: t.Sequence[Json], common: Json) -> Json:
    """Return the record of one collective."""
    finding = distrust(measured, request, collective)
    runs = measured.log.runs
    more = {**common, "samples": table(runs, collective), "scope": _scope(request, measured)}
    if finding and not finding.judged:
        return record(CHECK, verdict=finding.verdict, blame=finding.blame, reason=finding.reason, **more)
    # A part of the ranks is not what a profile speaks of.
    limits = [*([] if groups(runs[0]) > 1 else expect), *([_exact(collective)] if request.check else [])]
    judged = judge(CHECK, metrics(runs[0], request, collective), limits, nodes=request.launch.nodes)
    if finding:
        return record(CHECK, verdict="fail", blame=finding.blame, reason=finding.reason, metrics=judged, **more)
    verdict, reason = _verdict(judged, request)
    blame = "fabric" if request.launch.nodes > 1 else "hardware"
    return record(CHECK, verdict=verdict, blame=blame, reason=reason, metrics=judged, **more)


def _verdict(judged: t.Sequence[Json], request: Request) -> tuple[str, str]:
    """Speed without right values is no pass, and neither are right values at a speed nobody compared with anything."""
    verdict = overall(judged)
    if verdict == "pass" and not request.check:
        return "unjudged", "results were not checked for wrong values"
    if verdict == "pass" and all(m["verdict"] == "unjudged" for m in judged if m["name"].startswith("busbw")):
        return "unjudged", "no bandwidth is expected"
    return verdict, ""


def result(
    measured: t.Mapping[str, Measured], request: Request, expect: t.Sequence[Json], about: t.Mapping[str, Json]
) -> Json:
    """Return what the module returns; ``about`` is what each record says of itself (time, node, context)."""
    runs = {name: one.log.runs for name, one in measured.items()}
    first = next((run for found in runs.values() for run in found), None)
    devices = first.devices if first else []
    return {
        "checks": [check(one, request, name, expect, about[name]) for name, one in measured.items()],
        "runs": [summary(one, name) for name, one in measured.items()],
        "rows": [row for name, found in runs.items() for row in table(found, name)],
        "peak": {name: _of(found, "peak_busbw") for name, found in runs.items()},
        "average": {name: _of(found, "average_busbw") for name, found in runs.items()},
        "correct": {name: _of(found, "correct") for name, found in runs.items()},
        "ranks": [
            {name: getattr(device, name) for name in ("rank", "host", "device", "bus_id", "name")} for device in devices
        ],
        "nodes": _hosts([first]) if first else [],
    }


def _of(runs: t.Sequence[Run], name: str) -> t.Any:
    """Of several tables none is the answer."""
    return getattr(runs[0], name) if len(runs) == 1 else None


def _hosts(runs: t.Sequence[Run]) -> list[str]:
    return sorted({device.host for run in runs for device in run.devices if device.host})


def _scope(request: Request, measured: Measured) -> Json:
    """Several nodes are a group; of one node the GPUs that are known to be at fault."""
    if request.launch.nodes > 1:
        return {"group": _hosts(measured.log.runs) or list(request.launch.hosts)}
    order = request.launch.environment.get("CUDA_VISIBLE_DEVICES", "").split(",")
    numbers = [device.device for dummy, device in culprits(measured) if device]
    # A program counts the devices that it sees, from 0.
    gpus = {int(order[n]) if n < len(order) and order[n].isdigit() else n for n in numbers}
    return {"gpu": sorted(gpus)} if gpus else {}


def _exact(collective: str) -> Json:
    limit = {"op": "==", "value": 0, "unit": "checks", "source": "a collective moves or adds numbers exactly"}
    return {"check": CHECK, "metric": "wrong", "collective": collective, **limit}
