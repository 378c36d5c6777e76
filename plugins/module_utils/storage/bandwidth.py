# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""storage_bandwidth: write and read files with fio. Private."""

from __future__ import annotations

import socket
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json, record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._find import NotFound, find
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.storage import place
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.storage import request as asked
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.storage.checks import CHECK, Measured, measure, result
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.storage.request import Request


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> Json:
    """Measure and return what the module returns; raises ValueError for options that make no sense."""
    request = asked.read(params)
    for path in request.paths:
        place.check_kind(path)
    begin = time.time()
    node = params["name"] or socket.gethostname().partition(".")[0]
    common: Json = {"node": node, "time": begin, "run": params["run"]}
    context: Json = {"tool": "fio", "version": None, "profile": params["profile"], "argv": []}
    if check_mode:
        return _without(record(CHECK, verdict="skipped", reason="check mode", context=context, **common))
    try:
        program = find("fio", params["fio"], role=None)
    except NotFound as exc:
        return _without(record(CHECK, verdict="error", reason=str(exc), context=context, **common))
    measured = [one for path in request.paths for one in _path(program, request, path, params["timeout"])]
    common["seconds"] = time.time() - begin
    places = {path: place.about(path) for path in request.paths}
    return result(measured, places, params["expect"], context, common)


def _path(program: str, request: Request, path: str, timeout: float) -> list[Measured]:
    """Write, then read what was written; nothing is written where too little space would be left."""
    try:
        refused = place.refusal(path, request.space, place.space(path))
        if refused:
            return [Measured(path, name, [], None, refused) for name in request.operations]
        with place.folder(path) as folder:
            return _runs(program, request, path, folder, timeout)
    except OSError as exc:
        problem = f"{path}: no files can be made there: {exc.strerror or exc}"
        return [Measured(path, name, [], None, problem) for name in request.operations]


def _runs(program: str, request: Request, path: str, folder: str, timeout: float) -> list[Measured]:
    found: list[Measured] = []
    length = request.size
    for operation in request.runs:
        argv = asked.argv(program, request, operation, folder, length)
        one = measure(path, operation, argv, run(argv, timeout))
        found.append(one)
        if operation == "write":
            length = written(one, request)
            if not length:
                problem = one.problem or f"{path}: too little was written in {request.runtime} s to read it back"
                rest = [name for name in request.runs if name != "write"]
                found += [Measured(path, name, [], None, problem, one.kind) for name in rest]
                break
    return [one for one in found if one.operation in request.operations]


def written(one: Measured, request: Request) -> int:
    """Return how many bytes at the beginning of every file hold data; beyond them a read would not touch the disk."""
    if one.problem or one.run is None:
        return 0
    moved = [job.direction("write") for job in one.run.jobs]
    if len(moved) != request.jobs or None in moved:
        return 0
    least = min((item.bytes or 0) for item in moved if item is not None)
    # Up to iodepth blocks can have been in flight, and completed in another order, when the time was over.
    whole = least if least >= request.size else least - request.iodepth * request.block_size
    return max(0, min(request.size, whole) // request.block_size * request.block_size)


def _without(one: Json) -> Json:
    return {"checks": [one], "results": [], "argv": [], "environment": {}}
