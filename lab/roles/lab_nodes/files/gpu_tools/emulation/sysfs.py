# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of /sys that tells where GPUs, adapters and CPUs are, as files of an emulated machine. Pure."""

from __future__ import annotations

import typing as t

from emulation.binding import expand
from emulation.machine import Gpu, Json, Machine

# Speed of one lane by PCIe generation, as the kernel writes it.
_GENERATIONS = {3: "8.0", 4: "16.0", 5: "32.0"}
# A disk of the operating system, and its size in GB.
_SYSTEM = ("SAMSUNG MZ1L21T9HCLS-00A07", 1920)
_SPEEDS = {100: "4X EDR", 200: "4X HDR", 400: "4X NDR"}
_COUNTERS = (
    "excessive_buffer_overrun_errors link_downed link_error_recovery local_link_integrity_errors "
    "port_rcv_data port_rcv_errors port_rcv_packets port_rcv_remote_physical_errors port_rcv_switch_relay_errors "
    "port_xmit_constraint_errors port_xmit_data port_xmit_discards port_xmit_packets port_xmit_wait symbol_error "
    "unicast_rcv_packets unicast_xmit_packets VL15_dropped"
).split()


class Link(str):
    """The target of a symbolic link; everything else is the text of a file. The two are never equal."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Link) and str(self) == str(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def tree(machine: Machine) -> dict[str, str]:
    """Return every file and link by its path below the root."""
    cpus = max((max(expand(node["cpus"])) for node in machine["numa"]), default=0)
    files: dict[str, str] = {
        "devices/system/cpu/online": f"0-{cpus}",
        "devices/system/cpu/present": f"0-{cpus}",
        "devices/system/node/online": f"0-{len(machine['numa']) - 1}",
    }
    for node in machine["numa"]:
        files[f"devices/system/node/node{node['node']}/cpulist"] = node["cpus"]
    gpus = [gpu for gpu in machine.all_gpus() if not machine.listed("missing_gpu", gpu.index)]
    for gpu in gpus:
        files.update(_gpu(machine, gpu))
    for number, nic in enumerate(machine["nics"]):
        files.update(_nic(machine, nic, number))
    files.update(_disks(machine.description.get("nvme") or {}))
    return files


def _disks(nvme: Json) -> dict[str, str]:
    """The local disks of the machine type, and after them the two that hold the operating system."""
    local = (nvme.get("controller") or "SAMSUNG MZQL23T8HCLS-00A07", nvme.get("size_gb") or 960)
    files = {}
    for number, (model, size) in enumerate([local] * (nvme.get("count") or 0) + [_SYSTEM] * 2):
        controller = f"class/nvme/nvme{number}"
        files.update({f"{controller}/model": str(model), f"{controller}/state": "live"})
        files[f"{controller}/nvme{number}n1/size"] = str(int(size * 1e9) // 512)
    return files


def slot(bus_id: str) -> str:
    """The address as the kernel writes it."""
    domain, dummy, rest = bus_id.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def _device(machine: Machine, bus_id: str, node: int, vendor: str, kind: str) -> dict[str, str]:
    cpus = next((item["cpus"] for item in machine["numa"] if item["node"] == node), "")
    base = f"bus/pci/devices/{slot(bus_id)}"
    return {
        f"{base}/vendor": vendor,
        f"{base}/class": kind,
        f"{base}/numa_node": str(node),
        f"{base}/local_cpulist": cpus,
        f"{base}/uevent": f"PCI_SLOT_NAME={slot(bus_id)}",
    }


def _gpu(machine: Machine, gpu: Gpu) -> dict[str, str]:
    base = f"bus/pci/devices/{slot(gpu.bus_id)}"
    speed = f"{_GENERATIONS.get(machine['gpu']['pcie_generation'], '32.0')} GT/s PCIe"
    return {
        **_device(machine, gpu.bus_id, gpu.numa_node, "0x10de", "0x030200"),
        f"{base}/max_link_speed": speed,
        f"{base}/current_link_speed": speed,
        f"{base}/max_link_width": str(machine["gpu"]["pcie_width"]),
        f"{base}/current_link_width": str(machine.width(gpu)),
    }


def _nic(machine: Machine, nic: Json, number: int) -> dict[str, str]:
    base = f"class/infiniband/{nic['name']}"
    ethernet, down = nic["link_layer"] == "Ethernet", machine.listed("ib_down", nic["name"])
    port: dict[str, str] = {
        "state": "1: DOWN" if down else "4: ACTIVE",
        "phys_state": "3: Disabled" if down and ethernet else "2: Polling" if down else "5: LinkUp",
        "rate": f"{10 if down else nic['rate']} Gb/sec ({'4X SDR' if down else _SPEEDS.get(nic['rate'], '4X')})",
        "link_layer": nic["link_layer"],
        "lid": "0x0" if ethernet or down else f"0x{number + 1:x}",
        "sm_lid": "0x0" if ethernet or down else "0x1",
        "lid_mask_count": "0",
        "cap_mask": "0x04010000" if ethernet else "0xa651e84a",
        **{f"counters/{name}": "0" for name in _COUNTERS},
    }
    device = {
        "node_type": "1: CA",
        "node_guid": f"0015:5dff:fe33:{number:04x}",
        "sys_image_guid": f"0015:5dff:fe33:{number:04x}",
        "node_desc": f"{machine.host} {nic['name']}",
        "fw_ver": "20.31.2006",
        "hw_rev": "0",
        "hca_type": "MT4124",
        "board_id": "emulated",
    }
    return {
        **_device(machine, nic["bus_id"], nic["numa_node"], "0x15b3", "0x020000" if ethernet else "0x020700"),
        f"{base}/device": Link(f"../../../bus/pci/devices/{slot(nic['bus_id'])}"),
        **{f"{base}/{name}": text for name, text in device.items()},
        **{f"{base}/ports/1/{name}": text for name, text in port.items()},
    }


def lines(tree_: t.Mapping[str, str]) -> dict[str, str]:
    """The files as they are written: the kernel ends each with a newline; links stay links."""
    return {path: text if isinstance(text, Link) else f"{text}\n" for path, text in tree_.items()}
