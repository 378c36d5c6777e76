# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nccl_tests: find the programs, run one collective after another and collect the results. Private."""

from __future__ import annotations

import shutil
import socket
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _find
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import command
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run_to_file
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import users
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl import result as nccl_result
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl.request import (
    CHECK,
    NcclTestsError,
    NcclTestsRequest,
    is_program,
    read_launch,
    read_request,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl.result import MeasuredCollective, Network
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nccl_tests, text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import compress

# Where the role and images put nccl-tests; both may be missing on the PATH of a shell that is no login.
PLACES = ("/opt/gpu_test_tools/bin", "/opt/nccl-tests*/build", "/usr/local/nccl-tests*/build", "/usr/local/bin")
_TAIL = 2000


def perform(params: t.Mapping[str, t.Any], check_mode: bool, folder: str) -> Json:
    """Measure and return the module's result; raises ValueError for options that make no sense."""
    request = read_request(params)
    try:
        request = request._replace(launch=read_launch(params))
    except _find.NotFound as exc:
        return _without(request, request.name, "error", str(exc))
    node = _node(request)
    reason = _needless(request, check_mode)
    if reason:
        return _without(request, node, "skipped", reason)
    watch = users.UserWatch(request.launch, request.timeout, request.share_gpus)
    if watch.refusal:
        return _without(request, node, "skipped", watch.refusal)
    measured, about, commands = {}, {}, {}
    for collective, log in _emptied(request.log or folder, request.collectives).items():
        measured[collective], about[collective], commands[collective] = _one(request, node, collective, log)
    result = nccl_result.result(measured, request, watch.limits(request.expect), about)
    result["checks"] = [watch.noted(entry) for entry in result["checks"]]
    return {**result, "argv": commands, "environment": dict(request.launch.environment)}


def _node(request: NcclTestsRequest) -> str | None:
    """Return the node's name; several nodes are a group and have none."""
    launch = request.launch
    if launch.nodes > 1:
        return None
    is_local = launch.kind == "local" or (launch.kind == "mpirun" and not launch.hostfile and not launch.in_job)
    hostname = socket.gethostname().partition(".")[0] if is_local else None
    return request.name or (launch.hosts[0] if launch.hosts else hostname)


def _needless(request: NcclTestsRequest, check_mode: bool) -> str:
    """Return why nothing is measured; empty when it is."""
    if check_mode:
        return "check mode"
    if request.launch.nodes < request.min_nodes:
        busy = f"; busy with jobs: {compress(request.busy)}" if request.busy else ""
        return f"fewer than {request.min_nodes} nodes are fit and idle{busy}"
    if request.gpus == 1:
        return "one rank has nobody to exchange anything with"
    expected = any(limit["check"] == CHECK for limit in request.expect)
    if request.launch.kind == "local" and not expected and not _has_gpu():
        return "no GPU"
    return ""


def _has_gpu() -> bool:
    return any(Path("/dev").glob("nvidia[0-9]*")) or shutil.which("nvidia-smi") is not None


def _emptied(folder: str, collectives: t.Sequence[str]) -> dict[str, Path]:
    """Return the log of each collective, empty, so that none of an earlier run is read as a result of this one."""
    logs = {collective: Path(folder) / f"{collective}.log" for collective in collectives}
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        for log in logs.values():
            log.write_bytes(b"")
    except OSError as exc:
        raise NcclTestsError(f"log {folder} cannot be written: {exc.strerror}") from exc
    return logs


def _one(
    request: NcclTestsRequest, node: str | None, collective: str, log: Path
) -> tuple[MeasuredCollective, Json, list[str]]:
    """Run one collective; return what came of it, the parts of its record that are known now, and its command line."""
    common = _about(request, node, collective)
    try:
        words = [*program(request, collective, _find.find), *arguments(request)]
    except _find.NotFound as exc:
        common["context"].update({"missing": exc.missing} if exc.missing else {})
        return MeasuredCollective(None, str(exc), nccl_tests.parse(""), Network()), common, []
    argv, environment = command(request.launch, words)
    outcome = run_to_file(argv, request.timeout, log, environment)
    with text.opened(log) as lines:
        parsed = nccl_tests.parse(lines)
    with text.opened(log) as lines:
        network = Network().read(lines)
    measured = MeasuredCollective(outcome.rc, outcome.problem, parsed, network)
    run = parsed.runs[0] if parsed.runs else None
    common["context"].update(
        network.facts(), argv=argv, version=run and run.version, log=str(log) if request.log else None
    )
    common["context"]["nccl_version"] = run and run.nccl_version
    common.update(seconds=outcome.seconds, evidence=outcome.out[-_TAIL:])
    common["node"] = node or _only_host(request, run)
    return measured, common, argv


def names(request: NcclTestsRequest, collective: str) -> list[str]:
    """Return the file names that a build may have, best first; the role and NVIDIA's images mark builds with MPI."""
    programs = [f"{collective}_perf", f"{collective}_perf_mpi"]
    return programs if request.launch.kind == "local" else programs[::-1]


# Of a directory that only the node or the container sees, it takes the build with MPI if there is one.
_CHOOSE = 'p=$0; if [ -x "${p}_mpi" ]; then p=${p}_mpi; fi; exec "$p" "$@"'


def program(
    request: NcclTestsRequest,
    collective: str,
    find: t.Callable[..., str],
    executable: t.Callable[[str], bool] = _find.executable,
) -> list[str]:
    """Return the words that start a test. Of a directory the build with MPI is taken for more than one process."""
    path, launch = request.path, request.launch
    programs = names(request, collective)
    if not launch.container_image and (launch.kind == "local" or not path):
        return [find(programs, path, PLACES)]
    if not path:
        return [programs[0]]
    if is_program(path):
        return [path]
    folder = path.rstrip("/")
    if launch.kind == "local":
        return [f"{folder}/{collective}_perf"]
    here = [] if launch.container_image else [f"{folder}/{name}" for name in programs if executable(f"{folder}/{name}")]
    return here[:1] or ["sh", "-c", _CHOOSE, f"{folder}/{collective}_perf"]


def arguments(request: NcclTestsRequest) -> list[str]:
    """Return the arguments of a test."""
    values = {
        "-b": request.min_size,
        "-e": request.max_size,
        "-f": request.factor,
        "-n": request.iterations,
        "-w": request.warmup,
        "-g": request.gpus_per_rank,
        "-d": request.datatype,
        "-c": int(request.check),
    }
    return [*(part for name, value in values.items() for part in (name, str(value))), *request.arguments]


def _only_host(request: NcclTestsRequest, run: nccl_tests.NcclTestsRun | None) -> str | None:
    hosts = {device.host for device in run.devices} if run else set()
    return hosts.pop() if request.launch.nodes == 1 and len(hosts) == 1 else None


def _about(request: NcclTestsRequest, node: str | None, collective: str) -> Json:
    """Return the parts of a record that are known before anything ran."""
    context: Json = {"tool": "nccl-tests", "version": None, "argv": [], "profile": request.profile}
    context.update(collective=collective, launcher=request.launch.kind)
    return {"time": time.time(), "run": request.run, "context": context, "node": node}


def _without(request: NcclTestsRequest, node: str | None, verdict: str, reason: str) -> Json:
    """Return the result where nothing was measured."""
    names = request.collectives
    records = [record(CHECK, verdict=verdict, reason=reason, **_about(request, node, name)) for name in names]
    empty: Json = {"runs": [], "rows": [], "ranks": [], "nodes": [], "argv": {}}
    each = {key: dict.fromkeys(names) for key in ("peak", "average", "correct")}
    return {"checks": records, **empty, **each, "environment": dict(request.launch.environment)}
