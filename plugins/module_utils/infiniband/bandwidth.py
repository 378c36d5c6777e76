# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""infiniband_bandwidth: run the program on the nodes and judge what came back. Private."""

from __future__ import annotations

import json
import socket
import sys
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json, record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._find import NotFound
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import Launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.infiniband import request as asked
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.infiniband.checks import CHECK, result


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> Json:
    """Measure and return what the module returns; raises ValueError for options that make no sense."""
    about: Json = {"node": params["name"], "time": time.time(), "run": params["run"]}
    context = {"tool": "perftest", "version": None, "argv": [], "profile": params["profile"], "test": params["test"]}
    # CUDA would put the fastest first; the step must keep all CPUs, the program binds each test by itself.
    variables = {**({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if params["use_cuda"] else {}), **params["environment"]}
    options = {**({"cpu_bind": "none"} if params["launcher"] == "srun" else {}), **params["launcher_options"]}
    wanted = {**params, "environment": variables, "launcher_options": options}
    try:
        launch = _launch.here(wanted, job_name=CHECK, timeout=params["timeout"])
    except NotFound as exc:
        return _without("error", str(exc), {**about, "context": context})
    asked.validate(params, launch)
    task = asked.task(params, launch.nodes)
    about["node"] = _node(params, launch)
    if check_mode:
        return _without("skipped", "check mode", {**about, "context": context})
    python = sys.executable if launch.kind == "local" else params["python"]
    argv, environment = _launch.command(launch, [python, "-", json.dumps(task)])
    outcome = run(argv, params["timeout"], asked.source(), environment)
    about.update(seconds=outcome.seconds, context={**context, "argv": argv, "gpu_direct": params["use_cuda"]})
    known = {**task, "test": params["test"], "size": params["size"]}
    return {**result(outcome, known, params["expect"], about), "argv": argv, "environment": environment}


def _node(params: t.Mapping[str, t.Any], launch: Launch) -> str | None:
    """Two nodes are a pair, not a node."""
    if launch.nodes > 1:
        return None
    here = socket.gethostname().partition(".")[0] if launch.kind == "local" else None
    return params["name"] or (launch.hosts[0] if launch.hosts else here)


def _without(verdict: str, reason: str, about: Json) -> Json:
    one = record(CHECK, verdict=verdict, reason=reason, **about)
    return {"checks": [one], "results": [], "argv": [], "environment": {}}
