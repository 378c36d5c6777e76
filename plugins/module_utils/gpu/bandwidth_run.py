# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_bandwidth: look at the machine, run the program for each GPU, and collect what came back. Private."""

from __future__ import annotations

import shutil
import socket
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _find, _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json, record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._child import ending
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import Launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import bandwidth as asked
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import bandwidth_argv as argv
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import bandwidth_check as check
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import users
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.bandwidth_read import Reading, read
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_csv import parse_csv
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_topo import parse_topo
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.srun_busy import busy
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology import merge, numa
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology import sysfs as topology_sysfs
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import Topology, from_facts

_FIELDS = ("index", "uuid", "pci.bus_id")
# A driver that hangs is found by the checks of gpu_info; here its GPUs are then named by their indexes.
_PATIENCE = 30.0


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> Json:
    """Measure and return what the module returns; raises ValueError for options that make no sense."""
    indexes = asked.wanted(params["gpus"])
    begin = time.monotonic()
    try:
        launch = _launch.here(params, job_name="gpu_bandwidth", timeout=params["timeout"])
    except _find.NotFound as exc:
        return _without(params, "error", str(exc))
    asked.validate(params, launch)
    facts = from_facts(params["topology"]) if params["topology"] else None
    if check_mode:
        return _without(params, "skipped", "check mode")
    if launch.kind != "local" and indexes is None and facts is None:
        raise asked.BandwidthError(f"launcher {launch.kind} needs gpus or topology: this machine's GPUs may be others")
    listed = _listed(params["timeout"]) if launch.kind == "local" else None
    topology = facts or (_topology(params["sysfs"], listed, params["timeout"]) if launch.kind == "local" else None)
    gpus = asked.plan(indexes, topology, listed)
    if not gpus:
        none = "error" if asked.expected(params) else "skipped"
        return _without(params, none, "no GPU")
    return _looked(params, launch, gpus, begin)


def _looked(params: t.Mapping[str, t.Any], launch: Launch, gpus: t.Sequence[asked.Gpu], begin: float) -> Json:
    """Measure between two looks at who else uses the GPUs."""
    chosen = {name for gpu in gpus for name in (gpu.index, gpu.uuid) if name is not None}
    watch = users.Watch(launch, params, chosen)
    if watch.refusal:
        return _without(params, "skipped", watch.refusal, gpus)
    try:
        program = argv.choose(params["tool"], params["path"], launch, _find.find)
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
    params: t.Mapping[str, t.Any], launch: Launch, program: argv.Program, gpus: t.Sequence[asked.Gpu]
) -> list[check.Measured]:
    """One GPU that hangs must not cost the others their numbers."""
    how = numa.method() if params["bind"] else None
    words = argv.arguments(program.tool, params["directions"], params["size"], params["arguments"])

    refused: list[str] = []

    def one(gpu: asked.Gpu) -> check.Measured:
        if gpu.problem or refused:
            return check.Measured(gpu, Reading({}, gpu.problem or refused[0]))
        command = argv.command(launch, [program.path, *words], gpu, how)
        outcome = run(command.argv, params["timeout"], None, command.environment)
        refused.extend(filter(None, [busy(outcome.err)]))
        reading = read(program.tool, outcome, gpu, params["directions"])
        return check.Measured(gpu, reading, outcome, command.argv, command.environment, argv.binding(launch, gpu, how))

    if params["mode"] == "sequential":
        return list(map(one, gpus))
    with ThreadPoolExecutor(len(gpus)) as pool, ending():
        return list(pool.map(one, gpus))


def _result(
    params: t.Mapping[str, t.Any], program: argv.Program, measured: t.Sequence[check.Measured], seconds: float
) -> Json:
    directions = params["directions"]
    version = next((one.reading.version for one in measured if one.reading.version), None)
    lacks = sorted({name for one in measured for name in one.reading.lacks})
    notes = [f"{program.tool} {version or ''} does not measure {name}".replace("  ", " ") for name in lacks]
    common = _about(params)
    common["context"].update(tool=program.tool, path=program.path, version=version, notes=notes)
    common["context"]["argv"] = next((list(one.argv) for one in measured if one.argv), [])
    found = check.judged(measured, directions, params["expect"], {**common, "seconds": seconds})
    return {"checks": [found], "gpus": [one.row(directions) for one in measured], "tool": program.tool}


def _listed(timeout: float) -> list[asked.Listed] | None:
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
    return [asked.Listed(int(one), uuid, bus_id) for one, uuid, bus_id in cells if one.isdigit()] or None


def _topology(sysfs: str, listed: t.Sequence[asked.Listed] | None, timeout: float) -> Topology:
    found = topology_sysfs.read_sysfs(sysfs, None if listed is None else [gpu.bus_id for gpu in listed])
    # nvidia-smi keeps the number of a GPU that is lost.
    numbers = [gpu.index for gpu in listed or found.gpus]
    found = replace(found, gpus=[replace(gpu, index=number) for gpu, number in zip(found.gpus, numbers)])
    smi = shutil.which("nvidia-smi")
    if not listed or not smi or all(gpu.numa_node is not None for gpu in found.gpus):
        return found
    outcome = run([smi, "topo", "-m"], min(timeout, _PATIENCE))
    runs = parse_topo(outcome.out).runs if outcome.rc == 0 else []
    return merge.merge(found, runs[0] if runs else None)


def _about(params: t.Mapping[str, t.Any]) -> Json:
    host = params["hosts"][0] if params["hosts"] else socket.gethostname().partition(".")[0]
    known = {"tool": None, "version": None, "argv": [], "profile": params["profile"]}
    context = {**known, "mode": params["mode"], "launcher": params["launcher"]}
    return {"node": params["name"] or host, "time": time.time(), "run": params["run"], "context": context}


def _without(params: t.Mapping[str, t.Any], verdict: str, reason: str, gpus: t.Sequence[asked.Gpu] = ()) -> Json:
    rows = [check.Measured(gpu, Reading({}, reason)).row(params["directions"]) for gpu in gpus]
    found = record(check.CHECK, verdict=verdict, reason=reason, **_about(params))
    return {"checks": [found], "gpus": rows, "tool": None}
