# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Complete what sysfs says of a topology with the matrix of ``nvidia-smi topo -m``. Pure, private."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_topo import (
    DISTANCE,
    TopologyDevice,
    TopologyRun,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology import machine
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import (
    CpuListError,
    GpuPlace,
    NicPlace,
    NumaNode,
    Topology,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.sysfs import node_of


def merge(topology: Topology, matrix: TopologyRun | None) -> Topology:
    """Fill in what the kernel does not know, and give every GPU its nearest adapters.

    The kernel comes first: the driver reads the same source, and prints only the CPUs that its caller may use.
    """
    rows = {device.index: device for device in (matrix.gpus if matrix else [])}
    numa = topology.numa or _numa(rows.values())
    gpus = [_placed(gpu, rows.get(gpu.index), numa) for gpu in topology.gpus]
    return _with_nics(Topology(numa, gpus, topology.nics), rows)


def _numa(rows: t.Iterable[TopologyDevice]) -> list[NumaNode]:
    """Return the nodes that the matrix names, for a kernel that shows none."""
    found: dict[int, str] = {}
    for row in rows:
        nodes, cpus = _list(row.numa), machine.write(_list(row.cpus))
        if nodes and cpus:
            found.setdefault(nodes[0], cpus)
    return [NumaNode(node, cpus) for node, cpus in sorted(found.items())]


def _list(text: str | None) -> list[int]:
    try:
        return machine.parse(text or "")
    except CpuListError:
        return []


def _placed(gpu: GpuPlace, row: TopologyDevice | None, numa: t.Sequence[NumaNode]) -> GpuPlace:
    if gpu.numa_node is not None:
        return gpu
    own = {item.node: item.cpus for item in numa if item.cpus}
    cpus = machine.write(_list(row.cpus)) if row else ""
    # GB200 lists the CPUs' node first and then those that are memory of GPUs.
    node = next((number for number in _list(row.numa) if number in own), None) if row else None
    if node is None and cpus:
        node = node_of(cpus, numa)
    if node is None and len(own) == 1:
        node = next(iter(own))
    return replace(gpu, numa_node=node, cpus=own.get(node, "") if node is not None else "")


def _with_nics(topology: Topology, rows: t.Mapping[int | None, TopologyDevice]) -> Topology:
    """Share adapters that are equally near among the GPUs that are as near to them, in PCI order.

    A virtual machine shows no PCIe switches, so two GPUs and two adapters of a node all have the same distance.
    """
    fabric = [nic for nic in topology.nics if nic.link_layer == "InfiniBand"] or list(topology.nics)
    groups: dict[tuple[str, ...], list[int]] = {}
    for gpu in topology.gpus:
        groups.setdefault(tuple(_nearest(gpu, rows.get(gpu.index), fabric)), []).append(gpu.index)
    shares = {
        index: _share(names, place, len(members))
        for names, members in groups.items()
        for place, index in enumerate(members)
    }
    return replace(topology, gpus=[replace(gpu, nics=shares[gpu.index]) for gpu in topology.gpus])


def _nearest(gpu: GpuPlace, row: TopologyDevice | None, nics: t.Sequence[NicPlace]) -> list[str]:
    distances = [(_distance(gpu, row, nic), nic.name) for nic in nics]
    least = min(distances)[0] if distances else None
    return [name for distance, name in distances if distance == least]


def _distance(gpu: GpuPlace, row: TopologyDevice | None, nic: NicPlace) -> tuple[int, bool]:
    """Rank by the code of the matrix, then by NUMA node: GB200 shows SYS for adapters of both."""
    same = gpu.numa_node is not None and gpu.numa_node == nic.numa_node
    code = row.links.get(nic.name, "") if row else ""
    if code not in DISTANCE:
        code = "NODE" if same else "SYS"
    return DISTANCE.index(code), not same


def _share(names: t.Sequence[str], place: int, members: int) -> list[str]:
    first = place * len(names) // members
    return list(names[first : max(first + 1, (place + 1) * len(names) // members)])
