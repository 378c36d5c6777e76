# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks of gpu_info: each GPU by itself, NVLink, NUMA nodes and CPU pinning. Pure."""

from __future__ import annotations

import itertools
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, metric
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.inventory import (
    GpuCheckOptions,
    GpuFinding,
    MissingGpu,
    ObservedGpus,
    PinnedProcess,
    listing,
    nodes_of,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_topo import TopologyRun
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_values import (
    THROTTLE_FAULTS,
    message,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_xml import Fabric, Gpu
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology import machine
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import (
    Address,
    CpuListError,
    GpuPlace,
    address,
)

# Checks of each GPU by itself. Pure.


Field = t.Callable[[Gpu], t.Any]
_NO_DEVICES = re.compile(r"No devices (?:were )?found")
_MOST_NAMED = 3


def count(observed: ObservedGpus, options: GpuCheckOptions) -> GpuFinding:
    """Compare the number of GPUs with the expected one, not with an earlier one; name every GPU that is missing."""
    answering, missing_gpus = len(observed.gpus), observed.inventory.missing
    metrics = [metric("gpus", answering, "GPUs")]
    samples = [
        *(
            {"gpu": index, "bus_id": gpu.bus_id, "uuid": gpu.uuid, "answers": True}
            for index, gpu in observed.gpus.items()
        ),
        *({"gpu": gone.index, "bus_id": gone.bus_id, "answers": False, "why": gone.why} for gone in missing_gpus),
    ]
    cause = observed.reading.cause
    if not answering and cause:
        return _none_answers(observed, cause)._replace(metrics=metrics, samples=samples)
    if not answering or (missing_gpus and observed.problem("query")):
        # An output that breaks off does not show which GPUs would have followed.
        return GpuFinding(verdict="error", reason=observed.problem("query"), samples=samples)
    if missing_gpus:
        reason = (
            f"{answering} of {answering + len(missing_gpus)} GPUs answer; missing: {'; '.join(map(str, missing_gpus))}"
        )
        lost_gpus = [gone.index for gone in missing_gpus if gone.index is not None]
        return GpuFinding(metrics, "fail", reason, _blame(missing_gpus), lost_gpus, samples)
    broken = {index: text for index, text in ((i, _asks(gpu)) for i, gpu in observed.gpus.items()) if text}
    if broken:
        reason = "; ".join(f"GPU {index} answers and {text}" for index, text in broken.items())
        return GpuFinding(metrics, "fail", reason, "hardware", list(broken), samples)
    if options.gpus and answering > options.gpus:
        return GpuFinding(
            metrics, "fail", f"{answering} GPUs answer, {options.gpus} are expected", "config", samples=samples
        )
    unread = {index: gpu.unread for index, gpu in observed.gpus.items() if gpu.unread}
    if unread:
        reason = "; ".join(f"GPU {index} answers, but not for {_unread(errors)}" for index, errors in unread.items())
        return GpuFinding(metrics, "warn", reason, "hardware", list(unread), samples)
    return GpuFinding(metrics, "pass" if options.gpus else None, samples=samples)


def _none_answers(observed: ObservedGpus, cause: Cause) -> GpuFinding:
    """One GPU that is gone can silence nvidia-smi for all; where it finds none of several, the driver refuses them."""
    bus_id, index = getattr(cause, "bus_id", None), getattr(cause, "index", None)
    on_bus = len(observed.topology.gpus)
    if bus_id or index is not None:
        places = [gpu.index for gpu in observed.topology.gpus if bus_id and gpu.bus_id[-12:] == bus_id[-12:]]
        gpus = places or ([] if index is None else [index])
        return GpuFinding(verdict="fail", reason=f"nvidia-smi shows no GPU: {cause.text}", blame=cause.kind, gpus=gpus)
    reason = f"no GPU answers: {cause.text}"
    if not on_bus:
        return GpuFinding(verdict="fail", reason=reason, blame=cause.kind)
    software = cause.kind == "hardware" and _NO_DEVICES.search(cause.text) is not None and on_bus > 1
    reason += f"; the PCI bus shows {on_bus}"
    reason += ", so ask the kernel log why the driver takes none of them" if software else ""
    return GpuFinding(verdict="fail", reason=reason, blame="software" if software else cause.kind)


def _blame(missing_gpus: t.Sequence[MissingGpu]) -> str:
    """A GPU that is missing is hardware, unless nvidia-smi itself names another reason for each: no permission, say."""
    kinds = {complaint.kind if complaint else "hardware" for complaint in (message(gone.why) for gone in missing_gpus)}
    return "hardware" if "hardware" in kinds else sorted(kinds)[0]


def _unread(errors: t.Mapping[str, str]) -> str:
    names = [f"{name} ({error})" for name, error in errors.items()]
    more = [f"{len(names) - _MOST_NAMED} more"] if len(names) > _MOST_NAMED else []
    return ", ".join([*names[:_MOST_NAMED], *more])


def _asks(gpu: Gpu) -> str:
    """Return the recovery action that the driver reports for a GPU; empty when there is none."""
    if gpu.recovery_action not in (None, "None"):
        return f"asks for recovery: {gpu.recovery_action}"
    return "requires a reset" if gpu.reset_required else ""


def model(observed: ObservedGpus, options: GpuCheckOptions) -> GpuFinding:
    """Compare names, and fail on infoROM warnings about GPUs that answer."""
    finding = _values(observed, [("memory", "MiB", lambda gpu: gpu.memory_total_mib)], name=lambda gpu: gpu.name)
    query = observed.reading.query
    ids = {gpu.bus_id[-12:]: index for index, gpu in observed.gpus.items()}
    warned = {m.text: ids.get((m.bus_id or "")[-12:]) for m in (query.messages if query else []) if "infoROM" in m.text}
    if warned:
        return finding._replace(
            verdict="fail", reason="; ".join(warned), gpus=[index for index in warned.values() if index is not None]
        )
    if not options.model or finding.verdict:
        return finding
    unnamed = [index for index, gpu in observed.gpus.items() if gpu.name is None]
    mismatched = {
        i: gpu.name for i, gpu in observed.gpus.items() if gpu.name and options.model.lower() not in gpu.name.lower()
    }
    if mismatched:
        names = ", ".join(sorted({str(name) for name in mismatched.values()}))
        reason = f"{listing(mismatched)}: {names}, expected {options.model}"
        return finding._replace(verdict="fail", reason=reason, blame="config", gpus=list(mismatched))
    if unnamed:
        return finding._replace(verdict="error", reason=f"nvidia-smi shows no name of {listing(unnamed)}")
    parted = [index for index, gpu in observed.gpus.items() if gpu.mig]
    if parted:
        reason = f"MIG mode is on on {listing(parted)}, and NCCL does not work between its parts (nvidia-smi -mig 0)"
        return finding._replace(verdict="warn", reason=reason, blame="config", gpus=parted)
    return finding._replace(verdict="pass")


def ecc(observed: ObservedGpus, options: GpuCheckOptions) -> GpuFinding:
    """Return the error counters; ECC that is off is a finding where the profile has limits for it."""
    finding = _values(
        observed,
        [
            ("volatile_uncorrected", "errors", lambda gpu: gpu.ecc.volatile_uncorrected),
            ("aggregate_uncorrected", "errors", lambda gpu: gpu.ecc.aggregate_uncorrected),
            ("volatile_corrected", "errors", lambda gpu: gpu.ecc.volatile_corrected),
        ],
        enabled=lambda gpu: gpu.ecc.enabled,
        sram_threshold_exceeded=lambda gpu: gpu.ecc.sram_threshold_exceeded,
    )
    off = [index for index, gpu in observed.gpus.items() if gpu.ecc.enabled is False]
    if not off or finding.verdict or not options.expects("gpu_ecc"):
        return finding
    reason = f"ECC is off on {listing(off)}, so nothing is counted: nvidia-smi -e 1 and a reset switch it on"
    return finding._replace(verdict="fail", reason=reason, blame="config", gpus=off)


def remap(observed: ObservedGpus, options: GpuCheckOptions) -> GpuFinding:
    """Count repaired memory: A100 and newer remap rows, older GPUs retire pages. What no GPU has is left out."""
    return _values(
        observed,
        [
            ("remapped_correctable", "rows", lambda gpu: gpu.repairs.remapped_correctable),
            ("remapped_uncorrectable", "rows", lambda gpu: gpu.repairs.remapped_uncorrectable),
            ("remap_pending", "flags", lambda gpu: _flag(gpu.repairs.remap_pending)),
            ("remap_failed", "flags", lambda gpu: _flag(gpu.repairs.remap_failed)),
            ("retired_pages", "pages", lambda gpu: gpu.repairs.retired_pages),
        ],
        optional=True,
        retirement_pending=lambda gpu: gpu.repairs.retirement_pending,
    )


def pcie(observed: ObservedGpus, options: GpuCheckOptions) -> GpuFinding:
    """Measure PCIe; the current generation drops at idle, so the highest that GPU and slot share is judged."""
    return _values(
        observed,
        [
            ("width", "lanes", lambda gpu: gpu.pcie.width),
            ("generation_max", "generation", lambda gpu: gpu.pcie.generation_max),
        ],
        replays=lambda gpu: gpu.pcie.replays,
    )


def throttle(observed: ObservedGpus, options: GpuCheckOptions) -> GpuFinding:
    return _values(observed, [("throttle_faults", "bits", _faults)], reasons=lambda gpu: gpu.throttle)


def _faults(gpu: Gpu) -> int | None:
    return None if gpu.throttle_mask is None else gpu.throttle_mask & THROTTLE_FAULTS


def temperature(observed: ObservedGpus, options: GpuCheckOptions) -> GpuFinding:
    return _values(
        observed,
        [("temperature", "C", lambda gpu: gpu.temperature_c)],
        memory=lambda gpu: gpu.memory_temperature_c,
    )


def _flag(value: bool | None) -> int | None:
    return None if value is None else int(value)


def _values(
    observed: ObservedGpus, fields: t.Sequence[tuple[str, str, Field]], optional: bool = False, **details: Field
) -> GpuFinding:
    """Measure fields of all planned GPUs; one that is missing has metrics without a value."""
    if not observed.gpus:
        return GpuFinding(verdict="error", reason=observed.problem("query"))
    metrics: list[Json] = []
    for name, unit, field in fields:
        values = {
            index: field(observed.gpus[index]) if index in observed.gpus else None
            for index in observed.inventory.planned
        }
        if not optional or any(value is not None for value in values.values()):
            metrics += [metric(name, value, unit, gpu=index) for index, value in values.items()]
    samples = [
        {
            "gpu": index,
            "bus_id": gpu.bus_id,
            "uuid": gpu.uuid,
            "serial": gpu.serial,
            **{name: field(gpu) for name, dummy, field in fields},
            **{name: field(gpu) for name, field in details.items()},
        }
        for index, gpu in observed.gpus.items()
    ]
    few = len(observed.gpus) < len(observed.inventory.planned)
    reason = f"{len(observed.gpus)} of {len(observed.inventory.planned)} GPUs answer (see gpu_count)" if few else ""
    return GpuFinding(metrics, reason=reason, samples=samples)


# The check of NVLink: links that are up, how GPUs are connected, the fabric's state. Pure.


_NVLINK = re.compile(r"NV\d+")
# What the fabric manager is to be told about the machine, and what is broken in it, of NVML's incorrect configurations.
_BROKEN_FABRIC = re.compile(r"(?i)insufficient.?nvlinks|gpu.?state|unhealthy")
# What NVML's health mask calls a fault also where there is no summary; the other conditions cost bandwidth, or pass.
_FABRIC_FAULTS = ("route_unhealthy", "incorrect_configuration")
_MIG = "NVML shows the links of a GPU in MIG mode as down"
Pair = t.Tuple[int, int]


def nvlink(observed: ObservedGpus, options: GpuCheckOptions) -> GpuFinding:
    """Count links; where most GPUs form a mesh of one kind, a GPU that is connected otherwise is at fault."""
    finding = _links(observed, options)
    broken = _fabric(observed) or _uneven(observed) or _weakened(observed)
    return finding if finding.verdict in ("error", "skipped") or broken is None else _with(finding, broken)


def _with(finding: GpuFinding, broken: GpuFinding) -> GpuFinding:
    return broken._replace(metrics=finding.metrics, samples=finding.samples)


def _links(observed: ObservedGpus, options: GpuCheckOptions) -> GpuFinding:
    """Count the active NVLinks of each GPU; GPUs in MIG mode show none, and are left out or skip the check."""
    if not observed.gpus:
        return GpuFinding(verdict="error", reason=observed.problem("query"))
    shown = observed.reading.nvlink
    parted = {index for index, gpu in observed.gpus.items() if gpu.mig}
    if set(observed.inventory.planned) <= parted:
        sentences = [gpu.sentence for gpu in shown.gpus if gpu.sentence] if shown else [observed.problem("nvlink")]
        reason = next(filter(None, sentences), _MIG)
        return GpuFinding(verdict="skipped", reason=f"MIG mode is on on {listing(parted)}: {reason}")
    if (
        shown is None
        and observed.reading.matrix
        and not _codes(observed.reading.matrix)
        and not options.expects("gpu_nvlink")
    ):
        return GpuFinding(verdict="skipped", reason="these GPUs have no NVLink")
    if shown is None:
        return GpuFinding(verdict="error", reason=observed.problem("nvlink") or "nvidia-smi nvlink -s shows no GPU")
    unread = {gpu.index: gpu.unread for gpu in shown.gpus if gpu.unread and gpu.index not in parted}
    active = {
        gpu.index: gpu.active for gpu in shown.gpus if (gpu.links or gpu.all_inactive) and gpu.index not in unread
    }
    samples = [
        {
            "gpu": gpu.index,
            "links": [link.gbps for link in gpu.links],
            "all_inactive": gpu.all_inactive,
            "sentence": gpu.sentence,
        }
        for gpu in shown.gpus
    ]
    planned = [index for index in observed.inventory.planned if index not in parted]
    metrics = [metric("links_active", active.get(index), "links", gpu=index) for index in planned]
    reason = "; ".join(f"GPU {index}: {text}" for index, text in unread.items())
    return GpuFinding(metrics, reason=reason, samples=samples)


def _fabric(observed: ObservedGpus) -> GpuFinding | None:
    """Find GPUs behind NVSwitches that the fabric manager has not set up; other GPUs have no fabric state."""
    if len(observed.gpus) < 2:
        return None
    unready = {
        index: gpu.fabric
        for index, gpu in observed.gpus.items()
        if (gpu.fabric.state and gpu.fabric.state != "Completed") or gpu.fabric.status not in (None, "Success")
    }
    if unready:
        first = next(iter(unready.values()))
        condition = f"state {first.state or 'unknown'}, status {first.status or 'unknown'}"
        reason = (
            f"the NVLink fabric of {listing(unready)} is not ready: {condition}; "
            "is nvidia-fabricmanager running, here or (GB200 NVL72) on the NVLink switches?"
        )
        return GpuFinding(verdict="fail", reason=reason, blame="software", gpus=list(unready))
    ill = {index: gpu.fabric for index, gpu in observed.gpus.items() if _is_ill(gpu.fabric)}
    if not ill:
        return None
    wrong = [fabric.conditions.get("incorrect_configuration", "unhealthy") for fabric in ill.values()]
    config = all("route_unhealthy" not in fabric.conditions for fabric in ill.values())
    config = config and not any(_BROKEN_FABRIC.search(text) for text in wrong)
    reason = f"the NVLink fabric of {listing(ill)} is unhealthy{_conditions(ill.values())}"
    return GpuFinding(verdict="fail", reason=reason, blame="config" if config else "hardware", gpus=list(ill))


def _is_ill(fabric: Fabric) -> bool:
    """The summary decides where there is one; older drivers have the conditions alone."""
    if fabric.health:
        return fabric.health == "Unhealthy"
    return any(name in fabric.conditions for name in _FABRIC_FAULTS)


def _weakened(observed: ObservedGpus) -> GpuFinding | None:
    """Find GPUs whose fabric works with less than its bandwidth, or recovers: jobs run, and are slow.

    Where trunk links of a rack are missing the summary is Limited Capacity, which NVIDIA counts as operational.
    """
    if len(observed.gpus) < 2:
        return None
    weak = {
        index: gpu.fabric
        for index, gpu in observed.gpus.items()
        if not _is_ill(gpu.fabric) and (gpu.fabric.health not in (None, "Healthy") or gpu.fabric.conditions)
    }
    if not weak:
        return None
    healths = sorted({fabric.health for fabric in weak.values() if fabric.health})
    reason = f"the NVLink fabric of {listing(weak)} is {', '.join(healths) or 'limited'}{_conditions(weak.values())}"
    return GpuFinding(verdict="warn", reason=reason, blame="fabric", gpus=list(weak))


def _conditions(fabrics: t.Iterable[Fabric]) -> str:
    shown = sorted({f"{name} {text}" for fabric in fabrics for name, text in fabric.conditions.items()})
    return f" ({', '.join(shown)})" if shown else ""


def _codes(matrix: TopologyRun) -> dict[Pair, str]:
    """Return the NVLink codes of pairs of GPUs."""
    return {
        (gpu.index, other.index): gpu.links[other.name]
        for gpu, other in itertools.combinations(matrix.gpus, 2)
        if gpu.index is not None and other.index is not None and _NVLINK.fullmatch(gpu.links.get(other.name, ""))
    }


def _uneven(observed: ObservedGpus) -> GpuFinding | None:
    """Find what differs where more than half of the GPUs, and at least three, form a full mesh of one kind.

    Boards without switches (V100's cube, bridged pairs of PCIe cards) form none, so nothing is demanded of them.
    """
    matrix = observed.reading.matrix
    if matrix is None:
        return None
    codes = _codes(matrix)
    # In MIG mode there is no peer-to-peer between GPUs, neither by PCIe nor by NVLink.
    parted = {index for index, gpu in observed.gpus.items() if gpu.mig}
    everyone = [gpu.index for gpu in matrix.gpus if gpu.index is not None and gpu.index not in parted]
    for code in sorted(set(codes.values()), key=list(codes.values()).count, reverse=True):
        deviating = [pair for pair in itertools.combinations(everyone, 2) if codes.get(pair) != code]
        outsiders = _cover(deviating)
        if len(everyone) - len(outsiders) > max(2, len(everyone) // 2):
            return _difference(matrix, code, deviating, outsiders) if deviating else None
    return None


def _cover(pairs: t.Sequence[Pair]) -> list[int]:
    """Return few GPUs that together are in all the pairs, those with most pairs first."""
    remaining, chosen = list(pairs), []
    while remaining:
        ends = [index for pair in remaining for index in pair]
        worst = max(sorted(set(ends)), key=ends.count)
        chosen.append(worst)
        remaining = [pair for pair in remaining if worst not in pair]
    return chosen


def _difference(matrix: TopologyRun, code: str, deviating: t.Sequence[Pair], outsiders: t.Sequence[int]) -> GpuFinding:
    """Return the finding for pairs with another connection; a single pair blames both of its GPUs."""
    blamed = sorted({index for pair in deviating for index in pair}) if len(deviating) == 1 else sorted(outsiders)
    names = {gpu.index: gpu for gpu in matrix.gpus}
    links = sorted({names[first].links.get(names[second].name, "?") for first, second in deviating})
    pairs = f"{len(deviating)} pair{'s' if len(deviating) > 1 else ''} of GPUs"
    reason = f"{listing(blamed)}: {pairs} connected by {', '.join(links)}, all others by {code}"
    return GpuFinding(verdict="fail", reason=reason, gpus=blamed)


# Checks of location: GPUs on NUMA nodes, processes on CPUs. Pure.


_NOWHERE: Address = (-1, 0, 0, 0)


def topology(observed: ObservedGpus, options: GpuCheckOptions) -> GpuFinding:
    """Compare NUMA nodes with the profile's, by PCI domain; without a profile nothing is judged."""
    places = observed.topology.gpus
    if not places:
        return GpuFinding(verdict="error", reason=observed.problem("query") or "no GPU has a place")
    samples = [_sample(observed, gpu) for gpu in places]
    if not options.places:
        expected = options.expects("gpu_topology")
        reason = "the profile's topology was not given" if expected else ""
        return GpuFinding(verdict="error" if expected else "unjudged", reason=reason, samples=samples)
    nodes = nodes_of(options.places, [where for where in map(_where, places) if where])
    unknown = [gpu.index for gpu in places if gpu.numa_node is None]
    vague = [gpu.index for gpu in places if nodes.get(_where(gpu) or _NOWHERE, 0) is None]
    wrong = {
        gpu.index: f"{listing([gpu.index])} ({gpu.bus_id}) is on NUMA node {gpu.numa_node}, expected {node}"
        for gpu, node in ((gpu, _node(nodes, gpu)) for gpu in places)
        if gpu.numa_node is not None and gpu.index not in vague and node != str(gpu.numa_node)
    }
    metrics = [metric("misplaced", None if (unknown or vague) and not wrong else len(wrong), "GPUs")]
    if wrong:
        return GpuFinding(metrics, "fail", "; ".join(wrong.values()), "config", list(wrong), samples)
    if unknown:
        reason = f"the NUMA node of {listing(unknown)} is unknown"
        return GpuFinding(metrics, "error", reason, gpus=unknown, samples=samples)
    if vague:
        reason = f"which GPUs of the profile {listing(vague)} are cannot be told: another number shares the PCI domain"
        return GpuFinding(metrics, "error", reason, samples=samples)
    return GpuFinding(metrics, "pass", samples=samples)


def _where(gpu: GpuPlace) -> Address | None:
    return address(gpu.bus_id)


def _node(nodes: t.Mapping[Address, int | None], gpu: GpuPlace) -> str:
    gpu_address = _where(gpu)
    return str(nodes.get(gpu_address, "no GPU in this PCI domain")) if gpu_address else "another bus id"


def _sample(observed: ObservedGpus, gpu: GpuPlace) -> Json:
    matrix = observed.reading.matrix
    row = next((row_gpu for row_gpu in matrix.gpus if row_gpu.index == gpu.index), None) if matrix else None
    return {
        "gpu": gpu.index,
        "bus_id": gpu.bus_id,
        "numa_node": gpu.numa_node,
        "cpus": gpu.cpus,
        "nics": list(gpu.nics),
        "links": dict(row.links) if row else {},
    }


def pinning(observed: ObservedGpus, options: GpuCheckOptions) -> GpuFinding:
    """Find processes that may run on CPUs away from their GPUs; with several GPUs the CPUs near any of them count."""
    if not observed.processes:
        problem = observed.problem("query")
        return GpuFinding(verdict="error" if problem else "skipped", reason=problem or "no process uses a GPU")
    visible = [process for process in observed.processes if process.cpus is not None]
    if not visible:
        reason = f"none of the {len(observed.processes)} processes that use a GPU can be seen from here"
        return GpuFinding(verdict="skipped", reason=reason)
    samples = [_pinned(observed, process) for process in visible]
    unknown = [row for row in samples if row["inside"] is None]
    outside = [row for row in samples if row["inside"] is False]
    gpus = [gpu for row in (outside or unknown) for gpu in row["gpus"]]
    metrics = [metric("misplaced", None if unknown and not outside else len(outside), "processes")]
    if unknown and not outside:
        return GpuFinding(metrics, "error", f"the CPUs of {listing(gpus)} are unknown", gpus=gpus, samples=samples)
    texts = [f"pid {row['pid']} may run on {row['cpus']}, {listing(row['gpus'])} on {row['wanted']}" for row in outside]
    return GpuFinding(metrics, reason="; ".join(texts), blame="config", gpus=gpus, samples=samples)


def _pinned(observed: ObservedGpus, process: PinnedProcess) -> Json:
    places = {gpu.index: gpu.cpus for gpu in observed.topology.gpus}
    complete = all(places.get(index) for index in process.gpus)
    near_cpus = {cpu for index in process.gpus for cpu in machine.parse(places.get(index, ""))}
    try:
        inside = set(machine.parse(process.cpus or "")) <= near_cpus if complete and process.cpus else None
    except CpuListError:
        inside = None
    return {
        "pid": process.pid,
        "gpus": list(process.gpus),
        "cpus": process.cpus,
        "wanted": machine.write(near_cpus),
        "inside": inside,
    }
