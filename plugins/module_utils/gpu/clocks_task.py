# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the module gpu_clocks does with its options; without AnsibleModule, private."""

from __future__ import annotations

import shutil
import socket
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import (
    CheckError,
    Json,
    record,
    validate_expectation,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import validate_seconds
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import clocks_check as checks
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.clocks import Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.clocks_apply import apply
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.clocks_one import One
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.clocks_record import PATH, Record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.clocks_smi import Smi, SmiError


class Options(t.NamedTuple):
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


def validate(options: Options) -> None:
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


def perform(options: Options, dry: bool) -> Json:
    """Return the result of the module."""
    validate(options)
    program, begin = shutil.which(options.program), time.time()
    smi = Smi(program or options.program, options.timeout)
    request = Request(options.state, options.graphics, options.memory, options.persistence)
    only = None if options.devices is None else set(options.devices)
    every: list[One] = []
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
    if none and not any(one["check"] == checks.CHECK for one in options.expect):
        check = record(checks.CHECK, verdict="skipped", reason="no GPU", **about)
    else:
        check = _check(options, every, problem, dry, about)
    return _result(smi, every, check, dry)


def _check(options: Options, every: t.Sequence[One], problem: str, dry: bool, about: Json) -> Json:
    """Nothing is expected of clocks that the driver has, or that check mode left as they are."""
    if not every:
        return record(checks.CHECK, verdict="error", reason=problem or "no GPU was chosen", **about)
    if dry or (options.state == "reset" and not checks.broken(every, problem)):
        why = "check mode: nothing was set" if dry else "the clocks were given back to the driver"
        return record(checks.CHECK, verdict="skipped", reason=why, metrics=checks.measured(every), **about)
    return checks.judged(every, options.expect, problem, about)


def _about(options: Options, smi: Smi, every: t.Sequence[One], begin: float) -> Json:
    context = {
        "tool": "nvidia-smi",
        "version": every[0].gpu.driver if every else None,
        "argv": [smi.program, *smi.commands[0][1:]] if smi.commands else [smi.program],
        "profile": options.profile,
        "state": options.state,
    }
    node = options.name or socket.gethostname().split(".")[0]
    return {"node": node, "time": begin, "seconds": time.time() - begin, "run": options.run, "context": context}


def _result(smi: Smi, every: t.Sequence[One], check: Json, dry: bool) -> Json:
    """A GPU that was told something and then could not be seen counts as changed."""
    found = [checks.result(one, dry) for one in every]
    planned = [[smi.program, "-i", one.gpu.bus_id, *options] for one in every for options in one.plan()]
    unseen = bool(smi.commands) and not every
    return {
        "changed": unseen or any(one["before"] != one["after"] for one in found),
        "check": check,
        "commands": planned if dry else smi.commands,
        "gpus": found,
        "diff": {side: {one["bus_id"]: one[side] for one in found} for side in ("before", "after")},
    }
