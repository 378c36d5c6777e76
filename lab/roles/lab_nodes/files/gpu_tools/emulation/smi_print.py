# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-smi: the whole of what it knows, as XML, as text, or as the overview for people."""

from __future__ import annotations

import functools
import time
import typing as t

from emulation import smi_tree
from emulation.machine import Gpu, Json, Machine
from emulation.smi_values import processes


def _head(machine: Machine) -> dict[str, str]:
    return {
        "timestamp": time.strftime("%a %b %e %H:%M:%S %Y"),
        "driver_version": machine["driver"],
        "cuda_version": machine["cuda"],
        "attached_gpus": str(len(machine.gpus())),
    }


def xml(machine: Machine, trees: list[tuple[Gpu, t.Any]]) -> t.Iterator[str]:
    yield '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>'
    for key, value in _head(machine).items():
        yield f"\t<{key}>{value}</{key}>"
    memory, graphics = smi_tree.supported_clocks(**machine["gpu"]["max_clocks"])
    for gpu, nodes in trees:
        yield f'\t<gpu id="{gpu.bus_id}">'
        yield from smi_tree.xml(nodes)
        yield f"\t\t<supported_clocks>\n\t\t\t<supported_mem_clock>\n\t\t\t\t<value>{memory} MHz</value>"
        yield from (f"\t\t\t\t<supported_graphics_clock>{clock} MHz</supported_graphics_clock>" for clock in graphics)
        yield "\t\t\t</supported_mem_clock>\n\t\t</supported_clocks>\n\t\t<processes>"
        for one in processes(machine, gpu):
            yield from _process(one)
        yield "\t\t</processes>\n\t\t<accounted_processes>\n\t\t</accounted_processes>\n\t</gpu>\n"
    yield "</nvidia_smi_log>"


def _process(one: Json) -> t.Iterator[str]:
    cells = {
        "gpu_instance_id": "N/A",
        "compute_instance_id": "N/A",
        "pid": one["pid"],
        "type": "C",
        "process_name": one.get("name", "python3"),
        "used_memory": f"{one.get('memory_mib', 0)} MiB",
    }
    yield "\t\t\t<process_info>"
    yield from (f"\t\t\t\t<{key}>{value}</{key}>" for key, value in cells.items())
    yield "\t\t\t</process_info>"


def text(machine: Machine, trees: list[tuple[Gpu, t.Any]], sections: list[str]) -> t.Iterator[str]:
    only = {name for word in sections for name in smi_tree.SECTIONS.get(word, ())} if sections else None
    head = dict(zip(("Timestamp", "Driver Version", "CUDA Version", "Attached GPUs"), _head(machine).values()))
    yield "\n==============NVSMI LOG==============\n"
    for label, value in head.items():
        yield f"{'' if label != 'Attached GPUs' else chr(10)}{label:<{smi_tree.LABEL}}: {value}"
    for gpu, nodes in trees:
        yield f"GPU {gpu.bus_id}"
        yield from smi_tree.text(nodes, only=only)
        if "SUPPORTED_CLOCKS" in sections:
            memory, graphics = smi_tree.supported_clocks(**machine["gpu"]["max_clocks"])
            yield f"    Supported Clocks\n        {'Memory':<34}: {memory} MHz"
            yield from (f"            {'Graphics':<30}: {clock} MHz" for clock in graphics)
        if only is None or "PIDS" in sections:
            yield from _text_processes(processes(machine, gpu))
        yield ""


def _text_processes(running: list[Json]) -> t.Iterator[str]:
    if not running:
        yield f"{'    Processes':<{smi_tree.LABEL}}: None"
        return
    yield "    Processes"
    for one in running:
        yield f"{'        GPU instance ID':<{smi_tree.LABEL}}: N/A"
        yield f"{'        Compute instance ID':<{smi_tree.LABEL}}: N/A"
        yield f"{'        Process ID':<{smi_tree.LABEL}}: {one['pid']}"
        yield f"{'            Type':<{smi_tree.LABEL}}: C"
        yield f"{'            Name':<{smi_tree.LABEL}}: {one.get('name', 'python3')}"
        yield f"{'            Used GPU Memory':<{smi_tree.LABEL}}: {one.get('memory_mib', 0)} MiB"


def table(machine: Machine, trees: list[tuple[Gpu, t.Any]]) -> t.Iterator[str]:
    """The overview for people; nothing should parse it."""
    yield f"{time.strftime('%a %b %e %H:%M:%S %Y')}       \n+{'-' * 89}+"
    driver, cuda = machine["driver"], machine["cuda"]
    yield f"| NVIDIA-SMI {driver:<23}Driver Version: {driver:<19}CUDA Version: {cuda:<5}|"
    yield f"+{'-' * 41}+{'-' * 24}+{'-' * 22}+"
    for number, (gpu, nodes) in enumerate(trees):
        cell = functools.partial(smi_tree.find, nodes)
        persistence = "On" if cell("persistence_mode") == "Enabled" else "Off"
        used = f"{cell('fb_memory_usage/used')} / {cell('fb_memory_usage/total')}".replace(" MiB", "MiB")
        power = f"{cell('gpu_power_readings/power_draw')} / {cell('gpu_power_readings/current_power_limit')}"
        yield f"| {number:3}  {machine['gpu']['name'][:25]:<26}{persistence:>8} | {gpu.bus_id} Off |{'0':>21} |"
        yield f"| N/A  {cell('temperature/gpu_temp'):>5} P0 {power:>25} | {used:>22} |{'0%  Default':>21} |"
        yield f"+{'-' * 41}+{'-' * 24}+{'-' * 22}+"
