# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-smi --query-gpu and --query-compute-apps: cells of the tree, with the names and units of their own."""

from __future__ import annotations

import typing as t

from emulation import smi_tree
from emulation.machine import Gpu, Machine
from emulation.smi_values import State, everything, mask
from emulation.smi_values import processes as running

# Field: where it is in the tree, and the unit in its header. "x" is cut off and no unit.
FIELDS: dict[str, tuple[str, str]] = {
    "name": ("product_name", ""),
    "serial": ("serial", ""),
    "uuid": ("uuid", ""),
    "vbios_version": ("vbios_version", ""),
    "persistence_mode": ("persistence_mode", ""),
    "pstate": ("performance_state", ""),
    "compute_mode": ("compute_mode", ""),
    "mig.mode.current": ("mig_mode/current_mig", ""),
    "fan.speed": ("fan_speed", "%"),
    "pci.bus_id": ("pci/pci_bus_id", ""),
    "pci.domain": ("pci/pci_domain", ""),
    "pcie.link.gen.current": ("pci/pci_gpu_link_info/pcie_gen/current_link_gen", ""),
    "pcie.link.gen.max": ("pci/pci_gpu_link_info/pcie_gen/max_link_gen", ""),
    "pcie.link.width.current": ("pci/pci_gpu_link_info/link_widths/current_link_width", "x"),
    "pcie.link.width.max": ("pci/pci_gpu_link_info/link_widths/max_link_width", "x"),
    "memory.total": ("fb_memory_usage/total", "MiB"),
    "memory.reserved": ("fb_memory_usage/reserved", "MiB"),
    "memory.used": ("fb_memory_usage/used", "MiB"),
    "memory.free": ("fb_memory_usage/free", "MiB"),
    "utilization.gpu": ("utilization/gpu_util", "%"),
    "utilization.memory": ("utilization/memory_util", "%"),
    "ecc.mode.current": ("ecc_mode/current_ecc", ""),
    "ecc.mode.pending": ("ecc_mode/pending_ecc", ""),
    "ecc.errors.corrected.volatile.total": ("ecc_errors/volatile/dram_correctable", ""),
    "ecc.errors.uncorrected.volatile.total": ("ecc_errors/volatile/dram_uncorrectable", ""),
    "ecc.errors.corrected.aggregate.total": ("ecc_errors/aggregate/dram_correctable", ""),
    "ecc.errors.uncorrected.aggregate.total": ("ecc_errors/aggregate/dram_uncorrectable", ""),
    "retired_pages.single_bit_ecc.count": ("retired_pages/multiple_single_bit_retirement/retired_count", ""),
    "retired_pages.double_bit.count": ("retired_pages/double_bit_retirement/retired_count", ""),
    "retired_pages.pending": ("retired_pages/pending_retirement", ""),
    "temperature.gpu": ("temperature/gpu_temp", "-C"),
    "temperature.memory": ("temperature/memory_temp", "-C"),
    "power.draw": ("gpu_power_readings/power_draw", "W"),
    "power.limit": ("gpu_power_readings/current_power_limit", "W"),
    "clocks.current.graphics": ("clocks/graphics_clock", "MHz"),
    "clocks.current.sm": ("clocks/sm_clock", "MHz"),
    "clocks.current.memory": ("clocks/mem_clock", "MHz"),
    "clocks.current.video": ("clocks/video_clock", "MHz"),
    "clocks.applications.graphics": ("applications_clocks/graphics_clock", "MHz"),
    "clocks.applications.memory": ("applications_clocks/mem_clock", "MHz"),
    "clocks.default_applications.graphics": ("default_applications_clocks/graphics_clock", "MHz"),
    "clocks.default_applications.memory": ("default_applications_clocks/mem_clock", "MHz"),
    "clocks.max.graphics": ("max_clocks/graphics_clock", "MHz"),
    "clocks.max.sm": ("max_clocks/sm_clock", "MHz"),
    "clocks.max.memory": ("max_clocks/mem_clock", "MHz"),
}
# The header shows the name on the right, whichever was asked for.
ALIASES = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_serial": "serial",
    "gpu_bus_id": "pci.bus_id",
    "clocks.gr": "clocks.current.graphics",
    "clocks.sm": "clocks.current.sm",
    "clocks.mem": "clocks.current.memory",
    "clocks.applications.gr": "clocks.applications.graphics",
    "clocks.applications.mem": "clocks.applications.memory",
    "clocks.default_applications.gr": "clocks.default_applications.graphics",
    "clocks.default_applications.mem": "clocks.default_applications.memory",
    "clocks.max.gr": "clocks.max.graphics",
    "clocks.max.mem": "clocks.max.memory",
    "clocks_throttle_reasons.active": "clocks_event_reasons.active",
}
OWN = ("index", "count", "driver_version", "clocks_event_reasons.active", "compute_cap")
PROCESS_FIELDS = {
    "pid": "pid",
    "process_name": "name",
    "name": "name",
    "used_gpu_memory": "memory_mib",
    "used_memory": "memory_mib",
}


def gpus(machine: Machine, query: str, form: str, chosen: list[tuple[int, Gpu]]) -> int:
    names = [ALIASES.get(word.strip(), word.strip()) for word in query.split(",")]
    wrong = [name for name in names if name not in FIELDS and name not in OWN]
    if not _sound(form) or wrong:
        return _refuse(form, wrong)
    words = form.split(",")
    if "noheader" not in words:
        print(", ".join(_header(name, "nounits" in words) for name in names))
    state = State()
    for number, gpu in chosen:
        nodes = everything(machine, gpu, number, state.of(gpu))
        own = {
            "index": number,
            "count": len(machine.gpus()),
            "driver_version": machine["driver"],
            "clocks_event_reasons.active": f"0x{mask(machine, gpu):016x}",
            "compute_cap": machine["gpu"]["compute_capability"],
        }
        print(", ".join(str(own[name]) if name in own else _cell(nodes, name, "nounits" in words) for name in names))
    return 0


def _sound(form: str) -> bool:
    return "csv" in form.split(",")


def _refuse(form: str, wrong: list[str]) -> int:
    if not _sound(form):
        print("Option \"--format\" is required and must contain csv. Run 'nvidia-smi --help-query-gpu' for more info.")
    else:
        print(f'Field "{wrong[0]}" is not a valid field to query.')
    return 2


def _header(name: str, bare: bool) -> str:
    unit = FIELDS.get(name, ("", ""))[1]
    return name if bare or unit in ("", "x", "-C") else f"{name} [{unit}]"


def _cell(nodes: tuple[smi_tree.Node, ...], name: str, bare: bool) -> str:
    path, unit = FIELDS[name]
    value = smi_tree.find(nodes, path)
    if value == "N/A":
        return "[N/A]"
    if unit in ("x", "-C"):
        return value.rstrip("xC ")
    return value.split()[0] if bare and unit else value


def processes(machine: Machine, query: str, form: str, chosen: list[tuple[int, Gpu]]) -> int:
    names = [word.strip() for word in query.split(",")]
    known = {*PROCESS_FIELDS, "gpu_uuid", "gpu_bus_id", "gpu_name", "gpu_serial", "timestamp"}
    wrong = [name for name in names if name not in known]
    if not _sound(form) or wrong:
        return _refuse(form, wrong)
    words = form.split(",")
    memory = ("used_gpu_memory", "used_memory")
    if "noheader" not in words:
        print(
            ", ".join("used_gpu_memory [MiB]" if name in memory and "nounits" not in words else name for name in names)
        )
    for dummy, gpu in chosen:
        for one in running(machine, gpu):
            fields: dict[str, t.Any] = {"name": "python3", "memory_mib": 0, **one}
            cells = {name: str(fields.get(PROCESS_FIELDS.get(name, ""), "")) for name in names}
            cells.update(
                gpu_uuid=gpu.uuid, gpu_bus_id=gpu.bus_id, gpu_serial=gpu.serial, gpu_name=machine["gpu"]["name"]
            )
            suffix = "" if "nounits" in words else " MiB"
            print(", ".join(cells[name] + (suffix if name in memory else "") for name in names))
    return 0
