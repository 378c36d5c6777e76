# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""collective_test: what is asked for, and the command line for it. Pure, private."""

from __future__ import annotations

import math
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json, validate_expectation
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import flags
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._source import text_of
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.collective import payload
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.collective.payload import OPERATIONS


class CollectiveError(ValueError):
    """The measurement cannot be trusted; the text is fit for the user."""


class Request(t.NamedTuple):
    """What was asked for."""

    nodes: int
    ntasks_per_node: int
    backend: str
    operations: t.Sequence[str]
    min_size: int
    max_size: int
    factor: int
    warmup: int
    iterations: int
    turns: int = 1  # all of it so many times, which starts the ranks once


SPEC: Json = {
    "nodes": {"type": "int", "default": 2},
    "ntasks_per_node": {"type": "int", "default": 1},
    "backend": {"type": "str", "default": "gloo", "choices": ["gloo", "nccl"]},
    "operations": {"type": "list", "elements": "str", "default": list(OPERATIONS), "choices": list(OPERATIONS)},
    "min_size": {"type": "int", "default": 8},
    "max_size": {"type": "int", "default": 67108864},
    "factor": {"type": "int", "default": 4},
    "warmup": {"type": "int", "default": 5},
    "iterations": {"type": "int", "default": 20},
}


def validate(request: Request, expectations: t.Sequence[Json]) -> None:
    """Refuse what cannot be measured or judged, before anything starts."""
    for expectation in expectations:
        validate_expectation(expectation)
    if not 4 <= request.min_size <= request.max_size:
        raise CollectiveError(f"sizes {request.min_size} to {request.max_size}: 4 <= min_size <= max_size is needed")
    for name in ("nodes", "ntasks_per_node", "iterations"):
        if getattr(request, name) < 1:
            raise CollectiveError(f"{name} is {getattr(request, name)}, at least 1 is needed")
    if request.factor < 2 or request.warmup < 0:
        raise CollectiveError(f"factor {request.factor} (at least 2) or warmup {request.warmup} (at least 0)")


def source() -> str:
    """Return the text of the program."""
    return text_of(payload)


def command(srun: str, python: str, request: Request, options: t.Mapping[str, t.Any], timeout: float) -> list[str]:
    """Return the srun command line; the program itself comes on standard input, which srun gives to every rank."""
    defaults = {
        "job_name": "collective_test",
        "mpi": "none",
        "kill_on_bad_exit": 1,
        "exclusive": True,
        "immediate": 60,  # a job that was faster is not waited for
        "chdir": "/",  # the caller's directory need not exist on the nodes
        "time": math.ceil(timeout / 60) + 1,
    }
    asked = {"nodes": request.nodes, "ntasks_per_node": request.ntasks_per_node}
    step = flags({**defaults, **options, **asked, "ntasks": request.nodes * request.ntasks_per_node})
    program = [f"--backend={request.backend}", "--operations", *request.operations]
    for name in ("min_size", "max_size", "factor", "warmup", "iterations"):
        program.append(f"--{name.replace('_', '-')}={getattr(request, name)}")
    if request.turns > 1:
        program.append(f"--turns={request.turns}")
    return [srun, *step, python, "-", *program]
