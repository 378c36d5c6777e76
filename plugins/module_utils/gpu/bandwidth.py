# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_bandwidth: run the program for each GPU, decide what of its output is believed, and judge that."""

from __future__ import annotations

import shutil
import socket
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _find, _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import (
    Json,
    explain,
    judge,
    metric,
    overall,
    record,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import Launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, ending, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import bandwidth_command, users
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.bandwidth_command import (
    CHECK,
    TESTS,
    UNIT,
    MeasuredGpu,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import bandwidth_test, nvbandwidth
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause, Log
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_csv import parse_csv
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_topo import parse_topo
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import busy
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology import binding, matrix
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology import sysfs as topology_sysfs
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import Topology, address, from_facts

# gpu_bandwidth: what one program said of one GPU, and what of it is believed. Pure, private.


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
    """Return what is believed of an output; the exit status alone proves nothing in either direction."""
    text = f"{outcome.out}\n{outcome.err}"
    if tool == "nvbandwidth":
        found = _nvbandwidth(nvbandwidth.parse(text), gpu, directions)
    else:
        found = _bandwidth_test(bandwidth_test.parse(text), directions)
    # A program that was ended after its last number did not end by itself; what the GPU did to it explains more.
    late = outcome.rc is None and found.kind != "hardware"
    if outcome.problem and (late or not found.problem):
        found = found._replace(problem=outcome.problem, kind="infra")
    missing = [name for name in directions if found.values.get(name) is None and name not in found.lacks]
    if missing and not found.problem:
        found = found._replace(problem=f"{tool} printed no number for {', '.join(missing)}")
    return found


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
    other = _other(run, gpu)
    if other:
        return BandwidthReading({}, other, name=name, version=run.version)
    tests = {direction: run.test(TESTS[direction]) for direction in directions}
    lacks = [direction for direction, test in tests.items() if test and _unknown(test)]
    told = [test.error for test in tests.values() if test and test.error and not _unknown(test)]
    cause = log.cause if log.cause and _UNKNOWN not in log.cause.text else None
    problem = told[0] if told else cause.text if cause else ""
    if not problem and any(test.status == "running" for test in run.tests):
        problem = "the output of nvbandwidth breaks off"
    values = {direction: test.only if test else None for direction, test in tests.items()}
    return BandwidthReading(values, problem.strip(), cause.kind if cause else "infra", name, run.version, lacks)


def _other(run: nvbandwidth.NvbandwidthRun, gpu: MeasuredGpu) -> str:
    """Say that something else was measured than the one GPU."""
    if len(run.devices) > 1:
        return f"nvbandwidth saw {len(run.devices)} GPUs instead of one"
    printed = run.devices[0].bus_id if run.devices else None
    seen, asked = address(printed or ""), address(gpu.bus_id or "")
    return (
        f"nvbandwidth measured the GPU at {printed}, not that at {gpu.bus_id}"
        if seen and asked and seen != asked
        else ""
    )


def _unknown(test: nvbandwidth.NvbandwidthTest) -> bool:
    return test.status == "error" and _UNKNOWN in (test.error or "")


# gpu_bandwidth: the check record of what was measured. Pure, private.


_TAIL = 2000


class MeasuredBandwidth(t.NamedTuple):
    """One GPU, what was run for it and what came of it."""

    gpu: MeasuredGpu
    reading: BandwidthReading
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
    measured: t.Sequence[MeasuredBandwidth], directions: t.Sequence[str], expectations: t.Sequence[Json], common: Json
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


def _reason(metrics: t.Sequence[Json], broken: t.Sequence[MeasuredBandwidth]) -> str:
    """GPUs that could not be measured are named once with their cause, not once for each missing number."""
    causes: dict[str, list[int]] = {}
    for one in broken:
        causes.setdefault(one.reading.problem, []).append(one.gpu.index)
    explained = {one.gpu.index for one in broken}
    rest = [item for item in metrics if item["value"] is not None or item.get("gpu") not in explained]
    parts = [f"GPU {', '.join(map(str, gpus))}: {problem}" for problem, gpus in causes.items()]
    return "; ".join([*parts, *([explain(rest)] if explain(rest) else [])])


def _scope(metrics: t.Sequence[Json], broken: t.Sequence[MeasuredBandwidth]) -> Json:
    at_fault = {one.gpu.index for one in broken}
    at_fault |= {item["gpu"] for item in metrics if "gpu" in item and item["verdict"] in ("fail", "error", "warn")}
    at_fault -= {one.gpu.index for one in broken if one.gpu.surplus}
    return {"gpu": sorted(at_fault)} if at_fault else {}


def _sample(one: MeasuredBandwidth, directions: t.Sequence[str]) -> Json:
    row = one.row(directions)
    return {key: row[key] for key in ("gpu", *directions, "numa_node", "binding", "problem")}


def _evidence(one: MeasuredBandwidth) -> str:
    text = f"{one.outcome.out.strip()}\n{one.outcome.err.strip()}".strip()
    return f"GPU {one.gpu.index}:\n{text[-_TAIL // 4 :]}" if text else ""


# gpu_bandwidth: look at the machine, run the program for each GPU, and collect what came back.


_FIELDS = ("index", "uuid", "pci.bus_id")
# A driver that hangs is found by the checks of gpu_info; here its GPUs are then named by their indexes.
_PATIENCE = 30.0


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> Json:
    """Measure and return what the module returns; raises ValueError for options that make no sense."""
    indexes = bandwidth_command.wanted(params["gpus"])
    begin = time.monotonic()
    try:
        launch = _launch.here(params, job_name="gpu_bandwidth", timeout=params["timeout"])
    except _find.NotFound as exc:
        return _without(params, "error", str(exc))
    bandwidth_command.validate(params, launch)
    facts = from_facts(params["topology"]) if params["topology"] else None
    if check_mode:
        return _without(params, "skipped", "check mode")
    if launch.kind != "local" and indexes is None and facts is None:
        raise bandwidth_command.GpuBandwidthError(
            f"launcher {launch.kind} needs gpus or topology: this machine's GPUs may be others"
        )
    listed = _listed(params["timeout"]) if launch.kind == "local" else None
    topology = facts or (_topology(params["sysfs"], listed, params["timeout"]) if launch.kind == "local" else None)
    gpus = bandwidth_command.plan(indexes, topology, listed)
    if not gpus:
        none = "error" if bandwidth_command.expected(params) else "skipped"
        return _without(params, none, "no GPU")
    return _looked(params, launch, gpus, begin)


def _looked(
    params: t.Mapping[str, t.Any], launch: Launch, gpus: t.Sequence[bandwidth_command.MeasuredGpu], begin: float
) -> Json:
    """Measure between two looks at who else uses the GPUs."""
    chosen = {name for gpu in gpus for name in (gpu.index, gpu.uuid) if name is not None}
    watch = users.UserWatch(launch, params, chosen)
    if watch.refusal:
        return _without(params, "skipped", watch.refusal, gpus)
    try:
        program = bandwidth_command.choose(params["tool"], params["path"], launch, _find.find)
    except _find.NotFound as exc:
        return _without(params, "error", str(exc), gpus)
    measured = _measure(params, launch, program, gpus)
    taken = next(filter(None, (busy(one.outcome.err) for one in measured)), "")
    if taken and not any(one.reading.values for one in measured):
        return _without(params, "skipped", taken, gpus)
    seconds = time.monotonic() - begin
    found = _result({**params, "expect": watch.limits(params["expect"])}, program, measured, seconds)
    return {**found, "checks": [watch.noted(one) for one in found["checks"]]}


def _measure(
    params: t.Mapping[str, t.Any],
    launch: Launch,
    program: bandwidth_command.Program,
    gpus: t.Sequence[bandwidth_command.MeasuredGpu],
) -> list[MeasuredBandwidth]:
    """One GPU that hangs must not cost the others their numbers."""
    how = binding.method() if params["bind"] else None
    words = bandwidth_command.arguments(program.tool, params["directions"], params["size"], params["arguments"])

    refused: list[str] = []

    def one(gpu: bandwidth_command.MeasuredGpu) -> MeasuredBandwidth:
        if gpu.problem or refused:
            return MeasuredBandwidth(gpu, BandwidthReading({}, gpu.problem or refused[0]))
        command = bandwidth_command.command(launch, [program.path, *words], gpu, how)
        outcome = run(command.argv, params["timeout"], None, command.environment)
        refused.extend(filter(None, [busy(outcome.err)]))
        reading = read(program.tool, outcome, gpu, params["directions"])
        return MeasuredBandwidth(
            gpu, reading, outcome, command.argv, command.environment, bandwidth_command.binding(launch, gpu, how)
        )

    if params["mode"] == "sequential":
        return list(map(one, gpus))
    with ThreadPoolExecutor(len(gpus)) as pool, ending():
        return list(pool.map(one, gpus))


def _result(
    params: t.Mapping[str, t.Any],
    program: bandwidth_command.Program,
    measured: t.Sequence[MeasuredBandwidth],
    seconds: float,
) -> Json:
    directions = params["directions"]
    version = next((one.reading.version for one in measured if one.reading.version), None)
    lacks = sorted({name for one in measured for name in one.reading.lacks})
    notes = [f"{program.tool} {version or ''} does not measure {name}".replace("  ", " ") for name in lacks]
    common = _about(params)
    common["context"].update(tool=program.tool, path=program.path, version=version, notes=notes)
    common["context"]["argv"] = next((list(one.argv) for one in measured if one.argv), [])
    found = judged(measured, directions, params["expect"], {**common, "seconds": seconds})
    return {"checks": [found], "gpus": [one.row(directions) for one in measured], "tool": program.tool}


def _listed(timeout: float) -> list[bandwidth_command.Listed] | None:
    """Return the GPUs of this machine, or None where nvidia-smi cannot tell."""
    smi = shutil.which("nvidia-smi")
    if not smi:
        return None
    query = [smi, f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader"]
    outcome = run(query, min(timeout, _PATIENCE))
    # One GPU that is lost gives nvidia-smi another status than 0, and leaves the rows of all others.
    runs = parse_csv(outcome.out, _FIELDS).runs if outcome.rc is not None else []
    rows = [row.values for found in runs for row in found.rows]
    cells = [[row.get(name) or "" for name in _FIELDS] for row in rows]
    return [bandwidth_command.Listed(int(one), uuid, bus_id) for one, uuid, bus_id in cells if one.isdigit()] or None


def _topology(sysfs: str, listed: t.Sequence[bandwidth_command.Listed] | None, timeout: float) -> Topology:
    found = topology_sysfs.read_sysfs(sysfs, None if listed is None else [gpu.bus_id for gpu in listed])
    # nvidia-smi keeps the number of a GPU that is lost.
    numbers = [gpu.index for gpu in listed or found.gpus]
    found = replace(found, gpus=[replace(gpu, index=number) for gpu, number in zip(found.gpus, numbers)])
    smi = shutil.which("nvidia-smi")
    if not listed or not smi or all(gpu.numa_node is not None for gpu in found.gpus):
        return found
    outcome = run([smi, "topo", "-m"], min(timeout, _PATIENCE))
    runs = parse_topo(outcome.out).runs if outcome.rc == 0 else []
    return matrix.merge(found, runs[0] if runs else None)


def _about(params: t.Mapping[str, t.Any]) -> Json:
    host = params["hosts"][0] if params["hosts"] else socket.gethostname().partition(".")[0]
    known = {"tool": None, "version": None, "argv": [], "profile": params["profile"]}
    context = {**known, "mode": params["mode"], "launcher": params["launcher"]}
    return {"node": params["name"] or host, "time": time.time(), "run": params["run"], "context": context}


def _without(
    params: t.Mapping[str, t.Any], verdict: str, reason: str, gpus: t.Sequence[bandwidth_command.MeasuredGpu] = ()
) -> Json:
    rows = [MeasuredBandwidth(gpu, BandwidthReading({}, reason)).row(params["directions"]) for gpu in gpus]
    found = record(CHECK, verdict=verdict, reason=reason, **_about(params))
    return {"checks": [found], "gpus": rows, "tool": None}
