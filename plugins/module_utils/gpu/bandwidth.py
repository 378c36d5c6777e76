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
        reason=_reason(judged, broken),
        scope=_scope(judged, broken),
        samples=[_sample(gpu, directions) for gpu in measured],
        evidence="\n".join(_evidence(gpu) for gpu in broken)[:_TAIL],
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


# Read the machine, run the program for each GPU, and collect the results.


_FIELDS = ("index", "uuid", "pci.bus_id")
# A driver that hangs is found by the checks of gpu_info; here its GPUs are then named by their indexes.
_PATIENCE = 30.0


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> Json:
    """Measure and return the module's result; raises ValueError for options that make no sense."""
    indexes = bandwidth_command.parse_gpus(params["gpus"])
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
    """Measure, and read before and after it which other processes use the GPUs."""
    chosen = {name for gpu in gpus for name in (gpu.index, gpu.uuid) if name is not None}
    watch = users.UserWatch(launch, params, chosen)
    if watch.refusal:
        return _without(params, "skipped", watch.refusal, gpus)

    def probe(words: t.Sequence[str]) -> str:
        command = _launch.command(launch, words)
        return run(command.argv, params["timeout"], None, command.environment).out

    try:
        program = bandwidth_command.choose(params["tool"], params["path"], launch, _find.find, probe)
    except _find.NotFound as exc:
        return _without(params, "error", str(exc), gpus)
    measured = _measure(params, launch, program, gpus)
    taken = next(filter(None, (busy(bandwidth.outcome.err) for bandwidth in measured)), "")
    if taken and not any(bandwidth.reading.values for bandwidth in measured):
        return _without(params, "skipped", taken, gpus)
    seconds = time.monotonic() - begin
    result = _result({**params, "expect": watch.limits(params["expect"])}, program, measured, seconds)
    return {**result, "checks": [watch.noted(bandwidth) for bandwidth in result["checks"]]}


def _measure(
    params: t.Mapping[str, t.Any],
    launch: Launch,
    program: bandwidth_command.Program,
    gpus: t.Sequence[bandwidth_command.MeasuredGpu],
) -> list[MeasuredBandwidth]:
    """Run the program for each GPU; one that hangs leaves the others their results."""
    method = binding.method() if params["bind"] else None
    arguments = bandwidth_command.arguments(program.tool, params["directions"], params["size"], params["arguments"])

    refused: list[str] = []

    def one(gpu: bandwidth_command.MeasuredGpu) -> MeasuredBandwidth:
        if gpu.problem or refused:
            return MeasuredBandwidth(gpu, BandwidthReading({}, gpu.problem or refused[0]))
        command = bandwidth_command.command(launch, [program.path, *arguments], gpu, method)
        outcome = run(command.argv, params["timeout"], None, command.environment)
        refused.extend(filter(None, [busy(outcome.err)]))
        reading = read(program.tool, outcome, gpu, params["directions"])
        return MeasuredBandwidth(
            gpu, reading, outcome, command.argv, command.environment, bandwidth_command.binding(launch, gpu, method)
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
    version = next((gpu.reading.version for gpu in measured if gpu.reading.version), None)
    lacks = sorted({name for gpu in measured for name in gpu.reading.lacks})
    notes = [f"{program.tool} {version or ''} does not measure {name}".replace("  ", " ") for name in lacks]
    common = _about(params)
    common["context"].update(tool=program.tool, path=program.path, version=version, notes=notes)
    common["context"]["argv"] = next((list(gpu.argv) for gpu in measured if gpu.argv), [])
    entry = judged(measured, directions, params["expect"], {**common, "seconds": seconds})
    return {"checks": [entry], "gpus": [gpu.row(directions) for gpu in measured], "tool": program.tool}


def _listed(timeout: float) -> list[bandwidth_command.Listed] | None:
    """Return the GPUs of this machine, or None where nvidia-smi cannot tell."""
    smi = shutil.which("nvidia-smi")
    if not smi:
        return None
    query = [smi, f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader"]
    outcome = run(query, min(timeout, _PATIENCE))
    # One GPU that is lost gives nvidia-smi another status than 0, and leaves the rows of all others.
    runs = parse_csv(outcome.out, _FIELDS).runs if outcome.rc is not None else []
    rows = [row.values for csv in runs for row in csv.rows]
    cells = [[row.get(name) or "" for name in _FIELDS] for row in rows]
    return [
        bandwidth_command.Listed(int(index), uuid, bus_id) for index, uuid, bus_id in cells if index.isdigit()
    ] or None


def _topology(sysfs: str, listed: t.Sequence[bandwidth_command.Listed] | None, timeout: float) -> Topology:
    topology = topology_sysfs.read_sysfs(sysfs, None if listed is None else [gpu.bus_id for gpu in listed])
    # nvidia-smi keeps the number of a GPU that is lost.
    numbers = [gpu.index for gpu in listed or topology.gpus]
    topology = replace(topology, gpus=[replace(gpu, index=number) for gpu, number in zip(topology.gpus, numbers)])
    smi = shutil.which("nvidia-smi")
    if not listed or not smi or all(gpu.numa_node is not None for gpu in topology.gpus):
        return topology
    outcome = run([smi, "topo", "-m"], min(timeout, _PATIENCE))
    runs = parse_topo(outcome.out).runs if outcome.rc == 0 else []
    return matrix.merge(topology, runs[0] if runs else None)


def _about(params: t.Mapping[str, t.Any]) -> Json:
    host = params["hosts"][0] if params["hosts"] else socket.gethostname().partition(".")[0]
    empty = {"tool": None, "version": None, "argv": [], "profile": params["profile"]}
    context = {**empty, "mode": params["mode"], "launcher": params["launcher"]}
    return {"node": params["name"] or host, "time": time.time(), "run": params["run"], "context": context}


def _without(
    params: t.Mapping[str, t.Any], verdict: str, reason: str, gpus: t.Sequence[bandwidth_command.MeasuredGpu] = ()
) -> Json:
    rows = [MeasuredBandwidth(gpu, BandwidthReading({}, reason)).row(params["directions"]) for gpu in gpus]
    check = record(CHECK, verdict=verdict, reason=reason, **_about(params))
    return {"checks": [check], "gpus": rows, "tool": None}
