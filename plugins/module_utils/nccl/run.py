# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nccl_tests: run one collective after another and collect the results. Private."""

from __future__ import annotations

import shutil
import socket
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _find
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import Launch, command
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run_to_file
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import users
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl import command as nccl_command
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl import result as nccl_result
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl.command import NcclTestsError, NcclTestsRequest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl.result import MeasuredCollective, Network
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nccl_tests, text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import compress

_TAIL = 2000


def perform(params: t.Mapping[str, t.Any], check_mode: bool, folder: str) -> Json:
    """Measure and return the module's result; raises ValueError for options that make no sense."""
    try:
        request = nccl_command.read(params)
    except _find.NotFound as exc:
        return _without(params, None, "error", str(exc))
    reason = _needless(request, params, check_mode)
    if reason:
        return _without(params, request, "skipped", reason)
    watch = users.UserWatch(request.launch, params["timeout"], params["share_gpus"], users.visible(request.launch))
    if watch.refusal:
        return _without(params, request, "skipped", watch.refusal)
    folder = params["log"] or folder
    _clear(folder, request.collectives)
    measured, about, commands = {}, {}, {}
    for collective in request.collectives:
        measured[collective], about[collective], argv = _one(request, collective, _log(folder, collective), params)
        commands[collective] = argv
    result = nccl_result.result(measured, request, watch.limits(params["expect"]), about)
    result["checks"] = [watch.noted(entry) for entry in result["checks"]]
    return {**result, "argv": commands, "environment": dict(request.launch.environment)}


def _clear(folder: str, collectives: t.Sequence[str]) -> None:
    """Empty the logs, so that those of an earlier run are never read as results of this one."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        for collective in collectives:
            _log(folder, collective).write_bytes(b"")
    except OSError as exc:
        raise NcclTestsError(f"log {folder} cannot be written: {exc.strerror}") from exc


def _log(folder: str, collective: str) -> Path:
    return Path(folder) / f"{collective}.log"


def _one(
    request: NcclTestsRequest, collective: str, log: Path, params: t.Mapping[str, t.Any]
) -> tuple[MeasuredCollective, Json, list[str]]:
    common = _about(params, request, collective)
    try:
        program = nccl_command.program(request, collective, _find.find)
    except _find.NotFound as exc:
        return MeasuredCollective(None, str(exc), nccl_tests.parse(""), Network()), common, []
    argv, environment = command(request.launch, nccl_command.argv(request, program))
    outcome = run_to_file(argv, params["timeout"], log, environment)
    with text.opened(log) as lines:
        parsed = nccl_tests.parse(lines)
    with text.opened(log) as lines:
        network = Network().read(lines)
    measured = MeasuredCollective(outcome.rc, outcome.problem, parsed, network)
    run = parsed.runs[0] if parsed.runs else None
    common["context"].update(
        network.facts(), argv=argv, version=run and run.version, log=str(log) if params["log"] else None
    )
    common["context"]["nccl_version"] = run and run.nccl_version
    common.update(seconds=outcome.seconds, evidence=outcome.out[-_TAIL:])
    common["node"] = common["node"] or _only_host(request, run)
    return measured, common, argv


def _about(params: t.Mapping[str, t.Any], request: NcclTestsRequest | None, collective: str) -> Json:
    """Return the parts of a record that are known before anything ran."""
    context = {"tool": "nccl-tests", "version": None, "argv": [], "profile": params["profile"]}
    more = {"collective": collective, "launcher": params["launcher"]}
    common: Json = {"time": time.time(), "run": params["run"], "context": {**context, **more}}
    common["node"] = _node(params, request.launch) if request else params["name"]
    return common


def _node(params: t.Mapping[str, t.Any], launch: Launch) -> str | None:
    """Return the node's name; several nodes are a group and have none."""
    if launch.nodes > 1:
        return None
    is_local = launch.kind == "local" or (launch.kind == "mpirun" and not launch.hostfile and not launch.in_job)
    hostname = socket.gethostname().partition(".")[0] if is_local else None
    return params["name"] or (launch.hosts[0] if launch.hosts else hostname)


def _only_host(request: NcclTestsRequest, run: nccl_tests.NcclTestsRun | None) -> str | None:
    hosts = {device.host for device in run.devices} if run else set()
    return hosts.pop() if request.launch.nodes == 1 and len(hosts) == 1 else None


def _needless(request: NcclTestsRequest, params: t.Mapping[str, t.Any], check_mode: bool) -> str:
    """Return why nothing is measured; empty when it is."""
    if check_mode:
        return "check mode"
    if request.launch.nodes < params["min_nodes"]:
        busy = f"; busy with jobs: {compress(params['busy'])}" if params["busy"] else ""
        return f"fewer than {params['min_nodes']} nodes are fit and idle{busy}"
    if request.gpus == 1:
        return "one rank has nobody to exchange anything with"
    expected = any(limit["check"] == nccl_command.CHECK for limit in params["expect"])
    if request.launch.kind == "local" and not expected and not _has_gpu():
        return "no GPU"
    return ""


def _has_gpu() -> bool:
    return any(Path("/dev").glob("nvidia[0-9]*")) or shutil.which("nvidia-smi") is not None


def _without(params: t.Mapping[str, t.Any], request: NcclTestsRequest | None, verdict: str, reason: str) -> Json:
    names = params["collectives"]
    records = [
        record(nccl_command.CHECK, verdict=verdict, reason=reason, **_about(params, request, name)) for name in names
    ]
    empty: Json = {"runs": [], "rows": [], "ranks": [], "nodes": [], "argv": {}}
    each = {key: dict.fromkeys(names) for key in ("peak", "average", "correct")}
    environment = dict(request.launch.environment) if request else {}
    return {"checks": records, **empty, **each, "environment": environment}
