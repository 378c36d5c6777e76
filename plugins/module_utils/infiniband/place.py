# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ports on the node that infiniband_bandwidth measures: the first half of its program. Private, stdlib only."""

from __future__ import annotations

import os
import re
import typing as t

Json = t.Dict[str, t.Any]


def read(*parts: str) -> str:
    try:
        with open(os.path.join(*parts), errors="replace") as file:  # noqa: PTH118, PTH123
            return file.read().strip()
    except OSError:
        return ""


def natural(name: str) -> list[tuple[int, str]]:
    """Sort mlx5_ib10 after mlx5_ib2."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]{1,9})", name)]


def listed(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path), key=natural)  # noqa: PTH208
    except OSError:
        return []


def place(sysfs: str, nic: str) -> Json:
    """Return link layer, state, NUMA node and CPUs of a port (``device`` or ``device:port``)."""
    device, dummy, number = nic.partition(":")
    base = f"{sysfs}/class/infiniband/{device}"
    port, node = f"{base}/ports/{number or 1}", read(base, "device/numa_node")
    cpus = read(f"{sysfs}/devices/system/node/node{node}/cpulist") if node.isdigit() else ""
    state = read(port, "state").partition(": ")[2].capitalize()
    return {"link_layer": read(port, "link_layer"), "state": state, "numa_node": node, "cpus": cpus}


def plan(task: Json) -> list[str]:
    """Return the ports to measure: those asked for, else all of the link layer that are up."""
    if task["devices"]:
        return list(task["devices"])
    base = f"{task['sysfs']}/class/infiniband"
    devices = {device: listed(f"{base}/{device}/ports") for device in listed(base)}
    names = [d if len(ports) == 1 else f"{d}:{port}" for d, ports in devices.items() for port in ports]
    known = [(name, place(task["sysfs"], name)) for name in names]
    return [n for n, at in known if at["state"] == "Active" and at["link_layer"] == task["link_layer"]]


def numbers(cpus: str) -> set[int]:
    """Return the numbers of a CPU list as Linux writes it."""
    found: set[int] = set()
    for part in filter(None, cpus.split(",")):
        first, dummy, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found
