# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NCCL's topology file from a profile: which GPU and adapter are near which CPUs. Pure, private.

In the form that NCCL reads (2.30, src/graph/xml.cc): no declaration, no tabs, at most 254 characters in a value. NCCL
adds what it finds on the machine (GPUs, NVLinks, ports) to the nodes whose bus address it meets here, so the file has
only what a virtual machine hides: the PCI bridges and NUMA nodes above the devices.
"""

from __future__ import annotations

import typing as t
from xml.sax.saxutils import quoteattr

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import MARK

_GPU = "0x030200"
_NIC = "0x020700"
_BRIDGE = "0x060400"
BRIDGES = ("none", "gpu", "numa_node")
Json = t.Mapping[str, t.Any]
Device = t.Tuple[str, str]


class NcclTopologyError(ValueError):
    """A profile does not say enough; the text is fit for the user."""


def generate(profile: Json) -> str:
    """Return the topology file of a machine type."""
    topology, cpus = _needed(profile, "topology"), _needed(profile, "vcpus")
    link, bridge = _needed(topology, "link", "topology"), _needed(topology, "bridge", "topology")
    cpu = _needed(topology, "cpu", "topology")
    if bridge not in BRIDGES:
        raise NcclTopologyError(f"topology.bridge is {bridge!r}; {', '.join(BRIDGES)} are known")
    nodes = int(_needed(profile, "numa_nodes"))
    number = 0
    name = f"{profile.get('vm_size', '')} ({MARK}, role node_tuning)"
    lines = [f"<system {_attributes(version=1, name=name)}>"]
    for node in range(nodes):
        names = {"arch": "arch", "vendor": "vendor", "familyid": "family", "modelid": "model"}
        about = {name: _needed(cpu, key, "topology.cpu") for name, key in names.items()}
        lines.append(f"  <cpu {_attributes(numaid=node, affinity=affinity(int(cpus), nodes, node), **about)}>")
        for group in groups(profile, node):
            number += bridge != "none"
            lines += _devices(group, link, f"ffff:ff:{number:02x}.0" if bridge != "none" else "")
        lines.append("  </cpu>")
    return "\n".join([*lines, "</system>", ""])


def _needed(mapping: Json, key: str, within: str = "") -> t.Any:
    if mapping.get(key) is None:
        raise NcclTopologyError(f"the profile has no {within}{'.' if within else ''}{key}")
    return mapping[key]


def groups(profile: Json, node: int) -> list[list[Device]]:
    """Return the devices of a NUMA node by the bridge that they share, each as (PCI domain, class)."""
    ports = profile.get("infiniband") or {}
    domain = dict(zip(ports.get("devices", []), ports.get("pci_domains", [])))
    taken: set[str] = set()
    groups: list[list[Device]] = []
    for gpu in _needed(profile["topology"], "gpus", "topology"):
        nic = gpu.get("nic")
        devices = [(gpu["pci_domain"], _GPU)]
        if nic and nic not in taken:
            devices.append((_needed(domain, nic, "infiniband.pci_domains"), _NIC))
            taken.add(nic)
        groups += [devices] if gpu["numa_node"] == node else []
    if profile["topology"]["bridge"] == "gpu":
        return groups
    return [[device for devices in groups for device in devices]] if groups else []


def affinity(cpus: int, nodes: int, node: int) -> str:
    """Return the CPUs of a NUMA node as the kernel writes masks; Azure numbers them node after node."""
    each = cpus // nodes
    groups = -(-cpus // 32)
    text = f"{((1 << each) - 1) << (node * each):0{groups * 8}x}"
    return ",".join(text[i : i + 8] for i in range(0, len(text), 8))


def _devices(group: t.Sequence[Device], link: Json, bridge: str) -> list[str]:
    attributes = {f"link_{key}": _needed(link, key, "topology.link") for key in ("speed", "width")}
    pad = "      " if bridge else "    "
    lines = [
        f"{pad}<pci {_attributes(busid=f'{domain}:00:00.0', **{'class': kind}, **attributes)}/>"
        for domain, kind in group
    ]
    if not bridge:
        return lines
    return [f"    <pci {_attributes(busid=bridge, **{'class': _BRIDGE}, **attributes)}>", *lines, "    </pci>"]


def _attributes(**pairs: t.Any) -> str:
    return " ".join(f"{name}={quoteattr(str(value))}" for name, value in pairs.items())
