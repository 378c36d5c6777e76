# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a machine's topology from sysfs, or from a copy of it, and complete it with nvidia-smi's matrix. Private.

A file that is missing or unreadable is an unknown, never an error: virtual machines lack half of them.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import replace
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology import machine
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import (
    Address,
    CpuListError,
    GpuPlace,
    NicPlace,
    NumaNode,
    Topology,
    address,
    bus_id,
)

if t.TYPE_CHECKING:
    # Only for types: a node's prolog loads this file, and reads no matrix.
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_topo import (
        TopologyDevice,
        TopologyRun,
    )

_NVIDIA = "0x10de"
# VGA and 3D controllers; NVSwitches (0x0680) have the same vendor.
_GPU_CLASSES = ("0x0300", "0x0302")
# How near an adapter is, as the matrix writes it: nearest first; what is not here is no way through PCIe.
DISTANCE = ("PIX", "PXB", "PHB", "NODE", "SYS")


def read_sysfs(root: str = "/sys", bus_ids: t.Sequence[str] | None = None) -> Topology:
    """Return NUMA nodes, adapters and GPUs; without ``bus_ids`` all GPUs on the PCI bus.

    Which adapters are nearest to a GPU is decided by ``merge``.
    """
    base = Path(root)
    numa = _numa(base)
    ids = pci_gpus(root) if bus_ids is None else bus_ids
    gpus = [_gpu(base, index, text, numa) for index, text in enumerate(ids)]
    return Topology(numa, gpus, _nics(base))


def pci_gpus(root: str = "/sys") -> list[str]:
    """Return the bus ids of all NVIDIA GPUs that the kernel sees, in the order in which nvidia-smi counts."""
    devices = _entries(Path(root, "bus/pci/devices"))
    gpus = [path for path in devices if _read(path / "vendor") == _NVIDIA and _read(path / "class")[:6] in _GPU_CLASSES]
    return [bus_id(pci_address) for pci_address in sorted(filter(None, (address(path.name) for path in gpus)))]


def _numa(base: Path) -> list[NumaNode]:
    nodes = []
    for path in _entries(base / "devices/system/node"):
        match = re.fullmatch(r"node(\d{1,9})", path.name)
        if match:
            nodes.append(NumaNode(int(match.group(1)), _cpus(_read(path / "cpulist"))))
    return sorted(nodes, key=lambda node: node.node)


def _gpu(base: Path, index: int, text: str, numa: t.Sequence[NumaNode]) -> GpuPlace:
    """Return where a GPU is. Without a NUMA node the kernel lists all CPUs as local, which is ignored."""
    pci_address = address(text)
    if pci_address is None:
        return GpuPlace(index, text.strip())
    path = base / "bus/pci/devices" / sysfs_name(pci_address)
    local, node = _cpus(_read(path / "local_cpulist")), _number(_read(path / "numa_node"))
    all_cpus = {cpu for numa_node in numa for cpu in machine.parse(numa_node.cpus)}
    if node is None and local and set(machine.parse(local)) < all_cpus:
        node = node_of(local, numa)
    node_cpus = next((numa_node.cpus for numa_node in numa if numa_node.node == node), "")
    return GpuPlace(index, bus_id(pci_address), node, node_cpus or (local if node is not None else ""))


def sysfs_name(pci_address: Address) -> str:
    """Write an address as the kernel does: a domain above 16 bits takes more than its 4 digits."""
    return f"{pci_address[0]:04x}:{pci_address[1]:02x}:{pci_address[2]:02x}.{pci_address[3]}"


def node_of(cpus: str, numa: t.Sequence[NumaNode]) -> int | None:
    """Return the one NUMA node that holds all of the CPUs."""
    cpu_set = set(machine.parse(cpus))
    holders = [node.node for node in numa if cpu_set and cpu_set <= set(machine.parse(node.cpus))]
    return holders[0] if len(holders) == 1 else None


def _nics(base: Path) -> list[NicPlace]:
    nics = [_nic(path) for path in _entries(base / "class/infiniband")]
    return sorted(nics, key=lambda nic: (address(nic.bus_id) or (0, 0, 0, 0), _natural(nic.name)))


def _nic(path: Path) -> NicPlace:
    """Return where an adapter is, by the file that names its slot: a copy of sysfs may lack the link to the device."""
    slot = re.search(r"^PCI_SLOT_NAME=(\S+)$", _read(path / "device/uevent"), re.MULTILINE)
    try:
        pci_address = address(slot.group(1) if slot else (path / "device").resolve().name)
    except (OSError, RuntimeError):
        pci_address = None
    layers = [_read(port / "link_layer") for port in _entries(path / "ports")]
    return NicPlace(
        path.name,
        bus_id(pci_address) if pci_address else "",
        _number(_read(path / "device/numa_node")),
        next((layer for layer in layers if layer), ""),
    )


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(piece), "") if piece.isdigit() else (-1, piece) for piece in re.split(r"([0-9]{1,9})", name)]


def _entries(path: Path) -> list[Path]:
    try:
        return sorted(path.iterdir())
    except OSError:
        return []


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except (OSError, ValueError):
        return ""


def _number(text: str) -> int | None:
    """Read a NUMA node; the kernel writes -1 for none."""
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


def _cpus(text: str) -> str:
    try:
        return machine.write(machine.parse(text))
    except CpuListError:
        return ""


# Complete it with the matrix of ``nvidia-smi topo -m``. Pure.


def merge(topology: Topology, matrix: TopologyRun | None) -> Topology:
    """Fill in what the kernel does not know, and give every GPU its nearest adapters.

    The kernel comes first: the driver reads the same source, and prints only the CPUs that its caller may use.
    """
    rows = {device.index: device for device in (matrix.gpus if matrix else [])}
    numa = topology.numa or _numa_of(rows.values())
    gpus = [_placed(gpu, rows.get(gpu.index), numa) for gpu in topology.gpus]
    return _with_nics(Topology(numa, gpus, topology.nics), rows)


def _numa_of(rows: t.Iterable[TopologyDevice]) -> list[NumaNode]:
    """Return the nodes that the matrix names, for a kernel that shows none."""
    cpus_of_node: dict[int, str] = {}
    for row in rows:
        nodes, cpus = _numbers(row.numa), machine.write(_numbers(row.cpus))
        if nodes and cpus:
            cpus_of_node.setdefault(nodes[0], cpus)
    return [NumaNode(node, cpus) for node, cpus in sorted(cpus_of_node.items())]


def _numbers(text: str | None) -> list[int]:
    try:
        return machine.parse(text or "")
    except CpuListError:
        return []


def _placed(gpu: GpuPlace, row: TopologyDevice | None, numa: t.Sequence[NumaNode]) -> GpuPlace:
    if gpu.numa_node is not None:
        return gpu
    own = {item.node: item.cpus for item in numa if item.cpus}
    cpus = machine.write(_numbers(row.cpus)) if row else ""
    # GB200 lists the CPUs' node first and then those that are memory of GPUs.
    node = next((number for number in _numbers(row.numa) if number in own), None) if row else None
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
        index: _share(names, position, len(members))
        for names, members in groups.items()
        for position, index in enumerate(members)
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


def _share(names: t.Sequence[str], position: int, members: int) -> list[str]:
    first = position * len(names) // members
    return list(names[first : max(first + 1, (position + 1) * len(names) // members)])
