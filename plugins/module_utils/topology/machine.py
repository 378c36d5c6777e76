# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPU, network adapter and CPUs belong together on one machine, and CPU lists and masks. Pure."""

from __future__ import annotations

import re
import typing as t
from dataclasses import asdict, dataclass

# CPU lists as Linux writes them ("0-23,48-71") and masks as numactl, srun and taskset read them. Pure.


# Far above what Linux can be built for; keeps "0-999999999" from filling the memory.
MAX_CPUS = 65536
_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


class CpuListError(ValueError):
    """A CPU list, an address or a topology makes no sense; the text is fit for the user."""


def parse(text: str) -> list[int]:
    """Return the CPUs of a list in ascending order; an empty list is a node without CPUs."""
    cpus: set[int] = set()
    for piece in text.strip().split(",") if text.strip() else []:
        match = _PART.fullmatch(piece.strip())
        first, last = (int(match.group(1)), int(match.group(2) or match.group(1))) if match else (1, 0)
        if last < first or last >= MAX_CPUS:
            raise CpuListError(f"{text.strip()!r} is no CPU list")
        cpus.update(range(first, last + 1))
    return sorted(cpus)


def write(cpus: t.Iterable[int]) -> str:
    """Return the shortest list of ranges."""
    ranges: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def mask(cpus: t.Iterable[int]) -> str:
    """Return the mask in lower-case hexadecimal, any width, without 0x and leading zeros."""
    return f"{sum(1 << cpu for cpu in set(cpus)):x}"


def split(text: str, parts: int) -> list[str]:
    """Cut a CPU list into disjoint lists of nearly the same size.

    The second hardware threads are listed as a range of their own ("0-47,96-143"), so ranges of one length are each
    cut alike: then the two threads of a core stay together.
    """
    cpus = parse(text)
    if len(cpus) < parts:
        raise CpuListError(f"the {len(cpus)} CPUs {text!r} cannot be split among {parts} GPUs")
    ranges = [parse(cpu_range) for cpu_range in write(cpus).split(",")]
    alike = len({len(cpu_range) for cpu_range in ranges}) == 1 and len(ranges[0]) >= parts
    pieces = ranges if alike else [cpus]
    return [
        write(
            cpu for piece in pieces for cpu in piece[number * len(piece) // parts : (number + 1) * len(piece) // parts]
        )
        for number in range(parts)
    ]


# The values of a topology, and their form as facts. Pure.


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
    """NUMA nodes, GPUs and RDMA adapters of one machine."""

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


def bus_id(pci_address: Address) -> str:
    """Write an address as nvidia-smi does, so that facts, logs and the GPUs' own tools can be compared as text."""
    return f"{pci_address[0]:08X}:{pci_address[1]:02X}:{pci_address[2]:02X}.{pci_address[3]}"


def normal(text: str) -> str:
    """Write an address of any source as nvidia-smi does; a text that is none says nothing, and becomes empty."""
    pci_address = address(text)
    return bus_id(pci_address) if pci_address else ""


def facts(topology: Topology) -> dict[str, list[dict[str, t.Any]]]:
    """Return plain lists and dictionaries."""
    return {
        "numa": [asdict(node) for node in topology.numa],
        "gpus": [{**asdict(gpu), "nics": list(gpu.nics)} for gpu in topology.gpus],
        "nics": [asdict(nic) for nic in topology.nics],
    }


def from_facts(value: t.Any) -> Topology:
    """Read a topology in the form of ``facts``, which may be written by hand; raises CpuListError."""
    if not isinstance(value, t.Mapping) or not isinstance(value.get("gpus"), (list, tuple)):
        raise CpuListError("a topology is a dictionary with a list of gpus, as gpu_info returns it")
    gpus = [_gpu(gpu_row, number) for number, gpu_row in enumerate(_rows(value, "gpus"))]
    if len({gpu.index for gpu in gpus}) != len(gpus):
        raise CpuListError("two GPUs have the same index")
    return Topology(
        [NumaNode(_integer(row, "node"), _cpus(row)) for row in _rows(value, "numa")],
        sorted(gpus, key=lambda gpu: gpu.index),
        [
            NicPlace(str(row.get("name", "")), str(row.get("bus_id", "")), _node(row), str(row.get("link_layer", "")))
            for row in _rows(value, "nics")
        ],
    )


def _rows(value: t.Mapping[str, t.Any], name: str) -> list[t.Mapping[str, t.Any]]:
    rows = value.get(name) or []
    if not isinstance(rows, (list, tuple)) or not all(isinstance(row, t.Mapping) for row in rows):
        raise CpuListError(f"{name} of a topology must be a list of dictionaries")
    return list(rows)


def _gpu(row: t.Mapping[str, t.Any], number: int) -> GpuPlace:
    index = _integer(row, "index") if "index" in row else number
    nics = row.get("nics") or []
    if isinstance(nics, str) or not isinstance(nics, t.Iterable):
        raise CpuListError(f"nics of GPU {index} must be a list, not {nics!r}")
    return GpuPlace(index, normal(str(row.get("bus_id", ""))), _node(row), _cpus(row), [str(nic) for nic in nics])


def _integer(row: t.Mapping[str, t.Any], name: str) -> int:
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise CpuListError(f"{name} must be a number from 0, not {value!r}")
    return value


def _node(row: t.Mapping[str, t.Any]) -> int | None:
    return None if row.get("numa_node") in (None, -1) else _integer(row, "numa_node")


def _cpus(row: t.Mapping[str, t.Any]) -> str:
    value = row.get("cpus")
    if value is not None and not isinstance(value, str):
        raise CpuListError(f"cpus must be a CPU list such as '0-23', not {value!r}")
    return write(parse(value or ""))
