# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPU, network adapter and CPUs belong together on one machine, as facts. Pure, private.

How it is read: ``sysfs``, ``merge``. What follows for launching ranks: ``binding``.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import asdict, dataclass

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology import cpus as cpulist
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.cpus import TopologyError

__all__ = ["GpuPlace", "NicPlace", "NumaNode", "Topology", "TopologyError", "address", "bus_id", "facts", "from_facts"]

_ADDRESS = re.compile(r"([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})(?:\.([0-7]))?")
Address = t.Tuple[int, int, int, int]


@dataclass(frozen=True)
class NumaNode:
    """A NUMA node; one that is only memory (a GPU's on GB200) has no CPUs."""

    node: int
    cpus: str


@dataclass(frozen=True)
class GpuPlace:
    """Where a GPU is; ``numa_node`` None and ``cpus`` empty are unknown, ``nics`` are the nearest adapters."""

    index: int
    bus_id: str
    numa_node: int | None = None
    cpus: str = ""
    nics: t.Sequence[str] = ()


@dataclass(frozen=True)
class NicPlace:
    """Where an RDMA adapter is."""

    name: str
    bus_id: str
    numa_node: int | None = None
    link_layer: str = ""


@dataclass(frozen=True)
class Topology:
    """What is known of one machine."""

    numa: t.Sequence[NumaNode] = ()
    gpus: t.Sequence[GpuPlace] = ()
    nics: t.Sequence[NicPlace] = ()


def address(text: str) -> Address | None:
    """Read a PCI address of sysfs (domain of 4 hexadecimal digits or more) or of nvidia-smi (8, upper case)."""
    match = _ADDRESS.fullmatch(text.strip())
    if not match:
        return None
    domain, bus, device, function = match.groups()
    return int(domain, 16), int(bus, 16), int(device, 16), int(function or "0")


def bus_id(where: Address) -> str:
    """Write an address as nvidia-smi does, so that facts, logs and the GPUs' own tools can be compared as text."""
    return f"{where[0]:08X}:{where[1]:02X}:{where[2]:02X}.{where[3]}"


def facts(topology: Topology) -> dict[str, list[dict[str, t.Any]]]:
    """Return plain lists and dictionaries."""
    return {
        "numa": [asdict(node) for node in topology.numa],
        "gpus": [{**asdict(gpu), "nics": list(gpu.nics)} for gpu in topology.gpus],
        "nics": [asdict(nic) for nic in topology.nics],
    }


def from_facts(value: t.Any) -> Topology:
    """Read what ``facts`` made, or what a person wrote like it; raises TopologyError."""
    if not isinstance(value, t.Mapping) or not isinstance(value.get("gpus"), (list, tuple)):
        raise TopologyError("a topology is a dictionary with a list of gpus, as gpu_info returns it")
    gpus = [_gpu(item, number) for number, item in enumerate(_rows(value, "gpus"))]
    if len({gpu.index for gpu in gpus}) != len(gpus):
        raise TopologyError("two GPUs have the same index")
    return Topology(
        [NumaNode(_integer(row, "node"), _cpus(row)) for row in _rows(value, "numa")],
        sorted(gpus, key=lambda gpu: gpu.index),
        [
            NicPlace(str(row.get("name", "")), str(row.get("bus_id", "")), _node(row), str(row.get("link_layer", "")))
            for row in _rows(value, "nics")
        ],
    )


def _rows(value: t.Mapping[str, t.Any], name: str) -> list[t.Mapping[str, t.Any]]:
    found = value.get(name) or []
    if not isinstance(found, (list, tuple)) or not all(isinstance(row, t.Mapping) for row in found):
        raise TopologyError(f"{name} of a topology must be a list of dictionaries")
    return list(found)


def _gpu(row: t.Mapping[str, t.Any], number: int) -> GpuPlace:
    index = _integer(row, "index") if "index" in row else number
    nics = row.get("nics") or []
    if isinstance(nics, str) or not isinstance(nics, t.Iterable):
        raise TopologyError(f"nics of GPU {index} must be a list, not {nics!r}")
    return GpuPlace(index, str(row.get("bus_id", "")), _node(row), _cpus(row), [str(nic) for nic in nics])


def _integer(row: t.Mapping[str, t.Any], name: str) -> int:
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TopologyError(f"{name} must be a number from 0, not {value!r}")
    return value


def _node(row: t.Mapping[str, t.Any]) -> int | None:
    return None if row.get("numa_node") in (None, -1) else _integer(row, "numa_node")


def _cpus(row: t.Mapping[str, t.Any]) -> str:
    value = row.get("cpus")
    if value is not None and not isinstance(value, str):
        raise TopologyError(f"cpus must be a CPU list such as '0-23', not {value!r}")
    return cpulist.write(cpulist.parse(value or ""))
