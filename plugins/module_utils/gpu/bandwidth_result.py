# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_bandwidth: from the output of the programs to bandwidths that can be trusted, and to a check record. Pure."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import (
    Json,
    explain,
    judge,
    metric,
    overall,
    record,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import bandwidth_test, nvbandwidth
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause, Log
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import address

CHECK = "gpu_bandwidth"
UNIT = "GB/s"
# What nvbandwidth calls the copies in these directions.
TESTS = {"h2d": "host_to_device_memcpy_ce", "d2h": "device_to_host_memcpy_ce", "d2d": "device_local_copy"}


@dataclass(frozen=True)
class MeasuredGpu:
    """One GPU to be measured, and where it is; ``problem`` says why it cannot be measured.

    ``surplus``: no device has this number, because those behind one that is gone have moved up.
    """

    index: int
    uuid: str | None = None
    bus_id: str | None = None
    numa_node: int | None = None
    cpus: str = ""
    problem: str = ""
    surplus: bool = False

    @property
    def visible(self) -> str:
        """Return the GPU's name for CUDA: the UUID if known, since indexes shift where a GPU is missing."""
        return self.uuid or str(self.index)


# From the output of one program to the bandwidths of one GPU that can be trusted. Pure.


_UNKNOWN = "not found!"


class BandwidthReading(t.NamedTuple):
    """Bandwidths in GB/s by direction. ``problem`` says why one is missing, ``kind`` is its class; ``lacks`` are
    directions that this version of the program cannot measure."""

    values: t.Mapping[str, float | None]
    problem: str = ""
    kind: str = "infra"
    name: str | None = None
    version: str | None = None
    lacks: t.Sequence[str] = ()


def read(tool: str, outcome: Outcome, gpu: MeasuredGpu, directions: t.Sequence[str]) -> BandwidthReading:
    """Return the bandwidths of an output and what is wrong with it; the exit status alone proves nothing."""
    text = f"{outcome.out}\n{outcome.err}"
    if tool == "nvbandwidth":
        reading = _nvbandwidth(nvbandwidth.parse(text), gpu, directions)
    else:
        reading = _bandwidth_test(bandwidth_test.parse(text), directions)
    # A program that was ended after its last number did not end by itself; what the GPU did to it explains more.
    late = outcome.rc is None and reading.kind != "hardware"
    if outcome.problem and (late or not reading.problem):
        reading = reading._replace(problem=outcome.problem, kind="infra")
    absent = [name for name in directions if reading.values.get(name) is None and name not in reading.lacks]
    if absent and not reading.problem:
        reading = reading._replace(problem=f"{tool} printed no number for {', '.join(absent)}")
    return reading


def _refused(problem: str, cause: Cause | None = None) -> BandwidthReading:
    return BandwidthReading({}, problem, cause.kind if cause else "infra")


def _not_one(tool: str, runs: int, cause: Cause | None) -> BandwidthReading:
    text = cause.text if cause else f"{tool} printed {runs} results instead of one" if runs else ""
    return _refused(text, cause)


def _bandwidth_test(log: Log[bandwidth_test.BandwidthTestRun], directions: t.Sequence[str]) -> BandwidthReading:
    if len(log.runs) != 1:
        return _not_one("bandwidthTest", len(log.runs), log.cause)
    (run,) = log.runs
    if run.devices != 1:
        return _refused(f"bandwidthTest printed the sum over {run.devices} GPUs, which says nothing of one")
    if run.fallback is not None or run.device not in (0, None):
        return _refused(f"bandwidthTest measured device {run.device}, not the one device that it was given")
    values = {name: run.bandwidth(name) for name in directions}
    cause = run.cause or log.cause
    if cause or not run.complete:
        text = cause.text if cause else "the output of bandwidthTest breaks off"
        return _refused(text, cause)._replace(values=values, name=run.device_name)
    return BandwidthReading(values, name=run.device_name)


def _nvbandwidth(
    log: Log[nvbandwidth.NvbandwidthRun], gpu: MeasuredGpu, directions: t.Sequence[str]
) -> BandwidthReading:
    if len(log.runs) != 1:
        return _not_one("nvbandwidth", len(log.runs), log.cause)
    (run,) = log.runs
    name = run.devices[0].name if run.devices else None
    mismatch = _other(run, gpu)
    if mismatch:
        return BandwidthReading({}, mismatch, name=name, version=run.version)
    tests = {direction: run.test(TESTS[direction]) for direction in directions}
    lacks = [direction for direction, test in tests.items() if test and _unknown(test)]
    errors = [test.error for test in tests.values() if test and test.error and not _unknown(test)]
    cause = log.cause if log.cause and _UNKNOWN not in log.cause.text else None
    problem = errors[0] if errors else cause.text if cause else ""
    if not problem and any(test.status == "running" for test in run.tests):
        problem = "the output of nvbandwidth breaks off"
    values = {direction: test.only if test else None for direction, test in tests.items()}
    return BandwidthReading(values, problem.strip(), cause.kind if cause else "infra", name, run.version, lacks)


def _other(run: nvbandwidth.NvbandwidthRun, gpu: MeasuredGpu) -> str:
    """Return how the measured GPU differs from the intended one; empty when it does not, or nobody can tell."""
    if len(run.devices) > 1:
        return f"nvbandwidth saw {len(run.devices)} GPUs instead of one"
    printed = run.devices[0].bus_id if run.devices else None
    measured, expected = address(printed or ""), address(gpu.bus_id or "")
    return (
        f"nvbandwidth measured the GPU at {printed}, not that at {gpu.bus_id}"
        if measured and expected and measured != expected
        else ""
    )


def _unknown(test: nvbandwidth.NvbandwidthTest) -> bool:
    return test.status == "error" and _UNKNOWN in (test.error or "")


# From the bandwidths of all GPUs to a check record. Pure.


_TAIL = 2000


class MeasuredBandwidth(t.NamedTuple):
    """One GPU, the command that was run for it, and its bandwidths."""

    gpu: MeasuredGpu
    reading: BandwidthReading
    outcome: Outcome = Outcome(None, "", "", 0.0)
    argv: t.Sequence[str] = ()
    environment: t.Mapping[str, str] = {}
    binding: str = "none"

    def row(self, directions: t.Sequence[str]) -> Json:
        """Return the GPU's row of the module's result."""
        gpu, reading = self.gpu, self.reading
        values = {name: reading.values.get(name) for name in directions}
        location = {"numa_node": gpu.numa_node, "cpus": gpu.cpus, "binding": self.binding}
        command = {"argv": list(self.argv), "environment": dict(self.environment), "seconds": self.outcome.seconds}
        about = {"gpu": gpu.index, "uuid": gpu.uuid, "bus_id": gpu.bus_id, "name": reading.name}
        return {**about, **values, **location, **command, "problem": reading.problem or None}


def ran(tool: str, measured: t.Sequence[MeasuredBandwidth]) -> Json:
    """Return what the record's context says of the program, which prints its version and what it cannot measure."""
    version = next((gpu.reading.version for gpu in measured if gpu.reading.version), None)
    lacks = sorted({name for gpu in measured for name in gpu.reading.lacks})
    notes = [f"{tool} {version or ''} does not measure {name}".replace("  ", " ") for name in lacks]
    argv = next((list(gpu.argv) for gpu in measured if gpu.argv), [])
    return {"tool": tool, "version": version, "argv": argv, "notes": notes}


def judged(
    measured: t.Sequence[MeasuredBandwidth], directions: t.Sequence[str], expectations: t.Sequence[Json], common: Json
) -> Json:
    """Return the record: every planned GPU has its metrics, and one without a value is an error, expected or not."""
    supported = [name for name in directions if not all(name in gpu.reading.lacks for gpu in measured)]
    metrics = [
        metric(name, gpu.reading.values.get(name), UNIT, gpu=gpu.gpu.index) for gpu in measured for name in supported
    ]
    judged = [_needed(entry) for entry in judge(CHECK, metrics, expectations)]
    verdict, blame = overall(judged), "hardware"
    broken = [gpu for gpu in measured if gpu.reading.problem]
    if any(gpu.reading.kind == "hardware" for gpu in broken):
        verdict = "fail"
    elif broken and verdict != "fail":
        verdict = "error"
    return record(
        CHECK,
        verdict=verdict,
        blame=blame,
        metrics=judged,
        scope=_scope(judged, broken),
        samples=[_sample(gpu, directions) for gpu in measured],
        evidence="\n".join(_evidence(gpu) for gpu in broken)[:_TAIL],
        reason=_reason(judged, broken),
        **common,
    )


def _needed(entry: Json) -> Json:
    if entry["value"] is not None or entry["verdict"] != "unjudged":
        return entry
    return {**entry, "verdict": "error", "expected": "a value"}


def _reason(metrics: t.Sequence[Json], broken: t.Sequence[MeasuredBandwidth]) -> str:
    """Return why it is no pass: GPUs that could not be measured stand once with their cause, not for each metric."""
    causes: dict[str, list[int]] = {}
    for gpu in broken:
        causes.setdefault(gpu.reading.problem, []).append(gpu.gpu.index)
    explained = {gpu.gpu.index for gpu in broken}
    others = [entry for entry in metrics if entry["value"] is not None or entry.get("gpu") not in explained]
    texts = [f"GPU {', '.join(map(str, gpus))}: {problem}" for problem, gpus in causes.items()]
    return "; ".join([*texts, *([explain(others)] if explain(others) else [])])


def _scope(metrics: t.Sequence[Json], broken: t.Sequence[MeasuredBandwidth]) -> Json:
    at_fault = {gpu.gpu.index for gpu in broken}
    at_fault |= {entry["gpu"] for entry in metrics if "gpu" in entry and entry["verdict"] in ("fail", "error", "warn")}
    at_fault -= {gpu.gpu.index for gpu in broken if gpu.gpu.surplus}
    return {"gpu": sorted(at_fault)} if at_fault else {}


def _sample(measured: MeasuredBandwidth, directions: t.Sequence[str]) -> Json:
    row = measured.row(directions)
    return {key: row[key] for key in ("gpu", *directions, "numa_node", "binding", "problem")}


def _evidence(measured: MeasuredBandwidth) -> str:
    text = f"{measured.outcome.out.strip()}\n{measured.outcome.err.strip()}".strip()
    return f"GPU {measured.gpu.index}:\n{text[-_TAIL // 4 :]}" if text else ""
