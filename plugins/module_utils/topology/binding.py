# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a topology means for one rank per GPU: CPU masks and the order of ranks. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology import machine
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import CpuListError, GpuPlace, Topology


class Binding(t.NamedTuple):
    """How to start one rank per GPU.

    ``masks`` holds one CPU mask per GPU in the order of indexes, for launchers that give rank N the GPU N. ``map_by``
    is for Open MPI, which fills one NUMA node after the other: then rank N gets the Nth of ``visible_devices`` and
    ``rank_masks``. What cannot be derived is empty or None, and ``reason`` says why.
    """

    masks: list[str]
    map_by: str | None
    visible_devices: list[int]
    rank_masks: list[str]
    reason: str = ""

    @property
    def environment(self) -> dict[str, str]:
        """Variables that make CUDA count as nvidia-smi does (it puts the fastest first) and follow the MPI order."""
        if not self.visible_devices:
            return {}
        order = ",".join(str(index) for index in self.visible_devices)
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": order}


def binding(topology: Topology, split: bool = False) -> Binding:
    """Give every GPU the CPUs of its NUMA node, or with ``split`` its own share of them."""
    gpus = sorted(topology.gpus, key=lambda gpu: gpu.index)
    indexes = [gpu.index for gpu in gpus]
    unknown = [str(gpu.index) for gpu in gpus if not gpu.cpus]
    if not gpus or unknown:
        reason = f"the CPUs of GPU {', '.join(unknown)} are unknown" if gpus else "no GPU"
        return Binding([], None, indexes, [], reason)
    try:
        cpus = _shares(gpus) if split else {gpu.index: gpu.cpus for gpu in gpus}
        masks = {index: machine.mask(machine.parse(text)) for index, text in cpus.items()}
    except CpuListError as exc:
        return Binding([], None, indexes, [], str(exc))
    first = {node.node: machine.parse(node.cpus)[0] for node in topology.numa if node.cpus}
    map_by, reason = _map_by(gpus, first)
    ranks = [gpu.index for gpu in sorted(gpus, key=lambda gpu: _rank_key(gpu, first))] if map_by else indexes
    return Binding([masks[index] for index in indexes], map_by, ranks, [masks[index] for index in ranks], reason)


def _rank_key(gpu: GpuPlace, first: t.Mapping[int, int]) -> tuple[int, int]:
    """Open MPI (hwloc) counts NUMA nodes by their first CPU, not by the number that the firmware gave them."""
    return first[gpu.numa_node if gpu.numa_node is not None else -1], gpu.index


def _map_by(gpus: t.Sequence[GpuPlace], first: t.Mapping[int, int]) -> tuple[str | None, str]:
    """Return ``ppr:N:numa`` where every NUMA node with CPUs has N GPUs, else None and why."""
    homeless = [str(gpu.index) for gpu in gpus if gpu.numa_node not in first]
    if homeless:
        return None, f"ppr is impossible: the NUMA node of GPU {', '.join(homeless)} is unknown"
    counts = {node: sum(gpu.numa_node == node for gpu in gpus) for node in sorted(first)}
    if len(set(counts.values())) > 1:
        listing = ", ".join(f"NUMA node {node} has {count}" for node, count in counts.items())
        return None, f"ppr is impossible: GPUs are spread unevenly, {listing}"
    return f"ppr:{counts[next(iter(counts))]}:numa", ""


def _shares(gpus: t.Sequence[GpuPlace]) -> dict[int, str]:
    """Split each CPU list among the GPUs that have it."""
    groups: dict[str, list[int]] = {}
    for gpu in gpus:
        groups.setdefault(gpu.cpus, []).append(gpu.index)
    taken: set[int] = set()
    for text in groups:
        overlap = taken & set(machine.parse(text))
        if overlap:
            raise CpuListError(f"GPUs share the CPUs {machine.write(overlap)} in part, so these cannot be split")
        taken.update(machine.parse(text))
    return {
        index: share
        for text, members in groups.items()
        for index, share in zip(members, machine.split(text, len(members)))
    }
