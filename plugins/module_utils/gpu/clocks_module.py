# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module gpu_clocks: its options, its result, its check record."""

from __future__ import annotations

import shutil
import socket
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import (
    CheckError,
    Json,
    judge,
    metric,
    record,
    validate_expectation,
    validate_seconds,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import clocks
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.clocks import (
    ClockChange,
    ClocksRequest,
    Smi,
    SmiError,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.clocks_apply import PATH, Record, apply
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nvidia_smi_values as values

# The result of a change of clocks, and the check record that says whether the GPUs took it. Pure, private.


CHECK = "gpu_clocks"
_FINDINGS = ("fail", "error", "warn")


def result(one: ClockChange, dry: bool) -> Json:
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


def expectations(every: t.Sequence[ClockChange], expect: t.Sequence[Json]) -> list[Json]:
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


def measured(every: t.Sequence[ClockChange]) -> list[Json]:
    found: list[Json] = []
    for one in every:
        for domain in one.gpu.current._fields:
            value = clocks.reached(one.gpu, domain, one.entry.of(domain))
            found.append(metric(domain, value, "MHz", gpu=one.gpu.index))
        mode = None if one.gpu.persistence is None else int(one.gpu.persistence)
        found.append(metric("persistence", mode, "flags", gpu=one.gpu.index))
    return found


def difference(one: ClockChange) -> str:
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


def broken(every: t.Sequence[ClockChange], problem: str) -> bool:
    """Return whether something could not be done or seen, which is no fault of a GPU."""
    return bool(problem) or any(one.kinds & {"denied", "failed"} for one in every)


def judged(every: t.Sequence[ClockChange], expect: t.Sequence[Json], problem: str, about: Json) -> Json:
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


# What the module gpu_clocks does with its options; without AnsibleModule, private.


class ClocksOptions(t.NamedTuple):
    """The options of the module."""

    state: str = "maximum"
    graphics: int | None = None
    memory: int | None = None
    persistence: bool | None = None
    devices: t.Sequence[int] | None = None
    program: str = "nvidia-smi"
    record: str = PATH
    settle: float = 3.0
    timeout: float = 30.0
    name: str | None = None
    expect: t.Sequence[Json] = ()
    profile: str | None = None
    run: str | None = None


def validate(options: ClocksOptions) -> None:
    """Refuse options that contradict each other."""
    for expectation in options.expect:
        validate_expectation(expectation)
    validate_seconds("timeout", options.timeout)
    validate_seconds("settle", options.settle, least=0)
    for name in ("graphics", "memory"):
        value = getattr(options, name)
        if value is not None and options.state != "locked":
            raise CheckError(f"{name} is {value}, but state is {options.state}; clocks are given with state locked")
        if value is not None and value < 1:
            raise CheckError(f"{name} is {value}, a clock in MHz is needed")


def perform(options: ClocksOptions, dry: bool) -> Json:
    """Return the result of the module."""
    validate(options)
    program, begin = shutil.which(options.program), time.time()
    smi = Smi(program or options.program, options.timeout)
    request = ClocksRequest(options.state, options.graphics, options.memory, options.persistence)
    only = None if options.devices is None else set(options.devices)
    every: list[ClockChange] = []
    none = False
    try:
        every = apply(smi, Record(options.record), request, only, options.settle, dry)
        problem = smi.problem
    except SmiError as exc:
        problem, none = str(exc), exc.no_gpu or not program
    missing = sorted((only or set()) - {one.gpu.index for one in every})
    if every and missing:
        problem = f"there is no GPU {', '.join(map(str, missing))}"
    about = _about(options, smi, every, begin)
    if none and not any(one["check"] == CHECK for one in options.expect):
        check = record(CHECK, verdict="skipped", reason="no GPU", **about)
    else:
        check = _check(options, every, problem, dry, about)
    return _result(smi, every, check, dry)


def _check(options: ClocksOptions, every: t.Sequence[ClockChange], problem: str, dry: bool, about: Json) -> Json:
    """Nothing is expected of clocks that the driver has, or that check mode left as they are."""
    if not every:
        return record(CHECK, verdict="error", reason=problem or "no GPU was chosen", **about)
    if dry or (options.state == "reset" and not broken(every, problem)):
        why = "check mode: nothing was set" if dry else "the clocks were given back to the driver"
        return record(CHECK, verdict="skipped", reason=why, metrics=measured(every), **about)
    return judged(every, options.expect, problem, about)


def _about(options: ClocksOptions, smi: Smi, every: t.Sequence[ClockChange], begin: float) -> Json:
    context = {
        "tool": "nvidia-smi",
        "version": every[0].gpu.driver if every else None,
        "argv": [smi.program, *smi.commands[0][1:]] if smi.commands else [smi.program],
        "profile": options.profile,
        "state": options.state,
    }
    node = options.name or socket.gethostname().split(".")[0]
    return {"node": node, "time": begin, "seconds": time.time() - begin, "run": options.run, "context": context}


def _result(smi: Smi, every: t.Sequence[ClockChange], check: Json, dry: bool) -> Json:
    """A GPU that was told something and then could not be seen counts as changed."""
    found = [result(one, dry) for one in every]
    planned = [[smi.program, "-i", one.gpu.bus_id, *options] for one in every for options in one.plan()]
    unseen = bool(smi.commands) and not every
    return {
        "changed": unseen or any(one["before"] != one["after"] for one in found),
        "check": check,
        "commands": planned if dry else smi.commands,
        "gpus": found,
        "diff": {side: {one["bus_id"]: one[side] for one in found} for side in ("before", "after")},
    }
