# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module gpu_info: its options, its result, and the GPUs of a node read and judged."""

from __future__ import annotations

import re
import socket
import time
import typing as t
from dataclasses import asdict, replace
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _checks, _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import (
    CheckError,
    Json,
    explain,
    judge,
    overall,
    record,
    validate_expectation,
    validate_seconds,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import info_checks
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.info_checks import nvlink
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.inventory import (
    GpuCheckOptions,
    GpuFinding,
    Measure,
    ObservedGpus,
    PinnedProcess,
    SmiReading,
    expected,
    read,
    take,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_xml import XmlRun
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.binding import binding
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import facts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.sysfs import merge, pci_gpus, read_sysfs

# Read the GPUs of a node and judge them.


CHECKS: dict[str, Measure] = {
    "gpu_count": info_checks.count,
    "gpu_model": info_checks.model,
    "gpu_ecc": info_checks.ecc,
    "gpu_remap": info_checks.remap,
    "gpu_pcie": info_checks.pcie,
    "gpu_nvlink": nvlink,
    "gpu_throttle": info_checks.throttle,
    "gpu_temperature": info_checks.temperature,
    "gpu_topology": info_checks.topology,
    "gpu_pinning": info_checks.pinning,
}
_NOBODY = XmlRun(None, None, None, None, None, [], [], False)
_ALLOWED = re.compile(r"^Cpus_allowed_list:\s*(\S+)", re.MULTILINE)
_WORST = ("fail", "error", "warn")


def see(
    reading: SmiReading,
    options: GpuCheckOptions,
    root: str,
    given: t.Mapping[int, t.Sequence[int]] | None,
    proc: str = "/proc",
) -> ObservedGpus:
    """Combine what nvidia-smi, the PCI bus and the process table show."""
    on_bus = pci_gpus(root)
    inventory = take(reading.query or _NOBODY, on_bus, options.places, options.gpus)
    if not inventory.gpus and reading.cause is None:
        # Without an answer of nvidia-smi nothing shows which GPUs are missing.
        inventory = inventory._replace(missing=[])
    ids = {index: gpu.bus_id for index, gpu in sorted(inventory.gpus.items())}
    plain = read_sysfs(root, list(ids.values()) if ids else on_bus)
    numbered = [replace(place, index=index) for index, place in zip(ids or range(len(on_bus)), plain.gpus)]
    topology = merge(replace(plain, gpus=numbered), reading.matrix)
    users = _users(inventory.gpus) if given is None else given
    processes = [PinnedProcess(pid, gpus, _allowed(proc, pid)) for pid, gpus in sorted(users.items())]
    return ObservedGpus(reading, inventory, topology, processes)


def _users(gpus: t.Mapping[int, t.Any]) -> dict[int, list[int]]:
    """Return the GPUs that each process computes on; display servers are left out."""
    users: dict[int, list[int]] = {}
    for index, gpu in gpus.items():
        for process in gpu.processes:
            if "C" in (process.kind or ""):
                users.setdefault(process.pid, []).append(index)
    return users


def _allowed(proc: str, pid: int) -> str | None:
    """Return a process's CPUs; it may have ended meanwhile, or be another user's or another container's."""
    try:
        match = _ALLOWED.search(Path(proc, str(pid), "status").read_text(errors="replace"))
    except OSError:
        return None
    return match.group(1) if match else None


def result(
    observed: ObservedGpus,
    options: GpuCheckOptions,
    names: t.Sequence[str],
    time: float,
    seconds: float,
    split: bool = False,
) -> Json:
    """Return the module's result."""
    query, bound = observed.reading.query or _NOBODY, binding(observed.topology, split)
    common = {
        "time": time,
        "seconds": seconds,
        "run": options.run,
        "evidence": "\n".join(message.text for message in query.messages),
        "context": {
            "tool": "nvidia-smi",
            "version": query.driver_version,
            "driver": query.driver_version,
            "cuda": query.cuda_version,
            "argv": observed.reading.commands,
            "profile": options.profile,
        },
    }
    return {
        "gpus": [{"index": index, **_facts(gpu)} for index, gpu in sorted(observed.gpus.items())],
        "missing": [asdict(gone) for gone in observed.inventory.missing],
        "driver": query.driver_version,
        "cuda": query.cuda_version,
        "topology": facts(observed.topology),
        "binding": {**bound._asdict(), "environment": bound.environment},
        "cpu_masks": bound.masks,
        "argv": observed.reading.commands,
        "checks": [_check(name, observed, options, common) for name in names],
    }


NO_GPU = GpuFinding(verdict="skipped", reason="neither nvidia-smi nor the PCI bus shows a GPU")


def _facts(gpu: t.Any) -> Json:
    return {key: value for key, value in asdict(gpu).items() if key not in ("complete", "error", "unread")}


def _check(name: str, observed: ObservedGpus, options: GpuCheckOptions, common: Json) -> Json:
    finding = NO_GPU if _none(observed, options) else CHECKS[name](observed, options)
    if not finding.verdict and not options.expects(name) and _silent(finding, observed):
        finding = GpuFinding(
            verdict="skipped", reason="nvidia-smi shows no such value of these GPUs", samples=finding.samples
        )
    metrics = list(finding.metrics)
    if finding.verdict != "skipped" and metrics:
        metrics = judge(name, metrics, options.expect)
    judged = overall(metrics) if metrics else finding.verdict
    # An expectation can make a check's own verdict worse, never better.
    verdict = next((level for level in _WORST if level in (judged, finding.verdict)), finding.verdict or judged)
    # Where a machine type does not say where its GPUs are, nobody knows which one is missing.
    known = {*observed.gpus, *(gone.index for gone in observed.inventory.missing)} - {None}
    gpus = {m["gpu"] for m in metrics if m.get("gpu") in known and m["verdict"] in _WORST} | set(finding.gpus)
    reasons = [finding.reason, explain([m for m in metrics if "gpu" in m])] if finding.reason else []
    return record(
        name,
        options.node,
        verdict=verdict,
        metrics=metrics,
        blame=finding.blame,
        reason="; ".join(filter(None, reasons)),
        scope={"gpu": sorted(gpus)} if gpus else {},
        samples=finding.samples,
        **common,
    )


def _silent(finding: GpuFinding, observed: ObservedGpus) -> bool:
    """Return whether all GPUs answer and none has what a check is about: ECC, row remapping, a sensor."""
    return set(observed.inventory.planned) <= set(observed.gpus) and all(m["value"] is None for m in finding.metrics)


def _none(observed: ObservedGpus, options: GpuCheckOptions) -> bool:
    """Return whether no GPU exists and none is expected; a nvidia-smi that hangs or prints nonsense proves neither."""
    expected = options.gpus or options.places or options.expects("gpu_count")
    present = observed.gpus or observed.topology.gpus or observed.inventory.missing
    answered = observed.reading.cause is not None or not observed.reading.commands
    return not expected and not present and answered


# The options. Pure.


SPEC: dict[str, Json] = {
    "gpus": {"type": "int", "default": 0},
    "model": {"type": "str"},
    "topology": {"type": "list", "elements": "dict", "default": []},
    "checks": {"type": "list", "elements": "str", "default": list(CHECKS), "choices": list(CHECKS)},
    "processes": {"type": "dict"},
    "split_cpus": {"type": "bool", "default": False},
    "program": {"type": "path"},
    "timeout": {"type": "float", "default": 60},
    "environment": {"type": "dict", "default": {}},
    **_checks.SPEC,
    **_checks.NODE,
    **_checks.SYSFS,
}


def perform(params: t.Mapping[str, t.Any]) -> Json:
    """Look at the GPUs and return the result of the module."""
    begin, start = time.time(), time.monotonic()
    request = options(params, socket.gethostname().split(".")[0])
    of_processes = users(params["processes"])
    reading = read(params["program"], params["timeout"], _launch.environment(params["environment"]))
    observed = see(reading, request, params["sysfs"], of_processes)
    seconds = time.monotonic() - start
    return result(observed, request, params["checks"], begin, seconds, params["split_cpus"])


def options(params: t.Mapping[str, t.Any], host: str) -> GpuCheckOptions:
    """Return the checked options; raises ValueError."""
    if params["gpus"] < 0:
        raise CheckError(f"gpus is {params['gpus']}")
    validate_seconds("timeout", params["timeout"])
    for expectation in params["expect"]:
        validate_expectation(expectation)
    return GpuCheckOptions(
        params["name"] or host,
        params["gpus"],
        params["model"],
        expected(params["topology"]),
        params["expect"],
        params["run"],
        params["profile"],
    )


def users(processes: t.Mapping[t.Any, t.Any] | None) -> dict[int, list[int]] | None:
    """Return the GPUs of each process id; keys of a dictionary in YAML or JSON may be text."""
    if processes is None:
        return None
    users = {}
    for pid, gpus in processes.items():
        indexes = gpus if isinstance(gpus, (list, tuple)) else [gpus]
        try:
            users[int(pid)] = [int(index) for index in indexes]
        except (TypeError, ValueError) as exc:
            raise CheckError(f"processes holds process ids and GPU indexes, not {pid!r}: {gpus!r}") from exc
    return users
