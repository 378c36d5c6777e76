# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module gpu_info: its options, and a node's GPUs read and judged."""

from __future__ import annotations

import re
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
    take,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_xml import XmlRun
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.binding import binding
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import facts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.matrix import merge
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.sysfs import pci_gpus, read_sysfs

# gpu_info: read a node's GPUs and judge them.


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
    """Put together what nvidia-smi, the PCI bus and the process table say."""
    on_bus = pci_gpus(root)
    inventory = take(reading.query or _NOBODY, on_bus, options.places, options.gpus)
    if not inventory.gpus and reading.cause is None:
        # Who did not listen cannot tell who did not answer.
        inventory = inventory._replace(missing=[])
    ids = {index: gpu.bus_id for index, gpu in sorted(inventory.gpus.items())}
    plain = read_sysfs(root, list(ids.values()) if ids else on_bus)
    numbered = [replace(place, index=index) for index, place in zip(ids or range(len(on_bus)), plain.gpus)]
    topology = merge(replace(plain, gpus=numbered), reading.matrix)
    users = _users(inventory.gpus) if given is None else given
    processes = [PinnedProcess(pid, gpus, _allowed(proc, pid)) for pid, gpus in sorted(users.items())]
    return ObservedGpus(reading, inventory, topology, processes)


def _users(gpus: t.Mapping[int, t.Any]) -> dict[int, list[int]]:
    """Return the GPUs that each process computes on; a display server's place does not matter."""
    found: dict[int, list[int]] = {}
    for index, gpu in gpus.items():
        for process in gpu.processes:
            if "C" in (process.kind or ""):
                found.setdefault(process.pid, []).append(index)
    return found


def _allowed(proc: str, pid: int) -> str | None:
    """Return a process's CPUs; it may have ended meanwhile, or be another user's or another container's."""
    try:
        match = _ALLOWED.search(Path(proc, str(pid), "status").read_text(errors="replace"))
    except OSError:
        return None
    return match.group(1) if match else None


def result(
    seen: ObservedGpus,
    options: GpuCheckOptions,
    names: t.Sequence[str],
    time: float,
    seconds: float,
    split: bool = False,
) -> Json:
    """Return what the module returns."""
    query, bound = seen.reading.query or _NOBODY, binding(seen.topology, split)
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
            "argv": seen.reading.commands,
            "profile": options.profile,
        },
    }
    return {
        "gpus": [{"index": index, **_facts(gpu)} for index, gpu in sorted(seen.gpus.items())],
        "missing": [asdict(gone) for gone in seen.inventory.missing],
        "driver": query.driver_version,
        "cuda": query.cuda_version,
        "topology": facts(seen.topology),
        "binding": {**bound._asdict(), "environment": bound.environment},
        "cpu_masks": bound.masks,
        "argv": seen.reading.commands,
        "checks": [_check(name, seen, options, common) for name in names],
    }


def _facts(gpu: t.Any) -> Json:
    return {key: value for key, value in asdict(gpu).items() if key not in ("complete", "error")}


def _check(name: str, seen: ObservedGpus, options: GpuCheckOptions, common: Json) -> Json:
    found = GpuFinding(verdict="skipped", reason="no GPU") if _none(seen, options) else CHECKS[name](seen, options)
    if not found.verdict and not options.expects(name) and _silent(found, seen):
        found = GpuFinding(
            verdict="skipped", reason="nvidia-smi shows no such value of these GPUs", samples=found.samples
        )
    metrics = list(found.metrics)
    if found.verdict != "skipped" and metrics:
        metrics = judge(name, metrics, options.expect)
    judged = overall(metrics) if metrics else found.verdict
    # A check that found something itself can still miss an expectation, and never gains by one.
    verdict = next((one for one in _WORST if one in (judged, found.verdict)), found.verdict or judged)
    known = {*seen.gpus, *(gone.index for gone in seen.inventory.missing)}
    gpus = {m["gpu"] for m in metrics if m.get("gpu") in known and m["verdict"] in _WORST} | set(found.gpus)
    reasons = [found.reason, explain([m for m in metrics if "gpu" in m])] if found.reason else []
    return record(
        name,
        options.node,
        verdict=verdict,
        metrics=metrics,
        blame=found.blame,
        reason="; ".join(filter(None, reasons)),
        scope={"gpu": sorted(gpus)} if gpus else {},
        samples=found.samples,
        **common,
    )


def _silent(found: GpuFinding, seen: ObservedGpus) -> bool:
    """All GPUs answer, and none has what a check is about: ECC, row remapping, a sensor."""
    return set(seen.inventory.planned) <= set(seen.gpus) and all(m["value"] is None for m in found.metrics)


def _none(seen: ObservedGpus, options: GpuCheckOptions) -> bool:
    """There is no GPU and nobody expects one. A nvidia-smi that hangs or talks nonsense proves nothing of the kind."""
    wanted = options.gpus or options.places or options.expects("gpu_count")
    known = seen.gpus or seen.topology.gpus or seen.inventory.missing
    answered = seen.reading.cause is not None or not seen.reading.commands
    return not wanted and not known and answered


# The options of gpu_info, checked. Pure, private.


def spec(checks: t.Iterable[str]) -> dict[str, dict[str, t.Any]]:
    """Return the module's argument spec."""
    names = list(checks)
    return {
        "gpus": {"type": "int", "default": 0},
        "model": {"type": "str"},
        "topology": {"type": "list", "elements": "dict", "default": []},
        "checks": {"type": "list", "elements": "str", "default": names, "choices": names},
        "processes": {"type": "dict"},
        "split_cpus": {"type": "bool", "default": False},
        "program": {"type": "path"},
        "timeout": {"type": "float", "default": 60},
        "environment": {"type": "dict", "default": {}},
        **_checks.SPEC,
        **_checks.NODE,
        **_checks.SYSFS,
    }


def options(params: t.Mapping[str, t.Any], host: str) -> GpuCheckOptions:
    """Return what is expected of the node; raises ValueError."""
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
    found = {}
    for pid, gpus in processes.items():
        indexes = gpus if isinstance(gpus, (list, tuple)) else [gpus]
        try:
            found[int(pid)] = [int(index) for index in indexes]
        except (TypeError, ValueError) as exc:
            raise CheckError(f"processes holds process ids and GPU indexes, not {pid!r}: {gpus!r}") from exc
    return found


def variables(environment: t.Mapping[str, t.Any]) -> dict[str, str]:
    return _launch.environment(environment)
