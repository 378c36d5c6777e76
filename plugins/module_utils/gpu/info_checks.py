# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks of gpu_info: what each GPU says of itself, NVLink, NUMA nodes and CPU pinning. Pure."""

from __future__ import annotations

import itertools
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, metric
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.inventory import (
    GpuCheckOptions,
    GpuFinding,
    ObservedGpus,
    PinnedProcess,
    listing,
    nodes_of,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_topo import TopologyRun
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_values import THROTTLE_FAULTS
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_xml import Gpu
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology import machine
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import (
    Address,
    CpuListError,
    GpuPlace,
    address,
)

# Checks on what each GPU says of itself. Pure, private.


Field = t.Callable[[Gpu], t.Any]


def count(seen: ObservedGpus, options: GpuCheckOptions) -> GpuFinding:
    """Compare with what is expected, never with what the node had before; name every GPU that is missing."""
    there, missing = len(seen.gpus), seen.inventory.missing
    metrics = [metric("gpus", there, "GPUs")]
    samples = [
        *({"gpu": index, "bus_id": gpu.bus_id, "uuid": gpu.uuid, "answers": True} for index, gpu in seen.gpus.items()),
        *({"gpu": gone.index, "bus_id": gone.bus_id, "answers": False, "why": gone.why} for gone in missing),
    ]
    cause = seen.reading.cause
    if not there and cause:
        return GpuFinding(metrics, "fail", f"no GPU answers: {cause.text}", cause.kind, samples=samples)
    if not there or (missing and seen.problem("query")):
        # Of an output that breaks off nobody can say which GPUs it would have shown.
        return GpuFinding(verdict="error", reason=seen.problem("query"), samples=samples)
    if missing:
        reason = f"{there} of {there + len(missing)} GPUs answer; missing: {'; '.join(map(str, missing))}"
        gone_gpus = [gone.index for gone in missing if gone.index is not None]
        return GpuFinding(metrics, "fail", reason, "hardware", gone_gpus, samples)
    broken = {index: text for index, text in ((i, _asks(gpu)) for i, gpu in seen.gpus.items()) if text}
    if broken:
        reason = "; ".join(f"GPU {index} answers and {text}" for index, text in broken.items())
        return GpuFinding(metrics, "fail", reason, "hardware", list(broken), samples)
    if options.gpus and there > options.gpus:
        return GpuFinding(
            metrics, "fail", f"{there} GPUs answer, {options.gpus} are expected", "config", samples=samples
        )
    return GpuFinding(metrics, "pass" if options.gpus else None, samples=samples)


def _asks(gpu: Gpu) -> str:
    """Say what a GPU needs before it works again; the driver knows by itself."""
    if gpu.recovery_action not in (None, "None"):
        return f"asks for recovery: {gpu.recovery_action}"
    return "requires a reset" if gpu.reset_required else ""


def model(seen: ObservedGpus, options: GpuCheckOptions) -> GpuFinding:
    """Compare names, and pass on what nvidia-smi warns of GPUs that do answer (a corrupted infoROM)."""
    found = _values(seen, [("memory", "MiB", lambda gpu: gpu.memory_total_mib)], name=lambda gpu: gpu.name)
    query = seen.reading.query
    ids = {gpu.bus_id[-12:]: index for index, gpu in seen.gpus.items()}
    warned = {m.text: ids.get((m.bus_id or "")[-12:]) for m in (query.messages if query else []) if "infoROM" in m.text}
    if warned:
        return found._replace(
            verdict="fail", reason="; ".join(warned), gpus=[index for index in warned.values() if index is not None]
        )
    if not options.model or found.verdict:
        return found
    unnamed = [index for index, gpu in seen.gpus.items() if gpu.name is None]
    other = {i: gpu.name for i, gpu in seen.gpus.items() if gpu.name and options.model.lower() not in gpu.name.lower()}
    if other:
        names = ", ".join(sorted({str(name) for name in other.values()}))
        reason = f"{listing(other)}: {names}, expected {options.model}"
        return found._replace(verdict="fail", reason=reason, blame="config", gpus=list(other))
    if unnamed:
        return found._replace(verdict="error", reason=f"nvidia-smi shows no name of {listing(unnamed)}")
    parted = [index for index, gpu in seen.gpus.items() if gpu.mig]
    if parted:
        reason = f"MIG mode is on on {listing(parted)}, and NCCL does not work between its parts (nvidia-smi -mig 0)"
        return found._replace(verdict="warn", reason=reason, blame="config", gpus=parted)
    return found._replace(verdict="pass")


def ecc(seen: ObservedGpus, options: GpuCheckOptions) -> GpuFinding:
    found = _values(
        seen,
        [
            ("volatile_uncorrected", "errors", lambda gpu: gpu.ecc.volatile_uncorrected),
            ("aggregate_uncorrected", "errors", lambda gpu: gpu.ecc.aggregate_uncorrected),
            ("volatile_corrected", "errors", lambda gpu: gpu.ecc.volatile_corrected),
        ],
        enabled=lambda gpu: gpu.ecc.enabled,
        sram_threshold_exceeded=lambda gpu: gpu.ecc.sram_threshold_exceeded,
    )
    off = [index for index, gpu in seen.gpus.items() if gpu.ecc.enabled is False]
    if not off or found.verdict or not options.expects("gpu_ecc"):
        return found
    reason = f"ECC is off on {listing(off)}, so nothing is counted: nvidia-smi -e 1 and a reset switch it on"
    return found._replace(verdict="fail", reason=reason, blame="config", gpus=off)


def remap(seen: ObservedGpus, options: GpuCheckOptions) -> GpuFinding:
    """A100 and newer remap rows, older GPUs retire pages: what none of the GPUs has is left out."""
    return _values(
        seen,
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


def pcie(seen: ObservedGpus, options: GpuCheckOptions) -> GpuFinding:
    """The current generation drops at idle, so the highest that GPU and slot agree on is judged."""
    return _values(
        seen,
        [
            ("width", "lanes", lambda gpu: gpu.pcie.width),
            ("generation_max", "generation", lambda gpu: gpu.pcie.generation_max),
        ],
        replays=lambda gpu: gpu.pcie.replays,
    )


def throttle(seen: ObservedGpus, options: GpuCheckOptions) -> GpuFinding:
    return _values(seen, [("throttle_faults", "bits", _faults)], reasons=lambda gpu: gpu.throttle)


def _faults(gpu: Gpu) -> int | None:
    return None if gpu.throttle_mask is None else gpu.throttle_mask & THROTTLE_FAULTS


def temperature(seen: ObservedGpus, options: GpuCheckOptions) -> GpuFinding:
    return _values(
        seen,
        [("temperature", "C", lambda gpu: gpu.temperature_c)],
        memory=lambda gpu: gpu.memory_temperature_c,
    )


def _flag(value: bool | None) -> int | None:
    return None if value is None else int(value)


def _values(
    seen: ObservedGpus, fields: t.Sequence[tuple[str, str, Field]], optional: bool = False, **details: Field
) -> GpuFinding:
    """Measure fields of all planned GPUs; one that is missing has metrics without a value."""
    if not seen.gpus:
        return GpuFinding(verdict="error", reason=seen.problem("query"))
    metrics: list[Json] = []
    for name, unit, field in fields:
        values = {index: field(seen.gpus[index]) if index in seen.gpus else None for index in seen.inventory.planned}
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
        for index, gpu in seen.gpus.items()
    ]
    few = len(seen.gpus) < len(seen.inventory.planned)
    told = f"{len(seen.gpus)} of {len(seen.inventory.planned)} GPUs answer (see gpu_count)" if few else ""
    return GpuFinding(metrics, reason=told, samples=samples)


# The check of NVLink: links that are up, how GPUs are connected, what the fabric manager did. Pure, private.


_NVLINK = re.compile(r"NV\d+")
Pair = t.Tuple[int, int]


def nvlink(seen: ObservedGpus, options: GpuCheckOptions) -> GpuFinding:
    """Count links; where most GPUs are all connected alike, one that is not is at fault."""
    found = _links(seen, options)
    broken = _fabric(seen) or _uneven(seen)
    return found if found.verdict in ("error", "skipped") or broken is None else _with(found, broken)


def _with(found: GpuFinding, broken: GpuFinding) -> GpuFinding:
    return broken._replace(metrics=found.metrics, samples=found.samples)


def _links(seen: ObservedGpus, options: GpuCheckOptions) -> GpuFinding:
    if not seen.gpus:
        return GpuFinding(verdict="error", reason=seen.problem("query"))
    shown = seen.reading.nvlink
    if shown is None and seen.reading.matrix and not _codes(seen.reading.matrix) and not options.expects("gpu_nvlink"):
        return GpuFinding(verdict="skipped", reason="these GPUs have no NVLink")
    if shown is None:
        return GpuFinding(verdict="error", reason=seen.problem("nvlink") or "nvidia-smi nvlink -s shows no GPU")
    active = {gpu.index: gpu.active for gpu in shown.gpus if gpu.links or gpu.all_inactive}
    samples = [
        {"gpu": gpu.index, "links": [link.gbps for link in gpu.links], "all_inactive": gpu.all_inactive}
        for gpu in shown.gpus
    ]
    metrics = [metric("links_active", active.get(index), "links", gpu=index) for index in seen.inventory.planned]
    return GpuFinding(metrics, samples=samples)


def _fabric(seen: ObservedGpus) -> GpuFinding | None:
    """GPUs behind NVSwitches cannot talk before the fabric manager has set them up; others have no state."""
    if len(seen.gpus) < 2:
        return None
    unready = {
        index: gpu.fabric
        for index, gpu in seen.gpus.items()
        if (gpu.fabric.state and gpu.fabric.state != "Completed") or gpu.fabric.status not in (None, "Success")
    }
    if unready:
        first = next(iter(unready.values()))
        told = f"state {first.state or 'unknown'}, status {first.status or 'unknown'}"
        reason = f"the NVLink fabric of {listing(unready)} is not ready: {told}; is nvidia-fabricmanager running?"
        return GpuFinding(verdict="fail", reason=reason, blame="software", gpus=list(unready))
    ill = [index for index, gpu in seen.gpus.items() if gpu.fabric.health == "Unhealthy"]
    return (
        GpuFinding(verdict="fail", reason=f"the NVLink fabric of {listing(ill)} is unhealthy", gpus=ill)
        if ill
        else None
    )


def _codes(matrix: TopologyRun) -> dict[Pair, str]:
    """Return the NVLink codes of pairs of GPUs."""
    return {
        (one.index, other.index): one.links[other.name]
        for one, other in itertools.combinations(matrix.gpus, 2)
        if one.index is not None and other.index is not None and _NVLINK.fullmatch(one.links.get(other.name, ""))
    }


def _uneven(seen: ObservedGpus) -> GpuFinding | None:
    """Find what differs where more than half of the GPUs, and at least three, form a full mesh of one kind.

    Boards without switches (V100's cube, bridged pairs of PCIe cards) form none, so nothing is demanded of them.
    """
    matrix = seen.reading.matrix
    if matrix is None:
        return None
    codes = _codes(matrix)
    everyone = [gpu.index for gpu in matrix.gpus if gpu.index is not None]
    for code in sorted(set(codes.values()), key=list(codes.values()).count, reverse=True):
        bad = [pair for pair in itertools.combinations(everyone, 2) if codes.get(pair) != code]
        outsiders = _cover(bad)
        if len(everyone) - len(outsiders) > max(2, len(everyone) // 2):
            return _difference(matrix, code, bad, outsiders) if bad else None
    return None


def _cover(bad: t.Sequence[Pair]) -> list[int]:
    """Return few GPUs that all bad pairs have a part in, the worst first."""
    left, chosen = list(bad), []
    while left:
        ends = [index for pair in left for index in pair]
        worst = max(sorted(set(ends)), key=ends.count)
        chosen.append(worst)
        left = [pair for pair in left if worst not in pair]
    return chosen


def _difference(matrix: TopologyRun, code: str, bad: t.Sequence[Pair], outsiders: t.Sequence[int]) -> GpuFinding:
    """One bad pair does not tell which of the two is to blame."""
    blamed = sorted({index for pair in bad for index in pair}) if len(bad) == 1 else sorted(outsiders)
    names = {gpu.index: gpu for gpu in matrix.gpus}
    seen = sorted({names[one].links.get(names[other].name, "?") for one, other in bad})
    pairs = f"{len(bad)} pair{'s' if len(bad) > 1 else ''} of GPUs"
    reason = f"{listing(blamed)}: {pairs} connected by {', '.join(seen)}, all others by {code}"
    return GpuFinding(verdict="fail", reason=reason, gpus=blamed)


# Checks of where things are: GPUs on NUMA nodes, processes on CPUs. Pure, private.


_NOWHERE: Address = (-1, 0, 0, 0)


def topology(seen: ObservedGpus, options: GpuCheckOptions) -> GpuFinding:
    """Compare NUMA nodes with the profile's, by PCI domain; what the node itself says is no expectation."""
    places = seen.topology.gpus
    if not places:
        return GpuFinding(verdict="error", reason=seen.problem("query") or "no GPU has a place")
    samples = [_sample(seen, place) for place in places]
    if not options.places:
        asked = options.expects("gpu_topology")
        reason = "the profile's topology was not given" if asked else ""
        return GpuFinding(verdict="error" if asked else "unjudged", reason=reason, samples=samples)
    nodes = nodes_of(options.places, [where for where in map(_where, places) if where])
    unknown = [place.index for place in places if place.numa_node is None]
    vague = [place.index for place in places if nodes.get(_where(place) or _NOWHERE, 0) is None]
    wrong = {
        place.index: f"{listing([place.index])} ({place.bus_id}) is on NUMA node {place.numa_node}, expected {node}"
        for place, node in ((place, _node(nodes, place)) for place in places)
        if place.numa_node is not None and place.index not in vague and node != str(place.numa_node)
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


def _where(place: GpuPlace) -> Address | None:
    return address(place.bus_id)


def _node(nodes: t.Mapping[Address, int | None], place: GpuPlace) -> str:
    where = _where(place)
    return str(nodes.get(where, "no GPU in this PCI domain")) if where else "another bus id"


def _sample(seen: ObservedGpus, place: GpuPlace) -> Json:
    matrix = seen.reading.matrix
    row = next((gpu for gpu in matrix.gpus if gpu.index == place.index), None) if matrix else None
    return {
        "gpu": place.index,
        "bus_id": place.bus_id,
        "numa_node": place.numa_node,
        "cpus": place.cpus,
        "nics": list(place.nics),
        "links": dict(row.links) if row else {},
    }


def pinning(seen: ObservedGpus, options: GpuCheckOptions) -> GpuFinding:
    """A process belongs on the CPUs of its GPU; one that uses several, on the CPUs of all of them."""
    if not seen.processes:
        problem = seen.problem("query")
        return GpuFinding(verdict="error" if problem else "skipped", reason=problem or "no process uses a GPU")
    visible = [process for process in seen.processes if process.cpus is not None]
    if not visible:
        reason = f"none of the {len(seen.processes)} processes that use a GPU can be seen from here"
        return GpuFinding(verdict="skipped", reason=reason)
    samples = [_pinned(seen, process) for process in visible]
    unknown = [row for row in samples if row["inside"] is None]
    outside = [row for row in samples if row["inside"] is False]
    gpus = [gpu for row in (outside or unknown) for gpu in row["gpus"]]
    metrics = [metric("misplaced", None if unknown and not outside else len(outside), "processes")]
    if unknown and not outside:
        return GpuFinding(metrics, "error", f"the CPUs of {listing(gpus)} are unknown", gpus=gpus, samples=samples)
    told = [f"pid {row['pid']} may run on {row['cpus']}, {listing(row['gpus'])} on {row['wanted']}" for row in outside]
    return GpuFinding(metrics, reason="; ".join(told), blame="config", gpus=gpus, samples=samples)


def _pinned(seen: ObservedGpus, process: PinnedProcess) -> Json:
    places = {place.index: place.cpus for place in seen.topology.gpus}
    known = all(places.get(index) for index in process.gpus)
    wanted = {cpu for index in process.gpus for cpu in machine.parse(places.get(index, ""))}
    try:
        inside = set(machine.parse(process.cpus or "")) <= wanted if known and process.cpus else None
    except CpuListError:
        inside = None
    return {
        "pid": process.pid,
        "gpus": list(process.gpus),
        "cpus": process.cpus,
        "wanted": machine.write(wanted),
        "inside": inside,
    }
