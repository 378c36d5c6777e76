# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of what GPUs count and how they are set, from what nvidia-smi said. Private, stdlib only."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json, metric
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import jobs_here
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Context
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.checks_gpu import read
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.limits import Finding, limits, report
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.seen import Seen
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_gpu import Gpu

Field = t.Callable[[Gpu], t.Any]
# GH200, GB200, GB300: their memory is a node of the machine's, and Linux caches files in it.
_COHERENT = re.compile(r"G[BH]\d")
_COUNTS = [
    f"{memory}_{kind}_{period}"
    for memory in ("sram", "dram")
    for kind in ("uncorrected", "corrected")
    for period in ("volatile", "aggregate")
]


def memory_errors(context: Context) -> list[Json]:
    """Judge SRAM and DRAM apart: a sum of both hides a fault of the one behind repairs of the other."""
    fields: list[tuple[str, str, Field]] = [(name, "errors", _counter(name)) for name in _COUNTS]
    fields += [
        ("sram_threshold_exceeded", "flags", lambda gpu: _flag(gpu.ecc.sram_threshold_exceeded)),
        ("retirement_pending", "flags", lambda gpu: _flag(gpu.repairs.retirement_pending)),
    ]
    return [_measured(context, "gpu_memory_errors", fields, Finding(action="reset"))]


def _counter(name: str) -> Field:
    memory, kind, period = name.split("_")
    return lambda gpu: gpu.ecc.counts.get(f"{period}_{memory}_{kind}")


def _flag(value: bool | None) -> int | None:
    return None if value is None else int(value)


def persistence(context: Context) -> list[Json]:
    """Without persistence the driver forgets clocks, and each first job waits for it to start."""
    fields: list[tuple[str, str, Field]] = [("persistence", "flags", lambda gpu: _flag(gpu.persistence))]
    return [_measured(context, "gpu_persistence", fields, Finding(blame="config", action="monitor"))]


def clock_limits(context: Context) -> list[Json]:
    """Compare the highest clocks that a GPU offers with those of its kind; a lock leaves them as they are."""
    wanted = (context.config.profile.get("gpu") or {}).get("max_clocks")
    highest = [
        {"check": "gpu_clock_limits", "metric": f"{name}_max", "op": ">=", "value": value, "unit": "MHz"}
        for name, value in (wanted.items() if isinstance(wanted, dict) else ())
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    ]
    more = [{**one, "source": "max_clocks of the profile", "verdict": "warn"} for one in highest]
    fields: list[tuple[str, str, Field]] = [
        ("graphics_max", "MHz", lambda gpu: gpu.max_clocks.graphics_mhz),
        ("memory_max", "MHz", lambda gpu: gpu.max_clocks.memory_mhz),
    ]
    return [_measured(context, "gpu_clock_limits", fields, Finding(blame="config", more=more))]


def idle(context: Context) -> list[Json]:
    """Nobody's memory and processes on GPUs while no job runs; what is seen once may just be on its way out."""
    busy = _busy(context)
    seen = read(context).seen
    busy |= _busy(context)
    if busy:
        return [report(context, "gpu_idle", Finding(verdict="skipped", reason="a job runs here"))]
    limit = limits(context, "gpu_idle")
    sure = context.suite == "boot" or context.kept("gpu_idle") is True
    expect = limit if sure else [{**one, "verdict": "warn"} for one in limit]
    fields: list[tuple[str, str, Field]] = [("processes", "processes", lambda gpu: len(gpu.processes))]
    if not _COHERENT.match(str((context.config.profile.get("gpu") or {}).get("model"))):
        fields.insert(0, ("memory_used", "MiB", lambda gpu: gpu.memory_used_mib))
    one = _measured(context, "gpu_idle", fields, Finding(blame="software", expect=expect))
    context.keep("gpu_idle", one["verdict"] in ("fail", "warn"))
    names = sorted({f"{p.pid} {p.name or ''}".strip() for gpu in seen.gpus.values() for p in gpu.processes})
    return [{**one, "evidence": ", ".join(names)[:1000]}]


def _busy(context: Context) -> bool:
    """In an epilog the job that has just ended does not count."""
    return bool(jobs_here.jobs(jobs_here.processes(context.config.proc)) - jobs_here.ended(context.suite))


def _measured(
    context: Context,
    check: str,
    fields: t.Sequence[tuple[str, str, Field]],
    found: Finding,
) -> Json:
    """Measure fields of all GPUs; what none of them has is left out, what one of them lacks is an error."""
    seen = read(context).seen
    if not seen.gpus:
        return report(context, check, nothing(context, seen))
    metrics: list[Json] = []
    for name, unit, field in fields:
        values = {index: field(gpu) for index, gpu in seen.gpus.items()}
        if any(value is not None for value in values.values()):
            metrics += [metric(name, value, unit, gpu=index) for index, value in values.items()]
    if not metrics:
        return report(context, check, Finding(verdict="skipped", reason="nvidia-smi shows no such value of these GPUs"))
    one = report(context, check, found._replace(metrics=metrics))
    bad = {item["gpu"] for item in one["metrics"] if "gpu" in item and item["verdict"] in ("fail", "warn", "error")}
    return {**one, "scope": {"gpu": sorted(bad)} if bad else {}}


def nothing(context: Context, seen: Seen) -> Finding:
    """No GPU where none is planned is no finding; where nobody knows, nobody can say that all is well."""
    gpu = context.config.profile.get("gpu")
    none = isinstance(gpu, dict) and gpu.get("count") == 0
    if none and not seen.topology.gpus:
        return Finding(verdict="skipped", reason="no GPU is expected")
    return Finding(verdict="error", reason=seen.problem("query") or "nvidia-smi shows no GPU")
