# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-smi topo -m, nvlink -s and nvlink -e."""

from __future__ import annotations

import typing as t

from emulation.machine import Gpu, Json, Machine

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""


def topology(machine: Machine, options: t.Mapping[str, str]) -> list[str]:
    """The matrix of GPUs and adapters; with -p2p, whether GPUs reach each other."""
    gpus, nics = machine.gpus(), machine["nics"]
    if "-p2p" in options:
        return _reach(machine, gpus)
    names = [f"GPU{number}" for number in range(len(gpus))]
    ports = [f"NIC{number}" for number in range(len(nics))]
    tail = ["CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]
    # The underlining is there even when nobody looks at a terminal; two tabs before the last column are the tool's own.
    lines = [f"\t\x1b[4m{chr(9).join(names + ports + tail)}\x1b[0m"]
    for row, gpu in enumerate(gpus):
        cells = [_gpus(machine, gpu, other) for other in gpus] + [_place(gpu.numa_node, nic) for nic in nics]
        cpus = next((node["cpus"] for node in machine["numa"] if node["node"] == gpu.numa_node), "")
        lines.append("\t".join([names[row], *cells, cpus, str(gpu.numa_node), "", "N/A"]))
    for row, nic in enumerate(nics):
        cells = [_place(gpu.numa_node, nic) for gpu in gpus]
        cells += [" X " if other is nic else _place(nic["numa_node"], other) for other in nics]
        lines.append("\t".join([ports[row], *cells, "", "", "", ""]))
    lines += LEGEND.splitlines()
    if nics:
        lines += ["", "NIC Legend:", "", *(f"  {port}: {nic['name']}" for port, nic in zip(ports, nics)), ""]
    return lines


def _gpus(machine: Machine, one: Gpu, other: Gpu) -> str:
    if one == other:
        return " X "
    links = min(machine.active_links(one), machine.active_links(other))
    return f"NV{links}" if links else _place(one.numa_node, {"numa_node": other.numa_node})


def _place(node: int, other: Json) -> str:
    """Every device has a PCI domain of its own, as on Azure's virtual machines: no two share a bridge."""
    return "NODE" if node == other["numa_node"] else "SYS"


def _reach(machine: Machine, gpus: list[Gpu]) -> list[str]:
    names = [f"GPU{number}" for number in range(len(gpus))]
    lines = [" \t" + "\t".join(f"{name}" for name in names) + "\t"]
    for row, one in enumerate(gpus):
        cells = [" X" if one == other else " OK" for other in gpus]
        lines.append(f" {names[row]}\t" + "\t".join(cells) + "\t")
    return [
        *lines,
        "",
        "Legend:",
        "",
        "  X    = Self",
        "  OK   = Status Ok",
        "  CNS  = Chipset not supported",
        "  GNS  = GPU not supported",
        "  TNS  = Topology not supported",
        "  NS   = Not supported",
        "  U    = Unknown",
    ]


def nvlink(machine: Machine, gpus: list[tuple[int, Gpu]], counts: bool = False) -> list[str]:
    lines = []
    for number, gpu in gpus:
        lines.append(f"GPU {number}: {machine['gpu']['name']} (UUID: {gpu.uuid})")
        down = [int(link) for link in machine.fault("nvlink_down", gpu.index, [])]
        if not machine.active_links(gpu):
            lines.append("NVML: Unable to retrieve NVLink information as all links are inActive")
            continue
        for link in range(machine["gpu"]["nvlinks"]):
            if counts:
                lines += [f"\t Link {link}: {kind} Errors: 0" for kind in ("Replay", "Recovery", "CRC")]
                continue
            lines.append(
                f"\t Link {link}: " + ("<inactive>" if link in down else f"{machine['gpu']['nvlink_speed']:g} GB/s")
            )
    return lines
