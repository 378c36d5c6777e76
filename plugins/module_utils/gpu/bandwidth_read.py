# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_bandwidth: what one program said of one GPU, and what of it is believed. Pure, private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.bandwidth import Gpu
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.bandwidth_argv import TESTS
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import bandwidth_test, nvbandwidth
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.log import Log
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import address

_UNKNOWN = "not found!"


class Reading(t.NamedTuple):
    """Bandwidths in GB/s by direction. ``problem`` says why one is missing, ``kind`` is its class; ``lacks`` are
    directions that this version of the program cannot measure."""

    values: t.Mapping[str, float | None]
    problem: str = ""
    kind: str = "infra"
    name: str | None = None
    version: str | None = None
    lacks: t.Sequence[str] = ()


def read(tool: str, outcome: Outcome, gpu: Gpu, directions: t.Sequence[str]) -> Reading:
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


def _refused(problem: str, cause: Cause | None = None) -> Reading:
    return Reading({}, problem, cause.kind if cause else "infra")


def _not_one(tool: str, runs: int, cause: Cause | None) -> Reading:
    text = cause.text if cause else f"{tool} printed {runs} results instead of one" if runs else ""
    return _refused(text, cause)


def _bandwidth_test(log: Log[bandwidth_test.Run], directions: t.Sequence[str]) -> Reading:
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
    return Reading(values, name=run.device_name)


def _nvbandwidth(log: Log[nvbandwidth.Run], gpu: Gpu, directions: t.Sequence[str]) -> Reading:
    if len(log.runs) != 1:
        return _not_one("nvbandwidth", len(log.runs), log.cause)
    (run,) = log.runs
    name = run.devices[0].name if run.devices else None
    other = _other(run, gpu)
    if other:
        return Reading({}, other, name=name, version=run.version)
    tests = {direction: run.test(TESTS[direction]) for direction in directions}
    lacks = [direction for direction, test in tests.items() if test and _unknown(test)]
    told = [test.error for test in tests.values() if test and test.error and not _unknown(test)]
    cause = log.cause if log.cause and _UNKNOWN not in log.cause.text else None
    problem = told[0] if told else cause.text if cause else ""
    if not problem and any(test.status == "running" for test in run.tests):
        problem = "the output of nvbandwidth breaks off"
    values = {direction: test.only if test else None for direction, test in tests.items()}
    return Reading(values, problem.strip(), cause.kind if cause else "infra", name, run.version, lacks)


def _other(run: nvbandwidth.Run, gpu: Gpu) -> str:
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


def _unknown(test: nvbandwidth.Test) -> bool:
    return test.status == "error" and _UNKNOWN in (test.error or "")
