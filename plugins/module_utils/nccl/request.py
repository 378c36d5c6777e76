# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nccl_tests: the request, and how its ranks are started. Private."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _checks, _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import (
    Json,
    validate_expectation,
    validate_seconds,
    validate_units,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import Launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import users

COLLECTIVES = ["all_gather", "all_reduce", "alltoall", "broadcast", "gather", "hypercube", "reduce", "reduce_scatter"]
COLLECTIVES += ["scatter", "sendrecv"]
CHECK = "nccl_tests"
UNITS = {
    "busbw": "GB/s",
    "busbw_in_place": "GB/s",
    "busbw_peak": "GB/s",
    "sweep_mean": "GB/s over all sizes",  # so that no limit for one size is ever held against the mean
    "wrong": "checks",
    "ranks": "ranks",
}
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3}
_SIZE = re.compile(r"([0-9]+)([KMG]?)", re.IGNORECASE)
# What has an option here must not be given twice; -J writes a file on another node, -t makes ranks that nobody counts.
_OWN = re.compile(
    r"-[befnwgcdtiJ].*"
    r"|--(minbytes|maxbytes|stepfactor|stepbytes|iters|warmup_iters|ngpus|nthreads|check|datatype|output_file).*"
)

SPEC: dict[str, Json] = {
    "collectives": {"type": "list", "elements": "str", "default": ["all_reduce"], "choices": COLLECTIVES},
    "path": {"type": "str"},
    "min_size": {"type": "str", "default": "8"},
    "max_size": {"type": "str", "default": "8G"},
    "factor": {"type": "int", "default": 2},
    "iterations": {"type": "int", "default": 20},
    "warmup": {"type": "int", "default": 5},
    "gpus_per_rank": {"type": "int", "default": 1},
    "datatype": {"type": "str", "default": "float"},
    "check": {"type": "bool", "default": True},
    "arguments": {"type": "list", "elements": "str", "default": []},
    "infiniband": {"type": "bool", "default": False},
    "topology_file": {"type": "str"},
    "debug": {"type": "str", "default": "INFO", "choices": ["NONE", "VERSION", "WARN", "INFO", "TRACE"]},
    "log": {"type": "path"},
    "timeout": {"type": "float", "default": 600},
    "min_nodes": {"type": "int", "default": 1},
    "busy": {"type": "list", "elements": "str", "default": []},
    **users.SPEC,
    **_checks.SPEC,
    **_checks.NODE,
}


class NcclTestsError(ValueError):
    """The request makes no sense; the text is fit for the user."""


class NcclTestsRequest(t.NamedTuple):
    """One measurement: how ranks are started, which collectives run, over which sizes and how often.

    The rest says when it is worth while, and what the records say of it.
    """

    launch: Launch
    collectives: t.Sequence[str] = ("all_reduce",)
    path: str | None = None
    min_size: str = "8"
    max_size: str = "8G"
    factor: int = 2
    iterations: int = 20
    warmup: int = 5
    gpus_per_rank: int = 1
    datatype: str = "float"
    check: bool = True
    arguments: t.Sequence[str] = ()
    infiniband: bool = False
    log: str | None = None
    timeout: float = 600
    min_nodes: int = 1
    busy: t.Sequence[str] = ()
    share_gpus: bool = False
    expect: t.Sequence[Json] = ()
    name: str | None = None
    run: str | None = None
    profile: str | None = None

    @property
    def gpus(self) -> int:
        """Return how many ranks of NCCL there are; nccl-tests has one for every GPU."""
        return self.launch.ranks * self.gpus_per_rank

    @property
    def sizes(self) -> list[int]:
        """Return the sizes that a complete table has, smallest first."""
        sizes = [to_bytes(self.min_size)]
        while sizes[-1] * self.factor <= to_bytes(self.max_size):
            sizes.append(sizes[-1] * self.factor)
        return sizes


def to_bytes(text: str) -> int:
    """Read a size as nccl-tests does (K is 1024); refuse other text, which nccl-tests would read as some number."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise NcclTestsError(f"size {text!r} is not a number of bytes, such as 8, 512K, 128M or 8G")
    return int(match.group(1)) * 1024 ** _POWERS[match.group(2).upper()]


def variables(params: t.Mapping[str, t.Any]) -> Json:
    """Return the variables of the environment for the ranks; the caller's own come last and win."""
    variables: Json = {}
    if params["debug"] != "NONE":
        # Only this log shows whether NCCL used InfiniBand or fell back to another network.
        variables = {"NCCL_DEBUG": params["debug"], "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV"}
    if params["topology_file"]:
        variables["NCCL_TOPO_FILE"] = params["topology_file"]
    return {**variables, **params["environment"]}


def read_request(params: t.Mapping[str, t.Any]) -> NcclTestsRequest:
    """Make a request of the options of the module; of the launch it has the kind alone, see `read_launch`."""
    values = {name: params[name] for name in NcclTestsRequest._fields if name != "launch"}
    request = NcclTestsRequest(Launch(params["launcher"]), **values)
    validate(request)
    return request


def read_launch(params: t.Mapping[str, t.Any], build: t.Callable[..., Launch] = _launch.here) -> Launch:
    """Return how this machine starts the ranks; raises ``_launch.NotFound`` where it has no such launcher."""
    options = {**params, "environment": variables(params)}
    return build(_launch.with_mpi(options), job_name=CHECK, timeout=params["timeout"])


def validate(request: NcclTestsRequest) -> None:
    """Refuse what cannot be measured or judged, before anything starts."""
    validate_seconds("timeout", request.timeout)
    for expectation in request.expect:
        validate_expectation(expectation)
    validate_units(request.expect, CHECK, UNITS)
    if not request.collectives or len(set(request.collectives)) != len(request.collectives):
        raise NcclTestsError("collectives must name at least one, and each once")
    if request.path and is_program(request.path) and len(request.collectives) > 1:
        raise NcclTestsError(f"path {request.path} is one program; several collectives need the directory")
    for name in ("iterations", "gpus_per_rank"):
        if getattr(request, name) < 1:
            raise NcclTestsError(f"{name} is {getattr(request, name)}, at least 1 is needed")
    if request.factor < 2 or request.warmup < 0:
        raise NcclTestsError(f"factor {request.factor} (at least 2) or warmup {request.warmup} (at least 0)")
    if not 1 <= to_bytes(request.min_size) <= to_bytes(request.max_size):
        raise NcclTestsError(f"sizes {request.min_size} to {request.max_size}: 1 <= min_size <= max_size is needed")
    reserved = [word for word in request.arguments if _OWN.fullmatch(word)]
    if reserved:
        raise NcclTestsError(
            f"arguments {' '.join(reserved)}: the module has options of its own for that, or cannot judge it"
        )


def is_program(path: str) -> bool:
    """Return whether a path names a test and not the directory of all of them."""
    return re.search(r"_perf[^/]*$", path) is not None
