# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent's checks that measure: bandwidths of GPUs, peers, NCCL, InfiniBand, storage, HPL."""

from __future__ import annotations

import collections
import tempfile
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, judge, metric
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Context
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nvbandwidth

# The measuring modules, run by the agent on its own node: suite full. Private, stdlib only.


LOOPBACK = "nccl_loopback"
# NVLink and shared memory off: what is left between two GPUs of a node is the adapters. NVLink SHARP of H100 and newer
# does not depend on whether peers can be reached, it has a switch of its own.
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
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import bandwidth

    given = {"gpus": context.config.gpus or None, "path": _tool(context, "nvbandwidth")}
    options = params(context, bandwidth.SPEC, tool="auto", **given)
    return context.adopt(bandwidth.perform(options, False)["checks"])


def nccl(context: Context) -> list[Json]:
    """Measure all GPUs of the node together, as a job would use them."""
    return _nccl(context, "nccl_tests", {})


def nccl_loopback(context: Context) -> list[Json]:
    """Measure all GPUs of the node through its adapters."""
    if not (context.config.profile.get("infiniband") or {}).get("count"):
        return [context.record(LOOPBACK, verdict="skipped", reason="no InfiniBand is known of this machine type")]
    return _nccl(context, LOOPBACK, FABRIC_ONLY)


def _nccl(context: Context, check: str, variables: t.Mapping[str, str]) -> list[Json]:
    """Run nccl-tests in one process; limits for one check are never held against the other."""
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl import request, run

    profile = context.config.profile
    limits = [limit for limit in context.config.expect if limit["check"] == check and limit.get("min_nodes", 1) < 2]
    given: Json = {"expect": [{**limit, "check": request.CHECK} for limit in limits]}
    given.update(path=_tool(context, "nccl"), infiniband=bool(variables))
    nccl_of = profile.get("nccl") or {}
    sizes = [limit["size"] for limit in limits if limit.get("size")]
    most = str((nccl_of.get("tests") or {}).get("max_size") or _ENOUGH)
    given.update(min_size=str(min(sizes)) if sizes else most, max_size=str(max(sizes)) if sizes else most)
    # One process has all GPUs, so there is nothing to launch.
    given["gpus_per_rank"] = context.config.gpus or 1
    given["topology_file"] = nccl_of.get("topology_file")
    given["environment"] = {**(nccl_of.get("environment") or {}), **context.config.environment, **variables}
    with tempfile.TemporaryDirectory(prefix="hpcai-nccl-") as folder:
        result = run.perform(params(context, request.SPEC, **given), False, folder)
    return context.adopt({**row, "check": check} for row in result["checks"])


def infiniband_bandwidth(context: Context) -> list[Json]:
    """Measure every adapter against itself."""
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.infiniband import bandwidth as ib_bandwidth

    fabric = context.config.profile.get("infiniband") or {}
    if not fabric.get("count"):
        reason = "no InfiniBand is known of this machine type"
        return [context.record("infiniband_bandwidth", verdict="skipped", reason=reason)]
    given = {"path": _tool(context, "perftest"), "devices": list(fabric.get("devices") or []), "timeout": 280.0}
    options = params(context, ib_bandwidth.SPEC, **given)
    return context.adopt(ib_bandwidth.perform(options, False)["checks"])


def storage_bandwidth(context: Context) -> list[Json]:
    """Measure the node's own scratch where it is mounted: gigabytes would else go to the disk of the system."""
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch import boot as use
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.storage import bandwidth as fio

    if not context.config.scratch:
        return [context.record("storage_bandwidth", verdict="skipped", reason="no scratch is configured")]
    usage = use.use(_scratch_plan(context))
    if usage["skipped"]:
        return context.adopt([usage["skipped"]])
    mount = usage["path"]
    given = {"paths": [mount], "fio": _tool(context, "fio"), "runtime": 20, "timeout": 120.0}
    limits = [limit for limit in context.config.expect if limit.get("path") in (None, mount)]
    return context.adopt(fio.perform(params(context, fio.SPEC, expect=limits, **given), False)["checks"])


def _scratch_plan(context: Context) -> Json:
    """Return the result of nvme_scratch on this node in check mode."""
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch import module as task

    known = {**params(context, task.SPEC), **(context.config.scratch or {})}
    return task.perform({**known, "node": context.config.node, "wait": 0.0}, True)


def scratch(context: Context) -> list[Json]:
    """Run nvme_scratch in check mode; a change that it would make means that scratch is not as it should be."""
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch import boot as use

    if not context.config.scratch:
        return [context.record("nvme_scratch", verdict="skipped", reason="no scratch is configured")]
    plan = _scratch_plan(context)
    record = plan["check"]
    if plan["changed"] and record["verdict"] in ("pass", "unjudged"):
        record = {**record, "verdict": "fail", "class": "config", "reason": use.pending(plan)}
    return context.adopt([record])


def hpl(context: Context) -> list[Json]:
    """Run HPL with one rank per GPU, bound to the CPUs and memory near it."""
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.checks_gpu import read
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
        result = hpl_run.perform(params(context, hpl_run.SPEC, **given), False, folder)
    return context.adopt(result["checks"])


# Bandwidth between every two GPUs of a node, by nvbandwidth: the agent's check gpu_p2p. Private, stdlib only.


CHECK, METRIC, UNIT = "gpu_p2p", "read", "GB/s"
TEST = "device_to_device_memcpy_read_ce"
TIMEOUT = 100.0
_TAIL = 2000


def p2p(context: Context) -> list[Json]:
    """Copy from each GPU to each other one."""
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.bandwidth import PLACES

    config = context.config
    if config.gpus == 1 or not (config.gpus or _expected(context)):
        return [context.record(CHECK, verdict="skipped", reason="fewer than two GPUs are known of this machine type")]
    try:
        path = _launch.find("nvbandwidth", config.tools.get("nvbandwidth") or None, PLACES["nvbandwidth"])
    except _launch.NotFound as exc:
        return [context.record(CHECK, verdict="error", reason=str(exc))]
    argv = [path, "-t", TEST]
    outcome = run(argv, TIMEOUT, None, {**config.environment, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    return [judged(outcome, argv, context)]


def _expected(context: Context) -> bool:
    return any(expectation["check"] == CHECK for expectation in context.config.expect)


def judged(outcome: Outcome, argv: t.Sequence[str], context: Context) -> Json:
    """Return the record; the exit status alone proves nothing."""
    log = nvbandwidth.parse(f"{outcome.out}\n{outcome.err}")
    run = log.runs[-1] if log.runs else None
    test = run.test(TEST) if run else None
    about: Json = {"context": {"tool": "nvbandwidth", "version": run and run.version, "argv": list(argv)}}
    about.update(seconds=outcome.seconds, evidence=f"{outcome.out}\n{outcome.err}".strip()[-_TAIL:])
    cause = (run and run.cause) or log.cause
    if cause and cause.kind == "hardware":
        return context.record(CHECK, verdict="fail", blame="hardware", reason=cause.text, **about)
    problem = outcome.problem or (cause.text if cause else "") or _problem(run, context.config.gpus)
    if problem or test is None or not test.values:
        reason = problem or f"nvbandwidth printed no number for {TEST}"
        return context.record(CHECK, verdict="error", reason=reason, **about)
    # Where not all GPUs reach each other the profile expects nothing, and a pair without a number is no finding.
    metrics = judge(CHECK, pairs(test.matrices[-1]), context.config.expect)
    return context.record(CHECK, metrics=metrics, scope=scope(metrics), **about)


def _problem(run: nvbandwidth.NvbandwidthRun | None, gpus: int) -> str:
    if run is None:
        return "nvbandwidth printed no result"
    if gpus and len(run.devices) != gpus:
        return f"nvbandwidth saw {len(run.devices)} of {gpus} GPUs (see gpu_count)"
    return "" if run.complete else "the output of nvbandwidth breaks off"


def pairs(matrix: nvbandwidth.Matrix) -> list[Json]:
    """Return a metric for every two GPUs; a row reads from the GPUs of its columns."""
    size = max(len(matrix), *(len(row) for row in matrix))
    cells = {(gpu, peer): cell for gpu, row in enumerate(matrix) for peer, cell in enumerate(row)}
    return [
        metric(METRIC, cells.get((gpu, peer)), UNIT, gpu=gpu, peer=peer)
        for gpu in range(size)
        for peer in range(size)
        if gpu != peer
    ]


def scope(metrics: t.Sequence[Json]) -> Json:
    """Name the one GPU that all bad pairs have in common, if there is one, else all of theirs."""
    bad = [
        {measured["gpu"], measured["peer"]} for measured in metrics if measured["verdict"] in ("fail", "warn", "error")
    ]
    counts = collections.Counter(gpu for pair in bad for gpu in pair)
    common = [gpu for gpu, count in counts.items() if count == len(bad)]
    gpus = common if len(common) == 1 else list(counts)
    return {"gpu": sorted(gpus)} if gpus else {}
