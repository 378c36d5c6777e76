# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bandwidth between every two GPUs of a node, by nvbandwidth: the agent's check gpu_p2p. Private, stdlib only."""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json, judge, metric
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Context
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nvbandwidth

CHECK, METRIC, UNIT = "gpu_p2p", "read", "GB/s"
TEST = "device_to_device_memcpy_read_ce"
TIMEOUT = 100.0
_TAIL = 2000


def p2p(context: Context) -> list[Json]:
    """Copy from each GPU to each other one."""
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _find
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import run
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.bandwidth_argv import PLACES

    config = context.config
    if config.gpus == 1 or not (config.gpus or _expected(context)):
        return [context.record(CHECK, verdict="skipped", reason="fewer than two GPUs are known of this machine type")]
    try:
        path = _find.find("nvbandwidth", config.tools.get("nvbandwidth") or None, PLACES["nvbandwidth"])
    except _find.NotFound as exc:
        return [context.record(CHECK, verdict="error", reason=str(exc))]
    argv = [path, "-t", TEST]
    outcome = run(argv, TIMEOUT, None, {**config.environment, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    return [judged(outcome, argv, context)]


def _expected(context: Context) -> bool:
    return any(one["check"] == CHECK for one in context.config.expect)


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
        told = problem or f"nvbandwidth printed no number for {TEST}"
        return context.record(CHECK, verdict="error", reason=told, **about)
    # Where not all GPUs reach each other the profile expects nothing, and a pair without a number is no finding.
    found = judge(CHECK, pairs(test.matrices[-1]), context.config.expect)
    return context.record(CHECK, metrics=found, scope=scope(found), **about)


def _problem(run: nvbandwidth.Run | None, gpus: int) -> str:
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
    bad = [{one["gpu"], one["peer"]} for one in metrics if one["verdict"] in ("fail", "warn", "error")]
    counts = collections.Counter(gpu for pair in bad for gpu in pair)
    common = [gpu for gpu, count in counts.items() if count == len(bad)]
    found = common if len(common) == 1 else list(counts)
    return {"gpu": sorted(found)} if found else {}
