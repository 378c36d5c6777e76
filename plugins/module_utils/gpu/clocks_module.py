# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module gpu_clocks: its options, its result, its check record."""

from __future__ import annotations

import shutil
import socket
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _checks
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

# The result of a change of clocks, and its check record. Pure.


CHECK = "gpu_clocks"
_FINDINGS = ("fail", "error", "warn")


def result(change: ClockChange, dry: bool) -> Json:
    """Return a GPU's row of the module's result: before, requested, reached."""
    gpu = change.gpu
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "bus_id": gpu.bus_id,
        "name": gpu.name,
        "before": change.before,
        "after": change.predicted() if dry else change.snapshot(),
        "requested": change.target._asdict(),
        "reached": {} if dry else {d: clocks.reached(gpu, d, change.entry.of(d)) for d in gpu.current._fields},
        "supported": gpu.maximum._asdict(),
        "method": {d: change.method(d) for d in gpu.current._fields},
        "reasons": values.throttle_names(gpu.reasons or 0),
        "problems": list(change.problems),
    }


def expectations(changes: t.Sequence[ClockChange], expect: t.Sequence[Json]) -> list[Json]:
    """Return limits for the requested clocks, and the profile's limits except where a clock was given as an option."""
    requested: list[Json] = []
    domains: set[str] = set()
    for change in changes:
        about = {"check": CHECK, "gpu": change.gpu.index, "source": "this is what was asked for"}
        for domain, value in change.target._asdict().items():
            if value is not None:
                domains.update({domain} if change.request.state == "locked" else ())
                limit = {**about, "metric": domain, "unit": "MHz"}
                requested.append({**limit, "op": "<=", "value": value + clocks.TOLERANCE})
                requested.append({**limit, "op": ">=", "value": value - clocks.TOLERANCE})
        if change.request.persistence is not False and change.gpu.persistence is not None:
            requested.append({**about, "metric": "persistence", "unit": "flags", "op": "==", "value": 1})
    return [*requested, *(limit for limit in expect if limit["check"] != CHECK or limit["metric"] not in domains)]


def measured(changes: t.Sequence[ClockChange]) -> list[Json]:
    metrics: list[Json] = []
    for change in changes:
        for domain in change.gpu.current._fields:
            value = clocks.reached(change.gpu, domain, change.entry.of(domain))
            metrics.append(metric(domain, value, "MHz", gpu=change.gpu.index))
        mode = None if change.gpu.persistence is None else int(change.gpu.persistence)
        metrics.append(metric("persistence", mode, "flags", gpu=change.gpu.index))
    return metrics


def difference(change: ClockChange) -> str:
    """Return how a GPU's clocks differ from the request; empty when they do not."""
    differences = list(change.problems)
    for domain, value in change.target._asdict().items():
        reading = clocks.reached(change.gpu, domain, change.entry.of(domain))
        if value is None or clocks.near(reading, value):
            continue
        limits = values.throttle_names((change.gpu.reasons or 0) & clocks.LIMITS)
        reason = f", limited by {', '.join(limits)}" if limits else ""
        idle = (
            f"cannot be told while it idles at {change.gpu.current.of(domain)} MHz"
            if reading is None
            else f"is {reading} MHz"
        )
        differences.append(f"{domain} clock {idle} instead of {value} MHz{reason}")
    if change.request.persistence is not False and change.request.state != "reset" and change.gpu.persistence is False:
        differences.append("persistence mode is off")
    return f"GPU {change.gpu.index}: {', '.join(differences)}" if differences else ""


def broken(changes: t.Sequence[ClockChange], problem: str) -> bool:
    """Return whether a change or a reading failed for a reason that is no fault of a GPU."""
    return bool(problem) or any(change.kinds & {"denied", "failed"} for change in changes)


def judged(changes: t.Sequence[ClockChange], expect: t.Sequence[Json], problem: str, about: Json) -> Json:
    """Return the check record; a change or reading that failed is an error, never a fault of the GPU."""
    limits = expectations(changes, expect)
    metrics = judge(CHECK, measured(changes), limits)
    differences = [text for text in map(difference, changes) if text]
    hardware = any((change.gpu.reasons or 0) & values.THROTTLE_FAULTS for change in changes)
    affected = sorted({m["gpu"] for m in metrics if m["verdict"] in _FINDINGS and m.get("gpu") is not None})
    return record(
        CHECK,
        metrics=metrics,
        verdict="error" if broken(changes, problem) else None,
        blame="hardware" if hardware else "config",
        reason="; ".join([*([problem] if problem else []), *differences]),
        scope={"gpu": affected} if affected else {},
        samples=[result(change, dry=False) for change in changes],
        **about,
    )


# The module's entry, without AnsibleModule.


SPEC: dict[str, Json] = {
    "state": {"type": "str", "default": "maximum", "choices": ["maximum", "locked", "reset"]},
    "graphics": {"type": "int"},
    "memory": {"type": "int"},
    "persistence": {"type": "bool"},
    "devices": {"type": "list", "elements": "int"},
    "program": {"type": "path", "default": "nvidia-smi"},
    "record": {"type": "path", "default": PATH},
    "settle": {"type": "float", "default": 3},
    "timeout": {"type": "float", "default": 30},
    **_checks.SPEC,
    **_checks.NODE,
}
REQUIRED_IF = [("state", "locked", ["graphics", "memory"], True)]


class ClocksOptions(t.NamedTuple):
    """The options of the module, as SPEC has them."""

    state: str
    graphics: int | None
    memory: int | None
    persistence: bool | None
    devices: t.Sequence[int] | None
    program: str
    record: str
    settle: float
    timeout: float
    name: str | None
    expect: t.Sequence[Json]
    profile: str | None
    run: str | None


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


def perform(params: t.Mapping[str, t.Any], dry: bool) -> Json:
    """Set the clocks, with ``dry`` only say which, and return the result of the module."""
    options = ClocksOptions(**params)
    validate(options)
    program, begin = shutil.which(options.program), time.time()
    kept = Record(options.record)
    smi = Smi(program or options.program, options.timeout)
    request = ClocksRequest(options.state, options.graphics, options.memory, options.persistence)
    only = None if options.devices is None else set(options.devices)
    changes: list[ClockChange] = []
    none = False
    try:
        changes = apply(smi, kept, request, only, options.settle, dry)
        problem = smi.problem
    except SmiError as exc:
        problem, none = str(exc), exc.no_gpu or not program
    absent = sorted((only or set()) - {change.gpu.index for change in changes})
    if changes and absent:
        none_such = f"there is no GPU {', '.join(map(str, absent))}"
        problem = f"{problem}; {none_such}" if problem else none_such
    expected = any(limit["check"] == CHECK for limit in options.expect)
    verdict, reason = ("skipped", "no GPU") if none and not expected else _unjudged(request, changes, problem, dry)
    about = _about(options, smi, changes, begin)
    if verdict:
        check = record(CHECK, verdict=verdict, reason=reason, metrics=measured(changes), **about)
    else:
        check = judged(changes, options.expect, problem, about)
    return _result(smi, changes, check, dry)


def _unjudged(request: ClocksRequest, changes: t.Sequence[ClockChange], problem: str, dry: bool) -> tuple[str, str]:
    """Return verdict and reason of clocks that no limit is for: given back, or left as they were by check mode."""
    if not changes:
        return "error", problem or "no GPU was chosen"
    if dry:
        return "skipped", "check mode: nothing was set"
    if request.state == "reset" and not broken(changes, problem):
        return "skipped", "the clocks were given back to the driver"
    return "", ""


def _about(options: ClocksOptions, smi: Smi, changes: t.Sequence[ClockChange], begin: float) -> Json:
    context = {
        "tool": "nvidia-smi",
        "version": changes[0].gpu.driver if changes else None,
        "argv": [smi.program, *smi.commands[0][1:]] if smi.commands else [smi.program],
        "profile": options.profile,
        "state": options.state,
    }
    node = options.name or socket.gethostname().split(".")[0]
    return {"node": node, "time": begin, "seconds": time.time() - begin, "run": options.run, "context": context}


def _result(smi: Smi, changes: t.Sequence[ClockChange], check: Json, dry: bool) -> Json:
    """Return the module's result; a GPU that got a command and then could not be read counts as changed."""
    gpus = [result(change, dry) for change in changes]
    planned = [[smi.program, "-i", change.gpu.bus_id, *options] for change in changes for options in change.plan()]
    unseen = bool(smi.commands) and not changes
    return {
        "changed": unseen or any(gpu["before"] != gpu["after"] for gpu in gpus),
        "check": check,
        "commands": planned if dry else smi.commands,
        "gpus": gpus,
        "diff": {side: {gpu["bus_id"]: gpu[side] for gpu in gpus} for side in ("before", "after")},
    }
