# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The measuring modules, run by the agent on its own node: suite full. Private, stdlib only.

A machine type says what is expected; what its profile does not know of is skipped, and never passes by that.
"""

from __future__ import annotations

import tempfile
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Context

LOOPBACK = "nccl_loopback"
# NVLink and shared memory off: what is left between two GPUs of a node is the adapters. NVLink SHARP of H100 and newer
# does not ask whether peers may be reached, it has a switch of its own.
FABRIC_ONLY = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_NVLS_ENABLE": "0"}
_ENOUGH = 1 << 30


def params(context: Context, spec: t.Mapping[str, Json], **given: t.Any) -> Json:
    """Return the options of a module with its defaults, for this node."""
    config = context.config
    known: Json = {"name": config.node, "expect": config.expect, "run": context.run}
    known.update(profile=config.profile.get("profile"), environment=dict(config.environment), sysfs=config.sysfs)
    defaults = {name: option.get("default") for name, option in {**_launch.SPEC, **spec}.items()}
    return {**defaults, **{name: value for name, value in known.items() if name in defaults}, **given}


def _tool(context: Context, name: str) -> str | None:
    return context.config.tools.get(name) or None


def gpu_bandwidth(context: Context) -> list[Json]:
    """Copy to and from every GPU, one after the other."""
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import bandwidth, bandwidth_run

    given = {"gpus": context.config.gpus or None, "path": _tool(context, "nvbandwidth")}
    asked = params(context, bandwidth.SPEC, tool="auto", **given)
    return context.adopt(bandwidth_run.perform(asked, False)["checks"])


def nccl(context: Context) -> list[Json]:
    """All GPUs of the node, as a job would use them."""
    return _nccl(context, "nccl_tests", {})


def nccl_loopback(context: Context) -> list[Json]:
    """All GPUs of the node, through its adapters."""
    if not (context.config.profile.get("infiniband") or {}).get("count"):
        return [context.record(LOOPBACK, verdict="skipped", reason="no InfiniBand is known of this machine type")]
    return _nccl(context, LOOPBACK, FABRIC_ONLY)


def _nccl(context: Context, check: str, variables: t.Mapping[str, str]) -> list[Json]:
    """Run nccl-tests in one process; limits for one check are never held against the other."""
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl import request, run

    profile = context.config.profile
    limits = [one for one in context.config.expect if one["check"] == check and one.get("min_nodes", 1) < 2]
    given: Json = {"expect": [{**one, "check": request.CHECK} for one in limits]}
    given.update(path=_tool(context, "nccl"), infiniband=bool(variables))
    nccl_of = profile.get("nccl") or {}
    sizes = [one["size"] for one in limits if one.get("size")]
    most = str((nccl_of.get("tests") or {}).get("max_size") or _ENOUGH)
    given.update(min_size=str(min(sizes)) if sizes else most, max_size=str(max(sizes)) if sizes else most)
    # One process has all GPUs, so there is nothing to launch.
    given["gpus_per_rank"] = context.config.gpus or 1
    given["topology_file"] = nccl_of.get("topology_file")
    given["environment"] = {**(nccl_of.get("environment") or {}), **context.config.environment, **variables}
    with tempfile.TemporaryDirectory(prefix="hpcai-nccl-") as folder:
        found = run.perform(params(context, request.SPEC, **given), False, folder)
    return context.adopt({**one, "check": check} for one in found["checks"])


def infiniband_bandwidth(context: Context) -> list[Json]:
    """Every adapter to itself."""
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.infiniband import bandwidth as ib_bandwidth
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.infiniband import request as infiniband_request

    fabric = context.config.profile.get("infiniband") or {}
    if not fabric.get("count"):
        reason = "no InfiniBand is known of this machine type"
        return [context.record("infiniband_bandwidth", verdict="skipped", reason=reason)]
    given = {"path": _tool(context, "perftest"), "devices": list(fabric.get("devices") or []), "timeout": 280.0}
    asked = params(context, infiniband_request.SPEC, **given)
    return context.adopt(ib_bandwidth.perform(asked, False)["checks"])


def storage_bandwidth(context: Context) -> list[Json]:
    """The node's own scratch, where it stands: gigabytes for it would else go to the disk of the system."""
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch import use
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.storage import bandwidth as fio
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.storage import request as asked

    if not context.config.scratch:
        return [context.record("storage_bandwidth", verdict="skipped", reason="no scratch is configured")]
    place = use.use(_looked(context))
    if place["skipped"]:
        return context.adopt([place["skipped"]])
    mount = place["path"]
    given = {"paths": [mount], "fio": _tool(context, "fio"), "runtime": 20, "timeout": 120.0}
    limits = [one for one in context.config.expect if one.get("path") in (None, mount)]
    return context.adopt(fio.perform(params(context, asked.SPEC, expect=limits, **given), False)["checks"])


def _looked(context: Context) -> Json:
    """Return what nvme_scratch says of the node in check mode."""
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch import task

    known = {**params(context, task.SPEC), **(context.config.scratch or {})}
    return task.perform({**known, "node": context.config.node, "wait": 0.0}, True)


def scratch(context: Context) -> list[Json]:
    """Ask what nvme_scratch would change; that it would change anything means that scratch is not as it should be."""
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch import use

    if not context.config.scratch:
        return [context.record("nvme_scratch", verdict="skipped", reason="no scratch is configured")]
    found = _looked(context)
    one = found["check"]
    if found["changed"] and one["verdict"] in ("pass", "unjudged"):
        one = {**one, "verdict": "fail", "class": "config", "reason": use.pending(found)}
    return context.adopt([one])


def hpl(context: Context) -> list[Json]:
    """One rank per GPU, bound to the CPUs and memory that are near to it."""
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.checks_gpu import read
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.hpl import problem
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.hpl import run as hpl_run
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import facts

    path = _tool(context, "hpl")
    if not path:
        return [context.record("hpl", verdict="skipped", reason="tools.hpl is not set")]
    if not context.config.gpus:
        return [context.record("hpl", verdict="skipped", reason="no GPU is known of this machine type")]
    given: Json = {"path": path, "ranks_per_node": context.config.gpus, "timeout": 900.0}
    given["launcher"] = "mpirun" if context.config.gpus > 1 else "local"
    given["topology"] = facts(read(context).seen.topology)
    given["gpu_memory_mib"] = (context.config.profile.get("gpu") or {}).get("memory_mib")
    with tempfile.TemporaryDirectory(prefix="hpcai-hpl-") as folder:
        given["directory"] = folder
        found = hpl_run.perform(params(context, problem.SPEC, **given), False, folder)
    return context.adopt(found["checks"])
