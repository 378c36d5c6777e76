# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check of what the NVLinks count: errors, links that did not recover, bit error rates. Private, stdlib only."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _find
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json, metric
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import window
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Context
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.checks_gpu import unstuck
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.limits import Finding, report
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.read import PLACES
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nvidia_smi, nvlink_errors
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.sysfs import pci_gpus

CHECK = "gpu_nvlink_errors"
TIMEOUT = 6.0
_NONE = ("NVLink", "Nvlink", "not supported", "Not Supported")
_HOUR = 3600.0


def errors(context: Context) -> list[Json]:
    """Judge the counters, and how many errors the last hour brought."""
    return [report(context, CHECK, _errors(context))]


def _errors(context: Context) -> Finding:
    profile, bus = context.config.profile, pci_gpus(context.config.sysfs)
    expected = any(one.get("check") == "gpu_nvlink" for one in context.config.expect)
    if not bus and (profile.get("gpu") or {}).get("count") == 0:
        return Finding(verdict="skipped", reason="no GPU is expected")
    try:
        path = _find.find("nvidia-smi", context.config.tools.get("nvidia_smi") or None, PLACES, role=None)
    except _find.NotFound as exc:
        return Finding(verdict="error", reason=str(exc))
    unstuck(context)
    outcome = run([path, "nvlink", "-e"], TIMEOUT, None, dict(context.config.environment))
    gpus = [gpu for gpu in nvlink_errors.parse(outcome.out) if gpu.links]
    if not gpus:
        said = nvidia_smi.message(f"{outcome.out}\n{outcome.err}")
        none = outcome.rc == 0 or any(word in f"{outcome.out}{outcome.err}" for word in _NONE)
        if outcome.rc is not None and said is None and none and not expected:
            return Finding(verdict="skipped", reason="these GPUs show no counters of NVLink")
        return Finding(verdict="error", reason=f"nvidia-smi nvlink -e: {outcome.problem or 'it shows no link'}")
    return judged(context, gpus)


def judged(context: Context, gpus: t.Sequence[nvlink_errors.Gpu]) -> Finding:
    """Return the finding of what was counted."""
    metrics: list[Json] = []
    grown = window.grown(context, CHECK, {str(gpu.index): gpu.total("errors") for gpu in gpus}, _HOUR)
    for name, unit in (("errors", "errors"), ("recovery_failed", "events"), ("effective_ber", "errors/bit")):
        values = {gpu.index: gpu.effective_ber if name == "effective_ber" else gpu.total(name) for gpu in gpus}
        if any(value is not None for value in values.values()):
            metrics += [metric(name, value, unit, gpu=index) for index, value in values.items()]
    metrics += [metric("errors_per_hour", grown.get(str(gpu.index)), "errors/h", gpu=gpu.index) for gpu in gpus]
    samples = [
        {"gpu": gpu.index, "link": link.number, "errors": link.errors, "recovery_failed": link.recovery_failed}
        for gpu in gpus
        for link in gpu.links
        if link.errors or link.recovery_failed
    ]
    bad = [gpu.index for gpu in gpus if any(link.errors or link.recovery_failed for link in gpu.links)]
    return Finding(metrics, scope={"gpu": bad} if bad else {}, samples=samples, action="reset")
